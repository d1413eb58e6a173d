r"""Trajectories whose length does not depend on their path, and the accept-reject decision at their end.

A trajectory has L steps, whose number and size do not depend on the state. Its end point is accepted with probability
min(1, exp(H - H')); otherwise the start is kept. H is the energy on all the data. Steps preserve volume, and the map of
the steps followed by a flip of the momentum is its own inverse, or, where an order of the subsets is drawn, is proposed
as often as its inverse (:mod:`split_common.schedule`). So exp(-H) is left invariant.

The decision depends on the *change* of energy. Its potential part is the sum of the changes of the subsets' terms, and
its kinetic part avoids the cancellation of large numbers (:func:`pyro_split.integrators.integrator.kinetic_change`).

Reference:
    Neal (2011), MCMC using Hamiltonian dynamics, Handbook of MCMC, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from pyro_split.integrators.integrator import IntegratorBase, make_steps
from pyro_split.potential.position import Position
from split_common.exploration import FIRST_LENGTH
from split_common.fixed_length import MAX_STEPS, FixedLengthBase, LengthSettings, warn_of_cut_trajectories
from split_common.health import MAX_ENERGY_CHANGE


@dataclass(frozen=True)
class FixedLength(FixedLengthBase):
    """Trajectories whose end point is accepted or rejected (:class:`~split_common.fixed_length.FixedLengthBase`)."""

    def first_fields(self, z: Position) -> dict[str, Any]:
        """The lengths of trajectories, before they are learned."""
        return {"shortest_length": 0.0, "trajectory_length": FIRST_LENGTH}

    def move(self, state: Any, integrator: IntegratorBase, warmup_steps: int) -> tuple[Any, Position]:
        """One iteration, with a length between the shortest and the longest of the state."""
        draws_order = self.draws_order(integrator.schedule)
        return fixed_length_transition(state, integrator, self.lengths_at(state), draws_order)

    def watch(self, state: Any, warmup_steps: int) -> None:
        """Warn if the step size of the draws is too small for the length of trajectories, which are then cut short."""
        warn_if_cut_short(state, warmup_steps, self.lengths_at(state))


def draw_length(shortest: float, longest: float) -> float:
    """A length drawn uniformly between the two; they are equal for a fixed length."""
    return shortest + (longest - shortest) * float(torch.rand(()))


def jittered(step_size: float, jitter: float) -> float:
    """The step size times a number drawn from U(1 - jitter, 1 + jitter), independently of the state."""
    return step_size * (1 + jitter * (2 * float(torch.rand(())) - 1)) if jitter else step_size


def steps_of_length(trajectory_length: float, step_size: float) -> tuple[int, float]:
    """Number of steps, and the step size that makes them exactly ``trajectory_length`` long.

    At most ``MAX_STEPS`` steps are made, which may cut a trajectory short. This number too is independent of the state:
    after warm-up it depends only on the length drawn and on the step size, which no longer adapts.
    """
    if trajectory_length > MAX_STEPS * step_size:
        return MAX_STEPS, step_size
    num_steps = max(math.ceil(trajectory_length / step_size), 1)
    return num_steps, trajectory_length / num_steps


class Decision(NamedTuple):
    """An accept-reject decision.

    Attributes:
        accepted: whether the end point is accepted.
        accept_prob: acceptance probability.
        diverging: whether the energy error was infinite, undefined or above 1000.
    """

    accepted: bool
    accept_prob: float
    diverging: bool


def metropolis(energy_change: float, uniform: Callable[[], float]) -> Decision:
    """Accept with probability min(1, exp(-energy change)); an infinite or undefined change is a rejection.

    This includes a change of minus infinity: a density that overflows is a numerical error, so the state is no draw of
    the target.
    """
    energy_change = energy_change if math.isfinite(energy_change) else math.inf
    accept_prob = math.exp(-max(energy_change, 0.0))
    return Decision(uniform() < accept_prob, accept_prob, energy_change > MAX_ENERGY_CHANGE)


def fixed_length_transition(
    state: Any, integrator: IntegratorBase, lengths: LengthSettings, draws_order: bool
) -> tuple[Any, Position]:
    """One iteration of split HMC at the state's step size and metric, which do not change.

    Args:
        state: current state of the chain.
        integrator: integrator of the schedule on the target's potential, at the state's metric.
        lengths: length of the trajectory, and jitter of its step size.
        draws_order: whether the order of the subsets is drawn.

    Returns:
        The next state, and its momentum.
    """
    schedule, adapted = integrator.schedule, state.adapt_state
    p = integrator.kinetic.draw(state.z)
    order, opening_grad = list(range(schedule.num_subsets)), state.opening_grad
    if draws_order:
        order = torch.randperm(schedule.num_subsets).tolist()
        opening_grad = integrator.opening_grad_at(state.z, order)
    if lengths.trajectory_length is not None:
        num_steps, step_size = steps_of_length(draw_length(*lengths.trajectory_length), adapted.step_size)
    else:
        num_steps, step_size = lengths.num_steps or 0, adapted.step_size
    step_size = jittered(step_size, lengths.step_size_jitter)

    start = integrator.known(state.z, p, opening_grad, state.energies)
    end = make_steps(integrator, start, step_size, num_steps, order)
    energies = integrator.energies(end)
    energy_change = float((energies - state.energies).sum()) + integrator.kinetic.change(end, start)
    decision = metropolis(energy_change, lambda: float(torch.rand(())))

    z, opening_grad = state.z, state.opening_grad
    if decision.accepted:
        z, p, opening_grad = end.z, end.p, end.opening_grad if state.opening_grad is not None else None
    else:
        energies = state.energies
    potential_energy = float(energies.sum())
    moved = state._replace(
        z=z,
        opening_grad=opening_grad,
        energies=energies,
        potential_energy=potential_energy,
        energy=potential_energy + integrator.kinetic.energy(z, p),
        num_steps=num_steps,
        num_grads=num_steps * integrator.grads_per_step + draws_order * schedule.opening_grads,
        accept_prob=decision.accept_prob,
        diverging=decision.diverging,
        step_size=step_size,
    )
    return moved, p


def warn_if_cut_short(state: Any, warmup_steps: int, lengths: LengthSettings) -> None:
    """Warn once for each chain if the step size of its draws is too small for the length."""
    step_size = state.adapt_state.step_size
    if state.i - warmup_steps == 1 and lengths.is_cut_short(step_size):
        assert lengths.trajectory_length is not None  # a number of steps is never cut
        warn_of_cut_trajectories(step_size, lengths.trajectory_length)
