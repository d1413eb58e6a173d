"""An operation on all rows and on some, and what can be said of its results in terms of its operands.

What may be known of a value is in :mod:`split_common.row_independence`; rules
(:mod:`numpyro_split.splitting.row_rules`) are made of what is here. Lengths that differ between the two expressions
need no rule of their own: :meth:`Operation.consistent` checks every answer against the shapes of what is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from split_common.row_independence import Aligned, Free, NotAligned, Numbers, Value

FREE = Free()


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
        """Name of the primitive."""
        return self.whole.primitive.name

    @property
    def results(self) -> int:
        """Number of results."""
        return len(self.whole.outvars)

    def shape(self, place: int) -> tuple[int, ...]:
        """Shape of an operand on all rows."""
        return self.whole.invars[place].aval.shape

    def param(self, name: str) -> Any:
        """A parameter on all rows."""
        return self.whole.params[name]

    def same(self, *names: str) -> bool:
        """Whether parameters, or all of them, are equal in both expressions."""
        chosen = names or tuple(self.whole.params)
        return all(str(self.whole.params[name]) == str(self.part.params.get(name)) for name in chosen)

    def differing(self, but: Collection[str]) -> list[str]:
        """Names of the parameters, but these, that differ between the two expressions."""
        return [name for name in self.whole.params if name not in but and not self.same(name)]

    def all_along(self, place: int, axis: int, sizes: str) -> bool:
        """Whether a parameter of sizes spans an operand's axis in both expressions."""
        equations = (self.whole, self.part)
        return all(e.params[sizes][axis] == e.invars[place].aval.shape[axis] for e in equations)

    def consistent(self, value: Value, whole: Any, part: Any) -> Value:
        """``value`` where it agrees with the lengths of its axes in the two expressions; else a value not aligned."""
        if isinstance(value, NotAligned):
            return value
        shapes = whole.aval.shape, part.aval.shape
        if len(shapes[0]) != len(shapes[1]) or whole.aval.dtype != part.aval.dtype:
            return NotAligned(False, f"{self.name} has another result on fewer rows")
        longer = {axis for axis, (n, m) in enumerate(zip(*shapes, strict=True)) if n != m}
        return value if longer == value.axes else NotAligned(False, f"{self.name} of a length that follows the rows")


Rule = Callable[[Operation], list[Value]]
MET = {"reduce_max": "max", "reduce_min": "min", "reduce_sum": "sum", "reduce_prod": "product", "cumsum": "running sum"}


def met(op: Operation, what: str | None = None) -> list[Value]:
    """Each result combines several rows."""
    return [NotAligned(True, what or f"{MET.get(op.name, op.name)} over the data rows")] * op.results


def unknown(op: Operation, what: str | None = None) -> list[Value]:
    """Each result depends on rows in a way that no rule describes."""
    return [NotAligned(False, what or f"{op.name}, which is not followed here")] * op.results


def no_rule(op: Operation) -> list[Value]:
    """Results of operands that are free of rows are free; any other operand is not followed."""
    is_free = all(value == FREE for value in op.operands) and op.same() and "callback" not in op.name
    return [FREE] * op.results if is_free else unknown(op)


def row_axes(op: Operation) -> set[int]:
    """The axes along which operands are aligned."""
    return {axis for value in op.operands if not isinstance(value, Free) for axis in value.axes}


def repeats(op: Operation) -> frozenset[int]:
    """The axes along which operands that depend on no row are as long as there are rows."""
    return frozenset(axis for value in op.operands if isinstance(value, Free) for axis in value.axes)


def moved(op: Operation, new_axis: Callable[[int], int | None]) -> list[Value]:
    """An operation that carries each axis of its first operand to another place; None where it does not survive."""
    value = op.operands[0]
    axes = [axis for axis in map(new_axis, value.axes) if axis is not None]
    if len(axes) < len(value.axes):
        return unknown(op) if isinstance(value, Free) else met(op)
    if isinstance(value, Free):
        return [value._replace(repeats=frozenset(axes))]
    return [value._replace(axis=axes[0])] if isinstance(value, Aligned | Numbers) else [value]
