"""The mode of a target and the normal distribution about it: what some arms are given before they start."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from benchmarks.efficiency.targets import Position, Target
from numpyro_split import SplitPotential, split_model
from split_common.reference import find_mode

MOST_PARAMETERS = 1000  # whose Hessian is taken


class Laplace(NamedTuple):
    """Mode and covariance.

    Attributes:
        mode: shape (D,).
        covariance: inverse of the Hessian there, shape (D, D); None for more than 1,000 parameters.
        condition: of the covariance, and of it in units of its diagonal.
        passes: over the data that were spent: a gradient each of the search, and one for each column of the Hessian.
        unravel: from a vector to a position.
    """

    mode: np.ndarray
    covariance: np.ndarray | None
    condition: tuple[float, float] | None
    passes: int
    unravel: object

    def at_mode(self) -> Position:
        """The mode as a position."""
        return self.unravel(jnp.asarray(self.mode))  # pyright: ignore[reportCallIssue]

    def draws(self, num_chains: int, seed: int) -> Position:
        """Starts of chains: draws from the normal distribution, or the mode where its covariance is not known."""
        points = np.repeat(self.mode[None], num_chains, 0)
        if self.covariance is not None:
            noise = np.random.default_rng(seed).normal(size=points.shape)
            points = points + noise @ np.linalg.cholesky(self.covariance).T
        return jax.vmap(self.unravel)(jnp.asarray(points))  # pyright: ignore[reportArgumentType]


def laplace(target: Target) -> Laplace:
    """Mode and covariance of a target, subset by subset."""
    potential = split_model(target.model, target.args, num_subsets=target.num_subsets)
    start, unravel = ravel_pytree(target.position())
    energy_and_grad = jax.jit(lambda potential, x: potential.potential_and_grad(unravel(x)))
    num_passes = 0

    def counted(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal num_passes
        num_passes += 1
        energy, grad = energy_and_grad(potential, jnp.asarray(x, start.dtype))
        return float(energy), np.asarray(ravel_pytree(grad)[0], float)

    mode = find_mode(counted, np.asarray(start, float))
    if len(mode) > MOST_PARAMETERS:
        return Laplace(mode, None, None, num_passes, unravel)
    covariance = np.linalg.inv(_hessian(potential, jnp.asarray(mode, start.dtype), unravel))
    sd = np.sqrt(np.diag(covariance))
    condition = float(np.linalg.cond(covariance)), float(np.linalg.cond(covariance / np.outer(sd, sd)))
    return Laplace(mode, covariance, condition, num_passes + len(mode), unravel)


def _hessian(potential: SplitPotential, x: jax.Array, unravel: object) -> np.ndarray:
    @jax.jit
    def add_up(potential: SplitPotential, x: jax.Array) -> jax.Array:
        def add_subset(total: jax.Array, m: jax.Array) -> tuple[jax.Array, None]:
            hessian = jax.hessian(lambda x: potential.subset_potential(unravel(x), m))(x)  # pyright: ignore
            return total + hessian, None

        start = jnp.zeros((len(x), len(x)), x.dtype)
        return jax.lax.scan(add_subset, start, jnp.arange(potential.num_subsets))[0]

    return np.asarray(add_up(potential, x), float)
