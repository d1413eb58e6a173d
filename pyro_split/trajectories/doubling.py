r"""Trajectories that double until a rule stops them: binary trees of states.

Each doubling adds a subtree as long as the trajectory, forwards or backwards with equal probability. Growth stops when
the rule (:mod:`pyro_split.trajectories.termination`) holds for the whole trajectory; if it holds for a part of the
new subtree, that subtree is discarded. Every state of the final trajectory would have built it with the same
probability, 2^-d for depth d, because the doublings from any other state go through the same subtrees, which the same
rule checks. Steps must preserve volume and be reversible by a step back in time; every schedule has such steps, given
the order of its subsets (:mod:`split_common.schedule`).

The next state of the chain is chosen from the trajectory so that the weights exp(-H) are left invariant. Within a new
subtree the proposal is each state with probability in proportion to its weight. The proposal of the subtree replaces
that of the old trajectory with probability min(1, w_new / w_old), where w is a sum of weights: biased progressive
sampling. By induction the choice within the old trajectory leaves its weights invariant, and detailed balance holds
between the two halves: w_old min(1, w_new / w_old) = w_new min(1, w_old / w_new). This holds for the U-turn and for
exhaustion alike, because both choose in the same way.

A tree of 2^d states is built state by state. Of each size 2^k there is at most one finished subtree that waits for its
second half, so only d of them are kept: memory grows with the depth, not with the number of states.

References:
    Betancourt (2017), A Conceptual Introduction to Hamiltonian Monte Carlo, appendix A. Phan, Pradhan and Jankowiak
    (2019), Composable Effects for Flexible and Accelerated Probabilistic Programming in NumPyro, on trees without
    recursion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from pyro_split.integrators.integrator import IntegratorBase, IntegratorState
from pyro_split.potential.position import Position
from pyro_split.trajectories.path import Path, draw_path
from pyro_split.trajectories.selection import Choice, Visits, add_by_weight, at_choice, choose, only
from pyro_split.trajectories.termination import Virial, mean_rate_in_time
from split_common.health import DRAWS_BEFORE_WARNING, WARN_ABOVE_SHARE
from split_common.termination import DoublingBase, Rule, Span, warn_of_depth_limit


@dataclass(frozen=True)
class Doubling(DoublingBase):
    """Trajectories that double until a criterion holds (:class:`~split_common.termination.DoublingBase`)."""

    def first_fields(self, z: Position) -> dict[str, Any]:
        """Initial values of the statistics of a tree, and the fields of the criterion."""
        none = {"tree_depth": 0, "reached_max_treedepth": False, "virial_average": 0.0, "share_at_limit": 0.0}
        return {**none, **self.criterion.first_fields(z)}

    def move(self, state: Any, integrator: IntegratorBase, warmup_steps: int) -> tuple[Any, None]:
        """One iteration: a tree, then an update of the criterion."""
        moved = tree_transition(state, integrator, self.criterion.rule(state), self.max_tree_depth)
        return self.criterion.updated(state, count_depth_limit(moved, warmup_steps), warmup_steps), None

    def watch(self, state: Any, warmup_steps: int) -> None:
        """Warn if the trajectories of many of the first draws ended at the depth limit."""
        warn_if_often_at_limit(state, warmup_steps, self.max_tree_depth)


class Tree(NamedTuple):
    """A trajectory that doubles: a binary tree of states.

    Attributes:
        first: earliest state.
        last: latest state.
        choice: the proposal, and the sum of all weights.
        span: summary of the whole trajectory for the rule, in order of time.
        num_states: number of states, without those of a discarded subtree.
        depth: number of doublings, including one that was discarded.
        visits: statistics of the states visited, including those of a discarded subtree.
        stopped: whether the rule has held, for the whole trajectory or for a part of a discarded subtree.
    """

    first: IntegratorState
    last: IntegratorState
    choice: Choice
    span: Span
    num_states: int
    depth: int
    visits: Visits
    stopped: bool

    @property
    def grows(self) -> bool:
        """Whether another doubling is allowed: neither has the rule held nor has a step diverged."""
        return not (self.stopped or self.visits.diverging)


def doubling(path: Path, rule: Rule, max_tree_depth: int) -> Tree:
    """Double a trajectory until ``rule`` holds, a step diverges, or it has doubled ``max_tree_depth`` times.

    Args:
        path: how the trajectory is integrated, and its start.
        rule: when the trajectory stops.
        max_tree_depth: largest number of doublings.
    """
    choice, span = _look_at_start(path, rule)
    trajectory = Tree(path.start, path.start, choice, span, 1, 0, Visits(), False)
    while trajectory.grows and trajectory.depth < max_tree_depth:
        forwards = bool(torch.rand(()) < 0.5)
        run = _run(path, trajectory, forwards, rule)
        trajectory = _extend(trajectory, run, forwards, rule)
    return trajectory


class _Run(NamedTuple):
    """A new subtree, as long as the trajectory that it doubles, or shorter if it is discarded.

    Attributes:
        state: outermost state.
        choice: the proposal, and the sum of the subtree's weights.
        span: summary of the largest finished part that ends here, in the order of the visit.
        visits: statistics of the states visited, of the trajectory and of this subtree.
        stopped: whether the rule has held for a part of the subtree.
    """

    state: IntegratorState
    choice: Choice
    span: Span
    visits: Visits
    stopped: bool


def _run(path: Path, trajectory: Tree, forwards: bool, rule: Rule) -> _Run:
    """The new subtree: as many states as ``trajectory`` has, or fewer if the rule holds or a step diverges."""
    direction = 1 if forwards else -1
    state, visits = trajectory.last if forwards else trajectory.first, trajectory.visits
    taken = trajectory.choice._replace(log_weight=-math.inf)
    span, stopped, waiting = trajectory.span, False, []
    for num_before in range(trajectory.num_states):
        state = path.step(state, direction)
        choice, span = _look(path, rule, state)
        taken, visits = add_by_weight(taken, choice), visits.with_state(choice.energy_change)
        span, stopped = _merge(waiting, span, num_before, rule)
        if stopped or visits.diverging:
            break
    return _Run(state, taken, span, visits, stopped)


def _merge(waiting: list[Span], span: Span, num_before: int, rule: Rule) -> tuple[Span, bool]:
    """Join a state with the finished parts before it, like the carries of a binary counter, until the rule holds.

    Returns:
        Summary of the largest finished part that ends with the state, which now waits, and whether the rule held.
    """
    level, stopped = 0, False
    while (num_before >> level) % 2 == 1 and not stopped:
        first = waiting.pop()
        whole = first.joined(span)
        stopped, span, level = rule.holds(first, span, whole), whole, level + 1
    waiting.append(span)
    return span, stopped


def _extend(trajectory: Tree, run: _Run, forwards: bool, rule: Rule) -> Tree:
    """The trajectory with a finished subtree added, or without a subtree that is discarded."""
    trajectory = trajectory._replace(depth=trajectory.depth + 1, visits=run.visits)
    if run.stopped or run.visits.diverging:
        return trajectory._replace(stopped=run.stopped)
    before = trajectory.span if forwards else trajectory.span.reversed()
    whole = before.joined(run.span)
    return trajectory._replace(
        first=trajectory.first if forwards else run.state,
        last=run.state if forwards else trajectory.last,
        choice=choose(trajectory.choice, run.choice, run.choice.log_weight - trajectory.choice.log_weight),
        span=whole if forwards else whole.reversed(),
        num_states=2 * trajectory.num_states,
        stopped=rule.holds(before, run.span, whole),
    )


def _look_at_start(path: Path, rule: Rule) -> tuple[Choice, Span]:
    """Choice and span of the state in which a trajectory starts."""
    grad = path.integrator.energies_and_grad(path.start)[1] if rule.takes_gradients else None
    return only(path.start, path.energies, 0.0), rule.span.of(path, path.start, 0.0, grad)


def _look(path: Path, rule: Rule, state: IntegratorState) -> tuple[Choice, Span]:
    """Choice and span of one state."""
    if rule.takes_gradients:
        energies, grad = path.integrator.energies_and_grad(state)
    else:
        energies, grad = path.integrator.energies(state), None
    change = path.energy_change(state, energies)
    return only(state, energies, change), rule.span.of(path, state, -change, grad)


def tree_transition(state: Any, integrator: IntegratorBase, rule: Rule, max_tree_depth: int) -> Any:
    """One iteration whose trajectory doubles, at the state's step size and metric, which do not change.

    Args:
        state: current state of the chain.
        integrator: integrator of the schedule on the target's potential, at the state's metric.
        rule: when the trajectory stops.
        max_tree_depth: largest number of doublings.

    Returns:
        The next state.
    """
    path = draw_path(state, integrator, state.adapt_state.step_size)
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


def _virial_average(trajectory: Tree, step_size: float) -> float:
    """The mean of dG/dt in the form that the rule uses; for rules that use no gradients, the mean over time."""
    span = trajectory.span
    if isinstance(span, Virial) and span.mean_rate is not None:
        return span.mean_rate
    first, last = (
        sum(float((state.z[name] * state.p[name]).sum()) for name in state.z)
        for state in (trajectory.first, trajectory.last)
    )
    return mean_rate_in_time(last - first, trajectory.num_states, step_size)


def count_depth_limit(moved: Any, warmup_steps: int) -> Any:
    """``moved`` with the share of draws at the depth limit brought up to date."""
    num_draws, share = moved.i + 1 - warmup_steps, moved.share_at_limit
    if num_draws < 1:
        return moved
    return moved._replace(share_at_limit=share + (moved.reached_max_treedepth - share) / num_draws)


def warn_if_often_at_limit(state: Any, warmup_steps: int, max_tree_depth: int) -> None:
    """Warn once for each chain if the trajectories of many of the first draws ended at the depth limit."""
    if state.i - warmup_steps == DRAWS_BEFORE_WARNING and state.share_at_limit > WARN_ABOVE_SHARE:
        warn_of_depth_limit(max_tree_depth, state.share_at_limit)
