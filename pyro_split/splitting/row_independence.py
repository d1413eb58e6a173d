"""Does a model's likelihood divide over rows? Decided from its operations, for all parameter values.

The likelihood of all rows and that of as many as are evaluated at a time are run on shapes alone, and the two lists of
tensor operations are walked side by side, value by value (:mod:`split_common.row_independence` says what is known of
one). A rule says how an operation's results depend on rows: :data:`RULES`, by the operation's name. Without a rule
nothing is proved.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyro_split.host import FakeTensor, is_random
from pyro_split.potential.arguments import Data
from pyro_split.potential.densities import ModelDensity, Read
from pyro_split.potential.flat_program import FlatProgram, NotRecordedError, Place, Step
from pyro_split.potential.held import HeldNumber
from pyro_split.potential.position import Position
from pyro_split.splitting.row_operations import FREE, ROUNDING, Merged, Operation, Rule, Value, no_rule, unknown
from pyro_split.splitting.row_rules import ELEMENTWISE, OF_MERGED, RULES
from split_common.errors import first_line
from split_common.held import Holding, Proof, reasons
from split_common.row_independence import (
    NOT_PROVED,
    PROVED,
    REFUTED,
    Aligned,
    Free,
    NotAligned,
    Numbers,
    Verdict,
    verdict_of,
)
from split_common.row_independence import Value as Known
from split_common.selection import cuts_data, yields_numbers

__all__ = ["RULES", "Operation", "Walk", "no_rule", "prove", "prove_free"]

ANOTHER = "the program is another one on fewer rows"
DRAWN = "drawn"  # key on which random numbers depend: they differ in each run, like a parameter


def prove(density: ModelDensity, data: Data, z: Position, num_rows: int) -> Proof:
    """The verdict on a model's division into parts of a number of rows, and the shared values that it needs.

    Args:
        density: the model, and how its rows are selected.
        data: its data tensors, on all rows.
        z: a position, of which only shapes count.
        num_rows: rows of a part.
    """
    try:
        walk, values, whole = _follow(density.terms, density, data, z, num_rows)
    except NotRecordedError as error:
        return Proof(Verdict(NOT_PROVED, str(error)), 0, {})
    if None in whole.axes:
        return Proof(Verdict(NOT_PROVED, "the plate is a loop over rows"), 0, {})
    places = [output.dim() + (axis or 0) for output, axis in zip(whole.program.outputs, whole.axes, strict=True)]
    verdict = verdict_of(list(zip(values, places, strict=True)))
    return Proof(verdict, len(whole.program.steps), walk.held(whole.program))


def prove_free(read: Read, density: ModelDensity, data: Data, z: Position, num_rows: int) -> Verdict:
    """The verdict on whether values outside the plate are the same on any rows.

    Args:
        read: the values: :meth:`ModelDensity.outside` or :meth:`ModelDensity.bounds`.
        density: the model, and how its rows are selected.
        data: its data tensors, on all rows.
        z: a position, of which only shapes count.
        num_rows: rows of a part.
    """
    try:
        walk, values, whole = _follow(read, density, data, z, num_rows)
    except Exception as error:  # whatever a model raises on fewer rows
        return Verdict(NOT_PROVED, first_line(error))
    for value in values:
        if isinstance(value, NotAligned):
            return Verdict(REFUTED if value.is_known else NOT_PROVED, str(value))
        if value != FREE:
            return Verdict(REFUTED, "what stands outside the plate rests on the data rows")
    held = reasons(walk.held(whole.program).values())
    return Verdict(REFUTED, held[0]) if held else Verdict(PROVED)


def _follow(
    read: Read, density: ModelDensity, data: Data, z: Position, num_rows: int
) -> tuple[Walk, list[Known], Record]:
    """The walk through a model on all rows and on some, knowledge of the tensors read, and the record of all rows."""
    rows = density.layout.num_rows, num_rows
    whole, part = (_record(read, density, data, z, n) for n in rows)
    if part.axes != whole.axes:
        raise NotRecordedError("the model has other sites on fewer rows")
    walk = Walk(rows, len(z))
    values = walk.record(whole, part)
    if walk.held(whole.program):
        _check_again(whole.program, _record(read, density, data, z, rows[0]).program)
    return walk, values, whole


def _check_again(program: FlatProgram, again: FlatProgram) -> None:
    """Raise where a second run on as many rows has other numbers: they depend on something else than on the rows."""
    for a, b in zip(program.steps, again.steps, strict=False):
        if not _is_one(a, b):
            break
        pairs = [(x, y) for x, y in zip(a.tensors, b.tensors, strict=True) if not isinstance(x, FakeTensor)]
        if not Operation(a, b, [], (0, 0)).same() or any(_constant(x, y) != FREE for x, y in pairs):
            where = f"{a.where}: " if a.where else ""
            raise NotRecordedError(f"{where}a number that is another one in each run")


class Record(NamedTuple):
    """Record of the tensors that are read from a model on some rows.

    Attributes:
        program: from the model's inputs to these tensors.
        known: what is known of its inputs.
        axes: of each result, the axis (negative) of the plate, or None.
    """

    program: FlatProgram
    known: list[Value]
    axes: list[int | None]


def _record(read: Read, density: ModelDensity, data: Data, z: Position, num_rows: int) -> Record:
    of_data = density.arguments.axes if cuts_data(density.mode) else [None] * len(data)
    of_sites = {name: z[name].dim() + axis for name, axis in density.local_axes.items()}
    local = {name: _like(u, of_sites.get(name), num_rows) for name, u in z.items()}
    taken = tuple(_like(x, axis, num_rows) for x, axis in zip(data, of_data, strict=True))
    program, axes = density.expression(read, local, taken, torch.empty(num_rows, dtype=torch.long))
    known = [
        *(Aligned(of_sites[name]) if name in of_sites else FREE for name in z),
        *(FREE if axis is None else Aligned(axis) for axis in of_data),
        Aligned(0) if yields_numbers(density.mode) else Numbers(0),
    ]
    return Record(program, known, axes)


def _like(x: Tensor, axis: int | None, num_rows: int) -> Tensor:
    """``x`` as if it had another number of rows, along an axis or along none; only shape, type and device count."""
    shape = [num_rows if place == axis else length for place, length in enumerate(x.shape)]
    return x.new_empty(()).expand(shape)


class Walk:
    """Two records, of all rows and of some, walked side by side.

    Args:
        rows: number of all rows, and of those in a part.
        num_sites: number of inputs that are parameters; they come first.
    """

    def __init__(self, rows: tuple[int, int], num_sites: int):
        self._rows = rows
        self._holding = Holding(*rows, [*range(num_sites), DRAWN])
        self._numbers: dict[Hashable, HeldNumber] = {}
        self._steps: list[tuple[list[Hashable], list[Place]]] = []
        self._keys: dict[int, Hashable] = {}  # key of each tensor on all rows: an input's number, a result's place
        self._known: dict[int, Value] = {}  # what is known, by the tensor on all rows
        self._twins: dict[int, int] = {}  # for each tensor on some rows, its counterpart on all
        self._parted = NotAligned(False, ANOTHER)  # said of tensors computed after the two records differ

    def record(self, whole: Record, part: Record) -> list[Known]:
        """Knowledge of the outputs."""
        a, b = whole.program, part.program
        self._learn(a.inputs, b.inputs, whole.known, range(len(a.inputs)))
        for step, twin in zip(a.steps, b.steps, strict=False):
            if not _is_one(step, twin):
                self._parted = self._parted._replace(where=step.where)
                break
            operands, results = self._keys_of(step.tensors), [(step.number, i) for i in range(len(step.results))]
            self._steps.append((operands, results))
            self._holding.follow([*operands, DRAWN] if is_random(step.overload, step.arguments) else operands, results)
            found = self.operation(step, twin)
            held = [
                value if isinstance(value, Merged) else self._holding.hold(key, value, x, y)
                for key, value, x, y in zip(results, found, step.results, twin.results, strict=True)
            ]
            self._learn(step.results, twin.results, held, results)
        found = [self.read(x, y) for x, y in zip(a.outputs, b.outputs, strict=True)]
        return [NotAligned(False, "rows among others") if isinstance(x, Merged) else x for x in found]

    def held(self, whole: FlatProgram) -> dict[Any, Any]:
        """Held values that the outputs use: results by their place, numbers by (operation, argument)."""
        return self._holding.needed_by(self._keys_of(whole.outputs), self._steps) | self._numbers

    def _keys_of(self, tensors: Sequence[Tensor]) -> list[Hashable]:
        return [self._keys.get(id(x)) for x in tensors]

    def read(self, whole: Tensor, part: Tensor) -> Value:
        """Knowledge of a tensor that was computed, or that the model holds."""
        if id(whole) in self._known or id(part) in self._twins:
            is_twin = self._twins.get(id(part)) == id(whole)
            return self._known[id(whole)] if is_twin else NotAligned(False, ANOTHER)
        is_held = not any(isinstance(x, FakeTensor) for x in (whole, part))
        return _constant(whole, part) if is_held else self._parted

    def operation(self, whole: Step, part: Step) -> list[Value]:
        """Propagate what is known of an operation's operands to its results."""
        operands = [self.read(a, b) for a, b in zip(whole.tensors, part.tensors, strict=True)]
        op = Operation(whole, part, operands, self._rows)
        depends_on = op.values("src") if op.name == "copy" else operands  # the overwritten operand does not count
        faults = [value for value in depends_on if isinstance(value, NotAligned)]
        faults.sort(key=lambda fault: not fault.is_known)  # a known combination of rows is reported first
        try:
            if faults:
                found = faults[:1] * op.results
            else:
                op = self._with_numbers_held(op)
                found = _rule(op)(op)
        except (KeyError, IndexError) as missing:  # an argument that has another name in this version of PyTorch
            found = unknown(op, f"{op.name}, which has no argument {missing}")
        return [
            value._replace(where=whole.where) if isinstance(value, NotAligned) and not value.where else value
            for value in (op.consistent(value, place) for place, value in enumerate(found))
        ]

    def _with_numbers_held(self, op: Operation) -> Operation:
        """``op`` with the numbers of all rows, where an elementwise operation has other numbers on fewer rows."""
        if not op.same() and op.name in ELEMENTWISE:
            names = [name for name in op.whole.arguments if not op.same(name)]
            pairs = [(name, op.whole.arguments[name], op.part.arguments.get(name)) for name in names]
            if all(isinstance(x, int | float | complex) for _, *numbers in pairs for x in numbers):
                for name, a, b in pairs:
                    what = f"{op.whole.where}: " if op.whole.where else ""
                    what += f"a number that depends on how many rows there are, {a} or {b}"
                    self._numbers[op.whole.number, name] = HeldNumber(a, what)
                part = op.part._replace(arguments=op.part.arguments | {name: a for name, a, _ in pairs})
                return op._replace(part=part)
        return op

    def _learn(
        self, whole: Sequence[Tensor], part: Sequence[Tensor], values: Sequence[Value], keys: Sequence[Hashable]
    ) -> None:
        for a, b, value, key in zip(whole, part, values, keys, strict=True):
            self._known[id(a)], self._keys[id(a)] = value, key
            self._twins[id(b)] = id(a)


