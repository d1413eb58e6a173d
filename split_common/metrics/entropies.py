"""Class probabilities of the posterior predictive distribution, and how much of their uncertainty is disagreement."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from split_common.metrics.checked import checked_draws, checked_labels


class ClassMatrix(NamedTuple):
    """Points by true class (rows) and predicted class (columns), each array of shape (classes, classes)."""

    mean: np.ndarray  # mean of a quantity over the points of a cell; NaN where there are none
    count: np.ndarray  # number of points in each cell: the confusion matrix


def predictive_probabilities(probabilities: np.ndarray) -> np.ndarray:
    """Class probabilities of the posterior predictive distribution: the mean over draws.

    Args:
        probabilities: class probabilities of each draw, shape (draws, points, classes).

    Returns:
        Shape (points, classes).

    Raises:
        ValueError: for another number of axes, no draws, or rows that are not probabilities.

    Example:
        >>> import numpy as np
        >>> predictive_probabilities(np.array([[[1.0, 0.0]], [[0.5, 0.5]]]))
        array([[0.75, 0.25]])
    """
    return checked_draws(probabilities).mean(axis=0)


def predictive_entropy(probabilities: np.ndarray) -> np.ndarray:
    """Entropy of the posterior predictive distribution: all the uncertainty of each prediction.

    Args:
        probabilities: class probabilities of each draw, shape (draws, points, classes).

    Returns:
        Nats, shape (points,), from 0 to log(classes).

    Raises:
        ValueError: as :func:`predictive_probabilities`.

    Example:
        Two draws, each certain of another class:

        >>> import numpy as np
        >>> predictive_entropy(np.array([[[1.0, 0.0]], [[0.0, 1.0]]])).round(4)
        array([0.6931])
    """
    return _entropy(predictive_probabilities(probabilities))


def expected_entropy(probabilities: np.ndarray) -> np.ndarray:
    """Mean over draws of the entropy: the uncertainty that would remain if the parameters were known.

    Args:
        probabilities: class probabilities of each draw, shape (draws, points, classes).

    Returns:
        Nats, shape (points,), at most :func:`predictive_entropy`.

    Raises:
        ValueError: as :func:`predictive_probabilities`.

    Example:
        Two draws, each certain of another class:

        >>> import numpy as np
        >>> expected_entropy(np.array([[[1.0, 0.0]], [[0.0, 1.0]]]))
        array([0.])
    """
    return _entropy(checked_draws(probabilities)).mean(axis=0)


def mutual_information(probabilities: np.ndarray) -> np.ndarray:
    """Mutual information of class and parameters: how far the draws disagree about each point.

    The acquisition score of Bayesian active learning by disagreement (BALD).

    Args:
        probabilities: class probabilities of each draw, shape (draws, points, classes).

    Returns:
        Nats, shape (points,), at least 0: :func:`predictive_entropy` less :func:`expected_entropy`.

    Raises:
        ValueError: as :func:`predictive_probabilities`.

    Example:
        Draws that disagree about the first point, and agree that the second is a toss-up:

        >>> import numpy as np
        >>> mutual_information(np.array([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]])).round(4)
        array([0.6931, 0.    ])
    """
    difference = predictive_entropy(probabilities) - expected_entropy(probabilities)
    return np.maximum(difference, 0.0)  # rounding can leave a difference of zero just below it


def mutual_information_by_class(probabilities: np.ndarray, labels: np.ndarray) -> ClassMatrix:
    """Mean :func:`mutual_information` of the points of each true and each predicted class.

    Draws that are worth anything disagree more off the diagonal, where the prediction is wrong.

    Args:
        probabilities: class probabilities of each draw, shape (draws, points, classes).
        labels: true class of each point, whole numbers from 0, shape (points,). The predicted class is the first of
            greatest predictive probability.

    Returns:
        ``mean``, in nats, and ``count``; rows are true classes, columns predicted ones.

    Raises:
        ValueError: as :func:`predictive_probabilities`, and for labels of another number or out of range.

    Example:
        >>> import numpy as np
        >>> p = np.array([[[1.0, 0.0], [0.8, 0.2]], [[0.0, 1.0], [0.8, 0.2]]])  # draws disagree about the first point
        >>> matrix = mutual_information_by_class(p, np.array([1, 0]))
        >>> matrix.mean.round(4), matrix.count
        (array([[0.    ,    nan],
               [0.6931,    nan]]), array([[1, 0],
               [1, 0]]))
    """
    array = checked_draws(probabilities)
    num_classes = array.shape[-1]
    cell = checked_labels(labels, *array.shape[1:]) * num_classes + array.mean(axis=0).argmax(axis=-1)
    count = np.bincount(cell, minlength=num_classes**2)
    total = np.bincount(cell, mutual_information(array), num_classes**2)
    mean = np.divide(total, count, where=count > 0, out=np.full(num_classes**2, np.nan))
    return ClassMatrix(*(x.reshape(num_classes, num_classes) for x in (mean, count)))


def cumulative_accuracy(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Share of points predicted rightly by the mean over the first draw, the first two, and so on.

    Args:
        probabilities: class probabilities of each draw, shape (draws, points, classes).
        labels: class of each point, whole numbers from 0, shape (points,).

    Returns:
        Shape (draws,); the last is the accuracy of :func:`predictive_probabilities`. The predicted class is the first
        of greatest probability.

    Raises:
        ValueError: as :func:`predictive_probabilities`, and for labels of another number or out of range.

    Example:
        The second draw puts the first point right:

        >>> import numpy as np
        >>> p = np.array([[[0.4, 0.6], [0.3, 0.7]], [[0.9, 0.1], [0.4, 0.6]]])
        >>> cumulative_accuracy(p, np.array([0, 1]))
        array([0.5, 1. ])
    """
    array = checked_draws(probabilities)
    classes = checked_labels(labels, *array.shape[1:])
    total, shares = np.zeros(array.shape[1:]), []
    for draw in array:
        total += draw
        shares.append(np.mean(total.argmax(axis=-1) == classes))
    return np.array(shares)


def _entropy(probabilities: np.ndarray) -> np.ndarray:
    """Entropy along the last axis, with 0 log 0 = 0."""
    logs = np.log(probabilities, where=probabilities > 0, out=np.zeros_like(probabilities))
    return np.abs(np.sum(probabilities * logs, axis=-1))  # a sum of terms of at most 0; abs spares readers a -0.0
