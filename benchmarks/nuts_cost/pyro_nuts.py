"""What ``benchmarks.nuts_cost`` runs in Pyro."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import NUTS
from torch import Tensor

from benchmarks.nuts_cost.targets import NUM_GROUPS
from pyro_split import SplitNUTS

CHAINS = 4


def logistic(x: Tensor, y: Tensor) -> None:
    """Logistic regression."""
    weights = pyro.sample("weights", dist.Normal(torch.zeros(x.shape[1]), 1.0).to_event(1))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def hierarchical(group: Tensor, y: Tensor) -> None:
    """Means of groups, non-centred."""
    mean = pyro.sample("mean", dist.Normal(torch.tensor(0.0), 5.0))
    scale = pyro.sample("scale", dist.HalfNormal(torch.tensor(2.0)))
    offsets = pyro.sample("offsets", dist.Normal(torch.zeros(NUM_GROUPS), 1.0).to_event(1))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(mean + scale * offsets[group], 1.0), obs=y)


def normal(y: Tensor) -> None:
    """Means of independent normals of known scales."""
    mean = pyro.sample("mean", dist.Normal(torch.zeros(y.shape[1]), 10.0).to_event(1))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(mean, torch.logspace(-1, 1, y.shape[1])).to_event(1), obs=y)


MODELS: dict[str, Callable[..., None]] = {
    "logistic": logistic,
    "tall": logistic,
    "hierarchical": hierarchical,
    "normal": normal,
}


class Counter:
    """A potential that counts how often it is evaluated: the host's NUTS does so once a gradient."""

    def __init__(self, potential: Callable[..., Tensor]):
        self._potential, self.count = potential, 0

    def __call__(self, z: dict[str, Tensor]) -> Tensor:
        """The potential."""
        self.count += 1
        return self._potential(z)


class Sampler:
    """One sampler on one target.

    Args:
        name: "host" or "split".
        target: which target.
        data: the model's arguments.
        warmup: iterations that adapt.
    """

    def __init__(self, name: str, target: str, data: tuple[np.ndarray, ...], warmup: int):
        self._is_host, self._warmup = name == "host", warmup
        self._model, self._data = MODELS[target], tuple(torch.as_tensor(x) for x in data)

    def warmed_up(self, seed: int) -> Any:
        """A kernel after warm-up and its position."""
        pyro.set_rng_seed(seed)
        if self._is_host:
            kernel: Any = NUTS(self._model, jit_compile=True, ignore_jit_warnings=True)
        else:
            kernel = SplitNUTS(self._model, num_subsets=1)
        kernel.setup(self._warmup, *self._data)
        if self._is_host:
            kernel.potential_fn = Counter(kernel.potential_fn)
        z = kernel.initial_params
        for _ in range(self._warmup):
            z = kernel.sample(z)
        return kernel, z

    def advance(self, state: Any, iterations: int) -> int:
        """Run some iterations from a state; the number of gradients taken."""
        return self._run(state, iterations)[1]

    def chains(self, seed: int, draws: int) -> tuple[dict[str, np.ndarray], int]:
        """Draws of four chains, by site, shape (chains, draws, ...), and their gradients."""
        runs = [self._run(self.warmed_up(1000 * seed + c), draws) for c in range(CHAINS)]
        sites = runs[0][0][0]
        by_site = {name: np.stack([[z[name].numpy() for z in zs] for zs, _ in runs]) for name in sites}
        return by_site, sum(num_grads for _, num_grads in runs)

    def _run(self, state: Any, iterations: int) -> tuple[list[dict[str, Tensor]], int]:
        kernel, z = state
        before = kernel.potential_fn.count if self._is_host else 0
        draws = []
        for _ in range(iterations):
            z = kernel.sample(z)
            draws.append(z)
        if self._is_host:
            return draws, kernel.potential_fn.count - before
        return draws, sum(kernel.diagnostics()["num_grads"][-iterations:])
