"""Rules of row independence: for every ATen operation that is followed, how its results depend on rows.

A rule is given what is known of an operation's operands, none of which is ``NotAligned``, and answers for each result.
Axes are counted from the left. The rows' axis of an operand may be moved to another place; an operation along it
combines rows. A ``Free`` operand as long as there are rows stands for the entry that it repeats, where the result does
not depend on how often. Where a rule cannot follow an operation, the results are unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from pyro_split.splitting.row_lookups import (
    embedding,
    gather,
    index,
    index_add,
    index_put,
    index_select,
    scatter,
    searched,
    select_scatter,
    slice_scatter,
)
from pyro_split.splitting.row_operations import (
    BESIDE,
    FREE,
    WORDS,
    Merged,
    Operation,
    Rule,
    Value,
    beside,
    met,
    moved,
    no_rule,
    number_of_rows,
    repeated,
    unknown,
)
from split_common.row_independence import NUMBER_AS_CUT, Aligned, Free, NotAligned, Numbers

# --- entry by entry ---------------------------------------------------------------------------------------------------


def elementwise(op: Operation) -> list[Value]:
    """Operations entry by entry, with operands broadcast over each other's axes."""
    if not op.same():
        return number_of_rows(op)
    rank = len(op.result_shapes[0])
    ranks = [x.dim() for x in op.whole.tensors]
    return beside(op, [(value, lambda a, r=r: a + rank - r) for value, r in zip(op.operands, ranks, strict=True)])


def unchanged(op: Operation) -> list[Value]:
    """The same entries in the same places."""
    return [op.value("self")] * op.results if op.same() else number_of_rows(op)


def like(op: Operation) -> list[Value]:
    """One number in every place."""
    names = {"size", "stride"} & set(op.whole.arguments)
    if op.differing(*(name for name in op.whole.arguments if name not in names)):
        return number_of_rows(op)
    return [Free(op.longer)] * op.results


def fill(op: Operation) -> list[Value]:
    """One number, which may be a tensor, in every place."""
    if not op.same():
        return number_of_rows(op)
    return [Free(op.longer)] if op.value("value") == FREE else unknown(op)


def copy(op: Operation) -> list[Value]:
    """Entries put in the place of others."""
    [value] = moved(op, lambda axis: axis + op.rank("self") - op.rank("src"), "src")
    return repeated(op, value)


def loss(op: Operation) -> list[Value]:
    """A loss of each entry, or one of all of them together."""
    if op.param("reduction") != 0:
        return met(op, f"{op.name} over the data rows") if any(v.axes for v in op.operands) else no_rule(op)
    return elementwise(op)


def losses_of_classes(op: Operation) -> list[Value]:
    """Loss of scores, shape (rows, classes, ...) or (classes,), and a class for each row."""
    if op.param("reduction") != 0 or op.value("weight") != FREE or not op.same() or op.rank("self") == 1:
        return met(op, f"{op.name} over the data rows") if op.param("reduction") else unknown(op)
    if op.value("self").axes & {1}:
        return met(op, f"{op.name} over the data rows")
    [found, *_] = beside(op, [(op.value("self"), lambda a: a - (a > 1)), (op.value("target"), lambda a: a)])
    return [found] + [NotAligned(False, op.name)] * (op.results - 1)


def numbers(op: Operation) -> list[Value]:
    """The numbers 0, 1, 2, ..."""
    if op.same():
        return [FREE]
    is_plain = op.whole.arguments.get("start", 0) == 0 and op.whole.arguments.get("step", 1) == 1
    is_same = op.same(*(name for name in op.whole.arguments if name != "end"))
    return [Numbers(0)] if is_plain and is_same and op.result_shapes == tuple((n,) for n in op.rows) else trend(op)


def trend(op: Operation) -> list[Value]:
    """Entries that depend on their place."""
    return no_rule(op) if op.same() else met(op, "an array of numbers that depends on how many rows there are")


# --- axes -------------------------------------------------------------------------------------------------------------


def expand(op: Operation) -> list[Value]:
    """Spread over new axes, and over axes of length 1."""
    shift = len(op.result_shapes[0]) - op.rank("self")
    return repeated(op, moved(op, lambda axis: axis + shift)[0])


