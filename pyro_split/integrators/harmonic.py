"""Drifts along a normal approximation of the posterior (:mod:`split_common.harmonic`)."""

from __future__ import annotations

import math
from typing import NamedTuple

from pyro_split.integrators.euclidean import EuclideanKinetic
from pyro_split.potential.position import Position, add, subtract


class HarmonicDrift(NamedTuple):
    """Turns about a reference in the metric of the momenta.

    Attributes:
        kinetic: of the momenta.
        reference: z*, a dict by site.
    """

    kinetic: EuclideanKinetic
    reference: Position

    def turn(self, z: Position, p: Position, kick: float, time: float) -> tuple[Position, Position]:
        """A kick of that much time against the harmonic force, then a turn of that angle, made of shears.

        Args:
            z: position.
            p: momentum.
            kick: p ← p + kick M (z - z*), what the kicks by subsets have too much.
            time: angle of the turn.

        Returns:
            Position and momentum.
        """
        angle = time - 2 * math.pi * round(time / (2 * math.pi))
        pull, drift = math.tan(angle / 4), math.sin(angle / 2)
        p = self._pulled(z, p, pull - kick)
        for last_pull in (2 * pull, pull):  # two half turns
            z = add(z, self.kinetic.velocity(p), drift)
            p = self._pulled(z, p, last_pull)
        return z, p

    def _pulled(self, z: Position, p: Position, time: float) -> Position:
        """The momentum after the harmonic force has pulled for that much time."""
        return add(p, self.kinetic.momentum(subtract(z, self.reference)), -time)
