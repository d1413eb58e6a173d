"""Cobb and Jalaian (2021), table 3 (the draft's table 2): a network of 38,390 weights on Fashion-MNIST, four schemes.

Two convolutions of 10 and 20 channels, layers of 100 and 10; 48,000 images in M = 3 subsets, L = 30, ε = 2e-5, mass
0.01, every weight N(0, 1), ten chains. Burn-in and number of draws are not given; 200 and 800 are taken for the full
size. The quick size has 1/80 of the images and the same ε: of steps of 1e-4 none is accepted there, of 3e-5 one in
three (eight iterations of two chains), so what limits ε is not the number of images.
"""

from __future__ import annotations

import numpy as np

from benchmarks.papers.cobb_2021.images import SCHEMES, Network, run
from benchmarks.papers.options import parse_options
from split_common.datasets import data_directory, load_fashion_mnist

PAPER = {  # acceptance, mean ESS, accuracy %, NLL, each but ESS with its standard deviation over ten chains
    "full": ((0.76, 0.06), 6.26, (89.82, 0.22), (0.282, 0.007)),
    "naive": ((0.72, 0.11), 6.21, (89.76, 0.15), (0.283, 0.005)),
    "randomised": ((0.66, 0.06), 6.24, (89.83, 0.39), (0.282, 0.009)),
    "symmetric": ((0.89, 0.02), 6.37, (89.97, 0.27), (0.276, 0.009)),
}
NETWORK = Network((1, 28, 28), (10, 20), (100,), "relu")
FULL = {"num_subsets": 3, "num_steps": 30, "step_size": 2e-5, "mass": 0.01, "warmup": 200, "draws": 800, "chains": 10}
FULL |= {"rows": 48_000, "test": 10_000, "prior_sd": 1.0, "epochs": 2, "schemes": SCHEMES}
QUICK = {"warmup": 5, "draws": 10, "chains": 2, "rows": 600, "test": 1_000, "epochs": 40}
SIZES = {"quick": {**FULL, **QUICK}, "full": FULL}


def main(arguments: list[str] | None = None) -> None:
    """Run the schemes."""
    options = parse_options(__doc__, SIZES, arguments, frameworks=("pyro", "numpyro"))
    images = load_fashion_mnist(data_directory(options.data), flatten=False)
    x, x_test = (
        part[:, None].astype(np.float32) for part in (images.x_train[: options.rows], images.x_test[: options.test])
    )
    data = (x, images.y_train[: options.rows], x_test, images.y_test[: options.test])
    run(options, SIZES, NETWORK, data, PAPER)


if __name__ == "__main__":
    main()
