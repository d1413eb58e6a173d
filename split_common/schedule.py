r"""The schedule of one split-HMC step, as checked data.

A schedule is a tuple of rows *(subset, kick weight, drift weight)*. A step of size :math:`\epsilon` reads
them from top to bottom, each row a kick by one subset and then a drift:

.. math:: p \leftarrow p - \epsilon\, k\, \nabla U_m(z), \qquad z \leftarrow z + \epsilon\, d\, M^{-1} p .

A kick of weight 0 costs no gradient: its drift is joined to the drift before it. A step can open with a drift: its
first row then has a kick of weight 0.

Every kick is a shear in p and every drift a shear in z, so every schedule preserves volume exactly. It
approximates the flow of :math:`\sum_m U_m + K` when the kicks of each subset sum to 1 and the drifts sum to 1.
It leaves the target invariant, after an accept-reject decision on the energy error, when reversing time gives
a step that is proposed with the same probability:

* ``PALINDROMIC``: the sequence of kicks and drifts reads the same backwards, so the step is its own reverse.
* ``RANDOM_ORDER``: read backwards, the sequence is that of the subsets in the opposite order. A step with one order is
  *not* its own reverse; the kernel is reversible nevertheless, because it draws the order uniformly, and an order is as
  likely as its reverse.

A trajectory that also runs backwards in time, as a tree does, needs the inverse of a step. For a palindromic schedule
that is a step of the opposite size, and otherwise a step of the opposite size *and* the opposite order. For a given
order, steps are a bijection that preserves volume, and trees and windows choose from the states that it leads to,
forwards and backwards, as they do for a palindromic schedule. The order is drawn beforehand, independently of the
state; so a transition that leaves the target invariant for each order also does so for the mixture over orders.

Weights are exact fractions, and the conditions are checked when a schedule is built. To add a schedule one writes its
rows, and nothing else.

References:
    Cobb and Jalaian (2021), Scaling Hamiltonian Monte Carlo Inference for Bayesian Neural Networks with
    Symmetric Splitting, Algorithm 1 and equations 7 and 8. Neal (1995), Bayesian Learning for Neural Networks.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from split_common.checks import check_positive_int
from split_common.errors import first_line
from split_common.memory import AutoSubsets
from split_common.values import name_of, shown, whole_number

HALF = Fraction(1, 2)
ZERO = Fraction(0)
MAX_CHECKED_SUBSETS = 1000  # subsets up to which a user's own schedule is built, and so checked, with the kernel

Kicks = dict[int, Fraction]


class Reversal(enum.Enum):
    """Condition by which a step reversed in time is proposed with the same probability.

    Example:
        >>> Reversal("palindromic")
        <Reversal.PALINDROMIC: 'palindromic'>
    """

    PALINDROMIC = "palindromic"
    RANDOM_ORDER = "order drawn with its reverse"


class Row(NamedTuple):
    """One kick by a subset, then one drift.

    Attributes:
        subset: number of the subset, counted from 0; a position in the drawn order where an order is drawn.
        kick: weight of the kick, a fraction of the step size.
        drift: weight of the drift that follows, a fraction of the step size; 0 for none.
    """

    subset: int
    kick: Fraction
    drift: Fraction


@dataclass(frozen=True)
class Schedule:
    """The kicks and drifts of one step, checked when they are given.

    Successive kicks by one subset at the same position need one gradient, so they are merged. Kicks of weight 0 are
    left out.

    Args:
        name: name of the schedule in messages.
        rows: the step, as :class:`Row` or plain ``(subset, kick, drift)`` triples of exact numbers.
        reversal: which of the two conditions for invariance the rows satisfy.

    Attributes:
        leading_drift: weight of the drift that opens the step, before all rows; 0 for none.

    Raises:
        TypeError: for a ``reversal`` that is no :class:`Reversal`.
        ValueError: if a row is not a whole number and two exact numbers, the kicks of a subset or the drifts do not
            sum to 1, or the rows do not satisfy the condition that ``reversal`` names.

    Example:
        >>> from fractions import Fraction as F
        >>> leapfrog = Schedule("leapfrog", [(0, F(1, 2), 1), (0, F(1, 2), 0)], Reversal.PALINDROMIC)
        >>> leapfrog.num_subsets, leapfrog.grads_per_step
        (1, 1)
        >>> rows = [(0, 0, F(1, 4)), (0, 1, F(1, 2)), (1, 1, F(1, 4))]  # each subset once, in an order that is drawn
        >>> single_visit = Schedule("single visit", rows, Reversal.RANDOM_ORDER)
        >>> single_visit.leading_drift, single_visit.grads_per_step
        (Fraction(1, 4), 2)
    """

    name: str
    rows: tuple[Row, ...]
    reversal: Reversal
    leading_drift: Fraction

    def __init__(self, name: str, rows: Iterable[tuple[int, Fraction | int, Fraction | int]], reversal: Reversal):
        if not isinstance(reversal, Reversal):
            raise TypeError(
                f"schedule {name!r}: reversal must be Reversal.PALINDROMIC or Reversal.RANDOM_ORDER, "
                f"got {shown(reversal)}"
            )
        object.__setattr__(self, "name", name)
        leading_drift, merged = _merge_neighbours([_checked_row(name, row) for row in rows])
        object.__setattr__(self, "rows", merged)
        object.__setattr__(self, "leading_drift", leading_drift)
        object.__setattr__(self, "reversal", reversal)
        self._check()

    @cached_property
    def num_subsets(self) -> int:
        """Number of subsets the rows name."""
        return max(row.subset for row in self.rows) + 1

    @cached_property
    def opening(self) -> tuple[Row, ...]:
        """The rows whose kicks are made where the step starts; the last of them drifts away."""
        if self.leading_drift:
            return ()
        first_drift = next(i for i, row in enumerate(self.rows) if row.drift)
        return self.rows[: first_drift + 1]

    @cached_property
    def keeps_opening(self) -> bool:
        """Whether a step opens with the kicks the last one closed with, so that they need no new gradients."""
        return self.reversal is Reversal.PALINDROMIC and not self.leading_drift

    @cached_property
    def draws_order(self) -> bool:
        """Whether an order of the subsets must be drawn for each trajectory."""
        return self.reversal is Reversal.RANDOM_ORDER

    @cached_property
    def evaluated_rows(self) -> tuple[Row, ...]:
        """The rows that cost a gradient in a step whose opening kicks are kept from the last one."""
        return self.rows[len(self.opening) :] if self.keeps_opening else self.rows

    @cached_property
    def closes(self) -> tuple[bool, ...]:
        """For each evaluated row, whether its kick is made where the step ends."""
        rows = self.evaluated_rows
        last_drift = max((i for i, row in enumerate(rows) if row.drift), default=-1)
        return tuple(i > last_drift for i in range(len(rows)))

    @cached_property
    def kicks_before_drift(self) -> tuple[Fraction, ...]:
        """For each evaluated row that drifts, the weight of all kicks made where that drift starts; 0 for others."""
        found, here = [], ZERO
        for row in self.evaluated_rows:
            here += row.kick
            found.append(here if row.drift else ZERO)
            here = ZERO if row.drift else here
        return tuple(found)

    @cached_property
    def opening_weight(self) -> Fraction:
        """Weight of all kicks made where a step starts, where these are kept from the last one; 0 elsewhere."""
        return sum((row.kick for row in self.opening), ZERO) if self.keeps_opening else ZERO

    @cached_property
    def closing_weight(self) -> Fraction:
        """Weight of all kicks made where a step ends."""
        closing = zip(self.evaluated_rows, self.closes, strict=True)
        return sum((row.kick for row, closes in closing if closes), ZERO)

    @cached_property
    def closing_kick(self) -> Fraction | None:
        """The weight that every subset's kick has where the step ends; None where they differ or some have none.

        With it, the gradients that close a step sum to that of the whole potential, and their values to the potential.
        """
        if not self.keeps_opening:
            return None
        closing = [
            (row.subset, row.kick) for row, closes in zip(self.evaluated_rows, self.closes, strict=True) if closes
        ]
        weights = {kick for _, kick in closing}
        everywhere = sorted(subset for subset, _ in closing) == list(range(self.num_subsets))
        return weights.pop() if everywhere and len(weights) == 1 and any(weights) else None

    @cached_property
    def divides_kicks(self) -> bool:
        """Whether some subsets kick at a position where others do not, so that centring them has an effect."""
        groups = [group for group in _kicks_and_drifts(self.leading_drift, self.rows) if isinstance(group, dict)]
        together = [len(set(group.values())) == 1 and len(group) == self.num_subsets for group in groups if group]
        return not all(together)

    @cached_property
    def grads_per_step(self) -> int:
        """Subset gradients of a step inside a trajectory."""
        return len(self.evaluated_rows)

    @cached_property
    def opening_grads(self) -> int:
        """Subset gradients to open a trajectory from a point whose opening kicks are not kept."""
        return len(self.opening) if self.keeps_opening else 0

    def _check(self) -> None:
        if not self.rows:
            raise ValueError(f"schedule {self.name!r}: a step must have at least one row, got none")
        kicks: defaultdict[int, Fraction] = defaultdict(Fraction)
        for row in self.rows:
            kicks[row.subset] += row.kick
        for subset in range(self.num_subsets):
            if kicks[subset] != 1:
                raise ValueError(
                    f"schedule {self.name!r}: the kicks of each subset must sum to 1, "
                    f"got {kicks[subset]} for subset {subset}"
                )
        drifts = sum((row.drift for row in self.rows), self.leading_drift)
        if drifts != 1:
            raise ValueError(f"schedule {self.name!r}: the drifts must sum to 1, got {drifts}")
        forwards = _kicks_and_drifts(self.leading_drift, self.rows)
        backwards = forwards[::-1]
        if self.reversal is Reversal.RANDOM_ORDER:
            last = self.num_subsets - 1
            backwards = [_relabel(group, last) for group in backwards]
        if forwards != backwards:
            rule = {
                Reversal.PALINDROMIC: "must read the same backwards",
                Reversal.RANDOM_ORDER: "must read backwards as the subsets in the opposite order",
            }[self.reversal]
            at = next(i for i, (there, back) in enumerate(zip(forwards, backwards, strict=True)) if there != back)
            raise ValueError(
                f"schedule {self.name!r}: its kicks and drifts {rule}, got {shown(forwards[at])} at place {at + 1} of "
                f"{len(forwards)}, and {shown(backwards[at])} there read backwards"
            )


def single_visit(num_subsets: int) -> Schedule:
    """Each subset once, in a random order, with a full kick; drifts between the kicks, and half a drift at either end.

    Of first order. A step costs M subset gradients, about half of what the symmetric schedule costs. If the gradients
    of the subsets are nearly alike, as centring makes them (:mod:`split_common.centering`), a step is nearly M leapfrog
    steps of size ε/M, and may be a whole trajectory.

    Args:
        num_subsets: M.

    Returns:
        The schedule; its subsets are positions in an order that is drawn for each trajectory.
    """
    check_positive_int("num_subsets", num_subsets)
    drift = Fraction(1, num_subsets)
    rows = [(m, 1, drift if m < num_subsets - 1 else drift / 2) for m in range(num_subsets)]
    return Schedule("single_visit", [(0, 0, drift / 2), *rows], Reversal.RANDOM_ORDER)


def symmetric(num_subsets: int) -> Schedule:
    """Cobb and Jalaian's Algorithm 1: through the subsets in order and back again, with equal drifts between.

    Of second order. A step costs 2M - 2 subset gradients (one for M = 1, which is leapfrog).

    Args:
        num_subsets: M.

    Returns:
        The palindromic schedule.
    """
    check_positive_int("num_subsets", num_subsets)
    last = num_subsets - 1
    if last == 0:
        return Schedule("symmetric", [(0, HALF, 1), (0, HALF, 0)], Reversal.PALINDROMIC)
    drift = Fraction(1, 2 * last)
    up = [(m, HALF, drift if m < last else ZERO) for m in range(num_subsets)]
    down = [(m, HALF, drift if m > 0 else ZERO) for m in reversed(range(num_subsets))]
    return Schedule("symmetric", up + down, Reversal.PALINDROMIC)


def naive(num_subsets: int) -> Schedule:
    """Leapfrog whose gradient is summed subset by subset; a step costs M subset gradients, that is one data pass.

    Args:
        num_subsets: M.

    Returns:
        The palindromic schedule.
    """
    check_positive_int("num_subsets", num_subsets)
    last = num_subsets - 1
    before = [(m, HALF, 1 if m == last else 0) for m in range(num_subsets)]
    after = [(m, HALF, 0) for m in range(num_subsets)]
    return Schedule("naive", before + after, Reversal.PALINDROMIC)


def randomised(num_subsets: int) -> Schedule:
    """Neal's splitting (equation 7): a short leapfrog step with each subset in turn, in a random order.

    Of first order, because an order is not its own reverse. A step costs 2M subset gradients.

    Args:
        num_subsets: M.

    Returns:
        The schedule; its subsets are positions in an order that is drawn for each trajectory.
    """
    check_positive_int("num_subsets", num_subsets)
    drift = Fraction(1, num_subsets)
    rows = [row for m in range(num_subsets) for row in ((m, HALF, drift), (m, HALF, ZERO))]
    return Schedule("randomised", rows, Reversal.RANDOM_ORDER)


BUILT_IN: dict[str, Callable[[int], Schedule]] = {
    "symmetric": symmetric,
    "naive": naive,
    "randomised": randomised,
    "auto": naive,  # a decision at its end costs no forward pass, and drifts may be harmonic (split_common/harmonic.py)
    "single_visit": single_visit,
}
ScheduleChoice = str | Schedule | Callable[[int], Schedule]  # a name, the schedule itself, or a function of M


def check_schedule(schedule: Any) -> ScheduleChoice:
    """Return ``schedule``, or raise unless it is the name of one, a Schedule, or can be called; nothing is built."""
    if isinstance(schedule, Schedule) or callable(schedule) or (isinstance(schedule, str) and schedule in BUILT_IN):
        choice: Any = schedule
        return choice
    listed = ", ".join(repr(name) for name in BUILT_IN)
    raise ValueError(
        f"schedule must be {listed} or a function from M to a Schedule, or a Schedule, got {shown(schedule)}"
    )


def build_schedule(schedule: ScheduleChoice, num_subsets: int) -> Schedule:
    """Build the schedule of M subsets.

    Args:
        schedule: the name of one, a :class:`Schedule` of M subsets, or a function from M to one.
        num_subsets: M.

    Returns:
        The schedule.

    Raises:
        ValueError: for another name, a function that fails or gives something else, or a schedule that is not of M
            subsets.
    """
    check_schedule(schedule)
    if isinstance(schedule, str):
        return BUILT_IN[schedule](num_subsets)
    if isinstance(schedule, Schedule):
        if schedule.num_subsets != num_subsets:
            raise ValueError(
                f"schedule must be of num_subsets = {num_subsets} subsets, got {schedule.name!r} of "
                f"{schedule.num_subsets}"
            )
        return schedule
    rule = f"schedule must be a function from M to a Schedule of M subsets, got {shown(schedule)}, which for M = "
    try:
        built = schedule(num_subsets)
    except Exception as error:
        raise ValueError(f"{rule}{num_subsets} fails with {type(error).__name__}: {first_line(error)}") from error
    if not isinstance(built, Schedule):
        raise ValueError(f"{rule}{num_subsets} gives {shown(built)}")
    if built.num_subsets != num_subsets:
        raise ValueError(f"{rule}{num_subsets} gives one of {built.num_subsets} subsets")
    return built


@dataclass(frozen=True)
class ChosenSchedule:
    """The argument ``schedule`` of a kernel, checked; the rows are built when a run needs them.

    The rows of a user's own schedule are built at once, and so checked, unless it has very many subsets. The rows of a
    schedule given by name are built later, when M has been compared with the number of data rows.

    Args:
        choice: a name, a :class:`Schedule`, or a function from M to one.
        num_subsets: M; or how it is to be chosen, before there are rows.

    Raises:
        ValueError: for whatever :func:`check_schedule` and :func:`build_schedule` refuse; for a schedule of a given
            number of subsets where that number is to be chosen.

    Example:
        >>> ChosenSchedule("naive", num_subsets=4).rows.grads_per_step
        4
    """

    choice: ScheduleChoice
    num_subsets: int | AutoSubsets

    def __post_init__(self) -> None:
        check_schedule(self.choice)
        if isinstance(self.choice, Schedule) and isinstance(self.num_subsets, AutoSubsets):
            raise ValueError(
                "schedule must be a name or a function from num_subsets where that is 'auto', got "
                f"{shown(self.choice)} of num_subsets={self.choice.num_subsets}"
            )
        if self._is_built_first:
            _ = self.rows

    @property
    def _is_built_first(self) -> bool:
        num_subsets = self.num_subsets
        is_small = isinstance(num_subsets, int) and num_subsets <= MAX_CHECKED_SUBSETS
        return is_small and not isinstance(self.choice, str)

    @cached_property
    def rows(self) -> Schedule:
        """The schedule of M subsets."""
        assert isinstance(self.num_subsets, int)  # it is chosen before a run asks
        return build_schedule(self.choice, self.num_subsets)

    def for_subsets(self, num_subsets: int) -> ChosenSchedule:
        """The same choice for a number of subsets that was chosen."""
        return self if self.num_subsets == num_subsets else ChosenSchedule(self.choice, num_subsets)

    @property
    def details(self) -> list[str]:
        """The parts of a kernel's repr that describe the schedule."""
        if callable(self.choice):
            return [f"schedule={name_of(self.choice)}"]
        if isinstance(self.choice, str):
            return [f"schedule={self.choice!r}"]
        return [f"schedule={self.rows.name!r}"] if self._is_built_first else []

    @property
    def layout(self) -> str:
        """Text that distinguishes it from other schedules; it does not build rows that are not built yet."""
        return str((self.rows.leading_drift, self.rows.rows)) if self._is_built_first else repr(self.choice)


