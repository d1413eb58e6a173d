"""Rows from disk: memory and seconds per data pass of a memory-mapped table, against rows in memory.

``python -m benchmarks.rows_from_disk memory --folder DIR`` writes the table of a logistic regression, 50 columns of
float32, 12 GB of it (``--gb``), and runs ``SplitHMC`` (64 subsets, one step a trajectory) and ``PenaltyMH`` on it for
20 iterations, each in a process of its own: the most memory that it has, anonymous (which cannot be had back) and all
that is resident.

``python -m benchmarks.rows_from_disk seconds --folder DIR`` does it on 1 GB (``--gb``): whether the draws of both
kernels are those of rows in memory bit for bit, and seconds per data pass of ``SplitHMC``: in memory; from the page
cache; and from the disk, where every block is dropped from the page cache as soon as it was read, each with and without
reading ahead; beside a plain sequential read from the disk. The goal: at most 1.25 times the seconds in memory or 1.1
times those of the plain read, whichever is larger.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

from benchmarks.common.report import add_common_options, chosen, save, verdict
from benchmarks.rows_from_disk.measure import COLUMNS, OPTIONS, SUBSETS
from split_common.sources.reader import PREFETCH_VARIABLE

FRAMEWORKS = ("numpyro", "pyro")
ROW_BYTES = 4 * (COLUMNS + 1)
BLOCK_ROWS = 2**18
ITERATIONS, TIMED_ITERATIONS = 20, 5
MOST_ANONYMOUS_MIB = 2048
ALLOWED_OF_MEMORY, ALLOWED_OF_READ = 1.25, 1.1
PLACES = (("memory", "on"), ("disk", "on"), ("disk", "off"), ("cold", "on"), ("cold", "off"))


def write(folder: str, rows: int) -> None:
    """Write a table, and labels of a logistic regression on it."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=COLUMNS).astype(np.float32) / COLUMNS**0.5
    with open(f"{folder}/X", "wb") as X, open(f"{folder}/y", "wb") as y:
        for start in range(0, rows, BLOCK_ROWS):
            size = min(BLOCK_ROWS, rows - start)
            block = rng.standard_normal((size, COLUMNS), np.float32)
            X.write(block.tobytes())
            y.write((rng.random(size) < 1 / (1 + np.exp(-block @ weights))).astype(np.float32).tobytes())
        for file in (X, y):
            file.flush()
            os.fsync(file.fileno())


def drop(folder: str) -> None:
    """Drop the table from the page cache."""
    for name in ("X", "y"):
        with open(f"{folder}/{name}", "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def plain_read(folder: str, rows: int) -> float:
    """Seconds of reading so many rows from the disk, one block after the other."""
    drop(folder)
    start = time.perf_counter()
    for name, row_bytes in (("X", 4 * COLUMNS), ("y", 4)):
        with open(f"{folder}/{name}", "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            buffer, left = memoryview(bytearray(max(1, rows // SUBSETS) * row_bytes)), rows * row_bytes
            while left > 0 and (count := file.readinto(buffer[: min(len(buffer), left)])):
                left -= count
    return time.perf_counter() - start


def measured(*arguments: Any, prefetch: str = "on") -> dict[str, Any]:
    """One run in a process of its own: framework, kernel, folder, rows, place, iterations, whether timed."""
    command = [sys.executable, "-m", "benchmarks.rows_from_disk.measure", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, PREFETCH_VARIABLE: prefetch})
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def memory_of(framework: str, folder: str, rows: int) -> dict[str, Any]:
    """Memory of each kernel on the whole table."""
    results = {}
    for kernel in OPTIONS:
        found = results[kernel] = measured(framework, kernel, folder, rows, "disk", ITERATIONS, "no")
        print(
            f"{framework:8} {kernel:10} {rows * ROW_BYTES / 1e9:6.2f} GB: anonymous {found['anonymous_mib']:6.0f} MiB "
            f"({verdict(found['anonymous_mib'], MOST_ANONYMOUS_MIB)}), resident {found['resident_mib']:6.0f} MiB, "
            f"{ITERATIONS} iterations with their start {found['whole']:6.1f} s",
            flush=True,
        )
    return results


def seconds_of(framework: str, folder: str, rows: int) -> dict[str, Any]:
    """Seconds of a data pass in memory and from elsewhere, and whether draws are the same."""
    results: dict[str, Any] = {"plain read": plain_read(folder, rows)}
    print(f"{framework:8} plain sequential read {results['plain read']:6.3f} s", flush=True)
    for where, prefetch in PLACES:
        name = where if where == "memory" else f"{where}, reading ahead {prefetch}"
        if where == "cold":
            drop(folder)
        run = framework, "SplitHMC", folder, rows, where, TIMED_ITERATIONS, "yes"
        found = results[name] = measured(*run, prefetch=prefetch)
        found["same_draws"] = found["draws"] == results["memory"]["draws"]
        print(
            f"{framework:8} {name:24} {found['seconds_per_pass']:6.3f} s a data pass, draws "
            f"{'the same' if found['same_draws'] else 'OTHERS'}",
            flush=True,
        )
    allowed = max(ALLOWED_OF_MEMORY * results["memory"]["seconds_per_pass"], ALLOWED_OF_READ * results["plain read"])
    print(f"{framework:8} from the disk: {verdict(results['cold, reading ahead on']['seconds_per_pass'], allowed)}")
    pair = [measured(framework, "PenaltyMH", folder, rows, where, ITERATIONS, "no") for where in ("memory", "disk")]
    is_same = pair[0]["draws"] == pair[1]["draws"]
    print(f"{framework:8} PenaltyMH: draws {'the same' if is_same else 'OTHERS'}", flush=True)
    return results | {"PenaltyMH": dict(zip(("memory", "disk"), pair, strict=True)) | {"same_draws": is_same}}


def main() -> None:
    """Write the table, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["memory", "seconds"])
    parser.add_argument("--gb", type=float, help="size of the table, in GB; default: 12 for memory, 1 for seconds")
    parser.add_argument("--folder", help="where to write it; default: a temporary folder")
    add_common_options(parser, FRAMEWORKS)
    options = parser.parse_args()
    size = 0.01 if options.quick else options.gb or (12.0 if options.what == "memory" else 1.0)
    rows, results = int(size * 1e9 / ROW_BYTES), {}
    measure = memory_of if options.what == "memory" else seconds_of
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        write(folder, rows)
        for framework in chosen(options.framework, FRAMEWORKS):
            results[framework] = measure(framework, folder, rows)
    settings = {"gb": size, "rows": rows, "columns": COLUMNS, "subsets": SUBSETS, "kernels": OPTIONS}
    save(options.json, settings, results)


if __name__ == "__main__":
    main()
