r"""Taking one of many states of a trajectory by their weights exp(-H), H the energy on all the data.

A state is taken of those seen so far, and replaced by one seen later with some probability: so the memory is that of
two states, however many there are. Which probabilities leave exp(-H) invariant is derived where trajectories are built
(:mod:`numpyro_split.trees`, :mod:`numpyro_split.windows`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from numpyro_split.densities import Position
from numpyro_split.energies import Compensated, difference
from numpyro_split.integrators import Integrator, IntegratorState
from split_common.trajectory import MAX_ENERGY_CHANGE

AT_A_TIME = 16  # uniforms


class Path(NamedTuple):
    """How a trajectory is integrated, and the energy that its states are weighed against.

    Attributes:
        integrator: the schedule on the potential, with the metric.
        unscale: from a position and a momentum there to M to the power of -½ times it, a dict like it.
        step_size: size of a step.
        order: which subset stands at each place of the schedule, shape (M,).
        start: where it starts.
        energies: terms of the potential at the start, shape (M + 1,).
    """

    integrator: Integrator
    unscale: Callable[[Position, Position], Position]
    step_size: jax.Array
    order: jax.Array
    start: IntegratorState
    energies: Compensated

    def step(self, state: IntegratorState, direction: jax.Array | int) -> IntegratorState:
        """One step forwards (1) or backwards (-1) in time."""
        return self.integrator.step(state, direction * self.step_size, self.order)

    def energy_change(self, state: IntegratorState, energies: Compensated) -> jax.Array:
        """H at ``state`` minus H at the start; infinite where it is not finite, so that the state has no weight."""
        change = difference(energies, self.energies) + self.integrator.kinetic.change(state, self.start)
        return jnp.where(jnp.isfinite(change), change, jnp.inf)


class Choice(NamedTuple):
    """The state taken of those seen so far.

    Attributes:
        z: its position.
        force: the kicks that open a step there; None where the schedule keeps none.
        energies: the terms of the potential there, shape (M + 1,).
        energy_change: H there minus H at the start.
        log_weight: log of the sum of exp(-energy change) over all states seen.
    """

    z: Position
    force: Position | None
    energies: Compensated
    energy_change: jax.Array
    log_weight: jax.Array


def only(state: IntegratorState, energies: Compensated, energy_change: jax.Array) -> Choice:
    """The choice among one state."""
    return Choice(state.z, state.force, energies, energy_change, -energy_change)


def choose(one: Choice, other: Choice, log_prob_of_other: jax.Array, uniform: jax.Array) -> Choice:
    """Take ``other`` with the given probability (of 1 where it is above 1, of 0 where it is undefined)."""
    takes_other = jnp.log(uniform) < log_prob_of_other
    taken = jax.tree.map(lambda a, b: jnp.where(takes_other, b, a), one, other)
    return taken._replace(log_weight=jnp.logaddexp(one.log_weight, other.log_weight))


def add_by_weight(one: Choice, other: Choice, uniform: jax.Array) -> Choice:
    """Of both, take each with probability in proportion to its weight."""
    return choose(one, other, other.log_weight - jnp.logaddexp(one.log_weight, other.log_weight), uniform)


class Uniforms(NamedTuple):
    """Numbers from U(0, 1), one after the other; drawn some at a time, which takes XLA about as long as one.

    Attributes:
        rng_key: what they are drawn by.
        drawn: the last ones drawn, shape (AT_A_TIME,).
        num_taken: how many were taken.
    """

    rng_key: jax.Array
    drawn: jax.Array
    num_taken: jax.Array

    @classmethod
    def of(cls, rng_key: jax.Array) -> Uniforms:
        """Those of a key, none of them taken."""
        return cls(rng_key, jnp.zeros(AT_A_TIME), jnp.zeros((), jnp.result_type(int)))

    def take(self) -> tuple[jax.Array, Uniforms]:
        """The next number, and those after it."""
        place = self.num_taken % AT_A_TIME
        drawn = lax.cond(place == 0, self._draw, lambda: self.drawn)
        uniform = lax.dynamic_index_in_dim(drawn, place, keepdims=False)
        return uniform, Uniforms(self.rng_key, drawn, self.num_taken + 1)

    def _draw(self) -> jax.Array:
        return random.uniform(random.fold_in(self.rng_key, self.num_taken), (AT_A_TIME,))


class Visits(NamedTuple):
    """What a trajectory met on its way, for the statistics.

    Attributes:
        num_states: states besides the start whose energy was looked at.
        sum_accept_prob: sum of their min(1, exp(-energy change)).
        diverging: whether one of them has an energy error above 1000, infinite or undefined.
    """

    num_states: jax.Array
    sum_accept_prob: jax.Array
    diverging: jax.Array

    @classmethod
    def none(cls) -> Visits:
        """No state yet."""
        return cls(jnp.zeros((), jnp.result_type(int)), jnp.zeros(()), jnp.array(False))

    def with_state(self, energy_change: jax.Array) -> Visits:
        """One more state."""
        accept_prob = jnp.minimum(jnp.exp(-energy_change), 1.0)
        diverging = self.diverging | (energy_change > MAX_ENERGY_CHANGE)
        return Visits(self.num_states + 1, self.sum_accept_prob + accept_prob, diverging)

    @property
    def mean_accept_prob(self) -> jax.Array:
        """What the step size is adapted to."""
        return self.sum_accept_prob / jnp.maximum(self.num_states, 1)


def where(condition: jax.Array, yes: Any, no: Any) -> Any:
    """``yes`` or ``no``, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
