r"""Taking one of many states of a trajectory by their weights exp(-H), H the energy on all the data.

A state is taken of those seen so far, and replaced by one seen later with some probability: so the memory is that of
two states, however many there are. Which probabilities leave exp(-H) invariant is derived where trajectories are built
(:mod:`pyro_split.trees`, :mod:`pyro_split.windows`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pyro_split.densities import Position
from pyro_split.integrators import Integrator, IntegratorState
from split_common.trajectory import MAX_ENERGY_CHANGE


class Path(NamedTuple):
    """How a trajectory is integrated, and the energy that its states are weighed against.

    Attributes:
        integrator: the schedule on the potential, with the metric.
        unscale: from a position and a momentum there to M to the power of -½ times it, shape (D,).
        step_size: size of a step.
        order: which subset stands at each place of the schedule, M numbers.
        start: where it starts.
        energies: terms of the potential at the start, shape (M + 1,).
    """

    integrator: Integrator
    unscale: Callable[[Position, Position], Tensor]
    step_size: float
    order: Sequence[int]
    start: IntegratorState
    energies: Tensor

    def step(self, state: IntegratorState, direction: int) -> IntegratorState:
        """One step forwards (1) or backwards (-1) in time."""
        return self.integrator.step(state, direction * self.step_size, self.order)

    def energy_change(self, state: IntegratorState, energies: Tensor) -> float:
        """H at ``state`` minus H at the start; infinite where it is not finite, so that the state has no weight."""
        change = float((energies - self.energies).sum()) + self.integrator.kinetic.change(state, self.start)
        return change if math.isfinite(change) else math.inf


class Choice(NamedTuple):
    """The state taken of those seen so far.

    Attributes:
        z: its position.
        force: the kicks that open a step there; None where the schedule keeps none.
        energies: the terms of the potential there, shape (M + 1,).
        energy_change: H there minus H at the start.
        log_weight: log of the sum of exp(-energy change) over all states seen.
    """

    z: Position
    force: Position | None
    energies: Tensor
    energy_change: float
    log_weight: float


def only(state: IntegratorState, energies: Tensor, energy_change: float) -> Choice:
    """The choice among one state."""
    return Choice(state.z, state.force, energies, energy_change, -energy_change)


def choose(one: Choice, other: Choice, log_prob_of_other: float) -> Choice:
    """Take ``other`` with the given probability (of 1 where it is above 1, of 0 where it is undefined)."""
    taken = other if float(torch.rand(())) < math.exp(min(log_prob_of_other, 0.0)) else one
    return taken._replace(log_weight=log_add(one.log_weight, other.log_weight))


def add_by_weight(one: Choice, other: Choice) -> Choice:
    """Of both, take each with probability in proportion to its weight."""
    if other.log_weight == -math.inf:
        return one
    return choose(one, other, other.log_weight - log_add(one.log_weight, other.log_weight))


def log_add(a: float, b: float) -> float:
    """log(exp(a) + exp(b)); minus infinity where both are."""
    high, low = max(a, b), min(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


class Visits(NamedTuple):
    """What a trajectory met on its way, for the statistics.

    Attributes:
        num_states: states besides the start whose energy was looked at.
        sum_accept_prob: sum of their min(1, exp(-energy change)).
        diverging: whether one of them has an energy error above 1000, infinite or undefined.
    """

    num_states: int = 0
    sum_accept_prob: float = 0.0
    diverging: bool = False

    def with_state(self, energy_change: float) -> Visits:
        """One more state."""
        accept_prob = math.exp(-max(energy_change, 0.0))
        diverging = self.diverging or energy_change > MAX_ENERGY_CHANGE
        return Visits(self.num_states + 1, self.sum_accept_prob + accept_prob, diverging)

    @property
    def mean_accept_prob(self) -> float:
        """What the step size is adapted to."""
        return self.sum_accept_prob / max(self.num_states, 1)
