"""Stores that rows are read from: memory-mapped files, objects that give slices of rows, columns of tables.

Each has ``shape``, ``dtype``, ``where`` (its name in messages), ``read(start, stop)`` and ``take(indices)``, which
return new NumPy arrays; ``stamp()``, which is equal as long as the rows are the same, and so cheap that every read
compares it: size, time and inode of files; and ``full_stamp()``, which is compared when a run begins, and may examine
many files.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from split_common.errors import SourceError
from split_common.rounding import MOST_ROUNDING, SAMPLED, may_round, rounding_of
from split_common.tables import NUMBERS
from split_common.values import shown

ROWS_AT_A_TIME = 256  # rows of a slice that is read for single rows, from an object without chunks
LISTS = "a column must hold numbers, or lists of as many"
FEW_RUNS = 16  # runs of neighbouring rows up to which each run is read by itself


class Store(Protocol):
    """Protocol of what rows are read from."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    where: str

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows ``start`` to ``stop - 1``."""
        ...

    def take(self, indices: np.ndarray) -> np.ndarray:
        """Rows by number, ascending and each once."""
        ...

    def stamp(self) -> tuple[Any, ...]:
        """Value that is equal as long as the rows are the same, compared with every read."""
        ...

    def full_stamp(self) -> tuple[Any, ...]:
        """Value that is equal as long as the rows are the same, compared when a run begins."""
        ...


def store_of(data: Any) -> Store:
    """The store of an object that gives rows: a memory map, columns, or anything with ``shape``, ``dtype`` and slices.

    Where a file was replaced by another one, the store is that of the new file.
    """
    if isinstance(data, str | os.PathLike):
        return MemoryMap(_opened_map(os.fspath(data)))
    if isinstance(data, np.memmap) and data.filename is not None:
        return MemoryMap(data)
    return data.renewed() if isinstance(data, TableColumns) else Sliced(data)


def stamp_of_files(paths: Iterable[str]) -> tuple[Any, ...]:
    """Path, size, time and inode of each file.

    Raises:
        SourceError: for a file that is not there.
    """
    found = []
    for path in paths:
        try:
            status = os.stat(path)
        except OSError as error:
            raise SourceError(f"a file must be there as long as rows are read from it, got none at {path!r}") from error
        found.append((path, status.st_size, status.st_mtime_ns, status.st_ino))
    return tuple(found)


class MemoryMap:
    """Rows of a memory-mapped file.

    Neighbouring rows are read from the file itself, so that the system reads ahead; and a file that has become too
    short is then an error, where touching a map of it would end the process. Single rows are read through a separate
    map, without reading ahead, and so are rows that are not contiguous in the file. The given map is not read: it would
    keep the old rows where its file was replaced by another one.

    Args:
        data: the map, or a view of one. Changes to it are flushed to the file now: only the first change to a page
            after a flush sets the file's time.

    Raises:
        SourceError: for a map whose changes go to no file.
    """

    def __init__(self, data: np.memmap[Any, Any]):
        if data.mode == "c":
            raise SourceError(
                f"a memory map must be of mode 'r', 'r+' or 'w+', got 'c' of {str(data.filename)!r}, whose changes are "
                "in no file; pass np.asarray of it"
            )
        if data.mode != "r":
            data.flush()
        self.shape, self.dtype, self.where = data.shape, data.dtype, str(data.filename)
        self._strides, self._reads_file = data.strides, data.flags.c_contiguous and hasattr(os, "preadv")
        self._offset, self._end = _places_in_file(data)
        self.stamp()
        self._file = os.open(self.where, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        weakref.finalize(self, os.close, self._file)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows ``start`` to ``stop - 1``."""
        if not self._reads_file:
            self._check_length()
            return np.array(self._mapped[start:stop])
        rows = np.empty((stop - start, *self.shape[1:]), self.dtype)
        row_bytes = rows.nbytes // max(stop - start, 1)
        buffer, place = rows.reshape(-1).view(np.uint8).data, self._offset + start * row_bytes
        while len(buffer):
            count = os.preadv(self._file, [buffer], place)
            if not count:
                raise SourceError(
                    f"the file {self.where!r} must hold {self.shape[0]} rows, got one that ends at byte {place}"
                )
            buffer, place = buffer[count:], place + count
        return rows

    def take(self, indices: np.ndarray) -> np.ndarray:
        """Rows by number, ascending and each once."""
        runs = list(_runs(indices))
        if len(runs) <= FEW_RUNS:
            return np.concatenate([self.read(start, stop) for start, stop in runs])
        self._check_length()
        return self._mapped[indices]

    @cached_property
    def _mapped(self) -> np.ndarray:
        """A map of the rows, to read single rows, or rows that are not contiguous in the file."""
        mapped = mmap.mmap(self._file, self._end, access=mmap.ACCESS_READ)
        if self._reads_file and hasattr(mapped, "madvise"):
            mapped.madvise(mmap.MADV_RANDOM)
        return np.ndarray(self.shape, self.dtype, mapped, self._offset, self._strides)

    def stamp(self) -> tuple[Any, ...]:
        """Path, size, time and inode of the file."""
        return stamp_of_files([self.where])

    full_stamp = stamp

    def _check_length(self) -> None:
        size = os.fstat(self._file).st_size
        if size < self._end:
            raise SourceError(f"the file {self.where!r} must hold {self._end} bytes of rows, got {size}")


