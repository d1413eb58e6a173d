r"""Trajectories whose length does not depend on their path, and the accept-reject decision at their end.

A trajectory has L steps, whose number and size do not depend on the state. Its end point is accepted with probability
min(1, exp(H - H')); otherwise the start is kept. H is the energy on all the data. Steps preserve volume, and the map of
the steps followed by a flip of the momentum is its own inverse, or, where an order of the subsets is drawn, is proposed
as often as its inverse (:mod:`split_common.schedule`). So exp(-H) is left invariant.

The decision depends on the *change* of energy. Its potential part is a compensated sum of the changes of the subsets'
terms (:mod:`numpyro_split.potential.compensated`), and its kinetic part avoids the cancellation of large numbers
(:func:`numpyro_split.integrators.integrator.kinetic_change`).

Reference:
    Neal (2011), MCMC using Hamiltonian dynamics, Handbook of MCMC, section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from numpyro_split.integrators.integrator import IntegratorBase, make_steps
from numpyro_split.potential.compensated import difference
from numpyro_split.potential.position import Position, where
from numpyro_split.potential.sources import of_first_chain
from numpyro_split.potential.tracing import call_back
from split_common.exploration import FIRST_LENGTH
from split_common.fixed_length import MAX_STEPS, FixedLengthBase, LengthSettings, warn_of_cut_trajectories
from split_common.health import MAX_ENERGY_CHANGE


@dataclass(frozen=True)
class FixedLength(FixedLengthBase):
    """Trajectories whose end point is accepted or rejected (:class:`~split_common.fixed_length.FixedLengthBase`)."""

    def first_fields(self, z: Position) -> dict[str, Any]:
        """The lengths of trajectories, before they are learned."""
        return {"shortest_length": jnp.zeros(()), "trajectory_length": jnp.full((), FIRST_LENGTH)}

    def move(self, state: Any, integrator: IntegratorBase, num_warmup: int) -> tuple[Any, Position]:
        """One iteration, with a length between the shortest and the longest of the state."""
        draws_order = self.draws_order(integrator.schedule)
        return fixed_length_transition(state, integrator, self.lengths_at(state), draws_order)

    def watch(self, state: Any, num_warmup: int) -> None:
        """Warn if the step size of the draws is too small for the length of trajectories, which are then cut short."""
        warn_if_cut_short(state, num_warmup, self.lengths_at(state))


def draw_length(shortest: float, longest: float, rng_key: jax.Array) -> jax.Array:
    """A length drawn uniformly between the two; they are equal for a fixed length."""
    return shortest + (longest - shortest) * random.uniform(rng_key)


def jittered(step_size: jax.Array, jitter: float, rng_key: jax.Array) -> jax.Array:
    """The step size times a number drawn from U(1 - jitter, 1 + jitter), independently of the state."""
    return step_size * random.uniform(rng_key, minval=1 - jitter, maxval=1 + jitter) if jitter else step_size


def steps_of_length(trajectory_length: jax.Array, step_size: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Number of steps, and the step size that makes them exactly ``trajectory_length`` long.

    At most ``MAX_STEPS`` steps are made, which may cut a trajectory short. This number too is independent of the state:
    after warm-up it depends only on the length drawn and on the step size, which no longer adapts.
    """
    num_steps = jnp.maximum(jnp.ceil(trajectory_length / step_size), 1)
    limited = jnp.minimum(num_steps, MAX_STEPS)
    exact = jnp.where(limited < num_steps, step_size, trajectory_length / num_steps)
    return limited.astype(jnp.result_type(int)), exact


class Decision(NamedTuple):
    """An accept-reject decision.

    Attributes:
        accepted: whether the end point is accepted.
        accept_prob: acceptance probability.
        diverging: whether the energy error was infinite, undefined or above 1000.
    """

    accepted: jax.Array
    accept_prob: jax.Array
    diverging: jax.Array


