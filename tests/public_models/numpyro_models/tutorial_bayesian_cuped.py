# Copyright Contributors to the Pyro project.
# SPDX-License-Identifier: Apache-2.0
# Definitions of https://github.com/pyro-ppl/numpyro/blob/0b935d488056ae1775b4ab05cbe2812f51f21a4f/notebooks/source/bayesian_cuped.ipynb (unchanged)
from jax import Array, random
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist


def difference_in_means_model(y_post: Array, treatment: Array) -> None:
    n_samples = len(treatment)
    intercept = numpyro.sample("intercept", dist.Normal(loc=0, scale=2))
    beta = numpyro.sample("beta", dist.Normal(loc=0, scale=3))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(scale=2))

    mu = intercept + beta * treatment

    with numpyro.plate("observations", n_samples):
        numpyro.sample("y_post_pred", dist.Normal(mu, sigma), obs=y_post)


def cuped_model(y_post: Array, treatment: Array, y_pre: Array) -> None:
    n_samples = len(ad_campaign)

    intercept_target = numpyro.sample("intercept_target", dist.Normal(loc=0, scale=2))
    theta = numpyro.sample("theta", dist.Normal(loc=0, scale=3))
    sigma_theta = numpyro.sample("sigma_theta", dist.HalfCauchy(scale=2))

    intercept_cuped = numpyro.sample("intercept_cuped", dist.Normal(loc=0, scale=2))
    beta_cuped = numpyro.sample("beta_cuped", dist.Normal(loc=0, scale=3))
    sigma_cuped = numpyro.sample("sigma_cuped", dist.HalfCauchy(scale=2))

    mu_target = intercept_target + theta * y_pre

    with numpyro.plate("target_conditioning", n_samples):
        numpyro.sample("y_post_pred", dist.Normal(mu_target, sigma_theta), obs=y_post)

    y_cuped = numpyro.deterministic(
        "y_cuped", y_post - theta * (y_pre - jnp.mean(y_pre))
    )

    with numpyro.plate("cuped_conditioning", n_samples):
        numpyro.sample(
            "y_cuped_pred",
            dist.Normal(intercept_cuped + beta_cuped * treatment, sigma_cuped),
            obs=y_cuped,
        )
