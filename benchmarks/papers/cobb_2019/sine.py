"""The regression of Cobb and others (2019): y = sin x + N(0, 0.1²) by tanh networks whose precisions are sampled.

Networks [1, 50, 1] and [1, 50, 50, 1] with the output precision fixed at 1/0.1², and the first with an output
precision λ ~ Gamma(α, 1) for α = 1, 10 and 100. The paper's log p(Y | X) is printed beside two averages of the
likelihood over the draws, and beside the first of them without the normal density's constant: see the README.
"""

from __future__ import annotations

import argparse
import importlib
import time
from typing import Any

import arviz as az

from benchmarks.common.report import add_common_options, save, size_named
from benchmarks.papers.cobb_2019.figures import sine_figures
from benchmarks.papers.cobb_2019.regression import CASES, Case, Chain, figures_of, load

SIZES = {
    "quick": {"chains": 2, "warmup": 10, "draws": 10},
    "default": {"chains": 2, "warmup": 500, "draws": 500},
    "full": {"chains": 4, "warmup": 1000, "draws": 1000},
}
DEFAULT_IN_PYRO = {"chains": 2, "warmup": 50, "draws": 50}  # where a step takes some 2 ms instead of 0.03


def run_case(host: Any, case: Case, size: dict[str, int], seed: int) -> tuple[Chain, dict[str, Any]]:
    """All chains of a case, one after the other, joined; and its figures."""
    x, y = load()
    clock = time.perf_counter()
    sampler = host.Sampler(case, x, y, size["warmup"], size["draws"])
    chains = [sampler.chain(seed + i) for i in range(size["chains"])]
    seconds = time.perf_counter() - clock
    joined = Chain(az.concat([chain.draws for chain in chains], dim="chain"), chains[0].output_in_warmup)
    return joined, {"name": case.name, "seconds": seconds, **figures_of(joined.draws, case, x, y)}


def print_header() -> None:
    """What the columns hold."""
    print(f"{'':15s} {'log p(Y | X): paper':>19s} {'mean':>8s} {'log mean':>8s} {'no const':>8s}", end=" ")
    print(f"{'accept':>6s} {'step':>7s} {'steps':>5s} {'div':>3s} {'min ESS':>7s} {'R-hat':>6s} {'s':>5s}")


def print_result(result: dict[str, Any]) -> None:
    """One case, and its precisions below it."""
    precisions = result["precisions"]
    print(
        f"{result['name']:15s} {result['paper']:19.2f} {result['expected']:8.2f} {result['log_mean']:8.2f}",
        f"{result['expected_without_constant']:8.2f} {result['accept_prob']:6.2f} {result['step_size']:7.4f}",
        f"{result['num_steps']:5.0f} {result['diverging']:3d} {min(p['ess'] for p in precisions.values()):7.0f}",
        f"{max(p['r_hat'] for p in precisions.values()):6.2f} {result['seconds']:5.0f}",
    )
    for name, p in precisions.items():
        interval = f"[{p['q05']:.3g}, {p['q95']:.3g}]"
        print(f"    {name:10s} {p['mean']:8.3g} {interval:18s} ESS {p['ess']:.0f}, R-hat {p['r_hat']:.3f}", flush=True)


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common_options(parser, full="4 chains of 1,000 + 1,000; hours in Pyro", one_at_a_time=True)
    parser.add_argument("--chains", type=int)
    parser.add_argument("--warmup", type=int, help="iterations of each chain before its draws")
    parser.add_argument("--draws", type=int, help="of each chain")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="names of cases; default all, with --quick the first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figures", help="directory to draw the figures in; needs all cases")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Run, print, draw and save."""
    options = parse_options(arguments)
    wanted = options.only or [case.name for case in CASES[: 1 if options.quick else None]]
    cases = [case for case in CASES if case.name in wanted]
    if not cases or (options.figures and len(cases) < len(CASES)):
        raise SystemExit(f"--only must name some of {[case.name for case in CASES]}, all for --figures")
    name = size_named(options)
    size = DEFAULT_IN_PYRO if (name, options.framework) == ("default", "pyro") else SIZES[name]
    size = size | {name: getattr(options, name) for name in size if getattr(options, name) is not None}
    host = importlib.import_module(f"benchmarks.papers.cobb_2019.{options.framework}_regression")
    print(f"{options.framework}, {size}")
    print_header()
    chains, results = {}, []
    for case in cases:
        chains[case], result = run_case(host, case, size, options.seed)
        results.append(result)
        print_result(result)
    if options.figures:
        sine_figures(options.figures, chains, options.framework)
    save(options.json, size | {"framework": options.framework, "seed": options.seed}, results)


if __name__ == "__main__":
    main()
