"""Does a model's likelihood divide over rows? Decided from its expression, for all parameter values.

The likelihood of all rows and that of as many as are evaluated at a time are traced, and the two expressions (jaxprs)
are walked side by side, value by value (:mod:`split_common.row_independence` says what is known of one). A rule says
what an operation makes of what it is given: :data:`RULES`, by the primitive's name. What has no rule is not proved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

import split_common
from numpyro_split.densities import Data, ModelDensity, Position
from numpyro_split.flat_program import FlatProgram, Step
from split_common.held import Holding, Proof
from split_common.row_independence import NOT_PROVED, Aligned, Free, NotAligned, Numbers, Value, Verdict, verdict_of

OURS = tuple(str(Path(file).parent) for file in (__file__, split_common.__file__ or __file__))
ROUNDING = 1e-12  # of numbers, relative: a plate's scale N/n, undone, leaves some
FREE = Free()


def prove(density: ModelDensity, data: Data, z: Position, num_rows: int) -> Proof:
    """The verdict on a model's division into parts of a number of rows, and what must be held for it.

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
    is_cut = density.mode == "slice"
    of_data = density.arguments.axes if is_cut else [None] * len(data)
    of_sites = {name: z[name].ndim + axis for name, axis in density.local_axes.items()}
    inputs = [
        *(Aligned(of_sites[name]) if name in of_sites else FREE for name in sorted(z)),
        *(FREE if axis is None else Aligned(axis) for axis in of_data),
        Numbers(0) if is_cut else Aligned(0),
    ]
    local = {name: _like(u, of_sites.get(name), num_rows) for name, u in z.items()}
    taken = tuple(_like(x, axis, num_rows) for x, axis in zip(data, of_data, strict=True))
    indices = jax.ShapeDtypeStruct((num_rows,), jnp.arange(0).dtype)
    program, ndims, axes = density.expression(local, taken, indices)
    return Expression(program, inputs, ndims, axes)


def _like(x: jax.Array, axis: int | None, num_rows: int) -> jax.ShapeDtypeStruct:
    """Shape and type of an array with another number of rows, along an axis or along none."""
    shape = tuple(num_rows if place == axis else length for place, length in enumerate(x.shape))
    return jax.ShapeDtypeStruct(shape, x.dtype)


class Walk:
    """Two programs, of all rows and of some, walked side by side.

    Args:
        holding: what may be held; None inside loops and functions that are not written out.
    """

    def __init__(self, holding: Holding | None = None):
        self.holding = holding

    def program(self, whole: FlatProgram, part: FlatProgram, inputs: Sequence[Value]) -> list[Value]:
        """What is known of the results, from what is known of the arguments."""
        another = NotAligned(False, "the program is another one on fewer rows")
        for a, b in zip(whole.steps, part.steps, strict=False):
            if a.name != b.name or a.inputs != b.inputs or a.outputs != b.outputs:
                return [another._replace(where=place_of(a.caller))] * len(whole.outputs)
        if len(whole.steps) != len(part.steps) or whole.outputs != part.outputs:
            return [another] * len(whole.outputs)
        known = dict(zip(whole.inputs, inputs, strict=True))
        for number, value in whole.constants.items():
            other = part.constants[number]
            known[number] = self._held(number, _constant(value, other), _type(value), _type(other))
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
        """What is known of the results of a function that is not written out: of two jaxprs."""
        return Walk().program(FlatProgram(whole), FlatProgram(part), inputs)

    def _held(self, number: int, value: Value, whole: Any, part: Any) -> Value:
        return value if self.holding is None else self.holding.hold(number, value, whole, part)

    def operation(self, whole: Step, part: Step, operands: list[Value]) -> list[Value]:
        """What is known of the results of one operation."""
        op = Operation(whole.equation, part.equation, operands)
        faults = [value for value in operands if isinstance(value, NotAligned)]
        try:
            if op.name in CALLS:
                found = CALLS[op.name](self, op)
            elif _chooses_first(op.name, operands):
                found = [operands[1]]
            else:
                found = faults[:1] * op.results if faults else RULES.get(op.name, no_rule)(op)
        except KeyError as missing:  # a parameter that has another name in this version of JAX
            found = unknown(op, f"{op.name}, which has no parameter {missing}")
        place = partial(place_of, whole.caller)
        return [
            value._replace(where=place()) if isinstance(value, NotAligned) and not value.where else value
            for value in map(op.consistent, found, whole.equation.outvars, part.equation.outvars)
        ]

    def loop(self, step: Callable[[list[Value]], list[Value]], carried: list[Value]) -> list[Value]:
        """What is known of the values that a loop carries, however often it runs."""
        for _ in range(2 * len(carried) + 1):  # each is first free, then aligned, then neither
            after = [_join(a, b) for a, b in zip(carried, step(carried), strict=True)]
            if after == carried:
                return carried
            carried = after
        return [NotAligned(False, "a loop")] * len(carried)


