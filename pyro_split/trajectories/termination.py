"""Rules that stop trajectories that double: implementation of those of :mod:`split_common.termination`."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from pyro_split.integrators.integrator import IntegratorState
from pyro_split.potential.position import Position, flatten
from pyro_split.trajectories.path import Path
from pyro_split.trajectories.selection import log_add
from split_common.termination import Rule


class Momenta(NamedTuple):
    """Summary of the momenta of a run of successive states.

    The momenta are unscaled, the host's word for M^{-1/2} p, so that products need no mass matrix. If M depends on the
    position, each momentum is unscaled by the M at its own position.

    Attributes:
        rows: unscaled momenta of the first and the last state, and the sum of those of all states, shape (3, D).
    """

    rows: Tensor

    @classmethod
    def of(cls, path: Path, state: IntegratorState, log_weight: float, grad: Position | None) -> Momenta:
        """Span of one state."""
        return cls(path.unscale(state.z, state.p).expand(3, -1))

    def joined(self, second: Momenta) -> Momenta:
        """Span of this run and the one that follows it."""
        return Momenta(torch.stack([self.rows[0], second.rows[1], self.rows[2] + second.rows[2]]))

    def reversed(self) -> Momenta:
        """Span of the same states in the opposite order."""
        return Momenta(self.rows[[1, 0, 2]])


class Virial(NamedTuple):
    """Summary of the virial G = zᵀp of a run of successive states.

    Attributes:
        first: zᵀp of the first state.
        last: zᵀp of the last state.
        log_weight: log of the sum of the states' weights exp(-H).
        mean_rate: weighted mean of dG/dt over the states; None where the rule does not use gradients.
        num_states: number of states.
    """

    first: float
    last: float
    log_weight: float
    mean_rate: float | None
    num_states: int

    @classmethod
    def of(cls, path: Path, state: IntegratorState, log_weight: float, grad: Position | None) -> Virial:
        """Span of one state."""
        z, p, unscaled = flatten(state.z, state.z), flatten(state.p, state.z), path.unscale(state.z, state.p)
        rate = None if grad is None else float(torch.dot(unscaled, unscaled) - torch.dot(z, flatten(grad, state.z)))
        virial = float(torch.dot(z, p))
        return cls(virial, virial, log_weight, rate, 1)

    def joined(self, second: Virial) -> Virial:
        """Span of this run and the one that follows it."""
        log_weight = log_add(self.log_weight, second.log_weight)
        mean_rate = None
        if self.mean_rate is not None and second.mean_rate is not None:
            share = math.exp(second.log_weight - log_weight) if second.log_weight > -math.inf else 0.0
            mean_rate = self.mean_rate + share * (second.mean_rate - self.mean_rate)
        return Virial(self.first, second.last, log_weight, mean_rate, self.num_states + second.num_states)

    def reversed(self) -> Virial:
        """Span of the same states in the opposite order."""
        return self._replace(first=self.last, last=self.first)

    @property
    def rate(self) -> float:
        """The weighted mean of dG/dt; the rule must use gradients."""
        assert self.mean_rate is not None, "a rule that looks at the rate must say that it takes gradients"
        return self.mean_rate


def turns_back(first: Momenta, second: Momenta, whole: Momenta) -> bool:
    """Whether the whole run makes a U-turn, or either half with the neighbouring state of the other half."""
    rows = torch.cat([first.rows, second.rows])
    dot = (rows @ rows.T).tolist()  # dot products of all pairs of the six rows
    p_first, p_last, p_sum, q_first, q_last, q_sum = range(6)
    runs = [(p_first, q_last, p_sum, q_sum), (p_first, q_first, p_sum, q_first), (p_last, q_last, p_last, q_sum)]
    return any(dot[end][a] + dot[end][b] <= 0 for start, stop, a, b in runs for end in (start, stop))


U_TURN = Rule(Momenta, turns_back)


def mean_rate(threshold: float) -> Rule:
    """Rule that stops when the absolute weighted mean of dG/dt is below ``threshold``."""
    return Rule(Virial, lambda first, second, whole: abs(whole.rate) < threshold, takes_gradients=True)


def rate_per_length(threshold: float) -> Rule:
    """Rule that stops when the absolute weighted mean of dG/dt over the number of states is below ``threshold``."""

    def holds(first: Virial, second: Virial, whole: Virial) -> bool:
        return abs(whole.rate) / whole.num_states < threshold

    return Rule(Virial, holds, takes_gradients=True)


def boundary_rate(threshold: float, step_size: float) -> Rule:
    """Rule that stops when the absolute change of G between the ends over their time is below ``threshold``."""

    def holds(first: Virial, second: Virial, whole: Virial) -> bool:
        return abs(mean_rate_in_time(whole.last - whole.first, whole.num_states, step_size)) < threshold

    return Rule(Virial, holds)


def mean_rate_in_time(change: float, num_states: int, step_size: float) -> float:
    """The mean of dG/dt over the time of a run, from the change G(end) - G(start); 0 for a single state."""
    return change / (step_size * max(num_states - 1, 1))
