"""Some rows of the data, such as those of a subset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from pyro_split.potential.position import Position
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

    def local(self, z: Position, axes: Mapping[str, int]) -> Position:
        """``z`` with sites that have an entry for every row cut to these rows.

        Args:
            z: values by site.
            axes: the axis of the rows in each such site.
        """
        return {name: self.take(u, axes[name]) if name in axes else u for name, u in z.items()}

    def spread(self, grad: Position, z: Position, axes: Mapping[str, int]) -> Position:
        """Gradient in ``z``, from that in :meth:`local` of ``z``: summed over repeated rows, 0 for other rows."""
        full = dict(grad)
        for name, axis in axes.items():
            full[name] = torch.zeros_like(z[name]).index_add(axis, self.indices.to(z[name].device), grad[name])
        return full


def subset_block(layout: SubsetLayout, m: int, first: int = 0) -> RowBlock:
    """The rows of subset ``m``, where the first of all rows has the number ``first``."""
    indices = first + torch.as_tensor(layout.rows(m))
    return RowBlock(indices, first + int(layout.starts[m]) if layout.permutation is None else None)
