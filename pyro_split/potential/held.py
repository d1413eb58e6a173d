"""Held values (:mod:`split_common.held`) of a likelihood's operations: results, and numbers among arguments."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from pyro_split.potential.flat_program import Place
from split_common.held import HeldValue


class HeldNumber(NamedTuple):
    """An argument of an operation, a number that depends on how many rows there are.

    Attributes:
        number: on all rows.
        what: the same in words, with its line in the model.
    """

    number: Any
    what: str


class Held(NamedTuple):
    """Values that a model's likelihood on some rows takes from all rows.

    Attributes:
        values: each value, by its place.
        numbers: of operations, by their number, the arguments that are numbers of all rows: name and value.
        num_steps: how many operations the likelihood has.
        position: a position on all rows, to run the likelihood at.
    """

    values: tuple[tuple[Place, HeldValue], ...] = ()
    numbers: tuple[tuple[int, tuple[tuple[str, Any], ...]], ...] = ()
    num_steps: int = 0
    position: tuple[tuple[str, Tensor], ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is."""
        return bool(self.values or self.numbers)


NOTHING_HELD = Held()
