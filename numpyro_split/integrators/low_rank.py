"""The kinetic energy of a mass matrix of low rank plus diagonal (:mod:`split_common.low_rank_metric`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jax.flatten_util import ravel_pytree

from numpyro_split.integrators.integrator import IntegratorState, kinetic_change
from numpyro_split.potential.position import Position, zeros
from split_common.low_rank_metric import LowRank


class LowRankKinetic(NamedTuple):
    """The kinetic energy K(p) = ½ pᵀM⁻¹p, in which each block of M⁻¹ is of low rank plus diagonal.

    Attributes:
        inverse_mass_matrix: M⁻¹, a dict from tuples of site names to blocks.
        held: names of sites that do not move; the matrix does not contain them, and their momenta are 0.

    Example:
        >>> kinetic = LowRankKinetic({("x",): LowRank.of_variances(jnp.array([1.0, 4.0]))})
        >>> kinetic.velocity({"x": jnp.array([1.0, 1.0])})["x"].tolist()
        [1.0, 4.0]
    """

    inverse_mass_matrix: dict[tuple[str, ...], LowRank]
    held: tuple[str, ...] = ()

    def variances(self, shapes: Mapping[str, tuple[int, ...]]) -> Position:
        """Diagonal of M⁻¹ by site, given the shapes of the sites that move."""
        found = {}
        for sites, block in self.inverse_mass_matrix.items():
            ends = np.cumsum([math.prod(shapes[name]) for name in sites])
            for name, entries in zip(sites, jnp.split(block.variances, ends[:-1]), strict=True):
                found[name] = entries.reshape(shapes[name])
        return found

    def joined(self, variances: Position) -> LowRankKinetic:
        """This kinetic energy with a diagonal block for each of more sites."""
        more = {(name,): LowRank.of_variances(jnp.ravel(u)) for name, u in variances.items()}
        return self._replace(inverse_mass_matrix={**self.inverse_mass_matrix, **more})

    def velocity(self, p: Position) -> Position:
        """The velocity M⁻¹p of a momentum."""
        return self._by_block(LowRank.velocity, p)

    def momentum(self, v: Position) -> Position:
        """The momentum M v of a velocity."""
        return self._by_block(LowRank.momentum, v)

    def unscale(self, z: Position, p: Position) -> Position:
        """The standard normal draw that the momentum was made from; the position does not matter."""
        return self._by_block(LowRank.unscale, p)

    def draw(self, z: Position, rng_key: jax.Array) -> Position:
        """A momentum drawn from N(0, M), a dict like ``z``."""
        keys = iter(random.split(rng_key, len(self.inverse_mass_matrix)))
        return self._by_block(lambda block, u: block.scale(random.normal(next(keys), u.shape, u.dtype)), z)

    def energy(self, z: Position, p: Position) -> jax.Array:
        """The kinetic energy K(p); the position does not matter."""
        return self.change_of(p, zeros(p))

    def change(self, new: IntegratorState, old: IntegratorState) -> jax.Array:
        """K at ``new`` minus K at ``old``."""
        return self.change_of(new.p, old.p)

    def change_of(self, new: Position, old: Position) -> jax.Array:
        """K of the momentum ``new`` minus K of ``old``."""
        return kinetic_change(self.velocity, new, old)

    def _by_block(self, function: Callable[[LowRank, jax.Array], jax.Array], x: Position) -> Position:
        found = {}
        for sites, block in self.inverse_mass_matrix.items():
            flat, unravel = ravel_pytree([x[name] for name in sites])
            found.update(zip(sites, unravel(function(block, flat)), strict=True))
        return {**found, **zeros({name: x[name] for name in self.held})}
