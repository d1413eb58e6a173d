"""Runs with a store in which several processes move each chain together: the first leads and writes, the others follow.

The leader decides whatever depends on time, on signals or on the store: how many iterations are made at a time, from
which states a run goes on, when it ends. It announces each decision before it acts, and the followers do the same. So
they need no clock and no store, and all processes make the same iterations. The store holds each chain completely,
since its state and its random numbers are the same in every process.

The leader announces decisions with a function ``broadcast`` of the package: called in all processes, it returns to each
what the first has given it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from split_common.errors import RanksError
from split_common.runs.chain_writer import Drawn
from split_common.runs.drive import Chains
from split_common.runs.packed import Packed

Broadcast = Callable[[Any], Any]
START, GO_ON, ADVANCE, END, FAILED = "start", "go on", "advance", "end", "failed"


class Leader:
    """The first process, which announces what is done next.

    Args:
        broadcast: sends a value to the other processes.
    """

    def __init__(self, broadcast: Broadcast):
        self._broadcast, self._is_moving = broadcast, False

    def say(self, what: str, *rest: Any) -> None:
        """Tell the followers what is done next."""
        self._broadcast((what, *rest))

    @contextmanager
    def moving(self) -> Iterator[None]:
        """Context while all processes compute together and no follower listens."""
        self._is_moving = True
        yield
        self._is_moving = False

    def failed(self, error: BaseException) -> None:
        """Tell the followers of an error that only the leader has."""
        if not self._is_moving:
            with suppress(Exception):  # followers may be gone
                self.say(FAILED, f"{type(error).__name__}: {error}")


class LedChains:
    """Chains of the leader; the followers move theirs in the same way.

    Args:
        chains: the leader's own chains.
        leader: announces what is done.
        place: place of this group among the groups of chains of the run.
    """

    def __init__(self, chains: Chains, leader: Leader, place: int):
        self._chains, self._leader, self._place = chains, leader, place

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chains, name)

    def go_on(self, packed: Sequence[Packed]) -> None:
        """Go on from states, in all processes."""
        self._leader.say(GO_ON, self._place, [one.to_bytes() for one in packed])
        self._chains.go_on(packed)

    def advance(self, num: int) -> list[Drawn]:
        """Move by ``num`` draws, or iterations of warm-up, in all processes; returns the draws."""
        self._leader.say(ADVANCE, self._place, num)
        with self._leader.moving():
            return self._chains.advance(num)


@contextmanager
def leading(broadcast: Broadcast | None) -> Iterator[Leader | None]:
    """Context with the leader, which tells the others of its errors; None where there are no others."""
    if broadcast is None:
        yield None
        return
    leader = Leader(broadcast)
    try:
        yield leader
    except BaseException as error:
        leader.failed(error)
        raise


def follow(broadcast: Broadcast, begin: Callable[..., Sequence[Chains]]) -> list[Any]:
    """Do what the leader announces, to the end of the run; returns the values of its last message.

    Args:
        broadcast: returns the leader's message.
        begin: sets the chains up, from the leader's values for their start.

    Raises:
        RanksError: where the leader has failed.
    """
    groups: list[Chains] = []
    while True:
        what, *rest = broadcast(None)
        if what == START:
            groups = list(begin(*rest))
        elif what == GO_ON:
            place, packed = rest
            groups[place].go_on([whole for one in packed if (whole := Packed.of_bytes(one)) is not None])
        elif what == ADVANCE:
            place, num = rest
            groups[place].advance(num)
        elif what == END:
            return rest
        else:
            raise RanksError(f"on rank 0, which writes the store: {rest[0]}")
