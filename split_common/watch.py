"""Looks into a run that is written to a store: ``python -m split_common.watch PATH``.

How far the chains are costs next to nothing to read. What they have drawn may be more than memory holds, so a look at
it is bounded: draws lie on disk in chunks that are read whole, all coordinates of a variable together, and therefore
the last chunks are taken, as many as :data:`MOST_FILES` and :data:`MOST_BYTES` allow, of them draws that are evenly
spaced, and some coordinates. The effective sample size of a part is about a lower bound of that of the whole. The
next look is taken after :data:`REST` times as long as the last one took.

Limits are those of :mod:`split_common.report`. Nothing is written, and nothing that is read is executed.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import rich
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.jupyter import JupyterMixin
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from split_common.checks import check_positive_float
from split_common.errors import StoreError, first_line
from split_common.report import LEAST_ACCEPTANCE, LEAST_ESS, MOST_COMPONENTS, MOST_RHAT, Check, Report
from split_common.runs.reading import Progress, open_store, progress_of, summary_of
from split_common.runs.store import AFTER_WARMUP, checked_path, is_local, open_group, state_in

MOST_DRAWS = 2000  # of a chain that are looked at
MOST_CHAINS = 40  # that are looked at, evenly spaced
MOST_FILES = 10_000  # read in one look at one kind of numbers: a few seconds
MOST_BYTES = 2**28  # of draws, likewise
BLOCK_BYTES = 2**25  # of draws in memory at once
STATE_BYTES = 2**26  # of a chain's state that is read for the time that warm-up took
REST = 10.0
TRACE_POINTS = 200
FAR = 5.0  # R-hat so many times as far from 1 as its limit, 1.1, is trouble in a run that goes on
LATE_COMMITS, LATE_SECONDS = 5.0, 60.0  # nothing written for so many times as long as usual, and for so long at least
ROWS_OF_CHAINS, ROWS_OF_COORDINATES = 12, (5, 8)
LOW_SCREEN, WIDE_SCREEN = 40, 140  # rows; columns from where on coordinates and traces stand side by side
MOST_BAR = 50  # columns
BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
GOOD, POOR, BAD = "green", "yellow", "red"


def snapshot(store: str | os.PathLike[str]) -> Any:
    """How a run stands now, as one screen.

    Args:
        store: path of a run's store, or an address that fsspec knows; of a run that goes on as of one that has ended.

    Returns:
        What ``rich.print`` shows, and a notebook's cell that ends with it: how far each chain is, when it will be done,
        divergences, acceptance, step size and gradients, trouble, the coordinates that are known worst, and traces.

    Raises:
        TypeError: for something that is no path.
        StoreError: for a path of nothing, or of something else.

    Example:
        >>> snapshot("nothing.zarr")
        Traceback (most recent call last):
        ...
        split_common.errors.StoreError: store must be the path of a run's store, got 'nothing.zarr', where nothing is
    """
    path = checked_path(store)
    is_held = _is_held(path)
    found = _progress(path)
    findings = _look(path, found)
    return _Screen(path, found, _life(found, is_held, findings.warmup_seconds), findings)


def watch(store: str | os.PathLike[str], *, refresh: float = 2.0) -> None:
    """Show how a run stands, again and again, until it ends or Ctrl-C is pressed; in a terminal or a notebook's cell.

    Of a run whose process has died it goes on, since the run may be taken up again.

    Args:
        store: path of a run's store, or an address that fsspec knows.
        refresh: seconds from one screen to the next, above 0.

    Raises:
        TypeError: for something that is no path.
        ValueError: for a time out of range; as :class:`~split_common.errors.StoreError` for a path of nothing, or of
            something else.

    Example:
        >>> watch("nothing.zarr", refresh=5.0)
        Traceback (most recent call last):
        ...
        split_common.errors.StoreError: store must be the path of a run's store, got 'nothing.zarr', where nothing is
    """
    path, refresh = checked_path(store), check_positive_float("refresh", refresh)
    _progress(path)
    findings, looked_at, next_look = _NOTHING, None, 0.0
    with contextlib.suppress(KeyboardInterrupt), _display() as show:
        while True:
            is_held = _is_held(path)  # first: what the last process wrote is there once it holds the store no more
            found = _progress(path)
            life = _life(found, is_held, findings.warmup_seconds)
            show(_Screen(path, found, life, findings))
            if found.chains != looked_at and (life.is_over or time.monotonic() >= next_look):
                start = time.monotonic()
                findings = _look(path, found)
                rest = 0.0 if looked_at is None else REST * (time.monotonic() - start)  # the first look imports ArviZ
                looked_at, next_look = found.chains, time.monotonic() + rest
                show(_Screen(path, found, _life(found, is_held, findings.warmup_seconds), findings))
            if life.is_over:
                return
            time.sleep(refresh)


def main(arguments: Sequence[str] | None = None) -> None:
    """Watch a run from a command line.

    Args:
        arguments: of the command; None for those of the process.

    Raises:
        SystemExit: with code 2 and one line, for arguments that are wrong and for a path of no store.

    Example:
        >>> main(["--help"])
        Traceback (most recent call last):
        ...
        SystemExit: 0
    """
    parser = argparse.ArgumentParser(prog="python -m split_common.watch", description="Watch a run with a store.")
    parser.add_argument("path", metavar="PATH", help="the run's store, or an address that fsspec knows")
    parser.add_argument("--refresh", type=float, default=2.0, metavar="SECONDS", help="between screens (default 2)")
    parser.add_argument("--once", action="store_true", help="show one screen, and end")
    given = parser.parse_args(arguments)
    try:
        refresh = check_positive_float("--refresh", given.refresh)
    except ValueError as error:
        parser.error(str(error))
    try:
        if given.once:
            rich.print(snapshot(given.path))
        else:
            watch(given.path, refresh=refresh)
    except (StoreError, OSError, TypeError) as error:
        parser.error(first_line(error))


class _Coordinate(NamedTuple):
    """What is known of a coordinate; NaN for what cannot be computed, such as R-hat of one chain."""

    name: str
    mean: float
    sd: float
    ess: float
    rhat: float


class _Trace(NamedTuple):
    """Values of each chain in the order in which they were drawn, shape (chains, n), and what they are."""

    title: str
    values: np.ndarray


class _Findings(NamedTuple):
    """What a look at draws and statistics has found.

    Attributes:
        chains: numbers of the chains that were looked at.
        statistics: for each of them, by name.
        checks: of a report on the statistics.
        coordinates: the worst first.
        seen: what was looked at, in words.
        is_whole: whether that was every chunk of the draws.
        traces: some.
        warmup_seconds: how long each chain of the run was in warm-up, where that is known, by number.
        error: why there is less than there should be.
    """

    chains: tuple[int, ...] = ()
    statistics: Mapping[str, np.ndarray] = {}
    checks: tuple[Check, ...] = ()
    coordinates: tuple[_Coordinate, ...] = ()
    seen: str = ""
    is_whole: bool = True
    traces: tuple[_Trace, ...] = ()
    warmup_seconds: Mapping[int, float] = {}
    error: str = ""


_NOTHING = _Findings()


class _Life(NamedTuple):
    """What a run is doing, in words, and whether it does no more."""

    state: str
    style: str
    text: str
    is_over: bool = False


def _is_held(path: str) -> bool | None:
    """Whether a process writes to a store; None where that cannot be known. The lock is that of ``store.locked``."""
    if not is_local(path):
        return None
    place = Path(path).absolute()
    try:
        import fcntl

        with open(place.parent / f".{place.name}.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return None
    return False


def _life(found: Progress, is_held: bool | None, warmup_seconds: Mapping[int, float]) -> _Life:
    """What a run is doing."""
    chains, plan, now = found.chains, found.plan, datetime.now(UTC)
    written = max((chain["time"] for chain in chains if "time" in chain), default=None)
    age = max(0.0, (now - datetime.fromisoformat(written or found.started)).total_seconds())
    ago = f"written {_duration(age)} ago" if written else f"begun {_duration(age)} ago"
    if all(chain.get("draws", 0) >= plan.num_draws for chain in chains):
        return _Life("ended", GOOD, f"all {plan.num_draws} draws of each chain, {ago}", is_over=True)
    if found.stopped and not is_held:
        return _Life("stopped", POOR, f"{found.stopped}; {ago}; the same call goes on", is_over=True)
    if is_held is False:
        return _Life("no process writes to it", BAD, f"{ago}; the same call goes on from there")
    paces = _paces(found, warmup_seconds)
    if written is None or not paces:
        return _Life("being set up", POOR, f"nothing has been written yet; {ago}")
    usual, left = max(pace.per_draw for pace in paces) * plan.every, sum(pace.left for pace in paces)
    is_warm = all(chain.get("warmup_draws", 0) >= plan.num_warmup for chain in chains)
    state = "sampling" if is_warm else "warm-up"
    if age > max(LATE_COMMITS * usual, LATE_SECONDS):
        guess = "it goes on only just now, or hangs" if is_held else "its process may have died; the same call goes on"
        late = f"nothing has been written for {_duration(age)} (usually every {_duration(usual)})"
        return _Life(state, POOR if is_held else BAD, f"{late}: {guess}")
    end = (now + timedelta(seconds=left)).astimezone()
    day = "" if end.date() == now.astimezone().date() else f"{end.day} {end:%b} "
    pace = "" if is_warm else ", if draws take as long as warm-up does"
    return _Life(state, "cyan", f"about {_duration(left)} left, until {day}{end:%H:%M}{pace}; {ago}")


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


def _progress(path: str) -> Progress:
    """How far a run is; of a store that is only just being made there may be too little to tell."""
    try:
        return progress_of(path)
    except KeyError as error:
        raise StoreError(
            f"store must be whole, got {path!r}, which is only just being made, or damaged: it does not tell {error}"
        ) from error


def _look(path: str, found: Progress) -> _Findings:
    """Look at draws and statistics, as far as the bounds go."""
    if not any(chain.get("draws") for chain in found.chains):
        return _NOTHING
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # of few draws, and of numbers that are not finite: the screen shows them
            return _findings(path, found)
    except Exception as error:  # whatever zarr, its codecs and xarray raise of damaged files, and while arrays grow
        return _Findings(error=f"draws cannot be read now: {first_line(error)}")


def _findings(path: str, found: Progress) -> _Findings:
    run = open_store(path)
    statistics = _some_chains(run["sample_stats"])
    chains = tuple(map(int, statistics["chain"].values))
    known, checks = _of_statistics(statistics, found)
    traces = [_lp_trace(statistics)] if "lp" in statistics else []
    if found.plan.keep == "summaries":
        summaries: Any = summary_of(path)
        coordinates, is_whole = _of_summaries(summaries), True
        seen = f"all {sum(np.size(x.mean) for x in summaries.values())}, by summaries of all draws"
    else:
        sampled = _Sampled.of(_some_chains(run["posterior"]), found.plan.chunk)
        coordinates, is_whole = _of_draws(sampled), sampled.draws.start < sampled.draws.step
        seen = sampled.seen + (f", {len(chains)} of {len(found.chains)} chains" * (len(chains) < len(found.chains)))
        traces += [sampled.trace_of(worst.name) for worst in coordinates[:1]]
    warmup = {i: seconds for i in range(len(found.chains)) if (seconds := _warmup_seconds(path, i)) is not None}
    return _Findings(chains, known, checks, tuple(coordinates), seen, is_whole, tuple(traces), warmup)


def _of_statistics(statistics: Any, found: Progress) -> tuple[dict[str, np.ndarray], tuple[Check, ...]]:
    """Statistics of each chain, and a report on all: of the last draws, and all divergences that can be read."""
    import xarray

    num, num_chains = statistics.sizes["draw"], statistics.sizes["chain"]
    plain = [name for name, x in statistics.data_vars.items() if x.dims == ("chain", "draw")]
    recent = statistics[plain].isel(draw=slice(max(0, num - MOST_DRAWS), None)).load()
    window = _window(num, found.plan.chunk, MOST_FILES // num_chains, num)
    diverging = statistics["diverging"].isel(draw=slice(window.start, None)).rename(draw="any_draw").load()
    means = {name: recent[name].mean("draw").values for name in ("acceptance_rate", "num_grads") if name in recent}
    known = {"diverging": diverging.sum("any_draw").values, "num": np.full(num_chains, len(window)), **means}
    if "step_size" in recent:
        known["step_size"] = recent["step_size"].isel(draw=-1).values
    draws = xarray.Dataset(coords={"chain": recent["chain"], "draw": recent["draw"]})
    run = {"posterior": draws, "sample_stats": recent.assign(diverging=diverging)}
    return known, Report.of(run, found.about.get("kernel", "")).checks


def _lp_trace(statistics: Any) -> _Trace:
    step = -(-statistics.sizes["draw"] // TRACE_POINTS)
    return _Trace("log density, all draws", statistics["lp"].isel(draw=slice(None, None, step)).values)


class _Sampled(NamedTuple):
    """Some draws of some coordinates.

    Attributes:
        names: of the coordinates.
        values: shape (chains, draws, coordinates).
        draws: their numbers.
        seen: what they are, in words.
    """

    names: list[str]
    values: np.ndarray
    draws: range
    seen: str

    @classmethod
    def of(cls, draws: Any, chunk: int) -> _Sampled:
        """Those that may be looked at of a dataset that is not in memory."""
        variables = {str(name): x for name, x in draws.data_vars.items() if x.dtype.kind in "fiub"}
        sizes = {name: math.prod(x.shape[2:]) for name, x in variables.items()}
        places = [(name, int(at)) for name, size in sizes.items() for at in _evenly(size, MOST_COMPONENTS)]
        places = [places[i] for i in _evenly(len(places), MOST_COMPONENTS)]
        used = {name: [at for other, at in places if other == name] for name in dict.fromkeys(n for n, _ in places)}
        num_chains, num = draws.sizes["chain"], draws.sizes["draw"]
        chunk_bytes = chunk * num_chains * sum(sizes[name] * variables[name].dtype.itemsize for name in used)
        files = MOST_FILES // (num_chains * max(len(used), 1))
        window = _window(num, chunk, min(files, MOST_BYTES // max(chunk_bytes, 1)), MOST_DRAWS)
        columns = [_columns(variables[name], window, at, chunk) for name, at in used.items()]
        names = [_named(name, at, variables[name].shape[2:]) for name, at in places]
        values = np.concatenate(columns, 2) if columns else np.zeros((num_chains, len(window), 0))
        return cls(
            names, values, window, f"{_part(len(names), sum(sizes.values()))}, by {_draws_in_words(window, num)}"
        )

    def trace_of(self, name: str) -> _Trace:
        """Trace of a coordinate."""
        which = "all draws" if self.draws.start < self.draws.step else f"the last {self.draws.stop - self.draws.start}"
        return _Trace(f"{name}, {which}", self.values[:, :, self.names.index(name)])


def _window(num: int, chunk: int, num_chunks: int, most: int) -> range:
    """Draws that are looked at, evenly spaced in the last chunks of ``num`` draws, the last one among them."""
    start = max(0, -(-num // chunk) - max(num_chunks, 1)) * chunk
    step = max(1, -(-(num - start) // most))
    return range(start + (num - 1 - start) % step if num else 0, num, step)


def _columns(variable: Any, draws: range, at: Sequence[int], chunk: int) -> np.ndarray:
    """Some coordinates of a variable, shape (chains, draws, coordinates), read a block at a time."""
    chunk_bytes = chunk * math.prod(variable.shape[2:]) * variable.dtype.itemsize
    chains_at_once = max(1, BLOCK_BYTES // chunk_bytes)
    draws_at_once = max(1, BLOCK_BYTES // (min(chains_at_once, len(variable)) * chunk_bytes)) * chunk
    by_chains = []
    for chain in range(0, len(variable), chains_at_once):
        parts = []
        for start in range(0, len(draws), draws_at_once):
            part = draws[start : start + draws_at_once]
            block = variable[chain : chain + chains_at_once, part.start : part.stop : part.step].values
            parts.append(block.reshape(*block.shape[:2], -1)[:, :, at].astype(float))
        by_chains.append(np.concatenate(parts, 1))
    return np.concatenate(by_chains)


def _of_draws(sampled: _Sampled) -> list[_Coordinate]:
    """The worst coordinates, of those that ever change, by ArviZ."""
    import arviz
    import xarray

    x = sampled.values
    finite = np.isfinite(x).all((0, 1))
    judged = np.flatnonzero(finite & ~np.all(x == x[:1, :1], axis=(0, 1)))
    places = [*np.flatnonzero(~finite), *judged]
    if x.shape[1] < 4 or not places:
        return []
    mean, sd, ess, rhat = np.full((4, x.shape[2]), np.nan)
    if judged.size:
        whole = xarray.Dataset({"x": (("chain", "draw", "at"), x[:, :, judged])})
        compare: Any = arviz.rhat
        mean[judged], sd[judged] = x[:, :, judged].mean((0, 1)), x[:, :, judged].std((0, 1), ddof=1)
        ess[judged] = arviz.ess(whole, method="bulk")["x"]
        if len(x) > 1:  # one chain meets no other
            rhat[judged] = np.nan_to_num(compare(whole)["x"], nan=np.inf)  # no chain ever moves, each elsewhere
    names = [sampled.names[i] for i in places]
    return _worst(names.__getitem__, *(part[places] for part in (mean, sd, ess, rhat)))


def _of_summaries(summaries: Mapping[str, Any]) -> list[_Coordinate]:
    """The worst coordinates, of those that ever change."""
    found = []
    for name, summary in summaries.items():
        figures = [np.ravel(x) for x in (summary.mean, summary.sd, summary.ess, summary.rhat)]
        changing = np.flatnonzero(figures[1] != 0)
        name_of = partial(_named_among, name, changing, np.shape(summary.mean))
        found += _worst(name_of, *(x[changing] for x in figures))
    return sorted(found, key=lambda at: -_trouble(at.mean, at.ess, at.rhat))[: max(ROWS_OF_COORDINATES)]


def _worst(name_of: Callable[[int], str], mean: Any, sd: Any, ess: Any, rhat: Any) -> list[_Coordinate]:
    """The coordinates that are furthest beyond a limit, or nearest to it."""
    order = np.argsort(-_trouble(mean, ess, rhat), kind="stable")[: max(ROWS_OF_COORDINATES)]
    return [_Coordinate(name_of(i), *(float(x[i]) for x in (mean, sd, ess, rhat))) for i in order]


def _trouble(mean: Any, ess: Any, rhat: Any) -> Any:
    """How bad coordinates are: 1 at a limit, infinite for what is not finite."""
    with np.errstate(all="ignore"):
        beyond = np.fmax((rhat - 1) / (MOST_RHAT - 1), np.divide(LEAST_ESS, ess))
    return np.where(np.isfinite(mean), np.nan_to_num(beyond, posinf=np.finfo(float).max), np.inf)


def _warmup_seconds(path: str, chain: int) -> float | None:
    """How long a chain was in warm-up, by its state at the end of it; None where that is not known."""
    group, name = open_group(path), f"chains/{chain}/{AFTER_WARMUP}"
    if name not in group or group[name].nbytes > STATE_BYTES:
        return None
    packed = state_in(group, chain, AFTER_WARMUP)
    return None if packed is None else packed.values.get("seconds")


def _some_chains(group: Any) -> Any:
    """The dataset of a group of ArviZ 0.x or 1.x, with so many chains as may be looked at."""
    dataset = group.to_dataset() if hasattr(group, "to_dataset") else group
    return dataset.isel(chain=_evenly(dataset.sizes["chain"], MOST_CHAINS))


def _evenly(number: int, most: int) -> np.ndarray:
    """Some of so many places, or all of them."""
    return np.linspace(0, number - 1, min(number, most)).round().astype(int)


def _named(name: str, at: int, shape: tuple[int, ...]) -> str:
    return f"{name}{list(map(int, np.unravel_index(at, shape))) or ''}"


def _named_among(name: str, places: np.ndarray, shape: tuple[int, ...], i: int) -> str:
    return _named(name, int(places[i]), shape)


def _part(number: int, total: int) -> str:
    return f"all {total}" if number == total else f"{number} of {total}"


def _draws_in_words(draws: range, num: int) -> str:
    """Which draws of a chain were looked at."""
    length = num - draws.start if draws.start >= draws.step else num
    which = f"all {num} draws" if length == num else f"the last {length} of {num} draws"
    return which if draws.step == 1 else f"one in {draws.step} of {which}"


def _duration(seconds: float) -> str:
    """A time in words, to two digits or so.

    Seconds below two minutes, minutes below two hours, hours below two days.
    """
    for unit, size, limit in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if seconds < limit * size:
            number = seconds / size
            return f"{number:.1f} {unit}" if number < 1 and unit == "s" else f"{number:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"


@dataclass(frozen=True)
class _Screen(JupyterMixin):
    """All that is known of a run, for a console of any width."""

    path: str
    found: Progress
    life: _Life
    findings: _Findings

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """What rich shows."""
        is_low = console.is_terminal and options.size.height < LOW_SCREEN
        sections = [
            [self._state],
            [self._chains, *self._more_chains],
            list(self._checks),
            *_side_by_side(
                list(self._coordinates(ROWS_OF_COORDINATES[not is_low])),
                list(self._traces),
                options.max_width >= WIDE_SCREEN,
            ),
        ]
        gap = [] if is_low else [Text("")]
        parts = [part for section in sections if section for part in (*gap, *section)][len(gap) :]
        plan, kernel = self.found.plan, self.found.about.get("kernel", "run")
        chains = f"{plan.num_chains} chain{'s' * (plan.num_chains > 1)} of {plan.num_draws} draws"
        title = Text(f"{kernel}: {chains} after {plan.num_warmup} of warm-up", "bold")
        yield Panel(Group(*parts), title=title, title_align="left", subtitle=Text(self.path), subtitle_align="right")

    @property
    def _state(self) -> Text:
        return Text.assemble((self.life.state, f"bold {self.life.style}"), f": {self.life.text}")

    @property
    def _chains(self) -> Table:
        """A row for each chain."""
        table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
        table.add_column("chain", justify="right")
        table.add_column("", min_width=8, max_width=MOST_BAR)
        for head in ("", "diverging", "accepted", "step size", "grads/draw"):
            table.add_column(head, justify="right", no_wrap=True)
        for i, chain in enumerate(self.found.chains[:ROWS_OF_CHAINS]):
            table.add_row(str(i), *_bar(chain, self.found.plan), *self._statistics_of(i))
        return table

    def _statistics_of(self, chain: int) -> list[Text]:
        """Divergences, acceptance, step size and gradients for a draw."""
        chains, of = self.findings.chains, self.findings.statistics
        if chain not in chains:
            return [Text("–", "dim")] * 4
        at = chains.index(chain)
        number, total = int(of["diverging"][at]), max(int(of["num"][at]), 1)
        share = f" ({number / total:.1%})" if number else ""
        cells = [Text(f"{number}{share}", BAD if number else GOOD)]
        accepted = float(of["acceptance_rate"][at]) if "acceptance_rate" in of else math.nan
        cells.append(Text(f"{accepted:.2f}", BAD if accepted < LEAST_ACCEPTANCE else GOOD))
        return cells + [Text(f"{of[x][at]:.3g}") if x in of else Text("–", "dim") for x in ("step_size", "num_grads")]

    @property
    def _more_chains(self) -> Iterator[Text]:
        others = [chain.get("draws", 0) for chain in self.found.chains[ROWS_OF_CHAINS:]]
        if others:
            yield Text(f"and {len(others)} more chains, of {min(others)} to {max(others)} draws", "dim")

    @property
    def _checks(self) -> Iterator[Text]:
        """Trouble, each with what to do, and what is fine."""
        if self.findings.error:
            yield Text(self.findings.error, BAD)
        for check in self.findings.checks:
            if not check.is_fine:
                yield Text.assemble((f"{check.seen}. ", BAD), check.advice)
        fine = [f"{check.name} {check.value:.2g}" for check in self.findings.checks if check.is_fine]
        if fine:
            yield Text.assemble(("fine: ", GOOD), ", ".join(fine))

    def _coordinates(self, num: int) -> Iterator[Any]:
        """The worst coordinates."""
        if not self.findings.seen:
            return
        yield Text.assemble(("The worst coordinates", "bold"), (f" of {self.findings.seen}", "dim"))
        if not self.findings.coordinates:
            yield Text("too few draws, or none that changes", "dim")
            return
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for head in ("", "mean", "sd", "effective draws", "R-hat"):
            table.add_column(head, justify="right" if head else "left", overflow="ellipsis", no_wrap=True)
        for at in self.findings.coordinates[:num]:
            name = Text(at.name, "" if math.isfinite(at.mean) else BAD)
            table.add_row(name, *_mean_and_sd(at.mean, at.sd), self._ess(at.ess), self._rhat(at.rhat))
        yield table

    def _ess(self, ess: float) -> Text:
        """Red where it will stay below its limit; the run, or the part that was not looked at, may add to it."""
        poor = BAD if self.life.is_over and self.findings.is_whole else POOR
        return _number(ess, GOOD if ess >= LEAST_ESS else poor, ".0f")

    def _rhat(self, rhat: float) -> Text:
        is_far = self.life.is_over or rhat - 1 > FAR * (MOST_RHAT - 1)
        form = ".3f" if rhat < 100 else ".0e"
        return _number(rhat, GOOD if rhat <= MOST_RHAT else BAD if is_far else POOR, form)

    @property
    def _traces(self) -> Iterator[Table]:
        """Traces beside each other, a row for each chain."""
        if not self.findings.traces:
            return
        table = Table(box=None, expand=True, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("chain", justify="right")
        for trace in self.findings.traces:
            table.add_column(Text(trace.title), ratio=1, no_wrap=True, overflow="ellipsis", header_style="bold")
        for row, chain in enumerate(self.findings.chains[:ROWS_OF_CHAINS]):
            table.add_row(str(chain), *(_Sparkline(trace.values, row) for trace in self.findings.traces))
        yield table


def _side_by_side(left: list[Any], right: list[Any], is_wide: bool) -> list[list[Any]]:
    """Two sections, or one with both of them."""
    if not (is_wide and left and right):
        return [left, right]
    grid = Table.grid(expand=True, padding=(0, 4, 0, 0))
    grid.add_column()
    grid.add_column(ratio=1)
    grid.add_row(Group(*left), Group(*right))
    return [[grid]]


class _Sparkline(NamedTuple):
    """A trace of one chain on the scale of all of them, as wide as there is room."""

    values: np.ndarray
    row: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Means of as many parts as there are columns; a space where something is not finite."""
        blocks = ASCII_BLOCKS if options.ascii_only else BLOCKS
        finite = self.values[np.isfinite(self.values)]
        if not finite.size:
            yield Text("not finite", BAD)
            return
        low, high = np.quantile(finite, (0.01, 0.99))
        parts = np.array_split(self.values[self.row], min(options.max_width, self.values.shape[1]))
        heights = (np.array([part.mean() for part in parts]) - low) / (high - low or 1.0) * len(blocks)
        places = [int(np.clip(x, 0, len(blocks) - 1)) if np.isfinite(x) else None for x in heights]
        yield Text("".join(" " if place is None else blocks[place] for place in places), "cyan")


