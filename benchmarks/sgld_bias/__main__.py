"""Bias of SGLD and SGHMC by step size and batch size, beside exact chains of equal cost (NumPyro).

Logistic regression of 10,000 rows and 10 weights. Every chain reads as many rows, ``--passes`` times all of them, after
a warm-up whose passes are listed apart; four chains start from draws of the Laplace approximation, so what is seen is
bias and slow mixing, not the way there. SGHMC takes 10 steps an iteration, friction 0.1, and draws its momentum afresh.

"mean" is the root mean square over weights of (mean - exact mean) in exact standard deviations, Monte Carlo error
included; "sd" the geometric mean over weights of sd over exact sd, and its range; ESS (of all chains together) and
R-hat are those of the worst weight. Exact moments are the host's NUTS with many draws, compared with the Laplace
approximation.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import arviz as az
import numpy as np

from benchmarks.common.report import add_common_options, save
from benchmarks.sgld_bias import numpyro_sgld as side

EXACT = ("host NUTS", "SymmetricSplitHMC")
# of SGHMC smaller, whose ten steps of size η move about as far as one of SGLD of size 100 η
STEP_SIZES = {"SGLD": (1e-6, 1e-5, 1e-4), "SGHMC": (1e-7, 1e-6, 1e-5)}
BATCH_SIZES = (10, 100, 1000)
ADAPTING = 200  # iterations of the exact kernels
KEPT = 2000  # draws of a chain, at most
HEADINGS = (
    "method",
    "batch",
    "step",
    "iterations",
    "warm-up passes",
    "mean",
    "sd [range]",
    "ESS",
    "R-hat",
    "diverging",
)


def figures(w: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> dict[str, float]:
    """What the table holds of draws of shape (chains, draws, D)."""
    ratios = w.std(axis=(0, 1)) / sd
    dataset = az.convert_to_dataset({"w": w})
    return {
        "mean": float(np.sqrt(np.mean(((w.mean(axis=(0, 1)) - mean) / sd) ** 2))),
        "sd": float(np.exp(np.mean(np.log(ratios)))),
        "sd_least": float(ratios.min()),
        "sd_most": float(ratios.max()),
        "ess": float(az.ess(dataset)["w"].min()),
        "r_hat": float(az.rhat(dataset)["w"].max()),
    }


def approximate(
    method: str, batch_size: int, step_size: float, passes: int, start: side.Normal, arguments: Any
) -> tuple[np.ndarray, dict[str, Any]]:
    """Draws of a stochastic-gradient kernel, and what they cost."""
    num_steps = side.NUM_STEPS if method == "SGHMC" else 1
    iterations = passes * side.NUM_ROWS // (batch_size * num_steps)
    thinning = max(1, iterations // KEPT)
    begin = time.perf_counter()
    kernel = side.approximate(method, step_size, batch_size)
    draws = side.sample(kernel, iterations // 10, iterations, thinning, start, arguments, ("diverging",))
    cost = {"iterations": iterations, "warmup_passes": passes / 10, "seconds": time.perf_counter() - begin}
    return draws.w, cost | {"diverging": int(draws.statistics["diverging"].sum())}


def exact(method: str, passes: int, start: side.Normal, arguments: Any) -> tuple[np.ndarray, dict[str, Any]]:
    """Draws of an exact kernel, as many as the passes over the data allow, and what they cost."""
    kernel, statistic, per_pass = side.exact(method)
    begin = time.perf_counter()
    draws = side.sample(kernel, ADAPTING, passes, 1, start, arguments, (statistic, "diverging"), collect_warmup=True)
    warmup_passes = draws.warmup_statistics[statistic].sum(axis=1).mean() / per_pass
    spent = np.cumsum(draws.statistics[statistic], axis=1).max(axis=0) / per_pass
    iterations = int(np.searchsorted(spent, passes, side="right"))
    cost = {"iterations": iterations, "warmup_passes": warmup_passes, "seconds": time.perf_counter() - begin}
    return draws.w[:, :iterations], cost | {"diverging": int(draws.statistics["diverging"][:, :iterations].sum())}


def print_result(result: dict[str, Any]) -> None:
    """One line of the table."""
    batch, step = result.get("batch_size", "all"), result.get("step_size", "adapted")
    print(
        f"| {result['method']} | {batch} | {step} | {result['iterations']:,} | {result['warmup_passes']:.0f} |",
        f"{result['mean']:.2f} |",
        f"{result['sd']:.2f} [{result['sd_least']:.2f}, {result['sd_most']:.2f}] |",
        f"{result['ess']:.0f} | {result['r_hat']:.2f} | {result['diverging']} |",
        flush=True,
    )


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=300, help="over the data, of each chain")
    parser.add_argument("--reference", type=int, default=2000, help="draws of each chain of the exact moments")
    add_common_options(parser, ["numpyro"])
    options = parser.parse_args(arguments)
    if options.quick:
        options.passes, options.reference = 20, 100
    batch_sizes = BATCH_SIZES[1:2] if options.quick else BATCH_SIZES
    rows = side.data()
    start = side.laplace(*rows)
    w = side.sample(side.exact("host NUTS")[0], 300, options.reference, 1, start, rows, ("num_steps",)).w
    mean, sd = w.mean(axis=(0, 1)), w.std(axis=(0, 1))
    check = figures(w, start.mean, np.sqrt(np.diag(start.covariance)))
    print(f"exact moments against the Laplace approximation: mean off {check['mean']:.3f}, sd ratio {check['sd']:.3f}")
    print("| " + " | ".join(HEADINGS) + " |")
    print(len(HEADINGS) * "|---" + "|", flush=True)
    results: list[dict[str, Any]] = []
    for method, step_sizes in STEP_SIZES.items():
        for batch_size in batch_sizes:
            for step_size in step_sizes:
                draws, cost = approximate(method, batch_size, step_size, options.passes, start, rows)
                case = {"method": method, "batch_size": batch_size, "step_size": step_size}
                results.append(case | cost | figures(draws, mean, sd))
                print_result(results[-1])
    for method in EXACT:
        draws, cost = exact(method, options.passes, start, rows)
        results.append({"method": method} | cost | figures(draws, mean, sd))
        print_result(results[-1])
    settings = {"rows": side.NUM_ROWS, "dim": side.DIM, "chains": side.CHAINS, "passes": options.passes}
    save(options.json, settings | {"reference_draws": options.reference, "laplace": check}, results)


if __name__ == "__main__":
    main()
