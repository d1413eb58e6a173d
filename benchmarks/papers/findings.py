"""What a rerun of a paper's table or figure has found, and the one status that follows from it.

A status is not chosen but follows: an item without results is not run, one whose data are others' is on a stand-in, one
that differs for a known reason is contradicted, one below the published size is at a fraction of it; what remains is
reproduced, and then every comparison has to agree.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

RESULTS = Path(__file__).parents[1] / "results"
REPRODUCED, CONTRADICTED, FRACTION = "reproduced", "contradicted", "at a fraction of the size"
STAND_IN, CLOSED, NOT_RUN = "on a stand-in", "closed or unobtainable", "not run"
STATUSES = (REPRODUCED, CONTRADICTED, FRACTION, STAND_IN, CLOSED, NOT_RUN)


class Comparison(NamedTuple):
    """A number or an ordering of the paper's, and ours.

    Attributes:
        what: is compared.
        paper: its number or claim.
        ours: ours, with its error.
        agrees: whether they do; None where only the reader can tell, or where the paper has no number.
    """

    what: str
    paper: str
    ours: str
    agrees: bool | None = None


class Finding(NamedTuple):
    """What was found of an item.

    Attributes:
        comparisons: paper and ours, side by side.
        size: what was run, of what was published.
        runs: that it rests on, for seed, machine and time.
        sentence: where they differ, and why.
        is_full: whether all of it has the published size.
        stand_in: what takes the place of data that cannot be had.
        contradicted: why the paper's figure does not hold, whatever the size.
        command: that was run.
    """

    comparisons: Sequence[Comparison]
    size: str
    runs: Sequence[Run]
    sentence: str
    is_full: bool = False
    stand_in: str | None = None
    contradicted: str | None = None
    command: str = ""


class Item(NamedTuple):
    """A table, figure or stated result of a paper.

    Attributes:
        key: short name, of the letter of the paper and the number there.
        title: what it is.
        reports: what the paper reports.
        find: what was found; None, or an error of a missing file, where nothing was run.
        draw: draws a figure on one or several axes; None where there is none.
        closed: why it cannot be had at all.
    """

    key: str
    title: str
    reports: str
    find: Callable[[], Finding] | None = None
    draw: Callable[[Any], None] | None = None
    closed: str | None = None

    @property
    def figure(self) -> str:
        """Name of its figure's file."""
        return "results_" + "".join(c if c.isalnum() else "_" for c in self.key.lower().replace("′", "_draft")) + ".svg"

    def found(self) -> Finding | None:
        """What was found, or None where it has not been run."""
        try:
            return self.find() if self.find else None
        except FileNotFoundError:
            return None


class Run:
    """A file of results.

    Args:
        name: of the file in ``benchmarks/results``.

    Raises:
        FileNotFoundError: where it is not there.
    """

    def __init__(self, name: str):
        found = json.loads((RESULTS / f"{name}.json").read_text())
        self.name, self.settings, self.results = name, found["settings"], found["results"]
        self.machine = found["machine"]

    @cached_property
    def seconds(self) -> float:
        """All seconds that the file tells of."""
        return _seconds(self.results)

    @property
    def about(self) -> str:
        """Machine, seed and time."""
        cores = f"{self.machine['cores']} cores, {self.machine['processor']}"
        time = f"{self.seconds / 60:.0f} min" if self.seconds >= 90 else f"{self.seconds:.0f} s"
        took = f", {time}" if self.seconds else ""
        return f"`{self.name}.json`: {cores}, seed {self.settings.get('seed', 0)}{took}"


def status_of(item: Item) -> tuple[str, Finding | None]:
    """The item's status, and what was found.

    Raises:
        ValueError: for an item of the published size that disagrees without a reason.
    """
    if item.closed is not None:
        return CLOSED, None
    found = item.found()
    if found is None:
        return NOT_RUN, None
    if found.stand_in is not None:
        return STAND_IN, found
    if found.contradicted is not None:
        return CONTRADICTED, found
    if not found.is_full:
        return FRACTION, found
    if any(comparison.agrees is False for comparison in found.comparisons):
        raise ValueError(
            f"item {item.key} disagrees at the published size: its finding must say why it is contradicted"
        )
    return REPRODUCED, found


def number(value: float, error: float | None = None, digits: int = 3) -> str:
    """A number with its error, rounded to two digits of the error."""
    if error is None or not np.isfinite(error) or error == 0:
        return f"{value:.{digits}g}"
    places = max(1 - int(np.floor(np.log10(error))), 0)
    return f"{value:.{places}f} ± {error:.{places}f}"


def share_error(percent: float, count: int) -> float:
    """Standard error of a share in %, of independent cases."""
    return float(np.sqrt(max(percent * (100 - percent), 0.0) / count))


def mean_error(values: Sequence[float] | np.ndarray) -> tuple[float, float | None]:
    """Mean and its standard error; no error of one value, nor where some are infinite."""
    x = np.asarray(values, float)
    has_error = len(x) > 1 and bool(np.isfinite(x).all())
    return float(x.mean()), float(x.std(ddof=1) / np.sqrt(len(x))) if has_error else None


def close(ours: float, error: float | None, paper: float, paper_error: float = 0.0) -> bool:
    """Whether two numbers are within two standard errors of their difference."""
    return abs(ours - paper) <= 2 * float(np.hypot(error or 0.0, paper_error))


def order(values: Mapping[str, Sequence[float]], larger: str, smaller: str) -> Comparison:
    """Whether one arm has more than another, in units of the standard error of the difference of their means.

    Agreement needs two standard errors; a difference within them is left open, one the other way is a disagreement.
    """
    (a, error_a), (b, error_b) = (mean_error(values[name]) for name in (larger, smaller))
    error = float(np.hypot(error_a or 0.0, error_b or 0.0))
    z = (a - b) / error if error else 0.0  # of one chain each there is no error to tell by
    agrees = True if z > 2 else False if z < -2 else None
    return Comparison(f"{larger} above {smaller}", "yes", f"difference {number(a - b, error)}", agrees)


def _seconds(found: Any) -> float:
    if isinstance(found, Mapping):
        own = found.get("seconds")
        if isinstance(own, int | float):
            return float(own)
        return sum(_seconds(value) for value in found.values())
    if isinstance(found, list):
        return sum(_seconds(value) for value in found if isinstance(value, Mapping | list))
    return 0.0
