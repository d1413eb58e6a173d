"""What a store belongs to: the model, the data, the kernel with its arguments, the run's arguments, the versions.

A run goes on from a store only where all of that is what it was. Every part is a text, so that an error can say which
part differs, and from what. Values are read by their kind (numbers, arrays, containers, functions by their code); what
a function closes over counts, and so do the functions of its own module that it calls.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np

from split_common.digest import Digest
from split_common.errors import StoreError
from split_common.sources.rows import Rows, Source
from split_common.values import shown

OfArray = Callable[[Any], str]
PLAIN = (bool, int, float, complex, str, bytes, type(None))
DEPTH = 12  # of values one in the other
NUM_SUBSETS = "kernel argument splitting.num_subsets"  # its place
MOST_SHOWN = 3  # differences in a message
ROUNDING = 1e-5  # relative, of energies of single precision that are equal but for rounding


def texts_of(value: Any, name: str, with_numbers: bool = True) -> dict[str, str]:
    """Every part of a value as a text, by its place.

    Args:
        value: of any kind; arrays count by their numbers, functions by their code and what they close over.
        name: of the value, with which each place begins.
        with_numbers: whether arrays count by their numbers; else by type and number of axes.

    Example:
        >>> texts_of({"rate": 0.8, "sizes": (1, 2)}, "kernel")
        {'kernel.rate': '0.8', 'kernel.sizes[0]': '1', 'kernel.sizes[1]': '2'}
    """
    return dict(_texts(value, name, (), _text_of_array if with_numbers else _kind_of_array))


def versions_of(*packages: str) -> dict[str, str]:
    """Versions of installed packages, by place."""
    return {f"version of {name}": metadata.version(name) for name in ("split-mcmc", *packages)}


def code_of(function: Any, with_numbers: bool = True) -> str:
    """Digest of the code of a function, or of whatever else is called: as it is compiled, without names of files."""
    digest = Digest()
    for place, text in sorted(texts_of(function, "", with_numbers).items()):
        digest.add(place, text)
    return digest.key


def check_same(stored: Mapping[str, str], now: Mapping[str, str], path: Any) -> None:
    """Raise unless a store belongs to what is to be run.

    Args:
        stored: texts in the store, by place.
        now: of the run that would go on from it.
        path: of the store.

    Raises:
        StoreError: that says what differs.
    """
    places = [place for place in {**stored, **now} if stored.get(place) != now.get(place)]
    if not places:
        return
    listed = [f"{p}: {stored.get(p, 'nothing')} in the store, got {now.get(p, 'nothing')}" for p in places[:MOST_SHOWN]]
    more = f"; and {len(places) - MOST_SHOWN} more" if len(places) > MOST_SHOWN else ""
    num_subsets = stored.get(NUM_SUBSETS, "")
    advice = f", with num_subsets={num_subsets}" if NUM_SUBSETS in places and num_subsets else ""
    raise StoreError(
        f"store must be of the same model, data, kernel and versions to go on from, got {str(path)!r} with another "
        f"{'; another '.join(listed)}{more}. Repeat the call that began it{advice}, or give another path"
    )


def check_same_density(stored: Sequence[float], now: Sequence[float], path: str) -> None:
    """Raise unless the potential where a run starts is the stored one, but for rounding.

    Args:
        stored: energies in the store.
        now: of the run that would go on from it.
        path: of the store.

    Raises:
        StoreError: where they differ.
    """
    if len(stored) != len(now) or not np.allclose(stored, now, rtol=ROUNDING, atol=ROUNDING, equal_nan=True):
        raise StoreError(
            f"store must be of the same model and data to go on from, got {path!r}, with a potential energy of "
            f"{sum(stored)!r} where the run starts, which is {sum(now)!r} now"
        )


def _texts(value: Any, name: str, above: tuple[int, ...], of_array: OfArray) -> Iterator[tuple[str, str]]:
    """Pairs of a place and a text; ``above`` are the identities of what a value lies in."""
    if isinstance(value, PLAIN) or isinstance(value, enum.Enum):
        yield name, shown(value)
    elif isinstance(value, type | types.ModuleType | types.BuiltinFunctionType):
        yield name, f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value.__name__)}"
    elif hasattr(value, "shape") and (hasattr(value, "dtype") or hasattr(value, "to_numpy")):
        yield name, of_array(value)
    elif id(value) in above or len(above) > DEPTH:
        yield name, type(value).__qualname__
    elif isinstance(value, types.FunctionType | types.MethodType):
        digest = Digest()
        for pair in _texts_of_parts(value, "", above, of_array):
            digest.add(*pair)
        yield name, f"function {value.__qualname__}, {digest.key}"
    else:
        if not isinstance(value, Mapping | list | tuple | set | frozenset):
            yield name, type(value).__qualname__
        yield from _texts_of_parts(value, name, above, of_array)


def _texts_of_parts(value: Any, name: str, above: tuple[int, ...], of_array: OfArray) -> Iterator[tuple[str, str]]:
    for place, part in _parts(value):
        yield from _texts(part, f"{name}{place}", (*above, id(value)), of_array)


def _parts(value: Any) -> list[tuple[str, Any]]:
    """Parts of a value, each with its place."""
    if isinstance(value, Mapping):
        return [(f".{key}" if isinstance(key, str) else f"[{shown(key)}]", x) for key, x in value.items()]
    if dataclasses.is_dataclass(value):
        return [(f".{field.name}", getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f".{key}", getattr(value, key)) for key in value._fields]  # type: ignore[attr-defined]
    if isinstance(value, list | tuple):
        return [(f"[{i}]", x) for i, x in enumerate(value)]
    if isinstance(value, set | frozenset):
        return [(f"[{i}]", x) for i, x in enumerate(sorted(value, key=shown))]
    if isinstance(value, functools.partial):
        return [(".func", functools.partial.func.__get__(value)), (".args", value.args), (".keywords", value.keywords)]
    if isinstance(value, types.MethodType):
        return [(".function", value.__func__), (".self", value.__self__)]
    if isinstance(value, types.FunctionType):
        return _parts_of_function(value)
    if isinstance(value, types.CodeType):
        names = ("co_name", "co_code", "co_names", "co_varnames", "co_freevars", "co_consts")
        return [(f".{name}", getattr(value, name)) for name in names]
    return [(f".{key}", x) for key, x in getattr(value, "__dict__", {}).items()]


def _parts_of_function(function: types.FunctionType) -> list[tuple[str, Any]]:
    """Code, defaults, what is closed over, and functions and numbers of the function's own module that it names."""
    code, closure = function.__code__, {}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            closure[name] = cell.cell_contents
        except ValueError:  # not filled yet
            continue
    named = {name: function.__globals__.get(name) for name in _names_in(code)}
    own = {name: x for name, x in named.items() if _is_own(x, function.__module__)}
    return [
        (".code", code),
        (".defaults", function.__defaults__),
        (".keyword_defaults", function.__kwdefaults__),
        (".closure", closure),
        (".globals", own),
    ]


