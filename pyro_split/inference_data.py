"""Draws, statistics and observations for ArviZ."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from pyro import poutine
from pyro.distributions import Unit
from pyro.distributions.util import scale_and_mask
from pyro.infer import MCMC
from torch import Tensor

from pyro_split.host import arguments_of_run, diagnostics_by_chain, has_draws, unvalidated
from pyro_split.potential.arguments import Data
from pyro_split.potential.model_rows import is_deterministic, sample_sites, shapes_of
from pyro_split.potential.row_block import RowBlock
from pyro_split.potential.split_potential import SplitPotential
from pyro_split.splitting.divided_model import DividedModel
from split_common.discrete import check_none_summed_out
from split_common.health import STATISTICS
from split_common.report import TARGET, Report, check_has_draws, note_free_sites, warn_of_target
from split_common.row_independence import Verdict
from split_common.runs.pairing import MOST_COMPARED, warn_of_other_arguments
from split_common.runs.pointwise import DRAWS_PER_BATCH, Grid, Piece, Posterior, Rows, in_memory
from split_common.runs.statistics import arviz_statistics
from split_common.settling import Settled, put_settled


def to_inference_data(
    mcmc: MCMC,
    *,
    log_likelihood: bool = False,
    posterior_predictive: dict[str, Tensor] | None = None,
    **options: Any,
) -> Any:
    """Convert a finished run to ArviZ's format: posterior, every sampler statistic, observed data.

    One warning names all the problems that ``kernel.report(mcmc)`` lists.

    The observed data are the values of the model's observed sites when this function is called, on the arguments of the
    run. To find them, the model is run on the rows of one subset at a time, and, for sites outside the data plate, on
    all. The attribute ``split`` of the posterior says whether the rows were proved to be independent of one another.

    Args:
        mcmc: a :class:`pyro.infer.MCMC` that has been run with a kernel of this package.
        log_likelihood: whether to compute the log-likelihood of every observation at every draw, which ``az.loo``
            needs; it has chains x draws x rows numbers, computed in the memory of one subset.
        posterior_predictive: samples of Pyro's ``Predictive`` for all draws of the run, by site.
        **options: passed on to ``arviz.from_dict``, such as ``coords`` and ``dims``.

    Returns:
        ``arviz.InferenceData`` for ArviZ 0.x, ``xarray.DataTree`` for ArviZ 1.x, with the names that
        ``az.from_numpyro`` gives: ``lp`` (log density), ``acceptance_rate``, ``n_steps`` and so on. A kernel made
        from a :class:`~pyro_split.SplitPotential` has no model, and its run no observed data.

    Raises:
        ValueError: when there are no draws yet, or no sampler statistics; and, with ``log_likelihood=True``, when the
            run has no model that still runs on its data, or no draws of some latent site (discrete ones that were
            summed out among them).

    Warns:
        UserWarning: of what the report calls trouble; with ``log_likelihood=True``, for draws of another distribution
            than the posterior; and when the model can no longer be run on the arguments of the run, whose observed data
            are then left out.

    Example:
        >>> import torch, pyro, pyro.distributions as dist
        >>> from pyro.infer import MCMC
        >>> from pyro_split import SymmetricSplitHMC, to_inference_data
        >>> def model(y):
        ...     mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        ...     with pyro.plate("data", y.shape[0]):
        ...         pyro.sample("y", dist.Normal(mu, 1.0), obs=y)
        >>> mcmc = MCMC(SymmetricSplitHMC(model, 2), warmup_steps=200, num_samples=500, disable_progbar=True)
        >>> mcmc.run(torch.tensor([1.2, -0.3, 0.8, 0.1]))
        >>> idata = to_inference_data(mcmc, log_likelihood=True)
        >>> idata.posterior["mu"].shape, idata.observed_data["y"].shape, idata.log_likelihood["y"].shape
        ((1, 500), (4,), (1, 500, 4))
    """
    check_has_draws(has_draws(mcmc))
    draws = mcmc.get_samples(group_by_chain=True)
    by_chain: list[Any] = diagnostics_by_chain(mcmc)
    missing = [name for name in STATISTICS if name not in by_chain[0]]
    if missing:
        raise ValueError(f"mcmc must have been run with a kernel of pyro_split, got no statistics {missing}")
    posterior = {name: x.detach().cpu().numpy() for name, x in draws.items()}
    groups = {"posterior": posterior, "sample_stats": _statistics(by_chain)}
    if posterior_predictive:
        shape = next(iter(draws.values())).shape[:2]
        groups["posterior_predictive"] = {
            name: x.detach().cpu().numpy().reshape(*shape, *x.shape[1:]) for name, x in posterior_predictive.items()
        }
    observed, verdict = _observations(mcmc, draws, log_likelihood)
    groups.update(observed)
    found = _from_dict({name: group for name, group in groups.items() if group}, options)
    if verdict is not None:
        found["posterior"].attrs["split"] = str(verdict)
    note_free_sites(found["posterior"], _site_sizes(mcmc, draws))
    if "settled" in by_chain[0]:  # the kernel adapts
        put_settled(found["sample_stats"], Settled(*zip(*(chain["settled"] for chain in by_chain), strict=True)))
    if target := mcmc.kernel._method.target:
        found["posterior"].attrs[TARGET] = target
        if log_likelihood:
            warn_of_target(target)
    Report.of(found, type(mcmc.kernel).__name__).warn()
    return found


def _statistics(by_chain: list[Any]) -> dict[str, np.ndarray]:
    names: list[str] = [
        name for name, values in by_chain[0].items() if isinstance(values, list) and name != "divergences"
    ]
    return arviz_statistics({name: np.array([chain[name] for chain in by_chain]) for name in names})


def _site_sizes(mcmc: MCMC, draws: dict[str, Tensor]) -> dict[str, int]:
    """Number of unconstrained values at each latent site, by the run's own transforms and its first draw."""
    transforms = mcmc.transforms or {}
    return {name: transforms.get(name, lambda x: x)(x[0, 0]).numel() for name, x in draws.items()}


