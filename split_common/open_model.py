"""Arrays that a model holds: in a partial, a handler, a closure, or as attributes of an object with a method.

Such a model is a container of arrays like its arguments are (:mod:`split_common.containers`): it is taken apart into
arrays, and a model like it is put together from the arrays of some rows. No code is rewritten: a new partial, function
or object has the same code and other values. What holds no array stays as it is. The user's model and what it holds are
not changed.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from split_common.containers import Given, Opened, Opener

HELD = "_held_by_the_model"  # an extra keyword argument of a model: the model itself, taken apart
NOTHING = object()
WRITTEN_IN_PYTHON = 1 << 9  # a flag of classes, CPython's Py_TPFLAGS_HEAPTYPE
DEPTH = 6  # levels of nested functions and objects that are searched


class OpenModel:
    """A model that may be given itself, put together from other arrays, as an argument.

    Args:
        model: the user's model.
    """

    def __init__(self, model: Callable[..., Any]):
        self.__wrapped__ = model  # gives this object the model's signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model."""
        model = kwargs.pop(HELD, self.__wrapped__)
        return model(*args, **kwargs)


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """How to put a model, or something that it holds, together.

    Attributes:
        original: the user's object.
        names: names of its parts.
        make: function from the original and its parts by name to an object like the original.
    """

    original: Any
    names: tuple[str, ...]
    make: Callable[[Any, dict[str, Any]], Any]

    def build(self, parts: Iterable[Any]) -> Any:
        """An object like the original that holds these parts."""
        return self.make(self.original, dict(zip(self.names, parts, strict=True)))

    def path(self, name: str) -> str:
        """The place of a part, as messages show it."""
        return f".{name}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rebuilt) and self.original is other.original and self.names == other.names

    def __hash__(self) -> int:
        return hash((id(self.original), self.names))


def open_held(model: Any, opener: Opener, is_array: Callable[[Any], bool]) -> Opened | None:
    """A model taken apart; None where it holds no array.

    Args:
        model: the user's model.
        opener: opener of the framework.
        is_array: whether a leaf of what the opener makes is an array.
    """
    module = getattr(_innermost(model), "__module__", None)
    found = _open(model, opener, is_array, module, (), DEPTH)
    return found if isinstance(found, Opened) else None


def _open(
    value: Any, opener: Opener, is_array: Callable[[Any], bool], module: str | None, above: tuple[Any, ...], depth: int
) -> Any:
    """Contents of a model, taken apart where they lead to an array; else ``NOTHING``."""
    own = (id(value.__self__), "method") if isinstance(value, types.MethodType) else (id(value), "")
    if not depth or own in above:  # a function may hold itself, and an object methods of its own
        return NOTHING
    parts, make = _parts(value, module)
    if make is None:
        opened = opener.open(value)
        return opened if _leads_to(opened, opener, is_array) else NOTHING
    inner = {name: _open(x, opener, is_array, module, (*above, own), depth - 1) for name, x in parts.items()}
    found = {name: x for name, x in inner.items() if x is not NOTHING}
    return Opened(tuple(found.values()), Rebuilt(value, tuple(found), make)) if found else NOTHING


def _parts(value: Any, module: str | None) -> tuple[dict[str, Any], Callable[[Any, dict[str, Any]], Any] | None]:
    """Values that a function or a callable object holds, by name; and how to make one like it with other values."""
    if isinstance(value, functools.partial):
        places = {f"args[{i}]": x for i, x in enumerate(value.args)}
        return {"func": _function_of(value), **places, **value.keywords}, _partial
    if isinstance(value, types.MethodType):
        if _is_plain(value.__self__):
            return dict(vars(value.__self__)), _method_of_object
        return {"self": value.__self__}, lambda method, new: types.MethodType(method.__func__, new["self"])
    if isinstance(value, types.FunctionType):
        return (_cells(value), _function) if value.__module__ == module else ({}, None)
    if callable(value) and not isinstance(value, type) and hasattr(value, "__dict__"):
        return dict(vars(value)), _object
    return {}, None


def _partial(original: Any, new: dict[str, Any]) -> Any:
    args = [new.get(f"args[{i}]", x) for i, x in enumerate(original.args)]
    keywords = {name: new.get(name, x) for name, x in original.keywords.items()}
    made = functools.partial(new.get("func", _function_of(original)), *args, **keywords)
    vars(made).update(vars(original))
    return made


def _function_of(partial: functools.partial[Any]) -> Callable[..., Any]:
    """The function of a partial, also of a class that has another attribute of that name (Pyro's handlers do)."""
    return functools.partial.func.__get__(partial)  # type: ignore[attr-defined]


def _cells(function: types.FunctionType) -> dict[str, Any]:
    """Values in a function's closure."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not filled yet
            continue
    return found


def _function(original: types.FunctionType, new: dict[str, Any]) -> types.FunctionType:
    cells = zip(original.__code__.co_freevars, original.__closure__ or (), strict=True)
    closure = tuple(types.CellType(new[name]) if name in new else cell for name, cell in cells)
    made = types.FunctionType(
        original.__code__, original.__globals__, original.__name__, original.__defaults__, closure
    )
    made.__kwdefaults__ = original.__kwdefaults__
    functools.update_wrapper(made, original)
    return made


def _is_plain(value: Any) -> bool:
    """Whether a value is an object of classes written in Python, and itself no model and no container."""
    is_other = isinstance(value, type | types.SimpleNamespace) or callable(value) or dataclasses.is_dataclass(value)
    return not is_other and hasattr(value, "__dict__") and all(map(_is_plain_class, type.mro(type(value))[:-1]))


def _is_plain_class(kind: type) -> bool:
    """Whether a class was written in Python, and its objects hold all that they hold in their ``__dict__``."""
    slots = {"__dict__", "__weakref__"}
    return bool(kind.__flags__ & WRITTEN_IN_PYTHON) and set(vars(kind).get("__slots__", ())) <= slots


def _method_of_object(method: types.MethodType, new: dict[str, Any]) -> types.MethodType:
    """The same method of a new object with other values, made without running any code of its class."""
    original = method.__self__
    made = object.__new__(type(original))
    for name, held in (vars(original) | new).items():
        is_own = isinstance(held, types.MethodType) and held.__self__ is original  # such as a link chosen among them
        vars(made)[name] = types.MethodType(held.__func__, made) if is_own else held
    return types.MethodType(method.__func__, made)


def _object(original: Any, new: dict[str, Any]) -> Any:
    made = copy.copy(original)
    vars(made).update(new)
    return made


def _leads_to(opened: Any, opener: Opener, is_array: Callable[[Any], bool]) -> bool:
    """Whether there is an array among the leaves of something opened."""
    found = False

    def look(leaf: Any) -> Any:
        nonlocal found
        found = found or is_array(leaf) or isinstance(leaf, Given | Opened)
        return leaf

    opener.tree_map(look, opened, is_leaf=lambda x: isinstance(x, Opened))
    return found


def _innermost(model: Any) -> Any:
    """The function at the bottom of partials and handlers."""
    for _ in range(DEPTH):
        if isinstance(model, functools.partial):
            callables = [x for x in (model.func, *model.args) if isinstance(x, types.FunctionType | types.MethodType)]
            model = callables[-1] if callables else model.func
        elif callable(getattr(model, "fn", None)):
            model = model.fn
        else:
            break
    return model
