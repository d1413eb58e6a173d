"""What ``benchmarks.nuts_cost`` runs in NumPyro."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax, random
from numpyro.infer import NUTS

from benchmarks.nuts_cost.targets import NUM_GROUPS
from numpyro_split import SplitNUTS

CHAINS = 4


def logistic(x: jax.Array, y: jax.Array) -> None:
    """Logistic regression."""
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def hierarchical(group: jax.Array, y: jax.Array) -> None:
    """Means of groups, non-centred."""
    mean, scale = numpyro.sample("mean", dist.Normal(0, 5)), numpyro.sample("scale", dist.HalfNormal(2))
    offsets = jnp.asarray(numpyro.sample("offsets", dist.Normal(0, 1).expand([NUM_GROUPS]).to_event(1)))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal(mean + scale * offsets[group], 1), obs=y)


def normal(y: jax.Array) -> None:
    """Means of independent normals of known scales."""
    mean = numpyro.sample("mean", dist.Normal(0, 10).expand([y.shape[1]]).to_event(1))
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal(mean, jnp.logspace(-1, 1, y.shape[1])).to_event(1), obs=y)


MODELS = {"logistic": logistic, "tall": logistic, "hierarchical": hierarchical, "normal": normal}


class Sampler:
    """One sampler on one target.

    Args:
        name: "host" or "split".
        target: which target.
        data: the model's arguments.
        warmup: iterations that adapt.
    """

    def __init__(self, name: str, target: str, data: tuple[np.ndarray, ...], warmup: int):
        kernel = NUTS(MODELS[target]) if name == "host" else SplitNUTS(MODELS[target], num_subsets=1)
        arrays = tuple(jnp.asarray(x) for x in data)
        self._init = lambda key: kernel.init(key, warmup, None, arrays, {})
        self._warmup = warmup

        def iterate(state: Any, iterations: jax.Array) -> tuple[Any, jax.Array]:
            def body(_: int, carry: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
                state = kernel.sample(carry[0], arrays, {})
                return state, carry[1] + state.num_steps

            return lax.fori_loop(0, iterations, body, (state, jnp.zeros((), int)))

        def draw(state: Any, _: None) -> tuple[Any, Any]:
            state = kernel.sample(state, arrays, {})
            return state, (state.z, state.num_steps)

        self._iterate = jax.jit(iterate)
        self._draw: Callable[..., Any] = jax.jit(
            lambda state, draws: lax.scan(draw, state, None, length=draws)[1], static_argnums=1
        )

    def warmed_up(self, seed: int) -> Any:
        """State of a chain after warm-up."""
        return self._iterate(self._init(random.key(seed)), self._warmup)[0]

    def advance(self, state: Any, iterations: int) -> int:
        """Run some iterations from a state; the number of gradients taken."""
        return int(self._iterate(state, iterations)[1])

    def chains(self, seed: int, draws: int) -> tuple[dict[str, np.ndarray], int]:
        """Draws of four chains, by site, shape (chains, draws, ...), and their gradients."""
        runs = [jax.device_get(self._draw(self.warmed_up(1000 * seed + c), draws)) for c in range(CHAINS)]
        return {name: np.stack([z[name] for z, _ in runs]) for name in runs[0][0]}, int(sum(n.sum() for _, n in runs))
