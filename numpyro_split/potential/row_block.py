"""Some rows of the data, such as those of a subset."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from numpyro_split.potential.sources import TakenRows, is_source, read_rows, read_window
from split_common.subsets import SubsetLayout


class RowBlock(NamedTuple):
    """Some rows of the data, of a number fixed at compile time.

    Attributes:
        indices: row numbers, shape (B,).
        start: first row where the rows are contiguous, else None.
        valid: which rows count, shape (B,); None for all. A short subset borrows a neighbour's row to fill
            its block, and that row is masked.
    """

    indices: jax.Array
    start: jax.Array | None = None
    valid: jax.Array | None = None

    def take(self, x: Any, axis: int) -> jax.Array:
        """These rows of ``x``, which are read where it is a source."""
        if is_source(x):
            [x] = read_rows((x,), self.indices)
        if isinstance(x, TakenRows):
            return x.cut(self.start, self.indices.shape[0])
        if self.start is not None and self.indices.shape[0] == x.shape[axis]:
            return x  # all of them: XLA would copy a slice that starts where it cannot see
        if self.start is not None:
            return lax.dynamic_slice_in_dim(x, self.start, self.indices.shape[0], axis)
        return jnp.take(x, self.indices, axis=axis)

    def mask(self, log_prob: jax.Array, axis: int) -> jax.Array:
        """Zero the borrowed row's ``log_prob``; ``axis`` (negative) is that of the rows."""
        if self.valid is None:
            return log_prob
        return jnp.where(self.valid.reshape((-1,) + (1,) * (-axis - 1)), log_prob, 0.0)


def read_subset(data: Any, layout: SubsetLayout, m: jax.Array, num_blocks: int) -> Any:
    """Data with the rows of subset ``m`` in place of every source: those of all its blocks."""
    size = min(math.ceil(layout.sizes[0] / num_blocks) * num_blocks, layout.num_rows)
    return read_window(data, jnp.minimum(jnp.asarray(layout.starts)[m], layout.num_rows - size), size)


def subset_block(layout: SubsetLayout, m: jax.Array, b: jax.Array | int = 0, num_blocks: int = 1) -> RowBlock:
    """Block ``b`` of subset ``m``, which may be traced; the subset is ``num_blocks`` of them."""
    size = math.ceil(layout.sizes[0] / num_blocks)
    subset_start = jnp.asarray(layout.starts)[m]
    first = subset_start + b * size
    start = jnp.minimum(first, layout.num_rows - size)
    positions = start + jnp.arange(size)
    valid = None
    if not layout.even or layout.sizes[0] % num_blocks:
        valid = (positions >= first) & (positions < subset_start + jnp.asarray(layout.sizes)[m])
    if layout.permutation is None:
        return RowBlock(positions, start, valid)
    return RowBlock(jnp.asarray(layout.permutation)[positions], None, valid)
