r"""Hamiltonian Monte Carlo whose integrator visits the data subset by subset.

Target: exactly the full posterior. With H(z, p) = Σ_m U_m(z) + ½ pᵀM⁻¹p the transition draws p ~ N(0, M), makes L
steps of a schedule (:mod:`split_common.schedule`), flips p, and accepts with probability
min(1, exp(H(z, p) - H(z', p'))), where H is that of *all* the data. Each step preserves volume. For a palindromic
schedule the map of the steps followed by the flip is its own inverse; for an order drawn uniformly, its inverse is the
map of the reversed order, which is drawn as often. In both cases the transition satisfies detailed balance with respect
to exp(-H), whatever the step size. Splitting changes the energy error, and so the acceptance, but never the target.

This remains true for a palindromic schedule with an order of subsets that is drawn independently of the state
(``subset_permutation="per_trajectory"``), and for a length drawn independently of the state.

Reference:
    Cobb and Jalaian (2021), Scaling Hamiltonian Monte Carlo Inference for Bayesian Neural Networks with
    Symmetric Splitting, UAI. Neal (1995), Bayesian Learning for Neural Networks, section 3.5.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from numpyro_split.kernels.hamiltonian import Hamiltonian
from numpyro_split.kernels.host_kernel import SplitKernel
from numpyro_split.kernels.options import DENSE, EUCLIDEAN_DEFAULTS, RECOMMENDED, EuclideanOptions, resolve_options
from numpyro_split.potential.split_potential import SplitPotential
from numpyro_split.trajectories.fixed_length import FixedLength
from split_common.fixed_length import LengthSettings
from split_common.options import with_options, with_recommended
from split_common.schedule import ChosenSchedule, ScheduleChoice


class SplitHMC(SplitKernel):
    """Split HMC with the recommended schedule, mass matrix and drifts, or with others that are given.

    If only ``num_subsets`` is given, steps are leapfrog steps whose gradient is summed subset by subset, and the mass
    matrix is estimated from draws and gradients. Where the posterior is measured to be nearly normal, drifts follow its
    normal approximation exactly, so that a draw costs one gradient of all rows.

    Args:
        model: NumPyro model whose likelihood sits in a plate over the data rows; or a
            :class:`~numpyro_split.SplitPotential`, which brings its own ``num_subsets`` and needs ``init_params``.
        num_subsets: M, the number of subsets, from 1 to the number of rows N, or "auto" for the smallest number whose
            gradient fits into ``memory``. A gradient takes the memory of N/M rows. With one subset, every model that
            NumPyro's HMC takes is allowed, also one that cannot be divided.
        num_steps: fixed number of steps of a trajectory; not with ``trajectory_length``.
        trajectory_length: fixed length of a trajectory, step size times number of steps, as for NumPyro's HMC. If
            neither is given, warm-up moves by trees that double until they turn back, as in NUTS, and learns their mean
            length; the length of each trajectory after warm-up is then drawn uniformly between 0 and that mean
            (:mod:`split_common.exploration`); with ``metric="auto"``, where it fits, between 0.75 and 1.25 quarter
            turns.
        step_size_jitter: j, from 0 up to but not including 1: the step size of each trajectory is the adapted one times
            a draw from U(1 - j, 1 + j). None for 0.5 with ``num_steps``, otherwise for 0: without jitter,
            trajectories of a fixed number of steps could all be whole periods, after which a chain is back where it
            was.
        schedule: kicks and drifts of one step: "auto" for the naive schedule, where a step costs one gradient of all
            rows, which gives the energy too; "symmetric", "naive", "randomised" or "single_visit", a
            :class:`~split_common.schedule.Schedule` of M subsets, or a function from M to one. For a schedule that is
            not palindromic an order of the subsets is drawn for each trajectory.
        subset_permutation: "fixed" visits the subsets in their order; "per_trajectory" draws an order for each
            trajectory, at the cost of its opening gradients.
        step_size: step size, or the value from which its adaptation starts.
        adapt_step_size: whether the step size adapts in warm-up, by dual averaging.
        adapt_mass_matrix: whether the mass matrix adapts in warm-up, in NumPyro's windows.
        dense_mass: form of the mass matrix: False for diagonal, True for dense, or a list of tuples of site names, each
            of them a dense block.
        target_accept_prob: acceptance probability that the step size is adapted to.
        metric: how the mass matrix is estimated: None for NumPyro's way, from the covariance of draws; "default" for
            "auto", or for None where arguments ask for another form of mass matrix, or for one that does not adapt;
            "auto" for one from draws and gradients, dense up to 500 parameters and of low rank beyond. That needs few
            draws, and costs a gradient of all rows for each draw of warm-up that it is estimated from
            (:mod:`split_common.gradient_metric`). Not with ``dense_mass``.
        center: reference point about which the gradients of the subsets are centred, so that subsets differ less;
            neither the target nor the accept-reject decision changes. None for no centring, "auto" for a point that
            warm-up finds and uses if that is measured to help, or a dict of unconstrained values by site
            (:mod:`split_common.centering`).
        center_order: order of centring: 1 for gradients, 2 for curvature too, with at most 100 parameters. None chooses
            by measurement with ``center="auto"``, and is 1 with a given center.
        drift: form of the drifts between kicks: None for straight lines; "default" for "auto" where the metric is
            "auto" and lengths are left to warm-up, else for None; "auto", with ``metric="auto"``, for drifts that
            follow a normal approximation of the posterior exactly, so that only the rest of the gradient is left to the
            kicks. Warm-up finds the approximation, and uses it if the posterior is measured to be near enough to it
            (:mod:`split_common.harmonic`).
        inverse_mass_matrix: inverse mass matrix to start from: an array of shape (D,), or (D, D) for a dense one, with
            sites sorted by name; or a dict from tuples of site names to arrays. None for the identity.
        init_strategy: NumPyro's initialisation strategy.
        find_heuristic_step_size: whether to search for a workable step size at the start and after each update of the
            mass matrix.
        forward_mode_differentiation: whether to differentiate in forward mode, for models with loops of unknown length
            (``lax.while_loop``, adaptive solvers of differential equations); it costs one pass for each parameter.
        regularize_mass_matrix: whether to shrink the estimated mass matrix towards a small multiple of the identity, as
            NumPyro does.
        memory: with ``num_subsets="auto"``, the memory that one gradient may take: bytes, or text such as "2GiB" or
            "500MB" ("Choosing M" in docs/scale.md). None otherwise.
        plate: name of the data plate; None takes the only plate with observations.
        data_axes: dict from the name of each argument that holds rows (or of one array in it, as "data['X']") to the
            axis they lie along; None takes every array whose axis 0 has length N.
        subset_order: "sequential" divides the rows into subsets in their order; "shuffled" deals them out at random by
            a fixed seed, for sorted data.

    Raises:
        TypeError: at construction, for a flag that is not a bool, and for an argument that must be a function or a
            mapping and is not.
        ValueError: at construction, for an argument out of range, and if both lengths are given; at ``run``, for faults
            of the model or the data (see :func:`~numpyro_split.split_model`), a mass matrix of the wrong shape, or a
            starting point where the density is not finite.
        ModelNotSplittableError: at ``run``, when the subsets do not add up to the model's potential.

    Example:
        >>> SplitHMC(print, num_subsets=4, schedule="naive")
        SplitHMC(model=print, num_subsets=4, plate=None, schedule='naive')
    """

    @with_options(RECOMMENDED)
    def __init__(
        self,
        model: Callable[..., Any] | SplitPotential,
        num_subsets: int | str = 1,
        *,
        num_steps: int | None = None,
        trajectory_length: float | None = None,
        step_size_jitter: float | None = None,
        schedule: ScheduleChoice = "auto",
        subset_permutation: str = "fixed",
        **options: Unpack[EuclideanOptions],
    ):
        lengths = LengthSettings.checked(num_steps, trajectory_length, step_size_jitter)
        recommended = with_recommended(options, DENSE, lengths.learns_length)
        splitting, adaptation = resolve_options(model, num_subsets, recommended)
        trajectory = FixedLength(lengths, subset_permutation)
        chosen = ChosenSchedule(schedule, splitting.num_subsets)
        super().__init__(model, splitting, Hamiltonian(chosen, trajectory, adaptation))


class SymmetricSplitHMC(SplitKernel):
    """Symmetric split HMC: a step visits the subsets in order and back again, with a drift between any two.

    Of second order. At the same step size its acceptance is the highest of the three schedules. A trajectory of L steps
    costs L(2M - 2) subset gradients: about two data passes a step for large M, and one for M = 2. M = 1 is plain HMC.

    Args:
        model: NumPyro model whose likelihood sits in a plate over the data rows; or a
            :class:`~numpyro_split.SplitPotential`, which brings its own ``num_subsets`` and needs ``init_params``.
        num_subsets: M, the number of subsets, from 1 to the number of rows N, or "auto" for the smallest number whose
            gradient fits into ``memory``. A gradient takes the memory of N/M rows. With one subset, every model that
            NumPyro's HMC takes is allowed, also one that cannot be divided.
        num_steps: fixed number of steps of a trajectory; not with ``trajectory_length``.
        trajectory_length: fixed length of a trajectory, step size times number of steps, as for NumPyro's HMC. If
            neither is given, warm-up moves by trees that double until they turn back, as in NUTS, and learns their mean
            length; the length of each trajectory after warm-up is then drawn uniformly between 0 and that mean
            (:mod:`split_common.exploration`); with ``metric="auto"``, where it fits, between 0.75 and 1.25 quarter
            turns.
        step_size_jitter: j, from 0 up to but not including 1: the step size of each trajectory is the adapted one times
            a draw from U(1 - j, 1 + j). None for 0.5 with ``num_steps``, otherwise for 0: without jitter,
            trajectories of a fixed number of steps could all be whole periods, after which a chain is back where it
            was.
        subset_permutation: "fixed" visits the subsets in their order; "per_trajectory" draws an order for each
            trajectory, at the cost of its opening gradients.
        step_size: step size, or the value from which its adaptation starts.
        adapt_step_size: whether the step size adapts in warm-up, by dual averaging.
        adapt_mass_matrix: whether the mass matrix adapts in warm-up, in NumPyro's windows.
        dense_mass: form of the mass matrix: False for diagonal, True for dense, or a list of tuples of site names, each
            of them a dense block.
        target_accept_prob: acceptance probability that the step size is adapted to.
        metric: how the mass matrix is estimated: None for NumPyro's way, from the covariance of draws; "auto" for one
            from draws and gradients, dense up to 500 parameters and of low rank beyond. That needs few draws, and costs
            a gradient of all rows for each draw of warm-up that it is estimated from
            (:mod:`split_common.gradient_metric`). Not with ``dense_mass``.
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
        init_strategy: NumPyro's initialisation strategy.
        find_heuristic_step_size: whether to search for a workable step size at the start and after each update of the
            mass matrix.
        forward_mode_differentiation: whether to differentiate in forward mode, for models with loops of unknown length
            (``lax.while_loop``, adaptive solvers of differential equations); it costs one pass for each parameter.
        regularize_mass_matrix: whether to shrink the estimated mass matrix towards a small multiple of the identity, as
            NumPyro does.
        memory: with ``num_subsets="auto"``, the memory that one gradient may take: bytes, or text such as "2GiB" or
            "500MB" ("Choosing M" in docs/scale.md). None otherwise.
        plate: name of the data plate; None takes the only plate with observations.
        data_axes: dict from the name of each argument that holds rows (or of one array in it, as "data['X']") to the
            axis they lie along; None takes every array whose axis 0 has length N.
        subset_order: "sequential" divides the rows into subsets in their order; "shuffled" deals them out at random by
            a fixed seed, for sorted data.

    Raises:
        TypeError: at construction, for a flag that is not a bool, and for an argument that must be a function or a
            mapping and is not.
        ValueError: at construction, for an argument out of range, and if both lengths are given; at ``run``, for faults
            of the model or the data (see :func:`~numpyro_split.split_model`), a mass matrix of the wrong shape, or a
            starting point where the density is not finite.
        ModelNotSplittableError: at ``run``, when the subsets do not add up to the model's potential.

    Example:
        >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist
        >>> from numpyro.infer import MCMC
        >>> def model(y):
        ...     mu = numpyro.sample("mu", dist.Normal(0, 1))
        ...     with numpyro.plate("data", y.shape[0]):
        ...         numpyro.sample("y", dist.Normal(mu, 1), obs=y)
        >>> mcmc = MCMC(SymmetricSplitHMC(model, num_subsets=4), num_warmup=50, num_samples=50, progress_bar=False)
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
        num_steps: int | None = None,
        trajectory_length: float | None = None,
        step_size_jitter: float | None = None,
        subset_permutation: str = "fixed",
        **options: Unpack[EuclideanOptions],
    ):
        splitting, adaptation = resolve_options(model, num_subsets, options)
        trajectory = FixedLength(
            LengthSettings.checked(num_steps, trajectory_length, step_size_jitter), subset_permutation
        )
        chosen = ChosenSchedule("symmetric", splitting.num_subsets)
        super().__init__(model, splitting, Hamiltonian(chosen, trajectory, adaptation))


