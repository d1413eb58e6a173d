r"""Scores and calibration of predictions, of classes and of intervals: whether they are right as often as they say.

**Classes.** With predictive probabilities :math:`p_{ic}` of points :math:`i` and classes :math:`c`, and labels
:math:`y_i`, the Brier score is

.. math:: \tfrac1N \textstyle\sum_i \sum_c (p_{ic} - [c = y_i])^2,

from 0 to 2; with two classes it is twice what is often given for the second class alone. For the calibration error the
points are put into bins :math:`B` by the probability of their predicted class, and

.. math:: \textstyle\sum_B \tfrac{|B|}{N} \, |\text{accuracy}(B) - \text{confidence}(B)|.

It depends on the bins, and is above 0 for a calibrated model of few points: compare models on the same points and bins.

**Intervals.** A central interval of level :math:`\ell` lies between the quantiles :math:`(1-\ell)/2` and
:math:`(1+\ell)/2`. If an observation and :math:`S` draws of it are exchangeable, it lies below the :math:`k`-th
smallest draw with probability :math:`k/(S+1)`. So quantiles :math:`q` are interpolated at :math:`k = q(S+1)`: then
coverage is the level exactly for any number of draws (where :math:`k` is whole), not only in the limit.

References:
    Brier (1950), Verification of Forecasts Expressed in Terms of Probability, Monthly Weather Review 78. Naeini, Cooper
    and Hauskrecht (2015), Obtaining Well Calibrated Probabilities Using Bayesian Binning, AAAI. Guo, Pleiss, Sun and
    Weinberger (2017), On Calibration of Modern Neural Networks, arXiv:1706.04599. Hyndman and Fan (1996), Sample
    Quantiles in Statistical Packages, The American Statistician 50 (definition 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from split_common.checks import check_positive_int
from split_common.metrics.checked import (
    checked_finite,
    checked_labels,
    checked_points,
    checked_predictive,
    draws_by_points,
)

LEVELS = tuple(k / 20 for k in range(1, 20))  # 5 %, 10 %, ... 95 %


class Calibration(NamedTuple):
    """Points by the probability of their predicted class, in bins of equal width."""

    error: float  # expected calibration error
    confidence: np.ndarray  # mean probability of the predicted class, shape (bins,); NaN in an empty bin
    accuracy: np.ndarray  # share of right predictions, shape (bins,); NaN in an empty bin
    count: np.ndarray  # number of points, shape (bins,)
    edges: np.ndarray  # edges of the bins, shape (bins + 1,); a bin contains its upper edge, not its lower one


class Coverage(NamedTuple):
    """How many observations lie in their central intervals, by level; each array of shape (levels,)."""

    level: np.ndarray  # probability of the interval
    share: np.ndarray  # share of observations inside the interval

    @property
    def error(self) -> float:
        """Mean over levels of the distance between share and level."""
        return float(np.mean(np.abs(self.share - self.level)))


def brier_score(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Mean over points of the squared distance between the probabilities and the one-hot class.

    A proper score: in expectation it is least for the true probabilities.

    Args:
        probabilities: probabilities of one prediction a point, shape (points, classes), as
            :func:`~split_common.metrics.predictive_probabilities` makes them.
        labels: class of each point, whole numbers from 0, shape (points,).

    Returns:
        From 0 to 2, the smaller, the better; with two classes, twice the score of the second class alone.

    Raises:
        ValueError: for other shapes, rows that are not probabilities, and labels out of range.

    Example:
        >>> import numpy as np
        >>> brier_score(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([0, 1]))
        0.25
    """
    array = checked_predictive(probabilities)
    classes = checked_labels(labels, *array.shape)
    return float(np.mean(np.sum((array - np.eye(array.shape[1])[classes]) ** 2, axis=1)))


def expected_calibration_error(probabilities: np.ndarray, labels: np.ndarray, num_bins: int = 10) -> Calibration:
    """Expected calibration error, with the bins that it is made of: the reliability curve of a classification.

    Args:
        probabilities: probabilities of one prediction a point, shape (points, classes), as
            :func:`~split_common.metrics.predictive_probabilities` makes them.
        labels: class of each point, whole numbers from 0, shape (points,).
        num_bins: number of bins from 0 to 1. With C classes no predicted class has less than 1/C, so the first bins
            are empty.

    Returns:
        ``error``, and of each bin ``confidence``, ``accuracy`` and ``count``; ``edges`` of the bins. The predicted
        class is the first of greatest probability.

    Raises:
        ValueError: as :func:`brier_score`, and for less than one bin.

    Example:
        >>> import numpy as np
        >>> p = np.array([[0.9, 0.1], [0.3, 0.7], [0.2, 0.8], [0.6, 0.4]])
        >>> found = expected_calibration_error(p, np.array([0, 1, 0, 0]), num_bins=2)
        >>> round(found.error, 4), found.confidence, found.accuracy, found.count
        (0.0, array([ nan, 0.75]), array([ nan, 0.75]), array([0, 4]))
    """
    array, num_bins = checked_predictive(probabilities), check_positive_int("num_bins", num_bins)
    is_right = array.argmax(axis=1) == checked_labels(labels, *array.shape)
    confidence, edges = array.max(axis=1), np.linspace(0.0, 1.0, num_bins + 1)
    place = np.searchsorted(edges[1:-1], confidence)  # a probability that rounding puts above 1 is in the last bin
    count = np.bincount(place, minlength=num_bins)
    sums = [np.bincount(place, x, num_bins) for x in (confidence, is_right)]
    means = [np.divide(x, count, where=count > 0, out=np.full(num_bins, np.nan)) for x in sums]
    return Calibration(float(np.sum(np.abs(sums[1] - sums[0])) / len(array)), means[0], means[1], count, edges)


