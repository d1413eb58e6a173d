"""Moves chains from commit to commit until they are done, or asked to stop.

Chains take turns, a commit's worth of draws each, those first that are behind, so that whoever watches the run sees all
of them. Whether they have drawn enough is asked at positions that depend on nothing else. So the sizes of pieces, the
frequency of commits, and interruptions leave no trace in the draws.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from split_common.runs.chain_writer import Background, ChainWriter, Drawn, resume_together
from split_common.runs.packed import Packed
from split_common.runs.plan import LONGEST_WAIT, Plan
from split_common.runs.starting import FOUND, Found
from split_common.runs.store import AFTER_WARMUP, SAMPLING, Form, RunStore
from split_common.runs.summaries import RunningSummary

SECONDS = 0.5  # time for which chains move at once, about: a signal waits so long, or for one draw
SHARE = 0.005  # share of the time that commits may take
MOST_BYTES = 2**24  # bytes of draws of all chains that may wait to be written
SUMMARY = "summary"  # prefix of the names of a summary's arrays among those of a state


class Chains(Protocol):
    """Chains that move together: one, or all of a batch."""

    @property
    def numbers(self) -> Sequence[int]:
        """Numbers of the chains."""
        ...

    @property
    def position(self) -> int:
        """Number of iterations of warm-up and draws that have been made."""
        ...

    @property
    def text(self) -> str:
        """Text for the progress bar."""
        ...

    def go_on(self, packed: Sequence[Packed]) -> None:
        """Set the chains to states, which are at the same position."""
        ...

    def advance(self, num: int) -> list[Drawn]:
        """Move by ``num`` draws, or iterations of warm-up; returns the draws of each chain."""
        ...

    def states(self) -> list[Packed]:
        """The state of each chain."""
        ...

    def found(self) -> list[Found]:
        """What warm-up of each chain found."""
        ...

    def progress(self) -> list[dict[str, Any]]:
        """Further progress of each chain for watchers of the run, in plain values; the number of draws is not in it."""
        ...


class Recording(NamedTuple):
    """The writer and the summaries of a chain.

    Attributes:
        writer: writer of draws and states.
        summaries: summaries of the draws, by variable; empty where none are needed.
    """

    writer: ChainWriter
    summaries: dict[str, RunningSummary]

    @classmethod
    def of(cls, writer: ChainWriter, forms: Mapping[str, Form], packed: Packed | None) -> Recording:
        """The recording of a chain.

        Args:
            writer: writer of the chain.
            forms: shape and type of the variables that are summarised.
            packed: the state from which the chain goes on; None where it begins.
        """
        if packed is not None and has_summaries(packed):
            return cls(writer, summaries_in(packed, forms))
        recording = cls(writer, {name: RunningSummary.start(1, form.shape) for name, form in forms.items()})
        for draws in writer.draws() if forms else ():  # the run was begun without summaries
            recording.add(draws)
        return recording

    def note(self, drawn: Drawn) -> None:
        """Add draws to the summaries."""
        if drawn.phase is SAMPLING:
            self.add(drawn.variables)

    def add(self, draws: Mapping[str, np.ndarray]) -> None:
        """Add draws of each variable, shape (n, ...), to the summaries."""
        for name, summary in self.summaries.items():
            summary.add(0, draws[name])

    def with_summaries(self, packed: Packed) -> Packed:
        """A state together with the summaries."""
        arrays = {
            f"{SUMMARY}/{field}/{name}": x.copy()  # copied, as summaries change while these are written
            for name, summary in self.summaries.items()
            for field, x in summary.arrays().items()
        }
        return packed._replace(arrays={**packed.arrays, **arrays})


def resumed(store: RunStore, groups: Sequence[Chains], forms: Mapping[str, Form]) -> dict[int, Recording]:
    """Recordings of all chains, which go on from what their store holds of them.

    Args:
        store: store of the run.
        groups: groups of chains that move together, at their start.
        forms: shape and type of the variables that are summarised.
    """
    recordings = {}
    for chains in groups:
        writers = [ChainWriter(store, number) for number in chains.numbers]
        packed = resume_together(writers)
        if packed:
            chains.go_on(packed)
            _complete(store, chains, packed)
        for place, (number, writer) in enumerate(zip(chains.numbers, writers, strict=True)):
            recordings[number] = Recording.of(writer, forms, packed[place] if packed else None)
    return recordings


def _complete(store: RunStore, chains: Chains, packed: Sequence[Packed]) -> None:
    """Write what a process that died at the end of warm-up has left out: what warm-up found, and the state there."""
    num_warmup = store.plan.num_warmup
    if not 0 < num_warmup <= chains.position:
        return
    for name, contents in (
        (FOUND, lambda: [found.packed() for found in chains.found()]),
        (AFTER_WARMUP, lambda: packed if chains.position == num_warmup else []),
    ):
        if any(store.get_state(number, name) is None for number in chains.numbers):
            for number, content in zip(chains.numbers, contents(), strict=False):
                store.put_state(number, name, content)


def has_summaries(packed: Packed) -> bool:
    """Whether a chain's state holds summaries."""
    return any(key.startswith(f"{SUMMARY}/") for key in packed.arrays)


def summaries_in(packed: Packed, names: Sequence[str] | Mapping[str, Any]) -> dict[str, RunningSummary]:
    """Summaries of variables in a chain's state."""
    fields = {key.split("/", 2)[1] for key in packed.arrays if key.startswith(f"{SUMMARY}/")}
    return {
        name: RunningSummary.of_arrays({field: packed.arrays[f"{SUMMARY}/{field}/{name}"] for field in fields})
        for name in names
    }


