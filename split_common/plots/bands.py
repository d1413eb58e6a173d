"""Figure of a regression's prediction along one input."""

from __future__ import annotations

from typing import Any

import numpy as np

from split_common.plots.axes import DATA_COLOUR, RIGHT_COLOUR, axes_or_new, vector

NORMAL_QUANTILE = 1.959964  # 95 % of a normal distribution lie within so many standard deviations of its mean


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
    x = vector("x", x, signed=True)
    mean = vector("mean", mean, signed=True)
    aleatoric, epistemic = vector("aleatoric", aleatoric), vector("epistemic", epistemic)
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
        points = [vector(f"data[{i}]", values, signed=True) for i, values in enumerate(data)]
        if points[0].shape != points[1].shape:
            raise ValueError(f"data must be two arrays of one length, got shapes {points[0].shape}, {points[1].shape}")
    ax = axes_or_new(ax)
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
