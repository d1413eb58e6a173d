"""Rules that stop trajectories that double: implementation of those of :mod:`split_common.termination`."""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from numpyro_split.integrators.integrator import IntegratorState
from numpyro_split.potential.position import Position, flatten
from numpyro_split.trajectories.path import Path
from split_common.termination import Rule


class Momenta(NamedTuple):
    """Summary of the momenta of a run of successive states.

    The momenta are unscaled, the host's word for M^{-1/2} p, so that products need no mass matrix. If M depends on the
    position, each momentum is unscaled by the M at its own position.

    Attributes:
        rows: unscaled momenta of the first and the last state, and the sum of those of all states, shape (3, D).
    """

    rows: jax.Array

    @classmethod
    def of(cls, path: Path, state: IntegratorState, log_weight: jax.Array, grad: Position | None) -> Momenta:
        """Span of one state."""
        p = flatten(path.unscale(state.z, state.p), state.z)
        return cls(jnp.stack([p, p, p]))

    def joined(self, second: Momenta) -> Momenta:
        """Span of this run and the one that follows it."""
        return Momenta(jnp.stack([self.rows[0], second.rows[1], self.rows[2] + second.rows[2]]))

    def reversed(self) -> Momenta:
        """Span of the same states in the opposite order."""
        first, last, total = self.rows
        return Momenta(jnp.stack([last, first, total]))


class Virial(NamedTuple):
    """Summary of the virial G = zᵀp of a run of successive states.

    Attributes:
        first: zᵀp of the first state.
        last: zᵀp of the last state.
        log_weight: log of the sum of the states' weights exp(-H).
        mean_rate: weighted mean of dG/dt over the states; None where the rule does not use gradients.
        num_states: number of states.
    """

    first: jax.Array
    last: jax.Array
    log_weight: jax.Array
    mean_rate: jax.Array | None
    num_states: jax.Array

    @classmethod
    def of(cls, path: Path, state: IntegratorState, log_weight: jax.Array, grad: Position | None) -> Virial:
        """Span of one state."""
        z, p, unscaled = (flatten(x, state.z) for x in (state.z, state.p, path.unscale(state.z, state.p)))
        rate = None if grad is None else jnp.dot(unscaled, unscaled) - jnp.dot(z, flatten(grad, state.z))
        return cls(jnp.dot(z, p), jnp.dot(z, p), log_weight, rate, jnp.ones((), jnp.result_type(int)))

    def joined(self, second: Virial) -> Virial:
        """Span of this run and the one that follows it."""
        log_weight = jnp.logaddexp(self.log_weight, second.log_weight)
        mean_rate = None
        if self.mean_rate is not None and second.mean_rate is not None:
            share = jnp.exp(second.log_weight - log_weight)
            mean_rate = self.mean_rate + jnp.where(share > 0, share, 0.0) * (second.mean_rate - self.mean_rate)
        return Virial(self.first, second.last, log_weight, mean_rate, self.num_states + second.num_states)

    def reversed(self) -> Virial:
        """Span of the same states in the opposite order."""
        return self._replace(first=self.last, last=self.first)

    @property
    def rate(self) -> jax.Array:
        """The weighted mean of dG/dt; the rule must use gradients."""
        assert self.mean_rate is not None, "a rule that looks at the rate must say that it takes gradients"
        return self.mean_rate


def turns_back(first: Momenta, second: Momenta, whole: Momenta) -> jax.Array:
    """Whether the whole run makes a U-turn, or either half with the neighbouring state of the other half."""
    p_first, p_last, p_sum = first.rows
    q_first, q_last, q_sum = second.rows
    runs = [(p_first, q_last, p_sum + q_sum), (p_first, q_first, p_sum + q_first), (p_last, q_last, p_last + q_sum)]
    products = [end * total for start, stop, total in runs for end in (start, stop)]
    zeros = [jnp.zeros((), p_first.dtype)] * len(products)
    # all in one pass, because XLA would launch two kernels for each separate dot product
    dots = lax.reduce(products, zeros, lambda a, b: [x + y for x, y in zip(a, b, strict=True)], (0,))
    return reduce(jnp.logical_or, [dot <= 0 for dot in dots])


U_TURN = Rule(Momenta, turns_back)


def mean_rate(threshold: jax.Array) -> Rule:
    """Rule that stops when the absolute weighted mean of dG/dt is below ``threshold``."""
    return Rule(Virial, lambda first, second, whole: jnp.abs(whole.rate) < threshold, takes_gradients=True)


def rate_per_length(threshold: jax.Array) -> Rule:
    """Rule that stops when the absolute weighted mean of dG/dt over the number of states is below ``threshold``."""

    def holds(first: Virial, second: Virial, whole: Virial) -> jax.Array:
        return jnp.abs(whole.rate) / whole.num_states < threshold

    return Rule(Virial, holds, takes_gradients=True)


def boundary_rate(threshold: jax.Array, step_size: jax.Array) -> Rule:
    """Rule that stops when the absolute change of G between the ends over their time is below ``threshold``."""

    def holds(first: Virial, second: Virial, whole: Virial) -> jax.Array:
        return jnp.abs(mean_rate_in_time(whole.last - whole.first, whole.num_states, step_size)) < threshold

    return Rule(Virial, holds)


def mean_rate_in_time(change: jax.Array, num_states: jax.Array, step_size: jax.Array) -> jax.Array:
    """The mean of dG/dt over the time of a run, from the change G(end) - G(start); 0 for a single state."""
    return change / (step_size * jnp.maximum(num_states - 1, 1))
