# Copyright Contributors to the Pyro project.
# SPDX-License-Identifier: Apache-2.0
# Definitions of https://github.com/pyro-ppl/numpyro/blob/0b935d488056ae1775b4ab05cbe2812f51f21a4f/notebooks/source/consensus_mc.ipynb (unchanged)
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.handlers import scale


def model(x, y=None, prior_scale=1.0):
    with scale(scale=prior_scale):
        amplitude = numpyro.sample("amplitude", dist.Normal(5.0, 3.0))
        rate = numpyro.sample("rate", dist.HalfNormal(3.0))
        offset = numpyro.sample("offset", dist.Normal(0.0, 2.0))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    mu = amplitude * jnp.exp(-rate * x) + offset
    numpyro.sample("obs", dist.Normal(mu, sigma), obs=y)
