"""Harmonic drifts: rotations along a normal approximation of the posterior (:mod:`split_common.harmonic`)."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from numpyro_split.integrators.euclidean import EuclideanKinetic
from numpyro_split.potential.position import Position, add, subtract


class HarmonicDrift(NamedTuple):
    """Rotations about a reference in the metric of the momenta, or straight drifts where they are off.

    Attributes:
        kinetic: the kinetic energy of the momenta.
        reference: the reference z*, a dict by site.
        is_on: whether drifts are rotations, a scalar; otherwise they are straight, and there is no kick.
    """

    kinetic: EuclideanKinetic
    reference: Position
    is_on: jax.Array

    def turn(
        self, z: Position, p: Position, kick: jax.Array | float, time: jax.Array | float
    ) -> tuple[Position, Position]:
        """Kick against the harmonic force, then rotate about the reference; the rotation is composed of shears.

        Args:
            z: position.
            p: momentum.
            kick: size of the kick p ← p + kick M (z - z*), which takes the harmonic force out of the subsets' kicks.
            time: duration of the drift, which is the angle of the rotation.

        Returns:
            Position and momentum after the drift.
        """
        angle = time - 2 * math.pi * jnp.round(time / (2 * math.pi))
        pull, drift = jnp.tan(angle / 4), jnp.sin(angle / 2)

        def turned(z: Position, p: Position) -> tuple[Position, Position]:
            p = self._pulled(z, p, pull - kick)
            for last_pull in (2 * pull, pull):  # two rotations by half the angle
                z = add(z, self.kinetic.velocity(p), drift)
                p = self._pulled(z, p, last_pull)
            return z, p

        def straight(z: Position, p: Position) -> tuple[Position, Position]:
            return add(z, self.kinetic.velocity(p), time), p

        return lax.cond(self.is_on, turned, straight, z, p)

    def _pulled(self, z: Position, p: Position, time: jax.Array) -> Position:
        """The momentum after a kick of length ``time`` by the harmonic force -M (z - z*)."""
        return add(p, self.kinetic.momentum(subtract(z, self.reference)), -time)