def _chooses_first(name: str, operands: list[Value]) -> bool:
    """Whether an operation is a choice that is known to fall on its first case."""
    return name == "select_n" and isinstance(operands[0], Free) and operands[0].is_false


class Operation(NamedTuple):
    """One operation in both expressions, and what is known of its operands.

    Attributes:
        whole: its equation on all rows.
        part: its equation on some.
        operands: what is known of each operand.
    """

    whole: Any
    part: Any
    operands: list[Value]

    @property
    def name(self) -> str:
        """Of the primitive."""
        return self.whole.primitive.name

    @property
    def results(self) -> int:
        """How many."""
        return len(self.whole.outvars)

    def shape(self, place: int) -> tuple[int, ...]:
        """Of an operand, on all rows."""
        return self.whole.invars[place].aval.shape

    def param(self, name: str) -> Any:
        """A parameter on all rows."""
        return self.whole.params[name]

    def same(self, *names: str) -> bool:
        """Whether parameters, or all of them, are equal in both expressions."""
        chosen = names or tuple(self.whole.params)
        return all(str(self.whole.params[name]) == str(self.part.params.get(name)) for name in chosen)

    def all_along(self, place: int, axis: int, sizes: str) -> bool:
        """Whether a parameter of sizes spans an operand's axis in both expressions."""
        equations = (self.whole, self.part)
        return all(e.params[sizes][axis] == e.invars[place].aval.shape[axis] for e in equations)

    def consistent(self, value: Value, whole: Any, part: Any) -> Value:
        """``value``, unless the lengths of its axes in the two expressions tell another story."""
        if isinstance(value, NotAligned):
            return value
        shapes = whole.aval.shape, part.aval.shape
        if len(shapes[0]) != len(shapes[1]) or whole.aval.dtype != part.aval.dtype:
            return NotAligned(False, f"{self.name} has another result on fewer rows")
        longer = {axis for axis, (n, m) in enumerate(zip(*shapes, strict=True)) if n != m}
        return value if longer == value.axes else NotAligned(False, f"{self.name} of a length that follows the rows")


def _type(x: Any) -> jax.ShapeDtypeStruct:
    """Shape and type of a constant."""
    return jax.ShapeDtypeStruct(np.shape(x), jnp.result_type(x))


def _constant(whole: Any, part: Any) -> Value:
    """Of a number or an array that stands in both expressions."""
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


def _shown(x: np.ndarray) -> str:
    return str(x.item()) if x.size == 1 else f"an array of shape {x.shape}"


def _join(a: Value, b: Value) -> Value:
    """What is known of a value that is either of two."""
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


# --- rules: what an operation makes of its operands, none of which is NotAligned --------------------------------------

Rule = Callable[[Operation], list[Value]]
MET = {"reduce_max": "max", "reduce_min": "min", "reduce_sum": "sum", "reduce_prod": "product", "cumsum": "running sum"}


def met(op: Operation, what: str | None = None) -> list[Value]:
    """Rows have met."""
    return [NotAligned(True, what or f"{MET.get(op.name, op.name)} over the data rows")] * op.results


def unknown(op: Operation, what: str | None = None) -> list[Value]:
    """Nobody knows."""
    return [NotAligned(False, what or f"{op.name}, which is not followed here")] * op.results


def no_rule(op: Operation) -> list[Value]:
    """What no row reaches stays so; anything else is not followed."""
    is_free = all(value == FREE for value in op.operands) and op.same() and "callback" not in op.name
    return [FREE] * op.results if is_free else unknown(op)


def _axes(op: Operation) -> set[int]:
    """The axes along which operands are aligned."""
    return {axis for value in op.operands if not isinstance(value, Free) for axis in value.axes}


def _repeats(op: Operation) -> frozenset[int]:
    return frozenset(axis for value in op.operands if isinstance(value, Free) for axis in value.axes)