def _checked_row(name: str, given: Any) -> Row:
    """A row as it was given, in exact numbers."""
    try:
        subset, kick, drift = given
        row = Row(-1 if (number := whole_number(subset)) is None else number, Fraction(kick), Fraction(drift))
    except (TypeError, ValueError, OverflowError):
        row = None
    if row is None or row.subset < 0:
        raise ValueError(
            f"schedule {name!r}: a row must be (subset, kick, drift), a whole number of at least 0 and two exact "
            f"numbers such as Fraction(1, 2), got {shown(given)}"
        )
    return row


def _merge_neighbours(rows: list[Row]) -> tuple[Fraction, tuple[Row, ...]]:
    """Join kicks of one subset that no drift separates, and drifts that no kick separates.

    Returns:
        The drift before the first kick, and the rows.
    """
    leading_drift = ZERO
    merged: list[Row] = []
    for row in rows:
        if merged and merged[-1].subset == row.subset and not merged[-1].drift:
            row = Row(row.subset, merged.pop().kick + row.kick, row.drift)
        if row.kick:
            merged.append(row)
        elif merged:
            last = merged.pop()
            merged.append(last._replace(drift=last.drift + row.drift))
        else:
            leading_drift += row.drift
    return leading_drift, tuple(merged)


def _kicks_and_drifts(leading_drift: Fraction, rows: Iterable[Row]) -> list[Kicks | Fraction]:
    """The step as kicks at one position (their order does not matter), drift, kicks, …, kicks."""
    sequence: list[Kicks | Fraction] = [{}, leading_drift] if leading_drift else []
    here: Kicks = {}
    for row in rows:
        here[row.subset] = here.get(row.subset, ZERO) + row.kick
        if row.drift:
            sequence += [here, row.drift]
            here = {}
    return [*sequence, here]


def _relabel(group: Kicks | Fraction, last: int) -> Kicks | Fraction:
    """Count the subsets from the other end."""
    return group if isinstance(group, Fraction) else {last - subset: kick for subset, kick in group.items()}
