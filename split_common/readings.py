"""Values that a model reads from its data with Python: what is said of them where a model does not divide."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def reading_advice(readings: Sequence[tuple[str, np.ndarray, Sequence[str]]]) -> str:
    """Advice about values that a model reads with Python, each with its line and the data that it rests on."""
    listed = []
    for line, value, names in readings:
        data = " and ".join(map(repr, names)) or "constants"
        what = f"an array of shape {value.shape}" if value.ndim else f"{value.item()!r}"
        count = f" ({len(np.unique(value))} different values)" if value.ndim and value.dtype.kind in "biu" else ""
        listed.append(f"{line}: Python reads {what}{count} from {data}")
    if not listed:
        return ""
    return f"; {'; '.join(listed)}: compute what the model needs of it outside, on all rows, and pass it as an argument"
