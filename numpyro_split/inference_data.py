"""Conversion of draws, statistics and observations to ArviZ's format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import MCMC
from numpyro.infer.initialization import init_to_sample

from numpyro_split.adaptation.settling import told_by
from numpyro_split.host import arguments_of_run, has_draws, with_arguments, with_draws
from numpyro_split.potential.arguments import Arguments, Data
from numpyro_split.potential.model_rows import SelectRows
from numpyro_split.potential.readings import UNREADABLE
from numpyro_split.potential.row_block import RowBlock
from numpyro_split.potential.split_potential import SplitPotential
from numpyro_split.splitting.divided_model import DividedModel
from split_common.discrete import check_none_summed_out
from split_common.health import Watched, put_watched
from split_common.report import TARGET, Report, check_has_draws, note_free_sites, warn_of_target
from split_common.runs.pairing import MOST_COMPARED, warn_of_other_arguments
from split_common.runs.pointwise import DRAWS_PER_BATCH, Grid, Piece, Posterior, in_memory
from split_common.settling import put_settled


def to_inference_data(mcmc: MCMC, *, log_likelihood: bool = False, **options: Any) -> Any:
    """Convert a finished run to ArviZ's format: posterior, every sampler statistic, observed data.

    Without log-likelihoods it has the groups of ``az.from_numpyro(mcmc, log_likelihood=False)``; how the model divides
    and what warm-up settled on are attributes, and one warning names all the problems that ``kernel.report(mcmc)``
    lists.

    Args:
        mcmc: a :class:`numpyro.infer.MCMC` that has been run with a kernel of this package.
        log_likelihood: whether to compute the log-likelihood of every observation at every draw, which ``az.loo``
            needs; it has chains x draws x rows numbers. These are the numbers of ``az.from_numpyro``, computed in the
            memory of one subset.
        **options: passed on to ``arviz.from_numpyro``, such as ``coords``, ``dims`` and ``posterior_predictive``.

    Returns:
        ``arviz.InferenceData`` for ArviZ 0.x, ``xarray.DataTree`` for ArviZ 1.x. Each array in the tuple or dict of a
        deterministic site is a variable, as ``pair[0]``. There are no observed data if rows lie on several devices or
        are read from a source, of which ArviZ's own function would read all.

    Raises:
        ValueError: when there are no draws yet; and, with ``log_likelihood=True``, for a kernel made from a
            :class:`~numpyro_split.SplitPotential`, which has no model, and for a model whose discrete latent sites were
            summed out.

    Warns:
        UserWarning: of what the report calls trouble; and, with ``log_likelihood=True``, for draws of another
            distribution than the posterior.

    Example:
        >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist
        >>> from numpyro.infer import MCMC
        >>> from numpyro_split import SymmetricSplitHMC, to_inference_data
        >>> def model(y):
        ...     mu = numpyro.sample("mu", dist.Normal(0, 1))
        ...     with numpyro.plate("data", y.shape[0]):
        ...         numpyro.sample("y", dist.Normal(mu, 1), obs=y)
        >>> mcmc = MCMC(SymmetricSplitHMC(model, num_subsets=2), num_warmup=300, num_samples=500, progress_bar=False)
        >>> mcmc.run(jax.random.key(0), jnp.array([1.2, -0.3, 0.8, 0.1]))
        >>> idata = to_inference_data(mcmc, log_likelihood=True)
        >>> idata.posterior["mu"].shape, idata.observed_data["y"].shape, idata.log_likelihood["y"].shape
        ((1, 500), (4,), (1, 500, 4))
    """
    try:
        from arviz import from_numpyro
    except ImportError:
        from arviz_base import from_numpyro
    check_has_draws(has_draws(mcmc))
    kernel: Any = mcmc.sampler
    is_ours = hasattr(kernel, "report")  # the kernel is one of this package
    split = _split_of(mcmc) if is_ours and kernel.model is not None else None
    few = None if split is None else _few_rows(mcmc, split)
    run = mcmc if few is None else with_arguments(mcmc, *few.build(few.data))
    run = run if split is None else with_draws(run, _draws_by_array(run))
    if split is not None and not {"dims", "extra_event_dims"} & options.keys():
        options["dims"] = _dims_of_sites(run)
    # as it was sampled, a model has all rows where it asks its data plate for a subsample of them
    with nullcontext() if split is None else SelectRows(split.plate, None):
        found = from_numpyro(run, log_likelihood=False, **options)
    if few is not None:
        del found["observed_data"]
    if is_ours:
        if target := kernel._method.target:
            found["posterior"].attrs[TARGET] = target
            if log_likelihood:
                warn_of_target(target)
        if split is not None:
            found["posterior"].attrs["split"] = str(split.verdict)
        note_free_sites(found["posterior"], None if split is None else split.site_sizes)
        settled = getattr(mcmc.last_state, "settled", None)
        if settled is not None:  # the kernel adapts
            put_settled(found["sample_stats"], told_by(settled))
        health = getattr(mcmc.last_state, "health", None)
        if health is not None and mcmc.thinning > 1:
            put_watched(found["sample_stats"], Watched(health.num_diverging, health.bfmi))
        Report.of(found, type(kernel).__name__).warn()
    if log_likelihood:
        _add_log_likelihood(found, _log_likelihoods(mcmc))
    return found


class Observations:
    """The observed sites of a run's model, a few draws and rows at a time; those outside the plate on all rows.

    Args:
        mcmc: a run with a kernel of this package.

    Attributes:
        verdict: whether the model's rows are independent of one another.
        row_axes: for each site inside the data plate the axis (negative) of the rows of its log-likelihoods.

    Raises:
        ValueError: for a run of a :class:`~numpyro_split.SplitPotential`, which has no model, and for a model of which
            discrete latent sites were summed out.
    """

    def __init__(self, mcmc: MCMC):
        kernel: Any = mcmc.sampler
        if kernel.model is None:
            raise ValueError("log_likelihood=True needs a model, got a run of a SplitPotential")
        self._arguments = args, kwargs = kernel._open(*arguments_of_run(mcmc))
        prepared, potential = _prepared_for(mcmc)
        self._split = split = prepared.known_split
        if split.shards is not None:
            raise ValueError(
                "log_likelihood=True needs rows that one process has, got a run on rows in shards; call log_likelihood "
                "with the rows of each process"
            )
        self.verdict = split.verdict
        check_none_summed_out([site.name for site in split.sites if site.discrete])
        self._data = Arguments(args, kwargs, split._row_axes)
        self._density = split._density(self._data)
        inside = [site for site in split.sites if self._density.plate in site.plates]
        self.row_axes = {site.name: site.plates[self._density.plate] for site in inside}
        self._observes_outside = any(site.observed and site.name not in self.row_axes for site in split.sites)
        if prepared.method.records_energy:
            warn_of_other_arguments(*_energies(mcmc.last_state, potential))

    def grid(self, draws_per_batch: int) -> Grid:
        """The grid with the rows of one subset and the given number of draws at a time."""
        layout = self._split.layout
        return Grid.of(layout.num_rows, layout.sizes[0], draws_per_batch, bool(self._split.verdict.held))

    def pieces(self, posterior: Posterior, grid: Grid) -> Iterator[Piece]:
        """Log-likelihoods of each observation, by the host's function.

        Args:
            posterior: draws of every latent site.
            grid: how draws and rows are divided.

        Raises:
            ValueError: for draws that are not those of the model.
        """
        split, density = self._split, self._density
        local = {  # row axis of each local site's draws, whose first axis is the draws
            site.name: 1 + site.batch_ndim + site.plates[density.plate]
            for site in split.sites
            if site.name in split.site_sizes and density.plate in site.plates
        }
        posterior.check(self._shapes())

        def terms(draws: dict[str, jax.Array], arguments: Any, inside: bool) -> dict[str, jax.Array]:
            args, kwargs = arguments
            found = numpyro.infer.log_likelihood(density.model, draws, *args, **kwargs)
            return {name: x for name, x in found.items() if (name in self.row_axes) is inside}

        @jax.jit
        def of_rows(draws: dict[str, jax.Array], data: Data, start: jax.Array) -> dict[str, jax.Array]:
            block = RowBlock(start + jnp.arange(grid.rows_per_block), start)
            draws = {name: block.take(x, local[name]) if name in local else x for name, x in draws.items()}
            return terms(draws, density.rows(data, block), inside=True)

        @jax.jit
        def outside(draws: dict[str, jax.Array], data: Data) -> dict[str, jax.Array]:
            return terms(draws, density.for_outside(data), inside=False)

        for batch in posterior.batches(grid.draws_per_batch):
            draws = {name: jnp.asarray(x) for name, x in posterior.read(split.site_sizes, batch).items()}
            for rows in grid.blocks if self.row_axes else []:
                found = of_rows(draws, self._data.data, jnp.asarray(rows.start))
                yield Piece(batch, rows, {name: np.asarray(x) for name, x in found.items()})
            if self._observes_outside:
                found = outside(draws, self._data.data)
                yield Piece(batch, None, {name: np.asarray(x) for name, x in found.items()})

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each latent site."""
        constrained = jax.eval_shape(self._split.constrain_fn(*self._arguments), self._split.reference_position)
        return {name: constrained[name].shape for name in self._split.site_sizes}


