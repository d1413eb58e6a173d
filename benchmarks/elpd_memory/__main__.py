"""Memory that leave-one-out and WAIC take at a million rows of a thousand draws, read by blocks of rows.

``python -m benchmarks.elpd_memory`` writes log-likelihoods of a linear regression with 10 columns, at draws from its
posterior, in float32 to a store, as ``log_likelihood(..., into=PATH)`` of either package does, in blocks of a tenth of
the rows; and prints the peak of the resident memory of a process of its own that reads them and computes, and its
seconds. All numbers at once take 4 GB in the store, and 8 GB in the float64 that is computed in. ``--rows`` and
``--draws`` take other numbers; the store lies in a temporary folder, and is deleted.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator

import numpy as np
import xarray

from benchmarks.common.report import add_common_options, save, verdict
from split_common.runs.elpd import loo, waic
from split_common.runs.pointwise import LOG_LIKELIHOOD, Grid, Piece, Posterior, collected
from split_common.runs.reading import dataset_in

CRITERIA = {"loo": loo, "waic": waic}
COLUMNS, CHAINS, BLOCKS, DRAWS_PER_BATCH = 10, 4, 10, 100
GOAL = 2.0  # GiB


def write(path: str, rows: int, num_draws: int) -> None:
    """Write the log-likelihoods of a regression with known noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, COLUMNS), np.float32)
    y = X.sum(axis=1) + rng.standard_normal(rows, np.float32)
    covariance = np.linalg.inv(X.T @ X)
    mean = covariance @ (X.T @ y)
    b = rng.multivariate_normal(mean, covariance, size=(CHAINS, num_draws // CHAINS)).astype(np.float32)
    posterior = Posterior({"b": b})
    grid = Grid.of(rows, rows // BLOCKS, DRAWS_PER_BATCH, whole=False)

    def pieces() -> Iterator[Piece]:
        for batch in posterior.batches(grid.draws_per_batch):
            draws = b[batch.chain, batch.start : batch.stop]
            for block in grid.blocks:
                error = y[block.start : block.stop] - draws @ X[block.start : block.stop].T
                yield Piece(batch, block, {"y": -0.5 * (error**2 + np.float32(np.log(2 * np.pi)))})

    collected(pieces(), posterior, grid, {"y": -1}, LOG_LIKELIHOOD, path)


def measured(criterion: str, path: str) -> dict[str, float]:
    """Peak memory, seconds and result of a criterion in this process."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    start = time.perf_counter()
    options = {"reff": 1.0} if criterion == "loo" else {}  # these draws are independent
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of single rows
        found = CRITERIA[criterion](dataset_in(path, LOG_LIKELIHOOD), **options)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    result = xarray.DataArray([found[f"elpd_{criterion}"], found["se"], found[f"p_{criterion}"]]).values
    assert np.isfinite(result).all()
    names = ("elpd", "se", "p")
    return {"peak_gib": peak, "imports_gib": before, "seconds": seconds, **dict(zip(names, result, strict=True))}


def in_a_process(*arguments: str) -> str:
    """What this script prints when it is run with arguments in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.elpd_memory", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, help="default 10⁶")
    parser.add_argument("--draws", type=int, help="default 1,000, in 4 chains")
    parser.add_argument("--step", choices=("write", *CRITERIA), help="one step alone, in this process")
    parser.add_argument("--store", help="path of the store of a step")
    add_common_options(parser, frameworks=())
    options = parser.parse_args()
    rows = options.rows or (10**4 if options.quick else 10**6)
    num_draws = options.draws or (100 if options.quick else 1000)
    if options.step == "write":
        write(options.store, rows, num_draws)
        return
    if options.step:
        print(json.dumps(measured(options.step, options.store)))
        return
    with tempfile.TemporaryDirectory() as folder:
        place = ["--store", f"{folder}/run.zarr", "--rows", str(rows), "--draws", str(num_draws)]
        in_a_process("--step", "write", *place)
        results = {name: json.loads(in_a_process("--step", name, *place)) for name in CRITERIA}
    for name, found in results.items():
        peak = found["peak_gib"]
        print(f"{name:6}{peak:6.2f} GiB, {verdict(peak, GOAL)}{found['seconds']:10.0f} s", flush=True)
    save(options.json, {"rows": rows, "draws": num_draws, "columns": COLUMNS, "dtype": "float32"}, results)


if __name__ == "__main__":
    main()