def _is_one(a: Step, b: Step) -> bool:
    """Whether two steps are the same operation, up to lengths."""
    counts = [(step.overload, len(step.tensors), len(step.results)) for step in (a, b)]
    return counts[0] == counts[1]


def _rule(op: Operation) -> Rule:
    if is_random(op.whole.overload, op.whole.arguments):
        return lambda op: unknown(op, f"random numbers ({op.name})")
    rule = no_rule if op.is_free else RULES.get(op.name, no_rule)
    return no_rule if rule not in OF_MERGED and any(isinstance(x, Merged) for x in op.operands) else rule


def _constant(whole: Tensor, part: Tensor) -> Value:
    """Knowledge of a tensor that the model holds, from its values in both runs."""
    if whole is part:
        return FREE
    if whole.dtype != part.dtype or whole.dim() != part.dim() or not _is_dense(whole, part):
        return NotAligned(False, ANOTHER)
    if whole.shape == part.shape:
        is_float = whole.is_floating_point()
        if torch.equal(whole, part) or (is_float and torch.allclose(whole, part, ROUNDING, 0.0, equal_nan=True)):
            return FREE
        shown = f"{whole.item()} or {part.item()}" if whole.numel() == 1 else f"an array of shape {tuple(whole.shape)}"
        return NotAligned(True, f"a number that depends on how many rows there are, {shown}")
    if whole.dim() == 1 and all(torch.equal(x, torch.arange(len(x)).to(x)) for x in (whole, part)):
        return Numbers(0)
    longer = [axis for axis in range(whole.dim()) if whole.shape[axis] != part.shape[axis]]
    if whole.numel() and part.numel():
        first = whole[tuple(slice(1) if axis in longer else slice(None) for axis in range(whole.dim()))]
        if all(torch.equal(first.expand(x.shape), x) for x in (whole, part)):
            return Free(frozenset(longer))
    return NotAligned(True, "an array of numbers that depends on how many rows there are")


def _is_dense(*tensors: Tensor) -> bool:
    return all(x.layout == torch.strided and not x.is_quantized for x in tensors)
