"""NumPy arrays that a model reads from outside its arguments, and what JAX makes of them.

Where 64-bit types are off, JAX converts such an array once and keeps the copy as long as the array lives: later changes
in place are not seen, even by programs compiled afterwards. They cannot be tracked, so they are an error.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.dtypes import canonicalize_dtype

from split_common.runs.identity import is_users

DEPTH = 4  # levels of nested functions, containers and objects that are searched


def check_captured(model: Callable[..., Any], arguments: Iterable[Any] = ()) -> None:
    """Raise where the model reads an array that was changed in place and of which JAX keeps the old values.

    Args:
        model: a model; its closures, defaults, the globals that it names, its object's attributes, and those of the
            user's functions that it calls, are searched, and the attributes of objects and the arrays of modules among
            them.
        arguments: arguments that are no arrays, which are searched too.

    Raises:
        ValueError: naming the array.
    """
    for name, x in captured_arrays([model, *arguments], getattr(model, "__module__", None)):
        kept = canonicalize_dtype(x.dtype) if x.dtype.kind in "biufc" else x.dtype
        if kept != x.dtype and not np.array_equal(np.asarray(jnp.asarray(x)), x.astype(kept), equal_nan=True):
            raise ValueError(
                f"the array {name!r}, which the model reads from outside its arguments or from an object among them, "
                f"must not be changed in place, got other values than those that JAX keeps of it (as {kept}); give it "
                "as an argument, or replace it by a copy"
            )


def captured_arrays(values: Iterable[Any], module: str | None) -> Iterator[tuple[str, np.ndarray]]:
    """The NumPy arrays that can be reached from some values, each with its name; none of the rows of memory maps."""
    seen: dict[int, Any] = {}  # with the values, since another may have the id of one that was deleted
    level = [("", value) for value in values]
    for _ in range(DEPTH + 1):
        new = [(name, value) for name, value in level if id(value) not in seen]
        seen |= {id(value): value for _, value in new}
        arrays = [(name, value) for name, value in new if isinstance(value, np.ndarray)]
        yield from ((name, x) for name, x in arrays if not isinstance(x, np.memmap))
        level = [part for _, value in new for part in _parts(value, module)]


def _parts(value: Any, module: str | None) -> Iterator[tuple[str, Any]]:
    """What a function reads, a container holds and an object has as attributes, with the names that lead to it."""
    if isinstance(value, functools.partial):
        yield from (
            ("", value.func),
            *((f"argument {i}", x) for i, x in enumerate(value.args)),
            *value.keywords.items(),
        )
    elif isinstance(value, types.MethodType):
        yield from (("", value.__func__), *_attributes(value.__self__))
    elif isinstance(value, types.FunctionType):
        if value.__module__ == module or is_users(value.__module__):
            yield from (*_read_by(value), *_attributes(value))
    elif isinstance(value, dict):
        yield from (*((str(key), x) for key, x in value.items()), *_attributes(value))
    elif isinstance(value, list | tuple | deque):
        yield from (*((f"[{i}]", x) for i, x in enumerate(value)), *_attributes(value))
    elif not isinstance(value, np.ndarray | type | types.ModuleType):
        if callable(value):
            yield "", type(value).__call__
        yield from _attributes(value)


def _attributes(value: Any) -> tuple[tuple[str, Any], ...]:
    """The attributes that an object holds itself, also in slots; a copy, since a property may add to them."""
    return (*getattr(value, "__dict__", {}).items(), *_in_slots(value))


def _in_slots(value: Any) -> Iterator[tuple[str, Any]]:
    for cls in type(value).__mro__:
        if "__slots__" not in vars(cls):
            continue
        for name, place in tuple(vars(cls).items()):
            if isinstance(place, types.MemberDescriptorType):
                with contextlib.suppress(AttributeError):  # nothing is in it, whatever a subclass has under its name
                    yield name, place.__get__(value)


def _read_by(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Values that a function has by name: of its closure, its globals and its arguments' defaults."""
    code, defaults = function.__code__, function.__defaults__ or ()
    first = code.co_argcount - len(defaults)
    yield from zip(code.co_varnames[first : code.co_argcount], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue
    codes = [code]
    while codes:
        code = codes.pop()
        codes += [inner for inner in code.co_consts if isinstance(inner, types.CodeType)]
        for name in code.co_names:
            if name in function.__globals__:
                found = function.__globals__[name]
                yield name, found
                if isinstance(found, types.ModuleType):
                    yield from _arrays_of_module(name, found, code)


def _arrays_of_module(
    name: str, module: types.ModuleType, code: types.CodeType, above: tuple[types.ModuleType, ...] = ()
) -> Iterator[tuple[str, Any]]:
    """Arrays of a module, and of those within it, under the names that a function looks up, as in ``constants.y``."""
    for attribute in code.co_names:
        found = vars(module).get(attribute)
        if isinstance(found, np.ndarray):
            yield f"{name}.{attribute}", found
        elif isinstance(found, types.ModuleType) and found not in (*above, module):
            yield from _arrays_of_module(f"{name}.{attribute}", found, code, (*above, module))
