"""The path of a trajectory: its integrator, step size, order of subsets and start, and the energy there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import random

from numpyro_split.integrators.integrator import IntegratorBase, IntegratorState
from numpyro_split.potential.compensated import Compensated, difference
from numpyro_split.potential.position import Position
from numpyro_split.potential.sources import of_first_chain


class Path(NamedTuple):
    """How a trajectory is integrated from its start, and the energy that its states are compared with.

    Attributes:
        integrator: integrator of the schedule on the potential, at the metric of the state.
        unscale: ``unscale(z, p)`` is M^{-1/2} p at z, standard normal for a drawn p; a dict like p.
        step_size: step size.
        order: index of the subset at each place of the schedule, shape (M,).
        start: state in which the trajectory starts.
        energies: the terms of the potential at the start, shape (M + 1,).
    """

    integrator: IntegratorBase
    unscale: Callable[[Position, Position], Position]
    step_size: jax.Array
    order: jax.Array
    start: IntegratorState
    energies: Compensated

    def step(self, state: IntegratorState, direction: jax.Array | int) -> IntegratorState:
        """One step forwards (1) or backwards (-1) in time."""
        order = self.order
        if self.integrator.schedule.draws_order:
            order = jnp.where(jnp.asarray(direction) > 0, order, order[::-1])
        return self.integrator.step(state, direction * self.step_size, order)

    def energy_change(self, state: IntegratorState, energies: Compensated) -> jax.Array:
        """H at ``state`` minus H at the start; infinity if it is not finite, so that the state has no weight."""
        change = difference(energies, self.energies) + self.integrator.kinetic.change(state, self.start)
        return jnp.where(jnp.isfinite(change), change, jnp.inf)


def draw_path(state: Any, integrator: IntegratorBase, step_size: jax.Array, rng_key: jax.Array) -> Path:
    """A path from the state with a drawn momentum, and with a drawn order of the subsets if the schedule needs one."""
    order, kinetic = jnp.arange(integrator.schedule.num_subsets), integrator.kinetic
    if integrator.schedule.draws_order:
        rng_key, key_order = random.split(rng_key)
        order = of_first_chain(random.permutation(key_order, order))
    start = integrator.known(state.z, kinetic.draw(state.z, rng_key), state.opening_grad, state.energies)
    return Path(integrator, kinetic.unscale, step_size, order, start, state.energies)
