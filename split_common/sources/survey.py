r"""One pass over all rows of a source: their digest, the rows with extreme values, and whether they are sorted.

Rows that are sorted, by a label or by time, make subsets that differ, and splitting then takes short steps. With the
means of a column in G stretches of n rows each,

.. math:: F = \frac{n}{G - 1} \sum_g (\bar x_g - \bar x)^2 \Big/ \widehat{\operatorname{var}}(x)

is about 1 for rows in random order; with G of 64 it exceeds 3 by chance once in more than 10¹².
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from split_common.digest import Digest
from split_common.subsets import MOST_COLUMNS

BYTES_AT_A_TIME = 2**24
MOST_STRETCHES = 64
ROWS_COMPARED = 4096  # rows of each stretch that are compared
LARGEST_F = 10.0  # largest F of a column without a warning


class Survey(NamedTuple):
    """Knowledge of all rows.

    Attributes:
        digest: digest of their type, shape and content, in hexadecimal, the same as for an array in memory.
        extremes: numbers of rows that have the smallest or the largest value of a column.
        f: the largest F of a column.
    """

    digest: str
    extremes: np.ndarray
    f: float


def survey(read: Callable[[int, int], np.ndarray], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Survey:
    """Read all rows once, some at a time.

    Args:
        read: function from the number of a first row, and of the row after the last, to these rows.
        shape: shape of all rows.
        dtype: type of their numbers.
    """
    digest, extremes, means = Digest(), Extremes(), []
    digest.begin_array(dtype, shape)
    num_rows = shape[0]
    stretches = min(MOST_STRETCHES, max(1, num_rows // 32))
    row_bytes = max(1, int(np.prod(shape[1:])) * dtype.itemsize)
    step = max(1, BYTES_AT_A_TIME // row_bytes)
    edges = np.linspace(0, num_rows, stretches + 1).astype(int)
    for first, last in pairwise(map(int, edges)):
        compared: np.ndarray | None = None
        for start in range(first, last, step):
            rows = read(start, min(start + step, last))
            digest.add_bytes(rows)
            columns = rows.reshape(len(rows), -1)[:, :MOST_COLUMNS]
            extremes.see(columns, start)
            compared = columns[:ROWS_COMPARED] if compared is None else compared
        if compared is not None:
            values = compared.astype(np.float64) if dtype.kind != "c" else np.abs(compared)
            means.append((len(values), values.mean(0), values.var(0)))
    return Survey(digest.key, extremes.rows(), _largest_f(means))


class Extremes:
    """The rows that hold the smallest and the largest value of each column so far."""

    def __init__(self) -> None:
        self._best: list[np.ndarray] = []
        self._rows: list[np.ndarray] = []

    def see(self, columns: np.ndarray, first: int) -> None:
        """Take in more rows, shape (n, number of columns); the first of them has the number ``first``."""
        if columns.dtype.kind not in "biuf" or not columns.size:
            return
        now = [columns.min(0), columns.max(0)]
        if not self._best:
            self._best = [x.copy() for x in now]
            self._rows = [first + columns.argmin(0), first + columns.argmax(0)]
            return
        for place, (is_better, where) in enumerate(((np.less, np.argmin), (np.greater, np.argmax))):
            for column in np.flatnonzero(is_better(now[place], self._best[place])):
                self._best[place][column] = now[place][column]
                self._rows[place][column] = first + where(columns[:, column])

    def rows(self) -> np.ndarray:
        """Numbers of these rows."""
        return np.concatenate(self._rows) if self._rows else np.zeros(0, int)


def _largest_f(means: list[tuple[int, np.ndarray, np.ndarray]]) -> float:
    if len(means) < 2 or not means[0][1].size:
        return 0.0
    counts = np.array([count for count, _, _ in means], float)[:, None]
    by_stretch, within = np.stack([mean for _, mean, _ in means]), np.stack([var for _, _, var in means])
    mean = (counts * by_stretch).sum(0) / counts.sum()
    between = (counts * (by_stretch - mean) ** 2).sum(0)
    total = ((counts * within).sum(0) + between) / counts.sum()
    f = between / (len(means) - 1) / np.where(total > 0, total, np.inf)
    return float(np.nan_to_num(f, nan=0.0).max())
