"""Rules of row independence for look-ups: entries read from, or written to, the places that an index names.

A row may be looked up by its own number, and entries of a table that all rows share by any value of the row. Where an
index may name another row, the result combines rows.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from pyro_split.splitting.row_operations import (
    FREE,
    Operation,
    Value,
    beside,
    met,
    number_of_rows,
    unknown,
)
from split_common.row_independence import NUMBER_AS_CUT, Aligned, Free, NotAligned, Numbers


def index(op: Operation) -> list[Value]:
    """Entries looked up by index tensors, one for each indexed axis."""
    table, tensors = op.value("self"), op.param("indices")
    if any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in tensors):
        return unknown(op, "a choice of as many entries as a mask says")
    if not op.same():
        return number_of_rows(op)
    at = [axis for axis, x in enumerate(tensors) if x is not None]
    spread = max(tensors[axis].dim() for axis in at)
    first = at[0] if at == list(range(at[0], at[-1] + 1)) else 0  # where the index tensors' axes stand in the result

    def of_table(axis: int) -> int:
        before = sum(1 for a in range(axis) if a not in at)
        return before if before < first else before + spread

    given = zip(at, op.values("indices"), strict=True)
    placed = [(axis, value, lambda a, x=tensors[axis]: first + a + spread - x.dim()) for axis, value in given]
    return _looked_up(op, table, set(at), of_table, placed)


def _looked_up(
    op: Operation,
    table: Value,
    at: set[int],
    of_table: Callable[[int], int],
    placed: list[tuple[int, Value, Callable[[int], int]]],
) -> list[Value]:
    """Results of a look-up.

    Args:
        op: the operation.
        table: what is known of the table.
        at: the axes that are looked up in.
        of_table: from another axis of the table to its place in the result.
        placed: for each looked-up axis, what is known of its indices, and the places of their axes in the result.
    """
    if isinstance(table, Numbers):
        return met(op, NUMBER_AS_CUT)
    if isinstance(table, Free):
        rest = Free(frozenset(table.repeats - at))
        return beside(op, [(rest, of_table), *((value, place) for _, value, place in placed)])
    if not isinstance(table, Aligned):
        return [table] * op.results
    if table.axis not in at:
        return beside(op, [(table, of_table), *((value, place) for _, value, place in placed)])
    others = [(value, place) for axis, value, place in placed if axis != table.axis]
    for axis, value, place in placed:
        if axis == table.axis and isinstance(value, Numbers):
            return beside(op, [(Aligned(value.axis), place), *others])
    return met(op, "a look-up of other rows")


def index_select(op: Operation) -> list[Value]:
    """Entries of one axis, looked up by indices."""
    axis = op.param("dim") % max(op.rank("self"), 1)
    placed = [(axis, op.value("index"), lambda a: axis + a)]
    return _looked_up(op, op.value("self"), {axis}, lambda a: a, placed) if op.same() else unknown(op)


def embedding(op: Operation) -> list[Value]:
    """Rows of a table, looked up by indices of any shape."""
    rank = op.rank("indices")
    placed = [(0, op.value("indices"), lambda a: a)]
    return _looked_up(op, op.value("weight"), {0}, lambda a: a - 1 + rank, placed) if op.same() else unknown(op)


def gather(op: Operation) -> list[Value]:
    """Look up entries of each line along one axis by that line's own indices."""
    return lines(op, "a look-up of other rows")


def scatter(op: Operation) -> list[Value]:
    """In each line along one axis, entries added or written at that line's own places."""
    return lines(op, f"rows put together by an index ({op.name})")


def lines(op: Operation, what: str) -> list[Value]:
    """An operation on each line along one axis by itself; ``what`` is the reason where that axis is the rows'."""
    rank = op.rank("self")
    axis = op.param("dim") % max(rank, 1)
    if any(isinstance(value, Numbers) for value in op.operands):
        return met(op, NUMBER_AS_CUT)
    if not op.same():
        return number_of_rows(op)
    if any(x.dim() != rank for x in op.whole.tensors):
        return unknown(op)
    if op.name == "gather" and op.value("self") == FREE and op.value("index").axes == {axis}:
        return [op.value("index")]  # a table that depends on no row
    if any(axis in value.axes for value in op.operands):
        return met(op, what) if any(isinstance(value, Aligned) for value in op.operands) else unknown(op)
    found = beside(op, [(value, lambda a: a) for value in op.operands])
    if any(value.axes != found[0].axes for value in op.operands) and not isinstance(found[0], NotAligned):
        return unknown(op, f"{op.name} in a table that is not as long as there are rows, or not constant along them")
    return found


