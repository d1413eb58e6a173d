r"""Hamiltonian Monte Carlo over subsets of the data whose trajectories choose their own length.

Target: the full posterior, exactly, with H(z, p) = Σ_m U_m(z) + ½ pᵀM⁻¹p of *all* the data. A transition draws
p ~ N(0, M), builds a trajectory by the steps of a palindromic schedule (:mod:`split_common.schedule`), forwards and
backwards in time, and takes one of its states in a way that leaves exp(-H) invariant, whatever rule ends it: why is
derived in :mod:`pyro_split.trajectories.doubling`. The rule is a plain function in
:mod:`pyro_split.trajectories.termination`.

Each state of a tree is weighed by its energy on all the data. Where a step's closing gradients bring it (one subset,
the naive schedule) it costs nothing; under the symmetric schedule it is a forward pass on the subsets, which
``num_grads`` does not count, being no gradient. A criterion that asks for dG/dt asks for the gradient on all the data
at each state: under the symmetric schedule M more subset gradients a state, which ``num_grads`` counts.

References:
    Hoffman and Gelman (2014), The No-U-Turn Sampler. Betancourt (2016), Identifying the Optimal Integration Time in
    Hamiltonian Monte Carlo; (2017), A Conceptual Introduction to Hamiltonian Monte Carlo. Lau (2018), chapter 2.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from pyro.infer.autoguide.initialization import init_to_uniform
from torch import Tensor

from pyro_split.adaptation.step_size_and_metric import Adapter
from pyro_split.adaptation.threshold import ThresholdAdapter
from pyro_split.integrators.integrator import Integrator
from pyro_split.kernels.hamiltonian import HamiltonianKernel
from pyro_split.potential.position import Position
from pyro_split.potential.split_potential import SplitPotential
from pyro_split.trajectories.doubling import Trajectory, doubling
from pyro_split.trajectories.path import draw_path
from pyro_split.trajectories.selection import at_choice
from pyro_split.trajectories.termination import (
    U_TURN,
    Virial,
    boundary_rate,
    mean_rate,
    mean_rate_in_time,
    rate_per_length,
)
from split_common.checks import check_choice
from split_common.health import DRAWS_BEFORE_WARNING, STATISTICS, WARN_ABOVE_SHARE
from split_common.schedule import ScheduleChoice, check_schedule
from split_common.settling import Settled
from split_common.termination import (
    CRITERIA,
    TREE_STATISTICS,
    Rule,
    check_max_tree_depth,
    resolve_threshold,
    warn_of_depth_limit,
)


class DynamicHMCState(NamedTuple):
    """State of a chain whose trajectories double.

    Attributes:
        z, opening_grad, energies, potential_energy, energy, num_steps, num_grads, accept_prob, diverging, step_size,
            settled: as in :class:`~pyro_split.kernels.split_hmc.SplitHMCState`; ``accept_prob`` is the mean of
            min(1, exp(-energy change)) over the trajectory's states but the start.
        tree_depth: doublings of the last trajectory, a refused one included.
        reached_max_treedepth: whether the limit on them ended it.
        virial_average: mean of dG/dt over the last trajectory, in the form that its rule looks at.
        share_at_limit: share of draws since warm-up that ended at the limit.
        threshold: of exhaustion, at the last trajectory; None under the U-turn rule.
    """

    z: Position
    opening_grad: Position | None
    energies: Tensor
    potential_energy: float
    energy: float
    num_steps: int
    num_grads: int
    accept_prob: float
    diverging: bool
    step_size: float
    settled: Settled
    tree_depth: int
    reached_max_treedepth: bool
    virial_average: float
    share_at_limit: float
    threshold: float | None


def tree_transition(
    state: DynamicHMCState,
    integrator: Integrator,
    adapter: Adapter,
    rule: Rule,
    max_tree_depth: int,
) -> DynamicHMCState:
    """One iteration whose trajectory doubles, at the adapter's step size and metric, which it leaves as they are.

    Args:
        state: where the chain is.
        integrator: the schedule on the target's potential, with the adapter's metric.
        adapter: step size and metric.
        rule: when the trajectory stops.
        max_tree_depth: most doublings.

    Returns:
        The next state.
    """
    path = draw_path(state, integrator, adapter.step_size)
    trajectory = doubling(path, rule, max_tree_depth)
    num_states = trajectory.visits.num_states
    moved = at_choice(state, path, trajectory.choice, trajectory.visits, num_states)
    takes_whole_gradients = rule.takes_gradients and integrator.schedule.closing_kick is None
    return moved._replace(
        num_grads=moved.num_grads + takes_whole_gradients * integrator.schedule.num_subsets * (num_states + 1),
        tree_depth=trajectory.depth,
        reached_max_treedepth=trajectory.grows,
        virial_average=_virial_average(trajectory, path.step_size),
    )


def _virial_average(trajectory: Trajectory, step_size: float) -> float:
    """The mean of dG/dt in the form that the rule looks at; under the U-turn rule, which looks at none, over time."""
    span = trajectory.span
    if isinstance(span, Virial) and span.mean_rate is not None:
        return span.mean_rate
    first, last = (
        sum(float((state.z[name] * state.p[name]).sum()) for name in state.z)
        for state in (trajectory.first, trajectory.last)
    )
    return mean_rate_in_time(last - first, trajectory.num_states, step_size)


def first_state_of_trees(**common: Any) -> DynamicHMCState:
    """The state of a chain that has not moved, from the fields that every kernel's state has."""
    return DynamicHMCState(
        **common,
        tree_depth=0,
        reached_max_treedepth=False,
        virial_average=0.0,
        share_at_limit=0.0,
        threshold=None,
    )


