"""Rows with labels for the benchmarks: handwritten digits or a stand-in of the same shape, and a tall table."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np

from benchmarks.common.shapes import NUM_CLASSES, NUM_COLUMNS
from split_common.datasets import DATA_VARIABLE, data_directory, load_fashion_mnist, load_mnist

MNIST_MEAN, MNIST_SD = 0.1307, 0.3081  # of all pixels of the training images, in units of the brightest


class Labelled(NamedTuple):
    """Inputs and their labels.

    Attributes:
        inputs: grey levels from 0 to 1, shape (N, 28, 28), or the entries of a table, shape (N, 20); float32.
        labels: class of each, shape (N,), int32.
        source: what they are, for the reader of a table.
    """

    inputs: np.ndarray
    labels: np.ndarray
    source: str

    @property
    def rows(self) -> np.ndarray:
        """One flat row for each, shape (N, 784) or (N, 20)."""
        return self.inputs.reshape(len(self.inputs), -1)


def load_images(directory: str | None, num_rows: int, name: str = "MNIST") -> Labelled:
    """The first training images of MNIST, or synthetic ones where no data directory is named.

    Args:
        directory: where ``mnist.npz`` lies; None reads the environment variable SPLIT_MCMC_DATA.
        num_rows: how many images.
        name: "MNIST", or "Fashion-MNIST" for those of ``fashion_mnist.npz``.
    """
    load = {"MNIST": load_mnist, "Fashion-MNIST": load_fashion_mnist}[name]
    if not directory and not os.environ.get(DATA_VARIABLE):
        return synthetic_images(num_rows)
    images = load(data_directory(directory), flatten=False)
    pixels, labels = images.x_train[:num_rows], images.y_train[:num_rows].astype(np.int32)
    return Labelled(pixels, labels, f"{name}, first {len(labels)} images")


def synthetic_images(num_rows: int) -> Labelled:
    """Noisy copies of ten sparse templates: the shape, range and share of dark pixels of MNIST."""
    rng = np.random.default_rng(0)
    templates = rng.random((NUM_CLASSES, 28, 28)) * (rng.random((NUM_CLASSES, 28, 28)) < 0.2)
    labels = rng.integers(NUM_CLASSES, size=num_rows).astype(np.int32)
    noise = rng.normal(0.0, 0.3, (num_rows, 28, 28)).astype(np.float32)
    pixels = np.clip(templates.astype(np.float32)[labels] * (1 + noise), 0, 1)
    return Labelled(pixels, labels, f"synthetic, {num_rows} images (no data directory given)")


def tall_table(num_rows: int) -> Labelled:
    """Rows of few numbers, N(0, 1), and labels 0 and 1 of a logistic regression on them."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(num_rows, NUM_COLUMNS)).astype(np.float32)
    labels = rng.random(num_rows) < 1 / (1 + np.exp(-rows @ rng.normal(size=NUM_COLUMNS) / 2))
    return Labelled(rows, labels.astype(np.int32), f"synthetic, {num_rows:,} rows of {NUM_COLUMNS}")
