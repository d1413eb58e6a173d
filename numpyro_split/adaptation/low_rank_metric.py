"""The metric of low rank from draws and gradients of windows of warm-up (:mod:`split_common.low_rank_metric`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from numpyro.infer.hmc_util import HMCAdaptState

from numpyro_split.integrators.euclidean import EuclideanKinetic
from numpyro_split.potential.position import Position, flatten
from split_common.low_rank_metric import (
    MAX_DRAWS,
    LowRank,
    deviations,
    full_rank,
    has_low_rank,
    is_usable,
    low_rank_of_window,
)


class LowRankWindow(NamedTuple):
    """The last draws of a window of warm-up and the gradients there; takes the place of the host's estimator.

    Attributes:
        draws: the last draws, shape (n, D); a new draw overwrites the oldest.
        grads: gradients of the potential there, shape (n, D).
        num: number of draws of the window so far.
        variances: variances of the draws of the window that the metric was made from, shape (D,); 0 before there was
            one.
    """

    draws: jax.Array
    grads: jax.Array
    num: jax.Array
    variances: jax.Array

    @classmethod
    def start(cls, size: int, longest: int) -> LowRankWindow:
        """The window before warm-up, for ``size`` parameters and windows of at most ``longest`` iterations."""
        nothing = jnp.zeros((max(2, min(longest, MAX_DRAWS)), size))
        return cls(nothing, nothing, jnp.zeros((), jnp.result_type(int)), jnp.zeros(size))

    def fed(self, x: Position, grad: Position | None) -> LowRankWindow:
        """The window with one more draw, and with the gradient there, if it is known."""
        place = self.num % len(self.draws)
        flat = jnp.zeros(()) if grad is None else flatten(grad, x)
        draws, grads = self.draws.at[place].set(flatten(x, x)), self.grads.at[place].set(flat)
        return self._replace(draws=draws, grads=grads, num=self.num + 1)

    def renewed(self) -> LowRankWindow:
        """The next window, empty, after the metric has been made from this one."""
        # zeros, since a stale NaN of weight 0 would still be NaN
        empty = {"draws": jnp.zeros_like(self.draws), "grads": jnp.zeros_like(self.grads)}
        return self._replace(num=jnp.zeros_like(self.num), variances=self.draw_variances, **empty)

    @property
    def seen(self) -> jax.Array:
        """1 for each row of ``draws`` that holds a draw of the window, 0 for the others, shape (n,)."""
        return (jnp.arange(len(self.draws)) < self.num).astype(self.draws.dtype)

    @property
    def draw_variances(self) -> jax.Array:
        """Variances of the draws so far, shape (D,)."""
        return jnp.sum(deviations(self.draws, self.seen) ** 2, 0)

    def fit(self, inverse_mass_matrix: LowRank) -> tuple[jax.Array, jax.Array]:
        """Mean of the squared frequencies in a metric, and mean of their inverses (:mod:`split_common.exploration`)."""
        draws, grads = (deviations(x, self.seen) for x in (self.draws, self.grads))
        squared, inverse = (
            jnp.sum(grads * inverse_mass_matrix.velocity(grads)),
            jnp.sum(draws * inverse_mass_matrix.momentum(draws)),
        )
        cross = jnp.sum(draws * grads)
        return squared / cross, inverse / cross


def low_rank_start(inverse_mass_matrix: Any, x: Position) -> dict[tuple[str, ...], LowRank]:
    """First inverse mass matrix, diagonal, of low rank, or None for the identity, as one block of low rank."""
    sites, dtype = tuple(sorted(x)), jnp.result_type(*x.values())
    blocks = inverse_mass_matrix if isinstance(inverse_mass_matrix, Mapping) else {sites: inverse_mass_matrix}
    if has_low_rank(inverse_mass_matrix):
        (start,) = blocks.values()
        start = start.converted(lambda array: jnp.asarray(array, dtype))
    else:
        variances = {name: jnp.ones_like(u) for name, u in x.items()}
        if inverse_mass_matrix is not None:
            given = EuclideanKinetic({b: jnp.asarray(matrix) for b, matrix in blocks.items()})
            variances |= given.variances({name: u.shape for name, u in x.items()})
        start = LowRank.of_variances(flatten(variances, sites).astype(dtype))
    return {sites: start.padded(full_rank(len(start.scales)), jnp)}


def with_low_rank_window(
    state: HMCAdaptState, x: Position, grad: Position, is_in_window: jax.Array | bool, ends_window: jax.Array
) -> HMCAdaptState:
    """The host's adaptation state after a draw: the draw is added to the window, whose end gives a new metric.

    Args:
        state: adaptation state before the draw.
        x: the draw, in the coordinates of the metric.
        grad: gradient of the potential at the draw, a dict like ``x``.
        is_in_window: whether the draw is in a window that a metric is made from.
        ends_window: whether such a window ends with the draw.
    """

    def fed() -> HMCAdaptState:
        return state._replace(mm_state=state.mm_state.fed(x, grad))

    def renewed() -> HMCAdaptState:
        window = state.mm_state.fed(x, grad)
        ((sites, old),) = state.inverse_mass_matrix.items()
        found = low_rank_of_window(window.draws, window.grads, window.seen, jnp).padded(len(old.factors), jnp)
        usable = is_usable(found, jnp)
        kept = LowRank(*(jnp.where(usable, new, field) for new, field in zip(found, old, strict=True)))
        return state._replace(inverse_mass_matrix={sites: kept}, mm_state=window.renewed())

    return lax.cond(ends_window, renewed, lambda: lax.cond(is_in_window, fed, lambda: state))
