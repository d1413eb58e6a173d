"""The regression of three of the scripts: a network of which only the last layer is random, as in the paper.

The paper shows neither function nor sizes. Here y = sin 4x + x/2 + N(0, 0.2²), N = 300 rows, x uniform on (-1, -0.25)
and (0.25, 1); test points uniform on (-1.5, 1.5), so half of them lie in the gap between or beyond the training data. A
layer of 50 tanh units is trained on the rows and kept; the 51 weights of the last layer are N(0, 1), the noise is
known. The posterior given all rows is too sure of the features there. Its density to any power of the likelihood is
normal, so every chain has an exact answer beside it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from matplotlib.axes import Axes
from scipy.stats import norm
from sklearn.neural_network import MLPRegressor

from benchmarks.papers.penalty_bnn.chains import Chain, effective_size
from numpyro_split import PenaltyMH
from split_common.plots import plot_bands

NUM_ROWS, NUM_TEST, NOISE, HIDDEN = 300, 2000, 0.2, 50
NUM_BATCHES = 20
EDGE = 1.5  # of the test points
LEVELS = np.arange(0.05, 1.0, 0.05)  # of central credible intervals
GRID = np.linspace(-EDGE, EDGE, 121)


class Regression(NamedTuple):
    """Rows, as inputs and as features of the trained layer.

    Attributes:
        x: training inputs.
        y: training observations.
        x_test: test inputs.
        y_test: test observations.
        network: the trained network.
    """

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    network: MLPRegressor

    def features(self, x: np.ndarray) -> np.ndarray:
        """A one and the tanh units, shape (rows, 51)."""
        hidden = np.tanh(x[:, None] @ self.network.coefs_[0] + self.network.intercepts_[0])
        return np.concatenate([np.ones((len(x), 1)), hidden], axis=1)

    @property
    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """What the model is run on."""
        return self.features(self.x).astype(np.float32), self.y.astype(np.float32)


class Prediction(NamedTuple):
    """Mean and standard deviation of the function, by point."""

    mean: np.ndarray
    sd: np.ndarray


def truth(x: np.ndarray) -> np.ndarray:
    """The function."""
    return np.sin(4 * x) + x / 2


def load(seed: int) -> Regression:
    """Draw the rows and train the features."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.25, 1, NUM_ROWS) * np.repeat([-1, 1], NUM_ROWS // 2)
    x_test = rng.uniform(-EDGE, EDGE, NUM_TEST)
    y, y_test = (truth(z) + rng.normal(0, NOISE, len(z)) for z in (x, x_test))
    network = MLPRegressor(
        hidden_layer_sizes=(HIDDEN,), activation="tanh", solver="lbfgs", alpha=0.0, max_iter=2000, random_state=seed
    )
    return Regression(x, y, x_test, y_test, network.fit(x[:, None], y))


def model(features: Any, y: Any, power: float = 1.0) -> None:
    """The random last layer; ``power`` tempers the likelihood."""
    weights = numpyro.sample("weights", dist.Normal(jnp.zeros(features.shape[1]), 1.0).to_event(1))
    with numpyro.plate("data", len(features)), numpyro.handlers.scale(scale=power):
        numpyro.sample("y", dist.Normal(features @ weights, NOISE), obs=y)


def penalty_kernel(batch_size: int, kernel: type[PenaltyMH] = PenaltyMH, **options: Any) -> PenaltyMH:
    """PenaltyMH as the paper has it: Langevin proposals by a minibatch's gradient, no control variate."""
    settings = {
        "num_batches": NUM_BATCHES,
        "proposal": "langevin",
        "target": "expected",
        "control_variate": None,
        "dense_mass": True,
    }
    return kernel(model, batch_size, **(settings | options))


def exact_weights(data: Regression, power: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the posterior under the likelihood to a power."""
    features = data.features(data.x)
    covariance = np.linalg.inv(np.eye(features.shape[1]) + power * features.T @ features / NOISE**2)
    return covariance @ (power * features.T @ data.y / NOISE**2), covariance


def exact(data: Regression, power: float, x: np.ndarray) -> Prediction:
    """The same, as a prediction."""
    (mean, covariance), points = exact_weights(data, power), data.features(x)
    return Prediction(points @ mean, np.sqrt(np.einsum("ij,jk,ik->i", points, covariance, points)))


def functions(data: Regression, chain: Chain, x: np.ndarray) -> np.ndarray:
    """What the draws predict, shape (draws, points)."""
    return chain.draws["weights"] @ data.features(x).T


def predict(f: np.ndarray) -> Prediction:
    """Mean and standard deviation over draws."""
    return Prediction(f.mean(axis=0), f.std(axis=0))


def draw_bands(ax: Axes, data: Regression, chain: Chain, power: float, title: str) -> None:
    """A chain's bands over the rows, and the exact band of the function given the likelihood to a power, dotted."""
    mean, sd = predict(functions(data, chain, GRID))
    plot_bands(GRID, mean, 0 * sd + NOISE**2, sd**2, ax, (data.x, data.y))
    ax.lines[-1].set(markersize=2, alpha=0.5)
    reference = exact(data, power, GRID)
    for sign, label in ((-1.96, None), (1.96, "95 %, epistemic, exact")):
        ax.plot(GRID, reference.mean + sign * reference.sd, color="black", linestyle=":", linewidth=1, label=label)
    ax.get_legend().remove()
    ax.set_title(title, loc="left", fontsize="medium")
    ax.set_ylim(-3, 3)
    ax.label_outer()


def coverage(y: np.ndarray, prediction: Prediction) -> np.ndarray:
    """Share of observations inside the central credible intervals of each level."""
    total = np.sqrt(prediction.sd**2 + NOISE**2)
    within = np.abs(2 * norm.cdf((y - prediction.mean) / total) - 1)
    return np.array([np.mean(within <= level) for level in LEVELS])


def calibration(y: np.ndarray, prediction: Prediction) -> dict[str, float]:
    """Mean distance of coverage from level, coverage of 90%, and mean log density of the observations."""
    covered = coverage(y, prediction)
    log_density = norm.logpdf(y, prediction.mean, np.sqrt(prediction.sd**2 + NOISE**2))
    return {
        "calibration_error": float(np.mean(np.abs(covered - LEVELS))),
        "coverage_90": float(np.interp(0.9, LEVELS, covered)),
        "log_density": float(np.mean(log_density)),
    }


def summary(data: Regression, chain: Chain, reference: Prediction) -> dict[str, float]:
    """Statistics of a chain, its prediction on the grid beside a reference, and calibration on the test points."""
    f = functions(data, chain, GRID)
    found = predict(f)
    return {
        **chain.statistics,
        "mean_sd": float(np.mean(found.sd)),
        "sd_ratio": float(np.mean(found.sd / reference.sd)),
        "mean_error": float(np.mean(np.abs(found.mean - reference.mean) / reference.sd)),
        "ess": effective_size(f),
        **calibration(data.y_test, predict(functions(data, chain, data.x_test))),
    }
