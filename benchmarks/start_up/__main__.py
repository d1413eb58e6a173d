"""Seconds to the first draw in fresh processes: the README's model against the host's NUTS, and PenaltyMH's set-up.

The README's model (1,000 rows, 3 weights), ``SymmetricSplitHMC`` with four subsets and the host's NUTS: 300 iterations
of warm-up and one draw, everything compiled or traced afresh. Packages are imported and data made before the clock
starts. In NumPyro also a process that finds its compiled programs in a directory that another one filled
(``jax_compilation_cache_dir``, with ``SPLIT_MCMC_WARNINGS=report``). PenaltyMH with its defaults on the tall logistic
regression of ``benchmarks.tall_logistic``, 100,000 rows: mode, expansion, compiling, and 500 iterations of warm-up.

Processes take turns, ratios are taken within rounds. Seconds of the processor, which count all threads, stand beside
those of the clock on the wall: on a machine that has other work they alone are steady.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.common.report import add_common_options, chosen, save, verdict
from benchmarks.common.timing import Spread

ROOT = Path(__file__).parents[2]
ARMS = {"numpyro": ("numpyro NUTS", "numpyro ours", "numpyro PenaltyMH"), "pyro": ("pyro NUTS", "pyro ours")}
STORED = ", stored programs"  # ends the name of an arm whose programs a process before has compiled
GOAL_OVER_NUTS, GOAL_OF_PENALTY = 1.0, 6.0
CLOCKS = ("wall", "processor")

Rounds = dict[str, dict[str, list[float]]]


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common_options(parser)
    parser.add_argument("--rounds", type=int, default=7, help="fresh processes of each arm")
    return parser.parse_args(arguments)


def first_draw(arm: str, directory: str | None = None) -> dict[str, float]:
    """Seconds of one fresh process."""
    command = [sys.executable, "-m", "benchmarks.start_up.first_draw", arm, *([directory] if directory else [])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(arms: list[str], rounds: int) -> Rounds:
    """Seconds of each round, by arm and clock."""
    found: Rounds = {arm: {clock: [] for clock in CLOCKS} for arm in arms}
    found |= {arm + STORED: {clock: [] for clock in CLOCKS} for arm in arms if arm.startswith("numpyro")}
    with tempfile.TemporaryDirectory() as directory:
        for name in found:
            if name.endswith(STORED):
                first_draw(name.removesuffix(STORED), directory)
        for _ in range(rounds):
            for name, seconds in found.items():
                stored = directory if name.endswith(STORED) else None
                for clock, value in first_draw(name.removesuffix(STORED), stored).items():
                    seconds[clock].append(value)
    return found


def over_nuts(found: Rounds) -> dict[str, dict[str, dict[str, float]]]:
    """Spreads of our seconds over NUTS's, both with their programs stored or both without, by arm and clock."""
    pairs = {name: name.replace("ours", "NUTS") for name in found if "ours" in name}
    return {
        ours: {c: Spread.of(np.array(found[ours][c]) / np.array(found[nuts][c]))._asdict() for c in CLOCKS}
        for ours, nuts in pairs.items()
    }


def main(arguments: list[str] | None = None) -> None:
    """Measure, print, and write JSON where asked."""
    options = parse_options(arguments)
    rounds = 1 if options.quick else options.rounds
    packages = chosen(options.framework, ("numpyro", "pyro"))
    found = measure([arm for package in packages for arm in ARMS[package]], rounds)
    for name, seconds in found.items():
        texts = [
            "{median:6.2f} [{minimum:.2f}, {quartile_1:.2f}-{quartile_3:.2f}]".format(
                **Spread.of(seconds[clock])._asdict()
            )
            for clock in CLOCKS
        ]
        goal = verdict(Spread.of(seconds["wall"]).median, GOAL_OF_PENALTY) if "Penalty" in name else ""
        print(f"{name:36}{texts[0]} s; processor {texts[1]} s  {goal}")
    ratios = over_nuts(found)
    for name, by_clock in ratios.items():
        wall, processor = (by_clock[clock]["median"] for clock in CLOCKS)
        print(f"{name:36}over NUTS {wall:.2f}, processor {processor:.2f}; {verdict(wall, GOAL_OVER_NUTS)}")
    save(options.json, {"rounds": rounds}, {"seconds": found, "over_nuts": ratios})


if __name__ == "__main__":
    main()
