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

from pyro_split.adaptation.health import warn_if_in_trouble
from pyro_split.adaptation.settling import settle
from pyro_split.adaptation.step_size_and_metric import Adapter, one_step
from pyro_split.integrators.euclidean import EuclideanKinetic
from pyro_split.integrators.integrator import Integrator, Kinetic, Potential
from pyro_split.kernels.host_kernel import SplitKernel
from pyro_split.potential.position import Position
from pyro_split.potential.split_potential import SplitPotential
from split_common.exploration import Exploration
from split_common.schedule import MAX_CHECKED_SUBSETS, Schedule, ScheduleChoice, build_schedule
from split_common.settling import Settled
from split_common.values import name_of


class HamiltonianKernel(SplitKernel):
    """Base of the kernels that integrate a schedule; for the arguments see :class:`~pyro_split.SplitHMC`."""

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
        """One iteration at the adapter's step size and metric."""

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
        settings, ends = self._settings, self._adapter.window_ends
        return Exploration.of(ends, self._warmup_steps, learns_length, settings.adapt_mass_matrix)

    def _learned(self, state: Any) -> dict[str, float]:
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

    def _kinetic(self, adapted: EuclideanKinetic) -> Kinetic:
        """The kinetic energy at the adapted mass matrix."""
        return adapted

    def _integrator(self, potential: SplitPotential, kinetic: Kinetic) -> Integrator:
        return Integrator(self._rows, self._moving_potential(potential), kinetic)

    def _start(self, potential: SplitPotential, z: Position) -> Any:
        def integrator_for(adapted: EuclideanKinetic) -> Integrator:
            return self._integrator(potential, self._kinetic(adapted))

        energies = potential.energies(z)
        settings = self._settings._replace(inverse_mass_matrix=self._first_inverse_mass_matrix(z))
        trial = one_step(integrator_for)
        self._adapter = Adapter(settings, self._warmup_steps, self._coordinates, z, trial, self._longest_step)
        energy = float(energies.sum())
        return self._first_state(
            z=z,
            opening_grad=self._kept_grad(potential, z),
            energies=energies,
            potential_energy=energy,
            energy=energy,
            num_steps=0,
            num_grads=0,
            accept_prob=0.0,
            diverging=False,
            step_size=self._adapter.step_size,
            settled=Settled(),
        )

    def _transition(self, potential: SplitPotential, state: Any) -> Any:
        integrator = self._integrator(potential, self._kinetic(self._adapter.kinetic))
        state = self._move(integrator, state)
        self._adapter.update(self._t, state.accept_prob, state.z)
        return state._replace(settled=settle(state.settled, self._t, self._adapter, self._learned(state)))

    def _watch(self) -> None:
        warn_if_in_trouble(self._statistics["diverging"], self._statistics["energy"])

    def _recompute(self, potential: SplitPotential, state: Any, z: Position) -> Any:
        energies = potential.energies(z)
        return state._replace(
            z=z,
            energies=energies,
            potential_energy=float(energies.sum()),
            opening_grad=self._kept_grad(potential, z),
        )

    def _kept_grad(self, potential: SplitPotential, z: Position) -> Position | None:
        if self._draws_order:
            return None
        # the opening kicks do not involve the metric, so any will do
        integrator = Integrator(self._rows, self._moving_potential(potential), self._adapter.kinetic)
        return integrator.opening_grad_at(z, range(self._num_subsets))
