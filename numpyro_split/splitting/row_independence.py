"""Does a model's likelihood divide over rows? Decided from its expression, for all parameter values.

The likelihood of all rows and that of as many as are evaluated at a time are traced, and the two expressions (jaxprs)
are walked side by side, value by value (:mod:`split_common.row_independence` says what is known of one). A rule says
how an operation's results depend on rows (:mod:`numpyro_split.splitting.row_rules`). Without a rule nothing is proved.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

import split_common
from numpyro_split.potential.arguments import Data, is_weak
from numpyro_split.potential.densities import ModelDensity
from numpyro_split.potential.flat_program import FlatProgram, Step
from numpyro_split.potential.position import Position
from numpyro_split.splitting.row_operations import FREE, Operation, met, no_rule, unknown
from numpyro_split.splitting.row_rules import FOLLOW_ROWS, KEEP_ENTRIES, RULES, TAKES_INDICES, general_reduction
from split_common.held import Holding, Proof
from split_common.row_independence import (
    NOT_PROVED,
    NUMBER_AS_CUT,
    Aligned,
    Free,
    NotAligned,
    Numbers,
    OwnRow,
    Value,
    Verdict,
    verdict_of,
)
from split_common.selection import cuts_data, yields_numbers

OURS = tuple(f"{path}{os.sep}" for path in (Path(__file__).parents[1], Path(split_common.__file__ or __file__).parent))
ROUNDING = 1e-12  # relative, of numbers: undoing a plate's scale N/n leaves some


def prove(density: ModelDensity, data: Data, z: Position, num_rows: int) -> Proof:
    """The verdict on a model's division into parts of a number of rows, and the shared values that it needs.

    Args:
        density: the model, and how its rows are selected.
        data: its data arrays, on all rows.
        z: a position, of which only shapes count.
        num_rows: rows of a part.
    """
    whole, part = (_expression(density, data, z, n) for n in (density.layout.num_rows, num_rows))
    if part.axes != whole.axes:
        return Proof(Verdict(NOT_PROVED, "the model has other sites on fewer rows"), 0, {})
    holding = Holding(density.layout.num_rows, num_rows, whole.program.inputs[: len(z)])
    values = Walk(holding).program(whole.program, part.program, whole.inputs)
    verdict = verdict_of(
        [(value, ndim + axis) for value, ndim, axis in zip(values, whole.ndims, whole.axes, strict=True)]
    )
    steps = [(step.inputs, step.outputs) for step in whole.program.steps]
    return Proof(verdict, len(steps), holding.needed_by(whole.program.outputs, steps))


class Expression(NamedTuple):
    """A likelihood on some rows.

    Attributes:
        program: from the arrays to the log-probabilities inside the plate.
        inputs: what is known of the arrays.
        ndims: of each log-probability, the number of its axes.
        axes: of each log-probability, the axis (negative) of the plate.
    """

    program: FlatProgram
    inputs: list[Value]
    ndims: list[int]
    axes: list[int]


def _expression(density: ModelDensity, data: Data, z: Position, num_rows: int) -> Expression:
    of_data = density.arguments.axes if cuts_data(density.mode) else [None] * len(data)
    of_sites = {name: z[name].ndim + axis for name, axis in density.local_axes.items()}
    inputs = [
        *(Aligned(of_sites[name]) if name in of_sites else FREE for name in sorted(z)),
        *(FREE if axis is None else Aligned(axis) for axis in of_data),
        Aligned(0) if yields_numbers(density.mode) else Numbers(0),
    ]
    local = {name: _like(u, of_sites.get(name), num_rows) for name, u in z.items()}
    taken = tuple(_like(x, axis, num_rows, is_weak(x)) for x, axis in zip(data, of_data, strict=True))
    indices = jax.ShapeDtypeStruct((num_rows,), jnp.arange(0).dtype)
    program, ndims, axes = density.expression(local, taken, indices)
    return Expression(program, inputs, ndims, axes)


def _like(x: jax.Array, axis: int | None, num_rows: int, weak_type: bool = False) -> jax.ShapeDtypeStruct:
    """Shape and type of an array with another number of rows, along an axis or along none."""
    shape = tuple(num_rows if place == axis else length for place, length in enumerate(x.shape))
    return jax.ShapeDtypeStruct(shape, x.dtype, weak_type=weak_type)


class Walk:
    """Two programs, of all rows and of some, walked side by side.

    Args:
        holding: finds shared values; None inside loops and functions that are not written out.
    """

    def __init__(self, holding: Holding | None = None):
        self.holding = holding

    def program(self, whole: FlatProgram, part: FlatProgram, inputs: Sequence[Value]) -> list[Value]:
        """Propagate what is known of the arguments to the results."""
        another = NotAligned(False, "the program is another one on fewer rows")
        for a, b in zip(whole.steps, part.steps, strict=False):
            if a.name != b.name or a.inputs != b.inputs or a.outputs != b.outputs:
                return [another._replace(where=place_of(a.caller))] * len(whole.outputs)
        if len(whole.steps) != len(part.steps) or whole.outputs != part.outputs:
            return [another] * len(whole.outputs)
        known = dict(zip(whole.inputs, inputs, strict=True))
        for number, value in whole.constants.items():
            other = part.constants[number]
            found = _constant(value, other)
            if isinstance(found, NotAligned) and _looks_up(number, whole.steps):
                found = _own_rows(value, other) or found
            known[number] = self._held(number, found, _type(value), _type(other))
        for a, b in zip(whole.steps, part.steps, strict=True):
            operands = [known[i] for i in a.inputs]
            if self.holding is not None:
                self.holding.follow(a.inputs, a.outputs)
                if _chooses_first(a.name, operands):
                    self.holding.note_same(a.outputs[0], a.inputs[1])
            found = self.operation(a, b, operands)
            for number, value, x, y in zip(a.outputs, found, a.equation.outvars, b.equation.outvars, strict=True):
                known[number] = self._held(number, value, x.aval, y.aval)
        return [known[i] for i in whole.outputs]

    def inside(self, whole: Any, part: Any, inputs: Sequence[Value]) -> list[Value]:
        """Propagate through a called function, given by two jaxprs."""
        return Walk().program(FlatProgram(whole), FlatProgram(part), inputs)

    def _held(self, number: int, value: Value, whole: Any, part: Any) -> Value:
        return value if self.holding is None else self.holding.hold(number, value, whole, part)

    def operation(self, whole: Step, part: Step, operands: list[Value]) -> list[Value]:
        """Propagate what is known of an operation's operands to its results."""
        op = Operation(whole.equation, part.equation, operands)
        faults = [value for value in operands if isinstance(value, NotAligned)]
        try:
            if op.name in CALLS:
                found = CALLS[op.name](self, op)
            elif _chooses_first(op.name, operands):
                found = [operands[1]]
            elif faults:
                found = faults[:1] * op.results
            elif any(isinstance(value, OwnRow) for value in operands) and op.name not in TAKES_INDICES:
                found = met(op, NUMBER_AS_CUT)
            else:
                found = by_rule(op)
        except KeyError as missing:  # a parameter that has another name in this version of JAX
            found = unknown(op, f"{op.name}, which has no parameter {missing}")
        place = partial(place_of, whole.caller)
        return [
            value._replace(where=place()) if isinstance(value, NotAligned) and not value.where else value
            for value in map(op.consistent, found, whole.equation.outvars, part.equation.outvars)
        ]

    def loop(self, step: Callable[[list[Value]], list[Value]], carried: list[Value]) -> list[Value]:
        """Knowledge of the values that a loop carries, whatever its number of rounds."""
        for _ in range(2 * len(carried) + 1):  # each value is first free, then aligned, then neither
            after = [_join(a, b) for a, b in zip(carried, step(carried), strict=True)]
            if after == carried:
                return carried
            carried = after
        return [NotAligned(False, "a loop")] * len(carried)


