"""Drifts along a normal approximation of the posterior (:mod:`split_common.harmonic`)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from numpyro_split.integrators.euclidean import EuclideanKinetic
from numpyro_split.potential.position import Position, add, subtract


class HarmonicDrift(NamedTuple):
    """Turns about a reference in the metric of the momenta, or, where it is off, straight drifts.

    Attributes:
        kinetic: of the momenta.
        reference: z*, a dict by site.
        is_on: whether it is followed, a scalar; off, every number is that of straight drifts.
    """

    kinetic: EuclideanKinetic
    reference: Position
    is_on: jax.Array

    def turn(
        self, z: Position, p: Position, kick: jax.Array | float, time: jax.Array | float
    ) -> tuple[Position, Position]:
        """A kick of that much time against the harmonic force, then a turn of that angle.

        Args:
            z: position.
            p: momentum.
            kick: p ← p + kick M (z - z*), what the kicks by subsets have too much.
            time: angle of the turn.

        Returns:
            Position and momentum.
        """
        offset = subtract(z, self.reference)
        force = self.kinetic.momentum(offset)
        p = add(p, force, jnp.where(self.is_on, kick, 0.0))
        velocity = self.kinetic.velocity(p)
        # 1 - cos(t), without cancellation
        less = jnp.where(self.is_on, 2 * jnp.sin(time / 2) ** 2, 0.0)
        sine = jnp.sin(time)
        z = add(add(z, offset, -less), velocity, jnp.where(self.is_on, sine, time))
        return z, add(add(p, p, -less), force, jnp.where(self.is_on, -sine, 0.0))
