r"""Audit of :class:`PenaltyMH`: repeated estimates against exact energies, at pairs of points that a chain visits.

For a pair (z, z') with exact change of energy :math:`\Delta` (kinetic energy included) a chain that accepts with
average probability A there and A' back again has, as far as the pair tells, a log-density whose change is log(A/A').
Under the target it is :math:`-\Delta`. The difference is the error of the log-density, and the slope of log(A/A') in
:math:`-\Delta` is one over the temperature that the chain samples at: above 1 the draws are too wide.

The estimates of both directions are the same numbers with opposite signs, so one set of them gives both averages.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from split_common.checks import check_positive_int
from split_common.health import WARN_ABOVE_SHARE
from split_common.penalty import TRUSTED_NOISE, penalty

LARGEST_ERROR = 0.1  # rms error of the log-density, in nats, that an audit must be able to see, and reports
LEAST_PAIRS, LEAST_REPEATS = 3, 2  # fewer leave standard errors undefined
NO_BIAS, BIASED, TOO_NOISY = "no sign of bias", "BIASED", "too noisy to tell, ask for more pairs or repeats"
SMALLEST_P = 1e-3  # p-value of the test of normality below which the noise counts as not normal


class Audit(NamedTuple):
    """How far the penalty can be trusted; ``print`` it for a table.

    Attributes:
        num_pairs: pairs of points that were audited.
        num_repeats: estimates made for each pair.
        num_batches: K that an estimate depends on; where chains have adapted it, the largest.
        exact_accept_prob: mean acceptance with no noise.
        accept_prob: mean acceptance with the noise.
        chi2: mean χ².
        share_above: share of estimates with χ² above K/4.
        variance_ratio: mean χ² over the true variance of the estimates; 1 is right.
        skewness: skewness of the noise, in its own standard deviations; 0 for a normal distribution.
        excess_kurtosis: its excess kurtosis, likewise.
        normality_p: p-value of D'Agostino and Pearson's test that the noise is normal.
        log_density_error: root mean square error of the change of log-density over a pair.
        log_density_error_se: its standard error.
        temperature: temperature that the chain samples at, as far as the pairs tell; 1 is right.
        temperature_se: its standard error.
    """

    num_pairs: int
    num_repeats: int
    num_batches: int
    exact_accept_prob: float
    accept_prob: float
    chi2: float
    share_above: float
    variance_ratio: float
    skewness: float
    excess_kurtosis: float
    normality_p: float
    log_density_error: float
    log_density_error_se: float
    temperature: float
    temperature_se: float

    @property
    def verdict(self) -> str:
        """What the audit says: a large χ² or an error above 0.1 is bias, which a standard error above 0.05 may hide."""
        error, se = self.log_density_error, self.log_density_error_se
        if self.share_above > WARN_ABOVE_SHARE or error - 2 * se >= LARGEST_ERROR:
            return BIASED
        return NO_BIAS if 2 * se <= LARGEST_ERROR else TOO_NOISY

    @property
    def trustworthy(self) -> bool:
        """Whether χ² is small enough, and the audit, precise enough to see one, sees no error above 0.1."""
        return self.verdict == NO_BIAS

    def __str__(self) -> str:
        normal = "" if self.normality_p >= SMALLEST_P else "  (not normal)"
        rows = [
            ("acceptance, exact and with noise", f"{self.exact_accept_prob:.3f}  {self.accept_prob:.3f}"),
            (f"χ² on average (K = {self.num_batches})", f"{self.chi2:.3g}"),
            ("share of χ² above K/4", f"{self.share_above:.1%}"),
            ("χ² over the true variance", f"{self.variance_ratio:.3f}"),
            ("skewness, excess kurtosis", f"{self.skewness:.2f}  {self.excess_kurtosis:.2f}{normal}"),
            ("error of the log-density, rms", f"{self.log_density_error:.3f} ± {self.log_density_error_se:.3f}"),
            ("temperature of the draws", f"{self.temperature:.3f} ± {self.temperature_se:.3f}"),
        ]
        title = f"Audit on {self.num_pairs} pairs, {self.num_repeats} estimates each: {self.verdict}"
        return "\n".join([title, *(f"  {name:<34}{value}" for name, value in rows)])


def summarise(
    *,
    exact: np.ndarray,
    kinetic: np.ndarray,
    estimates: np.ndarray,
    chi2: np.ndarray,
    num_batches: np.ndarray,
    corrected: bool,
) -> Audit:
    """Summarise repeated estimates.

    Args:
        exact: change of potential energy over each pair, shape (P,).
        kinetic: change of kinetic energy, shape (P,).
        estimates: estimates of the change of potential energy, shape (P, R).
        chi2: the estimated variance of each estimate, shape (P, R).
        num_batches: K of the estimates of each pair, which chains adapt one by one, shape (P,).
        corrected: whether the penalty allows for χ²'s being an estimate.
    """
    noise = estimates - exact[:, None]
    variances = noise.var(1, ddof=1)
    spread = np.sqrt(np.where(variances > 0, variances, 1.0))
    standard = (noise / spread[:, None]).ravel()
    forward, backward = _accept_probs(estimates, kinetic, chi2, num_batches, corrected)
    whole = exact + kinetic
    halves = [_implied(forward[:, part], backward[:, part]) for part in (slice(None, None, 2), slice(1, None, 2))]
    errors = [implied + whole for implied in halves]
    products = errors[0] * errors[1]  # from independent halves, so that their Monte Carlo errors do not add up
    mean_square, num_pairs = max(float(products.mean()), 0.0), len(exact)
    error = np.sqrt(mean_square)
    se_square = float(products.std(ddof=1)) / np.sqrt(num_pairs)
    fit: Any = stats.linregress(-whole, _implied(forward, backward))
    has_noise = bool(variances.max() > 0)
    return Audit(
        num_pairs=num_pairs,
        num_repeats=estimates.shape[1],
        num_batches=int(num_batches.max()),
        exact_accept_prob=float(np.minimum(1.0, np.exp(-whole)).mean()),
        accept_prob=float(forward.mean()),
        chi2=float(chi2.mean()),
        share_above=float((chi2 > TRUSTED_NOISE * num_batches[:, None]).mean()),
        variance_ratio=float(chi2.mean() / variances.mean()) if has_noise else 1.0,
        skewness=float(stats.skew(standard)) if has_noise else 0.0,
        excess_kurtosis=float(stats.kurtosis(standard)) if has_noise else 0.0,
        normality_p=float(stats.normaltest(standard).pvalue) if has_noise else 1.0,
        log_density_error=float(error),
        log_density_error_se=se_square / (2 * error) if error**2 > se_square else float(np.sqrt(se_square)),
        temperature=float(1 / fit.slope),
        temperature_se=float(fit.stderr / fit.slope**2),
    )


def check_audit_size(num_pairs: Any, num_repeats: Any) -> tuple[int, int]:
    """Return the numbers of pairs and repeats, or raise unless standard errors can be computed from them."""
    for name, value, least in (("num_pairs", num_pairs, LEAST_PAIRS), ("num_repeats", num_repeats, LEAST_REPEATS)):
        if check_positive_int(name, value) < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    return num_pairs, num_repeats


def check_audited(kernel: Any, has_draws: bool) -> None:
    """Raise unless a run can be audited."""
    if not hasattr(kernel, "audit"):
        raise TypeError(f"mcmc must have been made with a PenaltyMH kernel, got {type(kernel).__name__}")
    if not has_draws:
        raise ValueError("mcmc must have been run before it is audited, got no draws")


def _accept_probs(
    estimates: np.ndarray, kinetic: np.ndarray, chi2: np.ndarray, num_batches: np.ndarray, corrected: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Acceptance probabilities there and back, shape (P, R) each."""
    change, u = estimates + kinetic[:, None], penalty(chi2, num_batches[:, None], corrected)
    return np.exp(-np.maximum(change + u, 0.0)), np.exp(-np.maximum(u - change, 0.0))


def _implied(forward: np.ndarray, backward: np.ndarray) -> np.ndarray:
    """The change of log-density that average acceptances imply, shape (P,)."""
    tiny = np.finfo(float).tiny
    return np.log(forward.mean(1) + tiny) - np.log(backward.mean(1) + tiny)
