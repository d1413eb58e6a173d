"""What the kernels share that follow Hamilton's equations over subsets: schedule, metric, step size, bookkeeping.

A concrete kernel says which schedule it integrates by (:meth:`HamiltonianKernel._schedule`), by which kinetic energy
(:meth:`HamiltonianKernel._kinetic`), and how one iteration moves (:meth:`HamiltonianKernel._move`) at a step size and a
metric that stay as they are; what adapts does so between iterations.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any

from pyro_split.adaptation import Adapter, one_step
from pyro_split.densities import Position
from pyro_split.health import warn_if_in_trouble
from pyro_split.integrators import Integrator, Kinetic, Potential
from pyro_split.kernel import SplitKernel
from pyro_split.kinetic import EuclideanKinetic
from pyro_split.potential import SplitPotential
from pyro_split.selection import Choice, Path, Visits
from pyro_split.settling import settle
from split_common.exploration import Exploration
from split_common.schedule import MAX_CHECKED_SUBSETS, Schedule
from split_common.settling import Settled
from split_common.values import name_of


class HamiltonianKernel(SplitKernel):
    """Base of the kernels that integrate a schedule; for the arguments see :class:`~pyro_split.SplitHMC`."""

    # what the schedule is called, or the function that makes it; empty for a class of the user's own
    _schedule_name: str | Callable[[int], Schedule] = ""

    def __init__(self, model: Any, num_subsets: int, **options: Any):
        super().__init__(model, num_subsets, **options)
        if self._has_checked_rows:
            self._rows = self._schedule(self._num_subsets)

    @property
    def _has_checked_rows(self) -> bool:
        """Whether the rows are the user's own and few enough to be built, and so checked, with the kernel."""
        is_own = not isinstance(self._schedule_name, str) or not self._schedule_name
        return is_own and self._num_subsets <= MAX_CHECKED_SUBSETS

    @cached_property
    def _rows(self) -> Schedule:
        """The schedule, built when a run first asks for it: by then M was compared with the number of rows."""
        return self._schedule(self._num_subsets)

    @property
    def _details(self) -> list[str]:
        if not isinstance(self._schedule_name, str):
            return [f"schedule={name_of(self._schedule_name)}"]
        name = self._schedule_name or (self._rows.name if self._has_checked_rows else "")
        return [f"schedule={name!r}"] if name else []

    @abstractmethod
    def _schedule(self, num_subsets: int) -> Schedule:
        """The rows of one step."""

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
        """What the step size is adapted to at most."""
        return math.inf

    def _exploration(self, learns_length: bool) -> Exploration:
        """Which iterations of warm-up are made by trees."""
        settings, ends = self._settings, self._adapter.window_ends
        return Exploration.of(ends, self._warmup_steps, learns_length, settings.adapt_mass_matrix)

    def _learned(self, state: Any) -> dict[str, float]:
        """What warm-up learns besides step size and metric, by its field of :class:`split_common.settling.Settled`."""
        return {}

    def _coordinates(self, z: Position) -> Position:
        """What the mass matrix adapts to."""
        return z

    def _first_inverse_mass_matrix(self, z: Position) -> Any:
        """What the inverse mass matrix of a chain that starts at ``z`` is, None for the identity."""
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
            force=self._kept_force(potential, z),
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
            force=self._kept_force(potential, z),
        )

    def _kept_force(self, potential: SplitPotential, z: Position) -> Position | None:
        if self._draws_order:
            return None
        # the opening kicks do not involve the metric, so any will do
        integrator = Integrator(self._rows, self._moving_potential(potential), self._adapter.kinetic)
        return integrator.opening_force(z, range(self._num_subsets))


def draw_path(state: Any, integrator: Integrator, adapter: Adapter) -> Path:
    """A path from the state with a momentum drawn from exp(-K), at the adapter's step size and metric."""
    order, kinetic = range(integrator.schedule.num_subsets), integrator.kinetic
    start = integrator.known(state.z, kinetic.draw(state.z), state.force, state.energies)
    return Path(integrator, kinetic.unscale, adapter.step_size, order, start, state.energies)


def at_choice(state: Any, path: Path, choice: Choice, visits: Visits, num_steps: int) -> Any:
    """``state`` moved to the choice of a trajectory, with the statistics that all such trajectories have."""
    start_energy = state.potential_energy + path.integrator.kinetic.energy(state.z, path.start.p)
    return state._replace(
        z=choice.z,
        force=choice.force,
        energies=choice.energies,
        potential_energy=float(choice.energies.sum()),
        energy=start_energy + choice.energy_change,
        num_steps=num_steps,
        num_grads=num_steps * path.integrator.grads_per_step,
        accept_prob=visits.mean_accept_prob,
        diverging=visits.diverging,
        step_size=path.step_size,
    )
