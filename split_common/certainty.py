r"""Influence of single rows on the noise of an estimate, and which rows every iteration reads.

Of N rows, row i changes a proposal's log-likelihood (or what a control variate leaves of it) by :math:`r_i`, and is
drawn about :math:`\lambda = Kn/N` times, each time counted :math:`1/\lambda`-fold. As numbers of draws are about
Poisson, the noise of the estimate has, with :math:`x_i = r_i/\lambda`,

.. math:: \log E\, e^{-\text{noise}} = \lambda \sum_i (e^{-x_i} - 1 + x_i),

of which the penalty makes up for the second order, :math:`\lambda \sum_i x_i^2/2 = \chi^2/2`. Left of a row with small
:math:`|x_i|` is the skewness that it gives the noise, :math:`\lambda |x_i|^3/6`. A row with large :math:`|x_i|` is in
few decisions, which refuse; the others know neither its term nor its part of :math:`\chi^2`: the chain samples a
posterior without it, whose log-density is off by :math:`|r_i| = \lambda |x_i|`. So the log-density of the draws is off
by at most about

.. math:: \lambda \sum_i |x_i| \min(1, x_i^2/6),

and by just that where the rows' signs agree. Summed over the rows of one estimate, without :math:`\lambda`, it is
estimated without bias: each row is drawn :math:`\lambda` times on average.

Cure: a stratum of C rows that are always read, each counted once, those of the largest such terms; the others are drawn
as before, counted :math:`(N - C)/(Kn)`-fold, and :math:`\chi^2` is theirs alone. The estimate is without bias whichever
rows they are, so the choice may depend on all of the data; it must not depend on the state of the chain. Where it would
not take half of the error away, or the error is negligible, no row is always read.

Reference:
    Cochran (1977), Sampling Techniques, section 5.8: a stratum that is sampled whole. Horvitz and Thompson (1952), A
    generalization of sampling without replacement from a finite universe, JASA 47.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from split_common.penalty import Batches, RowSampling

# Number of points between which rows' changes are computed, in pairs, and their distance: twice as far from the mode as
# draws of the normal approximation, since posteriors that few rows shape have longer tails than it.
NUM_PROBES, PROBE_SCALE = 8, 2.0
LARGEST_PROBED_NOISE = 1.0  # χ² of a proposal, since warm-up shortens steps that make more
PROBED_ROWS = 8192  # rows whose changes are computed together
LARGEST_TAIL_ERROR = 0.1  # error of a log-density up to which there is no warning
SMALLEST_TAIL_ERROR = 1e-3  # error of a log-density below which no row is always read


def tail_terms(changes: Any) -> Any:
    """Contribution of each drawn row to the estimated error of the log-density.

    Args:
        changes: x, by how much the draw of each row changes an estimate; an array of NumPy, JAX or torch.

    Example:
        >>> tail_terms(np.array([0.0, -0.6, 10.0])).round(3)
        array([ 0.   ,  0.036, 10.   ])
    """
    return abs(changes) * (changes**2 / 6).clip(max=1.0)


def certainty_size(batches: Batches) -> int:
    """Number of rows to read always: as many as a batch has, or fewer where too few others would be left to draw."""
    drawn = batches.rows_needed if batches.sampling is RowSampling.DISTINCT_ROWS else batches.batch_size
    return min(batches.batch_size, batches.num_rows - drawn)


class Everyone(NamedTuple):
    """The processes that hold the rows, and choose among them together.

    Attributes:
        first: number, among all rows, of this process's first row.
        of_all: gathers the values of all processes, given this process's.
    """

    first: int
    of_all: Callable[[Any], list[Any]]


ALONE = Everyone(0, lambda value: [value])


def most_influential(changes: Iterable[np.ndarray], batches: Batches, everyone: Everyone = ALONE) -> np.ndarray | None:
    """The numbers of the rows to read always, at most as many as a batch has; None where that would not help.

    Args:
        changes: r, by how much the term of each of this process's rows changes over P pairs of points; in pieces of
            shape (P, n), for n rows each. They are gone through twice.
        batches: how rows are drawn.
        everyone: the processes that hold the rows.

    Returns:
        Ascending numbers, shape (C,).
    """
    expected, first = batches.batch_size * batches.num_batches / batches.num_rows, everyone.first
    rows, errors, others, size = np.zeros(0, int), np.zeros(0), 0.0, certainty_size(batches)
    with np.errstate(invalid="ignore", over="ignore"):
        squares: Any = 0.0
        for piece in changes:
            x = np.asarray(piece, np.float64) / expected
            squares = squares + np.sum(np.where(np.isfinite(x), x, 0.0) ** 2, axis=1, keepdims=True)
        noise = np.sqrt(expected * sum(everyone.of_all(squares)))
        shrinks = np.maximum(1.0, noise / np.sqrt(LARGEST_PROBED_NOISE))
        for piece in changes:
            x = np.asarray(piece, np.float64) / expected / shrinks
            found = expected * np.where(np.isfinite(x), tail_terms(x), np.inf).mean(0)
            rows = np.concatenate([rows, first + np.arange(len(found))])
            errors, first = np.concatenate([errors, found]), first + len(found)
            largest_first = np.argsort(-errors, kind="stable")  # of equal errors the lower number comes first
            others += errors[largest_first[size:]].sum()
            rows, errors = rows[largest_first[:size]], errors[largest_first[:size]]
    by_process = everyone.of_all((errors, rows))
    of_rows, numbers = (np.concatenate(parts) for parts in zip(*by_process, strict=True))
    order = np.argsort(-of_rows, kind="stable")  # likewise, since processes are in the order of their rows
    of_others = of_rows[order[size:]].sum() + sum(everyone.of_all(others))
    chosen = order[:size]
    helps = len(chosen) and not of_rows[chosen].sum() < max(of_others, SMALLEST_TAIL_ERROR)
    return np.sort(numbers[chosen]) if helps else None


class Pieces:
    """Pieces that are computed anew in each pass over them, so that memory does not grow with their number.

    Args:
        make: from the number of a piece to the piece.
        numbers: numbers of the pieces, in order.
    """

    def __init__(self, make: Callable[[int], np.ndarray], numbers: Sequence[int]):
        self._make, self._numbers = make, numbers

    def __iter__(self) -> Iterator[np.ndarray]:
        return map(self._make, self._numbers)


def as_many(rows: np.ndarray | None, size: int) -> np.ndarray:
    """``size`` distinct row numbers, ascending: ``rows``, as far as they go, and then the first of the others.

    Example:
        >>> as_many(np.array([1, 7]), 4)
        array([0, 1, 2, 7])
    """
    known = np.zeros(0, int) if rows is None else rows[:size]
    others = np.setdiff1d(np.arange(size), known)
    return np.sort(np.concatenate([known, others[: size - len(known)]]))


def probe_directions(size: int) -> np.ndarray:
    """Offsets of the probed points from the mode, in standard deviations, shape (8, D): the same for the same D."""
    return PROBE_SCALE * np.random.default_rng(0).standard_normal((NUM_PROBES, size))
