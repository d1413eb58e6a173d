"""Acceptance against batch size and number of batches, with and without control variates.

The paper: the acceptance falls as exp(-χ²/2) or so, χ² with 1/(Kn); it has no control variates and gives no figure with
numbers. Here logistic regression on N = 10,000 rows, 10 coefficients N(0, 1), target "posterior", and a random walk of
fixed size in the metric of the posterior, so that acceptances differ by noise alone. For such a walk of standard
deviation c in each of D coordinates of a normal target, energy errors without noise are N(c²D/2, c²D); noise and
penalty add χ² and χ²/2, so the acceptance is 2 Φ(-½ sqrt(c²D + χ²)). That is drawn dashed, at the mean χ² of the chain.
"""

from __future__ import annotations

import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from matplotlib.figure import Figure
from scipy.stats import norm

from benchmarks.common.report import save, size_named
from benchmarks.papers.penalty_bnn.chains import Size, cells, header, parse_options, run, save_figure
from numpyro_split import PenaltyMH
from split_common.plots import COLOURS

NUM_ROWS, DIMENSION, STEP = 10_000, 10, 0.2
FIXED_BATCHES, FIXED_SIZE = 20, 50
BATCH_SIZES, BATCHES = (10, 25, 50, 100), (5, 10, 40)
CONTROL_VARIATES = (None, "taylor1", "taylor2")
SIZES = {"quick": Size(0, 200), "default": Size(0, 1_000)}
COLUMNS = {"accept_prob": "11.3f", "predicted": "9.3f", "chi2": "9.3g", "rows_touched": "12.0f", "seconds": "7.0f"}


def model(x: Any, y: Any) -> None:
    """Logistic regression."""
    weights = numpyro.sample("weights", dist.Normal(jnp.zeros(x.shape[1]), 1.0).to_event(1))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def make_rows(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal inputs, the first of them a one, and classes."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 1, (NUM_ROWS, DIMENSION))
    x[:, 0] = 1
    logits = x @ rng.normal(0, 0.5, DIMENSION)
    return x.astype(np.float32), (rng.random(NUM_ROWS) < 1 / (1 + np.exp(-logits))).astype(np.float32)


def normal_approximation(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mode and covariance of the posterior, by Newton's method."""
    mode = np.zeros(x.shape[1])
    for _ in range(20):
        probs = 1 / (1 + np.exp(-x @ mode))
        precision = np.eye(len(mode)) + (x * (probs * (1 - probs))[:, None]).T @ x
        mode = mode + np.linalg.solve(precision, x.T @ (y - probs) - mode)
    return mode, np.linalg.inv(precision)


def run_case(num: tuple[int, int], control_variate: str | None, start: Any, size: Size, seed: int, data: Any) -> dict:
    """Statistics of a chain at one batch size and number of batches."""
    mode, covariance = start
    kernel = PenaltyMH(
        model,
        *num,
        proposal="random_walk",
        control_variate=control_variate,
        reference={"weights": jnp.asarray(mode, jnp.float32)},
        step_size=STEP,
        adapt_step_size=False,
        find_heuristic_step_size=False,
        inverse_mass_matrix=jnp.asarray(covariance, jnp.float32),
        adapt_mass_matrix=False,
        dense_mass=True,
    )
    statistics = run(kernel, size, seed, *data).statistics
    predicted = 2 * norm.cdf(-0.5 * np.sqrt(STEP**2 * DIMENSION + statistics["chi2"]))
    return {"n": num[0], "K": num[1], "control_variate": control_variate, **statistics, "predicted": float(predicted)}


def draw(results: list[dict[str, Any]], directory: str) -> None:
    """Acceptance against n at one K, and against K at one n."""
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    words = {"n": "batch size n", "K": "number of batches K"}
    fixed = {"n": ("K", FIXED_BATCHES), "K": ("n", FIXED_SIZE)}
    for ax, (axis, (other, value)) in zip(figure.subplots(1, 2, sharey=True), fixed.items(), strict=True):
        for control_variate, colour in zip(CONTROL_VARIATES, COLOURS, strict=False):
            rows = [row for row in results if row[other] == value and row["control_variate"] == control_variate]
            rows.sort(key=lambda row: row[axis])
            at = [row[axis] for row in rows]
            name = control_variate or "no control variate"
            ax.plot(at, [row["accept_prob"] for row in rows], color=colour, marker="o", linewidth=1, label=name)
            label = "2 Φ(-½ √(c²D + χ²))" if control_variate == CONTROL_VARIATES[-1] else None
            ax.plot(at, [row["predicted"] for row in rows], color="black", linestyle="--", linewidth=1, label=label)
        ax.set(xscale="log", xlabel=words[axis], title=f"{words[other]} = {value}", ylim=(0, 1))
        ax.set_xticks(at, [str(number) for number in at], minor=False)
        ax.minorticks_off()
    figure.axes[0].set_ylabel("acceptance")
    figure.axes[0].legend(frameon=False, loc="center left", bbox_to_anchor=(0, 0.58))
    save_figure(figure, directory, "penalty_bnn_acceptance")


def main(arguments: list[str] | None = None) -> None:
    """Run the chains, print a table, draw the figure."""
    options = parse_options(__doc__, arguments)
    size, data = SIZES[size_named(options)], make_rows(options.seed)
    start = normal_approximation(*data)
    warnings.filterwarnings("ignore", message="the noise of PenaltyMH")  # some of these are meant to be too noisy
    print(f"N = {NUM_ROWS}, D = {DIMENSION}, c = {STEP}, {size}\n{'n':>4s} {'K':>4s} {'':8s}", header(COLUMNS))
    pairs = [(n, FIXED_BATCHES) for n in BATCH_SIZES] + [(FIXED_SIZE, k) for k in BATCHES]
    results = []
    for num in pairs:
        for control_variate in CONTROL_VARIATES:
            results.append(run_case(num, control_variate, start, size, options.seed, data))
            print(f"{num[0]:4d} {num[1]:4d} {control_variate or '-':8s}", cells(results[-1], COLUMNS), flush=True)
    if options.figures:
        draw(results, options.figures)
    save(options.json, {"rows": NUM_ROWS, "dimension": DIMENSION, "step": STEP, **size._asdict()}, results)


if __name__ == "__main__":
    main()
