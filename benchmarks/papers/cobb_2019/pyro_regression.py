"""The sine regression in Pyro."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import MCMC
from pyro.infer.autoguide.initialization import init_to_value
from torch import Tensor

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
from pyro_split import S3HMC, networks, priors, to_inference_data


class Model:
    """A tanh network with a precision for the weights and one for the biases of each layer."""

    def __init__(self, case: Case):
        self.network, self.alpha = networks.mlp(case.widths), case.output_concentration

    def __call__(self, x: Tensor, y: Tensor) -> None:
        """The generative program."""
        prior = partial(priors.normal_gamma, concentration=CONCENTRATION, rate=RATE)
        network = networks.random_module(SITE, self.network, prior)
        lam = NOISE_PRECISION if self.alpha is None else pyro.sample(OUTPUT, dist.Gamma(self.alpha, OUTPUT_RATE))
        with pyro.plate("data", x.shape[0]):
            pyro.sample("y", dist.Normal(network(x)[:, 0], torch.as_tensor(lam) ** -0.5), obs=y)


class Sampler:
    """Chains of one case by S3HMC, all of its settings at their defaults."""

    def __init__(self, case: Case, x: np.ndarray, y: np.ndarray, warmup: int, draws: int):
        values = {site: torch.tensor(value) for site, value in case.start.items()}
        self._has_output = case.output_concentration is not None
        self._data = (torch.as_tensor(x), torch.as_tensor(y))
        self._kernel = S3HMC(Model(case), init_strategy=init_to_value(values=values))
        self._length = {"warmup_steps": warmup, "num_samples": draws}

    def chain(self, seed: int) -> Chain:
        """One chain."""
        pyro.set_rng_seed(seed)
        in_warmup: list[float] = []

        def note(kernel: S3HMC, position: dict[str, Tensor], stage: str, _: Any) -> None:
            if stage.startswith("Warmup") and self._has_output:
                in_warmup.append(float(kernel.transforms[OUTPUT].inv(position[OUTPUT])))

        mcmc = MCMC(self._kernel, **self._length, hook_fn=note, disable_progbar=True)
        mcmc.run(*self._data)
        return Chain(to_inference_data(mcmc), np.array(in_warmup))
