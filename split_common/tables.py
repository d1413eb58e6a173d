"""Stand-ins for pandas objects in a model that is run on some of their rows.

Whatever a model asks of a Series or a DataFrame (a method, an accessor, arithmetic with numbers and with other columns)
pandas answers on all rows: so a statistic, a coding of text, a number of groups is that of all the data, as in the
model on its own. Only where a column becomes an array (``.values``, ``.to_numpy()``, a function of the framework) are
rows cut, by position; an index is never aligned with anything.

pandas is not imported here: where a user's argument is a pandas object, the user has imported it.
"""

from __future__ import annotations

import operator
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

NUMBERS = "biufc"  # kinds of NumPy types that hold numbers
ITSELF = ("itself",)  # name of the only column of a Series


class Operations(NamedTuple):
    """Operations of a framework on columns.

    Attributes:
        array: from a NumPy array to one of the framework that shares no memory with it.
        listed: from nested lists of numbers to an array of the framework.
        take: some rows of an array of the framework, by their numbers.
        stack: columns side by side, shape (n, number of columns).
        kind: the class of its arrays.
        dtype: from a NumPy type to that of the framework's array which holds such numbers.
    """

    array: Callable[[np.ndarray], Any]
    listed: Callable[[list[Any]], Any]
    take: Callable[[Any, Any], Any]
    stack: Callable[[list[Any]], Any]
    kind: type
    dtype: Callable[[np.dtype[Any]], Any]


def is_series(value: Any) -> bool:
    """Whether a value is one of pandas' columns: a Series, an Index, a Categorical or another of its arrays."""
    pandas = sys.modules.get("pandas")
    kinds = () if pandas is None else (pandas.Series, pandas.Index, pandas.api.extensions.ExtensionArray)
    return isinstance(value, kinds)