def by_rule(op: Operation) -> list[Value]:
    """Results by the rule of a primitive; unknown where parameters differ that must not follow the number of rows."""
    found = RULES.get(op.name, no_rule)(op)
    if op.name not in KEEP_ENTRIES and any(isinstance(value, Numbers) for value in found):
        return met(op, NUMBER_AS_CUT)
    if op.name not in (*KEEP_ENTRIES, "lt"):
        found = [value._replace(is_false=False) if isinstance(value, Free) else value for value in found]
    differing = op.differing(FOLLOW_ROWS.get(op.name, ()))
    if differing and not any(isinstance(value, NotAligned) for value in found):
        return unknown(op, f"{op.name}, whose {differing[0]} depends on how many rows there are")
    return found


def _chooses_first(name: str, operands: list[Value]) -> bool:
    """Whether an operation is a choice that is known to fall on its first case."""
    return name == "select_n" and isinstance(operands[0], Free) and operands[0].is_false


def _type(x: Any) -> jax.ShapeDtypeStruct:
    """Shape and type of a constant."""
    return jax.ShapeDtypeStruct(np.shape(x), jnp.result_type(x))


def _constant(whole: Any, part: Any) -> Value:
    """Knowledge of a literal number or array that both expressions have."""
    if whole is part:
        return FREE
    a, b = (np.asarray(x) if not isinstance(x, jax.Array) else x for x in (whole, part))
    if any(isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key) for x in (a, b)):
        a, b = (np.asarray(jax.random.key_data(x)) for x in (a, b))
    a, b = np.asarray(a), np.asarray(b)
    if a.shape == b.shape:
        if a.tobytes() == b.tobytes() or (a.dtype.kind == "f" and np.allclose(a, b, rtol=ROUNDING, atol=0.0)):
            return FREE
        return NotAligned(True, f"a number that depends on how many rows there are, {_shown(a)} or {_shown(b)}")
    if a.ndim == b.ndim == 1 and all(np.array_equal(x, np.arange(len(x))) for x in (a, b)):
        return Numbers(0)
    if a.ndim == b.ndim:
        longer = [axis for axis in range(a.ndim) if a.shape[axis] != b.shape[axis]]
        first = tuple(slice(1) if axis in longer else slice(None) for axis in range(a.ndim))
        if a.size and b.size and all(np.array_equal(np.broadcast_to(a[first], x.shape), x) for x in (a, b)):
            return Free(frozenset(longer))
    return NotAligned(True, "an array of numbers that depends on how many rows there are")


