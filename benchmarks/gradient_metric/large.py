"""More parameters than a dense metric is made for: low rank from draws and gradients, or the host's diagonal.

A normal of D = 600 and three factors, and a softmax regression of 2,000 MNIST images, pooled to 8 × 8 (650 weights,
priors N(0, 1)). Both arms are SplitNUTS of one subset, the host's draws but for the metric, of trees up to 2⁸ steps,
after the same warm-up, on two vectorised chains that start at 0, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.gradient_metric.runs import run
from numpyro_split import SplitNUTS, SplitPotential
from split_common.datasets import data_directory, load_mnist

DIM, NUM_ROWS, NUM_CLASSES, NUM_CHAINS, MAX_TREE_DEPTH = 600, 2_000, 10, 2, 8


def factors() -> tuple[SplitPotential, int]:
    """The normal target, and its size."""
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(DIM, 3))
    precision = jnp.array(np.linalg.inv(3 * loadings @ loadings.T + np.diag(rng.uniform(0.05, 0.5, DIM))))

    def log_likelihood(z: dict[str, jax.Array], rows: jax.Array) -> jax.Array:
        return -0.5 * rows.sum() * (z["x"] @ (precision @ z["x"]))

    return SplitPotential.from_functions(lambda z: 0.0 * z["x"].sum(), log_likelihood, jnp.ones(1), num_subsets=1), DIM


def softmax(directory: str | None) -> tuple[SplitPotential, int]:
    """The regression, and its size."""
    mnist = load_mnist(data_directory(directory), flatten=False)
    images = np.pad(mnist.x_train[:NUM_ROWS], ((0, 0), (2, 2), (2, 2)))
    pooled = images.reshape(NUM_ROWS, 8, 4, 8, 4).mean((2, 4)).reshape(NUM_ROWS, 64)
    inputs = jnp.array(np.column_stack([pooled, np.ones(NUM_ROWS)]), float)
    labels, size = jnp.array(mnist.y_train[:NUM_ROWS], int), 65 * NUM_CLASSES

    def log_likelihood(z: dict[str, jax.Array], rows: tuple[jax.Array, jax.Array]) -> jax.Array:
        inputs, labels = rows
        scores = jax.nn.log_softmax(inputs @ z["x"].reshape(65, NUM_CLASSES))
        return jnp.take_along_axis(scores, labels[:, None], 1).sum()

    def log_prior(z: dict[str, jax.Array]) -> jax.Array:
        return -0.5 * (z["x"] ** 2).sum()

    data = (inputs, labels)
    return SplitPotential.from_functions(log_prior, log_likelihood, data, num_subsets=1), size


def compare(num_warmup: int, num_samples: int, seeds: list[int], directory: str | None) -> dict[str, Any]:
    """Run both arms on both targets, print the table, and give the numbers."""
    targets: dict[str, Callable[[], tuple[SplitPotential, int]]] = {
        "three factors, D = 600": factors,
        "MNIST softmax, D = 650": lambda: softmax(directory),
    }
    header = ("target", "metric", "effective draws a gradient", "gradients a draw", "gradients of warm-up")
    for line in (header, ["---"] * len(header)):
        print("|", " | ".join(line), "|", flush=True)
    results: dict[str, Any] = {}
    for name, target in targets.items():
        potential, size = target()
        for metric in ("auto", None):
            kernel = SplitNUTS(potential, metric=metric, max_tree_depth=MAX_TREE_DEPTH)
            start = {"x": jnp.zeros((NUM_CHAINS, size))}
            found = run(kernel, num_warmup, num_samples, "num_grads", seeds, (), NUM_CHAINS, start)
            arm = "low rank" if metric else "host's diagonal"
            results.setdefault(name, {})[arm] = found
            per_gradient, per_draw, of_warmup = (
                float(np.median([x[field] for x in found]))
                for field in ("ess_per_gradient", "gradients_per_draw", "warmup_gradients")
            )
            cells = [name, arm, f"{per_gradient:.5f}", f"{per_draw:.0f}", f"{of_warmup:,.0f}"]
            print("|", " | ".join(cells), "|", flush=True)
            jax.clear_caches()
    return results
