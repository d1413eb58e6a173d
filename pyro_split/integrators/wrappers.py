"""Potentials that trajectories follow in place of the target's, with the same energies but other gradients."""

from __future__ import annotations

from torch import Tensor

from pyro_split.potential.centering import FollowedPotential
from pyro_split.potential.position import Position, hold


class HeldPotential:
    """A potential in which some sites do not move: their entries of its gradients are 0.

    Args:
        whole: the potential of all sites.
        held: names of the sites that do not move.
    """

    def __init__(self, whole: FollowedPotential, held: tuple[str, ...]):
        self.whole, self._held = whole, held

    def subset_energies_and_grad(self, z: Position, m: int) -> tuple[tuple[Tensor, Tensor], Position]:
        """The prior's and subset m's terms of U(z), and the gradient of U_m, 0 for the held sites."""
        energies, grad = self.whole.subset_energies_and_grad(z, m)
        return energies, self.hold(grad)

    def subset_grad(self, z: Position, m: int) -> Position:
        """The gradient of U_m, 0 for the held sites."""
        return self.hold(self.whole.subset_grad(z, m))

    def energies_and_grad(self, z: Position) -> tuple[Tensor, Position]:
        """The terms of U(z), and the gradient of their sum, 0 for the held sites."""
        energies, grad = self.whole.energies_and_grad(z)
        return energies, self.hold(grad)

    def energies(self, z: Position) -> Tensor:
        """The terms of U(z)."""
        return self.whole.energies(z)

    def hold(self, grad: Position) -> Position:
        """A gradient with 0 for the sites that do not move."""
        return hold(grad, self._held)