def posterior_of_run(mcmc: MCMC) -> Posterior:
    """The draws that a run holds."""
    return Posterior(_draws_by_array(mcmc))


def _draws_by_array(mcmc: MCMC) -> dict[str, Any]:
    """Draws by site; arrays in the tuple or dict of a deterministic site each by its place, as in ``pair[0]``."""
    sites = mcmc.get_samples(group_by_chain=True).items()
    placed = ((name, jax.tree_util.tree_leaves_with_path(value)) for name, value in sites)
    return {f"{name}{jax.tree_util.keystr(path)}": x for name, arrays in placed for path, x in arrays}


def _dims_of_sites(mcmc: MCMC) -> dict[str, list[str]]:
    """Names of dimensions by site, the same as ArviZ finds.

    ArviZ's own way compares what a model's handlers hold with what they held in the call before; a comparison of arrays
    fails there.
    """
    dims: dict[str, list[str]] = {}

    def run() -> None:
        model: Any = substitute(seed(mcmc.sampler.model, 0), substitute_fn=init_to_sample)
        args, kwargs = arguments_of_run(mcmc)
        for name, site in trace(model).get_trace(*args, **kwargs).items():
            is_one = site["type"] in ("sample", "deterministic") and jax.tree_util.all_leaves([site["value"]])
            named = _dims_of_site(site) if is_one else []
            if 0 < len(named) <= jnp.ndim(site["value"]):  # in a plate a deterministic value may be one for all rows
                dims[name] = named

    try:
        jax.eval_shape(run)
    except UNREADABLE:  # the model reads values computed from its data with Python: a tracer has none
        run()
    return dims


