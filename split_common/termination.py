"""When a trajectory that doubles stops: what a rule is, its arguments, and a warning where the depth limit stops it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from split_common.checks import check_positive_float, check_positive_int
from split_common.health import DRAWS_BEFORE_WARNING
from split_common.values import shown

MAX_TREE_DEPTH = 30  # the 2^d states of a tree likewise
CRITERIA = ("per_length", "mean", "boundary")  # of exhaustion
# Adaptation of XHMC's threshold. A draw says less of 1 - ρ, with ρ the correlation of successive draws, than of an
# acceptance, so its dual averaging is ten times slower than that of the step size.
FIRST_THRESHOLD = 0.1  # in units of the criterion
TARGET_CHANGE = 0.5  # 1 - ρ that it is adapted to
THRESHOLD_GAMMA = 0.5  # of dual averaging
DRAWS_BEFORE_THRESHOLD = 6  # draws of a window before it moves
SMALLEST_CHANGE = 1e-6  # 1 - ρ that is not told from 0
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
        """Span of the same states, visited the other way."""
        ...


class Rule(NamedTuple):
    """When a trajectory that doubles stops.

    Attributes:
        span: what it remembers of a run of successive states, and no more: under JAX, every array that a loop carries
            costs a small model as much as arithmetic does.
        holds: whether to stop, from the spans of a run's two halves and of the whole.
        takes_gradients: whether it asks for the whole gradient at every state.
    """

    span: type[Span]
    holds: Callable[[Any, Any, Any], Any]
    takes_gradients: bool = False


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
