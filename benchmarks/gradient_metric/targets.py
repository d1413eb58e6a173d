"""Six normal distributions of 50 dimensions and twelve posteriors of posteriordb."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from tests import posteriordb_models
from tests.backends import NumPyroBackend

DIM = 50
POSTERIORDB = (
    *("kidscore_interaction", "ar_k", "logmesquite_logvash", "eight_schools_noncentered", "kidscore_momiq", "nes"),
    *("logearn_interaction_z", "blr", "low_dim_gauss_mix", "garch11", "lotka_volterra", "diamonds"),
)


class Target(NamedTuple):
    """A model and its arguments."""

    model: Callable[..., None]
    args: tuple[Any, ...] = ()


def covariances() -> dict[str, np.ndarray]:
    """Those of the normal distributions, by name."""
    rng, places = np.random.default_rng(0), np.arange(DIM)
    turn, _ = np.linalg.qr(rng.normal(size=(DIM, DIM)))
    factors = rng.normal(size=(DIM, 3))
    return {
        "independent": np.identity(DIM),
        "scales over 10⁴": np.diag(np.logspace(-4, 4, DIM)),
        "AR(1), 0.9": 0.9 ** np.abs(places[:, None] - places),
        "equicorrelated, 0.9": 0.9 + 0.1 * np.identity(DIM),
        "rotated, condition 1,000": turn * np.logspace(0, 3, DIM) @ turn.T,
        "three factors": 3 * factors @ factors.T + np.diag(rng.uniform(0.05, 0.5, DIM)),
    }


def normal(covariance: np.ndarray) -> Target:
    """A normal distribution about 0."""
    precision = jnp.array(np.linalg.inv(covariance))

    def model() -> None:
        x = numpyro.sample("x", dist.ImproperUniform(dist.constraints.real_vector, (), (DIM,)))
        numpyro.factor("density", -0.5 * x @ precision @ x)

    return Target(model)


def posterior(name: str) -> Target:
    """One of posteriordb, as the tests write it.

    Raises:
        FileNotFoundError: where its data are looked for in a directory that is not named, or not there (``diamonds``).
    """
    found = getattr(posteriordb_models, name)()
    lib = NumPyroBackend()
    return Target(found.model(lib), tuple(lib.array(x) for x in found.data))


def target_of(name: str) -> Target:
    """The target of a name."""
    return posterior(name) if name in POSTERIORDB else normal(covariances()[name])


TARGETS = (*covariances(), *POSTERIORDB)
