r"""One step of a schedule: kicks by the gradients of subsets, drifts between them.

The step is the composition of the schedule's rows, so it preserves volume whatever the rows are; what it
reverses to, and why the target stays invariant, is in :mod:`split_common.schedule`.

Where a palindromic schedule's steps meet, the kicks that close one step are those that open the next. Their
weighted sum is kept (``force``), as leapfrog keeps its gradient, so they cost no gradient the second time.

All rows run through one compiled body, the subset being data of a ``lax.scan``: compile time does not grow
with M.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from numpyro_split.densities import Position
from split_common.schedule import Row, Schedule

SubsetGrad = Callable[[Position, jax.Array], Position]
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
        subset_grad: ``subset_grad(z, m)``, the gradient of U_m, for a traced ``m``.
        velocity: ``velocity(p)``, the inverse mass matrix times the momentum.

    Example:
        >>> import jax.numpy as jnp
        >>> from split_common.schedule import symmetric
        >>> integrator = Integrator(symmetric(2), lambda z, m: {"x": 0.5 * z["x"]}, lambda p: p)
        >>> order, z, p = jnp.arange(2), {"x": jnp.array(1.0)}, {"x": jnp.array(0.0)}
        >>> state = IntegratorState(z, p, integrator.opening_force(z, order))
        >>> round(float(integrator.step(state, 0.1, order).z["x"]), 5)
        0.995
    """

    def __init__(self, schedule: Schedule, subset_grad: SubsetGrad, velocity: Velocity):
        self.schedule, self._subset_grad, self.velocity = schedule, subset_grad, velocity
        self._rows = _columns(schedule.evaluated_rows, schedule.closes)

    def opening_force(self, z: Position, order: jax.Array) -> Position | None:
        """Weighted sum of the gradients that open a step at ``z``; None where the schedule keeps none.

        Args:
            z: position.
            order: which subset stands at each place of the schedule, shape (M,).
        """
        if not self.schedule.keeps_opening:
            return None
        rows = _columns(self.schedule.opening, [True] * len(self.schedule.opening))

        def add_kick(force: Position, row: dict[str, jax.Array]) -> tuple[Position, None]:
            return _add(force, self._subset_grad(z, order[row["subset"]]), row["kick"]), None

        return lax.scan(add_kick, jax.tree.map(jnp.zeros_like, z), rows)[0]

    def step(self, state: IntegratorState, step_size: jax.Array, order: jax.Array) -> IntegratorState:
        """Advance by one step.

        Args:
            state: where the step starts; ``force`` as :meth:`opening_force` or the last step left it.
            step_size: the step size, a scalar.
            order: which subset stands at each place of the schedule, shape (M,).

        Returns:
            Where the step ends, its ``force`` opening the next.
        """
        z, p, force = state
        if force is not None:
            p = _add(p, force, -step_size)
            z = _add(z, self.velocity(p), step_size * float(self.schedule.opening[-1].drift))
            force = jax.tree.map(jnp.zeros_like, force)

        def one_row(state: IntegratorState, row: dict[str, jax.Array]) -> tuple[IntegratorState, None]:
            z, p, force = state
            grad = self._subset_grad(z, order[row["subset"]])
            p = _add(p, grad, -step_size * row["kick"])
            z = lax.cond(
                row["drift"] > 0, lambda z, p: _add(z, self.velocity(p), step_size * row["drift"]), lambda z, p: z, z, p
            )
            if force is not None:
                force = _add(force, grad, row["kick"] * row["closes"])
            return IntegratorState(z, p, force), None

        return lax.scan(one_row, IntegratorState(z, p, force), self._rows)[0]


def _columns(rows: Sequence[Row], closes: Sequence[bool]) -> dict[str, jax.Array]:
    """The rows as arrays, exact fractions rounded once."""
    return {
        "subset": jnp.array([row.subset for row in rows]),
        "kick": jnp.array([float(row.kick) for row in rows]),
        "drift": jnp.array([float(row.drift) for row in rows]),
        "closes": jnp.array([float(closing) for closing in closes]),
    }


def _add(x: Any, y: Any, scale: Any) -> Any:
    """``x + scale * y``, leaf by leaf, in the precision of ``x``."""
    return jax.tree.map(lambda a, b: a + (scale * b).astype(a.dtype), x, y)
