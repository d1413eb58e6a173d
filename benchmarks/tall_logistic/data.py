"""The model, its data and its mode."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy.optimize import brentq
from scipy.special import expit

from split_common.reference import find_mode

PRIOR_SCALE = 2.5
DIM, ROWS, WEIGHT = 20, (10_000, 100_000, 1_000_000), 0.5
HARD_DIM, HARD_ROWS, HARD_WEIGHT = 50, (100_000,), 0.3
CORRELATION, POSITIVES, HEAVY_EVERY, DEGREES_OF_FREEDOM = 0.9, 0.01, 5, 4.0


Data = tuple[jax.Array, jax.Array]


Weights = dict[str, jax.Array]


def model(x: jax.Array, y: jax.Array, subsample_size: int | None = None) -> None:
    """Logistic regression; HMCECS asks for a subsample."""
    w = numpyro.sample("w", dist.Normal(0.0, PRIOR_SCALE).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("data", x.shape[0], subsample_size=subsample_size):
        inputs, labels = numpyro.subsample(x, event_dim=1), numpyro.subsample(y, event_dim=0)
        numpyro.sample("y", dist.Bernoulli(logits=inputs @ w), obs=labels)


def independent_data(num_rows: int) -> Data:
    """Inputs N(0, 1), labels of a logistic regression on them."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(num_rows, DIM)), WEIGHT * rng.normal(size=DIM)
    return _as_data(rng, x, x @ w)


def hard_data(num_rows: int) -> Data:
    """An intercept, 49 autocorrelated inputs, every fifth of them divided by the root of a χ²; few positives."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_rows, HARD_DIM))
    for j in range(2, HARD_DIM):
        x[:, j] = CORRELATION * x[:, j - 1] + math.sqrt(1 - CORRELATION**2) * x[:, j]
    x[:, HEAVY_EVERY::HEAVY_EVERY] /= np.sqrt(rng.chisquare(DEGREES_OF_FREEDOM, (num_rows, 1)) / DEGREES_OF_FREEDOM)
    x[:, 0] = 1.0
    logits = x[:, 1:] @ (HARD_WEIGHT * rng.normal(size=HARD_DIM - 1))
    return _as_data(rng, x, logits + brentq(lambda b: expit(logits + b).mean() - POSITIVES, -30.0, 0.0))


def _as_data(rng: np.random.Generator, x: np.ndarray, logits: np.ndarray) -> Data:
    y = rng.random(len(x)) < expit(logits)
    return jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)


def mode_of(data: Data) -> Weights:
    """The mode of the posterior, as PenaltyMH finds its own."""
    x, y = (np.asarray(part) for part in data)

    def energy_and_grad(w: np.ndarray) -> tuple[float, np.ndarray]:
        logits = (x @ w.astype(x.dtype)).astype(float)
        grad = (expit(logits) - y).astype(x.dtype) @ x
        energy = np.logaddexp(0, logits).sum() - y @ logits + 0.5 * w @ w / PRIOR_SCALE**2
        return float(energy), grad + w / PRIOR_SCALE**2

    return {"w": jnp.asarray(find_mode(energy_and_grad, np.zeros(x.shape[1])), jnp.float32)}
