r"""The integrator of a schedule: kicks by the gradients of subsets, drifts between them.

A step composes the rows of the schedule, so it preserves volume whatever the rows are. For its reverse, and for why the
target stays invariant, see :mod:`split_common.schedule`.

Where two steps of a palindromic schedule meet, the kicks that close one step are those that open the next. Their
weighted sum is kept (``opening_grad``), as leapfrog keeps its gradient, so the opening kicks cost no new gradient.

Where every subset has a kick at the end of a step (M = 1, the naive schedule), the closing kicks have evaluated the
whole potential there. Its terms are kept as well (``energies``), so a decision at that point costs no forward pass.
Of a trajectory that is decided on at its end only the last step evaluates them (:func:`make_steps`).
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from pyro_split.potential.position import Position, add, zeros
from pyro_split.potential.split_potential import collect_energies
from split_common.schedule import Schedule

Velocity = Callable[[Position], Position]


class Potential(Protocol):
    """Protocol of a potential, as integrators use it (see :class:`~pyro_split.SplitPotential`)."""

    def subset_energies_and_grad(self, z: Position, m: int) -> tuple[tuple[Tensor, Tensor], Position]:
        """Two terms of the potential, and the gradient of one subset's potential.

        Args:
            z: position, a dict of tensors by site.
            m: index of the subset.

        Returns:
            The terms of U(z) of the prior and of subset m, two scalars, and the gradient of U_m, a dict like ``z``.
        """
        ...

    def subset_grad(self, z: Position, m: int) -> Position:
        """The gradient of one subset's potential.

        Args:
            z: position, a dict of tensors by site.
            m: index of the subset.

        Returns:
            The gradient of U_m, a dict like ``z``.
        """
        ...

    def energies_and_grad(self, z: Position) -> tuple[Tensor, Position]:
        """All terms of the potential, and its gradient.

        Args:
            z: position, a dict of tensors by site.

        Returns:
            The terms of U(z), shape (M + 1,), and the gradient of their sum, a dict like ``z``.
        """
        ...

    def energies(self, z: Position) -> Tensor:
        """All terms of the potential.

        Args:
            z: position, a dict of tensors by site.

        Returns:
            The terms of U(z), shape (M + 1,): the prior's, then each subset's.
        """
        ...


class Kinetic(Protocol):
    """Protocol of a kinetic energy (see :class:`~pyro_split.integrators.euclidean.EuclideanKinetic`)."""

    def velocity(self, p: Position) -> Position:
        """The velocity dz/dt, which is the gradient of the kinetic energy with respect to the momentum.

        Args:
            p: momentum, a dict of tensors by site.

        Returns:
            The velocity, a dict like ``p``; M⁻¹p for K = ½ pᵀM⁻¹p.
        """
        ...

    def draw(self, z: Position) -> Position:
        """Draw a momentum at ``z`` from the density proportional to exp(-kinetic energy), by torch's generator.

        Args:
            z: position, a dict of tensors by site.

        Returns:
            The momentum, a dict like ``z``.
        """
        ...

    def unscale(self, z: Position, p: Position) -> Tensor:
        """The momentum at ``z`` in units of the metric; U-turns are found from it.

        Args:
            z: position, a dict of tensors by site.
            p: momentum, a dict like ``z``.

        Returns:
            M^{-1/2} p for K = ½ pᵀM⁻¹p, standard normal for a drawn p; shape (D,).
        """
        ...

    def energy(self, z: Position, p: Position) -> float:
        """The kinetic energy at a point of phase space.

        Args:
            z: position, a dict of tensors by site.
            p: momentum, a dict like ``z``.

        Returns:
            A float.
        """
        ...

    def change(self, new: IntegratorState, old: IntegratorState) -> float:
        """The kinetic energy at ``new`` minus that at ``old``, computed without cancellation.

        Args:
            new: state with position ``z`` and momentum ``p``, at which a trajectory has arrived.
            old: state from which it started.

        Returns:
            A float.
        """
        ...


def kinetic_change(velocity: Velocity, new: Position, old: Position) -> float:
    """K(new) - K(old) as ½ (new - old)ᵀ M⁻¹ (new + old), which avoids the cancellation of two large numbers."""
    speed = velocity({name: new[name] + old[name] for name in new})
    products = [0.5 * (new[name] - old[name]) * speed[name] for name in new]
    return float(sum(product.sum(dtype=torch.float64) for product in products))


class Harmonic(Protocol):
    """Protocol of a harmonic drift (see :class:`~pyro_split.integrators.harmonic.HarmonicDrift`)."""

    def turn(self, z: Position, p: Position, kick: float, time: float) -> tuple[Position, Position]:
        """Kick against the harmonic force, then rotate about the reference.

        Args:
            z: position, a dict of tensors by site.
            p: momentum, a dict like ``z``.
            kick: size of the kick p ← p + kick M (z - z*).
            time: duration of the drift, which is the angle of the rotation.

        Returns:
            Position and momentum after the drift.
        """
        ...


class IntegratorState(NamedTuple):
    """A point in phase space along a trajectory, with what is known of the potential there.

    Attributes:
        z: position, a dict of unconstrained values.
        p: momentum, a dict like ``z``.
        opening_grad: weighted sum of the gradients that open the next step, a dict like ``z``; None where the
            schedule keeps none.
        energies: the terms of U(z), shape (M + 1,); None where the closing kicks of a step do not evaluate them all.
    """

    z: Position
    p: Position
    opening_grad: Position | None
    energies: Tensor | None


class IntegratorBase(ABC):
    """Base of integrators: what they keep between steps. A subclass defines the step.

    Args:
        schedule: the schedule of a step.
        potential: the potential, usually a :class:`~pyro_split.SplitPotential`; its subsets give the kicks.
        kinetic: the kinetic energy; its velocity gives the drifts.

    Attributes:
        grads_per_step: subset gradients of a step inside a trajectory.
    """

    def __init__(self, schedule: Schedule, potential: Potential, kinetic: Kinetic):
        self.schedule, self.potential, self.kinetic = schedule, potential, kinetic
        self.grads_per_step = schedule.grads_per_step
        self._opening_share = float(sum(row.kick for row in schedule.opening)) / schedule.num_subsets
        self._keeps_energies = schedule.closing_kick is not None

    @abstractmethod
    def step(self, state: IntegratorState, step_size: float, order: Sequence[int]) -> IntegratorState:
        """Advance by one step.

        Args:
            state: where the step starts, from :meth:`start`, :meth:`known` or the last step.
            step_size: the step size; negative to go back in time, for which a schedule with a drawn order also needs
                the reversed ``order``.
            order: index of the subset at each place of the schedule, M numbers.

        Returns:
            Where the step ends; its ``opening_grad`` opens the next step. No tensor of ``state`` is changed.
        """

    def start(self, z: Position, p: Position, order: Sequence[int]) -> IntegratorState:
        """The state that begins a trajectory at a point where nothing has been evaluated yet.

        Args:
            z: position, a dict of unconstrained values.
            p: momentum, a dict like ``z``.
            order: index of the subset at each place of the schedule, M numbers.

        Returns:
            The state, with the opening gradient and the energies that the schedule keeps.
        """
        energies = self.potential.energies(z) if self._keeps_energies else None
        return IntegratorState(z, p, self.opening_grad_at(z, order), energies)

    def known(self, z: Position, p: Position, opening_grad: Position | None, energies: Tensor) -> IntegratorState:
        """The state that begins a trajectory at a point whose opening gradient and energies are known.

        Args:
            z: position, a dict of unconstrained values.
            p: momentum, a dict like ``z``.
            opening_grad: weighted sum of the gradients that open the next step, a dict like ``z``; or None.
            energies: the terms of U(z), shape (M + 1,).
        """
        return IntegratorState(z, p, opening_grad, energies if self._keeps_energies else None)

    def opening_grad_at(self, z: Position, order: Sequence[int]) -> Position | None:
        """Weighted sum of the gradients that open a step at ``z``; None where the schedule keeps none.

        Args:
            z: position, a dict of unconstrained values.
            order: index of the subset at each place of the schedule, M numbers.

        Returns:
            A dict like ``z``, or None.
        """
        if not self.schedule.keeps_opening:
            return None
        opening_grad = zeros(z)
        for row in self.schedule.opening:
            opening_grad = add(opening_grad, self.potential.subset_grad(z, order[row.subset]), float(row.kick))
        return opening_grad

    def with_prior_changed(self, opening_grad: Position | None, new: Position, old: Position) -> Position | None:
        """The kept opening gradient, updated for a change of the prior's gradient alone, from ``old`` to ``new``."""
        if opening_grad is None:
            return None
        return {name: f + self._opening_share * (new[name] - old[name]) for name, f in opening_grad.items()}

    def energies(self, state: IntegratorState) -> Tensor:
        """The terms of U(z), shape (M + 1,): those that were kept, or from a forward pass on all the data."""
        return self.potential.energies(state.z) if state.energies is None else state.energies

    def energies_and_grad(self, state: IntegratorState) -> tuple[Tensor, Position]:
        """The terms of U(z), shape (M + 1,), and its gradient: those kept, or from M more subset gradients."""
        kick = self.schedule.closing_kick
        if not kick or state.energies is None or state.opening_grad is None:
            return self.potential.energies_and_grad(state.z)
        return state.energies, {name: opening_grad / float(kick) for name, opening_grad in state.opening_grad.items()}


