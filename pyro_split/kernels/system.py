"""Systems: which sites move, their kinetic energy, and the integrator that goes with it.

A system is a frozen value. Most models are :class:`Euclidean`: every site moves, with the momentum of a constant mass
matrix. Systems of hierarchical models find in the model which precision scales which weights (:class:`PrecisionSites`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pyro_split.integrators.euclidean import EuclideanKinetic
from pyro_split.integrators.hierarchical_kinetic import Hierarchy, find_hierarchy
from pyro_split.integrators.integrator import Integrator, IntegratorBase, Kinetic, Potential
from pyro_split.kernels.method import Setup
from pyro_split.kernels.state import ChainState
from pyro_split.potential.centering import FollowedPotential
from pyro_split.potential.position import Position
from pyro_split.potential.split_potential import SplitPotential
from split_common.adaptation import AdaptationSettings
from split_common.checks import check_flag, check_site_names
from split_common.hierarchy import describe_groups
from split_common.schedule import Schedule
from split_common.trajectory import Trajectory
from split_common.values import shown


class System(Protocol):
    """Protocol of a system, a part of :class:`~pyro_split.kernels.hamiltonian.Hamiltonian`."""

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the fields of the state that this system adds to the statistics."""
        ...

    @property
    def details(self) -> list[str]:
        """Texts that this system adds to the kernel's repr."""
        ...

    @property
    def has_constant_mass(self) -> bool:
        """Whether the kinetic energy is that of the adapted mass matrix alone, for all sites."""
        ...

    def check_trajectory(self, trajectory: Trajectory) -> None:
        """Raise unless the system can move by this kind of trajectory."""
        ...

    def find(self, setup: Setup) -> System:
        """The system, with what it has found in the model."""
        ...

    def coordinates(self, z: Mapping[str, Any]) -> dict[str, Any]:
        """The entries of a dict by site that the mass matrix adapts to."""
        ...

    def first_inverse_mass_matrix(self, z: Position, adaptation: AdaptationSettings) -> Any:
        """First inverse mass matrix of a chain that starts at ``z``; None for the identity."""
        ...

    def first_fields(self, z: Position) -> dict[str, Any]:
        """Initial values of the system's own fields of the state, for a chain that starts at ``z``."""
        ...

    def potential(self, potential: FollowedPotential) -> Potential:
        """The potential that trajectories follow."""
        ...

    def kinetic(self, adapted: EuclideanKinetic, state: ChainState) -> Kinetic:
        """The kinetic energy of an iteration.

        Args:
            adapted: kinetic energy of the adapted mass matrix.
            state: current state of the chain.

        Returns:
            The kinetic energy of all sites.
        """
        ...

    def integrator(self, schedule: Schedule, potential: FollowedPotential, kinetic: Any) -> IntegratorBase:
        """The integrator of trajectories.

        Args:
            schedule: schedule of a step.
            potential: potential of the target, possibly centred.
            kinetic: kinetic energy, from :meth:`kinetic`.

        Returns:
            The integrator.
        """
        ...

    def early_integrator(self, integrator: IntegratorBase) -> IntegratorBase | None:
        """The integrator that warm-up uses before there is a metric; None for the same integrator."""
        ...

    def before(self, state: ChainState, integrator: IntegratorBase) -> ChainState:
        """Move by a transition of the system's own before the trajectory, which must leave the target invariant.

        Args:
            state: current state of the chain.
            integrator: integrator of trajectories, from :meth:`integrator`.

        Returns:
            The state after the transition.
        """
        ...

    def noted(self, state: ChainState, p: Position | None, integrator: IntegratorBase) -> ChainState:
        """Add the system's statistics to a state.

        Args:
            state: state after the trajectory.
            p: momentum of that state, a dict like its ``z``; None after a tree or windows.
            integrator: integrator of trajectories.

        Returns:
            The state with the statistics.
        """
        ...

    def adapted(self, state: ChainState, moved: ChainState) -> ChainState:
        """Adapt what the system adapts besides the mass matrix.

        Args:
            state: state before the iteration.
            moved: state after it.

        Returns:
            ``moved`` with the adapted fields.
        """
        ...


