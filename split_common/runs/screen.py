"""The screen of a run: how far its chains are, what is wrong with it, its worst coordinates, and traces."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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

from split_common.report import LEAST_ACCEPTANCE, LEAST_ESS, MOST_RHAT
from split_common.runs.findings import MOST_COORDINATES, Findings
from split_common.runs.life import BAD, GOOD, POOR, Life
from split_common.runs.reading import Progress

FAR = 5.0  # R-hat so many times as far from 1 as its limit is shown as bad while a run goes on
ROWS_OF_CHAINS, ROWS_OF_COORDINATES = 12, (5, MOST_COORDINATES)
LOW_SCREEN, WIDE_SCREEN = 40, 140  # rows below which a screen is low; columns from which tables stand side by side
MOST_BAR = 50  # columns of a progress bar at most
BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*%#"


@dataclass(frozen=True)
class Screen(JupyterMixin):
    """All that is known of a run, for a console of any width.

    Attributes:
        path: path of its store.
        found: progress of the run.
        life: state of the run.
        findings: findings of the last look at its draws.
    """

    path: str
    found: Progress
    life: Life
    findings: Findings

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The panel that rich shows."""
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
        """Checks that fail, each with advice, then those that are fine."""
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
        """Effective draws, red only where they stay below the limit: drawing or reading more can still raise them."""
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
    """Mean and standard deviation, to as many digits as the latter makes meaningful."""
    if not math.isfinite(mean):
        return Text("not finite", BAD), _number(math.nan)
    form = f".{max(0, 1 - math.floor(math.log10(sd)))}f" if 1e-4 < sd < 1e6 else ".3g"
    return _number(mean, form=form), _number(sd, form=form)


def _number(x: float, style: str = "", form: str = ".3g") -> Text:
    """A number; a dash for one that is not known, the sign ∞ for infinity."""
    return Text("–", "dim") if math.isnan(x) else Text("∞" if math.isinf(x) else f"{x:{form}}", style)


@contextlib.contextmanager
def display() -> Iterator[Callable[[Any], Any]]:
    """Context for showing each screen in place of the last one, in a terminal or in a notebook's cell.

    Yields:
        A function that shows a screen.
    """
    console = rich.get_console()
    if console.is_jupyter:  # without ipywidgets, which rich's Live needs there
        from IPython.display import DisplayHandle

        handle = DisplayHandle()
        handle.display(Text(""))
        yield handle.update
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda screen: live.update(screen, refresh=True)
