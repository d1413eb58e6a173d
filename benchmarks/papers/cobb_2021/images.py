"""What the two tables on images share: a convolutional network by four schemes, accuracy and log score of its draws.

Convolutions are quicker in PyTorch than in a loop of XLA's on a CPU, so that Pyro is the default here. Every chain
starts where a few epochs of Adam on the likelihood lead from a draw of the prior: weights of which the data say
little then have the prior's spread at once, to which a chain of short trajectories takes hundreds of iterations.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.papers.cobb_2021.schemes import (
    SCHEMES,
    Chains,
    print_summary,
    run_scheme,
    setting_from,
    store_of,
    summary,
)
from benchmarks.papers.options import earlier, settings_of, write
from split_common.metrics import brier_score, predictive_probabilities

LEARNING_RATE, BATCH = 1e-3, 50
CHUNK = 500


class Network(NamedTuple):
    """A convolutional network as ``networks.cnn`` of either package makes it."""

    image_shape: tuple[int, int, int]
    channels: tuple[int, ...]
    hidden: tuple[int, ...]
    activation: str

    def in_torch(self) -> torch.nn.Module:
        """The network in PyTorch."""
        from pyro_split import networks

        activation = {"relu": torch.relu, "selu": torch.selu}[self.activation]
        return networks.cnn(self.image_shape, channels=self.channels, hidden=self.hidden, activation=activation)

    def in_jax(self) -> Any:
        """The network in JAX."""
        import jax

        from numpyro_split import networks

        activation = {"relu": jax.nn.relu, "selu": jax.nn.selu}[self.activation]
        return networks.cnn(self.image_shape, channels=self.channels, hidden=self.hidden, activation=activation)


def pyro_model(network: Network, prior_sd: float, x: Any, y: Any) -> None:
    """Classes given images in Pyro."""
    import pyro
    import pyro.distributions as dist

    from pyro_split import networks, priors

    logits = networks.random_module("net", network.in_torch(), partial(priors.normal, scale=prior_sd))(x)
    with pyro.plate("data", x.shape[0]):
        pyro.sample("y", dist.Categorical(logits=logits), obs=y)


def numpyro_model(network: Network, prior_sd: float, x: Any, y: Any) -> None:
    """Classes given images in NumPyro."""
    import numpyro
    import numpyro.distributions as dist

    from numpyro_split import networks, priors

    logits = networks.random_module("net", network.in_jax(), partial(priors.normal, scale=prior_sd))(x)
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Categorical(logits=logits), obs=y)


def started(
    network: Network, prior_sd: float, x: np.ndarray, y: np.ndarray, epochs: int, seed: int
) -> dict[str, np.ndarray]:
    """A draw of the prior after some epochs of Adam on the likelihood, by site."""
    torch.manual_seed(seed)
    module = network.in_torch()
    with torch.no_grad():
        for u in module.parameters():
            u.normal_(0.0, prior_sd)
    optimiser = torch.optim.Adam(module.parameters(), LEARNING_RATE)
    rows, labels = torch.as_tensor(x), torch.as_tensor(y)
    for _ in range(epochs):
        for batch in torch.randperm(len(rows)).split(BATCH):
            optimiser.zero_grad()
            F.cross_entropy(module(rows[batch]), labels[batch]).backward()
            optimiser.step()
    return {f"net.{path}": u.detach().numpy().copy() for path, u in module.named_parameters()}


def predictions(network: Network, chains: Chains, x: np.ndarray, y: np.ndarray) -> dict[str, list[float]]:
    """Accuracy, log score and Brier score of the mean over each chain's draws."""
    module, images = network.in_torch(), torch.as_tensor(x)
    found: dict[str, list[float]] = {"accuracy": [], "nll": [], "brier": []}
    for chain in range(len(chains.accept_prob)):
        draws = []
        for i in range(chains.accept_prob.shape[1]):
            weights = {name[4:]: torch.as_tensor(u[chain, i]) for name, u in chains.draws.items()}
            with torch.no_grad():
                parts = [torch.func.functional_call(module, weights, (part,)) for part in images.split(CHUNK)]
            draws.append(torch.cat(parts).double().softmax(1).numpy())
        mean = predictive_probabilities(np.array(draws))
        found["accuracy"].append(100 * float(np.mean(mean.argmax(1) == y)))
        found["nll"].append(float(-np.log(mean[np.arange(len(y)), y]).mean()))
        found["brier"].append(brier_score(mean, y))
    return found


def run(
    options: argparse.Namespace,
    sizes: dict[str, Any],
    network: Network,
    data: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    paper: dict[str, Any],
    **more: Any,
) -> None:
    """Run the schemes from the same starts, print and write a row for each."""
    x, y, x_test, y_test = data
    setting = setting_from(options)
    starts = [
        started(network, options.prior_sd, x, y, options.epochs, options.seed + chain)
        for chain in range(setting.chains)
    ]
    start = {name: np.array([one[name] for one in starts]) for name in starts[0]}
    if options.framework == "pyro":
        model, rows = partial(pyro_model, network, options.prior_sd), (torch.as_tensor(x), torch.as_tensor(y))
    else:
        model, rows = partial(numpyro_model, network, options.prior_sd), (x, y)
    settings = settings_of(options, sizes, test_images=len(y_test), **more)
    found = earlier(options, settings, "schemes")
    for scheme in [name for name in options.schemes if name not in found]:
        chains = run_scheme(options.framework, scheme, model, rows, setting, start, options.seed, store_of(options))
        found[scheme] = summary(scheme, chains) | predictions(network, chains, x_test, y_test)
        print_summary(found[scheme], paper[scheme])
        print({name: np.round(found[scheme][name], 3) for name in ("accuracy", "nll", "brier")}, flush=True)
        write(options, settings, {"schemes": found})


__all__ = ["SCHEMES", "Network", "run"]