def count_depth_limit(moved: DynamicHMCState, num_draws: int, max_tree_depth: int) -> DynamicHMCState:
    """``moved`` counted in the share of draws that ended at the depth limit; warns once where many did."""
    if num_draws < 1:
        return moved
    share = moved.share_at_limit + (moved.reached_max_treedepth - moved.share_at_limit) / num_draws
    if num_draws == DRAWS_BEFORE_WARNING and share > WARN_ABOVE_SHARE:
        warn_of_depth_limit(max_tree_depth, share)
    return moved._replace(share_at_limit=share)


class TreeHMC(HamiltonianKernel):
    """Base of the kernels of trees, which differ by the rule that stops a tree (see :class:`SplitNUTS`)."""

    _statistic_names = (*STATISTICS, *TREE_STATISTICS)

    def __init__(
        self,
        model: Callable[..., Any] | SplitPotential,
        num_subsets: int = 1,
        *,
        step_size: float = 1.0,
        max_tree_depth: int = 10,
        adapt_step_size: bool = True,
        adapt_mass_matrix: bool = True,
        full_mass: bool | list[tuple[str, ...]] = False,
        target_accept_prob: float = 0.8,
        inverse_mass_matrix: Any = None,
        init_strategy: Callable[..., Any] = init_to_uniform,
        find_heuristic_step_size: bool = True,
        plate: str | None = None,
        data_axes: dict[str, int | None] | None = None,
        subset_order: str = "sequential",
        jit_compile: bool = True,
        schedule: ScheduleChoice = "symmetric",
    ):
        self._max_tree_depth = check_max_tree_depth(max_tree_depth)
        self._schedule_name = check_schedule(schedule, palindromic=True)
        super().__init__(
            model,
            num_subsets,
            step_size=step_size,
            adapt_step_size=adapt_step_size,
            adapt_mass_matrix=adapt_mass_matrix,
            full_mass=full_mass,
            target_accept_prob=target_accept_prob,
            inverse_mass_matrix=inverse_mass_matrix,
            init_strategy=init_strategy,
            find_heuristic_step_size=find_heuristic_step_size,
            plate=plate,
            data_axes=data_axes,
            subset_order=subset_order,
            jit_compile=jit_compile,
        )

    @abstractmethod
    def _rule(self, state: DynamicHMCState) -> Rule:
        """When a trajectory stops."""

    def _first_state(self, **common: Any) -> DynamicHMCState:
        return first_state_of_trees(**common)

    def _move(self, integrator: Integrator, state: DynamicHMCState) -> DynamicHMCState:
        rule = self._rule(state)
        moved = tree_transition(state, integrator, self._adapter, rule, self._max_tree_depth)
        return count_depth_limit(moved, self._t - self._warmup_steps, self._max_tree_depth)


