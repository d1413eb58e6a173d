"""The kinetic energy of a constant mass matrix, in the form in which NumPyro adapts it.

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

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.hmc import momentum_generator
from numpyro.infer.hmc_util import HMCAdaptState, euclidean_kinetic_energy
from numpyro.util import identity

from numpyro_split.host import kinetic_grad
from numpyro_split.integrators.integrator import IntegratorState, kinetic_change
from numpyro_split.integrators.low_rank import LowRankKinetic
from numpyro_split.potential.position import Position, zeros
from split_common.low_rank_metric import has_low_rank


class EuclideanKinetic(NamedTuple):
    """The kinetic energy K(p) = ½ pᵀM⁻¹p of a constant mass matrix M.

    Attributes:
        inverse_mass_matrix: M⁻¹, an array over all sites (sorted by name) or a dict from tuples of site names to
            blocks; of shape (D,) if diagonal, (D, D) if dense.
        mass_matrix_sqrt: a square root S of M = S Sᵀ, in the same form, which scales standard normal draws to momenta.
        mass_matrix_sqrt_inv: the inverse of S, which scales momenta back.
        held: names of sites that do not move; the matrix does not contain them, and their momenta are 0.
    """

    inverse_mass_matrix: Any
    mass_matrix_sqrt: Any = None
    mass_matrix_sqrt_inv: Any = None
    held: tuple[str, ...] = ()

    @classmethod
    def adapted(cls, state: HMCAdaptState) -> EuclideanKinetic:
        """Kinetic energy with the metric held in the host's adaptation state."""
        return cls(state.inverse_mass_matrix, state.mass_matrix_sqrt, state.mass_matrix_sqrt_inv)

    @classmethod
    def of_inverse(cls, inverse_mass_matrix: Any) -> EuclideanKinetic:
        """Kinetic energy of an inverse mass matrix, whose square roots are computed here."""
        sqrt, sqrt_inv = (jax.tree.map(f, inverse_mass_matrix) for f in (_sqrt_of_inverse, _inverse_of_sqrt))
        return cls(inverse_mass_matrix, sqrt, sqrt_inv)

    def variances(self, shapes: Mapping[str, tuple[int, ...]]) -> Position:
        """Diagonal of M⁻¹ by site, given the shapes of the sites that move."""
        given, found = self.inverse_mass_matrix, {}
        for sites, block in (given if isinstance(given, dict) else {tuple(sorted(shapes)): given}).items():
            diagonal = block if block.ndim == 1 else jnp.diagonal(block)
            ends = np.cumsum([math.prod(shapes[name]) for name in sites])
            for name, entries in zip(sites, jnp.split(diagonal, ends[:-1]), strict=True):
                found[name] = entries.reshape(shapes[name])
        return found

    def velocity(self, p: Position) -> Position:
        """The velocity M⁻¹p of a momentum."""
        return self._with_held(p, kinetic_grad(self.inverse_mass_matrix, self._moving(p)))

    def momentum(self, v: Position) -> Position:
        """The momentum M v of a velocity."""
        transposed = jax.tree.map(jnp.transpose, self.mass_matrix_sqrt)
        return self._with_held(v, kinetic_grad(self.mass_matrix_sqrt, kinetic_grad(transposed, self._moving(v))))

    def unscale(self, z: Position, p: Position) -> Position:
        """S⁻¹p, the standard normal draw that the momentum was made from; the position does not matter."""
        return self._with_held(p, kinetic_grad(self.mass_matrix_sqrt_inv, self._moving(p)))

    def draw(self, z: Position, rng_key: jax.Array) -> Position:
        """A momentum drawn from N(0, M), a dict like ``z``."""
        return self._with_held(z, momentum_generator(self._moving(z), self.mass_matrix_sqrt, rng_key))

    def energy(self, z: Position, p: Position) -> jax.Array:
        """The kinetic energy K(p); the position does not matter."""
        if self._decides_by_roots:
            return self.change_of(p, zeros(p))
        return euclidean_kinetic_energy(self.inverse_mass_matrix, self._moving(p))

    def change(self, new: IntegratorState, old: IntegratorState) -> jax.Array:
        """K at ``new`` minus K at ``old``."""
        return self.change_of(new.p, old.p)

    def change_of(self, new: Position, old: Position) -> jax.Array:
        """K of the momentum ``new`` minus K of ``old``."""
        if self._decides_by_roots:
            return kinetic_change(identity, *(self.unscale(p, p) for p in (new, old)))
        return kinetic_change(self.velocity, new, old)

    @property
    def _decides_by_roots(self) -> bool:
        """Whether K is ½|S⁻¹p|²: with a dense block; of a diagonal one M⁻¹ has the same precision."""
        is_dense = any(block.ndim == 2 for block in jax.tree.leaves(self.inverse_mass_matrix))
        return is_dense and self.mass_matrix_sqrt_inv is not None

    def _moving(self, x: Position) -> Position:
        return {name: u for name, u in x.items() if name not in self.held} if self.held else x

    def _with_held(self, x: Position, moving: Position) -> Position:
        return {**moving, **zeros({name: x[name] for name in self.held})}


def kinetic_of_inverse(inverse_mass_matrix: Any) -> Any:
    """The kinetic energy of an inverse mass matrix that is diagonal, dense or of low rank."""
    if has_low_rank(inverse_mass_matrix):
        return LowRankKinetic(inverse_mass_matrix)
    return EuclideanKinetic.of_inverse(inverse_mass_matrix)


def adapted_kinetic(state: HMCAdaptState) -> Any:
    """The kinetic energy of the metric in the host's adaptation state, where one of low rank has no square roots."""
    if has_low_rank(state.inverse_mass_matrix):
        return LowRankKinetic(state.inverse_mass_matrix)
    return EuclideanKinetic.adapted(state)


def _inverse_of_sqrt(inverse: jax.Array) -> jax.Array:
    """The inverse of the square root that :func:`_sqrt_of_inverse` gives."""
    return jnp.sqrt(inverse) if inverse.ndim == 1 else jnp.linalg.cholesky(inverse).T


def _sqrt_of_inverse(inverse: jax.Array) -> jax.Array:
    """A square root S of the mass matrix M = S Sᵀ, from its inverse."""
    if inverse.ndim == 1:
        return 1 / jnp.sqrt(inverse)
    identity = jnp.identity(inverse.shape[0])
    return jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(inverse), identity, lower=True, trans="T")
