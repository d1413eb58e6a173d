"""Statistics that every kernel keeps, their limits, and the warnings of a run that goes wrong."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

MAX_ENERGY_CHANGE = 1000.0
DRAWS_BEFORE_WARNING = 100  # draws after which a run warns of what it has seen
WARN_ABOVE_SHARE = 0.1  # share of draws at a limit (of depth, of steps, of noise) above which there is a warning
LEAST_BFMI = 0.3  # Stan's limit of the energy Bayesian fraction of missing information (E-BFMI)
STATISTICS = ("diverging", "energy", "potential_energy", "accept_prob", "num_steps", "num_grads", "step_size")


class Watched(NamedTuple):
    """Totals over all iterations of a thinned run, by chain; its statistics cover only the draws that were kept.

    Attributes:
        num_diverging: number of iterations since warm-up whose trajectory diverged.
        bfmi: E-BFMI of their energies; NaN where it is not known.

    Example:
        >>> Watched([0, 2], [0.9, 1.1]).num_diverging
        [0, 2]
    """

    num_diverging: Sequence[float]
    bfmi: Sequence[float]


def put_watched(statistics: Any, watched: Watched) -> None:
    """Write the numbers of a thinned run's chains into the attributes of its statistics, in ArviZ's format."""
    statistics.attrs["num_diverging_of_all"] = [int(x) for x in np.atleast_1d(watched.num_diverging)]
    statistics.attrs["bfmi_of_all"] = [float(x) for x in np.atleast_1d(watched.bfmi)]


def get_watched(statistics: Any) -> Watched | None:
    """Read the numbers of :func:`put_watched`; None for a run that was not thinned."""
    if "num_diverging_of_all" not in statistics.attrs:
        return None
    return Watched(
        np.atleast_1d(statistics.attrs["num_diverging_of_all"]).tolist(),
        np.atleast_1d(statistics.attrs["bfmi_of_all"]).tolist(),
    )


def warn_of_other_data() -> None:
    """Warn that a run goes on from a state that was left by other data, or by another model."""
    warnings.warn(
        "this run goes on from a state that was left by other data or another model: what depends on them is computed "
        "again, and the step size is reduced if it is now too large, but the chain keeps its position and its mass "
        "matrix; if the data differ much, start with a new warm-up",
        stacklevel=2,
    )


def warn_of_first_draws(num_diverging: Any, bfmi: Any) -> None:
    """Warn that some of the first draws diverged, or that their energies are explored slowly."""
    number = int(num_diverging)
    found = [f"{number} of the first {DRAWS_BEFORE_WARNING} draws diverged"] if number else []
    if bfmi < LEAST_BFMI:
        found.append(f"the E-BFMI of the first {DRAWS_BEFORE_WARNING} draws is {float(bfmi):.2f}")
    warnings.warn(
        f"{' and '.join(found)}: the draws may miss a part of the posterior; raise target_accept_prob, or "
        "reparametrise the model; kernel.report(mcmc) says more when the run is over",
        stacklevel=2,
    )
