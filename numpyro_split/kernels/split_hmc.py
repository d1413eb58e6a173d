r"""Hamiltonian Monte Carlo whose integrator visits the data subset by subset.

Target: the full posterior, exactly. With H(z, p) = Σ_m U_m(z) + ½ pᵀM⁻¹p the transition draws p ~ N(0, M), runs
L steps of a schedule (:mod:`split_common.schedule`), flips p, and accepts with probability
min(1, exp(H(z, p) - H(z', p'))) where H is that of *all* the data. Each step preserves volume; for a palindromic
schedule steps-then-flip is its own inverse, for an order drawn uniformly it is undone by the reversed order,
which is drawn as often. Either way the transition satisfies detailed balance with respect to exp(-H), whatever
the step size. Splitting changes the energy error, and so the acceptance, never the target.

An order of subsets drawn independently of the state (``subset_permutation="per_trajectory"``) keeps this true
for the symmetric schedule as well; so does a length drawn independently of it.

Reference:
    Cobb and Jalaian (2021), Scaling Hamiltonian Monte Carlo Inference for Bayesian Neural Networks with
    Symmetric Splitting, UAI. Neal (1995), Bayesian Learning for Neural Networks, section 3.5.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from numpyro_split.kernels.hamiltonian import Hamiltonian
from numpyro_split.kernels.host_kernel import SplitKernel
from numpyro_split.kernels.options import (
    EUCLIDEAN_DEFAULTS,
    RECOMMENDED,
    EuclideanOptions,
    resolve_options,
    with_recommended,
)
from numpyro_split.potential.split_potential import SplitPotential
from numpyro_split.trajectories.fixed_length import FixedLength
from split_common.fixed_length import LengthSettings
from split_common.options import with_options
from split_common.schedule import ChosenSchedule, ScheduleChoice


class SplitHMC(SplitKernel):
    """Split HMC by the schedule, metric and drifts that are recommended, or by those of one's own.

    With nothing but ``num_subsets`` given: leapfrog whose gradient is summed subset by subset, a metric from draws and
    gradients, and, where the posterior is measured to be nearly normal, drifts that follow its normal part exactly: a
    draw then costs one gradient of all rows.

    Args:
        model: NumPyro model whose likelihood sits in a plate over the data rows; or a
            :class:`~numpyro_split.SplitPotential`, which brings its own ``num_subsets`` and needs ``init_params``.
        num_subsets: M, from 1 to the number of rows, or "auto" for the smallest whose gradient takes at most
            ``memory``. Memory of a gradient is that of N/M rows.
            One subset takes any model that the host's HMC takes, also where none divides it.
        num_steps: fixed number of steps of a trajectory; not with ``trajectory_length``.
        trajectory_length: fixed length of a trajectory, as NumPyro's. Neither given: warm-up moves by trees that
            double until they turn back, as NUTS's, and learns their mean length; that of each draw's trajectory is then
            drawn uniformly between 0 and it (:mod:`split_common.exploration`).
        step_size_jitter: steps of a trajectory are drawn anew to be up to this share longer or shorter than the
            adapted step size, from 0 up to, but not including, 1. None for 0.5 with ``num_steps``, of which a whole
            period could be made otherwise, at which a chain stands still; else 0.
        schedule: "auto" for the naive one, whose step costs a gradient of all rows, which brings the energy too;
            "symmetric", "naive", "randomised" or "single_visit", a :class:`~split_common.schedule.Schedule` of M
            subsets, or a function from M to one. Of a schedule that is not palindromic an order is drawn for each
            trajectory.
        subset_permutation: "fixed" visits the subsets in their order; "per_trajectory" draws an order for each
            trajectory, at the cost of its opening gradients.
        step_size: step size, or where its adaptation starts.
        adapt_step_size: adapt the step size in warm-up, by dual averaging.
        adapt_mass_matrix: adapt the mass matrix in warm-up, in the host's windows.
        dense_mass: False for a diagonal mass matrix, True for a dense one, or a list of tuples of site names,
            each a dense block.
        target_accept_prob: acceptance that the step size is adapted to.
        metric: None for the host's, a covariance of draws; "default" for "auto", but for None where the mass matrix is
            asked to be of another form, or to stand still; "auto" for one from draws and gradients, dense up to 500
            parameters and of low rank beyond, which serves from a window of few draws and costs a gradient of
            all rows for each of them (:mod:`split_common.gradient_metric`). Not with ``dense_mass``.
        center: reference about which the kicks of the subsets are centred, which leaves target and decision as they
            are: None for no centring, "auto" for one found in warm-up, used if it is measured to help, or a dict of
            unconstrained values by site (:mod:`split_common.centering`).
        center_order: 1, or 2 for curvature too, up to 100 parameters; None for what is measured to be best, with a
            given center for 1.
        drift: form of the drifts between kicks: None for straight lines; "default" for "auto" where the metric is and
            lengths are left to warm-up, else None; "auto", with ``metric="auto"``, for turns about
            a normal approximation that warm-up finds, of which the kicks make up the rest, used if the posterior is
            measured to be near enough to it (:mod:`split_common.harmonic`).
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
        ValueError: at construction for an argument out of range, and for both lengths given; at ``run`` for
            faults of model or data (see :func:`~numpyro_split.split_model`), a mass matrix of the wrong shape,
            or a start where the density is not finite.
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
        recommended = with_recommended(options, lengths.learns_length)
        splitting, adaptation = resolve_options(model, num_subsets, recommended)
        trajectory = FixedLength(lengths, subset_permutation)
        chosen = ChosenSchedule(schedule, splitting.num_subsets)
        super().__init__(model, splitting, Hamiltonian(chosen, trajectory, adaptation))


