"""Arrays whose rows lie on several devices, of one process or of several.

JAX cuts an axis into parts of one length. Where the rows do not come out even, parts are filled up with copies of their
last row, and the array is kept with the number of real rows in each part (:class:`ShardedRows`). That is no array
itself, so that nothing can be computed from copies as if they were rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.dtypes import canonicalize_dtype
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from split_common.values import shown


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True)
class ShardedRows:
    """An array of rows over several devices, whose parts are filled up to one length.

    Attributes:
        array: the parts, one after another along axis 0.
        sizes: number of real rows in each part; the others are copies of its last one.

    Example:
        >>> import numpy as np
        >>> ShardedRows(np.array([0.0, 1.0, 2.0, 2.0]), (2, 1)).sizes
        (2, 1)
    """

    array: Any
    sizes: tuple[int, ...]

    def tree_flatten_with_keys(self) -> tuple[tuple[tuple[Any, Any]], tuple[int, ...]]:
        """The array as the only child, and the sizes as static data."""
        return ((jax.tree_util.GetAttrKey("array"), self.array),), self.sizes

    @classmethod
    def tree_unflatten(cls, sizes: tuple[int, ...], parts: tuple[Any]) -> ShardedRows:
        """Inverse of :meth:`tree_flatten_with_keys`."""
        return cls(parts[0], sizes)


def is_filled(x: Any) -> bool:
    """Whether this is an array of rows in shards that are filled up."""
    return isinstance(x, ShardedRows)


def shard_rows(rows: Any, mesh: Mesh, axis: str = "rows") -> Any:
    """Lay rows out over the devices of a mesh, however many rows there are.

    In a run of several processes each calls this with rows of its own, and no row leaves its process. Each gives at
    least one row for each of its devices along ``axis``. Where all come to the same number of rows a device, this is
    what ``jax.device_put`` and ``jax.make_array_from_process_local_data`` do.

    Args:
        rows: array or pytree of arrays; axis 0 of each is the rows, of this process.
        mesh: the devices.
        axis: name of the mesh's axis to lay the rows along; devices along other axes hold the same rows.

    Returns:
        The same pytree of JAX arrays over all processes' rows; of :class:`ShardedRows`, where devices have different
        numbers of rows. Both are data arguments of a kernel's model.

    Raises:
        ValueError: for an axis that the mesh does not have, arrays of unequal length or without rows, and fewer rows
            than devices, in whichever process that is.

    Example:
        >>> import jax, numpy as np
        >>> mesh = jax.make_mesh((1,), ("rows",))
        >>> shard_rows(np.arange(3.0), mesh).shape
        (3,)
    """
    if not isinstance(mesh, Mesh):
        raise ValueError(f"mesh must be a jax.sharding.Mesh, got {shown(mesh)}")
    if axis not in mesh.axis_names:
        raise ValueError(f"axis must name an axis of the mesh, one of {list(mesh.axis_names)}, got {shown(axis)}")
    arrays = {jax.tree_util.keystr(path): np.asarray(x) for path, x in jax.tree_util.tree_leaves_with_path(rows)}
    own = _own_places(mesh, axis)
    fault = _fault({name: x.shape for name, x in arrays.items()}, len(own))
    sizes = _agreed_sizes(own, 0 if fault else len(next(iter(arrays.values()))), mesh.shape[axis], fault)
    ends = np.cumsum([sizes[place] for place in own])
    first = dict(zip(own, ends - [sizes[place] for place in own], strict=True))
    sharding = NamedSharding(mesh, PartitionSpec(axis))

    def lay_out(x: Any) -> Any:
        x = np.asarray(x)
        x, length = x.astype(canonicalize_dtype(x.dtype), copy=False), max(sizes)

        def part(index: Any) -> np.ndarray:
            place = (index[0].start or 0) // length
            of_part = x[first[place] : first[place] + sizes[place]]
            return np.concatenate([of_part, np.repeat(of_part[-1:], length - len(of_part), axis=0)])

        array = jax.make_array_from_callback((length * len(sizes), *x.shape[1:]), sharding, part)
        return array if min(sizes) == length else ShardedRows(array, sizes)

    return jax.tree.map(lay_out, rows)


def _own_places(mesh: Mesh, axis: str) -> list[int]:
    """Places along an axis of a mesh at which this process has devices."""
    by_place = np.moveaxis(mesh.devices, mesh.axis_names.index(axis), 0).reshape(mesh.shape[axis], -1)
    return [i for i, devices in enumerate(by_place) if any(d.process_index == jax.process_index() for d in devices)]


def _fault(shapes: dict[str, tuple[int, ...]], num_places: int) -> str:
    """What is wrong with the arrays of this process, or ""."""
    lengths = {name: shape[0] if shape else 0 for name, shape in shapes.items()}
    if not shapes:
        return "rows must hold at least one array, got none"
    if not num_places:
        return f"mesh must have a device of every process, got none of process {jax.process_index()}"
    if len(set(lengths.values())) > 1:
        return f"rows must be arrays of one length, got {lengths}"
    if min(lengths.values()) < num_places:
        return f"rows must be at least as many as this process's devices along the axis, {num_places}, got {lengths}"
    return ""


def _agreed_sizes(own: list[int], num_rows: int, num_places: int, fault: str) -> tuple[int, ...]:
    """Number of rows at each place, agreed between all processes; raises in all of them where one has a fault."""
    sizes = np.zeros(num_places, np.int32)
    small, extra = divmod(num_rows, max(1, len(own)))
    for i, place in enumerate(own):
        sizes[place] = small + (i < extra)
    said = np.concatenate([[-1 if fault else 0], sizes]).astype(np.int32)
    all_said = np.atleast_2d(multihost_utils.process_allgather(said)) if jax.process_count() > 1 else said[None]
    if fault:
        raise ValueError(fault)
    if np.any(all_said[:, 0] < 0):
        faulty = np.flatnonzero(all_said[:, 0]).tolist()
        raise ValueError(
            f"rows must be right in every process, got a fault in processes {faulty}, whose errors name it"
        )
    agreed = all_said[:, 1:].max(0)
    if np.any((all_said[:, 1:] != agreed) & (all_said[:, 1:] != 0)):
        numbers = all_said[:, 1:].tolist()
        raise ValueError(
            f"rows must be as many in each of the processes that share a place along the axis, got {numbers}, by "
            "process and place"
        )
    return tuple(map(int, agreed))


def named_sharding(x: Any) -> NamedSharding | None:
    """The sharding of an array that is cut along an axis of a mesh; None for every other array, and traced ones."""
    if isinstance(x, Tracer) or not isinstance(x, jax.Array):
        return None
    is_cut = isinstance(x.sharding, NamedSharding) and any(part is not None for part in x.sharding.spec)
    return x.sharding if is_cut else None  # type: ignore[return-value]


def is_elsewhere(x: Any) -> bool:
    """Whether other processes hold a part of this array."""
    return isinstance(x, jax.Array) and not isinstance(x, Tracer) and not x.is_fully_addressable


def on_automatic_mesh(x: Any) -> Any:
    """An array on a mesh of explicit axes as one on automatic axes, which shares its memory; others as they are.

    With explicit axes the layout is part of an array's type, and a user's model would have to say how each of its
    operations lays out what it makes.
    """
    if isinstance(x, Tracer) or not isinstance(x, jax.Array) or not isinstance(x.sharding, NamedSharding):
        return x
    mesh = x.sharding.mesh
    if not isinstance(mesh, Mesh) or all(kind == AxisType.Auto for kind in mesh.axis_types):
        return x
    automatic = Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))
    sharding = NamedSharding(automatic, x.sharding.spec, memory_kind=x.sharding.memory_kind)
    return jax.make_array_from_single_device_arrays(x.shape, sharding, [part.data for part in x.addressable_shards])
