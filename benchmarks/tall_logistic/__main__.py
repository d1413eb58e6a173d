"""Effective draws per second on tall data: PenaltyMH against the host's NUTS and HMCECS, logistic regression (NumPyro).

D = 20 independent inputs and N = 10,000 to 1,000,000 rows; with ``--hard`` 50 inputs that are correlated, some of heavy
tails, and 1% of positives among 100,000 rows. In float32, which is the host's default. Methods, and numbers of rows,
take turns; what is compiled is compiled before. PenaltyMH is named by rows of a batch x batches x leapfrog steps,
HMCECS (degree 2) by rows of its subsample / blocks. One chain each, and 64 or 256 of PenaltyMH's as
``chain_method="vectorized"`` runs them, which the host's MCMC refuses to do with HMCECS: what 64 chains of it would do
is seen by ``jax.vmap`` over its ``sample``. With ``taskset -c 0`` in front all methods have the same one core, where
times are steadier.

The effective size is that of the worse of z and z² (about the mean), of the worst coordinate. NUTS on many rows makes
so few draws that this is rough; the median over coordinates is steadier. Set-up is all that comes before the draws:
splitting, the mode, the expansion, compiling, warm-up. Every chain starts at the mode or near it; finding it counts
towards the set-up of PenaltyMH and HMCECS, which need it, and not towards that of NUTS.

Agreement is the largest difference of a coordinate's mean, and of its standard deviation, from those of another
method, in standard errors of the difference: 2 to 3.5 is chance among 20 to 50 coordinates.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from typing import Any

import numpy as np

from benchmarks.common.report import add_common_options, save
from benchmarks.common.timing import interleaved
from benchmarks.tall_logistic.chains import Chains, agreement, effective_sizes, moments
from benchmarks.tall_logistic.data import HARD_ROWS, ROWS, Data, hard_data, independent_data, mode_of
from benchmarks.tall_logistic.methods import BY_HAND, RIVALS_FROM, Method, hard_methods, methods
from benchmarks.tall_logistic.tables import table_of

EFFECTIVE = 1000  # draws that ESS/s with set-up is for


def summary(chains: Chains, seconds: np.ndarray) -> dict[str, Any]:
    """The figures of one method's chains, from the seconds of their repetitions."""
    draws, statistics = chains.draws, chains.statistics
    num_chains, per_chain, _ = draws.shape
    per_iteration = seconds * len(seconds) / per_chain
    sizes = effective_sizes(draws) / (num_chains * per_chain)
    per_second = float(num_chains * sizes.min() / np.median(per_iteration))
    whole = chains.setup_seconds + (EFFECTIVE / per_second if per_second else math.inf)
    return {
        "draws": num_chains * per_chain,
        "num_chains": num_chains,
        "microseconds": [float(1e6 * f(per_iteration)) for f in (np.median, np.min, np.max)],
        "seconds": [float(x) for x in per_iteration],
        "ess_per_draw": {"worst": float(sizes.min()), "median": float(np.median(sizes))},
        "ess_per_second": per_second,
        "setup_seconds": chains.setup_seconds,
        "ess_per_second_with_setup": EFFECTIVE / whole,
        **{name: float(values.mean()) for name, values in statistics.items()},
    }


def measure(data: dict[int, Data], chosen: dict[int, dict[str, Method]], repeats: int) -> dict[int, dict[str, Any]]:
    """Every method on every number of rows, taking turns."""
    chains: dict[tuple[int, str], Chains] = {}
    for num_rows, by_name in chosen.items():
        begin = time.perf_counter()
        mode = mode_of(data[num_rows])
        mode_seconds = time.perf_counter() - begin
        for name, method in by_name.items():
            chains[num_rows, name] = Chains(method, data[num_rows], mode, mode_seconds)
    keys = {f"{num_rows} {name}": (num_rows, name) for num_rows, name in chains}
    seconds = interleaved({label: chains[key].repeat for label, key in keys.items()}, repeats, warmup=0)
    results: dict[int, dict[str, Any]] = {num_rows: {} for num_rows in chosen}
    for label, (num_rows, name) in keys.items():
        results[num_rows][name] = summary(chains[num_rows, name], seconds[label])
    for num_rows, by_name in results.items():
        found = {name: moments(chains[num_rows, name].draws) for name in by_name}
        first = next(iter(by_name))
        for name, figures in by_name.items():
            figures["agreement"] = {
                other: agreement(found[name], found[other]) for other in (first, "NUTS") if other in found
            }
    return results


def print_results(results: dict[int, dict[str, Any]]) -> None:
    """The table, and by what the best setting of each rival is behind."""
    print(table_of(results))
    for num_rows, by_name in results.items():
        best: dict[str, dict[str, Any]] = {}
        for name, figures in by_name.items():
            kind = BY_HAND + " HMCECS" if name.startswith(BY_HAND) else name.split()[0]
            if kind not in best or figures["ess_per_second"] > best[kind]["ess_per_second"]:
                best[kind] = figures
        ours = best.pop("PenaltyMH")
        for kind, theirs in best.items():
            low, median, high = advantage(ours, theirs)
            print(
                f"{num_rows:,} rows: PenaltyMH has {median:.3g} [{low:.3g}, {high:.3g}] times the ESS/s of {kind}, "
                "best settings, by repetition"
            )


def advantage(ours: dict[str, Any], theirs: dict[str, Any]) -> list[float]:
    """Quartiles, over repetitions, of one method's ESS/s divided by another's."""
    per_repetition = (
        figures["ess_per_draw"]["worst"] * figures["num_chains"] / np.array(figures["seconds"])
        for figures in (ours, theirs)
    )
    return [float(x) for x in np.quantile(np.divide(*per_repetition), (0.25, 0.5, 0.75))]


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hard", action="store_true", help="correlated inputs with heavy tails, rare positives")
    parser.add_argument("--rows", type=int, nargs="+", help="numbers of rows; default: 10⁴, 10⁵ and 10⁶, or 10⁵")
    parser.add_argument(
        "--draws", type=int, help="of a repetition of PenaltyMH, the others fewer; default: 5000, or 2000"
    )
    parser.add_argument("--repeats", type=int, default=9)
    add_common_options(parser, ["numpyro"])
    options = parser.parse_args(arguments)
    if options.quick:
        options.rows, options.draws, options.repeats = [RIVALS_FROM], 400, 2
    rows = options.rows or (HARD_ROWS if options.hard else ROWS)
    draws = options.draws or (2000 if options.hard else 5000)
    make_data, make_methods = (hard_data, hard_methods) if options.hard else (independent_data, methods)
    load = [os.getloadavg()[0]]
    results = measure({n: make_data(n) for n in rows}, {n: make_methods(n, draws) for n in rows}, options.repeats)
    load.append(os.getloadavg()[0])
    print_results(results)
    cores = len(os.sched_getaffinity(0))
    settings = {"hard": options.hard, "draws": draws, "repeats": options.repeats, "cores": cores, "load": load}
    save(options.json, settings, results)


if __name__ == "__main__":
    main()
