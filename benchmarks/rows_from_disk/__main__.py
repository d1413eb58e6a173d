"""Rows from disk: memory and seconds per data pass of a memory-mapped table, against rows in memory.

``python -m benchmarks.rows_from_disk --folder DIR`` writes a logistic regression's table of 50 columns of float32,
12 GB of it (``--gb``), and runs ``SplitHMC`` (64 subsets, one step a trajectory) and ``PenaltyMH`` on it for 20
iterations, each in a process of its own: the most anonymous and resident memory. Then, on the first GB of it, whether
the draws are those of rows in memory bit for bit, and seconds per data pass of ``SplitHMC``: in memory; from the page
cache; and from the disk, every block dropped from the page cache as soon as it was read, each with and without reading
ahead; beside a plain sequential read from the disk. The goal: at most 1.25 times the seconds in memory or 1.1 times
those of the plain read, whichever is larger.
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
from benchmarks.rows_from_disk.measure import COLUMNS, ITERATIONS, OPTIONS, SUBSETS
from split_common.sources.reader import PREFETCH_VARIABLE

FRAMEWORKS = ("numpyro", "pyro")
ROW_BYTES = 4 * (COLUMNS + 1)
BLOCK_ROWS = 2**18
MOST_ANONYMOUS_MIB = 2048
ALLOWED_OF_MEMORY, ALLOWED_OF_READ = 1.25, 1.1


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


def measured(framework: str, kernel: str, folder: str, rows: int, where: str, prefetch: str = "on") -> dict[str, Any]:
    """One run in a process of its own; with the seconds of a data pass."""
    if where == "cold":
        drop(folder)
    command = [sys.executable, "-m", "benchmarks.rows_from_disk.measure", framework, kernel, folder, str(rows), where]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, PREFETCH_VARIABLE: prefetch}
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return found | {"seconds_per_pass": found["iterations"] / found["passes"]} if found["passes"] else found


def memory_of(framework: str, folder: str, rows: int) -> dict[str, Any]:
    """Memory of each kernel on the whole table."""
    results = {}
    for kernel in OPTIONS:
        found = results[kernel] = measured(framework, kernel, folder, rows, "disk")
        print(
            f"{framework:8} {kernel:10} {rows * ROW_BYTES / 2**30:6.2f} GiB: "
            f"anonymous {found['anonymous_mib']:6.0f} MiB, "
            f"resident {found['resident_mib']:6.0f} MiB, start {found['first']:6.1f} s, {ITERATIONS} iterations "
            f"{found['iterations']:6.1f} s ({verdict(found['anonymous_mib'], MOST_ANONYMOUS_MIB)})",
            flush=True,
        )
    return results


def time_of(framework: str, folder: str, rows: int) -> dict[str, Any]:
    """Seconds of a data pass in memory and from elsewhere, and whether draws are the same."""
    results: dict[str, Any] = {"plain read": plain_read(folder, rows)}
    print(f"{framework:8} plain sequential read {results['plain read']:6.3f} s", flush=True)
    for where, prefetch in (("memory", "on"), ("disk", "on"), ("disk", "off"), ("cold", "on"), ("cold", "off")):
        name = where if where == "memory" else f"{where}, reading ahead {prefetch}"
        found = results[name] = measured(framework, "SplitHMC", folder, rows, where, prefetch)
        is_same = found["draws"] == results["memory"]["draws"]
        print(
            f"{framework:8} {name:24} {found['seconds_per_pass']:6.3f} s a data pass, draws "
            f"{'the same' if is_same else 'OTHERS'}",
            flush=True,
        )
    allowed = max(ALLOWED_OF_MEMORY * results["memory"]["seconds_per_pass"], ALLOWED_OF_READ * results["plain read"])
    print(f"{framework:8} from the disk: {verdict(results['cold, reading ahead on']['seconds_per_pass'], allowed)}")
    in_memory = measured(framework, "PenaltyMH", folder, rows, "memory")
    from_disk = results["PenaltyMH"] = measured(framework, "PenaltyMH", folder, rows, "disk")
    is_same = in_memory["draws"] == from_disk["draws"]
    print(f"{framework:8} PenaltyMH: draws {'the same' if is_same else 'OTHERS'}", flush=True)
    return results | {"PenaltyMH in memory": in_memory}


def main() -> None:
    """Write the table, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gb", type=float, default=12.0, help="size of the table, in GB")
    parser.add_argument("--folder", help="where to write it; default: a temporary folder")
    add_common_options(parser, FRAMEWORKS)
    options = parser.parse_args()
    size = 0.01 if options.quick else options.gb
    rows = int(size * 1e9 / ROW_BYTES)
    few, results = min(rows, int(1e9 / ROW_BYTES)), {}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        write(folder, rows)
        for framework in chosen(options.framework, FRAMEWORKS):
            results[framework] = {"whole": memory_of(framework, folder, rows), "part": time_of(framework, folder, few)}
    save(options.json, {"gb": size, "rows": rows, "columns": COLUMNS, "subsets": SUBSETS}, results)


if __name__ == "__main__":
    main()
