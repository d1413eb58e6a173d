"""Drawing a few rows from many, in time that does not grow with their total number."""

from __future__ import annotations

import torch
from torch import Tensor

from split_common.minibatches import draws_by_permutation, draws_with_replacement


def draw_rows(num_rows: int, size: int) -> Tensor:
    """``size`` distinct row numbers below ``num_rows``, drawn uniformly, in random order; the work is O(size).

    Rows are drawn with replacement, and repeats are drawn again until there are none. Each round treats all row
    numbers alike, so every ordered choice of distinct rows is as likely as any other.
    """
    if draws_by_permutation(num_rows, size):
        return torch.randperm(num_rows)[:size]
    rows, repeats = torch.zeros(size, dtype=torch.long), torch.ones(size, dtype=torch.bool)
    while bool(repeats.any()):
        rows[repeats] = torch.randint(num_rows, (int(repeats.sum()),))
        repeats = _repeats(rows)
    return rows


def draw_minibatch(num_rows: int, size: int) -> Tensor:
    """``size`` row numbers below ``num_rows``, each of the same probability; distinct unless they are a small part."""
    return torch.randint(num_rows, (size,)) if draws_with_replacement(num_rows, size) else draw_rows(num_rows, size)


def _repeats(rows: Tensor) -> Tensor:
    """Which entries repeat another entry; of each value one entry is not a repeat."""
    in_order, order = torch.sort(rows, stable=True)
    repeats = torch.zeros(len(rows), dtype=torch.bool)
    repeats[order[1:]] = in_order[1:] == in_order[:-1]
    return repeats
