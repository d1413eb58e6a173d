"""What ``benchmarks.small_network`` runs in Pyro."""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import torch

from benchmarks.small_network.network import NOISE_SD, SHAPES, STEP_SIZE, Arm, Data
from pyro_split import SymmetricSplitHMC


def model(x: torch.Tensor, y: torch.Tensor) -> None:
    """Every weight N(0, 1), rectified units, normal noise."""
    w: Any = {
        name: pyro.sample(name, dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape)))
        for name, shape in SHAPES.items()
    }
    h = torch.relu(x @ w["weight_1"] + w["bias_1"])
    h = torch.relu(h @ w["weight_2"] + w["bias_2"])
    mean = (h @ w["weight_3"] + w["bias_3"])[:, 0]
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(mean, NOISE_SD), obs=y)


def make_arm(data: Data, num_subsets: int, num_steps: int, num_draws: int) -> Arm:
    """Our symmetric kernel; whole gradients where ``num_subsets`` is 1."""
    kernel = SymmetricSplitHMC(
        model,
        num_subsets=num_subsets,
        num_steps=num_steps,
        step_size=STEP_SIZE,
        step_size_jitter=0.0,
        adapt_step_size=False,
        adapt_mass_matrix=False,
    )
    kernel.initial_params = {name: torch.as_tensor(w) for name, w in data.start.items()}
    kernel.setup(0, torch.as_tensor(data.x), torch.as_tensor(data.y))
    assert kernel.initial_params is not None
    position = kernel.initial_params

    def draw() -> None:
        nonlocal position
        for _ in range(num_draws):
            position = kernel.sample(position)

    return Arm(draw, lambda: kernel.diagnostics()["acceptance rate"])
