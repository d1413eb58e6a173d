"""Do draws agree with known moments, to within their Monte Carlo error?

Every comparison is a z value: estimate minus truth over the estimate's Monte Carlo standard error, as ArviZ
computes it from the draws' autocorrelation and the disagreement of chains. Two numbers decide:

* |z| must stay below ``Z_LIMIT`` = 4.2. For a correct sampler a normal z exceeds it with probability 2.7e-5
  (two-sided), so n comparisons raise a false alarm with probability of at most 2.7e-5 n.
* the effective sample size must reach ``MIN_ESS`` = 400, without which the standard error itself is not to be
  trusted: fewer is a failure of its own (:class:`Inconclusive`), not a pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import arviz as az
import numpy as np

Z_LIMIT = 4.2
MIN_ESS = 400


class Disagreement(AssertionError):
    """Some estimate is further from the truth than Monte Carlo error explains."""


class Inconclusive(AssertionError):
    """Some estimate rests on too few effective draws to tell."""


class Comparison(NamedTuple):
    """One estimate against the truth.

    Attributes:
        name: what is estimated.
        estimate: from the draws.
        truth: what it should be.
        error: standard error of the difference.
        ess: effective sample size of the estimate.
    """

    name: str
    estimate: float
    truth: float
    error: float
    ess: float

    @property
    def z(self) -> float:
        """The difference in standard errors."""
        return (self.estimate - self.truth) / self.error if self.error else np.inf

    def __str__(self) -> str:
        return (
            f"{self.name:<24}{self.estimate:>12.5g}{self.truth:>12.5g}  z ={self.z:>7.2f}  ESS ={self.ess:>7.0f}"
            f"  detects {Z_LIMIT * self.error:.2g}"
        )


def compare_moments(name: str, draws: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> list[Comparison]:
    """Compare the mean and the variance of each component with exact values.

    The variance is estimated as the mean of (x - exact mean)², so that it is a plain average with an unbiased
    standard error.

    Args:
        name: of the parameter.
        draws: shape (chains, draws) or (chains, draws, D).
        mean: exact mean, a scalar or shape (D,).
        variance: exact variance, a scalar or shape (D,).

    Returns:
        Two comparisons for each component.
    """
    comparisons = []
    for label, x, mu, var in _components(name, draws, mean, variance):
        comparisons.append(_average(f"mean {label}", x, mu))
        comparisons.append(_average(f"variance {label}", (x - mu) ** 2, var))
    return comparisons


def compare_with_reference(name: str, draws: np.ndarray, reference: dict[str, float]) -> list[Comparison]:
    """Compare the mean and the standard deviation of a scalar parameter with those of reference draws.

    The error of the reference counts too. Its sd rests on (sd / mcse_mean)² effective draws; its standard error
    is that of ours rescaled to as many, since the tails, which set it, are the same.

    Args:
        name: of the parameter.
        draws: shape (chains, draws).
        reference: ``mean``, ``sd`` and ``mcse_mean``.
    """
    mean, sd, mcse = reference["mean"], reference["sd"], reference["mcse_mean"]
    ess_mean = float(az.ess(draws, method="mean"))
    ess_sd = float(az.ess(draws, method="sd"))
    error_sd = float(az.mcse(draws, method="sd"))
    reference_error_sd = error_sd * np.sqrt(ess_sd) * mcse / sd
    error_mean = np.hypot(float(az.mcse(draws, method="mean")), mcse)
    return [
        Comparison(f"mean {name}", float(draws.mean()), mean, error_mean, ess_mean),
        Comparison(f"sd {name}", float(draws.std(ddof=1)), sd, np.hypot(error_sd, reference_error_sd), ess_sd),
    ]


def assert_agree(comparisons: Sequence[Comparison]) -> None:
    """Fail unless every comparison has |z| < ``Z_LIMIT`` at an effective sample size of at least ``MIN_ESS``.

    Raises:
        Inconclusive: when some effective sample size is too small; takes precedence.
        Disagreement: when some |z| is too large.
    """
    table = "\n".join(["", *map(str, comparisons)])
    if not all(c.ess >= MIN_ESS for c in comparisons):
        raise Inconclusive(f"an effective sample size is below {MIN_ESS}:{table}")
    if not all(abs(c.z) < Z_LIMIT for c in comparisons):
        raise Disagreement(f"some |z| is not below {Z_LIMIT}:{table}")


def _average(name: str, x: np.ndarray, truth: float) -> Comparison:
    error, ess = (float(f(x, method="mean")) for f in (az.mcse, az.ess))
    return Comparison(name, float(x.mean()), float(truth), error, ess)


def _components(name: str, draws: np.ndarray, mean: np.ndarray, variance: np.ndarray):
    if draws.ndim == 2:
        yield name, draws, mean, variance
        return
    for i in range(draws.shape[2]):
        yield f"{name}[{i}]", draws[:, :, i], mean[i], variance[i]
