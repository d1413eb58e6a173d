"""Which rows each subset holds."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np

from split_common.checks import check_choice, check_positive_int
from split_common.values import shown, whole_number

SUBSET_ORDERS = ("sequential", "shuffled")
SHUFFLE_SEED = 0
MOST_COLUMNS = 256  # columns of an array whose extreme values are looked for


class SubsetLayout:
    """A fixed division of N rows into M subsets whose sizes differ by at most one.

    Args:
        num_rows: N.
        num_subsets: M, from 1 to N.
        subset_order: "sequential" cuts the rows as they stand; "shuffled" deals them by a fixed seed first,
            which makes subsets of sorted data alike.

    Raises:
        ValueError: for M below 1 or above N, or an unknown order.

    Example:
        >>> SubsetLayout(10, 4).sizes
        (3, 3, 2, 2)
    """

    def __init__(self, num_rows: int, num_subsets: int, subset_order: str = "sequential"):
        self.num_rows = num_rows
        self.num_subsets = check_num_subsets(num_subsets, num_rows)
        self.subset_order = check_choice("subset_order", subset_order, SUBSET_ORDERS)
        small, extra = divmod(num_rows, self.num_subsets)
        self.sizes = (small + 1,) * extra + (small,) * (self.num_subsets - extra)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SubsetLayout) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def key(self) -> tuple[int, int, str]:
        """Key that tells one division from another."""
        return self.num_rows, self.num_subsets, self.subset_order

    @property
    def even(self) -> bool:
        """Whether every subset holds the same number of rows."""
        return self.sizes[0] == self.sizes[-1]

    @cached_property
    def starts(self) -> np.ndarray:
        """First position of each subset, shape (M,)."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]])

    @cached_property
    def permutation(self) -> np.ndarray | None:
        """Row at each position, shape (N,), or None where rows stay as they stand."""
        if self.subset_order == "sequential":
            return None
        return np.random.default_rng(SHUFFLE_SEED).permutation(self.num_rows)

    def rows(self, subset: int) -> np.ndarray:
        """Rows of one subset, shape (size,)."""
        positions = np.arange(self.starts[subset], self.starts[subset] + self.sizes[subset])
        return positions if self.permutation is None else self.permutation[positions]


def extreme_rows(
    columns: Iterable[np.ndarray],
    size: int,
    num_rows: int,
    known: np.ndarray = np.zeros(0, int),  # noqa: B008
) -> np.ndarray:
    """A sample of rows: those with the smallest and the largest value of each column, and random ones.

    Args:
        columns: arrays of data, with the rows along axis 0.
        size: number of rows to take, at most ``num_rows``.
        num_rows: number of all rows.
        known: numbers of further rows with extreme values, from data that are not in memory.

    Returns:
        Row numbers in order, shape (size,).

    Example:
        >>> 7 in extreme_rows([np.arange(100.0) == 7], 5, 100)
        True
    """
    chosen: dict[int, None] = dict.fromkeys(map(int, known))
    for array in columns:
        by_column = array.reshape(num_rows, -1)[:, :MOST_COLUMNS]
        if by_column.size and by_column.dtype.kind in "biuf":
            chosen.update(dict.fromkeys(map(int, [*by_column.argmin(0), *by_column.argmax(0)])))
    rng, chosen = np.random.default_rng(SHUFFLE_SEED), dict.fromkeys(list(chosen)[: size // 2])
    chosen.update(dict.fromkeys(map(int, rng.choice(num_rows, size, replace=False, shuffle=False))))
    return np.sort(list(chosen)[:size])


def warn_if_sorted(layout: SubsetLayout, observed: Iterable[tuple[str, Any]]) -> None:
    """Warn when an observed column is sorted, so that subsets cut as they stand would differ.

    Args:
        layout: the division of the rows.
        observed: name and value of each observed site in the data plate; None for an unknown value.
    """
    if layout.permutation is not None or layout.num_subsets == 1:
        return
    for name, value in observed:
        if value is not None and _is_sorted(np.asarray(value)):
            warnings.warn(
                f"the observations {name!r} are sorted, so the {layout.num_subsets} subsets differ and acceptance "
                "suffers; pass subset_order='shuffled'",
                stacklevel=2,
            )


def _is_sorted(labels: np.ndarray) -> bool:
    if labels.ndim != 1 or labels.size < 20 or labels[0] == labels[-1]:
        return False
    low, high = (labels[:-1], labels[1:]) if labels[-1] > labels[0] else (labels[1:], labels[:-1])
    return bool(np.all(low <= high))  # compared: truths have no differences, and those of few bits wrap round


def check_num_subsets(num_subsets: Any, num_rows: int) -> int:
    """Return ``num_subsets``, or raise unless every subset gets at least one of ``num_rows`` rows."""
    number = check_positive_int("num_subsets", num_subsets)
    if number > num_rows:
        raise ValueError(
            f"num_subsets must be at most the number of rows in the data plate, {num_rows}, got {shown(num_subsets)}"
        )
    return number


def check_subset(m: Any, num_subsets: int) -> int:
    """Return ``m`` as an int, or raise unless it is the number of one of so many subsets, counted from 0."""
    number = whole_number(m)
    if number is None or not 0 <= number < num_subsets:
        raise ValueError(f"m must be a whole number from 0 to {num_subsets - 1}, got {shown(m)}")
    return number


def check_rows(indices: Any, num_rows: int) -> np.ndarray:
    """Return ``indices`` as an array, or raise unless they are row numbers, of shape (n,), counted from 0.

    Example:
        >>> check_rows(range(3), 5)
        array([0, 1, 2])
    """
    numbers = np.asarray(indices)
    if numbers.ndim != 1 or not numbers.size or numbers.dtype.kind not in "iu":
        raise ValueError(f"indices must be whole numbers of rows, at least one, of shape (n,), got {shown(indices)}")
    if not 0 <= numbers.min() <= numbers.max() < num_rows:
        raise ValueError(f"indices must lie from 0 to {num_rows - 1}, got {shown(indices)}")
    return numbers


def check_values_of_rows(shape: tuple[int, ...], num_rows: int) -> None:
    """Raise unless ``log_likelihood`` returned one value for each row, or their sum.

    Example:
        >>> check_values_of_rows((), 5)
        >>> check_values_of_rows((5,), 5)
    """
    if shape not in ((), (num_rows,)):
        raise ValueError(
            f"log_likelihood must return one value for each row, shape ({num_rows},), or their sum, got shape {shape}"
        )
