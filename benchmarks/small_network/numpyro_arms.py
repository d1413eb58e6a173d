"""What ``benchmarks.small_network`` runs in NumPyro."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import lax

from benchmarks.small_network.network import NOISE_SD, SHAPES, STEP_SIZE, Arm, Data
from numpyro_split import SymmetricSplitHMC


def model(x: jax.Array, y: jax.Array) -> None:
    """Every weight N(0, 1), rectified units, normal noise."""
    w = {
        name: numpyro.sample(name, dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape)))
        for name, shape in SHAPES.items()
    }
    h = jax.nn.relu(x @ w["weight_1"] + w["bias_1"])
    h = jax.nn.relu(h @ w["weight_2"] + w["bias_2"])
    mean = (h @ w["weight_3"] + w["bias_3"])[:, 0]
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(mean, NOISE_SD), obs=y)


def make_arm(data: Data, num_subsets: int, num_steps: int, num_draws: int) -> Arm:
    """Our symmetric kernel, compiled; whole gradients where ``num_subsets`` is 1."""
    kernel = SymmetricSplitHMC(
        model,
        num_subsets=num_subsets,
        num_steps=num_steps,
        step_size=STEP_SIZE,
        step_size_jitter=0.0,
        adapt_step_size=False,
        adapt_mass_matrix=False,
    )
    rows = jnp.asarray(data.x), jnp.asarray(data.y)
    state = kernel.init(jax.random.key(0), 0, {name: jnp.asarray(w) for name, w in data.start.items()}, rows)
    iterate = jax.jit(lambda state: lax.fori_loop(0, num_draws, lambda _, s: kernel.sample(s, rows, {}), state))

    def draw() -> None:
        nonlocal state
        state = jax.block_until_ready(iterate(state))

    return Arm(draw, lambda: float(state.mean_accept_prob))
