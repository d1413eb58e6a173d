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
from torch.overrides import TorchFunctionMode

import pyro_split.host
import split_common
from pyro_split.host import (
    FACTORISATION_CHECK,
    VIEWS,
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    TorchDispatchMode,
    forward_alone,
    plain_recurrences,
    pytree,
    unvalidated,
    without_modes,
)
from pyro_split.potential.capture import nan_where_failed, unlogged
from split_common.errors import first_line

PACKAGES = (pyro_split.host.__file__, split_common.__file__, torch.__file__, pyro.__file__)
NOT_THE_USERS = (
    *(str(Path(file).parent) for file in PACKAGES if file),
    sysconfig.get_paths()["stdlib"],
    "<frozen",
    "<string>",
)
PARTS = ("split", "split_with_sizes", "unbind", "unsafe_split", "unsafe_split_with_sizes")  # results share no entry
SCALAR = torch.ops.aten.scalar_tensor.default
Place = tuple[int, int]  # place of a result: the operation's number, and the result's index
Memory = tuple[Any, ...]  # a storage, then a part of it, then a part of that part, and so on
Numbers = Mapping[int, Mapping[str, Any]]  # by operation and name, arguments that replace the operation's own


class Step(NamedTuple):
    """An operation that was run.

    Attributes:
        name: its name in ATen, without the overload.
        overload: the ATen operation with its overload.
        arguments: by name, defaults included.
        results: the tensors that it returned.
        where: file and line of the user's model, or "".
        number: its index among the operations that are kept.
        has_derivative: whether it was run outside ``torch.no_grad()``.
        status: index of the result that says whether a matrix was factorised, where PyTorch raises unless it was.
    """

    name: str
    overload: Any
    arguments: dict[str, Any]
    results: list[Tensor]
    where: str
    number: int
    has_derivative: bool = True
    status: int | None = None

    @property
    def tensors(self) -> list[Tensor]:
        """Tensors among the arguments."""
        return [x for argument in self.arguments.values() for x in tensors_in(argument)]


class NotRecordedError(Exception):
    """Error for a model whose operations cannot be recorded on shapes alone, as where it reads a tensor's value."""


class FlatProgram:
    """The operations that a function's results depend on.

    Args:
        function: from tensors to a list of tensors.
        like: tensors of the shapes, types and devices of its arguments; their values do not count.

    Attributes:
        steps: the operations, in order.
        inputs: tensors without values that stand for the arguments.
        outputs: tensors without values that stand for the results.

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
                with recorder, Rewritten():
                    self.outputs = functionalize(function)(*self.inputs)
            except Exception as error:
                where = f"{recorder.stopped_at}: " if recorder.stopped_at else ""
                raise NotRecordedError(where + _reason(error)) from error
        needed = _needed(recorder.steps, self.outputs)
        recorder.check_not_written([x for step in needed for x in step.tensors])
        self.steps = [step._replace(number=i) for i, step in enumerate(needed)]

    def evaluate(
        self, inputs: Sequence[Tensor], given: Mapping[Place, Tensor] | None = None, numbers: Numbers | None = None
    ) -> list[Tensor]:
        """The results, computed from arguments and from results that are known already.

        Args:
            inputs: the arguments.
            given: results of operations, by their place, that are not computed.
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
        """Some results of operations, by their place; operations that they do not depend on are left out.

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
        overload = _not_in_place(step.overload) if step.overload._schema.is_mutable else step.overload
        if overload._schema.is_mutable:
            positional[0] = positional[0].clone()  # the operand that it overwrites may be a given or a wanted value
        overload = torch.ops.aten.reshape.default if overload in VIEWS else overload
        found = overload(*positional, **{x.name: arguments[x.name] for x in schema if x.kwarg_only})
        results = tensors_in(found)
        if step.status is not None:
            results = [nan_where_failed(x, results[step.status]) for x in results]
        results = results if step.has_derivative else [x.detach() for x in results]
        known.update(zip(map(id, step.results), results, strict=True))


@contextlib.contextmanager
def _on_shapes() -> Iterator[None]:
    """Run on shapes alone, unseen by other recorders of operations, and leave Pyro's parameter store as it is."""
    store = pyro.get_param_store()
    with store.scope(store.get_state()), unlogged(), unvalidated(), torch.enable_grad(), forward_alone():
        with without_modes(), plain_recurrences(), FakeTensorMode(allow_non_fake_inputs=True):
            yield