def _observations(
    mcmc: MCMC, draws: dict[str, Tensor], log_likelihood: bool
) -> tuple[dict[str, dict[str, np.ndarray]], Verdict | None]:
    """Groups of observed data and log-likelihoods, and the verdict on the rows; none where the model cannot be run."""
    if mcmc.kernel.model is None:
        if log_likelihood:
            raise ValueError("log_likelihood=True needs a model, got a run of a SplitPotential")
        return {}, None
    try:
        observations = Observations.of(mcmc)
        groups = {} if observations.reads_sources else {"observed_data": observations.values(draws)}
    except Exception as error:  # a model whose data have changed or are gone may raise anything
        reason = f"the model does not run on the data of the run any more: {error!r}"
        if log_likelihood:
            raise ValueError(f"log_likelihood=True is not possible, as {reason}") from error
        warnings.warn(f"observed_data are left out, as {reason}", stacklevel=3)
        return {}, None
    if log_likelihood:
        posterior, grid = posterior_of_run(mcmc), observations.grid(DRAWS_PER_BATCH)
        found = in_memory(observations.pieces(posterior, grid), posterior, grid, observations.row_axes)
        groups["log_likelihood"] = {str(name): x.values for name, x in found.data_vars.items()}
    return groups, observations.verdict


class Observations:
    """The observed sites of a model, evaluated on the rows of one subset after the other; outside the plate, on all.

    Args:
        split: how the model divides.
        args: the model's positional arguments in a run, opened.
        kwargs: its keyword arguments, likewise.

    Attributes:
        verdict: whether the model's rows are independent of one another.
        row_axes: for each site the axis (negative) of the rows of its log-likelihoods, or None.
        reads_sources: whether rows are read from sources as they are needed; observed values are then not joined.
    """

    def __init__(self, split: DividedModel, args: tuple[Any, ...], kwargs: dict[str, Any]):
        self.verdict = split.verdict
        self._split, self._arguments = split, (args, kwargs)
        self._density = density = split._density(args, kwargs)
        self._latents, self._layout = split.site_sizes, split.layout
        self.reads_sources = bool(density.arguments.sources)
        self._discrete = [site.name for site in split.sites if site.discrete]
        inside = [site for site in split.sites if density.plate in site.plates]
        # a sequential plate has one site for each row, which are not joined; shared values depend on all rows
        self._whole = any(site.plates[density.plate] is None for site in inside) or bool(split.verdict.held)
        self.row_axes = {site.name: site.plates[density.plate] for site in inside}
        self._observes_outside = any(site.observed and site.name not in self.row_axes for site in split.sites)
        self._local_axes = {
            site.name: site.batch_ndim + (site.plates[density.plate] or 0)
            for site in inside
            if site.name in self._latents
        }

    @classmethod
    def of(cls, mcmc: MCMC) -> Observations:
        """Observations of a run."""
        if mcmc.kernel.model is None:
            raise ValueError("log_likelihood=True needs a model, got a run of a SplitPotential")
        args, kwargs = mcmc.kernel._open(*arguments_of_run(mcmc))
        split = mcmc.kernel._divide(args, kwargs)  # the kernel may have been run on other data since
        if mcmc.kernel._method.records_energy:
            warn_of_other_arguments(*_energies(mcmc, split, split.bind(args, kwargs)))
        return cls(split, args, kwargs)

    def grid(self, draws_per_batch: int) -> Grid:
        """The grid with the rows of one subset and the given number of draws at a time."""
        return Grid.of(self._layout.num_rows, self._layout.sizes[0], draws_per_batch, self._whole)

    def values(self, draws: dict[str, Tensor]) -> dict[str, np.ndarray]:
        """Observed values of each site. Factors observe nothing."""
        joined: dict[str, np.ndarray] = {}
        first = {name: x[0, 0] for name, x in draws.items()}
        for rows in self._places(self.grid(1)):
            for name, site in self._sites(first, rows):
                if not isinstance(site["fn"], Unit):
                    batch_shape, event_shape = shapes_of(site["fn"])
                    shape = torch.broadcast_shapes(site["value"].shape, batch_shape + event_shape)
                    self._place(joined, name, site["value"].expand(shape), len(event_shape), rows)
        return joined

    def pieces(self, posterior: Posterior, grid: Grid) -> Iterator[Piece]:
        """Log-likelihoods of each observation.

        Args:
            posterior: draws of every latent site.
            grid: how draws and rows are divided.

        Raises:
            ValueError: for draws that are not those of the model.
        """
        check_none_summed_out(self._discrete)
        posterior.check(self._shapes())
        for batch in posterior.batches(grid.draws_per_batch):
            draws = tensors(posterior.read(self._latents, batch), self._density.arguments.data)
            for rows in self._places(grid):
                terms: dict[str, list[np.ndarray]] = {}
                for i in range(batch.stop - batch.start):
                    for name, site in self._sites({name: x[i] for name, x in draws.items()}, rows):
                        term = scale_and_mask(site["fn"].log_prob(site["value"]), mask=site["mask"])
                        terms.setdefault(name, []).append(term.numpy(force=True))
                values = {name: np.stack(found) for name, found in terms.items()}
                yield Piece(batch, rows, values)

    def _places(self, grid: Grid) -> list[Rows | None]:
        """The blocks of rows, and None for the sites that are observed outside the data plate."""
        return [*(grid.blocks if self.row_axes else []), *([None] if self._observes_outside else [])]

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each latent site."""
        position = self._split.reference_position(*self._arguments)
        return {name: tuple(self._split.transforms[name].inv(u).shape) for name, u in position.items()}

    def _sites(self, values: dict[str, Tensor], rows: Rows | None) -> Iterator[tuple[str, Any]]:
        """The observed sites of some rows, or those outside the plate, at constrained values of the latent sites."""
        density = self._density
        data = density.arguments.data
        if rows is None:
            local, args, kwargs = density.for_outside(values, data, self._local_axes)
        else:
            block = row_block(rows)
            local = block.local(values, self._local_axes)
            args, kwargs = density.rows_of(data, block.indices)
        with torch.no_grad(), torch.random.fork_rng(), poutine.block(), unvalidated():
            model_trace = poutine.trace(poutine.condition(density.model, local)).get_trace(*args, **kwargs)
        for name, site in sample_sites(model_trace).items():
            if not site["is_observed"] or name in self._latents or is_deterministic(site):
                continue
            if (name in self.row_axes) == (rows is not None):
                yield name, site

    def _place(self, joined: dict[str, np.ndarray], name: str, x: Tensor, event_dim: int, rows: Rows | None) -> None:
        """Put a site's values at some rows into the array of all rows; a site outside the plate is taken whole."""
        values, dim = x.numpy(force=True), self.row_axes.get(name)
        if rows is None or dim is None:
            joined[name] = values
            return
        axis = values.ndim - event_dim + dim
        shape = list(values.shape)
        shape[axis] = self._layout.num_rows
        whole = joined.setdefault(name, np.empty(shape, values.dtype))
        np.moveaxis(whole, axis, 0)[rows.start : rows.stop] = np.moveaxis(values, axis, 0)


