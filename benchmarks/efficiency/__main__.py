"""Effective draws per data pass, per gradient and per second: our kernels, the hosts', HMCECS and hamiltorch (NumPyro).

Targets are described in ``benchmarks/efficiency/targets.py``, arms in ``arms.py``. Four vectorised chains from the
host's own starts, in float32, the hosts' default (``--float64`` for the other). The effective size is ArviZ's bulk
one, of the worse of z and z² (about the mean), of the worst judged quantity. A data pass is a gradient of all rows; a
forward pass counts as the share of one that it is measured to be on the target. Warm-up, and passes in search of what
an arm is given (mode, Hessian), have columns of their own. Seconds are those of the draws, without compiling. What is
printed is the median over seeds, and the least to the most.

Where the host's warm-up is out of reach (many rows), "given metric" is the host with its ideal diagonal metric given
(the variances of the normal distribution about the mode), started at draws of that distribution, with only the step
size to adapt in 100 iterations: more than it would have. hamiltorch and HMCECS start at the mode.

``--json FILE`` adds the arms that were run to those in the file.
"""

from __future__ import annotations

import argparse
import os
import warnings
from fnmatch import fnmatch
from typing import Any

import jax
import numpy as np

from benchmarks.common.report import add_common_options, save
from benchmarks.efficiency.arms import ARMS, Arm
from benchmarks.efficiency.hamiltorch_chains import HOW, is_installed, measure_hamiltorch
from benchmarks.efficiency.laplace import MOST_PARAMETERS, Laplace, laplace
from benchmarks.efficiency.measures import Sizes, forward_share, measure
from benchmarks.efficiency.records import interval, merged, ratios, read, values
from benchmarks.efficiency.targets import TARGETS, Target, target_of

COLUMNS = {
    "ess_per_pass": "ESS a pass",
    "ess_per_gradient": "ESS a gradient",
    "ess_per_second": "ESS/s",
    "passes_per_draw": "passes a draw",
    "warmup_passes": "passes of warm-up",
    "reference_passes": "passes of a reference",
    "steps": "steps",
    "accept_prob": "acceptance",
    "ess": "ESS",
    "rhat": "R-hat",
}
OURS = "SplitHMC"
QUICK_ROWS, QUICK_DRAWS, QUICK_ARMS = 1000, 20, [OURS, "host NUTS"]


def arms_of(target: Target, patterns: list[str] | None) -> dict[str, Arm]:
    """Those of the target's kind whose name fits, and that can be told what they are to be given."""
    return {
        name: arm
        for name, arm in ARMS.items()
        if target.kind in arm.kinds
        and (arm.given != "start" or target.num_parameters <= MOST_PARAMETERS)
        and (not patterns or any(fnmatch(name, pattern) for pattern in patterns))
    }


def run_target(target: Target, arms: dict[str, Arm], sizes: Sizes, seeds: list[int]) -> dict[str, Any]:
    """The figures of arms on a target, printed as they come."""
    share, known = forward_share(target), None
    if any(arm.given for arm in arms.values()):
        known = laplace(target)
    entry = {
        "source": target.source,
        "rows": target.num_rows,
        "parameters": target.num_parameters,
        "subsets": target.num_subsets,
        "forward_share": share,
        **({} if known is None or known.condition is None else {"condition": known.condition}),
    }
    print(f"\n{target.name}: " + ", ".join(f"{name} {value}" for name, value in entry.items()))
    for line in (("arm", *COLUMNS.values()), ["---"] * (1 + len(COLUMNS))):
        print("|", " | ".join(line), "|")
    found: dict[str, Any] = {}
    for name, arm in arms.items():
        if arm.num_steps and not is_installed():
            print(f"| {name} | not run: hamiltorch cannot be imported ({HOW}) |")
            continue
        by_seed = run_arm(target, arm, known, share, sizes, seeds)
        num_warmup, num_draws = sizes.of(arm)
        settings = {"num_chains": sizes.num_chains, "num_warmup": num_warmup, "num_samples": num_draws}
        settings |= {"float64": jax.config.read("jax_enable_x64"), "device": jax.devices()[0].device_kind}
        found[name] = {"settings": settings, "seeds": by_seed}
        cells = [interval(values({"": {"arms": found}}, "", name, field)) for field in COLUMNS]
        print("|", " | ".join([name, *cells]), "|", flush=True)
    return {**entry, "arms": found}


def run_arm(
    target: Target, arm: Arm, known: Laplace | None, share: float, sizes: Sizes, seeds: list[int]
) -> dict[str, dict[str, float]]:
    """The figures of an arm by seed, with the machine's load when it was done."""
    if arm.num_steps:
        assert known is not None
        found = {str(seed): measure_hamiltorch(target, arm, known, sizes, seed) for seed in seeds}
    else:
        found = measure(target, arm, known if arm.given else None, share, sizes, seeds)
    load = os.getloadavg()[0]
    return {seed: {**run, "load": load} for seed, run in found.items()}


def print_ratios(results: dict[str, Any], target: str) -> None:
    """The recommended kernel over every other arm."""
    for name in results[target]["arms"]:
        per = {
            text: interval(ratios(results, target, OURS, name, field))
            for field, text in (
                ("ess_per_pass", "pass"),
                ("ess_per_gradient", "gradient"),
                ("ess_per_second", "second"),
            )
        }
        if name != OURS and OURS in results[target]["arms"]:
            print(f"{target}: {OURS} over {name}: " + ", ".join(f"{ratio} a {text}" for text, ratio in per.items()))


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=["tall_20k"])
    parser.add_argument("--arms", nargs="+", metavar="PATTERN", help="names of arms, * for any text; default: all")
    parser.add_argument("--rows", type=int, help="N of regressions, for that of the target")
    parser.add_argument("--samples", type=int, default=1000, help="draws of a chain")
    parser.add_argument("--host-samples", type=int, help="of the host's and hamiltorch's; default: as --samples")
    parser.add_argument("--warmup", type=int, default=1000, help="most iterations of warm-up of any arm")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--float64", action="store_true")
    add_common_options(parser, ("numpyro",), data=True)
    options = parser.parse_args()
    if options.quick:
        options.rows, options.samples, options.seeds, options.warmup = QUICK_ROWS, QUICK_DRAWS, [1], QUICK_DRAWS
        options.arms = options.arms or QUICK_ARMS
    options.host_samples = QUICK_DRAWS if options.quick else options.host_samples or options.samples
    return options


def main() -> None:
    """Run arms on targets and print the tables."""
    options = parse()
    jax.config.update("jax_enable_x64", options.float64)
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    results: dict[str, Any] = {}
    sizes = Sizes(options.chains, options.samples, options.host_samples, options.warmup)
    for name in options.targets:
        target = target_of(name, options.rows, options.data)
        arms = arms_of(target, options.arms)
        results[name] = run_target(target, arms, sizes, options.seeds)
        print_ratios(results, name)
        save(options.json, vars(options), merged(read(options.json), results))


if __name__ == "__main__":
    main()
