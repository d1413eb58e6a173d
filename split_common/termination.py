"""When a trajectory that doubles stops: what a rule is, the rules, and how a threshold adapts.

A rule looks at two halves of a run of successive states and at the whole, and says whether to stop. It must be a
function of the run alone and say the same of the run in reverse: then every state of a trajectory would have built the
same trajectory with the same probability, on which the invariance of the target depends (``trajectories/doubling.py``
of either package).

* U-turn: the ends move towards each other. With ρ the sum of the momenta of the run, stop when pᵀM⁻¹ρ ≤ 0 at
  either end; checked again for the first half with one more state, and for the second half with one more, which
  catches a turn that falls between the halves.
* Exhaustion: the virial G = zᵀp changes at the rate dG/dt = pᵀM⁻¹p - zᵀ∇U, whose mean along a trajectory tends to
  zero as it comes to fill its energy level. Stop when the mean is below a threshold, in one of three forms:
  ``mean_rate``, the mean over the states by their weights exp(-H); ``rate_per_length``, the same over the
  number of states; ``boundary_rate``, the mean over time, which is |G(end) - G(start)| / time and needs no
  gradient.

In warm-up the threshold of exhaustion can adapt until draws of the slowest coordinate correlate by one half. With ρ the
correlation of a coordinate before and after a transition, 1 - ρ = E[(z' - z)²] / (2 var z). Long trajectories bring ρ
near 0 and cost more gradients than draws gain; short ones leave it near 1, and draws gain less than they cost. In
between the effective draws per gradient have a broad maximum, and the log of the threshold goes there by the host's
dual averaging of ½ - (1 - ρ), as the step size goes to its acceptance. Which coordinate is slowest is told from the
draws of the window: each is weighed by 1 - ρ to the power of -4. A trajectory that the limit on its depth ended does
not lower the threshold: were a coordinate to hardly move however long trajectories are (several modes), it would fall
without end.

Statistics restart with each window of the mass matrix but the last. After warm-up the threshold is fixed at its running
average.

References:
    Hoffman and Gelman (2014), The No-U-Turn Sampler. Betancourt (2016), Identifying the Optimal Integration Time in
    Hamiltonian Monte Carlo. Lau (2018), chapter 2, Algorithm 13. For the checks across the halves: Stan reference
    manual, Hamiltonian Monte Carlo.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from split_common.checks import check_positive_float, check_positive_int
from split_common.health import DRAWS_BEFORE_WARNING
from split_common.schedule import Schedule
from split_common.values import shown

MAX_TREE_DEPTH = 30  # so that the 2^d states of a tree can be counted in 32 bits
CRITERIA = ("per_length", "mean", "boundary")  # forms of the rule of exhaustion
# Adaptation of XHMC's threshold. A draw says less of 1 - ρ, with ρ the correlation of successive draws, than of an
# acceptance, so its dual averaging is ten times slower than that of the step size.
FIRST_THRESHOLD = 0.1  # in units of the criterion
TARGET_CHANGE = 0.5  # value of 1 - ρ that the threshold is adapted to
THRESHOLD_GAMMA = 0.5  # the parameter gamma of its dual averaging
DRAWS_BEFORE_THRESHOLD = 6  # draws of a window before the threshold moves
SMALLEST_CHANGE = 1e-6  # smallest value of 1 - ρ that is distinguished from 0
TREE_STATISTICS = ("tree_depth", "reached_max_treedepth", "virial_average")


class Span(Protocol):
    """Summary of a run of successive states, in the order in which they were visited; a rule decides by it."""

    @classmethod
    def of(cls, path: Any, state: Any, log_weight: Any, grad: Any) -> Any:
        """Span of one state of a path, of log-weight -H, with the gradient of U where the rule takes it."""
        ...

    def joined(self, second: Any) -> Any:
        """Span of this run and the one that follows it."""
        ...

    def reversed(self) -> Any:
        """Span of the same states in reverse order."""
        ...


class Rule(NamedTuple):
    """When a trajectory that doubles stops.

    Attributes:
        span: its summary of a run of successive states, which holds nothing else: under JAX, every array that a loop
            carries costs a small model as much as arithmetic does.
        holds: whether to stop, from the spans of a run's two halves and of the whole.
        takes_gradients: whether it needs the whole gradient at every state.
    """

    span: type[Span]
    holds: Callable[[Any, Any, Any], Any]
    takes_gradients: bool = False


class Criterion(Protocol):
    """Protocol of what ends trajectories: a rule, which may depend on values that the state keeps from warm-up."""

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the fields of the state that it adds to the statistics."""
        ...

    def first_fields(self, z: Any, /) -> dict[str, Any]:
        """Its own fields of the state of a chain that starts at ``z``."""
        ...

    def rule(self, state: Any, /) -> Rule:
        """The rule of the next trajectory."""
        ...

    def updated(self, state: Any, moved: Any, num_warmup: int, /) -> Any:
        """The state ``moved``, which came after ``state``, with its fields brought up to date."""
        ...

    def learned(self, state: Any, /) -> dict[str, Any]:
        """Values that warm-up learns, by field of :class:`split_common.settling.Settled`."""
        ...


