"""Copies of a model with what it may change, to see what a run leaves behind.

Modules, classes, and arrays and tables, which are taken for data, are shared with the copy; so are functions of
installed packages. All else is copied: what a function closes over, globals that it names, objects with their parts.
"""

from __future__ import annotations

import contextlib
import copy
import types
from collections.abc import Callable
from typing import Any

from split_common.open_model import OpenModel
from split_common.runs.identity import is_users, names_in


def copy_of(model: Callable[..., Any]) -> Callable[..., Any]:
    """A model like another that has its own copy of what it may change.

    Args:
        model: a function, an object that can be called, or a model that may be given itself.

    Raises:
        Exception: whatever an object raises that has no copy, such as a lock.

    Example:
        >>> kept = []
        >>> def model():
        ...     kept.append(1)
        ...     return len(kept)
        >>> copy_of(model)(), len(kept)
        (1, 0)
    """
    if isinstance(model, OpenModel):
        return OpenModel(copy_of(model.__wrapped__))
    return _copy_of_function(model, {}) if isinstance(model, types.FunctionType) else _copy_of_value(model, {})


def _copy_of_value(value: Any, copies: dict[int, Any]) -> Any:
    """A copy of a value; ``copies`` are those made before, by the identity of the original."""
    if isinstance(value, types.FunctionType):
        return _copy_of_function(value, copies) if is_users(value.__module__) else value
    is_data = hasattr(type(value), "shape") or hasattr(value, "to_numpy")
    if value is None or is_data or isinstance(value, types.ModuleType | type):
        return value
    return copy.deepcopy(value, copies)


def _copy_of_function(function: types.FunctionType, copies: dict[int, Any]) -> types.FunctionType:
    """A function with copies of what it closes over, and of the globals that it names."""
    if id(function) in copies:
        return copies[id(function)]
    cells = tuple(types.CellType() for _ in function.__closure__ or ())
    variables = dict(function.__globals__)
    made = types.FunctionType(function.__code__, variables, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__ = function.__kwdefaults__
    copies[id(function)] = made
    for name in names_in(function.__code__):
        if name in variables:
            variables[name] = _copy_of_value(variables[name], copies)
    for cell, original in zip(cells, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not filled yet
            cell.cell_contents = _copy_of_value(original.cell_contents, copies)
    return made
