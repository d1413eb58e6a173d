"""Potentials that trajectories follow instead of the target's, with the same energies."""

from __future__ import annotations

from torch import Tensor

from pyro_split.potential.centering import FollowedPotential
from pyro_split.potential.position import Position, hold


class HeldPotential:
    """A potential in which some sites stand still: its gradient there is 0.

    Args:
        whole: the potential.
        held: names of the sites.
    """

    def __init__(self, whole: FollowedPotential, held: tuple[str, ...]):
        self.whole, self._held = whole, held

    def subset_energies_and_grad(self, z: Position, m: int) -> tuple[tuple[Tensor, Tensor], Position]:
        """As the potential's."""
        energies, grad = self.whole.subset_energies_and_grad(z, m)
        return energies, self.hold(grad)

    def subset_grad(self, z: Position, m: int) -> Position:
        """As the potential's."""
        return self.hold(self.whole.subset_grad(z, m))

    def energies_and_grad(self, z: Position) -> tuple[Tensor, Position]:
        """As the potential's."""
        energies, grad = self.whole.energies_and_grad(z)
        return energies, self.hold(grad)

    def energies(self, z: Position) -> Tensor:
        """As the potential's."""
        return self.whole.energies(z)

    def hold(self, grad: Position) -> Position:
        """A gradient, 0 in the sites that stand still."""
        return hold(grad, self._held)
