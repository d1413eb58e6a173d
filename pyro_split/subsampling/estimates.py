"""Estimating a change of energy from batches of rows, with its variance.

Formulae are in :mod:`split_common.penalty`; those of single rows' influence are in :mod:`split_common.certainty`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pyro_split.potential.capture import ValueAndGrad
from pyro_split.potential.expansion import Taylor, controlled
from pyro_split.potential.position import Position
from pyro_split.potential.split_potential import SplitPotential
from pyro_split.subsampling.rows import draw_rows
from split_common.certainty import tail_terms
from split_common.penalty import Batches, RowSampling


class Estimate(NamedTuple):
    """A noisy estimate of a change of energy.

    Attributes:
        change: U(new) - U(old), an unbiased estimate.
        chi2: estimate of its variance.
        num_batches: K, the number of batches behind both.
        energies: estimates of U(old) and U(new).
        tail_error: estimate of how far single rows may put the log-density off.
    """

    change: float
    chi2: float
    num_batches: int
    energies: tuple[float, float]
    tail_error: float


class Estimator:
    """Estimates changes of the target's energy -log p(z) - s Σ_i ℓ_i(z) from batches of rows.

    Args:
        potential: the potential whose rows are read.
        batches: how rows are drawn.
        target: "posterior" (s = 1) or "expected" (s = n/N).
        taylor: the control variate, or None.
        certainty_rows: numbers of the rows that are always read, ascending, shape (C,).
        sites: names of the latent sites.
    """

    def __init__(
        self,
        potential: SplitPotential,
        batches: Batches,
        target: str,
        taylor: Taylor | None,
        certainty_rows: Tensor,
        sites: Sequence[str],
    ):
        self.batches = batches.beside(len(certainty_rows))
        self._potential, self._taylor, self._certainty_rows = potential, taylor, certainty_rows
        self._row_weight, self._likelihood_power = (
            self.batches.row_weight(target),
            self.batches.likelihood_power(target),
        )

        def rest(points: list[Position], row_terms: Callable[[Position], Tensor]) -> Tensor:
            """Residuals of some rows' log-likelihood after the control variate, at two points, shape (2, n)."""
            return torch.stack([controlled(taylor, row_terms, z) for z in points])

        self._drawn, self._certain = (potential.row_function(rest, 2, sites) for _ in range(2))

    def __call__(self, new: Position, old: Position, num_groups: int) -> Estimate:
        """Estimate U(new) - U(old).

        Args:
            new: a position.
            old: another.
            num_groups: number of batches, as a multiple of the least number.
        """
        batches = self.batches
        num_batches = num_groups * batches.num_batches
        sums, tail = [], torch.zeros((), dtype=torch.float64)
        for rows in self._draw(num_groups):
            terms = self._row_weight * self._terms(self._drawn, old, new, rows)
            changes = terms[1] - terms[0]
            tail = tail + tail_terms(changes / num_batches).sum()
            by_batch = torch.stack([changes, *terms]).reshape(3, batches.num_batches, -1)
            sums.append(by_batch.sum(2))
        always = torch.zeros(3, dtype=torch.float64)  # terms of the always-read rows: their change, and at both points
        if batches.num_certain:
            certain = self._likelihood_power * self._terms(self._certain, old, new, self._certainty_rows)
            always = torch.stack([(certain[1] - certain[0]).sum(), *certain.sum(1)])
        (changes, *values), always, tail = self._potential.ranks.sum(new, [torch.cat(sums, 1), always, tail])

        known = [-float(self._potential.prior_energy(z)) for z in (old, new)]
        change = known[1] - known[0]
        if self._taylor is not None:
            of_expansion = self._likelihood_power * self._taylor.change(new, old)
            change += of_expansion
            at_old = self._likelihood_power * self._taylor.total(old)
            known = [known[0] + at_old, known[1] + at_old + of_expansion]
        if batches.num_certain:
            change += float(always[0])
            known = [total + float(value) for total, value in zip(known, always[1:], strict=True)]
        before, after = (-total - float(value.mean()) for total, value in zip(known, values, strict=True))
        chi2 = batches.chi2(float(changes.var()), num_batches)
        # a proposal of infinite energy is rejected and counted as a divergence, so it says nothing about single rows
        tail_error = float(tail) * batches.unread(num_batches) if math.isfinite(tail) else 0.0
        return Estimate(-change - float(changes.mean()), chi2, num_batches, (before, after), tail_error)

    def _terms(self, function: ValueAndGrad, old: Position, new: Position, rows: Tensor) -> Tensor:
        """Residuals of some rows after the control variate, at both points, shape (2, n); 0 for other ranks' rows."""
        return self._potential.row_values(function, [old, new], rows)

    def _draw(self, num_groups: int) -> list[Tensor]:
        """The rows of each group of batches, shape (Kn,), batch by batch."""
        places = self._draw_places(num_groups)
        if not self.batches.num_certain:
            return places
        # place j among the rows that are drawn is row j + (number of always-read rows before it)
        skipped = self._certainty_rows - torch.arange(self.batches.num_certain)
        return [at + torch.searchsorted(skipped, at, right=True) for at in places]

    def _draw_places(self, num_groups: int) -> list[Tensor]:
        """Like :meth:`_draw`, but gives places among the rows that are not always read."""
        batches = self.batches
        size, num_drawn = batches.batch_size * batches.num_batches, batches.num_drawn
        if batches.sampling is RowSampling.INDEPENDENT_ROWS:
            return list(torch.randint(num_drawn, (num_groups, size)))
        if batches.sampling is RowSampling.DISTINCT_ROWS:
            return list(draw_rows(num_drawn, size * num_groups).reshape(num_groups, size))
        each = [draw_rows(num_drawn, batches.batch_size) for _ in range(num_groups * batches.num_batches)]
        return list(torch.cat(each).reshape(num_groups, size))
