"""Rows that are read from sources, as tensors (:mod:`split_common.sources`).

Where rows are needed all sources are read at once, and a thread reads the next subset meanwhile. Where a model is run
on all rows, as for its prior, an expanded zero, which takes no memory, stands for a source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyro_split.potential.row_block import RowBlock
from split_common.sources.reader import reader_of
from split_common.sources.rows import Source


def is_source(x: Any) -> bool:
    """Whether a leaf of the arguments is a source."""
    return isinstance(x, Source)


def is_sparse(x: Any) -> bool:
    """Whether an argument is a sparse tensor, which cannot be cut to some rows."""
    return isinstance(x, Tensor) and x.layout != torch.strided


def sources_in(data: Sequence[Any]) -> tuple[Source, ...]:
    """The sources among data tensors."""
    return tuple(x for x in data if isinstance(x, Source))


def take(block: RowBlock, data: Sequence[Any], axes: Sequence[int | None]) -> tuple[Tensor, ...]:
    """Data cut to some rows, which are read where the data are a source.

    Args:
        block: numbers of the rows.
        data: tensors, and sources in place of some.
        axes: the axis of the rows in each; None where it holds none.
    """
    rows = iter(_read(sources_in(data), block))
    return tuple(
        next(rows) if isinstance(x, Source) else x if axis is None else block.take(x, axis)
        for x, axis in zip(data, axes, strict=True)
    )


def placeholder(x: Any) -> Tensor:
    """A tensor of a source's shape, with no values of its own; a tensor as it is."""
    return torch.zeros((), dtype=_dtype(x)).expand(x.shape) if isinstance(x, Source) else x


def first_rows(x: Any, most: int = 2048) -> np.ndarray:
    """A tensor of the arguments as a NumPy array, or the first rows of a source, for messages about their values."""
    return x.read(0, min(most, x.shape[0])) if isinstance(x, Source) else x.detach().cpu().numpy()


def tensor_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The NumPy type of a tensor that is made from numbers of this type.

    Raises:
        TypeError: where no tensor can be made from them.
    """
    return torch.from_numpy(np.empty(0, dtype)).numpy().dtype


def _read(sources: tuple[Source, ...], block: RowBlock) -> list[Tensor]:
    if not sources:
        return []
    reader = reader_of(sources)
    is_run = block.start is not None
    rows = reader.read(block.start or 0, len(block.indices)) if is_run else reader.take(block.indices.numpy(force=True))
    return [_as_tensor(x) for x in rows]


def _as_tensor(rows: np.ndarray) -> Tensor:
    tensor, device = torch.from_numpy(rows), torch.get_default_device()
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def _dtype(source: Source) -> torch.dtype:
    return torch.from_numpy(np.empty(0, source.dtype)).dtype
