"""The method that follows Hamilton's equations over subsets, composed of schedule, trajectory, adaptation and system.

The schedule defines which gradients make a step (:mod:`split_common.schedule`); the trajectory, where it ends and which
of its states is chosen (:mod:`numpyro_split.trajectories`); the system, which sites move, with which kinetic energy
(:mod:`numpyro_split.kernels.system`). This module composes them: an iteration moves at a fixed step size and metric,
and adaptation takes place between iterations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, random
from numpyro.infer.hmc_util import build_adaptation_schedule

from numpyro_split.adaptation.centering import first_center, moved_to_data, recentred
from numpyro_split.adaptation.exploration import explored
from numpyro_split.adaptation.gradient_metric import GradientWindow
from numpyro_split.adaptation.health import Health, warn_if_in_trouble
from numpyro_split.adaptation.settling import not_settled, settle
from numpyro_split.adaptation.step_size_and_metric import Adapter, one_step
from numpyro_split.integrators.euclidean import EuclideanKinetic, adapted_kinetic
from numpyro_split.integrators.integrator import Integrator, IntegratorBase
from numpyro_split.kernels.method import Setup
from numpyro_split.kernels.state import ChainState, Warmup
from numpyro_split.kernels.system import Euclidean, System
from numpyro_split.potential.centering import CenteredPotential, FollowedPotential
from numpyro_split.potential.content import DataDigest
from numpyro_split.potential.position import Position, zeros
from numpyro_split.potential.split_potential import SplitPotential
from split_common.adaptation import AdaptationSettings
from split_common.exploration import QUARTERS, Exploration, quarter_turn
from split_common.gradient_metric import uses_gradients
from split_common.harmonic import check_lengths_vary
from split_common.health import STATISTICS
from split_common.schedule import ChosenSchedule
from split_common.trajectory import Trajectory


@dataclass(frozen=True)
class Hamiltonian:
    """Hamiltonian Monte Carlo over subsets, a :class:`~numpyro_split.kernels.method.Method`.

    Attributes:
        schedule: kicks and drifts of one step.
        trajectory: when a trajectory ends, and which of its states is chosen.
        adaptation: settings of the adaptation in warm-up.
        system: which sites move, and their kinetic energy.
        num_warmup: number of warm-up iterations; 0 before it is known.
        local_sites: latent sites inside the data plate, which are not centred; empty before they are known.

    Raises:
        ValueError: for a system that cannot move by the trajectory, or whose drifts cannot be harmonic.
    """

    schedule: ChosenSchedule
    trajectory: Trajectory
    adaptation: AdaptationSettings
    system: System = field(default_factory=Euclidean)
    num_warmup: int = 0
    local_sites: tuple[str, ...] = ()
    depends_on_data = True
    given_start = None
    free_fields = ()

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

    @property
    def layout(self) -> tuple[str, ...]:
        """Texts of the schedule, the system and the centring."""
        return self.schedule.layout, *self.system.layout, *self.adaptation.center.layout

    @property
    def plan(self) -> str:
        """What the system found in the model."""
        return self.system.plan

    @property
    def shared_fields(self) -> Mapping[str, Any]:
        """No field is shared between chains."""
        return {}

    def batch_sizes(self, num_rows: int) -> Iterable[int]:
        """No batches besides the subsets."""
        return ()

    def check_warmup(self, num_warmup: int) -> None:
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
        return replace(self, system=self.system.find(setup), num_warmup=setup.num_warmup, local_sites=local_sites)

    def serves(self, init_params: Position | None) -> bool:
        """True: nothing that was prepared depends on whether a starting point is given."""
        return True

    def without_data(self) -> Hamiltonian:
        """The method itself: only the state depends on the data."""
        return self

    def find_start(self, rng_key: jax.Array) -> None:
        """No start of its own: the host's strategy finds the starting point."""

    def start(self, potential: SplitPotential, z: Position, rng_key: jax.Array) -> ChainState:
        """The state of a chain at its starting point, where a first step size is searched for."""
        key_adapt, key_chain = random.split(rng_key)
        energies = potential.energies(z)
        energy, zero = jnp.sum(energies.value), jnp.zeros((), jnp.result_type(int))
        state = ChainState(
            i=zero,
            z=z,
            energies=energies,
            potential_energy=energy,
            energy=energy,
            num_steps=zero,
            num_grads=zero,
            accept_prob=jnp.zeros(()),
            mean_accept_prob=jnp.zeros(()),
            diverging=jnp.array(False),
            step_size=jnp.zeros(()),
            data_digest=DataDigest.unknown(),
            warmup=Warmup(self.num_warmup),
            rng_key=key_chain,
            health=Health.none(),
            settled=not_settled(),
            **self.trajectory.first_fields(z),
            **self.system.first_fields(z),
        )
        if self.adaptation.center.is_on:
            sites = [name for name in self.system.coordinates(z) if name not in self.local_sites]
            sites = sites if self.schedule.rows.divides_kicks else []
            centering = first_center(self.adaptation.center, potential, z, sites) if sites else None
            center_order = zero if centering is None else centering.center.order
            state = state._replace(centering=centering, center_order=center_order)
        if self.adaptation.drift is not None:
            state = state._replace(harmonic_drift=jnp.array(False))
        state = state._replace(opening_grad=self._kept_grad(potential, state))
        inverse_mass_matrix = self.system.first_inverse_mass_matrix(z, self.adaptation)
        adapt_state = self._adapter(potential, state).init(z, energies, inverse_mass_matrix, key_adapt)
        return state._replace(adapt_state=adapt_state, step_size=adapt_state.step_size)

    def step(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """One iteration: a move at the state's step size and metric, then both adapt."""
        adapted, window = adapted_kinetic(state.adapt_state), self._followed(state)
        moved = self._move(self._integrator(potential, state, adapted, window), state)
        moved = self._recentred(potential, moved)
        adapter = self._adapter(potential, moved)
        moved, grad = self._with_gradient(potential, moved, adapter.wants_gradient(state.i))
        adapt_state = adapter.update(state.i, moved.accept_prob, moved.z, moved.energies, state.adapt_state, grad)
        settled = settle(state.settled, state.i, adapter, adapt_state, self.trajectory.learned(moved))
        i = state.i + 1
        n = jnp.where(i > self.num_warmup, i - self.num_warmup, i)
        mean_accept_prob = state.mean_accept_prob + (moved.accept_prob - state.mean_accept_prob) / n
        health = state.health.with_draw(i - self.num_warmup, moved.energy, moved.diverging)
        moved = moved._replace(
            i=i, adapt_state=adapt_state, mean_accept_prob=mean_accept_prob, health=health, settled=settled
        )
        if (window := self._followed(moved)) is not None:
            moved = moved._replace(harmonic_drift=window.is_normal)
        return self._with_quarter_turns(moved, adapter, i)

    def _with_quarter_turns(self, moved: ChainState, adapter: Adapter, i: jax.Array) -> ChainState:
        """The state with lengths of about a quarter turn, at the end of warm-up and if the metric fits well enough."""
        if not adapter.measures_fit:
            return moved

        def measured() -> tuple[jax.Array, jax.Array]:
            length = quarter_turn(*adapter.fit(moved.adapt_state))
            shortest, longest = (share * length for share in QUARTERS)
            fits = length > 0
            return jnp.where(fits, shortest, moved.shortest_length), jnp.where(fits, longest, moved.trajectory_length)

        known = moved.shortest_length, moved.trajectory_length
        shortest, longest = lax.cond(i == self.num_warmup, measured, lambda: known)
        settled = moved.settled._replace(
            trajectory_length=jnp.where(shortest > 0, longest, moved.settled.trajectory_length)
        )
        return moved._replace(shortest_length=shortest, trajectory_length=longest, settled=settled)

    def refresh(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """The state with energies, centring and opening gradient of this potential."""
        energies = potential.energies(state.z)
        state = state._replace(energies=energies, potential_energy=jnp.sum(energies.value))
        if state.centering is not None:
            state = state._replace(centering=moved_to_data(state.centering, potential))
        return state._replace(opening_grad=self._kept_grad(potential, state))

    def shorten_step(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """The state with a step size that is not too long for this potential."""
        rng_key, key_adapt = random.split(state.rng_key)
        adapter = self._adapter(potential, state)
        adapt_state = adapter.search_again(state.z, state.energies, state.adapt_state, key_adapt)
        return state._replace(adapt_state=adapt_state, rng_key=rng_key)

    def watch(self, state: ChainState) -> None:
        """Warn of divergences and slowly explored energies, and give the warnings of the trajectory."""
        warn_if_in_trouble(state, self.num_warmup)
        self.trajectory.watch(state, self.num_warmup)

    def _move(self, integrator: IntegratorBase, state: ChainState) -> ChainState:
        """One iteration at the state's step size and metric: a tree while warm-up explores, otherwise a trajectory."""
        state = self.system.before(state, integrator)

        def move(state: ChainState) -> ChainState:
            moved, p = self.trajectory.move(state, integrator, self.num_warmup)
            return self.system.noted(moved, p, integrator)

        def move_by_metric(state: ChainState) -> ChainState:
            return explored(state, integrator, exploration, move) if self.trajectory.learns_length else move(state)

        exploration, early = self._exploration, self.system.early_integrator(integrator)
        if early is None:
            moved = explored(state, integrator, exploration, move)
        else:
            moved = explored(state, early, exploration.before, move_by_metric)
        return self.system.adapted(state, moved, self.num_warmup) if self.adaptation.adapt_mass_matrix else moved

    def _recentred(self, potential: SplitPotential, moved: ChainState) -> ChainState:
        """The state with new centring at the end of a window of warm-up, and the opening gradient for it."""
        settings = self.adaptation.center
        if moved.centering is None or not settings.is_found:
            return moved
        assert moved.adapt_state is not None
        velocity = adapted_kinetic(moved.adapt_state).velocity
        centering, num_grads = recentred(
            moved.centering, settings, potential, velocity, self.system.coordinates, moved.i, moved.z, self.num_warmup
        )
        opening = 0 if moved.opening_grad is None else self.schedule.rows.opening_grads
        new = moved._replace(
            centering=centering,
            center_order=centering.center.order,
            num_grads=moved.num_grads + num_grads + opening * (num_grads > 0),
        )
        opening_grad = lax.cond(num_grads > 0, lambda: self._kept_grad(potential, new), lambda: moved.opening_grad)
        return new._replace(opening_grad=opening_grad)

    def _with_gradient(
        self, potential: SplitPotential, moved: ChainState, is_wanted: jax.Array | bool
    ) -> tuple[ChainState, Position | None]:
        """The state with the cost of the gradient at its position counted, and that gradient; zeros if not wanted."""
        if is_wanted is False:
            return moved, None
        kick = self.schedule.rows.closing_kick
        if kick and moved.opening_grad is not None:
            return moved, jax.tree.map(lambda opening_grad: opening_grad / float(kick), moved.opening_grad)
        grad = lax.cond(is_wanted, lambda: potential.energies_and_grad(moved.z)[1], lambda: zeros(moved.z))
        return moved._replace(num_grads=moved.num_grads + potential.num_subsets * is_wanted), grad

    @property
    def _exploration(self) -> Exploration:
        """Which iterations of warm-up move by trees."""
        if not self.trajectory.explores:
            return Exploration(0, 0)
        ends = [window.end + 1 for window in build_adaptation_schedule(self.num_warmup)]
        return Exploration.of(ends, self.num_warmup, self.trajectory.learns_length, self.adaptation.adapt_mass_matrix)

    def _adapter(self, potential: SplitPotential, state: ChainState) -> Adapter:
        def integrator_for(adapted: EuclideanKinetic, window: GradientWindow | None) -> IntegratorBase:
            return self._integrator(potential, state, adapted, window)

        coordinates, longest_step, trial = (
            self.system.coordinates,
            self.trajectory.longest_step,
            one_step(integrator_for),
        )
        like, measures_fit = coordinates(state.z), self.trajectory.learns_length
        if state.centering is not None:
            longest_step = jnp.minimum(longest_step, state.centering.longest_step(self.trajectory.learns_length))
        return Adapter(self.adaptation, self.num_warmup, coordinates, like, trial, longest_step, measures_fit)

    def _integrator(
        self, potential: SplitPotential, state: ChainState, adapted: EuclideanKinetic, window: GradientWindow | None
    ) -> IntegratorBase:
        """The integrator of trajectories; its drifts follow the normal approximation of a window, if one is given."""
        followed = _centered(potential, state)
        if window is None:
            return self.system.integrator(self.schedule.rows, followed, self.system.kinetic(adapted, state))
        return Integrator(self.schedule.rows, followed, adapted, window.drift(adapted, state.z))

    def _followed(self, state: ChainState) -> GradientWindow | None:
        """The window whose normal approximation drifts may follow; None for straight drifts."""
        size = sum(u.size for u in state.z.values())
        if self.adaptation.drift is None or not uses_gradients(self.adaptation.metric, size):
            return None
        assert state.adapt_state is not None
        return state.adapt_state.mm_state

    def _kept_grad(self, potential: SplitPotential, state: ChainState) -> Position | None:
        """The gradient that opens the next trajectory; None where an order of subsets is drawn for it."""
        schedule = self.schedule.rows
        if self.trajectory.draws_order(schedule):
            return None
        # the opening kicks do not depend on the metric, so none is given
        integrator = Integrator(schedule, self.system.potential(_centered(potential, state)), EuclideanKinetic(None))
        return integrator.opening_grad_at(state.z, jnp.arange(schedule.num_subsets))


def _centered(potential: SplitPotential, state: ChainState) -> FollowedPotential:
    """The potential that trajectories follow: that of the target, or the same with centred subsets."""
    return potential if state.centering is None else CenteredPotential(potential, state.centering.center)
