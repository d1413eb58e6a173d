"""What the scripts on free spoken digits share: spectrograms, the network, the four arms of table 4.

The paper's recordings of vehicles are closed. Here the spoken digits of Jackson (CC BY-SA 4.0) stand in: ten classes
in the place of nine, one microphone in the place of three. As there: log-power spectrograms by
``scipy.signal.spectrogram`` at its default window, scaled by mean and standard deviation of the training data; four
convolutional layers with max-pooling and SELU, and one dense layer; random splits. Frequencies are averaged in fours,
32 × 36 entries, kernels are 2 × 2 and channels 4, 8, 8 and 16, of which the paper says nothing. PyTorch's
convolutions are some ten times quicker on a CPU than those in a loop of XLA's, so Pyro carries the runs.
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
import pyro
import torch
from numpyro.infer import MCMC

import numpyro_split
import pyro_split
from benchmarks.papers.baselines import Trained, Training, initial_weights
from numpyro_split import networks, priors
from split_common.datasets import load_spoken_digits

ARMS = ("SGD", "SGLD", "SGHMC", "symmetric")
WINDOW, OVERLAP, POOLED = 256, 32, 4
NETWORK = partial(networks.cnn, (1, 32, 36), 10, channels=(4, 8, 8, 16), kernel_size=2, hidden=())
BATCH_SIZE, NUM_SUBSETS, NUM_STEPS = 100, 2, 11  # of the noisy gradients; M and L of symmetric split HMC, the paper's
SGHMC_STEPS, FRICTION, MOMENTUM = 10, 0.01, 0.9  # friction and momentum are the paper's
TEST_SHARE = 0.2
STATISTICS = ("accept_prob", "diverging", "step_size")


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


def numpyro_model(prior_sd: float, x: Any, y: Any) -> None:
    """Digits given spectrograms in NumPyro, every weight N(0, prior_sd²)."""
    network = networks.random_module("net", NETWORK(activation=jax.nn.selu), partial(priors.normal, scale=prior_sd))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Categorical(logits=network(x)), obs=y)


def pyro_model(prior_sd: float, x: Any, y: Any) -> None:
    """The same in Pyro."""
    prior = partial(pyro_split.priors.normal, scale=prior_sd)
    network = pyro_split.networks.random_module("net", _in_torch(), prior)
    with pyro.plate("data", x.shape[0]):
        pyro.sample("y", pyro.distributions.Categorical(logits=network(x)), obs=y)


def _in_torch() -> torch.nn.Module:
    return pyro_split.networks.cnn(*NETWORK.args, **NETWORK.keywords, activation=torch.selu)


def run_arm(
    arm: str, digits: Digits, settings: Settings, length: Length, seed: int, framework: str, store: str | None = None
) -> dict[str, Any]:
    """Run an arm; SGD in JAX in either framework.

    Returns:
        "probabilities" of the test digits, shape (draws, rows, classes); "train", those of the training digits;
        "statistics", numbers by name; "trace", the potential energy of each draw.
    """
    start = time.perf_counter()
    if arm == "SGD":
        run = _sgd(digits, settings, length, seed)
    else:
        chain = {"pyro": _pyro_chain, "numpyro": _numpyro_chain}[framework]
        run = chain(arm, digits, settings, length, seed, store and f"{store}/digits_{framework}_{arm}_{seed}.zarr")
    test, train = (_predicted(run.weights, x) for x in (digits.x_test, digits.x_train))
    statistics = run.statistics | {"seconds": time.perf_counter() - start}
    return {"probabilities": test, "train": train, "statistics": statistics, "trace": run.trace}


class Run(NamedTuple):
    """Weights by path, a leading axis of draws; numbers by name; potential energy of each draw."""

    weights: dict[str, np.ndarray]
    statistics: dict[str, Any]
    trace: np.ndarray


def _predicted(weights: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """Class probabilities, shape (draws, rows, classes)."""
    module, rows, found = _in_torch(), torch.as_tensor(x), []
    with torch.no_grad():
        for i in range(len(next(iter(weights.values())))):
            draw = {path: torch.as_tensor(u[i]) for path, u in weights.items()}
            found.append(torch.func.functional_call(module, draw, (rows,)).double().softmax(1).numpy())
    return np.array(found)


def _sgd(digits: Digits, settings: Settings, length: Length, seed: int) -> Run:
    decay = settings.prior_sd**-2 / len(digits.x_train)
    epochs = length.warmup + length.draws
    training = Training(numpyro.optim.Momentum(settings.step_size, MOMENTUM), epochs, BATCH_SIZE, weight_decay=decay)
    found = Trained(NETWORK, jax.nn.selu, training).weights(digits.x_train, digits.y_train, seed)
    return Run({path: np.array(u)[None] for path, u in found.items()}, {"epochs": epochs}, np.zeros(1))


def _kernel(package: Any, arm: str, target: Any, settings: Settings) -> Any:
    if arm == "SGLD":
        return package.SGLD(target, BATCH_SIZE, step_size=settings.step_size)
    if arm == "SGHMC":
        return package.SGHMC(target, BATCH_SIZE, step_size=settings.step_size, friction=FRICTION, num_steps=SGHMC_STEPS)
    return package.SymmetricSplitHMC(
        target, NUM_SUBSETS, num_steps=NUM_STEPS, step_size=settings.step_size, adapt_mass_matrix=False
    )


def _numpyro_chain(arm: str, digits: Digits, settings: Settings, length: Length, seed: int, store: str | None) -> Run:
    kernel = _kernel(numpyro_split, arm, partial(numpyro_model, settings.prior_sd), settings)
    mcmc = MCMC(
        kernel,
        num_warmup=length.warmup,
        num_samples=length.draws * length.thinning,
        thinning=length.thinning,
        progress_bar=False,
    )
    start = {f"net.{path}": jnp.asarray(u) for path, u in initial_weights(NETWORK, seed).items()}
    rows = (digits.x_train, digits.y_train)
    options: dict[str, Any] = {"extra_fields": (*STATISTICS, "potential_energy"), "init_params": start}
    if store is None:
        mcmc.run(jax.random.key(seed), *rows, **options)
    else:
        numpyro_split.sample(mcmc, jax.random.key(seed), *rows, store=store, **options)
    found = {name: np.asarray(u) for name, u in mcmc.get_extra_fields().items()}
    draws = {name.removeprefix("net."): np.array(u) for name, u in mcmc.get_samples().items()}
    return Run(draws, {name: float(found[name].mean()) for name in STATISTICS}, found["potential_energy"])


def _pyro_chain(arm: str, digits: Digits, settings: Settings, length: Length, seed: int, store: str | None) -> Run:
    kernel = _kernel(pyro_split, arm, partial(pyro_model, settings.prior_sd), settings)
    start = {f"net.{path}": torch.as_tensor(u) for path, u in initial_weights(NETWORK, seed).items()}
    mcmc = pyro.infer.MCMC(
        kernel,
        num_samples=length.draws * length.thinning,
        warmup_steps=length.warmup,
        initial_params=start,
        disable_progbar=True,
    )
    rows = (torch.as_tensor(digits.x_train), torch.as_tensor(digits.y_train))
    pyro.set_rng_seed(seed)
    if store is None:
        mcmc.run(*rows)
    else:
        pyro_split.sample(mcmc, *rows, store=store)
    found = pyro_split.to_inference_data(mcmc)
    every = slice(length.thinning - 1, None, length.thinning)
    draws = {path[4:]: np.asarray(found.posterior[path].values[0])[every] for path in start}
    names = {"accept_prob": "acceptance_rate", "diverging": "diverging", "step_size": "step_size"}
    means = {name: float(found.sample_stats[theirs].values.mean()) for name, theirs in names.items()}
    return Run(draws, means, -found.sample_stats["lp"].values[0][every])
