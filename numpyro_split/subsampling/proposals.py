"""Proposals of a Metropolis-Hastings step that read no row, or a few: leapfrog steps by a force drawn beforehand.

A map made of drifts and of kicks by any function of the position preserves volume, and with a flip of the momentum it
is its own inverse. So if the force is drawn independently of the state and kept for the whole trajectory, the ratio of
proposal densities is that of the momenta: acceptance needs their kinetic energies and nothing of the force. A proposal
without a force is a random walk, one with a single step a Langevin proposal, one with several steps a Hamiltonian one.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import random

from numpyro_split.integrators.integrator import Integrator, IntegratorState, Kinetic, make_steps
from numpyro_split.potential.compensated import Compensated
from numpyro_split.potential.derivatives import grad
from numpyro_split.potential.expansion import Taylor, controlled
from numpyro_split.potential.local_rows import LocalRows
from numpyro_split.potential.position import Position, add, zeros
from numpyro_split.potential.split_potential import SplitPotential
from numpyro_split.subsampling.rows import draw_from_shard, draw_minibatch
from numpyro_split.trajectories.fixed_length import draw_length
from split_common.penalty import Batches, PenaltySettings
from split_common.schedule import naive

Gradient = Callable[[Position], Position]
LEAPFROG = naive(1)


class Force:
    """Potential with a gradient alone: its energies are zeros, which the integrator carries but nothing uses."""

    def __init__(self, gradient: Gradient):
        self._gradient = gradient

    def subset_energies_and_grad(self, z: Position, m: jax.Array) -> tuple[Compensated, Position]:
        """Zeros, shape (2,), and the gradient."""
        return Compensated(jnp.zeros(2), jnp.zeros(2)), self._gradient(z)

    def energies_and_grad(self, z: Position) -> tuple[Compensated, Position]:
        """Zeros, shape (2,), and the gradient."""
        return self.subset_energies_and_grad(z, jnp.array(0))

    def energies(self, z: Position) -> Compensated:
        """Zeros, shape (2,)."""
        return Compensated(jnp.zeros(2), jnp.zeros(2))


def draw_force(
    settings: PenaltySettings, batches: Batches, potential: SplitPotential, taylor: Taylor | None, rng_key: jax.Array
) -> Force:
    """The force of one proposal: none, that of the surrogate, or that of a minibatch drawn now."""
    if settings.gradient is None:
        return Force(zeros)
    likelihood_power = batches.likelihood_power(settings.target)
    if settings.gradient == "surrogate":
        assert taylor is not None  # settings are checked to have a control variate
        return Force(
            grad(lambda z: -potential.log_prior(z) - likelihood_power * taylor.total(z), potential.forward_mode)
        )
    size = min(settings.gradient_batch_size, batches.num_rows)
    if potential.shards is not None:
        return _force_over_shards(size, likelihood_power, potential, taylor, rng_key)
    rows = draw_minibatch(rng_key, batches.num_rows, size)
    row_weight = likelihood_power * batches.num_rows / size
    row_terms = potential.row_terms(rows)

    def estimate(z: Position) -> jax.Array:
        known = 0.0 if taylor is None else likelihood_power * taylor.total(z)
        return -potential.log_prior(z) - known - row_weight * jnp.sum(controlled(taylor, row_terms, z))

    return Force(grad(estimate, potential.forward_mode))


def _force_over_shards(
    size: int, likelihood_power: float, potential: SplitPotential, taylor: Taylor | None, rng_key: jax.Array
) -> Force:
    """The force of a minibatch from which each shard draws its share of rows."""

    def of_rows(rows: LocalRows, z: Position, taylor: Taylor | None, rng_key: jax.Array) -> Position:
        drawn = draw_from_shard(rows, size, rng_key)

        def rest(z: Position) -> jax.Array:
            return jnp.sum(controlled(taylor, lambda z: rows.drawn(z, drawn.rows), z))

        return grad(lambda z: -likelihood_power * drawn.weight * rest(z), potential.forward_mode)(z)

    def known(z: Position) -> jax.Array:
        of_taylor = 0.0 if taylor is None else likelihood_power * taylor.total(z)
        return -potential.log_prior(z) - of_taylor

    def gradient(z: Position) -> Position:
        of_known = grad(known, potential.forward_mode)(z)
        return add(of_known, potential.over_rows(of_rows, z, taylor, rng_key), 1.0)

    return Force(gradient)


def propose(
    settings: PenaltySettings,
    force: Force,
    kinetic: Kinetic,
    z: Position,
    step_size: jax.Array,
    rng_key: jax.Array,
) -> tuple[IntegratorState, IntegratorState]:
    """Start of a proposal, with a momentum drawn now, and its end.

    The step of a Hamiltonian proposal is a random fraction of ``step_size``, so that trajectories do not return to
    their start.
    """
    key_momentum, key_length = random.split(rng_key)
    step_size = step_size * draw_length(settings.shortest_step, 1.0, key_length)
    integrator, order = Integrator(LEAPFROG, force, kinetic), jnp.arange(1)
    start = integrator.start(z, kinetic.draw(z, key_momentum), order)
    return start, make_steps(integrator, start, step_size, settings.num_steps, order)