def _own_rows(whole: Any, part: Any) -> Value | None:
    """Knowledge of constant indices of rows, alone or beside others; None where they are not the rows' own numbers."""
    arrays = [np.asarray(whole), np.asarray(part)]
    longer = [axis for axis, sizes in enumerate(zip(*(x.shape for x in arrays), strict=True)) if sizes[0] != sizes[1]]
    if len(longer) != 1 or longer[0] == arrays[0].ndim - 1 or arrays[0].dtype.kind not in "iu":
        return None
    [axis] = longer
    columns = [[x[..., place] for x in arrays] for place in range(arrays[0].shape[-1])]
    own = [place for place, xs in enumerate(columns) if all(map(partial(_is_count, axis=axis), xs))]
    if len(own) == len(columns) == 1:
        return Numbers(axis)
    others = [xs for place, xs in enumerate(columns) if place not in own]
    is_free = all(np.array_equal(np.broadcast_to(xs[1].take([0], axis), x.shape), x) for xs in others for x in xs)
    return OwnRow(axis, own[0]) if len(own) == 1 and is_free else None


def _is_count(x: np.ndarray, axis: int) -> bool:
    """Whether entries are 0, 1, 2, ... along an axis, and the same along others."""
    shape = [-1 if place == axis else 1 for place in range(x.ndim)]
    return np.array_equal(np.broadcast_to(np.arange(x.shape[axis]).reshape(shape), x.shape), x)


def _looks_up(number: int, steps: Sequence[Step]) -> bool:
    """Whether a value is used as indices, alone or beside others, and as nothing else."""
    users = [step for step in steps if number in step.inputs]
    return bool(users) and all(
        _looks_up(step.outputs[0], steps)
        if step.name in ("broadcast_in_dim", "concatenate", "convert_element_type")
        else step.name in TAKES_INDICES and step.inputs.index(number) == 1 and step.inputs.count(number) == 1
        for step in users
    )


def _shown(x: np.ndarray) -> str:
    return str(x.item()) if x.size == 1 else f"an array of shape {x.shape}"


def _join(a: Value, b: Value) -> Value:
    """Knowledge that holds for either of two values."""
    if a == b or isinstance(a, NotAligned):
        return a
    if isinstance(b, NotAligned):
        return b
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Aligned) and isinstance(other, Free):
            return one
    if isinstance(a, Free) and isinstance(b, Free) and a.repeats == b.repeats:
        return Free(a.repeats)
    return NotAligned(False, "values of two kinds")


def place_of(equation: Any) -> str:
    """File and line of the user's model where an operation was written, or ""."""
    traceback = equation.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        if "site-packages" not in frame.file_name and not frame.file_name.startswith(OURS):
            return f"{Path(frame.file_name).name}:{frame.line_num}"
    return ""


# --- calls of other expressions ---------------------------------------------------------------------------------------


def call(parameter: str, walk: Walk, op: Operation) -> list[Value]:
    """A call: the called function is followed."""
    return walk.inside(op.param(parameter), op.part.params[parameter], op.operands)


def cond(walk: Walk, op: Operation) -> list[Value]:
    """A conditional: each branch is followed, and what holds for all of them is kept."""
    chosen, *operands = op.operands
    if not isinstance(chosen, Free):
        return [chosen if isinstance(chosen, NotAligned) else NotAligned(False, "a branch")] * op.results
    branches = zip(op.param("branches"), op.part.params["branches"], strict=True)
    found = [walk.inside(whole, part, operands) for whole, part in branches]
    return [_join_all(values) for values in zip(*found, strict=True)]


def _join_all(values: Iterable[Value]) -> Value:
    first, *others = values
    for other in others:
        first = _join(first, other)
    return first


