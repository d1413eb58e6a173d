"""Rules for arguments that are one value. Each failure names the argument, the rule and the value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from split_common.values import finite_number, is_name, shown, whole_number

MAX_COUNT = 2**31 - 1  # steps and batches are counted in 32 bits on a device


def check_positive_int(name: str, value: Any, at_most: int | None = None) -> int:
    """Return ``value`` as an int, or raise unless it is a whole number of at least 1, and at most ``at_most``."""
    number = whole_number(value)
    if number is None or number < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {shown(value)}")
    if at_most is not None and number > at_most:
        raise ValueError(f"{name} must be at most {at_most}, got {shown(value)}")
    return number


def check_chain(chain: Any, num_chains: int) -> int:
    """Return ``chain`` as an int, or raise unless it is the number of one of so many chains, counted from 0."""
    number = whole_number(chain)
    if number is None or not 0 <= number < num_chains:
        raise ValueError(f"chain must be a whole number from 0 to {num_chains - 1}, got {shown(chain)}")
    return number


def check_positive_float(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise unless it is finite and above 0."""
    number = finite_number(value)
    if number is None or number <= 0:
        raise ValueError(f"{name} must be a finite number above 0, got {shown(value)}")
    return number


def check_probability(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise unless it lies strictly between 0 and 1."""
    number = finite_number(value)
    if number is None or not 0 < number < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {shown(value)}")
    return number


def check_fraction(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise unless it is at least 0 and below 1."""
    number = finite_number(value)
    if number is None or not 0 <= number < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {shown(value)}")
    return number


def check_flag(name: str, value: Any) -> bool:
    """Return ``value`` as a bool, or raise unless it is one, of Python's kind or NumPy's."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Return ``value``, or raise unless it is one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {list(choices)}, got {shown(value)}")
    return value


def check_optional_choice(name: str, value: Any, choices: Sequence[str]) -> str | None:
    """Return ``value``, or raise unless it is None or one of ``choices``."""
    if value is not None and (not isinstance(value, str) or value not in choices):
        raise ValueError(f"{name} must be one of {list(choices)}, or None, got {shown(value)}")
    return value


def check_callable(name: str, value: Any) -> Any:
    """Return ``value``, or raise unless it can be called."""
    if not callable(value):
        raise TypeError(f"{name} must be callable, got {type(value).__name__} {shown(value)}")
    return value


def check_site_names(name: str, value: Any) -> list[str] | None:
    """Return ``value`` as a list, or None; raise unless it is a sequence of at least one name, each once."""
    if value is None:
        return None
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str)
    if not is_sequence or not value or not all(is_name(site) for site in value) or len(set(value)) < len(value):
        raise ValueError(f"{name} must be None or a list of site names, each once, got {shown(value)}")
    return list(value)


def check_model_arguments(args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a model's arguments, or raise unless they are a tuple or a list, and a mapping or None."""
    if not isinstance(args, tuple | list):
        raise TypeError(f"model_args must be a tuple of the model's arguments, got {type(args).__name__}")
    if not isinstance(kwargs, Mapping | None):
        raise TypeError(f"model_kwargs must be a dict of the model's arguments, or None, got {type(kwargs).__name__}")
    return tuple(args), dict(kwargs or {})