def _bar(chain: Mapping[str, Any], plan: Any) -> tuple[ProgressBar, Text]:
    """Bar and numbers of the phase that a chain is in."""
    draws, warmup = chain.get("draws", 0), chain.get("warmup_draws", 0)
    if not draws and warmup < plan.num_warmup:
        bar = ProgressBar(plan.num_warmup, warmup, complete_style=POOR, finished_style=POOR)
        return bar, Text(f"warm-up {warmup}/{plan.num_warmup}")
    return ProgressBar(plan.num_draws, draws, complete_style="cyan"), Text(f"{draws}/{plan.num_draws}")


def _mean_and_sd(mean: float, sd: float) -> tuple[Text, Text]:
    """Both to as many digits as the standard deviation gives a meaning."""
    if not math.isfinite(mean):
        return Text("not finite", BAD), _number(math.nan)
    form = f".{max(0, 1 - math.floor(math.log10(sd)))}f" if 1e-4 < sd < 1e6 else ".3g"
    return _number(mean, form=form), _number(sd, form=form)


def _number(x: float, style: str = "", form: str = ".3g") -> Text:
    """A number; a dash for one that is not known, infinity by its sign."""
    return Text("–", "dim") if math.isnan(x) else Text("∞" if math.isinf(x) else f"{x:{form}}", style)


@contextlib.contextmanager
def _display() -> Iterator[Callable[[Any], Any]]:
    """Shows one screen in the place of the one before; what shows it."""
    console = rich.get_console()
    if console.is_jupyter:  # without ipywidgets, which rich's Live needs there
        from IPython.display import DisplayHandle

        handle = DisplayHandle()
        handle.display(Text(""))
        yield handle.update
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda screen: live.update(screen, refresh=True)


if __name__ == "__main__":
    main(sys.argv[1:])
