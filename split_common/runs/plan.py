"""The plan of a run: how long it is, and where it is committed to its store."""

from __future__ import annotations

from typing import Any, NamedTuple

from split_common.values import shown, whole_number

KEEP = ("draws", "summaries")
LONGEST_WAIT = 5.0  # seconds from commit to commit at most, where draws come too fast to write each commit
LEAST_CHUNK = 100  # least draws in one file of a store, where fewer are committed at a time


class Plan(NamedTuple):
    """How long a run is. A position counts iterations of warm-up, then draws.

    Attributes:
        num_chains: number of chains.
        num_warmup: number of warm-up iterations.
        num_draws: number of draws that each chain keeps.
        every: how many draws, or iterations of warm-up, are committed at a time.
        keep: "draws", or "summaries" for summaries of the draws only.
        keeps_warmup: whether draws of warm-up are kept too.

    Example:
        >>> plan = Plan(num_chains=4, num_warmup=250, num_draws=1000, every=100)
        >>> [plan.next_commit(position) for position in (0, 200, 250, 300, 1240)]
        [100, 250, 350, 350, 1250]
    """

    num_chains: int
    num_warmup: int
    num_draws: int
    every: int
    keep: str = "draws"
    keeps_warmup: bool = False

    @classmethod
    def checked(cls, num_chains: int, num_warmup: int, num_draws: int, every: Any, keep: Any, warmup: Any) -> Plan:
        """The plan that arguments ask for.

        Raises:
            ValueError: for an argument out of range.
            TypeError: for a flag that is no bool.
        """
        count = whole_number(every)
        if count is None or count < 1:
            raise ValueError(f"every must be a whole number of at least 1, got {shown(every)}")
        if keep not in KEEP:
            raise ValueError(f"keep must be one of {KEEP}, got {shown(keep)}")
        if not isinstance(warmup, bool):
            raise TypeError(f"warmup must be True or False, got {shown(warmup)}")
        return cls(num_chains, num_warmup, num_draws, count, keep, warmup)

    @property
    def end(self) -> int:
        """Position at the end."""
        return self.num_warmup + self.num_draws

    @property
    def chunk(self) -> int:
        """Number of draws in one file of the store, a multiple of ``every``."""
        return self.every * -(-LEAST_CHUNK // self.every)

    def next_commit(self, position: int) -> int:
        """Position at which a chain is committed next."""
        start = 0 if position < self.num_warmup else self.num_warmup
        limit = self.num_warmup if position < self.num_warmup else self.end
        return min(limit, start + ((position - start) // self.every + 1) * self.every)
