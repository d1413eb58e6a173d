"""Draws, statistics and observations for ArviZ."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.infer import MCMC

from numpyro_split.host import arguments_of_run
from numpyro_split.potential.arguments import Arguments, Data
from numpyro_split.potential.position import Position
from numpyro_split.potential.row_block import RowBlock
from numpyro_split.splitting.model_split import ModelSplit
from split_common.discrete import check_none_summed_out
from split_common.report import Report
from split_common.settling import put_settled


def to_inference_data(mcmc: MCMC, *, log_likelihood: bool = False, **options: Any) -> Any:
    """Convert a finished run to ArviZ's format: posterior, every sampler statistic, observed data.

    Without log-likelihoods it is the same as ``az.from_numpyro(mcmc, log_likelihood=False)``, which is complete as it
    comes, and says in one warning what ``kernel.report(mcmc)`` would say of trouble.

    Args:
        mcmc: a :class:`numpyro.infer.MCMC` that has been run with a kernel of this package.
        log_likelihood: whether to compute the log-likelihood of every observation at every draw, which ``az.loo``
            needs: chains x draws x rows numbers. They are those of ``az.from_numpyro``, but computed in the memory of
            one subset.
        **options: passed on to ``arviz.from_numpyro``, such as ``coords``, ``dims`` and ``posterior_predictive``.

    Returns:
        ``arviz.InferenceData`` for ArviZ 0.x, ``xarray.DataTree`` for ArviZ 1.x.

    Raises:
        ValueError: with ``log_likelihood=True``, for a kernel made from a :class:`~numpyro_split.SplitPotential`, which
            has no model, and for a model of which discrete latent sites were summed out.

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
    found = from_numpyro(mcmc, log_likelihood=False, **options)
    if hasattr(mcmc.sampler, "report"):  # of this package
        if mcmc.sampler.model is not None:
            found["posterior"].attrs["split"] = str(_split_of(mcmc).verdict)
        settled = getattr(mcmc.last_state, "settled", None)
        if settled is not None:  # of a kernel that adapts
            put_settled(found["sample_stats"], settled)
        Report.of(found, type(mcmc.sampler).__name__).warn()
    if log_likelihood:
        _add_log_likelihood(found, _log_likelihoods(mcmc))
    return found


def _split_of(mcmc: MCMC) -> ModelSplit:
    """How the model of a run divides."""
    kernel: Any = mcmc.sampler
    return kernel._prepare(mcmc.num_warmup, *kernel._open(*arguments_of_run(mcmc)))[0].known_split


def _log_likelihoods(mcmc: MCMC) -> dict[str, np.ndarray]:
    """The log-likelihood of each observation at each draw, by the host's function on one subset at a time."""
    kernel: Any = mcmc.sampler
    if kernel.model is None:
        raise ValueError("log_likelihood=True needs a model, got a run of a SplitPotential")
    args, kwargs = kernel._open(*arguments_of_run(mcmc))
    split = _split_of(mcmc)
    check_none_summed_out([site.name for site in split.sites if site.discrete])
    arguments = Arguments(args, kwargs, split._row_axes)
    density, layout = split._density(arguments), split.layout
    inside = {site.name: site for site in split.sites if density.plate in site.plates}
    axes = {name: site.batch_ndim + site.plates[density.plate] for name, site in inside.items()}

    @jax.jit
    def of_rows(draws: Position, data: Data, rows: jax.Array) -> dict[str, jax.Array]:
        block = RowBlock(rows)
        draws = {name: block.take(x, 1 + axes[name]) if name in axes else x for name, x in draws.items()}
        args, kwargs = density.rows(data, block)
        return numpyro.infer.log_likelihood(density.model, draws, *args, **kwargs)

    samples: Any = mcmc.get_samples(group_by_chain=True)
    shape = next(iter(samples.values())).shape[:2]
    draws = {name: samples[name].reshape(-1, *samples[name].shape[2:]) for name in split.site_sizes}
    joined: dict[str, np.ndarray] = {}
    parts = split.parts if split.verdict.held else map(layout.rows, range(layout.num_subsets))
    for rows in map(np.asarray, parts):
        for name, terms in of_rows(draws, arguments.data, jnp.asarray(rows)).items():
            terms = np.asarray(terms).reshape(*shape, *terms.shape[1:])
            if name not in axes:
                joined[name] = terms
                continue
            axis = 2 + axes[name]
            whole = (*terms.shape[:axis], layout.num_rows, *terms.shape[axis + 1 :])
            place = np.moveaxis(joined.setdefault(name, np.empty(whole, terms.dtype)), axis, 0)
            place[rows] = np.moveaxis(terms, axis, 0)
    return joined


def _add_log_likelihood(found: Any, terms: dict[str, np.ndarray]) -> None:
    """Put them into a group of their own, with the dimensions of the observed data."""
    import xarray

    observed, draws = found["observed_data"], found["posterior"]
    variables = {
        name: (("chain", "draw", *observed[name].dims[: values.ndim - 2]), values) for name, values in terms.items()
    }
    group = xarray.Dataset(variables, coords={"chain": draws["chain"], "draw": draws["draw"], **observed.coords})
    if hasattr(found, "add_groups"):
        found.add_groups(log_likelihood=group)
    else:
        found["log_likelihood"] = xarray.DataTree(group)
