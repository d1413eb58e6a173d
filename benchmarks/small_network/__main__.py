"""What splitting costs on a small network: M = 4 over whole gradients, and hamiltorch's symmetric splitting over ours.

The network is that of hamiltorch's example of split HMC: one input, two layers of 100 rectified units, one output,
10,401 weights; here 400 rows of a sine with noise. All samplers have the same step size (5e-4), L, M, data, prior, unit
mass matrix and rule of acceptance, and go on from the same start. A step of M = 4 takes 6 subset gradients, 1.5 data
passes, so 1.5 is the count; hamiltorch takes 8, those at which a step turns round, and at which steps meet, twice.

Samplers take turns in one process, ratios are taken within rounds. hamiltorch comes from its repository,

    pip install git+https://github.com/AdamCobb/hamiltorch@19b627b

and is left out where it cannot be imported. One thread of PyTorch; put ``taskset -c 0`` in front to give XLA one too.
``--processor-time`` counts seconds of the processor, for a machine that has other work.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import time
from typing import Any

import numpy as np

from benchmarks.common.report import add_common_options, chosen, save, verdict
from benchmarks.common.timing import Spread, interleaved
from benchmarks.small_network.network import NUM_ROWS, NUM_SUBSETS, STEP_SIZE, Arm, make_data

HAMILTORCH = "git+https://github.com/AdamCobb/hamiltorch@19b627b"
GOAL_OVER_WHOLE = 1.6
GOAL_OF_HAMILTORCH = {"numpyro": 20.0, "pyro": 5.0}  # at least


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common_options(parser)
    parser.add_argument("--num-steps", type=int, default=30, help="steps of a trajectory")
    parser.add_argument("--draws", type=int, default=5, help="trajectories of a round")
    parser.add_argument("--repeats", type=int, default=25, help="rounds of measurement")
    parser.add_argument("--processor-time", action="store_true", help="seconds of the processor, of all threads")
    return parser.parse_args(arguments)


def make_arms(frameworks: list[str], num_steps: int, num_draws: int) -> dict[str, Arm]:
    """The samplers by name; ``pyro 4`` is Pyro's kernel with four subsets."""
    data, settings = make_data(), (num_steps, num_draws)
    arms = {}
    for name in frameworks:
        side = importlib.import_module(f"benchmarks.small_network.{name}_arms")
        arms |= {f"{name} {m}": side.make_arm(data, m, *settings) for m in (1, NUM_SUBSETS)}
    if importlib.util.find_spec("torch") is not None:
        importlib.import_module("torch").set_num_threads(1)
    if importlib.util.find_spec("hamiltorch") is None:
        print(
            "hamiltorch cannot be imported and is left out: pip install git+https://github.com/AdamCobb/hamiltorch@19b627b"
        )
    else:
        side = importlib.import_module("benchmarks.small_network.hamiltorch_arm")
        arms["hamiltorch"] = side.make_arm(data, NUM_SUBSETS, *settings)
    return arms


def ratios(seconds: dict[str, np.ndarray], frameworks: list[str]) -> dict[str, Any]:
    """Spreads of the ratios that have goals, by name."""
    found = {}
    for name in frameworks:
        split = seconds[f"{name} {NUM_SUBSETS}"]
        found[f"{name}: M = {NUM_SUBSETS} over M = 1"] = Spread.of(split / seconds[f"{name} 1"])._asdict()
        if "hamiltorch" in seconds:
            found[f"{name}: hamiltorch over ours"] = Spread.of(seconds["hamiltorch"] / split)._asdict()
    return found


def print_results(seconds: dict[str, np.ndarray], found: dict[str, Any], arms: dict[str, Arm], steps: int) -> None:
    """A line for each sampler, and one for each ratio."""
    for name, values in seconds.items():
        print(f"{name:12}{1e6 * np.median(values) / steps:10.0f} µs a step, acceptance {arms[name].acceptance():.2f}")
    for name, spread in found.items():
        text = "{median:.2f} [{minimum:.2f}, {quartile_1:.2f}-{quartile_3:.2f}]".format(**spread)
        if "hamiltorch" in name:
            goal = GOAL_OF_HAMILTORCH[name.partition(":")[0]]
            print(f"{name:28}{text:28} goal at least {goal:.0f}: {'PASS' if spread['median'] >= goal else 'below'}")
        else:
            print(f"{name:28}{text:28} {verdict(spread['median'], GOAL_OVER_WHOLE)}")


def main(arguments: list[str] | None = None) -> None:
    """Measure, print, and write JSON where asked."""
    options = parse_options(arguments)
    num_draws, repeats = (1, 3) if options.quick else (options.draws, options.repeats)
    frameworks = list(chosen(options.framework, ("numpyro", "pyro")))
    arms = make_arms(frameworks, options.num_steps, num_draws)
    clock = time.process_time if options.processor_time else time.perf_counter
    seconds = interleaved({name: arm.draw for name, arm in arms.items()}, repeats, clock=clock)
    found = ratios(seconds, frameworks)
    print_results(seconds, found, arms, num_draws * options.num_steps)
    settings = {
        "num_rows": NUM_ROWS,
        "num_subsets": NUM_SUBSETS,
        "step_size": STEP_SIZE,
        "num_steps": options.num_steps,
        "draws": num_draws,
        "repeats": repeats,
        "processor_time": options.processor_time,
    }
    rounds = {name: values.tolist() for name, values in seconds.items()}
    acceptance = {name: arm.acceptance() for name, arm in arms.items()}
    save(options.json, settings, {"ratios": found, "seconds": rounds, "acceptance": acceptance})


if __name__ == "__main__":
    main()
