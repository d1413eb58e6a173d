"""Harmonic drifts: rotations along a normal approximation of the posterior (:mod:`split_common.harmonic`)."""

from __future__ import annotations

import math
from typing import NamedTuple

from pyro_split.integrators.euclidean import EuclideanKinetic
from pyro_split.potential.position import Position, add, subtract


class HarmonicDrift(NamedTuple):
    """Rotations about a reference in the metric of the momenta.

    Attributes:
        kinetic: the kinetic energy of the momenta.
        reference: the reference z*, a dict by site.
    """

    kinetic: EuclideanKinetic
    reference: Position

    def turn(self, z: Position, p: Position, kick: float, time: float) -> tuple[Position, Position]:
        """Kick against the harmonic force, then rotate about the reference; the rotation is composed of shears.

        Args:
            z: position.
            p: momentum.
            kick: size of the kick p ← p + kick M (z - z*), which takes the harmonic force out of the subsets' kicks.
            time: duration of the drift, which is the angle of the rotation.

        Returns:
            Position and momentum after the drift.
        """
        angle = time - 2 * math.pi * round(time / (2 * math.pi))
        pull, drift = math.tan(angle / 4), math.sin(angle / 2)
        p = self._pulled(z, p, pull - kick)
        for last_pull in (2 * pull, pull):  # two rotations by half the angle
            z = add(z, self.kinetic.velocity(p), drift)
            p = self._pulled(z, p, last_pull)
        return z, p

    def _pulled(self, z: Position, p: Position, time: float) -> Position:
        """The momentum after a kick of length ``time`` by the harmonic force -M (z - z*)."""
        return add(p, self.kinetic.momentum(subtract(z, self.reference)), -time)
