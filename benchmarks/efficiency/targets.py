"""The posteriors: regressions on many rows, softmax regression on MNIST, three networks.

Every parameter is real and has a normal prior, so draws are positions. Generators, all with seed 0:

* ``tall_20k``, ``tall_1m``: logistic regression, D = 20 inputs N(0, 1), weights N(0, 1/9), prior N(0, 1).
* ``covtype``: logistic regression on 581,012 rows and 55 columns with correlations of the kind that the covertype data
  have (:func:`covtype_like`), prior N(0, 1).
* ``mnist_pooled``: softmax regression, 12,000 images of MNIST in means over 4 x 4 pixels (of 32 x 32, padded), 650
  weights; ``mnist``: 784 pixels, 7,850 weights. Prior N(0, 1).
* ``bnn_1_16_1``: 100 rows, tanh, 49 weights; ``network_1d``: 1-100-100-1, 100 rows, 10,401 weights; ``digits``:
  64-20-10 on 1,347 of scikit-learn's digits, 1,510 weights. Weights N(0, 1/inputs of the layer), biases N(0, 1); in the
  first two y is a sum of sines with noise N(0, 0.1²), whose scale is known.

Regressions are judged by their weights, softmax regressions and ``digits`` by the predictive probabilities of the
labels of 50 images that are not in the data, the other networks by their values at 50 inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy.special import expit

from benchmarks.common.labelled import load_images
from split_common.datasets import load_digits_split

NUM_JUDGED, NUM_CLASSES, NOISE, SIDE = 50, 10, 0.1, 8
NUM_FACTORS, NUM_NUMERIC, NUM_AREAS, NUM_SOILS = 3, 10, 5, 41  # of covertype, the first area and soil without a column
Position = dict[str, jax.Array]


class Target(NamedTuple):
    """A posterior.

    Attributes:
        name: under which results are kept.
        kind: "regression", "softmax" or "network", which says what arms it has.
        model: NumPyro model.
        args: its arguments, arrays of N rows.
        shapes: of the sites.
        num_subsets: M.
        judged: from a position to the quantities whose effective size counts, shape (at most 55,).
        source: what the data are.
    """

    name: str
    kind: str
    model: Callable[..., None]
    args: tuple[jax.Array, ...]
    shapes: dict[str, tuple[int, ...]]
    num_subsets: int
    judged: Callable[[Position], jax.Array]
    source: str

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.args[0])

    @property
    def num_parameters(self) -> int:
        """D."""
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    def position(self, scale: float = 0.05) -> Position:
        """A fixed point near zero, where no gradient vanishes."""
        rng = np.random.default_rng(0)
        return {name: jnp.asarray(scale * rng.normal(size=shape)) for name, shape in sorted(self.shapes.items())}


def logistic(X: Any, y: Any, subsample_size: int | None = None) -> None:
    """Logistic regression; HMCECS asks for a subsample."""
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("data", X.shape[0], subsample_size=subsample_size):
        inputs, labels = numpyro.subsample(X, event_dim=1), numpyro.subsample(y, event_dim=0)
        numpyro.sample("y", dist.Bernoulli(logits=inputs @ w), obs=labels)


def regression(name: str, X: np.ndarray, w: np.ndarray, rng: np.random.Generator, source: str) -> Target:
    """Logistic regression on inputs, with labels drawn for these weights."""
    y = jnp.asarray((rng.random(len(X)) < expit(X @ w)).astype(float))
    shapes = {"w": (X.shape[1],)}
    return Target(name, "regression", logistic, (jnp.asarray(X), y), shapes, 50, lambda z: z["w"], source)


def tall(name: str, num_rows: int) -> Target:
    """Independent inputs."""
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(num_rows, 20)), rng.normal(size=20) / 3
    return regression(name, X, w, rng, f"{num_rows:,} rows of 20 independent inputs")


def covtype_like(num_rows: int, rng: np.random.Generator) -> np.ndarray:
    """A table of 55 columns that correlate as those of the covertype data do.

    Three factors stand for elevation, slope and distance to water. An intercept; ten numbers, of which each is a
    combination of the factors with a fifth of its variance its own, the last five of them exponentials (skewed); four
    and forty indicators of one of five areas and one of forty-one soils, drawn by softmax of combinations of the
    factors, soils in shares that fall to some ten-thousandths. Numbers have mean 0 and standard deviation 1.
    """
    factors = rng.normal(size=(num_rows, NUM_FACTORS))
    loadings = rng.normal(size=(NUM_FACTORS, NUM_NUMERIC))
    loadings *= np.sqrt(0.8) / np.linalg.norm(loadings, axis=0)
    numbers = factors @ loadings + np.sqrt(0.2) * rng.normal(size=(num_rows, NUM_NUMERIC))
    numbers[:, NUM_NUMERIC // 2 :] = np.exp(numbers[:, NUM_NUMERIC // 2 :])
    numbers = (numbers - numbers.mean(0)) / numbers.std(0)
    columns = [np.ones((num_rows, 1)), numbers]
    for num_classes, fall in ((NUM_AREAS, 2.0), (NUM_SOILS, 6.0)):
        logits = factors @ rng.normal(size=(NUM_FACTORS, num_classes)) - np.linspace(0, fall, num_classes)
        drawn = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
        columns.append((drawn[:, None] == np.arange(1, num_classes)).astype(float))
    return np.concatenate(columns, axis=1)


def covtype(name: str, num_rows: int) -> Target:
    """The table like covertype."""
    rng = np.random.default_rng(0)
    X = covtype_like(num_rows, rng)
    w = rng.normal(size=X.shape[1]) / 3
    return regression(name, X, w, rng, f"{num_rows:,} rows of 55 columns like covertype's, synthetic")


def softmax(X: Any, y: Any) -> None:
    """Softmax regression."""
    weights = numpyro.sample("weights", dist.Normal(0.0, 1.0).expand([X.shape[1], NUM_CLASSES]).to_event(2))
    bias = numpyro.sample("bias", dist.Normal(0.0, 1.0).expand([NUM_CLASSES]).to_event(1))
    with numpyro.plate("data", X.shape[0]):
        numpyro.sample("y", dist.Categorical(logits=X @ weights + bias), obs=y)


def pooled(images: np.ndarray) -> np.ndarray:
    """Means over 4 x 4 of the 32 x 32 pixels that a rim of 2 makes of 28 x 28, shape (n, 64)."""
    size = 32 // SIDE
    padded = np.pad(images, ((0, 0), (2, 2), (2, 2)))
    return padded.reshape(len(images), SIDE, size, SIDE, size).mean((2, 4)).reshape(len(images), -1)


def mnist(name: str, num_rows: int, directory: str | None, is_pooled: bool) -> Target:
    """Softmax regression on MNIST, or on synthetic images where there is no directory."""
    images = load_images(directory, num_rows + NUM_JUDGED)
    rows = pooled(images.inputs) if is_pooled else images.rows
    labels, kept = images.labels.astype(np.int32), len(rows) - NUM_JUDGED
    args = jnp.asarray(rows[:kept]), jnp.asarray(labels[:kept])
    held_out, held_labels = jnp.asarray(rows[kept:]), jnp.asarray(labels[kept:])

    def judged(z: Position) -> jax.Array:
        return label_probabilities(held_out @ z["weights"] + z["bias"], held_labels)

    shapes = {"weights": (rows.shape[1], NUM_CLASSES), "bias": (NUM_CLASSES,)}
    return Target(name, "softmax", softmax, args, shapes, 10, judged, images.source)


def label_probabilities(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Of each row the probability of its label."""
    return jnp.take_along_axis(jax.nn.softmax(logits), labels[:, None], 1)[:, 0]