class Sliced:
    """Rows of an object that has ``shape``, ``dtype`` and slices: a zarr array, a data set of HDF5, one's own.

    For a zarr array in a folder, a change of any of its files is noticed when a run begins, and a change of its
    description or of the list of its chunks during the run; for other objects, a change of shape or type.

    Args:
        data: the object.
    """

    def __init__(self, data: Any):
        self._data, self._lock = data, threading.Lock()
        self.shape, self.dtype = tuple(int(n) for n in data.shape), np.dtype(data.dtype)
        self._files = _files_of_zarr(data)
        self.where = self._files[0] if self._files else f"a {type(data).__module__}.{type(data).__qualname__}"
        chunks = getattr(data, "chunks", None)
        self._step = int(chunks[0]) if isinstance(chunks, tuple) and chunks else ROWS_AT_A_TIME

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows ``start`` to ``stop - 1``."""
        with self._lock:  # the object may not be safe to read from two threads
            return np.array(self._data[start:stop], subok=False)

    def take(self, indices: np.ndarray) -> np.ndarray:
        """Rows by number, ascending and each once; rows near one another are read together."""
        return taken(self.read, indices, self._step, self.shape[0])

    def stamp(self) -> tuple[Any, ...]:
        """Shape and type; and size and time of a zarr array's files."""
        shape = tuple(int(n) for n in self._data.shape)
        return (shape, str(np.dtype(self._data.dtype)), *stamp_of_files(self._files))

    def full_stamp(self) -> tuple[Any, ...]:
        """The value of :meth:`stamp`, and size, time and inode of every chunk of a zarr array."""
        chunks = (f"{folder}/{name}" for folder, _, names in os.walk(self.where) for name in names)
        return (*self.stamp(), *(stamp_of_files(sorted(chunks)) if self._files else ()))


class Table(Protocol):
    """Protocol of a table whose columns are read: some rows at a time, as an object of Arrow's."""

    num_rows: int
    where: str

    def read(self, start: int, stop: int) -> Any:
        """Rows ``start`` to ``stop - 1``, a ``pyarrow.Table`` of all columns that were asked for."""
        ...

    def take(self, indices: np.ndarray) -> Any:
        """Rows by number, ascending and each once, likewise."""
        ...

    def stamp(self) -> tuple[Any, ...]:
        """Value that is equal as long as the rows are the same."""
        ...

    def renew(self) -> None:
        """Open the present rows, where they have replaced those that were opened."""
        ...


