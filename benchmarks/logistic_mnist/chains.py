"""What both frameworks' sides share: the setting, a chain's record, where chains start."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

from benchmarks.common.shapes import SHAPES

SCHEMES = ("full", "naive", "randomised", "symmetric")


class Setting(NamedTuple):
    """The size of the benchmark; the defaults are the paper's but for the numbers of iterations and chains."""

    num_subsets: int = 10
    num_steps: int = 20
    step_size: float = 6e-4
    prior_sd: float = 0.1
    warmup: int = 40
    iterations: int = 30
    chains: int = 2


class Chain(NamedTuple):
    """What one chain leaves behind.

    Attributes:
        accept_prob: mean acceptance probability.
        draws: shape (iterations, parameters).
        seconds: wall-clock time of its iterations.
    """

    accept_prob: float
    draws: np.ndarray
    seconds: float


def laplace_draw(x: np.ndarray, y: np.ndarray, prior_sd: float, seed: int) -> dict[str, np.ndarray]:
    """Roughly a draw from the posterior of softmax regression, without a chain: the mode of a perturbed potential.

    The prior is centred on a draw from itself, and the likelihood's gradient is shifted by a draw with its own
    (Fisher) covariance. For a normal posterior that is an exact draw. A chain from zero would take thousands of
    iterations to reach the prior's spread where the data say nothing: one trajectory is 0.012 long.

    Args:
        x: inputs, shape (N, 784).
        y: labels, shape (N,).
        prior_sd: standard deviation of every parameter a priori.
        seed: of the perturbations.

    Returns:
        Weights and bias.
    """
    rng = np.random.default_rng(seed)
    shapes = SHAPES["softmax"]
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    pull = rng.normal(size=sum(sizes)) / prior_sd
    flat = _mode(x, y, prior_sd, pull, pull * prior_sd**2)
    probs = np.exp(_log_probs(x, flat))
    other_labels = (probs.cumsum(axis=1) > rng.random((len(y), 1))).argmax(axis=1)
    flat = _mode(x, y, prior_sd, pull + _score(x, probs, other_labels), flat)
    parts = np.split(flat.astype(np.float32), np.cumsum(sizes)[:-1])
    return {name: part.reshape(shape) for part, (name, shape) in zip(parts, shapes.items(), strict=True)}


def _mode(x: np.ndarray, y: np.ndarray, prior_sd: float, pull: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Where the potential minus ``pull @ z`` is least."""

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        log_probs = _log_probs(x, flat)
        value = 0.5 * np.sum(flat**2) / prior_sd**2 - pull @ flat - log_probs[np.arange(len(y)), y].sum()
        return float(value), flat / prior_sd**2 - pull - _score(x, np.exp(log_probs), y)

    return minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 150}).x


def _log_probs(x: np.ndarray, flat: np.ndarray) -> np.ndarray:
    weights, bias = flat[: 784 * 10].reshape(784, 10), flat[784 * 10 :]
    return log_softmax(x @ weights.astype(x.dtype) + bias.astype(x.dtype), axis=1)


def _score(x: np.ndarray, probs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Gradient of the log-likelihood of ``labels`` in weights and bias, flat."""
    residual = -probs
    residual[np.arange(len(labels)), labels] += 1
    return np.concatenate([np.ravel(x.T @ residual), residual.sum(axis=0)]).astype(np.float64)


def concatenated(values: dict[str, np.ndarray]) -> np.ndarray:
    """One flat vector of every parameter."""
    return np.concatenate([np.ravel(u) for u in values.values()])