def layer_shapes(widths: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Of weights and biases, by name."""
    sizes = list(enumerate(pairwise(widths)))
    return {f"w{i}": size for i, size in sizes} | {f"b{i}": size[1:] for i, size in sizes}


def network(z: Position, x: jax.Array) -> jax.Array:
    """Values of a network with tanh between layers, shape (n, outputs)."""
    depth = len(z) // 2
    for i in range(depth):
        x = x @ z[f"w{i}"] + z[f"b{i}"]
        x = jnp.tanh(x) if i < depth - 1 else x
    return x


def network_model(shapes: dict[str, tuple[int, ...]]) -> Callable[..., None]:
    """Labels by softmax where the network has several outputs, else values with noise."""

    def model(x: Any, y: Any) -> None:
        z = {
            name: numpyro.sample(
                name, dist.Normal(0.0, shape[0] ** -0.5 if len(shape) == 2 else 1.0).expand(shape).to_event(len(shape))
            )
            for name, shape in shapes.items()
        }
        values = network(z, x)
        with numpyro.plate("data", x.shape[0]):
            if values.shape[1] > 1:
                numpyro.sample("y", dist.Categorical(logits=values), obs=y)
            else:
                numpyro.sample("y", dist.Normal(values[:, 0], NOISE), obs=y)

    return model


def network_1d(name: str, hidden: tuple[int, ...], num_subsets: int) -> Target:
    """A network of one input on 100 rows in two clusters."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-1, -0.3, 50), rng.uniform(0.2, 1, 50)])[:, None]
    y = (np.sin(4 * x) + 0.3 * np.sin(12 * x))[:, 0] + NOISE * rng.normal(size=len(x))
    order = rng.permutation(len(x))
    shapes, at = layer_shapes((1, *hidden, 1)), jnp.linspace(-1.2, 1.2, NUM_JUDGED)[:, None]
    args = jnp.asarray(x[order]), jnp.asarray(y[order])
    source = f"100 synthetic rows, widths {(1, *hidden, 1)}"
    return Target(
        name, "network", network_model(shapes), args, shapes, num_subsets, lambda z: network(z, at)[:, 0], source
    )


def digits(name: str) -> Target:
    """A network that tells scikit-learn's digits."""
    data, shapes = load_digits_split(), layer_shapes((64, 20, NUM_CLASSES))
    args = jnp.asarray(data.x_train), jnp.asarray(data.y_train, jnp.int32)
    held_out, labels = jnp.asarray(data.x_test[:NUM_JUDGED]), jnp.asarray(data.y_test[:NUM_JUDGED], jnp.int32)

    def judged(z: Position) -> jax.Array:
        return label_probabilities(network(z, held_out), labels)

    return Target(name, "network", network_model(shapes), args, shapes, 4, judged, "scikit-learn's digits, 1,347 rows")


NETWORKS: dict[str, Callable[[str], Target]] = {
    "bnn_1_16_1": lambda name: network_1d(name, (16,), 5),
    "network_1d": lambda name: network_1d(name, (100, 100), 4),
    "digits": digits,
}
ROWS = {"tall_20k": 20_000, "tall_1m": 1_000_000, "covtype": 581_012, "mnist_pooled": 12_000, "mnist": 12_000}
TARGETS = (*ROWS, *NETWORKS)


def target_of(name: str, num_rows: int | None = None, directory: str | None = None) -> Target:
    """The target of a name.

    Args:
        name: one of ``TARGETS``.
        num_rows: N, which the networks do not ask for; None for the target's own.
        directory: with ``mnist.npz``; None reads the environment variable SPLIT_MCMC_DATA.
    """
    if name in NETWORKS:
        return NETWORKS[name](name)
    num_rows = num_rows or ROWS[name]
    if name.startswith("mnist"):
        return mnist(name, num_rows, directory, name == "mnist_pooled")
    return (covtype if name == "covtype" else tall)(name, num_rows)
