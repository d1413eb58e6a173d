"""Replaying a model once and keeping the tensor operations.

A pass through Pyro's handlers costs about a millisecond, a subset's gradient often less. So value and gradient
are traced once for each size of subset, on shapes alone (no memory is taken), into a flat list of tensor
operations, which PyTorch's JIT, where it can, then runs with each subset's rows as inputs. Operations whose
results are not used are dropped: the prior's trace on all the data keeps nothing of the likelihood.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.func import functionalize
from torch.fx import GraphModule, Node
from torch.overrides import TorchFunctionMode

from pyro_split.host import (
    FAKE_TENSOR_LOG,
    FakeTensor,
    dispatch_functionalize,
    is_functional,
    is_numerical,
    is_random,
    make_fx,
    unvalidated,
    writes,
)
from pyro_split.potential.precision import full_precision

logger = logging.getLogger(__name__)
Function = Callable[..., Tensor]
Operations = Callable[..., list[Tensor]]
SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


@contextmanager
def unlogged() -> Iterator[None]:
    """Run on shapes without PyTorch's log of what fails there; who catches the error says what matters."""
    logger = logging.getLogger(FAKE_TENSOR_LOG)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


class Traced:
    """Functions of tensors, each run by the trace that its first call on tensors of these shapes leaves.

    Args:
        functions: by name, ``function(*tensors)``, a list of tensors; pure.
        traced: whether to keep traces; else functions run at each call.
        to_trace: what to trace in their places; None for the functions themselves.

    Attributes:
        traced: false as well once one of them could not be traced.
    """

    def __init__(self, functions: dict[str, Operations], traced: bool, to_trace: dict[str, Operations] | None = None):
        self._functions, self._to_trace, self.traced = functions, to_trace or functions, traced
        self._traces: dict[tuple[str, tuple[torch.Size, ...]], Operations] = {}

    @full_precision
    def run(self, name: str, *tensors: Tensor) -> list[Tensor] | None:
        """Results of one of the functions; None where they are no numbers, as for a singular matrix."""
        key = (name, tuple(x.shape for x in tensors))
        try:
            with torch.no_grad():
                if self.traced and key not in self._traces:
                    self._traces[key] = self._trace(name, tensors)
                return self._traces[key](*tensors) if self.traced else self._replay(name, *tensors)
        except RuntimeError as error:
            if not is_numerical(error):
                raise
            return None

    def _replay(self, name: str, *tensors: Tensor) -> list[Tensor]:
        with unvalidated():
            return self._functions[name](*tensors)

    def _trace(self, name: str, tensors: Sequence[Tensor]) -> Operations:
        try:
            graph = _operations(self._to_trace[name], tensors)
        except Exception as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            warnings.warn(
                f"the model could not be traced and is replayed at every gradient, which is slower ({reason}); "
                "pass jit_compile=False to silence this",
                stacklevel=2,
            )
            self.traced = False
            return partial(self._replay, name)
        _drop_first_powers(graph)
        graph.graph.eliminate_dead_code()
        graph.recompile()
        if _has_numbers_of_values(graph):
            return graph  # the JIT would take those of its first call for constants
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.jit says that it is deprecated; nothing else runs a list as fast
            try:
                own = tuple(x.detach() for x in tensors)  # the JIT tells inputs apart by identity
                script = torch.jit.trace(graph.eval(), own, check_trace=False)
            except RuntimeError as error:
                if is_numerical(error):
                    raise
                return graph  # some operations, such as a convolution's gradient, the JIT does not take
            return _Script(torch.jit.freeze(cast(torch.jit.ScriptModule, script).eval()).forward, graph)


class _Script:
    """What the JIT made of a list of operations, or the list itself, once the JIT's own fails where that runs.

    Of a product with constants, for one, the JIT may find out a shape that is not the result's, and say so at a call.
    """

    def __init__(self, script: Operations, graph: GraphModule):
        self._run, self._graph = script, graph

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        try:
            return self._run(*tensors)
        except RuntimeError as error:
            if is_numerical(error) or isinstance(error, torch.OutOfMemoryError) or self._run is self._graph:
                raise
            found = self._graph(*tensors)
            logger.info("PyTorch's JIT does not run a list of operations, which is run one by one: %s", error)
            self._run = self._graph
            return found


