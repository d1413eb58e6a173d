r"""Choice of one state of a trajectory by the weights exp(-H), with H the energy on all the data.

A proposal is kept, and replaced by a later state with some probability, so only two states are in memory at a time. For
the probabilities that leave exp(-H) invariant, see the modules that build trajectories
(:mod:`pyro_split.trajectories.doubling`, :mod:`pyro_split.trajectories.windows`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyro_split.integrators.integrator import IntegratorState
from pyro_split.potential.position import Position
from pyro_split.trajectories.path import Path
from split_common.health import MAX_ENERGY_CHANGE


class Choice(NamedTuple):
    """The state that is chosen among those seen so far, the proposal.

    Attributes:
        z: position of the chosen state.
        opening_grad: weighted sum of the gradients that open a step there; None where the schedule keeps none.
        energies: the terms of the potential there, shape (M + 1,).
        energy_change: H there minus H at the start of the trajectory.
        log_weight: log of the sum of exp(-energy change) over all states seen.
    """

    z: Position
    opening_grad: Position | None
    energies: Tensor
    energy_change: float
    log_weight: float


def only(state: IntegratorState, energies: Tensor, energy_change: float) -> Choice:
    """The choice of a state that is the only one."""
    return Choice(state.z, state.opening_grad, energies, energy_change, -energy_change)


def choose(one: Choice, other: Choice, log_prob_of_other: float) -> Choice:
    """Choose ``other`` with the given probability, counted as 1 if it is above 1 and as 0 if it is undefined."""
    taken = other if float(torch.rand(())) < math.exp(min(log_prob_of_other, 0.0)) else one
    return taken._replace(log_weight=log_add(one.log_weight, other.log_weight))


def add_by_weight(one: Choice, other: Choice) -> Choice:
    """Choose one of the two, with probability in proportion to its weight."""
    if other.log_weight == -math.inf:
        return one
    return choose(one, other, other.log_weight - log_add(one.log_weight, other.log_weight))


def log_add(a: float, b: float) -> float:
    """log(exp(a) + exp(b)); minus infinity if both are minus infinity."""
    high, low = max(a, b), min(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


class Visits(NamedTuple):
    """Statistics of the states that a trajectory visited.

    Attributes:
        num_states: number of states whose energy was evaluated, without the start.
        sum_accept_prob: sum of their min(1, exp(-energy change)).
        diverging: whether one of them has an energy error above 1000, infinite or undefined.
    """

    num_states: int = 0
    sum_accept_prob: float = 0.0
    diverging: bool = False

    def with_state(self, energy_change: float) -> Visits:
        """The statistics with one more state."""
        accept_prob = math.exp(-max(energy_change, 0.0))
        diverging = self.diverging or energy_change > MAX_ENERGY_CHANGE
        return Visits(self.num_states + 1, self.sum_accept_prob + accept_prob, diverging)

    @property
    def mean_accept_prob(self) -> float:
        """Mean acceptance probability, by which the step size adapts."""
        return self.sum_accept_prob / max(self.num_states, 1)


def at_choice(state: Any, path: Path, choice: Choice, visits: Visits, num_steps: int) -> Any:
    """``state`` moved to the choice of a trajectory, with the statistics that all such trajectories share."""
    start_energy = state.potential_energy + path.integrator.kinetic.energy(state.z, path.start.p)
    return state._replace(
        z=choice.z,
        opening_grad=choice.opening_grad,
        energies=choice.energies,
        potential_energy=float(choice.energies.sum()),
        energy=start_energy + choice.energy_change,
        num_steps=num_steps,
        num_grads=num_steps * path.integrator.grads_per_step,
        accept_prob=visits.mean_accept_prob,
        diverging=visits.diverging,
        step_size=path.step_size,
    )
