"""A model divided over subsets of its rows, as the kernels use it.

It gives the potential of any data of the same shape, the parts of the rows on which the model is traced, its sites, and
the host's maps between positions and constrained values. :mod:`numpyro_split.splitting.model_split` finds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpyro.handlers import seed, substitute, trace
from numpyro.infer.util import transform_fn

from numpyro_split.host import unconstrain_reparam
from numpyro_split.potential.arguments import Arguments, Data
from numpyro_split.potential.densities import ModelDensity
from numpyro_split.potential.held import NOTHING_HELD
from numpyro_split.potential.host_density import WHOLE, HostDensity, Parts
from numpyro_split.potential.model_rows import RowSelectableModel, Site, Trace
from numpyro_split.potential.position import Position
from numpyro_split.potential.row_block import RowBlock
from numpyro_split.potential.shards import Shards
from numpyro_split.potential.sources import is_source
from numpyro_split.potential.split_potential import SplitPotential
from numpyro_split.splitting.latent_sites import (
    NOT_LEARNED,
    Initialisation,
    as_arrays,
    unconstrained_by,
)
from split_common.row_independence import NOT_PROVED, Verdict
from split_common.subsets import SubsetLayout


class DividedModel:
    """One model, on data of one shape, divided over subsets. Holds no data except a few rows of each shard.

    Attributes:
        layout: rows of each subset.
        mode: how rows are selected, "slice", "index" or "numbered"; "whole" where nothing is divided.
        program: digest of what the model computes (:mod:`numpyro_split.potential.content`).
        sites: the sample sites.
        verdict: whether the model's expression proves that rows are independent of one another.
        shards: how rows lie on several devices; None where they do not.
        few_rows: arguments with a few rows of each shard, which every process has; None where rows are not in shards.
    """

    def __init__(
        self,
        model: RowSelectableModel,
        layout: SubsetLayout,
        mode: str,
        row_axes: dict[str, int],
        init_strategy: Callable[..., Any],
        program: str,
        forward_mode: bool = False,
    ):
        self.layout, self.mode, self.program = layout, mode, program
        self._model, self._row_axes = model, row_axes
        self._forward_mode = forward_mode
        self._local_axes: dict[str, int] = {}
        self._initialisation = Initialisation(model, init_strategy, mode, layout.num_rows)
        self._latent = NOT_LEARNED
        self._fixed: tuple[str, ...] = ()  # names of numpyro.param and mutable sites
        self._sized_by_rows: list[str] = []  # sizes and supports outside the plate that follow the number of rows
        self.sites: list[Site] = []
        self.verdict = Verdict(NOT_PROVED)
        self._held = NOTHING_HELD
        self._takes_parts = False  # whether rows are evaluated in batches other than the subsets
        self.shards: Shards | None = None
        self.few_rows: Arguments | None = None

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SplitPotential:
        """The potential for given arguments, which may be traced."""
        arguments = Arguments(args, kwargs, self._row_axes)
        density = self._density(arguments)
        if self.shards is not None:
            density = density.over(arguments.shards() or self.shards, arguments)
        return SplitPotential(density, density.hold(arguments.data))

    def initial_position(self, rng_key: jax.Array, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Position:
        """A point with a finite density on some rows, if one is found; a batch of points for a batch of keys."""
        arguments = self._at_hand(args, kwargs)
        return self._draw(rng_key, self._density(arguments), arguments.data)

    def _at_hand(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """A run's arguments; where rows lie in shards, the few rows that every process has."""
        return Arguments(args, kwargs, self._row_axes) if self.few_rows is None else self.few_rows

    @partial(jax.jit, static_argnums=(0, 2))
    def _draw(self, rng_key: jax.Array, density: ModelDensity | HostDensity, data: Data) -> Position:
        return as_arrays(self._initialisation.on(self.part(0), rng_key, density, data).param_info.z)

    @property
    def plan(self) -> str:
        """How the model divides, as a text."""
        places = self.mode, sorted(self._row_axes.items()), sorted(self._local_axes.items()), self._held
        shards = "" if self.shards is None else self.shards.text
        return str((*places, self._model.key_of_values, self.layout.key, shards))

    @property
    def plate(self) -> str:
        """Name of the data plate; "" where nothing is divided."""
        return self._model.plate

    @property
    def row_axes(self) -> dict[str, int]:
        """The axis of the rows in each array of the arguments that holds any, by the array's path."""
        return self._row_axes

    @property
    def reads(self) -> bool:
        """Whether the model reads values of its data with Python, so that it is known for these data alone."""
        return bool(self._model.readings)

    @property
    def reference_position(self) -> Position:
        """A point with a finite density on some rows, the same for any key."""
        return self._latent.position

    @property
    def site_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of the unconstrained values at each latent site."""
        return self._latent.shapes

    @property
    def site_sizes(self) -> dict[str, int]:
        """Number of unconstrained values at each latent site."""
        return {name: math.prod(shape) for name, shape in self.site_shapes.items()}

    @property
    def local_sites(self) -> list[str]:
        """Latent sites inside the data plate."""
        return list(self._local_axes)

    @property
    def num_parts(self) -> int:
        """Number of parts of the rows on which models are traced."""
        return 1 if self.few_rows is not None or self._needs_all_rows else self.layout.num_subsets

    def part(self, number: int) -> np.ndarray:
        """Rows of a part: those of a subset; all where a latent or the model needs them; of shards, the few rows."""
        if self.few_rows is not None:
            return np.arange(self.few_rows.num_rows)
        if self._needs_all_rows:
            return np.arange(self.layout.num_rows)
        return np.asarray(self.layout.rows(number))

    @property
    def _needs_all_rows(self) -> bool:
        return bool(self._local_axes or self._held.values or self._model.readings or self._sized_by_rows)

    def reader(
        self, read: Callable[[Trace], Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[Position, int], Any]:
        """Compile ``read``, a function of the model's trace, as one of a position and a part of the rows.

        Values that it does not use are not computed.
        """
        arguments = self._at_hand(args, kwargs)
        density = self._density(arguments)

        @jax.jit
        def read_at(z: Position, data: Data, rows: jax.Array) -> Any:
            args, kwargs = density.rows(data, RowBlock(rows))
            at_z = substitute(seed(self._model, random.key(0)), substitute_fn=partial(unconstrain_reparam, z))
            return read(density.readable(trace(at_z).get_trace(*args, **kwargs)))

        return lambda z, part: read_at(z, arguments.data, jnp.asarray(self.part(part)))

    def prior_sites(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Callable[[Position, Data], Trace], Data]:
        """The sample sites outside the plate, as a function of a position and the data; and data to trace it with."""
        arguments = self._at_hand(args, kwargs)
        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) if is_source(x) else x for x in arguments.data]
        return self._density(arguments).prior_sites, tuple(shapes)

    def postprocess_fn(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[Position], Any]:
        """The host's map from a position to constrained values and deterministic sites."""
        assert self._latent.postprocess_fn is not None
        arguments = self._at_hand(args, kwargs)
        if arguments.sources:  # built inside the compiled function, which drops the rows: no result depends on them
            postprocess = arguments.in_trace(self._latent.postprocess_fn)
            return jax.jit(lambda z: postprocess()(z))
        args, kwargs = arguments.build(arguments.data)
        return self._latent.postprocess_fn(*args, **kwargs)

    def constrain_fn(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[Position], Any]:
        """A map from a position to constrained values that runs the model only where a support depends on values."""
        if self._latent.has_dynamic_supports:
            return self.postprocess_fn(args, kwargs)
        return partial(transform_fn, self._latent.transforms)

    def unconstrain_fn(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[dict[str, Any]], Position]:
        """A map from constrained values by site, of which it takes those of latent sites, to a position."""
        run = self._at_hand(args, kwargs).in_trace(partial(unconstrained_by, self._model))

        @jax.jit
        def unconstrained(values: dict[str, jax.Array]) -> Position:
            latent = self._latent
            return (
                run()(values) if latent.has_dynamic_supports else transform_fn(latent.transforms, values, invert=True)
            )

        return lambda values: unconstrained({name: values[name] for name in self.site_sizes})

    def _density(self, arguments: Arguments) -> Any:  # a ModelDensity, or a HostDensity
        if self.mode == WHOLE:
            density = HostDensity(self._model, arguments, self.program, Parts.of(self.sites, self._latent.potential_fn))
        else:
            places = self.layout, self.mode, arguments, self._local_axes
            density = ModelDensity(self._model, *places, self.program, self._held)
        density.forward_mode = self._forward_mode
        return density
