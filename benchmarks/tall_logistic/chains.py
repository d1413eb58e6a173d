"""Chains of one method, compiled once and gone on with, and what their draws are judged by."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from benchmarks.tall_logistic.data import Data, Weights
from benchmarks.tall_logistic.methods import Method
from split_common.penalty import TRUSTED_NOISE


class Chains:
    """One chain or several, compiled and warmed up.

    Attributes:
        setup_seconds: what that took, with the mode where the method needs to be told.
        draws: the draws so far, shape (chains, draws, D).
        statistics: by name, the iterations on axis 0.
    """

    def __init__(self, method: Method, data: Data, mode: Weights, mode_seconds: float):
        jax.clear_caches()  # or the first chain would compile for the others
        begin = time.perf_counter()
        kernel, self._method, self._data = method.make(mode), method, data
        kwargs = {} if method.subsample_size is None else {"subsample_size": method.subsample_size}
        start = None if method.finds_mode else mode
        rng_key = random.key(1) if method.num_chains == 1 else random.split(random.key(1), method.num_chains)
        if method.by_hand:
            states = [kernel.init(key, method.warmup, start, data, kwargs) for key in rng_key]
            self._state = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
        else:
            self._state = kernel.init(rng_key, method.warmup, start, data, kwargs)

        def iterate(data: Data, state: Any, _: None) -> tuple[Any, Any]:
            sample = partial(kernel.sample, model_args=data, model_kwargs=kwargs)
            state = (jax.vmap(sample) if method.by_hand else sample)(state)
            return state, (state.z["w"], _statistics(state, data[0].shape[0], method.subsample_size))

        length = math.gcd(method.warmup, method.draws)
        run = jax.jit(lambda state, data: lax.scan(partial(iterate, data), state, None, length=length))
        self._run, self._length = run.lower(self._state, data).compile(), length
        self._recorded: list[Any] = []
        self._advance(method.warmup)
        self._recorded.clear()
        self.setup_seconds = time.perf_counter() - begin + (mode_seconds if method.needs_mode else 0.0)

    def repeat(self) -> None:
        """One repetition."""
        self._advance(self._method.draws)

    def _advance(self, iterations: int) -> None:
        for _ in range(iterations // self._length):
            self._state, recorded = self._run(self._state, self._data)
            self._recorded.append(recorded)
        jax.block_until_ready(self._state)

    @property
    def draws(self) -> np.ndarray:
        draws = np.concatenate([np.asarray(draws, float) for draws, _ in self._recorded])
        return draws.reshape(len(draws), self._method.num_chains, -1).swapaxes(0, 1)

    @property
    def statistics(self) -> dict[str, np.ndarray]:
        names = self._recorded[0][1]
        return {name: np.concatenate([np.asarray(part[1][name]) for part in self._recorded]) for name in names}


def _statistics(state: Any, num_rows: int, subsample_size: int | None) -> dict[str, jax.Array]:
    """Acceptance, steps, distinct rows of an iteration; and the noise, where there is any."""
    if hasattr(state, "chi2"):
        above = state.chi2 > TRUSTED_NOISE * state.num_batches
        noise = {"rows": state.rows_touched, "chi2": state.chi2, "above": above}
        return {"accept_prob": state.accept_prob, "num_steps": state.num_steps, **noise}
    inner, rows = getattr(state, "hmc_state", state), subsample_size or num_rows
    return {"accept_prob": inner.accept_prob, "num_steps": inner.num_steps, "rows": jnp.array(rows)}


def effective_sizes(draws: np.ndarray) -> np.ndarray:
    """For each coordinate the smaller of those of z and z² about the mean; 0 for one that never moved."""
    centred = draws - draws.mean((0, 1))
    sizes = [[float(az.ess(x, method="mean")) for x in np.moveaxis(power, 2, 0)] for power in (centred, centred**2)]
    return np.where(np.ptp(draws, axis=(0, 1)) > 0, np.min(sizes, axis=0), 0.0)


def moments(draws: np.ndarray) -> np.ndarray:
    """Of each coordinate the mean, the standard deviation and their standard errors, shape (4, D)."""
    errors = [[float(az.mcse(x, method=name)) for x in np.moveaxis(draws, 2, 0)] for name in ("mean", "sd")]
    return np.stack([draws.mean((0, 1)), draws.std((0, 1), ddof=1), *np.array(errors)])


def agreement(first: np.ndarray, second: np.ndarray) -> list[float]:
    """Largest differences of means and of standard deviations, in standard errors."""
    differences = np.abs(first[:2] - second[:2]) / np.hypot(first[2:], second[2:])
    return [float(x) for x in differences.max(1)]
