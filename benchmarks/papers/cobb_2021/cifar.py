"""The draft of Cobb and Jalaian, table 3: a network of 62,006 weights on 1,000 images of CIFAR-10, four schemes.

Convolutions of 6 and 16 channels, layers of 120, 84 and 10, SELU; 1,000 images in M = 10 subsets, L = 20, ε = 5e-6,
mass 1e-5, every weight N(0, 0.1²), five chains of 1,000 iterations of which 200 are dropped. The images are the JPEG
copy of CIFAR-10 (``load_cifar10(copy="jpeg_subset")``), scaled to (-1, 1); how the paper scales them is not given.
"""

from __future__ import annotations

import numpy as np

from benchmarks.papers.cobb_2021.images import SCHEMES, Network, run
from benchmarks.papers.options import parse_options
from split_common.datasets import load_cifar10

PAPER = {  # acceptance, mean ESS, accuracy %, each but ESS with its standard deviation over five chains
    "full": ((0.74, 0.02), 73.19, (43.2, 0.6)),
    "naive": ((0.74, 0.02), 73.90, (43.2, 0.6)),
    "randomised": ((0.60, 0.02), 60.37, (43.1, 0.5)),
    "symmetric": ((0.83, 0.01), 83.81, (43.4, 0.6)),
}
NETWORK = Network((3, 32, 32), (6, 16), (120, 84), "selu")
FULL = {"num_subsets": 10, "num_steps": 20, "step_size": 5e-6, "mass": 1e-5, "warmup": 200, "draws": 800, "chains": 5}
FULL |= {"rows": 1_000, "test": 2_000, "prior_sd": 0.1, "epochs": 3, "schemes": SCHEMES}
SIZES = {"quick": {**FULL, "warmup": 5, "draws": 12, "chains": 1}, "full": FULL}


def main(arguments: list[str] | None = None) -> None:
    """Run the schemes."""
    options = parse_options(__doc__, SIZES, arguments, frameworks=("pyro", "numpyro"))
    images = load_cifar10(options.data, copy="jpeg_subset")
    x, x_test = (
        2 * np.moveaxis(part, -1, 1) - 1 for part in (images.x_train[: options.rows], images.x_test[: options.test])
    )
    data = (
        x.astype(np.float32),
        images.y_train[: options.rows],
        x_test.astype(np.float32),
        images.y_test[: options.test],
    )
    run(options, SIZES, NETWORK, data, PAPER)


if __name__ == "__main__":
    main()