def tile(op: Operation) -> list[Value]:
    """Copies beside each other, along axes of length 1 or of no row."""
    shift = len(op.result_shapes[0]) - op.rank("self")
    [value] = moved(op, lambda axis: axis + shift)
    counts = [step.arguments["repeats"] for step in (op.whole, op.part)]
    if any(n != 1 for times in counts for axis, n in enumerate(times) if axis in value.axes):
        return unknown(op)
    lengths = (1,) * shift + op.shapes("self")[0]
    if any(n != m and lengths[axis] != 1 for axis, (n, m) in enumerate(zip(*counts, strict=True))):
        return unknown(op)
    return repeated(op, value)


def view(op: Operation) -> list[Value]:
    """An axis survives where as many entries stand before it, and it is as long; that of rows also within another."""
    old, new = op.shapes("self"), op.result_shapes
    value = op.value("self")
    if isinstance(value, Aligned | Merged):
        return laid_out(op, value)

    def new_axis(axis: int) -> int | None:
        def is_there(place: int, run: int) -> bool:
            shape, other = old[run], new[run]
            before = math.prod(shape[:axis]) == math.prod(other[:place])
            return place < len(other) and before and shape[axis] == other[place]

        places = [place for place in range(len(new[0])) if is_there(place, 0)]
        return places[0] if len(places) == 1 and is_there(places[0], 1) else None

    survives = "size" in op.whole.arguments and all(new_axis(axis) is not None for axis in op.value("self").axes)
    return moved(op, new_axis) if survives else unknown(op)


