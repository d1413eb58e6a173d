"""The CNN in NumPyro: the model, a starting point, a chain, predictions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import init_to_value

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
from numpyro_split import S3HMC, networks, priors

NETWORK = networks.cnn()


def model(x: jax.Array, y: jax.Array) -> None:
    """Digits y given images x; a precision for the weights and one for the biases of each layer."""
    prior = partial(priors.normal_gamma, concentration=CONCENTRATION, rate=RATE)
    network = networks.random_module(SITE, NETWORK, prior)
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Categorical(logits=network(x)), obs=y)


@jax.jit
def logits(weights: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """What the network makes of images."""
    return networks.random_module(SITE, NETWORK, lambda name, _: weights[name.removeprefix(f"{SITE}.")])(x)


def loss(weights: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    """Cross entropy in nats, the mean over images."""
    log_probs = jax.nn.log_softmax(logits(weights, x))
    return -jnp.mean(jnp.take_along_axis(log_probs, y[:, None], axis=1))


def optimised(x: np.ndarray, y: np.ndarray, epochs: int, seed: int) -> Weights:
    """Weights after some epochs of Adam on the likelihood alone."""
    optimiser = numpyro.optim.Adam(LEARNING_RATE)
    state = optimiser.init(jax.tree.map(jnp.asarray, initial_weights(seed)))
    update = jax.jit(lambda state, *rows: optimiser.update(jax.grad(loss)(optimiser.get_params(state), *rows), state))
    for rows in batches(len(y), epochs, seed):
        state = update(state, x[rows], y[rows])
    return jax.device_get(optimiser.get_params(state))


def chain(x: np.ndarray, y: np.ndarray, start: Weights, setting: Setting) -> Iterator[Iteration]:
    """S3HMC from a point; the iterations one by one, those of warm-up first."""
    values = jax.tree.map(jnp.asarray, start_of_chain(start))
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
    data = (jnp.asarray(x), jnp.asarray(y))
    state = kernel.init(jax.random.key(setting.seed), setting.warmup, None, data)
    print(kernel, flush=True)
    constrain = kernel.get_constrain_fn(data)
    iterate = jax.jit(lambda state, *data: kernel.sample(state, data, None), donate_argnums=0)
    for _ in range(setting.warmup + setting.draws):
        state = iterate(state, *data)
        sites = jax.device_get(constrain(state.z))
        yield iteration(float(state.mean_accept_prob), float(state.step_size), sites)


def probabilities(weights: Weights, x: np.ndarray) -> np.ndarray:
    """Class probabilities of images, shape (rows, 10)."""
    chunks = (x[i : i + CHUNK] for i in range(0, len(x), CHUNK))
    return np.concatenate([jax.nn.softmax(logits(weights, chunk)) for chunk in chunks])


def peak_device_bytes() -> int | None:
    """Most memory held on an accelerator; None where there is none."""
    statistics = jax.devices()[0].memory_stats()
    return statistics and statistics["peak_bytes_in_use"]
