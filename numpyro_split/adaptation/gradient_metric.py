"""The metric from draws and gradients of windows of warm-up, and the normal approximation that drifts follow.

See :mod:`split_common.gradient_metric` and :mod:`split_common.harmonic`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from numpyro.infer.hmc_util import HMCAdaptState, welford_covariance

from numpyro_split.integrators.euclidean import EuclideanKinetic
from numpyro_split.integrators.harmonic import HarmonicDrift
from numpyro_split.integrators.low_rank import LowRankKinetic
from numpyro_split.potential.position import Position, flatten, where
from split_common.gradient_metric import metric_of_window
from split_common.harmonic import is_nearly_normal, share_left
from split_common.low_rank_metric import LowRank, has_low_rank

_welford: Any = welford_covariance(diagonal=False)
_START, _FEED = _welford[:2]


class GradientWindow(NamedTuple):
    """Moments of the draws and gradients of a window of warm-up; takes the place of the host's estimator.

    Attributes:
        draws: mean, sum of products of deviations, and count of the draws.
        grads: the same for the gradients of the potential at the draws.
        products: sum over the coordinates of the products of deviations of draws and gradients.
        variances: variances of the draws of the window that the metric was made from, shape (D,); 0 before there was
            one.
        reference: z* from the same window, shape (D,); 0 if it is not finite, and before there was a window.
        is_normal: whether the posterior was nearly normal in that window.
    """

    draws: tuple[jax.Array, jax.Array, jax.Array]
    grads: tuple[jax.Array, jax.Array, jax.Array]
    products: jax.Array
    variances: jax.Array
    reference: jax.Array
    is_normal: jax.Array

    @classmethod
    def start(cls, size: int) -> GradientWindow:
        """The window before warm-up."""
        none = jnp.zeros(size)
        return cls(_START(size), _START(size), jnp.zeros(()), none, none, jnp.array(False))

    def fed(self, x: Position, grad: Position | None) -> GradientWindow:
        """The window with one more draw, and with the gradient there, if it is known."""
        draws = _FEED(flatten(x, x), self.draws)
        if grad is None:
            return self._replace(draws=draws)
        flat = flatten(grad, x)
        products = self.products + jnp.vdot(flat - self.grads[0], flatten(x, x) - draws[0])
        return self._replace(draws=draws, grads=_FEED(flat, self.grads), products=products)

    def fit(self, inverse_mass_matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean of the squared frequencies in a metric, and mean of their inverses (:mod:`split_common.exploration`)."""
        squared, inverse, cross = self._moments(inverse_mass_matrix)
        return squared / cross, inverse / cross

    def _moments(self, inverse_mass_matrix: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """a, b and c of :mod:`split_common.harmonic`."""
        (draws, grads), num = self.covariances, self.draws[2]
        squared = jnp.sum(inverse_mass_matrix * grads) / len(draws)
        inverse = jnp.trace(jnp.linalg.solve(inverse_mass_matrix, draws)) / len(draws)
        return squared, inverse, self.products / (num - 1) / len(draws)

    @property
    def covariances(self) -> tuple[jax.Array, jax.Array]:
        """Covariances of the draws and of the gradients, shape (D, D) each."""
        draws, grads = (squares / (num - 1) for _, squares, num in (self.draws, self.grads))
        return draws, grads

    def ended(self, inverse_mass_matrix: jax.Array) -> GradientWindow:
        """The next, empty window, with variances and normal approximation of this one, which gave the metric."""
        (mean, _, num), size = self.draws, len(self.variances)
        left = share_left(*self._moments(inverse_mass_matrix))
        reference = mean - inverse_mass_matrix @ self.grads[0]
        is_normal = is_nearly_normal(left, num, size) & jnp.all(jnp.isfinite(reference))
        return GradientWindow.start(size)._replace(
            variances=jnp.diagonal(self.covariances[0]),
            reference=jnp.where(jnp.isfinite(reference), reference, 0.0),  # because NaN times 0 would be NaN
            is_normal=is_normal,
        )

    def drift(self, kinetic: EuclideanKinetic, like: Position) -> HarmonicDrift:
        """Harmonic drifts about the reference if the posterior was nearly normal, otherwise straight drifts."""
        _, unravel = ravel_pytree(like)
        return HarmonicDrift(kinetic, unravel(self.reference.astype(jnp.result_type(*like.values()))), self.is_normal)


def dense_start(inverse_mass_matrix: Any, x: Position) -> dict[tuple[str, ...], jax.Array]:
    """First inverse mass matrix, given in any form or as None, as one dense block; of sites not named, the identity."""
    sites = tuple(sorted(x))
    identity = jnp.identity(sum(u.size for u in x.values()))
    if inverse_mass_matrix is None:
        return {sites: identity}
    _, unravel = ravel_pytree(x)
    if isinstance(inverse_mass_matrix, LowRank):
        inverse_mass_matrix = {sites: inverse_mass_matrix}
    form = LowRankKinetic if has_low_rank(inverse_mass_matrix) else EuclideanKinetic
    velocity = form(inverse_mass_matrix).velocity
    return {sites: jax.vmap(lambda p: flatten(unravel(p) | velocity(unravel(p)), sites))(identity)}


def with_window(
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
        (sites,) = state.inverse_mass_matrix
        found = metric_of_window(*window.covariances, num_draws=window.draws[2], xp=jnp)
        with_roots = EuclideanKinetic.of_inverse({sites: found})
        # a finite matrix may be without a Cholesky root because of rounding
        is_usable = jnp.all(jnp.array([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(with_roots)]))
        kinetic = where(is_usable, with_roots, EuclideanKinetic.adapted(state))
        return state._replace(
            inverse_mass_matrix=kinetic.inverse_mass_matrix,
            mass_matrix_sqrt=kinetic.mass_matrix_sqrt,
            mass_matrix_sqrt_inv=kinetic.mass_matrix_sqrt_inv,
            mm_state=window.ended(kinetic.inverse_mass_matrix[sites]),
        )

    return lax.cond(ends_window, renewed, lambda: lax.cond(is_in_window, fed, lambda: state))
