"""Shared values of a likelihood (:mod:`split_common.held`): results of its operations, and numbers among arguments.

Shared values combine rows but depend on no parameter, so they are computed once on all rows and held.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from pyro_split.potential.flat_program import Place
from split_common.held import HeldValue


class HeldNumber(NamedTuple):
    """A number among an operation's arguments that depends on how many rows there are.

    Attributes:
        number: its value on all rows.
        what: its description, with its line in the model.
    """

    number: Any
    what: str


class Held(NamedTuple):
    """The shared values that a model's likelihood on some rows needs.

    Attributes:
        values: each shared result, by its place in the likelihood's program.
        numbers: by an operation's number, its arguments that depend on how many rows there are: name and value.
        num_steps: number of operations in the program.
        position: a position on all rows, to run the likelihood at.
    """

    values: tuple[tuple[Place, HeldValue], ...] = ()
    numbers: tuple[tuple[int, tuple[tuple[str, Any], ...]], ...] = ()
    num_steps: int = 0
    position: tuple[tuple[str, Tensor], ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is held."""
        return bool(self.values or self.numbers)


NOTHING_HELD = Held()
