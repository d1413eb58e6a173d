"""Data in the containers that users keep them in, taken apart into arrays and put together again.

The hosts take apart lists, tuples, dicts and named tuples. Besides them a model may be given

* an object of fields (a dataclass, frozen and with slots too, or a ``SimpleNamespace``): its fields are taken apart,
  and an object of its class is put together without running any code of the class, so that what ``__post_init__`` once
  computed of all rows stays what it is;
* a list of numbers: where it has as many as the plate has rows, the model gets an array, cut; else the list itself;
* pandas' Series and DataFrames (:mod:`split_common.tables`);
* a source, whose rows are read when they are needed (:mod:`split_common.sources.rows`).

What this module makes of an argument consists of :class:`Opened` nodes, which each package registers with its
framework, and of :class:`Given` and :class:`~split_common.sources.rows.Source` leaves beside the arrays. A model that
does not divide, and does not run on arrays of the framework either, is given its arguments as they are (:class:`Own`).
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np

from split_common.sources.rows import Source, gives_rows, rows_of
from split_common.tables import NUMBERS, Operations, Table, in_own_order, is_frame, is_series, numbers_of

TreeMap = Callable[..., Any]  # a framework's map over containers, with ``is_leaf``


class Whole(Protocol):
    """How to put a container together; compares equal to that of a container of the same form."""

    @property
    def names(self) -> tuple[Any, ...]:
        """Names of its parts."""
        ...

    def build(self, parts: Iterable[Any]) -> Any:
        """The container of these parts."""
        ...

    def path(self, name: Any) -> str:
        """The place of a part, as messages show it."""
        ...


@dataclasses.dataclass(frozen=True)
class Opened:
    """A container taken apart; a framework puts it together when it puts a model's arguments together.

    Attributes:
        parts: the values that it holds, in order.
        whole: description of how to put them together.
    """

    parts: tuple[Any, ...]
    whole: Whole


@dataclasses.dataclass(frozen=True)
class Given:
    """A list of numbers.

    Attributes:
        array: the same as an array of the framework.
        original: the list, which a model gets back where it holds no rows.
    """

    array: Any
    original: list[Any]


@dataclasses.dataclass(frozen=True)
class Record:
    """Description of an object of fields, from which it can be put together.

    Attributes:
        kind: class of the object.
        names: names of its fields, and of other attributes that it holds.
    """

    kind: type
    names: tuple[str, ...]

    def build(self, parts: Iterable[Any]) -> Any:
        """An object of the class that holds these."""
        is_namespace = issubclass(self.kind, types.SimpleNamespace)
        made = (types.SimpleNamespace if is_namespace else object).__new__(self.kind)
        for name, part in zip(self.names, parts, strict=True):
            object.__setattr__(made, name, part)  # the __setattr__ of a frozen class refuses
        return made

    def path(self, name: str) -> str:
        """The place of a field, as messages show it."""
        return f".{name}"


class Own:
    """An argument that the model is given unconverted: not data, but a constant of a model that is not divided.

    Args:
        value: the argument.
    """

    __hash__ = None  # type: ignore[assignment]  # the model's program digests what it holds

    def __init__(self, value: Any):
        self.value = value

    def copy(self, tree_map: TreeMap) -> Any:
        """A copy of the argument, in which the model may change arrays and tables in place."""
        return copied(self.value, tree_map)


def copied(value: Any, tree_map: TreeMap) -> Any:
    """A user's argument with copies of its arrays of NumPy and tables, also of those in objects of fields."""
    return changed(value, tree_map, lambda x: x.copy())


def locked(value: Any, tree_map: TreeMap) -> Any:
    """A user's argument with views of its arrays of NumPy that cannot be written to; nothing is copied."""

    def lock(x: Any) -> Any:
        if not isinstance(x, np.ndarray):
            return x
        view = x.view()
        view.flags.writeable = False
        return view

    return changed(value, tree_map, lock)


def changed(value: Any, tree_map: TreeMap, change: Callable[[Any], Any]) -> Any:
    """A user's argument with something else in place of its arrays of NumPy and tables."""

    def of_leaf(x: Any) -> Any:
        if isinstance(x, np.ndarray) or is_series(x) or is_frame(x):
            return change(x)
        if (names := field_names(x)) is None:
            return x
        return Record(type(x), names).build([changed(getattr(x, name), tree_map, change) for name in names])

    return tree_map(of_leaf, value)


