"""Estimating a change of energy from batches of rows, with its variance: formulae in :mod:`split_common.penalty`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pyro_split.control_variates import Taylor, controlled
from pyro_split.densities import Position
from pyro_split.minibatches import draw_rows
from pyro_split.potential import SplitPotential
from split_common.penalty import Batches, Draws


class Estimate(NamedTuple):
    """A change of energy, known with noise.

    Attributes:
        change: U(new) - U(old), an unbiased estimate.
        chi2: estimate of its variance.
        num_batches: K that both rest on.
        energies: estimates of U(old) and U(new).
    """

    change: float
    chi2: float
    num_batches: int
    energies: tuple[float, float]


class Estimator:
    """Estimates changes of the target's energy -log p(z) - s Σ_i ℓ_i(z) from batches of rows.

    Args:
        potential: whose rows are read.
        batches: how many.
        target: "posterior" (s = 1) or "expected" (s = n/N).
        taylor: the control variate, or None.
        sites: names of the latent sites.
    """

    def __init__(
        self, potential: SplitPotential, batches: Batches, target: str, taylor: Taylor | None, sites: Sequence[str]
    ):
        self._potential, self._batches, self._taylor = potential, batches, taylor
        self._row_weight, self._temper = batches.row_weight(target), batches.temper(target)

        def rest(points: list[Position], row_terms: Callable[[Position], Tensor]) -> Tensor:
            """What the control variate leaves of the log-likelihood of some rows at two points, shape (2, n)."""
            return torch.stack([controlled(taylor, row_terms, z) for z in points])

        self._rest = potential.row_function(rest, 2, sites)

    def __call__(self, new: Position, old: Position, num_groups: int) -> Estimate:
        """Estimate U(new) - U(old).

        Args:
            new: a position.
            old: another.
            num_groups: how many times as many batches as the least number.
        """
        num_batches = num_groups * self._batches.num_batches
        sums = []
        for rows in self._draw(num_groups):
            terms = self._row_weight * self._rest.value(*self._potential.row_inputs([old, new], rows))
            by_batch = terms.double().reshape(2, self._batches.num_batches, -1).sum(2).cpu()
            sums.append(torch.cat([by_batch[1:] - by_batch[:1], by_batch]))
        changes, *values = torch.cat(sums, 1)

        known = [-float(self._potential.prior_energy(z)) for z in (old, new)]
        change = known[1] - known[0]
        if self._taylor is not None:
            of_expansion = self._temper * self._taylor.change(new, old)
            change += of_expansion
            at_old = self._temper * self._taylor.total(old)
            known = [known[0] + at_old, known[1] + at_old + of_expansion]
        before, after = (-total - float(value.mean()) for total, value in zip(known, values, strict=True))
        chi2 = self._batches.chi2(float(changes.var()), num_batches)
        return Estimate(-change - float(changes.mean()), chi2, num_batches, (before, after))

    def _draw(self, num_groups: int) -> list[Tensor]:
        """The rows of each group of batches, shape (Kn,), batch by batch."""
        batches = self._batches
        size, num_rows = batches.batch_size * batches.num_batches, batches.num_rows
        if batches.draws is Draws.INDEPENDENT_ROWS:
            return list(torch.randint(num_rows, (num_groups, size)))
        if batches.draws is Draws.DISTINCT_ROWS:
            return list(draw_rows(num_rows, size * num_groups).reshape(num_groups, size))
        each = [draw_rows(num_rows, batches.batch_size) for _ in range(num_groups * batches.num_batches)]
        return list(torch.cat(each).reshape(num_groups, size))
