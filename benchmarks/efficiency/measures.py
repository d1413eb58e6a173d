"""Chains of one arm on one target, and what they are judged by."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any, NamedTuple

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from benchmarks.common.timing import interleaved
from benchmarks.efficiency.arms import Arm
from benchmarks.efficiency.laplace import Laplace
from benchmarks.efficiency.targets import Target
from numpyro_split import split_model

FIELDS = ("num_steps", "num_grads", "accept_prob", "center_order", "diverging")


class Sizes(NamedTuple):
    """How long an arm runs.

    Attributes:
        num_chains: vectorised.
        num_samples: draws of each.
        host_samples: draws of each of an arm of the host's.
        most_warmup: no arm has more iterations of warm-up.
    """

    num_chains: int
    num_samples: int
    host_samples: int
    most_warmup: int

    def of(self, arm: Arm) -> tuple[int, int]:
        """Iterations of warm-up, and draws, of a chain."""
        return min(arm.num_warmup, self.most_warmup), self.host_samples if arm.is_host else self.num_samples


def forward_share(target: Target, repeats: int = 11) -> float:
    """Time of a forward pass over the rows in gradients, subset by subset, the median of rounds."""
    potential = split_model(target.model, target.args, num_subsets=target.num_subsets)
    z = target.position()
    forward, gradient = jax.jit(lambda p, z: p.energies(z)), jax.jit(lambda p, z: p.energies_and_grad(z))
    seconds = interleaved(
        {
            "forward": lambda: jax.block_until_ready(forward(potential, z)),
            "gradient": lambda: jax.block_until_ready(gradient(potential, z)),
        },
        repeats,
    )
    return float(np.median(seconds["forward"] / seconds["gradient"]))


def effective_size(draws: np.ndarray) -> float:
    """Bulk effective size (ArviZ), worse of z and z² about the mean, of the worst quantity; 0 where one stands still.

    Args:
        draws: shape (chains, draws, quantities).
    """
    if np.any(np.ptp(draws, axis=(0, 1)) == 0) or not np.all(np.isfinite(draws)):
        return 0.0
    return min(float(np.min(_ess(x))) for x in (draws, (draws - draws.mean((0, 1))) ** 2))


def _ess(x: np.ndarray) -> np.ndarray:
    return np.asarray(az.ess(az.convert_to_dataset({"x": x}))["x"])


def figures(draws: np.ndarray, gradients: float, forwards: float, seconds: float) -> dict[str, float]:
    """What an arm is compared by.

    Args:
        draws: shape (chains, draws, quantities).
        gradients: passes over the rows, for gradients.
        forwards: forward passes, in gradients.
        seconds: that the draws took.
    """
    size, num_draws = effective_size(draws), draws.shape[0] * draws.shape[1]
    is_several = draws.shape[0] > 1 and size > 0
    return {
        "ess": size,
        "ess_per_draw": size / num_draws,
        "ess_per_pass": size / (gradients + forwards),
        "ess_per_gradient": size / gradients,
        "ess_per_second": size / seconds,
        "passes_per_draw": (gradients + forwards) / num_draws,
        "seconds": seconds,
        "rhat": float(az.rhat(az.convert_to_dataset({"x": draws}))["x"].max()) if is_several else math.nan,
    }


def measure(
    target: Target, arm: Arm, known: Laplace | None, share: float, sizes: Sizes, seeds: list[int]
) -> dict[str, dict[str, float]]:
    """The figures of one arm of JAX on one target, by seed; compiled once.

    Args:
        target: what is sampled.
        arm: how.
        known: mode and covariance, where the arm is given them.
        share: of a forward pass in a gradient.
        sizes: how long.
        seeds: of the chains.
    """
    jax.clear_caches()
    chains = Chains(target, arm, known, sizes)
    return {str(seed): _figures_of_seed(chains, share, sizes, seed) for seed in seeds}


def _figures_of_seed(chains: Chains, share: float, sizes: Sizes, seed: int) -> dict[str, float]:
    target, arm, known = chains.target, chains.arm, chains.known
    num_warmup, num_draws = sizes.of(arm)
    chains.start(seed)
    warmup_seconds, _, of_warmup = chains.advance(num_warmup)
    seconds, draws, fields = chains.advance(num_draws)
    gradients, forwards = passes(target, arm, fields, share)
    mean = {
        name: float(np.mean(fields[name])) for name in ("accept_prob", "center_order", "diverging") if name in fields
    }
    return {
        **figures(draws, gradients, forwards, seconds),
        "warmup_passes": sum(passes(target, arm, of_warmup, share)) / sizes.num_chains,
        "reference_passes": float(known.passes) if known else 0.0,
        "warmup_seconds": warmup_seconds,
        "steps": float(np.mean(fields["num_steps"])),
        **mean,
    }


def passes(target: Target, arm: Arm, fields: dict[str, np.ndarray], share: float) -> tuple[float, float]:
    """Over the rows, for gradients and, in gradients, forwards."""
    num_steps, num_iterations = float(np.sum(fields["num_steps"])), fields["num_steps"].size
    part = 1.0 if arm.subsample_size is None else arm.subsample_size / target.num_rows
    gradients = (
        part * num_steps if arm.counts == "num_steps" else float(np.sum(fields["num_grads"])) / target.num_subsets
    )
    forwards = {"": 0.0, "draw": num_iterations, "step": num_steps, "blocks": 2 * part * num_iterations}[arm.forward]
    return gradients, share * forwards


class Chains:
    """Several chains of an arm, compiled once, started for each seed and gone on with.

    Args:
        target: what is sampled.
        arm: how.
        known: mode and covariance, where the arm is given them.
        sizes: how long.
    """

    def __init__(self, target: Target, arm: Arm, known: Laplace | None, sizes: Sizes):
        self.target, self.arm, self.known = target, arm, known
        self._kernel, self._num_chains = arm.make(target, known), sizes.num_chains
        self._kwargs = {} if arm.subsample_size is None else {"subsample_size": arm.subsample_size}
        self._num_warmup, num_draws = sizes.of(arm)
        self._length = math.gcd(self._num_warmup, num_draws)
        self._judged = jax.jit(lambda z: lax.map(jax.vmap(target.judged), z))
        self._run, self._state = None, None

    def start(self, seed: int) -> None:
        """Start every chain anew."""
        keys, args = random.split(random.key(seed), self._num_chains), self.target.args
        if self.arm.subsample_size is None:
            starts = None if self.known is None else self.known.draws(self._num_chains, seed)
            self._state = self._kernel.init(keys, self._num_warmup, starts, args, self._kwargs)
        else:  # the host's MCMC does not vectorise HMCECS
            assert self.known is not None
            mode = self.known.at_mode()
            states = [self._kernel.init(key, self._num_warmup, mode, args, self._kwargs) for key in keys]
            self._state = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
        if self._run is None:
            self._run = jax.jit(self._iterations).lower(self._state, args).compile()

    def _iterations(self, state: Any, args: tuple[Any, ...]) -> tuple[Any, Any]:
        """Go on by the compiled length, with positions and fields of the states, iterations on axis 0."""
        sample = partial(self._kernel.sample, model_args=args, model_kwargs=self._kwargs)

        def iterate(state: Any, _: None) -> tuple[Any, Any]:
            state = (sample if self.arm.subsample_size is None else jax.vmap(sample))(state)
            inner = getattr(state, "hmc_state", state)
            fields = {name: getattr(inner, name) for name in FIELDS if getattr(inner, name, None) is not None}
            return state, (state.z, fields)

        return lax.scan(iterate, state, None, length=self._length)

    def advance(self, iterations: int) -> tuple[float, np.ndarray, dict[str, np.ndarray]]:
        """Iterate.

        Args:
            iterations: a multiple of the compiled length.

        Returns:
            Seconds; judged quantities, shape (chains, iterations, quantities); fields, iterations on axis 0.
        """
        assert self._run is not None
        seconds, judged, fields = 0.0, [], []
        for _ in range(iterations // self._length):
            begin = time.perf_counter()
            self._state, (z, found) = jax.block_until_ready(self._run(self._state, self.target.args))
            seconds += time.perf_counter() - begin
            judged.append(np.asarray(self._judged(z)))
            fields.append({name: np.asarray(value) for name, value in found.items()})
        joined = {name: np.concatenate([part[name] for part in fields]) for name in fields[0]}
        return seconds, np.concatenate(judged).swapaxes(0, 1), joined