@dataclass(frozen=True)
class FixedRule:
    """The criterion that is one rule, whatever the state.

    Attributes:
        fixed: the rule.
    """

    fixed: Rule
    statistics = ()

    def first_fields(self, z: Any) -> dict[str, Any]:
        """An empty dict: the criterion adds no fields to the state."""
        return {}

    def rule(self, state: Any) -> Rule:
        """The fixed rule."""
        return self.fixed

    def updated(self, state: Any, moved: Any, num_warmup: int) -> Any:
        """The state ``moved``, unchanged."""
        return moved

    def learned(self, state: Any) -> dict[str, Any]:
        """An empty dict: warm-up learns no values."""
        return {}


@dataclass(frozen=True)
class DoublingBase:
    """Trajectories that double until a criterion says that they have gone far enough.

    Attributes:
        criterion: decides when to stop.
        max_tree_depth: largest number of doublings.
    """

    criterion: Criterion
    max_tree_depth: int = 10
    explores = False
    learns_length = False
    varies_length = True
    longest_step = math.inf

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_tree_depth", check_max_tree_depth(self.max_tree_depth))

    @property
    def statistics(self) -> tuple[str, ...]:
        """The statistics of a tree, and those of the criterion."""
        return (*TREE_STATISTICS, *self.criterion.statistics)

    def draws_order(self, schedule: Schedule) -> bool:
        """Whether an order of subsets is drawn for each trajectory: for a schedule that is not palindromic."""
        return schedule.draws_order

    def learned(self, state: Any) -> dict[str, Any]:
        """What the criterion learns."""
        return self.criterion.learned(state)


def resolve_threshold(threshold: Any) -> float | None:
    """Return a fixed threshold of exhaustion, or None for one that adapts.

    Raises:
        ValueError: unless it is "adapt" or a finite number above 0.
    """
    if isinstance(threshold, str) and threshold == "adapt":
        return None
    try:
        return check_positive_float("threshold", threshold)
    except ValueError:
        raise ValueError(f"threshold must be 'adapt' or a finite number above 0, got {shown(threshold)}") from None


def check_max_tree_depth(value: Any) -> int:
    """Return ``value``, or raise unless it is a whole number from 1 to 30."""
    return check_positive_int("max_tree_depth", value, MAX_TREE_DEPTH)


def warn_of_depth_limit(max_tree_depth: int, share: Any) -> None:
    """Warn that many trajectories would have gone on."""
    warnings.warn(
        f"{float(share):.0%} of the first {DRAWS_BEFORE_WARNING} trajectories ended at "
        f"max_tree_depth={max_tree_depth}, which makes draws correlated (they are still exact); raise max_tree_depth "
        "or a given threshold of XHMC, or reparametrise the model",
        stacklevel=2,
    )
