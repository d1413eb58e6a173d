"""Classes and texts of values from outside. No function here fails, whatever the value does."""

from __future__ import annotations

import functools
import math
import numbers
import reprlib
from typing import Any

import numpy as np

MAX_SHOWN = 1000  # characters of a value in a message


class _Shortener(reprlib.Repr):
    """Shortens what has very many entries, and leaves everything else as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdict = self.maxdeque = 50
        self.maxstring = self.maxlong = self.maxother = MAX_SHOWN


def shown(value: Any) -> str:
    """The repr of a value, shortened where it is long; of a value without one, its type.

    Example:
        >>> shown("1e-3"), len(shown(list(range(10**5)))) < 300
        ("'1e-3'", True)
    """
    try:
        short = _Shortener().repr(value)
        if "..." in short:  # it was shortened, or holds three dots itself
            return short
        text = repr(value)  # in its own order, which sets and dicts lose when they are shortened
        return text if len(text) <= 4 * MAX_SHOWN else short
    except Exception:
        size = f" of {value.bit_length()} bits" if isinstance(value, int) else ""
        return f"<{type(value).__name__}{size} that has no repr>"


def whole_number(value: Any) -> int | None:
    """A whole number, or an array of no dimension that holds one, as an int; None for anything else, and for a bool."""
    plain = _plain_number(value)
    return int(plain) if isinstance(plain, numbers.Integral) else None


def finite_number(value: Any) -> float | None:
    """A finite real number, or an array of no dimension that holds one, as a float; None for anything else.

    Neither a bool nor text that reads as a number is one.
    """
    plain = _plain_number(value)
    try:
        found = math.nan if plain is None else float(plain)
    except (OverflowError, TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def real_array(value: Any) -> np.ndarray | None:
    """Real numbers as a float64 array; None for anything else.

    Args:
        value: an array of any framework whose entries are real numbers and not bools, a (nested) list or tuple of
            such numbers, or one number.
    """
    try:
        with np.errstate(all="ignore"):
            if isinstance(value, list | tuple):
                array = np.array(value if _holds_numbers(value) else None)
            elif hasattr(value, "dtype") and hasattr(value, "shape"):
                array = as_numpy(value)
            else:
                array = np.array(_plain_number(value))
            return array.astype(np.float64) if array.dtype.kind in "iuf" else None
    except Exception:
        return None


def as_numpy(value: Any) -> np.ndarray:
    """A value as an array, if NumPy can make one of it: an array of any framework, or a (nested) list."""
    if hasattr(value, "detach"):  # a tensor, which a gradient may follow and which may lie on a device
        value = value.detach().cpu()
    try:
        array = np.asarray(value)
    except TypeError:  # a tensor of a number format that NumPy lacks
        array = np.asarray(value.tolist())
    if array.dtype.kind == "V" and array.dtype.names is None:  # such a format, which another library brings to NumPy
        array = array.astype(np.float64)
    return array


def copied(array: Any) -> Any:
    """An array of the same kind that does not change where the user changes theirs in place."""
    return array.detach().clone() if hasattr(array, "detach") else array.copy()


def is_name(value: Any) -> bool:
    """Whether a value is text of at least one character."""
    return isinstance(value, str) and len(value) > 0


def name_of(value: Any) -> str:
    """Name of a function, or the class of an object without a name."""
    while isinstance(value, functools.partial):
        value = value.func
    try:
        name = value.__name__
    except Exception:
        name = None
    return name if isinstance(name, str) else type(value).__name__


def describe_kernel(kernel: object, model: Any, num_subsets: int | str, plate: str | None, details: list[str]) -> str:
    """The repr of a kernel, in one line.

    Args:
        kernel: the kernel.
        model: a function, or an object in place of one.
        num_subsets: M, or "auto" before it is chosen.
        plate: the kernel's argument ``plate``.
        details: parts that only some kernels have.
    """
    parts = [f"model={name_of(model)}", f"num_subsets={shown(num_subsets)}", f"plate={shown(plate)}", *details]
    return f"{type(kernel).__name__}({', '.join(parts)})"


def _plain_number(value: Any) -> Any:
    """A real number of Python's or NumPy's own kind; None for anything else."""
    try:
        if getattr(getattr(value, "dtype", None), "kind", None) in ("m", "M"):
            return None  # NumPy counts a span of time among the whole numbers
        if not isinstance(value, numbers.Real) and tuple(getattr(value, "shape", (None,))) == ():
            value = value.item()
        return value if isinstance(value, numbers.Real) and not isinstance(value, bool) else None
    except Exception:
        return None


def _holds_numbers(value: list[Any] | tuple[Any, ...]) -> bool:
    kinds = set(map(type, value))
    if kinds <= {list, tuple}:
        return all(_holds_numbers(row) for row in value)
    return all(
        issubclass(kind, int | float | np.integer | np.floating) and not issubclass(kind, bool | np.timedelta64)
        for kind in kinds
    )
