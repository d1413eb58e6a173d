"""Log-densities whose likelihood divides over rows: of a Pyro model, or of two functions.

Log-probabilities are summed in float64, so that float32 models survive a million rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import torch
from pyro import poutine
from pyro.poutine.condition_messenger import ConditionMessenger
from torch import Tensor
from torch.distributions import biject_to

from pyro_split.host import pytree, unvalidated
from pyro_split.potential.arguments import Arguments, Data
from pyro_split.potential.flat_program import FlatProgram
from pyro_split.potential.held import NOTHING_HELD, Held
from pyro_split.potential.model_rows import (
    ROWS_KWARG,
    RowSelectableModel,
    bounds_of,
    check_observed,
    sample_sites,
    site_terms,
)
from pyro_split.potential.position import Position
from pyro_split.potential.row_block import RowBlock, subset_block
from pyro_split.potential.sources import take
from split_common.errors import ModelNotSplittableError
from split_common.selection import cuts_data, yields_numbers
from split_common.start import check_names
from split_common.subsets import SubsetLayout, check_values_of_rows

Read = Callable[[Position, Data, Tensor], Sequence[tuple[Tensor, int | None]]]


class Density(Protocol):
    """A log-density whose likelihood divides over rows; pure in the position and the data tensors."""

    layout: SubsetLayout
    local_axes: dict[str, int]  # for each latent inside the data plate, the axis (negative) of its rows

    @property
    def plate(self) -> str | None:
        """Name of the data plate."""
        ...

    @property
    def row_axes(self) -> list[int | None]:
        """The axis of the rows in each data tensor that was given; None where it holds none."""
        ...

    def prior(self, z: Position, data: Data) -> Tensor:
        """Log p(z), a float64 scalar."""
        ...

    def take(self, data: Data, block: RowBlock) -> Data:
        """Data cut to some rows."""
        ...

    def likelihood(self, z: Position, data: Data, indices: Tensor) -> Tensor:
        """Log-likelihood of some rows, to which position and data are cut, a float64 scalar."""
        ...

    def pointwise(self, z: Position, data: Data, indices: Tensor) -> Tensor:
        """Log-likelihood of each of some rows, to which position and data are cut."""
        ...


class ModelDensity:
    """The log-density of a Pyro model.

    Data given to its methods are the arguments' tensors and, after them, what :meth:`hold` makes of these.

    Args:
        model: the user's model, made row-selectable.
        layout: rows of each subset.
        mode: how rows are selected, "slice", "index" or "numbered" (:mod:`split_common.selection`).
        arguments: how to put the model's arguments together from data tensors.
        transforms: for each latent site, the transform to unconstrained values.
        local_axes: for each latent inside the data plate, the axis (negative) of the rows in its unconstrained value.
        prior_rows: number of rows on which the prior is evaluated; None for all.
        held: shared values, computed once on all rows (:mod:`split_common.held`).
    """

    def __init__(
        self,
        model: RowSelectableModel,
        layout: SubsetLayout,
        mode: str,
        arguments: Arguments,
        transforms: dict[str, Any],
        local_axes: dict[str, int],
        prior_rows: int | None,
        held: Held = NOTHING_HELD,
    ):
        self.model, self.layout, self.mode, self.arguments, self.held = model, layout, mode, arguments, held
        self.transforms, self.local_axes, self.prior_rows = transforms, local_axes, prior_rows
        self._programs: dict[int, tuple[FlatProgram, list[int | None]]] = {}

    def for_rows(self, layout: SubsetLayout, block: RowBlock, z: Position) -> ModelDensity:
        """The density of the same model on some of its rows, with their data; ``z`` is a position on them."""
        arguments = self.arguments.replace(self.arguments.take(block, self.arguments.data))
        held = self.held._replace(position=tuple((name, z[name]) for name, _ in self.held.position))
        rest = self.transforms, self.local_axes, self.prior_rows, held
        return ModelDensity(self.model, layout, self.mode, arguments, *rest)

    @property
    def plate(self) -> str:
        """Name of the data plate."""
        return self.model.plate

    @property
    def row_axes(self) -> list[int | None]:
        """The axis of the rows in each of the arguments' tensors, or None."""
        return self.arguments.axes

    def prior(self, z: Position, data: Data) -> Tensor:
        """Log-density of everything outside the plate, Jacobians included."""
        terms, jacobian = self._terms(*self.for_outside(z, data, self.local_axes), inside=False)
        return sum((term.sum(dtype=torch.float64) for term, _ in terms), jacobian)

    def prior_sites(self, z: Position, data: Data) -> dict[str, Any]:
        """The sample sites outside the plate, whose log-probabilities are the terms of :meth:`prior`, with these."""
        model_trace = self._trace(*self.for_outside(z, data, self.local_axes))[0]
        with unvalidated():
            return {name: model_trace.nodes[name] for name in site_terms(model_trace, self.plate, inside=False)}

    def likelihood(self, z: Position, data: Data, indices: Tensor) -> Tensor:
        """Log-likelihood of some rows: everything inside the plate, local latents with their Jacobians included."""
        if self.held:
            return torch.stack([term.sum(dtype=torch.float64) for term, _ in self._held_terms(z, data, indices)]).sum()
        terms, jacobian = self._terms(z, *self.rows(data, indices), inside=True)
        return sum((term.sum(dtype=torch.float64) for term, _ in terms), jacobian)

    def pointwise(self, z: Position, data: Data, indices: Tensor) -> Tensor:
        """Log-likelihood of each row: everything inside the plate."""
        if self.held:
            of_sites = [
                _sum_to_axis(term, axis or -1, len(indices)) for term, axis in self._held_terms(z, data, indices)
            ]
            return torch.stack(of_sites).sum(0)
        by_site, jacobians = self._site_terms(z, *self.rows(data, indices), inside=True)
        axes = {name: dim for name, (_, dim) in by_site.items()}
        if any(dim is None for dim in axes.values()):
            raise ValueError(
                f"values of single rows must come of a vectorised plate, got the sequential plate {self.plate!r}"
            )
        total = torch.zeros(len(indices), dtype=torch.float64)
        for name, (term, dim) in by_site.items():
            total = total + _sum_to_axis(term, dim, len(indices))
            if name in jacobians:
                batch = jacobians[name].reshape(*term.shape, -1).sum(-1)
                total = total + _sum_to_axis(batch, dim, len(indices))
        return total

    def terms(self, z: Position, taken: Data, indices: Tensor) -> list[tuple[Tensor, int | None]]:
        """Terms inside the plate, Jacobians of local latents among them, each with the axis (negative) of its rows.

        Args:
            z: a position, its latents inside the plate cut to some rows.
            taken: the data tensors, cut to these rows where the mode cuts data.
            indices: what the plate yields, shape (n,).
        """
        by_site, jacobians = self._site_terms(z, *self._yielding(taken, indices), inside=True)
        of_sites = [(jacobians[name].reshape(*by_site[name][0].shape, -1).sum(-1), name) for name in jacobians]
        return [*by_site.values(), *((jacobian, by_site[name][1]) for jacobian, name in of_sites)]

    def outside(self, z: Position, taken: Data, indices: Tensor) -> list[tuple[Tensor, None]]:
        """Terms outside the plate, Jacobians among them; the arguments are those of :meth:`terms`."""
        by_site, jacobians = self._site_terms(z, *self._yielding(taken, indices), inside=False)
        return [(term, None) for term in (*(term for term, _ in by_site.values()), *jacobians.values())]

    def bounds(self, z: Position, taken: Data, indices: Tensor) -> list[tuple[Tensor, None]]:
        """Bounds of the latent sites' supports; the arguments are those of :meth:`terms`."""
        sites = sample_sites(self._trace(z, *self._yielding(taken, indices))[0])
        return [(bound, None) for name in z for bound in bounds_of(sites[name]["fn"].support)]

    def _yielding(self, taken: Data, indices: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = self.arguments.build(taken)
        return args, {**kwargs, ROWS_KWARG: indices}

    def hold(self, data: Data) -> Data:
        """The arguments' tensors on all rows, and after them the shared values computed from these."""
        if not self.held:
            return data
        z = {name: u.detach() for name, u in self.held.position}
        indices = torch.arange(self.layout.num_rows)
        with torch.no_grad():
            program, _ = self.expression(self.terms, z, data, indices)
            return (*data, *program.results([place for place, _ in self.held.values], [*z.values(), *data, indices]))

    def expression(self, read: Read, z: Position, taken: Data, indices: Tensor) -> tuple[FlatProgram, list[int | None]]:
        """Program of the terms read from the model, in the sites' values, the data and the plate's indices.

        Args:
            read: :meth:`terms`, :meth:`outside` or :meth:`bounds`.
            z: a position; of this and what follows only shapes, types and devices count.
            taken: data tensors.
            indices: what the plate yields.

        Returns:
            The program, and of each result the axis (negative) of its rows, or None.
        """
        axes: list[int | None] = []

        def run(*tensors: Tensor) -> list[Tensor]:
            local = dict(zip(z, tensors, strict=False))
            found = read(local, tensors[len(z) : -1], tensors[-1])
            axes[:] = [axis for _, axis in found]
            return [term for term, _ in found]

        return FlatProgram(run, [*z.values(), *taken, indices]), axes

    def _held_terms(self, z: Position, data: Data, indices: Tensor) -> list[tuple[Tensor, int | None]]:
        """The terms of :meth:`terms`, from data cut by :meth:`take`, with the shared values of all rows."""
        num_own = len(data) - len(self.held.values)
        ordered = {name: z[name] for name, _ in self.held.position}
        number = self._yielded(indices)
        if len(indices) not in self._programs:
            program, axes = self.expression(self.terms, ordered, data[:num_own], number)
            if len(program.steps) != self.held.num_steps:
                raise ModelNotSplittableError(
                    f"the model must be the same program on {len(indices)} rows as on all, got another one"
                )
            self._programs[len(indices)] = program, axes
        program, axes = self._programs[len(indices)]
        given = {place: x for (place, _), x in zip(self.held.values, data[num_own:], strict=True)}
        numbers = {number: dict(named) for number, named in self.held.numbers}
        return list(
            zip(program.evaluate([*ordered.values(), *data[:num_own], number], given, numbers), axes, strict=True)
        )

    def rows(self, data: Data, indices: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The model's arguments for some rows, the reserved keyword included."""
        args, kwargs = self.arguments.build(data)
        return args, {**kwargs, ROWS_KWARG: self._yielded(indices)}

    def _yielded(self, indices: Tensor) -> Tensor:
        """What the plate yields for some rows."""
        return indices if yields_numbers(self.mode) else torch.arange(len(indices))

    def rows_of(self, data: Data, indices: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The model's arguments for some rows of all the data."""
        return self.rows(self._cut(data, RowBlock(indices)), indices)

    def _cut(self, data: Data, block: RowBlock) -> Data:
        """The arguments' tensors, cut to some rows where the mode cuts them."""
        return self.arguments.take(block, data) if cuts_data(self.mode) else data

    def sites_at(self, z: Position, indices: Tensor) -> dict[str, Any]:
        """The model's sample sites at a position, on some rows: all of these where latents have an entry per row."""
        model_trace = self._trace(z, *self.rows_of(self.arguments.data, indices))[0]
        return sample_sites(model_trace)

    def take(self, data: Data, block: RowBlock) -> Data:
        """The data, cut to some rows where the mode cuts data, then the shared values, cut likewise."""
        num_own = len(data) - len(self.held.values)
        own = self._cut(data[:num_own], block)
        held = [
            x if value.axis is None else block.take(x, value.axis)
            for x, (_, value) in zip(data[num_own:], self.held.values, strict=True)
        ]
        return (*own, *held)

    def for_outside(self, values: Position, data: Data, axes: Mapping[str, int]) -> tuple[Position, Any, Any]:
        """Values of the latent sites, and the model's arguments, for terms outside the plate.

        Args:
            values: by site, unconstrained or as the model has them.
            data: the arguments' tensors, all rows.
            axes: the axis of the rows in each site inside the plate.
        """
        if self.prior_rows is None:
            return values, *self.arguments.build(data)
        few = RowBlock(torch.arange(self.prior_rows), 0)
        return few.local(values, axes), *self.rows(self.take(data, few), few.indices)

    def _terms(self, z: Position, args: Any, kwargs: Any, inside: bool) -> tuple[list[Any], Tensor]:
        by_site, jacobians = self._site_terms(z, args, kwargs, inside)
        zero = torch.zeros((), dtype=torch.float64)
        return list(by_site.values()), sum((j.sum(dtype=torch.float64) for j in jacobians.values()), zero)

    def _site_terms(
        self, z: Position, args: Any, kwargs: Any, inside: bool
    ) -> tuple[dict[str, Any], dict[str, Tensor]]:
        model_trace, given = self._trace(z, args, kwargs)
        with unvalidated():
            by_site = site_terms(model_trace, self.plate, inside)
        jacobians = {
            name: -given.transforms[name].log_abs_det_jacobian(given.values[name], u)
            for name, u in z.items()
            if name in by_site
        }
        return by_site, jacobians

    def check_observed(self, z: Position) -> None:
        """Have distributions check their arguments and observations at a position, one subset's rows at a time.

        Raises:
            ValueError: the distribution's own.
        """
        layout, data = self.layout, self.arguments.data
        whole = RowBlock(torch.arange(layout.num_rows), 0)
        # shared values are those of all rows
        for block in [whole] if self.held else (subset_block(layout, m) for m in range(layout.num_subsets)):
            args, kwargs = self.rows(self._cut(data, block), block.indices)
            given = AtPosition(block.local(z, self.local_axes), self.transforms, self.local_axes)
            check_observed(given(self.model), args, kwargs, self.transforms)

    def transforms_at(self, z: Position) -> dict[str, Any]:
        """Each latent site's transform; of latents in the plate, that of their supports on the density's own rows."""
        if not self.local_axes:
            return self.transforms
        rows = torch.arange(self.layout.num_rows)
        return self._trace(z, *self.rows_of(self.arguments.data, rows))[1].transforms

    def _trace(self, z: Position, args: Any, kwargs: Any) -> tuple[Any, AtPosition]:
        """The model's trace at a position, and what gave the position to the model."""
        check_names(z, self.transforms)
        given = AtPosition(z, self.transforms, self.local_axes)
        with poutine.block(), unvalidated():
            return poutine.trace(given(self.model)).get_trace(*args, **kwargs), given


class AtPosition(ConditionMessenger):
    """Gives the latent sites of a model their values at a position.

    A support of a latent in the data plate may have bounds for each row, so its transform is that of the site as it is
    met, on the rows on which the model is run.

    Args:
        z: the position.
        transforms: transforms to unconstrained values, by site.
        local: names of the latent sites in the data plate.

    Attributes:
        values: constrained values, by site.
        transforms: the transforms by which they were found.
    """

    def __init__(self, z: Position, transforms: Mapping[str, Any], local: Collection[str]):
        self.values: Position = {name: x.inv(z[name]) for name, x in transforms.items() if name not in local}
        super().__init__(self.values)
        self.transforms = dict(transforms)
        self._local = {name: z[name] for name in local}

    def _pyro_sample(self, msg: Any) -> None:
        name = msg["name"]
        if name in self._local:
            self.transforms[name] = biject_to(msg["fn"].support).inv
            self.values[name] = self.transforms[name].inv(self._local[name])
        super()._pyro_sample(msg)


class FunctionDensity:
    """The log-density of a prior function and a likelihood function."""

    plate: str | None = None
    local_axes: dict[str, int] = {}  # noqa: RUF012

    def __init__(self, log_prior: Any, log_likelihood: Any, treedef: Any, layout: SubsetLayout):
        self._log_prior, self._log_likelihood = log_prior, log_likelihood
        self._treedef, self.layout = treedef, layout

    @property
    def functions(self) -> dict[str, Any]:
        """Both functions, by name."""
        return {"log_prior": self._log_prior, "log_likelihood": self._log_likelihood}

    @property
    def row_axes(self) -> list[int | None]:
        """The first axis of each tensor."""
        return [0] * self._treedef.num_leaves

    def prior(self, z: Position, data: Data) -> Tensor:
        """The value of the prior function."""
        return torch.as_tensor(self._log_prior(z)).sum(dtype=torch.float64)

    def likelihood(self, z: Position, data: Data, indices: Tensor) -> Tensor:
        """The value of the likelihood function on some rows."""
        return self._rows(z, data).sum(dtype=torch.float64)

    def pointwise(self, z: Position, data: Data, indices: Tensor) -> Tensor:
        """The values of the likelihood function, row by row."""
        values = self._rows(z, data)
        if values.dim():
            return values
        return torch.stack([self._rows(z, tuple(x[i : i + 1] for x in data)) for i in range(len(indices))])

    def take(self, data: Data, block: RowBlock) -> Data:
        """Every tensor cut to some rows."""
        return take(block, data, self.row_axes)

    def _rows(self, z: Position, data: Data) -> Tensor:
        values = torch.as_tensor(self._log_likelihood(z, pytree.tree_unflatten(list(data), self._treedef)))
        check_values_of_rows(tuple(values.shape), data[0].shape[0])
        return values


def _sum_to_axis(x: Tensor, axis: int, size: int) -> Tensor:
    """Sum over every axis of ``x`` but one."""
    x = x.expand(torch.broadcast_shapes(x.shape, (size,) + (1,) * (-axis - 1)))
    return x.movedim(axis, 0).reshape(size, -1).sum(1, dtype=torch.float64)
