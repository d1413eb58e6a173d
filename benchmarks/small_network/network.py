"""The network, its data and the settings that all samplers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

WIDTH, NUM_ROWS = 100, 400
SHAPES: dict[str, tuple[int, ...]] = {
    "weight_1": (1, WIDTH),
    "bias_1": (WIDTH,),
    "weight_2": (WIDTH, WIDTH),
    "bias_2": (WIDTH,),
    "weight_3": (WIDTH, 1),
    "bias_3": (1,),
}
NOISE_SD = 0.1
NUM_SUBSETS, STEP_SIZE = 4, 5e-4


class Data(NamedTuple):
    """Inputs, shape (N, 1), targets, shape (N,), and the weights to start from, by site."""

    x: np.ndarray
    y: np.ndarray
    start: dict[str, np.ndarray]


class Arm(NamedTuple):
    """A sampler that goes on from where it is.

    Attributes:
        draw: makes some draws and waits until they are made.
        acceptance: of the draws so far.
    """

    draw: Callable[[], object]
    acceptance: Callable[[], float]


def make_data() -> Data:
    """A sine with noise, rows in random order so that subsets are alike; weights N(0, 1/inputs of the layer)."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2.0, 2.0, (NUM_ROWS, 1))
    y = np.sin(3.0 * x[:, 0]) + NOISE_SD * rng.normal(size=NUM_ROWS)
    start = {name: rng.normal(size=shape) / shape[0] ** 0.5 for name, shape in SHAPES.items()}
    return Data(x.astype(np.float32), y.astype(np.float32), {k: w.astype(np.float32) for k, w in start.items()})
