"""The identity of a stored run: the model, the data, the kernel with its arguments, the run's arguments, the versions.

A run goes on from a store only where all of that is unchanged. Every part is a text, so that an error can say which
part differs, and from what. Values are read by their kind (numbers, arrays, containers, functions by their code); what
a function closes over counts, and so do the user's values, functions, classes and objects that it names. Of an object
of a user's class the methods count too. Installed packages count by their versions.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import dis
import enum
import functools
import importlib.util
import inspect
import logging
import sys
import types
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from split_common.digest import Digest
from split_common.errors import StoreError
from split_common.sources.rows import Rows, Source
from split_common.values import shown

OfArray = Callable[[Any], str]
INSTALLED = ("site-packages", "dist-packages")  # folders of installed packages
OURS = ("split_common", "numpyro_split", "pyro_split")  # packages that count by their version
DESCRIPTORS = (staticmethod, classmethod, property, functools.cached_property)
CONTAINERS = (Mapping, list, tuple, set, frozenset)
VALUES = (*CONTAINERS, deque, range, types.SimpleNamespace, argparse.Namespace)
OTHERS = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_FAST", "LOAD_CLOSURE", "LOAD_CONST")  # loads of what is not named outside
PLAIN = (bool, int, float, complex, str, bytes, type(None))
MOST_CHARACTERS = 200  # of a text that stands for a value by itself
DEPTH = 40  # levels of nesting that are read
NUM_SUBSETS = "kernel argument splitting.num_subsets"  # key of the number of subsets in the identity
MOST_SHOWN = 3  # differences that a message shows
ROUNDING = 1e-5  # relative difference that rounding may make between equal energies in single precision


def texts_of(value: Any, name: str, with_numbers: bool = True) -> dict[str, str]:
    """Every part of a value as a text, by its place.

    Args:
        value: a value of any kind; arrays count by their numbers, functions by their code and what they close over.
        name: name of the value, with which each place begins.
        with_numbers: whether arrays count by their numbers; else by type and number of axes.

    Example:
        >>> texts_of({"rate": 0.8, "sizes": (1, 2)}, "kernel")
        {'kernel.rate': '0.8', 'kernel.sizes[0]': '1', 'kernel.sizes[1]': '2'}
    """
    reader = Reader(_text_of_array if with_numbers else _kind_of_array)
    return dict(reader.texts(value, name))


def versions_of(*packages: str) -> dict[str, str]:
    """Versions of installed packages, by place."""
    return {f"version of {name}": metadata.version(name) for name in ("split-mcmc", *packages)}


def code_of(function: Any, with_numbers: bool = True) -> str:
    """Digest of the compiled code of a function, or of another callable, without names of files."""
    digest = Digest()
    for place, text in sorted(texts_of(function, "", with_numbers).items()):
        digest.add(place, text)
    return digest.key


def check_same(stored: Mapping[str, str], now: Mapping[str, str], path: Any) -> None:
    """Raise unless a store belongs to what is to be run.

    Args:
        stored: texts in the store, by place.
        now: texts of the run that would go on from it.
        path: path of the store.

    Raises:
        StoreError: saying what differs.
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
        now: energies of the run that would go on from it.
        path: path of the store.

    Raises:
        StoreError: where they differ.
    """
    if len(stored) != len(now) or not np.allclose(stored, now, rtol=ROUNDING, atol=ROUNDING, equal_nan=True):
        raise StoreError(
            f"store must be of the same model and data to go on from, got {path!r}, with a potential energy of "
            f"{sum(stored)!r} where the run starts, which is {sum(now)!r} now"
        )


class Reader:
    """Reads values as texts; each object, class and function once, since some refer to very many others.

    Args:
        of_array: from an array to its text.
    """

    def __init__(self, of_array: OfArray):
        self._of_array = of_array
        self._seen: dict[int, tuple[int, Any]] = {}  # by identity, the number and the object

    def texts(self, value: Any, name: str, above: tuple[int, ...] = ()) -> Iterator[tuple[str, str]]:
        """Pairs of a place and a text; ``above`` are the identities of the values around ``value``."""
        if isinstance(value, PLAIN) or isinstance(value, enum.Enum):
            yield name, _text_of(value)
        elif isinstance(value, type | types.ModuleType | types.BuiltinFunctionType):
            yield name, f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value.__name__)}"
            if isinstance(value, type) and is_users(value.__module__):
                yield from self._of_parts(value, name, above)
        elif _has_shape(value) and (hasattr(value, "dtype") or hasattr(value, "to_numpy")):
            yield name, self._of_array(value)
        elif id(value) in above or len(above) > DEPTH:
            yield name, type(value).__qualname__
        elif isinstance(value, types.FunctionType | types.MethodType):
            digest = Digest()
            for pair in self._of_parts(value, "", above):
                digest.add(*pair)
            yield name, f"function {value.__qualname__}, {digest.key}"
        else:
            if not isinstance(value, CONTAINERS):
                yield name, type(value).__qualname__
            yield from self._of_parts(value, name, above)

    def _of_parts(self, value: Any, name: str, above: tuple[int, ...]) -> Iterator[tuple[str, str]]:
        if (number := self._number_of(value)) is not None:
            yield name, f"object {number}"
            return
        for place, part in _parts(value):
            yield from self.texts(part, f"{name}{place}", (*above, id(value)))
        if is_users(type(value).__module__):
            yield from self.texts(type(value), f"{name}.__class__", (*above, id(value)))

    def _number_of(self, value: Any) -> int | None:
        """The number of an object, a class or a function that was read before; None for others, and for containers."""
        if isinstance(value, (*CONTAINERS, deque, range)):
            return None
        if id(value) in self._seen:
            return self._seen[id(value)][0]
        self._seen[id(value)] = len(self._seen), value  # kept alive, so that no other object takes its identity
        return None


def _text_of(value: Any) -> str:
    """The repr of a value; where it is long, shortened, and a digest of all of it."""
    try:
        text = repr(value)
    except Exception:  # a whole number may have too many digits
        text = hex(value) if isinstance(value, int) else shown(value)
    return text if len(text) <= MOST_CHARACTERS else f"{shown(value)}, {Digest().add(text).key}"


def _parts(value: Any) -> list[tuple[str, Any]]:
    """Parts of a value, each with its place; none of a logger, which refers to all others."""
    if isinstance(value, logging.Logger | logging.LoggerAdapter | logging.Handler):
        return []
    if isinstance(value, type):
        return _parts_of_class(value)
    if isinstance(value, (*CONTAINERS, deque)):
        own = _attributes(value) if is_users(type(value).__module__) else []
        return [*_entries(value), *own]
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return [*((f".{name}", x) for name, x in fields.items()), *_attributes_beside(value, fields)]
    if _is_distribution(value):
        return _parts_of_distribution(value)
    if hasattr(type(value), "log_abs_det_jacobian"):  # a transform, which caches the last values that it transformed
        return [(f".{name}", x) for name, x in vars(value).items() if not _is_kept(type(value), name)]
    if isinstance(value, range):
        return [(f".{name}", getattr(value, name)) for name in ("start", "stop", "step")]
    if isinstance(value, functools.partial):
        return [(".func", functools.partial.func.__get__(value)), (".args", value.args), (".keywords", value.keywords)]
    if isinstance(value, types.MethodType):
        return [(".function", value.__func__), (".self", value.__self__)]
    if isinstance(value, types.FunctionType):
        return _parts_of_function(value)
    if isinstance(value, DESCRIPTORS):
        names = ("__func__", "fget", "fset", "func")
        return [(f".{name}", getattr(value, name)) for name in names if hasattr(value, name)]
    if isinstance(value, types.CodeType):
        names = ("co_name", "co_code", "co_names", "co_varnames", "co_freevars", "co_consts")
        return [(f".{name}", getattr(value, name)) for name in names]
    slots = [name for c in type(value).__mro__ for name in _as_tuple(vars(c).get("__slots__", ())) if name[:2] != "__"]
    return [*((f".{name}", getattr(value, name)) for name in slots if hasattr(value, name)), *_attributes(value)]


def _entries(value: Any) -> list[tuple[str, Any]]:
    """What a container holds."""
    if isinstance(value, Mapping):
        found = [(f".{key}" if isinstance(key, str) else f"[{_text_of(key)}]", x) for key, x in value.items()]
        return [*found, (".default_factory", value.default_factory)] if isinstance(value, defaultdict) else found
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f".{key}", getattr(value, key)) for key in value._fields]  # type: ignore[attr-defined]
    ordered = sorted(value, key=_text_of) if isinstance(value, set | frozenset) else value
    return [(f"[{i}]", x) for i, x in enumerate(ordered)]


def _attributes(value: Any) -> list[tuple[str, Any]]:
    """An object's attributes, without what its cached properties keep, which follows from the others."""
    static = [pair for c in type(value).__mro__ for pair in vars(c).items()]
    kept = {name for name, x in static if isinstance(x, functools.cached_property)}
    return [(f".{name}", x) for name, x in getattr(value, "__dict__", {}).items() if name not in kept]


