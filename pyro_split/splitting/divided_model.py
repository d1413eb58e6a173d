"""A model divided over subsets of its rows, as the kernels use it.

It gives the potential of any data of the same shape, the parts of the rows on which the model is traced, its sites, and
the host's maps between positions and constrained values. :mod:`pyro_split.splitting.model_split` finds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from pyro_split.potential.arguments import Arguments, Data
from pyro_split.potential.densities import ModelDensity
from pyro_split.potential.held import NOTHING_HELD
from pyro_split.potential.host_density import WHOLE, HostDensity, Parts
from pyro_split.potential.model_rows import RowSelectableModel, Site, describe_model
from pyro_split.potential.position import Position
from pyro_split.potential.readings import find_readings, params_of_data
from pyro_split.potential.sources import placeholder
from pyro_split.potential.split_potential import SplitPotential
from pyro_split.splitting.latent_sites import (
    NOT_LEARNED,
    Initialisation,
    LatentSites,
)
from pyro_split.splitting.row_independence import prove_free
from split_common.row_independence import NOT_PROVED, PROVED, Verdict
from split_common.runs.identity import texts_of
from split_common.selection import NUMBERED
from split_common.start import NoFiniteStartError
from split_common.subsets import SubsetLayout

OUT_OF_BOUNDS = "out of bounds for dimension"  # in the RuntimeError of torch's scatter and gather


class DividedModel:
    """One model, on data of one shape, divided over subsets. Holds no data.

    Attributes:
        layout: rows of each subset.
        sites: the sample sites.
        verdict: whether the model's operations prove that rows are independent of one another.
        mode: how the rows of a subset are selected: "slice", "index" or "numbered"; "whole" where nothing is divided.
        params: names of the ``pyro.param`` sites.
    """

    def __init__(
        self,
        model: RowSelectableModel,
        layout: SubsetLayout,
        mode: str,
        row_axes: dict[str, int],
        init_strategy: Callable[..., Any],
        jit_compile: bool,
        prior_rows: int | None,
    ):
        self.layout, self.mode = layout, mode
        self._model, self._row_axes = model, row_axes
        self._jit_compile, self._prior_rows = jit_compile, prior_rows
        self._local_axes: dict[str, int] = {}
        self._parts = Parts()
        self._initialisation = Initialisation(model, init_strategy, mode)
        self._latent = NOT_LEARNED
        self.sites: list[Site] = []
        self.verdict = Verdict(NOT_PROVED)
        self._held = NOTHING_HELD
        self._takes_parts = False  # whether rows are evaluated in batches other than the subsets
        self.params: tuple[str, ...] = ()  # names of the pyro.param sites
        self._sized_by_rows: list[str] = []  # latent sites outside the plate whose size follows the number of rows

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SplitPotential:
        """The potential for given arguments."""
        density = self._density(args, kwargs)
        return SplitPotential(density, density.hold(density.arguments.data), self._jit_compile)

    def initial_position(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Position:
        """A point with a finite density on some rows, drawn from torch's generator."""
        return self._initialize(self._density(args, kwargs)).position

    def reference_position(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Position:
        """A position that is always the same, and leaves torch's generator as it is."""
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return self.initial_position(args, kwargs)

    @property
    def row_axes(self) -> dict[str, int]:
        """The axis of the rows in each tensor of the arguments that holds any, by the tensor's path."""
        return self._row_axes

    @property
    def transforms(self) -> dict[str, Any]:
        """For each latent site, the host's transform to unconstrained values."""
        return self._latent.transforms

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

    def depends_on_other_rows(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Why a process cannot evaluate the model on its own rows alone; "" where it is proved that it can."""
        if self.mode == WHOLE:
            return "it is run undivided (num_subsets=2 says why it does not divide)"
        if self.mode == NUMBERED:
            return (
                "it computes with the row numbers that its plate yields, and a rank numbers its own rows from 0 (pass "
                "the numbers as an argument)"
            )
        if self._held or self.verdict.kind != PROVED:
            return str(self.verdict)
        density = self._density(args, kwargs)
        rows = density.rows_of(density.arguments.data, torch.arange(self.layout.num_rows))
        if self.params and (of_rows := params_of_data(self._model, *rows)):
            return f"its parameters {of_rows} begin with values that it computes from its rows"
        some = max(1, self.layout.num_rows // 2)
        few_args, few_kwargs = density.rows_of(density.arguments.data, torch.arange(some))
        of_few = {site.name: site.shape for site in describe_model(self._model, few_args, few_kwargs).sites}
        for site in self.sites:
            if (
                site.name in self.site_sizes
                and site.name not in self._local_axes
                and of_few.get(site.name) != site.shape
            ):
                return f"the size of its latent site {site.name!r} follows the number of rows"
        if line := self._reading_of_rows(few_args, few_kwargs):
            return (
                f"{line}: Python reads a value that rests on the rows (compute it beforehand, from all rows, and pass "
                "it as a number)"
            )
        for read in (density.outside, density.bounds):
            verdict = prove_free(read, density, density.arguments.data, self._latent.position, some)
            if verdict.kind != PROVED:
                return str(verdict)
        return ""

    @property
    def read_values(self) -> dict[str, Any]:
        """What the model reads with Python from its data, parameters apart, by line and by turn."""
        return self._model.readings.of_data

    def _reading_of_rows(self, few_args: tuple[Any, ...], few_kwargs: dict[str, Any]) -> str:
        """The line of a reading with Python that gives another value on fewer rows; "" where there is none."""
        read = self.read_values
        if not read:
            return ""
        with self._model.readings.made_anew():
            of_few = find_readings(self._model, few_args, few_kwargs).of_data
        changed = (
            name for name, x in read.items() if name not in of_few or texts_of(x, name) != texts_of(of_few[name], name)
        )
        return next(changed, "").rpartition(" ")[0]

    @property
    def num_parts(self) -> int:
        """Number of parts of the rows on which models are traced."""
        return 1 if self._needs_all_rows else self.layout.num_subsets

    def part(self, number: int) -> torch.Tensor:
        """Rows of a part: those of a subset; all where a latent or the model needs them."""
        if self._needs_all_rows:
            return torch.arange(self.layout.num_rows)
        return torch.as_tensor(self.layout.rows(number))

    @property
    def _needs_all_rows(self) -> bool:
        return bool(self._local_axes or self._held or self._sized_by_rows)

    def reader(
        self, read: Callable[[dict[str, Any]], Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[Position, int], Any]:
        """Turn ``read``, a function of the model's sites, into one of a position and a part of the rows."""
        density = self._density(args, kwargs)

        def read_at(z: Position, part: int) -> Any:
            with torch.no_grad():
                return read(density.sites_at(z, self.part(part)))

        return read_at

    def prior_sites(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Callable[[Position, Data], dict[str, Any]], Data]:
        """The sample sites outside the plate, as a function of a position and the data; and data to trace it with."""
        density = self._density(args, kwargs)
        return density.prior_sites, tuple(map(placeholder, density.arguments.data))

    def check_observed(self, z: Position, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Have the model's distributions check their arguments and observations at a position.

        Raises:
            ValueError: the distribution's own.
        """
        self._density(args, kwargs).check_observed(z)

    def unconstrain(self, values: dict[str, Any]) -> Position:
        """The position of constrained values by site; the rest of ``values`` is left out."""
        return {name: self.transforms[name](torch.as_tensor(values[name])) for name in self.site_sizes}

    def _density(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # a ModelDensity, or a HostDensity
        arguments = Arguments(args, kwargs, self._row_axes, self._model.model)
        if self.mode == WHOLE:
            return HostDensity(self._model, arguments, self.transforms, self._parts)
        return ModelDensity(
            self._model,
            self.layout,
            self.mode,
            arguments,
            self.transforms,
            self._local_axes,
            self._prior_rows,
            self._held,
        )

    def _initialize(self, density: ModelDensity | HostDensity) -> LatentSites:
        """The latent sites, learned on the rows of one subset where no latent has an entry per row.

        Statistics of few rows, as a column's deviation, may be degenerate, and arrays of as many entries as there are
        rows, latents among them, too short to be looked up; all rows are then tried too.
        """
        try:
            return self._initialisation.on(self.part(0), density)
        except (NoFiniteStartError, IndexError, RuntimeError) as error:
            is_short = isinstance(error, IndexError) or OUT_OF_BOUNDS in str(error)
            is_degenerate = isinstance(error, NoFiniteStartError)
            has_more = not density.arguments.sources and len(self.part(0)) < self.layout.num_rows
            if not (has_more and (is_short or is_degenerate)):
                raise
            if is_short:
                self._sized_by_rows = [site.name for site in self.sites if not site.observed]  # any of these
            return self._initialisation.on(torch.arange(self.layout.num_rows), density)
