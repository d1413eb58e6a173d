"""Advice in messages about models that read data values with Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def must_not_read(sources: Sequence[str]) -> str:
    """The message for a model that reads values of data whose rows lie in sources, given the arguments' names."""
    return (
        f"rows of {', '.join(map(repr, sources))} are read subset by subset, so the model must not read values of its "
        "data with Python, as in int(y.max()), got one that does: compute them once outside, and pass them as arguments"
    )


def reading_advice(readings: Sequence[tuple[str, np.ndarray, Sequence[str]]]) -> str:
    """Advice about values that a model reads with Python, each with its line and the data that it depends on."""
    listed = []
    for line, value, names in readings:
        data = " and ".join(map(repr, names)) or "constants"
        what = f"an array of shape {value.shape}" if value.ndim else f"{value.item()!r}"
        count = f" ({len(np.unique(value))} different values)" if value.ndim and value.dtype.kind in "biu" else ""
        listed.append(f"{line}: Python reads {what}{count} from {data}")
    if not listed:
        return ""
    return f"; {'; '.join(listed)}: compute what the model needs of it outside, on all rows, and pass it as an argument"
