"""A model's arguments, taken apart into tensors and the rest."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from pyro_split.host import pytree
from pyro_split.potential.row_block import RowBlock
from pyro_split.potential.sources import is_source, is_sparse, placeholder, take
from split_common.containers import Given, Own
from split_common.data_axes import argument_names, axis_of_rows, check_row_axis
from split_common.errors import ModelNotSplittableError
from split_common.open_model import HELD
from split_common.sources.rows import Source

Data = tuple[Any, ...]  # tensors, and sources that stand for tensors


class Arguments:
    """A model's arguments, taken apart into tensors and the rest.

    Args:
        args: positional arguments, opened by :mod:`pyro_split.potential.forms`, or tensors only.
        kwargs: keyword arguments, likewise.
        row_axes: for the path of each tensor that holds data rows, the axis they lie along.
        model: where the names of positional arguments are read from; needed for messages only.

    Attributes:
        data: the tensors, and sources in place of some, in order.
        axes: for each tensor, the axis of its rows, or None.
        others: the leaves of the arguments that are not tensors; None in the places of tensors.
        argument_names: names of the model's arguments, and of the tensors that it holds.
    """

    def __init__(
        self,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        row_axes: dict[str, int] | None = None,
        model: Callable[..., Any] | None = None,
    ):
        paths, self._treedef = pytree.tree_flatten_with_path((tuple(args), dict(kwargs)))
        tensors = [(path, leaf) for path, leaf in paths if is_tensor(leaf)]
        self._is_tensor = [is_tensor(leaf) for _, leaf in paths]
        self.others = [None if is_tensor(leaf) else leaf for _, leaf in paths]
        self._paths = [path for path, _ in tensors]
        self._lists = [leaf.original if isinstance(leaf, Given) else None for _, leaf in tensors]
        self.data: Data = tuple(x.array if isinstance(x, Given) else x for _, x in tensors)
        self.axes = [(row_axes or {}).get(pytree.keystr(path)) for path in self._paths]
        names = argument_names(model, len(args), {name: x for name, x in kwargs.items() if name != HELD})
        self.argument_names = [*names, *(self._argument_of(path) for path in self._paths if _is_held(path))]

    def build(self, data: Data) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Put ``data`` back into its places among the arguments; a list that holds no rows is given as the user has it.

        A source is replaced by a tensor of its shape without values, so no result that is used may depend on its rows.
        """
        lists = zip(data, self._lists, self.axes, strict=False)  # shared values may follow the arguments' tensors
        tensors = iter([placeholder(x) if given is None or axis is not None else given for x, given, axis in lists])
        places = zip(self._is_tensor, self.others, strict=True)
        return pytree.tree_unflatten([next(tensors) if here else _as_given(x) for here, x in places], self._treedef)

    def take(self, block: RowBlock, data: Data) -> Data:
        """``data`` with every tensor that holds rows cut to some of them."""
        return take(block, data, self.axes)

    def replace(self, data: Data) -> Arguments:
        """The same arguments with other tensors."""
        arguments = copy.copy(self)
        arguments.data = data
        return arguments

    @property
    def sources(self) -> dict[str, Source]:
        """The sources, by the names of the arguments."""
        return {name: x for name, x in self.named_arrays() if is_source(x)}

    def axes_by_name(self, row_axes: Mapping[str, int]) -> dict[str, int]:
        """The axis of the rows in each tensor that holds any, by the tensor's name in messages."""
        paths = zip(self._paths, self.named_arrays(), strict=True)
        return {name: row_axes[key] for path, (name, _) in paths if (key := pytree.keystr(path)) in row_axes}

    def named_arrays(self) -> list[tuple[str, Any]]:
        """Each tensor with the argument's name and the path inside it, for messages."""
        return [
            (self._argument_of(path) + ("" if _is_held(path) else pytree.keystr(path[2:])), x)
            for path, x in zip(self._paths, self.data, strict=True)
        ]

    def find_row_axes(self, num_rows: int, data_axes: Mapping[str, int | None] | None) -> dict[str, int]:
        """Which tensors hold data rows: those named in ``data_axes``, or all whose axis 0 has N entries.

        Raises:
            ValueError: when a named argument does not have N rows along its axis.
        """
        found = {}
        for path, (name, x) in zip(self._paths, self.named_arrays(), strict=True):
            if data_axes is None:
                axis = 0 if x.ndim and x.shape[0] == num_rows else None
            else:
                axis = axis_of_rows(data_axes, name, self._argument_of(path))
                check_row_axis(name, tuple(x.shape), axis, num_rows)
            if axis is not None:
                found[pytree.keystr(path)] = axis
        return found

    def check_dense(self) -> None:
        """Check that every tensor can be cut to some rows."""
        for name, x in self.named_arrays():
            if is_sparse(x):
                raise ModelNotSplittableError(
                    f"{name} must be a dense tensor to be divided, got one of layout {x.layout}; pass "
                    f"{name}.to_dense(), or the columns and values of each row's entries as two tensors of N rows"
                )

    def _argument_of(self, path: Any) -> str:
        if _is_held(path):
            return pytree.keystr(path[2:]).lstrip(".")
        group, place = path[0].idx, path[1]
        return self.argument_names[place.idx] if group == 0 else str(place.key)


def _as_given(leaf: Any) -> Any:
    """The value that a model is given for a leaf that is not a tensor."""
    return leaf.copy(pytree.tree_map) if isinstance(leaf, Own) else leaf


def _is_held(path: Any) -> bool:
    """Whether a tensor is one that the model holds, not one of its arguments."""
    return getattr(path[1], "key", None) == HELD


def is_tensor(leaf: Any) -> bool:
    """Whether a leaf of opened arguments is a tensor, or stands for one."""
    return isinstance(leaf, Tensor | Given | Source)
