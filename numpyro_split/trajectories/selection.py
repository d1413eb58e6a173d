r"""Choice of one state of a trajectory by the weights exp(-H), with H the energy on all the data.

A proposal is kept, and replaced by a later state with some probability, so only two states are in memory at a time. For
the probabilities that leave exp(-H) invariant, see the modules that build trajectories
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

AT_A_TIME = 16  # uniform numbers that are drawn together


class Choice(NamedTuple):
    """The state that is chosen among those seen so far, the proposal.

    Attributes:
        z: position of the chosen state.
        opening_grad: weighted sum of the gradients that open a step there; None where the schedule keeps none.
        energies: the terms of the potential there, shape (M + 1,).
        energy_change: H there minus H at the start of the trajectory.
        log_weight: log of the sum of exp(-energy change) over all states seen.
    """

    z: Position
    opening_grad: Position | None
    energies: Compensated
    energy_change: jax.Array
    log_weight: jax.Array


def only(state: IntegratorState, energies: Compensated, energy_change: jax.Array) -> Choice:
    """The choice of a state that is the only one."""
    return Choice(state.z, state.opening_grad, energies, energy_change, -energy_change)


def choose(one: Choice, other: Choice, log_prob_of_other: jax.Array, uniform: jax.Array) -> Choice:
    """Choose ``other`` with the given probability, counted as 1 if it is above 1 and as 0 if it is undefined."""
    takes_other = jnp.log(uniform) < log_prob_of_other
    taken = where(takes_other, other, one)
    return taken._replace(log_weight=jnp.logaddexp(one.log_weight, other.log_weight))


def add_by_weight(one: Choice, other: Choice, uniform: jax.Array) -> Choice:
    """Choose one of the two, with probability in proportion to its weight."""
    return choose(one, other, other.log_weight - jnp.logaddexp(one.log_weight, other.log_weight), uniform)


class Uniforms(NamedTuple):
    """A stream of numbers from U(0, 1), drawn several at a time, which takes XLA about as long as one.

    Attributes:
        rng_key: random key of the numbers.
        drawn: the numbers drawn last, shape (AT_A_TIME,).
        num_taken: how many numbers have been taken.
    """

    rng_key: jax.Array
    drawn: jax.Array
    num_taken: jax.Array

    @classmethod
    def of(cls, rng_key: jax.Array) -> Uniforms:
        """The stream of a random key, of which no number has been taken."""
        return cls(rng_key, jnp.zeros(AT_A_TIME), jnp.zeros((), jnp.result_type(int)))

    def take(self) -> tuple[jax.Array, Uniforms]:
        """The next number, and the stream after it."""
        place = self.num_taken % AT_A_TIME
        drawn = lax.cond(place == 0, self._draw, lambda: self.drawn)
        uniform = lax.dynamic_index_in_dim(drawn, place, keepdims=False)
        return uniform, Uniforms(self.rng_key, drawn, self.num_taken + 1)

    def _draw(self) -> jax.Array:
        return random.uniform(random.fold_in(self.rng_key, self.num_taken), (AT_A_TIME,))


class Visits(NamedTuple):
    """Statistics of the states that a trajectory visited.

    Attributes:
        num_states: number of states whose energy was evaluated, without the start.
        sum_accept_prob: sum of their min(1, exp(-energy change)).
        diverging: whether one of them has an energy error above 1000, infinite or undefined.
    """

    num_states: jax.Array
    sum_accept_prob: jax.Array
    diverging: jax.Array

    @classmethod
    def none(cls) -> Visits:
        """Statistics before any state."""
        return cls(jnp.zeros((), jnp.result_type(int)), jnp.zeros(()), jnp.array(False))

    def with_state(self, energy_change: jax.Array) -> Visits:
        """The statistics with one more state."""
        accept_prob = jnp.minimum(jnp.exp(-energy_change), 1.0)
        diverging = self.diverging | (energy_change > MAX_ENERGY_CHANGE)
        return Visits(self.num_states + 1, self.sum_accept_prob + accept_prob, diverging)

    @property
    def mean_accept_prob(self) -> jax.Array:
        """Mean acceptance probability, by which the step size adapts."""
        return self.sum_accept_prob / jnp.maximum(self.num_states, 1)


def at_choice(state: Any, path: Path, choice: Choice, visits: Visits, num_steps: jax.Array) -> Any:
    """``state`` moved to the choice of a trajectory, with the statistics that all such trajectories share."""
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
