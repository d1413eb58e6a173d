"""Data arguments whose rows are read when they are needed: :class:`Rows`, which a user gives, and :class:`Source`.

A kernel reads a subset at a time, so that memory does not grow with the number of rows. Nothing of the model's
mathematics changes: the rows of a subset are the same numbers, wherever they are read from.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from split_common.errors import SourceError, first_line
from split_common.rounding import MOST_ROUNDING, SAMPLED, may_round, rounding_of
from split_common.sources.stores import Store, TableColumns, describe, store_of
from split_common.sources.survey import Survey, survey
from split_common.tables import NUMBERS
from split_common.values import shown

MOST_KEPT = 64  # sources that are remembered by the object that they were made from
PROBED = 8  # rows that a transform is tried on
IN_MEMORY = ("numpy", "jax", "jaxlib", "torch", "pandas", "scipy", "builtins")  # packages of arrays in memory
Transform = Callable[[np.ndarray], np.ndarray]


class Rows:
    """Rows that are read from where they lie, some at a time, in place of an array among a model's arguments.

    An ``np.memmap`` and any object with ``shape``, ``dtype`` and slices of rows (a zarr array, a data set of HDF5) may
    be given to a kernel as it is. This class adds a transform of the rows, and their type, before the model gets them.

    Args:
        data: the path of a ``.npy`` file, an ``np.memmap``, or an object with ``shape``, ``dtype`` and slices
            ``data[start:stop]``; rows lie along axis 0.
        transform: a function of an array of some rows, shape (n, ...), that returns an array of as many. It must treat
            each row by itself, which is checked on a few rows.
        dtype: type of the numbers that the model gets; None for the type of the rows, or of the transform's result.

    Raises:
        SourceError: for a file that is not there, data that are no rows of numbers, and a transform that returns
            something else than as many rows, or mixes them. Later, for rows that are no longer what they were.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = f"{folder.name}/X.npy"
        >>> np.save(path, np.arange(12, dtype=np.uint8).reshape(6, 2))
        >>> X = Rows(path, transform=lambda x: x / 255, dtype="float32")
        >>> X.shape, X.dtype
        ((6, 2), dtype('float32'))
    """

    def __init__(self, data: Any, transform: Transform | None = None, dtype: Any = None):
        if transform is not None and not callable(transform):
            raise TypeError(f"transform must be a function of an array of rows or None, got {shown(transform)}")
        if not (isinstance(data, str | os.PathLike | TableColumns) or gives_rows(data) or _has_rows(data)):
            raise SourceError(
                "data must be the path of a .npy file, or have shape, dtype and slices of rows of numbers, got "
                f"{describe(data)}"
            )
        self._data, self._transform = data, transform
        self._lock, self._opened = threading.Lock(), {}
        source = Source(store_of(data), transform, None if dtype is None else np.dtype(dtype))
        self.shape, self.dtype = source.shape, source.dtype
        self._opened[self.dtype] = source

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<rows of {describe(self._data)}, shape {self.shape}, {self.dtype}>"

    def __getstate__(self) -> dict[str, Any]:
        """The arguments; the rows are opened anew where this is unpickled."""
        return {**vars(self), "_lock": None, "_opened": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = threading.Lock()

    def open(self, dtype_in: Callable[[np.dtype[Any]], Any] = lambda dtype: dtype) -> Source:
        """The source of these rows, the same object as long as the rows are the same.

        Args:
            dtype_in: from the type of the numbers to the type that they have in a framework.
        """
        dtype = np.dtype(dtype_in(self.dtype.newbyteorder("=")))
        with self._lock:
            known = self._opened.get(dtype)
            if known is None or not known.is_current():
                known = self._opened[dtype] = Source(store_of(self._data), self._transform, dtype)
                self.shape = known.shape
            return known


class Source:
    """Rows that are open, of fixed shape, type and content; every read checks that they have not changed.

    Two sources are equal only if they are one object, so that functions compiled for one belong to its content.

    Args:
        store: store that rows are read from.
        transform: function that is applied to rows, or None.
        dtype: type of the numbers; None for the type that they have.

    Attributes:
        shape: shape of all rows, as the model gets them.
        dtype: their type, likewise.
        where: name of the source in messages.
    """

    def __init__(self, store: Store, transform: Transform | None, dtype: np.dtype[Any] | None):
        self._store, self._transform = store, transform
        self._stamp, self._full_stamp = store.stamp(), store.full_stamp()
        self.where, self._raw = store.where, store.dtype
        if not store.shape or store.dtype.kind not in NUMBERS:
            raise SourceError(f"{self.where}: rows must be of numbers, got shape {store.shape} of {store.dtype}")
        self.shape, self.dtype, made = store.shape, dtype or store.dtype, store.dtype
        if transform is not None and store.shape[0]:
            few = self._transformed(store.read(0, min(PROBED, store.shape[0])))
            self.shape, self.dtype, made = (store.shape[0], *few.shape[1:]), dtype or few.dtype, few.dtype
            self._check_transform(few)
        self._is_rounded = may_round(made, self.dtype)

    def __repr__(self) -> str:
        return f"<source {self.where}, shape {self.shape}, {self.dtype}>"

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all rows, as the model gets them."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    def is_current(self) -> bool:
        """Whether the rows are still those of this source; raises where a file is gone."""
        return self._store.full_stamp() == self._full_stamp

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows ``start`` to ``stop - 1``, shape (stop - start, ...).

        Raises:
            SourceError: where the rows have changed, or cannot be read.
        """
        return self._checked(lambda: self._store.read(start, stop), stop - start)

    def take(self, indices: np.ndarray) -> np.ndarray:
        """Rows by number, shape (len(indices), ...), in any order and as often as named; the file is read in order.

        Raises:
            SourceError: as for :meth:`read`.
        """
        found, places = np.unique(np.asarray(indices), return_inverse=True)
        rows = self._checked(lambda: self._store.take(found), len(found))
        return rows if np.array_equal(found, indices) else rows[places.reshape(-1)]

    @cached_property
    def survey(self) -> Survey:
        """The results of one pass over all rows."""
        if isinstance(self._store, TableColumns):
            self._store.check_rounding()
        if self._is_rounded and self.shape[0]:
            self._check_rounding()
        return survey(self.read, self.shape, self.dtype)

    def _checked(self, read: Callable[[], np.ndarray], num_rows: int) -> np.ndarray:
        try:
            rows = read()
        except SourceError:
            self._check_current()
            raise
        except Exception as error:  # whatever a store raises
            self._check_current()
            raise SourceError(f"{self.where}: rows must be readable, got {first_line(error)}") from error
        self._check_current()
        if rows.dtype.newbyteorder("=") != self._raw.newbyteorder("="):  # rows put together lie in the machine's order
            raise SourceError(f"{self.where}: rows must be of {self._raw} as at first, got {rows.dtype}")
        rows = rows if self._transform is None else self._transformed(rows)
        if rows.shape != (num_rows, *self.shape[1:]):
            raise SourceError(
                f"{self.where}: {num_rows} rows must have shape {(num_rows, *self.shape[1:])}, got {rows.shape}"
            )
        narrow = np.ascontiguousarray(rows, self.dtype)
        is_narrowed = self.dtype.kind in "iu" and rows.dtype.kind in "iuf" and rows.dtype != self.dtype
        if is_narrowed and not np.array_equal(narrow, rows):
            i = np.flatnonzero(narrow.reshape(-1) != np.ravel(rows))[0]
            raise SourceError(
                f"{self.where}: numbers must fit in {self.dtype}, which the model gets, got {np.ravel(rows)[i]}; turn "
                "on 64-bit types, or make them smaller by a transform"
            )
        return narrow

    def _check_rounding(self) -> None:
        """Raise where numbers of fewer digits do not tell rows apart, as times that are counted from long ago."""
        rows = self._store.take(np.unique(np.linspace(0, self.shape[0] - 1, SAMPLED).astype(int)))
        rows = rows if self._transform is None else self._transformed(rows)
        shares = rounding_of(rows, self.dtype)
        lost = np.flatnonzero(shares > MOST_ROUNDING)
        if lost.size:
            column = rows.reshape(len(rows), -1)[:, lost[0]]
            error = shares[lost[0]] * column.std(dtype=np.float64)
            raise SourceError(
                f"{self.where}: {self.dtype} must tell the rows of {rows.dtype} apart, got numbers from {column.min()} "
                f"to {column.max()}, which it rounds by {error:.2g}; turn on 64-bit types, or take their mean "
                "off by a transform"
            )

    def _check_current(self) -> None:
        now = self._store.stamp()
        if now != self._stamp:
            raise SourceError(
                f"{self.where}: rows must stay as they are while a run reads them, got other ones (size and time "
                f"{self._stamp[-1]} before, {now[-1]} now)"
            )

    def _transformed(self, rows: np.ndarray) -> np.ndarray:
        assert self._transform is not None
        made = np.asarray(self._transform(rows))
        if made.dtype.kind not in NUMBERS or made.shape[:1] != rows.shape[:1]:
            raise SourceError(
                f"{self.where}: transform must return as many rows of numbers as it is given, got shape {made.shape} "
                f"of {made.dtype} for {len(rows)} rows"
            )
        return made

    def _check_transform(self, few: np.ndarray) -> None:
        """Raise where a transform of several rows differs from that of each row alone."""
        each = [self._transformed(self._store.read(i, i + 1)) for i in range(len(few))]
        if any(x.shape[1:] != few.shape[1:] for x in each) or not np.allclose(
            np.concatenate(each), few, 1e-4, 1e-6, equal_nan=True
        ):
            raise SourceError(f"{self.where}: transform must treat each row by itself, got one that mixes rows")


