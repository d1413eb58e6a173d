"""Reliability diagrams: the batch size as a knob of calibration, on the regression and on MNIST.

The paper draws one for the regression, BNN against PBNN at n = 5, and one for MNIST, both with a random last layer on
trained features; the sizes for MNIST are not legible in our copy, nor how many bins. Here:

* regression: coverage of central credible intervals, on the test points of
  :mod:`benchmarks.papers.penalty_bnn.network`, from the chains of PBNN and from the exact posterior of all rows;
* MNIST: 20 rectified units trained on the first 5,000 images for 100 epochs, which is too long, so that they are too
  sure; then 10 x 21 weights N(0, 1) given those images; accuracy against confidence in ten bins, on all 10,000 test
  images. "all rows" is PenaltyMH with target "posterior". Small, so that a chain takes minutes.

The expected calibration error is the mean, over test images, of |accuracy - confidence| of the bin that the image falls
in.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from matplotlib.figure import Figure
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from benchmarks.common.report import save, size_named
from benchmarks.papers.penalty_bnn import network
from benchmarks.papers.penalty_bnn.chains import (
    Chain,
    Size,
    cells,
    effective_size,
    header,
    parse_options,
    run,
    save_figure,
)
from numpyro_split import PenaltyMH
from split_common.datasets import ImageData, data_directory, load_mnist
from split_common.metrics import predictive_probabilities
from split_common.plots import COLOURS

REGRESSION_SIZES, IMAGE_SIZES = (25, 10, 5, 2), (1000, 300, 50)
NUM_IMAGES, HIDDEN, EPOCHS, NUM_BATCHES, NUM_BINS = 5_000, 20, 100, 10, 10
TINY = 1e-12  # the least probability that log loss takes
SHOWN_SHARE = 0.002  # of the test images that a bin must hold to be drawn
SHOWN_DRAWS = 300  # of which class probabilities are averaged
WATCHED = 20  # test images whose first logit the effective sample size is of
REGRESSION_LENGTHS = {"quick": Size(1_000, 1_000), "default": Size(5_000, 10_000)}
IMAGE_LENGTHS = {"quick": Size(100, 100), "default": Size(2_000, 15_000)}
REGRESSION_COLUMNS = {"calibration_error": "17.3f", "coverage_90": "11.2f", "log_density": "11.2f"}
IMAGE_COLUMNS = {
    "calibration_error": "17.3f",
    "accuracy": "8.3f",
    "confidence": "10.3f",
    "log_loss": "8.3f",
    "accept_prob": "11.2f",
    "chi2": "6.2f",
    "ess": "5.0f",
    "seconds": "7.0f",
}


class Bins(NamedTuple):
    """Test images by confidence, in bins that are not empty."""

    share: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

    @property
    def error(self) -> float:
        """Expected calibration error."""
        return float(np.sum(self.share * np.abs(self.accuracy - self.confidence)))


class Features(NamedTuple):
    """Images as features of the trained layer: a one, and the units over their standard deviation in training."""

    train: np.ndarray
    y_train: np.ndarray
    test: np.ndarray
    y_test: np.ndarray
    probabilities: np.ndarray  # of the trained network, on the test images


def bins(probabilities: np.ndarray, y: np.ndarray) -> Bins:
    """Confidence and accuracy of the predicted class, by bin of confidence."""
    confidence, is_right = probabilities.max(axis=1), probabilities.argmax(axis=1) == y
    index = np.minimum((confidence * NUM_BINS).astype(int), NUM_BINS - 1)
    members = [index == i for i in range(NUM_BINS) if np.any(index == i)]
    rows = [(np.mean(member), confidence[member].mean(), is_right[member].mean()) for member in members]
    return Bins(*np.array(rows).T)


def classify(features: Any, y: Any) -> None:
    """The random last layer."""
    weights = numpyro.sample("weights", dist.Normal(jnp.zeros((features.shape[1], 10)), 1.0).to_event(2))
    with numpyro.plate("data", len(features)):
        numpyro.sample("y", dist.Categorical(logits=features @ weights), obs=y)


def train_features(images: ImageData, seed: int) -> Features:
    """Train the network on the first images, and keep its hidden layer."""
    x, y = images.x_train[:NUM_IMAGES], images.y_train[:NUM_IMAGES]
    trained = MLPClassifier(hidden_layer_sizes=(HIDDEN,), alpha=0.0, max_iter=EPOCHS, tol=0.0, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        trained.fit(x, y)
    hidden = [np.maximum(z @ trained.coefs_[0] + trained.intercepts_[0], 0) for z in (x, images.x_test)]
    alive = hidden[0].std(axis=0) > 0
    scale = hidden[0].std(axis=0)[alive]
    train, test = (np.concatenate([np.ones((len(h), 1)), h[:, alive] / scale], 1).astype(np.float32) for h in hidden)
    return Features(train, y.astype(np.int32), test, images.y_test, trained.predict_proba(images.x_test))


def image_summary(probabilities: np.ndarray, data: Features) -> dict[str, float]:
    """Calibration, accuracy and log loss of class probabilities on the test images."""
    return {
        "calibration_error": bins(probabilities, data.y_test).error,
        "accuracy": float(np.mean(probabilities.argmax(axis=1) == data.y_test)),
        "confidence": float(np.mean(probabilities.max(axis=1))),
        "log_loss": float(-np.mean(np.log(np.maximum(probabilities[np.arange(len(data.y_test)), data.y_test], TINY)))),
    }


def predict_images(chain: Chain, data: Features) -> tuple[np.ndarray, dict[str, float]]:
    """Class probabilities of the test images, and the summary of the chain."""
    weights = chain.draws["weights"]
    shown = weights[:: max(1, len(weights) // SHOWN_DRAWS)]
    probabilities = predictive_probabilities(np.array([jax.nn.softmax(data.test @ w) for w in shown]))
    watched = np.einsum("id,sd->si", data.test[:WATCHED], weights[:, :, 0])
    return probabilities, {**chain.statistics, "ess": effective_size(watched), **image_summary(probabilities, data)}


def run_images(data: Features, size: Size, seed: int) -> tuple[dict[str, Bins], list[dict[str, Any]]]:
    """Bins and summaries of the trained network, the posterior of all rows, and PBNN at each n."""
    langevin = {"proposal": "langevin", "target": "expected", "control_variate": None}
    kernels = {"all rows": PenaltyMH(classify, 100, NUM_BATCHES)}
    for n in IMAGE_SIZES:
        kernels[f"n = {n}"] = PenaltyMH(classify, n, NUM_BATCHES, gradient_batch_size=500, **langevin)
    found = {"trained network": bins(data.probabilities, data.y_test)}
    results: list[dict[str, Any]] = [{"name": "trained network", **image_summary(data.probabilities, data)}]
    print(f"MNIST, {size}\n{'':16s}", header(IMAGE_COLUMNS))
    print(f"{results[0]['name']:16s}", cells(results[0], IMAGE_COLUMNS), flush=True)
    for name, kernel in kernels.items():
        probabilities, summary = predict_images(run(kernel, size, seed, data.train, data.y_train), data)
        found[name] = bins(probabilities, data.y_test)
        results.append({"name": name, **summary})
        print(f"{name:16s}", cells(results[-1], IMAGE_COLUMNS), flush=True)
    return found, results


def run_regression(size: Size, seed: int) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Coverage and summaries of the exact posterior of all rows, and of PBNN at each n."""
    data = network.load(seed)
    predictions = {"all rows": network.exact(data, 1.0, data.x_test)}
    for n in REGRESSION_SIZES:
        chain = run(network.penalty_kernel(n), size, seed, *data.rows)
        predictions[f"n = {n}"] = network.predict(network.functions(data, chain, data.x_test))
    print(f"regression, {size}\n{'':16s}", header(REGRESSION_COLUMNS))
    results: list[dict[str, Any]] = []
    for name, prediction in predictions.items():
        results.append({"name": name, **network.calibration(data.y_test, prediction)})
        print(f"{name:16s}", cells(results[-1], REGRESSION_COLUMNS), flush=True)
    return {name: network.coverage(data.y_test, prediction) for name, prediction in predictions.items()}, results


