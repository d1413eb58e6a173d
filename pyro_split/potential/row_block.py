"""Some rows of the data, such as those of a subset."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from split_common.subsets import SubsetLayout


class RowBlock(NamedTuple):
    """Some rows of the data.

    Attributes:
        indices: row numbers, shape (n,).
        start: first row where the rows are contiguous (they are then cut out without a copy), else None.
    """

    indices: Tensor
    start: int | None = None

    def take(self, x: Tensor, axis: int) -> Tensor:
        """These rows of ``x``."""
        if self.start is not None:
            return x.narrow(axis, self.start, len(self.indices))
        return x.index_select(axis, self.indices.to(x.device))


def subset_block(layout: SubsetLayout, m: int) -> RowBlock:
    """The rows of subset ``m``."""
    indices = torch.as_tensor(layout.rows(m))
    return RowBlock(indices, int(layout.starts[m]) if layout.permutation is None else None)
