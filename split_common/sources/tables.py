"""Columns of a table as arrays of rows: of a Parquet file, an Arrow table, a split of Hugging Face ``datasets``.

Rows are read once for all columns that were asked for, so that the arrays ``X`` and ``y`` share a read.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from split_common.errors import SourceError
from split_common.sources.rows import Rows, Transform
from split_common.sources.stores import Table, TableColumns, stamp_of_files
from split_common.values import shown


def table_rows(
    table: Any,
    columns: str | Sequence[str],
    label: str | None = None,
    *,
    transform: Transform | None = None,
    dtype: Any = "float32",
) -> Any:
    """Columns of a table, to be read subset by subset in place of arrays among a model's arguments.

    Args:
        table: path of a Parquet file, whose row groups are best no longer than a subset; a ``pyarrow.Table``, such as
            one that is mapped from an Arrow file; or a split of Hugging Face ``datasets``.
        columns: names of the columns that stand side by side in ``X``, shape (N, number of columns); or the name of one
            column, whose entries are numbers, shape (N,), or lists of one length, shape (N, length).
        label: name of the column ``y``; None for no such array.
        transform: a function of an array of some rows of ``X``, as for :class:`Rows`.
        dtype: type of the numbers of ``X``; those of ``y`` keep theirs.

    Returns:
        ``X``, or ``(X, y)`` where a label is named. Both read the file together.

    Raises:
        SourceError: for a file that is not there, a table of another kind, and columns that are not in it or hold no
            numbers.

    Example:
        >>> import numpy as np, pyarrow
        >>> table = pyarrow.table({"a": [1.0, 2.0], "b": [3.0, 4.0], "y": [0, 1]})
        >>> X, y = table_rows(table, ["a", "b"], label="y")
        >>> X.shape, y.shape, y.dtype
        ((2, 2), (2,), dtype('int64'))
    """
    wanted = [columns] if isinstance(columns, str) else list(columns)
    opened = _open(table, [*wanted, *([] if label is None else [label])])
    X = Rows(TableColumns(opened, columns if isinstance(columns, str) else wanted), transform, dtype)
    return X if label is None else (X, Rows(TableColumns(opened, label)))


def _open(table: Any, columns: list[str]) -> Table:
    module = type(table).__module__.partition(".")[0]
    if isinstance(table, str | os.PathLike):
        opened: Table = ParquetFile(os.fspath(table), columns)
    elif module == "pyarrow" and hasattr(table, "combine_chunks"):
        opened = ArrowTable(table, columns)
    elif module == "datasets" and hasattr(table, "with_format"):
        opened = DatasetSplit(table, columns)
    else:
        raise SourceError(
            f"table must be the path of a Parquet file, a pyarrow.Table or a split of datasets, got {shown(table)}"
        )
    return opened


def _check_columns(columns: Sequence[str], names: Sequence[str], where: str) -> None:
    missing = [name for name in columns if name not in names]
    if missing:
        raise SourceError(f"columns must be of {list(names)} in {where}, got {missing}")
    repeated = [name for name in columns if list(names).count(name) > 1]
    if repeated:
        raise SourceError(f"columns must be of one name each in {where}, got {repeated}, which it has more than once")


class ArrowTable:
    """A ``pyarrow.Table``, which does not change.

    Args:
        table: the table.
        columns: names of the columns that are read.
    """

    def __init__(self, table: Any, columns: list[str]):
        self.where = f"a table of {table.num_rows} rows"
        _check_columns(columns, table.column_names, self.where)
        self._table, self.num_rows = table.select(list(dict.fromkeys(columns))), table.num_rows

    def read(self, start: int, stop: int) -> Any:
        """Rows ``start`` to ``stop - 1``."""
        return self._table.slice(start, stop - start)

    def take(self, indices: np.ndarray) -> Any:
        """Rows by number."""
        return self._table.take(indices)

    def stamp(self) -> tuple[Any, ...]:
        """A constant, as the table does not change."""
        return ("a table in memory",)

    def renew(self) -> None:
        """Do nothing, as the table does not change."""


class DatasetSplit:
    """A split of Hugging Face ``datasets``.

    Args:
        split: the split.
        columns: names of the columns that are read.
    """

    def __init__(self, split: Any, columns: list[str]):
        self.where, self.num_rows = f"a split of {len(split)} rows", len(split)
        _check_columns(columns, split.column_names, self.where)
        self._split = split.select_columns(list(dict.fromkeys(columns))).with_format("arrow")
        self._files = [file["filename"] for file in split.cache_files]
        self._lock, self._stamp = threading.Lock(), self.stamp()

    def __reduce__(self) -> Any:
        return type(self), (self._split, self._split.column_names)

    def read(self, start: int, stop: int) -> Any:
        """Rows ``start`` to ``stop - 1``."""
        with self._lock:
            return self._split[start:stop]

    def take(self, indices: np.ndarray) -> Any:
        """Rows by number."""
        with self._lock:
            return self._split[indices.tolist()]

    def stamp(self) -> tuple[Any, ...]:
        """Size and time of its files."""
        return ("a split", *stamp_of_files(self._files))

    def renew(self) -> None:
        """Raise where its files were replaced: the split has those open that it was loaded from."""
        if self.stamp() != self._stamp:
            raise SourceError(
                f"table must be a split whose files are those that it was loaded from, got {self.where} with others "
                f"in their place, among {self._files}; load it again, and make its rows by table_rows"
            )


class ParquetFile:
    """A Parquet file, of which whole row groups are read, and the last ones kept: a subset may end inside one.

    Args:
        path: path of the file.
        columns: names of the columns that are read.
    """

    def __init__(self, path: str, columns: list[str]):
        self.where, self._columns = repr(path), list(dict.fromkeys(columns))
        self._path, self._lock = path, threading.Lock()
        self._open()

    def __reduce__(self) -> Any:
        return type(self), (self._path, self._columns)

    def read(self, start: int, stop: int) -> Any:
        """Rows ``start`` to ``stop - 1``."""
        with self._lock:
            groups, first = self._groups(start, stop)
            return groups.slice(start - first, stop - start)

    def take(self, indices: np.ndarray) -> Any:
        """Rows by number, ascending: one row group after the other."""
        import pyarrow

        found = []
        with self._lock:
            of_group = np.searchsorted(self._ends, indices, side="right")
            for group in np.unique(of_group):
                rows, first = self._groups(*(int(i) for i in (indices[of_group == group][0], self._ends[group])))
                found.append(rows.take(indices[of_group == group] - first))
        return pyarrow.concat_tables(found)

    def stamp(self) -> tuple[Any, ...]:
        """Size and time of the file."""
        return stamp_of_files([self._path])

    def renew(self) -> None:
        """Open the file that is there now, where it has replaced the one that was opened."""
        with self._lock:
            if self.stamp() != self._stamp:
                self._open()

    def _open(self) -> None:
        """Open the file; where that fails, the file that was open stays open."""
        from pyarrow import parquet

        stamp = self.stamp()
        try:
            file = parquet.ParquetFile(self._path)
        except (ValueError, OSError) as error:  # Arrow cannot read the file, or it is a folder
            advice = (
                "; read a folder with pyarrow.dataset.dataset(path).to_table()" if os.path.isdir(self._path) else ""
            )
            raise SourceError(f"table must be the path of a Parquet file, got {self.where}{advice}") from error
        _check_columns(self._columns, file.schema_arrow.names, self.where)
        metadata = file.metadata
        sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        self._file, self._stamp = file, stamp
        self.num_rows, self._ends = metadata.num_rows, np.cumsum(sizes)
        self._kept: dict[int, Any] = {}

    def _groups(self, start: int, stop: int) -> tuple[Any, int]:
        """The row groups that hold some rows, and the number of their first row."""
        import pyarrow

        first, last = (int(np.searchsorted(self._ends, row, side="right")) for row in (start, max(start, stop - 1)))
        wanted = range(first, min(last, len(self._ends) - 1) + 1)
        self._kept = {
            i: self._kept[i] if i in self._kept else self._file.read_row_group(i, columns=self._columns) for i in wanted
        }
        return pyarrow.concat_tables(self._kept.values()), int(self._ends[first - 1]) if first else 0
