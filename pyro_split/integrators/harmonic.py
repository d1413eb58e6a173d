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
        p = add(p, force, kick)
        velocity = self.kinetic.velocity(p)
        less, sine = 2 * math.sin(time / 2) ** 2, math.sin(time)  # 1 - cos(t), without cancellation
        z = add(add(z, offset, -less), velocity, sine)
        return z, add(add(p, p, -less), force, -sine)
