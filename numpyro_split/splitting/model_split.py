"""How a model divides over subsets: its data plate, the arguments that hold rows, the way to select them.

The model is not rewritten. Ways of selecting rows are tried, and the first one whose subsets add up
to the model's own potential is kept: cutting the data arguments ("slice"), telling the plate which row
numbers to yield ("index", for data in a closure or parameters with an entry per row), and both ("numbered", for models
that compute with these numbers).
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jax.core import Tracer
from jax.errors import UnexpectedTracerError
from numpyro.infer.initialization import init_to_uniform
from numpyro.infer.util import ModelInfo

from numpyro_split.potential.arguments import Arguments, Data, is_array, with_arrays
from numpyro_split.potential.content import KEEPS_TRACER, TracerKeptError, program_of_model
from numpyro_split.potential.densities import ModelDensity
from numpyro_split.potential.forms import FORMS
from numpyro_split.potential.held import NOTHING_HELD, Held
from numpyro_split.potential.host_density import WHOLE, whole_model
from numpyro_split.potential.model_rows import ModelSites, RowSelectableModel, form_of
from numpyro_split.potential.position import Position
from numpyro_split.potential.precision import full_precision
from numpyro_split.potential.row_block import RowBlock
from numpyro_split.potential.shards import Shards
from numpyro_split.potential.sources import is_source
from numpyro_split.potential.split_potential import SplitPotential
from numpyro_split.potential.tracing import eagerly
from numpyro_split.splitting.choice import find_fitting
from numpyro_split.splitting.description import describe, describe_undivided, readings_behind
from numpyro_split.splitting.divided_model import DividedModel
from numpyro_split.splitting.exactness import ROW_BUDGET, check_exact
from numpyro_split.splitting.implied_plate import InImpliedPlate
from numpyro_split.splitting.latent_sites import (
    LatentSites,
    starts_explained,
)
from numpyro_split.splitting.over_shards import (
    arrays_in,
    check_over_shards,
    check_proved,
    check_shard_rows,
    depending_on,
    following_number,
    number_is_read,
    outside_plate,
    parameters,
    rows_are_read,
)
from numpyro_split.splitting.row_independence import prove
from split_common.checks import check_callable, check_model_arguments
from split_common.containers import Form
from split_common.data_axes import (
    axes_advice,
    check_data_axes,
    check_lengths,
    count_advice,
    sparse_advice,
    uncut_advice,
    unseen_advice,
)
from split_common.discrete import check_no_discrete
from split_common.division import NOT_DIVIDED, divided_without_plate, first_that_divides, proved_in_all
from split_common.errors import (
    WHOLE_RUNS,
    ModelNotSplittableError,
    NoDataPlateError,
    RowsMeetError,
    first_line,
)
from split_common.exactness import check_factors
from split_common.held import reasons
from split_common.memory import AutoSubsets, check_subsets
from split_common.minibatches import LEAST_SUBSETS, sizes_of_parts
from split_common.open_model import OpenModel
from split_common.plates import choose_plate, latents_advice, neither_mode_splits
from split_common.row_independence import PROVED, REFUTED, Verdict, rows_meet
from split_common.selection import INDEX, NUMBERED, SLICE
from split_common.sources.rules import (
    check_axes,
    check_local,
    check_order,
    check_outside,
    check_proved_over_sources,
)
from split_common.subsets import SubsetLayout, warn_if_sorted

logger = logging.getLogger(__name__)


def split_model(
    model: Callable[..., Any],
    model_args: tuple[Any, ...] = (),
    model_kwargs: dict[str, Any] | None = None,
    *,
    num_subsets: int | str,
    memory: int | str | None = None,
    plate: str | None = None,
    data_axes: dict[str, int | None] | None = None,
    subset_order: str = "sequential",
    init_strategy: Callable[..., Any] = init_to_uniform,
) -> SplitPotential:
    """Divide a NumPyro model's potential over subsets of its data plate, and check that the sum is exact.

    Args:
        model: a NumPyro model whose likelihood sits in a plate over the data rows.
        model_args: its positional arguments.
        model_kwargs: its keyword arguments.
        num_subsets: M, from 1 to N, or "auto" for the smallest whose gradient takes at most ``memory``. One subset
            takes any model that the host's HMC takes.
        memory: with ``num_subsets="auto"``, what one gradient may take, in bytes or as "2GiB", "500MB" or "1.5 GB"
            (see "Choosing M" in docs/scale.md). None otherwise.
        plate: name of the data plate; None takes the only plate with observations.
        data_axes: for each argument that holds data rows, by name, the axis they lie along; one array inside an
            argument by its place, as "data['X']". None takes every array whose axis 0 has length N.
        subset_order: "sequential" cuts the rows as they stand, "shuffled" deals them by a fixed seed.
        init_strategy: the host's strategy for the point near which the sum is checked.

    Returns:
        The potential, bound to these arguments.

    Raises:
        ValueError: for M outside 1 to N, an unknown plate, data of unequal length or without rows, or a log-density
            that is nowhere finite.
        ModelNotSplittableError: for more than one subset, when there is no plate that can be divided or there are
            several, for discrete latent sites, and when the sum over subsets is not the model's own potential.

    Example:
        >>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist
        >>> def model(y):
        ...     mu = numpyro.sample("mu", dist.Normal(0, 1))
        ...     with numpyro.plate("data", y.shape[0]):
        ...         numpyro.sample("y", dist.Normal(mu, 1), obs=y)
        >>> potential = split_model(model, (jnp.arange(10.0),), num_subsets=3)
        >>> potential.plate, potential.subset_sizes
        ('data', (4, 3, 3))
    """
    check_callable("model", model)
    subsets = check_subsets(num_subsets, memory)

    def divide(args: tuple[Any, ...], kwargs: dict[str, Any], form: Form) -> SplitPotential:
        split = ModelSplit.find(
            OpenModel(model),
            args,
            kwargs,
            num_subsets=subsets,
            plate=plate,
            data_axes=data_axes,
            subset_order=subset_order,
            init_strategy=init_strategy,
            program=None,
            batch_sizes=sizes_of_parts,
        )
        return split.bind(args, kwargs)

    given = check_model_arguments(model_args, model_kwargs)
    potential = FORMS.divide(model, *given, divide, undivided=subsets == 1)
    potential.held = (model_args, model_kwargs)
    return potential


class ModelSplit(DividedModel):
    """A divided model that is found and checked: :meth:`find` is the way to one."""

    @classmethod
    @full_precision
    def find(
        cls,
        model: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        num_subsets: int | AutoSubsets,
        plate: str | None,
        data_axes: dict[str, int | None] | None,
        subset_order: str,
        init_strategy: Callable[..., Any],
        program: str | None,
        batch_sizes: Callable[[int], Iterable[int]] = lambda num_rows: (),
        forward_mode: bool = False,
        num_chains: int = 1,
    ) -> ModelSplit:
        """Find the split of a model, and check it; the arguments but the last few are those of :func:`split_model`.

        One subset is the whole model, which then need not divide.

        ``program`` is the digest of what the model computes, where it is known; ``batch_sizes`` gives, for N rows, the
        numbers of rows that are evaluated at a time besides a subset's; ``forward_mode`` says whether gradients are
        taken in forward mode; ``num_chains`` is the number of chains whose gradients are evaluated at once.
        """
        options: dict[str, Any] = {"data_axes": data_axes, "subset_order": subset_order, "forward_mode": forward_mode}
        options |= {"init_strategy": init_strategy, "program": program, "batch_sizes": batch_sizes}
        if isinstance(num_subsets, AutoSubsets):
            find = partial(cls.find, model, args, kwargs, plate=plate, **options)
            return find_fitting(lambda number: find(num_subsets=number), num_subsets, args, kwargs, num_chains)
        options["num_subsets"] = num_subsets
        if (shards := Arguments(args, kwargs, model=model).shards(data_axes)) is not None:
            return cls._over_shards(shards, model, args, kwargs, plate=plate, **options)
        try:
            try:
                return cls._divide(model, args, kwargs, plate=plate, **options)
            except NoDataPlateError:
                return cls._divide_without_plate(model, args, kwargs, **options)
        except ModelNotSplittableError as refusal:
            if num_subsets != 1 or Arguments(args, kwargs).sources:
                raise
            why = first_line(refusal).split(f"; {WHOLE_RUNS}")[0]
        logger.info("num_subsets=1: the model is run as it is, undivided (%s)", why)
        try:
            return cls._undivided(model, args, kwargs, init_strategy, program, forward_mode)
        except UnexpectedTracerError as error:
            raise TracerKeptError(KEEPS_TRACER) from error

    @classmethod
    def _over_shards(
        cls,
        shards: Shards,
        model: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        batch_sizes: Callable[[int], Iterable[int]],
        **options: Any,
    ) -> ModelSplit:
        """The split of a model whose rows lie in shards.

        What has to be computed before chains start is computed on a few rows of each shard, by every process for
        itself; that the model divides over all of them is proved from shapes.
        """
        num_subsets, data_axes = options["num_subsets"], options["data_axes"]
        check_shard_rows(num_subsets, shards)
        layout = SubsetLayout(shards.length, num_subsets, options["subset_order"])
        arguments = Arguments(args, kwargs, model=model)
        row_axes = arguments.find_row_axes(shards.length * shards.num, data_axes)
        arguments = Arguments(args, kwargs, row_axes, model)
        options["program"] = options["program"] or program_of_model(model, arguments)
        few = arguments.few_rows(shards, max(ROW_BUDGET, num_subsets))
        few_args, few_kwargs = with_arrays((args, kwargs), few)
        options["num_subsets"] = min(max(2, num_subsets), few.num_rows)  # with one subset nothing would be checked
        split = cls.find(model, few_args, few_kwargs, batch_sizes=lambda num_rows: (), **options)
        split.layout = SubsetLayout(shards.length * shards.num, num_subsets, options["subset_order"])
        split.few_rows, split.shards = few, shards
        check_over_shards(split, shards, row_axes, arguments.names_of(row_axes))
        density = split._density(arguments)
        sizes = {math.ceil(layout.sizes[0] / density.over(shards, arguments).num_blocks), *batch_sizes(shards.num_rows)}
        verdict, held = split._judge(density, arguments.shapes(), split.reference_position, sizes)
        split.verdict = verdict._replace(compared=split.verdict.compared)
        check_proved(split, held.values)
        if split._sized_by_rows:
            raise rows_are_read(split._sized_by_rows[0])
        in_shards = [axis is not None for axis in arguments.axes]
        if resting := split._depending_on(arguments, in_shards):
            raise rows_are_read(resting[0])
        latent = split._latent.postprocess_fn, split.reference_position
        read = partial(outside_plate, split._density(arguments), *latent, arguments, split._fixed)
        if resting := following_number(read, arguments, in_shards, (few.num_rows, shards.num_rows)):
            raise number_is_read(resting[0])
        return split

    @classmethod
    def _divide(
        cls,
        model: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        num_subsets: int,
        plate: str | None,
        data_axes: dict[str, int | None] | None,
        subset_order: str,
        init_strategy: Callable[..., Any],
        program: str | None,
        batch_sizes: Callable[[int], Iterable[int]],
        forward_mode: bool,
    ) -> ModelSplit:
        """The split of a model by a plate of its own; the arguments are those of :meth:`find`."""
        arguments = Arguments(args, kwargs, model=model)
        check_data_axes(data_axes, arguments.argument_names, [name for name, _ in arguments.named_arrays()])
        check_lengths({name: x.shape[0] for name, x in arguments.named_arrays() if x.ndim and not x.shape[0]})
        check_lengths({name: source.shape[0] for name, source in arguments.sources.items()})
        sites, readings = describe(model, arguments)
        plate = choose_plate(plate, sites.plate_sizes, sites.candidates, sites.holders)
        check_no_discrete([site.name for site in sites.sites if site.discrete])
        layout = SubsetLayout(sites.plate_sizes[plate], num_subsets, subset_order)
        warn_if_sorted(layout, [(s.name, s.value) for s in sites.sites if s.observed and plate in s.plates])
        row_axes = arguments.find_row_axes(layout.num_rows, data_axes)
        check_axes(arguments.sources, arguments.axes_by_name(row_axes), layout.num_rows)
        check_order(arguments.sources, layout)
        program = program_of_model(model, arguments) if program is None else program
        sizes = set(batch_sizes(layout.num_rows))
        row_model = RowSelectableModel(model, plate, readings)
        modes = _modes(model, bool(row_axes), bool(arguments.sources))
        splits = [ModelSplit(row_model, layout, mode, row_axes, init_strategy, program, forward_mode) for mode in modes]

        def first_of(splits: list[ModelSplit]) -> tuple[ModelSplit | None, dict[str, Exception]]:
            return first_that_divides(
                splits,
                lambda split: split._prepare(sites, sizes, args, kwargs),
                lambda split: split._check(args, kwargs),
            )

        with eagerly():
            found, failures = first_of(splits)
            if found is None and not readings and (readings := readings_behind(failures, row_model, arguments)):
                row_model = RowSelectableModel(model, plate, readings)
                found, failures = first_of([split.with_model(row_model) for split in splits])
        if found is None:
            if any(isinstance(error, UnexpectedTracerError) for error in failures.values()):
                raise TracerKeptError(KEEPS_TRACER)
            advice = row_model.readings.advice + _forwards(failures)
            if data_axes is None:
                shapes = {name: tuple(x.shape) for name, x in arguments.named_arrays()}
                advice += axes_advice(list(arguments.axes_by_name(row_axes)), shapes, layout.num_rows)
            given = list(zip(arguments.argument_names, [*args, *kwargs.values()], strict=False))  # held arrays follow
            advice += sparse_advice(arguments.sparse) + unseen_advice(arguments.unseen)
            advice += uncut_advice(given, layout.num_rows, is_array)
            if not isinstance(failures.get(SLICE), RowsMeetError):
                advice += count_advice(given, layout.num_rows, arguments.axes_by_name(row_axes))
            advice += latents_advice(sites.latents, sites.plate_sizes, plate)
            raise neither_mode_splits(failures, advice)
        return found

    def with_model(self, model: RowSelectableModel) -> ModelSplit:
        """The same way of dividing another model, not checked yet."""
        strategy = self._initialisation.strategy
        return ModelSplit(model, self.layout, self.mode, self._row_axes, strategy, self.program, self._forward_mode)

    @classmethod
    def _divide_without_plate(
        cls, model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], **options: Any
    ) -> ModelSplit:
        """The split of a model with one observed site, in no plate, if its rows are proved independent.

        Raises:
            ModelNotSplittableError: with the edit that would help, where there is no such site or no proof.
        """
        arguments, sizes = Arguments(args, kwargs, model=model), options.pop("batch_sizes")
        options["batch_sizes"] = lambda num_rows: {*sizes(num_rows), num_rows // 2}  # so that one subset needs a proof

        def divide(site: str) -> ModelSplit:
            implied = InImpliedPlate(model, site)
            return cls._divide(implied, args, kwargs, plate=implied.plate, **options)

        sites, _ = describe(model, arguments)
        return divided_without_plate(
            sites.observations,
            sites.latents,
            "numpyro",
            lambda num_rows: bool(arguments.find_row_axes(num_rows, options["data_axes"])),
            divide,
        )

    @classmethod
    def _undivided(
        cls,
        model: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        init_strategy: Callable[..., Any],
        program: str | None,
        forward_mode: bool,
    ) -> ModelSplit:
        """The one subset of a model that does not divide: the host's own potential."""
        arguments = Arguments(args, kwargs, model=model)
        sites, readings = describe_undivided(model, arguments)
        program = program_of_model(model, arguments) if program is None else program
        whole = whole_model(model, readings)
        split = cls(whole, SubsetLayout(1, 1), WHOLE, {}, init_strategy, program, forward_mode)
        split.sites = [site._replace(value=None) for site in sites.sites]
        with eagerly():
            split._learn_sites(arguments)
        split.verdict = NOT_DIVIDED
        return split

    def _prepare(self, sites: ModelSites, batch_sizes: set[int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Learn the latent sites from the host's own initialisation, and whether the rows are independent."""
        self.sites = [site._replace(value=None) for site in sites.sites]  # observed values are data
        local = {s.name: s for s in sites.sites if not s.observed and self._model.plate in s.plates}
        self._local_axes = dict.fromkeys(local, 0)
        arguments = Arguments(args, kwargs, self._row_axes, self._model.model)
        check_local(arguments.sources, list(local))
        self._fixed = sites.fixed
        self._fix_values(arguments)
        z = self._learn_sites(arguments)
        # rows lie along the plate's batch dimension, ahead of the unconstrained value's event dimensions
        self._local_axes = {
            name: site.plates[self._model.plate] - (z[name].ndim - site.batch_ndim) for name, site in local.items()
        }
        if any(isinstance(x, Tracer) for x in arguments.data):
            warnings.warn(
                "the data are traced (`run` under a transformation), so no numbers were compared", stacklevel=2
            )
        self._takes_parts = bool(batch_sizes)
        self.verdict, self._held = self._judge(self._density(arguments), arguments.data, z, batch_sizes)
        logger.info("split by %s %s", self.mode, self.verdict)
        if self.verdict.kind == REFUTED:
            raise rows_meet(self.verdict.why)
        check_proved_over_sources(arguments.sources, self.verdict)
        if arguments.sources:
            of_sources = [is_source(x) for x in arguments.data]
            check_outside(arguments.sources, self._depending_on(arguments, of_sources))
            read = partial(parameters, self._density(arguments), arguments, self._fixed)  # found on a part of the rows
            lengths = len(self.part(0)), self.layout.num_rows
            check_outside(arguments.sources, following_number(read, arguments, of_sources, lengths))
        if self._held.values:
            self._learn_sites(arguments)  # supports may depend on shared values, now computed on all rows

    def _fix_values(self, arguments: Arguments) -> None:
        """Fix the values of param and mutable sites, as the host does: at what all rows give, or some of a source."""
        if not self._fixed:
            return
        density, rows = self._density(arguments), np.arange(self.layout.num_rows)
        structure: list[Any] = []

        def first_values(data: Data) -> list[jax.Array]:
            args, kwargs = density.rows(data, RowBlock(jnp.asarray(self.part(0) if arguments.sources else rows)))
            structure[:] = [self._model.first_values(self._fixed, args, kwargs)]
            return arrays_in(structure[0])

        found = iter((first_values if arguments.sources else jax.jit(first_values))(arguments.data))
        self._model.fix(jax.tree.map(lambda x: next(found) if isinstance(x, jax.Array) else x, structure[0]))

    def _learn_sites(self, arguments: Arguments) -> Position:
        """Sizes, supports and a position of the latent sites."""
        with starts_explained(arguments):
            info = self._initialize(arguments)
            if self._finds_sized_by_rows(info, arguments):
                info = self._initialize(arguments)
        self._latent = LatentSites.of(info, self._model, any(site.discrete for site in self.sites))
        sites = info.model_trace.items()
        self._model.fix({name: site["value"] for name, site in sites if site["type"] in ("param", "mutable")})
        return self._latent.position

    def _initialize(self, arguments: Arguments) -> ModelInfo:
        """The host's initialisation, on the rows of one subset where no latent has an entry per row."""
        return self._initialisation.on(self.part(0), random.key(0), self._density(arguments), arguments.data)

    def _finds_sized_by_rows(self, info: ModelInfo, arguments: Arguments) -> bool:
        """Whether there are other latent sites on a part of the rows than on all, or of another size or support.

        They are then learned from all rows.
        """
        of_all = {site.name: site for site in self.sites if not site.observed}
        found = [f"the latent site {name!r}" for name in sorted(of_all.keys() ^ info.param_info.z.keys())]
        for name in sorted(of_all.keys() & info.param_info.z.keys()):
            on_part = info.model_trace[name]
            if np.shape(on_part["value"]) != of_all[name].shape:
                found.append(f"the size of the latent site {name!r}")
            elif form_of(on_part["fn"].support) != of_all[name].support:
                found.append(f"the support of the latent site {name!r}")
        if arguments.sources:
            check_outside(arguments.sources, found)
        self._sized_by_rows = found or self._sized_by_rows
        return bool(found)

    def _check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compare numbers: the sum over subsets with the model's own potential."""
        arguments = Arguments(args, kwargs, self._row_axes)
        if not any(isinstance(x, Tracer) for x in arguments.data):
            density, is_proved = self._density(arguments), self.verdict.kind == PROVED
            densities, num_subsets = [density], self.layout.num_subsets
            if self._takes_parts and not is_proved:
                # a term of neighbouring rows differs only where they are in other subsets, so rows are dealt at random
                dealt = SubsetLayout(self.layout.num_rows, max(LEAST_SUBSETS, num_subsets), "shuffled")
                of_dealt = density.for_layout(dealt, arguments)
                densities = [density, of_dealt] if num_subsets > 1 else [of_dealt]
            z, must_be_whole, compared = self.reference_position, bool(self._sized_by_rows), ""
            if not self._observes:
                check_factors(np.asarray(self.bind(args, kwargs).energies(z).value))
            with jax.debug_nans(False):  # far out, where a chain may never go, a model may well be NaN
                for density in densities:
                    compared = check_exact(density, arguments.data, z, is_proved, must_be_whole)
            self.verdict = self.verdict._replace(compared=compared)

    @property
    def _observes(self) -> bool:
        """Whether the data plate holds an observed site, besides factors."""
        return any(site.observed and not site.is_factor and self._model.plate in site.plates for site in self.sites)

    def _depending_on(self, arguments: Arguments, elsewhere: list[bool]) -> list[str]:
        """Descriptions of values, the likelihood apart, that depend on rows which lie elsewhere."""
        assert self._latent.postprocess_fn is not None
        density, z = self._density(arguments), self.reference_position
        return depending_on(density, self._latent.postprocess_fn, z, arguments, elsewhere, self._fixed)

    def _judge(self, density: ModelDensity, data: Data, z: Position, batch_sizes: set[int]) -> tuple[Verdict, Held]:
        """Whether rows are independent of one another, by the model's expression, for each size of a batch of rows.

        Returns:
            The first verdict that is no proof, otherwise the proof; and, with a proof, the values that are held.
        """
        largest = self.layout.sizes[0]
        sizes = {largest, math.ceil(largest / density.num_blocks), *batch_sizes} - {self.layout.num_rows}
        verdict, held, num_steps = proved_in_all(sizes, lambda size: prove(density, data, z, size))
        if not held:
            return verdict, NOTHING_HELD
        position = tuple((name, u.shape, u.dtype) for name, u in sorted(z.items()))
        found = tuple(sorted(held.items()))
        known = Held(found, position, num_steps, tuple(sorted(sizes)))
        return verdict._replace(held=reasons(value for _, value in found)), known


def _modes(model: Callable[..., Any], has_rows: bool, has_sources: bool) -> tuple[str, ...]:
    """Ways to select rows, in the order they are tried; a plate that is not the model's own yields no numbers."""
    if isinstance(model, InImpliedPlate):
        return (SLICE,)
    if has_sources:  # no model is given all rows of a source
        return SLICE, NUMBERED
    return (SLICE, INDEX, NUMBERED) if has_rows else (INDEX,)


def _forwards(failures: Mapping[str, Exception]) -> str:
    """Advice for models that cannot be differentiated in reverse mode."""
    is_backwards = any("Reverse-mode differentiation" in str(error) for error in failures.values())
    return "; pass forward_mode_differentiation=True to the kernel" if is_backwards else ""