def elementwise(op: Operation) -> list[Value]:
    """Entry by entry."""
    axes = _axes(op)
    if any(isinstance(value, Numbers) for value in op.operands):
        return _of_numbers(op)
    if not op.same():
        return unknown(op)
    if len(axes) > 1:
        return met(op, "rows beside other rows")
    return [Aligned(*axes) if axes else Free(_repeats(op))] * op.results


def _of_numbers(op: Operation) -> list[Value]:
    """Of numbers of rows, all that may be asked is whether they are negative."""
    if op.name in ("convert_element_type", "copy", "copy_p"):
        return list(op.operands)
    numbers, zero = op.operands[0], op.whole.invars[-1]
    if op.name == "lt" and isinstance(zero, Literal) and not zero.val and isinstance(numbers, Numbers):
        return [Free(numbers.axes, is_false=True)]
    return met(op, "the number of a row as it is cut")


def _moved(op: Operation, new_axis: Callable[[int], int | None]) -> list[Value]:
    """An operation that carries each axis of its first operand to another place; None where it does not survive."""
    value = op.operands[0]
    axes = [axis for axis in map(new_axis, value.axes) if axis is not None]
    if len(axes) < len(value.axes):
        return unknown(op) if isinstance(value, Free) else met(op)
    if isinstance(value, Free):
        return [value._replace(repeats=frozenset(axes))]
    return [value._replace(axis=axes[0])] if isinstance(value, Aligned | Numbers) else [value]


def broadcast(op: Operation) -> list[Value]:
    """New axes are constant."""
    places = op.param("broadcast_dimensions")
    if not op.same("broadcast_dimensions"):
        return unknown(op)
    [value] = _moved(op, lambda axis: places[axis])
    shapes = [e.outvars[0].aval.shape for e in (op.whole, op.part)]
    inputs = op.shape(0)
    new = {d for d in range(len(shapes[0])) if d not in places or inputs[places.index(d)] == 1 != shapes[0][d]}
    longer = frozenset(d for d in new if shapes[0][d] != shapes[1][d])
    if not longer:
        return [value]
    return [Free(value.repeats | longer, value.is_false)] if isinstance(value, Free) else unknown(op)


def reshape(op: Operation) -> list[Value]:
    """An axis survives where as many entries stand before it, and it is as long."""

    def new_axis(axis: int) -> int | None:
        found = None
        for e in (op.whole, op.part):
            old, new = e.invars[0].aval.shape, e.outvars[0].aval.shape
            before = int(np.prod(old[:axis]))
            places = [b for b in range(len(new)) if int(np.prod(new[:b])) == before and new[b] == old[axis]]
            if len(places) != 1 or found not in (None, places[0]):
                return None
            found = places[0]
        return found

    survives = all(new_axis(axis) is not None for axis in op.operands[0].axes)
    return _moved(op, new_axis) if survives else unknown(op)


def transpose(op: Operation) -> list[Value]:
    """Axes in another order."""
    if not op.same():
        return unknown(op)
    return _moved(op, lambda axis: op.param("permutation").index(axis))


def squeeze(op: Operation) -> list[Value]:
    """Axes of length 1 go."""
    gone = op.param("dimensions")
    if not op.same():
        return unknown(op)
    return _moved(op, lambda axis: None if axis in gone else axis - sum(d < axis for d in gone))


def reduction(op: Operation) -> list[Value]:
    """Over some axes."""
    gone, value = op.param("axes"), op.operands[0]
    if not op.same():
        return unknown(op)
    if isinstance(value, Free) and value.repeats & set(gone):
        if op.name not in ("reduce_max", "reduce_min", "reduce_and", "reduce_or"):
            return met(op, f"a {MET.get(op.name, op.name)} of as many terms as there are rows")
        value = Free(value.repeats - set(gone))
    return _moved(op._replace(operands=[value]), lambda a: None if a in gone else a - sum(d < a for d in gone))


def along(parameter: str) -> Rule:
    """An operation along one axis; the others stay what they are."""

    def rule(op: Operation) -> list[Value]:
        axis, axes = op.param(parameter), _axes(op)
        if any(isinstance(value, Numbers) for value in op.operands):
            return met(op, "the number of a row as it is cut")
        if axis in axes:
            return met(op)
        if axis in _repeats(op) or not op.same():
            return unknown(op)
        if len(axes) > 1:
            return met(op, "rows beside other rows")
        return [Aligned(*axes) if axes else Free(_repeats(op))] * op.results

    return rule


