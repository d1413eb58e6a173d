"""A run stops when it should, is looked at when it should be, and what can never be met is refused."""

import dataclasses
import math
from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pytest

from split_common.runs.drive import drive
from split_common.runs.plan import Plan
from split_common.runs.stopping import FIRST_LOOK, StopWhen
from split_common.runs.summaries import RunningSummary

NOW = datetime.now(UTC)


def summary_of(draws):
    summary = RunningSummary.start(len(draws), draws.shape[2:])
    for chain, x in enumerate(draws):
        summary.add(chain, x)
    return summary


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def reason(stop, draws=1000, seconds=0.0, now=NOW, **summaries):
    return stop.reason(summaries, draws=draws, seconds=seconds, now=now)


def test_the_worst_coordinate_of_all_variables_decides():
    slow = normal(2, 1000, 3, 2)
    slow[:, :, 1, 0] = np.cumsum(slow[:, :, 1, 0], axis=1)
    summaries = {"a": summary_of(normal(2, 1000)), "beta": summary_of(slow), "c": summary_of(normal(2, 1000, 4))}
    worst = summaries["beta"].ess[1, 0]
    assert reason(StopWhen(ess=worst + 1), **summaries) is None
    text = reason(StopWhen(ess=int(worst)), **summaries)
    assert text == f"the smallest effective sample size, {worst:.0f} of beta[1, 0], is at least {int(worst)}"
    largest = summaries["beta"].rhat[1, 0]
    assert reason(StopWhen(rhat=largest - 1e-6), **summaries) is None
    text = reason(StopWhen(rhat=round(largest + 0.1, 2)), **summaries)
    assert text.startswith(f"the largest R-hat, {largest:.5g} of beta[1, 0], is at most")


def test_both_must_hold_at_one_look():
    good = summary_of(normal(2, 1000))
    assert "and the largest R-hat" in reason(StopWhen(ess=400, rhat=1.05), x=good)
    assert reason(StopWhen(ess=5000, rhat=1.05), x=good) is None
    assert reason(StopWhen(ess=400, rhat=1 + 1e-6), x=good) is None


def test_the_clock_alone_is_enough():
    stop = StopWhen(ess=1e6, seconds=10, deadline=NOW + timedelta(hours=1))
    assert reason(stop, seconds=9.9) is None
    assert reason(stop, seconds=10.0) == "the time of 10 seconds is over"
    assert "has come" in reason(stop, now=NOW + timedelta(hours=1))
    assert reason(stop, draws=0, seconds=11.0)  # in warm-up too


def test_a_deadline_without_a_zone_is_local_time():
    local = datetime.now() + timedelta(hours=1)
    stop = StopWhen(deadline=local)
    assert reason(stop, now=NOW) is None
    assert reason(stop, now=local.astimezone(timezone(timedelta(hours=9)))) is not None
    assert reason(stop, now=local) is not None
    assert reason(stop, now=local - timedelta(seconds=1)) is None


@pytest.mark.parametrize("stop", [StopWhen(ess=1), StopWhen(rhat=10.0), StopWhen(ess=1, rhat=10.0)])
def test_nothing_is_said_of_few_draws_or_of_none(stop):
    summary = summary_of(normal(2, 1000))
    assert reason(stop, draws=FIRST_LOOK - 1, x=summary) is None
    assert reason(stop, draws=FIRST_LOOK, x=summary) is not None
    assert reason(stop) is None
    assert reason(stop, x=RunningSummary.start(2, (3,))) is None


def test_what_never_changes_does_not_count():
    draws = normal(2, 1000, 2)
    draws[:, :, 0] = 1.0
    stop = StopWhen(ess=400, rhat=1.05)
    assert "x[1]" in reason(stop, x=summary_of(draws), one=summary_of(np.ones((2, 1000))))
    assert reason(stop, one=summary_of(np.ones((2, 1000)))) is None


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["a", "z"])
def test_a_draw_that_is_not_finite_is_never_good_enough(bad, name):
    draws = normal(2, 1000, 2)
    draws[0, 3, 1] = bad
    for stop in (StopWhen(ess=1), StopWhen(rhat=100.0)):
        assert reason(stop, **{name: summary_of(draws), "m": summary_of(normal(2, 1000))}) is None


