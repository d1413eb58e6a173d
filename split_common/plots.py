"""Figures of predictive uncertainty and of precisions, with Matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np

RIGHT_COLOUR, WRONG_COLOUR = "#2b6cb0", "#c05621"
COLOURS = (RIGHT_COLOUR, WRONG_COLOUR, "#2f855a", "#6b46c1")
DATA_COLOUR, PRIOR_COLOUR = "#1a202c", "#4a5568"
NORMAL_QUANTILE = 1.959964  # 95 % of a normal distribution lie within so many standard deviations of its mean
PRECISION_BINS = 30
PRIOR_QUANTILES = (0.01, 0.99)
ROW_HEIGHT = 0.85


def plot_entropy(entropy: np.ndarray, is_right: np.ndarray, ax: Any = None, bins: Any = 16) -> Any:
    """Draw histograms of the entropy of right and of wrong predictions, each scaled to shares of its own number.

    Where the probabilities are worth anything, wrong predictions lie to the right.

    Args:
        entropy: entropy of each prediction in nats (see :func:`split_common.metrics.predictive_entropy`), shape (n,).
        is_right: whether each prediction is right, shape (n,).
        ax: Matplotlib axes; None makes a new figure.
        bins: number of bins from 0 to the largest entropy, or their edges; shared by both histograms.

    Returns:
        The axes.

    Raises:
        ValueError: when the two arrays are empty or of unequal length, or an entropy is not finite or below 0.

    Example:
        >>> import numpy as np
        >>> ax = plot_entropy(np.array([0.1, 0.2, 1.1]), np.array([True, True, False]))
        >>> ax.get_xlabel()
        'predictive entropy (nats)'
    """
    entropy, is_right = np.asarray(entropy), np.asarray(is_right, dtype=bool)
    if entropy.ndim != 1 or entropy.shape != is_right.shape or not entropy.size:
        raise ValueError(
            "entropy and is_right must hold one value per prediction, at least one, "
            f"got shapes {entropy.shape} and {is_right.shape}"
        )
    entropy = _vector("entropy", entropy)
    return plot_entropies({"right": entropy[is_right], "wrong": entropy[~is_right]}, ax, bins)


def plot_entropies(entropies: Mapping[str, np.ndarray], ax: Any = None, bins: Any = 16) -> Any:
    """Draw histograms of the predictive entropy of several groups, each scaled to shares of its own number.

    With one group from the distribution of the training data and one from elsewhere, it shows whether the model is in
    doubt about what it has not seen.

    Args:
        entropies: by the name of each group, the entropy of its predictions in nats (see
            :func:`split_common.metrics.predictive_entropy`), shape (n,); a group may be empty, but not all of them.
        ax: Matplotlib axes; None makes a new figure.
        bins: number of bins from 0 to the largest entropy, or their edges; shared by all histograms.

    Returns:
        The axes.

    Raises:
        ValueError: for no values at all, a group with another number of axes, or an entropy that is not finite or
            below 0.

    Example:
        >>> import numpy as np
        >>> ax = plot_entropies({"digits": np.array([0.1, 0.2, 0.9]), "clothes": np.array([1.1, 2.0])})
        >>> [text.get_text() for text in ax.get_legend().get_texts()]
        ['digits: 3, median 0.20', 'clothes: 2, median 1.55']
    """
    groups = {name: _vector(f"entropies[{name!r}]", values) for name, values in entropies.items()}
    if not any(values.size for values in groups.values()):
        raise ValueError(f"entropies must hold at least one value, got none in the groups {list(groups)}")
    largest = max(float(values.max()) for values in groups.values() if values.size)
    edges = np.linspace(0.0, max(largest, 1e-6), bins + 1) if isinstance(bins, int) else bins
    ax = _axes(ax)
    for (name, values), colour in zip(groups.items(), cycle(COLOURS), strict=False):
        label = f"{name}: {values.size}" + (f", median {np.median(values):.2f}" if values.size else "")
        weights = np.full(values.size, 1.0 / max(values.size, 1))
        ax.hist(values, edges, weights=weights, color=colour, alpha=0.6, label=label)
    ax.set(xlabel="predictive entropy (nats)", ylabel="share of predictions")
    ax.margins(y=0.05 + 0.1 * len(groups))  # room for the legend, also where panels share an axis
    ax.legend(frameon=False)
    return ax


def plot_bands(
    x: np.ndarray,
    mean: np.ndarray,
    aleatoric: np.ndarray,
    epistemic: np.ndarray,
    ax: Any = None,
    data: tuple[np.ndarray, np.ndarray] | None = None,
) -> Any:
    r"""Draw a regression's predictive mean with two bands of 95 %: of the mean function alone, and of y.

    The inner band is the mean ± 1.96 √epistemic, the outer one the mean ± 1.96 √(epistemic + aleatoric). The number
    1.96 is that of a normal distribution: where the draws' means are skewed or of several modes, the bands hold
    another share than 95 %.

    Args:
        x: the input, in any order, shape (points,).
        mean: predictive mean, shape (points,).
        aleatoric: variance of the noise, shape (points,).
        epistemic: variance of the mean function over draws, shape (points,); with the two before it, as in
            ``plot_bands(x, *variance_decomposition(means, noise_variance))``.
        ax: Matplotlib axes; None makes a new figure.
        data: inputs and observations to draw as points, each of shape (n,).

    Returns:
        The axes.

    Raises:
        ValueError: for arrays of unequal length, without points or with another number of axes, values that are not
            finite, or a variance below 0.

    Example:
        >>> import numpy as np
        >>> x = np.linspace(0.0, 1.0, 5)
        >>> ax = plot_bands(x, np.sin(x), np.full(5, 0.01), 0.1 * x, data=(x, np.sin(x)))
        >>> ax.get_legend_handles_labels()[1]
        ['95 %, epistemic and aleatoric', '95 %, epistemic', 'predictive mean', 'data']
    """
    x = _vector("x", x, signed=True)
    mean = _vector("mean", mean, signed=True)
    aleatoric, epistemic = _vector("aleatoric", aleatoric), _vector("epistemic", epistemic)
    shapes = [array.shape for array in (x, mean, aleatoric, epistemic)]
    if len(set(shapes)) > 1 or not x.size:
        raise ValueError(
            "x, mean, aleatoric and epistemic must hold one value per point, at least one, got shapes "
            + ", ".join(map(str, shapes))
        )
    points = None
    if data is not None:
        if len(data) != 2:
            raise ValueError(f"data must be two arrays, inputs and observations, got {len(data)}")
        points = [_vector(f"data[{i}]", values, signed=True) for i, values in enumerate(data)]
        if points[0].shape != points[1].shape:
            raise ValueError(f"data must be two arrays of one length, got shapes {points[0].shape}, {points[1].shape}")
    ax = _axes(ax)
    order = np.argsort(x)
    x, mean = x[order], mean[order]
    for variance, alpha, label in (
        (aleatoric + epistemic, 0.2, "95 %, epistemic and aleatoric"),
        (epistemic, 0.4, "95 %, epistemic"),
    ):
        half_width = NORMAL_QUANTILE * np.sqrt(variance[order])
        ax.fill_between(
            x, mean - half_width, mean + half_width, color=RIGHT_COLOUR, alpha=alpha, linewidth=0, label=label
        )
    ax.plot(x, mean, color=RIGHT_COLOUR, label="predictive mean")
    if points is not None:
        ax.plot(*points, linestyle="none", marker=".", color=DATA_COLOUR, label="data")
    ax.set(xlabel="x", ylabel="y")
    ax.margins(x=0.0, y=0.2)  # room for the legend, also where panels share an axis
    ax.legend(frameon=False, fontsize="small", ncols=2, loc="upper center")
    return ax


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
    if not draws:
        raise ValueError("draws must hold at least one site, got none")
    if unknown := [name for name in prior if name not in draws]:
        raise ValueError(f"prior must name sites of draws, {list(draws)}, got {unknown}")
    posteriors = {name: _logarithms(f"draws[{name!r}]", values) for name, values in draws.items()}
    priors = {name: _logarithms(f"prior[{name!r}]", values) for name, values in prior.items()}

    ax = _axes(ax)
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


def _axes(ax: Any) -> Any:
    """The axes, or those of a new figure."""
    if ax is not None:
        return ax
    from matplotlib.figure import Figure

    return Figure(layout="constrained").add_subplot()


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
    array = np.asarray(values, dtype=np.float64).ravel()
    allowed = np.isfinite(array) & (array > 0)
    if not array.size or not np.all(allowed):
        found = f"got {array[~allowed][0]}" if array.size else "got no draws"
        raise ValueError(f"{name} must hold draws of a precision, finite and above 0, {found}")
    return np.log10(array)


def _vector(name: str, values: np.ndarray, signed: bool = False) -> np.ndarray:
    """The values in float64, if they are finite, along one axis and, unless signed, not below 0."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} must have one axis, got shape {array.shape}")
    allowed = np.isfinite(array) & (signed | (array >= 0))
    if not np.all(allowed):
        raise ValueError(f"{name} must be finite{'' if signed else ' and at least 0'}, got {array[~allowed][0]}")
    return array
