r"""Hamiltonian Monte Carlo over subsets of the data whose trajectories choose their own length.

Target: the full posterior, exactly, with H(z, p) = Σ_m U_m(z) + ½ pᵀM⁻¹p of *all* the data. A transition draws
p ~ N(0, M), builds a trajectory by the steps of a schedule (:mod:`split_common.schedule`), forwards and
backwards in time, and takes one of its states in a way that leaves exp(-H) invariant, whatever rule ends it: why is
derived in :mod:`numpyro_split.trajectories.doubling`. The rule is a plain function in
:mod:`numpyro_split.trajectories.termination`.

Each state of a tree is weighed by its energy on all the data. Where a step's closing gradients bring it (one subset,
the naive schedule) it costs nothing; under the symmetric schedule it is a forward pass on the subsets, which
``num_grads`` does not count, being no gradient. A criterion that asks for dG/dt asks for the gradient on all the data
at each state: under the symmetric schedule M more subset gradients a state, which ``num_grads`` counts.

References:
    Hoffman and Gelman (2014), The No-U-Turn Sampler. Betancourt (2016), Identifying the Optimal Integration Time in
    Hamiltonian Monte Carlo; (2017), A Conceptual Introduction to Hamiltonian Monte Carlo. Lau (2018), chapter 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from numpyro_split.kernels.hamiltonian import Hamiltonian
from numpyro_split.kernels.host_kernel import SplitKernel
from numpyro_split.kernels.options import EUCLIDEAN_DEFAULTS, EuclideanOptions, resolve_options
from numpyro_split.potential.split_potential import SplitPotential
from numpyro_split.trajectories.doubling import Doubling
from numpyro_split.trajectories.termination import U_TURN, FixedRule
from split_common.options import with_options
from split_common.schedule import ChosenSchedule, ScheduleChoice


class SplitNUTS(SplitKernel):
    """The No-U-Turn sampler over subsets of the data.

    Trajectories double until they turn back (the generalised criterion with Stan's checks across subtrees); a state is
    taken by its weight, with a bias towards the newest half. At M = 1 it has the same target as the host's NUTS, but
    not the same stopping rule: the host makes no checks across subtrees, and leaves half of each end's momentum out of
    the sum. A step costs what the schedule costs, and under the symmetric one with M > 1 a forward pass on all the data
    besides.

    Args:
        model: NumPyro model whose likelihood sits in a plate over the data rows; or a
            :class:`~numpyro_split.SplitPotential`, which brings its own ``num_subsets`` and needs ``init_params``.
        num_subsets: M, from 1 to the number of rows, or "auto" for the smallest whose gradient takes at most
            ``memory``. Memory of a gradient is that of N/M rows.
            One subset takes any model that the host's HMC takes, also where none divides it.
        max_tree_depth: most doublings of a trajectory, from 1 to 30; at 10 it has up to 1,023 steps.
        schedule: "symmetric", "naive", "randomised" or "single_visit", a :class:`~split_common.schedule.Schedule` of M
            subsets, or a function from M to one.
        step_size: step size, or where its adaptation starts.
        adapt_step_size: adapt the step size in warm-up, by dual averaging.
        adapt_mass_matrix: adapt the mass matrix in warm-up, in the host's windows.
        dense_mass: False for a diagonal mass matrix, True for a dense one, or a list of tuples of site names,
            each a dense block.
        target_accept_prob: mean acceptance over a trajectory's states that the step size is adapted to.
        metric: None for the host's, a covariance of draws; "auto" for one from draws and gradients, dense up to 500
            parameters and of low rank beyond, which serves from a window of few draws and costs a gradient of
            all rows for each of them (:mod:`split_common.gradient_metric`). Not with ``dense_mass``.
        center: reference about which the kicks of the subsets are centred, which leaves target and decision as they
            are: None for no centring, "auto" for one found in warm-up, used if it is measured to help, or a dict of
            unconstrained values by site (:mod:`split_common.centering`).
        center_order: 1, or 2 for curvature too, up to 100 parameters; None for what is measured to be best, with a
            given center for 1.
        drift: form of the drifts between kicks: None for straight lines; "auto", with ``metric="auto"``, for turns
            about a normal approximation that warm-up finds, of which the kicks make up the rest, used if the posterior
            is measured to be near enough to it (:mod:`split_common.harmonic`).
        inverse_mass_matrix: inverse mass matrix to start from: shape (D,), or (D, D) for a dense one, sites
            sorted by name; or a dict from tuples of site names; a list is an array. None for the identity.
        init_strategy: the host's initialisation strategy.
        find_heuristic_step_size: look for a workable step size at the start and after each metric update.
        forward_mode_differentiation: take derivatives forwards, for models with loops of unknown length
            (``lax.while_loop``, adaptive solvers of differential equations), at the cost of a pass for each parameter.
        regularize_mass_matrix: shrink the estimated mass matrix towards a small multiple of the identity, as the host
            does.
        memory: with ``num_subsets="auto"``, what one gradient may take, in bytes or as "2GiB", "500MB" or "1.5 GB"
            (see "Choosing M" in docs/scale.md). None otherwise.
        plate: name of the data plate; None takes the only plate with observations.
        data_axes: for each argument that holds rows, the axis they lie along; None takes every array whose
            axis 0 has length N.
        subset_order: "sequential" cuts the rows as they stand; "shuffled" deals them by a fixed seed, for
            sorted data.

    Raises:
        TypeError: at construction for a flag that is no bool, or for what is no function or mapping and should be.
        ValueError: at construction for an argument out of range; at ``run`` for faults of model or data (see
            :func:`~numpyro_split.split_model`), a mass matrix of the wrong shape, or a start where the density is not
            finite.
        ModelNotSplittableError: at ``run``, when the subsets do not add up to the model's potential.

    Example:
        >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist
        >>> from numpyro.infer import MCMC
        >>> def model(y):
        ...     mu = numpyro.sample("mu", dist.Normal(0, 1))
        ...     with numpyro.plate("data", y.shape[0]):
        ...         numpyro.sample("y", dist.Normal(mu, 1), obs=y)
        >>> mcmc = MCMC(SplitNUTS(model, num_subsets=4), num_warmup=50, num_samples=50, progress_bar=False)
        >>> mcmc.run(jax.random.key(0), jnp.sin(jnp.arange(20.0)))
        >>> mcmc.get_samples()["mu"].shape
        (50,)
    """

    @with_options(EUCLIDEAN_DEFAULTS)
    def __init__(
        self,
        model: Callable[..., Any] | SplitPotential,
        num_subsets: int | str = 1,
        *,
        max_tree_depth: int = 10,
        schedule: ScheduleChoice = "symmetric",
        **options: Unpack[EuclideanOptions],
    ):
        splitting, adaptation = resolve_options(model, num_subsets, options)
        trajectory = Doubling(FixedRule(U_TURN), max_tree_depth)
        super().__init__(
            model, splitting, Hamiltonian(ChosenSchedule(schedule, splitting.num_subsets), trajectory, adaptation)
        )
