r"""The integrator of a schedule: kicks by the gradients of subsets, drifts between them.

A step composes the rows of the schedule, so it preserves volume whatever the rows are. For its reverse, and for why the
target stays invariant, see :mod:`split_common.schedule`.

Where two steps of a palindromic schedule meet, the kicks that close one step are those that open the next. Their
weighted sum is kept (``opening_grad``), as leapfrog keeps its gradient, so the opening kicks cost no new gradient.

Where every subset has a kick at the end of a step (M = 1, the naive schedule), the closing kicks have evaluated the
whole potential there. Its terms are kept as well (``energies``), so a decision at that point costs no forward pass.
Of a trajectory that is decided on at its end only the last step evaluates them (:func:`make_steps`).

All rows run through one compiled body of a ``lax.scan`` whose data are the rows, so compile time does not grow with M.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import lax

from numpyro_split.potential.compensated import Compensated, compensated_total
from numpyro_split.potential.position import Position, add, subtract, zeros
from split_common.schedule import Row, Schedule

Velocity = Callable[[Position], Position]


class Potential(Protocol):
    """Protocol of a potential, as integrators use it (see :class:`~numpyro_split.SplitPotential`)."""

    def subset_energies_and_grad(self, z: Position, m: jax.Array) -> tuple[Compensated, Position]:
        """Two terms of the potential, and the gradient of one subset's potential.

        Args:
            z: position, a dict of arrays by site.
            m: index of the subset, a scalar that may be traced.

        Returns:
            The terms of U(z) of the prior and of subset m, shape (2,), and the gradient of U_m, a dict like ``z``.
        """
        ...

    def energies_and_grad(self, z: Position) -> tuple[Compensated, Position]:
        """All terms of the potential, and its gradient.

        Args:
            z: position, a dict of arrays by site.

        Returns:
            The terms of U(z), shape (M + 1,), and the gradient of their sum, a dict like ``z``.
        """
        ...

    def energies(self, z: Position) -> Compensated:
        """All terms of the potential.

        Args:
            z: position, a dict of arrays by site.

        Returns:
            The terms of U(z), shape (M + 1,): the prior's, then each subset's.
        """
        ...


class Kinetic(Protocol):
    """Protocol of a kinetic energy (see :class:`~numpyro_split.integrators.euclidean.EuclideanKinetic`)."""

    def velocity(self, p: Position) -> Position:
        """The velocity dz/dt, which is the gradient of the kinetic energy with respect to the momentum.

        Args:
            p: momentum, a dict of arrays by site.

        Returns:
            The velocity, a dict like ``p``; M⁻¹p for K = ½ pᵀM⁻¹p.
        """
        ...

    def draw(self, z: Position, rng_key: jax.Array) -> Position:
        """Draw a momentum at ``z`` from the density proportional to exp(-kinetic energy).

        Args:
            z: position, a dict of arrays by site.
            rng_key: random key.

        Returns:
            The momentum, a dict like ``z``.
        """
        ...

    def unscale(self, z: Position, p: Position) -> Position:
        """The momentum at ``z`` in units of the metric; U-turns are found from it.

        Args:
            z: position, a dict of arrays by site.
            p: momentum, a dict like ``z``.

        Returns:
            M^{-1/2} p for K = ½ pᵀM⁻¹p, standard normal for a drawn p; a dict like ``p``.
        """
        ...

    def energy(self, z: Position, p: Position) -> jax.Array:
        """The kinetic energy at a point of phase space.

        Args:
            z: position, a dict of arrays by site.
            p: momentum, a dict like ``z``.

        Returns:
            A scalar.
        """
        ...

    def change(self, new: IntegratorState, old: IntegratorState) -> jax.Array:
        """The kinetic energy at ``new`` minus that at ``old``, computed without cancellation.

        Args:
            new: state with position ``z`` and momentum ``p``, at which a trajectory has arrived.
            old: state from which it started.

        Returns:
            A scalar.
        """
        ...


def kinetic_change(velocity: Velocity, new: Position, old: Position) -> jax.Array:
    """K(new) - K(old) as ½ (new - old)ᵀ M⁻¹ (new + old), which avoids the cancellation of two large numbers."""
    change = subtract(new, old)
    speed = velocity(jax.tree.map(jnp.add, new, old))
    products = jax.tree.map(lambda d, v: 0.5 * d * v, change, {name: speed[name] for name in change})
    return compensated_total(jax.tree.leaves(products)).value


class Harmonic(Protocol):
    """Protocol of a harmonic drift (see :class:`~numpyro_split.integrators.harmonic.HarmonicDrift`)."""

    def turn(
        self, z: Position, p: Position, kick: jax.Array | float, time: jax.Array | float
    ) -> tuple[Position, Position]:
        """Kick against the harmonic force, then rotate about the reference.

        Args:
            z: position, a dict of arrays by site.
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
    energies: Compensated | None


