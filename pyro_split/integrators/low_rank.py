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
    """K(p) = ½ pᵀM⁻¹p, each block of M⁻¹ of low rank plus diagonal.

    Attributes:
        inverse_mass_matrix: M⁻¹, from tuples of site names to blocks.
        held: names of sites that stand still, of which the matrix knows nothing; their momenta are 0.

    Example:
        >>> kinetic = LowRankKinetic({("x",): LowRank.of_variances(torch.tensor([1.0, 4.0]))})
        >>> kinetic.velocity({"x": torch.tensor([1.0, 1.0])})["x"].tolist()
        [1.0, 4.0]
    """

    inverse_mass_matrix: dict[tuple[str, ...], LowRank]
    held: tuple[str, ...] = ()

    def variances(self, shapes: Mapping[str, tuple[int, ...]]) -> Position:
        """Diagonal of M⁻¹, by site, for the shapes of the sites that move."""
        found = {}
        for sites, block in self.inverse_mass_matrix.items():
            parts = block.variances.split([math.prod(shapes[name]) for name in sites])
            found.update({name: entries.reshape(shapes[name]) for name, entries in zip(sites, parts, strict=True)})
        return found

    def joined(self, variances: Position) -> LowRankKinetic:
        """With diagonal blocks for more sites."""
        more = {(name,): LowRank.of_variances(u.reshape(-1)) for name, u in variances.items()}
        return self._replace(inverse_mass_matrix={**self.inverse_mass_matrix, **more})

    def velocity(self, p: Position) -> Position:
        """M⁻¹p."""
        return self._by_block(LowRank.velocity, p)

    def momentum(self, v: Position) -> Position:
        """M v, the momentum of a velocity."""
        return self._by_block(LowRank.momentum, v)

    def unscale(self, z: Position, p: Position) -> Tensor:
        """The standard normal that a momentum was made from, (D,), block by block; the position does not matter."""
        return torch.cat([block.unscale(flatten(p, sites)) for sites, block in self.inverse_mass_matrix.items()])

    def draw(self, z: Position) -> Position:
        """A momentum from N(0, M), like ``z``, from torch's generator."""
        return self._by_block(lambda block, u: block.scale(torch.randn_like(u)), z)

    def energy(self, z: Position, p: Position) -> float:
        """K at a point of phase space; the position does not matter."""
        return kinetic_change(self.velocity, p, zeros(p))

    def change(self, new: IntegratorState, old: IntegratorState) -> float:
        """K at ``new`` minus K at ``old``."""
        return kinetic_change(self.velocity, new.p, old.p)

    def _by_block(self, function: Callable[[LowRank, Tensor], Tensor], x: Position) -> Position:
        found = {}
        for sites, block in self.inverse_mass_matrix.items():
            found |= unflatten(function(block, flatten(x, sites)), x, sites)
        return {**found, **zeros({name: x[name] for name in self.held})}
