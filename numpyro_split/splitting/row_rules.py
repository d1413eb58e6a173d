"""Rules of row independence: for every primitive that is followed, how its results depend on rows.

A rule is given what is known of an operation's operands, none of which is ``NotAligned``, and answers for each result.
The rows' axis of an operand may be moved to another place; an operation along it combines rows. A ``Free`` operand as
long as there are rows stands for the entry that it repeats, where the result does not depend on how often. Where a rule
cannot follow an operation, the results are unknown.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.extend.core import Literal

from numpyro_split.splitting.row_lookups import gather, scatter
from numpyro_split.splitting.row_operations import (
    FREE,
    MET,
    Operation,
    Rule,
    met,
    moved,
    repeats,
    row_axes,
    unknown,
)
from split_common.row_independence import NUMBER_AS_CUT, Aligned, Free, NotAligned, Numbers, OwnRow, Value


def elementwise(op: Operation) -> list[Value]:
    """Operations entry by entry."""
    axes = row_axes(op)
    if any(isinstance(value, Numbers) for value in op.operands):
        return _of_numbers(op)
    if not op.same():
        return unknown(op)
    if len(axes) > 1:
        return met(op, "rows beside other rows")
    return [Aligned(*axes) if axes else Free(repeats(op))] * op.results


def handed_on(op: Operation) -> list[Value]:
    """Operations that return their operands unchanged."""
    return list(op.operands)


def _of_numbers(op: Operation) -> list[Value]:
    """Row numbers may be compared with zero and nothing else, and kept in another type that holds all of them."""
    if op.name in ("copy", "copy_p"):
        return list(op.operands)
    if op.name == "convert_element_type":
        numbers = np.arange(max(op.shape(0), default=0))
        is_exact = np.array_equal(numbers.astype(op.param("new_dtype")).astype(numbers.dtype), numbers)
        return list(op.operands) if is_exact else met(op, NUMBER_AS_CUT)
    numbers, zero = op.operands[0], op.whole.invars[-1]
    if op.name == "lt" and isinstance(zero, Literal) and not zero.val and isinstance(numbers, Numbers):
        return [Free(numbers.axes, is_false=True)]
    return met(op, NUMBER_AS_CUT)


def broadcast(op: Operation) -> list[Value]:
    """Broadcasting: values are constant along new axes."""
    places = op.param("broadcast_dimensions")
    if not op.same("broadcast_dimensions"):
        return unknown(op)
    [value] = moved(op, lambda axis: places[axis])
    shapes = [e.outvars[0].aval.shape for e in (op.whole, op.part)]
    inputs = op.shape(0)
    new = {d for d in range(len(shapes[0])) if d not in places or inputs[places.index(d)] == 1 != shapes[0][d]}
    longer = frozenset(d for d in new if shapes[0][d] != shapes[1][d])
    if not longer:
        return [value]
    return [Free(value.repeats | longer, value.is_false)] if isinstance(value, Free) else unknown(op)


def reshape(op: Operation) -> list[Value]:
    """An axis survives where as many entries stand before it, and it is as long.

    On one row it may be any of several axes of length 1: on all rows it differs from these.
    """

    def places(equation: Any, axis: int) -> set[int]:
        old, new = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
        before = int(np.prod(old[:axis]))
        return {b for b in range(len(new)) if int(np.prod(new[:b])) == before and new[b] == old[axis]}

    def new_axis(axis: int) -> int | None:
        found = places(op.whole, axis) & places(op.part, axis)
        return found.pop() if len(found) == 1 else None

    survives = all(new_axis(axis) is not None for axis in op.operands[0].axes)
    return moved(op, new_axis) if survives else unknown(op)


def transpose(op: Operation) -> list[Value]:
    """Axes in another order."""
    if not op.same():
        return unknown(op)
    return moved(op, lambda axis: op.param("permutation").index(axis))


def squeeze(op: Operation) -> list[Value]:
    """Axes of length 1 removed."""
    gone = op.param("dimensions")
    if not op.same():
        return unknown(op)
    return moved(op, lambda axis: None if axis in gone else axis - sum(d < axis for d in gone))


def reduction(op: Operation) -> list[Value]:
    """A reduction over some axes."""
    gone, value = op.param("axes"), op.operands[0]
    if not op.same():
        return unknown(op)
    if isinstance(value, Free) and value.repeats & set(gone):
        if op.name not in ("reduce_max", "reduce_min", "reduce_and", "reduce_or"):
            return met(op, f"a {MET.get(op.name, op.name)} of as many terms as there are rows")
        value = Free(value.repeats - set(gone))
    return moved(op._replace(operands=[value]), lambda a: None if a in gone else a - sum(d < a for d in gone))


def along(parameter: str) -> Rule:
    """An operation along one axis; the others stay what they are."""

    def rule(op: Operation) -> list[Value]:
        axis, axes = op.param(parameter), row_axes(op)
        if any(isinstance(value, Numbers) for value in op.operands):
            return met(op, NUMBER_AS_CUT)
        if axis in axes:
            return met(op)
        if axis in repeats(op) or not op.same():
            return unknown(op)
        if len(axes) > 1:
            return met(op, "rows beside other rows")
        return [Aligned(*axes) if axes else Free(repeats(op))] * op.results

    return rule


def concatenate(op: Operation) -> list[Value]:
    """Arrays beside each other; along the last axis the numbers of rows may stand beside other indices."""
    own = [place for place, value in enumerate(op.operands) if isinstance(value, Numbers)]
    last = len(op.shape(0)) - 1
    if len(own) != 1 or not op.same() or op.param("dimension") != last or len(axes := row_axes(op)) > 1:
        return along("dimension")(op)
    [axis] = axes
    if axis == last or op.shape(own[0])[last] != 1:
        return along("dimension")(op)
    return [OwnRow(axis, sum(op.shape(place)[last] for place in range(own[0])))]


def rev(op: Operation) -> list[Value]:
    """Entries in reverse order along some axes."""
    value = op.operands[0]
    if isinstance(value, Free):
        return [Free(value.repeats)]
    return met(op) if value.axes & set(op.param("dimensions")) or not op.same() else [value]


def window(op: Operation) -> list[Value]:
    """A part of an array (slice, dynamic_slice), or a padded array (pad): with all rows, or else rows are mixed."""
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
    return moved(op._replace(operands=[value]), lambda axis: axis + (axis >= new))


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


def dynamic_update_slice(op: Operation) -> list[Value]:
    """A part of an array overwritten, whole along the rows."""
    target, updates, *starts = op.operands
    if any(start != FREE for start in starts) or any(isinstance(value, Numbers) for value in op.operands):
        return unknown(op, f"{op.name} at places that rest on rows")
    for axis in target.axes | updates.axes:
        if any(e.invars[0].aval.shape[axis] != e.invars[1].aval.shape[axis] for e in (op.whole, op.part)):
            return met(op, f"{op.name} along the data rows") if row_axes(op) else unknown(op)
    return elementwise(op)


def iota(op: Operation) -> list[Value]:
    """The numbers 0, 1, 2, ... along one axis."""
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
            return met(op, NUMBER_AS_CUT)
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


def convolution(op: Operation) -> list[Value]:
    """Convolution of images, one a row, with filters that are the same for all."""
    images, filters = op.operands
    numbers, batch = op.param("dimension_numbers"), op.param("dimension_numbers").lhs_spec[0]
    if not op.same() or filters != FREE or op.param("batch_group_count") != 1:
        mixes = isinstance(filters, Aligned) and op.same("feature_group_count", "batch_group_count")
        return met(op, "a convolution with filters of rows") if mixes else unknown(op)  # each row's own, by vmap
    if isinstance(images, Numbers) or images.axes - {batch}:
        return unknown(op) if isinstance(images, Free) else met(op, "a convolution over the data rows")
    return moved(op, lambda axis: numbers.out_spec[0])


def pooling(op: Operation) -> list[Value]:
    """A reduction in windows, which must not reach from row to row."""
    axes = row_axes(op) | repeats(op)
    if any(isinstance(value, Numbers) for value in op.operands) or not op.same():
        return unknown(op)
    for axis in axes:
        lengths = [op.param(name)[axis] for name in ("window_dimensions", "window_strides", "base_dilation")]
        if lengths != [1, 1, 1] or tuple(op.param("padding")[axis]) != (0, 0):
            return met(op, f"{op.name} over the data rows") if row_axes(op) else unknown(op)
    return elementwise(op)


def fourier(op: Operation) -> list[Value]:
    """A Fourier transform along the last axes."""
    rank, lengths = len(op.shape(0)), op.param("fft_lengths")
    if not op.same() or isinstance(op.operands[0], Numbers):
        return unknown(op)
    if any(axis >= rank - len(lengths) for axis in op.operands[0].axes):
        return met(op, "a Fourier transform over the data rows") if row_axes(op) else unknown(op)
    return [op.operands[0]]


def triangular_solve(op: Operation) -> list[Value]:
    """Solve for several right sides of one matrix, each by itself."""
    matrix, sides = op.operands
    rank = len(op.shape(1))
    if matrix == FREE and isinstance(sides, Aligned) and sides.axis == rank - (1 if op.param("left_side") else 2):
        return [sides]
    return batched(op)


def batched(op: Operation) -> list[Value]:
    """Operation on matrices, which the last two axes hold; some operands are vectors, in the last axis."""
    axes_of_one = VECTORS.get(op.name, (2,) * len(op.operands))
    for place, value in enumerate(op.operands):
        if any(axis >= len(op.shape(place)) - axes_of_one[place] for axis in value.axes):
            return met(op, f"{op.name} of a matrix of rows") if not isinstance(value, Free) else unknown(op)
    return elementwise(op)


VECTORS = {"householder_product": (2, 1), "lu_pivots_to_permutation": (1,), "tridiagonal_solve": (1, 1, 1, 2)}


def unstack(op: Operation) -> list[Value]:
    """Entries along one axis, which is removed."""
    gone = op.param("axis")
    if not op.same():
        return met(op, f"{op.name} over the data rows") if row_axes(op) else unknown(op)
    return moved(op, lambda axis: None if axis == gone else axis - (gone < axis)) * op.results


def general_reduction(op: Operation) -> list[Value]:
    """A reduction of several arrays over some axes, with a start for each, by a function of scalars."""
    starts, gone = op.operands[op.results :], op.param("dimensions")
    is_followed = op.same("dimensions") and all(start == FREE for start in starts)
    if not is_followed or any(isinstance(value, Numbers | OwnRow) for value in op.operands):
        return unknown(op)
    axes, free = row_axes(op), repeats(op)
    if (axes | free) & set(gone):
        return met(op, "a reduction over the data rows") if axes else unknown(op)
    if len(axes) > 1:
        return met(op, "rows beside other rows")
    value = Aligned(*axes) if axes else Free(free)
    return moved(op._replace(operands=[value]), lambda axis: axis - sum(d < axis for d in gone)) * op.results


FOLLOW_ROWS = {
    "broadcast_in_dim": ("shape", "sharding"),
    "device_put": ("devices", "srcs"),
    "dynamic_slice": ("slice_sizes",),
    "gather": ("slice_sizes",),
    "iota": ("shape", "sharding"),
    "pad": WINDOWS["pad"],
    "reshape": ("new_sizes", "sharding"),
    "slice": WINDOWS["slice"],
    "tile": ("reps",),
}
"""Parameters that may follow the number of rows, by primitive, since its rule looks at them; all others may not."""

KEEP_ENTRIES = frozenset(
    "broadcast_in_dim convert_element_type copy copy_p device_put dynamic_slice iota optimization_barrier reshape rev "
    "slice squeeze tile transpose unstack".split()
)
"""Operations whose rules keep the number of each row in its place; after any other it counts as another number."""

SCATTERS = ("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")
TAKES_INDICES = ("gather", *SCATTERS)  # operations that may take the number of a row beside other indices

RULES: dict[str, Rule] = {
    **dict.fromkeys(
        """abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e
        bitcast_convert_type cbrt ceil clamp clz complex conj convert_element_type copy copy_p cos
        cosh digamma div eq eq_to erf erf_inv erfc exp exp2 expm1 floor ge gt igamma igamma_grad_a
        igammac imag integer_pow is_finite le le_to lgamma log log1p logistic lt lt_to max min mul
        mulhi name ne neg nextafter not or polygamma population_count pow random_gamma_grad real
        reduce_precision regularized_incomplete_beta rem round rsqrt select_n shift_left
        shift_right_arithmetic shift_right_logical sign sin sinh sqrt square stop_gradient sub tan
        tanh xor zeta""".split(),
        elementwise,
    ),
    **dict.fromkeys(
        ["reduce_max", "reduce_min", "reduce_sum", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor"], reduction
    ),
    **dict.fromkeys(["device_put", "optimization_barrier"], handed_on),
    **dict.fromkeys(["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"], along("axis")),
    **dict.fromkeys(["argmax", "argmin"], reduction),
    **dict.fromkeys(WINDOWS, window),
    **dict.fromkeys(["reduce_window_max", "reduce_window_min", "reduce_window_sum", "reduce_window"], pooling),
    **dict.fromkeys(
        """cholesky eig eigh geqrf hessenberg householder_product lu lu_pivots_to_permutation qr schur svd
        tridiagonal tridiagonal_solve""".split(),
        batched,
    ),
    "approx_top_k": along("reduction_dimension"),
    "conv_general_dilated": convolution,
    "fft": fourier,
    "broadcast_in_dim": broadcast,
    "concatenate": concatenate,
    "dot_general": dot_general,
    "dynamic_update_slice": dynamic_update_slice,
    "gather": gather,
    "iota": iota,
    "reshape": reshape,
    "rev": rev,
    **dict.fromkeys(SCATTERS, scatter),
    "sort": along("dimension"),
    "split": along("axis"),
    "squeeze": squeeze,
    "stack": stack,
    "tile": tile,
    "top_k": along("axis"),
    "transpose": transpose,
    "triangular_solve": triangular_solve,
    "unstack": unstack,
}
