"""Table 4.1 of Lau (2018): committees of early-stopped networks of several sizes beside a Bayesian network.

Networks of the thesis's architecture, trained by Adam from PyTorch's initialisation on four fifths of the 500
images and stopped where the error of the other fifth no longer falls; a committee takes the mean of its members'
probabilities. The thesis gives neither optimiser nor initialisation nor validation set. The Bayesian network is XHMC
with δ = 0.1, as table 4.2 has it.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro

from benchmarks.papers.baselines import Trained, Training
from benchmarks.papers.findings import Run
from benchmarks.papers.lau_2018.digits import HIDDEN, load
from benchmarks.papers.options import parse_options, settings_of, write
from numpyro_split import networks

PAPER = {2: 91.2, 5: 88.6, 10: 47.0, 100: 51.6, 1000: 19.2}
SIZES = {
    "quick": {"pool": 100, "repeats": 20, "epochs": 200, "scaling": "255"},
    "full": {"pool": 1000, "repeats": 20, "epochs": 200, "scaling": "255"},
}
TRAINING = Training(numpyro.optim.Adam(1e-2), epochs=200, batch_size=100, patience=20)


def committees(members: np.ndarray, labels: np.ndarray, repeats: int, seed: int) -> list[dict[str, Any]]:
    """Test errors of committees of each size, drawn from a pool of members, and their standard deviation."""
    rng, rows = np.random.default_rng(seed), []
    for size, paper in PAPER.items():
        if size > len(members):
            continue
        chosen = [rng.choice(len(members), size, replace=False) for _ in range(1 if size == len(members) else repeats)]
        errors = [100 * float(np.mean(members[one].mean(0).argmax(1) != labels)) for one in chosen]
        se = float(np.std(errors, ddof=1)) if len(errors) > 1 else None
        rows.append({"members": size, "paper": paper, "test_error": float(np.mean(errors)), "test_error_se": se})
        print(f"committee of {size:4d}: error {rows[-1]['test_error']:.1f} %, thesis {paper}", flush=True)
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Train the pool and draw committees from it."""
    options = parse_options(__doc__, SIZES, arguments, data=False)
    digits = load(options.scaling)
    x, y, x_test, y_test = (np.asarray(part) for part in digits)
    start = time.perf_counter()
    network = partial(networks.mlp, [64, HIDDEN, 10], bias=False)
    trained = Trained(network, jnp.tanh, TRAINING._replace(epochs=options.epochs))
    members = trained.ensemble(x, y, options.pool, x_test, options.seed)
    rows = committees(members, y_test, options.repeats, options.seed)
    thresholds = Run("lau_2018_xhmc_thresholds")
    bayesian = next(row for row in thresholds.results if row["name"] == "XHMC 0.1")
    single = 100 * np.mean(members.argmax(2) != y_test, axis=1)
    found = {
        "committees": rows,
        "single_network": {"mean": float(single.mean()), "sd": float(single.std(ddof=1))},
        "network": {"test_error": bayesian["test_error"]},
        "seconds": time.perf_counter() - start,
    }
    draws = thresholds.settings["chains"] * thresholds.settings["draws"]
    write(options, settings_of(options, SIZES, network_draws=draws), found)


if __name__ == "__main__":
    main()
