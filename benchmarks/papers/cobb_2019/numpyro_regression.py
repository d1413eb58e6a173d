"""The sine regression in NumPyro."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, init_to_value

from benchmarks.papers.cobb_2019.regression import (
    CONCENTRATION,
    NOISE_PRECISION,
    OUTPUT,
    OUTPUT_RATE,
    RATE,
    SITE,
    Case,
    Chain,
)
from numpyro_split import S3HMC, networks, priors, to_inference_data


class Model:
    """A tanh network with a precision for the weights and one for the biases of each layer."""

    def __init__(self, case: Case):
        self.network, self.alpha = networks.mlp(case.widths), case.output_concentration

    def __call__(self, x: jax.Array, y: jax.Array) -> None:
        """The generative program."""
        prior = partial(priors.normal_gamma, concentration=CONCENTRATION, rate=RATE)
        network = networks.random_module(SITE, self.network, prior)
        lam = NOISE_PRECISION if self.alpha is None else numpyro.sample(OUTPUT, dist.Gamma(self.alpha, OUTPUT_RATE))
        with numpyro.plate("data", x.shape[0]):
            numpyro.sample("y", dist.Normal(network(x)[:, 0], jnp.asarray(lam) ** -0.5), obs=y)


class Sampler:
    """Chains of one case by S3HMC, all of its settings at their defaults."""

    def __init__(self, case: Case, x: np.ndarray, y: np.ndarray, warmup: int, draws: int):
        values = {site: np.float32(value) for site, value in case.start.items()}
        self._has_output = case.output_concentration is not None
        self._data = (jnp.asarray(x), jnp.asarray(y))
        kernel = S3HMC(Model(case), init_strategy=init_to_value(values=values))
        self._mcmc = MCMC(kernel, num_warmup=warmup, num_samples=draws, progress_bar=False)

    def chain(self, seed: int) -> Chain:
        """One chain, compiled once for all of them."""
        self._mcmc.warmup(jax.random.key(seed), *self._data, collect_warmup=True)
        in_warmup = np.asarray(self._mcmc.get_samples()[OUTPUT]) if self._has_output else np.empty(0)
        self._mcmc.run(jax.random.key(seed), *self._data)
        return Chain(to_inference_data(self._mcmc), in_warmup)
