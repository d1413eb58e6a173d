"""The symmetric splitting of hamiltorch on the same network, data and settings."""

from __future__ import annotations

import hamiltorch  # pyright: ignore[reportMissingImports]
import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.small_network.network import NOISE_SD, SHAPES, STEP_SIZE, WIDTH, Arm, Data


def make_arm(data: Data, num_subsets: int, num_steps: int, num_draws: int) -> Arm:
    """The reference implementation of Cobb and Jalaian (2021), as its notebook calls it; its subsets are made once."""
    linear, relu = torch.nn.Linear, torch.nn.ReLU
    net = torch.nn.Sequential(linear(1, WIDTH), relu(), linear(WIDTH, WIDTH), relu(), linear(WIDTH, 1))
    start = [torch.as_tensor(data.start[name]) for name in SHAPES]
    # a module of PyTorch's holds the transpose of a matrix of weights
    position = torch.cat([(w.T if w.dim() == 2 else w).reshape(-1) for w in start])
    parameters = [w.detach() for w in net.parameters()]
    rows = TensorDataset(torch.as_tensor(data.x), torch.as_tensor(data.y)[:, None])
    log_probs = hamiltorch.samplers.define_split_model_log_prob(
        net,
        "regression",
        DataLoader(rows, batch_size=len(rows) // num_subsets),
        num_subsets,
        [w.numel() for w in parameters],
        [w.shape for w in parameters],
        torch.ones(len(parameters)),
        NOISE_SD**-2,
        verbose=False,
    )
    acceptances: list[float] = []

    def draw() -> None:
        nonlocal position
        draws, acceptance = hamiltorch.sample(
            log_prob_func=log_probs,
            params_init=position,
            num_samples=num_draws,
            num_steps_per_sample=num_steps,
            step_size=STEP_SIZE,
            burn=-1,
            sampler=hamiltorch.Sampler.HMC,
            integrator=hamiltorch.Integrator.SPLITTING,
            debug=2,  # has it return the acceptance
            verbose=False,
        )
        position = draws[-1]
        acceptances.append(acceptance)

    return Arm(draw, lambda: sum(acceptances) / len(acceptances))
