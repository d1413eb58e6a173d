"""Number of subsets M against the memory of a gradient and the time of gradients and iterations, on a GPU.

Softmax regression on MNIST, the convolutional network of 38,390 weights of Cobb and Jalaian (2021) on Fashion-MNIST,
each on the paper's 48,000 images, and a logistic regression (softmax of two classes) of 10⁶ rows and 20 columns. A
gradient is that of all rows, subset by subset; an iteration is one of ``SymmetricSplitHMC``, its steps beside it.
Memory: XLA's plan of temporary buffers, and by how much the allocator's peak rises above what is held while a gradient
is taken (JAX and PyTorch, on a GPU). Every figure is from a process of its own (with ``--quick`` one a framework). What
does not fit the memory is said to. Where the machine has a GPU, the device of every array is checked, and a framework
that computes on the CPU is an error unless that was asked for.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from itertools import product
from typing import Any

from benchmarks.common.report import add_common_options, chosen, save
from benchmarks.gpu.cells import Cell
from benchmarks.gpu.devices import machine_gpus

NUM_ROWS = {"softmax": 48_000, "pooled": 48_000, "tall": 1_000_000}
QUICK_ROWS = {"softmax": 1_000, "pooled": 100, "tall": 10_000}
NUM_SUBSETS, QUICK_SUBSETS = (1, 4, 10, 50), (1, 4)


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common_options(parser, data=True)
    parser.add_argument("--device", choices=["gpu", "cpu"], help="default: gpu where the machine has one")
    parser.add_argument("--targets", choices=list(NUM_ROWS), nargs="+", default=list(NUM_ROWS))
    parser.add_argument(
        "--subsets", type=int, nargs="+", help=f"M, one or more; default {NUM_SUBSETS}, quick {QUICK_SUBSETS}"
    )
    parser.add_argument("--num-steps", type=int, default=10, help="steps of a trajectory")
    parser.add_argument("--repeats", type=int, default=10, help="rounds of timing")
    return parser.parse_args(arguments)


def cells_of(options: argparse.Namespace, framework: str, device: str) -> list[Cell]:
    """What is to be measured in one framework."""
    rows, subsets = (QUICK_ROWS, QUICK_SUBSETS) if options.quick else (NUM_ROWS, NUM_SUBSETS)
    steps, repeats = (2, 2) if options.quick else (options.num_steps, options.repeats)
    return [
        Cell(framework, target, rows[target], m, steps, repeats, options.data, device)
        for target, m in product(options.targets, options.subsets or subsets)
    ]


def run(cells: list[Cell]) -> list[dict[str, Any]]:
    """What the cells show, measured in one process.

    Raises:
        RuntimeError: where it fails by anything but too little memory.
    """
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # else the peak is what was taken at start
    if cells[0].device == "cpu":
        environment |= {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu.cells"],
        input=json.dumps([cell._asdict() for cell in cells]),
        env=environment,
        capture_output=True,
        text=True,
    )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode > 0:
        raise RuntimeError(f"{cells[len(found)]} failed:\n{done.stderr[-3000:]}")
    if done.returncode < 0:  # killed, as the system does where its own memory runs out
        found += [cell._asdict() | {"failed": f"killed by signal {-done.returncode}"} for cell in cells[len(found) :]]
    return found


def print_result(result: dict[str, Any]) -> None:
    """One line of the table."""
    start = "{framework:8s} {target:8s} {num_rows:9,d} {num_subsets:4d}".format(**result)
    if "failed" in result:
        print(start, result["failed"], flush=True)
        return
    planned, peak = (("-" if result[k] is None else f"{result[k]:.1f}") for k in ("planned_mib", "peak_mib"))
    peak = f"≤ {peak}" if result["peak_is_bound"] else peak
    times = (f"{result[name]['median']:11.2f}" for name in ("gradient_ms", "iteration_ms"))
    print(start, f"{planned:>10s} {peak:>10s}", *times, f"{result['num_grads']:6d}", flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a table, and write JSON where asked."""
    options, gpus = parse_options(arguments), machine_gpus()
    device = options.device or ("gpu" if gpus else "cpu")
    print(f"GPUs of the machine: {', '.join(gpus) or 'none'}; measured: the {device}; memory in MiB, times in ms")
    print(
        f"{'':8s} {'target':8s} {'rows':>9s} {'M':>4s} {'XLA plan':>10s} {'peak':>10s} {'gradient':>11s} "
        f"{'iteration':>11s} {'grads':>6s}"
    )
    results = []
    for framework in chosen(options.framework, ("numpyro", "pyro")):
        cells = cells_of(options, framework, device)
        for group in [cells] if options.quick else [[cell] for cell in cells]:
            found = run(group)
            for result in found:
                print_result(result)
            results += found
            save(options.json, {"device": device, "gpus": gpus, "quick": options.quick}, results)  # lest a stop lose it
    told = [result for result in results if "source" in result]
    print("data:", "; ".join(dict.fromkeys(result["source"] for result in told)))
    print("devices:", "; ".join(dict.fromkeys(f"{r['framework']}: {r['on']['device']}" for r in told)))


if __name__ == "__main__":
    main()
