r"""Rows in shards, on several devices of one process or of many, and sums over them.

With :math:`\ell_{m,r}` the log-likelihood of the rows of subset m on shard r of P,

.. math:: U_m(z) = -\tfrac1M \log p(z) - \sum_{r=1}^P \ell_{m,r}(z),

so a subset is about N/(MP) rows of each shard. That is a division of the rows like any other, of which schedules are
exact. Each device evaluates its own rows, at the same z, and one all-reduce sums what they found: the gradient, D
numbers, and the energy. No row moves. The prior is computed by every device and is not summed.

What is summed is the same on all devices bit for bit, and every decision depends on it, or on the random key, which all
share. So all make the same steps, and none waits for a sum that another does not ask for.

An energy is held as high + low (:mod:`numpyro_split.potential.compensated`), and sums of rounded numbers would depend
on their order and lose what low holds. So it is sent as two words: a multiple of a step :math:`2^g`, the same on all
devices, and the rest, of at most half a step. Sums of such multiples are exact, below :math:`2^{g+24}` in float32. The
step is about :math:`2^{-6}` times the number of rows of a subset in a shard, and at least 32: sums are exact up to
260,000/P nats a row, and for up to 65,000 rows the rest is known to 3e-5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from numpyro_split.potential.compensated import Compensated, compensated_add
from numpyro_split.potential.sharded_rows import named_sharding
from split_common.subsets import SubsetLayout, extreme_rows

Data = tuple[jax.Array, ...]
LEAST_STEP, STEP_SHARE = 5, 6  # powers of 2: the least step, and rows of a part over the step


class Shards(NamedTuple):
    """How rows lie on the devices of a mesh.

    Attributes:
        mesh: the devices, with automatic axes.
        axis: name of the mesh's axis along which the rows lie.
        sizes: rows of each of P shards.
        length: rows of each shard, with the copies that fill it up.
    """

    mesh: Mesh
    axis: str
    sizes: tuple[int, ...]
    length: int

    @classmethod
    def of(
        cls, arrays: Sequence[tuple[str, Any]], axes: Sequence[int | None], sizes: tuple[int, ...] | None
    ) -> Shards | None:
        """The shards of a model's arguments; None where no argument is cut, or they are traced.

        Args:
            arrays: each array with the argument's name.
            axes: for each array the axis that rows would lie along, None where it holds none.
            sizes: rows of each shard where shards are filled up; None for as many as there are places.

        Raises:
            ValueError: for arrays that are cut along another axis than their rows, or not alike.
        """
        places = [(name, x, axis, named_sharding(x)) for (name, x), axis in zip(arrays, axes, strict=True)]
        cut = [
            (name, cls(sharding.mesh, *_rows_of(name, x, axis, sharding)))  # type: ignore[arg-type]
            for name, x, axis, sharding in places
            if sharding is not None
        ]
        if not cut:
            return None
        first, shards = cut[0]
        of_first = dict(arrays)[first].sharding
        for name, x, axis, sharding in places:
            holds_as_many = axis is not None and x.ndim > axis and x.shape[axis] == shards.length * shards.num
            if (holds_as_many and sharding is None) or any(name == other and found != shards for other, found in cut):
                raise ValueError(
                    f"the argument {name!r} must be sharded like {first!r}, which is {of_first}, got "
                    f"{getattr(x, 'sharding', x)}; an argument that holds no rows and is as long as they are is "
                    "left out by data_axes"
                )
        return shards if sizes is None else shards._replace(sizes=sizes)

    @property
    def num(self) -> int:
        """P, the number of shards."""
        return len(self.sizes)

    @property
    def num_rows(self) -> int:
        """N, the number of rows, without the copies that fill shards up."""
        return sum(self.sizes)

    @property
    def is_even(self) -> bool:
        """Whether no shard is filled up."""
        return min(self.sizes) == self.length

    @property
    def text(self) -> str:
        """Text of what a run's numbers depend on: the shards' sizes, not which devices hold them."""
        return f"{self.num} shards of {self.length if self.is_even else list(self.sizes)} rows"

    def subset_sizes(self, layout: SubsetLayout) -> tuple[int, ...]:
        """Rows in each subset, where each shard is divided by a layout."""
        if self.is_even:
            return tuple(self.num * size for size in layout.sizes)
        if layout.permutation is not None:
            filled = [[int(np.sum(layout.rows(m) < size)) for size in self.sizes] for m in range(layout.num_subsets)]
            return tuple(map(sum, filled))
        num = layout.num_subsets
        return tuple(sum(size // num + (m < size % num) for size in self.sizes) for m in range(num))

    def spec(self, axis: int | None) -> PartitionSpec:
        """The layout of an array whose rows lie along an axis, or of one without rows."""
        return PartitionSpec() if axis is None else PartitionSpec(*(None,) * axis, self.axis)

    def total(
        self,
        function: Callable[..., Any],
        data: Data,
        axes: Sequence[int | None],
        args: tuple[Any, ...],
        rows_of_part: int,
    ) -> Any:
        """Sum over the shards of a function of each one's rows, by one all-reduce.

        Args:
            function: ``function(data, filled, number, *args)`` of a shard's arrays; how many rows of them count, None
                for all; and the shard's number. It gives a tree of numbers and :class:`Compensated` ones.
            data: the arrays.
            axes: for each of them the axis of its rows, or None.
            args: further arguments of the function, the same for all shards.
            rows_of_part: number of rows that an energy sums over, which determines its step.
        """

        def on_shard(data: Data, filled: jax.Array, number: jax.Array, args: tuple[Any, ...]) -> Any:
            found = function(data, None if self.is_even else filled[0], number[0], *args)
            parts, form = jax.tree.flatten(found, is_leaf=lambda x: isinstance(x, Compensated))
            sent = [_words(x, rows_of_part) if isinstance(x, Compensated) else x for x in parts]
            flat, unravel = ravel_pytree(sent)
            summed = unravel(lax.psum(flat, self.axis))
            return jax.tree.unflatten(form, [_energy(x) if isinstance(x, Words) else x for x in summed])

        per_shard = PartitionSpec(self.axis)
        specs = (tuple(map(self.spec, axes)), per_shard, per_shard, PartitionSpec())
        return self._mapped(on_shard, specs)(
            data, jnp.asarray(self.sizes, jnp.int32), jnp.arange(self.num, dtype=jnp.int32), args
        )

    def sample(self, data: Data, axes: Sequence[int | None], size: int) -> Data:
        """The arrays cut to a few rows of each shard, the same in every process, on a device of its own.

        Of each shard those with extreme values are taken, and random ones.

        Args:
            data: the arrays.
            axes: for each of them the axis of its rows, or None.
            size: rows of each shard.
        """
        rows = jax.make_array_from_callback(
            (self.num, size),
            NamedSharding(self.mesh, PartitionSpec(self.axis)),
            lambda index: self._extreme_rows(data, axes, index[0].start or 0, size)[None],  # pyright: ignore
        )

        places = [axis for axis in axes if axis is not None]

        def take(cut: list[jax.Array], rows: jax.Array) -> list[jax.Array]:
            taken = [jnp.take(x, rows[0], axis) for x, axis in zip(cut, places, strict=True)]
            return [lax.all_gather(x, self.axis, axis=axis, tiled=True) for x, axis in zip(taken, places, strict=True)]

        specs = list(map(self.spec, places)), PartitionSpec(self.axis)
        cut = [x for x, axis in zip(data, axes, strict=True) if axis is not None]
        found = iter(jax.jit(self._mapped(take, specs))(cut, rows))
        return tuple(on_one_device(x if axis is None else next(found)) for x, axis in zip(data, axes, strict=True))

    def _extreme_rows(self, data: Data, axes: Sequence[int | None], place: int, size: int) -> np.ndarray:
        """Numbers of the rows to take from one shard, which this process holds."""
        columns = []
        for x, axis in zip(data, axes, strict=True):
            if axis is not None:
                start = place * self.length
                [part, *_] = [s for s in x.addressable_shards if (s.index[axis].start or 0) == start]
                columns.append(np.moveaxis(np.asarray(part.data), axis, 0)[: self.sizes[place]])
        return extreme_rows(columns, size, self.sizes[place]).astype(np.int32)

    def _mapped(self, function: Callable[..., Any], specs: tuple[Any, ...]) -> Callable[..., Any]:
        """Map a function over the shards; its results are the same on all of them."""
        mesh, context = self.mesh, jax.sharding.get_abstract_mesh()
        if not context.empty:  # inside another map, such as one over chains
            if self.axis not in context.axis_names or self.axis in context.manual_axes:
                raise ValueError(
                    f"chain_method must leave the mesh's axis {self.axis!r}, along which the rows lie, to the kernel, "
                    f"got a map over {list(context.manual_axes)}: give jax.shard_map a mesh with both axes, and "
                    "axis_names with that of the chains alone"
                )
            mesh = None
        return jax.shard_map(
            function,
            mesh=mesh,
            in_specs=specs,
            out_specs=PartitionSpec(),
            axis_names={self.axis},
            check_vma=False,  # a loop in a user's model may carry a value that is at first alike on all shards
        )


class Words(NamedTuple):
    """Energies of two words each, in the form in which they are summed over devices.

    Attributes:
        steps: multiples of a step.
        rest: remainder of the energy.
    """

    steps: jax.Array
    rest: jax.Array


def _words(energy: Compensated, rows: int) -> Words:
    step = 2.0 ** max(LEAST_STEP, math.ceil(math.log2(max(1, rows))) - STEP_SHARE)
    is_finite = jnp.isfinite(energy.high)
    steps = jnp.where(is_finite, jnp.round(energy.high / step) * step, energy.high)
    return Words(steps, jnp.where(is_finite, (energy.high - steps) + energy.low, 0.0))


def _energy(words: Words) -> Compensated:
    zero = jnp.zeros_like(words.rest)
    total = compensated_add(Compensated(words.steps, zero), Compensated(words.rest, zero))
    is_finite = jnp.isfinite(words.steps)
    return Compensated(*(jnp.where(is_finite, x, y) for x, y in zip(total, (words.steps, zero), strict=True)))


def on_one_device(x: jax.Array) -> jax.Array:
    """An array that all devices hold, on one device of this process."""
    return x if len(x.sharding.device_set) == 1 else jnp.asarray(np.asarray(x))


def _rows_of(name: str, x: jax.Array, axis: int | None, sharding: NamedSharding) -> tuple[str, tuple[int, ...], int]:
    """The mesh's axis along which an argument's rows lie, the number of rows at each place, and a shard's length."""
    cut = {place: names for place, names in enumerate(sharding.spec) if names is not None}
    if axis is None or list(cut) != [axis]:
        raise ValueError(
            f"the argument {name!r} must be sharded along the axis of its rows, {axis}, and no other, got "
            f"{sharding.spec}"
        )
    names = cut[axis] if isinstance(cut[axis], tuple) else (cut[axis],)
    if len(names) != 1:
        raise ValueError(f"the rows of the argument {name!r} must lie along one axis of the mesh, got {sharding.spec}")
    num = sharding.mesh.shape[names[0]]
    length = x.shape[axis] // num
    return str(names[0]), (length,) * num, length
