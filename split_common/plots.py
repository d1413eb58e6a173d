"""Figures of predictive uncertainty, with Matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np

RIGHT_COLOUR, WRONG_COLOUR = "#2b6cb0", "#c05621"


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
        ValueError: when the two arrays are empty or of unequal length.

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
    if ax is None:
        from matplotlib.figure import Figure

        ax = Figure(layout="constrained").add_subplot()
    edges = np.linspace(0.0, max(float(entropy.max()), 1e-6), bins + 1) if isinstance(bins, int) else bins
    for name, chosen, colour in (("right", is_right, RIGHT_COLOUR), ("wrong", ~is_right, WRONG_COLOUR)):
        values = entropy[chosen]
        label = f"{name}: {values.size}" + (f", median {np.median(values):.2f}" if values.size else "")
        weights = np.full(values.size, 1.0 / max(values.size, 1))
        ax.hist(values, edges, weights=weights, color=colour, alpha=0.6, label=label)
    ax.set(xlabel="predictive entropy (nats)", ylabel="share of predictions")
    ax.legend(frameon=False)
    return ax