class NaiveSplitHMC(SplitKernel):
    """Plain HMC in the memory of one subset: leapfrog steps whose gradient is summed subset by subset.

    Its draws are those of plain HMC up to rounding. A trajectory of L steps costs LM subset gradients, that is L data
    passes.

    Args:
        model: NumPyro model whose likelihood sits in a plate over the data rows; or a
            :class:`~numpyro_split.SplitPotential`, which brings its own ``num_subsets`` and needs ``init_params``.
        num_subsets: M, the number of subsets, from 1 to the number of rows N, or "auto" for the smallest number whose
            gradient fits into ``memory``. A gradient takes the memory of N/M rows. With one subset, every model that
            NumPyro's HMC takes is allowed, also one that cannot be divided.
        num_steps: fixed number of steps of a trajectory; not with ``trajectory_length``.
        trajectory_length: fixed length of a trajectory, step size times number of steps, as for NumPyro's HMC. If
            neither is given, warm-up moves by trees that double until they turn back, as in NUTS, and learns their mean
            length; the length of each trajectory after warm-up is then drawn uniformly between 0 and that mean
            (:mod:`split_common.exploration`); with ``metric="auto"``, where it fits, between 0.75 and 1.25 quarter
            turns.
        step_size_jitter: j, from 0 up to but not including 1: the step size of each trajectory is the adapted one times
            a draw from U(1 - j, 1 + j). None for 0.5 with ``num_steps``, otherwise for 0: without jitter,
            trajectories of a fixed number of steps could all be whole periods, after which a chain is back where it
            was.
        step_size: step size, or the value from which its adaptation starts.
        adapt_step_size: whether the step size adapts in warm-up, by dual averaging.
        adapt_mass_matrix: whether the mass matrix adapts in warm-up, in NumPyro's windows.
        dense_mass: form of the mass matrix: False for diagonal, True for dense, or a list of tuples of site names, each
            of them a dense block.
        target_accept_prob: acceptance probability that the step size is adapted to.
        metric: how the mass matrix is estimated: None for NumPyro's way, from the covariance of draws; "auto" for one
            from draws and gradients, dense up to 500 parameters and of low rank beyond. That needs few draws, and costs
            a gradient of all rows for each draw of warm-up that it is estimated from
            (:mod:`split_common.gradient_metric`). Not with ``dense_mass``.
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
        init_strategy: NumPyro's initialisation strategy.
        find_heuristic_step_size: whether to search for a workable step size at the start and after each update of the
            mass matrix.
        forward_mode_differentiation: whether to differentiate in forward mode, for models with loops of unknown length
            (``lax.while_loop``, adaptive solvers of differential equations); it costs one pass for each parameter.
        regularize_mass_matrix: whether to shrink the estimated mass matrix towards a small multiple of the identity, as
            NumPyro does.
        memory: with ``num_subsets="auto"``, the memory that one gradient may take: bytes, or text such as "2GiB" or
            "500MB" ("Choosing M" in docs/scale.md). None otherwise.
        plate: name of the data plate; None takes the only plate with observations.
        data_axes: dict from the name of each argument that holds rows (or of one array in it, as "data['X']") to the
            axis they lie along; None takes every array whose axis 0 has length N.
        subset_order: "sequential" divides the rows into subsets in their order; "shuffled" deals them out at random by
            a fixed seed, for sorted data.

    Raises:
        TypeError: at construction, for a flag that is not a bool, and for an argument that must be a function or a
            mapping and is not.
        ValueError: at construction, for an argument out of range, and if both lengths are given; at ``run``, for faults
            of the model or the data (see :func:`~numpyro_split.split_model`), a mass matrix of the wrong shape, or a
            starting point where the density is not finite.
        ModelNotSplittableError: at ``run``, when the subsets do not add up to the model's potential.

    Example:
        >>> kernel = NaiveSplitHMC(lambda y: None, num_subsets=4, num_steps=10)
        >>> kernel.num_subsets
        4
    """

    @with_options(EUCLIDEAN_DEFAULTS)
    def __init__(
        self,
        model: Callable[..., Any] | SplitPotential,
        num_subsets: int | str = 1,
        *,
        num_steps: int | None = None,
        trajectory_length: float | None = None,
        step_size_jitter: float | None = None,
        **options: Unpack[EuclideanOptions],
    ):
        splitting, adaptation = resolve_options(model, num_subsets, options)
        trajectory = FixedLength(LengthSettings.checked(num_steps, trajectory_length, step_size_jitter))
        chosen = ChosenSchedule("naive", splitting.num_subsets)
        super().__init__(model, splitting, Hamiltonian(chosen, trajectory, adaptation))


