"""Arrays with a value for every draw and row, computed some draws and rows at a time, in memory or in a store.

A package evaluates a model at a batch of draws of one chain and at a block of rows, and yields the result as a
:class:`Piece`. Here pieces are put into their places in arrays of ArviZ's layout; in a store a piece fills whole
chunks. All blocks have the same number of rows, so that a package compiles one program: the last block begins early,
and rows that an earlier block has do not count in it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from split_common.errors import StoreError
from split_common.runs.reading import (
    DONE,
    LOG_LIKELIHOOD,
    counted,
    dataset_in,
    draws_of_run,
    open_store,
    same_draws,
)
from split_common.runs.store import ALL_WRITTEN, decoded, encoded, write_coordinate
from split_common.runs.store_path import checked_path, explained, locked, zarr_module
from split_common.values import shown

DRAWS_PER_BATCH = 100  # default number of draws that are evaluated together


class Batch(NamedTuple):
    """Some draws of one chain.

    Attributes:
        chain: place of the chain, from 0.
        start: the first draw.
        stop: the draw after the last one.
        before: number of draws, of this chain and others, that come before.
    """

    chain: int
    start: int
    stop: int
    before: int


class Rows(NamedTuple):
    """Rows that are evaluated together.

    Attributes:
        start: the first row.
        stop: the row after the last one.
        first: the first row that counts; those before it belong to another block.
    """

    start: int
    stop: int
    first: int

    @property
    def size(self) -> int:
        """Number of rows that are evaluated."""
        return self.stop - self.start


class Piece(NamedTuple):
    """Results for a batch of draws at a block of rows.

    Attributes:
        batch: the draws.
        rows: the rows; None for values that have none.
        values: results by site: arrays with the draws first, or tuples of such arrays.
    """

    batch: Batch
    rows: Rows | None
    values: Mapping[str, Any]


class Grid(NamedTuple):
    """How draws and rows are divided.

    Attributes:
        num_rows: N.
        rows_per_block: rows that are evaluated together.
        draws_per_batch: draws that are evaluated together.
    """

    num_rows: int
    rows_per_block: int
    draws_per_batch: int

    @classmethod
    def of(cls, num_rows: int, rows_per_block: int, draws_per_batch: int, whole: bool) -> Grid:
        """The grid with these numbers of rows and draws at a time.

        Args:
            num_rows: N.
            rows_per_block: rows at a time.
            draws_per_batch: draws at a time.
            whole: whether all rows must be evaluated together; then fewer draws are evaluated at a time, for about the
                same number of values.

        Example:
            >>> Grid.of(1000, 100, 50, whole=False), Grid.of(1000, 100, 50, whole=True)[1:]
            (Grid(num_rows=1000, rows_per_block=100, draws_per_batch=50), (1000, 5))
        """
        if whole and num_rows > rows_per_block:
            return cls(num_rows, num_rows, max(1, draws_per_batch * rows_per_block // num_rows))
        return cls(num_rows, min(rows_per_block, num_rows), draws_per_batch)

    @property
    def blocks(self) -> list[Rows]:
        """The blocks of rows.

        Example:
            >>> [tuple(rows) for rows in Grid(25, 10, 1).blocks]
            [(0, 10, 0), (10, 20, 10), (15, 25, 20)]
        """
        size = self.rows_per_block
        starts = [(min(first, self.num_rows - size), first) for first in range(0, self.num_rows, size)]
        return [Rows(start, start + size, first) for start, first in starts]


class Posterior:
    """Draws by variable, read when they are asked for.

    Args:
        variables: arrays by name, with chains and draws first, which can be sliced like NumPy's.
        coordinates: labels of the chains and of the draws, by "chain" and "draw"; None to count them.
    """

    def __init__(self, variables: Mapping[str, Any], coordinates: Mapping[str, Any] | None = None):
        self._variables = dict(variables)
        shapes = {tuple(x.shape[:2]) for x in self._variables.values()}
        if len(shapes) != 1 or 0 in next(iter(shapes)):
            raise ValueError(f"draws must hold variables of at least one draw, got {sorted(self._variables)} {shapes}")
        [(self.num_chains, self.num_draws)] = shapes
        counted = {"chain": np.arange(self.num_chains), "draw": np.arange(self.num_draws)}
        self.coordinates = {**counted, **(coordinates or {})}

    @classmethod
    def of(cls, draws: Any) -> Posterior:
        """The draws of a posterior in ArviZ's format.

        Args:
            draws: ``arviz.InferenceData``, ``xarray.DataTree`` or ``xarray.Dataset``.

        Raises:
            TypeError: for anything else.
            ValueError: for a posterior without draws, or without dimensions "chain" and "draw".
        """
        import xarray

        formats = "InferenceData, DataTree or Dataset; of a store, open_store(path)"
        rule = f"draws must be a posterior in ArviZ's format ({formats})"
        found = draws
        if not isinstance(draws, xarray.Dataset):
            try:
                found = draws["posterior"]
            except (TypeError, KeyError, AttributeError) as error:
                raise TypeError(f"{rule}, got {type(draws).__name__} without a group 'posterior'") from error
            found = found.to_dataset() if hasattr(found, "to_dataset") else found
            if not isinstance(found, xarray.Dataset):
                raise TypeError(f"{rule}, got {type(draws).__name__} of {type(found).__name__}")
        variables = {decoded(str(name)): x for name, x in found.data_vars.items() if {"chain", "draw"} <= set(x.dims)}
        if not variables:
            raise ValueError(f"draws must hold variables of chains and draws, got {shown(list(found.data_vars))}")
        coordinates = {name: found[name].values for name in ("chain", "draw")}
        return cls({name: x.transpose("chain", "draw", ...) for name, x in variables.items()}, coordinates)

    @property
    def names(self) -> list[str]:
        """Names of the variables."""
        return list(self._variables)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one draw of a variable."""
        return tuple(self._variables[name].shape[2:])

    def batches(self, size: int) -> Iterator[Batch]:
        """All draws, ``size`` at a time."""
        for chain in range(self.num_chains):
            for start in range(0, self.num_draws, size):
                yield Batch(chain, start, min(start + size, self.num_draws), chain * self.num_draws + start)

    def read(self, names: Iterable[str], batch: Batch) -> dict[str, np.ndarray]:
        """Draws of some variables, the draws first."""
        return {name: np.asarray(self._variables[name][batch.chain, batch.start : batch.stop]) for name in names}

    def first(self) -> dict[str, np.ndarray]:
        """The first draw of every variable."""
        return {name: np.asarray(x[0, 0]) for name, x in self._variables.items()}

    def check(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raise unless there are draws of every latent site, in its shape.

        Args:
            shapes: shapes of the sites.

        Raises:
            ValueError: naming the sites.
        """
        if missing := sorted(set(shapes) - set(self._variables)):
            raise ValueError(f"the model needs draws of every latent site, got none of {missing}")
        for name, shape in shapes.items():
            if self.shape(name) != tuple(shape):
                raise ValueError(
                    f"draws must have the shape that the model gives to its sites, {tuple(shape)} at site {name!r}, "
                    f"got {self.shape(name)}"
                )


Create = Callable[[str, tuple[int, ...], tuple[int, ...], list[str], np.dtype[Any]], Any]


class _Collector:
    """Collects pieces in arrays of all draws and rows, which are made at the first piece.

    Args:
        posterior: the draws.
        grid: how draws and rows are divided.
        row_axes: for each variable the axis (negative) of its rows, or None.
        create: from a name, a shape, the shape of a chunk, names of the dimensions and a type to an array.
    """

    def __init__(self, posterior: Posterior, grid: Grid, row_axes: Mapping[str, int | None], create: Create):
        self._posterior, self._grid, self._row_axes, self._create = posterior, grid, row_axes, create
        self.arrays: dict[str, Any] = {}
        self.dims: dict[str, list[str]] = {}

    def put(self, piece: Piece) -> None:
        """Put a piece into its place; values without rows are put whole."""
        batch, rows = piece.batch, piece.rows
        for name, values in piece.values.items():
            axis = self._row_axes.get(name)
            array = self.arrays[name] if name in self.arrays else self._made(name, values, axis)
            place: list[Any] = [batch.chain, slice(batch.start, batch.stop), *[slice(None)] * (values.ndim - 1)]
            taken: list[Any] = [slice(None)] * values.ndim
            if axis is not None and rows is not None:
                place[axis], taken[axis] = slice(rows.first, rows.stop), slice(rows.first - rows.start, None)
            array[tuple(place)] = values[tuple(taken)]

    def _made(self, name: str, values: np.ndarray, axis: int | None) -> Any:
        shape, chunks = list(values.shape[1:]), list(values.shape[1:])
        if axis is not None:
            shape[axis], chunks[axis] = self._grid.num_rows, self._grid.rows_per_block
        draws = self._posterior.num_chains, self._posterior.num_draws
        dims = self.dims[name] = ["chain", "draw", *(f"{name}_dim_{k}" for k in range(len(shape)))]
        chunk = (1, min(self._grid.draws_per_batch, draws[1]), *(max(n, 1) for n in chunks))
        self.arrays[name] = self._create(name, (*draws, *shape), chunk, dims, values.dtype)
        return self.arrays[name]


def collected(
    pieces: Iterable[Piece],
    posterior: Posterior,
    grid: Grid,
    row_axes: Mapping[str, int | None],
    group: str,
    into: str | os.PathLike[str] | None,
) -> Any:
    """Arrays of all pieces, as a dataset in ArviZ's layout.

    Args:
        pieces: the pieces of all draws and rows.
        posterior: the draws.
        grid: how draws and rows are divided.
        row_axes: for each variable the axis (negative) of its rows, or None.
        group: name of the group in a store.
        into: path of a store; None for memory.

    Returns:
        ``xarray.Dataset``; from a store, its numbers are read when they are used.

    Raises:
        StoreError: for a store that has such a group already, or that another process writes to; for log-likelihoods
            of some draws only, in the store of a run.
    """
    if into is None:
        return in_memory(pieces, posterior, grid, row_axes)
    path = checked_path(into)
    if group == LOG_LIKELIHOOD:
        _check_all_draws(path, posterior)
    with _new_group(path, group) as made:
        for name, labels in posterior.coordinates.items():
            made.create_array(name, data=labels, dimension_names=[name])

        def create(name: str, shape: Any, chunks: Any, dims: list[str], dtype: np.dtype[Any]) -> Any:
            for dim, n in zip(dims[2:], shape[2:], strict=True):
                write_coordinate(made, encoded(dim), n)
            missing = np.nan if dtype.kind == "f" else dtype.type(0)
            return made.create_array(
                encoded(name),
                shape=shape,
                chunks=chunks,
                dtype=dtype,
                dimension_names=dims,
                fill_value=missing,
                config={"write_empty_chunks": True},  # so that a file which is not there is one that was lost
            )

        collector = _Collector(posterior, grid, row_axes, create)
        for piece in pieces:
            collector.put(piece)
    return dataset_in(path, group)


def check_free(into: str | os.PathLike[str] | None, group: str) -> None:
    """Raise where a store has a group already, before work starts.

    Log-likelihoods that are not those of their run's present draws may be written again.

    Args:
        into: path of a store; None for memory.
        group: name of the group.

    Raises:
        TypeError: for something that is no path.
        StoreError: naming the group.
    """
    if into is None:
        return
    if not isinstance(into, str | os.PathLike) or not str(into):
        raise TypeError(f"into must be None or a path, got {shown(into)}")
    path = checked_path(into)
    if os.path.isfile(path):
        raise StoreError(f"into must be the path of a store, or of nothing, got {path!r}, which is a file")
    if os.path.isdir(path) and os.listdir(path) and not os.path.exists(os.path.join(path, "zarr.json")):
        raise StoreError(f"into must be the path of a store, or of nothing, got {path!r}, which is neither")
    try:
        held = zarr_module().open_group(path, mode="r")
    except FileNotFoundError:
        return
    if group in held and held[group].attrs.get(DONE) and not (group == LOG_LIKELIHOOD and _is_outdated(path)):
        raise StoreError(f"into must hold no group {group!r} yet, got {path!r}, which has one; take another path")


def _is_outdated(path: str) -> bool:
    """Whether the log-likelihoods in a run's store are not those of its draws."""
    of_run = draws_of_run(path)
    return of_run is not None and not same_draws(dataset_in(path, LOG_LIKELIHOOD), of_run)


def _check_all_draws(path: str, posterior: Posterior) -> None:
    """Raise where log-likelihoods of some draws only, or of another run's, would be written to the store of a run.

    Raises:
        StoreError: naming both.
    """
    import xarray

    try:
        of_run = draws_of_run(path)
    except FileNotFoundError:
        return
    given = xarray.Dataset(coords=posterior.coordinates)
    if of_run is not None and not same_draws(given, of_run):
        raise StoreError(
            f"draws must be those of the run, {counted(of_run)}, for log-likelihoods in its store {path!r}, got "
            f"{counted(given)}; give draws=open_store(path), or another path"
        )
    if of_run is not None and not _are_equal_at_ends(posterior, Posterior.of(open_store(path))):
        raise StoreError(
            f"draws must be those of the run for log-likelihoods in its store {path!r}, got the draws of another run; "
            "give another path"
        )


def _are_equal_at_ends(one: Posterior, other: Posterior) -> bool:
    """Whether two posteriors with the same chains and draws have the same first and last draw of what both hold."""
    chain, draw = one.num_chains - 1, one.num_draws - 1
    names = [name for name in one.names if name in other.names]
    for batch in (Batch(0, 0, 1, 0), Batch(chain, draw, draw + 1, (chain + 1) * one.num_draws - 1)):
        found, known = one.read(names, batch), other.read(names, batch)
        if not all(np.array_equal(found[name], known[name], equal_nan=True) for name in names):
            return False
    return True


@contextmanager
def _new_group(path: str, group: str) -> Iterator[Any]:
    """A new group to write to; it replaces one that was not completed, or that may be written again."""
    with locked(path), explained(path, f"group {group!r}"):
        check_free(path, group)
        whole = zarr_module().open_group(path, mode="a", zarr_format=3)
        made = whole.create_group(group, overwrite=True, attributes={DONE: False})
        yield made
        made.attrs.update({DONE: True, ALL_WRITTEN: True})


def in_memory(pieces: Iterable[Piece], posterior: Posterior, grid: Grid, row_axes: Mapping[str, int | None]) -> Any:
    """Arrays of all pieces, as :func:`collected` returns them, in memory."""
    import xarray

    collector = _Collector(posterior, grid, row_axes, lambda name, shape, chunks, dims, dtype: np.empty(shape, dtype))
    for piece in pieces:
        collector.put(piece)
    variables = {name: (collector.dims[name], x) for name, x in collector.arrays.items()}
    lengths = {dim: n for dims, x in variables.values() for dim, n in zip(dims[2:], x.shape[2:], strict=True)}
    counted = {dim: np.arange(n) for dim, n in lengths.items()}
    return xarray.Dataset(variables, coords={**posterior.coordinates, **counted})


def num_subsets_for(num_rows: int, rows_per_block: int) -> int:
    """Number of parts into which rows are divided so that none has more than ``rows_per_block``.

    Example:
        >>> num_subsets_for(25, 10), num_subsets_for(5, 10)
        (3, 1)
    """
    return math.ceil(num_rows / rows_per_block)