class TableColumns:
    """Columns of a table side by side, or one of them.

    Args:
        table: the table.
        columns: names of the columns, side by side; or the name of one, which is the array itself.
    """

    def __init__(self, table: Table, columns: str | Sequence[str]):
        if not table.num_rows:
            raise SourceError(f"a table must have at least one row, got none in {table.where}")
        self._table, self._columns = table, columns
        self._lengths: dict[str, list[int]] = {}
        self.where = f"{table.where}, column{'' if isinstance(columns, str) else 's'} {columns!r}"
        first = table.read(0, 1)
        few = self._array(first)
        self.shape, self.dtype = (table.num_rows, *few.shape[1:]), few.dtype
        names = [] if isinstance(columns, str) else columns
        self._may_round = [name for name in names if may_round(self._numbers(first, name).dtype, few.dtype)]

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows ``start`` to ``stop - 1``."""
        return self._array(self._table.read(start, stop))

    def take(self, indices: np.ndarray) -> np.ndarray:
        """Rows by number, ascending and each once."""
        return self._array(self._table.take(indices))

    def stamp(self) -> tuple[Any, ...]:
        """Stamp of the table."""
        return self._table.stamp()

    full_stamp = stamp

    def check_rounding(self) -> None:
        """Raise where the type that columns get side by side does not tell the rows of one of them apart.

        Evenly spaced rows of the whole table are looked at, since a few neighbours may be close together.

        Raises:
            SourceError: naming the column.
        """
        if not self._may_round:
            return
        rows = self._table.take(np.unique(np.linspace(0, self.shape[0] - 1, SAMPLED).astype(int)))
        for name in self._may_round:
            column = self._numbers(rows, name)
            if (rounding_of(column, self.dtype) > MOST_ROUNDING).any():
                raise SourceError(
                    f"{self.where}: {self.dtype} must tell the rows of {column.dtype} apart, got numbers from "
                    f"{column.min()} to {column.max()} in {name!r} beside columns of other types; write their "
                    "distances from one of them"
                )

    def renewed(self) -> TableColumns:
        """The same columns of the table as it is now."""
        self._table.renew()
        return TableColumns(self._table, self._columns)

    def _array(self, rows: Any) -> np.ndarray:
        if isinstance(self._columns, str):
            return self._numbers(rows, self._columns)
        columns = [self._numbers(rows, name) for name in self._columns]
        side_by_side = np.empty((rows.num_rows, len(columns)), np.result_type(*columns))
        for place, column in enumerate(columns):
            side_by_side[:, place] = column
        return side_by_side

    def _numbers(self, rows: Any, name: str) -> np.ndarray:
        column, lengths = _without_missing(rows.column(name).combine_chunks(), name), []
        if hasattr(column, "to_numpy_ndarray"):  # tensors of one shape
            return np.array(column.to_numpy_ndarray())
        while hasattr(column, "flatten") and hasattr(column.type, "value_type"):
            lengths.append(_length_of_lists(column, name))
            column = _without_missing(column.flatten(), name)
        known = self._lengths.setdefault(name, lengths)  # lengths in the first row, whichever rows are asked for
        if lengths != known and rows.num_rows:
            raise SourceError(f"{LISTS}, got lists of {lengths} after some of {known} in {name!r}")
        numbers = np.array(column.to_numpy(zero_copy_only=False))
        if numbers.dtype.kind not in NUMBERS:
            raise SourceError(f"{LISTS}, got {column.type} in {name!r}")
        return numbers.reshape(rows.num_rows, *known)


def _without_missing(column: Any, name: str) -> Any:
    """A column, or the values of its lists, unchanged; an error where an entry is missing."""
    if column.null_count:
        raise SourceError(f"a column must have a number in each row, got {column.null_count} missing in {name!r}")
    return column


def _length_of_lists(column: Any, name: str) -> int:
    """Length that all lists of a column have; 0 where there are none."""
    from pyarrow import compute

    found = np.unique(np.asarray(compute.call_function("list_value_length", [column])))
    if len(found) > 1:
        raise SourceError(f"{LISTS}, got lists of {found[0]} and of {found[-1]} in {name!r}")
    return int(found[0]) if len(found) else 0


def taken(read: Callable[[int, int], np.ndarray], indices: np.ndarray, step: int, num_rows: int) -> np.ndarray:
    """Rows by number, ascending, from a store that is read in pieces of ``step`` rows."""
    found = []
    for piece in np.unique(indices // step):
        start, stop = int(piece) * step, min((int(piece) + 1) * step, num_rows)
        found.append(read(start, stop)[indices[(indices >= start) & (indices < stop)] - start])
    return np.concatenate(found)


def _runs(indices: np.ndarray) -> Iterator[tuple[int, int]]:
    """First and last, exclusive, of each run of neighbouring numbers."""
    breaks = np.flatnonzero(np.diff(indices) != 1) + 1
    for run in np.split(indices, breaks):
        yield int(run[0]), int(run[-1]) + 1


def _opened_map(path: str) -> np.memmap[Any, Any]:
    stamp_of_files([path])
    try:
        return np.load(path, mmap_mode="r")
    except ValueError as error:
        raise SourceError(f"a path must be that of a .npy file with one array of numbers, got {path!r}") from error


def _root(data: np.ndarray) -> np.ndarray:
    """The array that maps the file, of which another is a view."""
    while isinstance(data.base, np.ndarray):
        data = data.base
    return data


def _places_in_file(data: np.memmap[Any, Any]) -> tuple[int, int]:
    """Byte of the file at which the first row begins, and number of bytes that the file must have."""
    root: Any = _root(data)
    return int(root.offset) + data.ctypes.data - root.ctypes.data, int(root.offset) + root.nbytes


def _files_of_zarr(data: Any) -> list[str]:
    """Files that describe a zarr array, where it lies in a folder."""
    root, inside = getattr(getattr(data, "store", None), "root", None), getattr(data, "path", None)
    if root is None or not isinstance(inside, str):
        return []
    folder = os.path.join(os.fspath(root), inside) if inside else os.fspath(root)
    names = [os.path.join(folder, name) for name in ("zarr.json", ".zarray", "c")]
    return [folder.rstrip("/"), *(name for name in names if os.path.exists(name))] if os.path.isdir(folder) else []


def describe(data: Any) -> str:
    """Name of an object of rows in messages."""
    return repr(os.fspath(data)) if isinstance(data, str | os.PathLike) else shown(data)
