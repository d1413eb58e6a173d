r"""Harmonic drifts: a normal approximation of the posterior is followed exactly, and kicks are made by the rest alone.

With a reference :math:`z^*`, a mass matrix M and K subsets, the Hamiltonian is divided as

.. math:: H = \Bigl[\tfrac12 (z - z^*)^\top M (z - z^*) + \tfrac12 p^\top M^{-1} p\Bigr]
    + \sum_{m=1}^K \Bigl[U_m(z) - \tfrac{1}{2K} (z - z^*)^\top M (z - z^*)\Bigr] .

The first bracket is a harmonic oscillator whose frequencies are all 1, because the matrices of its potential and
kinetic energy are inverse to each other: in a time t it rotates position and momentum by the angle t,

.. math:: z \leftarrow z^* + (z - z^*) \cos t + M^{-1} p \sin t, \qquad p \leftarrow p \cos t - M (z - z^*) \sin t .

This takes the place of the drift :math:`z \leftarrow z + t M^{-1} p` in any schedule, and the kicks of a subset are by
:math:`\nabla U_m - M (z - z^*) / K`. The rotation preserves volume and is reversible by a flip of the momentum, and the
brackets sum to H *whatever* z* and M are. So nothing else changes: the accept-reject decision compares the same
energies, and a poor reference lowers the acceptance but never makes the draws inexact (:mod:`split_common.schedule`).
Reference and mass matrix must not depend on the state: they are found in warm-up, and fixed while draws are made.

The rotation by t is composed of shears, as two rotations by t/2, each of which is

.. math:: p \leftarrow p - M (z - z^*) \tan\tfrac t4, \quad z \leftarrow z + M^{-1} p \sin\tfrac t2, \quad
    p \leftarrow p - M (z - z^*) \tan\tfrac t4,

so that rounding, also of M against its inverse, affects neither the volume nor reversibility.

On a normal posterior with covariance M⁻¹ and mean z* the kicks vanish, and one step of a quarter turn gives a draw that
is independent of the last. On a posterior that is nearly normal they are small. With the naive schedule, which ends
with a kick by every subset, such a draw costs one gradient of all rows, and no forward pass.

The reference belongs to the metric X from draws and gradients (:mod:`split_common.gradient_metric`), and is computed
from the same window:

.. math:: z^* = \bar z - X \bar g,

with the means of draws and gradients. On a normal target :math:`\bar g = \Sigma^{-1} (\bar z - \mu)`, so z* is its mean
*exactly*, whichever draws the window has. The window also decides whether the reference is used: the mean square of the
remainder of the gradients, :math:`r = (g - \bar g) - X^{-1} (z - \bar z)`, divided by that of the gradients, both in
the metric,

.. math:: \frac{E[r^\top X r]}{E[(g - \bar g)^\top X (g - \bar g)]} = \frac{a - 2 c + b}{a}, \qquad
    a = \tfrac1D \operatorname{tr} X G, \quad b = \tfrac1D \operatorname{tr} X^{-1} C, \quad
    c = \tfrac1D \operatorname{tr} \operatorname{cov}(g, z),

must be at most :data:`MOST_LEFT`, and the window must have at least :data:`DRAWS_PER_PARAMETER` draws for each
parameter and :data:`LEAST_DRAWS` in all, because a few draws could fit by chance, and those of early windows are on the
way to the posterior.

A rotation has a period. Trajectories of one fixed length could return to where they started after a whole period, or to
the other side of the reference after half of one: the chain would always accept, and not explore. So lengths must be
learned in warm-up (:mod:`split_common.exploration`), or jittered.

Reference:
    Shahbaba, Lan, Johnson and Neal (2014), Split Hamiltonian Monte Carlo, Statistics and Computing 24, section 4.1:
    splitting with a partial analytic solution.
"""

from __future__ import annotations

import math
from typing import Any

from split_common.checks import check_optional_choice

DRIFTS = ("auto",)
MOST_LEFT = 0.25  # share of the mean square of the gradients that may be left: half of their size
DRAWS_PER_PARAMETER = 2  # least draws for each parameter in the window that reference and metric are from
LEAST_DRAWS = 25  # least draws of that window, as many as the host's first window of the mass matrix has
# Longest step, in time: a quarter of a turn, or what a learned length may be (:mod:`split_common.exploration`). On a
# nearly normal posterior the energy error hardly grows with the step, so that acceptance sets no limit.
LONGEST_HARMONIC_STEP, LONGEST_HARMONIC_LENGTH = math.pi / 2, 1.25 * math.pi / 2


def check_drift(drift: Any, metric: str | None) -> str | None:
    """Return ``drift``, or raise unless it is None, or "auto" together with a metric from draws and gradients.

    Args:
        drift: the user's value.
        metric: the kernel's ``metric``, checked.

    Raises:
        ValueError: for another value, and for "auto" with another metric.

    Example:
        >>> check_drift("auto", "auto")
        'auto'
    """
    chosen = check_optional_choice("drift", drift, DRIFTS)
    if chosen is not None and metric is None:
        raise ValueError("metric must be 'auto' where drift is 'auto', which takes its reference from it, got None")
    return chosen


def check_lengths_vary(varies: bool) -> None:
    """Raise unless the lengths of trajectories whose drifts are harmonic vary.

    Args:
        varies: whether they vary: learned in warm-up, those of trees, or of jittered steps.

    Raises:
        ValueError: where they do not.
    """
    if not varies:
        raise ValueError(
            "step_size_jitter must be above 0 where drift is 'auto' and a length is given, because harmonic drifts of "
            "one length may return to where they started, got 0"
        )


def share_left(squared: Any, inverse: Any, cross: Any) -> Any:
    """What a normal approximation leaves of the mean square of the gradients.

    Args:
        squared: a, the mean of the squared frequencies in the metric, a float or a scalar array.
        inverse: b, the mean of their inverses.
        cross: c, the mean covariance of a draw's coordinate and its gradient's.

    Example:
        >>> share_left(1.0, 1.0, 1.0), share_left(2.0, 1.0, 1.0)
        (0.0, 0.5)
    """
    return (squared - 2 * cross + inverse) / squared


def is_nearly_normal(left: Any, num_draws: Any, size: int) -> Any:
    """Whether drifts follow the normal approximation of a window of so many draws of ``size`` parameters.

    Example:
        >>> is_nearly_normal(0.1, 50, 20), is_nearly_normal(0.1, 30, 20), is_nearly_normal(0.5, 50, 20)
        (True, False, False)
    """
    return (left <= MOST_LEFT) & (num_draws >= max(LEAST_DRAWS, DRAWS_PER_PARAMETER * size))
