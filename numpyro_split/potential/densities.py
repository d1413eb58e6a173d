"""Log-densities whose likelihood divides over rows: of a NumPyro model, or of two functions."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import lax
from numpyro.handlers import substitute, trace

from numpyro_split.host import unconstrain_reparam
from numpyro_split.potential.arguments import Arguments, Data
from numpyro_split.potential.flat_program import FlatProgram
from numpyro_split.potential.held import NOTHING_HELD, Held
from numpyro_split.potential.model_rows import (
    ROWS_KWARG,
    RowSelectableModel,
    Trace,
    prior_sites,
    prior_terms,
    row_terms,
)
from numpyro_split.potential.position import Position
from numpyro_split.potential.precision import full_precision
from numpyro_split.potential.row_block import RowBlock, subset_block
from numpyro_split.potential.shards import Shards
from split_common.errors import ModelNotSplittableError
from split_common.selection import cuts_data, yields_numbers
from split_common.start import check_names
from split_common.subsets import SubsetLayout, check_values_of_rows


class Density(Protocol):
    """A log-density whose likelihood divides over rows; pure in the position and the data arrays."""

    layout: SubsetLayout
    num_blocks: int
    forward_mode: bool  # whether gradients are taken in forward mode
    shards: Shards | None  # how rows lie on several devices; ``layout`` then divides the rows of each

    def for_program(self, program: str) -> Density:
        """A copy whose computation is known to have the digest ``program``."""
        ...

    @property
    def plate(self) -> str | None:
        """Name of the data plate."""
        ...

    def row_axes(self, data: Data) -> list[int | None]:
        """For each data array the axis of its rows, or None."""
        ...

    def prior(self, z: Position, data: Data) -> list[jax.Array]:
        """Terms of log p(z)."""
        ...

    def block(
        self, z: Position, data: Data, m: jax.Array, b: jax.Array | int, filled: jax.Array | None = None
    ) -> list[jax.Array]:
        """Terms of the log-likelihood of block b of subset m; ``num_blocks`` blocks are a subset.

        Only the first ``filled`` rows count; None for all.
        """
        ...

    def pointwise(self, z: Position, data: Data, indices: jax.Array) -> jax.Array:
        """Log-likelihood of each row in ``indices``."""
        ...


class ModelDensity:
    """The log-density of a NumPyro model.

    Data given to its methods are the arguments' arrays and, after them, what :meth:`hold` makes of these.

    Args:
        model: the user's model, made row-selectable.
        layout: rows of each subset.
        mode: how rows are selected, "slice", "index" or "numbered" (:mod:`split_common.selection`).
        arguments: how to put the model's arguments together from data arrays.
        local_axes: for each latent inside the data plate, the axis (negative) of the rows in its unconstrained value.
        program: digest of what the model computes (:mod:`numpyro_split.potential.content`).
        held: shared values, computed once on all rows (:mod:`split_common.held`).
    """

    forward_mode = False
    shards: Shards | None = None

    def __init__(
        self,
        model: RowSelectableModel,
        layout: SubsetLayout,
        mode: str,
        arguments: Arguments,
        local_axes: dict[str, int],
        program: str,
        held: Held = NOTHING_HELD,
    ):
        self.model, self.layout, self.mode, self.program, self.held = model, layout, mode, program, held
        self.num_blocks = arguments.num_blocks(layout) if cuts_data(mode) and not local_axes else 1
        # without the data, which compiled functions outlive and must not keep alive
        self.arguments, self.local_axes = arguments.replace(()), local_axes

    def __hash__(self) -> int:
        """Equal densities compute the same: one bound anew to similar data finds its compiled functions again."""
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModelDensity) and self._key == other._key

    @property
    def _key(self) -> tuple[Any, ...]:
        places = (self.plate, self.layout, self.mode, self.num_blocks, tuple(self.local_axes.items()), self.held)
        fixed = self.model.key_of_values
        return self.program, fixed, self.forward_mode, *places, self.shards, self.arguments.structure

    def for_program(self, program: str) -> ModelDensity:
        """A copy whose computation is known to have the digest ``program``."""
        density = copy.copy(self)
        density.program = program
        return density

    def for_layout(self, layout: SubsetLayout, arguments: Arguments) -> ModelDensity:
        """The density of the same model on the rows of another layout."""
        sites = [
            (k, (*s[: self.local_axes[k]], layout.num_rows, *s[len(s) + self.local_axes[k] + 1 :]), d)
            if k in self.local_axes
            else (k, s, d)
            for k, s, d in self.held.position
        ]
        held = self.held._replace(position=tuple(sites))
        density = ModelDensity(self.model, layout, self.mode, arguments, self.local_axes, self.program, held)
        density.forward_mode = self.forward_mode
        return density

    def over(self, shards: Shards, arguments: Arguments) -> ModelDensity:
        """The density of the same model on rows in shards, each of them divided like the others.

        Args:
            shards: how the rows lie on several devices.
            arguments: those of all rows, of which only shapes count.
        """
        layout = SubsetLayout(shards.length, self.layout.num_subsets, self.layout.subset_order)
        density = copy.copy(self)
        density.layout, density.shards = layout, shards
        density.num_blocks = arguments.num_blocks(layout, shards.num)
        return density

    @property
    def plate(self) -> str:
        """Name of the data plate."""
        return self.model.plate

    def row_axes(self, data: Data) -> list[int | None]:
        """For each data array and each shared value, the axis of its rows, or None."""
        return [*self.arguments.axes, *(value.axis for _, value in self.held.values)]

    @full_precision
    def prior(self, z: Position, data: Data) -> list[jax.Array]:
        """Terms outside the plate, on all the arguments; the compiler drops the likelihood's unused work."""
        return prior_terms(self._whole_trace(z, data), self.plate)

    def prior_sites(self, z: Position, data: Data) -> Trace:
        """The sample sites outside the plate, whose log-probabilities are the terms of :meth:`prior`."""
        return prior_sites(self._whole_trace(z, data), self.plate)

    @full_precision
    def block(
        self, z: Position, data: Data, m: jax.Array, b: jax.Array | int, filled: jax.Array | None = None
    ) -> list[jax.Array]:
        """Terms inside the plate for the rows of block ``b`` of subset ``m``."""
        rows = subset_block(self.layout, m, b, self.num_blocks, filled)
        return [rows.mask(term, axis) for term, axis in self._rows(z, data, rows)]

    @full_precision
    def pointwise(self, z: Position, data: Data, indices: jax.Array) -> jax.Array:
        """Terms inside the plate, one sum for each row."""
        num_rows, most = indices.shape[0], max(1, self.layout.num_rows - 1)
        if yields_numbers(self.mode) and num_rows > most > 1:  # the host's `subsample` takes all rows as they stand
            parts = jnp.array_split(indices, -(-num_rows // most))
            return jnp.concatenate([self.pointwise(z, data, part) for part in parts])
        if (size := self.held.size_for(num_rows)) != num_rows:
            indices = jnp.append(indices, jnp.zeros(size - num_rows, indices.dtype))
        by_site = self._rows(z, data, RowBlock(indices))
        return sum((_sum_to_axis(term, axis, size) for term, axis in by_site), jnp.zeros(size))[:num_rows]

    def readable(self, model_trace: dict[str, Any]) -> dict[str, Any]:
        """The sites of a trace whose values can be read: all of them."""
        return model_trace

    def rows(self, data: Data, block: RowBlock) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The model's arguments for some rows, the reserved keyword included."""
        args, kwargs = self.arguments.build(self._cut(data, block))
        return args, {**kwargs, ROWS_KWARG: self._yielded(block)}

    def _cut(self, data: Data, block: RowBlock) -> Data:
        """The arguments' arrays, cut to some rows where the mode cuts them."""
        return self.arguments.take(block, data) if cuts_data(self.mode) else data

    def _yielded(self, block: RowBlock) -> jax.Array:
        """What the plate yields for some rows."""
        return block.indices if yields_numbers(self.mode) else jnp.arange(block.indices.shape[0])

    def local(self, z: Position, block: RowBlock) -> Position:
        """``z`` with the latents inside the plate cut to some rows."""
        return {k: block.take(u, u.ndim + self.local_axes[k]) if k in self.local_axes else u for k, u in z.items()}

    def terms(self, z: Position, taken: Data, indices: jax.Array) -> list[tuple[jax.Array, int]]:
        """Terms inside the plate, each with the axis (negative) of its rows.

        Args:
            z: a position, its latents inside the plate cut to some rows.
            taken: the data arrays, cut to these rows where the mode cuts data, then the shared values, cut likewise.
            indices: what the plate yields, shape (n,).
        """
        if not self.held.values:
            return self._model_terms(z, taken, indices)
        num_held = len(self.held.values)
        z = {name: jnp.asarray(u, u.dtype) for name, u in z.items()}  # plain numbers would give another program
        program, _, axes = self.expression(z, taken[:-num_held], indices)
        if len(program.steps) != self.held.num_steps:
            raise ModelNotSplittableError(
                f"the model must be the same program on {indices.shape[0]} rows as on all, got another one"
            )
        inputs = [*(z[name] for name in sorted(z)), *taken[:-num_held], indices]
        given = {number: x for (number, _), x in zip(self.held.values, taken[-num_held:], strict=True)}
        return list(zip(program.evaluate(inputs, given), axes, strict=True))

    def expression(self, z: Any, taken: Any, indices: Any) -> tuple[FlatProgram, list[int], list[int]]:
        """The likelihood as a program whose inputs are the sites by name, the data arrays and the plate's indices.

        Args:
            z: a position, or the shapes and types of one.
            taken: data arrays, likewise.
            indices: what the plate yields, likewise.

        Returns:
            The program, whose results are the terms; and of each term the number of its axes, and the axis (negative)
            of its rows.
        """
        axes: list[int] = []

        def run(z: Position, taken: Data, indices: jax.Array) -> list[jax.Array]:
            found = self._model_terms(z, taken, indices)
            axes[:] = [axis for _, axis in found]
            return [jnp.asarray(term) for term, _ in found]

        with jax.ensure_compile_time_eval():  # the same program wherever it is traced, in parallel chains too
            jaxpr = jax.make_jaxpr(run)({name: z[name] for name in sorted(z)}, tuple(taken), indices)
        return FlatProgram(jaxpr), [x.ndim for x in jaxpr.out_avals], list(axes)

    def hold(self, data: Data) -> Data:
        """The arguments' arrays on all rows, and after them the shared values computed from these."""
        return (*data, *self._hold(data)) if self.held.values else data

    @partial(jax.jit, static_argnums=0)
    def _hold(self, data: Data) -> list[jax.Array]:
        z = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape, dtype in self.held.position}
        indices = jnp.arange(self.layout.num_rows)
        program, *_ = self.expression(z, data, indices)
        own = dict(zip(program.inputs[len(z) :], [*data, indices], strict=True))
        return [jnp.asarray(x) for x in program.values([number for number, _ in self.held.values], own)]

    def _rows(self, z: Position, data: Data, block: RowBlock) -> list[tuple[jax.Array, int]]:
        num_own = len(data) - len(self.held.values)
        own = self._cut(data[:num_own], block)
        held = [
            x if value.axis is None else block.take(x, value.axis)
            for x, (_, value) in zip(data[num_own:], self.held.values, strict=True)
        ]
        return self.terms(self.local(z, block), (*own, *held), self._yielded(block))

    def _model_terms(self, z: Position, taken: Data, indices: jax.Array) -> list[tuple[jax.Array, int]]:
        args, kwargs = self.arguments.build(taken)
        return row_terms(self._trace(z, args, {**kwargs, ROWS_KWARG: indices}), self.plate)

    def for_outside(self, data: Data) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The model's arguments for terms outside the plate: those of all rows."""
        if self.shards is not None:  # a prior that reads rows in shards is refused, so zeros stand for them
            places = zip(data, self.row_axes(data), strict=True)
            data = tuple(x if axis is None else jnp.zeros(x.shape, x.dtype) for x, axis in places)
        return self.arguments.build(data)

    def _whole_trace(self, z: Position, data: Data) -> dict[str, Any]:
        args, kwargs = self.for_outside(data)
        return self._trace(z, args, kwargs)

    def _trace(self, z: Position, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        # the host's own handler for unconstrained values: it adds each site's Jacobian as a factor
        unconstrained = substitute(self.model, substitute_fn=partial(_substituted, z))
        return trace(unconstrained).get_trace(*args, **kwargs)


def _substituted(z: Position, site: dict[str, Any]) -> Any:
    """The value of a site at a position; None for a site that is not latent."""
    is_open = site["type"] == "sample" and not site["is_observed"] and site["value"] is None
    check_names(z, [site["name"]] if is_open else [])
    return unconstrain_reparam(z, site)


class FunctionDensity:
    """The log-density of a prior function and a likelihood function."""

    plate: str | None = None
    forward_mode = False
    num_blocks = 1  # the likelihood may return a sum over rows, so subsets are evaluated whole

    program: str | None = None  # digest of what the functions compute, where it is known

    def __init__(
        self, log_prior: Any, log_likelihood: Any, treedef: Any, layout: SubsetLayout, shards: Shards | None = None
    ):
        self._log_prior, self._log_likelihood = log_prior, log_likelihood
        self._treedef, self.layout, self.shards = treedef, layout, shards

    def __hash__(self) -> int:
        """Densities are equal if they are known to compute the same, or else if they are one object."""
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionDensity) and self._key == other._key

    @property
    def _key(self) -> tuple[Any, ...]:
        places = self.forward_mode, self.layout, self.shards, self._treedef
        return (id(self),) if self.program is None else (self.program, *places)

    def for_program(self, program: str) -> FunctionDensity:
        """A copy whose computation is known to have the digest ``program``."""
        density = copy.copy(self)
        density.program = program
        return density

    def row_axes(self, data: Data) -> list[int | None]:
        """Axis 0 for every array."""
        return [0] * len(data)

    @full_precision
    def prior(self, z: Position, data: Data) -> list[jax.Array]:
        """The value of the prior function, as the only term."""
        return [jnp.asarray(self._log_prior(z))]

    @full_precision
    def block(
        self, z: Position, data: Data, m: jax.Array, b: jax.Array | int, filled: jax.Array | None = None
    ) -> list[jax.Array]:
        """The likelihood function on the rows of subset ``m``."""
        block = subset_block(self.layout, m, filled=filled)
        values = self._rows(z, data, block)
        if values.ndim:
            return [block.mask(values, -1)]
        if block.valid is None:
            return [values]
        if filled is not None:
            raise ValueError(
                "log_likelihood must return one value per row where shards of the rows are filled up, got a scalar"
            )
        # a sum cannot be masked, so the borrowed row is left out: subsets have one of two sizes
        short = RowBlock(block.indices[1:], None if block.start is None else block.start + 1)
        leading = RowBlock(block.indices[:-1], block.start)
        size = jnp.sum(block.valid)
        branch = jnp.where(size == block.indices.shape[0], 0, jnp.where(block.valid[0], 1, 2))
        branches = [lambda b=b: self._rows(z, data, b) for b in (block, leading, short)]
        return [lax.switch(branch, branches)]

    @full_precision
    def pointwise(self, z: Position, data: Data, indices: jax.Array) -> jax.Array:
        """The values of the likelihood function, row by row."""
        rows = [RowBlock(indices).take(x, 0) for x in data]
        values = self._of_rows(z, rows)
        return values if values.ndim else jax.vmap(lambda *row: self._of_rows(z, [x[None] for x in row]))(*rows)

    def _rows(self, z: Position, data: Data, block: RowBlock) -> jax.Array:
        return self._of_rows(z, [block.take(x, 0) for x in data])

    def _of_rows(self, z: Position, rows: list[jax.Array]) -> jax.Array:
        values = jnp.asarray(self._log_likelihood(z, jax.tree.unflatten(self._treedef, rows)))
        check_values_of_rows(values.shape, rows[0].shape[0])
        return values


def _sum_to_axis(x: jax.Array, axis: int, size: int) -> jax.Array:
    """Sum over every axis of ``x`` but one."""
    x = jnp.broadcast_to(x, jnp.broadcast_shapes(x.shape, (size,) + (1,) * (-axis - 1)))
    return jnp.sum(jnp.moveaxis(x, axis, 0).reshape(size, -1), axis=1)