def rev(op: Operation) -> list[Value]:
    """The other way round along some axes."""
    value = op.operands[0]
    if isinstance(value, Free):
        return [Free(value.repeats)]
    return met(op) if value.axes & set(op.param("dimensions")) or not op.same() else [value]


def window(op: Operation) -> list[Value]:
    """A part of an array (slice, dynamic_slice), or an array with a rim (pad): whole along the rows, or rows meet."""
    value, parameters = op.operands[0], WINDOWS[op.name]
    if any(other != FREE for other in op.operands[1:]):
        return unknown(op, f"{op.name} at places that rest on rows")
    for axis in range(len(op.shape(0))):
        settings = [[e.params[name] and e.params[name][axis] for name in parameters] for e in (op.whole, op.part)]
        kept = all(e.invars[0].aval.shape[axis] == e.outvars[0].aval.shape[axis] for e in (op.whole, op.part))
        if axis in value.axes and not (kept and (op.name != "pad" or settings == [[(0, 0, 0)]] * 2)):
            return unknown(op) if isinstance(value, Free) else met(op, f"{op.name} along the data rows")
        if axis not in value.axes and settings[0] != settings[1]:
            return unknown(op)
    return [value]


WINDOWS = {"slice": ("start_indices", "limit_indices", "strides"), "dynamic_slice": (), "pad": ("padding_config",)}


def stack(op: Operation) -> list[Value]:
    """Arrays side by side along a new axis."""
    new = op.param("axis")
    [value] = elementwise(op)
    if isinstance(value, NotAligned):
        return [value]
    return _moved(op._replace(operands=[value]), lambda axis: axis + (axis >= new))


def tile(op: Operation) -> list[Value]:
    """Copies of an array beside each other."""
    value, reps = op.operands[0], [e.params["reps"] for e in (op.whole, op.part)]
    ours = value.axes
    if any(n != 1 for counts in reps for axis, n in enumerate(counts) if axis in ours):
        return unknown(op)
    longer = frozenset(axis for axis, (n, m) in enumerate(zip(*reps, strict=True)) if n != m)
    if not longer:
        return [value]
    is_new = isinstance(value, Free) and all(op.shape(0)[axis] == 1 for axis in longer)
    return [Free(value.axes | longer)] if is_new else unknown(op)


def scatter(op: Operation) -> list[Value]:
    """Entries added or put where an index says."""
    if any(isinstance(value, Aligned | Numbers) for value in op.operands[1:]):
        return met(op, f"rows put together by an index ({op.name})")
    return no_rule(op)


def iota(op: Operation) -> list[Value]:
    """Numbers along one axis."""
    dimension, shapes = op.param("dimension"), [e.outvars[0].aval.shape for e in (op.whole, op.part)]
    longer = frozenset(d for d in range(len(shapes[0])) if shapes[0][d] != shapes[1][d])
    if dimension not in longer:
        return [Free(longer)]
    return [Numbers(dimension)] if longer == {dimension} else unknown(op)


def dot_general(op: Operation) -> list[Value]:
    """Products summed over contracted axes; the result has batch axes, those of the left, those of the right."""
    contracted, batch = op.param("dimension_numbers")
    if not op.same("dimension_numbers"):
        return unknown(op)
    aligned, repeats = set(), set()
    for side, value in enumerate(op.operands):
        if isinstance(value, Numbers):
            return met(op, "the number of a row as it is cut")
        for axis in value.axes:
            if axis in contracted[side]:
                return met(op, "sum over the data rows (a matrix product)")
            if axis in batch[side]:
                place = batch[side].index(axis)
            else:
                free = [d for d in range(len(op.shape(side))) if d not in (*contracted[side], *batch[side])]
                others = len(op.shape(0)) - len(contracted[0]) - len(batch[0]) if side else 0
                place = len(batch[side]) + others + free.index(axis)
            (repeats if isinstance(value, Free) else aligned).add(place)
    if len(aligned) > 1:
        return met(op, "rows beside other rows (a matrix product)")
    return [Aligned(*aligned)] if aligned else [Free(frozenset(repeats))]


