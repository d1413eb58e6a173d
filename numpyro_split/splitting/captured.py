"""NumPy arrays that a model reads from outside its arguments, and what JAX makes of them.

Where 64-bit types are off, JAX converts such an array once and keeps the copy as long as the array lives: later changes
in place are not seen, even by programs compiled afterwards. They cannot be tracked, so they are an error.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.dtypes import canonicalize_dtype

DEPTH = 4  # levels of nested functions and containers that are searched


def check_captured(model: Callable[..., Any]) -> None:
    """Raise where the model reads an array that was changed in place and of which JAX keeps the old values.

    Args:
        model: a model; its closures, the globals that it names, its object's attributes, and those of the functions of
            its own module that it calls, are searched.

    Raises:
        ValueError: naming the array.
    """
    for name, x in captured_arrays(model, getattr(model, "__module__", None)):
        kept = canonicalize_dtype(x.dtype) if x.dtype.kind in "biufc" else x.dtype
        if kept != x.dtype and not np.array_equal(np.asarray(jnp.asarray(x)), x.astype(kept), equal_nan=True):
            raise ValueError(
                f"the array {name!r}, which the model reads from outside its arguments, must not be changed in place, "
                f"got other values than those that JAX keeps of it (as {kept}); give it as an argument, or replace it "
                "by a copy"
            )


def captured_arrays(
    value: Any, module: str | None, name: str = "", depth: int = DEPTH
) -> Iterator[tuple[str, np.ndarray]]:
    """The NumPy arrays that can be reached from a value, each with the name that leads to it."""
    if isinstance(value, np.ndarray):
        yield name, value
    elif depth:
        for inner, found in _parts(value, module):
            yield from captured_arrays(found, module, inner, depth - 1)


def _parts(value: Any, module: str | None) -> Iterator[tuple[str, Any]]:
    if isinstance(value, functools.partial):
        yield from (
            ("", value.func),
            *((f"argument {i}", x) for i, x in enumerate(value.args)),
            *value.keywords.items(),
        )
    elif isinstance(value, types.MethodType):
        yield from (("", value.__func__), *getattr(value.__self__, "__dict__", {}).items())
    elif isinstance(value, types.FunctionType):
        if value.__module__ == module:
            yield from _read_by(value)
    elif isinstance(value, dict):
        yield from ((str(key), x) for key, x in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"[{i}]", x) for i, x in enumerate(value))
    elif callable(value) and not isinstance(value, type):
        yield from (("", type(value).__call__), *getattr(value, "__dict__", {}).items())


def _read_by(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Values that a function reads by name from its closure and its globals."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]
        yield from ((name, function.__globals__[name]) for name in code.co_names if name in function.__globals__)
