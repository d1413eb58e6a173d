"""An operation that was run on all rows and on some, and what can be said of its results in terms of its operands.

What may be known of a value is in :mod:`split_common.row_independence`; rules (:mod:`pyro_split.splitting.row_rules`)
are made of what is here. Lengths that differ between the two runs need no rule of their own:
:meth:`Operation.consistent` checks every answer against the shapes of what was computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyro_split.host import pytree
from pyro_split.potential.flat_program import Step, tensors_in
from split_common.row_independence import NUMBER_AS_CUT, Aligned, Free, NotAligned, Numbers
from split_common.row_independence import Value as Known

ROUNDING = 1e-12  # relative, of numbers: those of some rows may be computed by other kernels than those of all
FREE = Free()

KEEP_ENTRIES = frozenset(
    "_reshape_alias _to_copy _unsafe_view alias arange clone contiguous copy detach expand lift lift_fresh "
    "lift_fresh_copy permute positive repeat reshape select slice slice_scatter split split_with_sizes squeeze t "
    "transpose unbind unsafe_split unsqueeze view".split()
)
"""Operations whose rules keep the number of each row in its place; after any other it counts as another number."""
COMPLEX = (torch.complex32, torch.complex64, torch.complex128)

Shapes = tuple[tuple[int, ...], tuple[int, ...]]


class Merged(NamedTuple):
    """A value whose rows share an axis with other entries, as in a batch of sequences laid out as one batch of steps.

    Attributes:
        axis: the shared axis, of ``before * N * after`` entries; entry k depends on row (k // after) % N alone.
        before: number of times that the axis runs through all rows.
        after: number of entries of a row that are adjacent.
    """

    axis: int
    before: int
    after: int

    @property
    def axes(self) -> frozenset[int]:
        """Axes that grow with the rows."""
        return frozenset({self.axis})


Value = Known | Merged


class Operation(NamedTuple):
    """One operation on all rows and on some, and what is known of its operands.

    Attributes:
        whole: the operation as it was run on all rows.
        part: the operation as it was run on some rows.
        operands: what is known of each tensor among the arguments, in order.
        rows: number of all rows, and of those in a part.
    """

    whole: Step
    part: Step
    operands: list[Value]
    rows: tuple[int, int]

    @property
    def name(self) -> str:
        """Name of the operation in ATen."""
        return self.whole.name

    @property
    def results(self) -> int:
        """Number of results."""
        return len(self.whole.results)

    def param(self, name: str) -> Any:
        """An argument on all rows."""
        return self.whole.arguments[name]

    def has(self, name: str) -> bool:
        """Whether this overload has an argument, and it is given."""
        return self.whole.arguments.get(name) is not None

    def values(self, name: str) -> list[Value]:
        """Knowledge of the tensors in an argument."""
        before = 0
        for other, argument in self.whole.arguments.items():
            count = len(tensors_in(argument))
            if other == name:
                return self.operands[before : before + count]
            before += count
        raise KeyError(name)

    def value(self, name: str) -> Value:
        """Knowledge of a tensor argument; a number, or None, is free of rows."""
        return next(iter(self.values(name)), FREE)

    def others(self, name: str) -> list[Value]:
        """Knowledge of the tensors in all arguments but one."""
        return [value for other in self.whole.arguments if other != name for value in self.values(other)]

    def shapes(self, name: str) -> Shapes:
        """Shapes of a tensor argument in both runs."""
        return tuple(self.whole.arguments[name].shape), tuple(self.part.arguments[name].shape)

    def rank(self, name: str) -> int:
        """How many axes an argument has; a number has none."""
        argument = self.whole.arguments.get(name)
        return argument.dim() if isinstance(argument, Tensor) else 0

    @property
    def result_shapes(self) -> Shapes:
        """Shapes of the first result in both runs."""
        return tuple(self.whole.results[0].shape), tuple(self.part.results[0].shape)

    @property
    def longer(self) -> frozenset[int]:
        """Axes of the first result whose length differs on fewer rows."""
        return _longer(self.result_shapes)

    def axes_of(self, name: str, rank: int) -> list[int]:
        """Axes that an argument names, of as many as ``rank``; all of them where it names none."""
        chosen = self.whole.arguments.get(name)
        chosen = [chosen] if isinstance(chosen, int) else chosen
        return [axis % max(rank, 1) for axis in chosen] if chosen else list(range(rank))

    def differing(self, *names: str) -> list[tuple[Any, Any]]:
        """Pairs of numbers and settings, in some arguments or in all of them, that differ on fewer rows."""
        chosen = names or tuple(self.whole.arguments)
        pairs = [(self.whole.arguments[name], self.part.arguments.get(name)) for name in chosen]
        return [pair for a, b in pairs for pair in _unlike(a, b)]

    def same(self, *names: str) -> bool:
        """Whether numbers and settings, in some arguments or in all of them, are equal in both runs."""
        return not self.differing(*names)

    @property
    def is_free(self) -> bool:
        """Whether no argument depends on rows or on how many there are."""
        return all(value == FREE for value in self.operands) and self.same()

    def consistent(self, value: Value, place: int) -> Value:
        """``value`` where it agrees with the lengths of a result's axes in the two runs; else a value not aligned."""
        a, b = self.whole.results[place], self.part.results[place]
        if isinstance(value, NotAligned):
            return value
        if a.dim() != b.dim() or a.dtype != b.dtype:
            return NotAligned(False, f"{self.name} has another result on fewer rows")
        if isinstance(value, Numbers) and not (self.name in KEEP_ENTRIES and _holds(a.dtype, self.rows[0])):
            return NotAligned(True, NUMBER_AS_CUT)
        shapes = tuple(a.shape), tuple(b.shape)
        count = value.before * value.after if isinstance(value, Merged) else 1
        fits = all((a.shape[axis], b.shape[axis]) == tuple(count * n for n in self.rows) for axis in value.axes)
        if fits and _longer(shapes) == value.axes:
            return value
        return NotAligned(False, f"{self.name} of a length that follows the rows")


def _holds(dtype: torch.dtype, num_rows: int) -> bool:
    """Whether a type holds the number of every row."""
    if dtype.is_floating_point:
        return num_rows <= 2 / torch.finfo(dtype).eps
    return dtype not in (torch.bool, *COMPLEX) and num_rows - 1 <= torch.iinfo(dtype).max


def _longer(shapes: Shapes) -> frozenset[int]:
    return frozenset(axis for axis, (n, m) in enumerate(zip(*shapes, strict=False)) if n != m)


def _unlike(a: Any, b: Any) -> list[tuple[Any, Any]]:
    """Pairs of leaves that differ, tensors apart."""
    (leaves, form), (others, other_form) = pytree.tree_flatten(a), pytree.tree_flatten(b)
    if form != other_form:
        return [(a, b)]
    return [(x, y) for x, y in zip(leaves, others, strict=True) if not is_equal(x, y)]


def is_equal(a: Any, b: Any) -> bool:
    """Whether two settings are equal, numbers up to rounding; tensors are not compared."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return math.isclose(a, b, rel_tol=ROUNDING) or (math.isnan(a) and math.isnan(b))
    return a == b


Rule = Callable[[Operation], list[Value]]
WORDS = {
    "amax": "max",
    "amin": "min",
    "std": "standard deviation",
    "var": "variance",
    "prod": "product",
    "linalg_vector_norm": "norm",
    "cumsum": "running sum",
    "cumprod": "running product",
    "logcumsumexp": "running log-sum-exp",
    "_softmax": "softmax",
    "_log_softmax": "log-softmax",
    "_fft_r2c": "Fourier transform",
    "_fft_c2c": "Fourier transform",
    "_fft_c2r": "Fourier transform",
    "native_batch_norm": "batch normalisation",
    "_native_batch_norm_legit": "batch normalisation",
}
BESIDE = "rows beside other rows"


def met(op: Operation, what: str | None = None) -> list[Value]:
    """Each result combines several rows."""
    return [NotAligned(True, what or f"{WORDS.get(op.name, op.name)} over the data rows")] * op.results


def unknown(op: Operation, what: str | None = None) -> list[Value]:
    """Each result depends on rows in a way that no rule describes."""
    return [NotAligned(False, what or f"{op.name}, which is not followed here")] * op.results


def number_of_rows(op: Operation, *names: str) -> list[Value]:
    """Results of an operation with an argument that differs on fewer rows."""
    for a, b in op.differing(*names):
        if isinstance(a, int | float | complex) and isinstance(b, int | float | complex):
            return met(op, f"a number that depends on how many rows there are, {a} or {b}")
    return unknown(op, f"{op.name} with another setting on fewer rows")


def no_rule(op: Operation) -> list[Value]:
    """Results of operands that are free of rows are free; any other operand is not followed."""
    is_known = op.whole.overload.namespace in ("aten", "prims")
    return [FREE] * op.results if op.is_free and is_known else unknown(op)


def beside(op: Operation, placed: Iterable[tuple[Value, Callable[[int], int]]], what: str = BESIDE) -> list[Value]:
    """Operands side by side in one result; ``placed`` gives each operand, and the places of its axes there."""
    aligned: set[Value] = set()
    repeats: set[int] = set()
    for value, place in placed:
        if isinstance(value, Numbers):
            return met(op, NUMBER_AS_CUT)
        if isinstance(value, Aligned | Merged):
            aligned.add(value._replace(axis=place(value.axis)))
        else:
            repeats.update(map(place, value.axes))
    if len(aligned) > 1:
        return met(op, what)
    return [*aligned, Free(frozenset(repeats))][:1] * op.results


def moved(op: Operation, new_axis: Callable[[int], int | None], name: str = "self") -> list[Value]:
    """Each axis of an operand carried to another place; None where it does not survive."""
    value = op.value(name)
    axes = [axis for axis in map(new_axis, value.axes) if axis is not None]
    if len(axes) < len(value.axes):
        return unknown(op) if isinstance(value, Free) else met(op)
    if isinstance(value, Free):
        return [Free(frozenset(axes))] * op.results
    return [value._replace(axis=axes[0]) if isinstance(value, Aligned | Numbers | Merged) else value] * op.results


def repeated(op: Operation, value: Value) -> list[Value]:
    """``value`` along new axes, along which it is constant."""
    return [Free(value.axes | op.longer) if isinstance(value, Free) else value] * op.results
