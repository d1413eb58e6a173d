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
    """

    values: tuple[tuple[int, HeldValue], ...] = ()
    position: tuple[tuple[str, tuple[int, ...], Any], ...] = ()
    num_steps: int = 0


NOTHING_HELD = Held()
