"""What rounding to a type of fewer digits costs a column, measured by the column's own spread.

Numbers that lie far from zero and close together, as times since long ago, are told apart only roughly by such a type.
"""

from __future__ import annotations

from typing import Any

import numpy as np

SAMPLED = 4096  # rows that are looked at
MOST_ROUNDING = 1e-3  # of a column's standard deviation that such numbers may be off by, root mean square


def may_round(made: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Whether a floating type has too few digits for numbers of another type.

    Args:
        made: type of the numbers.
        dtype: type that they are to have.

    Example:
        >>> may_round(np.dtype("int32"), np.dtype("float32")), may_round(np.dtype("int16"), np.dtype("float32"))
        (True, False)
    """
    if dtype.kind != "f" or made.kind not in "iuf":
        return False
    if made.kind == "f":
        return made.itemsize > dtype.itemsize
    return np.iinfo(made).bits - (made.kind == "i") > np.finfo(dtype).nmant + 1


def rounding_of(x: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Root mean square error of rounding each column to a type, as a share of its standard deviation.

    Args:
        x: numbers, whose columns lie along the first axis; of many rows a sample, evenly spaced, is looked at.
        dtype: type of fewer digits.

    Returns:
        The shares, shape (columns,); 0 for a column that is constant or not finite.

    Example:
        >>> times = np.array([[1e9, 0.0], [1e9 + 10.0, 10.0]])
        >>> (rounding_of(times, np.dtype(np.float32)) > 0.1).tolist()
        [True, False]
    """
    some = x[np.unique(np.linspace(0, len(x) - 1, min(len(x), SAMPLED)).astype(int))]
    columns = some.reshape(len(some), -1)
    exact = columns.astype(np.longdouble)  # 64-bit whole numbers have more digits than float64
    with np.errstate(all="ignore"):
        error = np.sqrt(((columns.astype(dtype) - exact) ** 2.0).mean(0))
        share = (error / exact.std(0)).astype(float)
    return np.where(np.isfinite(share) & (np.ptp(columns, 0) > 0), share, 0.0)
