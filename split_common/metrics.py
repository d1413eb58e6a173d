r"""Uncertainty of class predictions, from the class probabilities of each posterior draw.

Every function takes probabilities of shape (draws, points, classes) and gives one value per point, in nats. With
:math:`\bar p` the mean over draws,

.. math:: \underbrace{H(\bar p)}_{\text{predictive}} =
    \underbrace{\tfrac1S \textstyle\sum_s H(p_s)}_{\text{expected}} + \underbrace{I}_{\text{mutual information}},

the uncertainty of the prediction is what would remain if the parameters were known, plus what the draws disagree on.

Accuracy, log loss and the like are not here: take them from ``sklearn.metrics`` on :func:`predictive_probabilities`.

References:
    Houlsby, Huszar, Ghahramani and Lengyel (2011), Bayesian Active Learning for Classification and Preference
    Learning, arXiv:1112.5745.
"""

from __future__ import annotations

import numpy as np

SUM_TOLERANCE = 1e-3


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
    return _checked(probabilities).mean(axis=0)


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
    return _entropy(_checked(probabilities)).mean(axis=0)


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


def _entropy(probabilities: np.ndarray) -> np.ndarray:
    """Entropy along the last axis, with 0 log 0 = 0."""
    logs = np.log(probabilities, where=probabilities > 0, out=np.zeros_like(probabilities))
    return np.abs(np.sum(probabilities * logs, axis=-1))  # a sum of terms of at most 0; abs spares readers a -0.0


def _checked(probabilities: np.ndarray) -> np.ndarray:
    """The probabilities in float64, or an error that says what is wrong with them."""
    array = np.asarray(probabilities, dtype=np.float64)
    if array.ndim != 3 or 0 in array.shape:
        raise ValueError(
            f"probabilities must have shape (draws, points, classes), none of them 0, got shape {array.shape}"
        )
    if not np.all(array >= 0):
        raise ValueError(f"probabilities must be numbers of at least 0, got {array.min()}")
    sums = array.sum(axis=-1)
    worst = sums.flat[np.argmax(np.abs(sums - 1))]
    if abs(worst - 1) > SUM_TOLERANCE:
        raise ValueError(f"probabilities must sum to 1 over the classes (the last axis), got a sum of {worst:.6g}")
    return array
