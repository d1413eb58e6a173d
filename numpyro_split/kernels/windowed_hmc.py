r"""Hamiltonian Monte Carlo over subsets of the data, with windows of acceptance.

Target: the full posterior, exactly, with H(z, p) = Σ_m U_m(z) + ½ pᵀM⁻¹p of *all* the data. A transition draws
p ~ N(0, M), makes the steps of a schedule (:mod:`split_common.schedule`) from a start somewhere in the
first window, and takes a state of either window in a way that leaves exp(-H) invariant: why is derived in
:mod:`numpyro_split.trajectories.windows`.

Each state of a window is weighed by its energy on all the data. Where a step's closing gradients bring it (one subset,
the naive schedule) it costs nothing; under the symmetric schedule it is a forward pass on the subsets, which
``num_grads`` does not count, being no gradient.

Reference:
    Neal (1994), An improved acceptance procedure for the hybrid Monte Carlo algorithm. Lau (2018), chapter 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from numpyro_split.kernels.hamiltonian import Hamiltonian
from numpyro_split.kernels.host_kernel import SplitKernel
from numpyro_split.kernels.options import EUCLIDEAN_DEFAULTS, EuclideanOptions, resolve_options
from numpyro_split.potential.split_potential import SplitPotential
from numpyro_split.trajectories.windows import Windowed
from split_common.fixed_length import DEFAULT_JITTER
from split_common.options import with_options
from split_common.schedule import ChosenSchedule, ScheduleChoice


class WindowedHMC(SplitKernel):
    """Hamiltonian Monte Carlo with windows of acceptance (Neal 1994).

    Of the ``num_steps`` + 1 states of a trajectory that contains the start among its first W, the last W are accepted
    together or not at all, so an error of the energy that goes up and down along the trajectory averages out. W = 1 is
    HMC. Statistics ``accept_prob`` and ``diverging`` are over the states of both windows but the start.

    Args:
        model: NumPyro model whose likelihood sits in a plate over the data rows; or a
            :class:`~numpyro_split.SplitPotential`, which brings its own ``num_subsets`` and needs ``init_params``.
        num_subsets: M, from 1 to the number of rows, or "auto" for the smallest whose gradient takes at most
            ``memory``. Memory of a gradient is that of N/M rows.
            One subset takes any model that the host's HMC takes, also where none divides it.
        num_steps: L, steps of a trajectory.
        window_size: W, from 1 to L + 1.
        step_size_jitter: steps of a trajectory are drawn anew to be up to this share longer or shorter than the
            adapted step size, from 0 up to, but not including, 1.
        schedule: "symmetric", "naive", "randomised" or "single_visit", a :class:`~split_common.schedule.Schedule` of M
            subsets, or a function from M to one.
        step_size: step size, or where its adaptation starts.
        adapt_step_size: adapt the step size in warm-up, by dual averaging.
        adapt_mass_matrix: adapt the mass matrix in warm-up, in the host's windows.
        dense_mass: False for a diagonal mass matrix, True for a dense one, or a list of tuples of site names,
            each a dense block.
        target_accept_prob: acceptance that the step size is adapted to.
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
        >>> kernel = WindowedHMC(lambda y: None, num_subsets=4, num_steps=20, window_size=5)
        >>> kernel.num_subsets
        4
    """

    @with_options(EUCLIDEAN_DEFAULTS)
    def __init__(
        self,
        model: Callable[..., Any] | SplitPotential,
        num_subsets: int | str = 1,
        *,
        num_steps: int = 16,
        window_size: int = 4,
        step_size_jitter: float = DEFAULT_JITTER,
        schedule: ScheduleChoice = "symmetric",
        **options: Unpack[EuclideanOptions],
    ):
        splitting, adaptation = resolve_options(model, num_subsets, options)
        trajectory = Windowed.checked(num_steps, window_size, step_size_jitter)
        super().__init__(
            model, splitting, Hamiltonian(ChosenSchedule(schedule, splitting.num_subsets), trajectory, adaptation)
        )
