"""Writing of chains' draws to a store, a piece at a time; finding of the states from which chains go on."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from split_common.runs.packed import Packed
from split_common.runs.starting import FOUND, Found
from split_common.runs.store import AFTER_WARMUP, SAMPLING, SLOTS, WARMUP, Phase, RunStore, digest_of, now
from split_common.runs.store_path import explained

Content = dict[str, dict[str, np.ndarray]]

NO_DIGESTS = np.zeros((0, 4), np.uint32)


class Counts(NamedTuple):
    """Numbers of iterations and draws of a chain that belong to a state.

    Attributes:
        warmup: iterations of warm-up.
        draws: draws.
    """

    warmup: int
    draws: int

    def of(self, phase: Phase) -> int:
        """The number for a phase."""
        return self.warmup if phase is WARMUP else self.draws


class Drawn(NamedTuple):
    """Draws of one chain in a piece of a phase.

    Attributes:
        phase: phase of the run.
        num: number of draws, or of iterations of warm-up.
        variables: draws by variable, shape (n, ...).
        statistics: statistics by name, shape (n,).
    """

    phase: Phase
    num: int
    variables: dict[str, np.ndarray]
    statistics: dict[str, np.ndarray]

    @property
    def num_bytes(self) -> int:
        """Bytes of all numbers."""
        return sum(x.nbytes for tree in (self.variables, self.statistics) for x in tree.values())

    @classmethod
    def joined(cls, pieces: Sequence[Drawn]) -> Drawn:
        """Pieces of one phase, concatenated."""
        if len(pieces) == 1:
            return pieces[0]
        variables, statistics = (
            {name: np.concatenate([tree[name] for tree in trees]) for name in trees[0]}
            for trees in ([piece.variables for piece in pieces], [piece.statistics for piece in pieces])
        )
        return cls(pieces[0].phase, sum(piece.num for piece in pieces), variables, statistics)


class ChainWriter:
    """Writer of one chain: collects what is drawn, and commits it together with the chain's state.

    Args:
        store: store of the run.
        chain: number of the chain.
    """

    def __init__(self, store: RunStore, chain: int):
        self._store, self._chain = store, chain
        self._phases = store.phases
        self._counts, self._written = Counts(0, 0), Counts(0, 0)
        self._open: dict[Phase, Content] = {}  # content of the chunk that is not full yet
        self._digests: dict[Phase, np.ndarray] = {}
        self._slot = 0

    def whole_states(self) -> dict[int, tuple[str, Packed]]:
        """States that are whole, with all their draws, by position: the name of their place, and their content."""
        found = [(name, self._store.get_state(self._chain, name)) for name in (AFTER_WARMUP, *SLOTS)]
        return {
            sum(_counts_of(packed)): (name, packed)
            for name, packed in found
            if packed is not None and self._is_whole(packed)
        }

    def begin_at(self, name: str, packed: Packed) -> None:
        """Go on from one of :meth:`whole_states`, and update the chain's progress in the store."""
        self._counts = self._written = _counts_of(packed)
        self._store.note(self._chain, draws=self._counts.draws, warmup_draws=self._counts.warmup)
        for phase in self._phases:
            num = self._counts.of(phase)
            self._digests[phase] = packed.arrays[_digests_of(phase)]
            self._open[phase] = self._read(phase, num, num // self._store.plan.chunk)
        self._slot = 1 if name == SLOTS[0] else 0

    def draws(self) -> Iterator[dict[str, np.ndarray]]:
        """The draws from which the chain goes on, by variable, a chunk at a time."""
        num, chunk = self._counts.draws, self._store.plan.chunk
        for k in range(-(-num // chunk)):
            yield self._read(SAMPLING, num, k)[SAMPLING.draws]

    def warn_of_damage(self, position: int) -> None:
        """Warn where the chain's progress in the store is beyond what is whole, or is missing.

        Args:
            position: position of the newest state that is whole with all its draws; 0 for none.
        """
        noted = self._store.noted(self._chain)
        if noted is None or noted.get("warmup_draws", 0) + noted.get("draws", 0) > position:
            num_warmup = self._store.plan.num_warmup
            place = f"iteration {position} of warm-up" if position <= num_warmup else f"draw {position - num_warmup}"
            warnings.warn(
                f"store {self._store.path!r} is damaged: chain {self._chain} is complete up to {place}; the run "
                "goes on from there, and comes to the same draws",
                stacklevel=4,
            )

    def commit(self, drawn: Sequence[Drawn], packed: Packed, progress: Mapping[str, Any], found: Found | None) -> None:
        """Write draws, then the state that belongs to them.

        Args:
            drawn: draws since the last commit, in pieces of one phase.
            packed: the chain's state after them.
            progress: further values of the chain's progress, for those who watch the run.
            found: what warm-up has found, where the state is the one at its end; else None.
        """
        chain, store = self._chain, self._store
        self._collect(Drawn.joined(drawn))
        with explained(store.path, f"draw {self._counts.draws} of chain {chain}"):
            digests = {_digests_of(phase): self._write(phase) for phase in self._phases}
            whole = Packed({**packed.values, "counts": list(self._counts)}, {**packed.arrays, **digests})
            store.put_state(chain, SLOTS[self._slot], whole)
            if found is not None:
                store.put_state(chain, AFTER_WARMUP, whole)
                store.put_state(chain, FOUND, found.packed())
            self._slot = 1 - self._slot
            store.note(chain, draws=self._counts.draws, warmup_draws=self._counts.warmup, time=now(), **progress)
        self._written = self._counts

    def _collect(self, drawn: Drawn) -> None:
        """Collect draws that are to be written."""
        phase, num = drawn.phase, drawn.num
        if phase in self._phases:
            draws = drawn.variables if self._store.plan.keep == "draws" else {}
            content = {phase.draws: draws, phase.statistics: drawn.statistics}
            self._open[phase] = _joined(self._open.get(phase), content)
        warmup, draws = self._counts
        self._counts = Counts(warmup + num, draws) if phase is WARMUP else Counts(warmup, draws + num)

    def _write(self, phase: Phase) -> np.ndarray:
        """Write the collected draws of a phase; returns the digests of all its chunks, shape (chunks, 4)."""
        content, chunk, num = self._open.get(phase), self._store.plan.chunk, self._counts.of(phase)
        digests = self._digests.get(phase, NO_DIGESTS)
        if content is None or num == self._written.of(phase):
            return digests
        full = self._written.of(phase) // chunk
        digests = digests[:full]
        while num > full * chunk:
            first, rest = _cut(content, chunk)
            self._store.write(self._chain, full, first)
            digests = np.vstack([digests, digest_of(first)])
            full, content = full + 1, rest if num >= (full + 1) * chunk else first
        self._open[phase], self._digests[phase] = content, digests
        return digests

    def ends_as_written(self, phase: Phase, num: int) -> bool:
        """Whether the chunk with the last of ``num`` draws is as a state says that it was written.

        Of two states that have as many draws one may be of a process before, whose draws were made again; the other
        counts then. True where no state has as many.
        """
        found = [self._store.get_state(self._chain, name) for name in SLOTS]
        states = [packed for packed in found if packed is not None and _counts_of(packed).of(phase) >= num > 0]
        last = (num - 1) // self._store.plan.chunk
        return not states or any(self._is_chunk_whole(packed, phase, last) for packed in states)

    def _is_whole(self, packed: Packed) -> bool:
        """Whether all draws that belong to a state can be read as they were written."""
        return all(
            self._is_chunk_whole(packed, phase, k)
            for phase in self._phases
            for k in range(len(packed.arrays[_digests_of(phase)]))
        )

    def _is_chunk_whole(self, packed: Packed, phase: Phase, k: int) -> bool:
        """Whether the draws of chunk ``k`` that belong to a state can be read as they were written."""
        content = self._read(phase, _counts_of(packed).of(phase), k)
        return np.array_equal(digest_of(content), packed.arrays[_digests_of(phase)][k])

    def _read(self, phase: Phase, num: int, k: int) -> Content:
        """Chunk ``k`` of a phase that has ``num`` draws; empty where it cannot be read."""
        chunk = self._store.plan.chunk
        try:
            return self._store.read(phase, self._chain, k * chunk, min((k + 1) * chunk, num))
        except Exception:  # whatever zarr and its codecs raise of damaged files
            return {}


def resume_together(writers: Sequence[ChainWriter]) -> list[Packed]:
    """States from which chains that move together continue: the newest at a common position; none to begin anew.

    Warns:
        UserWarning: where something that was written is damaged.
    """
    by_chain = [writer.whole_states() for writer in writers]
    common = set.intersection(*(set(states) for states in by_chain))
    for writer, states in zip(writers, by_chain, strict=True):
        writer.warn_of_damage(max(states, default=0))
        if common:
            writer.begin_at(*states[max(common)])
    return [states[max(common)][1] for states in by_chain] if common else []


class Background:
    """Runs one piece of work at a time in a thread; the caller waits only for the piece before."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1)
        self._last: Future[None] | None = None

    def do(self, work: Any, *args: Any) -> None:
        """Begin work, once the work before is done; raises the error of that work, if any."""
        self.finish()
        self._last = self._executor.submit(work, *args)

    def finish(self) -> None:
        """Wait for the work that was begun; raises its error, if any."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def close(self) -> None:
        """Wait for the work, and end the thread."""
        try:
            self.finish()
        finally:
            self._executor.shutdown()


def _joined(first: Content | None, second: Content) -> Content:
    """Draws of ``first``, then those of ``second``."""
    if first is None:
        return second
    return {
        group: {name: np.concatenate([first[group][name], x]) for name, x in arrays.items()}
        for group, arrays in second.items()
    }


def _cut(content: Content, num: int) -> tuple[Content, Content]:
    """The first ``num`` draws, and the rest."""
    return tuple(
        {group: {name: x[part] for name, x in arrays.items()} for group, arrays in content.items()}
        for part in (slice(None, num), slice(num, None))
    )  # type: ignore[return-value]


def _digests_of(phase: Phase) -> str:
    """Name of the digests of a phase among the arrays of a state."""
    return f"digests/{phase.draws}"


def _counts_of(packed: Packed) -> Counts:
    """Numbers of iterations and draws of the chain that belong to a state."""
    return Counts(*packed.values["counts"])