def laid_out(op: Operation, value: Aligned | Merged) -> list[Value]:
    """The axis of the rows after a reshape, if the entries before and after them stay before and after them."""
    shapes = op.shapes("self"), op.result_shapes
    if "size" not in op.whole.arguments:
        return unknown(op)
    own = (value.before, value.after) if isinstance(value, Merged) else (1, 1)

    def places(run: int) -> set[Merged]:
        old, new, rows = shapes[0][run], shapes[1][run], op.rows[run]
        before, after = math.prod(old[: value.axis]) * own[0], own[1] * math.prod(old[value.axis + 1 :])
        found = set()
        for place, length in enumerate(new):
            ahead, behind = math.prod(new[:place]), math.prod(new[place + 1 :])
            if ahead and behind and before % ahead == 0 and after % behind == 0:
                place = Merged(place, before // ahead, after // behind)
                found |= {place} if place.before * rows * place.after == length else set()
        return found

    both = places(0) & places(1)
    if len(both) != 1:
        return unknown(op)
    [found] = both
    return [Aligned(found.axis) if (found.before, found.after) == (1, 1) else found]


def permute(op: Operation) -> list[Value]:
    """Axes in another order."""
    order = [axis % op.rank("self") for axis in op.param("dims")]
    return moved(op, order.index) if op.same() else unknown(op)


def transpose(op: Operation) -> list[Value]:
    """Two axes in each other's place; those of a matrix where none are named."""
    rank = op.rank("self")
    a, b = (op.whole.arguments.get(name, place) % max(rank, 1) for name, place in (("dim0", 0), ("dim1", 1)))
    if rank < 2 or not op.same():
        return unchanged(op)
    return moved(op, lambda axis: {a: b, b: a}.get(axis, axis))


def unsqueeze(op: Operation) -> list[Value]:
    """A new axis of length 1."""
    new = op.param("dim") % (op.rank("self") + 1)
    return moved(op, lambda axis: axis + (axis >= new)) if op.same() else unknown(op)


def squeeze(op: Operation) -> list[Value]:
    """Axes of length 1 removed."""
    whole, part = op.shapes("self")
    named = op.axes_of("dim", len(whole)) if whole else []
    gone = [axis for axis in named if whole[axis] == 1]
    if not op.same() or gone != [axis for axis in named if part[axis] == 1]:
        return unknown(op)
    return moved(op, lambda axis: None if axis in gone else axis - sum(d < axis for d in gone))


def select(op: Operation) -> list[Value]:
    """One entry of an axis."""
    value, axis = op.value("self"), op.param("dim") % op.rank("self")
    if isinstance(value, Free) and axis in value.repeats:
        return [Free(frozenset(a - (a > axis) for a in value.repeats - {axis}))]
    if axis in value.axes:
        return met(op, "a look-up of one of the data rows")
    return moved(op, lambda a: a - (a > axis)) if op.same() else number_of_rows(op)


def window(op: Operation) -> list[Value]:
    """A part of an axis: all of it where it is the rows'."""
    value, axis = op.value("self"), op.param("dim") % op.rank("self")
    is_all = op.param("step") == 1 and op.shapes("self") == op.result_shapes
    if axis not in value.axes:
        return [value] if op.same() else number_of_rows(op)
    if isinstance(value, Free):  # constant along this axis
        return [Free((value.repeats - {axis}) | (op.longer & {axis}))]
    return [value] if is_all else met(op, "slice along the data rows")


def pad(op: Operation) -> list[Value]:
    """Padding around the last axes."""
    rims = [step.arguments["pad" if op.has("pad") else "padding"] for step in (op.whole, op.part)]
    rank = op.rank("self")
    if not op.same():
        return number_of_rows(op)
    for place in range(len(rims[0]) // 2):
        if rank - 1 - place in op.value("self").axes and any(rims[0][2 * place : 2 * place + 2]):
            return unknown(op) if isinstance(op.value("self"), Free) else met(op)
    return [op.value("self")]


def parts(op: Operation) -> list[Value]:
    """Pieces of an axis."""
    axis = op.param("dim") % op.rank("self")
    if axis in op.value("self").axes:
        return met(op, f"{op.name} of the data rows") if not isinstance(op.value("self"), Free) else unknown(op)
    if not op.same():
        return number_of_rows(op)
    return moved(op, lambda a: a - (a > axis)) if op.name == "unbind" else [op.value("self")] * op.results


def stack(op: Operation) -> list[Value]:
    """Tensors side by side along a new axis."""
    new = op.param("dim") % len(op.result_shapes[0])
    return beside(op, [(value, lambda a: a + (a >= new)) for value in op.operands]) if op.same() else unknown(op)


def unfold(op: Operation) -> list[Value]:
    """Windows that slide along an axis, on an axis of their own."""
    axis = op.param("dimension") % max(op.rank("self"), 1)
    if axis in op.value("self").axes:
        return unknown(op) if isinstance(op.value("self"), Free) else met(op, "windows along the data rows")
    return unchanged(op)


def diagonal(op: Operation) -> list[Value]:
    """Entries on a diagonal of two axes, on a last one."""
    rank = op.rank("self")
    gone = {op.param("dim1") % rank, op.param("dim2") % rank}
    return moved(op, lambda a: None if a in gone else a - sum(d < a for d in gone)) if op.same() else unknown(op)


def diag_embed(op: Operation) -> list[Value]:
    """The last axis as the diagonal of two."""
    rank, new = op.rank("self"), {op.param(name) % (op.rank("self") + 1) for name in ("dim1", "dim2")}
    places = [axis for axis in range(rank + 1) if axis not in new]
    return moved(op, lambda a: None if a == rank - 1 else places[a]) if op.same() else unknown(op)


# --- operations along axes --------------------------------------------------------------------------------------------

OF_CONSTANTS = ("amax", "amin", "max", "min", "any", "all", "mean", "median", "nanmedian")


def reduction(op: Operation) -> list[Value]:
    """A reduction over some axes, or all."""
    value, rank = op.value("self"), op.rank("self")
    gone = op.axes_of("dim", rank)
    if not op.same():
        return number_of_rows(op)
    if isinstance(value, Free) and value.repeats & set(gone):
        if op.name not in OF_CONSTANTS or op.results > 1:
            return met(op, f"{WORDS.get(op.name, op.name)} of as many terms as there are rows")
        value = Free(value.repeats - set(gone))
    if isinstance(value, Numbers) or value.axes & set(gone):
        return met(op)
    if op.whole.arguments.get("keepdim"):
        return [value] * op.results
    return beside(op, [(value, lambda a: a - sum(d < a for d in gone))])


def along(op: Operation) -> list[Value]:
    """An operation along some axes; the others stay what they are."""
    ranks = {x.dim() for x in op.whole.tensors}
    name = "dims" if "dims" in op.whole.arguments else "dim"
    if len(ranks) != 1 or name not in op.whole.arguments:
        return unknown(op)
    axes = set(op.axes_of(name, *ranks))
    for value in op.operands:
        if axes & value.axes and not isinstance(value, Free):
            return met(op, NUMBER_AS_CUT if isinstance(value, Numbers) else None)
    if not op.same():
        return number_of_rows(op)
    if any(axes & value.axes for value in op.operands):
        return unknown(op)
    return beside(op, [(value, lambda a: a) for value in op.operands])


def trailing(count: int | None = None) -> Rule:
    """An operation on each array of the last axes, a number of them or as many as it says; those before them stay."""

    def rule(op: Operation) -> list[Value]:
        name = "input" if "input" in op.whole.arguments else "self"
        last = len(op.param("normalized_shape")) if count is None else count
        value = op.value(name)
        if any(other != FREE for other in op.others(name)):
            return unknown(op)
        if not op.same():
            return number_of_rows(op)
        if any(axis >= op.rank(name) - last for axis in value.axes):
            return unknown(op) if isinstance(value, Free) else met(op)
        return beside(op, [(value, lambda a: a)])

    return rule


BY_GIVEN_STATISTICS = ("_native_batch_norm_legit_no_training", "_batch_norm_no_update")


def batch_norm(op: Operation) -> list[Value]:
    """Batch normalisation, by statistics of the rows or by given ones."""
    value = op.value("input")
    is_training = op.whole.arguments.get("training", op.name not in BY_GIVEN_STATISTICS)
    if is_training or any(other != FREE for other in op.others("input")) or 1 in value.axes or not op.same():
        is_met = is_training and isinstance(value, Aligned) and value.axis != 1
        return met(op) if is_met else unknown(op)
    return beside(op, [(value, lambda a: a)])


def group_norm(op: Operation) -> list[Value]:
    """Group normalisation, by statistics of each row's groups of channels."""
    is_whole = all(step.arguments["N"] == step.arguments["input"].shape[0] for step in (op.whole, op.part))
    is_same = op.same(*(name for name in op.whole.arguments if name != "N"))
    if not is_whole or not is_same or any(other != FREE for other in op.others("input")):
        return unknown(op)
    return beside(op, [(op.value("input"), lambda a: a)]) if op.value("input").axes <= {0} else met(op)


def convolution(op: Operation) -> list[Value]:
    """Convolution of each row with the same weights."""
    value = op.value("input")
    if not op.same():
        return number_of_rows(op)
    if any(other != FREE for other in op.others("input")):
        return unknown(op, f"{op.name} with weights that rest on rows")
    if value.axes <= {0}:
        return beside(op, [(value, lambda a: a)])
    return unknown(op) if isinstance(value, Free) else met(op)


# --- matrices ---------------------------------------------------------------------------------------------------------

PRODUCTS = {  # operands with their axes, and the axes of the result
    "mm": (("self", "ij"), ("mat2", "jk"), "ik"),
    "bmm": (("self", "bij"), ("mat2", "bjk"), "bik"),
    "mv": (("self", "ij"), ("vec", "j"), "i"),
    "dot": (("self", "i"), ("tensor", "i"), ""),
    "vdot": (("self", "i"), ("other", "i"), ""),
    "addmm": (("mat1", "ij"), ("mat2", "jk"), "ik"),
    "baddbmm": (("batch1", "bij"), ("batch2", "bjk"), "bik"),
    "addmv": (("mat", "ij"), ("vec", "j"), "i"),
    "addbmm": (("batch1", "bij"), ("batch2", "bjk"), "ik"),
    "addr": (("vec1", "i"), ("vec2", "k"), "ik"),
    "outer": (("self", "i"), ("vec2", "k"), "ik"),
    "ger": (("self", "i"), ("vec2", "k"), "ik"),
}


def product(op: Operation) -> list[Value]:
    """Products summed over an axis that the result lacks, some with a term added."""
    *sides, out = PRODUCTS[op.name]
    if not op.same():
        return number_of_rows(op)
    for name, axes in sides:
        if any(axes[axis] not in out for axis in op.value(name).axes):
            return met(op, "sum over the data rows (a matrix product)")
    placed = [(op.value(name), lambda a, axes=axes: out.index(axes[a])) for name, axes in sides]
    is_added = "self" not in dict(sides)
    added = [(op.value("self"), lambda a: a + len(out) - op.rank("self"))] if is_added else []
    return beside(op, [*placed, *added], f"{BESIDE} (a matrix product)")


def distances(op: Operation) -> list[Value]:
    """Distances of each row of one matrix to each of another."""
    rank = len(op.result_shapes[0])
    sides = [("x1", rank - 2), ("x2", rank - 1)]
    if not op.same() or any(op.rank(name) - 1 in op.value(name).axes for name, _ in sides):
        return met(op) if any(not isinstance(v, Free) for v in op.operands) else unknown(op)

    def place(name: str, end: int) -> Callable[[int], int]:
        return lambda a: end if a == op.rank(name) - 2 else a + rank - op.rank(name)

    return beside(op, [(op.value(name), place(name, end)) for name, end in sides])


def batched(op: Operation) -> list[Value]:
    """Operation on matrices, which the last two axes hold."""
    ranks = [x.dim() for x in op.whole.tensors]
    if not op.same():
        return number_of_rows(op)
    for value, rank in zip(op.operands, ranks, strict=True):
        if any(axis >= rank - 2 for axis in value.axes):
            return unknown(op) if isinstance(value, Free) else met(op, f"{op.name} of a matrix of rows")
    most = max(ranks)
    return beside(op, [(value, lambda a, r=r: a + most - r) for value, r in zip(op.operands, ranks, strict=True)])


SIDES = {"linalg_solve_triangular": "B", "triangular_solve": "self", "cholesky_solve": "self", "_linalg_solve_ex": "B"}


def solve(op: Operation) -> list[Value]:
    """Solve for several right sides of one matrix, each by itself."""
    name = SIDES[op.name]
    sides, rank, most = op.value(name), op.rank(name), max(x.dim() for x in op.whole.tensors)
    if op.name == "_linalg_solve_ex" and rank != op.rank("A"):
        return unknown(op)  # a vector or a matrix, by its shape
    columns = rank - (1 if op.whole.arguments.get("left", True) else 2)
    is_one_matrix = all(other == FREE for other in op.others(name)) and op.same()
    if isinstance(sides, Aligned) and sides.axis == columns and is_one_matrix:
        factors = [FREE] * (op.results - 1)  # of the matrix
        return [Aligned(columns + most - rank), *factors]
    return batched(op)


ELEMENTWISE = """
__and__ __lshift__ __or__ __rshift__ __xor__ _prelu_kernel abs acos acosh add addcdiv addcmul angle asin asinh atan
atan2 atanh bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil celu clamp
clamp_max clamp_min complex copysign cos cosh deg2rad digamma div elu elu_backward eq erf erfc erfinv exp exp2 expm1
float_power floor floor_divide fmax fmin fmod frac frexp gcd ge gelu gelu_backward gt hardshrink hardsigmoid
hardsigmoid_backward hardswish hardswish_backward hardtanh hardtanh_backward heaviside hypot i0 igamma igammac isfinite
isinf isnan isneginf isposinf lcm ldexp le leaky_relu leaky_relu_backward lerp lgamma log log10 log1p log2
log_sigmoid_backward log_sigmoid_forward logaddexp logaddexp2 logical_and logical_not logical_or logical_xor logit
logit_backward lt masked_fill maximum minimum mish mish_backward mul mvlgamma nan_to_num ne neg nextafter polar
polygamma pow rad2deg reciprocal relu relu6 remainder round rsqrt rsub sgn sigmoid sigmoid_backward sign signbit silu
silu_backward sin sinc sinh softplus softplus_backward softshrink special_airy_ai special_bessel_j0 special_bessel_j1
special_bessel_y0 special_bessel_y1 special_entr special_erfcx special_i0e special_i1 special_i1e special_log_ndtr
special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1
special_ndtri special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 special_spherical_bessel_j0
special_xlog1py special_zeta sqrt square sub tan tanh tanh_backward threshold threshold_backward true_divide trunc where
xlogy
""".split()

RULES: dict[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    **dict.fromkeys(
        "_conj _conj_physical _to_copy alias clone contiguous conj_physical detach lift lift_fresh "
        "lift_fresh_copy positive view_as_complex view_as_real".split(),
        unchanged,
    ),
    **dict.fromkeys(
        "empty empty_like empty_strided full full_like new_empty new_empty_strided new_full new_ones new_zeros "
        "ones ones_like scalar_tensor zeros zeros_like".split(),
        like,
    ),
    **dict.fromkeys(["binary_cross_entropy", "huber_loss", "mse_loss", "smooth_l1_loss"], loss),
    **dict.fromkeys(["nll_loss_forward", "nll_loss2d_forward"], losses_of_classes),
    **dict.fromkeys(["eye", "linspace", "logspace"], trend),
    **dict.fromkeys(["_reshape_alias", "_unsafe_view", "reshape", "view"], view),
    **dict.fromkeys(["split", "split_with_sizes", "unbind", "unsafe_split"], parts),
    **dict.fromkeys(["constant_pad_nd", "reflection_pad1d", "reflection_pad2d", "replication_pad1d"], pad),
    **dict.fromkeys(["replication_pad2d", "reflection_pad3d", "replication_pad3d"], pad),
    **dict.fromkeys(
        "all amax amin aminmax any argmax argmin count_nonzero kthvalue linalg_vector_norm logsumexp max mean "
        "median min mode nanmedian nansum prod std std_mean sum var var_mean".split(),
        reduction,
    ),
    **dict.fromkeys(
        "_fft_c2c _fft_c2r _fft_r2c _log_softmax _log_softmax_backward_data _softmax _softmax_backward_data cat "
        "cummax cummin cumprod cumsum flip glu logcumsumexp "
        "roll sort topk".split(),
        along,
    ),
    **dict.fromkeys(["avg_pool1d", "max_pool1d", "upsample_linear1d", "upsample_nearest1d"], trailing(1)),
    **dict.fromkeys(
        "_adaptive_avg_pool2d adaptive_max_pool2d avg_pool2d max_pool2d_with_indices tril triu upsample_bicubic2d "
        "upsample_bilinear2d upsample_nearest2d".split(),
        trailing(2),
    ),
    **dict.fromkeys(["_adaptive_avg_pool3d", "avg_pool3d", "max_pool3d_with_indices", "pixel_shuffle"], trailing(3)),
    **dict.fromkeys(["_fused_rms_norm", "native_layer_norm"], trailing()),
    **dict.fromkeys(
        "_batch_norm_with_update _native_batch_norm_legit _native_batch_norm_legit_no_training native_batch_norm "
        "_native_batch_norm_legit_functional _batch_norm_no_update".split(),
        batch_norm,
    ),
    **dict.fromkeys(PRODUCTS, product),
    **dict.fromkeys(["_cdist_forward", "cdist"], distances),
    **dict.fromkeys(
        "_linalg_det _linalg_eigh _linalg_slogdet _linalg_svd _scaled_dot_product_flash_attention_for_cpu "
        "cholesky cholesky_inverse inverse linalg_cholesky_ex linalg_eig linalg_inv_ex linalg_lu_factor_ex "
        "linalg_matrix_exp linalg_qr".split(),
        batched,
    ),
    **dict.fromkeys(SIDES, solve),
    **dict.fromkeys(["scatter", "scatter_add", "scatter_reduce"], scatter),
    **dict.fromkeys(["index_add", "index_copy", "index_fill", "index_reduce"], index_add),
    **dict.fromkeys(["_unsafe_index", "index"], index),
    **dict.fromkeys(["_unsafe_index_put", "index_put"], index_put),
    **dict.fromkeys(["bucketize", "searchsorted"], searched),
    "arange": numbers,
    "convolution": convolution,
    "copy": copy,
    "diag_embed": diag_embed,
    "diagonal": diagonal,
    "embedding": embedding,
    "expand": expand,
    "fill": fill,
    "gather": gather,
    "index_select": index_select,
    "native_group_norm": group_norm,
    "permute": permute,
    "repeat": tile,
    "select": select,
    "select_scatter": select_scatter,
    "slice": window,
    "slice_scatter": slice_scatter,
    "squeeze": squeeze,
    "stack": stack,
    "t": transpose,
    "transpose": transpose,
    "unfold": unfold,
    "unsqueeze": unsqueeze,
}

OF_MERGED = {  # rules that also hold for `Merged` values: they do not ask which row an entry on the axis is of
    *(elementwise, unchanged, view, permute, transpose, unsqueeze, squeeze, select, window, parts, stack, expand),
    *(reduction, along, product, RULES["native_layer_norm"]),
}