def scan(walk: Walk, op: Operation) -> list[Value]:
    """A loop along the first axis of some operands."""
    num_consts, num_carry = op.param("num_consts"), op.param("num_carry")
    consts, carried = op.operands[:num_consts], op.operands[num_consts : num_consts + num_carry]
    slices = [_without_first(value) for value in op.operands[num_consts + num_carry :]]
    if not op.same("reverse", "num_consts", "num_carry"):
        return unknown(op, "a scan that is another one on fewer rows")
    if not op.same("length"):
        return _map_over_rows(walk, op)
    outputs: list[Value] = []

    def step(carried: list[Value]) -> list[Value]:
        found = walk.inside(op.param("jaxpr"), op.part.params["jaxpr"], [*consts, *carried, *slices])
        outputs[:] = found[num_carry:]
        return found[:num_carry]

    carried = walk.loop(step, list(carried))
    return [*carried, *map(_with_first, outputs)]


def _map_over_rows(walk: Walk, op: Operation) -> list[Value]:
    """A loop over the rows, which is a map where each round passes the carried values on unchanged."""
    num_same = op.param("num_consts") + op.param("num_carry")
    inner = op.param("jaxpr").jaxpr
    if inner.outvars[: op.param("num_carry")] != inner.invars[op.param("num_consts") : num_same]:
        return met(op, "a loop over the data rows")

    def mapped(equation: Any) -> Any:
        places = [*[None] * num_same, *[0] * (len(equation.invars) - num_same)]
        rows = jax.vmap(jaxpr_as_fun(equation.params["jaxpr"]), places, axis_size=equation.params["length"])
        return jax.make_jaxpr(rows)(*(jax.ShapeDtypeStruct(x.aval.shape, x.aval.dtype) for x in equation.invars))

    found = walk.inside(mapped(op.whole), mapped(op.part), op.operands)
    return [*op.operands[op.param("num_consts") : num_same], *found[op.param("num_carry") :]]


def linear_solve(walk: Walk, op: Operation) -> list[Value]:
    """A linear solver with custom derivatives; its operands are constants of four functions, then the right sides."""
    before, taken = 0, 0
    for name, length in op.param("const_lengths")._asdict().items():
        if name == "solve":
            taken = length
            break
        before += length
    sides = op.operands[sum(op.param("const_lengths")) :]
    whole, part = (e.params["jaxprs"].solve for e in (op.whole, op.part))
    return walk.inside(whole, part, [*op.operands[before : before + taken], *sides])


def reduce(walk: Walk, op: Operation) -> list[Value]:
    """A reduction by a user's function of scalars."""
    faults: list[Value] = [value for value in op.operands if isinstance(value, NotAligned)]
    if faults:
        return faults[:1] * op.results
    found = walk.inside(op.param("jaxpr"), op.part.params["jaxpr"], [FREE] * len(op.operands))
    return general_reduction(op) if all(value == FREE for value in found) else unknown(op)


def _without_first(value: Value) -> Value:
    """Knowledge of an array's entries along its first axis."""
    return _shifted(value, -1)


def _with_first(value: Value) -> Value:
    return _shifted(value, 1)


def _shifted(value: Value, by: int) -> Value:
    if isinstance(value, Free):
        return Free(frozenset(axis + by for axis in value.repeats))
    return value if isinstance(value, NotAligned) else value._replace(axis=value.axis + by)


def while_loop(walk: Walk, op: Operation) -> list[Value]:
    """A loop with a condition, which must be the same for all rows."""
    num_cond, num_body = op.param("cond_nconsts"), op.param("body_nconsts")
    of_cond, of_body = op.operands[:num_cond], op.operands[num_cond : num_cond + num_body]

    def step(carried: list[Value]) -> list[Value]:
        return walk.inside(op.param("body_jaxpr"), op.part.params["body_jaxpr"], [*of_body, *carried])

    carried = walk.loop(step, list(op.operands[num_cond + num_body :]))
    [goes_on] = walk.inside(op.param("cond_jaxpr"), op.part.params["cond_jaxpr"], [*of_cond, *carried])
    return carried if goes_on == FREE else unknown(op, "a loop that ends when rows say so")


CALLS: dict[str, Callable[[Walk, Operation], list[Value]]] = {
    **dict.fromkeys(["remat2", "checkpoint"], partial(call, "jaxpr")),
    **dict.fromkeys(["custom_jvp_call", "custom_vjp_call"], partial(call, "call_jaxpr")),
    "composite": partial(call, "jaxpr"),
    "cond": cond,
    "custom_linear_solve": linear_solve,
    "custom_vmap_call": partial(call, "call"),
    "reduce": reduce,
    "scan": scan,
    "while": while_loop,
}
