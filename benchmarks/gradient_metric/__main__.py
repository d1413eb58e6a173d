"""A metric from draws and gradients, after 200 iterations of warm-up, against the host's NUTS after 1,000 (NumPyro).

Six normal targets of D = 50 dimensions: independent, of standard deviations over 10⁴, autocorrelated by 0.9,
equicorrelated by 0.9, rotated of condition 1,000, and of three factors; and twelve posteriors of posteriordb. One
subset; four vectorised chains from the host's own starts, in float64. ``SplitNUTS(metric="auto")`` ("auto") makes the
host's draws but for the metric; ``SplitHMC`` by its defaults ("default") has that metric and harmonic drifts, where the
posterior is near enough to normal. The effective size is ArviZ's bulk one, of the worse of z and z² (about the mean),
of the worst coordinate of the model's sites; gradients of warm-up are counted apart. What is compared is seeds' ratios:
their median by target and, over targets, the median and the worst of these medians, with the same statistics of each
target's least seed and of its most.

The data of one posterior, ``diamonds``, are looked for in ``posteriordb`` under the directory that ``--data`` or the
environment variable SPLIT_MCMC_DATA names; without it, it is left out and this is said. ``--json FILE`` adds the
targets and ``--arms`` that were run to those in the file.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpyro.infer import NUTS

from benchmarks.common.report import add_common_options, save
from benchmarks.gradient_metric import large
from benchmarks.gradient_metric.runs import run
from benchmarks.gradient_metric.targets import TARGETS, Target, target_of
from numpyro_split import SplitHMC, SplitNUTS
from split_common.datasets import DATA_VARIABLE

ARMS = ("auto", "default", "host")
QUICK_TARGETS = ["AR(1), 0.9", "eight_schools_noncentered"]


def compare(target: Target, options: argparse.Namespace) -> dict[str, Any]:
    """The arms that were asked for, each with every seed."""
    arms = {
        "auto": (SplitNUTS(target.model, 1, metric="auto"), options.warmup, "num_grads"),
        "default": (SplitHMC(target.model, 1), options.warmup, "num_grads"),
        "host": (NUTS(target.model), options.host_warmup, "num_steps"),
    }
    made = {name: arms[name] for name in options.arms}
    return {
        name: run(kernel, num_warmup, options.samples, counts, options.seeds, target.args)
        for name, (kernel, num_warmup, counts) in made.items()
    }


def with_ratios(found: dict[str, Any]) -> dict[str, Any]:
    """A target's runs, with the ratios of each arm to the host, seed by seed, where both were run."""
    for name, ratios in (("auto", "ratios"), ("default", "default_ratios")):
        if name in found and "host" in found:
            pairs = zip(found[name], found["host"], strict=True)
            found[ratios] = [a["ess_per_gradient"] / b["ess_per_gradient"] for a, b in pairs]
    return found


def summary(results: dict[str, Any], ratios: str = "ratios") -> dict[str, list[float]]:
    """Median and worst over targets of the median ratio of seeds; the same of each target's least, and of its most.

    Args:
        results: the targets' runs.
        ratios: which ratios: "ratios" of ``metric="auto"``, "default_ratios" of ``SplitHMC``.
    """
    by_target = [found[ratios] for found in results.values() if ratios in found]
    if not by_target:
        return {}
    of_seeds = [[float(f(ratios)) for ratios in by_target] for f in (np.median, np.min, np.max)]
    return {name: [float(f(ratios)) for ratios in of_seeds] for name, f in (("median", np.median), ("worst", np.min))}


def line(name: str, found: dict[str, Any]) -> str:
    """A target's line of the table."""

    def median(arm: str, field: str, form: str) -> str:
        return format(np.median([run[field] for run in found[arm]]), form) if arm in found else "–"

    def spread(ratios: list[float] | None) -> str:
        return f"{np.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else "–"

    sizes = [median(arm, "ess_per_gradient", ".4f") for arm in ARMS]
    ratios = [spread(found.get(name)) for name in ("ratios", "default_ratios")]
    warmups = [median(arm, "warmup_gradients", ",.0f") for arm in ARMS]
    return " ".join(["|", " | ".join([name, *sizes, *ratios, *warmups]), "|"])


HEADER = ("target", *ARMS, "auto over host (least to most)", "default over host", *(f"warm-up of {x}" for x in ARMS))


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, metavar="NAME", help=", ".join(TARGETS))
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS, help="those to be run, among all three")
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--host-warmup", type=int, default=1000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--large", action="store_true", help="600 and 650 parameters, low rank or the host's diagonal")
    add_common_options(parser, ("numpyro",), data=True)
    options = parser.parse_args()
    if options.quick:
        options.samples, options.seeds, options.warmup, options.host_warmup = 20, [1], 50, 50
    options.targets = options.targets or (QUICK_TARGETS if options.quick else TARGETS)
    return options


def main() -> None:
    """Run both kernels on every target, with every seed, and print the table."""
    options = parse()
    if options.data:
        os.environ[DATA_VARIABLE] = options.data
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")
    if options.large:
        return save(
            options.json, vars(options), large.compare(options.warmup, options.samples, options.seeds, options.data)
        )
    path = None if options.json is None else Path(options.json)
    results = json.loads(path.read_text())["results"] if path and path.exists() else {}
    for cells in (HEADER, ["---"] * len(HEADER)):
        print("|", " | ".join(cells), "|")
    for name in options.targets:
        try:
            target = target_of(name)
        except (FileNotFoundError, ValueError) as missing:
            print(f"| {name} | not run: {missing} |")
            continue
        results[name] = with_ratios(results.get(name, {}) | compare(target, options))
        print(line(name, results[name]), flush=True)
        jax.clear_caches()
        save(options.json, vars(options), results)
    for arm, ratios in (("auto", "ratios"), ("default", "default_ratios")):
        for name, (middle, least, most) in summary(results, ratios).items():
            print(f"{arm} over host, {name} of {len(results)} targets: {middle:.2f} ({least:.2f} to {most:.2f})")


if __name__ == "__main__":
    main()
