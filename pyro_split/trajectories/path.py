"""The path of a trajectory: its integrator, step size, order of subsets and start, and the energy there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyro_split.integrators.integrator import IntegratorBase, IntegratorState
from pyro_split.potential.position import Position


class Path(NamedTuple):
    """How a trajectory is integrated from its start, and the energy that its states are compared with.

    Attributes:
        integrator: integrator of the schedule on the potential, at the metric of the state.
        unscale: ``unscale(z, p)`` is M^{-1/2} p at z, standard normal for a drawn p; shape (D,).
        step_size: step size.
        order: index of the subset at each place of the schedule, M numbers.
        start: state in which the trajectory starts.
        energies: the terms of the potential at the start, shape (M + 1,).
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
        """H at ``state`` minus H at the start; infinity if it is not finite, so that the state has no weight."""
        change = float((energies - self.energies).sum()) + self.integrator.kinetic.change(state, self.start)
        return change if math.isfinite(change) else math.inf


def draw_path(state: Any, integrator: IntegratorBase, step_size: float) -> Path:
    """A path from the state with a drawn momentum, and with a drawn order of the subsets if the schedule needs one."""
    schedule, kinetic = integrator.schedule, integrator.kinetic
    order = torch.randperm(schedule.num_subsets).tolist() if schedule.draws_order else range(schedule.num_subsets)
    start = integrator.known(state.z, kinetic.draw(state.z), state.opening_grad, state.energies)
    return Path(integrator, kinetic.unscale, step_size, order, start, state.energies)
