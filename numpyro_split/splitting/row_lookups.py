"""Rules of row independence for look-ups: entries read from, or written to, the places that an index names.

A row may be looked up by its own number, and entries of a table that all rows share by any value of the row. Where an
index may name another row, the result combines rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from numpyro_split.splitting.row_operations import FREE, Operation, met, moved, no_rule, row_axes, unknown
from split_common.row_independence import NUMBER_AS_CUT, Aligned, Free, Numbers, OwnRow, Value


def own_axis(index: Value, dimensions: Sequence[int]) -> int | None:
    """The axis along which indices hold the row's own number; None where they do along none.

    Args:
        index: what is known of the indices.
        dimensions: for each index, the axis that it looks up in.
    """
    if isinstance(index, Numbers):
        return dimensions[0] if len(dimensions) == 1 else None
    return dimensions[index.place] if isinstance(index, OwnRow) else None


def gather(op: Operation) -> list[Value]:
    """Entries of the first operand, looked up by the second."""
    numbers, (table, index) = op.param("dimension_numbers"), op.operands
    if not op.same("dimension_numbers", "mode"):
        return unknown(op)
    if not op.same("fill_value"):
        return met(op, "a look-up with a number that depends on how many rows there are, in place of missing entries")
    rank = len(op.whole.outvars[0].aval.shape)
    of_index = [d for d in range(rank) if d not in numbers.offset_dims]  # result's axis for each axis of the index
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    of_table = dict(zip([d for d in range(len(op.shape(0))) if d not in gone], numbers.offset_dims, strict=True))
    paired = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    if isinstance(table, Numbers | OwnRow):
        return met(op, NUMBER_AS_CUT)
    if isinstance(table, Free):
        if isinstance(index, Numbers | OwnRow):
            if table.repeats != {own_axis(index, numbers.start_index_map)}:
                return met(op, NUMBER_AS_CUT)
            return [Aligned(of_index[index.axis])]  # the entries are the same for all rows, and each row chooses one
        if not {paired.get(axis) for axis in table.repeats} <= index.axes:
            return unknown(op)
        return moved(op._replace(operands=[index]), lambda axis: of_index[axis])
    [axis] = table.axes
    if axis in paired:
        is_paired = not isinstance(index, Numbers | OwnRow) and index.axes == {paired[axis]}
        return [Aligned(of_index[paired[axis]])] if is_paired else unknown(op)
    if axis in of_table:
        if index != FREE:
            return met(op, "rows beside other rows")
        is_whole = op.all_along(0, axis, "slice_sizes")
        return [Aligned(of_table[axis])] if is_whole else met(op, "a look-up of other rows")
    if isinstance(index, Numbers | OwnRow) and own_axis(index, numbers.start_index_map) == axis:
        return [Aligned(of_index[index.axis])]
    return met(op, "a look-up of other rows")


def scatter(op: Operation) -> list[Value]:
    """Entries added or written where an index says: in their own row or in columns that no row chooses, or rows mix."""
    target, index, updates = op.operands
    numbers = op.param("dimension_numbers")
    if isinstance(index, Numbers | OwnRow):
        return _scatter_in_own_row(op)
    if (axis := _axis_of_pairs(op)) is not None:
        return [Aligned(axis)]
    if index != FREE or not op.same("dimension_numbers", "mode"):
        is_of_rows = any(not isinstance(value, Free) for value in op.operands[1:])
        return met(op, f"rows put together by an index ({op.name})") if is_of_rows else no_rule(op)
    if any(isinstance(value, Numbers | OwnRow) for value in op.operands):
        return met(op, NUMBER_AS_CUT)
    gone = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    kept = [axis for axis in range(len(op.shape(0))) if axis not in gone]
    of_target = dict(zip(numbers.update_window_dims, kept, strict=True))  # the target's axis by axis of the updates
    axes = {*target.axes, *(of_target.get(axis, -1) for axis in updates.axes)}
    if not axes:
        return no_rule(op)
    in_place = len(axes) == 1 and not axes & {-1, *numbers.scatter_dims_to_operand_dims, *gone}
    if not in_place:
        return met(op, f"rows put together by an index ({op.name})") if row_axes(op) else unknown(op)
    [axis] = axes
    place = next(place for place, of in of_target.items() if of == axis)
    if any(e.invars[0].aval.shape[axis] != e.invars[2].aval.shape[place] for e in (op.whole, op.part)):
        return met(op, f"{op.name} along the data rows")
    is_free = all(isinstance(value, Free) for value in op.operands)
    return [Free(frozenset(axes)) if is_free else Aligned(axis)]


def _scatter_in_own_row(op: Operation) -> list[Value]:
    """Entries of a row written into that row."""
    target, index, updates = op.operands
    numbers = op.param("dimension_numbers")
    axis = own_axis(index, numbers.scatter_dims_to_operand_dims)
    [of_index] = index.axes
    is_own = axis in numbers.inserted_window_dims and target.axes == {axis}
    is_own &= updates.axes == {_axes_of_updates(op)[of_index]}
    are_numbers = any(isinstance(value, Numbers | OwnRow) for value in (target, updates))
    if axis is None or not is_own or are_numbers or not op.same("dimension_numbers", "mode"):
        return met(op, f"rows put together by an index ({op.name})")
    return [Aligned(axis)]


def _axis_of_pairs(op: Operation) -> int | None:
    """The target's axis of rows where each row's entries go into that row by indices of its own (vmap); or None."""
    target, index, updates = op.operands
    numbers = op.param("dimension_numbers")
    if any(isinstance(value, Numbers | OwnRow) for value in op.operands) or not op.same("dimension_numbers", "mode"):
        return None
    for axis, of_index in zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True):
        if (target.axes, index.axes, updates.axes) == ({axis}, {of_index}, {_axes_of_updates(op)[of_index]}):
            return axis
    return None


def _axes_of_updates(op: Operation) -> list[int]:
    """The axis of a scatter's updates for each axis of its index but the last."""
    return [d for d in range(len(op.shape(2))) if d not in op.param("dimension_numbers").update_window_dims]
