"""A metric from draws and gradients, after 200 iterations of warm-up, against the host's NUTS after 1,000 (NumPyro).

Six normal targets of D = 50 dimensions: independent, of standard deviations over 10⁴, autocorrelated by 0.9,
equicorrelated by 0.9, rotated of condition 1,000, and of three factors; and twelve posteriors of posteriordb. One
subset, whose draws are those of the host but for the metric; four vectorised chains from the host's own starts, in
float64. The effective size is ArviZ's bulk one, of the worse of z and z² (about the mean), of the worst coordinate of
the model's sites; gradients of warm-up are counted apart. What is compared is seeds' ratios: their median by target
and, over targets, the median and the worst of these medians, with the same statistics of each target's least seed and
of its most.

The data of one posterior, ``diamonds``, are looked for in ``posteriordb`` under the directory that ``--data`` or the
environment variable SPLIT_MCMC_DATA names; without it, it is left out and this is said. ``--json FILE`` adds the
targets that were run to those in the file.
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
from numpyro_split import SplitNUTS
from split_common.datasets import DATA_VARIABLE

QUICK_TARGETS = ["AR(1), 0.9", "eight_schools_noncentered"]


def compare(target: Target, options: argparse.Namespace) -> dict[str, Any]:
    """Both kernels with every seed, and ratios."""
    samples, seeds = options.samples, options.seeds
    kernel = SplitNUTS(target.model, 1, metric="auto")
    ours = run(kernel, options.warmup, samples, "num_grads", seeds, target.args)
    hosts = run(NUTS(target.model), options.host_warmup, samples, "num_steps", seeds, target.args)
    ratios = [a["ess_per_gradient"] / b["ess_per_gradient"] for a, b in zip(ours, hosts, strict=True)]
    return {"auto": ours, "host": hosts, "ratios": ratios}


def summary(results: dict[str, Any]) -> dict[str, list[float]]:
    """Median and worst over targets of the median ratio of seeds; the same of each target's least, and of its most."""
    by_target = [found["ratios"] for found in results.values()]
    of_seeds = [[float(f(ratios)) for ratios in by_target] for f in (np.median, np.min, np.max)]
    return {name: [float(f(ratios)) for ratios in of_seeds] for name, f in (("median", np.median), ("worst", np.min))}


def line(name: str, found: dict[str, Any]) -> str:
    """A target's line of the table."""
    of_arms, ratios = (found["auto"], found["host"]), found["ratios"]
    sizes, warmups = (
        [float(np.median([run[field] for run in arm])) for arm in of_arms]
        for field in ("ess_per_gradient", "warmup_gradients")
    )
    cells = [f"{size:.4f}" for size in sizes] + [f"{np.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"]
    return " ".join(["|", " | ".join([name, *cells, *(f"{number:,.0f}" for number in warmups)]), "|"])


HEADER = ("target", "metric auto", "host NUTS", "ratio (least to most)", "warm-up", "host's warm-up")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, metavar="NAME", help=", ".join(TARGETS))
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
        results[name] = compare(target, options)
        print(line(name, results[name]), flush=True)
        jax.clear_caches()
        save(options.json, vars(options), results)
    for name, (middle, least, most) in summary(results).items() if results else ():
        print(f"{name} of {len(results)} targets: {middle:.2f} ({least:.2f} to {most:.2f})")


if __name__ == "__main__":
    main()
