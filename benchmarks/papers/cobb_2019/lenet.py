"""What both frameworks share of the CNN: its parameters, the images, how long a chain runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from benchmarks.common.labelled import MNIST_MEAN, MNIST_SD
from split_common.datasets import data_directory, load_fashion_mnist, load_mnist

SITE = "net"  # prefix of the sites of a network's parameters
SHAPES = {
    "0.weight": (20, 1, 5, 5),
    "0.bias": (20,),
    "3.weight": (50, 20, 5, 5),
    "3.bias": (50,),
    "7.weight": (500, 800),
    "7.bias": (500,),
    "9.weight": (10, 500),
    "9.bias": (10,),
}
CONCENTRATION, RATE = 1.0, 1.0  # of the Gamma prior of every precision
LEARNING_RATE, BATCH = 1e-3, 100  # of Adam, which finds the starting point
CHUNK = 500  # images in a forward pass
FIRST_STEP = 0.02  # first step size; dual averaging tries some ten times as much next

Weights = dict[str, np.ndarray]


class Data(NamedTuple):
    """Images as the network takes them, shape (rows, 1, 28, 28), float32, and their labels."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    x_other: np.ndarray


class Setting(NamedTuple):
    """How a chain is split, and how long it is."""

    num_subsets: int
    warmup: int
    draws: int
    num_steps: int
    epochs: int
    seed: int


class Iteration(NamedTuple):
    """What an iteration of a chain leaves.

    Attributes:
        accept_prob: mean acceptance probability so far; it starts afresh after warm-up.
        step_size: used in it.
        weights: by path.
        precisions: by path of the weights they scale.
    """

    accept_prob: float
    step_size: float
    weights: Weights
    precisions: dict[str, float]


def load(directory: str | None, num_train: int) -> Data:
    """The first digits of MNIST to train on, its test digits, and as many clothes from Fashion-MNIST."""
    directory = data_directory(directory)
    digits, clothes = load_mnist(directory, flatten=False), load_fashion_mnist(directory, flatten=False)
    return Data(
        _scaled(digits.x_train[:num_train]),
        digits.y_train[:num_train],
        _scaled(digits.x_test),
        digits.y_test,
        _scaled(clothes.x_test),
    )


def initial_weights(seed: int) -> Weights:
    """PyTorch's usual initialisation: uniform within 1 / sqrt(fan-in), biases as the weights of their layer."""
    rng = np.random.default_rng(seed)
    bounds = {path: _fan_in(path) ** -0.5 for path in SHAPES}
    return {path: rng.uniform(-bounds[path], bounds[path], shape).astype(np.float32) for path, shape in SHAPES.items()}


def batches(num_rows: int, epochs: int, seed: int) -> Iterator[np.ndarray]:
    """Row numbers of each batch of the optimiser, every epoch in another order."""
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        yield from np.split(rng.permutation(num_rows)[: num_rows // BATCH * BATCH], num_rows // BATCH)


def start_of_chain(weights: Weights) -> dict[str, np.ndarray]:
    """Values of all sites: the weights, and each precision at its mean given them."""
    start = {}
    for path, w in weights.items():
        start[f"{SITE}.{path}"] = w
        start[f"{SITE}.{path}_precision"] = np.float32(
            (CONCENTRATION + w.size / 2) / (RATE + np.sum(w**2, dtype=np.float64) / 2)
        )
    return start


def iteration(accept_prob: float, step_size: float, sites: dict[str, np.ndarray]) -> Iteration:
    """From the values of all sites to weights and precisions by path."""
    weights = {path: sites[f"{SITE}.{path}"] for path in SHAPES}
    precisions = {path: float(sites[f"{SITE}.{path}_precision"]) for path in SHAPES}
    return Iteration(accept_prob, step_size, weights, precisions)


def _scaled(pixels: np.ndarray) -> np.ndarray:
    return ((pixels - MNIST_MEAN) / MNIST_SD).astype(np.float32)[:, None]


def _fan_in(path: str) -> int:
    return math.prod(SHAPES[path.replace("bias", "weight")][1:])
