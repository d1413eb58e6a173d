"""What rounding to a type of fewer bits costs a column, measured by the column's own spread.

Numbers that lie far from zero and close together, as times since long ago, are told apart only roughly by such a type.
"""

from __future__ import annotations

from typing import Any

import numpy as np

SAMPLED = 4096  # rows that are looked at


def rounding_of(x: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Root mean square error of rounding each column to a type, as a share of its standard deviation.

    Args:
        x: numbers, whose columns lie along the first axis; of many rows a sample, evenly spaced, is looked at.
        dtype: type of fewer bits.

    Returns:
        The shares, shape (columns,); 0 for a column that is constant or not finite.

    Example:
        >>> times = np.array([[1e9, 0.0], [1e9 + 10.0, 10.0]])
        >>> (rounding_of(times, np.dtype(np.float32)) > 0.1).tolist()
        [True, False]
    """
    some = x[np.unique(np.linspace(0, len(x) - 1, min(len(x), SAMPLED)).astype(int))]
    columns = some.reshape(len(some), -1)
    with np.errstate(all="ignore"):
        error = np.sqrt(((columns.astype(dtype) - columns) ** 2.0).mean(0))
        share = error / columns.std(0, dtype=np.float64)
    return np.where(np.isfinite(share) & (np.ptp(columns, 0) > 0), share, 0.0)
