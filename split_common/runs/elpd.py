r"""Leave-one-out cross-validation and WAIC, of log-likelihoods that are read some rows at a time.

Both estimate the expected log density of a new observation at each row, from the log-likelihoods
:math:`\ell_{si} = \log p(y_i \mid w_s)` of :math:`S` draws given all rows. Leave-one-out weighs the draws of row
:math:`i` by :math:`1/p(y_i \mid w_s)`, which makes them draws given the other rows; the largest weights are smoothed
by a Pareto distribution, whose shape says whether that is to be relied upon. WAIC takes

.. math:: \log \tfrac1S \textstyle\sum_s e^{\ell_{si}} - \operatorname{Var}_s(\ell_{si}).

A row's number depends on its own column of log-likelihoods and on no other row's, so blocks of rows give what all rows
give at once. The one number that all rows share is the relative efficiency of the draws, effective over drawn, by which
ArviZ says how many weights are smoothed; it is computed before, from the posterior, likewise some coordinates at a
time.

The numbers are ArviZ's: each block is given to ``arviz.loo``, in float64 whatever the log-likelihoods are stored in.
Rows must be independent of one another given the draws; nothing here can see whether they are.

References:
    Vehtari, Gelman and Gabry (2017), Practical Bayesian Model Evaluation Using Leave-One-Out Cross-Validation and WAIC,
    Statistics and Computing 27. Vehtari, Simpson, Gelman, Yao and Gabry (2024), Pareto Smoothed Importance Sampling,
    Journal of Machine Learning Research 25. Watanabe (2010), Asymptotic Equivalence of Bayes Cross Validation and
    Widely Applicable Information Criterion, Journal of Machine Learning Research 11.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from split_common.report import TARGET
from split_common.runs.reading import LOG_LIKELIHOOD, as_inference_data, open_store
from split_common.values import finite_number, shown

BLOCK_BYTES = 2**25  # bytes of float64 log-likelihoods in a block; computing with one takes several times as much
SAMPLE = ("chain", "draw")
WAIC_VARIANCE = 0.4  # variance of a row's log-likelihood above which WAIC is unreliable, as in ArviZ


class Pointwise(NamedTuple):
    """Results for a block of rows, or for all rows.

    Attributes:
        elpd: expected log predictive density of each row, as an ``xarray.DataArray``.
        penalty: effective number of parameters: how much higher the density is under draws given the rows themselves.
        doubt: Pareto shape of each row, or variance of its log-likelihood.
    """

    elpd: Any
    penalty: float
    doubt: Any


def loo(data: Any, *, var_name: str | None = None, reff: float | None = None) -> Any:
    """Leave-one-out cross-validation by Pareto-smoothed importance sampling, some rows at a time.

    As ``az.loo(data, pointwise=True)``, in the memory of a block of rows.

    Args:
        data: a run's posterior and log-likelihoods in ArviZ's format (``InferenceData`` or ``DataTree``, as
            ``open_store`` and ``to_inference_data`` make them), or the path of a store that holds both, or an
            ``xarray.Dataset`` of log-likelihoods alone.
        var_name: the observed site; None where there is only one.
        reff: effective sample size over number of draws; None to compute it from the posterior as ArviZ does, which is
            1 for one chain.

    Returns:
        ``arviz.ELPDData`` with the values of each row and their Pareto shapes, on the log scale, which ``az.compare``
        takes.

    Raises:
        TypeError: for something else.
        ValueError: for data without log-likelihoods, several observed sites and no ``var_name``, log-likelihoods of
            other draws than the posterior's, numbers that are not finite, and a ``reff`` that is not above 0.
        StoreError: for a path of no store.

    Warns:
        UserWarning: where Pareto shapes are too large, and for draws of another distribution than the posterior.

    Example:
        >>> import numpy as np, xarray
        >>> values = np.random.default_rng(0).normal(-1.0, 0.1, size=(2, 200, 5))
        >>> found = loo(xarray.Dataset({"y": (("chain", "draw", "row"), values)}), reff=1.0)
        >>> found.n_samples, found.n_data_points, bool(found.warning)
        (400, 5, False)
    """
    array, posterior = _groups(data, var_name)
    efficiency = _efficiency(posterior, array) if reff is None else finite_number(reff)
    if efficiency is None or efficiency <= 0:
        raise ValueError(f"reff must be a number above 0, got {shown(reff)}")
    found = _joined([_loo_of_block(block, efficiency) for block in _blocks(array)], _longest(array))
    num_draws = array.sizes["chain"] * array.sizes["draw"]
    good_k = min(1 - 1 / np.log10(num_draws), 0.7)
    worse = int(np.sum(found.doubt.values > good_k))
    if worse:
        warnings.warn(
            f"Estimated shape parameter of Pareto distribution is greater than {good_k:.2f} at {worse} of "
            f"{found.doubt.size} rows: leaving one of them out changes the posterior by more than the draws can tell",
            stacklevel=2,
        )
    return _in_arviz("loo", found, num_draws, bool(worse), float(good_k))


def waic(data: Any, *, var_name: str | None = None) -> Any:
    """Widely applicable information criterion, some rows at a time.

    As ``az.waic(data, pointwise=True)`` of ArviZ 0.x, in the memory of a block of rows. Prefer :func:`loo`, which says
    where it fails.

    Args:
        data: as for :func:`loo`.
        var_name: the observed site; None where there is only one.

    Returns:
        ``arviz.ELPDData`` with the values of each row, on the log scale, which ``az.compare`` takes.

    Raises:
        TypeError: as :func:`loo`.
        ValueError: as :func:`loo`.
        StoreError: for a path of no store.

    Warns:
        UserWarning: where variances are too large, and for draws of another distribution than the posterior.

    Example:
        >>> import numpy as np, xarray
        >>> values = np.random.default_rng(0).normal(-1.0, 0.1, size=(2, 200, 5))
        >>> found = waic(xarray.Dataset({"y": (("chain", "draw", "row"), values)}))
        >>> found.n_samples, found.n_data_points, bool(found.warning)
        (400, 5, False)
    """
    array, _ = _groups(data, var_name)
    found = _joined([_waic_of_block(block) for block in _blocks(array)], _longest(array))
    worse = int(np.sum(found.doubt.values > WAIC_VARIANCE))
    if worse:
        warnings.warn(
            f"the variance over draws of the log-likelihood is greater than {WAIC_VARIANCE} at {worse} of "
            f"{found.doubt.size} rows, so that WAIC may fail; take loo",
            stacklevel=2,
        )
    num_draws = array.sizes["chain"] * array.sizes["draw"]
    return _in_arviz("waic", found, num_draws, bool(worse), WAIC_VARIANCE)


def _groups(data: Any, var_name: str | None) -> tuple[Any, Any]:
    """Log-likelihoods of a site as a ``DataArray``, and the posterior or None, checked."""
    import xarray

    if isinstance(data, str | os.PathLike):
        data = open_store(data)
    if isinstance(data, xarray.Dataset):
        held = {LOG_LIKELIHOOD: data}
    elif hasattr(data, "groups"):  # InferenceData, DataTree
        held = {name: data[name] for name in (LOG_LIKELIHOOD, "posterior") if name in data}
    else:
        rule = "data must be in ArviZ's format (InferenceData, DataTree or Dataset), or the path of a store"
        raise TypeError(f"{rule}, got {type(data).__name__}")
    if LOG_LIKELIHOOD not in held:
        raise ValueError(
            f"data must hold a group {LOG_LIKELIHOOD!r}, got none; log_likelihood(mcmc, into=PATH) adds it"
        )
    sites = {str(name): x for name, x in held[LOG_LIKELIHOOD].data_vars.items() if set(SAMPLE) <= set(x.dims)}
    if var_name is None and len(sites) != 1:
        raise ValueError(f"var_name must name one of the observed sites, {sorted(sites)}, got None")
    name = next(iter(sites)) if var_name is None else var_name
    if name not in sites:
        raise ValueError(f"var_name must name one of the observed sites, {sorted(sites)}, got {shown(name)}")
    array = sites[name].transpose(*SAMPLE, ...)
    posterior = held.get("posterior")
    if posterior is not None:
        _check_same_draws(array, posterior)
    if target := next((group.attrs[TARGET] for group in held.values() if TARGET in group.attrs), ""):
        warnings.warn(
            f"the draws are of {target}: this is no expected log predictive density of the posterior", stacklevel=3
        )
    return array, posterior


def _check_same_draws(array: Any, posterior: Any) -> None:
    """Raise unless the log-likelihoods are of the chains and draws that the posterior has."""
    for dim in SAMPLE:
        ours, theirs = array[dim].values, posterior[dim].values
        if not np.array_equal(ours, theirs):
            raise ValueError(
                f"log-likelihoods must be of the draws of the posterior, got those of {ours.size} of dimension {dim!r} "
                f"where the posterior has {theirs.size}, or with other labels"
            )


def _blocks(array: Any) -> Iterator[Any]:
    """An array in parts along its longest dimension besides chains and draws, in float64, checked."""
    longest = _longest(array)
    size = 1 if longest is None else array.sizes[longest]
    step = max(1, BLOCK_BYTES * size // (8 * max(array.size, 1)))
    for start in range(0, size, step):
        block = array if longest is None else array.isel({longest: slice(start, start + step)})
        block = block.load().astype(np.float64)
        if not np.all(np.isfinite(block)):
            bad = block.values[~np.isfinite(block.values)][0]
            place = "" if longest is None else f", between {start} and {start + block.sizes[longest]} of {longest!r}"
            raise ValueError(f"{array.name} must be finite at every draw, got {bad}{place}")
        yield block


def _longest(array: Any) -> str | None:
    """The longest dimension besides chains and draws; None where there is no other."""
    return max((dim for dim in array.dims if dim not in SAMPLE), key=lambda dim: array.sizes[dim], default=None)


def _efficiency(posterior: Any, array: Any) -> float:
    """Mean effective sample size of the posterior's coordinates over the number of draws, as ArviZ has it."""
    if array.sizes["chain"] == 1:
        return 1.0
    if posterior is None or not posterior.data_vars:
        raise ValueError("reff must be given, as data hold several chains and no posterior, got None")
    import arviz
    import xarray

    total, count = 0.0, 0
    for variable in posterior.data_vars.values():
        for block in _blocks(variable.transpose(*SAMPLE, ...)):
            values = block.values.reshape(*block.shape[:2], -1)
            ess = arviz.ess(xarray.Dataset({"x": ((*SAMPLE, "at"), values)}), method="mean")["x"].values
            total, count = total + float(np.sum(ess)), count + ess.size
    return total / count / (array.sizes["chain"] * array.sizes["draw"])


