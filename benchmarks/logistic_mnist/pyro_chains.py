"""What ``benchmarks.logistic_mnist`` runs in Pyro."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyro
import torch
from pyro.infer import HMC
from pyro.ops.stats import effective_sample_size
from torch import Tensor

from benchmarks.common.pyro_models import Position, classifiers
from benchmarks.logistic_mnist.chains import Chain, Setting, concatenated
from pyro_split import NaiveSplitHMC, RandomisedSplitHMC, SymmetricSplitHMC

SPLIT_KERNELS = {"naive": NaiveSplitHMC, "randomised": RandomisedSplitHMC, "symmetric": SymmetricSplitHMC}


class Chains:
    """Chains of every scheme on one data set.

    Args:
        x: inputs, shape (N, 784).
        y: labels, shape (N,).
        setting: the benchmark's setting.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, setting: Setting):
        self._data = (torch.as_tensor(x), torch.as_tensor(y).long())
        self._setting = setting
        self._model = classifiers(setting.prior_sd)["softmax"]

    def warm_up(self, z: dict[str, np.ndarray], seed: int) -> Position:
        """Where split HMC with adapted steps leads from ``z``."""
        setting = self._setting
        kernel = NaiveSplitHMC(
            self._model,
            setting.num_subsets,
            num_steps=setting.num_steps,
            step_size=setting.step_size,
            adapt_mass_matrix=False,
        )
        start = {name: torch.as_tensor(u) for name, u in z.items()}
        return self._run(kernel, start, seed, setting.warmup, num_warmup=setting.warmup)[0]

    def run(self, scheme: str, z: Position, seed: int) -> Chain:
        """One chain of a scheme at the fixed step size, traced before the clock starts."""
        fixed: dict[str, Any] = {
            "num_steps": self._setting.num_steps,
            "step_size": self._setting.step_size,
            "adapt_step_size": False,
            "adapt_mass_matrix": False,
        }
        if scheme == "full":
            kernel = HMC(self._model, **fixed)
        else:
            kernel = SPLIT_KERNELS[scheme](self._model, self._setting.num_subsets, **fixed)
        return self._run(kernel, z, seed, self._setting.iterations)[1]

    @staticmethod
    def effective_samples(draws: np.ndarray) -> float:
        """Effective sample size, averaged over parameters, of draws of shape (chains, iterations, parameters)."""
        return float(effective_sample_size(torch.as_tensor(draws)).mean())

    def _run(self, kernel: Any, z: Position, seed: int, iterations: int, num_warmup: int = 0) -> tuple[Position, Chain]:
        pyro.set_rng_seed(seed)
        kernel.initial_params = {name: u.clone() for name, u in z.items()}
        kernel.setup(num_warmup, *self._data)
        position: dict[str, Tensor] = kernel.initial_params
        draws = []
        start = time.perf_counter()
        for _ in range(iterations):
            position = kernel.sample(position)
            draws.append(concatenated({name: u.numpy() for name, u in position.items()}))
        seconds = time.perf_counter() - start
        # the host keeps the mean acceptance probability for its progress bar only
        accept_prob = float(kernel.logging()["acc. prob"])
        return {name: u.detach().clone() for name, u in position.items()}, Chain(accept_prob, np.array(draws), seconds)
