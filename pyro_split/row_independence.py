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
from collections.abc import Callable, Iterator, Sequence
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
from pyro_split.row_operations import FREE, Operation, Rule, Step, is_equal, no_rule, unknown
from pyro_split.row_rules import RULES
from split_common.checks import first_line
from split_common.row_independence import (
    NOT_PROVED,
    PROVED,
    REFUTED,
    Aligned,
    Free,
    NotAligned,
    Numbers,
    Value,
    Verdict,
    verdict_of,
)

__all__ = ["RULES", "Operation", "Walk", "no_rule", "prove", "prove_free"]

PACKAGES = (__file__, split_common.__file__, torch.__file__, pyro.__file__)
NOT_THE_USERS = (
    *(str(Path(file).parent) for file in PACKAGES if file),
    sysconfig.get_paths()["stdlib"],
    "<frozen",
    "<string>",
)
Read = Callable[[Position, Data, Tensor], Sequence[tuple[Tensor, int | None]]]
RANDOM = torch.Tag.nondeterministic_seeded
ANOTHER = "the program is another one on fewer rows"


def prove(density: ModelDensity, data: Data, z: Position, num_rows: int) -> Verdict:
    """The verdict on a model's division into parts of a number of rows.

    Args:
        density: the model, and how its rows are selected.
        data: its data tensors, on all rows.
        z: a position, of which only shapes count.
        num_rows: rows of a part.
    """
    try:
        values, outputs, axes = _follow(density.terms, density, data, z, num_rows)
    except NotRecordedError as error:
        return Verdict(NOT_PROVED, str(error))
    if None in axes:
        return Verdict(NOT_PROVED, "the plate is a loop over rows")
    return verdict_of([(v, x.dim() + (axis or 0)) for v, x, axis in zip(values, outputs, axes, strict=True)])


def prove_free(read: Read, density: ModelDensity, data: Data, z: Position, num_rows: int) -> Verdict:
    """The verdict on whether values outside the plate are the same on any rows.

    Args:
        read: the values, with None for an axis, from what :meth:`ModelDensity.terms` takes.
        density: the model, and how its rows are selected.
        data: its data tensors, on all rows.
        z: a position, of which only shapes count.
        num_rows: rows of a part.
    """
    try:
        values = _follow(read, density, data, z, num_rows)[0]
    except NotRecordedError as error:
        return Verdict(NOT_PROVED, str(error))
    for value in values:
        if isinstance(value, NotAligned):
            return Verdict(REFUTED if value.is_known else NOT_PROVED, str(value))
        if value != FREE:
            return Verdict(REFUTED, "what stands outside the plate rests on the data rows")
    return Verdict(PROVED)


def _follow(
    read: Read, density: ModelDensity, data: Data, z: Position, num_rows: int
) -> tuple[list[Value], list[Tensor], list[int | None]]:
    """What is known of what is read from a model, that on all rows, and the axes of the plate."""
    rows = density.layout.num_rows, num_rows
    whole, part = (_record(read, density, data, z, n) for n in rows)
    if part.axes != whole.axes:
        raise NotRecordedError("the model has other sites on fewer rows")
    return Walk(rows).record(whole, part), whole.outputs, whole.axes


class NotRecordedError(Exception):
    """What stops a model on shapes alone: a value that it asks for, a shape that does not fit; with its line."""


class Record(NamedTuple):
    """Operations on some rows.

    Attributes:
        steps: the operations, those that nothing rests on left out.
        inputs: tensors that they are given.
        known: what is known of those.
        outputs: what is asked about, as log-probabilities inside the plate.
        axes: of each output, the axis (negative) of the plate, or None.
    """

    steps: list[Step]
    inputs: list[Tensor]
    known: list[Value]
    outputs: list[Tensor]
    axes: list[int | None]


def _record(read: Read, density: ModelDensity, data: Data, z: Position, num_rows: int) -> Record:
    is_cut = density.mode == "slice"
    of_data = density.arguments.axes if is_cut else [None] * len(data)
    of_sites = {name: z[name].dim() + axis for name, axis in density.local_axes.items()}
    axes: list[int | None] = []

    def run(*tensors: Tensor) -> list[Tensor]:
        local = dict(zip(z, tensors, strict=False))
        found = read(local, tensors[len(z) : -1], tensors[-1])
        axes.extend(axis for _, axis in found)
        return [term for term, _ in found]

    recorder = Recorder()
    with _on_shapes():
        inputs = [
            *(_like(u, of_sites.get(name), num_rows) for name, u in z.items()),
            *(_like(x, axis, num_rows) for x, axis in zip(data, of_data, strict=True)),
            torch.empty(num_rows, dtype=torch.long),
        ]
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
    return Record(_needed(recorder.steps, outputs), inputs, known, outputs, axes)


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
            self.steps.append(Step(name, func, arguments, tensors, _where()))
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
    """

    def __init__(self, rows: tuple[int, int]):
        self._rows = rows
        self._known: dict[int, Value] = {}  # by the tensor on all rows
        self._twins: dict[int, int] = {}  # of a tensor on some rows, the one on all
        self._parted = NotAligned(False, ANOTHER)  # where the two go different ways

    def record(self, whole: Record, part: Record) -> list[Value]:
        """What is known of the outputs."""
        self._learn(whole.inputs, part.inputs, whole.known)
        for a, b in zip(whole.steps, part.steps, strict=False):
            if not _is_one(a, b):
                self._parted = self._parted._replace(where=a.where)
                break
            self._learn(a.results, b.results, self.operation(a, b))
        return [self.read(a, b) for a, b in zip(whole.outputs, part.outputs, strict=True)]

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
            found = faults[:1] * op.results if faults else _rule(op)(op)
        except (KeyError, IndexError) as missing:  # an argument that has another name in this version of PyTorch
            found = unknown(op, f"{op.name}, which has no argument {missing}")
        return [
            value._replace(where=whole.where) if isinstance(value, NotAligned) and not value.where else value
            for value in (op.consistent(value, place) for place, value in enumerate(found))
        ]

    def _learn(self, whole: Sequence[Tensor], part: Sequence[Tensor], values: Sequence[Value]) -> None:
        for a, b, value in zip(whole, part, values, strict=True):
            self._known[id(a)] = value
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
