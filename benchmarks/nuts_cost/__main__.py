"""SplitNUTS at M = 1 against the host's NUTS: time per gradient, and effective draws per gradient.

Time: some iterations from a warmed-up state of each, in turn, divided by the gradients in them; compiled before the
clock starts (Pyro's NUTS with its jit). Between gradients both do the work of a tree, which counts where a gradient is
cheap.
Efficiency: smallest effective sample size over all coordinates of four chains, over their gradients after warm-up; the
ratio's mean and standard error over independent runs of both.
"""

from __future__ import annotations

import argparse
import importlib
from typing import Any

import arviz as az
import numpy as np

from benchmarks.common.report import add_common_options, chosen, save, verdict
from benchmarks.common.timing import Spread, interleaved
from benchmarks.nuts_cost.tables import efficiency_ratio, time_ratio
from benchmarks.nuts_cost.targets import TARGETS, data

GOAL = 1.10
NAMES = ("host", "split")


def time_per_gradient(samplers: dict[str, Any], iterations: int, repeats: int) -> dict[str, Any]:
    """Microseconds per gradient of each sampler, and the ratio within rounds."""
    states = {name: sampler.warmed_up(seed=0) for name, sampler in samplers.items()}
    num_grads: dict[str, list[int]] = {name: [] for name in samplers}

    def action(name: str) -> Any:
        return lambda: num_grads[name].append(samplers[name].advance(states[name], iterations))

    seconds = interleaved({name: action(name) for name in samplers}, repeats)
    micro = {name: 1e6 * seconds[name] / np.array(num_grads[name][-repeats:]) for name in samplers}
    ratio = Spread.of(micro["split"] / micro["host"])._asdict()
    return {f"{name}_us": float(np.median(micro[name])) for name in NAMES} | {"time_ratio": ratio}


def efficiency(sampler: Any, seed: int, draws: int) -> float:
    """Smallest effective sample size of four chains, per thousand gradients."""
    sites, num_grads = sampler.chains(seed, draws)
    return 1000 * min(float(az.ess(x, method="mean").x.min()) for x in map(_dataset, sites.values())) / num_grads


def _dataset(x: np.ndarray) -> Any:
    return az.convert_to_dataset({"x": x})


def measure(framework: str, target: str, options: argparse.Namespace) -> dict[str, Any]:
    """Both samplers on one target."""
    side = importlib.import_module(f"benchmarks.nuts_cost.{framework}_nuts")
    arguments = data(target, options.quick)
    samplers = {name: side.Sampler(name, target, arguments, options.warmup) for name in NAMES}
    timed = time_per_gradient(samplers, options.iterations[framework], options.repeats)
    found = {n: [efficiency(s, seed, options.draws) for seed in range(options.runs)] for n, s in samplers.items()}
    return {"framework": framework, "target": target} | timed | {f"{n}_ess": found[n] for n in NAMES}


def print_result(result: dict[str, Any]) -> None:
    """One line of the table."""
    print(
        "{framework:8s} {target:13s}{host_us:9.1f}{split_us:9.1f}".format(**result),
        f"    {time_ratio(result)}",
        f" {verdict(result['time_ratio']['median'], GOAL):18s}",
        f"{np.mean(result['host_ess']):8.1f}{np.mean(result['split_ess']):8.1f}",
        f"  {efficiency_ratio(result)}",
        flush=True,
    )


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common_options(parser)
    parser.add_argument("--target", choices=[*TARGETS, "both"], default="both", help="one of them, or all")
    parser.add_argument("--repeats", type=int, default=15, help="rounds of measurement")
    parser.add_argument("--runs", type=int, default=4, help="independent runs of four chains, for the efficiency")
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--draws", type=int, default=500)
    options = parser.parse_args(arguments)
    options.iterations = {"numpyro": 500, "pyro": 50}
    if options.quick:
        options.repeats, options.runs, options.warmup, options.draws = 3, 2, 100, 100
    print("times in microseconds per gradient; ratio: median [quartiles] over rounds; ESS per thousand gradients")
    headings = ("framework", "target", "host", "split", "split / host", "host", "split")
    print("{:8s} {:12s}{:>9s}{:>9s}   {:37s}{:>8s}{:>8s}  ratio".format(*headings))
    results = []
    for framework in chosen(options.framework, ("numpyro", "pyro")):
        for target in chosen(options.target, TARGETS):
            results.append(measure(framework, target, options))
            print_result(results[-1])
    save(options.json, {k: getattr(options, k) for k in ("warmup", "draws", "runs", "repeats")}, results)


if __name__ == "__main__":
    main()
