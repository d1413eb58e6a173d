"""The metric from draws and gradients of windows of warm-up, and the normal approximation that drifts follow.

See :mod:`split_common.gradient_metric` and :mod:`split_common.harmonic`.
"""

from __future__ import annotations

from typing import Any

import torch
from pyro.infer.mcmc.adaptation import BlockMassMatrix
from pyro.ops.welford import WelfordCovariance
from torch import Tensor

from pyro_split.host import AdaptState
from pyro_split.integrators.euclidean import EuclideanKinetic, kinetic_of_inverse
from pyro_split.integrators.harmonic import HarmonicDrift
from pyro_split.potential.position import Position, flatten, unflatten
from split_common.gradient_metric import metric_of_window
from split_common.harmonic import is_nearly_normal, share_left
from split_common.low_rank_metric import LowRank


class GradientWindow(WelfordCovariance):
    """Moments of the draws and gradients of a window of warm-up; takes the place of the host's estimator.

    Attributes:
        variances: variances of the draws of the window that the metric was made from, shape (D,); None before there was
            one.
        reference: z* from the same window, shape (D,); None if the posterior was not nearly normal in it.
    """

    def __init__(self) -> None:
        self.variances: Tensor | None = None
        self.reference: Tensor | None = None
        super().__init__(diagonal=False)

    def reset(self) -> None:
        """Start a new, empty window."""
        super().reset()
        self._grads: tuple[Any, Any, int] = (0.0, 0.0, 0)  # mean, sum of products of deviations, count
        self._products: float = 0.0  # sum over the coordinates of products of deviations of draws and gradients

    def update_gradient(self, x: Tensor, grad: Tensor) -> None:
        """Add the gradient at the last draw; the moments are a new tuple, so a stored state does not change."""
        mean, squares, num = self._grads
        before = grad - mean
        self._products += float(before @ (x - self._mean))
        mean = mean + before / (num + 1)
        self._grads = mean, squares + torch.outer(grad - mean, before), num + 1

    @property
    def covariances(self) -> tuple[Tensor, Tensor]:
        """Covariances of the draws and of the gradients, shape (D, D) each."""
        draws: Any = self.get_covariance(regularize=False)
        _, squares, num = self._grads
        return draws, squares / (num - 1)

    def metric(self) -> Tensor:
        """The inverse mass matrix from the window; NaN if there is none with a Cholesky root."""
        draws, grads = self.covariances
        self.variances = draws.diagonal()
        try:
            found = metric_of_window(draws, grads, self._grads[2], torch)
            torch.linalg.cholesky(found)  # a finite matrix may be without a Cholesky root because of rounding
        except torch.linalg.LinAlgError:
            return torch.full_like(draws, torch.nan)
        return found

    def end(self, inverse_mass_matrix: Tensor) -> None:
        """Keep the normal approximation of the window, which gave the metric."""
        mean, _, num = self._grads
        left, size = share_left(*self._moments(inverse_mass_matrix)), len(inverse_mass_matrix)
        reference = self._mean - inverse_mass_matrix @ mean
        is_normal = bool(is_nearly_normal(left, num, size)) and bool(torch.isfinite(reference).all())
        self.reference = reference if is_normal else None

    def fit(self, inverse_mass_matrix: Tensor) -> tuple[Tensor, Tensor]:
        """Mean of the squared frequencies in a metric, and mean of their inverses (:mod:`split_common.exploration`)."""
        squared, inverse, cross = self._moments(inverse_mass_matrix)
        return squared / cross, inverse / cross

    def _moments(self, inverse_mass_matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """a, b and c of :mod:`split_common.harmonic`.

        They are tensors because all are 0 for a chain that did not move: ratios of tensors are then NaN, where those of
        Python's numbers raise an error.
        """
        (draws, grads), num = self.covariances, self._grads[2]
        squared = (inverse_mass_matrix * grads).sum() / len(draws)
        inverse = torch.linalg.solve(inverse_mass_matrix, draws).trace() / len(draws)
        cross = torch.tensor(self._products / (num - 1) / len(draws), dtype=torch.float64)
        return squared.double(), inverse.double(), cross


class GradientMassMatrix(BlockMassMatrix):
    """The host's mass matrix with one dense block, adapted to draws and gradients."""

    def configure(self, mass_matrix_shape: Any, adapt_mass_matrix: bool = True, options: Any = None) -> None:
        """Set up the first mass matrix, as the host does."""
        super().configure(mass_matrix_shape, adapt_mass_matrix, options or {})
        self._adapt_scheme = {sites: GradientWindow() for sites in self._adapt_scheme}

    def update(self, z: Position, z_grad: Position | None) -> None:
        """Add a draw, and the gradient there, if it is known."""
        super().update(z, z_grad)
        if z_grad is not None:
            for sites, window in self._adapt_scheme.items():
                window.update_gradient(flatten(z, sites), flatten(z_grad, sites))

    @property
    def variances(self) -> Tensor:
        """Variances of the draws of the window that the metric was made from, shape (D,); NaN before there was one."""
        (window,) = self._adapt_scheme.values()
        unknown = torch.full((sum(self.mass_matrix_size.values()),), torch.nan)
        return unknown if window.variances is None else window.variances

    @property
    def fit(self) -> tuple[Tensor, Tensor]:
        """Mean of the squared frequencies in the metric, and mean of their inverses, in the current window."""
        ((sites, window),) = self._adapt_scheme.items()
        return window.fit(self.inverse_mass_matrix[sites])

    @property
    def reference(self) -> Tensor | None:
        """Reference of harmonic drifts, shape (D,); None for straight drifts."""
        (window,) = self._adapt_scheme.values()
        return window.reference

    def end_adaptation(self) -> None:
        """Make a new mass matrix at the end of a window; keep the old one if the new one is not finite."""
        found = {sites: window.metric() for sites, window in self._adapt_scheme.items()}
        old = self.inverse_mass_matrix
        found = {sites: matrix if torch.isfinite(matrix).all() else old[sites] for sites, matrix in found.items()}
        for sites, window in self._adapt_scheme.items():
            window.end(found[sites])
        self.inverse_mass_matrix = found


def dense_start(inverse_mass_matrix: Any, x: Position) -> dict[tuple[str, ...], Tensor]:
    """First inverse mass matrix, given in any form, as one dense block; of sites not named, the identity."""
    sites = tuple(sorted(x))
    given = inverse_mass_matrix if isinstance(inverse_mass_matrix, dict) else {sites: inverse_mass_matrix}
    some = next(iter(x.values()))
    kinetic = kinetic_of_inverse({block: _like(matrix, some) for block, matrix in given.items()})
    ordered = {name: x[name] for name in sites}
    identity = torch.eye(sum(u.numel() for u in x.values()), dtype=some.dtype, device=some.device)
    units = [unflatten(p, ordered) for p in identity]
    return {sites: torch.stack([flatten(p | kinetic.velocity(p), sites) for p in units])}


def harmonic_drift(state: AdaptState, kinetic: EuclideanKinetic, like: Position) -> HarmonicDrift | None:
    """Harmonic drifts about the reference of the last window of the metric; None for straight drifts."""
    (window,) = state.covariances.values()
    reference = window["reference"]
    return None if reference is None else HarmonicDrift(kinetic, unflatten(reference, like))


def _like(matrix: Any, some: Tensor) -> Any:
    """A block in the dtype and on the device of a tensor."""
    if isinstance(matrix, LowRank):
        return matrix.converted(lambda array: torch.as_tensor(array).to(some))
    return torch.as_tensor(matrix).to(some)