class SplitNUTS(TreeHMC):
    """The No-U-Turn sampler over subsets of the data.

    Trajectories double until they turn back (the generalised criterion with Stan's checks across subtrees); a state is
    taken by its weight, with a bias towards the newest half. At M = 1 it has the same target as the host's NUTS, but
    not the same stopping rule: the host makes no checks across subtrees, and leaves half of each end's momentum out of
    the sum. A step costs what the schedule costs, and under the symmetric one with M > 1 a forward pass on all the data
    besides.

    Args:
        model: Pyro model whose likelihood sits in a plate over the data rows; or a
            :class:`~pyro_split.SplitPotential`, which brings its own ``num_subsets`` and needs ``initial_params``.
        num_subsets: M, from 1 to the number of rows. Memory of a gradient is that of N/M rows.
            One subset takes any model that the host's HMC takes, also where none divides it.
        step_size: step size, or where its adaptation starts.
        max_tree_depth: most doublings of a trajectory, from 1 to 30; at 10 it has up to 1,023 steps.
        adapt_step_size: adapt the step size in warm-up, by dual averaging.
        adapt_mass_matrix: adapt the mass matrix in warm-up, in the host's windows.
        full_mass: False for a diagonal mass matrix, True for a dense one, or a list of tuples of site names,
            each a dense block.
        target_accept_prob: mean acceptance over a trajectory's states that the step size is adapted to.
        inverse_mass_matrix: inverse mass matrix to start from: shape (D,), or (D, D) for a dense one, sites
            sorted by name; or a dict from tuples of site names; a list is an array. None for the identity.
        init_strategy: the host's initialisation strategy.
        find_heuristic_step_size: look for a workable step size at the start and after each metric update.
        plate: name of the data plate; None takes the only plate with observations.
        data_axes: for each argument that holds rows, the axis they lie along; None takes every tensor whose
            axis 0 has length N.
        subset_order: "sequential" cuts the rows as they stand; "shuffled" deals them by a fixed seed, for
            sorted data.
        jit_compile: trace the model once and keep its tensor operations (a model that cannot be traced is
            replayed, with a warning); False replays it at every gradient, which is slower.
        schedule: "symmetric", "naive", a palindromic :class:`~split_common.schedule.Schedule` of M subsets, or a
            function from M to one.

    Raises:
        TypeError: at construction for a flag that is no bool, or for what is no function or mapping and should be.
        ValueError: at construction for an argument out of range and for a schedule that is not palindromic; at
            ``run`` for faults of model or data (see :func:`~pyro_split.split_model`), a mass matrix of the wrong
            shape, or a start where the density is not finite.
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

    def _rule(self, state: DynamicHMCState) -> Rule:
        return U_TURN


class XHMC(TreeHMC):
    """Exhaustive Hamiltonian Monte Carlo (Betancourt 2016): trajectories double until they fill their energy level.

    With G = zᵀp, the mean of dG/dt = pᵀM⁻¹p - zᵀ∇U along a trajectory tends to zero as the trajectory comes to visit
    all its energy level; it stops when the mean, in the form of ``criterion``, is below ``threshold``.

    Args:
        model: see :class:`SplitNUTS`, also for every argument not listed here.
        num_subsets: M.
        threshold: below which the criterion stops a trajectory. What is best depends on the target and its dimension;
            "adapt" sets it in warm-up (:mod:`pyro_split.adaptation.threshold`).
        criterion: "per_length", |mean of dG/dt by weight| over the number of states; "mean", the same without the
            division; "boundary", |G(end) - G(start)| over the time between, which needs no gradient. Under the
            symmetric schedule with M > 1 the first two take M more subset gradients a state, counted in ``num_grads``.

    Example:
        >>> kernel = XHMC(lambda y: None, num_subsets=4, threshold=0.05, criterion="boundary")
        >>> kernel.num_subsets
        4
    """

    _statistic_names = (*STATISTICS, *TREE_STATISTICS, "threshold")

    def __init__(
        self,
        model: Callable[..., Any] | SplitPotential,
        num_subsets: int = 1,
        *,
        threshold: float | str = 0.1,
        criterion: str = "per_length",
        step_size: float = 1.0,
        max_tree_depth: int = 10,
        adapt_step_size: bool = True,
        adapt_mass_matrix: bool = True,
        full_mass: bool | list[tuple[str, ...]] = False,
        target_accept_prob: float = 0.8,
        inverse_mass_matrix: Any = None,
        init_strategy: Callable[..., Any] = init_to_uniform,
        find_heuristic_step_size: bool = True,
        plate: str | None = None,
        data_axes: dict[str, int | None] | None = None,
        subset_order: str = "sequential",
        jit_compile: bool = True,
        schedule: ScheduleChoice = "symmetric",
    ):
        self._threshold = resolve_threshold(threshold)
        self._criterion = check_choice("criterion", criterion, CRITERIA)
        super().__init__(
            model,
            num_subsets,
            step_size=step_size,
            max_tree_depth=max_tree_depth,
            adapt_step_size=adapt_step_size,
            adapt_mass_matrix=adapt_mass_matrix,
            full_mass=full_mass,
            target_accept_prob=target_accept_prob,
            inverse_mass_matrix=inverse_mass_matrix,
            init_strategy=init_strategy,
            find_heuristic_step_size=find_heuristic_step_size,
            plate=plate,
            data_axes=data_axes,
            subset_order=subset_order,
            jit_compile=jit_compile,
            schedule=schedule,
        )

    def _first_state(self, **common: Any) -> DynamicHMCState:
        restarts = self._adapter.window_ends[:-2]
        self._thresholds = ThresholdAdapter(self._threshold, self._warmup_steps, restarts, common["z"])
        return super()._first_state(**common)._replace(threshold=self._thresholds.threshold)

    def _rule(self, state: DynamicHMCState) -> Rule:
        threshold = self._thresholds.threshold
        if self._criterion == "boundary":
            return boundary_rate(threshold, self._adapter.step_size)
        return {"per_length": rate_per_length, "mean": mean_rate}[self._criterion](threshold)

    def _learned(self, state: DynamicHMCState) -> dict[str, float]:
        return self._thresholds.averages

    def _move(self, integrator: Integrator, state: DynamicHMCState) -> DynamicHMCState:
        moved = super()._move(integrator, state)._replace(threshold=self._thresholds.threshold)
        self._thresholds.update(self._t, state.z, moved.z, moved.reached_max_treedepth)
        return moved