class RandomisedSplitHMC(SplitKernel):
    """Neal's randomised split HMC: a leapfrog step with each subset in turn, in an order drawn for each trajectory.

    Of first order: at the same step size its acceptance is the lowest of the three schedules. A trajectory of L steps
    costs 2LM subset gradients, two data passes a step. With a ``center`` the schedule visits each subset once in a
    step, which costs LM subset gradients, as in ``SplitHMC(..., schedule="single_visit")``.

    Args:
        model: NumPyro model whose likelihood sits in a plate over the data rows; or a
            :class:`~numpyro_split.SplitPotential`, which brings its own ``num_subsets`` and needs ``init_params``.
        num_subsets: M, the number of subsets, from 1 to the number of rows N, or "auto" for the smallest number whose
            gradient fits into ``memory``. A gradient takes the memory of N/M rows. With one subset, every model that
            NumPyro's HMC takes is allowed, also one that cannot be divided.
        num_steps: fixed number of steps of a trajectory; not with ``trajectory_length``.
        trajectory_length: fixed length of a trajectory, step size times number of steps, as for NumPyro's HMC. If
            neither is given, warm-up moves by trees that double until they turn back, as in NUTS, and learns their mean
            length; the length of each trajectory after warm-up is then drawn uniformly between 0 and that mean
            (:mod:`split_common.exploration`); with ``metric="auto"``, where it fits, between 0.75 and 1.25 quarter
            turns.
        step_size_jitter: j, from 0 up to but not including 1: the step size of each trajectory is the adapted one times
            a draw from U(1 - j, 1 + j). None for 0.5 with ``num_steps``, otherwise for 0: without jitter,
            trajectories of a fixed number of steps could all be whole periods, after which a chain is back where it
            was.
        step_size: step size, or the value from which its adaptation starts.
        adapt_step_size: whether the step size adapts in warm-up, by dual averaging.
        adapt_mass_matrix: whether the mass matrix adapts in warm-up, in NumPyro's windows.
        dense_mass: form of the mass matrix: False for diagonal, True for dense, or a list of tuples of site names, each
            of them a dense block.
        target_accept_prob: acceptance probability that the step size is adapted to.
        metric: how the mass matrix is estimated: None for NumPyro's way, from the covariance of draws; "auto" for one
            from draws and gradients, dense up to 500 parameters and of low rank beyond. That needs few draws, and costs
            a gradient of all rows for each draw of warm-up that it is estimated from
            (:mod:`split_common.gradient_metric`). Not with ``dense_mass``.
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
        init_strategy: NumPyro's initialisation strategy.
        find_heuristic_step_size: whether to search for a workable step size at the start and after each update of the
            mass matrix.
        forward_mode_differentiation: whether to differentiate in forward mode, for models with loops of unknown length
            (``lax.while_loop``, adaptive solvers of differential equations); it costs one pass for each parameter.
        regularize_mass_matrix: whether to shrink the estimated mass matrix towards a small multiple of the identity, as
            NumPyro does.
        memory: with ``num_subsets="auto"``, the memory that one gradient may take: bytes, or text such as "2GiB" or
            "500MB" ("Choosing M" in docs/scale.md). None otherwise.
        plate: name of the data plate; None takes the only plate with observations.
        data_axes: dict from the name of each argument that holds rows (or of one array in it, as "data['X']") to the
            axis they lie along; None takes every array whose axis 0 has length N.
        subset_order: "sequential" divides the rows into subsets in their order; "shuffled" deals them out at random by
            a fixed seed, for sorted data.

    Raises:
        TypeError: at construction, for a flag that is not a bool, and for an argument that must be a function or a
            mapping and is not.
        ValueError: at construction, for an argument out of range, and if both lengths are given; at ``run``, for faults
            of the model or the data (see :func:`~numpyro_split.split_model`), a mass matrix of the wrong shape, or a
            starting point where the density is not finite.
        ModelNotSplittableError: at ``run``, when the subsets do not add up to the model's potential.

    Example:
        >>> kernel = RandomisedSplitHMC(lambda y: None, num_subsets=4, num_steps=10)
        >>> kernel.num_subsets
        4
    """

    @with_options(EUCLIDEAN_DEFAULTS)
    def __init__(
        self,
        model: Callable[..., Any] | SplitPotential,
        num_subsets: int | str = 1,
        *,
        num_steps: int | None = None,
        trajectory_length: float | None = None,
        step_size_jitter: float | None = None,
        **options: Unpack[EuclideanOptions],
    ):
        splitting, adaptation = resolve_options(model, num_subsets, options)
        trajectory = FixedLength(LengthSettings.checked(num_steps, trajectory_length, step_size_jitter))
        name = "single_visit" if adaptation.center.is_on else "randomised"
        chosen = ChosenSchedule(name, splitting.num_subsets)
        super().__init__(model, splitting, Hamiltonian(chosen, trajectory, adaptation))
