"""Linear regression with and without the penalty: what noise in the accept step does to a posterior.

The paper draws the posterior of a synthetic linear regression with and without the penalty at batch sizes 5 and 10. It
gives no numbers: N, the noise, the prior and the number of batches are not said. Here N = 500 rows, y = 0.5 + x + N(0,
1), x of mean 0 and variance 1, both coefficients N(0, 1), K = 20 batches; the posterior is normal, and exact.

"posterior" is the posterior of all rows, δ scaled by N/n; "expected" is the paper's own target, the posterior of the
mean log-likelihood of n rows. Over these rows that is the likelihood to the power n/N, so it too is normal and exact
here.

Both chains of a pair have the same proposals, a random walk of fixed size. That of "posterior" is half a posterior
standard deviation, at which χ² is some 2 and 1 and the penalty can be trusted; the paper's is not given.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from matplotlib.figure import Figure

from benchmarks.common.report import save, size_named
from benchmarks.papers.penalty_bnn.chains import (
    Chain,
    Size,
    WithoutPenalty,
    cells,
    effective_size,
    header,
    parse_options,
    run,
    save_figure,
)
from numpyro_split import PenaltyMH
from split_common.plots import COLOURS, PRIOR_COLOUR

NUM_ROWS, NUM_BATCHES = 500, 20
BATCH_SIZES = (5, 10)
TARGETS = ("posterior", "expected")
STEPS = {"posterior": 0.5, "expected": 1.7}  # of the random walk, in standard deviations of the target
KERNELS = {"with penalty": PenaltyMH, "without penalty": WithoutPenalty}
SIZES = {"quick": Size(500, 5_000), "default": Size(2_000, 60_000)}
COEFFICIENTS = ("intercept", "slope")
COLUMNS = {
    "accept_prob": "11.2f",
    "chi2": "6.2f",
    "sd_ratio": "9.3f",
    "mean_error": "11.2f",
    "ess": "6.0f",
    "seconds": "7.0f",
}


class Normal(NamedTuple):
    """A normal distribution of intercept and slope."""

    mean: np.ndarray
    covariance: np.ndarray

    @property
    def sd(self) -> np.ndarray:
        """Standard deviation of each."""
        return np.sqrt(np.diag(self.covariance))


def make_rows(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and observations."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-np.sqrt(3), np.sqrt(3), NUM_ROWS)
    return x, 0.5 + x + rng.normal(0, 1, NUM_ROWS)


def model(x: Any, y: Any) -> None:
    """A straight line with noise of variance 1."""
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 1.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(intercept + slope * x, 1.0), obs=y)


def exact(x: np.ndarray, y: np.ndarray, power: float) -> Normal:
    """The posterior under the likelihood to a power."""
    columns = np.stack([np.ones_like(x), x], axis=1)
    covariance = np.linalg.inv(np.eye(2) + power * columns.T @ columns)
    return Normal(power * covariance @ columns.T @ y, covariance)


def run_case(
    kernel: type[PenaltyMH], target: str, batch_size: int, posterior: Normal, size: Size, seed: int, data: Any
) -> Chain:
    """One chain, its random walk measured by the exact posterior."""
    made = kernel(
        model,
        batch_size,
        NUM_BATCHES,
        proposal="random_walk",
        target=target,
        control_variate=None,
        step_size=STEPS[target],
        adapt_step_size=False,
        find_heuristic_step_size=False,
        inverse_mass_matrix=jnp.asarray(posterior.covariance, jnp.float32),
        adapt_mass_matrix=False,
        dense_mass=True,
    )
    return run(made, size, seed, *data)


def summary(chain: Chain, posterior: Normal) -> dict[str, float]:
    """Statistics of a chain beside the exact posterior: mean ratio of standard deviations, worst error of a mean."""
    draws = np.stack([chain.draws[name] for name in COEFFICIENTS], axis=1)
    errors = (draws.mean(axis=0) - posterior.mean) / posterior.sd
    return chain.statistics | {
        "sd_ratio": float(np.mean(draws.std(axis=0) / posterior.sd)),
        "mean_error": float(errors[np.argmax(np.abs(errors))]),
        "ess": effective_size(draws),
    }


def panel(ax: Any, chains: dict[str, Chain], posterior: Normal, coefficient: str) -> None:
    """Histograms of one coefficient, and its exact density."""
    i = COEFFICIENTS.index(coefficient)
    limits = posterior.mean[i] + posterior.sd[i] * np.array([-5, 5])
    edges, points = np.linspace(*limits, 61), np.linspace(*limits, 301)
    for (name, chain), colour, filled in zip(chains.items(), COLOURS, (True, False), strict=False):
        counts, _ = np.histogram(chain.draws[coefficient], edges)
        density = counts / len(chain.draws[coefficient]) / np.diff(edges)
        ax.stairs(density, edges, color=colour, fill=filled, alpha=0.5 if filled else 1.0, linewidth=1.3, label=name)
    density = (
        np.exp(-0.5 * ((points - posterior.mean[i]) / posterior.sd[i]) ** 2) / posterior.sd[i] / np.sqrt(2 * np.pi)
    )
    ax.plot(points, density, color=PRIOR_COLOUR, linestyle="--", label="exact")
    ax.set(xlabel=coefficient, yticks=[])


def draw(found: dict[tuple[str, int], tuple[dict[str, Chain], Normal]], directory: str) -> None:
    """A row of panels for each target, a pair of them for each batch size."""
    figure = Figure(figsize=(12, 6), layout="constrained")
    axes = figure.subplots(len(TARGETS), 2 * len(BATCH_SIZES), sharex=False)
    for (target, batch_size), (chains, posterior) in found.items():
        for i, coefficient in enumerate(COEFFICIENTS):
            ax = axes[TARGETS.index(target), 2 * BATCH_SIZES.index(batch_size) + i]
            panel(ax, chains, posterior, coefficient)
            ax.set_title(f"{target}, n = {batch_size}", loc="left", fontsize="medium")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, ncols=3, loc="outside upper center")
    save_figure(figure, directory, "penalty_bnn_linear")


def main(arguments: list[str] | None = None) -> None:
    """Run the chains, print a table, draw the figure."""
    options = parse_options(__doc__, arguments)
    size, data = SIZES[size_named(options)], make_rows(options.seed)
    print(f"N = {NUM_ROWS}, K = {NUM_BATCHES}, {size}\n{'':30s}", header(COLUMNS))
    found, results = {}, []
    for target in TARGETS:
        for batch_size in BATCH_SIZES:
            posterior = exact(*data, batch_size / NUM_ROWS if target == "expected" else 1.0)
            chains = {}
            for name, kernel in KERNELS.items():
                chains[name] = run_case(kernel, target, batch_size, posterior, size, options.seed, data)
                results.append({"target": target, "n": batch_size, "rule": name, **summary(chains[name], posterior)})
                print(f"{target:10s}{batch_size:4d} {name:15s}", cells(results[-1], COLUMNS), flush=True)
            found[target, batch_size] = chains, posterior
    if options.figures:
        draw(found, options.figures)
    save(options.json, {"rows": NUM_ROWS, "batches": NUM_BATCHES, "steps": STEPS, **size._asdict()}, results)


if __name__ == "__main__":
    main()
