"""The run of a model with values, before it is run on shapes alone.

A model, or Pyro, may keep something of the first run: a network that is built lazily, a table of factorials, the mean
of a column. The run is on all rows where the data are small. Where they are large, all rows may not fit, and a few are
enough unless what is kept depends on them. That is seen from copies of the model, each run on other rows.
"""

from __future__ import annotations

import contextlib
import copy
import types
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np
import pyro
import torch
from pyro import poutine

from pyro_split.host import unvalidated
from pyro_split.potential.arguments import Arguments, Data
from pyro_split.potential.row_block import RowBlock
from pyro_split.potential.running import tensors_for_arrays
from pyro_split.potential.sources import is_source, is_sparse, take
from split_common.errors import ModelNotSplittableError
from split_common.open_model import HELD, OpenModel
from split_common.runs.identity import code_of, is_users, names_in
from split_common.sources.rules import check_outside

FEW_ROWS = 16
LITTLE = 2**26  # bytes of data up to which a model is run on all rows
SPOILT: list[ref[Any]] = []  # models that keep something of a run on a few rows
Model = Callable[..., Any]


def run_first(model: Model, arguments: Arguments) -> None:
    """Run a model once with values; the errors of the run itself come up later, where they are explained.

    Raises:
        ModelNotSplittableError: where a model keeps something of its run on a few rows where its copies share it.
        SourceRuleError: where the model keeps what depends on rows that are not in memory.
    """
    is_little = sum(x.numel() * x.element_size() for x in arguments.data if not is_source(x)) <= LITTLE
    needs_all = _needs_all_rows(model, arguments) if arguments.sources or not is_little else True
    if needs_all and arguments.sources:
        check_outside(arguments.sources, ["what the model keeps of its first run"])
    has_run = not needs_all and _run(model, arguments, few_rows(arguments))
    if not (has_run or arguments.sources):
        _run(model, arguments, arguments.data)


def few_rows(arguments: Arguments, last: bool = False) -> Data:
    """The first few, or the last few, rows of the longest arrays and of every source."""
    longest = max((x.shape[0] for x in arguments.data if x.ndim), default=0)
    shortest = min((x.shape[0] for x in arguments.sources.values()), default=longest)  # every source is read
    size = min(longest, shortest)
    first = max(size - FEW_ROWS + 1, 0) if last else 0  # the last are one fewer, as what is kept may be their number
    rows = torch.arange(first, size if last else min(FEW_ROWS, size))
    is_long = [bool(x.ndim) and x.shape[0] == longest and not is_sparse(x) for x in arguments.data]
    return take(RowBlock(rows, first), arguments.data, [0 if long else None for long in is_long])


def _run(model: Model, arguments: Arguments, data: Data) -> bool:
    """Run the model with values and leave Pyro's store and torch's generator as they are; whether that succeeded."""
    store = pyro.get_param_store()
    with store.scope(store.get_state()), torch.random.fork_rng(), torch.no_grad(), poutine.block(), unvalidated():
        args, kwargs = arguments.build(data)
        with contextlib.suppress(Exception), tensors_for_arrays():
            poutine.trace(model).get_trace(*args, **kwargs).compute_log_prob()
            return True
    return False


def _needs_all_rows(model: Model, arguments: Arguments) -> bool:
    """Whether a model keeps something of its first run that depends on the rows, or cannot be copied to see that."""
    held, kept, before = HELD in arguments.build(few_rows(arguments))[1], [], code_of(model, with_numbers=False)
    for last in (False, True):
        try:
            own = model if held else _copy_of(model, {})  # one that holds arrays is put together anew for each run
        except Exception:  # it holds what has no copy, such as a lock
            return not arguments.sources
        _run(own, arguments, few_rows(arguments, last))
        kept.append(code_of(own))
    innermost = getattr(model, "__wrapped__", model)
    if code_of(model, with_numbers=False) != before:
        SPOILT.append(ref(innermost))
    if any(spoilt() is innermost for spoilt in SPOILT):
        raise ModelNotSplittableError(
            f"a model of more than {LITTLE >> 20} MiB of data must keep nothing of its first run, which is on a few "
            "rows, where a copy of the model keeps it too, got one that does. Compute what it keeps outside the model; "
            "or define it anew, and run it once on all rows before it is divided"
        )
    return kept[0] != kept[1]


def _copy_of(model: Model, copies: dict[int, Any]) -> Model:
    """A model like another that has its own copy of what it may change; ``copies`` are those made, by identity."""
    if isinstance(model, OpenModel):
        return OpenModel(_copy_of(model.__wrapped__, copies))
    return _copy_of_value(model, copies)


def _copy_of_value(value: Any, copies: dict[int, Any]) -> Any:
    """A copy of a value; of a module, a class, and an array or a table, which are taken for data, itself."""
    if isinstance(value, types.FunctionType):
        return _copy_of_function(value, copies) if is_users(value.__module__) else value
    is_table = hasattr(value, "to_numpy")
    if value is None or is_table or isinstance(value, types.ModuleType | type | np.ndarray | torch.Tensor):
        return value
    return copy.deepcopy(value, copies)


def _copy_of_function(function: types.FunctionType, copies: dict[int, Any]) -> types.FunctionType:
    """A function with copies of what it closes over, and of the globals that it names."""
    if id(function) in copies:
        return copies[id(function)]
    cells = tuple(types.CellType() for _ in function.__closure__ or ())
    variables = dict(function.__globals__)
    made = types.FunctionType(function.__code__, variables, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__ = function.__kwdefaults__
    copies[id(function)] = made
    for name in names_in(function.__code__):
        if name in variables:
            variables[name] = _copy_of_value(variables[name], copies)
    for cell, original in zip(cells, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not filled yet
            cell.cell_contents = _copy_of_value(original.cell_contents, copies)
    return made