class IntegratorBase(ABC):
    """Base of integrators: what they keep between steps. A subclass defines the step.

    Args:
        schedule: the schedule of a step.
        potential: the potential, usually a :class:`~numpyro_split.SplitPotential`; its subsets give the kicks.
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
    def step(self, state: IntegratorState, step_size: jax.Array, order: jax.Array) -> IntegratorState:
        """Advance by one step.

        Args:
            state: where the step starts, from :meth:`start`, :meth:`known` or the last step.
            step_size: the step size, a scalar; negative to go back in time, for which a schedule with a drawn order
                also needs the reversed ``order``.
            order: index of the subset at each place of the schedule, shape (M,).

        Returns:
            Where the step ends; its ``opening_grad`` opens the next step.
        """

    def start(self, z: Position, p: Position, order: jax.Array) -> IntegratorState:
        """The state that begins a trajectory at a point where nothing has been evaluated yet.

        Args:
            z: position, a dict of unconstrained values.
            p: momentum, a dict like ``z``.
            order: index of the subset at each place of the schedule, shape (M,).

        Returns:
            The state, with the opening gradient and the energies that the schedule keeps.
        """
        energies = self.potential.energies(z) if self._keeps_energies else None
        return IntegratorState(z, p, self.opening_grad_at(z, order), energies)

    def known(self, z: Position, p: Position, opening_grad: Position | None, energies: Compensated) -> IntegratorState:
        """The state that begins a trajectory at a point whose opening gradient and energies are known.

        Args:
            z: position, a dict of unconstrained values.
            p: momentum, a dict like ``z``.
            opening_grad: weighted sum of the gradients that open the next step, a dict like ``z``; or None.
            energies: the terms of U(z), shape (M + 1,).
        """
        return IntegratorState(z, p, opening_grad, energies if self._keeps_energies else None)

    def opening_grad_at(self, z: Position, order: jax.Array) -> Position | None:
        """Weighted sum of the gradients that open a step at ``z``; None where the schedule keeps none.

        Args:
            z: position, a dict of unconstrained values.
            order: index of the subset at each place of the schedule, shape (M,).

        Returns:
            A dict like ``z``, or None.
        """
        if not self.schedule.keeps_opening:
            return None
        rows = _columns(self.schedule.opening, [True] * len(self.schedule.opening))

        def add_kick(opening_grad: Position, row: dict[str, jax.Array]) -> tuple[Position, None]:
            grad = self.potential.subset_energies_and_grad(z, order[row["subset"]])[1]
            return add(opening_grad, grad, row["kick"]), None

        return lax.scan(add_kick, zeros(z), rows)[0]

    def with_prior_changed(self, opening_grad: Position | None, new: Position, old: Position) -> Position | None:
        """The kept opening gradient, updated for a change of the prior's gradient alone, from ``old`` to ``new``."""
        return None if opening_grad is None else add(opening_grad, subtract(new, old), self._opening_share)

    def energies(self, state: IntegratorState) -> Compensated:
        """The terms of U(z), shape (M + 1,): those that were kept, or from a forward pass on all the data."""
        return self.potential.energies(state.z) if state.energies is None else state.energies

    def energies_and_grad(self, state: IntegratorState) -> tuple[Compensated, Position]:
        """The terms of U(z), shape (M + 1,), and its gradient: those kept, or from M more subset gradients."""
        kick = self.schedule.closing_kick
        if not kick or state.energies is None or state.opening_grad is None:
            return self.potential.energies_and_grad(state.z)
        return state.energies, jax.tree.map(lambda opening_grad: opening_grad / float(kick), state.opening_grad)


