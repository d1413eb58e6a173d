r"""Adaptation of XHMC's threshold in warm-up, until draws of the slowest coordinate correlate by one half.

With ρ the correlation of a coordinate before and after a transition, 1 - ρ = E[(z' - z)²] / (2 var z). Long
trajectories bring ρ near 0 and cost more gradients than draws gain; short ones leave it near 1, and draws gain less
than they cost. In between the effective draws per gradient have a broad maximum, and the log of the threshold goes
there by the host's dual averaging of ½ - (1 - ρ), as the step size goes to its acceptance. Which coordinate is slowest
is told from the draws of the window: each is weighed by 1 - ρ to the power of -4. A trajectory that the limit on its
depth ended does not lower the threshold: were a coordinate to hardly move however long trajectories are (several
modes), it would fall without end.

Statistics restart with each window of the mass matrix but the last. After warm-up the threshold is fixed at its running
average.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from pyro.ops.dual_averaging import DualAveraging
from torch import Tensor

from pyro_split.potential.position import Position, flatten
from split_common.termination import (
    DRAWS_BEFORE_THRESHOLD,
    FIRST_THRESHOLD,
    SMALLEST_CHANGE,
    TARGET_CHANGE,
    THRESHOLD_GAMMA,
)


class Draws:
    """Sums over the draws of a window, coordinate by coordinate.

    Attributes:
        count: how many.
        mean: shape (D,).
        squares: sum of squares about the mean, shape (D,).
        changes: sum of squared changes from draw to draw, shape (D,).
    """

    def __init__(self, z: Tensor):
        self.count = 0
        self.mean, self.squares, self.changes = (torch.zeros_like(z) for _ in range(3))

    def add(self, old: Tensor, new: Tensor) -> None:
        """One more draw, ``new`` after ``old``."""
        self.count += 1
        deviation = new - self.mean
        self.mean = self.mean + deviation / self.count
        self.squares = self.squares + deviation * (new - self.mean)
        self.changes = self.changes + (new - old) ** 2

    def change_of_slowest(self, old: Tensor, new: Tensor) -> float:
        """(new - old)² over twice the variance, for the slowest coordinates; its mean is 1 - ρ."""
        variance = (self.squares / self.count).clamp_min(torch.finfo(self.squares.dtype).tiny)
        by_coordinate = self.changes / (2 * variance * self.count)
        weights = by_coordinate.clamp_min(SMALLEST_CHANGE) ** -4
        return float((weights * (new - old) ** 2 / (2 * variance)).sum() / weights.sum())


class ThresholdAdapter:
    """Sets the threshold in warm-up.

    Args:
        threshold: a fixed threshold, or None to adapt it.
        warmup_steps: number of warm-up iterations.
        restarts: iterations, counted from 1, after which a window starts.
        z: starting point.

    Attributes:
        threshold: of the next trajectory.
        averages: what dual averaging has averaged so far, if it adapts.
    """

    def __init__(self, threshold: float | None, warmup_steps: int, restarts: list[int], z: Position):
        self._adapts, self._warmup_steps, self._restarts = threshold is None, warmup_steps, restarts
        self.threshold = FIRST_THRESHOLD if threshold is None else threshold
        self.averages: dict[str, float] = {}
        if self._adapts:
            self._start_window(flatten(z, z))

    def update(self, t: int, old: Position, new: Position, at_limit: bool) -> None:
        """Adapt after iteration ``t``; after warm-up nothing changes.

        Args:
            t: the iteration, counted from 1.
            old: position before it.
            new: position after it.
            at_limit: whether the limit on its depth ended the trajectory, which a lower threshold cannot make longer.
        """
        if not self._adapts or t > self._warmup_steps:
            return
        before, after = flatten(old, old), flatten(new, new)
        self._draws.add(before, after)
        enough = self._draws.count >= DRAWS_BEFORE_THRESHOLD
        error = TARGET_CHANGE - self._draws.change_of_slowest(before, after) if enough else 0.0
        self._averaging.step(min(error, 0.0) if at_limit else error)
        latest, average = self._averaging.get_state()
        self.averages = {"threshold": math.exp(average)}
        settles = t in self._restarts or t == self._warmup_steps
        self.threshold = math.exp(average if settles else latest)
        if t in self._restarts:
            self._start_window(after)

    def _start_window(self, z: Tensor) -> None:
        dual_averaging: Any = DualAveraging  # annotated for the simplest of the values it takes
        self._draws = Draws(z)
        self._averaging = dual_averaging(prox_center=math.log(self.threshold), gamma=THRESHOLD_GAMMA)
