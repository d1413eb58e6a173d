"""The state of a run: whether it goes on, by its store's lock and its last commit, and when it will end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from split_common.errors import StoreError
from split_common.runs.plan import LONGEST_WAIT
from split_common.runs.reading import Progress, progress_of

LATE_COMMITS, LATE_SECONDS = 5.0, 60.0  # a commit is late after so many times the usual wait, and at least so long
GOOD, POOR, BAD = "green", "yellow", "red"


def checked_progress(path: str) -> Progress:
    """How far a run is, or an error where its store is only just being made.

    Args:
        path: path of a run's store.

    Raises:
        StoreError: where there is nothing at the path, or no store, or a store that is not complete yet.
    """
    try:
        return progress_of(path)
    except KeyError as error:
        raise StoreError(
            f"store must be complete, got {path!r}, which is still being created, or damaged: it has no {error}"
        ) from error


class Life(NamedTuple):
    """The state of a run.

    Attributes:
        state: the state in a word or two.
        style: its colour, as rich names it.
        text: the state in full: since when, or until when.
        is_over: whether the run has ended or stopped.
    """

    state: str
    style: str
    text: str
    is_over: bool = False


def life_of(found: Progress, is_held: bool | None, warmup_seconds: Mapping[int, float]) -> Life:
    """The state of a run.

    Args:
        found: how far it is.
        is_held: whether a process writes to its store; None where that cannot be known.
        warmup_seconds: duration of each chain's warm-up by the chain's number, where it is known.
    """
    chains, plan, now = found.chains, found.plan, datetime.now(UTC)
    written = max((chain["time"] for chain in chains if "time" in chain), default=None)
    age = max(0.0, (now - datetime.fromisoformat(written or found.started)).total_seconds())
    ago = f"written {_duration(age)} ago" if written else f"begun {_duration(age)} ago"
    if all(chain.get("draws", 0) >= plan.num_draws for chain in chains):
        return Life("ended", GOOD, f"all {plan.num_draws} draws of each chain, {ago}", is_over=True)
    if found.stopped and not is_held:
        return Life("stopped", POOR, f"{found.stopped}; {ago}; the same call goes on", is_over=True)
    if is_held is False:
        return Life("no process writes to it", BAD, f"{ago}; the same call goes on from there")
    paces = _paces(found, warmup_seconds)
    if written is None or not paces:
        return Life("being set up", POOR, f"nothing has been written yet; {ago}")
    usual = max(LONGEST_WAIT, max(pace.per_draw for pace in paces) * plan.every)
    left = sum(pace.left for pace in paces)
    is_warm = all(chain.get("warmup_draws", 0) >= plan.num_warmup for chain in chains)
    state = "sampling" if is_warm else "warm-up"
    if age > max(LATE_COMMITS * usual, LATE_SECONDS):
        guess = "it goes on only just now, or hangs" if is_held else "its process may have died; the same call goes on"
        late = f"nothing has been written for {_duration(age)} (usually every {_duration(usual)})"
        return Life(state, POOR if is_held else BAD, f"{late}: {guess}")
    end = (now + timedelta(seconds=left)).astimezone()
    day = "" if end.date() == now.astimezone().date() else f"{end.day} {end:%b} "
    pace = "" if is_warm else ", if draws take as long as warm-up does"
    return Life(state, "cyan", f"about {_duration(left)} left, until {day}{end:%H:%M}{pace}; {ago}")


class _Pace(NamedTuple):
    """Seconds for a draw of chains that move together, and seconds that are left to them."""

    per_draw: float
    left: float


def _paces(found: Progress, warmup_seconds: Mapping[int, float]) -> list[_Pace]:
    """Paces of chains that take turns. Chains that move together have spent the same time, to the last digit."""
    plan, paces = found.plan, []
    together = {chain["seconds"]: i for i, chain in enumerate(found.chains) if "seconds" in chain}
    for seconds, i in together.items():
        warmup, draws = found.chains[i]["warmup_draws"], found.chains[i]["draws"]
        knows_draws = draws > 0 and i in warmup_seconds
        spent, num = (seconds - warmup_seconds[i], draws) if knows_draws else (seconds, warmup + draws)
        paces.append(_Pace(spent / max(num, 1), spent / max(num, 1) * (plan.end - warmup - draws)))
    if not paces:
        return []
    waiting = sum("seconds" not in chain for chain in found.chains)
    mean = sum(pace.per_draw for pace in paces) / len(paces)
    return [*paces, *[_Pace(mean, mean * plan.end)] * waiting]


def _duration(seconds: float) -> str:
    """A duration in words, to about two digits.

    Seconds below two minutes, minutes below two hours, hours below two days.
    """
    for unit, size, limit in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if seconds < limit * size:
            number = seconds / size
            return f"{number:.1f} {unit}" if number < 1 and unit == "s" else f"{number:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"
