"""How often R-hat is above a limit by chance: the formula of the benchmark's page, against simulated chains."""

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import binom

from benchmarks.arrival.chance import chance_above, counts

NUM_SETS, FALSE_ALARM = 4000, 1e-4


def split_rhats(x):
    """R-hat of half chains, of each set of chains; shape (sets, chains, draws)."""
    halves = x.reshape(len(x), 2 * x.shape[1], -1)
    between, within = halves.mean(2).var(1, ddof=1), halves.var(2, ddof=1).mean(1)
    return np.sqrt(1 - 1 / halves.shape[2] + between / within)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("correlation", "limit"), [(0.0, 1.004), (0.6, 1.02)])
def test_the_chance_is_that_of_chains_in_the_posterior(correlation, limit, seed):
    """At most half as often or twice: half chains of few effective draws have a variance below that of all draws."""
    noise = np.random.default_rng(seed).normal(size=(NUM_SETS, 4, 700))
    x = lfilter([1.0], [1.0, -correlation], noise)[:, :, 200:]
    ess = 2000 * (1 - correlation) / (1 + correlation)
    chance, above = chance_above(limit, ess), int(np.sum(split_rhats(x) > limit))
    assert (
        binom.ppf(FALSE_ALARM / 2, NUM_SETS, chance / 2)
        <= above
        <= binom.ppf(1 - FALSE_ALARM / 2, NUM_SETS, 2 * chance)
    )


def test_runs_whose_host_has_not_met_are_not_counted():
    row = {"rhat": 1.03, "ess": 400}
    fine = {"rhat": 1.0, "ess": 1000}
    results = {
        "a": {"host NUTS": {"0": fine, "1": row}, "K": {"0": row, "1": row}},
        "b": {"host NUTS": {"0": fine}, "K": {"0": None}},
    }
    assert counts(results, "K") == (1, 1, chance_above(1.02, 400))