def _energies(mcmc: MCMC, split: DividedModel, potential: SplitPotential) -> tuple[list[float], list[float]]:
    """Potential energies of some draws: as the run recorded them, and as they are computed now; none where unknown."""
    by_chain = diagnostics_by_chain(mcmc) if has_draws(mcmc) else []
    draws = mcmc.get_samples(group_by_chain=True) if by_chain else {}
    recorded, computed = [], []
    splitting = mcmc.kernel._splitting
    is_alone = splitting.process_group is None and not splitting.shards  # else its rows are not those of the potential
    if is_alone and mcmc.transforms is mcmc.kernel.transforms and set(split.site_sizes) <= set(draws):
        for chain, found in list(enumerate(by_chain))[:MOST_COMPARED]:
            z = split.unconstrain({name: draws[name][chain, -1] for name in split.site_sizes})
            recorded.append(found["potential_energy"][-1])
            computed.append(float(potential.energies(z).sum()))
    return recorded, computed


def posterior_of_run(mcmc: MCMC) -> Posterior:
    """The draws that a run holds."""
    return Posterior({name: x.detach().cpu() for name, x in mcmc.get_samples(group_by_chain=True).items()})


def row_block(rows: Rows) -> RowBlock:
    """A range of rows as a block of row numbers."""
    return RowBlock(torch.arange(rows.start, rows.stop), rows.start)


def tensors(arrays: dict[str, np.ndarray], data: Data) -> dict[str, Tensor]:
    """Arrays as tensors on the device of a model's data."""
    device = next((x.device for x in data if isinstance(x, Tensor)), torch.get_default_device())
    return {name: torch.tensor(x, device=device) for name, x in arrays.items()}


def _from_dict(groups: dict[str, dict[str, np.ndarray]], options: dict[str, Any]) -> Any:
    try:
        import arviz
    except ImportError:
        import arviz_base as arviz
    if arviz.__version__.startswith("0.") and hasattr(arviz, "InferenceData"):
        return arviz.from_dict(**groups, **options)
    return arviz.from_dict(groups, **options)
