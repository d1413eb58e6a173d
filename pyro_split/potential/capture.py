"""Replaying a model once and keeping the tensor operations.

A pass through Pyro's handlers costs about a millisecond, a subset's gradient often less. So value and gradient
are traced once for each size of subset, on shapes alone (no memory is taken), into a flat list of tensor
operations, which PyTorch's JIT, where it can, then runs with each subset's rows as inputs. Operations whose
results are not used are dropped: the prior's trace on all the data keeps nothing of the likelihood.
"""

from __future__ import annotations

import logging
import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import functionalize
from torch.fx import GraphModule, Node
from torch.overrides import TorchFunctionMode

from pyro_split.host import (
    FACTORISATION_CHECK,
    FAKE_TENSOR_LOG,
    FakeTensor,
    compiled,
    dispatch_functionalize,
    is_functional,
    is_numerical,
    is_random,
    make_fx,
    plain_recurrences,
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
    """Context for runs on shapes without PyTorch's log of what fails there; the caller reports the error."""
    logger = logging.getLogger(FAKE_TENSOR_LOG)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


class Traced:
    """Functions of tensors, each traced at its first call on tensors of given shapes and types.

    Args:
        functions: by name, ``function(*tensors)``, a list of tensors; pure.
        traced: whether to keep traces; else functions run at each call.
        to_trace: functions to trace in place of these; None for the functions themselves.

    Attributes:
        traced: whether traces are kept; False also once a function could not be traced.
    """

    def __init__(self, functions: dict[str, Operations], traced: bool, to_trace: dict[str, Operations] | None = None):
        self._functions, self._to_trace, self.traced = functions, to_trace or functions, traced
        self._traces: dict[tuple[Any, ...], Operations] = {}  # by name, and by shape, type and layout of the tensors

    @full_precision
    def run(self, name: str, *tensors: Tensor) -> list[Tensor] | None:
        """Results of one of the functions; None after a numerical error, as for a singular matrix."""
        key = (name, *((x.shape, x.dtype, x.layout is not torch.strided or x.is_contiguous()) for x in tensors))
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
        _reject_failed_factorisations(graph)
        graph.graph.eliminate_dead_code()
        graph.recompile()
        if _has_numbers_of_values(graph) or any(writes(node.target) for node in graph.graph.nodes):
            return graph  # the JIT would take numbers of its first call for constants, and write into its own constants
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.jit says that it is deprecated; nothing else runs a list as fast
            try:
                own = tuple(x.detach() for x in tensors)  # the JIT tells inputs apart by identity
                return _Script(compiled(graph, own), graph)
            except RuntimeError as error:
                if is_numerical(error):
                    raise
                return graph  # the JIT does not take some operations, such as a convolution's gradient


class _Script:
    """A list of operations compiled by the JIT, or the list itself once the compiled one fails where the list runs.

    The JIT may infer a wrong shape, as for some products with constants, and raise at a call.
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
        num_arguments: number of leading tensors by which to differentiate.
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
        """NaN, and gradients of 0: as on the host, a potential of NaN (a singular matrix) is a rejection."""
        nan = tensors[0].new_tensor(float("nan"), dtype=torch.float64)
        return [nan, *(torch.zeros_like(x) for x in tensors[: self._num_arguments])]


def _named(function: Function, num_arguments: int) -> dict[str, Operations]:
    """The functions to trace: the value, and the value followed by the gradient."""
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
        # a constant of the trace, so that what follows from it is computed once
        seed = torch.full((), factor, dtype=value.dtype, device=value.device)
        grads = torch.autograd.grad(value, arguments, seed, allow_unused=True)
    return [value.detach(), *(torch.zeros_like(x) if g is None else g for g, x in zip(grads, arguments, strict=True))]


def graph_of(function: Callable[..., list[Tensor]], tensors: Sequence[Tensor]) -> GraphModule:
    """The operations of a function, which are not evaluated.

    Args:
        function: ``function(*tensors)``, tensors; pure.
        tensors: its arguments, of which only shapes count.

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
            # as in Pyro's sum over discrete sites; tried second, as its name in PyTorch is private
            return _operations(dispatch_functionalize(function), tensors)


def _operations(function: Callable[..., list[Tensor]], tensors: Sequence[Tensor]) -> GraphModule:
    with unvalidated(), unlogged(), plain_recurrences(), OnlyTensors():
        graph = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*tensors)
    for node in graph.graph.nodes:
        if node.users and is_random(node.target, node.kwargs, *node.args):
            raise RuntimeError(f"random numbers ({operation_of(node)})")
    for node in graph.graph.find_nodes(op="get_attr"):
        if isinstance(getattr(graph, node.target), FakeTensor):
            raise RuntimeError("a tensor of which operations do not show where it comes from, such as a Parameter")
    return graph