class Integrator(IntegratorBase):
    """Integrator that makes the steps of one schedule.

    Args:
        schedule: the schedule of a step.
        potential: the potential, usually a :class:`~pyro_split.SplitPotential`; its subsets give the kicks.
        kinetic: the kinetic energy; its velocity gives the drifts.
        harmonic: drifts along a normal approximation, whose force is taken out of the kicks; None for straight drifts.

    Attributes:
        grads_per_step: subset gradients of a step inside a trajectory.

    Example:
        >>> import torch
        >>> from pyro_split import SplitPotential
        >>> from pyro_split.integrators.euclidean import EuclideanKinetic
        >>> from split_common.schedule import symmetric
        >>> flat, normal = lambda z: torch.tensor(0.0), lambda z, y: -0.25 * y * z["x"] ** 2
        >>> potential = SplitPotential.from_functions(flat, normal, torch.ones(2), num_subsets=2)
        >>> kinetic = EuclideanKinetic.of_inverse({("x",): torch.ones(1)})
        >>> integrator, order = Integrator(symmetric(2), potential, kinetic), [0, 1]
        >>> start = integrator.start({"x": torch.tensor(1.0)}, {"x": torch.tensor(0.0)}, order)
        >>> round(float(integrator.step(start, 0.1, order).z["x"]), 5)
        0.995
    """

    def __init__(self, schedule: Schedule, potential: Potential, kinetic: Kinetic, harmonic: Harmonic | None = None):
        super().__init__(schedule, potential, kinetic)
        self._harmonic = harmonic
        # every subset removes the same share of the harmonic force, whatever the order
        shares = [float(kick) / schedule.num_subsets for kick in schedule.kicks_before_drift]
        self._rows = [
            (row.subset, float(row.kick), float(row.drift), closes, share)
            for row, closes, share in zip(schedule.evaluated_rows, schedule.closes, shares, strict=True)
        ]

    def step(self, state: IntegratorState, step_size: float, order: Sequence[int]) -> IntegratorState:
        """Advance by one step of the schedule; arguments as of :meth:`IntegratorBase.step`."""
        z, p, opening_grad, _ = state
        schedule = self.schedule
        if opening_grad is not None:
            p = add(p, opening_grad, -step_size)
            opened = float(schedule.opening_weight) / schedule.num_subsets
            z, p = self._drift(z, p, step_size * opened, step_size * float(schedule.opening[-1].drift))
            opening_grad = zeros(z)
        elif schedule.leading_drift:
            z, p = self._drift(z, p, 0.0, step_size * float(schedule.leading_drift))
        closing: dict[int, tuple[Tensor, Tensor]] = {}
        for place, kick, drift, closes, share in self._rows:
            m = order[place]
            if closes and self._keeps_energies:
                closing[m], grad = self.potential.subset_energies_and_grad(z, m)
            else:
                grad = self.potential.subset_grad(z, m)
            p = add(p, grad, -step_size * kick)
            if drift:
                z, p = self._drift(z, p, step_size * share, step_size * drift)
            if opening_grad is not None and closes:
                opening_grad = add(opening_grad, grad, kick)
        energies = collect_energies([closing[m] for m in range(len(closing))]) if self._keeps_energies else None
        return IntegratorState(z, self._closed(z, p, step_size), opening_grad, energies)

    def without_energies(self) -> Integrator:
        """An integrator of the same steps for the inside of a trajectory, where nothing reads the energies kept."""
        if not self._keeps_energies:
            return self
        other = copy.copy(self)
        other._keeps_energies = False
        return other

    def _closed(self, z: Position, p: Position, step_size: float) -> Position:
        """The momentum after a step, with the harmonic force taken out of the closing kicks."""
        if self._harmonic is None or not self.schedule.closing_weight:
            return p
        closed = float(self.schedule.closing_weight) / self.schedule.num_subsets
        return self._harmonic.turn(z, p, step_size * closed, 0.0)[1]

    def _drift(self, z: Position, p: Position, kick: float, time: float) -> tuple[Position, Position]:
        """A drift of duration ``time``, after the kick that takes the harmonic force out of the subsets' kicks."""
        if self._harmonic is not None:
            return self._harmonic.turn(z, p, kick, time)
        return add(z, self.kinetic.velocity(p), time), p


def make_steps(
    integrator: IntegratorBase, start: IntegratorState, step_size: float, num_steps: int, order: Sequence[int]
) -> IntegratorState:
    """The state after ``num_steps`` steps, at least one; the last alone evaluates the energies that a step keeps."""
    inner = integrator.without_energies() if isinstance(integrator, Integrator) else integrator
    state = start
    for _ in range(num_steps - 1):
        state = inner.step(state, step_size, order)
    return integrator.step(state, step_size, order)
