"""MC dropout as an arm of Cobb and others (2019), section 2.2 and figure 1: the same network, with p = 0.2.

Each hidden unit, and each channel of a convolution's map, is left out with probability 0.2, in training by Adam and in
every pass of the prediction. In PyTorch, whose convolutions are the quicker on a CPU.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import nn

from benchmarks.papers.cobb_2019.lenet import BATCH, LEARNING_RATE, load
from benchmarks.papers.cobb_2019.mnist_cnn import predictions
from benchmarks.papers.options import parse_options, settings_of, write

PROBABILITY = 0.2
SIZES = {
    "quick": {"train": 10_000, "epochs": 5, "passes": 10, "images": 2_000},
    "full": {"train": 10_000, "epochs": 20, "passes": 100, "images": 10_000},
}


def network() -> nn.Sequential:
    """The network of 431,080 weights with its units dropped out."""
    drop = nn.Dropout(PROBABILITY)
    blocks = [nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Dropout2d(PROBABILITY)]
    blocks += [nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Dropout2d(PROBABILITY)]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), drop, nn.Linear(500, 10))


def trained(x: torch.Tensor, y: torch.Tensor, epochs: int, seed: int) -> nn.Sequential:
    """The network after training."""
    torch.manual_seed(seed)
    found = network()
    optimiser = torch.optim.Adam(found.parameters(), LEARNING_RATE)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(BATCH):
            optimiser.zero_grad()
            nn.functional.cross_entropy(found(x[rows]), y[rows]).backward()
            optimiser.step()
    return found


def passes(found: nn.Sequential, x: np.ndarray, count: int) -> np.ndarray:
    """Class probabilities of several passes, shape (passes, images, classes)."""
    found.train()  # units stay dropped
    with torch.no_grad():
        return np.array([found(torch.as_tensor(x)).softmax(1).numpy() for _ in range(count)])


def main(arguments: list[str] | None = None) -> None:
    """Train, predict and write."""
    options = parse_options(__doc__, SIZES, arguments)
    start = time.perf_counter()
    data = load(options.data, options.train)
    rows = np.random.default_rng(options.seed).permutation(len(data.y_test))[: options.images]
    found = trained(torch.as_tensor(data.x_train), torch.as_tensor(data.y_train), options.epochs, options.seed)
    test, other = (passes(found, x[rows], options.passes) for x in (data.x_test, data.x_other))
    figures, _ = predictions(test, other, data.y_test[rows])
    print(figures)
    settings = settings_of(options, SIZES) | {"framework": "torch"}
    write(options, settings, {"MC dropout": figures | {"images": len(rows)}, "seconds": time.perf_counter() - start})


if __name__ == "__main__":
    main()