def cut_to(value: Any, rows: np.ndarray, num_rows: int, tree_map: TreeMap, operations: Operations) -> Any:
    """A user's argument with some rows of everything that has an entry for each row, sources among them.

    A memory map becomes an array of NumPy, as the user's model knows it; other sources, which are no arrays to it,
    become arrays of the framework.

    Args:
        value: the argument.
        rows: numbers of the rows, in order.
        num_rows: number of all rows; arrays without an axis of that length are left whole.
        tree_map: the framework's map over containers.
        operations: the framework's operations on arrays.
    """

    def cut(x: Any) -> Any:
        if gives_rows(x):
            source = rows_of(x).open(operations.dtype)
            few = rows[rows < source.shape[0]]
            return np.asarray(x[few]) if isinstance(x, np.memmap) else operations.array(source.take(few))
        if is_numbers(x):
            return [x[i] for i in rows] if len(x) == num_rows else x
        if is_series(x) or is_frame(x):
            return x.iloc[rows] if len(x) == num_rows else x
        if (names := field_names(x)) is not None:
            return Record(type(x), names).build([of_all(getattr(x, name)) for name in names])
        shape = getattr(x, "shape", None)
        if not (isinstance(shape, tuple) and num_rows in shape):
            return x
        return x[(*[slice(None)] * shape.index(num_rows), rows)]

    def of_all(x: Any) -> Any:
        return tree_map(cut, x, is_leaf=is_numbers)

    return of_all(value)


class Form(NamedTuple):
    """The form in which a model is given values that could be given in several.

    Attributes:
        plain_columns: whether columns of pandas are given as arrays, without pandas' methods.
        own_lists: whether lists of numbers that hold no rows are given as lists, not as arrays.
        held: whether arrays that the model holds are given as arguments (:mod:`split_common.open_model`).
        own: whether all arguments are given unconverted, where nothing is divided.
    """

    plain_columns: bool = True
    own_lists: bool = True
    held: bool = False
    own: bool = False


class Opener:
    """Takes arguments apart.

    Args:
        tree_map: the framework's own, with ``is_leaf``.
        operations: what the framework does with arrays and columns.
        form: in what form a model is given columns and lists.

    Attributes:
        tables: the pandas objects that were found.
        lists: the lists of numbers that were found.
        arrays: the NumPy arrays that were found.
        sources: the sources that were found.
    """

    def __init__(self, tree_map: Callable[..., Any], operations: Operations, form: Form = Form()):  # noqa: B008
        self.tree_map, self._operations, self._form = tree_map, operations, form
        self.tables: list[Any] = []
        self.lists: list[Any] = []
        self.arrays: list[np.ndarray] = []
        self.sources: list[Source] = []

    def open(self, value: Any) -> Any:
        """A value taken apart into arrays, :class:`Opened` and :class:`Given`; everything else in it as it is."""
        if self._form.own:
            return Own(value)
        return self.tree_map(self._leaf, value, is_leaf=is_numbers)

    def _leaf(self, x: Any) -> Any:
        if gives_rows(x):
            self.sources.append(rows_of(x).open(self._operations.dtype))
            return self.sources[-1]
        if isinstance(x, np.ndarray):
            is_number = x.dtype.kind in NUMBERS
            x = in_own_order(x) if is_number else x
            self.arrays.append(x)
            plain = np.asarray(x)  # JAX takes no masked array, also none that hides nothing
            return self._operations.array(plain) if is_number else x
        if is_numbers(x):
            self.lists.append(x)
            array = self._operations.listed(x)
            return Given(array, x) if self._form.own_lists else array
        if is_series(x) or is_frame(x):
            self.tables.append(x)
            return self._table(x)
        names = field_names(x)
        return x if names is None else Opened(tuple(self.open(getattr(x, n)) for n in names), Record(type(x), names))

    def _table(self, x: Any) -> Any:
        numbers = numbers_of(x) if is_series(x) and self._form.plain_columns else None
        if numbers is not None:
            return self._operations.array(numbers)
        table = Table(x, self._operations, self._form.plain_columns)
        return Opened(tuple(map(self._operations.array, table.parts())), table)


def is_numbers(value: Any) -> bool:
    """Whether a value is a list of at least one number, or of such lists of one length.

    Example:
        >>> is_numbers([1, 2.5]), is_numbers([[1, 2], [3, 4]]), is_numbers([[1, 2], [3]]), is_numbers(["a"])
        (True, True, False, False)
    """
    return type(value) is list and _shape(value) is not None


def field_names(value: Any) -> tuple[str, ...] | None:
    """Names of the attributes that an object of fields holds; None for anything else."""
    if isinstance(value, types.SimpleNamespace):
        return tuple(vars(value))
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return None
    declared = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
    return tuple(dict.fromkeys([*declared, *getattr(value, "__dict__", {})]))


def _shape(value: list[Any] | tuple[Any, ...]) -> tuple[int, ...] | None:
    """The shape of nested lists of numbers; None for anything else."""
    kinds = set(map(type, value))
    if not kinds or kinds <= {list, tuple}:
        shapes = {_shape(row) for row in value}
        inner = shapes.pop() if len(shapes) == 1 else None
        return None if inner is None else (len(value), *inner)
    is_number = all(issubclass(kind, bool | int | float | complex | np.number | np.bool_) for kind in kinds)
    return (len(value),) if is_number else None
