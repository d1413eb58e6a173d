"""The metric of low rank from draws and gradients of windows of warm-up (:mod:`split_common.low_rank_metric`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pyro.infer.mcmc.adaptation import BlockMassMatrix
from torch import Tensor

from pyro_split.integrators.euclidean import EuclideanKinetic
from pyro_split.potential.position import Position, flatten
from split_common.low_rank_metric import (
    MAX_DRAWS,
    LowRank,
    deviations,
    full_rank,
    has_low_rank,
    is_usable,
    low_rank_of_window,
)


class LowRankWindow:
    """The last draws of a window of warm-up and the gradients there; takes the place of the host's estimator.

    Attributes:
        draws: the last draws, shape (D,) each; each draw makes a new tuple, so a stored state does not change.
        grads: gradients of the potential there.
        variances: variances of the draws of the window that the metric was made from, shape (D,); None before there was
            one.
    """

    def __init__(self) -> None:
        self.variances: Tensor | None = None
        self.reset()

    def reset(self) -> None:
        """Start a new, empty window."""
        self.draws: tuple[Tensor, ...] = ()
        self.grads: tuple[Tensor, ...] = ()

    def update(self, draw: Tensor) -> None:
        """Add a draw."""
        self.draws = (*self.draws, draw)[-MAX_DRAWS:]

    def update_gradient(self, grad: Tensor) -> None:
        """Add a gradient."""
        self.grads = (*self.grads, grad)[-MAX_DRAWS:]

    @property
    def draw_variances(self) -> Tensor:
        """Variances of the draws so far, shape (D,)."""
        return self._deviations(self.draws).square().sum(0)

    def metric(self) -> LowRank | None:
        """The inverse mass matrix from the window; None if there is no usable one."""
        self.variances = self.draw_variances
        draws, grads = torch.stack(self.draws), torch.stack(self.grads)
        if not torch.isfinite(draws.sum() + grads.sum()):
            return None  # torch cannot decompose such matrices
        try:
            found = low_rank_of_window(draws, grads, torch.ones_like(draws[:, 0]), torch)
        except torch.linalg.LinAlgError:  # squares of what is finite may not be
            return None
        return found if is_usable(found, torch) else None

    def fit(self, inverse_mass_matrix: LowRank) -> tuple[float, float]:
        """Mean of the squared frequencies in a metric, and mean of their inverses (:mod:`split_common.exploration`)."""
        draws, grads = self._deviations(self.draws), self._deviations(self.grads)
        squared, inverse = grads * inverse_mass_matrix.velocity(grads), draws * inverse_mass_matrix.momentum(draws)
        cross = (draws * grads).sum().double()  # a tensor, because division by a zero of Python would be an error
        return float(squared.sum() / cross), float(inverse.sum() / cross)

    def _deviations(self, rows: tuple[Tensor, ...]) -> Tensor:
        x = torch.stack(rows)
        return deviations(x, torch.ones_like(x[:, 0]))


class LowRankMassMatrix(BlockMassMatrix):
    """The host's mass matrix with one block of low rank, adapted to draws and gradients.

    Momenta are drawn by :class:`~pyro_split.integrators.low_rank.LowRankKinetic`.

    Args:
        start: first inverse mass matrix, a dict from a tuple of all sites to the block.
        adapts: whether the matrix adapts.
    """

    def __init__(self, start: dict[tuple[str, ...], LowRank], adapts: bool):
        super().__init__()
        self._inverse_mass_matrix = dict(start)
        self._adapt_scheme = {sites: LowRankWindow() for sites in start} if adapts else {}

    def configure(self, mass_matrix_shape: Any, adapt_mass_matrix: bool = True, options: Any = None) -> None:
        """Nothing to set up: the first mass matrix is given."""

    def update(self, z: Position, z_grad: Position | None) -> None:
        """Add a draw, and the gradient there, if it is known."""
        for sites, window in self._adapt_scheme.items():
            window.update(flatten(z, sites).detach())
            if z_grad is not None:
                window.update_gradient(flatten(z_grad, sites))

    @property
    def variances(self) -> tuple[Tensor, Tensor]:
        """Variances of the draws of the window that gave the metric, NaN before, and of those since, (D,) each."""
        (window,) = self._adapt_scheme.values()
        last = window.draw_variances
        return torch.full_like(last, torch.nan) if window.variances is None else window.variances, last

    @property
    def fit(self) -> tuple[float, float]:
        """Mean of the squared frequencies in the metric, and mean of their inverses, in the current window."""
        ((sites, window),) = self._adapt_scheme.items()
        return window.fit(self._inverse_mass_matrix[sites])

    def end_adaptation(self) -> None:
        """Make a new mass matrix at the end of a window; keep the old one if there is no usable new one."""
        for sites, window in self._adapt_scheme.items():
            found = window.metric()
            if found is not None:
                self._inverse_mass_matrix = {**self._inverse_mass_matrix, sites: found}
            window.reset()


def low_rank_start(inverse_mass_matrix: Any, x: Position) -> dict[tuple[str, ...], LowRank]:
    """First inverse mass matrix, diagonal, of low rank, or None for the identity, as one block of low rank."""
    sites, some = tuple(sorted(x)), next(iter(x.values()))
    blocks = inverse_mass_matrix if isinstance(inverse_mass_matrix, Mapping) else {sites: inverse_mass_matrix}
    if has_low_rank(inverse_mass_matrix):
        (start,) = blocks.values()
        start = start.converted(lambda array: torch.as_tensor(array).to(some))
    else:
        variances = {name: torch.ones_like(u) for name, u in x.items()}
        if inverse_mass_matrix is not None:
            given = EuclideanKinetic.of_inverse({b: torch.as_tensor(matrix).to(some) for b, matrix in blocks.items()})
            variances |= given.variances({name: tuple(u.shape) for name, u in x.items()})
        start = LowRank.of_variances(flatten(variances, sites))
    return {sites: start.padded(full_rank(len(start.scales)), torch)}
