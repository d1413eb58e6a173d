"""Options that many constructors share: written once, shown in the signature of each."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Constructor = TypeVar("Constructor", bound=Callable[..., None])


def is_default(value: Any) -> bool:
    """Whether an argument was left to be chosen by the others.

    Example:
        >>> is_default("default"), is_default(None)
        (True, False)
    """
    return isinstance(value, str) and value == "default"


def with_options(defaults: Mapping[str, Any]) -> Callable[[Constructor], Constructor]:
    """Give a constructor that takes ``**options`` their names and defaults.

    Its signature lists them as keyword-only arguments, a call that leaves one out passes the default on, and a name
    that is none of them is a ``TypeError``, as if all had been written out.

    Args:
        defaults: the options and their defaults.

    Example:
        >>> class Kernel:
        ...     @with_options({"step_size": 1.0})
        ...     def __init__(self, model, **options):
        ...         self.options = options
        >>> inspect.signature(Kernel)
        <Signature (model, *, step_size=1.0)>
        >>> Kernel(print).options
        {'step_size': 1.0}
    """

    def decorate(init: Constructor) -> Constructor:
        signature = inspect.signature(init)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        shared = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=x) for name, x in defaults.items()]

        @functools.wraps(init)
        def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
            for name in kwargs:
                if name not in defaults and name not in signature.parameters:
                    raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument {name!r}")
            init(self, *args, **{**defaults, **kwargs})

        wrapped.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
        return wrapped  # type: ignore[return-value]

    return decorate
