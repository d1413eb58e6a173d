"""How a model divides over subsets: its data plate, the arguments that hold rows, the way to select them.

The model is not rewritten. Ways of selecting rows are tried, and the first one whose subsets add up
to the model's own potential is kept: cutting the data arguments ("slice"), telling the plate which row
numbers to yield ("index", for data in a closure or parameters with an entry per row), and both ("numbered", for models
that compute with these numbers).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from pyro.infer.autoguide.initialization import init_to_uniform

from pyro_split.potential.arguments import Arguments, is_tensor
from pyro_split.potential.densities import ModelDensity
from pyro_split.potential.forms import FORMS
from pyro_split.potential.held import NOTHING_HELD, Held, HeldNumber
from pyro_split.potential.host_density import WHOLE, Parts
from pyro_split.potential.model_rows import ModelSites, RowSelectableModel
from pyro_split.potential.position import Position
from pyro_split.potential.precision import autocast_advice, full_precision
from pyro_split.potential.row_block import RowBlock
from pyro_split.potential.sources import placeholder
from pyro_split.potential.split_potential import SplitPotential
from pyro_split.splitting.choice import find_fitting
from pyro_split.splitting.description import check_written_by_row, describe, observed_columns
from pyro_split.splitting.divided_model import DividedModel
from pyro_split.splitting.exactness import check_exact, warn_unless_same_again
from pyro_split.splitting.implied_plate import InImpliedPlate
from pyro_split.splitting.latent_sites import (
    check_local_sizes,
    check_supports,
    warn_of_moving_supports,
)
from pyro_split.splitting.row_independence import prove, prove_free
from split_common.checks import check_callable, check_model_arguments
from split_common.containers import Form
from split_common.data_axes import axes_advice, check_data_axes, check_lengths, count_advice, uncut_advice
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
from split_common.held import HeldValue, reasons
from split_common.memory import AutoSubsets, check_subsets
from split_common.minibatches import LEAST_SUBSETS, sizes_of_parts
from split_common.open_model import OpenModel
from split_common.plates import choose_plate, latents_advice, neither_mode_splits
from split_common.row_independence import PROVED, REFUTED, Verdict, rows_meet
from split_common.selection import INDEX, NUMBERED, SLICE, cuts_data
from split_common.sources.rules import (
    check_axes,
    check_local,
    check_order,
    check_outside,
    check_proved_over_sources,
)
from split_common.start import check_has_latents
from split_common.subsets import SubsetLayout, warn_if_sorted

logger = logging.getLogger(__name__)
NO_PLATE = ""  # in place of a data plate's name, which no plate has


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
    jit_compile: bool = True,
) -> SplitPotential:
    """Divide a Pyro model's potential over subsets of its data plate, and check that the sum is exact.

    Args:
        model: a Pyro model whose likelihood sits in a plate over the data rows.
        model_args: its positional arguments.
        model_kwargs: its keyword arguments.
        num_subsets: M, from 1 to N, or "auto" for the smallest whose gradient takes at most ``memory``. One subset
            takes any model that the host's HMC takes.
        memory: with ``num_subsets="auto"``, what one gradient may take, in bytes or as "2GiB", "500MB" or "1.5 GB"
            (see "Choosing M" in docs/scale.md). None otherwise.
        plate: name of the data plate; None takes the only plate with observations.
        data_axes: for each argument that holds data rows, by name, the axis they lie along; one tensor inside an
            argument by its place, as "data['X']". None takes every tensor whose axis 0 has length N.
        subset_order: "sequential" cuts the rows as they stand, "shuffled" deals them by a fixed seed.
        init_strategy: the host's strategy for the point near which the sum is checked.
        jit_compile: trace the model once and keep its tensor operations; False replays it at every gradient.

    Returns:
        The potential, bound to these arguments.

    Raises:
        ValueError: for M outside 1 to N, an unknown plate, data of unequal length or without rows, or a log-density
            that is nowhere finite.
        ModelNotSplittableError: for more than one subset, when there is no plate that can be divided or there are
            several, for discrete latent sites, and when the sum over subsets is not the model's own potential.

    Example:
        >>> import torch, pyro, pyro.distributions as dist
        >>> def model(y):
        ...     mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        ...     with pyro.plate("data", y.shape[0]):
        ...         pyro.sample("y", dist.Normal(mu, 1.0), obs=y)
        >>> potential = split_model(model, (torch.arange(10.0),), num_subsets=3)
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
            jit_compile=jit_compile,
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
        jit_compile: bool,
        batch_sizes: Callable[[int], Iterable[int]] = lambda num_rows: (),
    ) -> ModelSplit:
        """Find the split of a model, and check it; the arguments but the last are those of :func:`split_model`.

        One subset is the whole model, which then need not divide.

        ``batch_sizes`` gives, for N rows, the numbers of rows that are evaluated at a time besides a subset's.
        """
        options: dict[str, Any] = {"data_axes": data_axes, "subset_order": subset_order, "batch_sizes": batch_sizes}
        options |= {"init_strategy": init_strategy, "jit_compile": jit_compile}
        if isinstance(num_subsets, AutoSubsets):
            find = partial(cls.find, model, args, kwargs, plate=plate, **options)
            return find_fitting(lambda number: find(num_subsets=number), num_subsets, args, kwargs)
        options["num_subsets"] = num_subsets
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
        return cls._undivided(model, args, kwargs, init_strategy, jit_compile)

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
        jit_compile: bool,
        batch_sizes: Callable[[int], Iterable[int]],
    ) -> ModelSplit:
        """The split of a model by a plate of its own; the arguments are those of :meth:`find`."""
        arguments = Arguments(args, kwargs, model=model)
        arguments.check_dense()
        check_data_axes(data_axes, arguments.argument_names, [name for name, _ in arguments.named_arrays()])
        check_lengths({name: x.shape[0] for name, x in arguments.named_arrays() if x.ndim and not x.shape[0]})
        check_lengths({name: source.shape[0] for name, source in arguments.sources.items()})
        sites, readings = describe(model, arguments, plate)
        plate = choose_plate(plate, sites.plate_sizes, sites.candidates, sites.holders)
        check_has_latents(sites.latents)
        check_no_discrete([site.name for site in sites.sites if site.discrete])
        layout = SubsetLayout(sites.plate_sizes[plate], num_subsets, subset_order)
        warn_if_sorted(layout, observed_columns(sites, plate, arguments))
        row_axes = arguments.find_row_axes(layout.num_rows, data_axes)
        check_axes(arguments.sources, arguments.axes_by_name(row_axes), layout.num_rows)
        check_order(arguments.sources, layout)
        sizes = set(batch_sizes(layout.num_rows))
        row_model = RowSelectableModel(model, plate, readings)
        splits = [
            cls(row_model, layout, mode, row_axes, init_strategy, jit_compile, prior_rows)
            for mode, prior_rows in _ways(model, bool(row_axes), jit_compile, bool(arguments.sources))
        ]
        found, failures = first_that_divides(
            splits,
            lambda split: split._prepare(sites, sizes, args, kwargs),
            lambda split: split._check(args, kwargs),
        )
        if found is not None:
            return found
        advice = readings.advice
        if data_axes is None:
            shapes = {name: tuple(x.shape) for name, x in arguments.named_arrays()}
            advice += axes_advice(list(arguments.axes_by_name(row_axes)), shapes, layout.num_rows)
        given = list(zip(arguments.argument_names, [*args, *kwargs.values()], strict=False))  # held arrays follow
        advice += uncut_advice(given, layout.num_rows, is_tensor) + autocast_advice()
        if not isinstance(failures.get(SLICE), RowsMeetError):
            advice += count_advice(given, layout.num_rows, arguments.axes_by_name(row_axes))
        raise neither_mode_splits(failures, advice + latents_advice(sites.latents, sites.plate_sizes, plate))

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
            "pyro",
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
        jit_compile: bool,
    ) -> ModelSplit:
        """The one subset of a model that does not divide: the host's own potential."""
        arguments = Arguments(args, kwargs, model=model)
        sites, readings = describe(model, arguments, NO_PLATE)
        check_has_latents(sites.latents)
        whole = RowSelectableModel(model, NO_PLATE)
        split = cls(whole, SubsetLayout(1, 1), WHOLE, {}, init_strategy, jit_compile, None)
        split.sites, split.params = sites.sites, sites.fixed
        split._parts = Parts.of(split.sites, whole, *arguments.build(arguments.data))
        split._latent = split._initialize(split._density(args, kwargs))
        warn_of_moving_supports(split._density(args, kwargs), split._latent.position)
        is_pure = warn_unless_same_again(split._density(args, kwargs), split._latent.position)
        split._jit_compile = jit_compile and is_pure  # a trace would keep the random numbers of one run
        if is_pure and not readings.depend_on_parameters:
            whole.readings = readings  # so that the model can be traced, on shapes alone
        split.verdict = NOT_DIVIDED
        return split

    def _several_parts(self) -> Iterator[torch.Tensor]:
        """Rows of each subset; of the only one, those of its two halves."""
        num_rows, num_subsets = self.layout.num_rows, self.layout.num_subsets
        layout = self.layout if num_subsets > 1 else SubsetLayout(num_rows, min(LEAST_SUBSETS, num_rows))
        return (torch.as_tensor(layout.rows(m)) for m in range(layout.num_subsets))

    def _prepare(self, sites: ModelSites, batch_sizes: set[int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Learn the latent sites from the host's own initialisation, and whether the rows are independent."""
        self.sites, self.params = sites.sites, sites.fixed
        local = {s.name: s for s in sites.sites if not s.observed and self._model.plate in s.plates}
        if sequential := [name for name, site in local.items() if site.plates[self._model.plate] is None]:
            raise ModelNotSplittableError(
                f"latents in a sequential plate have no axis of rows, got {sequential[0]!r}; write "
                f"`with pyro.plate({self._model.plate!r}, ...)` round one latent for all rows"
            )
        self._local_axes = dict.fromkeys(local, 0)
        sources = Arguments(args, kwargs, self._row_axes, self._model.model).sources
        check_local(sources, list(local))
        if cuts_data(self.mode) and not sources:
            check_written_by_row(self._density(args, kwargs), self._several_parts())
        self._latent = self._initialize(self._density(args, kwargs))
        if differing := self._latent.differing_in_size(self.sites):
            check_outside(sources, [f"the size of the latent site {differing[0]!r}"] * bool(sources))
            self._sized_by_rows = differing
            self._latent = self._initialize(self._density(args, kwargs))
        z = self._latent.position
        # rows lie along the plate's batch dimension, ahead of the unconstrained value's event dimensions
        self._local_axes = {
            name: (site.plates[self._model.plate] or -1) - (z[name].dim() - site.batch_ndim)
            for name, site in local.items()
        }
        check_local_sizes(z, self._local_axes, self.layout.num_rows)
        few = torch.arange(self.layout.num_rows) if self._local_axes else self.part(0)
        check_supports(self._density(args, kwargs), z, few)
        self._latent = self._latent.on_supports_of_all_rows(self._density(args, kwargs), len(self.part(0)))
        self._takes_parts = bool(batch_sizes)
        self.verdict, self._held = self._judge(self._density(args, kwargs), z, batch_sizes)
        logger.info("split by %s %s", self.mode, self.verdict)
        if self.verdict.kind == REFUTED:
            raise rows_meet(self.verdict.why)
        check_proved_over_sources(sources, self.verdict)

    def _check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compare numbers: the sum over subsets with the model's own potential."""
        density, is_proved = self._density(args, kwargs), self.verdict.kind == PROVED
        splits, compared, layout = [(density, self.bind(args, kwargs))], "", self.layout
        if not self._observes:
            check_factors(splits[0][1].energies(self._latent.position).numpy(force=True))
        if self._takes_parts and not is_proved:
            # a term of neighbouring rows differs only where they are in other subsets, so rows are dealt at random
            dealt = SubsetLayout(layout.num_rows, max(LEAST_SUBSETS, layout.num_subsets), "shuffled")
            density = density.for_rows(dealt, RowBlock(torch.arange(layout.num_rows), 0), self._latent.position)
            of_dealt = density, SplitPotential(density, density.arguments.data, jit_compile=False)
            splits = [*splits, of_dealt] if layout.num_subsets > 1 else [of_dealt]
        for density, potential in splits:
            compared = check_exact(density, potential, self._latent.position, is_proved, bool(self._sized_by_rows))
        self.verdict = self.verdict._replace(compared=compared)

    @property
    def _observes(self) -> bool:
        """Whether the data plate holds an observed site, besides factors."""
        return any(site.observed and not site.is_factor and self._model.plate in site.plates for site in self.sites)

    def _judge(self, density: ModelDensity, z: Position, batch_sizes: set[int]) -> tuple[Verdict, Held]:
        """Whether rows are independent of one another, by the model's operations, for each size of a batch of rows.

        Returns:
            The first verdict that is no proof, otherwise the proof; and, with a proof, the values that are held.
        """
        sizes = {*self.layout.sizes, *batch_sizes} - {self.layout.num_rows}
        self._run_on(sizes, density, z)
        data = tuple(map(placeholder, density.arguments.data))
        verdict, held, num_steps = proved_in_all(sizes, lambda size: prove(density, data, z, size))
        if verdict.kind == PROVED and self._prior_rows is not None:
            outside = prove_free(density.outside, density, data, z, self._prior_rows)
            if outside.kind != PROVED:
                sources = density.arguments.sources
                check_outside(sources, [f"a term outside the plate ({outside})"] * bool(sources))
                return outside, NOTHING_HELD
        return verdict._replace(held=reasons(held.values())), _what_is_held(held, num_steps, z)

    def _run_on(self, sizes: set[int], density: ModelDensity, z: Position) -> None:
        """Run the model with values on as many rows as it is traced on, since it may keep something by their number."""
        for size in sizes if not density.arguments.sources else ():
            with contextlib.suppress(Exception), torch.no_grad():  # what fails there fails again, and is explained
                density.sites_at(z, torch.arange(size))


def _ways(
    model: Callable[..., Any], has_rows: bool, jit_compile: bool, has_sources: bool
) -> list[tuple[str, int | None]]:
    """Ways to select rows, in the order they are tried, each with the rows the prior is evaluated on.

    A traced prior drops the likelihood's operations, so it is given all the rows. Replayed, it would compute
    them, so one row is tried first: enough unless something outside the plate depends on the data. A plate that is not
    the model's own yields no row numbers. No model is given all rows of a source.
    """
    if has_sources:
        return [(SLICE, 1), (NUMBERED, 1)]
    prior_rows: list[int | None] = [None] if jit_compile else [1, None]
    modes = (SLICE, INDEX, NUMBERED) if has_rows else (INDEX,)
    modes = (SLICE,) if isinstance(model, InImpliedPlate) else modes
    return [(mode, rows) for mode in modes for rows in prior_rows]


def _what_is_held(held: dict[Any, HeldValue | HeldNumber], num_steps: int, z: Position) -> Held:
    """What is held after a proof: results, whose place ends in an index, and numbers, whose place ends in a name."""
    values = tuple((place, value) for place, value in held.items() if isinstance(value, HeldValue))
    numbers: dict[int, tuple[tuple[str, Any], ...]] = {}
    for place, value in held.items():
        if isinstance(value, HeldNumber):
            numbers[place[0]] = (*numbers.get(place[0], ()), (place[1], value.number))
    return Held(values, tuple(numbers.items()), num_steps, tuple(z.items())) if held else NOTHING_HELD
