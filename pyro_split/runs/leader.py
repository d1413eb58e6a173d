"""Runs with a store over ranks of a process group: the first rank leads and writes, the others follow.

Whatever rests on time, on signals or on the store is the leader's to decide: how many iterations are made at a time,
from which states a run goes on, when it ends. It says so before it acts, and the followers do the same. So they need no
clock and no store, and all ranks make the same iterations; what a chain is, is in the store whole, since its state and
its random numbers are the same on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import Tensor

from pyro_split.runs.chains import KernelChain
from split_common.errors import RanksError
from split_common.runs.chain_writer import Drawn
from split_common.runs.packed import Packed

START, GO_ON, ADVANCE, END, FAILED = "start", "go on", "advance", "end", "failed"


class Ended(NamedTuple):
    """What a run left, as every rank's ``MCMC`` holds it.

    Attributes:
        samples: draws by site, chains and draws first; None where they are not loaded.
        diagnostics: of each chain.
    """

    samples: dict[str, Tensor] | None
    diagnostics: list[dict[str, Any]]


class Leader:
    """The first rank of a group.

    Args:
        group: the process group.
    """

    def __init__(self, group: Any):
        self._group, self._is_moving = group, False

    def say(self, what: str, *rest: Any) -> None:
        """Tell the followers what is done next."""
        dist.broadcast_object_list([(what, *rest)], dist.get_global_rank(self._group, 0), self._group)

    @contextmanager
    def moving(self) -> Iterator[None]:
        """While all ranks compute together, nobody listens."""
        self._is_moving = True
        yield
        self._is_moving = False

    def failed(self, error: BaseException) -> None:
        """Tell the followers of an error that is the leader's alone."""
        if not self._is_moving:
            with suppress(Exception):  # of followers that are gone
                self.say(FAILED, f"{type(error).__name__}: {error}")


class LedChain:
    """A chain of the leader, of which the followers move theirs alike.

    Args:
        chain: the leader's own.
        leader: who tells the others.
        place: of the chain among those of the run.
    """

    def __init__(self, chain: KernelChain, leader: Leader, place: int):
        self._chain, self._leader, self._place = chain, leader, place

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chain, name)

    def go_on(self, packed: Sequence[Packed]) -> None:
        """Go on from a state, on all ranks."""
        self._leader.say(GO_ON, self._place, [one.to_bytes() for one in packed])
        self._chain.go_on(packed)

    def advance(self, num: int) -> list[Drawn]:
        """Move by so many draws, or iterations of warm-up, on all ranks; what was drawn."""
        self._leader.say(ADVANCE, self._place, num)
        with self._leader.moving():
            return self._chain.advance(num)


@contextmanager
def leading(group: Any) -> Iterator[Leader | None]:
    """The leader of a group, that tells the others of its errors; None where there is no group."""
    if group is None:
        yield None
        return
    leader = Leader(group)
    try:
        yield leader
    except BaseException as error:
        leader.failed(error)
        raise


def follow(group: Any, begin: Callable[[Mapping[str, Any]], Sequence[KernelChain]]) -> Ended:
    """Do what the leader says, to the end of the run.

    Args:
        group: the process group.
        begin: sets the chains up, from the random numbers that the run begins with.

    Raises:
        RanksError: where the leader has failed.
    """
    chains: list[KernelChain] = []
    while True:
        heard: list[Any] = [None]
        dist.broadcast_object_list(heard, dist.get_global_rank(group, 0), group)
        what, *rest = heard[0]
        if what == START:
            chains = list(begin(*rest))
        elif what == GO_ON:
            place, packed = rest
            chains[place].go_on([whole for one in packed if (whole := Packed.of_bytes(one)) is not None])
        elif what == ADVANCE:
            place, num = rest
            chains[place].advance(num)
        elif what == END:
            return Ended(*rest)
        else:
            raise RanksError(f"on rank 0, which writes the store: {rest[0]}")