def _reason(error: Exception) -> str:
    if isinstance(error, DataDependentOutputException):
        return "a number taken out of a tensor, which may be any (a branch on it, `.item()`)"
    if isinstance(error, DynamicOutputShapeException):
        return f"an array whose length rests on values ({first_line(error)})"
    return first_line(error)


class Recorder(TorchDispatchMode):
    """Keeps every operation that is run.

    A model's in-place writes have been rewritten before they come here, but some of PyTorch's own operations write in
    place. An operation that overwrites the result of another one is kept: the result has a new value from there on.
    After that, reading another view of the same memory is an error. So is reading a tensor that no recorded operation
    made (the data, a tensor that the model holds), if it is overwritten.

    Attributes:
        steps: the operations.
        stopped_at: file and line of the user's model where the last one failed, or "".
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.stopped_at = ""
        self._met: dict[int, tuple[Tensor, Memory]] = {}  # every tensor that was seen, and its memory
        self._own: set[int] = set()  # ids of tensors that are results
        self._stale: dict[int, str] = {}  # ids of tensors overwritten through another view, and the operation
        self._written: dict[Any, str] = {}  # storages of overwritten tensors that are no results, and the operation

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and keep it."""
        kwargs = kwargs or {}
        try:
            operands = tensors_in([args, kwargs])
            self._read(operands)
            kept = func, args
            if torch.Tag.inplace_view in func.tags:
                kept = self._of_shape_before(func, args)
            elif func._schema.is_mutable:
                self._write(func, args, kwargs)
            results = _constant(args, kwargs) if func is SCALAR else func(*args, **kwargs)
        except Exception:
            self.stopped_at = _where()
            raise
        tensors = [x for x in pytree.tree_leaves(results) if isinstance(x, Tensor)]
        if tensors:
            self._keep(*kept, kwargs, operands, tensors)
        if func is FACTORISATION_CHECK:
            self._note_checked(operands[0])
        return results

    def check_not_written(self, tensors: Iterable[Tensor]) -> None:
        """Raise where one of these tensors, which are read, was overwritten but made by no recorded operation."""
        for x in tensors:
            if _storage(x) in self._written:
                raise NotRecordedError(self._written[_storage(x)])

    def _note_checked(self, status: Tensor) -> None:
        """Note the operation whose status PyTorch checks: its results are those of a failed factorisation, or valid."""
        for i, step in enumerate(self.steps):
            places = [place for place, x in enumerate(step.results) if x is status]
            if places:
                self.steps[i] = step._replace(status=places[0])

    def _read(self, operands: list[Tensor]) -> None:
        for x in operands:
            if id(x) in self._stale:
                raise RuntimeError(self._stale[id(x)])
            self._met.setdefault(id(x), (x, (_storage(x),)))

    def _write(self, func: Any, args: Any, kwargs: Any) -> None:
        """Note which memory an operation overwrites."""
        what = f"{func.overloadpacket.__name__}, which changes a tensor in place"
        given = _by_name(func._schema.arguments, args, kwargs)
        names = [x.name for x in func._schema.arguments if x.alias_info is not None and x.alias_info.is_write]
        for place, name in enumerate(names):
            for x in tensors_in(given.get(name)):
                if id(x) not in self._own:
                    where = _where()
                    self._written[_storage(x)] = f"{where}: {what}" if where else what
                elif place or x is not args[0]:
                    raise RuntimeError(what)
                else:
                    memory = self._met[id(x)][1]
                    others = (key for key, (_, other) in self._met.items() if _overlap(memory, other))
                    self._stale.update(dict.fromkeys(set(others) - {id(x)}, what))

    def _of_shape_before(self, func: Any, args: Any) -> tuple[Any, Any]:
        """An operation that reshapes its operand in place, as one that makes a new tensor of the operand."""
        x, name = args[0], func.overloadpacket.__name__
        if id(x) not in self._own:
            raise RuntimeError(f"{name}, which changes a tensor in place")
        before = torch.ops.aten.alias.default(x)
        self._met[id(before)] = before, self._met[id(x)][1]

        def put(argument: Any) -> Any:
            return pytree.tree_map(lambda leaf: before if leaf is x else leaf, argument)

        self.steps = [step._replace(arguments=put(step.arguments), results=put(step.results)) for step in self.steps]
        return _not_in_place(func), (before, *args[1:])

    def _keep(self, func: Any, args: Any, kwargs: Any, operands: list[Tensor], results: list[Tensor]) -> None:
        name = func.overloadpacket.__name__
        name = name.removesuffix("_") if func._schema.is_mutable else name
        for place, x in enumerate(results):
            shared = [self._met[id(y)][1] for y in operands if _storage(x) == _storage(y)]
            within = min(shared, key=len, default=(_storage(x),))
            part = ((len(self.steps), place),) if name in PARTS else ()
            self._met.setdefault(id(x), (x, (*within, *part)))
            self._own.add(id(x))
        arguments = _by_name(func._schema.arguments, args, kwargs)
        self.steps.append(Step(name, func, arguments, results, _where(), len(self.steps), torch.is_grad_enabled()))


