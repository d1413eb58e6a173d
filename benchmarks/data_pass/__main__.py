"""Time of a data pass inside a split kernel, over that of a bare compiled gradient of the same model.

Inside the kernel: one whole iteration, divided by the data passes in it (its subset gradients over M). Beside the
gradients an iteration draws a momentum, kicks, drifts, decides, and evaluates the energy of the end point, a forward
pass on all the data; a second column leaves that forward pass out. Bare: a gradient of the same log-density written
by hand, on all rows at once, compiled. A third column compares with M bare gradients of N/M rows, whose working set
fits a cache better.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
from itertools import product
from typing import Any

from benchmarks.common.labelled import load_images, tall_table
from benchmarks.common.report import add_common_options, chosen, save, verdict
from benchmarks.data_pass.passes import Settings

GOALS = {"numpyro": 1.10, "pyro": 1.25}
# tall: a number of rows that nothing divides, as that of most data
NUM_ROWS = {"softmax": 48_000, "tall": 1_000_003, "conv": 6_000, "conv by lax": 6_000}
QUICK_ROWS = {"softmax": 2_000, "tall": 10_007, "conv": 400, "conv by lax": 400}
MODELS = ("softmax", "tall", "conv")


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common_options(parser, data=True)
    parser.add_argument("--model", choices=[*NUM_ROWS, "both"], default="both", help="one of them, or all but the last")
    parser.add_argument("--rows", type=int, help=f"number of rows; default {NUM_ROWS}")
    parser.add_argument("--subsets", type=int, nargs="+", default=[10, 50], help="M, one or more")
    parser.add_argument("--num-steps", type=int, default=10, help="steps of a trajectory")
    parser.add_argument("--repeats", type=int, default=15, help="rounds of measurement")
    parser.add_argument("--threads", type=int, help="of PyTorch; take 1 where the machine has other work to do")
    return parser.parse_args(arguments)


def measure(framework: str, model: str, settings: Settings, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Time every kernel on one model in one framework."""
    num_rows = options.rows or (QUICK_ROWS if options.quick else NUM_ROWS)[model]
    labelled = tall_table(num_rows) if model == "tall" else load_images(options.data, num_rows)
    side = importlib.import_module(f"benchmarks.data_pass.{framework}_passes")
    about = {"framework": framework, "model": model, "data": labelled.source, "num_rows": len(labelled.labels)}
    about["num_subsets"] = settings.num_subsets
    timer = side.pass_timer(model, labelled, settings)
    return [about | result | {"goal": GOALS[framework]} for result in timer.measure(settings)]


def print_result(result: dict[str, Any]) -> None:
    """One line of the table."""
    columns = ("ratio", "ratio_without_end_point", "ratio_to_bare_subsets")
    spreads = [
        "{median:5.2f} [{minimum:.2f}, {quartile_1:.2f}-{quartile_3:.2f}]".format(**result[name]) for name in columns
    ]
    print(
        "{framework:8s} {model:8s} {num_subsets:3d} {kernel:10s}".format(**result),
        "{pass_ms:8.1f} {bare_ms:8.1f} {end_point_ms:9.1f} ".format(**result),
        *(f"{text:26s}" for text in spreads),
        verdict(result["ratio"]["median"], result["goal"]),
        flush=True,
    )


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a table, and write JSON where asked."""
    options = parse_options(arguments)
    repeats = 3 if options.quick else options.repeats
    settings = [Settings(m, options.num_steps, repeats, options.threads) for m in options.subsets]
    print(f"{platform.machine()}, {os.cpu_count()} cores; L = {options.num_steps}")
    print("times in ms; ratios: median [minimum, quartiles] over rounds")
    print(
        f"{'framework':8s} {'model':8s} {'M':>3s} {'kernel':10s} {'pass':>8s} {'bare':>8s} {'end point':>9s}  "
        f"{'pass / bare':26s} {'... without end point':26s} {'pass / M bare subsets':26s}"
    )
    results = []
    for framework, model, setting in product(
        chosen(options.framework, ("numpyro", "pyro")), chosen(options.model, MODELS), settings
    ):
        found = measure(framework, model, setting, options)
        for result in found:
            print_result(result)
        results += found
    print("data:", "; ".join(dict.fromkeys(result["data"] for result in results)))
    save(options.json, settings[0]._asdict() | {"num_subsets": options.subsets}, results)


if __name__ == "__main__":
    main()
