r"""Drawing a few rows from many, in time that does not grow with their total number.

Where the N rows lie in P shards, N_r rows in shard r, every shard draws its share of n rows, q = ⌈n/P⌉, with
replacement and with its own random key. A row drawn in shard r has weight N_r/q. Then the sum of weighted terms,

.. math:: \sum_{r=1}^P \frac{N_r}{q} \sum_{j=1}^q t_{r, i_j},

has the mean :math:`\sum_r \sum_i t_{r,i}`, the sum over all rows: a stratified sample with the shards as strata. Its
variance is :math:`\sum_r N_r^2 S_r^2 / q` with :math:`S_r^2` the variance of the terms in shard r; differences between
shards add nothing to it. Batches drawn so are independent and identically distributed, as batches of rows from all
shards are, so the sample variance between K of them is an unbiased estimate of the variance of one.

Reference:
    Cochran (1977), Sampling Techniques, chapter 5.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from numpyro_split.potential.local_rows import LocalRows
from split_common.minibatches import draws_by_permutation, draws_with_replacement, share_of_shard


def draw_rows(rng_key: jax.Array, num_rows: int, size: int) -> jax.Array:
    """``size`` distinct row numbers below ``num_rows``, drawn uniformly, in random order; the work is O(size).

    Rows are drawn with replacement, and repeats are drawn again until there are none. Each round treats all row
    numbers alike, so every ordered choice of distinct rows is as likely as any other.
    """
    if draws_by_permutation(num_rows, size):
        return random.permutation(rng_key, num_rows)[:size]

    def redraw(drawn: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        rng_key, rows, repeats = drawn
        rng_key, key_rows = random.split(rng_key)
        rows = jnp.where(repeats, random.randint(key_rows, (size,), 0, num_rows), rows)
        return rng_key, rows, _repeats(rows)

    everything = jnp.ones(size, bool)
    first = redraw((rng_key, jnp.zeros(size, jnp.int32), everything))
    return lax.while_loop(lambda drawn: jnp.any(drawn[2]), redraw, first)[1]


def draw_minibatch(rng_key: jax.Array, num_rows: int, size: int) -> jax.Array:
    """``size`` row numbers below ``num_rows``, each of the same probability; distinct unless they are a small part."""
    if draws_with_replacement(num_rows, size):
        return random.randint(rng_key, (size,), 0, num_rows)
    return draw_rows(rng_key, num_rows, size)


class Drawn(NamedTuple):
    """Rows that were drawn.

    Attributes:
        rows: their numbers among the rows that they were drawn from.
        weight: weight of each in a sum over all of these.
    """

    rows: jax.Array
    weight: jax.Array | float


def draw_from_shard(rows: LocalRows, size: int, rng_key: jax.Array) -> Drawn:
    """A shard's share of ``size`` rows, with replacement, each of its rows of the same probability.

    Args:
        rows: rows of a shard.
        size: number of rows drawn from all shards together.
        rng_key: random key, from which each shard derives its own.
    """
    share = share_of_shard(size, rows.num_shards)
    return Drawn(random.randint(rows.own_key(rng_key), (share,), 0, rows.num_rows), rows.num_rows / share)


def _repeats(rows: jax.Array) -> jax.Array:
    """Which entries repeat another entry; of each value one entry is not a repeat."""
    order = jnp.argsort(rows)
    in_order = rows[order]
    return jnp.zeros(rows.shape, bool).at[order[1:]].set(in_order[1:] == in_order[:-1])
