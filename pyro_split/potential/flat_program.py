"""A function of tensors as a flat list of the operations that it runs.

The function is run once on shapes alone, without gradients, and what it writes in place is rewritten. The list can be
walked, and run on tensors; with autograd, or inside a transformation, like any function.
"""

from __future__ import annotations

import contextlib
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyro
import torch
from torch import Tensor
from torch.func import functionalize

import split_common
from pyro_split.host import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    TorchDispatchMode,
    pytree,
    unvalidated,
    without_modes,
)
from pyro_split.potential.capture import unlogged
from split_common.errors import first_line

PACKAGES = (__file__, split_common.__file__, torch.__file__, pyro.__file__)
NOT_THE_USERS = (
    *(str(Path(file).parent) for file in PACKAGES if file),
    sysconfig.get_paths()["stdlib"],
    "<frozen",
    "<string>",
)
Place = tuple[int, int]  # of a result: the operation's number, and which of its results
Numbers = Mapping[int, Mapping[str, Any]]  # arguments in place of an operation's own


class Step(NamedTuple):
    """An operation that was run.

    Attributes:
        name: in ATen, without its overload.
        overload: with it.
        arguments: by name, defaults among them.
        results: tensors.
        where: file and line of the user's model, or "".
        number: of how many operations, of those that count, it is run after.
    """

    name: str
    overload: Any
    arguments: dict[str, Any]
    results: list[Tensor]
    where: str
    number: int

    @property
    def tensors(self) -> list[Tensor]:
        """Tensors among the arguments."""
        return [x for argument in self.arguments.values() for x in tensors_in(argument)]


class NotRecordedError(Exception):
    """Error of a model that cannot run on shapes alone: a value that it asks for, a shape that does not fit."""


class FlatProgram:
    """The operations that a function's results rest on.

    Args:
        function: from tensors to a list of tensors.
        like: tensors of the shapes, types and devices of its arguments; their values do not count.

    Attributes:
        steps: the operations, in order.
        inputs: tensors without values that stand for the arguments.
        outputs: those that stand for the results.

    Raises:
        NotRecordedError: where the function cannot be run on shapes alone.

    Example:
        >>> program = FlatProgram(lambda x: [(x * 2.0).sum()], [torch.ones(3)])
        >>> [step.name for step in program.steps]
        ['mul', 'sum']
        >>> program.evaluate([torch.ones(3)])
        [tensor(6.)]
    """

    def __init__(self, function: Callable[..., list[Tensor]], like: Iterable[Tensor]):
        recorder = Recorder()
        with _on_shapes():
            self.inputs = [torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in like]
            try:
                with recorder:
                    self.outputs = functionalize(function)(*self.inputs)
            except Exception as error:
                where = f"{recorder.stopped_at}: " if recorder.stopped_at else ""
                raise NotRecordedError(where + _reason(error)) from error
        self.steps = [step._replace(number=i) for i, step in enumerate(_needed(recorder.steps, self.outputs))]

    def evaluate(
        self, inputs: Sequence[Tensor], given: Mapping[Place, Tensor] | None = None, numbers: Numbers | None = None
    ) -> list[Tensor]:
        """The results, from arguments and from what is known already.

        Args:
            inputs: the arguments.
            given: results of operations, by their place, in place of what would be computed.
            numbers: arguments of operations, by the operation's number and the argument's name, in place of its own.
        """
        known, given, numbers = self._known(inputs), given or {}, numbers or {}
        needed = {step.number for step in _needed(self.steps, self.outputs, given)}
        for step in self.steps:
            if step.number in needed:
                self._run(step, known, numbers)
            places = [(step.number, i) for i in range(len(step.results))]
            known.update((id(x), given[p]) for x, p in zip(step.results, places, strict=True) if p in given)
        return [known[id(x)] if id(x) in known else x for x in self.outputs]

    def results(self, wanted: Sequence[Place], inputs: Sequence[Tensor]) -> list[Tensor]:
        """Some results of operations, by their place; what they do not rest on is not computed.

        Args:
            wanted: their places.
            inputs: the arguments.
        """
        last = {number for number, _ in wanted}
        tensors = [self.steps[number].results[place] for number, place in wanted]
        needed = {step.number for step in _needed(self.steps, tensors)} | last
        known, found = self._known(inputs), {}
        for step in self.steps:
            if step.number in needed:
                self._run(step, known, {})
                found.update({(step.number, i): known[id(x)] for i, x in enumerate(step.results)})
        return [found[place] for place in wanted]

    def _known(self, inputs: Sequence[Tensor]) -> dict[int, Tensor]:
        return {id(stands): x for stands, x in zip(self.inputs, inputs, strict=True)}

    def _run(self, step: Step, known: dict[int, Tensor], numbers: Numbers) -> None:
        arguments = {**step.arguments, **numbers.get(step.number, {})}
        arguments = pytree.tree_map(lambda x: known.get(id(x), x) if isinstance(x, Tensor) else x, arguments)
        schema = [x for x in step.overload._schema.arguments if x.name in arguments]
        positional = [arguments[x.name] for x in schema if not x.kwarg_only]
        if step.overload._schema.is_mutable:
            positional[0] = positional[0].clone()  # what it writes over may be given, or asked for
        found = step.overload(*positional, **{x.name: arguments[x.name] for x in schema if x.kwarg_only})
        known.update(zip(map(id, step.results), tensors_in(found), strict=True))


@contextlib.contextmanager
def _on_shapes() -> Iterator[None]:
    """Run without values, unseen by whoever else records operations, and leave Pyro's parameters as they are."""
    store = pyro.get_param_store()
    with store.scope(store.get_state()), unlogged(), unvalidated(), torch.no_grad():
        with without_modes(), FakeTensorMode(allow_non_fake_inputs=True):
            yield


def _reason(error: Exception) -> str:
    if isinstance(error, DataDependentOutputException):
        return "a number taken out of a tensor, which may be any (a branch on it, `.item()`)"
    if isinstance(error, DynamicOutputShapeException):
        return f"an array whose length rests on values ({first_line(error)})"
    return first_line(error)


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

        PyTorch's own operations do that in passing; what a model writes in place has been rewritten before. What is
        given another shape in place is not followed: earlier operations would be seen to have had that shape.
        """
        written = [x.name for x in func._schema.arguments if x.alias_info is not None and x.alias_info.is_write]
        seen = [x for step in self.steps for x in [*step.tensors, *step.results] if _memory(x) == _memory(args[0])]
        is_own = any(x is args[0] for step in self.steps for x in step.results) and all(x is args[0] for x in seen)
        if written != [func._schema.arguments[0].name] or not is_own or torch.Tag.inplace_view in func.tags:
            raise RuntimeError(f"{func.overloadpacket.__name__}, which changes a tensor in place")


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


def _needed(steps: list[Step], outputs: Sequence[Tensor], given: Iterable[Place] = ()) -> list[Step]:
    """Steps that the outputs rest on, where some results are given."""
    wanted, given = {id(x) for x in outputs}, set(given)
    kept = []
    for step in reversed(steps):
        if any(id(x) in wanted and (step.number, i) not in given for i, x in enumerate(step.results)):
            kept.append(step)
            wanted.update(id(x) for x in step.tensors)
    return kept[::-1]


def tensors_in(argument: Any) -> list[Tensor]:
    """The tensors in an argument, which may be a list."""
    return [x for x in pytree.tree_leaves(argument) if isinstance(x, Tensor)]
