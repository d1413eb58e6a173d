"""The method that follows Hamilton's equations over subsets, composed of schedule, trajectory, adaptation and system.

The schedule defines which gradients make a step (:mod:`split_common.schedule`); the trajectory, where it ends and which
of its states is chosen (:mod:`pyro_split.trajectories`); the system, which sites move, with which kinetic energy
(:mod:`pyro_split.kernels.system`). This module composes them: an iteration moves at a fixed step size and metric, and
adaptation takes place between iterations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyro_split.adaptation.centering import first_center, recentred
from pyro_split.adaptation.exploration import explored
from pyro_split.adaptation.gradient_metric import harmonic_drift
from pyro_split.adaptation.health import Health, warn_if_in_trouble
from pyro_split.adaptation.settling import settle
from pyro_split.adaptation.step_size_and_metric import Adapter, Trial, one_step
from pyro_split.host import AdaptState
from pyro_split.integrators.euclidean import EuclideanKinetic, adapted_kinetic
from pyro_split.integrators.integrator import Integrator, IntegratorBase
from pyro_split.kernels.method import Setup
from pyro_split.kernels.state import ChainState
from pyro_split.kernels.system import Euclidean, System
from pyro_split.potential.centering import CenteredPotential, FollowedPotential
from pyro_split.potential.position import Position
from pyro_split.potential.split_potential import SplitPotential
from split_common.adaptation import AdaptationSettings
from split_common.exploration import QUARTERS, Exploration, quarter_turn
from split_common.gradient_metric import uses_gradients
from split_common.harmonic import check_lengths_vary
from split_common.health import STATISTICS
from split_common.schedule import ChosenSchedule
from split_common.settling import Settled
from split_common.trajectory import Trajectory


@dataclass(frozen=True)
class Hamiltonian:
    """Hamiltonian Monte Carlo over subsets, a :class:`~pyro_split.kernels.method.Method`.

    Attributes:
        schedule: kicks and drifts of one step.
        trajectory: when a trajectory ends, and which of its states is chosen.
        adaptation: settings of the adaptation in warm-up.
        system: which sites move, and their kinetic energy.
        warmup_steps: number of warm-up iterations; 0 before it is known.
        local_sites: latent sites inside the data plate, which are not centred; empty before they are known.

    Raises:
        ValueError: for a system that cannot move by the trajectory, or whose drifts cannot be harmonic.
    """

    schedule: ChosenSchedule
    trajectory: Trajectory
    adaptation: AdaptationSettings
    system: System = field(default_factory=Euclidean)
    warmup_steps: int = 0
    local_sites: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.system.check_trajectory(self.trajectory)
        if self.adaptation.drift is not None and not self.system.has_constant_mass:
            raise ValueError(
                "drift must be None where the kinetic energy is not that of the adapted mass matrix alone, got 'auto'"
            )
        if self.adaptation.drift is not None:
            check_lengths_vary(self.trajectory.varies_length)

    @property
    def statistics(self) -> tuple[str, ...]:
        """Statistics of every kernel, of trajectory and system and, where they are on, of centring and drifts."""
        of_center = ("center_order",) if self.adaptation.center.is_on else ()
        of_drift = ("harmonic_drift",) if self.adaptation.drift is not None else ()
        return (*STATISTICS, *self.trajectory.statistics, *self.system.statistics, *of_center, *of_drift)

    @property
    def details(self) -> list[str]:
        """Texts of the schedule and the system."""
        return [*self.schedule.details, *self.system.details]

    @property
    def target(self) -> str:
        """No text: the target is the posterior."""
        return ""

    @property
    def records_energy(self) -> bool:
        """Whether the potential energy in a state is that of all rows: yes."""
        return True

    def batch_sizes(self, num_rows: int) -> Iterable[int]:
        """No batches besides the subsets."""
        return ()

    def check_warmup(self, warmup_steps: int) -> None:
        """Every number of warm-up iterations is allowed."""

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Raise unless a given mass matrix fits the sites that it is for, and a given center fits all sites."""
        self.adaptation.check_sizes(self.system.coordinates(sizes))
        self.adaptation.center.check_sizes(sizes)

    def for_subsets(self, num_subsets: int) -> Hamiltonian:
        """The method with the schedule of this number of subsets."""
        return replace(self, schedule=self.schedule.for_subsets(num_subsets))

    def prepare(self, setup: Setup) -> Hamiltonian:
        """The method, with what its system has found in the model."""
        local_sites = () if setup.split is None else tuple(setup.split.local_sites)
        return replace(self, system=self.system.find(setup), warmup_steps=setup.warmup_steps, local_sites=local_sites)

    def find_start(self) -> None:
        """No start of its own: the host's strategy finds the starting point."""

    def start(self, potential: SplitPotential, z: Position) -> ChainState:
        """The state of a chain at its starting point, where a first step size is searched for."""
        energies = potential.energies(z)
        energy = float(energies.sum())
        state = ChainState(
            i=0,
            z=z,
            energies=energies,
            potential_energy=energy,
            energy=energy,
            num_steps=0,
            num_grads=0,
            accept_prob=0.0,
            mean_accept_prob=0.0,
            diverging=False,
            step_size=0.0,
            health=Health(),
            settled=Settled(),
            **self.trajectory.first_fields(z),
            **self.system.first_fields(z),
        )
        if self.adaptation.center.is_on:
            sites = [name for name in self.system.coordinates(z) if name not in self.local_sites]
            sites = sites if self.schedule.rows.divides_kicks else []
            centering = first_center(self.adaptation.center, potential, z, sites) if sites else None
            center_order = 0 if centering is None else centering.center.order
            state = state._replace(centering=centering, center_order=center_order)
        if self.adaptation.drift is not None:
            state = state._replace(harmonic_drift=False)
        state = state._replace(opening_grad=self._kept_grad(potential, state))
        inverse_mass_matrix = self.system.first_inverse_mass_matrix(z, self.adaptation)
        adapter = Adapter(
            self.adaptation._replace(inverse_mass_matrix=inverse_mass_matrix),
            self.warmup_steps,
            self.system.coordinates,
            z,
            self._trial(potential, state),
            self.trajectory.longest_step,
            self.trajectory.learns_length,
        )
        return state._replace(adapter=adapter, adapt_state=adapter.state, step_size=adapter.state.step_size)

    def step(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """One iteration: a move at the state's step size and metric; in warm-up both then adapt."""
        adapter, health, t = state.adapter, state.health, state.i + 1
        assert adapter is not None
        assert health is not None
        adapt_state = state.adapt_state
        assert adapt_state is not None
        integrator = self._integrator(potential, state, adapt_state)
        state = self.system.before(state, integrator)
        if t > self.warmup_steps:
            n, moved = t - self.warmup_steps, self._move(integrator, state)
        else:
            adapter.load(adapt_state)
            n, moved = t, self._adapted(adapter, potential, self._explore(integrator, state))
        return moved._replace(
            i=t,
            mean_accept_prob=state.mean_accept_prob + (moved.accept_prob - state.mean_accept_prob) / n,
            health=health.with_draw(t - self.warmup_steps, moved.energy, moved.diverging),
        )

    def refresh(self, potential: SplitPotential, state: ChainState, z: Position) -> ChainState:
        """The state moved to ``z``, with energies and opening gradient there."""
        energies = potential.energies(z)
        state = state._replace(z=z, energies=energies, potential_energy=float(energies.sum()))
        return state._replace(opening_grad=self._kept_grad(potential, state))

    def watch(self, state: ChainState) -> None:
        """Warn of divergences and slowly explored energies, and give the warnings of the trajectory."""
        warn_if_in_trouble(state, self.warmup_steps)
        self.trajectory.watch(state, self.warmup_steps)

    def diagnostics(self, state: ChainState) -> dict[str, Any]:
        """What warm-up settled on, the inverse mass matrix, and the reference of centring."""
        assert state.adapt_state is not None
        found = {
            "settled": state.settled,
            "adapted_step_size": state.adapt_state.step_size,
            "inverse_mass_matrix": dict(state.adapt_state.inverse_mass_matrix),
        }
        if state.centering is None:
            return found
        return {**found, "center": state.centering.center.reference}

    def _move(self, integrator: IntegratorBase, state: ChainState) -> ChainState:
        """The state after one trajectory."""
        moved, p = self.trajectory.move(state, integrator, self.warmup_steps)
        return self.system.noted(moved, p, integrator)

    def _explore(self, integrator: IntegratorBase, state: ChainState) -> ChainState:
        """The state after one iteration of warm-up: a tree while warm-up explores, otherwise a trajectory."""

        def move(state: ChainState) -> ChainState:
            return self._move(integrator, state)

        def move_by_metric(state: ChainState) -> ChainState:
            return explored(state, integrator, exploration, move) if self.trajectory.learns_length else move(state)

        exploration, early = self._exploration(state), self.system.early_integrator(integrator)
        if early is None:
            moved = explored(state, integrator, exploration, move)
        else:
            moved = explored(state, early, exploration.before, move_by_metric)
        return self.system.adapted(state, moved) if self.adaptation.adapt_mass_matrix else moved

    def _adapted(self, adapter: Adapter, potential: SplitPotential, moved: ChainState) -> ChainState:
        """The state with centring, step size and metric adapted after an iteration of warm-up."""
        t, longest_step = moved.i + 1, self.trajectory.longest_step
        moved = self._recentred(adapter, potential, moved)
        if moved.centering is not None:
            longest_step = min(longest_step, moved.centering.longest_step(self.trajectory.learns_length))
        grad = None
        if adapter.wants_gradient(t):
            moved, grad = self._with_gradient(potential, moved)
        adapter.update(t, moved.accept_prob, moved.z, self._trial(potential, moved), longest_step, grad)
        assert moved.settled is not None
        settled = settle(moved.settled, t, adapter, self.trajectory.learned(moved))
        moved = moved._replace(adapt_state=adapter.state, settled=settled)
        if self.adaptation.drift is not None:
            moved = moved._replace(harmonic_drift=adapter.is_harmonic)
        return self._with_quarter_turns(adapter, moved) if t == self.warmup_steps else moved

    def _with_quarter_turns(self, adapter: Adapter, moved: ChainState) -> ChainState:
        """The state with lengths of about a quarter turn, at the end of warm-up and if the metric fits well enough."""
        length = float(quarter_turn(*adapter.fit)) if adapter.measures_fit else 0.0
        if not length > 0:
            return moved
        assert moved.settled is not None
        shortest, longest = (share * length for share in QUARTERS)
        settled = moved.settled._replace(trajectory_length=longest)
        return moved._replace(shortest_length=shortest, trajectory_length=longest, settled=settled)

    def _recentred(self, adapter: Adapter, potential: SplitPotential, moved: ChainState) -> ChainState:
        """The state with new centring at the end of a window of warm-up, and the opening gradient for it."""
        settings = self.adaptation.center
        if moved.centering is None or not settings.is_found:
            return moved
        assert moved.adapt_state is not None
        velocity, coordinates = adapted_kinetic(moved.adapt_state).velocity, self.system.coordinates
        centering, num_grads = recentred(
            moved.centering, settings, potential, velocity, coordinates, moved.i + 1, moved.z, adapter.window_ends
        )
        new = moved._replace(
            centering=centering, center_order=centering.center.order, num_grads=moved.num_grads + num_grads
        )
        if not num_grads:
            return new
        opening = 0 if moved.opening_grad is None else self.schedule.rows.opening_grads
        return new._replace(num_grads=new.num_grads + opening, opening_grad=self._kept_grad(potential, new))

    def _with_gradient(self, potential: SplitPotential, moved: ChainState) -> tuple[ChainState, Position]:
        """The state with the cost of the gradient at its position, and that gradient."""
        kick = self.schedule.rows.closing_kick
        if kick and moved.opening_grad is not None:
            return moved, {name: u / float(kick) for name, u in moved.opening_grad.items()}
        num_grads = moved.num_grads + potential.num_subsets
        return moved._replace(num_grads=num_grads), potential.energies_and_grad(moved.z)[1]

    def _exploration(self, state: ChainState) -> Exploration:
        """Which iterations of warm-up move by trees."""
        if not self.trajectory.explores:
            return Exploration(0, 0)
        assert state.adapter is not None
        ends, learns_length = state.adapter.window_ends, self.trajectory.learns_length
        return Exploration.of(ends, self.warmup_steps, learns_length, self.adaptation.adapt_mass_matrix)

    def _trial(self, potential: SplitPotential, state: ChainState) -> Trial:
        """The trial of a search for a step size: one step of the schedule."""
        return one_step(lambda adapted: self._integrator(potential, state, adapted))

    def _integrator(self, potential: SplitPotential, state: ChainState, adapted: AdaptState) -> IntegratorBase:
        """The integrator of trajectories; its drifts follow the normal approximation of warm-up, if there is one."""
        followed, kinetic = _centered(potential, state), adapted_kinetic(adapted)
        size = sum(u.numel() for u in state.z.values())
        if self.adaptation.drift is not None and uses_gradients(self.adaptation.metric, size):
            return Integrator(self.schedule.rows, followed, kinetic, harmonic_drift(adapted, kinetic, state.z))
        return self.system.integrator(self.schedule.rows, followed, self.system.kinetic(kinetic, state))

    def _kept_grad(self, potential: SplitPotential, state: ChainState) -> Position | None:
        """The gradient that opens the next trajectory; None where an order of subsets is drawn for it."""
        schedule = self.schedule.rows
        if self.trajectory.draws_order(schedule):
            return None
        followed, no_metric = self.system.potential(_centered(potential, state)), EuclideanKinetic({}, {}, {})
        integrator = Integrator(schedule, followed, no_metric)  # opening kicks need no metric
        return integrator.opening_grad_at(state.z, range(schedule.num_subsets))


def _centered(potential: SplitPotential, state: ChainState) -> FollowedPotential:
    """The potential that trajectories follow: that of the target, or the same with centred subsets."""
    return potential if state.centering is None else CenteredPotential(potential, state.centering.center)
