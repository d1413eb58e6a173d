"""Shared values of a likelihood (:mod:`split_common.held`), by their numbers in its program.

Shared values combine rows but depend on no parameter, so they are computed once on all rows and held.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from split_common.held import HeldValue


class Held(NamedTuple):
    """The shared values that a model's likelihood on some rows needs.

    Attributes:
        values: each shared value, by its number in the likelihood's program
            (:class:`numpyro_split.potential.flat_program.FlatProgram`).
        position: name, shape and type of each site of a position on all rows.
        num_steps: number of operations in the program.
        sizes: numbers of rows on which the program is known to be the same, ascending.
    """

    values: tuple[tuple[int, HeldValue], ...] = ()
    position: tuple[tuple[str, tuple[int, ...], Any], ...] = ()
    num_steps: int = 0
    sizes: tuple[int, ...] = ()

    def size_for(self, num_rows: int) -> int:
        """The number of rows to evaluate where ``num_rows`` are asked for: on fewer the program may be another one."""
        return next((size for size in self.sizes if size >= num_rows), num_rows)


NOTHING_HELD = Held()
