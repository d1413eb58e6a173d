"""What warm-up found, for a later run to start from: the metric, and where splitting was centred."""

from __future__ import annotations

from typing import Any

from pyro.infer import MCMC
from torch import Tensor

from pyro_split.host import diagnostics_by_chain, has_draws
from split_common.checks import check_chain


def metric_of(mcmc: Any, chain: int = 0) -> dict[tuple[str, ...], Any]:
    """The inverse mass matrix that a chain of a run ended with, as ``inverse_mass_matrix=`` takes it.

    Args:
        mcmc: the host's ``MCMC``, which has been run.
        chain: the number of the chain.

    Returns:
        From tuples of site names to blocks: of shape (D,) where diagonal, (D, D) where dense, and a
        :class:`~split_common.low_rank_metric.LowRank` where of low rank.

    Raises:
        ValueError: for a run that has not been made, or has no mass matrix, or no such chain.

    Example:
        >>> from pyro_split import SplitNUTS, metric_of  # then:
        >>> # SplitNUTS(model, 10, metric="auto", inverse_mass_matrix=metric_of(mcmc))
    """
    return _of_chain(mcmc, "inverse_mass_matrix", "has a mass matrix", chain)


def center_of(mcmc: Any, chain: int = 0) -> dict[str, Tensor]:
    """The reference that a chain's splitting was centred about, as ``center=`` takes it.

    Args:
        mcmc: the host's ``MCMC``, which has been run.
        chain: the number of the chain.

    Returns:
        Unconstrained values by site; the sites that are not centred are where the chain ended.

    Raises:
        ValueError: for a run that has not been made, or is not of a kernel that centres, or has no such chain.
    """
    return _of_chain(mcmc, "center", "centres", chain)


def _of_chain(mcmc: Any, name: str, what: str, chain: int) -> Any:
    """An entry of the diagnostics of one of a run's chains."""
    by_chain = diagnostics_by_chain(mcmc) if isinstance(mcmc, MCMC) and has_draws(mcmc) else []
    if not by_chain or name not in by_chain[0]:
        raise ValueError(f"mcmc must have been run, with a kernel that {what}, got {type(mcmc).__name__} without that")
    return by_chain[check_chain(chain, len(by_chain))][name]
