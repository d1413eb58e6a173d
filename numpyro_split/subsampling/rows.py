"""How a few rows are drawn from many, in time that does not grow with how many there are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax, random

from split_common.minibatches import draws_by_permutation, draws_with_replacement


def draw_rows(rng_key: jax.Array, num_rows: int, size: int) -> jax.Array:
    """``size`` distinct row numbers below ``num_rows``, uniformly, in an order that says nothing; the work is O(size).

    Rows are drawn with replacement and what repeats is drawn again until nothing does. Each round treats all row
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


def _repeats(rows: jax.Array) -> jax.Array:
    """Which entries are equal to another one that stands for both."""
    order = jnp.argsort(rows)
    in_order = rows[order]
    return jnp.zeros(rows.shape, bool).at[order[1:]].set(in_order[1:] == in_order[:-1])