def _names_in(code: types.CodeType) -> dict[str, None]:
    """Names that a function looks up, and the functions inside it; in order, once each."""
    inside = (x for x in code.co_consts if isinstance(x, types.CodeType))
    return dict.fromkeys((*code.co_names, *(name for x in inside for name in _names_in(x))))


def _is_own(value: Any, module: str | None) -> bool:
    """Whether something that a function names is a value, or a function of the same module."""
    if isinstance(value, types.FunctionType):
        return value.__module__ == module
    return isinstance(value, bool | int | float | str | tuple | list | dict) or hasattr(value, "dtype")


def _text_of_array(x: Any) -> str:
    """Type, shape and digest of an array of either framework, of a table, or of rows that are read from a source."""
    x = x.open() if isinstance(x, Rows) else x
    if isinstance(x, Source):
        return f"{x.dtype} array of shape {x.shape}, {x.survey.digest}"
    try:
        numbers = x.detach().cpu().numpy() if hasattr(x, "detach") else np.asarray(x)
    except TypeError:  # a type that NumPy lacks, such as bfloat16 or a random key
        return shown(x)
    digest = Digest()
    if numbers.dtype.kind == "O":
        digest.add(*map(repr, numbers.ravel().tolist()))
    else:
        digest.add_array(numbers)
    return f"{numbers.dtype} array of shape {tuple(numbers.shape)}, {digest.key}"


def _kind_of_array(x: Any) -> str:
    """Type and number of axes of an array of either framework, or of a table."""
    return f"{getattr(x, 'dtype', type(x).__name__)} array of {len(x.shape)} axes"