class Pace:
    """Chooses how many draws to make at a time, so that each piece takes about ``SECONDS``."""

    def __init__(self) -> None:
        self._num, self._is_first = 1, True

    def choose(self, most: int) -> int:
        """The number of draws to make now, at most ``most``."""
        return max(1, min(self._num, most))

    def note(self, num: int, seconds: float) -> None:
        """Note how long some draws took; the first piece does not count, since programs are compiled in it."""
        if self._is_first:
            self._is_first = False
            return
        self._num = max(1, min(2 * num, int(num * SECONDS / max(seconds, 1e-6))))


class Commits:
    """Writes draws while the next ones are made, and seldom enough to cost almost no time.

    Chains are committed again when commits of all chains would take less than one two-hundredth of the time since the
    last one, when ``LONGEST_WAIT`` seconds are over, or when ``MOST_BYTES`` wait. They are always committed at the end
    of warm-up, so that the draws of a commit are of one phase.

    Args:
        recordings: recordings of all chains, by number.
        plan: how long the run is.
    """

    def __init__(self, recordings: Mapping[int, Recording], plan: Plan):
        self._recordings, self._plan, self._background = recordings, plan, Background()
        self._pieces: dict[Chains, list[list[Drawn]]] = {}
        self._last: dict[Chains, float] = {}
        self._bytes: dict[Chains, int] = {}  # bytes of the pieces
        self._seconds = 0.0  # seconds that the last commit took

    def take(self, chains: Chains, pieces: list[list[Drawn]]) -> None:
        """Take the draws of chains, and write them if it is time."""
        for piece in pieces:
            for number, drawn in zip(chains.numbers, piece, strict=True):
                self._recordings[number].note(drawn)
                self._bytes[chains] = self._bytes.get(chains, 0) + drawn.num_bytes
        self._pieces.setdefault(chains, []).extend(pieces)
        if chains.position == self._plan.num_warmup or self._is_due(chains):
            self._write(chains)

    def write_all(self, groups: Sequence[Chains]) -> None:
        """Write what is not written yet."""
        for chains in groups:
            if self._pieces.get(chains):
                self._write(chains)

    def close(self) -> None:
        """Wait until everything is written, and end."""
        self._background.close()

    def _is_due(self, chains: Chains) -> bool:
        groups, waited = len(self._pieces), time.monotonic() - self._last.get(chains, -np.inf)
        wait = min(LONGEST_WAIT, groups * self._seconds / SHARE)
        return waited >= wait or self._bytes[chains] >= MOST_BYTES / groups

    def _write(self, chains: Chains) -> None:
        self._last[chains], self._bytes[chains] = time.monotonic(), 0
        pieces, self._pieces[chains] = self._pieces[chains], []
        states, progress = chains.states(), chains.progress()
        found = chains.found() if chains.position == self._plan.num_warmup else [None] * len(states)
        work = []
        for place, number in enumerate(chains.numbers):
            recording, drawn = self._recordings[number], [piece[place] for piece in pieces]
            work.append(
                (recording.writer, drawn, recording.with_summaries(states[place]), progress[place], found[place])
            )
        self._background.do(self._commit, work)

    def _commit(self, work: list[tuple[ChainWriter, list[Drawn], Packed, dict[str, Any], Found | None]]) -> None:
        start = time.monotonic()
        for writer, drawn, packed, progress, found in work:
            writer.commit(drawn, packed, progress, found)
        self._seconds = time.monotonic() - start


def drive(
    groups: Sequence[Chains],
    recordings: Mapping[int, Recording],
    plan: Plan,
    should_stop: Callable[[], str | None],
    has_enough: Callable[[Mapping[int, Recording], int], str | None],
    on_progress: Callable[[Chains, int], None],
) -> str | None:
    """Move chains to the end of the plan.

    Args:
        groups: groups of chains that move together.
        recordings: recordings of all chains, by number.
        plan: how long the run is.
        should_stop: returns the reason to stop at once; None to go on.
        has_enough: from the recordings and the position, where all chains are at the same one, to the reason to stop;
            None to go on.
        on_progress: called with chains that have moved, and by how much.

    Returns:
        The reason why they were stopped; None where all is drawn.
    """
    commits, paces, reason = Commits(recordings, plan), [Pace() for _ in groups], None
    try:
        while reason is None and min(chains.position for chains in groups) < plan.end:
            target = min(plan.next_commit(chains.position) for chains in groups if chains.position < plan.end)
            for chains, pace in zip(groups, paces, strict=True):
                if chains.position < target and (reason := should_stop()) is None:
                    commits.take(chains, _move(chains, pace, target, plan, should_stop, on_progress))
            reason = should_stop()
            if reason is None and len({chains.position for chains in groups}) == 1:
                reason = has_enough(recordings, groups[0].position)
        commits.write_all(groups)
    finally:
        commits.close()
    return None if min(chains.position for chains in groups) == plan.end else reason


def _move(
    chains: Chains,
    pace: Pace,
    target: int,
    plan: Plan,
    should_stop: Callable[[], str | None],
    on_progress: Callable[[Chains, int], None],
) -> list[list[Drawn]]:
    """Move chains to a position, unless asked to stop before; returns the draws of each piece and chain."""
    pieces = []
    while not pieces or (chains.position < target and should_stop() is None):
        start, num = time.monotonic(), pace.choose(target - chains.position)
        pieces.append(chains.advance(num))
        pace.note(num, time.monotonic() - start)
        on_progress(chains, num)
    return pieces
