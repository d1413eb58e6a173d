r"""A trajectory of a length that does not depend on where it goes, and the decision at its end.

L steps are made, their number and size drawn without regard to the state, then the end point is accepted with
probability min(1, exp(H - H')), else the start is kept; H is the energy on all the data. Steps preserve volume, and the
map (steps, then flip of the momentum) is its own inverse, or, for an order drawn with its reverse, is proposed as often
as its inverse (:mod:`split_common.schedule`); so exp(-H) is left invariant.

The decision rests on the *change* of energy, taken subset by subset in float64, the kinetic energy's without the
cancellation of large numbers (:mod:`pyro_split.integrators.euclidean`).

Reference:
    Neal (2011), MCMC using Hamiltonian dynamics, Handbook of MCMC, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from split_common.fixed_length import MAX_STEPS
from split_common.health import MAX_ENERGY_CHANGE


def draw_length(shortest: float, longest: float) -> float:
    """A length between the two; of a fixed length both are equal."""
    return shortest + (longest - shortest) * float(torch.rand(()))


def jittered(step_size: float, jitter: float) -> float:
    """The step size times a number drawn from U(1 - jitter, 1 + jitter), without regard to the state."""
    return step_size * (1 + jitter * (2 * float(torch.rand(())) - 1)) if jitter else step_size


def steps_of_length(trajectory_length: float, step_size: float) -> tuple[int, float]:
    """Number of steps, and the step size that makes them exactly ``trajectory_length`` long.

    At most ``MAX_STEPS`` are taken: after warm-up the number, cut or not, follows from the length drawn and a step size
    that no longer adapts, and so depends on no state either.
    """
    if trajectory_length > MAX_STEPS * step_size:
        return MAX_STEPS, step_size
    num_steps = max(math.ceil(trajectory_length / step_size), 1)
    return num_steps, trajectory_length / num_steps


class Decision(NamedTuple):
    """An accept-reject decision.

    Attributes:
        accepted: whether the end point is taken.
        accept_prob: with what probability.
        diverging: whether the energy error was infinite, undefined or above 1000.
    """

    accepted: bool
    accept_prob: float
    diverging: bool


def metropolis(energy_change: float, uniform: Callable[[], float]) -> Decision:
    """Accept with probability min(1, exp(-energy change)); an infinite or undefined change is a rejection.

    So is one of minus infinity: a density that overflows is a fault of arithmetic, and its state no draw of the target.
    """
    energy_change = energy_change if math.isfinite(energy_change) else math.inf
    accept_prob = math.exp(-max(energy_change, 0.0))
    return Decision(uniform() < accept_prob, accept_prob, energy_change > MAX_ENERGY_CHANGE)
