"""Rows that are read from sources inside compiled functions (:mod:`split_common.sources`).

A source among the data arrays is a tree without leaves: compiled functions know it as a constant, which they compare by
identity, and hold none of its rows. Where rows are needed, ``jax.pure_callback`` reads them, all sources at once; since
a callback has no derivative, rows are read outside what is differentiated, and once for all that is made of them.

Which rows a subset has depends on its number alone. That comes from a scan over constants, of which batches of chains
have one for all, so vectorised chains share one read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from split_common.errors import SourceError
from split_common.sources.reader import Reader, reader_of
from split_common.sources.rows import Source

jax.tree_util.register_pytree_node(Source, lambda source: ((), source), lambda source, _: source)


CHAINS = "chains that share reads"  # name of the axis of vectorised chains, where rows are read from sources


class TakenRows(NamedTuple):
    """Rows of a source that have been read.

    Attributes:
        rows: the rows, along axis 0.
        first: number of the first row, where the rows are contiguous; None where they were asked for by number.
    """

    rows: jax.Array
    first: jax.Array | None

    def cut(self, start: jax.Array | None, size: int) -> jax.Array:
        """``size`` rows from row number ``start`` on; all rows where they were asked for by number."""
        if self.first is None or start is None or size == self.rows.shape[0]:
            return self.rows
        return lax.dynamic_slice_in_dim(self.rows, start - self.first, size)


def of_first_chain(x: jax.Array) -> jax.Array:
    """The draw of the first of the chains that share reads, for all of them; elsewhere ``x`` itself.

    So all chains visit the subsets in the same order. That order is still drawn independently of each chain's state, so
    each chain by itself has the same distribution as with an order of its own.
    """
    try:
        return lax.all_gather(x, CHAINS)[0]
    except NameError:  # there is no such axis
        return x


def is_source(x: Any) -> bool:
    """Whether a leaf of the arguments is a source."""
    return isinstance(x, Source)


def sources_in(data: Sequence[Any]) -> tuple[Source, ...]:
    """The sources among data arrays."""
    return tuple(x for x in data if isinstance(x, Source))


def read_window(data: tuple[Any, ...], first: jax.Array, size: int) -> tuple[Any, ...]:
    """Data in which every source, of one or more, is replaced by ``size`` of its rows from row ``first`` on."""
    sources = sources_in(data)
    return _replaced(data, _call(_Window(reader_of(sources), size), sources, first, size), first)


def read_rows(data: tuple[Any, ...], indices: jax.Array) -> tuple[Any, ...]:
    """Data in which every source is replaced by some of its rows, by number."""
    sources = sources_in(data)
    if not sources:
        return data
    return _replaced(data, _call(_Scattered(reader_of(sources)), sources, indices, indices.shape[0]), None)


def placeholder(x: Any) -> Any:
    """Zeros of a source's shape, to trace a model with; it must not be evaluated. Anything else is returned as it is.

    Results must not depend on it: the compiler then drops every operation on it.
    """
    return jnp.broadcast_to(jnp.zeros((), x.dtype), x.shape) if isinstance(x, Source) else x


def first_rows(x: Any, most: int = 2048) -> np.ndarray:
    """An array of the arguments as a NumPy array, or the first rows of a source, for messages about their values."""
    return x.read(0, min(most, x.shape[0])) if isinstance(x, Source) else np.asarray(x)


def source_error(error: Exception) -> Exception:
    """The error of a source in a callback, read from the text of the error that JAX makes of it; or ``error`` itself.

    Args:
        error: error that a compiled program raised.
    """
    _, found, text = str(error).rpartition(f"{SourceError.__name__}: ")
    return SourceError(text.strip().splitlines()[0]) if found and text.strip() else error


def _replaced(data: tuple[Any, ...], rows: Sequence[jax.Array], first: jax.Array | None) -> tuple[Any, ...]:
    found = iter(rows)
    return tuple(TakenRows(next(found), first) if isinstance(x, Source) else x for x in data)


def _call(
    read: Callable[[Any], list[np.ndarray]], sources: tuple[Source, ...], places: jax.Array, size: int
) -> list[jax.Array]:
    shapes = [jax.ShapeDtypeStruct((size, *source.shape[1:]), source.dtype) for source in sources]
    return jax.pure_callback(read, shapes, places, vmap_method="broadcast_all")


@dataclass(frozen=True)
class _Window:
    """Reads ``size`` rows from a first one on; for a batch of first rows, each distinct one once.

    Two that read the same are equal, so that compiled programs are found again.
    """

    reader: Reader
    size: int

    def __call__(self, first: Any) -> list[np.ndarray]:
        first = np.asarray(first)  # no JAX array, which would wait for the program that waits for this callback
        if not first.ndim:
            return self.reader.read(int(first), self.size)
        known = {start: self.reader.read(start, self.size) for start in map(int, np.unique(first))}
        by_place = zip(*(known[int(start)] for start in first.ravel()), strict=True)
        return [np.stack(rows).reshape(first.shape + rows[0].shape) for rows in by_place]


@dataclass(frozen=True)
class _Scattered:
    """Reads rows by number; two that read the same are equal."""

    reader: Reader

    def __call__(self, indices: Any) -> list[np.ndarray]:
        indices = np.asarray(indices)
        return [x.reshape(indices.shape + x.shape[1:]) for x in self.reader.take(indices.ravel())]
