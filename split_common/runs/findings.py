"""Findings from a bounded look at the draws and statistics in a run's store.

The draws may be more than memory holds. They lie on disk in chunks that are read whole, all coordinates of a variable
together. So a look takes the last chunks, as many as :data:`MOST_FILES` and :data:`MOST_BYTES` allow, and of these
evenly spaced draws of some coordinates. The effective sample size of a part is about a lower bound of that of the
whole.

Limits are those of :mod:`split_common.report`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from split_common.errors import first_line
from split_common.report import LEAST_ESS, MOST_COMPONENTS, MOST_RHAT, Check, Report, evenly, shares
from split_common.runs.reading import Progress, open_store, summary_of
from split_common.runs.store import AFTER_WARMUP, state_in
from split_common.runs.store_path import open_group

MOST_DRAWS = 2000  # draws read of each chain
MOST_CHAINS = 40  # chains read, evenly spaced
MOST_FILES = 10_000  # files read in one look at one kind of numbers: a few seconds
MOST_BYTES = 2**28  # bytes of draws read in one look
BLOCK_BYTES = 2**25  # bytes of draws in memory at once
STATE_BYTES = 2**26  # largest state of a chain that is read for the duration of its warm-up
TRACE_POINTS = 200
MOST_COORDINATES = 8  # coordinates that are reported, the worst


class Coordinate(NamedTuple):
    """Figures of a coordinate; NaN for what cannot be computed, such as R-hat of one chain.

    Attributes:
        name: name of the variable, with the coordinate's indices.
        mean: mean of the draws of all chains.
        sd: standard deviation of these draws.
        ess: bulk effective sample size.
        rhat: R-hat.
    """

    name: str
    mean: float
    sd: float
    ess: float
    rhat: float


class Trace(NamedTuple):
    """Some values of each chain, to be plotted.

    Attributes:
        title: name of the values.
        values: in the order in which they were drawn, shape (chains, n).
    """

    title: str
    values: np.ndarray


class Findings(NamedTuple):
    """Findings from a look at draws and statistics.

    Attributes:
        chains: numbers of the chains that were read.
        statistics: statistics of each of them, by name.
        checks: checks of a report on the statistics.
        coordinates: figures of some coordinates, the worst first.
        seen: description of what was read.
        is_whole: whether every chunk of the draws was read.
        traces: some traces.
        warmup_seconds: duration of each chain's warm-up by the chain's number, where it is known.
        error: why findings are missing; "" where none are.
    """

    chains: tuple[int, ...] = ()
    statistics: Mapping[str, np.ndarray] = {}
    checks: tuple[Check, ...] = ()
    coordinates: tuple[Coordinate, ...] = ()
    seen: str = ""
    is_whole: bool = True
    traces: tuple[Trace, ...] = ()
    warmup_seconds: Mapping[int, float] = {}
    error: str = ""


NOTHING = Findings()


def look(path: str, found: Progress) -> Findings:
    """Look at draws and statistics, as far as the bounds go.

    Args:
        path: path of a run's store.
        found: how far the run is.

    Returns:
        The findings; :data:`NOTHING` before there are draws; an ``error`` where draws cannot be read.
    """
    if not any(chain.get("draws") for chain in found.chains):
        return NOTHING
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # about few draws and numbers that are not finite, which the screen shows
            return _findings(path, found)
    except Exception as error:  # whatever zarr, its codecs and xarray raise of damaged files, and while arrays grow
        return Findings(error=f"draws cannot be read now: {first_line(error)}")


def _findings(path: str, found: Progress) -> Findings:
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
    return Findings(chains, known, checks, tuple(coordinates), seen, is_whole, tuple(traces), warmup)


def _of_statistics(statistics: Any, found: Progress) -> tuple[dict[str, np.ndarray], tuple[Check, ...]]:
    """Statistics by chain and checks of the run, from the last draws and from all divergences within the bounds."""
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


def _lp_trace(statistics: Any) -> Trace:
    step = -(-statistics.sizes["draw"] // TRACE_POINTS)
    return Trace("log density, all draws", statistics["lp"].isel(draw=slice(None, None, step)).values)


class _Sampled(NamedTuple):
    """Some draws of some coordinates.

    Attributes:
        names: names of the coordinates.
        values: the draws, shape (chains, draws, coordinates).
        draws: numbers of the draws.
        seen: description of what was read.
    """

    names: list[str]
    values: np.ndarray
    draws: range
    seen: str

    @classmethod
    def of(cls, draws: Any, chunk: int) -> _Sampled:
        """The draws and coordinates within the bounds, read from a dataset on disk."""
        variables = {str(name): x for name, x in draws.data_vars.items() if x.dtype.kind in "fiub"}
        sizes = {name: math.prod(x.shape[2:]) for name, x in variables.items()}
        numbers = shares(list(sizes.values()), MOST_COMPONENTS)
        looked_at = zip(sizes.items(), numbers, strict=True)
        places = [(name, int(at)) for (name, size), num in looked_at for at in evenly(size, num)]
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

    def trace_of(self, name: str) -> Trace:
        """Trace of a coordinate."""
        which = "all draws" if self.draws.start < self.draws.step else f"the last {self.draws.stop - self.draws.start}"
        return Trace(f"{name}, {which}", self.values[:, :, self.names.index(name)])


def _window(num: int, chunk: int, num_chunks: int, most: int) -> range:
    """Numbers of the draws to read: evenly spaced in the last chunks of ``num`` draws, the last draw among them."""
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


def _of_draws(sampled: _Sampled) -> list[Coordinate]:
    """The worst coordinates of those that change, by ArviZ's figures."""
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
        if len(x) > 1:  # one chain has no R-hat
            rhat[judged] = np.nan_to_num(compare(whole)["x"], nan=np.inf)  # NaN: no chain moves, each at another place
    names = [sampled.names[i] for i in places]
    return _worst(names.__getitem__, *(part[places] for part in (mean, sd, ess, rhat)))


