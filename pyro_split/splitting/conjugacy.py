"""Forms of a model's log-density terms as functions of its precisions, read off its graph of operations.

:mod:`split_common.conjugacy` says what is made of that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from pyro_split.host import FakeTensorMode, unvalidated
from pyro_split.potential.capture import OF_SHAPE, graph_of, operation_of, unlogged
from pyro_split.potential.position import Position
from pyro_split.splitting.divided_model import DividedModel
from split_common.conjugacy import PARAMETERS, Free, Log, Other, Term, Value, not_conjugate, result
from split_common.errors import first_line

FAMILIES = {dist.Normal: "Normal", dist.Gamma: "Gamma", dist.InverseGamma: "InverseGamma"}
WRAPPERS = {dist.Independent, dist.MaskedDistribution}
SAME = {
    "expand",
    "view",
    "_unsafe_view",
    "reshape",
    "unsqueeze",
    "squeeze",
    "permute",
    "transpose",
    "t",
    "slice",
    "select",
}
SAME |= {"index", "index_select", "repeat", "clone", "alias", "lift_fresh_copy"}


def read_terms(
    split: DividedModel, args: tuple[Any, ...], kwargs: dict[str, Any], precisions: Sequence[str]
) -> list[Term]:
    """The terms of a model's log-density outside the data plate; nothing is evaluated.

    Args:
        split: how the model divides.
        args: the model's positional arguments.
        kwargs: its keyword arguments.
        precisions: names of the sites that are asked about.

    Raises:
        ValueError: for a model whose operations cannot be traced.
    """
    sites_at, data = split.prior_sites(args, kwargs)
    z = split.reference_position(args, kwargs)
    said: list[dict[str, str]] = []
    places: list[tuple[int, str]] = []

    def run(*tensors: Tensor) -> list[Tensor]:
        sites = sites_at(dict(zip(z, tensors, strict=False)), tensors[len(z) :])
        said[:] = [_in_words(site, site["is_observed"] and name not in z) for name, site in sites.items()]
        numbers = [(i, name, x) for i, site in enumerate(sites.values()) for name, x in _in_numbers(site).items()]
        places[:] = [(i, name) for i, name, _ in numbers]
        return [x for *_, x in numbers]

    try:
        graph = graph_of(run, (*z.values(), *data))
        has_gradient = _have_gradients(run, z, data, precisions)
    except Exception as error:
        raise not_conjugate(
            ", ".join(precisions),
            f"the model could not be traced, as where Python looks at values ({first_line(error)})",
        ) from error
    inputs = [Log(name, 1.0) if name in precisions else Free(fixed=False) for name in z]
    values = follow(graph, [*inputs, *(Free() for _ in data)])
    known: list[dict[str, Value]] = [{} for _ in said]
    for (i, name), value, differentiable in zip(places, values, has_gradient, strict=True):
        is_cut = bool(value.of) and not differentiable
        known[i][name] = Other(value.of, "without a derivative") if is_cut else value
    return [
        Term(**words, log_density=x.pop("log_density"), value=x.pop("value"), parameters=x)
        for words, x in zip(said, known, strict=True)
    ]


def _in_words(site: dict[str, Any], is_observed: bool) -> dict[str, str]:
    fn, under = site["fn"], "" if isinstance(site["scale"], float | int) and site["scale"] == 1 else "a scale"
    under = under if site["mask"] is None else "a mask"
    while type(fn) in WRAPPERS:
        fn, under = fn.base_dist, "a mask" if type(fn) is dist.MaskedDistribution else under
    kind = "factor" if type(fn) is dist.Unit else "observed site" if is_observed else "site"
    return {"site": site["name"], "kind": kind, "family": FAMILIES.get(type(fn), type(fn).__name__), "under": under}


def _in_numbers(site: dict[str, Any]) -> dict[str, Tensor]:
    fn = site["fn"]
    while type(fn) in WRAPPERS:
        fn = fn.base_dist
    parameters = PARAMETERS.get(FAMILIES.get(type(fn), ""), ())
    said = {name: getattr(fn, name) for name in parameters} | {"log_density": site["log_prob"], "value": site["value"]}
    return {name: torch.as_tensor(x) for name, x in said.items()}


def _have_gradients(run: Any, z: Position, data: Sequence[Tensor], precisions: Sequence[str]) -> list[bool]:
    """Whether autograd connects each tensor to a precision, on shapes alone: the graph does not show no_grad."""
    with FakeTensorMode(allow_non_fake_inputs=True) as fake, unlogged(), unvalidated():
        leaves = [fake.from_tensor(u.detach()).requires_grad_(name in precisions) for name, u in z.items()]
        with torch.enable_grad():
            return [x.requires_grad for x in run(*leaves, *(fake.from_tensor(x) for x in data))]


def follow(graph: GraphModule, inputs: Sequence[Value]) -> list[Value]:
    """Propagate what is known of a graph's inputs to its outputs."""
    known: dict[Node, Value] = {}
    remaining = iter(inputs)

    def read(x: Any) -> Value:
        return known[x] if isinstance(x, Node) else _constant(torch.as_tensor(x))

    for node in graph.graph.nodes:
        if node.op == "placeholder":
            known[node] = next(remaining)
        elif node.op == "get_attr":
            known[node] = _constant(getattr(graph, node.target))
        elif node.op == "output":
            return [read(x) for x in node.args[0]]
        else:
            known[node] = _operation(node, read)
    raise AssertionError("a graph has an output")


def _operation(node: Node, read: Callable[[Any], Value]) -> Value:
    """Propagate what is known of an operation's operands to its results."""
    name = operation_of(node)
    operands = [read(x) for x in node.all_input_nodes]
    if name in OF_SHAPE:
        return Free()
    if name == "rsub" and len(node.args) == 2:
        return result("sub", [read(x) for x in reversed(node.args)])
    if name in ("add", "sub", "mul", "div", "pow"):  # these may take an alpha or a rounding mode
        return result(str(node.target) if node.kwargs else name, [read(x) for x in node.args])
    is_same = name in SAME or (name == "_to_copy" and node.meta["val"].is_floating_point())
    is_same = is_same or (name == "detach" and isinstance(operands[0], Free))
    return result("same" if is_same else name, operands)


def _constant(x: Tensor) -> Free:
    """Knowledge of a constant tensor in a graph."""
    return Free(number=float(x)) if x.numel() == 1 and not x.is_complex() else Free()
