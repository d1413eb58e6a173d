"""Reliability diagrams: observed frequencies against predicted probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np

from split_common.metrics import Calibration, Coverage
from split_common.plots.axes import COLOURS, PRIOR_COLOUR, axes_or_new

LARGEST_DOT, SMALLEST_DOT = 160.0, 10.0  # areas in square points


def plot_reliability(calibrations: Mapping[str, Calibration], ax: Any = None) -> Any:
    """Draw the reliability diagram of classifications: accuracy against confidence, bin by bin.

    On the dashed line predictions are as often right as they say; below it they are too sure. The area of a dot is
    the share of the predictions in its bin: small ones say little.

    Args:
        calibrations: by the name of each model, what
            :func:`split_common.metrics.expected_calibration_error` gives; its error is written beside the name.
        ax: Matplotlib axes; None makes a new figure.

    Returns:
        The axes.

    Raises:
        TypeError: for anything but a mapping from names to such results.
        ValueError: for no models.

    Example:
        >>> import numpy as np
        >>> from split_common.metrics import expected_calibration_error
        >>> p = np.array([[0.9, 0.1], [0.3, 0.7], [0.2, 0.8], [0.6, 0.4]])
        >>> ax = plot_reliability({"model": expected_calibration_error(p, np.array([0, 1, 0, 1]))})
        >>> [text.get_text() for text in ax.get_legend().get_texts()]
        ['model: 0.450']
    """
    _check("calibrations", calibrations, Calibration)
    ax = axes_or_new(ax)
    for (name, found), colour in zip(calibrations.items(), cycle(COLOURS), strict=False):
        kept = found.count > 0
        share = found.count[kept] / found.count.sum()
        x, y = found.confidence[kept], found.accuracy[kept]
        ax.plot(x, y, color=colour, linewidth=1.2, label=f"{name}: {found.error:.3f}")
        ax.scatter(x, y, SMALLEST_DOT + LARGEST_DOT * share, color=colour, zorder=3, clip_on=False)
    _finish(ax, "confidence", "accuracy", "expected calibration error")
    return ax


def plot_coverage(coverages: Mapping[str, Coverage], ax: Any = None) -> Any:
    """Draw the reliability diagram of regressions: the share of observations in central intervals of each level.

    On the dashed line intervals hold what they say; below it they are too narrow.

    Args:
        coverages: by the name of each model, what :func:`split_common.metrics.central_interval_coverage` or
            :func:`~split_common.metrics.normal_interval_coverage` gives; its error is written beside the name.
        ax: Matplotlib axes; None makes a new figure.

    Returns:
        The axes.

    Raises:
        TypeError: for anything but a mapping from names to such results.
        ValueError: for no models.

    Example:
        >>> import numpy as np
        >>> from split_common.metrics import normal_interval_coverage
        >>> ax = plot_coverage({"model": normal_interval_coverage(np.zeros(3), np.ones(3), np.array([0.1, 1.0, -2.0]))})
        >>> ax.get_ylabel()
        'share of observations inside'
    """
    _check("coverages", coverages, Coverage)
    ax = axes_or_new(ax)
    for (name, found), colour in zip(coverages.items(), cycle(COLOURS), strict=False):
        order = np.argsort(found.level)
        label = f"{name}: {found.error:.3f}"
        ax.plot(
            found.level[order], found.share[order], color=colour, marker=".", linewidth=1.2, label=label, clip_on=False
        )
    _finish(ax, "level of the central interval", "share of observations inside", "mean distance")
    return ax


def _check(name: str, values: Any, kind: type) -> None:
    """Raise unless there are results of a kind by name."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{name} must be a mapping from names to {kind.__name__}, got {type(values).__name__}")
    if not values:
        raise ValueError(f"{name} must hold at least one model, got none")
    for key, value in values.items():
        if not isinstance(value, kind):
            raise TypeError(f"{name}[{key!r}] must be a {kind.__name__}, got {type(value).__name__}")


def _finish(ax: Any, xlabel: str, ylabel: str, title: str) -> None:
    """The diagonal, the unit square, the legend."""
    ax.plot([0, 1], [0, 1], color=PRIOR_COLOUR, linestyle="--", linewidth=1, zorder=0)
    ax.set(xlabel=xlabel, ylabel=ylabel, xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.legend(frameon=False, fontsize="small", loc="upper left", title=title, title_fontsize="small")
