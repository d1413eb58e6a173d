"""Reading of the rows of a subset while the gradient of the last one is computed.

The next subset is guessed: it is the one that came last time after the two subsets that were read last, or, where these
are new, the next in the direction of travel. For sweeps through the subsets, up or up and down, these guesses are
right. While less than half of the guesses are right (an order that is drawn), nothing is read ahead.

At most two subsets are in memory here: the one that is asked for, until it is returned, and the next.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache

import numpy as np

from split_common.sources.rows import Source

MEMORY = 0.9  # weight of the past in the share of right guesses, at each guess
LEAST_SHARE = 0.5  # least share of right guesses to read ahead
MOST_PAIRS = 2**14  # pairs of subsets that are remembered
PREFETCH_VARIABLE = "SPLIT_MCMC_PREFETCH"  # "off" in this environment variable reads nothing ahead

_THREADS: dict[int, ThreadPoolExecutor] = {}  # thread of each process: a thread does not survive a fork


class Reader:
    """Reads the same rows of several sources.

    Args:
        sources: the sources, with equally many rows.

    Attributes:
        num_reads: number of requests for rows.
        num_ahead: number of requests whose rows had been read ahead.
    """

    def __init__(self, sources: Sequence[Source]):
        self._sources, self._lock = tuple(sources), threading.Lock()
        self._num_rows = self._sources[0].shape[0]
        self._followed: dict[tuple[int, int], int] = {}
        self._last: tuple[int, int] = (-1, -1)
        self._share, self._next = 1.0, -1
        self._ahead: tuple[tuple[int, int, int], Future[list[np.ndarray]]] | None = None
        self.num_reads = self.num_ahead = 0

    def read(self, start: int, size: int) -> list[np.ndarray]:
        """Rows ``start`` to ``start + size - 1`` of each source; reading of the rows guessed next is begun."""
        with self._lock:
            self.num_reads += 1
            ahead, self._ahead = self._ahead, None
            is_ahead = ahead is not None and ahead[0] == (start, size, os.getpid())
            self.num_ahead += is_ahead
        rows = ahead[1].result() if is_ahead and ahead is not None else self._read(start, size)
        with self._lock:
            following = self._guess(start, size)
            if following is not None and self._ahead is None:
                self._ahead = (following, size, os.getpid()), _thread().submit(self._read, following, size)
        return rows

    def take(self, indices: np.ndarray) -> list[np.ndarray]:
        """Rows of each source by number, in the order named."""
        self.num_reads += 1
        return [source.take(indices) for source in self._sources]

    def _read(self, start: int, size: int) -> list[np.ndarray]:
        return [source.read(start, start + size) for source in self._sources]

    def _guess(self, start: int, size: int) -> int | None:
        """First row of the subset guessed next; None where it is not to be read ahead."""
        before, last = self._last
        self._share = MEMORY * self._share + (1 - MEMORY) * (start == self._next)
        if len(self._followed) > MOST_PAIRS:
            self._followed.clear()
        if last >= 0:
            self._followed[before, last] = start
        self._last = (last, start)
        travel = start - last if last >= 0 else size
        guess = start + travel if 0 <= start + travel <= self._num_rows - size else 0
        self._next = self._followed.get(self._last, guess)
        is_wanted = self._share >= LEAST_SHARE and self._next != start
        return self._next if is_wanted and os.environ.get(PREFETCH_VARIABLE) != "off" else None


@lru_cache(maxsize=8)
def reader_of(sources: tuple[Source, ...]) -> Reader:
    """The reader of these sources; the same object for the same sources."""
    return Reader(sources)


def _thread() -> ThreadPoolExecutor:
    if os.getpid() not in _THREADS:
        _THREADS[os.getpid()] = ThreadPoolExecutor(1, "split_mcmc rows")
    return _THREADS[os.getpid()]


def _wait() -> None:
    """Wait for reading to finish: a process forked off meanwhile would find locks that are never released."""
    if os.getpid() in _THREADS:
        _thread().submit(int).result()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait)
