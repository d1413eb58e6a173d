r"""When a trajectory that doubles has gone far enough.

A rule looks at two halves of a run of successive states and at the whole, and says whether to stop. It must be a
function of the run alone and say the same of the run in reverse: then every state of a trajectory would have built the
same trajectory with the same probability, on which the invariance of the target rests (see
:mod:`pyro_split.trajectories`).

* :func:`u_turn`: the ends move towards each other. With ρ the sum of the momenta of the run, stop when pᵀM⁻¹ρ ≤ 0 at
  either end; checked again for the first half with one more state, and for the second half with one more, which
  catches a turn that falls between the halves.
* Exhaustion: the virial G = zᵀp changes at the rate dG/dt = pᵀM⁻¹p - zᵀ∇U, whose mean along a trajectory tends to
  zero as it comes to fill its energy level. Stop when the mean is below a threshold, in one of three forms:
  :func:`mean_rate`, the mean over the states by their weights exp(-H); :func:`rate_per_length`, the same over the
  number of states; :func:`boundary_rate`, the mean over time, which is |G(end) - G(start)| / time and needs no
  gradient.

References:
    Hoffman and Gelman (2014), The No-U-Turn Sampler. Betancourt (2016), Identifying the Optimal Integration Time in
    Hamiltonian Monte Carlo. Lau (2018), chapter 2, Algorithm 13. For the checks across the halves: Stan reference
    manual, Hamiltonian Monte Carlo.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pyro_split.selection import log_add


class Span(NamedTuple):
    """What a rule may know of a run of successive states, in the order in which they were visited.

    Momenta are unscaled, the host's word for M to the power of -½ times p, so that products need no mass matrix.

    Attributes:
        p_first: momentum of the first state, shape (D,).
        p_last: momentum of the last state, shape (D,).
        p_sum: sum of all momenta, shape (D,).
        virial_first: zᵀp of the first state.
        virial_last: zᵀp of the last state.
        log_weight: log of the sum of the states' weights exp(-H).
        mean_rate: mean of dG/dt by these weights; None where the rule does not ask for it.
        num_states: how many states.
    """

    p_first: Tensor
    p_last: Tensor
    p_sum: Tensor
    virial_first: float
    virial_last: float
    log_weight: float
    mean_rate: float | None
    num_states: int

    def reversed(self) -> Span:
        """The same states visited the other way."""
        return self._replace(
            p_first=self.p_last,
            p_last=self.p_first,
            virial_first=self.virial_last,
            virial_last=self.virial_first,
        )


Rule = Callable[[Span, Span, Span], bool]


def join(first: Span, second: Span) -> Span:
    """The span of two that follow each other."""
    log_weight = log_add(first.log_weight, second.log_weight)
    mean_rate = None
    if first.mean_rate is not None and second.mean_rate is not None:
        share = math.exp(second.log_weight - log_weight) if second.log_weight > -math.inf else 0.0
        mean_rate = first.mean_rate + share * (second.mean_rate - first.mean_rate)
    return Span(
        p_first=first.p_first,
        p_last=second.p_last,
        p_sum=first.p_sum + second.p_sum,
        virial_first=first.virial_first,
        virial_last=second.virial_last,
        log_weight=log_weight,
        mean_rate=mean_rate,
        num_states=first.num_states + second.num_states,
    )


def u_turn(first: Span, second: Span, whole: Span) -> bool:
    """Whether the whole run turns back, or either half with the neighbouring state of the other."""
    return (
        _turns(whole.p_first, whole.p_last, whole.p_sum)
        or _turns(first.p_first, second.p_first, first.p_sum + second.p_first)
        or _turns(first.p_last, second.p_last, first.p_last + second.p_sum)
    )


def mean_rate(threshold: float, first: Span, second: Span, whole: Span) -> bool:
    """Whether the weighted mean of dG/dt is below ``threshold``."""
    return abs(_rate(whole)) < threshold


def rate_per_length(threshold: float, first: Span, second: Span, whole: Span) -> bool:
    """Whether the weighted mean of dG/dt, divided by the number of states, is below ``threshold``."""
    return abs(_rate(whole)) / whole.num_states < threshold


def boundary_rate(threshold: float, step_size: float, first: Span, second: Span, whole: Span) -> bool:
    """Whether the change of G from end to end, divided by the time between, is below ``threshold``."""
    return abs(mean_rate_in_time(whole, step_size)) < threshold


def mean_rate_in_time(span: Span, step_size: float) -> float:
    """The mean of dG/dt over the time of a run; 0 for a single state."""
    return (span.virial_last - span.virial_first) / (step_size * max(span.num_states - 1, 1))


def _turns(p_first: Tensor, p_last: Tensor, p_sum: Tensor) -> bool:
    return bool(torch.dot(p_first, p_sum) <= 0) or bool(torch.dot(p_last, p_sum) <= 0)


def _rate(span: Span) -> float:
    assert span.mean_rate is not None, "the trajectory must be built with rates"
    return span.mean_rate
