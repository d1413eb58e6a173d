"""The kinetic energy of a constant mass matrix, as Pyro holds and adapts it: momenta, velocities, energies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from pyro.infer.mcmc.adaptation import BlockMassMatrix
from torch import Tensor

from pyro_split.host import mass_matrix_sqrt
from pyro_split.integrators.integrator import IntegratorState, Velocity
from pyro_split.potential.position import Position, flatten, zeros


class EuclideanKinetic(NamedTuple):
    """K(p) = ½ pᵀM⁻¹p.

    Attributes:
        mass_matrix: the host's mass matrix, in blocks of sites.
        held: names of sites that stand still, of which the matrix knows nothing; their momenta are 0.
    """

    mass_matrix: Any
    held: tuple[str, ...] = ()

    @classmethod
    def of_inverse(cls, inverse_mass_matrix: dict[tuple[str, ...], Tensor]) -> EuclideanKinetic:
        """Kinetic energy of an inverse mass matrix, a dict from tuples of site names to arrays, (D,) where diagonal."""
        host: Any = BlockMassMatrix()
        shapes = {sites: tuple(inverse.shape) for sites, inverse in inverse_mass_matrix.items()}
        some = next(iter(inverse_mass_matrix.values()))
        host.configure(shapes, adapt_mass_matrix=False, options={"dtype": some.dtype, "device": some.device})
        host.inverse_mass_matrix = dict(inverse_mass_matrix)
        return cls(host)

    def variances(self, shapes: Mapping[str, tuple[int, ...]]) -> Position:
        """Diagonal of M⁻¹, by site, for the shapes of the sites that move."""
        found = {}
        for sites, block in self.mass_matrix.inverse_mass_matrix.items():
            diagonal = block if block.ndim == 1 else block.diagonal()
            parts = diagonal.split([math.prod(shapes[name]) for name in sites])
            found.update({name: entries.reshape(shapes[name]) for name, entries in zip(sites, parts, strict=True)})
        return found

    def velocity(self, p: Position) -> Position:
        """M⁻¹p."""
        moving, blocks = self._moving(p), self.mass_matrix.inverse_mass_matrix
        if any(inverse.ndim > 1 for inverse in blocks.values()):
            return self._with_held(p, self.mass_matrix.kinetic_grad(moving))
        speed = {}
        for sites, inverse in blocks.items():  # as the host's, site by site: nothing is joined and taken apart again
            parts = inverse.split([moving[name].numel() for name in sites])
            speed |= {name: part.view_as(moving[name]) * moving[name] for name, part in zip(sites, parts, strict=True)}
        return self._with_held(p, speed)

    def momentum(self, v: Position) -> Position:
        """M v, the momentum of a velocity."""
        found = {}
        for sites, root in mass_matrix_sqrt(self.mass_matrix).items():
            flat = flatten(v, sites)
            moved = root * (root * flat) if root.ndim == 1 else root @ (root.T @ flat)
            parts = moved.split([v[name].numel() for name in sites])
            found.update({name: part.reshape(v[name].shape) for name, part in zip(sites, parts, strict=True)})
        return self._with_held(v, found)

    def unscale(self, z: Position, p: Position) -> Tensor:
        """The standard normal that a momentum was made from, (D,), block by block; the position does not matter."""
        return torch.cat(list(self.mass_matrix.unscale(self._moving(p)).values()))

    def draw(self, z: Position) -> Position:
        """A momentum from N(0, M), like ``z``, from torch's generator."""
        some = next(iter(z.values()))
        unscaled = {
            sites: torch.randn(size, dtype=some.dtype, device=some.device)
            for sites, size in self.mass_matrix.mass_matrix_size.items()
        }
        return self._with_held(z, self.mass_matrix.scale(unscaled, r_prototype=self._moving(z)))

    def energy(self, z: Position, p: Position) -> float:
        """K at a point of phase space; the position does not matter."""
        return kinetic_change(self.velocity, p, zeros(p))

    def change(self, new: IntegratorState, old: IntegratorState) -> float:
        """K at ``new`` minus K at ``old``."""
        return kinetic_change(self.velocity, new.p, old.p)

    def _moving(self, x: Position) -> Position:
        return {name: u for name, u in x.items() if name not in self.held} if self.held else x

    def _with_held(self, x: Position, moving: Position) -> Position:
        return {**moving, **zeros({name: x[name] for name in self.held})}


def kinetic_change(velocity: Velocity, new: Position, old: Position) -> float:
    """K(new) - K(old) in the form ½ (new - old)ᵀ M⁻¹ (new + old), without the cancellation of two large numbers."""
    speed = velocity({name: new[name] + old[name] for name in new})
    products = [0.5 * (new[name] - old[name]) * speed[name] for name in new]
    return float(sum(product.sum(dtype=torch.float64) for product in products))