def _of_summaries(summaries: Mapping[str, Any]) -> list[Coordinate]:
    """The worst coordinates of those that change, by running summaries."""
    found = []
    for name, summary in summaries.items():
        figures = [np.ravel(x) for x in (summary.mean, summary.sd, summary.ess, summary.rhat)]
        changing = np.flatnonzero(figures[1] != 0)
        name_of = partial(_named_among, name, changing, np.shape(summary.mean))
        found += _worst(name_of, *(x[changing] for x in figures))
    return sorted(found, key=lambda at: -_trouble(at.mean, at.ess, at.rhat))[:MOST_COORDINATES]


def _worst(name_of: Callable[[int], str], mean: Any, sd: Any, ess: Any, rhat: Any) -> list[Coordinate]:
    """The coordinates that are furthest beyond a limit, or nearest to it."""
    order = np.argsort(-_trouble(mean, ess, rhat), kind="stable")[:MOST_COORDINATES]
    return [Coordinate(name_of(i), *(float(x[i]) for x in (mean, sd, ess, rhat))) for i in order]


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
    """The dataset of a group of ArviZ 0.x or 1.x, with at most ``MOST_CHAINS`` chains."""
    dataset = group.to_dataset() if hasattr(group, "to_dataset") else group
    return dataset.isel(chain=evenly(dataset.sizes["chain"], MOST_CHAINS))


def _named(name: str, at: int, shape: tuple[int, ...]) -> str:
    return f"{name}{list(map(int, np.unravel_index(at, shape))) or ''}"


def _named_among(name: str, places: np.ndarray, shape: tuple[int, ...], i: int) -> str:
    return _named(name, int(places[i]), shape)


def _part(number: int, total: int) -> str:
    return f"all {total}" if number == total else f"{number} of {total}"


def _draws_in_words(draws: range, num: int) -> str:
    """Which draws of a chain were read, in words."""
    length = num - draws.start if draws.start >= draws.step else num
    which = f"all {num} draws" if length == num else f"the last {length} of {num} draws"
    return which if draws.step == 1 else f"one in {draws.step} of {which}"
