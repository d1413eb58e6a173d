"""Does a kernel with nothing but ``num_subsets`` given arrive where the host's NUTS does, and at what price?

Four chains of 300 warm-up iterations and 500 draws start from the host's own starting points, of the host's NUTS and of
ours at M = 4, on eleven posteriors of posteriordb (where they do not divide, at M = 1) and ten that are badly scaled or
hierarchical. For each the largest R-hat is printed, the fewest effective draws, the largest |z| of means and standard
deviations against the host's run (standard errors of both), gradients (in data passes, warm-up included) over the
host's, and what the report calls trouble; ``S3HMC`` where a precision scales weights. ``--only NAME`` takes some
targets (``diamonds`` is the twelfth of posteriordb: its data are looked for in the directory that SPLIT_MCMC_DATA
names), ``--kernels NAME`` some kernels, ``--seeds`` some seeds; ``--json FILE`` keeps the results, each a list by seed.
"""

from __future__ import annotations

import argparse
import functools
import json
import warnings
from typing import Any

from benchmarks.arrival.runs import NUM_SUBSETS, compare, run_numpyro, run_pyro
from benchmarks.arrival.targets import NUMPYRO_ONLY, OURS, POSTERIORDB, UNDIVIDED, target_of
from benchmarks.common.report import add_common_options, chosen, save
from tests.backends import NumPyroBackend, PyroBackend

KERNELS = ("SymmetricSplitHMC", "SplitNUTS", "S3HMC")
NO_WEIGHTS = "the model must have weights with a precision"  # of which S3HMC says that it does not apply


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_common_options(parser)
    parser.add_argument("--only", nargs="*", metavar="NAME", help="names of targets; default all")
    parser.add_argument("--kernels", nargs="*", choices=KERNELS, default=KERNELS)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    options.only = options.only or (["counts"] if options.quick else [*POSTERIORDB, *OURS])
    found = {framework: run_targets(framework, options) for framework in chosen(options.framework, ["numpyro", "pyro"])}
    save(options.json, {"seeds": options.seeds}, found)


def run_targets(framework: str, options: argparse.Namespace) -> dict[str, Any]:
    """Rows of each target by kernel, printed as they come, and saved so far."""
    is_numpyro = framework == "numpyro"
    lib = NumPyroBackend() if is_numpyro else PyroBackend()
    lib.set_precision(64)
    run = run_numpyro if is_numpyro else run_pyro
    if is_numpyro:
        from numpyro.infer import NUTS
    else:
        from pyro.infer import NUTS
    found: dict[str, dict[str, Any]] = {}
    for name in options.only:
        if not is_numpyro and name in NUMPYRO_ONLY:
            continue
        target = target_of(name)
        model, args = target.model(lib), tuple(lib.array(x) for x in target.data)
        host = run(functools.partial(NUTS, model), args, None, options.seeds)
        rows = {"host NUTS": [compare(run, run) for run in host]}
        for kernel in options.kernels:
            num_subsets = 1 if name in UNDIVIDED else min(NUM_SUBSETS, len(target.data[0]))
            make = functools.partial(getattr(lib.split, kernel), model, num_subsets=num_subsets)
            try:
                ours = run(make, args, num_subsets, options.seeds)
            except ValueError as error:
                if not str(error).startswith(NO_WEIGHTS):
                    raise
            else:
                rows[kernel] = [compare(*pair) for pair in zip(ours, host, strict=True)]
        found[name] = rows
        for kernel, by_seed in rows.items():
            for row in by_seed:
                print(f"{name:<30}{kernel:<20}{json.dumps(row)}", flush=True)
        save(options.json, {"seeds": options.seeds}, {framework: found})
    return found


if __name__ == "__main__":
    main()
