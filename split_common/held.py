"""Shared values of a likelihood: they combine rows but depend on no parameter, so they are computed once and held.

The largest entry of a column, a sorted array, a literal 1/N: such a value is the same at every position, so it is
computed once, on all rows. A part of the rows is then given the shared value in place of its own: as it is, or cut to
its rows, where it has an entry for each. What a part computes from there on is what all rows compute, at its rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from split_common.row_independence import Aligned, Free, NotAligned, Value, Verdict


class HeldValue(NamedTuple):
    """One shared value.

    Attributes:
        axis: axis of the rows; None where the value has none.
        what: the operation that combines rows, with its line in the model.
    """

    axis: int | None
    what: str


class Proof(NamedTuple):
    """The outcome of one proof.

    Attributes:
        verdict: verdict on the likelihood when the values ``held`` are given.
        num_steps: number of operations of the likelihood's program.
        held: the shared values, by their place in that program.
    """

    verdict: Verdict
    num_steps: int
    held: dict[Any, Any]


class Holding:
    """Finds shared values while two programs are walked side by side: of all rows, and of some.

    Each value has a key, which is the same in both programs.

    Args:
        num_rows: N.
        part_rows: rows of a part.
        parameters: keys of the inputs that are parameters.

    Attributes:
        held: values that may be shared, by key.
    """

    def __init__(self, num_rows: int, part_rows: int, parameters: Iterable[Hashable]):
        self._rows = num_rows, part_rows
        self._of_parameters = set(parameters)
        self._same: dict[Hashable, Hashable] = {}
        self.held: dict[Any, HeldValue] = {}

    def follow(self, operands: Iterable[Hashable], results: Iterable[Hashable]) -> None:
        """Note whether the results of an operation depend on parameters."""
        if self._of_parameters.intersection(operands):
            self._of_parameters.update(results)

    def note_same(self, result: Hashable, operand: Hashable) -> None:
        """Note that an operation returns one of its operands, whatever the others are."""
        self._same[result] = operand

    def hold(self, key: Any, value: Value, whole: Any, part: Any) -> Value:
        """Knowledge of a value: ``value`` itself, or that of a shared value once it is held.

        Args:
            key: key of the value.
            value: knowledge of the value.
            whole: an array, or its shape and type, in the program of all rows.
            part: the same in the other program.
        """
        if not isinstance(value, NotAligned) or key in self._of_parameters or whole.dtype != part.dtype:
            return value
        if len(whole.shape) != len(part.shape):
            return value
        longer = [axis for axis, sizes in enumerate(zip(whole.shape, part.shape, strict=True)) if sizes[0] != sizes[1]]
        if len(longer) > 1 or any((whole.shape[axis], part.shape[axis]) != self._rows for axis in longer):
            return value
        self.held[key] = HeldValue(longer[0] if longer else None, str(value))
        return Aligned(longer[0]) if longer else Free()

    def needed_by(
        self, outputs: Iterable[Hashable], steps: Sequence[tuple[Sequence[Hashable], Sequence[Hashable]]]
    ) -> dict[Any, HeldValue]:
        """Shared values that a program's outputs use, where all shared values are given.

        Args:
            outputs: keys of the outputs.
            steps: for each operation, in order, the keys of its operands and of its results.
        """
        read = set(outputs)
        for operands, results in reversed(steps):
            if read.intersection(results).difference(self.held):
                same = self._same.get(results[0])
                read.update(operands if same is None else [same])
        return {key: value for key, value in self.held.items() if key in read}


def reasons(held: Iterable[Any]) -> tuple[str, ...]:
    """Reasons of the shared values, in words, each once."""
    return tuple(dict.fromkeys(value.what for value in held))