def _dims_of_site(site: dict[str, Any]) -> list[str]:
    """Names of a site's dimensions: its plates from the left, and ArviZ's default for an axis without one."""
    plates = {frame.dim: frame.name for frame in site["cond_indep_stack"]}
    between = range(min(plates), max(plates) + 1) if plates else ()
    batch = [plates.get(dim, f"{site['name']}_dim_{i}") for i, dim in enumerate(between)]
    return [*batch, *site.get("infer", {}).get("event_dims", [])]


def _few_rows(mcmc: MCMC, split: DividedModel) -> Arguments | None:
    """Arguments with a few rows: in shards, those that every process has; in sources, the first two; else None.

    A model whose rows are elsewhere is run on these for everything but its observations.
    """
    kernel: Any = mcmc.sampler
    args, kwargs = kernel._open(*arguments_of_run(mcmc))
    arguments = Arguments(args, kwargs, split._row_axes)
    if not arguments.sources:
        return split.few_rows
    block = RowBlock(jnp.arange(min(2, split.layout.num_rows)), jnp.array(0))
    return arguments.replace(arguments.take(block, arguments.data))


def _split_of(mcmc: MCMC) -> DividedModel:
    """How the model of a run divides."""
    return _prepared_for(mcmc)[0].known_split


def _prepared_for(mcmc: MCMC) -> tuple[Any, SplitPotential]:
    """The prepared method and the potential of a run's model and arguments."""
    kernel: Any = mcmc.sampler
    kernel._runs.num_chains = mcmc.num_chains if mcmc.chain_method == "vectorized" else 1
    return kernel._prepare(mcmc.num_warmup, *kernel._open(*arguments_of_run(mcmc)))[:2]


def _energies(state: Any, potential: SplitPotential) -> tuple[list[float], list[float]]:
    """Potential energies at the ends of some chains: as the run recorded them, and as they are computed now."""
    chains = range(min(jnp.shape(state.i)[0], MOST_COMPARED)) if jnp.ndim(state.i) else [None]
    ends = [state.z if i is None else jax.tree.map(lambda u, i=i: u[i], state.z) for i in chains]
    recorded = np.ravel(state.potential_energy)[: len(ends)]
    return recorded.tolist(), [float(jnp.sum(potential.energies(z).value)) for z in ends]


def _log_likelihoods(mcmc: MCMC) -> dict[str, np.ndarray]:
    """The log-likelihood of each observation at each draw."""
    observations, posterior = Observations(mcmc), posterior_of_run(mcmc)
    grid = observations.grid(DRAWS_PER_BATCH)
    found = in_memory(observations.pieces(posterior, grid), posterior, grid, observations.row_axes)
    return {str(name): x.values for name, x in found.data_vars.items()}


def _add_log_likelihood(found: Any, terms: dict[str, np.ndarray]) -> None:
    """Put log-likelihoods into a group of their own, with the dimensions of the observed data."""
    import xarray

    draws = found["posterior"]
    groups = found.children if hasattr(found, "children") else found.groups()
    observed = found["observed_data"] if "observed_data" in groups else {}
    dims = {name: [f"{name}_dim_{i}" for i in range(x.ndim - 2)] for name, x in terms.items()}
    dims |= {name: x.dims[: terms[name].ndim - 2] for name, x in dict(observed).items() if name in terms}
    variables = {name: (("chain", "draw", *dims[name]), values) for name, values in terms.items()}
    coords = getattr(observed, "coords", {})
    group = xarray.Dataset(variables, coords={"chain": draws["chain"], "draw": draws["draw"], **coords})
    if hasattr(found, "add_groups"):
        found.add_groups(log_likelihood=group)
    else:
        found["log_likelihood"] = xarray.DataTree(group)
