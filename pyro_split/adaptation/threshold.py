"""Adaptation of XHMC's threshold until draws of the slowest coordinates have correlation ½.

See :mod:`split_common.termination`.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from pyro.ops.dual_averaging import DualAveraging
from torch import Tensor

from pyro_split.potential.position import Position, flatten
from pyro_split.trajectories.termination import boundary_rate, mean_rate, rate_per_length
from split_common.checks import check_choice
from split_common.termination import (
    CRITERIA,
    DRAWS_BEFORE_THRESHOLD,
    FIRST_THRESHOLD,
    SMALLEST_CHANGE,
    TARGET_CHANGE,
    THRESHOLD_GAMMA,
    Rule,
    resolve_threshold,
)


class Draws(NamedTuple):
    """Sums over the draws of a window, coordinate by coordinate.

    Attributes:
        count: number of draws.
        mean: mean of the draws, shape (D,).
        squares: sum of squared deviations from the mean, shape (D,).
        changes: sum of squared changes from draw to draw, shape (D,).
    """

    count: int
    mean: Tensor
    squares: Tensor
    changes: Tensor

    @classmethod
    def none(cls, z: Tensor) -> Draws:
        """Sums over no draws, for positions like ``z``."""
        nothing = torch.zeros_like(z)
        return cls(0, nothing, nothing, nothing)

    def add(self, old: Tensor, new: Tensor) -> Draws:
        """The sums with one more draw, ``new``, which came after ``old``."""
        count, deviation = self.count + 1, new - self.mean
        mean = self.mean + deviation / count
        squares = self.squares + deviation * (new - mean)
        return Draws(count, mean, squares, self.changes + (new - old) ** 2)

    def change_of_slowest(self, old: Tensor, new: Tensor) -> float:
        """(new - old)² over twice the variance, mostly of the slowest coordinates; its expectation is 1 - ρ."""
        variance = (self.squares / self.count).clamp_min(torch.finfo(self.squares.dtype).tiny)
        by_coordinate = self.changes / (2 * variance * self.count)
        weights = by_coordinate.clamp_min(SMALLEST_CHANGE) ** -4
        return float((weights * (new - old) ** 2 / (2 * variance)).sum() / weights.sum())


class ThresholdState(NamedTuple):
    """The threshold, and the state of its adaptation.

    Attributes:
        threshold: threshold of the next trajectory.
        draws: sums over the draws of the current window; None where the threshold is fixed.
        averaging: the host's dual averaging of the log of the threshold, replaced and never changed in place; None
            where the threshold is fixed.
        averages: running average of dual averaging, by field; empty if the threshold does not adapt.
    """

    threshold: float
    draws: Draws | None = None
    averaging: Any = None
    averages: dict[str, float] = {}  # noqa: RUF012


class ThresholdAdapter:
    """Adapter that sets the threshold in warm-up.

    Args:
        threshold: a fixed threshold, or None to adapt it.
        warmup_steps: number of warm-up iterations.
        restarts: iterations, counted from 1, after which the adaptation restarts.
    """

    def __init__(self, threshold: float | None, warmup_steps: int, restarts: list[int]):
        self._given, self._warmup_steps, self._restarts = threshold, warmup_steps, restarts

    def init(self, z: Position) -> ThresholdState:
        """The first threshold."""
        if self._given is not None:
            return ThresholdState(self._given)
        return ThresholdState(FIRST_THRESHOLD, Draws.none(flatten(z, z)), _averaging_from(FIRST_THRESHOLD))

    def update(self, t: int, old: Position, new: Position, at_limit: bool, state: ThresholdState) -> ThresholdState:
        """The threshold after iteration ``t``; after warm-up it does not change.

        Args:
            t: the iteration, counted from 1.
            old: position before it.
            new: position after it.
            at_limit: whether the depth limit ended the trajectory; a lower threshold would not make it longer.
            state: threshold and its adaptation so far.
        """
        if state.draws is None or t > self._warmup_steps:
            return state
        before, after = flatten(old, old), flatten(new, new)
        draws, averaging = state.draws.add(before, after), copy.copy(state.averaging)
        enough = draws.count >= DRAWS_BEFORE_THRESHOLD
        error = TARGET_CHANGE - draws.change_of_slowest(before, after) if enough else 0.0
        averaging.step(min(error, 0.0) if at_limit else error)
        latest, average = averaging.get_state()
        restarts = t in self._restarts
        threshold = math.exp(average if restarts or t == self._warmup_steps else latest)
        if restarts:
            draws, averaging = Draws.none(after), _averaging_from(threshold)
        return ThresholdState(threshold, draws, averaging, {"threshold": math.exp(average)})


def _averaging_from(threshold: float) -> Any:
    """The host's dual averaging, centred at the log of a threshold."""
    dual_averaging: Any = DualAveraging  # the host annotates only the simplest of the values that it takes
    return dual_averaging(prox_center=math.log(threshold), gamma=THRESHOLD_GAMMA)


@dataclass(frozen=True)
class Exhaustion:
    """The criterion that a trajectory has filled its energy level (:mod:`pyro_split.trajectories.termination`).

    Attributes:
        threshold: value below which the criterion holds; None for one that adapts in warm-up.
        form: form of the mean of dG/dt that is compared: "per_length", "mean" or "boundary".
    """

    threshold: float | None
    form: str = "per_length"
    statistics = ("threshold",)

    @classmethod
    def checked(cls, threshold: Any, criterion: Any) -> Exhaustion:
        """The criterion that a kernel's arguments ask for.

        Raises:
            ValueError: for an argument out of range.
        """
        return cls(resolve_threshold(threshold), check_choice("criterion", criterion, CRITERIA))

    def first_fields(self, z: Position) -> dict[str, Any]:
        """The first threshold."""
        first = ThresholdAdapter(self.threshold, 0, []).init(z)
        return {"threshold": first.threshold, "threshold_state": first}

    def rule(self, state: Any) -> Rule:
        """The rule at the threshold of the state."""
        threshold = state.threshold_state.threshold
        if self.form == "boundary":
            return boundary_rate(threshold, state.adapt_state.step_size)
        return {"per_length": rate_per_length, "mean": mean_rate}[self.form](threshold)

    def updated(self, state: Any, moved: Any, warmup_steps: int) -> Any:
        """The state ``moved`` with the threshold of its trajectory, and with the threshold of the next."""
        adapter = ThresholdAdapter(self.threshold, warmup_steps, state.adapter.window_ends[:-2])
        old = state.threshold_state
        adapted = adapter.update(state.i + 1, state.z, moved.z, moved.reached_max_treedepth, old)
        return moved._replace(threshold=old.threshold, threshold_state=adapted)

    def learned(self, state: Any) -> dict[str, float]:
        """The running average of the threshold, if it adapts."""
        return state.threshold_state.averages