def _has_numbers_of_values(graph: GraphModule) -> bool:
    """Whether Python numbers in a graph depend on tensors' values, such as how many entries a mask chooses."""
    return any(isinstance(node.meta.get("val"), SYMBOLS) for node in graph.graph.nodes)


def _drop_first_powers(graph: GraphModule) -> None:
    """Replace x¹ by x: the derivative of every square has it, and it costs a pass over its entries."""
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.pow.Tensor_Scalar):
        base, exponent = node.args
        if exponent == 1 and node.meta["val"].dtype == base.meta["val"].dtype:
            node.replace_all_uses_with(base)


def _reject_failed_factorisations(graph: GraphModule) -> None:
    """Make results of a matrix that cannot be factorised NaN, where PyTorch raises an error, which has no user."""
    place = {node: i for i, node in enumerate(graph.graph.nodes)}
    for check in graph.graph.find_nodes(op="call_function", target=FACTORISATION_CHECK):
        status = check.args[0]
        results = [x for x in status.args[0].users if x is not status] if status.target is operator.getitem else []
        for result in results:
            with graph.graph.inserting_after(max(result, status, key=place.__getitem__)):
                rejected = graph.graph.call_function(nan_where_failed, (result, status))
            rejected.meta = result.meta
            result.replace_all_uses_with(rejected, lambda user, own=rejected: user is not own)


def nan_where_failed(result: Tensor, status: Tensor) -> Tensor:
    """A factorisation's result; NaN where its status says that it failed. Whole numbers are left as they are."""
    if not (result.dtype.is_floating_point or result.dtype.is_complex):
        return result
    return torch.where((status != 0).any(), torch.full_like(result, float("nan")), result)


OF_SHAPE = {"zeros_like", "ones_like", "empty_like", "new_zeros", "new_ones", "new_empty"}  # use only a shape
VALUES = ("numpy", "__array__", "__dlpack__")  # methods that hand values to other libraries


class OnlyTensors(TorchFunctionMode):
    """Makes a model that is traced fail where it hands values to a library other than torch."""

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
    """Whether a function's value depends on any of its leading tensors, by its operations, which are not evaluated.

    A gradient does not tell: it may be zero at a point, or everywhere, of a function that is not constant.

    Args:
        function: ``function(*tensors)``, a scalar; pure.
        tensors: its arguments, of which only shapes count.
        num_arguments: number of leading tensors to examine.

    Raises:
        Exception: whatever :func:`graph_of` raises.
    """
    try:
        graph = graph_of(lambda *tensors: [function(*tensors)], tensors)
    except Exception:  # functions with custom derivatives may not be traceable with in-place writes rewritten
        with torch.no_grad():
            graph = _operations(lambda *tensors: [function(*tensors)], tensors)
    nodes = list(graph.graph.nodes)
    reached = set(nodes[:num_arguments])
    for node in nodes:
        if operation_of(node) not in OF_SHAPE and reached.intersection(node.all_input_nodes):
            reached.add(node)
            if writes(node.target):
                return True  # it wrote into another tensor, whose readers are unknown
    return nodes[-1] in reached
