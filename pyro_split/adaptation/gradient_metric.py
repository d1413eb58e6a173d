"""The metric from draws and gradients over the host's windows, and the normal approximation that drifts follow.

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
    """What a window of warm-up has seen, in the place of the host's estimator: draws, and gradients at them.

    Attributes:
        variances: of the draws of the window that the metric is from, shape (D,); None before.
        reference: z*, from the same window, shape (D,); None where the posterior was not nearly normal in it.
    """

    def __init__(self) -> None:
        self.variances: Tensor | None = None
        self.reference: Tensor | None = None
        super().__init__(diagonal=False)

    def reset(self) -> None:
        """Begin a window."""
        super().reset()
        self._grads: tuple[Any, Any, int] = (0.0, 0.0, 0)  # mean, sums and count
        self._products: float = 0.0  # sum over the coordinates of the joint deviations of draws and gradients

    def update_gradient(self, x: Tensor, grad: Tensor) -> None:
        """See the gradient at the draw that was seen last; a new tuple, so that a stored state stays as it is."""
        mean, squares, num = self._grads
        before = grad - mean
        self._products += float(before @ (x - self._mean))
        mean = mean + before / (num + 1)
        self._grads = mean, squares + torch.outer(grad - mean, before), num + 1

    @property
    def covariances(self) -> tuple[Tensor, Tensor]:
        """Of the draws and of the gradients, shape (D, D) each."""
        draws: Any = self.get_covariance(regularize=False)
        _, squares, num = self._grads
        return draws, squares / (num - 1)

    def metric(self) -> Tensor:
        """The inverse mass matrix of the window; NaN where it has none that momenta can be drawn with."""
        draws, grads = self.covariances
        self.variances = draws.diagonal()
        try:
            found = metric_of_window(draws, grads, self._grads[2], torch)
            torch.linalg.cholesky(found)  # rounding may leave a finite matrix that has no root
        except torch.linalg.LinAlgError:
            return torch.full_like(draws, torch.nan)
        return found

    def end(self, inverse_mass_matrix: Tensor) -> None:
        """Keep what the window, from which the metric was made, says of the posterior."""
        mean, _, num = self._grads
        left, size = share_left(*self._moments(inverse_mass_matrix)), len(inverse_mass_matrix)
        reference = self._mean - inverse_mass_matrix @ mean
        is_normal = bool(is_nearly_normal(left, num, size)) and bool(torch.isfinite(reference).all())
        self.reference = reference if is_normal else None

    def fit(self, inverse_mass_matrix: Tensor) -> tuple[Tensor, Tensor]:
        """Means of the squared frequencies in a metric, and of their inverses (:mod:`split_common.exploration`)."""
        squared, inverse, cross = self._moments(inverse_mass_matrix)
        return squared / cross, inverse / cross

    def _moments(self, inverse_mass_matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """a, b and c of :mod:`split_common.harmonic`.

        Tensors, for where a chain stood still all are 0, and their ratios are NaN, no errors as of Python's numbers.
        """
        (draws, grads), num = self.covariances, self._grads[2]
        squared = (inverse_mass_matrix * grads).sum() / len(draws)
        inverse = torch.linalg.solve(inverse_mass_matrix, draws).trace() / len(draws)
        cross = torch.tensor(self._products / (num - 1) / len(draws), dtype=torch.float64)
        return squared.double(), inverse.double(), cross


class GradientMassMatrix(BlockMassMatrix):
    """The host's mass matrix, of one dense block, adapted to draws and gradients."""

    def configure(self, mass_matrix_shape: Any, adapt_mass_matrix: bool = True, options: Any = None) -> None:
        """Set up the first mass matrix, as the host does."""
        super().configure(mass_matrix_shape, adapt_mass_matrix, options or {})
        self._adapt_scheme = {sites: GradientWindow() for sites in self._adapt_scheme}

    def update(self, z: Position, z_grad: Position | None) -> None:
        """See a draw, and, where it is known, the gradient there."""
        super().update(z, z_grad)
        if z_grad is not None:
            for sites, window in self._adapt_scheme.items():
                window.update_gradient(flatten(z, sites), flatten(z_grad, sites))

    @property
    def variances(self) -> Tensor:
        """Of the draws of the window that the metric is from, shape (D,); NaN before there was one."""
        (window,) = self._adapt_scheme.values()
        unknown = torch.full((sum(self.mass_matrix_size.values()),), torch.nan)
        return unknown if window.variances is None else window.variances

    @property
    def fit(self) -> tuple[Tensor, Tensor]:
        """Means of the squared frequencies in the metric, and of their inverses, in the window that is under way."""
        ((sites, window),) = self._adapt_scheme.items()
        return window.fit(self.inverse_mass_matrix[sites])

    @property
    def reference(self) -> Tensor | None:
        """What drifts turn about, shape (D,); None for straight drifts."""
        (window,) = self._adapt_scheme.values()
        return window.reference

    def end_adaptation(self) -> None:
        """Make the mass matrix anew at the end of a window; it stays as it is where the window has no finite one."""
        found = {sites: window.metric() for sites, window in self._adapt_scheme.items()}
        old = self.inverse_mass_matrix
        found = {sites: matrix if torch.isfinite(matrix).all() else old[sites] for sites, matrix in found.items()}
        for sites, window in self._adapt_scheme.items():
            window.end(found[sites])
        self.inverse_mass_matrix = found


def dense_start(inverse_mass_matrix: Any, x: Position) -> dict[tuple[str, ...], Tensor]:
    """The inverse mass matrix to start from, whatever its form, as one dense block."""
    sites = tuple(sorted(x))
    given = inverse_mass_matrix if isinstance(inverse_mass_matrix, dict) else {sites: inverse_mass_matrix}
    some = next(iter(x.values()))
    kinetic = kinetic_of_inverse({block: _like(matrix, some) for block, matrix in given.items()})
    ordered = {name: x[name] for name in sites}
    identity = torch.eye(sum(u.numel() for u in x.values()), dtype=some.dtype, device=some.device)
    columns = [flatten(kinetic.velocity(unflatten(p, ordered)), sites) for p in identity]
    return {sites: torch.stack(columns)}


def harmonic_drift(state: AdaptState, kinetic: EuclideanKinetic, like: Position) -> HarmonicDrift | None:
    """Drifts about what the last window of a metric from draws and gradients has found; None for straight ones."""
    (window,) = state.covariances.values()
    reference = window["reference"]
    return None if reference is None else HarmonicDrift(kinetic, unflatten(reference, like))


def _like(matrix: Any, some: Tensor) -> Any:
    """A block in the precision and on the device of a tensor."""
    if isinstance(matrix, LowRank):
        return matrix.converted(lambda array: torch.as_tensor(array).to(some))
    return torch.as_tensor(matrix).to(some)