_KNOWN: OrderedDict[int, Rows] = OrderedDict()
_LOCK = threading.Lock()


def gives_rows(value: Any) -> bool:
    """Whether a value is a source as it is: a memory map, or an object with ``shape``, ``dtype`` and slices of rows.

    An array with arithmetic of its own, as xarray's that aligns labels, is not: it would mean something else to a model
    than its numbers do.

    Example:
        >>> gives_rows(np.zeros(3)), gives_rows([1, 2])
        (False, False)
    """
    if isinstance(value, Rows):
        return True
    if isinstance(value, np.memmap):
        return value.filename is not None and value.ndim > 0 and value.dtype.kind in NUMBERS
    return not hasattr(value, "__mul__") and _has_rows(value)


def _has_rows(value: Any) -> bool:
    """Whether a value has ``shape``, ``dtype`` of numbers and slices of rows, and is not in memory."""
    if isinstance(value, type) or type(value).__module__.partition(".")[0] in IN_MEMORY:
        return False
    try:
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    except Exception as error:  # it has these, and does not say them: h5py's data set of a file that is closed
        if hasattr(type(value), "__getitem__") and hasattr(type(value), "dtype"):
            raise SourceError(
                f"rows of a {type(value).__qualname__} must be readable, got {first_line(error)}"
            ) from error
        return False
    if not (isinstance(shape, tuple) and shape and dtype is not None and hasattr(value, "__getitem__")):
        return False
    try:
        return np.dtype(dtype).kind in NUMBERS
    except TypeError:
        return False


def rows_of(value: Any) -> Rows:
    """The rows of an argument that gives them; the same :class:`Rows` for the same object."""
    if isinstance(value, Rows):
        return value
    with _LOCK:
        known = _KNOWN.get(id(value))
        if known is None or known._data is not value:
            known = _KNOWN[id(value)] = Rows(value)
        _KNOWN.move_to_end(id(value))
        while len(_KNOWN) > MOST_KEPT:
            _KNOWN.popitem(last=False)
        return known


def wants_sequential(order: str, sources: list[str]) -> None:
    """Raise for an order of rows that would read a source row by row."""
    if order != "sequential" and sources:
        raise SourceError(
            f"subset_order must be 'sequential' for rows that are read from {sources[0]}, got {order!r}; write them in "
            "a drawn order once, by shuffle_rows"
        )