def gather(op: Operation) -> list[Value]:
    """Entries of the first operand, looked up by the second."""
    numbers, (table, index) = op.param("dimension_numbers"), op.operands
    if not op.same("dimension_numbers", "mode"):
        return unknown(op)
    rank = len(op.whole.outvars[0].aval.shape)
    of_index = [d for d in range(rank) if d not in numbers.offset_dims]  # of the result, for each axis of the index
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    of_table = dict(zip([d for d in range(len(op.shape(0))) if d not in gone], numbers.offset_dims, strict=True))
    paired = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    if isinstance(table, Numbers):
        return met(op, "the number of a row as it is cut")
    if isinstance(table, Free):
        if isinstance(index, Numbers):
            return met(op, "the number of a row as it is cut")
        if table.repeats:
            return unknown(op)
        return _moved(op._replace(operands=[index]), lambda axis: of_index[axis])
    [axis] = table.axes
    if axis in paired:
        is_paired = not isinstance(index, Numbers) and index.axes == {paired[axis]}
        return [Aligned(of_index[paired[axis]])] if is_paired else unknown(op)
    if axis in of_table:
        if index != FREE:
            return met(op, "rows beside other rows")
        is_whole = op.all_along(0, axis, "slice_sizes")
        return [Aligned(of_table[axis])] if is_whole else met(op, "a look-up of other rows")
    if isinstance(index, Numbers) and numbers.start_index_map == (axis,):
        return [Aligned(of_index[index.axis])]
    return met(op, "a look-up of other rows")


def triangular_solve(op: Operation) -> list[Value]:
    """Of one matrix and several right sides, each of which is solved for itself."""
    matrix, sides = op.operands
    rank = len(op.shape(1))
    if matrix == FREE and isinstance(sides, Aligned) and sides.axis == rank - (1 if op.param("left_side") else 2):
        return [sides]
    return batched(op)


def batched(op: Operation) -> list[Value]:
    """Of matrices: the last two axes are theirs."""
    for place, value in enumerate(op.operands):
        if any(axis >= len(op.shape(place)) - 2 for axis in value.axes):
            return met(op, f"{op.name} of a matrix of rows") if not isinstance(value, Free) else unknown(op)
    return elementwise(op)


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        """abs acos acosh add and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp conj
        convert_element_type copy copy_p cos cosh digamma div eq eq_to erf erf_inv erfc exp exp2 expm1 floor
        ge gt igamma igamma_grad_a igammac imag integer_pow is_finite le le_to lgamma log log1p logistic lt
        lt_to max min mul ne neg nextafter not optimization_barrier or polygamma population_count pow
        random_gamma_grad real reduce_precision regularized_incomplete_beta rem round rsqrt select_n
        shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square stop_gradient sub
        tan tanh xor zeta""".split(),
        elementwise,
    ),
    **dict.fromkeys(["reduce_max", "reduce_min", "reduce_sum", "reduce_prod", "reduce_and", "reduce_or"], reduction),
    **dict.fromkeys(["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"], along("axis")),
    **dict.fromkeys(["argmax", "argmin"], reduction),
    **dict.fromkeys(WINDOWS, window),
    "cholesky": batched,
    "broadcast_in_dim": broadcast,
    "concatenate": along("dimension"),
    "dot_general": dot_general,
    "gather": gather,
    "iota": iota,
    "reshape": reshape,
    "rev": rev,
    **dict.fromkeys(["scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max"], scatter),
    "sort": along("dimension"),
    "split": along("axis"),
    "squeeze": squeeze,
    "stack": stack,
    "tile": tile,
    "transpose": transpose,
    "triangular_solve": triangular_solve,
}


# --- calls of other expressions ---------------------------------------------------------------------------------------


def call(parameter: str, walk: Walk, op: Operation) -> list[Value]:
    """A function."""
    return walk.inside(op.param(parameter), op.part.params[parameter], op.operands)


def cond(walk: Walk, op: Operation) -> list[Value]:
    """One of several functions."""
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
    if not op.same("length"):
        return met(op, "a loop over the data rows")
    outputs: list[Value] = []

    def step(carried: list[Value]) -> list[Value]:
        found = walk.inside(op.param("jaxpr"), op.part.params["jaxpr"], [*consts, *carried, *slices])
        outputs[:] = found[num_carry:]
        return found[:num_carry]

    carried = walk.loop(step, list(carried))
    return [*carried, *map(_with_first, outputs)]


def _without_first(value: Value) -> Value:
    """Of an array, what is known of its entries along the first axis."""
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
    "cond": cond,
    "scan": scan,
    "while": while_loop,
}
