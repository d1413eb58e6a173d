r"""A trajectory of a length that does not depend on where it goes, and the decision at its end.

L steps are made, their number and size drawn without regard to the state, then the end point is accepted with
probability min(1, exp(H - H')), else the start is kept; H is the energy on all the data. Steps preserve volume, and the
map (steps, then flip of the momentum) is its own inverse, or, for an order drawn with its reverse, is proposed as often
as its inverse (:mod:`split_common.schedule`); so exp(-H) is left invariant.

The decision rests on the *change* of energy, taken subset by subset before it is rounded
(:mod:`numpyro_split.potential.compensated`), the kinetic energy's likewise
(:mod:`numpyro_split.integrators.euclidean`).

Reference:
    Neal (2011), MCMC using Hamiltonian dynamics, Handbook of MCMC, section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import random

from split_common.fixed_length import MAX_STEPS
from split_common.health import MAX_ENERGY_CHANGE


def draw_length(shortest: float, longest: float, rng_key: jax.Array) -> jax.Array:
    """A length between the two; of a fixed length both are equal."""
    return shortest + (longest - shortest) * random.uniform(rng_key)


def jittered(step_size: jax.Array, jitter: float, rng_key: jax.Array) -> jax.Array:
    """The step size times a number drawn from U(1 - jitter, 1 + jitter), without regard to the state."""
    return step_size * random.uniform(rng_key, minval=1 - jitter, maxval=1 + jitter) if jitter else step_size


def steps_of_length(trajectory_length: jax.Array, step_size: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Number of steps, and the step size that makes them exactly ``trajectory_length`` long.

    At most ``MAX_STEPS`` are taken: after warm-up the number, cut or not, follows from the length drawn and a step size
    that no longer adapts, and so depends on no state either.
    """
    num_steps = jnp.maximum(jnp.ceil(trajectory_length / step_size), 1)
    limited = jnp.minimum(num_steps, MAX_STEPS)
    exact = jnp.where(limited < num_steps, step_size, trajectory_length / num_steps)
    return limited.astype(jnp.result_type(int)), exact


class Decision(NamedTuple):
    """An accept-reject decision.

    Attributes:
        accepted: whether the end point is taken.
        accept_prob: with what probability.
        diverging: whether the energy error was infinite, undefined or above 1000.
    """

    accepted: jax.Array
    accept_prob: jax.Array
    diverging: jax.Array


def metropolis(energy_change: jax.Array, uniform: Callable[[], jax.Array]) -> Decision:
    """Accept with probability min(1, exp(-energy change)); an infinite or undefined change is a rejection.

    So is one of minus infinity: a density that overflows is a fault of arithmetic, and its state no draw of the target.
    """
    energy_change = jnp.where(jnp.isfinite(energy_change), energy_change, jnp.inf)
    accept_prob = jnp.minimum(jnp.exp(-energy_change), 1.0)
    return Decision(uniform() < accept_prob, accept_prob, energy_change > MAX_ENERGY_CHANGE)
