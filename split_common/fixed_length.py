"""Trajectories whose length is set beforehand: their arguments, the part that names no framework, and warnings."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from split_common.checks import MAX_COUNT, check_choice, check_fraction, check_positive_float, check_positive_int
from split_common.exploration import FIRST_LENGTH, MAX_EXPLORATION_DEPTH
from split_common.schedule import Schedule
from split_common.values import shown

# Jitter for a fixed number of steps: at a step size that makes them a whole period the chain would stand still. With a
# jitter of a tenth (Lau 2018, 2.1) it nearly does; with one of a half it does not.
DEFAULT_JITTER = 0.5
# Most steps of a trajectory, so that a collapsed step size or an absurd metric makes no endless run: eight times NUTS's
# longest, 1,023 steps at its depth limit of 10.
MAX_STEPS = 8192
# Mean number of steps of warm-up's trees above which many of them were cut off.
MOST_MEAN_STEPS = 2**MAX_EXPLORATION_DEPTH // 2
SUBSET_PERMUTATIONS = ("fixed", "per_trajectory")


class LengthSettings(NamedTuple):
    """How long trajectories are.

    Attributes:
        num_steps: a fixed number of steps, or None.
        trajectory_length: shortest and longest length in time, between which a length is drawn uniformly for each
            trajectory; or None. If both are None, lengths are between 0 and a length that warm-up learns
            (:mod:`split_common.exploration`).
        step_size_jitter: j; the steps of a trajectory are u times as long, with u drawn from U(1 - j, 1 + j) for each
            trajectory.
    """

    num_steps: int | None
    trajectory_length: tuple[float, float] | None
    step_size_jitter: float = 0.0

    @classmethod
    def checked(cls, num_steps: Any, trajectory_length: Any, step_size_jitter: Any) -> LengthSettings:
        """The lengths that a kernel's arguments ask for.

        Raises:
            ValueError: where both lengths are given, or an argument is out of range.
        """
        steps, lengths = resolve_length(num_steps, trajectory_length)
        return cls(steps, lengths, resolve_step_size_jitter(step_size_jitter, steps))

    @property
    def learns_length(self) -> bool:
        """Whether lengths are learned in warm-up."""
        return self.num_steps is None and self.trajectory_length is None

    @property
    def longest_step(self) -> float:
        """Upper limit of the adapted step size: the shortest length that is given."""
        return math.inf if self.trajectory_length is None else self.trajectory_length[0]

    def is_cut_short(self, step_size: Any) -> Any:
        """Whether steps of this size are too small for the longest length, or were for the trees of warm-up."""
        if self.trajectory_length is None:
            return False
        shortest, longest = self.trajectory_length
        is_of_trees = (shortest == 0) & (longest != FIRST_LENGTH)
        is_cut = (shortest > 0) & (longest > MAX_STEPS * step_size)
        return is_cut | is_of_trees & (longest > MOST_MEAN_STEPS * step_size)


@dataclass(frozen=True)
class FixedLengthBase:
    """Trajectories of a number of steps, or of a length, that does not depend on the state; their end is accepted.

    Attributes:
        lengths: settings of the trajectories' lengths.
        subset_permutation: "fixed" visits the subsets in their order; "per_trajectory" draws one for each trajectory.
    """

    lengths: LengthSettings
    subset_permutation: str = "fixed"
    explores = True
    statistics = ()

    def __post_init__(self) -> None:
        check_choice("subset_permutation", self.subset_permutation, SUBSET_PERMUTATIONS)

    @property
    def learns_length(self) -> bool:
        """Whether lengths are learned in warm-up."""
        return self.lengths.learns_length

    @property
    def varies_length(self) -> bool:
        """Whether lengths are learned, or steps jittered."""
        return self.learns_length or self.lengths.step_size_jitter > 0

    @property
    def longest_step(self) -> float:
        """Upper limit of the adapted step size."""
        return self.lengths.longest_step

    def draws_order(self, schedule: Schedule) -> bool:
        """Whether an order of subsets is drawn for each trajectory; a schedule that is not palindromic needs one."""
        return schedule.draws_order or self.subset_permutation == "per_trajectory"

    def learned(self, state: Any) -> dict[str, Any]:
        """The longest length, where that is learned."""
        return {"trajectory_length": state.trajectory_length} if self.learns_length else {}

    def lengths_at(self, state: Any) -> LengthSettings:
        """The lengths, with the shortest and the longest of the state where warm-up learns them."""
        if not self.learns_length:
            return self.lengths
        return self.lengths._replace(trajectory_length=(state.shortest_length, state.trajectory_length))


@dataclass(frozen=True)
class WindowedBase:
    """Trajectories of a fixed number of steps, accepted by windows of states at their two ends.

    Attributes:
        num_steps: L, steps of a trajectory.
        window_size: W, states in a window, from 1 to L + 1.
        step_size_jitter: j; steps are u times as long, u drawn from U(1 - j, 1 + j) for each trajectory.
    """

    num_steps: int
    window_size: int
    step_size_jitter: float
    explores = True
    learns_length = False
    statistics = ()
    longest_step = math.inf

    @classmethod
    def checked(cls, num_steps: Any, window_size: Any, step_size_jitter: Any) -> Self:
        """The trajectories that a kernel's arguments ask for.

        Raises:
            ValueError: for an argument out of range.
        """
        num_steps = check_positive_int("num_steps", num_steps, MAX_COUNT)
        window_size = check_window_size(window_size, num_steps)
        return cls(num_steps, window_size, check_fraction("step_size_jitter", step_size_jitter))

    @property
    def varies_length(self) -> bool:
        """Whether steps are jittered."""
        return self.step_size_jitter > 0

    def draws_order(self, schedule: Schedule) -> bool:
        """Whether an order of subsets is drawn for each trajectory: for a schedule that is not palindromic."""
        return schedule.draws_order

    def learned(self, state: Any) -> dict[str, Any]:
        """An empty dict: warm-up learns no values."""
        return {}

    def watch(self, state: Any, num_warmup: int) -> None:
        """Do nothing: such trajectories have nothing to warn of."""


def resolve_length(
    num_steps: int | None, trajectory_length: float | None
) -> tuple[int | None, tuple[float, float] | None]:
    """Return ``num_steps``, and the shortest and longest length; one of the two is None, or both if neither is given.

    Raises:
        ValueError: when both are given, or one is out of range.
    """
    if num_steps is not None and trajectory_length is not None:
        raise ValueError(
            "num_steps and trajectory_length must not both be given (the step size could not be adapted), "
            f"got num_steps={shown(num_steps)} and trajectory_length={shown(trajectory_length)}"
        )
    if num_steps is not None:
        return check_positive_int("num_steps", num_steps, MAX_COUNT), None
    if trajectory_length is not None:
        length = check_positive_float("trajectory_length", trajectory_length)
        return None, (length, length)
    return None, None


def resolve_step_size_jitter(step_size_jitter: Any, num_steps: int | None) -> float:
    """Return the jitter of the step size, which for None is the default.

    Raises:
        ValueError: unless it is a number from 0 up to, but not including, 1.
    """
    if step_size_jitter is None:
        return 0.0 if num_steps is None else DEFAULT_JITTER
    return check_fraction("step_size_jitter", step_size_jitter)


def check_window_size(window_size: Any, num_steps: int) -> int:
    """Return ``window_size``, or raise unless it is from 1 to the number of states of a trajectory."""
    number = check_positive_int("window_size", window_size)
    if number > num_steps + 1:
        raise ValueError(
            f"window_size must be at most num_steps + 1, the states of a trajectory, "
            f"got window_size={shown(window_size)} and num_steps={num_steps}"
        )
    return number


def warn_of_cut_trajectories(step_size: Any, lengths: tuple[float, float]) -> None:
    """Warn that trajectories, or the trees of warm-up from which their length was learned, end too early."""
    shortest, longest = lengths
    if not shortest:
        warnings.warn(
            f"many trees of warm-up were cut off at depth {MAX_EXPLORATION_DEPTH} (a mean length of "
            f"{float(longest):.4g} at step size {float(step_size):.3g}), so that trajectories are too short and draws "
            "correlated (they are still exact); make warm-up longer, give inverse_mass_matrix, or reparametrise the "
            "model so that its scales differ less",
            stacklevel=2,
        )
        return
    length = f"{longest:.4g}" if shortest == longest else f"{shortest:.4g} to {longest:.4g}"
    warnings.warn(
        f"trajectories of length {length} at step size {float(step_size):.3g} are cut off at {MAX_STEPS} steps, which "
        "makes draws correlated (they are still exact); give a larger step_size, a shorter trajectory_length or "
        "num_steps, check inverse_mass_matrix, or let a longer warm-up adapt them",
        stacklevel=2,
    )
