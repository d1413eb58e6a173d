"""Stochastic-gradient Langevin dynamics and Hamiltonian Monte Carlo: approximate, without an accept-reject decision.

Target: p(z|y)^(1/T), only approximately at any step size. Both kernels use one transition. For its step, its bias and
the references, see :mod:`split_common.stochastic_gradient`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from numpyro_split.kernels.method import Setup
from numpyro_split.kernels.state import ChainState, Warmup
from numpyro_split.potential.content import DataDigest
from numpyro_split.potential.derivatives import value_and_grad
from numpyro_split.potential.local_rows import LocalRows
from numpyro_split.potential.position import Position, zeros
from numpyro_split.potential.split_potential import SplitPotential
from numpyro_split.subsampling.rows import draw_from_shard, draw_minibatch
from split_common.minibatches import check_no_local_latents
from split_common.stochastic_gradient import (
    STATISTICS,
    Dynamics,
    Kick,
    StepSizes,
    adapts,
    check_batch_size,
    check_can_adapt,
    check_preconditioner,
    check_preconditioner_sizes,
    check_step_size,
    rms_diagonal,
    rms_update,
    site_diagonals,
    step_size_at,
)


class Point(NamedTuple):
    """A point of a trajectory.

    Attributes:
        z: position.
        momentum: momentum r.
        mean_square: mean square of gradients divided by N; None where no preconditioner adapts.
        energy: estimate of U before the last step.
        is_finite: whether all estimates of U so far are finite.
    """

    z: Position
    momentum: Position
    mean_square: Position | None
    energy: jax.Array
    is_finite: jax.Array


def noisy_steps(
    state: ChainState,
    potential: SplitPotential,
    dynamics: Dynamics,
    preconditioner: Any,
    step_size: Any,
    in_warmup: jax.Array,
) -> ChainState:
    """One iteration: L steps, each with a gradient from newly drawn rows.

    Args:
        state: current state of the chain.
        potential: potential, bound to the data.
        dynamics: number and form of the steps.
        preconditioner: None, "rmsprop", or a diagonal as :func:`~split_common.stochastic_gradient.site_diagonals`
            takes it.
        step_size: step size η.
        in_warmup: whether this is an iteration of warm-up, in which a preconditioner may adapt.

    Returns:
        The next state, with ``i`` and ``step_size`` those of this iteration.
    """
    rng_key, key_momentum, key_steps = random.split(state.rng_key, 3)
    momentum = draw_momentum(state.z, dynamics.temperature, key_momentum) if dynamics.draws_momentum else state.momentum
    num_steps, rows = dynamics.num_steps, potential.plate_size

    def step(point: Point, part: tuple[Kick, jax.Array, jax.Array]) -> tuple[Point, None]:
        kick, t, rng_key = part
        key_rows, key_noise = random.split(rng_key)
        energy, grad = estimate(potential, point.z, dynamics.batch_size, key_rows)
        mean_square = point.mean_square
        if mean_square is not None:
            adapted = {name: rms_update(v, grad[name] / rows, t) for name, v in mean_square.items()}
            mean_square = {k: jnp.where(in_warmup, adapted[k], v).astype(v.dtype) for k, v in mean_square.items()}
        diagonal = _diagonal(preconditioner, mean_square, point.z)
        noise = draw_momentum(point.z, 1.0, key_noise)
        z, momentum = {}, {}
        for name, u in point.z.items():
            scale, r = jnp.sqrt(step_size * diagonal[name]), point.momentum[name]
            r = (1 - kick.friction) * r - kick.weight * scale * grad[name] + kick.noise * noise[name]
            z[name], momentum[name] = (u + scale * r).astype(u.dtype), r.astype(u.dtype)
        energy = energy.astype(point.energy.dtype)
        return Point(z, momentum, mean_square, energy, point.is_finite & jnp.isfinite(energy)), None

    start = Point(state.z, momentum, state.mean_square, state.potential_energy, jnp.array(True))
    kicks = Kick(*(jnp.array(column) for column in zip(*dynamics.kicks, strict=True)))
    parts = (kicks, state.i * num_steps + jnp.arange(num_steps), random.split(key_steps, num_steps))
    end = lax.scan(step, start, parts)[0]
    return _arrived(state, start, end, dynamics)._replace(rng_key=rng_key)


def estimate(
    potential: SplitPotential, z: Position, batch_size: int | None, rng_key: jax.Array
) -> tuple[jax.Array, Position]:
    """Unbiased estimates of U(z) and its gradient from newly drawn rows; exact ones for a ``batch_size`` of None.

    If rows lie in shards, each shard draws its share of the rows (:mod:`numpyro_split.subsampling.rows`).
    """
    if batch_size is None:
        energies, grad = potential.energies_and_grad(z)
        return jnp.sum(energies.value), grad

    if potential.shards is None:
        return potential.batch_potential_and_grad(z, draw_minibatch(rng_key, potential.plate_size, batch_size))

    def of_likelihood(rows: LocalRows, z: Position, rng_key: jax.Array) -> tuple[jax.Array, Position]:
        drawn = draw_from_shard(rows, batch_size, rng_key)
        return value_and_grad(lambda z: -drawn.weight * jnp.sum(rows.drawn(z, drawn.rows)), potential.forward_mode)(z)

    return potential.with_prior(z, potential.over_rows(of_likelihood, z, rng_key))


def draw_momentum(z: Position, temperature: float, rng_key: jax.Array) -> Position:
    """A draw from N(0, T I), a dict like ``z``."""
    keys = random.split(rng_key, len(z))
    return {
        name: temperature**0.5 * random.normal(key, z[name].shape, z[name].dtype)
        for name, key in zip(sorted(z), keys, strict=True)
    }


def _diagonal(preconditioner: Any, mean_square: Position | None, z: Position) -> Position:
    """The diagonal of G, a dict like ``z``."""
    if mean_square is not None:
        return {name: rms_diagonal(v) for name, v in mean_square.items()}
    given = site_diagonals(preconditioner, {name: u.shape for name, u in z.items()})
    return {name: jnp.asarray(x, z[name].dtype) for name, x in given.items()}


def _arrived(state: ChainState, start: Point, end: Point, dynamics: Dynamics) -> ChainState:
    """``state`` at the end of a trajectory, or at its start if the end is not finite."""
    moved = jax.tree.leaves((end.z, end.momentum, end.mean_square))
    is_finite = end.is_finite & jnp.all(jnp.array([jnp.all(jnp.isfinite(x)) for x in moved]))
    z, momentum, mean_square = jax.tree.map(
        lambda new, old: jnp.where(is_finite, new, old),
        (end.z, end.momentum, end.mean_square),
        (start.z, start.momentum, start.mean_square),
    )
    energy = end.energy
    if dynamics.has_kinetic_energy:
        energy = energy + sum(0.5 * jnp.sum(r**2) for r in end.momentum.values())
    return state._replace(
        z=z,
        momentum=momentum,
        mean_square=mean_square,
        potential_energy=end.energy,
        energy=energy.astype(state.energy.dtype),
        diverging=~is_finite,
    )


@dataclass(frozen=True)
class StochasticGradient:
    """Steps by noisy gradients without an accept-reject decision, a :class:`~numpyro_split.kernels.method.Method`.

    Attributes:
        name: name of the kernel in messages.
        dynamics: number and form of the steps.
        step_size: step size η, or a function of the iteration number.
        preconditioner: None, "rmsprop", or a diagonal.
        num_warmup: number of warm-up iterations; 0 before it is known.
    """

    name: str
    dynamics: Dynamics
    step_size: float | StepSizes
    preconditioner: Any
    num_warmup: int = 0
    statistics = STATISTICS
    layout = ()
    plan = ""
    depends_on_data = False
    given_start = None
    free_fields = ()

    @classmethod
    def checked(cls, name: str, dynamics: Dynamics, step_size: Any, preconditioner: Any) -> StochasticGradient:
        """The method that a kernel's arguments ask for.

        Raises:
            ValueError: for an argument out of range.
        """
        return cls(name, dynamics, check_step_size(step_size), check_preconditioner(preconditioner))

    @property
    def details(self) -> list[str]:
        """No text besides the kernel's own."""
        return []

    @property
    def target(self) -> str:
        """The target in words, where it is not the posterior; else ""."""
        return self.dynamics.described_target

    @property
    def records_energy(self) -> bool:
        """Whether the potential energy in a state is that of all rows: no, it is an estimate."""
        return False

    @property
    def shared_fields(self) -> Mapping[str, Any]:
        """No field is shared between chains."""
        return {}

    def batch_sizes(self, num_rows: int) -> Iterable[int]:
        """Number of rows of a gradient, unless all rows are read."""
        size = check_batch_size(self.dynamics.batch_size, num_rows)
        return [] if size is None else [size]

    def check_warmup(self, num_warmup: int) -> None:
        """Raise if there is no warm-up in which the preconditioner could adapt."""
        check_can_adapt(self.preconditioner, "num_warmup", num_warmup)

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Raise unless a given preconditioner fits the sites."""
        check_preconditioner_sizes(self.preconditioner, sizes)

    def for_subsets(self, num_subsets: int) -> StochasticGradient:
        """The method itself: its steps do not depend on the number of subsets."""
        return self

    def prepare(self, setup: Setup) -> StochasticGradient:
        """The method with the length of warm-up.

        Raises:
            ValueError: for latent sites inside the data plate, unless all rows are read.
        """
        if setup.split is not None and self.dynamics.batch_size is not None:
            check_no_local_latents(self.name, setup.split.local_sites)
        return replace(self, num_warmup=setup.num_warmup)

    def serves(self, init_params: Position | None) -> bool:
        """True: nothing that was prepared depends on whether a starting point is given."""
        return True

    def without_data(self) -> StochasticGradient:
        """The method itself: nothing in it depends on the data."""
        return self

    def find_start(self, rng_key: jax.Array) -> None:
        """No start of its own: the host's strategy finds the starting point."""

    def start(self, potential: SplitPotential, z: Position, rng_key: jax.Array) -> ChainState:
        """The state of a chain at its starting point."""
        check_batch_size(self.dynamics.batch_size, potential.plate_size)
        key_momentum, key_chain = random.split(rng_key)
        energy = jnp.sum(potential.energies(z).value)
        num_grads, rows_touched = self.dynamics.cost(potential.plate_size, potential.num_subsets, potential.num_shards)
        return ChainState(
            i=jnp.zeros((), jnp.result_type(int)),
            z=z,
            momentum=draw_momentum(z, self.dynamics.temperature, key_momentum),
            mean_square=zeros(z) if adapts(self.preconditioner) else None,
            potential_energy=energy,
            energy=energy,
            num_steps=jnp.array(self.dynamics.num_steps),
            num_grads=jnp.array(num_grads),
            rows_touched=jnp.array(rows_touched),
            accept_prob=jnp.ones(()),
            mean_accept_prob=jnp.ones(()),
            diverging=jnp.array(False),
            step_size=self._step_size_at(jnp.zeros((), jnp.result_type(int))),
            data_digest=DataDigest.unknown(),
            warmup=Warmup(self.num_warmup),
            rng_key=key_chain,
        )

    def step(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """The state after one iteration."""
        step_size, in_warmup = self._step_size_at(state.i), state.i < self.num_warmup
        moved = noisy_steps(state, potential, self.dynamics, self.preconditioner, step_size, in_warmup)
        num_grads, rows_touched = self.dynamics.cost(potential.plate_size, potential.num_subsets, potential.num_shards)
        return moved._replace(
            i=state.i + 1,
            step_size=step_size,
            num_grads=jnp.full_like(state.num_grads, num_grads),
            rows_touched=jnp.full_like(state.rows_touched, rows_touched),
        )

    def refresh(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """The state as it is: it caches nothing that depends on the data."""
        return state

    def shorten_step(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """The state as it is: the step size is given."""
        return state

    def watch(self, state: ChainState) -> None:
        """No warnings; the report says that draws are approximate."""

    def _step_size_at(self, i: jax.Array) -> jax.Array:
        return jnp.asarray(step_size_at(self.step_size, i), jnp.result_type(float))
