"""Mass matrix, step size and reference of centring that a run found in warm-up, for a later run."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from split_common.checks import check_chain
from split_common.runs.starting import found_in, is_path, required

MASS_MATRIX, CENTERS = "has a mass matrix", "centres"


def metric_of(run: Any, chain: int = 0) -> dict[tuple[str, ...], Any]:
    """The inverse mass matrix at the end of a chain, in the form that the argument ``inverse_mass_matrix`` takes.

    Args:
        run: NumPyro's ``MCMC`` after its run; or the path of a store whose run has finished its warm-up.
        chain: number of the chain, from 0.

    Returns:
        A dict from tuples of site names to blocks: an array of shape (D,) for a diagonal block, (D, D) for a dense one,
        and a :class:`~split_common.low_rank_metric.LowRank` for one of low rank.

    Raises:
        ValueError: for an ``MCMC`` that has not been run, a kernel without a mass matrix, or a chain that does not
            exist.

    Example:
        >>> from numpyro_split import SplitNUTS, metric_of  # then:
        >>> # SplitNUTS(model, 10, metric="auto", inverse_mass_matrix=metric_of("run.zarr"))
    """
    if is_path(run):
        found = required(found_in(run, chain).inverse_mass_matrix, MASS_MATRIX, run)
        return {sites: jax.tree.map(jnp.asarray, block) for sites, block in found.items()}
    return _of_chain(_last_state(run, "adapt_state", MASS_MATRIX), "adapt_state", chain).inverse_mass_matrix


def step_size_of(run: Any, chain: int = 0) -> float:
    """The step size that a chain adapted to in warm-up, in the form that the argument ``step_size`` takes.

    Args:
        run: NumPyro's ``MCMC`` after its run; or the path of a store whose run has finished its warm-up.
        chain: number of the chain, from 0.

    Returns:
        The step size.

    Raises:
        ValueError: for an ``MCMC`` that has not been run, or a chain that does not exist.

    Example:
        >>> from numpyro_split import SplitNUTS, step_size_of  # then:
        >>> # SplitNUTS(model, 10, step_size=step_size_of("run.zarr"))
    """
    if is_path(run):
        return found_in(run, chain).step_size
    state = _last_state(run, "step_size", "has a step size")
    if getattr(state, "adapt_state", None) is None:
        return float(_of_chain(state, "step_size", chain))
    return float(_of_chain(state, "adapt_state", chain).step_size)


def center_of(run: Any, chain: int = 0) -> dict[str, jax.Array]:
    """The reference about which a chain's subsets were centred, in the form that the argument ``center`` takes.

    Args:
        run: NumPyro's ``MCMC`` after its run; or the path of a store whose run has finished its warm-up.
        chain: number of the chain, from 0.

    Returns:
        A dict of unconstrained values of all sites, also of sites that are not centred.

    Raises:
        ValueError: for an ``MCMC`` that has not been run, a kernel without centring, or a chain that does not exist.

    Example:
        >>> from numpyro_split import SplitHMC, center_of  # then:
        >>> # SplitHMC(model, 10, schedule="single_visit", center=center_of("run.zarr"))
    """
    if is_path(run):
        return jax.tree.map(jnp.asarray, required(found_in(run, chain).center, CENTERS, run))
    state = _last_state(run, "centering", CENTERS)
    return _of_chain(state, "centering", chain).center.reference


def _last_state(mcmc: Any, field: str, what: str) -> Any:
    """The last state of a run; it must have the field."""
    state = getattr(mcmc, "last_state", None)
    if getattr(state, field, None) is None:
        raise ValueError(f"mcmc must have been run, with a kernel that {what}, got {type(mcmc).__name__} without that")
    return state


def _of_chain(state: Any, field: str, chain: int) -> Any:
    """A field of the state of one chain."""
    found, is_batch = getattr(state, field), jnp.ndim(state.i) > 0
    place = check_chain(chain, len(state.i) if is_batch else 1)
    return jax.tree.map(lambda x: x[place], found) if is_batch else found
