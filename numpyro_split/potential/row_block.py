"""Some rows of the data, such as those of a subset."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from numpyro_split.potential.sources import TakenRows, is_source, read_rows, read_window, sources_in
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
            return x  # all rows: XLA would copy a slice whose start it does not know
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
    if not sources_in(data):
        return data
    size = min(math.ceil(layout.sizes[0] / num_blocks) * num_blocks, layout.num_rows)
    return read_window(data, jnp.minimum(jnp.asarray(layout.starts)[m], layout.num_rows - size), size)


def read_block(data: Any, layout: SubsetLayout, m: jax.Array, b: jax.Array, num_blocks: int) -> Any:
    """Data with the rows of block ``b`` of subset ``m`` in place of every source."""
    if not sources_in(data):
        return data
    block = subset_block(layout, m, b, num_blocks)
    assert block.start is not None  # rows of sources are divided as they stand
    return read_window(data, block.start, block.indices.shape[0])


def subset_block(
    layout: SubsetLayout, m: jax.Array, b: jax.Array | int = 0, num_blocks: int = 1, filled: jax.Array | None = None
) -> RowBlock:
    """Block ``b`` of subset ``m``, which may be traced; the subset is ``num_blocks`` of them.

    Args:
        layout: rows of each subset.
        m: number of the subset.
        b: number of the block.
        num_blocks: blocks of a subset.
        filled: number of rows that count, the first ones; None for all. These are divided over the subsets.
    """
    size = math.ceil(layout.sizes[0] / num_blocks)
    subset_start, subset_size = jnp.asarray(layout.starts)[m], jnp.asarray(layout.sizes)[m]
    if filled is not None and layout.permutation is None:
        small, extra = filled // layout.num_subsets, filled % layout.num_subsets
        subset_start, subset_size = m * small + jnp.minimum(m, extra), small + (m < extra)
    first = subset_start + b * size
    start = jnp.minimum(first, layout.num_rows - size)
    positions = start + jnp.arange(size)
    valid = None
    if filled is not None or not layout.even or layout.sizes[0] % num_blocks:
        valid = (positions >= first) & (positions < subset_start + subset_size)
    if layout.permutation is None:
        return RowBlock(positions, start, valid)
    rows = jnp.asarray(layout.permutation)[positions]
    return RowBlock(rows, None, valid if valid is None or filled is None else valid & (rows < filled))