class SymmetricSplitHMC(SplitKernel):
    """Symmetric split HMC: up through the subsets and back down, with a drift between any two.

    Second order, and the best acceptance of the three at one step size. A trajectory of L steps costs
    L(2M - 2) subset gradients: two data passes a step for large M, one for M = 2. M = 1 is plain HMC.

    Args:
        model: NumPyro model whose likelihood sits in a plate over the data rows; or a
            :class:`~numpyro_split.SplitPotential`, which brings its own ``num_subsets`` and needs ``init_params``.
        num_subsets: M, from 1 to the number of rows, or "auto" for the smallest whose gradient takes at most
            ``memory``. Memory of a gradient is that of N/M rows.
            One subset takes any model that the host's HMC takes, also where none divides it.
        num_steps: fixed number of steps of a trajectory; not with ``trajectory_length``.
        trajectory_length: fixed length of a trajectory, as NumPyro's. Neither given: warm-up moves by trees that
            double until they turn back, as NUTS's, and learns their mean length; that of each draw's trajectory is then
            drawn uniformly between 0 and it (:mod:`split_common.exploration`).
        step_size_jitter: steps of a trajectory are drawn anew to be up to this share longer or shorter than the
            adapted step size, from 0 up to, but not including, 1. None for 0.5 with ``num_steps``, of which a whole
            period could be made otherwise, at which a chain stands still; else 0.
        subset_permutation: "fixed" visits the subsets in their order; "per_trajectory" draws an order for each
            trajectory, at the cost of its opening gradients.
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
        ValueError: at construction for an argument out of range, and for both lengths given; at ``run`` for
            faults of model or data (see :func:`~numpyro_split.split_model`), a mass matrix of the wrong shape,
            or a start where the density is not finite.
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
    """Plain HMC in the memory of one subset: leapfrog, its gradient summed subset by subset.

    The same draws as plain HMC up to rounding. A trajectory of L steps costs LM subset gradients, L data
    passes.

    Args:
        model: NumPyro model whose likelihood sits in a plate over the data rows; or a
            :class:`~numpyro_split.SplitPotential`, which brings its own ``num_subsets`` and needs ``init_params``.
        num_subsets: M, from 1 to the number of rows, or "auto" for the smallest whose gradient takes at most
            ``memory``. Memory of a gradient is that of N/M rows.
            One subset takes any model that the host's HMC takes, also where none divides it.
        num_steps: fixed number of steps of a trajectory; not with ``trajectory_length``.
        trajectory_length: fixed length of a trajectory, as NumPyro's. Neither given: warm-up moves by trees that
            double until they turn back, as NUTS's, and learns their mean length; that of each draw's trajectory is then
            drawn uniformly between 0 and it (:mod:`split_common.exploration`).
        step_size_jitter: steps of a trajectory are drawn anew to be up to this share longer or shorter than the
            adapted step size, from 0 up to, but not including, 1. None for 0.5 with ``num_steps``, of which a whole
            period could be made otherwise, at which a chain stands still; else 0.
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
        ValueError: at construction for an argument out of range, and for both lengths given; at ``run`` for
            faults of model or data (see :func:`~numpyro_split.split_model`), a mass matrix of the wrong shape,
            or a start where the density is not finite.
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
    """Neal's randomised split HMC: a leapfrog step with each subset in turn, in an order drawn per trajectory.

    First order: at one step size its acceptance is the lowest of the three. A trajectory of L steps costs 2LM
    subset gradients, two data passes a step. With a ``center`` the schedule is that of single visits, LM subset
    gradients: ``SplitHMC(..., schedule="single_visit")``, which centring is made for.

    Args:
        model: NumPyro model whose likelihood sits in a plate over the data rows; or a
            :class:`~numpyro_split.SplitPotential`, which brings its own ``num_subsets`` and needs ``init_params``.
        num_subsets: M, from 1 to the number of rows, or "auto" for the smallest whose gradient takes at most
            ``memory``. Memory of a gradient is that of N/M rows.
            One subset takes any model that the host's HMC takes, also where none divides it.
        num_steps: fixed number of steps of a trajectory; not with ``trajectory_length``.
        trajectory_length: fixed length of a trajectory, as NumPyro's. Neither given: warm-up moves by trees that
            double until they turn back, as NUTS's, and learns their mean length; that of each draw's trajectory is then
            drawn uniformly between 0 and it (:mod:`split_common.exploration`).
        step_size_jitter: steps of a trajectory are drawn anew to be up to this share longer or shorter than the
            adapted step size, from 0 up to, but not including, 1. None for 0.5 with ``num_steps``, of which a whole
            period could be made otherwise, at which a chain stands still; else 0.
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
        ValueError: at construction for an argument out of range, and for both lengths given; at ``run`` for
            faults of model or data (see :func:`~numpyro_split.split_model`), a mass matrix of the wrong shape,
            or a start where the density is not finite.
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