@dataclass(frozen=True)
class Euclidean:
    """The system in which every site moves, with a constant mass matrix.

    Attributes:
        kinetic_energy: function from the kinetic energy of the adapted mass matrix to the one to use; None to use that
            of the mass matrix.
    """

    kinetic_energy: Callable[[EuclideanKinetic], Kinetic] | None = None
    statistics = ()

    @property
    def details(self) -> list[str]:
        """No text besides the kernel's own."""
        return []

    @property
    def has_constant_mass(self) -> bool:
        """Whether no other kinetic energy was given."""
        return self.kinetic_energy is None

    def check_trajectory(self, trajectory: Trajectory) -> None:
        """Every trajectory is allowed."""

    def find(self, setup: Setup) -> Euclidean:
        """The system itself: it has nothing to find."""
        return self

    def coordinates(self, z: Mapping[str, Any]) -> dict[str, Any]:
        """All entries: the mass matrix is of all sites."""
        return dict(z)

    def first_inverse_mass_matrix(self, z: Position, adaptation: AdaptationSettings) -> Any:
        """The inverse mass matrix that was given."""
        return adaptation.inverse_mass_matrix

    def first_fields(self, z: Position) -> dict[str, Any]:
        """No fields of its own."""
        return {}

    def potential(self, potential: FollowedPotential) -> Potential:
        """The potential of the target."""
        return potential

    def kinetic(self, adapted: EuclideanKinetic, state: ChainState) -> Kinetic:
        """The kinetic energy of the adapted mass matrix, or one made from it."""
        return adapted if self.kinetic_energy is None else self.kinetic_energy(adapted)

    def integrator(self, schedule: Schedule, potential: FollowedPotential, kinetic: Kinetic) -> IntegratorBase:
        """Kicks and drifts of the schedule."""
        return Integrator(schedule, potential, kinetic)

    def early_integrator(self, integrator: IntegratorBase) -> None:
        """No integrator of its own for early warm-up."""

    def before(self, state: ChainState, integrator: IntegratorBase) -> ChainState:
        """The state as it is: there is no transition before the trajectory."""
        return state

    def noted(self, state: ChainState, p: Position | None, integrator: IntegratorBase) -> ChainState:
        """The state as it is: there are no statistics of the system."""
        return state

    def adapted(self, state: ChainState, moved: ChainState) -> ChainState:
        """The state as it is: nothing else adapts."""
        return moved


@dataclass(frozen=True)
class PrecisionSites:
    """Which sites of a model are precisions, and which weights they scale.

    Attributes:
        names: names of the precision sites; None for all that are found.
        output_precision: whether the precision of Normal observations is one of the precision sites.
        hierarchy: the groups of the model; None before they are found.
    """

    names: list[str] | None
    output_precision: bool
    hierarchy: Hierarchy | None = None

    @classmethod
    def checked(cls, model: Any, precision_sites: Any, output_precision: Any) -> PrecisionSites:
        """The precision sites that a kernel's arguments ask for.

        Raises:
            TypeError: for a flag that is not a bool.
            ValueError: for a potential instead of a model, and for names that are not site names.
        """
        if isinstance(model, SplitPotential):
            raise ValueError(
                f"model must be a model, from whose trace precisions are found, got a SplitPotential, {shown(model)}"
            )
        names = check_site_names("precision_sites", precision_sites)
        return cls(names, check_flag("output_precision", output_precision))

    @property
    def found(self) -> Hierarchy:
        """The groups of the model, which must have been found."""
        assert self.hierarchy is not None
        return self.hierarchy

    @property
    def details(self) -> list[str]:
        """Text of the groups, or a note that they are found when the kernel runs."""
        if self.hierarchy is None:
            return ["precisions are found when it runs"]
        return [describe_groups(self.hierarchy.groups, self.hierarchy.masses)]

    def find(self, setup: Setup) -> PrecisionSites:
        """The precision sites with the groups found in the model."""
        split = setup.split
        assert split is not None  # because the kernel is made from a model
        names, takes_output = self.names, self.output_precision
        hierarchy = find_hierarchy(split, setup.potential, setup.args, setup.kwargs, names, takes_output)
        return PrecisionSites(self.names, self.output_precision, hierarchy)
