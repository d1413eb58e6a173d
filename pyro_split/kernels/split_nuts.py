r"""Hamiltonian Monte Carlo over subsets of the data whose trajectories choose their own length.

Target: exactly the full posterior, with H(z, p) = Σ_m U_m(z) + ½ pᵀM⁻¹p of *all* the data. A transition draws
p ~ N(0, M), builds a trajectory by steps of a schedule (:mod:`split_common.schedule`) forwards and backwards in time,
and chooses one of its states in a way that leaves exp(-H) invariant, whatever rule ends it; this is derived in
:mod:`pyro_split.trajectories.doubling`. The rules are plain functions in
:mod:`pyro_split.trajectories.termination`.

The weight of each state of a tree needs its energy on all the data. If the closing gradients of a step evaluate it (one
subset, the naive schedule), it costs nothing. Under the symmetric schedule it costs a forward pass on all subsets,
which ``num_grads`` does not count because it is no gradient. A criterion that uses dG/dt needs the gradient on all the
data at each state: under the symmetric schedule this costs M more subset gradients for each state, which ``num_grads``
counts.

References:
    Hoffman and Gelman (2014), The No-U-Turn Sampler. Betancourt (2016), Identifying the Optimal Integration Time in
    Hamiltonian Monte Carlo; (2017), A Conceptual Introduction to Hamiltonian Monte Carlo. Lau (2018), chapter 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from pyro_split.kernels.hamiltonian import Hamiltonian
from pyro_split.kernels.host_kernel import SplitKernel
from pyro_split.kernels.options import EUCLIDEAN_DEFAULTS, EuclideanOptions, resolve_options
from pyro_split.potential.split_potential import SplitPotential
from pyro_split.trajectories.doubling import Doubling
from pyro_split.trajectories.termination import U_TURN
from split_common.options import with_options
from split_common.schedule import ChosenSchedule, ScheduleChoice
from split_common.termination import FixedRule


class SplitNUTS(SplitKernel):
    """The No-U-Turn sampler over subsets of the data.

    Trajectories double until they make a U-turn, by the generalised criterion with Stan's checks across subtrees; a
    state of the trajectory is drawn by its weight, with a bias towards the newest half. With M = 1 the target is that
    of Pyro's NUTS, but not the stopping rule: Pyro makes no checks across subtrees, and leaves half of the momentum at
    either end out of the sum. A step costs what the schedule costs, and with the symmetric schedule and M > 1 a forward
    pass on all the data in addition.

    Args:
        model: Pyro model whose likelihood sits in a plate over the data rows; or a
            :class:`~pyro_split.SplitPotential`, which brings its own ``num_subsets`` and needs ``initial_params``.
        num_subsets: M, the number of subsets, from 1 to the number of rows N, or "auto" for the smallest number whose
            gradient fits into ``memory``. A gradient takes the memory of N/M rows. With one subset, every model that
            Pyro's HMC takes is allowed, also one that cannot be divided.
        max_tree_depth: largest number of doublings of a trajectory, from 1 to 30; with 10 a trajectory has up to 1,023
            steps.
        schedule: kicks and drifts of one step: "symmetric", "naive", "randomised" or "single_visit", a
            :class:`~split_common.schedule.Schedule` of M subsets, or a function from M to one.
        step_size: step size, or the value from which its adaptation starts.
        adapt_step_size: whether the step size adapts in warm-up, by dual averaging.
        adapt_mass_matrix: whether the mass matrix adapts in warm-up, in Pyro's windows.
        full_mass: form of the mass matrix: False for diagonal, True for dense, or a list of tuples of site names, each
            of them a dense block.
        target_accept_prob: acceptance probability, averaged over the states of a trajectory, that the step size is
            adapted to.
        metric: how the mass matrix is estimated: None for Pyro's way, from the covariance of draws; "auto" for one from
            draws and gradients, dense up to 500 parameters and of low rank beyond. That needs few draws, and costs a
            gradient of all rows for each draw of warm-up that it is estimated from
            (:mod:`split_common.gradient_metric`). Not with ``full_mass``.
        center: reference point about which the gradients of the subsets are centred, so that subsets differ less;
            neither the target nor the accept-reject decision changes. None for no centring, "auto" for a point that
            warm-up finds and uses if that is measured to help, or a dict of unconstrained values by site
            (:mod:`split_common.centering`).
        center_order: order of centring: 1 for gradients, 2 for curvature too, with at most 100 parameters. None chooses
            by measurement with ``center="auto"``, and is 1 with a given center.
        drift: form of the drifts between kicks: None for straight lines; "auto", with ``metric="auto"``, for drifts
            that follow a normal approximation of the posterior exactly, so that only the rest of the gradient is left
            to the kicks. Warm-up finds the approximation, and uses it if the posterior is measured to be near enough to
            it (:mod:`split_common.harmonic`).
        inverse_mass_matrix: inverse mass matrix to start from: an array of shape (D,), or (D, D) for a dense one, with
            sites sorted by name; or a dict from tuples of site names to arrays. None for the identity.
        init_strategy: Pyro's initialisation strategy.
        find_heuristic_step_size: whether to search for a workable step size at the start and after each update of the
            mass matrix.
        jit_compile: whether to trace the model once and keep its tensor operations (a model that cannot be traced is
            run again for every gradient, with a warning); False runs it again for every gradient, which is slower.
        process_group: processes that each hold some of the rows and together run one chain: "world" for all processes,
            or a group of ``torch.distributed``; None where this process holds all rows
            (:mod:`pyro_split.potential.ranks`).
        memory: with ``num_subsets="auto"``, the memory that one gradient may take: bytes, or text such as "2GiB" or
            "500MB" ("Choosing M" in docs/scale.md). None otherwise.
        plate: name of the data plate; None takes the only plate with observations.
        data_axes: dict from the name of each argument that holds rows (or of one tensor in it, as "data['X']") to the
            axis they lie along; None takes every tensor whose axis 0 has length N.
        subset_order: "sequential" divides the rows into subsets in their order; "shuffled" deals them out at random by
            a fixed seed, for sorted data.

    Raises:
        TypeError: at construction, for a flag that is not a bool, and for an argument that must be a function or a
            mapping and is not.
        ValueError: at construction, for an argument out of range; at ``run``, for faults of the model or the data (see
            :func:`~pyro_split.split_model`), a mass matrix of the wrong shape, or a starting point where the density is
            not finite.
        ModelNotSplittableError: at ``run``, when the subsets do not add up to the model's potential.

    Example:
        >>> import torch, pyro, pyro.distributions as dist
        >>> from pyro.infer import MCMC
        >>> def model(y):
        ...     mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        ...     with pyro.plate("data", y.shape[0]):
        ...         pyro.sample("y", dist.Normal(mu, 1.0), obs=y)
        >>> mcmc = MCMC(SplitNUTS(model, num_subsets=4), warmup_steps=50, num_samples=50, disable_progbar=True)
        >>> mcmc.run(torch.sin(torch.arange(20.0)))
        >>> mcmc.get_samples()["mu"].shape
        torch.Size([50])
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