def draw(coverages: dict[str, np.ndarray], images: dict[str, Bins], directory: str) -> None:
    """Both diagrams; the diagonal is perfect calibration."""
    figure = Figure(figsize=(11, 5.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    colours = ("#1a202c", *COLOURS, "#b7791f")
    for (name, covered), colour in zip(coverages.items(), colours, strict=False):
        left.plot(network.LEVELS, covered, color=colour, marker=".", linewidth=1, label=name)
    left.set(title="regression", xlabel="level of the credible interval", ylabel="share of observations inside")
    for (name, found), colour in zip(images.items(), colours, strict=False):
        label = f"{name}: {found.error:.3f}"
        shown = found.share >= SHOWN_SHARE
        right.plot(found.confidence[shown], found.accuracy[shown], color=colour, marker=".", linewidth=1, label=label)
    right.set(title="MNIST; expected calibration error", xlabel="confidence", ylabel="accuracy")
    for ax in (left, right):
        ax.plot([0, 1], [0, 1], color="grey", linestyle="--", linewidth=1)
        ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
        ax.legend(frameon=False, loc="lower right", fontsize="small")
    save_figure(figure, directory, "penalty_bnn_reliability")


def main(arguments: list[str] | None = None) -> None:
    """Run the chains, print both tables, draw the figure."""
    options = parse_options(__doc__, arguments)
    length = size_named(options)
    coverages, regression = run_regression(REGRESSION_LENGTHS[length], options.seed)
    data = train_features(load_mnist(data_directory(options.data)), options.seed)
    images, classification = run_images(data, IMAGE_LENGTHS[length], options.seed)
    settings = {"images": NUM_IMAGES, "hidden": HIDDEN, "batches": NUM_BATCHES, "bins": NUM_BINS}
    save(options.json, settings, {"regression": regression, "mnist": classification})
    if options.figures:
        draw(coverages, images, options.figures)


if __name__ == "__main__":
    main()
