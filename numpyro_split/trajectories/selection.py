r"""Taking one of many states of a trajectory by their weights exp(-H), H the energy on all the data.

A state is taken of those seen so far, and replaced by one seen later with some probability: so the memory is that of
two states, however many there are. Which probabilities leave exp(-H) invariant is derived where trajectories are built
(:mod:`numpyro_split.trajectories.doubling`, :mod:`numpyro_split.trajectories.windows`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from numpyro_split.integrators.integrator import IntegratorState
from numpyro_split.potential.compensated import Compensated
from numpyro_split.potential.position import Position, where
from numpyro_split.trajectories.path import Path
from split_common.health import MAX_ENERGY_CHANGE

AT_A_TIME = 16  # uniforms


class Choice(NamedTuple):
    """The state taken of those seen so far.

    Attributes:
        z: its position.
        opening_grad: the kicks that open a step there; None where the schedule keeps none.
        energies: the terms of the potential there, shape (M + 1,).
        energy_change: H there minus H at the start.
        log_weight: log of the sum of exp(-energy change) over all states seen.
    """

    z: Position
    opening_grad: Position | None
    energies: Compensated
    energy_change: jax.Array
    log_weight: jax.Array


def only(state: IntegratorState, energies: Compensated, energy_change: jax.Array) -> Choice:
    """The choice among one state."""
    return Choice(state.z, state.opening_grad, energies, energy_change, -energy_change)


def choose(one: Choice, other: Choice, log_prob_of_other: jax.Array, uniform: jax.Array) -> Choice:
    """Take ``other`` with the given probability (of 1 where it is above 1, of 0 where it is undefined)."""
    takes_other = jnp.log(uniform) < log_prob_of_other
    taken = where(takes_other, other, one)
    return taken._replace(log_weight=jnp.logaddexp(one.log_weight, other.log_weight))


def add_by_weight(one: Choice, other: Choice, uniform: jax.Array) -> Choice:
    """Take either, with probability in proportion to its weight."""
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
        """Numbers drawn by a key, none of them taken."""
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
    """Statistics of the states that a trajectory visited.

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


def at_choice(state: Any, path: Path, choice: Choice, visits: Visits, num_steps: jax.Array) -> Any:
    """``state`` moved to the choice of a trajectory, with the statistics that all such trajectories have."""
    start_energy = state.potential_energy + path.integrator.kinetic.energy(state.z, path.start.p)
    return state._replace(
        z=choice.z,
        opening_grad=choice.opening_grad,
        energies=choice.energies,
        potential_energy=jnp.sum(choice.energies.value),
        energy=start_energy + choice.energy_change,
        num_steps=num_steps,
        num_grads=num_steps * path.integrator.grads_per_step,
        accept_prob=visits.mean_accept_prob,
        diverging=visits.diverging,
        step_size=path.step_size,
    )