def is_frame(value: Any) -> bool:
    """Whether a value is a DataFrame."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def numbers_of(column: Any) -> np.ndarray | None:
    """A column of pandas as numbers, by position; None where it holds text, dates or objects, or has a missing entry.

    Categories that are no numbers become their codes; a missing entry among floating-point numbers becomes NaN.

    Example:
        >>> import pandas
        >>> numbers_of(pandas.Series(["b", "a", "b"], dtype="category"))
        array([1, 0, 1])
    """
    pandas = sys.modules["pandas"]
    series = column if isinstance(column, pandas.Series) else pandas.Series(column)
    if isinstance(series.dtype, pandas.CategoricalDtype) and series.cat.categories.dtype.kind not in NUMBERS:
        codes = series.cat.codes.to_numpy().astype(np.int64)
        return None if (codes < 0).any() else codes
    dtype = series.dtype.subtype if isinstance(series.dtype, pandas.SparseDtype) else series.dtype
    is_floating = getattr(dtype, "kind", "") == "f"
    numbers = series.to_numpy(dtype=float, na_value=np.nan) if is_floating else series.to_numpy()
    numbers = numbers if not is_floating or dtype.itemsize == 8 else numbers.astype(f"f{dtype.itemsize}")
    return in_own_order(numbers) if numbers.dtype.kind in NUMBERS else None


def in_own_order(x: np.ndarray) -> np.ndarray:
    """An array with its bytes in the machine's order, the only one that the frameworks take; FITS files have the other.

    Example:
        >>> in_own_order(np.array([1.0, 2.0], ">f4")).dtype == np.float32
        True
    """
    return x.astype(x.dtype.newbyteorder("="), copy=False)


class Table:
    """How to put a Series or a DataFrame together from the numbers of its rows and its columns of numbers.

    Two tables of the same object are equal. The object is not kept alive.

    Args:
        whole: a Series or a DataFrame.
        operations: operations of the framework.
        is_plain: whether a model gets the columns of a DataFrame as arrays, without pandas' methods.
    """

    def __init__(self, whole: Any, operations: Operations, is_plain: bool):
        self._whole, self._operations, self._is_plain = weakref.ref(whole), operations, is_plain
        self._columns = tuple(_columns(whole))

    @property
    def names(self) -> tuple[Any, ...]:
        """Names of the parts."""
        return ("rows", *self._columns)

    def parts(self) -> list[np.ndarray]:
        """The numbers of the rows, then every column of numbers."""
        whole: Any = self._whole()
        return [np.arange(len(whole)), *_columns(whole).values()]

    def build(self, parts: Iterable[Any]) -> RowsOf:
        """Stand-in for the object in a model, its arrays cut to some rows."""
        rows, *columns = parts
        whole = self._whole()
        if whole is None:
            raise RuntimeError(f"a table must be kept as long as its model runs, got none for {list(self._columns)}")
        cut = Cut(len(whole), rows, self._operations, self._is_plain)
        return RowsOf(whole, cut, dict(zip(self._columns, columns, strict=True)))

    def path(self, name: Any) -> str:
        """The place of a column, as messages show it."""
        return "" if name == ITSELF else f"[{name!r}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[Any, ...]:
        return id(self._whole()), self._columns, self._is_plain


class Cut(NamedTuple):
    """The rows that a model is run on.

    Attributes:
        num_rows: number of rows of all the data.
        rows: numbers of the rows that the model is run on, an array of the framework.
        operations: operations of the framework.
        is_plain: whether a column of a DataFrame is an array.
    """

    num_rows: int
    rows: Any
    operations: Operations
    is_plain: bool

    def of(self, numbers: np.ndarray) -> Any:
        """Numbers as an array of the framework: cut to these rows where they have an entry for each row."""
        array = self.operations.array(np.ascontiguousarray(numbers))
        return self.operations.take(array, self.rows) if self.covers(numbers) else array

    def covers(self, value: Any) -> bool:
        """Whether a value has an entry for each row of all the data."""
        shape = getattr(value, "shape", ())
        return bool(shape) and shape[0] == self.num_rows


class RowsOf:
    """Stand-in for a pandas object, or for a result of one: pandas works on all rows, and arrays are cut to some.

    Args:
        whole: a pandas object with all rows, or a method or an accessor of one.
        cut: the rows that the model is run on.
        known: columns that are known as arrays, cut to these rows.
    """

    def __init__(self, whole: Any, cut: Cut, known: dict[Any, Any] | None = None):
        self._whole, self._cut, self._known = whole, cut, known or {}

    def __len__(self) -> int:
        return len(self._cut.rows) if self._cut.covers(self._whole) else len(self._whole)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape on the rows that the model is run on."""
        return (len(self), *self._whole.shape[1:])

    @property
    def values(self) -> Any:
        """The rows as an array of the framework."""
        return self.to_numpy()

    def to_numpy(self, dtype: Any = None, **options: Any) -> Any:
        """The rows as an array of the framework; the arguments are those of pandas."""
        if dtype is not None or options:
            return self._cut.of(self._whole.to_numpy(dtype=dtype, **options))
        if ITSELF in self._known:
            return self._known[ITSELF]
        if is_series(self._whole):
            return self._column(self._whole)
        columns = [(name, self._whole[name]) for name in self._whole.columns]
        known = self._known
        return self._cut.operations.stack([known[n] if n in known else self._column(x) for n, x in columns])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self._whole, name)
        is_column = is_frame(self._whole) and name in self._whole.columns and not hasattr(type(self._whole), name)
        return self[name] if is_column else self._answer(found)

    def __getitem__(self, item: Any) -> Any:
        item = _whole_of(item)
        if isinstance(item, self._cut.operations.kind):
            return self._rows(item)
        found = self._answer(self._whole[item])
        if isinstance(found, RowsOf) and is_frame(self._whole):
            if is_frame(found._whole):
                found._known = {name: x for name, x in self._known.items() if name in found._whole.columns}
            elif item in self._known:
                found._known = {ITSELF: self._known[item]}
            if self._cut.is_plain and ITSELF in found._known:
                return found.to_numpy()
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result of a method, as a stand-in."""
        args, kwargs = tuple(map(_whole_of, args)), {name: _whole_of(x) for name, x in kwargs.items()}
        return self._answer(self._whole(*args, **kwargs))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._whole)

    def __contains__(self, item: Any) -> bool:
        return item in self._whole

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._whole, dtype=dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return self._answer(getattr(ufunc, method)(*map(_whole_of, inputs), **options))

    def __jax_array__(self) -> Any:
        return self.to_numpy()

    def __repr__(self) -> str:
        return f"<rows of {described(self._whole)}>"

    def _column(self, column: Any) -> Any:
        numbers = numbers_of(column)
        if numbers is None:
            raise TypeError(f"a column that a model computes with must hold numbers, got {described(column)}")
        return self._cut.of(numbers)

    def _rows(self, item: Any) -> Any:
        """The rows that an array of the framework selects by position, from a column or from ``.iloc``."""
        if not is_series(self._whole) and not is_frame(self._whole):
            return self._answer(self._whole.obj).to_numpy()[item]  # .iloc
        index = getattr(self._whole, "index", None)
        if index is not None and not sys.modules["pandas"].RangeIndex(len(index)).equals(index):
            raise TypeError(
                f"pandas takes rows by label where their index is not 0, 1, …, as in {described(self._whole)}: to take "
                "them by position, write .to_numpy()[...]"
            )
        return self.to_numpy()[item]

    def _answer(self, found: Any) -> Any:
        """A result of pandas, as a stand-in or an array of these rows where it has an entry for each row."""
        if isinstance(found, np.ndarray):
            return self._cut.of(found) if self._cut.covers(found) and found.dtype.kind in NUMBERS else found
        if is_series(found) or is_frame(found):
            return RowsOf(found, self._cut) if self._cut.covers(found) else found
        is_scalar = sys.modules["pandas"].api.types.is_scalar(found)
        is_pandas = type(found).__module__.partition(".")[0] == "pandas"
        is_tool = callable(found) or (is_pandas and not is_scalar and hasattr(found, "obj"))
        is_accessor = is_pandas and type(found).__name__.endswith(("Accessor", "Methods", "Properties"))
        return RowsOf(found, self._cut) if is_tool or is_accessor else found

    def _binary(self, function: Callable[[Any, Any], Any], other: Any, is_first: bool) -> Any:
        other = _whole_of(other)
        if isinstance(other, self._cut.operations.kind):
            return function(self.to_numpy(), other) if is_first else function(other, self.to_numpy())
        return self._answer(function(self._whole, other) if is_first else function(other, self._whole))


def described(value: Any) -> str:
    """A description of a pandas object, for messages."""
    if is_frame(value):
        return f"a DataFrame with columns {list(value.columns)}"
    name = getattr(value, "name", None)
    return f"the column {name!r} of {getattr(value, 'dtype', type(value).__name__)}"


def _columns(whole: Any) -> dict[Any, np.ndarray]:
    """The columns of numbers of a pandas object."""
    columns = {name: whole[name] for name in whole.columns} if is_frame(whole) else {ITSELF: whole}
    found = {name: numbers_of(column) for name, column in columns.items() if is_series(column)}
    return {name: numbers for name, numbers in found.items() if numbers is not None}


def _whole_of(value: Any) -> Any:
    return value._whole if isinstance(value, RowsOf) else value


def _operator(name: str, is_first: bool) -> Callable[[RowsOf, Any], Any]:
    function = getattr(operator, name)
    return lambda self, other: self._binary(function, other, is_first)


def _unary(name: str) -> Callable[[RowsOf], Any]:
    function = getattr(operator, name)
    return lambda self: self._answer(function(self._whole))


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
    setattr(RowsOf, f"__{_name}__", _operator(_name, True))
    setattr(RowsOf, f"__r{_name}__", _operator(_name, False))
for _name in ("lt", "le", "gt", "ge", "eq", "ne", "and_", "or_"):
    setattr(RowsOf, f"__{_name.strip('_')}__", _operator(_name, True))
for _name in ("neg", "abs", "invert"):
    setattr(RowsOf, f"__{_name}__", _unary(_name))
