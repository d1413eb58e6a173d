"""Adaptation of XHMC's threshold until draws of the slowest coordinates have correlation ½.

See :mod:`split_common.termination`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from numpyro.infer.hmc_util import build_adaptation_schedule, dual_averaging

from numpyro_split.potential.position import Position, where
from numpyro_split.trajectories.termination import boundary_rate, mean_rate, rate_per_length
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

    count: jax.Array
    mean: jax.Array
    squares: jax.Array
    changes: jax.Array

    @classmethod
    def none(cls, z: jax.Array) -> Draws:
        """Sums over no draws, for positions like ``z``."""
        nothing = jnp.zeros_like(z)
        return cls(jnp.zeros((), z.dtype), nothing, nothing, nothing)

    def add(self, old: jax.Array, new: jax.Array) -> Draws:
        """The sums with one more draw, ``new``, which came after ``old``."""
        count = self.count + 1
        mean = self.mean + (new - self.mean) / count
        squares = self.squares + (new - self.mean) * (new - mean)
        return Draws(count, mean, squares, self.changes + (new - old) ** 2)

    def change_of_slowest(self, old: jax.Array, new: jax.Array) -> jax.Array:
        """(new - old)² over twice the variance, mostly of the slowest coordinates; its expectation is 1 - ρ."""
        variance = jnp.maximum(self.squares / self.count, jnp.finfo(self.squares.dtype).tiny)
        by_coordinate = self.changes / (2 * variance * self.count)
        weights = jnp.maximum(by_coordinate, SMALLEST_CHANGE) ** -4
        return jnp.sum(weights * (new - old) ** 2 / (2 * variance)) / jnp.sum(weights)


class ThresholdState(NamedTuple):
    """The threshold, and the state of its adaptation.

    Attributes:
        threshold: threshold of the next trajectory.
        draws: sums over the draws of the current window; None where the threshold is fixed.
        averaging: the host's dual averaging of the log of the threshold; None where the threshold is fixed.
    """

    threshold: jax.Array
    draws: Draws | None
    averaging: Any

    @property
    def averages(self) -> dict[str, jax.Array]:
        """Running average of dual averaging, by field; empty if the threshold does not adapt."""
        return {} if self.averaging is None else {"threshold": jnp.exp(self.averaging[1])}


class ThresholdAdapter:
    """Adapter that sets the threshold in warm-up.

    Args:
        threshold: a fixed threshold, or None to adapt it.
        num_warmup: number of warm-up iterations.
    """

    def __init__(self, threshold: float | None, num_warmup: int):
        self._given, self._num_warmup = threshold, num_warmup
        windows = build_adaptation_schedule(num_warmup) if num_warmup else []
        self._restarts = jnp.array([window.end for window in windows][:-2], int)
        host_averaging: Any = dual_averaging  # the host's annotation lacks the state that it takes
        self._init, self._update = host_averaging(gamma=THRESHOLD_GAMMA)

    def init(self, z: Position) -> ThresholdState:
        """The first threshold."""
        if self._given is not None:
            return ThresholdState(jnp.asarray(self._given, jnp.result_type(float)), None, None)
        threshold = jnp.asarray(FIRST_THRESHOLD, jnp.result_type(float))
        return ThresholdState(threshold, Draws.none(ravel_pytree(z)[0]), self._init(jnp.log(threshold)))

    def update(
        self, i: jax.Array, old: Position, new: Position, at_limit: jax.Array, state: ThresholdState
    ) -> ThresholdState:
        """The threshold after iteration ``i``; after warm-up it does not change.

        Args:
            i: the iteration, counted from 0.
            old: position before it.
            new: position after it.
            at_limit: whether the depth limit ended the trajectory; a lower threshold would not make it longer.
            state: threshold and its adaptation so far.
        """
        draws_before = state.draws
        if draws_before is None:
            return state

        def adapted() -> ThresholdState:
            before, after = ravel_pytree(old)[0], ravel_pytree(new)[0]
            draws = draws_before.add(before, after)
            enough = draws.count >= DRAWS_BEFORE_THRESHOLD
            error = jnp.where(enough, TARGET_CHANGE - draws.change_of_slowest(before, after), 0.0)
            averaging = self._update(jnp.where(at_limit, jnp.minimum(error, 0.0), error), state.averaging)
            restarts = jnp.any(i == self._restarts)
            settles = restarts | (i == self._num_warmup - 1)
            threshold = jnp.exp(jnp.where(settles, averaging[1], averaging[0]))
            fresh = ThresholdState(threshold, Draws.none(before), self._init(jnp.log(threshold)))
            return where(restarts, fresh, ThresholdState(threshold, draws, averaging))

        return lax.cond(i < self._num_warmup, adapted, lambda: state)


@dataclass(frozen=True)
class Exhaustion:
    """The criterion that a trajectory has filled its energy level (:mod:`numpyro_split.trajectories.termination`).

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
        first = ThresholdAdapter(self.threshold, 0).init(z)
        return {"threshold": first.threshold, "threshold_state": first}

    def rule(self, state: Any) -> Rule:
        """The rule at the threshold of the state."""
        threshold = state.threshold_state.threshold
        if self.form == "boundary":
            return boundary_rate(threshold, state.adapt_state.step_size)
        return {"per_length": rate_per_length, "mean": mean_rate}[self.form](threshold)

    def updated(self, state: Any, moved: Any, num_warmup: int) -> Any:
        """The state ``moved`` with the threshold of its trajectory, and with the threshold of the next."""
        adapter, old = ThresholdAdapter(self.threshold, num_warmup), state.threshold_state
        adapted = adapter.update(state.i, state.z, moved.z, moved.reached_max_treedepth, old)
        return moved._replace(threshold=old.threshold, threshold_state=adapted)

    def learned(self, state: Any) -> dict[str, jax.Array]:
        """The running average of the threshold, if it adapts."""
        return state.threshold_state.averages
