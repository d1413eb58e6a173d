"""The smallest number of subsets whose gradient fits into a given memory.

The memory of one gradient of a subset, besides the data and the position, is nearly linear in the subset's rows,

    b(n) = a + s n,    n = N/M rounded up,

with a for what the parameters take, such as the gradient itself, and s for a row's intermediate values. So a line
through two numbers of subsets that were measured says where to look next, and few have to be measured. The number that
is chosen was itself measured; the line only says where to look. b need not be a line: compilers fuse operations, and
evaluate large subsets in blocks. It is only taken to grow with the rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from split_common.checks import check_positive_int
from split_common.values import shown, whole_number

AUTO = "auto"
BASES = {2**10: ("B", "KiB", "MiB", "GiB", "TiB"), 10**3: ("B", "kB", "MB", "GB", "TB")}
UNITS = {unit: base**power for base, units in BASES.items() for power, unit in enumerate(units)}
MEMORY_RULE = "a whole number of bytes of at least 1, or text such as '2GiB', '500MB' or '1.5 GB'"
MOST_MEASURED = 24  # numbers of subsets that are measured; then the smallest that was seen to fit is taken
FIRST_ROWS = (16, 4)  # rows of the first subsets that are measured, where measuring takes the memory that it measures
LARGEST_STEP = 16  # factor by which the rows of a subset may then grow from one that fits
STEP_ON_A_LEVEL = 8  # factor by which M grows where two numbers that do not fit take the same
NEAR_ENOUGH = 64  # beyond this M need only be the smallest to one part in so many


@dataclass(frozen=True)
class AutoSubsets:
    """A number of subsets that is to be chosen, by the memory that a gradient may take.

    Attributes:
        memory: bytes that a gradient may take.
        least: fewest subsets.
    """

    memory: int
    least: int = 1

    def __str__(self) -> str:
        return f"{AUTO!r}, memory={text_of_bytes(self.memory)!r}"


class ChosenSubsets(NamedTuple):
    """A number of subsets that was chosen, and why.

    Attributes:
        num_subsets: M.
        taken: bytes that a gradient of its largest subset takes.
        memory: bytes that it may take.
        num_measured: number of divisions that were measured.
    """

    num_subsets: int
    taken: int
    memory: int
    num_measured: int

    def __str__(self) -> str:
        return (
            f"num_subsets={self.num_subsets} chosen for memory={text_of_bytes(self.memory)!r}, of which a gradient "
            f"takes {text_of_bytes(self.taken)}"
        )


def check_memory(memory: Any) -> int:
    """Return ``memory`` in bytes, or raise unless it is a number of them, or text with a unit.

    Example:
        >>> check_memory("1.5 GB"), check_memory("2GiB"), check_memory(500)
        (1500000000, 2147483648, 500)
    """
    number = whole_number(memory)
    if isinstance(memory, str) and (found := re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([A-Za-z]+)\s*", memory, re.ASCII)):
        unit = {name.lower(): size for name, size in UNITS.items()}.get(found[2].lower())
        number = None if unit is None else int(Fraction(found[1].rstrip(".")) * unit)
    if number is None or number < 1:
        raise ValueError(f"memory must be {MEMORY_RULE}, got {shown(memory)}")
    return number


def check_subsets(num_subsets: Any, memory: Any, least: int = 1) -> int | AutoSubsets:
    """The number of subsets, or how it is to be chosen.

    Args:
        num_subsets: as the user gave it, a number or "auto".
        memory: as the user gave it.
        least: fewest subsets; a smaller number counts as this one.

    Raises:
        ValueError: for what is neither, for "auto" without a memory, and for a memory without "auto".

    Example:
        >>> check_subsets(4, None), check_subsets("auto", "2GiB")
        (4, AutoSubsets(memory=2147483648, least=1))
    """
    if isinstance(num_subsets, str) and num_subsets == AUTO:
        if memory is None:
            raise ValueError(
                "memory must be given where num_subsets is 'auto', the bytes that one gradient may take: "
                f"{MEMORY_RULE}, got None"
            )
        return AutoSubsets(check_memory(memory), least)
    if memory is not None:
        check_memory(memory)
        raise ValueError(f"memory must be None unless num_subsets is 'auto', got {shown(memory)}")
    if isinstance(num_subsets, str):
        raise ValueError(f"num_subsets must be 'auto' or a whole number of at least 1, got {shown(num_subsets)}")
    return max(least, check_positive_int("num_subsets", num_subsets))


def choose_num_subsets(
    measure: Callable[[int], int], num_rows: int, auto: AutoSubsets, *, takes_memory: bool
) -> ChosenSubsets:
    """The smallest number of subsets whose gradient fits, by measuring few.

    Args:
        measure: function from a number of subsets to the bytes that a gradient of the largest one takes.
        num_rows: N, which is the most subsets.
        auto: the memory, and the fewest subsets.
        takes_memory: whether measuring takes that memory itself. Subsets are then measured from small to large, and
            none is measured that does not fit by the line through two others.

    Returns:
        The choice; beyond ``NEAR_ENOUGH`` subsets it is the smallest to one part in so many.

    Raises:
        ValueError: where not even a gradient of one row fits.

    Example:
        >>> auto = AutoSubsets(memory=1000)
        >>> choose_num_subsets(lambda m: 100 + 20 * -(-500 // m), 500, auto, takes_memory=False)
        ChosenSubsets(num_subsets=12, taken=940, memory=1000, num_measured=3)
    """
    search = _Search(num_rows, auto, takes_memory)
    while (num_subsets := search.next()) is not None:
        search.found[num_subsets] = measure(num_subsets)
    if not search.fits:
        raise does_not_fit(auto.memory, search.found[num_rows])
    chosen = search.fits[0]
    return ChosenSubsets(chosen, search.found[chosen], auto.memory, len(search.found))


def does_not_fit(memory: int, taken: int, why: str = "") -> ValueError:
    """The error for a model whose gradient does not fit, however it is divided; ``why`` says what prevents division."""
    rest = f"of the model undivided ({why})" if why else "of one row"
    return ValueError(
        f"memory must hold the gradient {rest}, which takes {text_of_bytes(taken)} ({taken} bytes) and no num_subsets "
        f"makes smaller, got memory={text_of_bytes(memory)!r} ({memory} bytes)"
    )


class _Search:
    """A search for the number of subsets: what was measured, and what to measure next.

    Attributes:
        found: bytes by the number of subsets.
    """

    def __init__(self, num_rows: int, auto: AutoSubsets, takes_memory: bool):
        self.found: dict[int, int] = {}
        self._num_rows, self._memory, self._takes_memory = num_rows, auto.memory, takes_memory
        self._least = min(auto.least, num_rows)

    @property
    def fits(self) -> list[int]:
        """Numbers of subsets that fit, in order."""
        return sorted(num for num, taken in self.found.items() if taken <= self._memory)

    def next(self) -> int | None:
        """The number of subsets to measure next; None at the end."""
        if not self.found:
            return max(self._least, self._num(FIRST_ROWS[0])) if self._takes_memory else self._least
        fits, fails = self.fits, sorted(num for num in self.found if self.found[num] > self._memory)
        below, above = (fails[-1] if fails else self._least - 1), (fits[0] if fits else self._num_rows + 1)
        slack = 1 + above // NEAR_ENOUGH if fits and fails else 1
        if above - below <= slack or (fits and len(self.found) >= MOST_MEASURED):
            return None
        if self._takes_memory and len(self.found) == 1 and above < (second := self._num(FIRST_ROWS[1])):
            return second  # two measurements make a line
        guess = self._guess(fits, fails, below, above)
        return None if guess is None else min(max(guess, below + 1), above - 1)

    def _guess(self, fits: list[int], fails: list[int], below: int, above: int) -> int | None:
        """The number of subsets at which the line reaches the limit; None where nothing more is to be measured."""
        rows = self._rows_that_fit(fits, fails)
        if fits and self._takes_memory:
            if rows < self._rows(above - 1):
                return None
            rows = min(rows, LARGEST_STEP * self._rows(above))
        if not fits and len(fails) > 2:
            return max(self._num(rows), 2 * below)
        if fits and fails and len(self.found) > MOST_MEASURED // 3:
            return math.isqrt(below * above)
        return self._num(rows)

    def _rows_that_fit(self, fits: list[int], fails: list[int]) -> float:
        """Rows of a subset where the line through the two numbers next to the limit meets it."""
        near = [*fails[-1:], *fits[:1]] if fits and fails else (fails or fits[::-1])[-2:]
        rows, taken = [self._rows(num) for num in near], [self.found[num] for num in near]
        if len(near) == 1:
            return rows[0] * self._memory / taken[0] if taken[0] else float(self._num_rows)
        slope = (taken[1] - taken[0]) / (rows[1] - rows[0]) if rows[0] != rows[1] else 0.0
        if slope <= 0:
            return float(self._num_rows) if fits else rows[-1] / STEP_ON_A_LEVEL
        return rows[0] + (self._memory - taken[0]) / slope

    def _rows(self, num_subsets: int) -> int:
        """Rows of the largest subset."""
        return -(-self._num_rows // num_subsets)

    def _num(self, rows: float) -> int:
        """The fewest subsets of at most so many rows."""
        return self._num_rows if rows < 1 else -(-self._num_rows // min(int(rows), self._num_rows))


def text_of_bytes(size: int) -> str:
    """Bytes in the largest unit that fits, to four digits, or fewer where these are exact.

    Example:
        >>> text_of_bytes(2**31), text_of_bytes(1_500_000), text_of_bytes(1234567)
        ('2 GiB', '1.5 MB', '1.177 MiB')
    """
    found = []
    for base, units in BASES.items():
        power = max((i for i in range(len(units)) if size >= base**i), default=0)
        number = f"{size / base**power:.4g}"
        is_exact = Fraction(number) * base**power == size
        found.append((not is_exact, len(number) if is_exact else 0, f"{number} {units[power]}"))
    return min(found, key=lambda text: text[:2])[2]
