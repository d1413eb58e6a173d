"""What ``benchmarks.sgld_bias`` runs in NumPyro: logistic regression, its Laplace approximation, and the samplers."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

from numpyro_split import SGHMC, SGLD, SymmetricSplitHMC

NUM_ROWS, DIM, CHAINS, SUBSETS = 10_000, 10, 4, 4
NUM_STEPS, FRICTION = 10, 0.1  # of SGHMC
NEWTON_STEPS = 20


class Normal(NamedTuple):
    """Mean, shape (D,), and covariance, shape (D, D)."""

    mean: np.ndarray
    covariance: np.ndarray


def model(x: jax.Array, y: jax.Array) -> None:
    """Logistic regression, weights N(0, 1)."""
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([DIM]).to_event(1))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def data() -> tuple[np.ndarray, np.ndarray]:
    """Inputs N(0, 1) and labels drawn from the model, with smaller weights."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(NUM_ROWS, DIM))
    w = 0.5 * rng.normal(size=DIM)
    return x.astype(np.float32), (rng.random(NUM_ROWS) < 1 / (1 + np.exp(-x @ w))).astype(np.float32)


def laplace(x: np.ndarray, y: np.ndarray) -> Normal:
    """The normal approximation at the mode, by Newton's method."""
    inputs, w = x.astype(float), np.zeros(DIM)
    for _ in range(NEWTON_STEPS):
        p = 1 / (1 + np.exp(-inputs @ w))
        precision = (inputs * (p * (1 - p))[:, None]).T @ inputs + np.eye(DIM)
        w = w + np.linalg.solve(precision, inputs.T @ (y - p) - w)
    return Normal(w, np.linalg.inv(precision))


def approximate(name: str, step_size: float, batch_size: int) -> Any:
    """A stochastic-gradient kernel."""
    if name == "SGLD":
        return SGLD(model, batch_size, step_size=step_size)
    return SGHMC(model, batch_size, step_size=step_size, num_steps=NUM_STEPS, friction=FRICTION)


def exact(name: str) -> tuple[Any, str, int]:
    """A kernel, its statistic of gradients, and how many of these make a data pass."""
    if name == "host NUTS":
        return NUTS(model), "num_steps", 1
    return SymmetricSplitHMC(model, num_subsets=SUBSETS), "num_grads", SUBSETS


class Draws(NamedTuple):
    """What chains bring.

    Attributes:
        w: shape (chains, draws, D).
        statistics: by name, shape (chains, draws).
        warmup_statistics: likewise, of warm-up; empty unless asked for.
    """

    w: np.ndarray
    statistics: dict[str, np.ndarray]
    warmup_statistics: dict[str, np.ndarray]


def sample(
    kernel: Any,
    num_warmup: int,
    num_samples: int,
    thinning: int,
    start: Normal,
    arguments: tuple[np.ndarray, ...],
    fields: tuple[str, ...],
    collect_warmup: bool = False,
) -> Draws:
    """Four chains side by side, started from draws of the normal approximation."""
    rng = np.random.default_rng(1)
    first = rng.multivariate_normal(start.mean, start.covariance, size=CHAINS).astype(np.float32)
    mcmc = MCMC(
        kernel,
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=CHAINS,
        thinning=thinning,
        chain_method="vectorized",
        progress_bar=False,
    )
    options = {"init_params": {"w": jnp.asarray(first)}, "extra_fields": fields}
    rows, warmup = tuple(map(jnp.asarray, arguments)), {}
    if collect_warmup:
        mcmc.warmup(jax.random.key(0), *rows, collect_warmup=True, **options)
        warmup = {name: np.asarray(x) for name, x in mcmc.get_extra_fields(group_by_chain=True).items()}
    mcmc.run(jax.random.key(0), *rows, **options)
    statistics = {name: np.asarray(x) for name, x in mcmc.get_extra_fields(group_by_chain=True).items()}
    return Draws(np.asarray(mcmc.get_samples(group_by_chain=True)["w"], float), statistics, warmup)
