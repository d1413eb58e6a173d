"""The rows that one evaluation sees, all rows or those of one shard; rows that lie in a source are read here.

The rows of a subset are read from a source once for all its blocks and their gradient, outside the function that is
differentiated (:mod:`numpyro_split.potential.sources`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from numpyro_split.potential.compensated import Compensated, compensated_add, compensated_total
from numpyro_split.potential.densities import Data, Density
from numpyro_split.potential.derivatives import value_and_grad
from numpyro_split.potential.position import Position, zeros
from numpyro_split.potential.row_block import read_block, read_subset
from numpyro_split.potential.sources import read_rows


class LocalRows(NamedTuple):
    """All rows, or inside a sum over shards (:mod:`numpyro_split.potential.shards`) those of one.

    Attributes:
        density: the density that evaluates these rows.
        data: its arrays, with sources, or rows that were read from sources, in place of some.
        filled: number of rows that count, the first ones; None for all.
        number: number of the shard.
    """

    density: Density
    data: Data
    filled: jax.Array | None = None
    number: jax.Array | int = 0

    @property
    def num_shards(self) -> int:
        """P; 1 where rows are not in shards."""
        return 1 if self.density.shards is None else self.density.shards.num

    @property
    def num_rows(self) -> jax.Array | int:
        """Number of rows here that count."""
        return self.density.layout.num_rows if self.filled is None else self.filled

    @property
    def length(self) -> int:
        """Rows of the arrays, with those that fill up a shard."""
        return self.density.layout.num_rows

    def own_key(self, rng_key: jax.Array) -> jax.Array:
        """A random key for these rows: ``rng_key`` itself, or a different key for each shard."""
        return rng_key if self.density.shards is None else random.fold_in(rng_key, self.number)

    def of_subset(self, m: jax.Array) -> LocalRows:
        """The same, with the rows of subset m read where they lie in a source."""
        return self._replace(data=read_subset(self.data, self.density.layout, m, self.density.num_blocks))

    def of_block(self, m: jax.Array, b: jax.Array) -> LocalRows:
        """The same, with the rows of block b of subset m read where they lie in a source."""
        return self._replace(data=read_block(self.data, self.density.layout, m, b, self.density.num_blocks))

    def of_numbers(self, indices: jax.Array) -> LocalRows:
        """The same, with the rows of these numbers read where they lie in a source."""
        return self._replace(data=read_rows(self.data, indices))

    def block(self, z: Position, m: jax.Array, b: jax.Array | int) -> list[jax.Array]:
        """Terms of the log-likelihood of block b of these rows of subset m."""
        return self.density.block(z, self.data, m, b, self.filled)

    def drawn(self, z: Position, indices: jax.Array) -> jax.Array:
        """Log-likelihoods of single rows, by their numbers among these."""
        return self.density.pointwise(z, self.data, indices)

    def pointwise(self, z: Position, indices: jax.Array) -> jax.Array:
        """Log-likelihoods of single rows, by their numbers among all; 0 for those that are elsewhere."""
        if self.density.shards is None:
            return self.drawn(z, indices)
        local, is_here = self.here(indices)
        return jnp.where(is_here, self.drawn(z, jnp.where(is_here, local, 0)), 0.0)

    def here(self, indices: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Numbers of rows in this shard, from their numbers among all rows; and whether they are in this shard."""
        assert self.density.shards is not None
        starts = jnp.cumsum(jnp.asarray((0, *self.density.shards.sizes)))
        local = indices - starts[self.number]
        return local, (local >= 0) & (local < self.num_rows)

    def log_likelihood(self, z: Position, m: jax.Array) -> jax.Array:
        """Log-likelihood of these rows of subset m, a scalar, evaluated (and differentiated) block by block."""
        rows = self.of_subset(m)
        block = jax.checkpoint(lambda b: total_of(rows.block(z, m, b)))
        return jnp.sum(lax.map(block, jnp.arange(self.density.num_blocks)))

    def energy(self, z: Position, m: jax.Array) -> Compensated:
        """The log-likelihood of these rows of subset m, summed without rounding error."""
        rows = self.of_subset(m)
        return self._over_blocks(lambda b: (compensated_total(rows.block(z, m, b)), {}))[0]

    def energy_and_grad(self, z: Position, m: jax.Array) -> tuple[Compensated, Position]:
        """Minus the log-likelihood of these rows of subset m, summed without rounding error, and its gradient."""
        rows, forwards = self.of_subset(m), self.density.forward_mode
        return self._over_blocks(lambda b: energy_and_grad(lambda z: rows.block(z, m, b), z, forwards))

    def energies_and_grad(self, z: Position) -> tuple[Compensated, Position]:
        """Minus the log-likelihoods of these rows by subset, shape (M,), and the gradient of their sum."""

        def add_subset(total: Position, m: jax.Array) -> tuple[Position, Compensated]:
            energy, grad = self.energy_and_grad(z, m)
            return jax.tree.map(jnp.add, total, grad), energy

        grad, by_subset = lax.scan(add_subset, zeros(z), jnp.arange(self.density.layout.num_subsets))
        return by_subset, grad

    def _over_blocks(
        self, evaluate: Callable[[jax.Array | int], tuple[Compensated, Position]]
    ) -> tuple[Compensated, Position]:
        """Sum of an energy and a gradient over the blocks of a subset."""
        if self.density.num_blocks == 1:
            return evaluate(0)

        def add_block(total: Any, b: jax.Array) -> tuple[Any, None]:
            energy, grad = evaluate(b)
            return (compensated_add(total[0], energy), jax.tree.map(jnp.add, total[1], grad)), None

        zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(evaluate, jnp.array(0)))
        return lax.scan(add_block, zero, jnp.arange(self.density.num_blocks))[0]


def energy_and_grad(
    log_density: Callable[[Position], list[jax.Array]], z: Position, forwards: bool
) -> tuple[Compensated, Position]:
    """Minus the sum of the terms of a log-density, without rounding error, and its gradient."""

    def energy(z: Position) -> tuple[jax.Array, Compensated]:
        terms = log_density(z)
        compensated = compensated_total([lax.stop_gradient(term) for term in terms])
        return -total_of(terms), jax.tree.map(jnp.negative, compensated)

    (_, compensated), gradient = value_and_grad(energy, forwards, has_aux=True)(z)
    return compensated, gradient


def total_of(terms: list[jax.Array]) -> jax.Array:
    """The sum of every entry of every array."""
    return sum((jnp.sum(term) for term in terms), jnp.zeros((), jnp.result_type(float)))
