"""Ways of selecting rows of a model: whether its data arguments are cut to the rows, and what its plate yields.

"slice" cuts the arguments, and the plate yields 0 to n - 1, by which cut rows can be looked up. "index" leaves the
arguments as they are, and the plate yields the rows' own numbers. "numbered" cuts the arguments, and the plate yields
the rows' own numbers, which are then right for arithmetic, as in a trend, but wrong to look up cut rows by. Under
"numbered" a look-up beyond the cut rows may go unnoticed, as JAX clamps it, so this way is taken only where rows are
proved independent; and only where "slice" fails because of the numbers that its plate yields.
"""

from __future__ import annotations

SLICE, INDEX, NUMBERED = "slice", "index", "numbered"


def cuts_data(mode: str) -> bool:
    """Whether the data arguments are cut to the rows."""
    return mode in (SLICE, NUMBERED)


def yields_numbers(mode: str) -> bool:
    """Whether the plate yields the rows' own numbers, not their places among the cut rows."""
    return mode in (INDEX, NUMBERED)
