"""Warnings after the first draws of a run, from sums in the state: divergences and slowly explored energies.

The host does not tell a kernel when a run ends, so there is one warning after the first draws; the kernel's ``report``
describes the whole run.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from split_common.health import DRAWS_BEFORE_WARNING, LEAST_BFMI, warn_of_first_draws


class Health(NamedTuple):
    """Sums over the draws of one chain.

    Attributes:
        num_diverging: number of draws whose trajectory diverged.
        mean: mean of the energies.
        squares: sum of their squared distances from the mean.
        changes: sum of their squared changes from draw to draw.
        last: the last energy.
    """

    num_diverging: int = 0
    mean: float = 0.0
    squares: float = 0.0
    changes: float = 0.0
    last: float = 0.0

    def with_draw(self, number: int, energy: float, diverging: bool) -> Health:
        """The sums with one more draw; its number counts from 1 after warm-up, and numbers below 1 are ignored."""
        if number < 1:
            return self
        distance = energy - self.mean
        mean = self.mean + distance / number
        change = energy - self.last if number > 1 else 0.0
        return Health(
            num_diverging=self.num_diverging + diverging,
            mean=mean,
            squares=self.squares + distance * (energy - mean),
            changes=self.changes + change * change,
            last=energy,
        )

    @property
    def bfmi(self) -> float:
        """The energy Bayesian fraction of missing information; undefined if the energies are all equal."""
        return self.changes / self.squares if self.squares else float("nan")


def warn_if_in_trouble(state: Any, warmup_steps: int) -> None:
    """Warn once for each chain if its first draws diverged or explored their energies slowly."""
    if state.i - warmup_steps != DRAWS_BEFORE_WARNING:
        return
    if state.health.num_diverging or state.health.bfmi < LEAST_BFMI:
        warn_of_first_draws(state.health.num_diverging, state.health.bfmi)
