r"""Rows over the ranks of a process group: each process holds its own, and what is summed over rows is reduced.

Rank r of P holds :math:`N_r` of the :math:`N` rows, divided into M subsets like the rows of one process, so that

.. math:: U(z) = -\log p(z) - \sum_{m=1}^M \sum_{r=1}^P \ell_{rm}(z),

and subset m of all rows is made of every rank's own subset m. A rank computes its terms and their gradient; one
``all_reduce`` in float64 gives the sums to every rank; the prior is computed on each and added once. What a chain does
depends on its position, on these sums and on random numbers, which are alike on all ranks. So P processes make one
chain, the one that a single process with these subsets makes, and what leaves the target invariant there does so here.

Kernels that read a few rows draw numbers of rows, from 0 to N - 1, by the common random numbers, and each rank reads
those that it holds: numbers :math:`N_1 + ... + N_{r-1}` and following. Their sums are again those of one process, so
an estimate is as unbiased, and its variance as well known, as there (:mod:`split_common.penalty`): rows are drawn
uniformly from all, whoever holds them. To draw a fixed number from each rank would make a stratified estimate, whose
variance needs an estimate of its own, and would only save the scatter in how many rows a rank reads (:math:`n N_r/N`
give or take about its square root).

The rows that a rank began with are a *shard*. A run that goes on from a store may do so on fewer ranks, of which each
holds several shards and adds up what these give, in float64 and in order, before a message. So a subset is still made
of each shard's own subset m, a gradient still takes the memory of :math:`N_r/M` rows, and draws are those of as many
ranks as there are shards: bit for bit where these are two, else but for rounding, as sums come in another order.

Each message carries two numbers more: a mark of 20 bits, h, of the position on each rank, and h². By Cauchy and
Schwarz :math:`P \sum h^2 = (\sum h)^2` only where all marks are equal, so a message whose ranks stand at different
positions is an error on every rank, in the iteration in which they part (but for one time in a million). A kick is a
message of D + 3 numbers, the energies at the end of a trajectory one of at most M + 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from pyro_split.potential.position import Position
from split_common.digest import Digest, digest_of_arrays
from split_common.errors import RanksError
from split_common.values import shown

Result = TypeVar("Result")
WORLD = "world"
MARK_BITS = 20  # so that squares, added up over 4,096 ranks, are whole numbers of float64
ROUNDING = 1e-5  # relative difference that rounding may make between equal energies in single precision


@dataclass(frozen=True)
class Ranks:
    """Which process holds which rows.

    Attributes:
        num_rows: N_r, rows of each shard.
        rank: rank of this process in the group.
        group: the process group; None where one process holds all rows and nothing is reduced.
        shards_per_rank: number of shards that each process holds.

    Example:
        >>> Ranks((5, 3), rank=1).here
        range(5, 8)
        >>> Ranks((5, 3, 4, 4), rank=1, shards_per_rank=2).rows_here
        (4, 4)
    """

    num_rows: tuple[int, ...]
    rank: int = 0
    group: Any = None
    shards_per_rank: int = 1

    @property
    def is_one(self) -> bool:
        """Whether one process holds all rows, in one shard."""
        return self.group is None and len(self.num_rows) == 1

    @property
    def shards_here(self) -> range:
        """Numbers of the shards that this process holds."""
        return range(self.rank * self.shards_per_rank, (self.rank + 1) * self.shards_per_rank)

    @property
    def rows_here(self) -> tuple[int, ...]:
        """Number of rows in each shard that this process holds."""
        return self.num_rows[self.shards_here.start : self.shards_here.stop]

    @property
    def total(self) -> int:
        """N, rows of all ranks."""
        return sum(self.num_rows)

    @property
    def here(self) -> range:
        """Numbers, among those of all rows, of the rows that this process holds."""
        start = sum(self.num_rows[: self.shards_here.start])
        return range(start, start + sum(self.rows_here))

    def sum(self, z: Position, *by_shard: Sequence[Tensor]) -> list[Tensor]:
        """Sums over ranks of tensors that each rank has computed at ``z``: added in float64, returned in their types.

        Args:
            z: the position.
            *by_shard: the tensors of each shard that this process holds; or one list of tensors for all of its shards.

        Raises:
            RanksError: where ranks are at different positions.
        """
        first = by_shard[0]
        if self.group is None and len(by_shard) == 1:
            return list(first)
        device, mark = next(iter(z.values())).device, mark_of(z)
        marks = torch.tensor([mark, mark**2], dtype=torch.float64)
        words = [[x.detach().reshape(-1).to(device, torch.float64) for x in own] for own in by_shard]
        message = torch.cat([*(torch.stack(shards).sum(0) for shards in zip(*words, strict=True)), marks.to(device)])
        if self.group is not None:
            dist.all_reduce(message, group=self.group)
        *sums, marks = message.split([*map(len, words[0]), len(marks)])
        total, squares = (int(x) for x in marks.tolist())
        if self._num_ranks * squares != total**2:
            raise self._parted(z)
        return [x.reshape(like.shape).to(like) for x, like in zip(sums, first, strict=True)]

    def find(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Places, in a list of row numbers, of the rows that this process holds; and these rows' numbers here."""
        places = torch.nonzero((indices >= self.here.start) & (indices < self.here.stop))[:, 0]
        return places, indices[places] - self.here.start

    def of_rows(self, indices: Tensor, function: Callable[[Tensor], list[Tensor]]) -> list[Tensor]:
        """The value of a function that sums over rows, on those rows in ``indices`` that this process holds.

        Their number is random, and a function is traced anew for every number of rows. So the last row is repeated up
        to one of a few numbers, and its excess is subtracted. The function is never called with a single row, which
        models that squeeze their arrays do not take.

        Args:
            indices: numbers of rows, shape (n,).
            function: from numbers of rows here to sums over these.
        """
        if self.is_one:
            return function(indices)
        _, rows = self.find(indices)
        if not len(rows):
            return [torch.zeros_like(x) for x in function(torch.zeros(2, dtype=indices.dtype))]
        padded = padded_rows(rows, len(indices))
        found, excess = function(padded), len(padded) - len(rows)
        if not excess:
            return found
        twice = function(rows[-1:].expand(2))
        return [x - excess / 2 * y for x, y in zip(found, twice, strict=True)]

    def values(self, indices: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """The values of a function for each row, on its last axis; zeros for rows that this process does not hold.

        Args:
            indices: numbers of rows, shape (n,).
            function: from numbers of rows here to values.
        """
        if self.is_one:
            return function(indices)
        places, rows = self.find(indices)
        some = rows if len(rows) else torch.zeros(1, dtype=indices.dtype)
        found = function(padded_rows(some, len(indices)))[..., : len(rows)]
        return found.new_zeros((*found.shape[:-1], len(indices))).index_copy_(-1, places.to(found.device), found)

    def of_first(self, draw: Callable[[], Position]) -> Position:
        """The first rank's draw, on every rank; every rank takes on the random state that the first then has."""
        if self.group is None:
            return draw()
        drawn: Position = {}

        def find() -> tuple[dict[str, Tensor], list[Tensor]]:
            drawn.update(draw())
            return {name: u.cpu() for name, u in drawn.items()}, random_state()

        first, state = together(self.group, find)[0]
        set_random_state(state)
        return {name: first[name].to(u.device) for name, u in drawn.items()}

    def of_all(self, value: Result) -> list[Result]:
        """The value of each rank, in order."""
        return [value] if self.group is None else gathered(self.group, value)

    def check_same(self, energies: Sequence[float], of_what: str, why: str) -> None:
        """Raise unless terms of the potential are the same on all ranks, but for rounding.

        Args:
            energies: this rank's.
            of_what: what the terms are of, for the message.
            why: what they may rest on where they differ, for the message.

        Raises:
            RanksError: on every rank, with all energies.
        """
        by_rank = self.of_all(list(energies))
        if not np.allclose(by_rank, by_rank[0], rtol=ROUNDING, atol=ROUNDING, equal_nan=True):
            raise RanksError(
                f"what a model says {of_what} must be the same on all ranks, got terms of the potential {by_rank} by "
                f"rank; it rests on {why}"
            )

    @property
    def _num_ranks(self) -> int:
        return len(self.num_rows) // self.shards_per_rank

    def _parted(self, z: Position) -> RanksError:
        keys = gathered(self.group, digest_of_arrays(z[name].numpy(force=True) for name in sorted(z)).key)
        others = [rank for rank, key in enumerate(keys) if key != keys[0]]
        where = f"others on ranks {others} than on rank 0" if others else "the same, but a sum that is not all ranks'"
        return RanksError(
            f"positions must be the same on all ranks, got {where}; from here on they would make chains of several "
            "posteriors"
        )


def mark_of(z: Position) -> int:
    """The mark of a position, a number of 20 bits."""
    digest = digest_of_arrays(z[name].numpy(force=True) for name in sorted(z))
    return int(digest.words[0]) >> (32 - MARK_BITS)


def padded_rows(rows: Tensor, num_asked: int) -> Tensor:
    """Numbers of rows, the last of them repeated so that there are a multiple of twice the root of ``num_asked``.

    Example:
        >>> padded_rows(torch.tensor([3, 7, 9]), 4)
        tensor([3, 7, 9, 9])
    """
    step = 2 * math.isqrt(num_asked)
    missing = -len(rows) % step
    return torch.cat([rows, rows[-1:].expand(missing)])


def check_process_group(value: Any) -> Any:
    """Return ``process_group``, or raise unless it is None, "world" or a group that this process is in.

    Raises:
        ValueError: naming the value.
    """
    if value is None:
        return None
    is_ready = dist.is_available() and dist.is_initialized()
    if isinstance(value, str) and value == WORLD:
        if not is_ready:
            raise ValueError(
                f"process_group={WORLD!r} needs torch.distributed.init_process_group to be called before, got no group"
            )
        return value
    if not (is_ready and isinstance(value, dist.ProcessGroup)):
        raise ValueError(
            f"process_group must be None, {WORLD!r} or a group of torch.distributed that this process is in, got "
            f"{shown(value)}"
        )
    return value


def group_of(value: Any) -> Any:
    """The group that a checked ``process_group`` is."""
    return dist.group.WORLD if isinstance(check_process_group(value), str) else value


def gathered(group: Any, value: Result) -> list[Result]:
    """The value of each rank, in order of ranks."""
    found: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, value, group=group)
    return found


