r"""A trajectory that doubles until a rule says that it has gone far enough: a tree of states.

It grows by a run of its own length, forwards or backwards with equal probability, until a rule
(:mod:`pyro_split.trajectories.termination`) holds of the whole, or of any part that the doubling of its halves went
through, in which case the new run is refused whole. Every state of the final trajectory would have built it with the
same probability, 2 to the power of minus its depth, because every other order of doublings goes through the same parts
and would have been stopped by the same rule. It takes steps that preserve volume and are undone by a step back in time
(every schedule, given the order of its subsets; :mod:`split_common.schedule`).

It remains to take a state of a given trajectory in a way that leaves the weights exp(-H) invariant: within a new run
each state by its weight, and the new run's state instead of the old one's with probability min(1, w_new / w_old). By
induction the old one's choice leaves the weights within the old run invariant, and w_old min(1, w_new / w_old) =
w_new min(1, w_old / w_new) is as much flow from the old run to the new as back. This holds for the U-turn and for
exhaustion alike: both take the same choice.

A tree of 2^d states is built state by state. Of each size 2^k there is at most one finished run that waits for its
second half, so d of them are kept: memory grows with the depth, not with the number of states.

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
        """Statistics of no tree, and the criterion's fields."""
        none = {"tree_depth": 0, "reached_max_treedepth": False, "virial_average": 0.0, "share_at_limit": 0.0}
        return {**none, **self.criterion.first_fields(z)}

    def move(self, state: Any, integrator: IntegratorBase, warmup_steps: int) -> tuple[Any, None]:
        """One iteration."""
        moved = tree_transition(state, integrator, self.criterion.rule(state), self.max_tree_depth)
        return self.criterion.updated(state, count_depth_limit(moved, warmup_steps), warmup_steps), None

    def watch(self, state: Any, warmup_steps: int) -> None:
        """Warn where many of the first draws ended at the depth limit."""
        warn_if_often_at_limit(state, warmup_steps, self.max_tree_depth)


class Trajectory(NamedTuple):
    """A trajectory that doubles.

    Attributes:
        first: its earliest state.
        last: its latest state.
        choice: the state taken.
        span: what the rule knows of the whole, in order of time.
        num_states: how many states, those of a refused run not counted.
        depth: doublings made, a refused one included.
        visits: what it met on its way.
        stopped: whether the rule has held, of the whole or of a part of a refused run.
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
        """Whether nothing forbids another doubling."""
        return not (self.stopped or self.visits.diverging)


def doubling(path: Path, rule: Rule, max_tree_depth: int) -> Trajectory:
    """A trajectory that doubles until ``rule`` holds, a step diverges, or it has doubled ``max_tree_depth`` times.

    Args:
        path: how it is integrated, and from where.
        rule: when it stops.
        max_tree_depth: most doublings.
    """
    choice, span = _look_at_start(path, rule)
    trajectory = Trajectory(path.start, path.start, choice, span, 1, 0, Visits(), False)
    while trajectory.grows and trajectory.depth < max_tree_depth:
        forwards = bool(torch.rand(()) < 0.5)
        run = _run(path, trajectory, forwards, rule)
        trajectory = _extend(trajectory, run, forwards, rule)
    return trajectory


class _Run(NamedTuple):
    """A new run of states of the length of the trajectory that it doubles, or shorter if it was refused.

    Attributes:
        state: the outermost state.
        choice: the state taken.
        span: the largest finished run that ends here, in the order of the visit.
        visits: the trajectory's and this run's.
        stopped: whether the rule has held of a part.
    """

    state: IntegratorState
    choice: Choice
    span: Span
    visits: Visits
    stopped: bool


def _run(path: Path, trajectory: Trajectory, forwards: bool, rule: Rule) -> _Run:
    """As many states beyond the end of ``trajectory`` as it has, or fewer if the rule holds or a step diverges."""
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
    """Join a state with the finished runs before it, as a binary counter carries, until the rule holds.

    Returns:
        The largest finished run that ends with the state, which now waits, and whether the rule held.
    """
    level, stopped = 0, False
    while (num_before >> level) % 2 == 1 and not stopped:
        first = waiting.pop()
        whole = first.joined(span)
        stopped, span, level = rule.holds(first, span, whole), whole, level + 1
    waiting.append(span)
    return span, stopped


def _extend(trajectory: Trajectory, run: _Run, forwards: bool, rule: Rule) -> Trajectory:
    """The trajectory with a finished run, or as it was with a refused one."""
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
    """Choice and span of the state that a trajectory starts from."""
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
    """One iteration whose trajectory doubles, at the state's step size and metric, which it leaves as they are.

    Args:
        state: where the chain is.
        integrator: the schedule on the target's potential, with the state's metric.
        rule: when the trajectory stops.
        max_tree_depth: most doublings.

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


def count_depth_limit(moved: Any, warmup_steps: int) -> Any:
    """``moved`` with its iteration counted in the share of draws that ended at the depth limit."""
    num_draws, share = moved.i + 1 - warmup_steps, moved.share_at_limit
    if num_draws < 1:
        return moved
    return moved._replace(share_at_limit=share + (moved.reached_max_treedepth - share) / num_draws)


def warn_if_often_at_limit(state: Any, warmup_steps: int, max_tree_depth: int) -> None:
    """Warn once, of each chain, where many of the first draws ended at the depth limit."""
    if state.i - warmup_steps == DRAWS_BEFORE_WARNING and state.share_at_limit > WARN_ABOVE_SHARE:
        warn_of_depth_limit(max_tree_depth, state.share_at_limit)
