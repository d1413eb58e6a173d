"""A model's arguments, taken apart into arrays and the rest."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.sparse import JAXSparse

from numpyro_split.potential.row_block import RowBlock
from numpyro_split.potential.sharded_rows import ShardedRows, is_filled, on_automatic_mesh
from numpyro_split.potential.shards import Shards
from numpyro_split.potential.sources import is_source, placeholder
from split_common.containers import Given, Opened, Own
from split_common.data_axes import argument_names, axis_of_rows, check_not_sparse, check_row_axis, hides_arrays
from split_common.open_model import HELD
from split_common.runs.identity import texts_of
from split_common.sources.rows import Source
from split_common.subsets import SubsetLayout

Data = tuple[Any, ...]  # arrays, sources that stand for arrays, and rows that were read from sources

# Bytes of rows of a subset that a CPU evaluates at a time: XLA copies these rows out of the data, which costs little
# only as long as the copy stays in the cache. All the data at once are not copied.
BLOCK_BYTES = 3 * 2**19
MIN_BLOCK_ROWS = 256  # with fewer rows a matrix product is inefficient


class Arguments:
    """A model's arguments, taken apart into arrays and the rest.

    Args:
        args: positional arguments, opened by :data:`numpyro_split.potential.forms.FORMS`, or arrays only.
        kwargs: keyword arguments.
        row_axes: for the path of each array that holds data rows, the axis they lie along.
        model: where the names of positional arguments are read from; needed for messages only.

    Attributes:
        data: the arrays, and sources in place of some, in order.
        axes: for each array, the axis of its rows, or None.
        filled_sizes: rows of each shard, where shards are filled up to one length; else None.
        argument_names: names of the model's arguments, and of the arrays that it holds.
        unseen: by the argument's name, objects that hold arrays which are not taken out of them.
        sparse: by the argument's name and the path inside it, sparse arrays, which are taken whole.
    """

    def __init__(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        row_axes: dict[str, int] | None = None,
        model: Callable[..., Any] | None = None,
    ):
        paths, self._treedef = jax.tree_util.tree_flatten_with_path((tuple(args), dict(kwargs)), is_leaf=is_rows)
        arrays = [(path, leaf) for path, leaf in paths if is_array(leaf)]
        self._is_array = [is_array(leaf) for _, leaf in paths]
        self._others = [None if is_array(leaf) else leaf for _, leaf in paths]
        self._paths = [path for path, _ in arrays]
        self._lists = [leaf.original if isinstance(leaf, Given) else None for _, leaf in arrays]
        self.data: Data = tuple(as_array(x) for _, x in arrays)
        self.filled_sizes = filled_sizes([x for _, x in arrays])
        self.axes = [(row_axes or {}).get(jax.tree_util.keystr(path)) for path in self._paths]
        names = argument_names(model, len(args), {name: x for name, x in kwargs.items() if name != HELD})
        self.argument_names = [*names, *(self._argument_of(path) for path in self._paths if _is_held(path))]
        self.unseen = {self._argument_of(path): x for path, x in paths if not is_array(x) and hides_arrays(x, is_array)}
        whole, _ = jax.tree_util.tree_flatten_with_path(
            (tuple(args), dict(kwargs)), is_leaf=lambda x: is_rows(x) or isinstance(x, JAXSparse)
        )
        sparse = [(path, x) for path, x in whole if isinstance(x, JAXSparse)]
        self.sparse = {self._argument_of(path) + jax.tree_util.keystr(path[2:]): x for path, x in sparse}
        self._in_sparse = [any(path[: len(start)] == start for start, _ in sparse) for path in self._paths]

    @property
    def others(self) -> list[Any]:
        """The leaves of the arguments that are not arrays; None in the places of arrays."""
        return self._others

    def texts_of_own(self) -> list[str]:
        """The whole content, as texts, of arguments that the model is given unconverted."""
        own = {str(place): x.value for place, x in enumerate(self._others) if isinstance(x, Own)}
        return [part for pair in sorted(texts_of(own, "").items()) for part in pair] if own else []

    @property
    def structure(self) -> tuple[Any, ...]:
        """Places of the arrays among the arguments, and the axes of their rows."""
        return self._treedef, tuple(self._is_array), tuple(self.axes)

    @property
    def signature(self) -> tuple[Any, ...]:
        """Places, shapes and types of the arrays, and every other argument that can be compared."""
        others = tuple((type(other), other) for other in self._others if isinstance(other, Hashable))
        return self._treedef, tuple((x.shape, x.dtype, is_source(x)) for x in self.data), others

    def build(self, data: Data) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Put ``data`` back into its places among the arguments; a list that holds no rows is given as the user has it.

        A source is replaced by an array of its shape without values. So this is called where the model is traced, and
        no result that is used may depend on the source's rows.
        """
        lists = zip(data, self._lists, self.axes, strict=False)  # shared values may follow the arguments' arrays
        arrays = iter([placeholder(x) if given is None or axis is not None else given for x, given, axis in lists])
        places = zip(self._is_array, self._others, strict=True)
        return jax.tree.unflatten(self._treedef, [next(arrays) if here else _as_given(other) for here, other in places])

    def take(self, block: RowBlock, data: Data) -> Data:
        """``data`` with every array that holds rows cut to some of them."""
        return tuple(x if axis is None else block.take(x, axis) for x, axis in zip(data, self.axes, strict=True))

    def shards(self, data_axes: Mapping[str, int | None] | None = None) -> Shards | None:
        """How the rows lie on several devices; None where no array is cut along a mesh, or the arrays are traced.

        Args:
            data_axes: by argument name, the axis of its rows, where these arguments do not know it yet.

        Raises:
            ValueError: for arguments that are not cut alike, and along their rows.
        """
        axes = self.axes
        if all(axis is None for axis in axes):  # which hold rows is not known yet
            named = zip(self._paths, self.named_arrays(), strict=True)
            axes = [
                0 if data_axes is None else axis_of_rows(data_axes, name, self._argument_of(path))
                for path, (name, _) in named
            ]
        return Shards.of(self.named_arrays(), axes, self.filled_sizes)

    def few_rows(self, shards: Shards, size: int) -> Arguments:
        """Arguments with a few rows of each shard, about ``size`` in all, in arrays on one device of this process.

        Their number differs from the length of every other array's first axis, so that arrays with rows are recognised.
        """
        others = {x.shape[0] for x, axis in zip(self.data, self.axes, strict=True) if axis is None and x.ndim}
        share = min(*shards.sizes, math.ceil(size / shards.num))
        while share > 1 and share * shards.num in others:
            share -= 1
        found = shards.sample(self.data, self.axes, share)
        return self.replace(found)

    def shapes(self) -> Data:
        """Shapes and types of the arrays."""
        shape_of = jax.ShapeDtypeStruct
        return tuple(shape_of(x.shape, x.dtype, weak_type=is_weak(x)) for x in self.data)  # type: ignore[misc]

    def num_blocks(self, layout: SubsetLayout, num_shards: int = 1) -> int:
        """In how many blocks to evaluate a subset of each shard, so that a block's rows stay in a CPU's cache."""
        if jax.default_backend() != "cpu" or len(layout.sizes) == 1:
            return 1
        row_bytes = sum(x.nbytes for x, axis in zip(self.data, self.axes, strict=True) if axis is not None) / num_shards
        wanted = math.ceil(layout.sizes[0] * row_bytes / layout.num_rows / BLOCK_BYTES)
        return max(1, min(wanted, layout.sizes[0] // MIN_BLOCK_ROWS))

    @property
    def num_rows(self) -> int:
        """Entries of the arrays along the axis of their rows."""
        return next(x.shape[axis] for x, axis in zip(self.data, self.axes, strict=True) if axis is not None)

    def replace(self, data: Data) -> Arguments:
        """The same arguments with other arrays."""
        arguments = copy.copy(self)
        arguments.data = data
        return arguments

    @property
    def sources(self) -> dict[str, Source]:
        """The sources, by the names of the arguments."""
        return {name: x for name, x in self.named_arrays() if is_source(x)}

    def in_trace(self, model: Callable[..., Any]) -> Callable[..., Any]:
        """The model as a function without arguments, which builds them when it is called."""

        def run() -> Any:
            args, kwargs = self.build(self.data)
            return model(*args, **kwargs)

        return run

    def named_arrays(self) -> list[tuple[str, Any]]:
        """Each array with the argument's name and the path inside it, for messages."""
        return [
            (self._argument_of(path) + ("" if _is_held(path) else jax.tree_util.keystr(path[2:])), x)
            for path, x in zip(self._paths, self.data, strict=True)
        ]

    def names_of(self, row_axes: Mapping[str, int]) -> list[str]:
        """Names of the arguments that hold rows."""
        names = [self._argument_of(path) for path in self._paths if jax.tree_util.keystr(path) in row_axes]
        return list(dict.fromkeys(names))

    def axes_by_name(self, row_axes: Mapping[str, int]) -> dict[str, int]:
        """The axis of the rows in each array that holds any, by the array's name in messages."""
        paths = zip(self._paths, self.named_arrays(), strict=True)
        return {name: row_axes[key] for path, (name, _) in paths if (key := jax.tree_util.keystr(path)) in row_axes}

    def find_row_axes(self, num_rows: int, data_axes: Mapping[str, int | None] | None) -> dict[str, int]:
        """Which arrays hold data rows: those named in ``data_axes``, or all whose axis 0 has N entries.

        The indices and values of a sparse array hold none, however many there are.

        Raises:
            ValueError: when a named argument does not have N rows along its axis.
            ModelNotSplittableError: when a named argument is a sparse array.
        """
        found = {}
        for path, (name, x), in_sparse in zip(self._paths, self.named_arrays(), self._in_sparse, strict=True):
            if in_sparse:
                check_not_sparse(self._argument_of(path), data_axes, self.sparse)
                axis = None
            elif data_axes is None:
                axis = 0 if x.ndim and x.shape[0] == num_rows else None
            else:
                axis = axis_of_rows(data_axes, name, self._argument_of(path))
                check_row_axis(name, tuple(x.shape), axis, num_rows)
            if axis is not None:
                found[jax.tree_util.keystr(path)] = axis
        return found

    def _argument_of(self, path: Any) -> str:
        if _is_held(path):
            return jax.tree_util.keystr(path[2:]).lstrip(".")
        group, place = path[0].idx, path[1]
        return self.argument_names[place.idx] if group == 0 else str(place.key)


def _as_given(leaf: Any) -> Any:
    """The value that a model is given for a leaf that is not an array."""
    return leaf.copy(jax.tree.map) if isinstance(leaf, Own) else leaf


def _is_held(path: Any) -> bool:
    """Whether an array is one that the model holds, not one of its arguments."""
    return getattr(path[1], "key", None) == HELD


def is_array(leaf: Any) -> bool:
    """Whether a leaf of opened arguments is an array of numbers, or stands for one."""
    if isinstance(leaf, np.ndarray):
        return leaf.dtype.kind in "biufc"
    return isinstance(leaf, jax.Array | Given | ShardedRows | Source)


def is_rows(leaf: Any) -> bool:
    """Whether a leaf of opened arguments holds rows without being an array: filled-up shards, or a source."""
    return is_filled(leaf) or is_source(leaf)


def as_array(leaf: Any) -> Any:
    """The array of a leaf of opened arguments, on automatic axes where it lies on a mesh; a source as it is."""
    if is_source(leaf):
        return leaf
    return on_automatic_mesh(jnp.asarray(leaf.array if isinstance(leaf, Given | ShardedRows) else leaf))


def is_weak(x: Any) -> bool:
    """Whether an array takes the type of what it meets, as ``(x > 0) * 1.0`` does; the program shows which do."""
    return bool(getattr(x, "weak_type", False))


def filled_sizes(arrays: list[Any]) -> tuple[int, ...] | None:
    """Rows of each shard, where leaves of opened arguments are filled-up shards; else None.

    Raises:
        ValueError: where they are not filled up alike.
    """
    sizes = list(dict.fromkeys(x.sizes for x in arrays if isinstance(x, ShardedRows)))
    if len(sizes) > 1:
        raise ValueError(f"data arguments must have the same rows in each shard, got {sizes[0]} and {sizes[1]}")
    return sizes[0] if sizes else None


def with_arrays(opened: Any, arguments: Arguments) -> Any:
    """Opened arguments with other arrays in the places of theirs.

    Args:
        opened: positional and keyword arguments, as :data:`numpyro_split.potential.forms.FORMS` opens them.
        arguments: the same with other arrays.
    """
    arrays = iter(zip(arguments.data, arguments.axes, strict=True))

    def put(x: Any) -> Any:
        if isinstance(x, Opened):
            return Opened(tuple(jax.tree.map(put, part, is_leaf=is_whole) for part in x.parts), x.whole)
        if not is_array(x):
            return x
        array, axis = next(arrays)
        return x if isinstance(x, Given) and axis is None else array

    def is_whole(x: Any) -> bool:
        return isinstance(x, Opened | Given) or is_rows(x)

    return jax.tree.map(put, opened, is_leaf=is_whole)
