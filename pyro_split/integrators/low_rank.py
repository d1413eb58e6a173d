"""The kinetic energy of a mass matrix of low rank plus diagonal (:mod:`split_common.low_rank_metric`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from pyro_split.integrators.integrator import IntegratorState, kinetic_change
from pyro_split.potential.position import Position, flatten, unflatten, zeros
from split_common.low_rank_metric import LowRank


class LowRankKinetic(NamedTuple):
    """The kinetic energy K(p) = ½ pᵀM⁻¹p, in which each block of M⁻¹ is of low rank plus diagonal.

    Attributes:
        inverse_mass_matrix: M⁻¹, a dict from tuples of site names to blocks.
        held: names of sites that do not move; the matrix does not contain them, and their momenta are 0.

    Example:
        >>> kinetic = LowRankKinetic({("x",): LowRank.of_variances(torch.tensor([1.0, 4.0]))})
        >>> kinetic.velocity({"x": torch.tensor([1.0, 1.0])})["x"].tolist()
        [1.0, 4.0]
    """

    inverse_mass_matrix: dict[tuple[str, ...], LowRank]
    held: tuple[str, ...] = ()

    def variances(self, shapes: Mapping[str, tuple[int, ...]]) -> Position:
        """Diagonal of M⁻¹ by site, given the shapes of the sites that move."""
        found = {}
        for sites, block in self.inverse_mass_matrix.items():
            parts = block.variances.split([math.prod(shapes[name]) for name in sites])
            found.update({name: entries.reshape(shapes[name]) for name, entries in zip(sites, parts, strict=True)})
        return found

    def joined(self, variances: Position) -> LowRankKinetic:
        """This kinetic energy with a diagonal block for each of more sites."""
        more = {(name,): LowRank.of_variances(u.reshape(-1)) for name, u in variances.items()}
        return self._replace(inverse_mass_matrix={**self.inverse_mass_matrix, **more})

    def velocity(self, p: Position) -> Position:
        """The velocity M⁻¹p of a momentum."""
        return self._by_block(LowRank.velocity, p)

    def momentum(self, v: Position) -> Position:
        """The momentum M v of a velocity."""
        return self._by_block(LowRank.momentum, v)

    def unscale(self, z: Position, p: Position) -> Tensor:
        """The standard normal draw behind the momentum, shape (D,), block by block."""
        return torch.cat([block.unscale(flatten(p, sites)) for sites, block in self.inverse_mass_matrix.items()])

    def draw(self, z: Position) -> Position:
        """A momentum drawn from N(0, M) by torch's generator, a dict like ``z``."""
        return self._by_block(lambda block, u: block.scale(torch.randn_like(u)), z)

    def energy(self, z: Position, p: Position) -> float:
        """The kinetic energy K(p); the position does not matter."""
        return self.change_of(p, zeros(p))

    def change(self, new: IntegratorState, old: IntegratorState) -> float:
        """K at ``new`` minus K at ``old``."""
        return self.change_of(new.p, old.p)

    def change_of(self, new: Position, old: Position) -> float:
        """K of the momentum ``new`` minus K of ``old``."""
        return kinetic_change(self.velocity, new, old)

    def _by_block(self, function: Callable[[LowRank, Tensor], Tensor], x: Position) -> Position:
        found = {}
        for sites, block in self.inverse_mass_matrix.items():
            found |= unflatten(function(block, flatten(x, sites)), x, sites)
        return {**found, **zeros({name: x[name] for name in self.held})}
