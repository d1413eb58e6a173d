"""Which of a model's arguments hold rows, and along which axis."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from numbers import Integral
from typing import Any

import numpy as np

from split_common.containers import Opened
from split_common.errors import ModelNotSplittableError, first_line
from split_common.tables import NUMBERS
from split_common.values import is_name, shown, whole_number


def argument_names(function: Callable[..., Any] | None, num_positional: int, kwargs: Mapping[str, Any]) -> list[str]:
    """Name of each positional argument as the signature has it, then of each keyword argument."""
    parameters = _parameters(function) if function else []
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    positional = [named[i] if i < len(named) else f"argument {i}" for i in range(num_positional)]
    return positional + list(kwargs)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a model; of a PyTorch module those of its ``forward``, which the module's own call hides."""
    try:
        found = list(inspect.signature(function).parameters.values())
        forward = getattr(inspect.unwrap(function), "forward", None)
        is_hidden = {p.kind for p in found} == {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
        return list(inspect.signature(forward).parameters.values()) if is_hidden and forward is not None else found
    except (TypeError, ValueError):
        return []


def check_data_axes(
    data_axes: Any, argument_names: Sequence[str] | None = None, array_names: Collection[str] = ()
) -> dict[str, int | None] | None:
    """Return ``data_axes``, or raise unless it is None or maps names of arguments or arrays to an axis or None.

    Args:
        data_axes: the user's value.
        argument_names: names of the model's arguments; None where they are not known yet.
        array_names: names of the arrays among them, each with its place inside the argument, such as ``data['y']``.
    """
    if data_axes is None:
        return None
    if not isinstance(data_axes, Mapping):
        raise TypeError(f"data_axes must map argument names to an axis or None, got {shown(data_axes)}")
    found = {}
    for name, axis in data_axes.items():
        if not is_name(name):
            raise ValueError(f"data_axes must name arguments by text, got {shown(name)} in {shown(data_axes)}")
        if argument_names is not None and name not in (*argument_names, *array_names):
            raise ValueError(f"data_axes must name model arguments {list(argument_names)}, got {name!r}")
        found[name] = whole_number(axis)
        if axis is not None and (found[name] is None or found[name] < 0):
            raise ValueError(
                f"data_axes[{name!r}] must be None or an axis of at least 0, got {shown(axis)} in {shown(data_axes)}"
            )
    return found


def axis_of_rows(data_axes: Mapping[str, int | None], name: str, argument: str) -> int | None:
    """The axis of the rows in an array: that of the array itself where it is named, else that of its argument.

    Args:
        data_axes: the user's value.
        name: the array's name, with its place inside the argument.
        argument: name of the argument.

    Example:
        >>> [axis_of_rows({"data['y']": 1}, name, "data") for name in ("data['y']", "data['x']")]
        [1, None]
        >>> axis_of_rows({"data": 0}, "data['y']", "data")
        0
    """
    return data_axes[name] if name in data_axes else data_axes.get(argument)


def check_lengths(lengths: Mapping[str, int]) -> None:
    """Raise unless every data argument has the same number of rows, and at least one."""
    for name, length in lengths.items():
        if length == 0:
            raise ValueError(f"data argument {name!r} must have at least one row, got 0 rows")
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise ValueError(f"data arguments must have equal length (rows), got: {listed}")


def raise_if_unequal(lengths: Mapping[str, int], error: Exception) -> None:
    """If data arguments differ in length, raise an error that says so in place of the model's own ``error``."""
    try:
        check_lengths(lengths)
    except ValueError as unequal:
        raise ValueError(f"{unequal} (the model fails with: {first_line(error)})") from error


def check_row_axis(name: str, shape: tuple[int, ...], axis: int | None, num_rows: int) -> None:
    """Raise unless an argument named in ``data_axes`` has the plate's number of rows along its axis."""
    if axis is None:
        return
    if axis >= len(shape) or shape[axis] != num_rows:
        raise ValueError(
            f"data arguments must have equal length (rows): {name!r} must have {num_rows} along axis {axis}, "
            f"the size of the data plate, got shape {shape}"
        )


def check_not_sparse(name: str, data_axes: Mapping[str, int | None] | None, sparse: Mapping[str, Any]) -> None:
    """Raise if ``data_axes`` gives an axis of rows to an argument that is, or holds, a sparse array.

    Args:
        name: the argument's name.
        data_axes: the user's value.
        sparse: the sparse arrays among the arguments, by name.
    """
    if data_axes is not None and data_axes.get(name) is not None:
        raise ModelNotSplittableError(f"data_axes must name dense arrays, got {name!r}{sparse_advice(sparse)}")


def sparse_advice(sparse: Mapping[str, Any]) -> str:
    """Advice about sparse arrays among the arguments.

    Args:
        sparse: the sparse arrays, by name.

    Example:
        >>> sparse_advice({"X": np.zeros(3)}).split(":")[0]
        "; sparse arrays are taken whole, got 'X' (ndarray)"
        >>> sparse_advice({})
        ''
    """
    if not sparse:
        return ""
    listed = ", ".join(f"{name!r} ({type(x).__name__})" for name, x in sparse.items())
    return (
        f"; sparse arrays are taken whole, got {listed}: if the rows are in one, pass it as a dense array, or pass the "
        "columns and values of each row's entries as two arrays of N rows"
    )


def unseen_advice(unseen: Mapping[str, Any]) -> str:
    """Advice about arguments that hold arrays where none are looked for.

    Args:
        unseen: by name, such arguments, or values in them.

    Example:
        >>> unseen_advice({"d": np.zeros(3, [("y", float)])})
        "; arrays are not looked for inside 'd' (numpy.ndarray of type [('y', '<f8')]): pass them as arguments"
        >>> unseen_advice({})
        ''
    """
    if not unseen:
        return ""
    listed = ", ".join(f"{name!r} ({_kind(x)})" for name, x in unseen.items())
    return f"; arrays are not looked for inside {listed}: pass them as arguments"


def hides_arrays(value: Any, is_array: Callable[[Any], bool]) -> bool:
    """Whether a leaf of arguments is a structured array, an array of objects, or an object with arrays as attributes.

    Args:
        value: the leaf, which is no array of numbers.
        is_array: whether a value is an array of numbers.
    """
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "VO"
    return not callable(value) and any(map(is_array, getattr(value, "__dict__", {}).values()))


def uncut_advice(arguments: Iterable[tuple[str, Any]], num_rows: int, is_array: Callable[[Any], bool]) -> str:
    """Advice about arguments with an entry for each row from which no rows are cut, since they hold no numbers.

    Args:
        arguments: names and values of the model's arguments.
        num_rows: N.
        is_array: whether a value is an array of numbers.

    Example:
        >>> uncut_advice([("g", ["a", "b", "a"]), ("scale", 2.0)], 3, lambda x: False)
        "; 'g' (list) has an entry for each row but is no array of numbers, so that it cannot be cut: encode it as \
whole numbers, as by np.unique(g, return_inverse=True)[1], or make it a NumPy array of numbers"
        >>> uncut_advice([("g", ["a", "b", "a"])], 4, lambda x: False)
        ''
        >>> uncut_advice([("x", [0.5, 1.2])], 2, lambda x: False)
        "; 'x' (list) has an entry for each row but is no array of numbers, so that it cannot be cut: make it a NumPy \
array of numbers"
    """
    found = [(name, x) for name, value in arguments for x in _uncut(value, num_rows, is_array)]
    return "".join(
        f"; {name!r} ({_kind(x)}) has an entry for each row but is no array of numbers, so that it cannot be cut: "
        + (
            ""
            if _holds_numbers(x)
            else f"encode it as whole numbers, as by np.unique({name}, return_inverse=True)[1], or "
        )
        + "make it a NumPy array of numbers"
        for name, x in dict(found).items()
    )


def _holds_numbers(value: Any) -> bool:
    """Whether NumPy makes an array of numbers of a value."""
    try:
        return np.asarray(value).dtype.kind in NUMBERS
    except Exception:  # whatever an object raises that is no array, as a sparse one
        return False


def count_advice(arguments: Iterable[tuple[str, Any]], num_rows: int, axes: Mapping[str, int]) -> str:
    """Advice about whole numbers among the arguments that are the number of all rows, also where fewer are given.

    Args:
        arguments: names and values of the model's arguments.
        num_rows: N.
        axes: the axis of the rows in each array that holds any, by name.

    Example:
        >>> count_advice([("data", {"N": 100, "K": 3})], 100, {"y": 0})
        "; data['N'] is the number of all rows (100), also where the model is given some of them: where it makes \
arrays of that length, as in zeros(N), write y.shape[0] in its place"
        >>> count_advice([("K", 3)], 100, {"y": 0})
        ''
    """
    counts = [count for name, value in arguments for count in _counts(name, value, num_rows)]
    if not (counts and axes):
        return ""
    name, axis = next(iter(axes.items()))
    return (
        f"; {', '.join(counts)} {'is' if len(counts) == 1 else 'are'} the number of all rows ({num_rows}), also where "
        "the model is given some of them: where it makes arrays of that length, as in zeros(N), write "
        f"{name}.shape[{axis}] in its place"
    )


def _counts(name: str, value: Any, num_rows: int) -> Iterator[str]:
    """Where in an argument a whole number is N, as Python writes the place."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _counts(f"{name}[{key!r}]", part, num_rows)
    elif isinstance(value, Integral) and not isinstance(value, bool) and value == num_rows:
        yield name


def _uncut(value: Any, num_rows: int, is_array: Callable[[Any], bool]) -> Iterator[Any]:
    """Values in an argument that have an entry for each row, but are no arrays of numbers and hold none."""
    if is_array(value) or callable(value) or isinstance(value, str | bytes | Opened):
        return
    is_sequence = isinstance(value, list | tuple)
    if isinstance(value, Mapping) or is_sequence:
        parts = list(value if is_sequence else value.values())
        has_entries = is_sequence and not hasattr(value, "_fields") and len(parts) == num_rows
        if has_entries and not any(map(is_array, parts)):
            yield value
        else:
            for part in parts:
                yield from _uncut(part, num_rows, is_array)
    elif _num_entries(value) == num_rows:
        yield value


def _num_entries(value: Any) -> int | None:
    """Entries of a value along its first axis; None where it has no such axis."""
    shape = getattr(value, "shape", None)
    if isinstance(value, np.ndarray) and value.dtype.names:  # its fields are columns
        return None
    if isinstance(shape, tuple):
        return shape[0] if shape else None
    return len(value) if isinstance(value, Sized) else None


def _kind(value: Any) -> str:
    """The type of a value, in words."""
    of_python = type(value).__module__ == "builtins"
    kind = type(value).__qualname__ if of_python else f"{type(value).__module__}.{type(value).__qualname__}"
    return f"{kind} of type {value.dtype}" if isinstance(value, np.ndarray) else kind


def axes_advice(names: Sequence[str], shapes: Mapping[str, tuple[int, ...]], num_rows: int) -> str:
    """Advice for rows that may lie along other axes than was assumed.

    Args:
        names: the arrays that were taken to hold rows.
        shapes: shapes of all array arguments, by name.
        num_rows: N.
    """
    if names:
        return (
            f"; arrays with {num_rows} entries along axis 0 were taken to hold rows: {', '.join(map(repr, names))}; "
            "where one of them holds none, or rows lie along another axis, name all that do, as in "
            f"data_axes={{{names[0]!r}: 0}}{_square_advice(names, shapes, num_rows)}"
        )
    if not shapes:
        return "; the model is given no arrays as arguments: pass its data so, with an entry for each row of the plate"
    along = {name: shape.index(num_rows) for name, shape in shapes.items() if num_rows in shape}
    if not along:
        return (
            f"; no array has {num_rows} entries along an axis, got shapes {shown(dict(shapes))}: pass arrays with an "
            "entry for each row of the plate, such as X[:-1] and X[1:] for X, or look data up by what the plate yields"
        )
    return f"; no array has {num_rows} entries along axis 0; if rows lie along another axis, pass data_axes={along}"


def _square_advice(names: Sequence[str], shapes: Mapping[str, tuple[int, ...]], num_rows: int) -> str:
    """Advice for arrays that have N entries along two axes, of which only the first is cut."""
    again = {name: [i for i, size in enumerate(shapes.get(name, ())) if i and size == num_rows] for name in names}
    return "".join(
        f"; {name!r} has as many along axis {axes[0]}: what the model computes of the data alone, as {name} @ y, is "
        "computed outside the model and passed in"
        for name, axes in again.items()
        if axes
    )
