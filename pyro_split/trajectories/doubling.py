r"""A trajectory that doubles until a rule says that it has gone far enough: a tree of states.

It grows by a run of its own length, forwards or backwards with equal probability, until a rule
(:mod:`pyro_split.trajectories.termination`) holds of the whole, or of any part that the doubling of its halves went
through, in which case the new run is refused whole. Every state of the final trajectory would have built it with the
same probability, 2 to the power of minus its depth, because every other order of doublings goes through the same parts
and would have been stopped by the same rule. It takes steps that preserve volume and are undone by a step back in time
(every palindromic schedule).

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
from typing import NamedTuple

import torch

from pyro_split.integrators.integrator import IntegratorState
from pyro_split.trajectories.path import Path
from pyro_split.trajectories.selection import Choice, Visits, add_by_weight, choose, only
from split_common.termination import Rule, Span


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
