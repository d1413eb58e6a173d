"""Options that the constructors of many kernels share: written once, shown in the signature of each."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, TypeVar

Constructor = TypeVar("Constructor", bound=Callable[..., None])


class DivisionOptions(TypedDict, total=False):
    """Options of every kernel: how its model is divided. What each option means is in the docstring of a kernel."""

    memory: int | str | None
    plate: str | None
    data_axes: dict[str, int | None] | None
    init_strategy: Callable[..., Any]


class AdaptationOptions(TypedDict, total=False):
    """Options of every kernel that adapts a step size and a mass matrix, except those that take the host's names."""

    step_size: float
    adapt_step_size: bool
    adapt_mass_matrix: bool
    inverse_mass_matrix: Any
    find_heuristic_step_size: bool


class HamiltonianOptions(TypedDict, total=False):
    """Options of every kernel that follows Hamilton's equations over subsets."""

    target_accept_prob: float
    metric: str | None
    center: Any
    center_order: int | None
    subset_order: str


ADAPTATION_DEFAULTS: AdaptationOptions = {
    "step_size": 1.0,
    "adapt_step_size": True,
    "adapt_mass_matrix": True,
    "inverse_mass_matrix": None,
    "find_heuristic_step_size": True,
}
HAMILTONIAN_DEFAULTS: HamiltonianOptions = {
    "target_accept_prob": 0.8,
    "metric": None,
    "center": None,
    "center_order": None,
    "subset_order": "sequential",
}


def with_recommended(options: Mapping[str, Any], dense_name: str, learns_length: bool) -> Any:
    """Options in which "default" is replaced by what is recommended, where the other arguments allow it.

    Args:
        options: as the constructor was given them, with defaults.
        dense_name: the host's name of the argument for a dense mass matrix.
        learns_length: whether the lengths of trajectories are left to warm-up.

    Example:
        >>> given = {"dense_mass": False, "adapt_mass_matrix": True, "metric": "default", "drift": "default"}
        >>> chosen = with_recommended(given, "dense_mass", learns_length=False)
        >>> chosen["metric"], chosen["drift"]
        ('auto', None)
    """
    chosen = dict(options)
    if _is_default(options["metric"]):
        leaves_room = options[dense_name] is False and options["adapt_mass_matrix"] is True
        chosen["metric"] = "auto" if leaves_room else None
    if _is_default(options["drift"]):
        chosen["drift"] = "auto" if chosen["metric"] is not None and learns_length else None
    return chosen


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


def _is_default(value: Any) -> bool:
    """Whether an argument, which may be an array, is "default", to be chosen from the others."""
    return isinstance(value, str) and value == "default"
