r"""Values that warm-up settled on, and how much they still changed at its end.

A value that has settled comes out nearly the same when it is estimated again. So every value that adapts is compared
with itself in the last window of warm-up, on the log scale, and a few numbers are kept for each chain:

* The metric is compared with an estimate from the draws of the last window, which were made with it: the root mean
  square over the components of :math:`\log(v' / v)`, with v the diagonal of the inverse mass matrix and v' the
  variances of those draws, shrunk as v is. With e and e' effective draws, each log has a standard error of about
  :math:`\sqrt{2/e + 2/e'}`, which is 0.24 for windows of 100 and 50 independent draws; a steady drift through both
  windows makes it log 4. The estimator is the host's, which is otherwise idle in that window. (The metric of the window
  before would not serve for comparison: chains often reach the posterior in the last window but one, and then that
  metric may be wrong by any factor although the one in use is right.)
* The averaged step size of the host's dual averaging, the learned length of trajectories and the averaged threshold of
  XHMC are compared at the end of warm-up with their values in the middle of the last window.

In a warm-up of 150 iterations or more the last window has 50. Dual averaging starts in it at ten times the step size
that was found, and its average forgets that in about ten iterations; a shorter window leaves nothing to compare.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

LEAST_WINDOW = 40  # least iterations of a last window in whose middle values are noted
# Factors above which a value counts as not settled, by runs on the targets of benchmarks/arrival. The limit for a
# threshold is wide: it acts through the number of doublings, and where all trajectories are short, any will do.
METRIC_LIMIT, VALUE_LIMIT, THRESHOLD_LIMIT = 30.0, 2.0, 10.0
PREFIX = "settled_"  # prefix of the attributes that carry the numbers in ArviZ's format


class Settled(NamedTuple):
    """Values that warm-up settled on, and how much they still changed; NaN for what does not adapt or is not known.

    Numbers of one chain, or of several chains along a leading axis. During the last window of warm-up each value is the
    one that was noted in the middle of the window.

    Attributes:
        metric_change: root mean square of the logs of the variances in the last window divided by those of the metric.
        step_size: averaged step size.
        step_size_change: absolute log of the ratio of the step size to its value in the middle of the last window.
        trajectory_length: longest length of trajectories, where it is learned.
        trajectory_length_change: the same for the length.
        threshold: threshold of XHMC, where it adapts.
        threshold_change: the same for the threshold.

    Example:
        >>> Settled(step_size=0.2).step_size, Settled().step_size
        (0.2, nan)
    """

    metric_change: Any = math.nan
    step_size: Any = math.nan
    step_size_change: Any = math.nan
    trajectory_length: Any = math.nan
    trajectory_length_change: Any = math.nan
    threshold: Any = math.nan
    threshold_change: Any = math.nan

    @property
    def of_values(self) -> tuple[str, ...]:
        """The fields that hold values, not changes."""
        return tuple(name for name in self._fields if not name.endswith("_change"))

    @property
    def text(self) -> str:
        """The values of all chains, in words."""
        known = {name: np.asarray(getattr(self, name)) for name in self.of_values if np.size(getattr(self, name))}
        return ", ".join(f"{name.replace('_', ' ')} {_range(values)}" for name, values in known.items())


class LastWindow(NamedTuple):
    """The last window of warm-up, in numbers of iterations that have been made.

    Attributes:
        start: number of iterations before it.
        middle: number of iterations after half of it; 0 if it is too short to compare anything.
        end: number of warm-up iterations.
        num_of_metric: number of draws that the metric was estimated from; 0 if it does not adapt, or cannot be
            compared.

    Example:
        >>> LastWindow.of([75, 100, 150, 250, 300], 300, adapts_metric=True)
        LastWindow(start=250, middle=275, end=300, num_of_metric=100)
        >>> LastWindow.of([3, 18, 20], 20, adapts_metric=True)
        LastWindow(start=18, middle=0, end=20, num_of_metric=0)
    """

    start: int
    middle: int
    end: int
    num_of_metric: int

    @classmethod
    def of(cls, window_ends: Sequence[int], num_warmup: int, adapts_metric: bool) -> LastWindow:
        """The last window of a warm-up.

        Args:
            window_ends: number of iterations that have been made at the end of each of the host's windows.
            num_warmup: number of warm-up iterations.
            adapts_metric: whether the metric adapts in the windows between the first and the last.
        """
        start = window_ends[-2] if len(window_ends) > 1 else 0
        if num_warmup - start < LEAST_WINDOW:
            return cls(start, 0, num_warmup, 0)
        is_known = adapts_metric and len(window_ends) > 2
        return cls(start, (start + num_warmup) // 2, num_warmup, start - window_ends[-3] if is_known else 0)


def log_change(value: float, old: float) -> float:
    """Absolute log of the ratio of two values: NaN where the old one is not known, infinite where one is not positive.

    Example:
        >>> round(log_change(1.0, 2.0), 3), log_change(0.0, 0.0), log_change(1.0, math.nan)
        (0.693, inf, nan)
    """
    if math.isnan(old):
        return math.nan
    return abs(math.log(value / old)) if value > 0 and old > 0 else math.inf


def shrunk(variances: Any, num_draws: int) -> Any:
    """Variances that were estimated from ``num_draws`` draws, shrunk as Stan and both hosts do."""
    return (num_draws * variances + 5e-3) / (num_draws + 5)


def put_settled(statistics: Any, settled: Settled) -> None:
    """Write the numbers of a run's chains into the attributes of its statistics, in ArviZ's format."""
    for name, by_chain in settled._asdict().items():
        values = [float(x) for x in np.atleast_1d(by_chain)]
        if not all(map(math.isnan, values)):
            statistics.attrs[PREFIX + name] = values


def get_settled(statistics: Any) -> Settled:
    """Read the numbers of :func:`put_settled`; each field has an entry for each chain, or is empty."""
    found = {name: np.atleast_1d(statistics.attrs.get(PREFIX + name, [])) for name in Settled._fields}
    return Settled(**{name: values[~np.isnan(values.astype(float))] for name, values in found.items()})


def _range(values: np.ndarray) -> str:
    """Range of the values as text; one number if both ends print alike."""
    least, largest = (f"{float(x):.3g}" for x in (values.min(), values.max()))
    return least if least == largest else f"{least} to {largest}"
