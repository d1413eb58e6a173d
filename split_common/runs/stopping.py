r"""Criteria for when a run has drawn enough: effective sample size or R-hat, or the clock.

The criterion is that of the worst coordinate of all variables. A coordinate that never changes is left out, and one
with a draw that is not finite never satisfies the criterion.

**The bias of stopping by a statistic.** A run that stops when a statistic of its own draws is good enough is more
likely to stop when the statistic happens to be too good. Each look at the statistic is another chance for that, so
there are few looks: the first at 100 draws of each chain, because an effective sample size needs autocovariances that
fewer draws do not show, and then one whenever there are 10 % more draws, which makes 48 looks in 10,000 draws. The
looks are at fixed numbers of draws, the same for all runs, so a run that was interrupted looks where an uninterrupted
run does.

The remaining effect is small (docs/stored_runs.md has numbers, measured by ``benchmarks/stopping_bias``). With many
coordinates it is not visible, and the rule is conservative: the smallest of many estimated effective sample sizes is
mostly below its true value. With one coordinate, R-hat stops at almost any number of draws, because it measures whether
chains agree and not how precise a mean is: give ``ess`` with it.

An effective sample size cannot show what none of the chains has found. Stopping by the clock does not depend on the
draws, and causes no bias.

References:
    Flegal, Haran and Jones (2008), Markov chain Monte Carlo: can we trust the third significant figure?, Statistical
    Science 23.
    Glynn and Whitt (1992), The asymptotic validity of sequential stopping rules for stochastic simulations, Annals of
    Applied Probability 2: the effect of stopping vanishes as the required precision grows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from split_common.checks import check_positive_float
from split_common.runs.summaries import RunningSummary
from split_common.values import finite_number, shown

FIRST_LOOK = 100  # draws of each chain at the first look
MOST_EFFECTIVE = 3.0  # effective draws that one draw of anticorrelated chains may be worth


@dataclass(frozen=True, kw_only=True)
class StopWhen:
    """When a run ends early: at the first of the given criteria, except that ``ess`` and ``rhat`` must both be met.

    After warm-up ``ess`` and ``rhat`` are computed at 100 draws of each chain, and then whenever there are 10 % more.
    The standard errors of a run that stops by them may be a little too small: see this module.

    Args:
        ess: effective sample size of the mean, over all chains together, that every coordinate must reach.
        rhat: split R-hat, not rank-normalised, that no coordinate may exceed. If ``ess`` is given too, both must hold
            at the same time.
        seconds: how long this call may take, from its beginning, checks and compilation included. A run that is
            resumed may take as long again.
        deadline: time at which to stop; without a time zone it is local time.

    Raises:
        ValueError: if no criterion is given; for an ``ess`` or ``seconds`` that is not a finite number above 0, an
            ``rhat`` that is not a finite number above 1, and a deadline that has passed.
        TypeError: for a deadline that is not a ``datetime``.

    Example:
        >>> stop = StopWhen(rhat=1.01)
        >>> summary = RunningSummary.start(num_chains=2, shape=())
        >>> for chain in range(2):
        ...     summary.add(chain, np.random.default_rng(chain).standard_normal(1000))
        >>> stop.reason({"x": summary}, draws=1000, seconds=3.0, now=datetime.now(UTC))
        'the largest R-hat, 0.99928 of x, is at most 1.01'
    """

    ess: float | None = None
    rhat: float | None = None
    seconds: float | None = None
    deadline: datetime | None = None

    def __post_init__(self) -> None:
        if all(x is None for x in (self.ess, self.rhat, self.seconds, self.deadline)):
            raise ValueError("at least one of ess, rhat, seconds and deadline must be given, got none")
        for name in ("ess", "seconds"):
            if getattr(self, name) is not None:
                check_positive_float(name, getattr(self, name))
        if self.rhat is not None and ((limit := finite_number(self.rhat)) is None or limit <= 1):
            raise ValueError(f"rhat must be a finite number above 1, got {shown(self.rhat)}")
        if self.deadline is not None:
            _check_deadline(self.deadline)

    @property
    def needs_summaries(self) -> bool:
        """Whether a criterion depends on the draws."""
        return self.ess is not None or self.rhat is not None

    def check_reachable(self, num_chains: int, num_samples: int) -> None:
        """Raise where the criteria for the draws can never be met.

        A draw is worth more than one effective draw where successive draws are anticorrelated: three for a correlation
        of −1/2, which is rare. More than that is taken to be out of reach.

        Args:
            num_chains: number of chains.
            num_samples: number of draws that each may make after warm-up.

        Raises:
            ValueError: for an ``ess`` above three times the number of draws, and, of ``ess`` and ``rhat``, for fewer
                draws of each chain than the first look needs.

        Example:
            >>> StopWhen(ess=4_000).check_reachable(num_chains=4, num_samples=1_000)
        """
        if not self.needs_summaries:
            return
        if num_samples < FIRST_LOOK:
            raise ValueError(
                f"stop_when with ess or rhat must have at least {FIRST_LOOK} draws of each chain, got {num_samples}"
            )
        most = MOST_EFFECTIVE * num_chains * num_samples
        if self.ess is not None and self.ess > most:
            raise ValueError(
                f"ess must be at most {most:,.0f}, three times the {num_chains} x {num_samples} draws there can be, "
                f"got {shown(self.ess)}"
            )

    def next_look(self, draws: int) -> int:
        """The least number of draws above this one at which ``ess`` and ``rhat`` are computed.

        A caller that moves chains in pieces looks where ``draws >= stop.next_look(draws before the piece)``.

        Args:
            draws: number of draws of the chain that has fewest.

        Example:
            >>> [StopWhen(ess=400).next_look(draws) for draws in (0, 99, 100, 1000)]
            [100, 100, 110, 1017]
        """
        look = FIRST_LOOK
        while look <= draws:
            look = -(-look * 11 // 10)  # 10 % more, in whole numbers
        return look

    def reason(
        self, summaries: Mapping[str, RunningSummary], *, draws: int, seconds: float, now: datetime
    ) -> str | None:
        """The reason to stop; None where there is none.

        Args:
            summaries: summary of each variable, or empty where only the clock counts.
            draws: number of draws of the chain that has fewest.
            seconds: seconds since this call began.
            now: the time, with its zone or in local time.

        Example:
            >>> StopWhen(seconds=60).reason({}, draws=0, seconds=61.5, now=datetime.now(UTC))
            'the time of 60 seconds is over'
        """
        if self.seconds is not None and seconds >= self.seconds:
            return f"the time of {self.seconds:g} seconds is over"
        if self.deadline is not None and now.astimezone() >= self.deadline.astimezone():
            return f"the deadline, {self.deadline.isoformat(sep=' ', timespec='seconds')}, has come"
        if not self.needs_summaries or draws < FIRST_LOOK:
            return None
        figures = {name: summary.table() for name, summary in summaries.items()}
        return self._reason_of(figures)

    def _reason_of(self, figures: Mapping[str, Mapping[str, np.ndarray]]) -> str | None:
        """The reason why the draws are enough; None where they are not."""
        reasons = []
        if self.ess is not None:
            ess, where = _worst(figures, "ess", np.argmin)
            if not ess >= self.ess:
                return None
            reasons.append(f"the smallest effective sample size, {ess:.0f} of {where}, is at least {self.ess:g}")
        if self.rhat is not None:
            rhat, where = _worst(figures, "rhat", np.argmax)
            if not rhat <= self.rhat:
                return None
            verb = "" if reasons else "is "
            reasons.append(f"the largest R-hat, {rhat:.5g} of {where}, {verb}at most {self.rhat:g}")
        return ", and ".join(reasons)


def _check_deadline(deadline: Any) -> None:
    if not isinstance(deadline, datetime):
        raise TypeError(f"deadline must be a datetime, got {shown(deadline)}")
    if not deadline.timestamp() > datetime.now(UTC).timestamp():
        raise ValueError(f"deadline must lie in the future, got {shown(deadline)}")


def _worst(
    figures: Mapping[str, Mapping[str, np.ndarray]], name: str, worst: Callable[[np.ndarray], Any]
) -> tuple[float, str]:
    """The worst of a figure over the coordinates that change, and where; NaN where any is, or where none changes."""
    found = (math.nan, "nothing that changes")
    for variable, table in figures.items():
        changes = table["sd"] != 0
        if not changes.any():
            continue
        values, places = table[name][changes], np.argwhere(changes)
        k = worst(values)  # argmin or argmax of NumPy, to which NaN is the worst
        here = float(values[k]), variable + (str(places[k].tolist()) if places.shape[1] else "")
        if math.isnan(here[0]):
            return here
        if math.isnan(found[0]) or worst(np.array([found[0], here[0]])) == 1:
            found = here
    return found
