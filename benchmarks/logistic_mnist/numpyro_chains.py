"""What ``benchmarks.logistic_mnist`` runs in NumPyro."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import HMC

from benchmarks.common.numpyro_models import Position, classifiers
from benchmarks.logistic_mnist.chains import Chain, Setting, concatenated
from numpyro_split import NaiveSplitHMC, RandomisedSplitHMC, SymmetricSplitHMC

SPLIT_KERNELS = {"naive": NaiveSplitHMC, "randomised": RandomisedSplitHMC, "symmetric": SymmetricSplitHMC}


class Chains:
    """Chains of every scheme on one data set.

    Args:
        x: inputs, shape (N, 784).
        y: labels, shape (N,).
        setting: the benchmark's setting.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, setting: Setting):
        self._data = (jnp.asarray(x), jnp.asarray(y))
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
        z = jax.tree.map(jnp.asarray, z)
        return self._run(kernel, z, seed, setting.warmup, num_warmup=setting.warmup)[0]

    def run(self, scheme: str, z: Position, seed: int) -> Chain:
        """One chain of a scheme at the fixed step size, compiled before the clock starts."""
        fixed: dict[str, Any] = {
            "num_steps": self._setting.num_steps,
            "step_size": self._setting.step_size,
            "adapt_step_size": False,
            "adapt_mass_matrix": False,
        }
        if scheme == "full":  # the host's length must be None, or it overrides the step size
            kernel = HMC(self._model, trajectory_length=None, **fixed)
        else:
            kernel = SPLIT_KERNELS[scheme](self._model, self._setting.num_subsets, **fixed)
        return self._run(kernel, z, seed, self._setting.iterations)[1]

    @staticmethod
    def effective_samples(draws: np.ndarray) -> float:
        """Effective sample size, averaged over parameters, of draws of shape (chains, iterations, parameters)."""
        return float(np.mean(effective_sample_size(draws)))

    def _run(self, kernel: Any, z: Position, seed: int, iterations: int, num_warmup: int = 0) -> tuple[Position, Chain]:
        state = kernel.init(jax.random.key(seed), num_warmup, z, self._data, {})
        iterate = jax.jit(lambda state: kernel.sample(state, self._data, {}))
        jax.block_until_ready(iterate(state))
        accept_prob, draws = [], []
        start = time.perf_counter()
        for _ in range(iterations):
            state = iterate(state)
            accept_prob.append(float(state.accept_prob))
            draws.append(concatenated(jax.device_get(state.z)))
        return state.z, Chain(float(np.mean(accept_prob)), np.array(draws), time.perf_counter() - start)
