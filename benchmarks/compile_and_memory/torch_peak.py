"""Peak memory of a convolutional gradient in Pyro, measured in a process of its own."""

from __future__ import annotations

import argparse
import json
import resource

import torch

from benchmarks.common.pyro_models import Position, classifiers
from benchmarks.common.shapes import NUM_CLASSES
from pyro_split import SplitPotential, split_model


def peak_mib() -> float:
    """Most memory that this process has held so far (Linux counts it in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def take_gradients(potential: SplitPotential, z: Position) -> None:
    """The gradient of every subset once."""
    for m in range(potential.num_subsets):
        potential.subset_potential_and_grad(z, m)


def main() -> None:
    """Print how far splitting and the gradients raise the peak above data, libraries and a tiny gradient.

    The images are noise, made in place: memory does not depend on what they show, and reading them from a file
    would leave a peak of its own.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("num_subsets", type=int)
    parser.add_argument("num_rows", type=int)
    options = parser.parse_args()
    model = classifiers()["conv"]
    z = model.position()
    x, y = torch.rand(options.num_rows, 28, 28), torch.randint(NUM_CLASSES, (options.num_rows,))
    take_gradients(split_model(model, (x[:64], y[:64]), num_subsets=2), z)
    before = peak_mib()
    take_gradients(split_model(model, (x, y), num_subsets=options.num_subsets), z)
    print(json.dumps({"before_mib": before, "growth_mib": peak_mib() - before}))


if __name__ == "__main__":
    main()
