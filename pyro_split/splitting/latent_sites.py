"""What the host's own initialisation tells of a model's latent sites: sizes, supports and a position."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from pyro.infer.mcmc.util import initialize_model
from torch.distributions import biject_to

from pyro_split.host import unvalidated
from pyro_split.potential.densities import ModelDensity
from pyro_split.potential.host_density import HostDensity
from pyro_split.potential.model_rows import RowSelectableModel, Site, bounds_of
from pyro_split.potential.position import Position
from pyro_split.potential.sources import first_rows, placeholder
from pyro_split.splitting.row_independence import prove_free
from split_common.errors import ModelNotSplittableError
from split_common.row_independence import PROVED
from split_common.selection import NUMBERED
from split_common.sources.rules import check_outside
from split_common.start import no_finite_start


class LatentSites(NamedTuple):
    """The latent sites of a model, by one initialisation.

    Attributes:
        position: a point with a finite density on some rows.
        transforms: the host's transform to unconstrained values, by site.
    """

    position: Position
    transforms: dict[str, Any]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of the unconstrained values at each site."""
        return {name: tuple(u.shape) for name, u in self.position.items()}

    def differing_in_size(self, sites: Iterable[Site]) -> list[str]:
        """Names of the sites whose values are of another shape here than in a trace of the model on all rows."""
        of_all = {site.name: site.shape for site in sites}
        values = {name: self.transforms[name].inv(u) for name, u in self.position.items()}
        return [name for name, value in values.items() if tuple(value.shape) != of_all[name]]

    def on_supports_of_all_rows(self, density: ModelDensity, num_rows: int) -> LatentSites:
        """These sites with supports that depend on data, as in ``Uniform(0, y.max())``, learned from all rows.

        Args:
            density: the model's.
            num_rows: number of rows that these sites were learned from.
        """
        sources, z, num_all = density.arguments.sources, self.position, density.layout.num_rows
        data = tuple(map(placeholder, density.arguments.data))
        if num_rows == num_all or prove_free(density.bounds, density, data, z, num_rows).kind == PROVED:
            return self
        check_outside(sources, ["the support of a latent site"] * bool(sources))
        with torch.no_grad():
            sites = density.sites_at(z, torch.arange(num_all))
        return self._replace(transforms={name: biject_to(sites[name]["fn"].support).inv for name in z})


NOT_LEARNED = LatentSites({}, {})


class Initialisation(NamedTuple):
    """The host's initialisation of a model, on some of its rows.

    Attributes:
        model: the model.
        strategy: the host's strategy for a starting point.
        mode: how rows are selected.
    """

    model: RowSelectableModel
    strategy: Callable[..., Any]
    mode: str

    def on(self, rows: torch.Tensor, density: ModelDensity | HostDensity) -> LatentSites:
        """The latent sites by the host's initialisation on these rows, drawn from torch's generator.

        Raises:
            NoFiniteStartError: where the host finds no starting point.
        """
        if self.mode == NUMBERED:  # the model may also use these numbers to look up entries of the cut arrays
            rows = torch.arange(len(rows))
        args, kwargs = density.rows_of(density.arguments.data, rows)
        try:
            with unvalidated():
                z, _, transforms, _ = initialize_model(self.model, args, kwargs, init_strategy=self.strategy)
        except ValueError as error:
            if "valid initial params" not in str(error):
                raise
            columns = [(name, first_rows(x)) for name, x in density.arguments.named_arrays()]
            raise no_finite_start(columns) from error
        return LatentSites({name: u.detach() for name, u in z.items()}, transforms)


def check_local_sizes(z: Position, axes: Mapping[str, int], num_rows: int) -> None:
    """Check that latents in the plate have an entry for each row: the host may give one value to all of them.

    Args:
        z: the host's starting point.
        axes: for each latent in the plate, the axis (negative) of the rows.
        num_rows: number of rows.

    Raises:
        ModelNotSplittableError: where one has a single value.
    """
    for name, axis in axes.items():
        if not (0 < -axis <= z[name].dim() and z[name].shape[axis] == num_rows):
            raise ModelNotSplittableError(
                f"a latent in the data plate must have a value for each row, got one for all rows of {name!r}, as Pyro "
                "starts a site of a handler in the plate; put the handler, such as poutine.reparam, round the plate"
            )


def check_supports(density: ModelDensity, z: Position, rows: torch.Tensor) -> None:
    """Check that supports depend on data alone: each draw is mapped by the transforms of the start.

    Args:
        density: the model's.
        z: a position.
        rows: rows to run the model on; all of them where latents have an entry per row. Of a model that does not run
            on them, such as one that looks rows up, all rows are taken.

    Raises:
        ModelNotSplittableError: where one depends on other latents.
    """
    try:
        moving = _moving(density, z, rows)
    except Exception:  # whatever a model raises on fewer rows
        if density.arguments.sources and len(rows) < density.layout.num_rows:
            return  # whether it divides is judged by what follows, which says why not
        moving = _moving(density, z, torch.arange(density.layout.num_rows))
    if moving:
        raise ModelNotSplittableError(moving)


def warn_of_moving_supports(density: HostDensity, z: Position) -> None:
    """Warn where a support of an undivided model depends on other latents, which the host allows.

    Args:
        density: the model's log-density.
        z: a position.
    """
    if moving := _moving(density, z, torch.arange(1)):
        warnings.warn(f"draws will be of no posterior: {moving}", stacklevel=2)


def _moving(density: ModelDensity | HostDensity, z: Position, rows: torch.Tensor) -> str:
    """The first latent site whose support depends on other latents, in words; "" where there is none."""
    tracked = {name: u.detach().clone().requires_grad_() for name, u in z.items()}
    sites, leaves = density.sites_at(tracked, rows), list(tracked.values())
    for name in [name for name in z if name in sites]:
        bounds = [bound.sum() for bound in bounds_of(sites[name]["fn"].support) if bound.requires_grad]
        grads = [torch.autograd.grad(bound, leaves, retain_graph=True, allow_unused=True) for bound in bounds]
        if any(grad is not None for of_bound in grads for grad in of_bound):  # a bound may be a param site's
            where = " in the data plate" if name in density.local_axes else ""
            return (
                f"the support of a latent{where} must not depend on other latents, got such bounds of {name}; sample "
                "it on a fixed support, and scale it with pyro.deterministic"
            )
    return ""
