"""Ways of selecting rows of a model: whether its data arguments are cut to them, and what its plate yields.

"slice" cuts the arguments, and the plate yields 0 to n - 1, by which cut rows can be looked up. "index" leaves the
arguments as they are, and the plate yields the rows' own numbers. "numbered" cuts the arguments, and the plate yields
the rows' own numbers, which are then good for arithmetic, as in a trend, and not to look up cut rows by. Under
"numbered" a look-up beyond the cut rows may go unnoticed, as JAX clamps it, so this way is taken only where it is
proved; and only where "slice" fails by its numbers alone.
"""

from __future__ import annotations

SLICE, INDEX, NUMBERED = "slice", "index", "numbered"


def cuts_data(mode: str) -> bool:
    """Whether the data arguments are cut to the rows."""
    return mode in (SLICE, NUMBERED)


def yields_numbers(mode: str) -> bool:
    """Whether the plate yields the rows' own numbers, not those of the rows as they are cut."""
    return mode in (INDEX, NUMBERED)
