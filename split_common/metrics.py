r"""Uncertainty and likelihood of predictions, from what each posterior draw predicts.

Draws come first in every array; those of several chains are stacked into one axis.

**Classes.** From probabilities of shape (draws, points, classes), one value per point, in nats. With :math:`\bar p` the
mean over draws,

.. math:: \underbrace{H(\bar p)}_{\text{predictive}} =
    \underbrace{\tfrac1S \textstyle\sum_s H(p_s)}_{\text{expected}} + \underbrace{I}_{\text{mutual information}},

the uncertainty of the prediction is what would remain if the parameters were known, plus what the draws disagree on.

**Regression.** From the mean :math:`f_s` and the noise variance :math:`\sigma_s^2` of each draw, one value per point,
in squared units of y. By the law of total variance,

.. math:: \operatorname{Var}(y) = \underbrace{\tfrac1S \textstyle\sum_s \sigma_s^2}_{\text{aleatoric}} +
    \underbrace{\tfrac1S \textstyle\sum_s (f_s - \bar f)^2}_{\text{epistemic}}.

**Log-likelihoods.** From :math:`\ell_{si} = \log p(y_i \mid w_s)` of shape (draws, points), in nats:

.. math:: \log \tfrac1S \textstyle\sum_s e^{\ell_{si}}, \qquad
    \tfrac1S \textstyle\sum_s \sum_i \ell_{si}, \qquad
    \log \tfrac1S \textstyle\sum_s e^{\sum_i \ell_{si}},

the log predictive density of each point, and two averages of the likelihood of all points.

Accuracy, log loss, squared error and the like are not here: take them from ``sklearn.metrics`` on
:func:`predictive_probabilities` or on the mean of :func:`variance_decomposition`. Leave-one-out cross-validation is
``arviz.loo``.

References:
    Houlsby, Huszar, Ghahramani and Lengyel (2011), Bayesian Active Learning for Classification and Preference
    Learning, arXiv:1112.5745. Depeweg, Hernandez-Lobato, Doshi-Velez and Udluft (2018), Decomposition of Uncertainty in
    Bayesian Deep Learning for Efficient and Risk-sensitive Learning, arXiv:1710.07283. Gelman, Hwang and Vehtari
    (2014), Understanding Predictive Information Criteria for Bayesian Models, arXiv:1307.5928.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SUM_TOLERANCE = 1e-3


class VarianceDecomposition(NamedTuple):
    """Mean and variance of a regression's posterior predictive distribution, each of shape (points,)."""

    mean: np.ndarray  # units of y
    aleatoric: np.ndarray  # squared units of y: noise, which more data would not lessen
    epistemic: np.ndarray  # squared units of y: what the draws disagree on

    @property
    def total(self) -> np.ndarray:
        """Variance of the prediction: aleatoric plus epistemic."""
        return self.aleatoric + self.epistemic


class DataLogLikelihood(NamedTuple):
    """Two averages over draws of the likelihood of all points together, in nats."""

    expected: float  # mean over draws of log p(Y | w_s)
    log_mean: float  # log of the mean over draws of p(Y | w_s), at least `expected`


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


def variance_decomposition(means: np.ndarray, noise_variance: np.ndarray | float) -> VarianceDecomposition:
    """Mean of a regression's predictive distribution, and its variance as noise plus disagreement of the draws.

    The epistemic variance divides by the number of draws, so that the sum is exactly the variance of the mixture
    of the draws' predictions, whatever the shape of the noise.

    Args:
        means: mean of y at each point under each draw, f_s(x), shape (draws, points).
        noise_variance: variance of y about that mean, not its standard deviation or precision: one number, one per
            draw, shape (draws,), or one per draw and point, shape (draws, points).

    Returns:
        ``mean``, ``aleatoric`` and ``epistemic``, in this order, and ``total``; shape (points,).

    Raises:
        ValueError: for other shapes, no draws or points, a mean that is not finite, or a variance that is not finite
            or below 0.

    Example:
        Two draws that agree at the first point only:

        >>> import numpy as np
        >>> prediction = variance_decomposition(np.array([[1.0, 1.0], [1.0, 3.0]]), np.array([0.25, 0.75]))
        >>> prediction.mean, prediction.aleatoric, prediction.epistemic, prediction.total
        (array([1., 2.]), array([0.5, 0.5]), array([0., 1.]), array([0.5, 1.5]))
    """
    draws = _draws_by_points("means", means)
    if not np.all(np.isfinite(draws)):
        raise ValueError(f"means must be finite, got {draws[~np.isfinite(draws)][0]}")
    noise = np.asarray(noise_variance, dtype=np.float64)
    if noise.shape not in ((), draws.shape[:1], draws.shape):
        raise ValueError(
            f"noise_variance must be a number or have shape (draws,) or (draws, points), here {draws.shape[:1]} or "
            f"{draws.shape}, got shape {noise.shape}"
        )
    allowed = np.isfinite(noise) & (noise >= 0)
    if not np.all(allowed):
        raise ValueError(f"noise_variance must be finite and at least 0, got {noise[~allowed][0]}")
    if noise.ndim == 1:
        noise = noise[:, None]
    return VarianceDecomposition(
        mean=draws.mean(axis=0),
        aleatoric=np.broadcast_to(noise, draws.shape).mean(axis=0),
        epistemic=draws.var(axis=0),
    )


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
    return _log_mean_exp(_checked_log_likelihood(log_likelihood))


def data_log_likelihood(log_likelihood: np.ndarray) -> DataLogLikelihood:
    r"""Two averages over posterior draws of the likelihood of all points: neither is the marginal likelihood.

    On the data Y that the draws were fitted to, both are too large as estimates of the evidence log p(Y), which
    averages over the *prior*. In expectation,

    .. math:: \log p(Y) = \operatorname{E}[\log p(Y \mid w) \mid Y] - \operatorname{KL}(\text{posterior} \,\|\,
        \text{prior}) \le \operatorname{E}[\log p(Y \mid w) \mid Y] \le \log \operatorname{E}[p(Y \mid w) \mid Y].

    The divergence left out is what Occam's razor charges a larger model, so these averages say how well the draws fit,
    not which model the data prefer. Only ``expected`` is a well-behaved average: ``log_mean`` rests on the few draws of
    greatest likelihood, and on few draws is too small for its own limit. The harmonic mean of the likelihoods does tend
    to p(Y), but its variance is commonly infinite, so it is not offered; bridge, nested or tempered sampling estimate
    the evidence.

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
    sums = _checked_log_likelihood(log_likelihood).sum(axis=1)
    return DataLogLikelihood(expected=float(sums.mean()), log_mean=float(_log_mean_exp(sums)))


def _log_mean_exp(logs: np.ndarray) -> np.ndarray:
    """Log of the mean over the first axis of the exponentials, without overflow."""
    return np.logaddexp.reduce(logs, axis=0) - np.log(len(logs))


def _draws_by_points(name: str, values: np.ndarray) -> np.ndarray:
    """The values in float64, if they have two axes, neither of them empty."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{name} must have shape (draws, points), neither of them 0, got shape {array.shape}")
    return array


def _checked_log_likelihood(log_likelihood: np.ndarray) -> np.ndarray:
    """The log-likelihoods in float64, or an error that says what is wrong with them."""
    array = _draws_by_points("log_likelihood", log_likelihood)
    allowed = array < np.inf  # false for NaN
    if not np.all(allowed):
        raise ValueError(f"log_likelihood must be numbers below infinity, got {array[~allowed][0]}")
    return array


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
