"""Does a kernel with nothing but ``num_subsets`` given arrive where the host's NUTS does, and at what price?

Four chains of 300 warm-up iterations and 500 draws start from the host's own starting points, of the host's NUTS and of
ours at M = 4, on twelve posteriors of posteriordb (where they do not divide, at M = 1) and ten that are badly scaled or
hierarchical. For each the largest R-hat is printed, the fewest effective draws, the largest |z| of means and standard
deviations against the host's run (standard errors of both), gradients (in data passes, warm-up included) over the
host's, and what the report calls trouble; ``S3HMC`` where a precision scales weights. ``--only NAME`` takes some
targets (the data of ``diamonds`` are looked for in the directory that SPLIT_MCMC_DATA names), ``--kernels NAME`` some
kernels, ``--seeds`` some seeds. A file that ``--json FILE`` names is added to: what it holds is not run again.
"""

from __future__ import annotations

import argparse
import functools
import json
import warnings
from typing import Any

from benchmarks.arrival.record import HOST, Record, Rows
from benchmarks.arrival.runs import NUM_CHAINS, NUM_DRAWS, NUM_SUBSETS, NUM_WARMUP, compare, host_of, runs_of
from benchmarks.arrival.targets import NUMPYRO_ONLY, OURS, POSTERIORDB, UNDIVIDED, Target, target_of
from benchmarks.common.report import add_common_options
from tests.backends import NumPyroBackend, PyroBackend

KERNELS = ("SymmetricSplitHMC", "SplitNUTS", "S3HMC")
NO_WEIGHTS = "the model must have weights with a precision"  # of which S3HMC says that it does not apply
SIZES = {"warmup": NUM_WARMUP, "draws": NUM_DRAWS, "chains": NUM_CHAINS, "num_subsets": NUM_SUBSETS}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_common_options(parser, one_at_a_time=True)
    parser.add_argument("--only", nargs="*", metavar="NAME", help="names of targets; default all")
    parser.add_argument("--kernels", nargs="*", choices=KERNELS, default=KERNELS)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lib = NumPyroBackend() if options.framework == "numpyro" else PyroBackend()
    lib.set_precision(64)
    record = Record(options.json, {"framework": lib.name, **SIZES})
    for name in options.only or (["counts"] if options.quick else [*POSTERIORDB, *OURS]):
        seeds = record.missing(name, options.kernels, options.seeds)
        if not seeds or (lib.name != "numpyro" and name in NUMPYRO_ONLY):
            continue
        for seed, rows in zip(seeds, rows_of(name, target_of(name), lib, options.kernels, seeds), strict=True):
            record.add(name, seed, rows)
            for kernel, row in rows.items():
                print(f"{name:<30}{kernel:<20}{seed:<3}{json.dumps(row)}", flush=True)


def rows_of(name: str, target: Target, lib: Any, kernels: list[str], seeds: list[int]) -> list[Rows]:
    """Rows of a target by kernel, for each seed."""
    model, args = target.model(lib), tuple(lib.array(x) for x in target.data)
    num_subsets = 1 if name in UNDIVIDED else min(NUM_SUBSETS, len(target.data[0]))
    host = runs_of(lib, host_of(lib, model), args, None, seeds)
    rows: list[dict[str, Any]] = [{HOST: compare(run, run)} for run in host]
    for kernel in kernels:
        make = functools.partial(getattr(lib.split, kernel), model, num_subsets=num_subsets)
        try:
            ours = runs_of(lib, make, args, num_subsets, seeds)
        except ValueError as error:
            if not str(error).startswith(NO_WEIGHTS):
                raise
            ours = [None] * len(seeds)
        for row, a, b in zip(rows, ours, host, strict=True):
            row[kernel] = None if a is None else compare(a, b)
    return list(rows)


if __name__ == "__main__":
    main()
