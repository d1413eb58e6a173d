"""How much memory one gradient of a subset takes, measured while it is made.

On a GPU PyTorch's allocator keeps count, and its peak less what was there before is the answer. On other devices it
keeps none, so the storages that operations make are counted from when they are made until they are gone. That counts
results and intermediate values, rows that are copied out of the data, and the gradient; the data and the position are
there before and are not counted, and rows that follow one another are cut out without a copy. What a library keeps
inside one operation, such as the workspace of a convolution, is not seen there.

A gradient is made once before it is measured, which leaves the trace that every later one runs.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any

import torch

from pyro_split.host import TorchDispatchMode, pytree
from pyro_split.potential.position import Position
from pyro_split.potential.row_block import RowBlock
from pyro_split.potential.split_potential import SplitPotential


def bytes_of_gradient(potential: SplitPotential, z: Position, num_rows: int) -> int:
    """Bytes that one gradient of a subset takes besides the data and the position.

    Args:
        potential: bound to the data.
        z: a position with a finite density.
        num_rows: rows of the subset, which are the first ones.

    Example:
        >>> potential = SplitPotential.from_functions(
        ...     lambda z: -0.5 * z["w"] @ z["w"], lambda z, x: -torch.tanh(x @ z["w"]), torch.ones(1000, 3), 1
        ... )
        >>> 0 < bytes_of_gradient(potential, {"w": torch.zeros(3)}, 500) < 100_000
        True
    """
    of_rows, block = copy.copy(potential), _first_rows(potential, num_rows)
    of_rows._sites, of_rows._subset = (), lambda m: [potential.bound(block)]  # type: ignore[method-assign]
    of_rows.subset_grad(z, 0)
    devices = [x.device for x in (*potential._whole, *z.values()) if x.device.type != "cpu"]
    return peak_of(lambda: of_rows.subset_grad(z, 0), devices[0] if devices else torch.device("cpu"))


def peak_of(function: Callable[[], Any], device: torch.device) -> int:
    """Bytes of the tensors that a function makes, at the moment when most of them are there.

    Args:
        function: function that makes tensors.
        device: device on which it makes them.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        _ = function()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with StorageCount() as count:
        _ = function()
    return count.peak


class StorageCount(TorchDispatchMode):
    """Counts the bytes of the storages that operations make, while they are alive.

    Attributes:
        alive: bytes that are there now.
        peak: the most that were there at once.

    Example:
        >>> with StorageCount() as count:
        ...     x = torch.ones(100, dtype=torch.float64) + 1.0
        >>> count.alive, count.peak
        (800, 1600)
    """

    def __init__(self) -> None:
        super().__init__()
        self.alive = self.peak = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and count what it makes."""
        kwargs = kwargs or {}
        given = {_key(x) for x in _tensors((args, kwargs))}
        results = func(*args, **kwargs)
        for x in _tensors(results):
            if _key(x) not in given and _key(x) not in self._sizes:
                self._sizes[_key(x)] = x.untyped_storage().nbytes()
                self.alive += self._sizes[_key(x)]
                weakref.finalize(x.untyped_storage(), self._gone, _key(x)).atexit = False
        self.peak = max(self.peak, self.alive)
        return results

    def _gone(self, key: int) -> None:
        self.alive -= self._sizes.pop(key, 0)


def _tensors(values: Any) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(values) if isinstance(x, torch.Tensor)]


def _key(x: torch.Tensor) -> int:
    return x.untyped_storage()._cdata


def _first_rows(potential: SplitPotential, num_rows: int) -> RowBlock:
    """So many rows, cut out as those of a subset are."""
    is_run = potential._density.layout.permutation is None
    return RowBlock(torch.arange(num_rows), 0 if is_run else None)
