"""Figures of uncertainty about classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np

from split_common.checks import check_positive_int
from split_common.metrics import ClassMatrix
from split_common.plots.axes import COLOURS, axes_or_new, check_by_name, numbers, vector
from split_common.values import as_numpy, shown

MOST_WRITTEN = 12  # classes up to which the number of each cell is written


def plot_entropy(entropy: np.ndarray, is_right: np.ndarray, ax: Any = None, bins: Any = 16) -> Any:
    """Draw histograms of the entropy of right and of wrong predictions, each scaled to shares of its own number.

    Where the probabilities are informative, wrong predictions lie to the right.

    Args:
        entropy: entropy of each prediction in nats (see :func:`split_common.metrics.predictive_entropy`), shape (n,).
        is_right: whether each prediction is right, True or False, or 1 or 0, shape (n,).
        ax: Matplotlib axes; None makes a new figure.
        bins: number of bins from 0 to the largest entropy, or their edges; shared by both histograms.

    Returns:
        The axes.

    Raises:
        ValueError: when the two arrays are empty or of unequal length, an entropy is not finite or below 0, a value of
            ``is_right`` is another, such as a class, or there is no bin.

    Example:
        >>> import numpy as np
        >>> ax = plot_entropy(np.array([0.1, 0.2, 1.1]), np.array([True, True, False]))
        >>> ax.get_xlabel()
        'predictive entropy (nats)'
    """
    entropy, is_right = numbers(entropy), as_numpy(is_right)
    if entropy.ndim != 1 or entropy.shape != is_right.shape or not entropy.size:
        raise ValueError(
            "entropy and is_right must hold one value per prediction, at least one, "
            f"got shapes {entropy.shape} and {is_right.shape}"
        )
    entropy, is_right = vector("entropy", entropy), _flags("is_right", is_right)
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
        TypeError: for entropies that are not by name.
        ValueError: for no values at all, a group with another number of axes, an entropy that is not finite or below 0,
            or no bin.

    Example:
        >>> import numpy as np
        >>> ax = plot_entropies({"digits": np.array([0.1, 0.2, 0.9]), "clothes": np.array([1.1, 2.0])})
        >>> [text.get_text() for text in ax.get_legend().get_texts()]
        ['digits: 3, median 0.20', 'clothes: 2, median 1.55']
    """
    check_by_name("entropies", entropies)
    groups = {name: vector(f"entropies[{name!r}]", values) for name, values in entropies.items()}
    if not any(values.size for values in groups.values()):
        raise ValueError(f"entropies must hold at least one value, got none in the groups {list(groups)}")
    largest = max(float(values.max()) for values in groups.values() if values.size)
    edges = _edges(bins, largest)
    ax = axes_or_new(ax)
    for (name, values), colour in zip(groups.items(), cycle(COLOURS), strict=False):
        label = f"{name}: {values.size}" + (f", median {np.median(values):.2f}" if values.size else "")
        weights = np.full(values.size, 1.0 / max(values.size, 1))
        ax.hist(values, edges, weights=weights, color=colour, alpha=0.6, label=label)
    ax.set(xlabel="predictive entropy (nats)", ylabel="share of predictions")
    ax.margins(y=0.05 + 0.1 * len(groups))  # room for the legend, also where panels share an axis
    ax.legend(frameon=False)
    return ax


def plot_error_entropies(entropies: Mapping[str, np.ndarray], ax: Any = None) -> Any:
    """Draw the cumulative distribution of the predictive entropy of wrong predictions, a step curve for each model.

    A model that is in doubt where it is wrong has its curve to the right and below: few of its errors are confident.

    Args:
        entropies: by the name of each model, the entropy of its wrong predictions in nats, shape (n,), as
            ``predictive_entropy(p)[predicted != labels]``; a model without any has no curve.
        ax: Matplotlib axes; None makes a new figure.

    Returns:
        The axes.

    Raises:
        TypeError: for entropies that are not by name.
        ValueError: for no values at all, a model with another number of axes, or an entropy that is not finite or
            below 0.

    Example:
        >>> import numpy as np
        >>> ax = plot_error_entropies({"SGD": np.array([0.1, 0.2]), "posterior": np.array([0.9, 1.4, 2.0])})
        >>> [text.get_text() for text in ax.get_legend().get_texts()]
        ['SGD: 2 errors', 'posterior: 3 errors']
    """
    check_by_name("entropies", entropies)
    groups = {name: vector(f"entropies[{name!r}]", values) for name, values in entropies.items()}
    if not any(values.size for values in groups.values()):
        raise ValueError(f"entropies must hold at least one value, got none in the models {list(groups)}")
    largest = max(float(values.max()) for values in groups.values() if values.size)
    ax = axes_or_new(ax)
    for (name, values), colour in zip(groups.items(), cycle(COLOURS), strict=False):
        x = np.concatenate([[0.0], np.sort(values), [1.05 * largest]])
        share = np.concatenate([[0.0], np.arange(1, values.size + 1), [values.size]]) / max(values.size, 1)
        if values.size:
            ax.step(x, share, where="post", color=colour, label=f"{name}: {values.size} errors")
        else:
            ax.plot([], [], color=colour, label=f"{name}: no errors")
    ax.set(xlabel="predictive entropy (nats)", ylabel="share of errors at most so uncertain", ylim=(0, 1.02))
    ax.set_xlim(0.0, max(1.05 * largest, 1e-6))
    ax.legend(fontsize="small", framealpha=0.9, loc="best")
    return ax


