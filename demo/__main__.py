"""Handwritten digits by plain and by split HMC, in NumPyro and in Pyro."""

import argparse
import time
import warnings
from pathlib import Path

from rich.console import Console

from demo.settings import ITERATIONS, NUM_CHAINS, NUM_SUBSETS, QUICK_ITERATIONS
from split_common.datasets import load_digits_split

TABLE_WIDTH = 100  # narrower consoles (and pipes, taken for 80 columns) would cut the table


def main() -> None:
    """Run everything, print the table, write the figures."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo_output"), help="directory for the figures")
    parser.add_argument("--quick", action="store_true", help="a few draws only, to see that everything runs")
    options = parser.parse_args()
    started = time.perf_counter()
    console = Console()
    digits = load_digits_split(centre=True)
    iterations = QUICK_ITERATIONS if options.quick else ITERATIONS
    console.print(
        f"Bayesian softmax regression and a one-hidden-layer network on {len(digits.x_train):,} handwritten digits.\n"
        f"Plain HMC against symmetric and randomised splitting into {NUM_SUBSETS} subsets, {NUM_CHAINS} chains each; "
        "NumPyro and Pyro side by side.\nThis takes some twenty minutes on two cores, the longest part of it in Pyro.",
        highlight=False,
    )
    outcomes = run(digits, iterations, console)
    console.print()
    wide = Console(width=max(console.width, TABLE_WIDTH))
    report(outcomes, iterations, options.output, wide)
    console.print(f"All done in {time.perf_counter() - started:.0f} s.", highlight=False)


def run(digits, iterations, console):
    from demo.halves import run_both

    return run_both(digits, iterations, console)


def report(outcomes, iterations, directory, console) -> None:
    """Print the table, write the figures and say where they are."""
    # ArviZ 0.23 announces its next major version when imported
    warnings.filterwarnings("ignore", category=FutureWarning, module="arviz")
    from demo.figures import write_figures
    from demo.table import make_table

    console.print(make_table(outcomes, iterations))
    paths = write_figures(outcomes, directory)
    console.print("\nFigures:", *(f"  {path}" for path in paths), sep="\n", highlight=False)


if __name__ == "__main__":
    main()
