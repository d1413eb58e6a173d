"""What ``benchmarks.hierarchical`` runs in NumPyro: models centred and not, their data, and the samplers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax, random
from numpyro.infer import NUTS

from numpyro_split import S3HMC, BlockGibbsHMC

PRECISION_PRIOR = (2.0, 2.0)  # concentration and rate
NUM_WEIGHTS = 50
NUM_GROUPS, ROWS_PER_GROUP, GROUP_NOISE = 40, 4, 2.0
HIDDEN, NETWORK_ROWS, NETWORK_NOISE = 8, 50, 0.2

Model = Callable[..., None]


class Target(NamedTuple):
    """A model and its data.

    Attributes:
        model: takes the data, and ``centred``.
        data: its arguments.
        precisions: names of its precision sites.
        about: a few words.
    """

    model: Model
    data: tuple[np.ndarray, ...]
    precisions: tuple[str, ...]
    about: str


def _weights(name: str, shape: tuple[int, ...], centred: bool, mean: Any = 0.0) -> jax.Array:
    """Normal weights and the precision that they share, its name that of the weights after "tau_"."""
    precision = numpyro.sample(f"tau_{name}", dist.Gamma(*PRECISION_PRIOR))
    loc, scale = (mean, precision**-0.5) if centred else (0.0, 1.0)
    drawn = jnp.asarray(numpyro.sample(name, dist.Normal(loc, scale).expand(shape).to_event(len(shape))))
    return drawn if centred else mean + precision**-0.5 * drawn


def _observe(mean: jax.Array, noise: float, y: jax.Array) -> None:
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal(mean, noise), obs=y)


def linear(x: jax.Array, y: jax.Array, centred: bool) -> None:
    """Linear regression, noise 1."""
    _observe(x @ _weights("w", (x.shape[1],), centred), 1.0, y)


def effects(group: jax.Array, y: jax.Array, centred: bool) -> None:
    """Effects of groups about an unknown mean."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
    _observe(_weights("effect", (NUM_GROUPS,), centred, mean)[group], GROUP_NOISE, y)


def network(x: jax.Array, y: jax.Array, centred: bool) -> None:
    """Regression by a layer of tanh units, with a precision for each of its three sites of weights."""
    hidden = jnp.tanh(x[:, None] * _weights("w1", (HIDDEN,), centred) + _weights("b1", (HIDDEN,), centred))
    _observe(hidden @ _weights("w2", (HIDDEN,), centred), NETWORK_NOISE, y)


def _linear_data(rows: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, NUM_WEIGHTS))
    return x, x @ rng.normal(size=NUM_WEIGHTS) + rng.normal(size=rows)


def _effects_data() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(NUM_GROUPS), ROWS_PER_GROUP)
    return group, 1.0 + rng.normal(size=NUM_GROUPS)[group] + GROUP_NOISE * rng.normal(size=len(group))


def _network_data() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-3.0, 3.0, NETWORK_ROWS)
    return x, np.sin(x) + NETWORK_NOISE * rng.normal(size=NETWORK_ROWS)


def targets() -> dict[str, Target]:
    """The targets by name."""
    return {
        "few rows": Target(linear, _linear_data(20), ("tau_w",), "linear, 50 weights, 20 rows"),
        "many rows": Target(linear, _linear_data(2000), ("tau_w",), "linear, 50 weights, 2,000 rows"),
        "effects": Target(effects, _effects_data(), ("tau_effect",), "40 groups of 4 rows, noise 2"),
        "network": Target(network, _network_data(), ("tau_w1", "tau_b1", "tau_w2"), "1-8-1 tanh, 50 rows"),
    }


KERNELS: dict[str, tuple[bool, Callable[[Model], Any]]] = {
    "S3HMC": (True, S3HMC),
    "S3HMC, length 5": (True, partial(S3HMC, trajectory_length=5.0)),
    "block Gibbs NUTS": (True, BlockGibbsHMC),
    "host NUTS centred": (True, NUTS),
    "host NUTS non-centred": (False, NUTS),
}
METHODS = tuple(KERNELS)


class Draws(NamedTuple):
    """What chains bring.

    Attributes:
        log_scales: log σ of each precision, shape (chains, draws) each.
        num_grads: gradients of these draws.
        num_steps: steps of these draws.
        num_diverging: of these draws, how many ended a diverging trajectory.
        step_size: at the end, its mean over chains.
    """

    log_scales: dict[str, np.ndarray]
    num_grads: int
    num_steps: int
    num_diverging: int
    step_size: float


class Sampler:
    """One method on one target; chains run one after the other, compiled at construction.

    Args:
        method: key of ``KERNELS``.
        target: what is sampled.
        num_chains: how many starting points are made.
        warmup: iterations that adapt.
    """

    def __init__(self, method: str, target: Target, num_chains: int, warmup: int):
        is_centred, make = KERNELS[method]
        model = partial(target.model, centred=is_centred)
        data = jax.tree.map(_default_precision, target.data)
        self._states = make(model).init(random.split(random.key(0), num_chains), warmup, None, data, {})
        kernel = make(model)  # one that has started a batch of chains samples batches only
        kernel.init(random.key(0), warmup, None, data, {})
        self._precisions, self._warmup = target.precisions, warmup

        def iterate(state: Any, _: None) -> tuple[Any, Any]:
            state = kernel.sample(state, data, {})
            num_grads = state.num_grads if hasattr(state, "num_grads") else state.num_steps
            log_scales = {name: -0.5 * state.z[name] for name in target.precisions}
            return state, (log_scales, num_grads, state.num_steps, state.diverging)

        self._iterate = jax.jit(lambda state: lax.scan(iterate, state, None, length=warmup))
        jax.block_until_ready(self._iterate(self._state(0)))

    def _state(self, chain: int) -> Any:
        return jax.tree.map(lambda x: x[chain], self._states)

    def warm_up(self, chains: range) -> list[Any]:
        """States of these chains after their warm-up."""
        return jax.block_until_ready([self._iterate(self._state(chain))[0] for chain in chains])

    def draw(self, states: list[Any], num_draws: int) -> tuple[list[Any], list[Any]]:
        """States after ``num_draws`` draws, a multiple of the warm-up, and what was recorded of each chain."""
        recorded = []
        for _ in range(num_draws // self._warmup):
            states, parts = zip(*(self._iterate(state) for state in states), strict=True)
            recorded.append(parts)
        return jax.block_until_ready((list(states), recorded))

    @staticmethod
    def collect(states: list[Any], recorded: list[Any]) -> Draws:
        """Draws of all chains."""
        chains = [jax.tree.map(lambda *parts: np.concatenate(parts), *parts) for parts in zip(*recorded, strict=True)]
        log_scales, *counts = jax.tree.map(lambda *x: np.stack(x), *chains)
        step_sizes = [getattr(state, "step_size", state.adapt_state.step_size) for state in states]
        return Draws(log_scales, *(int(count.sum()) for count in counts), float(np.mean(step_sizes)))


def _default_precision(x: np.ndarray) -> jax.Array:
    return jnp.asarray(x if np.issubdtype(x.dtype, np.integer) else x.astype(np.float32))