def metropolis(energy_change: jax.Array, uniform: Callable[[], jax.Array]) -> Decision:
    """Accept with probability min(1, exp(-energy change)); an infinite or undefined change is a rejection.

    This includes a change of minus infinity: a density that overflows is a numerical error, so the state is no draw of
    the target.
    """
    energy_change = jnp.where(jnp.isfinite(energy_change), energy_change, jnp.inf)
    accept_prob = jnp.minimum(jnp.exp(-energy_change), 1.0)
    return Decision(uniform() < accept_prob, accept_prob, energy_change > MAX_ENERGY_CHANGE)


def fixed_length_transition(
    state: Any, integrator: IntegratorBase, lengths: LengthSettings, draws_order: bool
) -> tuple[Any, Position]:
    """One iteration of split HMC at the state's step size and metric, which do not change.

    Args:
        state: current state of the chain.
        integrator: integrator of the schedule on the target's potential, at the state's metric.
        lengths: length of the trajectory, and jitter of its step size.
        draws_order: whether the order of the subsets is drawn.

    Returns:
        The next state, and its momentum.
    """
    rng_key, key_momentum, key_order, key_length, key_jitter, key_accept = random.split(state.rng_key, 6)
    schedule, adapted = integrator.schedule, state.adapt_state
    order = jnp.arange(schedule.num_subsets)
    opening_grad = state.opening_grad
    if draws_order:
        order = of_first_chain(random.permutation(key_order, order))
        opening_grad = integrator.opening_grad_at(state.z, order)
    if lengths.trajectory_length is not None:
        num_steps, step_size = steps_of_length(draw_length(*lengths.trajectory_length, key_length), adapted.step_size)
    else:
        num_steps, step_size = jnp.full_like(state.num_steps, lengths.num_steps or 0), adapted.step_size
    step_size = jittered(step_size, lengths.step_size_jitter, key_jitter)

    p = integrator.kinetic.draw(state.z, key_momentum)
    start = integrator.known(state.z, p, opening_grad, state.energies)
    end = make_steps(integrator, start, step_size, num_steps, order)
    energies = integrator.energies(end)
    energy_change = difference(energies, state.energies) + integrator.kinetic.change(end, start)
    decision = metropolis(energy_change, partial(random.uniform, key_accept))

    taken = (end.z, end.opening_grad if state.opening_grad is not None else None, energies, end.p)
    kept = (state.z, state.opening_grad, state.energies, p)
    z, opening_grad, energies, p = where(decision.accepted, taken, kept)
    potential_energy = jnp.sum(energies.value)
    moved = state._replace(
        z=z,
        opening_grad=opening_grad,
        energies=energies,
        potential_energy=potential_energy,
        energy=potential_energy + integrator.kinetic.energy(z, p),
        num_steps=num_steps,
        num_grads=num_steps * integrator.grads_per_step + draws_order * schedule.opening_grads,
        accept_prob=decision.accept_prob,
        diverging=decision.diverging,
        step_size=step_size,
        rng_key=rng_key,
    )
    return moved, p


def warn_if_cut_short(state: Any, num_warmup: int, lengths: LengthSettings) -> None:
    """Warn once, for all chains together, if the step size of the draws is too small for the length."""
    if lengths.trajectory_length is None:
        return
    step_size = state.adapt_state.step_size
    warns = (jnp.max(state.i) - num_warmup == 1) & jnp.any(lengths.is_cut_short(step_size))
    of_chains = jnp.broadcast_arrays(step_size, *lengths.trajectory_length)
    worst = jnp.argmax(of_chains[2] / of_chains[0])
    step_size, shortest, longest = (jnp.ravel(x)[worst] for x in of_chains)

    def warn(warns: Any, step_size: Any, of_chain: Any) -> None:
        # vectorised chains that do not share their iteration count evaluate both branches, so check again
        if warns:
            warn_of_cut_trajectories(step_size, of_chain)

    lax.cond(warns, partial(call_back, warn), lambda *_: None, warns, step_size, (shortest, longest))
