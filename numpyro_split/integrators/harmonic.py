"""Drifts along a normal approximation of the posterior (:mod:`split_common.harmonic`)."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from numpyro_split.integrators.euclidean import EuclideanKinetic
from numpyro_split.potential.position import Position, add, subtract


class HarmonicDrift(NamedTuple):
    """Turns about a reference in the metric of the momenta, or, where it is off, straight drifts.

    Attributes:
        kinetic: of the momenta.
        reference: z*, a dict by site.
        is_on: whether it is followed, a scalar.
    """

    kinetic: EuclideanKinetic
    reference: Position
    is_on: jax.Array

    def turn(
        self, z: Position, p: Position, kick: jax.Array | float, time: jax.Array | float
    ) -> tuple[Position, Position]:
        """A kick of that much time against the harmonic force, then a turn of that angle, made of shears.

        Args:
            z: position.
            p: momentum.
            kick: p ← p + kick M (z - z*), what the kicks by subsets have too much.
            time: angle of the turn.

        Returns:
            Position and momentum.
        """
        angle = time - 2 * math.pi * jnp.round(time / (2 * math.pi))
        pull, drift = jnp.tan(angle / 4), jnp.sin(angle / 2)

        def turned(z: Position, p: Position) -> tuple[Position, Position]:
            p = self._pulled(z, p, pull - kick)
            for last_pull in (2 * pull, pull):  # two half turns
                z = add(z, self.kinetic.velocity(p), drift)
                p = self._pulled(z, p, last_pull)
            return z, p

        def straight(z: Position, p: Position) -> tuple[Position, Position]:
            return add(z, self.kinetic.velocity(p), time), p

        return lax.cond(self.is_on, turned, straight, z, p)

    def _pulled(self, z: Position, p: Position, time: jax.Array) -> Position:
        """The momentum after the harmonic force has pulled for that much time."""
        return add(p, self.kinetic.momentum(subtract(z, self.reference)), -time)
