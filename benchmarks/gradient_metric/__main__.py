"""A metric from draws and gradients, after 200 iterations of warm-up, against the host's NUTS after 1,000 (NumPyro).

Six normal targets of D = 50 dimensions: independent, of standard deviations over 10⁴, autocorrelated by 0.9,
equicorrelated by 0.9, rotated of condition 1,000, and of three factors; and twelve posteriors of posteriordb. One
subset, whose draws are those of the host but for the metric; four vectorised chains from the host's own starts, in
float64. The effective size is ArviZ's bulk one, of the worse of z and z² (about the mean), of the worst coordinate of
the model's sites; gradients of warm-up are counted apart. What is compared is seeds' ratios: their median by target
and, over targets, the median and the worst of these medians, with the least and the most of the same statistic of
single seeds.

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
from jax import random
from numpyro.infer import MCMC, NUTS

from benchmarks.common.report import add_common_options, save
from benchmarks.efficiency.measures import effective_size
from benchmarks.gradient_metric.targets import TARGETS, Target, target_of
from numpyro_split import SplitNUTS
from split_common.datasets import DATA_VARIABLE

NUM_CHAINS = 4
QUICK_TARGETS = ["AR(1), 0.9", "eight_schools_noncentered"]


def run(
    kernel: Any, target: Target, num_warmup: int, num_samples: int, counts: str, seeds: list[int]
) -> list[dict[str, float]]:
    """For each seed effective draws a gradient, gradients a draw, and those of a chain's warm-up; compiled once."""
    made = MCMC(
        kernel,
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=NUM_CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    runs = []
    for seed in seeds:
        made.post_warmup_state = None
        made.warmup(random.key(2 * seed), *target.args, extra_fields=(counts,), collect_warmup=True)
        of_warmup = float(np.sum(made.get_extra_fields()[counts])) / NUM_CHAINS
        made.run(random.key(2 * seed + 1), *target.args, extra_fields=(counts,))
        num_grads = float(np.sum(made.get_extra_fields()[counts]))
        sites = made.get_samples(group_by_chain=True).values()
        x = np.concatenate([np.asarray(u).reshape(NUM_CHAINS, num_samples, -1) for u in sites], axis=2)
        figures = {
            "ess_per_gradient": effective_size(x) / num_grads,
            "gradients_per_draw": num_grads / NUM_CHAINS / num_samples,
            "warmup_gradients": of_warmup,
        }
        runs.append(figures)
    return runs


def compare(target: Target, options: argparse.Namespace) -> dict[str, Any]:
    """Both kernels with every seed, and ratios."""
    samples, seeds = options.samples, options.seeds
    ours = run(SplitNUTS(target.model, 1, metric="auto"), target, options.warmup, samples, "num_grads", seeds)
    hosts = run(NUTS(target.model), target, options.host_warmup, samples, "num_steps", seeds)
    ratios = [a["ess_per_gradient"] / b["ess_per_gradient"] for a, b in zip(ours, hosts, strict=True)]
    return {"auto": ours, "host": hosts, "ratios": ratios}


def summary(results: dict[str, Any]) -> dict[str, list[float]]:
    """Median and worst over targets of the median ratio, each with the least and the most of single seeds."""
    by_target = [found["ratios"] for found in results.values()]
    number = min(len(ratios) for ratios in by_target)
    medians = [float(np.median(ratios)) for ratios in by_target]
    seeds = np.array([ratios[:number] for ratios in by_target])
    return {
        name: [float(statistic(medians)), float(statistic(seeds, axis=0).min()), float(statistic(seeds, axis=0).max())]
        for name, statistic in (("median", np.median), ("worst", np.min))
    }


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
