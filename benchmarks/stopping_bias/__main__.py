"""What it does to the estimates of a run that it stops when its own draws say that they are enough.

Stationary autoregressive chains of known correlation and mean 0, four of them with 20 coordinates or 1, stop at the
look at which the smallest effective sample size of the coordinates has reached 400, or the largest R-hat has fallen to
1.01. Beside them stand chains of other seeds with as many draws, decided beforehand, as the stopped ones have on
average. Looks are those of ``StopWhen``, or every 20 draws, which shows what few looks are good for.

"z²" is the mean over coordinates and replicas of the squared error of the mean over its claimed squared standard
error, which is 1 where the claim is right; "coverage" how often the mean is within 1.96 standard errors (95 %);
"claimed" the claimed effective sample size over the true one, which the correlation gives. "Worst" are those of the
one coordinate of each replica with the smallest claimed size, which is picked by its claim: it is off with a fixed
number too. ± is a standard error over replicas.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.signal import lfilter

from benchmarks.common.report import add_common_options, save
from split_common.runs.stopping import StopWhen
from split_common.runs.summaries import RunningSummary

CHAINS, AT_ONCE = 4, 1000  # coordinates of all replicas that share arrays, and a seed
LONGEST = 200_000  # draws of each chain, after which something is wrong
ESS, RHAT = 400, 1.01
HEADINGS = (
    "rule",
    "ρ",
    "coordinates",
    "looks",
    "draws",
    "arm",
    "z²",
    "coverage",
    "claimed",
    "worst z²",
    "worst coverage",
)

Rule = Callable[[RunningSummary], np.ndarray]


class Case(NamedTuple):
    """When to stop what.

    Attributes:
        rule: "ess" or "rhat".
        rho: correlation of successive draws.
        coordinates: of a replica.
        looks: "10 %", as ``StopWhen`` does, or "every 20".
    """

    rule: str
    rho: float
    coordinates: int
    looks: str


CASES = (
    Case("ess", 0.9, 20, "10 %"),
    Case("ess", 0.0, 20, "10 %"),
    Case("rhat", 0.9, 20, "10 %"),
    Case("rhat", 0.0, 20, "10 %"),
    Case("ess", 0.9, 20, "every 20"),
    Case("ess", 0.9, 1, "10 %"),
    Case("rhat", 0.9, 1, "10 %"),
    Case("ess", 0.9, 1, "every 20"),
    Case("rhat", 0.9, 1, "every 20"),
)
RULES: dict[str, Rule] = {
    "ess": lambda summary: summary.ess.min(1) >= ESS,
    "rhat": lambda summary: summary.rhat.max(1) <= RHAT,
}


class Chains:
    """Stationary autoregressive chains that go on, of variance 1, with the summary of what they drew.

    Args:
        case: what is drawn.
        seed: of the noise.
    """

    def __init__(self, case: Case, seed: int):
        self.rho, self._rng = case.rho, np.random.default_rng(seed)
        self.shape = AT_ONCE // case.coordinates, case.coordinates
        self.summary = RunningSummary.start(CHAINS, self.shape)
        self._last = self._rng.standard_normal((CHAINS, *self.shape))

    def draw(self, num_draws: int) -> None:
        """Go on until there are so many draws."""
        num = num_draws - int(self.summary.counts[0])
        for chain in range(CHAINS):
            noise = self._rng.standard_normal((num, *self.shape)) * np.sqrt(1 - self.rho**2)
            x, _ = lfilter([1.0], [1.0, -self.rho], noise, axis=0, zi=self.rho * self._last[None, chain])
            self._last[chain] = x[-1]
            self.summary.add(chain, x)


def next_look(case: Case, draws: int) -> int:
    """The number of draws at which to look next."""
    return StopWhen(ess=ESS).next_look(draws) if case.looks == "10 %" else draws + 20


def stopped(case: Case, seed: int) -> dict[str, np.ndarray]:
    """What is claimed of replicas when they stop: means, standard errors and sizes (R, D), numbers of draws (R,)."""
    chains, draws = Chains(case, seed), 0
    found = {name: np.full(chains.shape, np.nan) for name in ("mean", "mcse", "ess")}
    lengths = np.zeros(chains.shape[0], int)
    while not lengths.all() and draws < LONGEST:
        draws = next_look(case, draws)
        chains.draw(draws)
        stops = RULES[case.rule](chains.summary) & (lengths == 0)
        if stops.any():
            table = chains.summary.table()
            for name, x in found.items():
                x[stops] = table[name][stops]
            lengths[stops] = draws
    return {**found, "draws": lengths}


def decided_beforehand(case: Case, draws: int, seed: int) -> dict[str, np.ndarray]:
    """The same of replicas of a fixed number of draws."""
    chains = Chains(case, seed)
    chains.draw(draws)
    table = chains.summary.table()
    return {**{name: table[name] for name in ("mean", "mcse", "ess")}, "draws": np.full(chains.shape[0], draws)}


def true_ess(rho: float, draws: np.ndarray) -> np.ndarray:
    """Variance 1 over that of the mean of four stationary chains of so many draws."""
    time = (1 + rho) / (1 - rho) - 2 * rho * (1 - rho**draws) / (draws * (1 - rho) ** 2)
    return CHAINS * draws / time


def with_spread(by_replica: np.ndarray) -> dict[str, float]:
    """Mean over replicas, and its standard error."""
    return {"mean": float(by_replica.mean()), "error": float(by_replica.std(ddof=1) / np.sqrt(len(by_replica)))}


def figures(rho: float, found: dict[str, np.ndarray]) -> dict[str, Any]:
    """Figures of one arm of a case."""
    z = found["mean"] / found["mcse"]
    claimed = found["ess"] / true_ess(rho, found["draws"])[:, None]
    worst = np.arange(len(z)), found["ess"].argmin(1)
    return {
        "draws": with_spread(found["draws"]),
        "draws_quantiles": np.quantile(found["draws"], (0.0, 0.05, 0.5, 0.95, 1.0)).tolist(),
        "squared_z": with_spread((z**2).mean(1)),
        "coverage": with_spread((np.abs(z) < 1.96).mean(1)),
        "claimed_over_true": with_spread(claimed.mean(1)),
        "claimed_over_true_sd": float(claimed.std()),
        "worst_squared_z": with_spread(z[worst] ** 2),
        "worst_coverage": with_spread((np.abs(z[worst]) < 1.96).astype(float)),
        "worst_claimed_over_true": with_spread(claimed[worst]),
    }


def joined(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Replicas one after the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def measure(case: Case, num_seeds: int, first_seed: int) -> dict[str, Any]:
    """Both arms of a case, of ``num_seeds`` seeds each."""
    begin = time.perf_counter()
    seeds = range(first_seed, first_seed + num_seeds)
    by_rule = joined([stopped(case, seed) for seed in seeds])
    draws = round(by_rule["draws"].mean())
    others = range(first_seed + num_seeds, first_seed + 2 * num_seeds)
    fixed = joined([decided_beforehand(case, draws, seed) for seed in others])
    return {
        **case._asdict(),
        "seeds": {"stopped": list(seeds), "fixed": list(others)},
        "replicas": len(by_rule["draws"]),
        "stopped": figures(case.rho, by_rule),
        "fixed": figures(case.rho, fixed),
        "seconds": time.perf_counter() - begin,
    }


def print_result(result: dict[str, Any]) -> None:
    """Two lines of the table."""
    for arm in ("stopped", "fixed"):
        found = result[arm]
        columns = ("squared_z", "coverage", "claimed_over_true", "worst_squared_z", "worst_coverage")
        shown = [f"{found[name]['mean']:.3f} ± {found[name]['error']:.3f}" for name in columns]
        case = [str(result[name]) for name in Case._fields] + [f"{found['draws']['mean']:,.0f}", arm]
        print(f"| {' | '.join(case + shown)} |", flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="of 1,000 coordinates each, for every case and arm")
    add_common_options(parser, ["numpyro"])
    options = parser.parse_args(arguments)
    if options.quick:
        options.seeds = 1
    print("| " + " | ".join(HEADINGS) + " |")
    print(len(HEADINGS) * "|---" + "|", flush=True)
    results = []
    for k, case in enumerate(CASES[:2] if options.quick else CASES):
        results.append(measure(case, options.seeds, 1000 * k))
        print_result(results[-1])
    settings = {"chains": CHAINS, "ess": ESS, "rhat": RHAT, "coordinates_of_a_seed": AT_ONCE}
    save(options.json, settings | {"num_seeds": options.seeds}, results)


if __name__ == "__main__":
    main()
