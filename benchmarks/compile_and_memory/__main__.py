"""Does compile time stay flat in the number of subsets, and does memory fall with it?

Compile time (NumPyro): tracing, lowering and compiling one iteration of a kernel at M = 256 over the same at M = 4,
all caches cleared before each. Memory of the convolutional net's gradient at M = 10 over M = 1: in NumPyro the
temporary buffers that XLA plans for one subset gradient, and for a whole iteration; in Pyro the growth of the peak
resident memory of a fresh process while it takes the gradient of every subset once. A centred gradient (NumPyro) is
counted with what centring keeps, and compared with the plain one of all rows.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
from typing import Any

import numpy as np

from benchmarks.common.labelled import load_images
from benchmarks.common.report import add_common_options, chosen, save, verdict

COMPILE_GOAL, MEMORY_GOAL, CENTRED_GOAL = 1.3, 0.2, 0.15
MANY, FEW = 256, 4
CENTRED = "centred gradient"
CONV_ROWS = {"numpyro": 6_000, "pyro": 240_000}  # torch: enough for a tenth to rise above the libraries
QUICK_ROWS = {"numpyro": 1_000, "pyro": 20_000}


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common_options(parser, data=True)
    parser.add_argument("--repeats", type=int, default=5, help="compilations of each size; 0 for memory alone")
    return parser.parse_args(arguments)


def compile_times(repeats: int, data: str | None) -> list[dict[str, Any]]:
    """Seconds to compile an iteration on the softmax model, many subsets against few, in turn."""
    side = importlib.import_module("benchmarks.compile_and_memory.numpyro_compilation")
    images = load_images(data, 10 * MANY)
    results: list[dict[str, Any]] = []
    for kernel in side.KERNELS if repeats else ():
        seconds = {num_subsets: [] for num_subsets in (FEW, MANY)}
        kernels = {num_subsets: side.started_kernel(kernel, "softmax", images, num_subsets) for num_subsets in seconds}
        for _ in range(repeats):
            for num_subsets, started in kernels.items():
                seconds[num_subsets].append(side.compile_seconds(started))
        few, many = (float(np.median(seconds[num_subsets])) for num_subsets in (FEW, MANY))
        results.append({"what": f"compile time, {kernel}", "few": few, "many": many, "ratio": many / few})
    return results


def xla_memory(data: str | None, num_rows: int) -> list[dict[str, Any]]:
    """MiB of temporary buffers on the convolutional net, all rows in one subset against ten.

    The goal is the gradient's; an iteration holds the energies, the momentum and both ends of a trajectory as well.
    """
    side = importlib.import_module("benchmarks.compile_and_memory.numpyro_compilation")
    images = load_images(data, num_rows)
    whole, split = (side.temporary_mib("conv", images, num_subsets) for num_subsets in (1, 10))
    whole[CENTRED], split[CENTRED] = whole["subset gradient"], side.centred_mib("conv", images, 10)
    return [
        {"what": f"XLA buffers, {name}", "whole": whole[name], "split": split[name], "ratio": split[name] / whole[name]}
        for name in whole
    ]


def torch_memory(num_rows: int, repeats: int) -> list[dict[str, Any]]:
    """MiB of peak resident memory on the convolutional net, the same comparison; the least of a few processes."""

    def growth(num_subsets: int) -> float:
        command = [sys.executable, "-m", "benchmarks.compile_and_memory.torch_peak", str(num_subsets), str(num_rows)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return json.loads(output)["growth_mib"]

    whole, split = (min(growth(num_subsets) for _ in range(repeats)) for num_subsets in (1, 10))
    return [{"what": "peak resident memory, torch", "whole": whole, "split": split, "ratio": split / whole}]


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a table, and write JSON where asked."""
    options = parse_options(arguments)
    rows = QUICK_ROWS if options.quick else CONV_ROWS
    frameworks = chosen(options.framework, ("numpyro", "pyro"))
    results = []
    if "numpyro" in frameworks:
        for result in compile_times(min(options.repeats, 2) if options.quick else options.repeats, options.data):
            print("{what:34s} M = {}: {few:6.2f} s, M = {}: {many:6.2f} s,".format(FEW, MANY, **result), end=" ")
            print(f"ratio {result['ratio']:.2f}, {verdict(result['ratio'], COMPILE_GOAL)}", flush=True)
            results.append(result)
    memory = xla_memory(options.data, rows["numpyro"]) if "numpyro" in frameworks else []
    memory += torch_memory(rows["pyro"], 1 if options.quick else 2) if "pyro" in frameworks else []
    for result in memory:
        print("{what:34s} M = 1: {whole:7.1f} MiB, M = 10: {split:7.1f} MiB,".format(**result), end=" ")
        goal = CENTRED_GOAL if CENTRED in result["what"] else MEMORY_GOAL
        outcome = "" if "iteration" in result["what"] else f", {verdict(result['ratio'], goal)}"
        print(f"ratio {result['ratio']:.3f}{outcome}", flush=True)
    save(options.json, {"rows": rows, "repeats": options.repeats}, results + memory)


if __name__ == "__main__":
    main()