class Integrator(IntegratorBase):
    """Integrator that makes the steps of one schedule.

    Args:
        schedule: the schedule of a step.
        potential: the potential, usually a :class:`~numpyro_split.SplitPotential`; its subsets give the kicks.
        kinetic: the kinetic energy; its velocity gives the drifts.
        harmonic: drifts along a normal approximation, whose force is taken out of the kicks; None for straight drifts.

    Attributes:
        grads_per_step: subset gradients of a step inside a trajectory.

    Example:
        >>> import jax.numpy as jnp
        >>> from numpyro_split import SplitPotential
        >>> from numpyro_split.integrators.euclidean import EuclideanKinetic
        >>> from split_common.schedule import symmetric
        >>> flat, normal = lambda z: 0.0, lambda z, y: -0.25 * y * z["x"] ** 2
        >>> potential = SplitPotential.from_functions(flat, normal, jnp.ones(2), num_subsets=2)
        >>> integrator = Integrator(symmetric(2), potential, EuclideanKinetic(jnp.ones(1)))
        >>> order = jnp.arange(2)
        >>> start = integrator.start({"x": jnp.array(1.0)}, {"x": jnp.array(0.0)}, order)
        >>> round(float(integrator.step(start, 0.1, order).z["x"]), 5)
        0.995
    """

    def __init__(self, schedule: Schedule, potential: Potential, kinetic: Kinetic, harmonic: Harmonic | None = None):
        super().__init__(schedule, potential, kinetic)
        self._harmonic = harmonic
        self._rows = _columns(schedule.evaluated_rows, schedule.closes)
        if harmonic is not None:  # every subset removes the same share of the harmonic force, whatever the order
            self._rows["harmonic"] = jnp.array([float(kick) for kick in schedule.kicks_before_drift])
            self._rows["harmonic"] /= schedule.num_subsets

    def step(self, state: IntegratorState, step_size: jax.Array, order: jax.Array) -> IntegratorState:
        """Advance by one step of the schedule; arguments as of :meth:`IntegratorBase.step`."""
        z, p, opening_grad, _ = state
        schedule = self.schedule
        if opening_grad is not None:
            p = add(p, opening_grad, -step_size)
            opened = float(schedule.opening_weight) / schedule.num_subsets
            z, p = self._drift(z, p, step_size * opened, step_size * float(schedule.opening[-1].drift))
            opening_grad = zeros(opening_grad)
        elif schedule.leading_drift:
            z, p = self._drift(z, p, 0.0, step_size * float(schedule.leading_drift))

        def one_row(point: tuple[Any, ...], row: dict[str, jax.Array]) -> tuple[tuple[Any, ...], Compensated | None]:
            z, p, opening_grad = point
            energies, grad = self.potential.subset_energies_and_grad(z, order[row["subset"]])
            p = add(p, grad, -step_size * row["kick"])
            harmonic = step_size * row.get("harmonic", 0.0)
            z, p = lax.cond(
                row["drift"] != 0,
                lambda z, p: self._drift(z, p, harmonic, step_size * row["drift"]),
                lambda z, p: (z, p),
                z,
                p,
            )
            if opening_grad is not None:
                opening_grad = add(opening_grad, grad, row["kick"] * row["closes"])
            return (z, p, opening_grad), energies if self._keeps_energies else None

        (z, p, opening_grad), by_row = lax.scan(one_row, (z, p, opening_grad), self._rows)
        energies = None if by_row is None else self._closing_energies(by_row, order)
        return IntegratorState(z, self._closed(z, p, step_size), opening_grad, energies)

    def without_energies(self) -> Integrator:
        """An integrator of the same steps for the inside of a trajectory, where nothing reads the energies kept."""
        if not self._keeps_energies:
            return self
        other = copy.copy(self)
        other._keeps_energies = False
        return other

    def _closed(self, z: Position, p: Position, step_size: jax.Array) -> Position:
        """The momentum after a step, with the harmonic force taken out of the closing kicks."""
        if self._harmonic is None or not self.schedule.closing_weight:
            return p
        closed = float(self.schedule.closing_weight) / self.schedule.num_subsets
        return self._harmonic.turn(z, p, step_size * closed, 0.0)[1]

    def _drift(self, z: Position, p: Position, kick: jax.Array | float, time: jax.Array) -> tuple[Position, Position]:
        """A drift of duration ``time``, after the kick that takes the harmonic force out of the subsets' kicks."""
        if self._harmonic is not None:
            return self._harmonic.turn(z, p, kick, time)
        return add(z, self.kinetic.velocity(p), time), p

    def _closing_energies(self, by_row: Compensated, order: jax.Array) -> Compensated:
        """The terms of the potential where a step ends, from the terms that its rows evaluated, shape (rows, 2)."""
        closing = range(self.schedule.closes.index(True), self.schedule.grads_per_step)
        places = [self.schedule.evaluated_rows[i].subset for i in closing]
        if len(places) == 1:  # M = 1: nothing to reorder, but XLA would make a scatter of it
            return jax.tree.map(lambda terms: terms[closing[0]], by_row)

        def collect(terms: jax.Array) -> jax.Array:
            prior, by_place = terms[closing[0], 0], terms[closing[0] :, 1]
            return (
                jnp.zeros(len(places) + 1, terms.dtype).at[0].set(prior).at[order[jnp.array(places)] + 1].set(by_place)
            )

        return jax.tree.map(collect, by_row)


def _columns(rows: Sequence[Row], closes: Sequence[bool]) -> dict[str, jax.Array]:
    """The rows as arrays, one for each field; exact fractions are rounded to floats."""
    return {
        "subset": jnp.array([row.subset for row in rows]),
        "kick": jnp.array([float(row.kick) for row in rows]),
        "drift": jnp.array([float(row.drift) for row in rows]),
        "closes": jnp.array([float(closing) for closing in closes]),
    }


def make_steps(
    integrator: IntegratorBase,
    start: IntegratorState,
    step_size: jax.Array,
    num_steps: jax.Array | int,
    order: jax.Array,
) -> IntegratorState:
    """The state after ``num_steps`` steps, at least one; their number may be traced.

    The energies that a step keeps are evaluated in the last step only.
    """
    inner = integrator.without_energies() if isinstance(integrator, Integrator) else integrator
    if inner is integrator:
        return lax.fori_loop(0, num_steps, lambda _, state: integrator.step(state, step_size, order), start)
    inside = start._replace(energies=None)
    last = lax.fori_loop(0, num_steps - 1, lambda _, state: inner.step(state, step_size, order), inside)
    return integrator.step(last, step_size, order)
