"""Does a model's likelihood divide over rows? Decided from its operations, for all parameter values.

The likelihood of all rows and that of as many as are evaluated at a time are run on shapes alone, and the two lists of
tensor operations are walked side by side, value by value (:mod:`split_common.row_independence` says what is known of
one). A rule says what an operation makes of what it is given: :data:`RULES`, by the operation's name. What has no rule
is not proved.
"""

from __future__ import annotations

import contextlib
import sys
import sysconfig
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyro
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.func import functionalize
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import split_common
from pyro_split.capture import unlogged
from pyro_split.densities import Data, ModelDensity, Position
from pyro_split.held import HeldNumber
from pyro_split.row_operations import FREE, Operation, Rule, Step, is_equal, no_rule, unknown
from pyro_split.row_rules import ELEMENTWISE, RULES
from split_common.checks import first_line
from split_common.held import Holding, Proof
from split_common.row_independence import NOT_PROVED, Aligned, Free, NotAligned, Numbers, Value, Verdict, verdict_of

__all__ = ["RULES", "Operation", "Walk", "no_rule", "prove"]

PACKAGES = (__file__, split_common.__file__, torch.__file__, pyro.__file__)
NOT_THE_USERS = (
    *(str(Path(file).parent) for file in PACKAGES if file),
    sysconfig.get_paths()["stdlib"],
    "<frozen",
    "<string>",
)
RANDOM = torch.Tag.nondeterministic_seeded
ANOTHER = "the program is another one on fewer rows"


def prove(density: ModelDensity, data: Data, z: Position, num_rows: int) -> Proof:
    """The verdict on a model's division into parts of a number of rows, and what must be held for it.

    Args:
        density: the model, and how its rows are selected.
        data: its data tensors, on all rows.
        z: a position, of which only shapes count.
        num_rows: rows of a part.
    """
    rows = density.layout.num_rows, num_rows
    try:
        whole, part = (_record(density, data, z, n) for n in rows)
    except NotRecordedError as error:
        return _unproved(str(error))
    if part.axes != whole.axes:
        return _unproved("the model has other sites on fewer rows")
    if None in whole.axes:
        return _unproved("the plate is a loop over rows")
    walk = Walk(rows, len(z))
    values = walk.record(whole, part)
    places = [output.dim() + (axis or 0) for output, axis in zip(whole.outputs, whole.axes, strict=True)]
    verdict = verdict_of(list(zip(values, places, strict=True)))
    return Proof(verdict, whole.num_steps, walk.held(whole))


def _unproved(why: str) -> Proof:
    return Proof(Verdict(NOT_PROVED, why), 0, {})


class NotRecordedError(Exception):
    """What stops a model on shapes alone: a value that it asks for, a shape that does not fit; with its line."""


class Record(NamedTuple):
    """A likelihood on some rows.

    Attributes:
        steps: the operations, those that nothing rests on left out.
        num_steps: how many there are with those.
        inputs: tensors that they are given.
        known: what is known of those.
        outputs: log-probabilities inside the plate.
        axes: of each of them, the axis (negative) of the plate.
    """

    steps: list[Step]
    num_steps: int
    inputs: list[Tensor]
    known: list[Value]
    outputs: list[Tensor]
    axes: list[int | None]


def _record(density: ModelDensity, data: Data, z: Position, num_rows: int) -> Record:
    is_cut = density.mode == "slice"
    of_data = density.arguments.axes if is_cut else [None] * len(data)
    of_sites = {name: z[name].dim() + axis for name, axis in density.local_axes.items()}
    axes: list[int | None] = []
    recorder = Recorder()
    with _on_shapes():
        local = {name: _like(u, of_sites.get(name), num_rows) for name, u in z.items()}
        taken = tuple(_like(x, axis, num_rows) for x, axis in zip(data, of_data, strict=True))
        run, inputs = density.as_function(local, axes, taken, torch.empty(num_rows, dtype=torch.long))
        try:
            with recorder:
                outputs = functionalize(run)(*inputs)
        except Exception as error:
            where = f"{recorder.stopped_at}: " if recorder.stopped_at else ""
            raise NotRecordedError(where + _reason(error)) from error
    known = [
        *(Aligned(of_sites[name]) if name in of_sites else FREE for name in z),
        *(FREE if axis is None else Aligned(axis) for axis in of_data),
        Numbers(0) if is_cut else Aligned(0),
    ]
    return Record(_needed(recorder.steps, outputs), len(recorder.steps), inputs, known, outputs, axes)


