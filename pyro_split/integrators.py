r"""One step of a schedule: kicks by the gradients of subsets, drifts between them.

The step is the composition of the schedule's rows, so it preserves volume whatever the rows are; what it
reverses to, and why the target stays invariant, is in :mod:`split_common.schedule`.

Where a palindromic schedule's steps meet, the kicks that close one step are those that open the next. Their
weighted sum is kept (``force``), as leapfrog keeps its gradient, so they cost no gradient the second time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from pyro_split.densities import Position
from split_common.schedule import Schedule

SubsetGrad = Callable[[Position, int], Position]
Velocity = Callable[[Position], Position]


class IntegratorState(NamedTuple):
    """A point in phase space, on the way along a trajectory.

    Attributes:
        z: position, a dict of unconstrained values.
        p: momentum, a dict like ``z``.
        force: weighted sum of the gradients that open the next step, a dict like ``z``; None where the
            schedule keeps none.
    """

    z: Position
    p: Position
    force: Position | None


class Integrator:
    """Runs the steps of one schedule.

    Args:
        schedule: the rows of a step.
        subset_grad: ``subset_grad(z, m)``, the gradient of U_m.
        velocity: ``velocity(p)``, the inverse mass matrix times the momentum.

    Example:
        >>> import torch
        >>> from split_common.schedule import symmetric
        >>> integrator = Integrator(symmetric(2), lambda z, m: {"x": 0.5 * z["x"]}, lambda p: p)
        >>> order, z, p = [0, 1], {"x": torch.tensor(1.0)}, {"x": torch.tensor(0.0)}
        >>> state = IntegratorState(z, p, integrator.opening_force(z, order))
        >>> round(float(integrator.step(state, 0.1, order).z["x"]), 5)
        0.995
    """

    def __init__(self, schedule: Schedule, subset_grad: SubsetGrad, velocity: Velocity):
        self.schedule, self._subset_grad, self.velocity = schedule, subset_grad, velocity
        self._rows = list(zip(schedule.evaluated_rows, schedule.closes, strict=True))

    def opening_force(self, z: Position, order: Sequence[int]) -> Position | None:
        """Weighted sum of the gradients that open a step at ``z``; None where the schedule keeps none.

        Args:
            z: position.
            order: which subset stands at each place of the schedule, M numbers.
        """
        if not self.schedule.keeps_opening:
            return None
        force = {name: torch.zeros_like(u) for name, u in z.items()}
        for row in self.schedule.opening:
            force = _add(force, self._subset_grad(z, order[row.subset]), float(row.kick))
        return force

    def step(self, state: IntegratorState, step_size: float, order: Sequence[int]) -> IntegratorState:
        """Advance by one step.

        Args:
            state: where the step starts; ``force`` as :meth:`opening_force` or the last step left it.
            step_size: the step size.
            order: which subset stands at each place of the schedule, M numbers.

        Returns:
            Where the step ends, its ``force`` opening the next. No tensor of ``state`` is changed.
        """
        z, p, force = state
        if force is not None:
            p = _add(p, force, -step_size)
            z = _add(z, self.velocity(p), step_size * float(self.schedule.opening[-1].drift))
            force = {name: torch.zeros_like(u) for name, u in z.items()}
        for row, closes in self._rows:
            grad = self._subset_grad(z, order[row.subset])
            p = _add(p, grad, -step_size * float(row.kick))
            if row.drift:
                z = _add(z, self.velocity(p), step_size * float(row.drift))
            if force is not None and closes:
                force = _add(force, grad, float(row.kick))
        return IntegratorState(z, p, force)


def _add(x: Position, y: Position, scale: float) -> Position:
    """``x + scale * y``, site by site."""
    return {name: torch.add(a, y[name], alpha=scale) for name, a in x.items()}