def plot_mutual_information(matrix: ClassMatrix, ax: Any = None, class_names: Sequence[str] | None = None) -> Any:
    """Draw the mean mutual information by true and predicted class; cells without predictions are left grey.

    Draws that know where they may be wrong disagree off the diagonal.

    Args:
        matrix: what :func:`split_common.metrics.mutual_information_by_class` gives.
        ax: Matplotlib axes; None makes a new figure.
        class_names: in order; None to number the classes.

    Returns:
        The axes.

    Raises:
        TypeError: for anything but such a pair of matrices.
        ValueError: for matrices that are not square or differ in shape, for cells below 0, and for another number of
            names.

    Example:
        >>> import numpy as np
        >>> matrix = ClassMatrix(np.array([[0.1, 0.7], [np.nan, 0.05]]), np.array([[8, 1], [0, 9]]))
        >>> plot_mutual_information(matrix, class_names=["cat", "dog"]).get_ylabel()
        'true class'
    """
    if not isinstance(matrix, tuple) or len(matrix) != len(ClassMatrix._fields):
        raise TypeError(f"matrix must be a ClassMatrix, got {type(matrix).__name__}")
    mean, count = (numbers(x) for x in matrix)
    if mean.ndim != 2 or mean.shape[0] != mean.shape[1] or mean.shape != count.shape:
        raise ValueError(f"matrix must hold two square arrays of one shape, got shapes {mean.shape}, {count.shape}")
    faulty = mean[(mean < 0) | np.isinf(mean) | (np.isnan(mean) & (count > 0))]
    if len(faulty):
        raise ValueError(f"matrix.mean must be finite and at least 0 where there are predictions, got {faulty[0]}")
    names = list(map(str, range(len(mean)))) if class_names is None else list(class_names)
    if len(names) != len(mean):
        raise ValueError(f"class_names must have a name for each of {len(mean)} classes, got {len(names)}")
    ax = axes_or_new(ax)
    ax.set_facecolor("#d4d4d4")
    largest = float(np.nanmax(mean, initial=0.0)) or 1.0
    image = ax.imshow(np.ma.masked_invalid(mean), cmap="Blues", vmin=0.0, vmax=largest)
    for (row, column), value in np.ndenumerate(mean):
        if np.isfinite(value) and len(names) <= MOST_WRITTEN:
            colour = "white" if value > 0.6 * largest else "black"
            ax.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize="x-small", color=colour)
    ax.set_xticks(range(len(names)), names, rotation=0 if class_names is None else 45)
    ax.set_yticks(range(len(names)), names)
    ax.set(xlabel="predicted class", ylabel="true class")
    ax.figure.colorbar(image, ax=ax, label="mean mutual information (nats)")
    return ax


def _flags(name: str, values: np.ndarray) -> np.ndarray:
    """The values as bools, or an error that says which one is another."""
    allowed = np.isin(values, (0, 1)) if values.dtype.kind in "biuf" else np.zeros(values.shape, dtype=bool)
    if not np.all(allowed):
        raise ValueError(f"{name} must be True or False, or 1 or 0, for each prediction, got {values[~allowed][0]}")
    return values.astype(bool)


def _edges(bins: Any, largest: float) -> np.ndarray:
    """The edges of bins: those that were given, or of so many equal bins from 0 to the largest entropy."""
    if np.ndim(bins) == 0:
        return np.linspace(0.0, max(largest, 1e-6), check_positive_int("bins", bins) + 1)
    edges = vector("bins", bins, signed=True)
    if edges.size < 2 or np.any(np.diff(edges) < 0):
        raise ValueError(f"bins must be a number of bins, or at least two edges that ascend, got {shown(bins)}")
    return edges
