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

**Calibration.** Brier score, calibration error and coverage are defined in :mod:`split_common.metrics.calibration`.

Accuracy, log loss, squared error and the like are not here: take them from ``sklearn.metrics`` on
:func:`predictive_probabilities` or on the mean of :func:`variance_decomposition`. Leave-one-out cross-validation is
``loo`` of either package, or ``arviz.loo``.

References:
    Houlsby, Huszar, Ghahramani and Lengyel (2011), Bayesian Active Learning for Classification and Preference
    Learning, arXiv:1112.5745. Depeweg, Hernandez-Lobato, Doshi-Velez and Udluft (2018), Decomposition of Uncertainty in
    Bayesian Deep Learning for Efficient and Risk-sensitive Learning, arXiv:1710.07283. Gelman, Hwang and Vehtari
    (2014), Understanding Predictive Information Criteria for Bayesian Models, arXiv:1307.5928.
"""

from __future__ import annotations

from split_common.metrics.calibration import (
    LEVELS,
    Calibration,
    Coverage,
    brier_score,
    central_interval_coverage,
    expected_calibration_error,
    normal_interval_coverage,
)
from split_common.metrics.entropies import (
    ClassMatrix,
    cumulative_accuracy,
    expected_entropy,
    mutual_information,
    mutual_information_by_class,
    predictive_entropy,
    predictive_probabilities,
)
from split_common.metrics.likelihoods import (
    DataLogLikelihood,
    class_log_likelihood,
    cumulative_log_score,
    data_log_likelihood,
    log_predictive_density,
)
from split_common.metrics.variances import VarianceDecomposition, variance_decomposition

__all__ = [
    "LEVELS",
    "Calibration",
    "ClassMatrix",
    "Coverage",
    "DataLogLikelihood",
    "VarianceDecomposition",
    "brier_score",
    "central_interval_coverage",
    "class_log_likelihood",
    "cumulative_accuracy",
    "cumulative_log_score",
    "data_log_likelihood",
    "expected_calibration_error",
    "expected_entropy",
    "log_predictive_density",
    "mutual_information",
    "mutual_information_by_class",
    "normal_interval_coverage",
    "predictive_entropy",
    "predictive_probabilities",
    "variance_decomposition",
]
