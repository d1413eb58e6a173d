"""Mass matrix, step size and reference of centring that a run found in warm-up, for a later run."""

from __future__ import annotations

from typing import Any

import torch
from pyro.infer import MCMC
from torch import Tensor

from pyro_split.host import diagnostics_by_chain, has_draws
from split_common.checks import check_chain
from split_common.low_rank_metric import LowRank
from split_common.runs.starting import found_in, is_path, required

MASS_MATRIX, CENTERS = "has a mass matrix", "centres"


def metric_of(run: Any, chain: int = 0) -> dict[tuple[str, ...], Any]:
    """The inverse mass matrix at the end of a chain, in the form that the argument ``inverse_mass_matrix`` takes.

    Args:
        run: Pyro's ``MCMC`` after its run; or the path of a store whose run has finished its warm-up.
        chain: number of the chain, from 0.

    Returns:
        A dict from tuples of site names to blocks: an array of shape (D,) for a diagonal block, (D, D) for a dense one,
        and a :class:`~split_common.low_rank_metric.LowRank` for one of low rank.

    Raises:
        ValueError: for an ``MCMC`` that has not been run, a kernel without a mass matrix, or a chain that does not
            exist.

    Example:
        >>> from pyro_split import SplitNUTS, metric_of  # then:
        >>> # SplitNUTS(model, 10, metric="auto", inverse_mass_matrix=metric_of("run.zarr"))
    """
    if is_path(run):
        found = required(found_in(run, chain).inverse_mass_matrix, MASS_MATRIX, run)
        return {sites: _as_tensors(block) for sites, block in found.items()}
    return _of_chain(run, "inverse_mass_matrix", MASS_MATRIX, chain)


def step_size_of(run: Any, chain: int = 0) -> float:
    """The step size that a chain adapted to in warm-up, in the form that the argument ``step_size`` takes.

    Args:
        run: Pyro's ``MCMC`` after its run; or the path of a store whose run has finished its warm-up.
        chain: number of the chain, from 0.

    Returns:
        The step size.

    Raises:
        ValueError: for an ``MCMC`` that has not been run, or a chain that does not exist.

    Example:
        >>> from pyro_split import SplitNUTS, step_size_of  # then:
        >>> # SplitNUTS(model, 10, step_size=step_size_of("run.zarr"))
    """
    if is_path(run):
        return found_in(run, chain).step_size
    if any("adapted_step_size" in found for found in _diagnostics(run)):
        return float(_of_chain(run, "adapted_step_size", "has a step size", chain))
    return float(_of_chain(run, "step_size", "has a step size", chain)[-1])


def center_of(run: Any, chain: int = 0) -> dict[str, Tensor]:
    """The reference about which a chain's subsets were centred, in the form that the argument ``center`` takes.

    Args:
        run: Pyro's ``MCMC`` after its run; or the path of a store whose run has finished its warm-up.
        chain: number of the chain, from 0.

    Returns:
        A dict of unconstrained values of all sites, also of sites that are not centred.

    Raises:
        ValueError: for an ``MCMC`` that has not been run, a kernel without centring, or a chain that does not exist.

    Example:
        >>> from pyro_split import SplitHMC, center_of  # then:
        >>> # SplitHMC(model, 10, schedule="single_visit", center=center_of("run.zarr"))
    """
    if is_path(run):
        return {name: torch.from_numpy(x) for name, x in required(found_in(run, chain).center, CENTERS, run).items()}
    return _of_chain(run, "center", CENTERS, chain)


def _of_chain(mcmc: Any, name: str, what: str, chain: int) -> Any:
    """An entry of the diagnostics of one chain of a run."""
    by_chain = _diagnostics(mcmc)
    if not by_chain or name not in by_chain[0]:
        raise ValueError(f"mcmc must have been run, with a kernel that {what}, got {type(mcmc).__name__} without that")
    return by_chain[check_chain(chain, len(by_chain))][name]


def _diagnostics(mcmc: Any) -> list[dict[str, Any]]:
    """The diagnostics of each chain; none before a run."""
    return diagnostics_by_chain(mcmc) if isinstance(mcmc, MCMC) and has_draws(mcmc) else []


def _as_tensors(block: Any) -> Any:
    """A block of NumPy arrays, as tensors."""
    return block.converted(torch.from_numpy) if isinstance(block, LowRank) else torch.from_numpy(block)