class ValueAndGrad:
    """A scalar function of tensors, and its gradient in the first few of them.

    Args:
        function: ``function(*tensors)``, a scalar; pure.
        num_arguments: in how many leading tensors to differentiate.
        traced: whether to keep a trace; else ``function`` runs at each call.
        writes: whether it writes into tensors, as derivatives along a direction do, which a trace must not.
    """

    def __init__(self, function: Function, num_arguments: int, traced: bool, writes: bool = False):
        self._num_arguments = num_arguments
        to_trace = functionalize(function) if writes else function
        self._traced = Traced(_named(function, num_arguments), traced, _named(to_trace, num_arguments))

    @property
    def traced(self) -> bool:
        """Whether traces are kept."""
        return self._traced.traced

    def value(self, *tensors: Tensor) -> Tensor:
        """The function's value, without a gradient."""
        return (self._traced.run("value", *tensors) or self._rejected(tensors))[0]

    def value_and_grad(self, *tensors: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The function's value and its gradient in each leading tensor."""
        value, *grads = self._traced.run("value and grad", *tensors) or self._rejected(tensors)
        return value, grads

    def _rejected(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """As the host does for singular matrices: a potential that is not a number is a rejection."""
        nan = tensors[0].new_tensor(float("nan"), dtype=torch.float64)
        return [nan, *(torch.zeros_like(x) for x in tensors[: self._num_arguments])]


def _named(function: Function, num_arguments: int) -> dict[str, Operations]:
    """What a trace is kept of: the value, and the value with the gradient after it."""
    return {
        "value": lambda *tensors: [function(*tensors)],
        "value and grad": partial(value_and_grad, function, num_arguments),
    }


def value_and_grad(function: Function, num_arguments: int, *tensors: Tensor, factor: float = 1.0) -> list[Tensor]:
    """The value of a scalar function of tensors, and after it a factor times its gradient in the first few of them."""
    with torch.enable_grad():
        arguments = [x.detach().requires_grad_() for x in tensors[:num_arguments]]
        value = function(*arguments, *tensors[num_arguments:])
        if not value.requires_grad:
            return [value, *(torch.zeros_like(x) for x in arguments)]
        # a constant of the trace, which computes what follows from it once
        seed = torch.full((), factor, dtype=value.dtype, device=value.device)
        grads = torch.autograd.grad(value, arguments, seed, allow_unused=True)
    return [value.detach(), *(torch.zeros_like(x) if g is None else g for g, x in zip(grads, arguments, strict=True))]


def graph_of(function: Callable[..., list[Tensor]], tensors: Sequence[Tensor]) -> GraphModule:
    """The operations of a function, which are not evaluated.

    Args:
        function: ``function(*tensors)``, tensors; pure.
        tensors: what it takes, for their shapes.

    Raises:
        Exception: whatever the function raises where its operations cannot be traced, or do not show where its values
            come from.
    """
    with torch.no_grad():  # a tensor written in place would hide where its values come from
        try:
            return _operations(functionalize(function), tensors)
        except RuntimeError as error:
            if "autograd.Function" not in str(error):
                raise
            # as Pyro's sum over discrete sites has; a private name of PyTorch's, so it comes second
            return _operations(dispatch_functionalize(function), tensors)


def _operations(function: Callable[..., list[Tensor]], tensors: Sequence[Tensor]) -> GraphModule:
    with unvalidated(), unlogged(), OnlyTensors():
        graph = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*tensors)
    for node in graph.graph.nodes:
        if node.users and is_random(node.target, node.kwargs, *node.args):
            raise RuntimeError(f"random numbers ({operation_of(node)})")
    for node in graph.graph.find_nodes(op="get_attr"):
        if isinstance(getattr(graph, node.target), FakeTensor):
            raise RuntimeError("a tensor of which operations do not show where it comes from, such as a Parameter")
    return graph


def _has_numbers_of_values(graph: GraphModule) -> bool:
    """Whether numbers of Python rest on values, such as how many entries a mask chooses."""
    return any(isinstance(node.meta.get("val"), SYMBOLS) for node in graph.graph.nodes)


def _drop_first_powers(graph: GraphModule) -> None:
    """Take x for x¹, which the derivative of every square has, and which costs a pass over its entries."""
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.pow.Tensor_Scalar):
        base, exponent = node.args
        if exponent == 1 and node.meta["val"].dtype == base.meta["val"].dtype:
            node.replace_all_uses_with(base)


OF_SHAPE = {"zeros_like", "ones_like", "empty_like", "new_zeros", "new_ones", "new_empty"}  # alone, of their operand
VALUES = ("numpy", "__array__", "__dlpack__")  # ways out of torch


class OnlyTensors(TorchFunctionMode):
    """Has a model that is traced fail where it hands values over to something else than torch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse what would read memory that a traced tensor does not have."""
        name = getattr(func, "__name__", "")
        if name in VALUES and (is_functional(args[0]) or isinstance(args[0], FakeTensor)):
            raise RuntimeError(f"{name} of a tensor that is traced")
        return func(*args, **(kwargs or {}))


def operation_of(node: Node) -> str:
    """The name of a node's operation, without its overload."""
    return str(node.target).removeprefix("aten.").split(".")[0]


def uses(function: Function, tensors: Sequence[Tensor], num_arguments: int) -> bool:
    """Whether a function's value rests on any of its leading tensors, by its operations, which are not evaluated.

    A gradient does not tell: it may be zero at a point, or everywhere, of a function that is not constant.

    Args:
        function: ``function(*tensors)``, a scalar; pure.
        tensors: what it takes, for their shapes.
        num_arguments: how many leading tensors are asked about.

    Raises:
        Exception: as :func:`graph_of`.
    """
    try:
        graph = graph_of(lambda *tensors: [function(*tensors)], tensors)
    except Exception:  # functions with a derivative of their own may not be traced without what they write in place
        with torch.no_grad():
            graph = _operations(lambda *tensors: [function(*tensors)], tensors)
    nodes = list(graph.graph.nodes)
    reached = set(nodes[:num_arguments])
    for node in nodes:
        if operation_of(node) not in OF_SHAPE and reached.intersection(node.all_input_nodes):
            reached.add(node)
            if writes(node.target):
                return True  # it wrote into another tensor, and nobody knows who reads that
    return nodes[-1] in reached
