"""Progress of the two halves, sent by their processes and shown by one display."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from demo.settings import MODELS, SAMPLERS

SECONDS_BETWEEN_UPDATES = 0.2
NUM_RUNS = len(MODELS) * len(SAMPLERS)


@dataclass(frozen=True)
class Update:
    """Where one framework stands.

    Attributes:
        framework: "NumPyro" or "Pyro".
        title: what it is running.
        done: iterations done in this run.
        total: iterations of this run, both chains together.
        detail: phase and what the sampler says of itself.
        finished: a line to keep once the run is over, else None.
    """

    framework: str
    title: str
    done: int
    total: int
    detail: str
    finished: str | None = None


class Reporter:
    """Sends updates of one framework's runs to a queue.

    Attributes:
        phase: "warm-up" or "sampling", shown with each update.
    """

    def __init__(self, framework: str, queue: Any):
        self._framework, self._queue = framework, queue
        self._number, self._title, self._done, self._total = 0, "", 0, 0
        self._sent = self._started = 0.0
        self.phase = "warm-up"

    def start(self, model: str, sampler: str, total: int, detail: str) -> None:
        """A run begins, with something to do ahead of its first iteration."""
        self._number += 1
        self._title, self._done, self._total = f"{self._number}/{NUM_RUNS} {model}, {sampler}", 0, total
        self._started = time.perf_counter()
        self._send(detail)

    def advance(self, text: str) -> str:
        """One iteration is done; returns ``text``."""
        self._done += 1
        if time.perf_counter() - self._sent > SECONDS_BETWEEN_UPDATES:
            self._send(f"{self.phase}: {text}")
        return text

    def finish(self, acceptance: float) -> None:
        """The run is over."""
        seconds = time.perf_counter() - self._started
        self._done = self._total
        self._send("", f"{self._framework:8} {self._title:26} acceptance {acceptance:.2f}   {seconds:5.1f} s in all")

    def _send(self, detail: str, finished: str | None = None) -> None:
        self._sent = time.perf_counter()
        self._queue.put(Update(self._framework, self._title, self._done, self._total, detail, finished))


class Display:
    """A bar for each framework, and a line for each finished run above them."""

    def __init__(self, progress: Progress):
        self._progress, self._tasks = progress, {}

    def show(self, update: Update) -> None:
        """Bring a framework's bar up to date."""
        if update.framework not in self._tasks:
            self._tasks[update.framework] = self._progress.add_task(update.framework, total=1, title="", detail="")
        self._progress.update(
            self._tasks[update.framework],
            completed=update.done,
            total=update.total,
            title=update.title,
            detail=update.detail,
        )
        if update.finished:
            self._progress.console.print(update.finished, highlight=False)


@contextmanager
def display(console: Console) -> Iterator[Display]:
    """Show progress until the block ends."""
    columns = (
        TextColumn("[bold]{task.description:8}"),
        TextColumn("{task.fields[title]:26}"),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[detail]}"),
    )
    with Progress(*columns, console=console) as progress:
        yield Display(progress)
