"""Averages over draws of the likelihood, of each point and of all points."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from split_common.metrics.checked import checked_draws, checked_labels, checked_log_likelihood


class DataLogLikelihood(NamedTuple):
    """Two averages over draws of the likelihood of all points together, in nats."""

    expected: float  # mean over draws of log p(Y | w_s)
    log_mean: float  # log of the mean over draws of p(Y | w_s), at least `expected`


def log_predictive_density(log_likelihood: np.ndarray) -> np.ndarray:
    """Log density of each point under the posterior predictive distribution: log of the mean over draws.

    On points that the draws were not fitted to, the sum over points is a proper score of the predictions: the larger,
    the better. On the training points it is optimistic; ``arviz.loo`` corrects for that.

    Args:
        log_likelihood: log p(y_i | w_s), shape (draws, points); minus infinity stands for a likelihood of 0.

    Returns:
        Nats (for a continuous y, of a density per unit of y), shape (points,).

    Raises:
        ValueError: for another number of axes, no draws or points, or values that are NaN or plus infinity.

    Example:
        >>> import numpy as np
        >>> log_predictive_density(np.log([[0.2], [0.6]])).round(4)  # log 0.4
        array([-0.9163])
    """
    return _log_mean_exp(checked_log_likelihood(log_likelihood))


def class_log_likelihood(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Log probability that each draw gave to the class of each point.

    Args:
        probabilities: class probabilities of each draw, shape (draws, points, classes).
        labels: class of each point, whole numbers from 0, shape (points,).

    Returns:
        Nats, shape (draws, points), for :func:`log_predictive_density` and :func:`cumulative_log_score`; minus infinity
        where the probability is 0.

    Raises:
        ValueError: as :func:`~split_common.metrics.predictive_probabilities`, and for labels of another number or out
            of range.

    Example:
        >>> import numpy as np
        >>> class_log_likelihood(np.array([[[0.25, 0.75]], [[0.5, 0.5]]]), np.array([1])).round(4).tolist()
        [[-0.2877], [-0.6931]]
    """
    array = checked_draws(probabilities)
    classes = checked_labels(labels, *array.shape[1:])
    with np.errstate(divide="ignore"):
        return np.log(array[:, np.arange(len(classes)), classes])


def cumulative_log_score(log_likelihood: np.ndarray) -> np.ndarray:
    """Mean over points of the log predictive density, of the first draw, the first two, and so on.

    Where it has not settled, more draws would still change the predictions.

    Args:
        log_likelihood: log p(y_i | w_s), shape (draws, points); of classes, :func:`class_log_likelihood`.

    Returns:
        Nats a point, shape (draws,), the larger, the better; the last is the mean of :func:`log_predictive_density`.

    Raises:
        ValueError: as :func:`log_predictive_density`.

    Example:
        >>> import numpy as np
        >>> cumulative_log_score(np.log([[0.2], [0.6]])).round(4)  # log 0.2, log 0.4
        array([-1.6094, -0.9163])
    """
    logs = np.logaddexp.accumulate(checked_log_likelihood(log_likelihood), axis=0)
    return (logs - np.log(np.arange(1, len(logs) + 1))[:, None]).mean(axis=1)


def data_log_likelihood(log_likelihood: np.ndarray) -> DataLogLikelihood:
    r"""Two averages over posterior draws of the likelihood of all points: neither is the marginal likelihood.

    On the data Y that the draws were fitted to, both are too large as estimates of the evidence log p(Y), which
    averages over the *prior*. In expectation,

    .. math:: \log p(Y) = \operatorname{E}[\log p(Y \mid w) \mid Y] - \operatorname{KL}(\text{posterior} \,\|\,
        \text{prior}) \le \operatorname{E}[\log p(Y \mid w) \mid Y] \le \log \operatorname{E}[p(Y \mid w) \mid Y].

    The divergence left out is what Occam's razor charges a larger model, so these averages say how well the draws fit,
    not which model the data prefer. Only ``expected`` is a well-behaved average: ``log_mean`` depends on the few draws
    of greatest likelihood, and on few draws is too small for its own limit. The harmonic mean of the likelihoods does
    tend to p(Y), but its variance is commonly infinite, so it is not offered; bridge, nested or tempered sampling
    estimate the evidence.

    On held-out data ``log_mean`` is the log predictive density of all points jointly.

    Cobb, Baydin, Kiskin, Markham and Roberts (2019) print a log p(Y | X) "taken over the samples" of -36.25, -37.59 and
    -640.52 without a formula; report both averages beside theirs.

    Args:
        log_likelihood: log p(y_i | w_s), shape (draws, points); minus infinity stands for a likelihood of 0.

    Returns:
        ``expected`` and ``log_mean``, in nats; sums over the points.

    Raises:
        ValueError: as :func:`log_predictive_density`.

    Example:
        >>> import numpy as np
        >>> averages = data_log_likelihood(np.log([[0.5, 0.5], [0.5, 1.0]]))  # likelihoods 1/4 and 1/2
        >>> round(averages.expected, 4), round(averages.log_mean, 4)
        (-1.0397, -0.9808)
    """
    sums = checked_log_likelihood(log_likelihood).sum(axis=1)
    return DataLogLikelihood(expected=float(sums.mean()), log_mean=float(_log_mean_exp(sums)))


def _log_mean_exp(logs: np.ndarray) -> np.ndarray:
    """Log of the mean over the first axis of the exponentials, without overflow."""
    return np.logaddexp.reduce(logs, axis=0) - np.log(len(logs))