def test_chains_that_stand_still_in_different_places_are_not_enough():
    stuck = summary_of(np.broadcast_to(np.arange(2.0)[:, None], (2, 1000)))
    assert reason(StopWhen(rhat=2.0), x=stuck) is None
    assert reason(StopWhen(ess=100), x=stuck) is None


def test_looks_are_few_and_the_same_for_every_run():
    stop, looks, draws = StopWhen(ess=400), [], 0
    while (draws := stop.next_look(draws)) <= 10**4:
        looks.append(draws)
    assert looks[:4] == [100, 110, 121, 134]
    assert len(looks) == 48
    for begin in range(0, 2000, 7):  # wherever a run goes on from
        assert stop.next_look(begin) == next(look for look in looks if look > begin)


def test_what_can_never_be_met_is_refused():
    StopWhen(ess=3 * 4 * 1000).check_reachable(4, 1000)
    with pytest.raises(ValueError, match=r"ess must be at most 12,000, three times the 4 x 1000 draws .* got 12001"):
        StopWhen(ess=12001).check_reachable(4, 1000)
    for stop in (StopWhen(ess=1), StopWhen(rhat=1.1)):
        with pytest.raises(ValueError, match="at least 100 draws of each chain, got 99"):
            stop.check_reachable(4, 99)
    StopWhen(seconds=1).check_reachable(1, 1)


def test_chains_that_go_to_and_fro_reach_three_effective_draws_a_draw():
    draws = normal(4, 512)
    for t in range(1, 512):
        draws[:, t] = -0.5 * draws[:, t - 1] + np.sqrt(0.75) * draws[:, t]
    assert summary_of(draws).ess > 2.5 * 4 * 512


def test_only_what_is_asked_of_draws_needs_them():
    assert StopWhen(ess=1).needs_summaries
    assert StopWhen(rhat=1.1, seconds=1).needs_summaries
    assert not StopWhen(seconds=1, deadline=NOW + timedelta(days=1)).needs_summaries


def test_it_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        StopWhen(ess=1).ess = 2
    with pytest.raises(TypeError):
        StopWhen(400)


@pytest.mark.parametrize("name", ["ess", "seconds"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, "400", [400], np.array([1.0, 2.0])])
def test_numbers_above_0(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a finite number above 0, got"):
        StopWhen(**{name: value})


@pytest.mark.parametrize("value", [1, 1.0, 0.9, math.nan, math.inf, True, "1.01", -2])
def test_rhat_above_1(value):
    with pytest.raises(ValueError, match="rhat must be a finite number above 1, got"):
        StopWhen(rhat=value)


@pytest.mark.parametrize("value", ["2030-01-01", 3600, date(2100, 1, 1), timedelta(hours=1), True])
def test_a_deadline_is_a_datetime(value):
    with pytest.raises(TypeError, match="deadline must be a datetime, got"):
        StopWhen(deadline=value)


@pytest.mark.parametrize("value", [NOW - timedelta(seconds=1), datetime(2020, 1, 1)])
def test_a_deadline_lies_in_the_future(value):
    with pytest.raises(ValueError, match="deadline must lie in the future, got"):
        StopWhen(deadline=value)


def test_a_missing_time_is_no_deadline():
    pandas = pytest.importorskip("pandas")
    with pytest.raises((TypeError, ValueError)):
        StopWhen(deadline=pandas.NaT)


def test_nothing_given():
    with pytest.raises(ValueError, match="one of ess, rhat, seconds and deadline must be given"):
        StopWhen()


def test_numbers_of_arrays():
    assert reason(StopWhen(ess=np.float32(400), rhat=np.array(1.05)), x=summary_of(normal(2, 1000))) is not None


class Moved:
    """Chains that only say how far they are."""

    numbers = ()

    def __init__(self, position):
        self.position = position

    def advance(self, num):
        self.position += num
        return []

    def states(self):
        return []

    progress = found = states


def test_draws_are_looked_at_where_all_chains_are_equally_far():
    """A run that goes on with one chain ahead looks where the run that was never stopped looked, and nowhere else."""
    plan, looks = Plan(2, 0, 60, 10), []

    def look(recordings, position):
        looks.append(position)

    for ahead in (0, 30):
        drive([Moved(ahead), Moved(0)], {}, plan, lambda: None, look, lambda *moved: None)
    assert looks == [10, 20, 30, 40, 50, 60, *(30, 40, 50, 60)]
