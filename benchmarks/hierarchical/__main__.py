"""Effective draws of σ² per second and per gradient: S3HMC and block Gibbs against the host's NUTS (NumPyro).

Four models with precisions Gamma(2, 2): linear regression where the rows say little of each weight and where they say
much, effects of groups, a tanh network. The host's NUTS samples each centred and non-centred; ours are for the centred
form. Everything at its defaults (target acceptance 0.8, diagonal metric, M = 1; S3HMC also with trajectories of length
5, three times its default on average), in float32, which is the host's default.

A figure is the smaller effective sample size of σ² and of log σ, the smallest of all precisions of a model, over four
chains that run one after the other. Methods take turns in every run, and median, smallest and largest of the runs are
printed. Seconds are those of the draws; "with warm-up" counts that too, "with all" also starting and compiling, once
for each run. "log σ" is its mean over all runs, for the least well sampled precision, and its standard error: methods
that do not agree on it have not all sampled the posterior.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

import arviz as az
import numpy as np

from benchmarks.common.report import add_common_options, save
from benchmarks.hierarchical.numpyro_hierarchical import METHODS, Draws, Sampler, Target, targets
from benchmarks.hierarchical.tables import log_scale, spread

CHAINS = 4


class Run(NamedTuple):
    """What one run of four chains shows.

    Attributes:
        ess: effective sample size of the worst precision.
        per_second: of the draws alone.
        with_warmup: per second of warm-up and draws.
        with_all: per second of starting, compiling, warm-up and draws.
        per_gradient: per thousand gradients of the draws.
        grads: gradients per draw.
        steps: steps per draw.
        diverging: share of draws, in %.
        step_size: after warm-up.
        log_scales: mean of log σ and its standard error, of each precision.
    """

    ess: float
    per_second: float
    with_warmup: float
    with_all: float
    per_gradient: float
    grads: float
    steps: float
    diverging: float
    step_size: float
    log_scales: dict[str, tuple[float, float]]


def effective_size(log_scale: np.ndarray) -> float:
    """The smaller of those of σ² and log σ, shape (chains, draws)."""
    return min(float(az.ess(x, method="mean")) for x in (log_scale, np.exp(2 * log_scale)))


def summary(draws: Draws, compile_seconds: float, warmup_seconds: float, seconds: float) -> Run:
    """The figures of one run."""
    ess = min(effective_size(x) for x in draws.log_scales.values())
    num_draws = next(iter(draws.log_scales.values())).size
    return Run(
        ess=ess,
        per_second=ess / seconds,
        with_warmup=ess / (warmup_seconds + seconds),
        with_all=ess / (compile_seconds + warmup_seconds + seconds),
        per_gradient=1000 * ess / draws.num_grads,
        grads=draws.num_grads / num_draws,
        steps=draws.num_steps / num_draws,
        diverging=100 * draws.num_diverging / num_draws,
        step_size=draws.step_size,
        log_scales={n: (float(x.mean()), float(az.mcse(x, method="mean"))) for n, x in draws.log_scales.items()},
    )


def measure(target: Target, options: argparse.Namespace) -> dict[str, Any]:
    """Every method on one target, taking turns."""
    samplers, compile_seconds = {}, {}
    for method in METHODS:
        start = time.perf_counter()
        samplers[method] = Sampler(method, target, CHAINS * options.runs, options.warmup)
        compile_seconds[method] = time.perf_counter() - start
    runs: dict[str, list[Run]] = {method: [] for method in METHODS}
    for i in range(options.runs):
        for method, sampler in samplers.items():
            times = [time.perf_counter()]
            states = sampler.warm_up(range(CHAINS * i, CHAINS * (i + 1)))
            times.append(time.perf_counter())
            states, recorded = sampler.draw(states, options.draws)
            times.append(time.perf_counter())
            draws = sampler.collect(states, recorded)
            runs[method].append(summary(draws, compile_seconds[method], *np.diff(times)))
    return {
        method: {"compile_seconds": compile_seconds[method], "runs": [run._asdict() for run in found]}
        for method, found in runs.items()
    }


def print_header() -> None:
    """What the columns hold."""
    print(f"{'':22s}{'ESS of':>9s} {'ESS/s of draws':^26s} {'with':>8s} {'with':>7s} {'ESS per':^22s}")
    print(
        f"{'':22s}{'draws, %':>9s} {'median [least, most]':^26s} {'warm-up':>8s} {'all':>7s} {'1,000 gradients':^22s}",
        f"{'grads':>6s}{'steps':>6s} {'step':>6s} {'div. %':>6s}  log σ",
    )


def print_result(method: str, result: dict[str, Any], num_draws: int) -> None:
    """One line of the table."""
    runs = result["runs"]
    column = {name: np.array([run[name] for run in runs]) for name in Run._fields if name != "log_scales"}
    median = {name: float(np.median(values)) for name, values in column.items()}
    print(
        f"{method:22s}{100 * median['ess'] / num_draws:9.1f} {spread(column['per_second']):26s}",
        f"{median['with_warmup']:8.4g} {median['with_all']:7.3g} {spread(column['per_gradient']):22s}",
        f"{median['grads']:6.1f}{median['steps']:6.1f} {median['step_size']:6.2g} {median['diverging']:6.2f} ",
        log_scale(runs),
        flush=True,
    )


def main(arguments: list[str] | None = None) -> None:
    """Measure, print tables, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="independent runs of four chains")
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--draws", type=int, default=1000, help="of each chain, a multiple of the warm-up")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=list(targets()), help="names of targets")
    add_common_options(parser, ["numpyro"])
    options = parser.parse_args(arguments)
    if options.quick:
        options.runs, options.warmup, options.draws = 1, 100, 100
    if options.warmup < 1 or options.draws < 1 or options.draws % options.warmup:
        parser.error(f"--draws must be a multiple of --warmup, got {options.draws} and {options.warmup}")
    results = {}
    for name, target in targets().items():
        if options.only and name not in options.only:
            continue
        print(f"\n{name}: {target.about}")
        print_header()
        results[name] = measure(target, options)
        for method, result in results[name].items():
            print_result(method, result, CHAINS * options.draws)
        save(options.json, {"runs": options.runs, "warmup": options.warmup, "draws": options.draws}, results)


if __name__ == "__main__":
    main()
