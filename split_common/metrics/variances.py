"""A regression's predictive distribution: its mean, and its variance as noise plus disagreement of the draws."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from split_common.metrics.checked import checked_finite, draws_by_points


class VarianceDecomposition(NamedTuple):
    """Mean and variance of a regression's posterior predictive distribution, each of shape (points,)."""

    mean: np.ndarray  # in units of y
    aleatoric: np.ndarray  # in squared units of y: variance of the noise, which more data would not reduce
    epistemic: np.ndarray  # in squared units of y: variance between the predictions of the draws

    @property
    def total(self) -> np.ndarray:
        """Variance of the prediction: aleatoric plus epistemic."""
        return self.aleatoric + self.epistemic


def variance_decomposition(means: np.ndarray, noise_variance: np.ndarray | float) -> VarianceDecomposition:
    """Mean of a regression's predictive distribution, and its variance as noise plus disagreement of the draws.

    The epistemic variance divides by the number of draws, so that the sum is exactly the variance of the mixture
    of the draws' predictions, whatever the shape of the noise.

    Args:
        means: mean of y at each point under each draw, f_s(x), shape (draws, points).
        noise_variance: variance of y about that mean, not its standard deviation or precision: one number, one per
            draw, shape (draws,), or one per draw and point, shape (draws, points).

    Returns:
        ``mean``, ``aleatoric`` and ``epistemic``, in this order, and ``total``; shape (points,).

    Raises:
        ValueError: for other shapes, no draws or points, a mean that is not finite, or a variance that is not finite
            or below 0.

    Example:
        Two draws that agree at the first point only:

        >>> import numpy as np
        >>> prediction = variance_decomposition(np.array([[1.0, 1.0], [1.0, 3.0]]), np.array([0.25, 0.75]))
        >>> prediction.mean, prediction.aleatoric, prediction.epistemic, prediction.total
        (array([1., 2.]), array([0.5, 0.5]), array([0., 1.]), array([0.5, 1.5]))
    """
    draws = checked_finite("means", draws_by_points("means", means))
    noise = np.asarray(noise_variance, dtype=np.float64)
    if noise.shape not in ((), draws.shape[:1], draws.shape):
        raise ValueError(
            f"noise_variance must be a number or have shape (draws,) or (draws, points), here {draws.shape[:1]} or "
            f"{draws.shape}, got shape {noise.shape}"
        )
    allowed = np.isfinite(noise) & (noise >= 0)
    if not np.all(allowed):
        raise ValueError(f"noise_variance must be finite and at least 0, got {noise[~allowed][0]}")
    if noise.ndim == 1:
        noise = noise[:, None]
    return VarianceDecomposition(
        mean=draws.mean(axis=0),
        aleatoric=np.broadcast_to(noise, draws.shape).mean(axis=0),
        epistemic=draws.var(axis=0),
    )
