"""Seconds a gradient, and bytes that a kick sends, of rows in one or two shards: devices and processes, M = 1 to 64.

``python -m benchmarks.rows_in_shards`` starts processes of its own, each device of one thread: NumPyro on one device,
on two devices of one process and on two processes; Pyro in one process and in two. The model is a logistic regression
on 200,000 rows of 50 numbers, in float32. A gradient is that of one subset, as a kick takes it: the time of a pass over
all M divided by M. Bytes are counted, in NumPyro in the compiled text, in Pyro in the messages. ``--rows`` takes
another number of rows. Two cores are needed, without other work to do.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common.report import add_common_options, chosen, save

LAYOUTS = {  # devices of a process, and processes
    "numpyro": {"1 device": (1, 1), "2 devices": (2, 1), "2 processes": (1, 2)},
    "pyro": {"1 process": (1, 1), "2 processes": (1, 2)},
}
FULL = {"rows": 200_000, "subsets": [1, 4, 16, 64], "repeats": 30}
QUICK = {"rows": 4_000, "subsets": [1, 4], "repeats": 3}
SECONDS = 600


def found_by(package: str, devices: int, processes: int, size: dict[str, Any]) -> list[dict[str, Any]]:
    """What one layout of devices and processes finds, by number of subsets."""
    with socket.socket() as at, tempfile.TemporaryDirectory() as folder:
        at.bind(("localhost", 0))
        port, out = at.getsockname()[1], Path(folder) / "found.json"
        at.close()  # for the processes
        given = json.dumps({**size, "devices": devices, "processes": processes, "port": port, "out": str(out)})
        command = [sys.executable, "-m", f"benchmarks.rows_in_shards.{package}_process", given]
        threads = {"OMP_NUM_THREADS": "1", "XLA_FLAGS": _flags(devices), "JAX_PLATFORMS": "cpu"}
        workers = [
            subprocess.Popen([*command, str(place)], env={**os.environ, **threads}) for place in range(processes)
        ]
        try:
            codes = [worker.wait(SECONDS) for worker in workers]
        finally:
            for worker in workers:
                worker.kill()
        if not out.exists():
            raise RuntimeError(f"{package} on {devices} devices of each of {processes} processes failed, {codes}")
        return json.loads(out.read_text())


def _flags(devices: int) -> str:
    return (
        f"--xla_force_host_platform_device_count={devices} --xla_cpu_multi_thread_eigen=false "
        "intra_op_parallelism_threads=1"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, help=f"default {FULL['rows']:,}")
    add_common_options(parser)
    options = parser.parse_args()
    size = dict(QUICK if options.quick else FULL)
    size["rows"] = options.rows or size["rows"]
    results = []
    for package in chosen(options.framework, list(LAYOUTS)):
        for layout, (devices, processes) in LAYOUTS[package].items():
            for found in found_by(package, devices, processes, size):
                results.append({"package": package, "layout": layout, **found})
                milliseconds = 1e3 * found["seconds"]["median"]
                sent = f"{found['messages']} of {found['bytes']} bytes a kick"
                print(f"{package:8} {layout:12} M = {found['num_subsets']:3} {milliseconds:8.3f} ms a gradient, {sent}")
    save(options.json, size, results)


if __name__ == "__main__":
    main()
