"""Figure of the posterior of precisions next to their prior."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from split_common.plots.axes import DATA_COLOUR, PRIOR_COLOUR, RIGHT_COLOUR, axes_or_new, check_by_name, numbers

PRECISION_BINS = 30
PRIOR_QUANTILES = (0.01, 0.99)
ROW_HEIGHT = 0.85


def plot_precisions(
    draws: Mapping[str, np.ndarray], ax: Any = None, prior: Mapping[str, np.ndarray] | None = None
) -> Any:
    """Draw the posterior of several precisions, a row for each, on one logarithmic axis.

    Each row is a histogram of the logarithm of the precision. The prior, dashed, is on the scale of its row: where the
    two look alike, the data have taught nothing. Rows are scaled apart, each to its own largest density.

    Args:
        draws: by the name of each site, draws of its precision; shape (draws,), or more axes for several precisions
            (one per unit, say), which are pooled, their number shown beside the name. A scale is drawn as a precision
            by ``scale**-2``.
        ax: Matplotlib axes; None makes a new figure.
        prior: by name, draws from the prior of the site, in any number and shape; names may be missing. The axis
            is widened to show their middle 98 %.

    Returns:
        The axes.

    Raises:
        TypeError: for draws or a prior that are not by name.
        ValueError: for no sites, a site without draws, a precision that is not finite or not above 0, or a prior for a
            name that is not among the draws.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> ax = plot_precisions({"weights": rng.gamma(20.0, 0.1, 500), "biases": rng.gamma(2.0, 1.0, (500, 50))})
        >>> [text.get_text() for text in ax.get_yticklabels()]
        ['weights', 'biases (50)']
    """
    prior = {} if prior is None else prior
    check_by_name("draws", draws)
    check_by_name("prior", prior)
    if not draws:
        raise ValueError("draws must hold at least one site, got none")
    if unknown := [name for name in prior if name not in draws]:
        raise ValueError(f"prior must name sites of draws, {list(draws)}, got {unknown}")
    posteriors = {name: _logarithms(f"draws[{name!r}]", values) for name, values in draws.items()}
    priors = {name: _logarithms(f"prior[{name!r}]", values) for name, values in prior.items()}

    ax = axes_or_new(ax)
    handles = {}
    for base, (name, logs) in zip(reversed(range(len(draws))), posteriors.items(), strict=True):  # the first on top
        density, edges = _density(logs, (logs.min(), logs.max()))
        scale = ROW_HEIGHT / density.max()
        if name in priors:
            reference = _density(priors[name], np.quantile(priors[name], PRIOR_QUANTILES))
            scale = min(scale, ROW_HEIGHT / reference[0].max())
            handles["prior"] = _row(ax, base, scale, *reference, color=PRIOR_COLOUR, linestyle="--")
        handles["posterior"] = _row(ax, base, scale, density, edges, color=RIGHT_COLOUR, alpha=0.6, fill=True)
        handles["posterior median"] = ax.vlines(10 ** np.median(logs), base, base + ROW_HEIGHT, color=DATA_COLOUR, lw=1)
    ax.set_yticks(range(len(draws))[::-1], [_row_name(*item) for item in draws.items()])
    ax.set(xscale="log", xlabel="precision", ylim=(-0.1, 1.1 * len(draws)))  # the legend lies above the rows
    ax.legend(handles.values(), handles.keys(), frameon=False, ncols=3, loc="upper center", fontsize="small")
    return ax


def _row(ax: Any, base: float, scale: float, density: np.ndarray, edges: np.ndarray, **style: Any) -> Any:
    """Draw a density of logarithms (base 10) on an axis of the values themselves, standing on ``base``."""
    return ax.stairs(base + scale * density, 10**edges, baseline=base, **style)


def _row_name(name: str, values: np.ndarray) -> str:
    """The name of a site, with the number of its precisions when it has several."""
    count = int(np.prod(np.shape(values)[1:]))
    return name if count == 1 else f"{name} ({count})"


def _density(logs: np.ndarray, limits: Any) -> tuple[np.ndarray, np.ndarray]:
    """Histogram between the limits, as density relative to all the values, and the edges of its bins."""
    counts, edges = np.histogram(logs, PRECISION_BINS, tuple(limits))
    return counts / (logs.size * np.diff(edges)), edges


def _logarithms(name: str, values: np.ndarray) -> np.ndarray:
    """Logarithms (base 10) of all the values, or an error that says what is wrong with them."""
    array = numbers(values).ravel()
    allowed = np.isfinite(array) & (array > 0)
    if not array.size or not np.all(allowed):
        found = f"got {array[~allowed][0]}" if array.size else "got no draws"
        raise ValueError(f"{name} must hold draws of a precision, finite and above 0, {found}")
    return np.log10(array)