@contextlib.contextmanager
def _on_shapes() -> Iterator[None]:
    """Run without values, and leave Pyro's parameters as they are."""
    store = pyro.get_param_store()
    with store.scope(store.get_state()), unlogged(), pyro.validation_enabled(False), torch.no_grad():
        with FakeTensorMode(allow_non_fake_inputs=True):
            yield


def _reason(error: Exception) -> str:
    if isinstance(error, DataDependentOutputException):
        return "a number taken out of a tensor, which may be any (a branch on it, `.item()`)"
    if isinstance(error, DynamicOutputShapeException):
        return f"an array whose length rests on values ({first_line(error)})"
    return first_line(error)


def _like(x: Tensor, axis: int | None, num_rows: int) -> Tensor:
    """A tensor of the same type with another number of rows, along an axis or along none."""
    shape = [num_rows if place == axis else length for place, length in enumerate(x.shape)]
    return torch.empty(shape, dtype=x.dtype, device=x.device)


class Recorder(TorchDispatchMode):
    """Keeps every operation that is run.

    Attributes:
        steps: the operations.
        stopped_at: file and line of the user's model where the last one failed, or "".
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.stopped_at = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and keep it."""
        kwargs = kwargs or {}
        try:
            results = func(*args, **kwargs)
            if func._schema.is_mutable:
                self._check_write(func, args)
        except Exception:
            self.stopped_at = _where()
            raise
        tensors = [x for x in pytree.tree_leaves(results) if isinstance(x, Tensor)]
        if tensors:
            name = func.overloadpacket.__name__
            name = name.removesuffix("_") if func._schema.is_mutable else name
            arguments = _by_name(func._schema.arguments, args, kwargs)
            self.steps.append(Step(name, func, arguments, tensors, _where(), len(self.steps)))
        return results

    def _check_write(self, func: Any, args: Any) -> None:
        """Let an operation write over a result that nothing else looks into: its value is then another one.

        PyTorch's own operations do that in passing; what a model writes in place has been rewritten before.
        """
        written = [x.name for x in func._schema.arguments if x.alias_info is not None and x.alias_info.is_write]
        seen = [x for step in self.steps for x in [*step.tensors, *step.results] if _memory(x) == _memory(args[0])]
        is_own = any(x is args[0] for step in self.steps for x in step.results) and all(x is args[0] for x in seen)
        if written != [func._schema.arguments[0].name] or not is_own:
            raise RuntimeError(f"{func.overloadpacket.__name__}, which writes in a tensor that is seen from elsewhere")


def _memory(x: Tensor) -> int:
    return x.untyped_storage()._cdata


