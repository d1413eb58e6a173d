"""Which of a model's arguments hold rows, and along which axis."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from split_common.errors import first_line
from split_common.values import is_name, shown, whole_number


def argument_names(function: Callable[..., Any] | None, num_positional: int, kwargs: Mapping[str, Any]) -> list[str]:
    """Name of each positional argument as the signature has it, then of each keyword argument."""
    try:
        parameters = list(inspect.signature(function).parameters.values()) if function else []
    except (TypeError, ValueError):
        parameters = []
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    positional = [named[i] if i < len(named) else f"argument {i}" for i in range(num_positional)]
    return positional + list(kwargs)


def check_data_axes(data_axes: Any, argument_names: Sequence[str] | None = None) -> dict[str, int | None] | None:
    """Return ``data_axes``, or raise unless it is None or maps argument names to an axis or None.

    Args:
        data_axes: the user's value.
        argument_names: names of the model's arguments; None where they are not known yet.
    """
    if data_axes is None:
        return None
    if not isinstance(data_axes, Mapping):
        raise TypeError(f"data_axes must map argument names to an axis or None, got {shown(data_axes)}")
    found = {}
    for name, axis in data_axes.items():
        if not is_name(name):
            raise ValueError(f"data_axes must name arguments by text, got {shown(name)} in {shown(data_axes)}")
        if argument_names is not None and name not in argument_names:
            raise ValueError(f"data_axes must name model arguments {list(argument_names)}, got {name!r}")
        found[name] = whole_number(axis)
        if axis is not None and (found[name] is None or found[name] < 0):
            raise ValueError(
                f"data_axes[{name!r}] must be None or an axis of at least 0, got {shown(axis)} in {shown(data_axes)}"
            )
    return found


def check_lengths(lengths: Mapping[str, int]) -> None:
    """Raise unless every data argument has the same number of rows, and at least one."""
    for name, length in lengths.items():
        if length == 0:
            raise ValueError(f"data argument {name!r} must have at least one row, got 0 rows")
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise ValueError(f"data arguments must have equal length (rows), got: {listed}")


def raise_if_unequal(lengths: Mapping[str, int], error: Exception) -> None:
    """Raise a model's ``error`` as one of unequal data arguments, where they are unequal."""
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


def _kind(value: Any) -> str:
    """The type of a value, in words."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return f"{kind} of type {value.dtype}" if isinstance(value, np.ndarray) else kind


def axes_advice(names: Sequence[str], shapes: Mapping[str, tuple[int, ...]], num_rows: int) -> str:
    """Advice for rows that may lie along other axes than was assumed.

    Args:
        names: the arguments that were taken to hold rows.
        shapes: shapes of all array arguments, by name.
        num_rows: N.
    """
    if names:
        return (
            f"; arrays with {num_rows} entries along axis 0 were taken to hold rows: {', '.join(map(repr, names))}; "
            "where one of them holds none, or rows lie along another axis, name all that do, as in "
            f"data_axes={{{names[0]!r}: 0}}"
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
