"""What the scripts on free spoken digits share: spectrograms, the network, the four arms of table 4.

The paper's recordings of vehicles are closed. Here the spoken digits of Jackson (CC BY-SA 4.0) stand in: ten classes in
the place of nine, one microphone in the place of three. As there: log-power spectrograms by ``scipy.signal.spectrogram``
at its default window, scaled by mean and standard deviation of the training data; four convolutional layers with
max-pooling and SELU, and one dense layer; random splits. Frequencies are averaged in fours, 32 × 36 entries,
kernels are 2 × 2 and channels 4, 8, 8 and 16, of which the paper says nothing.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC

from benchmarks.papers.baselines import Trained, Training, initial_weights, logits
from numpyro_split import SGHMC, SGLD, SymmetricSplitHMC, networks, priors, sample
from split_common.datasets import load_spoken_digits

ARMS = ("SGD", "SGLD", "SGHMC", "symmetric")
WINDOW, OVERLAP, POOLED = 256, 32, 4
NETWORK = partial(networks.cnn, (1, 32, 36), 10, channels=(4, 8, 8, 16), kernel_size=2, hidden=())
BATCH_SIZE, NUM_SUBSETS, NUM_STEPS = 100, 2, 11  # of the noisy gradients; M and L of symmetric split HMC, the paper's
SGHMC_STEPS, FRICTION, MOMENTUM = 10, 0.01, 0.9  # friction and momentum are the paper's
TEST_SHARE = 0.2


class Digits(NamedTuple):
    """Spectrograms, shape (rows, 1, 32, 36), float32, and digits."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


class Settings(NamedTuple):
    """What an arm is run with.

    Attributes:
        step_size: learning rate of SGD; ε of SGLD; η of SGHMC. Symmetric split HMC adapts its own.
        prior_sd: of every weight; of SGD it makes the weight decay.
    """

    step_size: float
    prior_sd: float


class Length(NamedTuple):
    """How long an arm runs: iterations of warm-up, draws, and iterations from draw to draw."""

    warmup: int
    draws: int
    thinning: int = 1


def load(directory: str | None, rows: int, split: int) -> Digits:
    """The first rows of a random split to train on, and a fifth of all rows to test on."""
    data = load_spoken_digits(
        directory, split="random", test_fraction=TEST_SHARE, seed=split, window=WINDOW, overlap=OVERLAP
    )
    x_train, x_test = (_pooled(x) for x in (data.x_train[:rows], data.x_test))
    return Digits(x_train, data.y_train[:rows], x_test, data.y_test)


def _pooled(x: np.ndarray) -> np.ndarray:
    rows, frequencies, times = x.shape
    kept = frequencies // POOLED * POOLED  # the last one is left out
    return x[:, :kept].reshape(rows, 1, -1, POOLED, times).mean(3).astype(np.float32)


def model(prior_sd: float, x: Any, y: Any) -> None:
    """Digits given spectrograms, every weight N(0, prior_sd²)."""
    network = networks.random_module("net", NETWORK(activation=jax.nn.selu), partial(priors.normal, scale=prior_sd))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Categorical(logits=network(x)), obs=y)


def run_arm(
    arm: str, digits: Digits, settings: Settings, length: Length, seed: int, store: str | None = None
) -> dict[str, Any]:
    """Run an arm.

    Returns:
        "probabilities" of the test digits, shape (draws, rows, classes); "train", those of the training digits;
        "statistics", numbers by name; "trace", the potential energy of each draw.
    """
    start = time.perf_counter()
    if arm == "SGD":
        weights, statistics, trace = _sgd(digits, settings, length, seed)
    else:
        weights, statistics, trace = _chain(arm, digits, settings, length, seed, store)
    forward = jax.jit(lambda w, x: jax.nn.softmax(logits(NETWORK, jax.nn.selu, w, x)))
    rows = len(trace)
    draws = [{path: u[i] for path, u in weights.items()} for i in range(rows)]
    test, train = (np.array([np.asarray(forward(w, x)) for w in draws]) for x in (digits.x_test, digits.x_train))
    statistics["seconds"] = time.perf_counter() - start
    return {"probabilities": _summing_to_one(test), "train": _summing_to_one(train), "statistics": statistics, "trace": trace}


def _summing_to_one(probabilities: np.ndarray) -> np.ndarray:
    probabilities = probabilities.astype(np.float64)
    return probabilities / probabilities.sum(-1, keepdims=True)


def _sgd(digits: Digits, settings: Settings, length: Length, seed: int) -> tuple[Any, dict[str, Any], np.ndarray]:
    decay = settings.prior_sd**-2 / len(digits.x_train)
    epochs = length.warmup + length.draws
    training = Training(numpyro.optim.Momentum(settings.step_size, MOMENTUM), epochs, BATCH_SIZE, weight_decay=decay)
    found = Trained(NETWORK, jax.nn.selu, training).weights(digits.x_train, digits.y_train, seed)
    return {path: np.asarray(u)[None] for path, u in found.items()}, {"epochs": epochs}, np.zeros(1)


def _chain(
    arm: str, digits: Digits, settings: Settings, length: Length, seed: int, store: str | None
) -> tuple[Any, dict[str, Any], np.ndarray]:
    target = partial(model, settings.prior_sd)
    if arm == "SGLD":
        kernel = SGLD(target, BATCH_SIZE, step_size=settings.step_size)
    elif arm == "SGHMC":
        kernel = SGHMC(target, BATCH_SIZE, step_size=settings.step_size, friction=FRICTION, num_steps=SGHMC_STEPS)
    else:
        kernel = SymmetricSplitHMC(
            target, NUM_SUBSETS, num_steps=NUM_STEPS, step_size=settings.step_size, adapt_mass_matrix=False
        )
    mcmc = MCMC(
        kernel,
        num_warmup=length.warmup,
        num_samples=length.draws * length.thinning,
        thinning=length.thinning,
        progress_bar=False,
    )
    start = {f"net.{path}": jnp.asarray(u) for path, u in initial_weights(NETWORK, seed).items()}
    rows, fields = (digits.x_train, digits.y_train), ("accept_prob", "potential_energy", "diverging", "step_size")
    options: dict[str, Any] = {"extra_fields": fields, "init_params": start}
    if store is None:
        mcmc.run(jax.random.key(seed), *rows, **options)
    else:
        sample(mcmc, jax.random.key(seed), *rows, store=f"{store}/digits_{arm}_{seed}.zarr", **options)
    found = {name: np.asarray(u) for name, u in mcmc.get_extra_fields().items()}
    means = {name: float(np.mean(u)) for name, u in found.items() if name != "potential_energy"}
    return (
        {name.removeprefix("net."): np.asarray(u) for name, u in mcmc.get_samples().items()},
        means,
        found["potential_energy"],
    )
