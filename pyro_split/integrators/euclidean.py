"""The kinetic energy of a constant mass matrix, in the form in which Pyro adapts it.

Momenta are p = S r of a standard normal r, with S a root of M that is computed from M⁻¹. A decision compares ½|S⁻¹p|²,
not ½pᵀM⁻¹p with the matrix as it is given: in single precision :math:`S^T M^{-1} S` differs from the identity by some
10⁻⁷ times the condition number of M⁻¹ in units of its diagonal, and momenta would be drawn from another distribution
than the one that decides. S and its inverse agree to the root of that number. Velocities are M⁻¹p all the same: an
error in them costs acceptance and nothing else, as a drift of any linear velocity preserves volume and is reversible.
"""

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
    """The kinetic energy K(p) = ½ pᵀM⁻¹p of a constant mass matrix M.

    Attributes:
        inverse_mass_matrix: M⁻¹, a dict from tuples of site names to blocks; of shape (D,) if diagonal, (D, D) if
            dense.
        mass_matrix_sqrt: a square root S of M = S Sᵀ, in the same form, which scales standard normal draws to momenta.
        mass_matrix_sqrt_inv: the inverse of S, which scales momenta back.
        held: names of sites that do not move; the matrix does not contain them, and their momenta are 0.
    """

    inverse_mass_matrix: Blocks
    mass_matrix_sqrt: Blocks
    mass_matrix_sqrt_inv: Blocks
    held: tuple[str, ...] = ()

    @classmethod
    def of_inverse(cls, inverse_mass_matrix: Blocks) -> EuclideanKinetic:
        """Kinetic energy of an inverse mass matrix, whose square roots are computed here."""
        host: Any = BlockMassMatrix()
        host.inverse_mass_matrix = inverse_mass_matrix
        return cls(*matrices_of(host))

    def variances(self, shapes: Mapping[str, tuple[int, ...]]) -> Position:
        """Diagonal of M⁻¹ by site, given the shapes of the sites that move."""
        found = {}
        for sites, block in self.inverse_mass_matrix.items():
            diagonal = block if block.ndim == 1 else block.diagonal()
            parts = diagonal.split([math.prod(shapes[name]) for name in sites])
            found.update({name: entries.reshape(shapes[name]) for name, entries in zip(sites, parts, strict=True)})
        return found

    def velocity(self, p: Position) -> Position:
        """The velocity M⁻¹p of a momentum."""
        speed = {}
        for sites, inverse in self.inverse_mass_matrix.items():
            if inverse.ndim > 1:
                speed |= unflatten(inverse @ flatten(p, sites), p, sites)
                continue
            parts = inverse.split([p[name].numel() for name in sites])  # site by site, without concatenating them
            speed |= {name: part.view_as(p[name]) * p[name] for name, part in zip(sites, parts, strict=True)}
        return self._with_held(p, speed)

    def momentum(self, v: Position) -> Position:
        """The momentum M v of a velocity."""
        found = {}
        for sites, root in self.mass_matrix_sqrt.items():
            found |= unflatten(_times(root, _times(root.t(), flatten(v, sites))), v, sites)
        return self._with_held(v, found)

    def unscale(self, z: Position, p: Position) -> Tensor:
        """S⁻¹p, the standard normal draw behind the momentum, shape (D,), block by block."""
        roots = self.mass_matrix_sqrt_inv
        return torch.cat([_times(root, flatten(p, sites)) for sites, root in roots.items()])

    def draw(self, z: Position) -> Position:
        """A momentum drawn from N(0, M) by torch's generator, a dict like ``z``."""
        some, p = next(iter(z.values())), {}
        for sites, root in self.mass_matrix_sqrt.items():
            unscaled = torch.randn(len(root), dtype=some.dtype, device=some.device)
            p |= unflatten(_times(root, unscaled), z, sites)
        return self._with_held(z, p)

    def energy(self, z: Position, p: Position) -> float:
        """The kinetic energy K(p); the position does not matter."""
        return self.change_of(p, zeros(p))

    def change(self, new: IntegratorState, old: IntegratorState) -> float:
        """K at ``new`` minus K at ``old``."""
        return self.change_of(new.p, old.p)

    def change_of(self, new: Position, old: Position) -> float:
        """K of the momentum ``new`` minus K of ``old``."""
        if not self._decides_by_roots:
            return kinetic_change(self.velocity, new, old)
        after, before = (self.unscale(p, p) for p in (new, old))
        return float((0.5 * (after - before) * (after + before)).sum(dtype=torch.float64))

    @property
    def _decides_by_roots(self) -> bool:
        """Whether K is ½|S⁻¹p|²: with a dense block; of a diagonal one M⁻¹ has the same precision."""
        return any(block.ndim == 2 for block in self.inverse_mass_matrix.values())

    def _with_held(self, x: Position, moving: Position) -> Position:
        return {**moving, **zeros({name: x[name] for name in self.held})}


def kinetic_of_inverse(inverse_mass_matrix: Any) -> Any:
    """The kinetic energy of an inverse mass matrix that is diagonal, dense or of low rank."""
    if has_low_rank(inverse_mass_matrix):
        return LowRankKinetic(inverse_mass_matrix)
    return EuclideanKinetic.of_inverse(inverse_mass_matrix)


def adapted_kinetic(state: AdaptState) -> Any:
    """The kinetic energy of the metric in the host's adaptation state, where one of low rank has no square roots."""
    inverse, sqrt, sqrt_inv = state.matrices
    return EuclideanKinetic(inverse, sqrt, sqrt_inv) if sqrt else LowRankKinetic(inverse)


def _times(block: Tensor, x: Tensor) -> Tensor:
    """Product of a block with a vector; a block that is a vector itself is a diagonal."""
    return block * x if block.ndim == 1 else block @ x
