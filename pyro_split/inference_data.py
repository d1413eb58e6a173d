"""Draws and statistics for ArviZ."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyro.infer import MCMC

from split_common.trajectory import STATISTICS

ARVIZ_NAMES = {"accept_prob": "acceptance_rate", "num_steps": "n_steps"}


def to_inference_data(mcmc: MCMC, **options: Any) -> Any:
    """Convert a finished run to ArviZ's format: posterior and every sampler statistic.

    Args:
        mcmc: a :class:`pyro.infer.MCMC` that has been run with a kernel of this package.
        **options: passed on to ``arviz.from_dict``, such as ``coords`` and ``dims``.

    Returns:
        ``arviz.InferenceData`` for ArviZ 0.x, ``xarray.DataTree`` for ArviZ 1.x, with the names that
        ``az.from_numpyro`` gives: ``lp`` (log density), ``acceptance_rate``, ``n_steps`` and so on.

    Raises:
        ValueError: when the run has no sampler statistics.

    Example:
        >>> from pyro_split import to_inference_data  # then: az.summary(to_inference_data(mcmc))
    """
    draws = {name: x.detach().cpu().numpy() for name, x in mcmc.get_samples(group_by_chain=True).items()}
    by_chain: list[Any] = mcmc._diagnostics  # in the order of the chains; diagnostics() sorts their names as strings
    missing = [name for name in STATISTICS if name not in by_chain[0]]
    if missing:
        raise ValueError(f"mcmc must have been run with a kernel of pyro_split, got no statistics {missing}")
    names: list[str] = [
        name for name, values in by_chain[0].items() if isinstance(values, list) and name != "divergences"
    ]
    columns: dict[str, Any] = {name: np.array([chain[name] for chain in by_chain]) for name in names}
    statistics = {ARVIZ_NAMES.get(name, name): column for name, column in columns.items()}
    statistics["lp"] = -statistics.pop("potential_energy")
    return _from_dict({"posterior": draws, "sample_stats": statistics}, options)


def _from_dict(groups: dict[str, dict[str, np.ndarray]], options: dict[str, Any]) -> Any:
    try:
        import arviz
    except ImportError:
        import arviz_base as arviz
    if arviz.__version__.startswith("0.") and hasattr(arviz, "InferenceData"):
        return arviz.from_dict(**groups, **options)
    return arviz.from_dict(groups, **options)
