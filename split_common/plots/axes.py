"""Axes and colours of the figures, and checks of the arrays that users give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from split_common.values import as_numpy

RIGHT_COLOUR, WRONG_COLOUR = "#2b6cb0", "#c05621"
COLOURS = (RIGHT_COLOUR, WRONG_COLOUR, "#2f855a", "#6b46c1")
DATA_COLOUR, PRIOR_COLOUR = "#1a202c", "#4a5568"


def axes_or_new(ax: Any) -> Any:
    """The axes, or those of a new figure."""
    if ax is not None:
        return ax
    from matplotlib.figure import Figure

    return Figure(layout="constrained").add_subplot()


def check_by_name(name: str, values: Any) -> None:
    """Raise unless the values are a mapping."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{name} must be a mapping from names, got {type(values).__name__}")


def numbers(values: Any) -> np.ndarray:
    """The values in float64; of a tensor whose gradient is followed too."""
    return np.asarray(as_numpy(values) if hasattr(values, "detach") else values, dtype=np.float64)


def vector(name: str, values: np.ndarray, signed: bool = False) -> np.ndarray:
    """The values in float64, if they are finite, along one axis and, unless signed, not below 0."""
    array = numbers(values)
    if array.ndim != 1:
        raise ValueError(f"{name} must have one axis, got shape {array.shape}")
    allowed = np.isfinite(array) & (signed | (array >= 0))
    if not np.all(allowed):
        raise ValueError(f"{name} must be finite{'' if signed else ' and at least 0'}, got {array[~allowed][0]}")
    return array
