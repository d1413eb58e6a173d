"""Stochastic-gradient Langevin dynamics and Hamiltonian Monte Carlo: approximate, without an accept-reject decision.

Target: p(z|y)^(1/T), only approximately at any step size. Both kernels use one transition. For its step, its bias and
the references, see :mod:`split_common.stochastic_gradient`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyro_split.kernels.method import Setup
from pyro_split.kernels.state import ChainState
from pyro_split.potential.position import Position, zeros
from pyro_split.potential.split_potential import SplitPotential
from pyro_split.subsampling.rows import draw_minibatch
from split_common.minibatches import check_no_local_latents
from split_common.stochastic_gradient import (
    STATISTICS,
    Dynamics,
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
    energy: float
    is_finite: bool


def noisy_steps(
    state: ChainState,
    potential: SplitPotential,
    dynamics: Dynamics,
    preconditioner: Any,
    step_size: float,
    i: int,
    in_warmup: bool,
) -> ChainState:
    """One iteration: L steps, each with a gradient from newly drawn rows.

    Args:
        state: current state of the chain.
        potential: potential, bound to the data.
        dynamics: number and form of the steps.
        preconditioner: None, "rmsprop", or a diagonal as :func:`~split_common.stochastic_gradient.site_diagonals`
            takes it.
        step_size: step size η.
        i: the iteration, counted through warm-up and sampling.
        in_warmup: whether this is an iteration of warm-up, in which a preconditioner may adapt.

    Returns:
        The next state.
    """
    momentum = draw_momentum(state.z, dynamics.temperature) if dynamics.draws_momentum else state.momentum
    assert momentum is not None
    start = point = Point(state.z, momentum, state.mean_square, state.potential_energy, True)
    for t, kick in enumerate(dynamics.kicks, start=i * dynamics.num_steps):
        energy, grad = estimate(potential, point.z, dynamics.batch_size)
        mean_square = point.mean_square
        if mean_square is not None and in_warmup:
            rows = potential.plate_size
            mean_square = {name: rms_update(v, grad[name] / rows, t) for name, v in mean_square.items()}
        diagonal = _diagonal(preconditioner, mean_square, point.z)
        noise = draw_momentum(point.z, 1.0)
        z, momentum = {}, {}
        for name, u in point.z.items():
            scale, r = (step_size * diagonal[name]).sqrt(), point.momentum[name]
            r = (1 - kick.friction) * r - kick.weight * scale * grad[name] + kick.noise * noise[name]
            z[name], momentum[name] = u + scale * r, r
        point = Point(z, momentum, mean_square, energy, point.is_finite and math.isfinite(energy))
    return _arrived(state, start, point, dynamics)._replace(step_size=step_size)


def estimate(potential: SplitPotential, z: Position, batch_size: int | None) -> tuple[float, Position]:
    """Unbiased estimates of U(z) and its gradient from newly drawn rows; exact ones for a ``batch_size`` of None."""
    if batch_size is None:
        energies, grad = potential.energies_and_grad(z)
        return float(energies.sum()), grad
    energy, grad = potential.batch_potential_and_grad(z, draw_minibatch(potential.plate_size, batch_size))
    return float(energy), grad


def draw_momentum(z: Position, temperature: float) -> Position:
    """A draw from N(0, T I), a dict like ``z``."""
    return {name: temperature**0.5 * torch.randn_like(u) for name, u in z.items()}


def _diagonal(preconditioner: Any, mean_square: Position | None, z: Position) -> Position:
    """The diagonal of G, a dict like ``z``."""
    if mean_square is not None:
        return {name: rms_diagonal(v) for name, v in mean_square.items()}
    given = site_diagonals(preconditioner, {name: tuple(u.shape) for name, u in z.items()})
    return {name: torch.as_tensor(x, dtype=z[name].dtype, device=z[name].device) for name, x in given.items()}


def _arrived(state: ChainState, start: Point, end: Point, dynamics: Dynamics) -> ChainState:
    """``state`` at the end of a trajectory, or at its start if the end is not finite."""
    moved: list[Tensor] = [x for part in (end.z, end.momentum, end.mean_square or {}) for x in part.values()]
    is_finite = end.is_finite and all(bool(torch.isfinite(x).all()) for x in moved)
    energy = end.energy
    if dynamics.has_kinetic_energy:
        energy += sum(0.5 * float((r**2).sum()) for r in end.momentum.values())
    kept = end if is_finite else start
    return state._replace(
        z=kept.z,
        momentum=kept.momentum,
        mean_square=kept.mean_square,
        potential_energy=end.energy,
        energy=energy,
        diverging=not is_finite,
    )


@dataclass(frozen=True)
class StochasticGradient:
    """Steps by noisy gradients without an accept-reject decision, a :class:`~pyro_split.kernels.method.Method`.

    Attributes:
        name: name of the kernel in messages.
        dynamics: number and form of the steps.
        step_size: step size η, or a function of the iteration number.
        preconditioner: None, "rmsprop", or a diagonal.
        warmup_steps: number of warm-up iterations; 0 before it is known.
    """

    name: str
    dynamics: Dynamics
    step_size: float | StepSizes
    preconditioner: Any
    warmup_steps: int = 0
    statistics = STATISTICS

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

    def batch_sizes(self, num_rows: int) -> Iterable[int]:
        """Number of rows of a gradient, unless all rows are read."""
        size = check_batch_size(self.dynamics.batch_size, num_rows)
        return [] if size is None else [size]

    def check_warmup(self, warmup_steps: int) -> None:
        """Raise if there is no warm-up in which the preconditioner could adapt."""
        check_can_adapt(self.preconditioner, "warmup_steps", warmup_steps)

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
        return replace(self, warmup_steps=setup.warmup_steps)

    def find_start(self) -> None:
        """No start of its own: the host's strategy finds the starting point."""

    def start(self, potential: SplitPotential, z: Position) -> ChainState:
        """The state of a chain at its starting point."""
        check_batch_size(self.dynamics.batch_size, potential.plate_size)
        energy = float(potential.energies(z).sum())
        num_grads, rows_touched = self.dynamics.cost(potential.plate_size, potential.num_subsets)
        return ChainState(
            i=0,
            z=z,
            momentum=draw_momentum(z, self.dynamics.temperature),
            mean_square=zeros(z) if adapts(self.preconditioner) else None,
            potential_energy=energy,
            energy=energy,
            num_steps=self.dynamics.num_steps,
            num_grads=num_grads,
            rows_touched=rows_touched,
            accept_prob=1.0,
            mean_accept_prob=1.0,
            diverging=False,
            step_size=self._step_size_at(0),
        )

    def step(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """The state after one iteration."""
        step_size, in_warmup = self._step_size_at(state.i), state.i < self.warmup_steps
        moved = noisy_steps(state, potential, self.dynamics, self.preconditioner, step_size, state.i, in_warmup)
        return moved._replace(i=state.i + 1)

    def refresh(self, potential: SplitPotential, state: ChainState, z: Position) -> ChainState:
        """The state moved to ``z``; it caches nothing that depends on the position."""
        return state._replace(z=z)

    def watch(self, state: ChainState) -> None:
        """No warnings; the report says that draws are approximate."""

    def diagnostics(self, state: ChainState) -> dict[str, Any]:
        """No entries besides the statistics."""
        return {}

    def _step_size_at(self, i: int) -> float:
        return float(step_size_at(self.step_size, i))
