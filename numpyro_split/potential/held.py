"""Values that a model's likelihood on some rows takes from all rows (:mod:`split_common.held`)."""

from __future__ import annotations

from typing import Any, NamedTuple

from split_common.held import HeldValue


class Held(NamedTuple):
    """Values that a model's likelihood on some rows takes from all rows.

    Attributes:
        values: each value, by its number in the likelihood's program
            (:class:`numpyro_split.potential.flat_program.FlatProgram`).
        position: name, shape and type of each site of a position on all rows.
        num_steps: how many operations the program has.
        sizes: numbers of rows on which it is known to be the same program, ascending.
    """

    values: tuple[tuple[int, HeldValue], ...] = ()
    position: tuple[tuple[str, tuple[int, ...], Any], ...] = ()
    num_steps: int = 0
    sizes: tuple[int, ...] = ()

    def size_for(self, num_rows: int) -> int:
        """The number of rows to evaluate where some are asked for: on fewer the program may be another one."""
        return next((size for size in self.sizes if size >= num_rows), num_rows)


NOTHING_HELD = Held()