def index_add(op: Operation) -> list[Value]:
    """Slices added or written at places along one axis."""
    axis = op.param("dim") % max(op.rank("self"), 1)
    if op.value("index") != FREE or axis in op.value("self").axes:
        return met(op, f"rows put together by an index ({op.name})")
    name = "source" if op.has("source") else "value"
    if not op.same() or axis in op.value(name).axes or op.rank(name) not in (0, op.rank("self")):
        return unknown(op)
    return beside(op, [(op.value("self"), lambda a: a), (op.value(name), lambda a: a)])


def index_put(op: Operation) -> list[Value]:
    """Entries added or written where an index says, or one number where a mask says."""
    mask, *more = op.param("indices")
    is_masked = not more and mask is not None and mask.dtype == torch.bool and op.param("values").numel() == 1
    if is_masked and op.same():
        return beside(op, [(op.value(name), lambda a: a) for name in ("self", "indices", "values")])
    if own := _in_own_row(op):
        return own
    if any(isinstance(value, Aligned | Numbers) for value in op.values("indices")):
        return met(op, f"rows put together by an index ({op.name})")
    untouched = [a for a, x in enumerate(op.param("indices")) if x is None]
    if any(x is not None and x.dtype == torch.bool for x in op.param("indices")) or not op.same():
        return unknown(op)
    last = range(len(op.param("indices")), op.rank("self"))
    is_beside = all(other == FREE for other in op.others("self")) and op.value("self").axes <= {*untouched, *last}
    return [op.value("self")] if is_beside else unknown(op)


def _in_own_row(op: Operation) -> list[Value]:
    """The result where each row is written to by its own number; an empty list otherwise."""
    tensors = op.param("indices")
    at = [axis for axis, x in enumerate(tensors) if x is not None]
    is_plain = op.same() and at == list(range(len(at))) and all(tensors[axis].dtype != torch.bool for axis in at)
    numbered = [axis for axis, value in zip(at, op.values("indices"), strict=True) if isinstance(value, Numbers)]
    if not is_plain or len(numbered) != 1 or op.value("self").axes != set(numbered):
        return []
    [row], spread = numbered, max(tensors[axis].dim() for axis in at)
    rank = spread + op.rank("self") - len(at)  # number of axes of the written entries
    given = [(value, spread - tensors[axis].dim()) for axis, value in zip(at, op.values("indices"), strict=True)]
    [along] = [shift + next(iter(value.axes)) for value, shift in given if isinstance(value, Numbers)]
    beside_it = [(value, shift) for value, shift in given if not isinstance(value, Numbers)]
    written = op.value("values"), rank - op.rank("values")
    is_own = not isinstance(written[0], Numbers)
    is_own = is_own and all(value.axes <= {along - shift} for value, shift in (*beside_it, written))
    return [Aligned(row)] if is_own else []


def slice_scatter(op: Operation) -> list[Value]:
    """Entries written to a part of an axis; to all of it where it is the rows'."""
    axis, source = op.param("dim") % op.rank("self"), op.value("src")
    if op.shapes("src") == op.shapes("self") and op.param("step") == 1:
        return [source]
    if axis in op.value("self").axes | source.axes:
        return met(op, "entries put in some of the data rows")
    return beside(op, [(value, lambda a: a) for value in op.operands]) if op.same() else number_of_rows(op)


def select_scatter(op: Operation) -> list[Value]:
    """Entries written to one place of an axis."""
    axis = op.param("dim") % op.rank("self")
    if axis in op.value("self").axes:
        return met(op, "entries put in some of the data rows")
    if not op.same():
        return number_of_rows(op)
    return beside(op, [(op.value("self"), lambda a: a), (op.value("src"), lambda a: a + (a >= axis))])


def searched(op: Operation) -> list[Value]:
    """The places of entries in a sorted sequence."""
    sequence = "sorted_sequence" if op.name == "searchsorted" else "boundaries"
    if op.value(sequence) != FREE or op.rank(sequence) != 1 or op.has("sorter") or not op.same():
        return unknown(op)
    return beside(op, [(op.value("self"), lambda a: a)])