def together(group: Any, find: Callable[[], Result]) -> list[Result]:
    """The results on all ranks, in order, of a function that does not communicate.

    Raises:
        RanksError: on every rank, where it fails on any.
    """
    error, mine = None, cast(Result, None)
    try:
        mine = find()
    except Exception as failure:  # whatever it is, the other ranks must learn of it
        error = failure
    said = None if error is None else f"{type(error).__name__}: {error}"
    outcomes = gathered(group, (said, mine))
    failures = {rank: text for rank, (text, _) in enumerate(outcomes) if text is not None}
    if failures:
        first, text = next(iter(failures.items()))
        others = f" (and on ranks {list(failures)[1:]})" if len(failures) > 1 else ""
        raise RanksError(f"on rank {first} of {len(outcomes)}{others}: {text}") from error
    return [value for _, value in outcomes]


def random_state() -> list[Tensor]:
    """State of torch's generators that kernels draw from: that of the CPU, and that of this process's GPU."""
    on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if on_gpu else [])]


def set_random_state(state: Sequence[Tensor]) -> None:
    """Set the generators to a state that :func:`random_state` gave."""
    torch.set_rng_state(state[0])
    for on_gpu in state[1:]:
        torch.cuda.set_rng_state(on_gpu)


def digest_of_random_state() -> str:
    """A digest of :func:`random_state`, for comparison."""
    digest = Digest()
    for x in random_state():
        digest.add_array(x.numpy())
    return digest.key