def _loo_of_block(block: Any, reff: float) -> Pointwise:
    import arviz

    scale = {"scale": "log"} if _is_old(arviz) else {}
    data = as_inference_data({LOG_LIKELIHOOD: block.rename("at_rows").to_dataset()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is one warning for all blocks at the end
        found: Any = arviz.loo(data, pointwise=True, reff=reff, **scale)
    names = ("loo_i", "p_loo") if _is_old(arviz) else ("elpd_i", "p")
    return Pointwise(found[names[0]], float(found[names[1]]), found["pareto_k"])


def _waic_of_block(block: Any) -> Pointwise:
    num_draws = block.sizes["chain"] * block.sizes["draw"]
    variance = block.var(dim=SAMPLE)
    density = logsumexp(block.values, axis=(0, 1)) - np.log(num_draws)
    return Pointwise(variance.copy(data=density - variance.values), float(variance.sum()), variance)


def _joined(blocks: list[Pointwise], dim: str | None) -> Pointwise:
    """Results for all rows, from those of the blocks."""
    import xarray

    if len(blocks) == 1:
        return blocks[0]
    elpd: Any = xarray.concat([block.elpd for block in blocks], dim)
    doubt: Any = xarray.concat([block.doubt for block in blocks], dim)
    return Pointwise(elpd, sum(block.penalty for block in blocks), doubt)


def _in_arviz(kind: str, found: Pointwise, num_draws: int, warning: bool, good_k: float) -> Any:
    """The result in the form of the installed ArviZ; ArviZ 1.x has a class for leave-one-out only, none for WAIC."""
    import arviz

    values, is_loo, is_old = found.elpd.values, kind == "loo", _is_old(arviz)
    variance = values.var(ddof=0 if is_old or values.size == 1 else 1)
    numbers = {"se": float(np.sqrt(values.size * variance)), "n_samples": num_draws, "n_data_points": values.size}
    numbers |= {"warning": warning, "scale": "log"} | ({"good_k": good_k} if is_loo else {})
    elpd, by_row = float(values.sum()), found.elpd
    if is_old:
        fields = {f"elpd_{kind}": elpd, "se": numbers["se"], f"p_{kind}": found.penalty, **numbers}
        fields |= {f"{kind}_i": by_row.rename(f"{kind}_i")} | ({"pareto_k": found.doubt} if is_loo else {})
        return arviz.ELPDData(data=list(fields.values()), index=list(fields))
    from arviz_stats import utils

    fields = {"elpd": elpd, "p": found.penalty, "good_k": None, **numbers, "elpd_i": by_row}
    if is_loo:
        made = getattr(utils, "ELPDDataLOO", utils.ELPDData)  # since 1.3
        fields["pareto_k"] = found.doubt
    else:
        made = utils.ELPDData
    named = {"kind": kind} if "kind" in {field.name for field in dataclasses.fields(made)} else {}
    return made(**named, **fields)


def _is_old(arviz: Any) -> bool:
    return arviz.__version__.startswith("0.")
