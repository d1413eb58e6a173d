"""How a trajectory is integrated, and the energy that its states are weighed against."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyro_split.integrators.integrator import IntegratorBase, IntegratorState
from pyro_split.potential.position import Position


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

    integrator: IntegratorBase
    unscale: Callable[[Position, Position], Tensor]
    step_size: float
    order: Sequence[int]
    start: IntegratorState
    energies: Tensor

    def step(self, state: IntegratorState, direction: int) -> IntegratorState:
        """One step forwards (1) or backwards (-1) in time."""
        is_undone_by_order = self.integrator.schedule.draws_order and direction < 0
        return self.integrator.step(
            state, direction * self.step_size, self.order[::-1] if is_undone_by_order else self.order
        )

    def energy_change(self, state: IntegratorState, energies: Tensor) -> float:
        """H at ``state`` minus H at the start; infinite where it is not finite, so that the state has no weight."""
        change = float((energies - self.energies).sum()) + self.integrator.kinetic.change(state, self.start)
        return change if math.isfinite(change) else math.inf


def draw_path(state: Any, integrator: IntegratorBase, step_size: float) -> Path:
    """A path from the state with a momentum drawn from exp(-K), and an order of subsets where the schedule asks."""
    schedule, kinetic = integrator.schedule, integrator.kinetic
    order = torch.randperm(schedule.num_subsets).tolist() if schedule.draws_order else range(schedule.num_subsets)
    start = integrator.known(state.z, kinetic.draw(state.z), state.opening_grad, state.energies)
    return Path(integrator, kinetic.unscale, step_size, order, start, state.energies)
