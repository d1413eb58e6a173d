"""Draws and statistics for ArviZ."""

from __future__ import annotations

from typing import Any

from numpyro.infer import MCMC


def to_inference_data(mcmc: MCMC, **options: Any) -> Any:
    """Convert a finished run to ArviZ's format: posterior, every sampler statistic, observed data.

    The same as ``az.from_numpyro(mcmc, log_likelihood=False)``, which is complete as it comes. Pointwise
    log-likelihoods (chains x draws x rows) are left out because they rarely fit where splitting is needed; ask
    for them with ``log_likelihood=True``.

    Args:
        mcmc: a :class:`numpyro.infer.MCMC` that has been run.
        **options: passed on to ``arviz.from_numpyro``, such as ``coords`` and ``dims``.

    Returns:
        ``arviz.InferenceData`` for ArviZ 0.x, ``xarray.DataTree`` for ArviZ 1.x.

    Example:
        >>> from numpyro_split import to_inference_data  # then: az.summary(to_inference_data(mcmc))
    """
    try:
        from arviz import from_numpyro
    except ImportError:
        from arviz_base import from_numpyro
    return from_numpyro(mcmc, **{"log_likelihood": False, **options})