def _by_name(schema: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an operation, those that were left out among them."""
    given = {argument.name: value for argument, value in zip(schema, args, strict=False)}
    defaults = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    found = {**defaults, **given, **kwargs}
    return {argument.name: found[argument.name] for argument in schema if argument.name in found}


def _where() -> str:
    """File and line of the user's model that is being run, or ""."""
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if "site-packages" not in file and not file.startswith(NOT_THE_USERS):
            return f"{Path(file).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _needed(steps: list[Step], outputs: list[Tensor]) -> list[Step]:
    """Those steps that outputs rest on."""
    wanted = {id(x) for x in outputs}
    kept = []
    for step in reversed(steps):
        if any(id(x) in wanted for x in step.results):
            kept.append(step)
            wanted.update(id(x) for x in step.tensors)
    return kept[::-1]


class Walk:
    """Two records, of all rows and of some, walked side by side.

    Args:
        rows: how many there are, and how many of them a part has.
        num_sites: how many of the inputs, the first ones, are parameters.
    """

    def __init__(self, rows: tuple[int, int], num_sites: int):
        self._rows = rows
        self._holding = Holding(*rows, range(num_sites))
        self._numbers: dict[Hashable, HeldNumber] = {}
        self._keys: dict[int, Hashable] = {}  # of tensors on all rows: an input's number, a result's place
        self._known: dict[int, Value] = {}  # by the tensor on all rows
        self._twins: dict[int, int] = {}  # of a tensor on some rows, the one on all
        self._parted = NotAligned(False, ANOTHER)  # where the two go different ways

    def record(self, whole: Record, part: Record) -> list[Value]:
        """What is known of the outputs."""
        self._learn(whole.inputs, part.inputs, whole.known, range(len(whole.inputs)))
        for a, b in zip(whole.steps, part.steps, strict=False):
            if not _is_one(a, b):
                self._parted = self._parted._replace(where=a.where)
                break
            keys = [(a.number, place) for place in range(len(a.results))]
            self._holding.follow(self._keys_of(a.tensors), keys)
            found = self.operation(a, b)
            held = [self._holding.hold(*known) for known in zip(keys, found, a.results, b.results, strict=True)]
            self._learn(a.results, b.results, held, keys)
        return [self.read(a, b) for a, b in zip(whole.outputs, part.outputs, strict=True)]

    def held(self, whole: Record) -> dict[Any, Any]:
        """What is held and has a part in the outputs: results by their place, numbers by (operation, argument)."""
        steps = [(self._keys_of(step.tensors), self._keys_of(step.results)) for step in whole.steps]
        return self._holding.needed_by(self._keys_of(whole.outputs), steps) | self._numbers

    def _keys_of(self, tensors: Sequence[Tensor]) -> list[Hashable]:
        return [self._keys.get(id(x)) for x in tensors]

    def read(self, whole: Tensor, part: Tensor) -> Value:
        """What is known of a tensor: one that was computed, or one that the model holds."""
        if id(whole) in self._known or id(part) in self._twins:
            is_twin = self._twins.get(id(part)) == id(whole)
            return self._known[id(whole)] if is_twin else NotAligned(False, ANOTHER)
        is_held = not any(isinstance(x, FakeTensor) for x in (whole, part))
        return _constant(whole, part) if is_held else self._parted

    def operation(self, whole: Step, part: Step) -> list[Value]:
        """What is known of the results of one operation."""
        operands = [self.read(a, b) for a, b in zip(whole.tensors, part.tensors, strict=True)]
        op = Operation(whole, part, operands, self._rows)
        rests_on = op.values("src") if op.name == "copy" else operands  # what is written over does not count
        faults = [value for value in rests_on if isinstance(value, NotAligned)]
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
        """``op``, where entries are computed from numbers that differ on fewer rows, with those of all rows."""
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
    """Whether two steps are one operation, but for lengths."""
    counts = [(step.overload, len(step.tensors), len(step.results)) for step in (a, b)]
    return counts[0] == counts[1]


def _rule(op: Operation) -> Rule:
    if RANDOM in op.whole.overload.tags and op.whole.arguments.get("dropout_p") != 0.0:
        return lambda op: unknown(op, f"random numbers ({op.name})")
    return no_rule if op.is_free else RULES.get(op.name, no_rule)


def _constant(whole: Tensor, part: Tensor) -> Value:
    """Of a tensor that the model holds, in both runs."""
    if whole is part:
        return FREE
    if whole.dtype != part.dtype:
        return NotAligned(False, ANOTHER)
    a, b = (x.detach().cpu().numpy() for x in (whole, part))
    if a.shape == b.shape:
        if all(is_equal(x, y) for x, y in zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)):
            return FREE
        shown = f"{a.item()} or {b.item()}" if a.size == 1 else f"an array of shape {a.shape}"
        return NotAligned(True, f"a number that depends on how many rows there are, {shown}")
    if a.ndim == b.ndim == 1 and all(np.array_equal(x, np.arange(len(x))) for x in (a, b)):
        return Numbers(0)
    if a.ndim == b.ndim:
        longer = [axis for axis in range(a.ndim) if a.shape[axis] != b.shape[axis]]
        first = tuple(slice(1) if axis in longer else slice(None) for axis in range(a.ndim))
        if a.size and b.size and all(np.array_equal(np.broadcast_to(a[first], x.shape), x) for x in (a, b)):
            return Free(frozenset(longer))
    return NotAligned(True, "an array of numbers that depends on how many rows there are")
