"""Base of the kernels that follow Hamilton's equations over subsets: schedule, metric, step size, bookkeeping.

A concrete kernel says which schedule it integrates by (:meth:`HamiltonianKernel._schedule`), by which kinetic energy
(:meth:`HamiltonianKernel._kinetic`), and how one iteration moves (:meth:`HamiltonianKernel._move`) at a step size and a
metric that stay as they are; what adapts does so between iterations.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax import random
from numpyro.infer.hmc_util import build_adaptation_schedule

from numpyro_split.adaptation.health import Health, warn_if_in_trouble
from numpyro_split.adaptation.settling import not_settled, settle
from numpyro_split.adaptation.step_size_and_metric import Adapter, one_step
from numpyro_split.integrators.euclidean import EuclideanKinetic
from numpyro_split.integrators.integrator import Integrator, Kinetic, Potential
from numpyro_split.kernels.host_kernel import SplitKernel
from numpyro_split.potential.content import DataDigest
from numpyro_split.potential.position import Position
from numpyro_split.potential.split_potential import SplitPotential
from split_common.exploration import Exploration
from split_common.schedule import MAX_CHECKED_SUBSETS, Schedule, ScheduleChoice, build_schedule
from split_common.values import name_of


class HamiltonianKernel(SplitKernel):
    """Base of the kernels that integrate a schedule; for the arguments see :class:`~numpyro_split.SplitHMC`."""

    _schedule_name: ScheduleChoice  # set by each kernel before this class's constructor
    _runs_backwards = True  # whether trajectories also run backwards in time, so that a schedule must be palindromic

    def __init__(self, model: Any, num_subsets: int, **options: Any):
        super().__init__(model, num_subsets, **options)
        if self._has_checked_rows:
            self._rows = self._schedule(self._num_subsets)

    @property
    def _is_own_schedule(self) -> bool:
        """Whether the rows are the user's own."""
        is_named = isinstance(self._schedule_name, str)
        return not is_named or type(self)._schedule is not HamiltonianKernel._schedule

    @property
    def _has_checked_rows(self) -> bool:
        """Whether the rows are the user's own and few enough to be built, and so checked, with the kernel."""
        return self._is_own_schedule and self._num_subsets <= MAX_CHECKED_SUBSETS

    @cached_property
    def _rows(self) -> Schedule:
        """The schedule, built when a run first asks for it: by then M was compared with the number of rows."""
        return self._schedule(self._num_subsets)

    @property
    def _details(self) -> list[str]:
        if not self._is_own_schedule:
            return [f"schedule={self._schedule_name!r}"]
        if callable(self._schedule_name):
            return [f"schedule={name_of(self._schedule_name)}"]
        return [f"schedule={self._rows.name!r}"] if self._has_checked_rows else []

    def _schedule(self, num_subsets: int) -> Schedule:
        """The rows of one step."""
        return build_schedule(self._schedule_name, num_subsets, palindromic=self._runs_backwards)

    @abstractmethod
    def _first_state(self, **common: Any) -> Any:
        """The state of a chain that has not moved, from the fields that every kernel's state has."""

    @abstractmethod
    def _move(self, integrator: Integrator, state: Any) -> Any:
        """One iteration at the state's step size and metric."""

    @property
    def _layout(self) -> tuple[str, ...]:
        # the rows of a schedule are not built before M was compared with the number of rows
        schedule = str(self._rows.rows) if self._has_checked_rows else repr(self._schedule_name)
        return *super()._layout, type(self).__name__, schedule

    @property
    def _draws_order(self) -> bool:
        """Whether the order of subsets is drawn for each trajectory."""
        return False

    @property
    def _longest_step(self) -> float:
        """Upper limit of the adapted step size."""
        return math.inf

    def _exploration(self, learns_length: bool) -> Exploration:
        """Which iterations of warm-up are made by trees."""
        ends = [window.end + 1 for window in build_adaptation_schedule(self._num_warmup)]
        return Exploration.of(ends, self._num_warmup, learns_length, self._settings.adapt_mass_matrix)

    def _learned(self, state: Any) -> dict[str, jax.Array]:
        """Values besides the step size that warm-up learns, by field of :class:`split_common.settling.Settled`."""
        return {}

    def _coordinates(self, z: Position) -> Position:
        """Coordinates that the mass matrix adapts to."""
        return z

    def _first_inverse_mass_matrix(self, z: Position) -> Any:
        """Inverse mass matrix of a chain that starts at ``z``; None for the identity."""
        return self._settings.inverse_mass_matrix

    def _moving_potential(self, potential: SplitPotential) -> Potential:
        """The potential that trajectories follow."""
        return potential

    def _kinetic(self, adapted: EuclideanKinetic, state: Any) -> Kinetic:
        """The kinetic energy at the adapted mass matrix."""
        return adapted

    def _integrator(self, potential: SplitPotential, kinetic: Kinetic) -> Integrator:
        return Integrator(self._rows, self._moving_potential(potential), kinetic)

    def _adapter(self, potential: SplitPotential, state: Any) -> Adapter:
        def integrator_for(adapted: EuclideanKinetic) -> Integrator:
            return self._integrator(potential, self._kinetic(adapted, state))

        sites = tuple(self._coordinates(state.z))
        trial = one_step(integrator_for)
        return Adapter(self._settings, self._num_warmup, self._coordinates, sites, trial, self._longest_step)

    def _start(self, potential: SplitPotential, z: Position, rng_key: jax.Array) -> Any:
        key_adapt, key_chain = random.split(rng_key)
        energies = potential.energies(z)
        energy, zero = jnp.sum(energies.value), jnp.zeros((), jnp.result_type(int))
        state = self._first_state(
            i=zero,
            z=z,
            opening_grad=self._kept_grad(potential, z),
            energies=energies,
            potential_energy=energy,
            energy=energy,
            num_steps=zero,
            num_grads=zero,
            accept_prob=jnp.zeros(()),
            mean_accept_prob=jnp.zeros(()),
            diverging=jnp.array(False),
            step_size=jnp.zeros(()),
            adapt_state=None,
            data_digest=DataDigest.unknown(),
            warmup=self._warmup,
            rng_key=key_chain,
            health=Health.none(),
            settled=not_settled(),
        )
        inverse_mass_matrix = self._first_inverse_mass_matrix(z)
        adapt_state = self._adapter(potential, state).init(z, energies, inverse_mass_matrix, key_adapt)
        return state._replace(adapt_state=adapt_state, step_size=adapt_state.step_size)

    def _transition(self, potential: SplitPotential, state: Any) -> Any:
        kinetic = self._kinetic(EuclideanKinetic.adapted(state.adapt_state), state)
        moved = self._move(self._integrator(potential, kinetic), state)
        adapter = self._adapter(potential, moved)
        adapt_state = adapter.update(state.i, moved.accept_prob, moved.z, moved.energies, state.adapt_state)
        settled = settle(state.settled, state.i, adapter, adapt_state, self._learned(moved))
        i = state.i + 1
        n = jnp.where(i > self._num_warmup, i - self._num_warmup, i)
        mean_accept_prob = state.mean_accept_prob + (moved.accept_prob - state.mean_accept_prob) / n
        health = state.health.with_draw(i - self._num_warmup, moved.energy, moved.diverging)
        return moved._replace(
            i=i, adapt_state=adapt_state, mean_accept_prob=mean_accept_prob, health=health, settled=settled
        )

    def _watch(self, state: Any) -> None:
        warn_if_in_trouble(state, self._num_warmup)

    def _recompute(self, potential: SplitPotential, state: Any) -> Any:
        energies = potential.energies(state.z)
        return state._replace(
            energies=energies,
            potential_energy=jnp.sum(energies.value),
            opening_grad=self._kept_grad(potential, state.z),
        )

    def _shorten_step(self, potential: SplitPotential, state: Any) -> Any:
        rng_key, key_adapt = random.split(state.rng_key)
        adapt_state = self._adapter(potential, state).search_again(
            state.z, state.energies, state.adapt_state, key_adapt
        )
        return state._replace(adapt_state=adapt_state, rng_key=rng_key)

    def _kept_grad(self, potential: SplitPotential, z: Position) -> Position | None:
        if self._draws_order:
            return None
        # the opening kicks do not involve the metric, so any will do
        integrator = Integrator(self._rows, self._moving_potential(potential), EuclideanKinetic(None))
        return integrator.opening_grad_at(z, jnp.arange(self._num_subsets))