class Rewritten(TorchFunctionMode):
    """Replaces an operation that exists in place only, which PyTorch cannot rewrite, by others that it can."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, or its replacement."""
        return (_fill_diagonal if func is Tensor.fill_diagonal_ else func)(*args, **(kwargs or {}))


def _fill_diagonal(x: Tensor, fill_value: float, wrap: bool = False) -> Tensor:
    if wrap and x.dim() == 2 and x.shape[0] > x.shape[1]:  # more than one diagonal
        return x.fill_diagonal_(fill_value, wrap)
    places = torch.arange(min(x.shape), device=x.device)
    x[(places,) * x.dim()] = fill_value
    return x


def _storage(x: Tensor) -> Any:
    return x.untyped_storage()._cdata if x.layout == torch.strided else id(x)


def _overlap(a: Memory, b: Memory) -> bool:
    """Whether one of two pieces of memory lies in the other; different parts of one tensor do not."""
    return all(x == y for x, y in zip(a, b, strict=False))


def _not_in_place(func: Any) -> Any:
    """The out-of-place variant of an operation; the operation itself where it has none."""
    packet = getattr(torch.ops.aten, func.overloadpacket.__name__.removesuffix("_"))
    overloads = (getattr(packet, overload) for overload in packet.overloads())
    same = (other for other in overloads if _signature(other._schema) == _signature(func._schema))
    return next((other for other in same if not other._schema.is_mutable), func)


def _signature(schema: Any) -> list[tuple[str, str]]:
    return [(argument.name, str(argument.type)) for argument in schema.arguments]


def _constant(args: Any, kwargs: Any) -> Tensor:
    """A number as a tensor that keeps its value on shapes alone: some of PyTorch's own operations branch on it."""
    with without_modes():
        number = SCALAR(*args, **kwargs)
    return torch.ops.aten.lift_fresh.default(number)


def _by_name(schema: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an operation by name, defaults included."""
    given = {argument.name: value for argument, value in zip(schema, args, strict=False)}
    defaults = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    found = {**defaults, **given, **kwargs}
    return {argument.name: found[argument.name] for argument in schema if argument.name in found}


def _where() -> str:
    """File and line of the user's model that is being run, or ""."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code is not FlatProgram.__init__.__code__:  # beyond it is no model
        file = frame.f_code.co_filename
        if "site-packages" not in file and not file.startswith(NOT_THE_USERS):
            return f"{Path(file).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _needed(steps: list[Step], outputs: Sequence[Tensor], given: Iterable[Place] = ()) -> list[Step]:
    """Steps that the outputs depend on, where some results are given."""
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
