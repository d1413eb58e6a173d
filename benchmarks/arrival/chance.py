"""How often R-hat is above its limit by chance, of chains that have met and mix as these do.

R-hat compares the means of half chains, K = 2 · chains of them with n draws each: R̂² = 1 - 1/n + B, where B is the
variance of the means over that of the draws. Chains in the posterior with S effective draws in all have independent
half-chain means of K/S times the variance of the draws, so that B is K/S · χ²/(K - 1), χ² of K - 1 degrees of freedom
(Gelman and Rubin 1992, Inference from iterative simulation using multiple sequences, Statistical Science 7). The
rank-normalised R-hat of ArviZ, the larger of that of the draws and that of their distances from the median, is about as
often above a limit. A model's R-hat is the largest of all its coordinates, so that the chance for the slowest of them
alone is a lower bound.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from scipy.stats import chi2

from benchmarks.arrival.record import HOST
from benchmarks.arrival.runs import NUM_CHAINS, NUM_DRAWS
from split_common.report import MOST_RHAT


def chance_above(limit: float, ess: float, num_chains: int = NUM_CHAINS, num_draws: int = NUM_DRAWS) -> float:
    """Probability that R-hat of one coordinate is above a limit.

    Args:
        limit: of R-hat.
        ess: effective draws of all chains together, as chains that mix so have them on average.
        num_chains: number of chains.
        num_draws: draws of each chain.
    """
    halves = 2 * num_chains
    between = limit**2 - 1 + 2 / num_draws
    return float(chi2.sf((halves - 1) * between * ess / halves, halves - 1))


def counts(results: dict[str, Any], kernel: str) -> tuple[int, int, float]:
    """Of a kernel's runs where the host's R-hat is below the limit: how many there are, are above it, are so by chance.

    The effective draws of a target are the median of its seeds'.
    """
    number, found, expected = 0, 0, 0.0
    for by_kernel in results.values():
        rows = {seed: row for seed, row in by_kernel.get(kernel, {}).items() if row is not None}
        met = [row["rhat"] for seed, row in rows.items() if by_kernel[HOST][seed]["rhat"] < MOST_RHAT]
        number, found = number + len(met), found + sum(rhat >= MOST_RHAT for rhat in met)
        if met:
            expected += len(met) * chance_above(MOST_RHAT, median(row["ess"] for row in rows.values()))
    return number, found, expected
