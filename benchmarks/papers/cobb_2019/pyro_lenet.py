"""The CNN in Pyro: the model, a starting point, a chain, predictions. On a GPU where PyTorch finds one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import torch
import torch.nn.functional as F
from pyro.infer.autoguide.initialization import init_to_value
from torch import Tensor
from torch.func import functional_call

from benchmarks.papers.cobb_2019.lenet import (
    CHUNK,
    CONCENTRATION,
    FIRST_STEP,
    LEARNING_RATE,
    RATE,
    SITE,
    Iteration,
    Setting,
    Weights,
    batches,
    initial_weights,
    iteration,
    start_of_chain,
)
from pyro_split import S3HMC, networks, priors

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NETWORK = networks.cnn().to(DEVICE)


def model(x: Tensor, y: Tensor) -> None:
    """Digits y given images x; a precision for the weights and one for the biases of each layer."""
    prior = partial(priors.normal_gamma, concentration=CONCENTRATION, rate=RATE)
    with torch.device(x.device):  # where priors make their tensors
        network = networks.random_module(SITE, NETWORK, prior)
    with pyro.plate("data", x.shape[0]):
        pyro.sample("y", dist.Categorical(logits=network(x)), obs=y)


def optimised(x: np.ndarray, y: np.ndarray, epochs: int, seed: int) -> Weights:
    """Weights after some epochs of Adam on the likelihood alone."""
    images, labels = _tensor(x), _tensor(y)
    weights = {path: _tensor(w).requires_grad_() for path, w in initial_weights(seed).items()}
    optimiser = torch.optim.Adam(weights.values(), LEARNING_RATE)
    for rows in batches(len(y), epochs, seed):
        optimiser.zero_grad()
        F.cross_entropy(functional_call(NETWORK, weights, images[_tensor(rows)]), labels[_tensor(rows)]).backward()
        optimiser.step()
    return {path: _array(w) for path, w in weights.items()}


def chain(x: np.ndarray, y: np.ndarray, start: Weights, setting: Setting) -> Iterator[Iteration]:
    """S3HMC from a point; the iterations one by one, those of warm-up first."""
    pyro.set_rng_seed(setting.seed)
    values = {name: _tensor(u) for name, u in start_of_chain(start).items()}
    kernel = S3HMC(
        model,
        setting.num_subsets,
        schedule="naive",
        num_steps=setting.num_steps,
        step_size=FIRST_STEP,
        find_heuristic_step_size=False,
        adapt_mass_matrix=False,
        init_strategy=init_to_value(values=values),
    )
    kernel.setup(setting.warmup, _tensor(x), _tensor(y))
    print(kernel, flush=True)
    position = kernel.initial_params
    for _ in range(setting.warmup + setting.draws):
        position = kernel.sample(position)
        sites = {name: _array(kernel.transforms[name].inv(u)) for name, u in position.items()}
        shown = kernel.logging()
        yield iteration(float(shown["acc. prob"]), float(shown["step size"]), sites)


@torch.no_grad()
def probabilities(weights: Weights, x: np.ndarray) -> np.ndarray:
    """Class probabilities of images, shape (rows, 10)."""
    parameters = {path: _tensor(w) for path, w in weights.items()}
    chunks = (_tensor(x[i : i + CHUNK]) for i in range(0, len(x), CHUNK))
    return np.concatenate([_array(functional_call(NETWORK, parameters, chunk).softmax(dim=1)) for chunk in chunks])


def peak_device_bytes() -> int | None:
    """Most memory held on an accelerator; None where there is none."""
    return torch.cuda.max_memory_allocated() if DEVICE == "cuda" else None


def _tensor(x: np.ndarray) -> Tensor:
    return torch.as_tensor(x, device=DEVICE)


def _array(x: Tensor) -> np.ndarray:
    return x.detach().cpu().numpy()