def _attributes_beside(value: Any, fields: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """A dataclass's attributes that are no fields; private ones unless a base is a library's, which may set some."""
    bases = [c.__module__ for c in type(value).__mro__]
    is_own = all(is_users(module) or module.partition(".")[0] in sys.stdlib_module_names for module in bases)
    names = {f".{name}" for name in fields}
    return [(place, x) for place, x in _attributes(value) if place not in names and (is_own or place[1] != "_")]


def _parts_of_function(function: types.FunctionType) -> list[tuple[str, Any]]:
    """Code, defaults, closure, and the values that it names in its own module or in the user's other modules."""
    code, closure = function.__code__, {}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            closure[name] = cell.cell_contents
        except ValueError:  # not filled yet
            continue
    names = names_in(code)
    named = {name: function.__globals__.get(name) for name in names}
    modules = {name: x for name, x in named.items() if isinstance(x, types.ModuleType)} | _imported_in(function)
    read = dict.fromkeys((*names, *_texts_in(code)))  # a text too: `getattr(module, "limit")`
    for name, module in _modules_within(modules, read):
        named |= {f"{name}.{inner}": getattr(module, inner) for inner in read if hasattr(module, inner)}
    own = {name: _without_library(x, function.__module__) for name, x in named.items() if x is not None}
    own, closure = ({name: _read_part(x, code, name) for name, x in values.items()} for values in (own, closure))
    return [
        (".code", code),
        (".defaults", function.__defaults__),
        (".keyword_defaults", function.__kwdefaults__),
        (".closure", closure),
        (".globals", own),
        (".attributes", {name: x for name, x in vars(function).items() if name[:2] != "__"}),
    ]


def _modules_within(
    modules: Mapping[str, types.ModuleType], read: Iterable[str]
) -> Iterator[tuple[str, types.ModuleType]]:
    """The user's modules among those given, and within them those that are read, as in ``package.module.limit``."""
    waiting, seen = deque(modules.items()), set[int]()
    while waiting:
        name, module = waiting.popleft()
        if id(module) in seen or not is_users(module.__name__):
            continue
        seen.add(id(module))
        yield name, module
        inner = ((part, getattr(module, part, None)) for part in read)
        waiting.extend((f"{name}.{part}", x) for part, x in inner if isinstance(x, types.ModuleType))


def _imported_in(function: types.FunctionType) -> dict[str, types.ModuleType]:
    """The user's modules that a function, or one inside it, imports when it runs."""
    package, found = function.__globals__.get("__package__") or "", {}
    for level, name, parts in _imports_in(function.__code__):
        for part in ("", *parts):  # what is imported from a package may be a module
            with contextlib.suppress(Exception):  # of a module that is not there, or fails, behind a condition
                full = f"{name}.{part}".strip(".")
                full = importlib.util.resolve_name("." * level + full, package) if level else full
                spec = importlib.util.find_spec(full)
                if spec is not None and not {*Path(spec.origin or "").parts}.intersection(INSTALLED):
                    found[full] = importlib.import_module(full)
    return found


def _imports_in(code: types.CodeType) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Level, name and parts of each import in a function and those inside it; above level 0 the name is relative."""
    instructions = [x for x in dis.get_instructions(code) if x.opname != "EXTENDED_ARG"]
    for level, parts, load in zip(instructions, instructions[1:], instructions[2:], strict=False):
        if load.opname == "IMPORT_NAME":
            yield level.argval, load.argval, parts.argval or ()
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _imports_in(inner)


def _texts_in(code: types.CodeType) -> Iterator[str]:
    """Texts that a function, or one inside it, has among its constants, which may be names."""
    for x in code.co_consts:
        if isinstance(x, str):
            yield x
        elif isinstance(x, types.CodeType):
            yield from _texts_in(x)


def _parts_of_distribution(value: Any) -> list[tuple[str, Any]]:
    """The content of a distribution of either framework without what it caches; parameters are all included."""
    parts = {name: x for name, x in vars(value).items() if not _is_kept(type(value), name)}
    try:
        names = list(value.arg_constraints)
    except NotImplementedError:  # a user's distribution that does not name its parameters
        names = []
    parts |= {name: getattr(value, name) for name in names if hasattr(value, name)}
    return [(f".{name}", x) for name, x in parts.items()]


def _is_kept(owner: type, name: str) -> bool:
    """Whether an attribute of a distribution or a transform is a cache."""
    is_lazy = type(inspect.getattr_static(owner, name, None)).__name__ == "lazy_property"
    return is_lazy or name == "_inv" or name.startswith("_cached")


def _is_distribution(value: Any) -> bool:
    """Whether a value is a distribution of either framework; asking its class raises no error."""
    return hasattr(type(value), "arg_constraints") and hasattr(type(value), "log_prob")


def _parts_of_class(value: type) -> list[tuple[str, Any]]:
    """The methods and values of a class, and of the user's classes among its bases."""
    classes = [c for c in value.__mro__ if is_users(c.__module__)]
    return [
        (f".{c.__qualname__}.{name}", x)
        for c in classes
        for name, x in vars(c).items()
        if isinstance(x, (types.FunctionType, *DESCRIPTORS)) or not (name.startswith("__") or name == "_abc_impl")
    ]


def _read_part(value: Any, code: types.CodeType, name: str) -> Any:
    """A value that a function names; for a namespace of which it only reads attributes, those attributes.

    So a script's arguments that a model does not read, as the number of draws, are none of the model's.
    """
    if type(value) not in (types.SimpleNamespace, argparse.Namespace):  # a class of the user's may read more in methods
        return value
    read = _attributes_read(code, name)
    return value if read is None else {key: x for key, x in vars(value).items() if key in read}


def _attributes_read(code: types.CodeType, name: str) -> set[str] | None:
    """Attributes of a value that a function, and those inside it, read by its name; None where they use it whole."""
    found: set[str] = set()
    for instruction, then in pairwise(dis.get_instructions(code)):
        if instruction.argval == name and instruction.opname.startswith("LOAD_") and instruction.opname not in OTHERS:
            if then.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                return None
            found.add(then.argval)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            of_inner = _attributes_read(inner, name)
            if of_inner is None:
                return None
            found |= of_inner
    return found


def _as_tuple(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


@functools.cache
def is_users(module: str | None) -> bool:
    """Whether a module is a user's (a script, a notebook, a local file): not Python's, installed, or this package's."""
    if module is None or module.partition(".")[0] in (*OURS, *sys.stdlib_module_names):
        return module == "__main__"
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is None or not {*Path(file).parts}.intersection(INSTALLED)


def names_in(code: types.CodeType) -> dict[str, None]:
    """Names that a function looks up, and the functions inside it; in order, once each."""
    inside = (x for x in code.co_consts if isinstance(x, types.CodeType))
    return dict.fromkeys((*code.co_names, *(name for x in inside for name in names_in(x))))


def _without_library(value: Any, module: str | None) -> Any:
    """A value that a function names; its name alone if it is from an installed package and no plain value."""
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, types.FunctionType | type) and value.__module__ != module and not is_users(value.__module__):
        return f"{value.__module__}.{value.__qualname__}"
    if _is_read(value) or is_users(type(value).__module__):
        return value
    if isinstance(value, types.MethodType):
        owner = value.__self__ if isinstance(value.__self__, type) else type(value.__self__)
        if is_users(owner.__module__):
            return value
    inner = inspect.getattr_static(value, "__wrapped__", None)  # where a function's results are kept, by lru_cache
    if isinstance(inner, types.FunctionType) and (inner.__module__ == module or is_users(inner.__module__)):
        return inner
    return f"a {type(value).__module__}.{type(value).__qualname__}"


def _is_read(value: Any) -> bool:
    """Whether a value counts by its whole content, or is a function or class."""
    if isinstance(value, (*PLAIN, *VALUES, functools.partial, types.FunctionType, type)) or hasattr(value, "dtype"):
        return True
    is_table_or_network = hasattr(value, "to_numpy") or hasattr(value, "named_parameters")
    return is_table_or_network or dataclasses.is_dataclass(value) or _is_distribution(value)


def _has_shape(value: Any) -> bool:
    """Whether a value has a shape, which a parameter of PyTorch has from its network's first run only."""
    try:
        return hasattr(value, "shape")
    except RuntimeError:
        return False


def _text_of_array(x: Any) -> str:
    """Type, shape and digest of an array of either framework, of a table, or of rows that are read from a source."""
    x = x.open() if isinstance(x, Rows) else x
    if isinstance(x, Source):
        return f"{x.dtype} array of shape {x.shape}, {x.survey.digest}"
    try:
        numbers = _numbers_of(x)
    except TypeError:  # a random key
        return _text_of(x)
    digest = Digest()
    if numbers.dtype.kind == "O":
        digest.add(*map(repr, numbers.ravel().tolist()))
    else:
        digest.add_array(numbers)
    return f"{numbers.dtype} array of shape {tuple(numbers.shape)}, {digest.key}"


def _numbers_of(x: Any) -> np.ndarray:
    """An array of either framework, or a table, as an array of NumPy."""
    if not hasattr(x, "detach"):
        return np.asarray(x)
    tensor = x.detach().cpu()
    try:
        return tensor.numpy()
    except TypeError:  # a type that NumPy lacks: bfloat16, whose numbers 32 bits hold
        return tensor.float().numpy()


def _kind_of_array(x: Any) -> str:
    """Type and number of axes of an array of either framework, or of a table."""
    return f"{getattr(x, 'dtype', type(x).__name__)} array of {len(x.shape)} axes"
