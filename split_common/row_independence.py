"""Knowledge of a value in a traced log-density: which of its entries depend on which rows of the data.

A log-density divides over rows when the terms of its likelihood are *aligned*: entry i depends on row i alone. That is
followed through the trace, operation by operation, in two traces side by side: of the model on all rows, and on as many
as are evaluated at a time. The two must be the same program but for the lengths of axes that follow the number of rows.
So whatever else depends on that number (a literal 1/N, a branch, a bound of a slice) is detected.

Every value is one of five kinds:

* :class:`Free` of rows: it depends on none. It may have axes as long as there are rows, and is constant along them.
* :class:`Aligned` with the rows on one axis.
* :class:`Numbers` of the rows as they are cut, 0 to n - 1: good to look up the cut rows by, and for nothing else.
* :class:`OwnRow`: such numbers beside other indices, as ``x[arange(n), label]`` has them.
* :class:`NotAligned`: it combines rows (it is *mixed*), or its dependence on rows is unknown.

An operation on a value that is not aligned gives a value that is not aligned either, and the first reason is reported.
Values that the likelihood does not depend on are not considered.
"""

from __future__ import annotations

from typing import NamedTuple

from split_common.errors import NumberMeetsError, RowsMeetError

PROVED, REFUTED, NOT_PROVED = "proved", "refuted", "not proved"
NUMBER_AS_CUT = "the number of a row as it is cut"


class Free(NamedTuple):
    """A value that depends on no row.

    Attributes:
        repeats: axes as long as there are rows, along which it is constant.
        is_false: whether it is known to be False everywhere.
    """

    repeats: frozenset[int] = frozenset()
    is_false: bool = False

    @property
    def axes(self) -> frozenset[int]:
        """Axes as long as there are rows."""
        return self.repeats


class Aligned(NamedTuple):
    """A value of which entry i, along ``axis``, depends on row i alone."""

    axis: int

    @property
    def axes(self) -> frozenset[int]:
        """Axes as long as there are rows."""
        return frozenset({self.axis})


class Numbers(NamedTuple):
    """The numbers 0 to n - 1 of the rows that are there, along ``axis``."""

    axis: int

    @property
    def axes(self) -> frozenset[int]:
        """Axes as long as there are rows."""
        return frozenset({self.axis})


class OwnRow(NamedTuple):
    """Indices into an array, side by side along the last axis: one is the row's own number, the others are aligned.

    Attributes:
        axis: the rows' axis.
        place: place of the row's number among the indices.
    """

    axis: int
    place: int

    @property
    def axes(self) -> frozenset[int]:
        """Axes as long as there are rows."""
        return frozenset({self.axis})


class NotAligned(NamedTuple):
    """A value whose entries depend on several rows, or on rows that are not known.

    Attributes:
        is_known: whether entries are known to combine rows.
        why: the operation.
        where: file and line of the user's model, or "".
    """

    is_known: bool
    why: str
    where: str = ""

    @property
    def axes(self) -> frozenset[int]:
        """No axes: those of such a value do not count."""
        return frozenset()

    def __str__(self) -> str:
        return f"{self.where}: {self.why}" if self.where else self.why


Value = Free | Aligned | Numbers | OwnRow | NotAligned


class Verdict(NamedTuple):
    """Whether a model's likelihood divides over rows.

    Attributes:
        kind: "proved", for all parameter values; "refuted"; or "not proved".
        why: the reason against a proof, with the line of the user's model; "" where there is a proof.
        held: the shared values, in words: they combine rows but depend on no parameter, and are computed once and held.
        compared: the rows on which numbers were compared as well, in words; "" where they were not.
        chosen: how many subsets were chosen, and why; "" where their number was given.

    Example:
        >>> str(Verdict("refuted", "model.py:12: max over the data rows"))
        'refuted: model.py:12: max over the data rows'
        >>> str(Verdict("proved", held=("model.py:12: max over the data rows",)))
        'proved; computed once on all rows and held: model.py:12: max over the data rows'
    """

    kind: str
    why: str = ""
    held: tuple[str, ...] = ()
    compared: str = ""
    chosen: str = ""

    def __str__(self) -> str:
        held = f"; computed once on all rows and held: {', '.join(self.held)}" if self.held else ""
        compared = f"; compared in numbers on {self.compared}" if self.compared else ""
        chosen = f"; {self.chosen}" if self.chosen else ""
        said = f": {self.why}" if self.why else held
        return f"{self.kind}{said}{compared}{chosen}"


def verdict_of(terms: list[tuple[Value, int]]) -> Verdict:
    """The verdict on a likelihood.

    Args:
        terms: for each log-probability inside the plate, what is known of it, and the axis of the plate.
    """
    faults = [_fault(value, axis) for value, axis in terms]
    found = [fault for fault in faults if fault is not None]
    for kind, is_known in ((REFUTED, True), (NOT_PROVED, False)):
        for fault in found:
            if fault.is_known is is_known:
                return Verdict(kind, str(fault))
    return Verdict(PROVED)


def _fault(value: Value, axis: int) -> NotAligned | None:
    if isinstance(value, NotAligned):
        return value
    if isinstance(value, Numbers | OwnRow):
        return NotAligned(True, NUMBER_AS_CUT)
    if axis in value.axes:
        return None
    return NotAligned(False, "a log-probability without an entry for each row")


def rows_meet(why: str) -> RowsMeetError:
    """The error for a model whose likelihood of a row depends on other rows; ``why`` is the operation and its line."""
    if why.endswith(NUMBER_AS_CUT):
        return NumberMeetsError(
            f"{why} is used for more than to look up that row (pass the numbers 0 to N - 1 as an argument, which is "
            "cut with the data)"
        )
    return RowsMeetError(
        f"{why}, so the likelihood of a row rests on other rows (compute what rests on all rows outside the model and "
        "pass it as an argument, or take num_subsets=1)"
    )
