"""The kinetic energy of a constant mass matrix, as Pyro adapts it: momenta, velocities, energies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from pyro.infer.mcmc.adaptation import BlockMassMatrix
from torch import Tensor

from pyro_split.host import AdaptState, Blocks, matrices_of
from pyro_split.integrators.integrator import IntegratorState, kinetic_change
from pyro_split.integrators.low_rank import LowRankKinetic
from pyro_split.potential.position import Position, flatten, unflatten, zeros
from split_common.low_rank_metric import has_low_rank


class EuclideanKinetic(NamedTuple):
    """K(p) = ½ pᵀM⁻¹p.

    Attributes:
        inverse_mass_matrix: M⁻¹, from tuples of site names to blocks, of shape (D,) where they are diagonal.
        mass_matrix_sqrt: a square root S of M = S Sᵀ, likewise, which draws momenta.
        mass_matrix_sqrt_inv: its inverse, which unscales them.
        held: names of sites that stand still, of which the matrix knows nothing; their momenta are 0.
    """

    inverse_mass_matrix: Blocks
    mass_matrix_sqrt: Blocks
    mass_matrix_sqrt_inv: Blocks
    held: tuple[str, ...] = ()

    @classmethod
    def of_inverse(cls, inverse_mass_matrix: Blocks) -> EuclideanKinetic:
        """Kinetic energy of an inverse mass matrix, able to draw and to unscale momenta."""
        host: Any = BlockMassMatrix()
        host.inverse_mass_matrix = inverse_mass_matrix
        return cls(*matrices_of(host))

    def variances(self, shapes: Mapping[str, tuple[int, ...]]) -> Position:
        """Diagonal of M⁻¹, by site, for the shapes of the sites that move."""
        found = {}
        for sites, block in self.inverse_mass_matrix.items():
            diagonal = block if block.ndim == 1 else block.diagonal()
            parts = diagonal.split([math.prod(shapes[name]) for name in sites])
            found.update({name: entries.reshape(shapes[name]) for name, entries in zip(sites, parts, strict=True)})
        return found

    def velocity(self, p: Position) -> Position:
        """M⁻¹p."""
        speed = {}
        for sites, inverse in self.inverse_mass_matrix.items():
            if inverse.ndim > 1:
                speed |= unflatten(inverse @ flatten(p, sites), p, sites)
                continue
            parts = inverse.split([p[name].numel() for name in sites])  # nothing is joined and taken apart again
            speed |= {name: part.view_as(p[name]) * p[name] for name, part in zip(sites, parts, strict=True)}
        return self._with_held(p, speed)

    def momentum(self, v: Position) -> Position:
        """M v, the momentum of a velocity."""
        found = {}
        for sites, root in self.mass_matrix_sqrt.items():
            found |= unflatten(_times(root, _times(root.t(), flatten(v, sites))), v, sites)
        return self._with_held(v, found)

    def unscale(self, z: Position, p: Position) -> Tensor:
        """The standard normal that a momentum was made from, (D,), block by block; the position does not matter."""
        roots = self.mass_matrix_sqrt_inv
        return torch.cat([_times(root, flatten(p, sites)) for sites, root in roots.items()])

    def draw(self, z: Position) -> Position:
        """A momentum from N(0, M), like ``z``, from torch's generator."""
        some, p = next(iter(z.values())), {}
        for sites, root in self.mass_matrix_sqrt.items():
            unscaled = torch.randn(len(root), dtype=some.dtype, device=some.device)
            p |= unflatten(_times(root, unscaled), z, sites)
        return self._with_held(z, p)

    def energy(self, z: Position, p: Position) -> float:
        """K at a point of phase space; the position does not matter."""
        return kinetic_change(self.velocity, p, zeros(p))

    def change(self, new: IntegratorState, old: IntegratorState) -> float:
        """K at ``new`` minus K at ``old``."""
        return kinetic_change(self.velocity, new.p, old.p)

    def _with_held(self, x: Position, moving: Position) -> Position:
        return {**moving, **zeros({name: x[name] for name in self.held})}


def kinetic_of_inverse(inverse_mass_matrix: Any) -> Any:
    """The kinetic energy of an inverse mass matrix of any form, able to draw and to unscale momenta."""
    if has_low_rank(inverse_mass_matrix):
        return LowRankKinetic(inverse_mass_matrix)
    return EuclideanKinetic.of_inverse(inverse_mass_matrix)


def adapted_kinetic(state: AdaptState) -> Any:
    """The kinetic energy of the metric in the host's adaptation state, where only one of low rank has no roots."""
    inverse, sqrt, sqrt_inv = state.matrices
    return EuclideanKinetic(inverse, sqrt, sqrt_inv) if sqrt else LowRankKinetic(inverse)


def _times(block: Tensor, x: Tensor) -> Tensor:
    """Product of a block, diagonal where it is a vector, with a vector."""
    return block * x if block.ndim == 1 else block @ x