def central_interval_coverage(draws: np.ndarray, y: np.ndarray, levels: Sequence[float] = LEVELS) -> Coverage:
    """Shares of observations in central intervals of predictive draws: the reliability curve of a regression.

    Args:
        draws: draws of y itself, noise included, shape (draws, points); those of the mean function alone cover too
            little.
        y: the observations, shape (points,).
        levels: levels of the intervals, between 0 and 1. S draws say nothing of levels above 1 - 2/(S + 1).

    Returns:
        ``level`` and ``share``, and ``error``, the mean distance between them.

    Raises:
        ValueError: for other shapes, numbers that are not finite, and levels out of range or beyond what so many draws
            say.

    Example:
        >>> import numpy as np
        >>> draws = np.arange(1.0, 10.0)[:, None].repeat(4, axis=1)  # 1 to 9, at each of four points
        >>> central_interval_coverage(draws, np.array([0.0, 3.0, 5.0, 6.5]), levels=(0.4, 0.8)).share
        array([0.75, 0.75])
    """
    array = checked_finite("draws", draws_by_points("draws", draws))
    observed, asked = checked_points("y", y, array.shape[1]), _checked_levels(levels)
    greatest = 1 - 2 / (len(array) + 1)
    if asked.max() > greatest + 1e-12:
        raise ValueError(
            f"levels must be at most 1 - 2/(S + 1) = {greatest:.4g} for S = {len(array)} draws, got {asked.max():g}"
        )
    lower, upper = (
        np.quantile(array, np.clip((1 + sign * asked) / 2, 0, 1), axis=0, method="weibull") for sign in (-1, 1)
    )
    return Coverage(asked, np.mean((lower <= observed) & (observed <= upper), axis=1))


def normal_interval_coverage(
    mean: np.ndarray, variance: np.ndarray, y: np.ndarray, levels: Sequence[float] = LEVELS
) -> Coverage:
    """Shares of observations within so many standard deviations of the predictive mean.

    The numbers of standard deviations are those of a normal distribution: one is level 0.6827, two are 0.9545. For
    a predictive distribution of another shape take :func:`central_interval_coverage`.

    Args:
        mean: predictive mean, shape (points,).
        variance: variance of the prediction, shape (points,):
            :attr:`~split_common.metrics.VarianceDecomposition.total`.
        y: the observations, shape (points,).
        levels: levels of the intervals, between 0 and 1.

    Returns:
        ``level`` and ``share``, and ``error``, the mean distance between them.

    Raises:
        ValueError: for arrays of unequal length or without points, numbers that are not finite, a variance below 0, and
            levels out of range.

    Example:
        >>> import numpy as np
        >>> normal_interval_coverage(np.zeros(4), np.ones(4), np.array([0.5, -0.5, 1.5, 3.0]), (0.6827, 0.9545)).share
        array([0.5 , 0.75])
    """
    observed = np.asarray(y, dtype=np.float64)
    if observed.ndim != 1 or not observed.size:
        raise ValueError(f"y must have one axis of at least one point, got shape {observed.shape}")
    observed, asked = checked_points("y", y, observed.size), _checked_levels(levels)
    centre, spread = (checked_points(*x, observed.size) for x in (("mean", mean), ("variance", variance)))
    if np.any(spread < 0):
        raise ValueError(f"variance must be at least 0, got {spread[spread < 0][0]}")
    widths = norm.ppf((1 + asked) / 2)[:, None] * np.sqrt(spread)
    return Coverage(asked, np.mean(np.abs(observed - centre) <= widths, axis=1))


def _checked_levels(levels: Sequence[float]) -> np.ndarray:
    """The levels in float64, or an error that says what is wrong with them."""
    array = np.asarray(levels, dtype=np.float64)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"levels must have one axis of at least one level, got shape {array.shape}")
    allowed = (array > 0) & (array < 1)
    if not np.all(allowed):
        raise ValueError(f"levels must lie between 0 and 1, got {array[~allowed][0]}")
    return array
