"""Tables 4.5 to 4.8 of Lau (2018): test error of SGHMC over 64 cells of ε, L and η; friction 0.01, no noise estimate.

In the thesis's algorithm 16 ε is the scale of the velocity drawn at the start of a trajectory, v ~ N(0, ε² I), L the
number of steps and η the learning rate, v ← v - η ∇Ũ - αv + N(0, 2αη). Here the velocity's scale is √η, as its
stationary law has it, and is drawn afresh, so that ε has no counterpart and the four tables are one: what the thesis
sees too, whose tables differ by the noise of a test error only. Its batch size is not given; here a tenth of the rows.
Nor is the length of a chain. The gradient is that of the potential, so η is per row as there.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np
from numpyro.infer import MCMC

from benchmarks.common.report import save
from benchmarks.papers.lau_2018.digits import load, network, parse_options, predictive_errors, size_of
from numpyro_split import SGHMC

BATCH_SIZE = 50
STEPS, RATES = (10, 50, 100, 200), (0.1, 0.01, 0.001, 0.0001)
NA = None
PAPER = {  # by ε, then rows of L, columns of η; None where the chain left for infinity
    0.1: ((NA, NA, 72.2, 84.4), (14.8, 96.6, 97.6, 93.4), (34.2, 20.4, 47.7, 89.2), (46.8, 37.2, 92.4, 87.0)),
    0.01: ((NA, NA, 68.8, 89.8), (15.4, 95.4, 97.8, 95.0), (34.2, 25.0, 46.8, 91.0), (54.6, 46.2, 97.0, 88.0)),
    0.001: ((NA, NA, 71.6, 88.0), (15.4, 93.4, 96.8, 88.2), (32.0, 21.8, 45.0, 88.8), (53.0, 39.4, 95.4, 78.4)),
    0.0001: ((NA, NA, 68.8, 84.2), (14.8, 93.8, 97.2, 91.4), (37.2, 20.0, 44.4, 89.2), (45.6, 35.6, 94.0, 85.6)),
}


def run_cell(num_steps: int, rate: float, digits: Any, size: Any, seed: int) -> dict[str, Any]:
    """A chain of SGHMC from the host's start; no error where it left for infinity."""
    kernel = SGHMC(network(), BATCH_SIZE, step_size=rate, friction=0.01, num_steps=num_steps)
    mcmc = MCMC(kernel, num_warmup=size.warmup, num_samples=size.draws, progress_bar=False)
    start = time.perf_counter()
    mcmc.run(jax.random.key(seed), digits.x_train, digits.y_train, extra_fields=("diverging",))
    draws = mcmc.get_samples()
    diverging = float(np.mean(np.asarray(mcmc.get_extra_fields()["diverging"])))
    error = predictive_errors(draws, digits)[0]
    return {
        "L": num_steps,
        "eta": rate,
        "test_error": error if diverging < 1 else None,
        "diverging": diverging,
        "rms_weight": float(np.sqrt(np.mean([np.mean(np.asarray(u) ** 2) for u in draws.values()]))),
        "seconds": time.perf_counter() - start,
    }


def main(arguments: list[str] | None = None) -> None:
    """Print the grid."""
    options = parse_options(__doc__, arguments)
    digits, size = load(options.scaling), size_of(options)
    settings = size._asdict() | {"scaling": options.scaling, "seed": options.seed, "batch_size": BATCH_SIZE}
    results = []
    for num_steps in STEPS:
        for rate in RATES:
            found = run_cell(num_steps, rate, digits, size, options.seed)
            results.append(found)
            theirs = [PAPER[epsilon][STEPS.index(num_steps)][RATES.index(rate)] for epsilon in PAPER]
            print(
                f"L = {num_steps:3d}, η = {rate:g}: {found['test_error']} thesis {theirs} {found['seconds']:.0f} s",
                flush=True,
            )
            save(options.json, settings, results)


if __name__ == "__main__":
    main()
