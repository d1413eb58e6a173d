"""Description of a model before it is divided: its sites, its readings with Python, and the columns it observes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import ref

import pyro
import torch
from pyro import poutine
from torch import Tensor

from pyro_split.host import unvalidated
from pyro_split.potential.arguments import Arguments, Data
from pyro_split.potential.densities import ModelDensity
from pyro_split.potential.model_rows import ModelSites, describe_model
from pyro_split.potential.readings import Readings, Watch, find_readings, params_of_data
from pyro_split.potential.row_block import RowBlock
from pyro_split.potential.running import tensors_for_arrays
from pyro_split.potential.sources import is_source, is_sparse, take
from split_common.data_axes import raise_if_unequal
from split_common.errors import ModelNotSplittableError, ReadingError
from split_common.model_copy import copy_of
from split_common.open_model import HELD
from split_common.readings import must_not_read
from split_common.runs.identity import code_of
from split_common.sources.rules import check_outside

FEW_ROWS = 16
LITTLE = 2**26  # bytes of data up to which a model is run on all rows
SPOILT: list[ref[Any]] = []  # models that keep something of a run on a few rows


def observed_columns(sites: ModelSites, plate: str, arguments: Arguments) -> list[tuple[str, Any]]:
    """Arguments named like an observed site, which usually are the labels."""
    observed = {site.name for site in sites.sites if site.observed and plate in site.plates}
    named = [(name, x) for name, x in arguments.named_arrays() if name in observed and not is_source(x)]
    return [(name, x.detach().cpu().numpy()) for name, x in named]


def _run_first(model: Callable[..., Any], arguments: Arguments) -> None:
    """Run a model once with values, before it is run on shapes alone; its errors come up again, and are explained.

    A model, or Pyro, may keep something of the first run: a network that is built lazily, a table of factorials, the
    mean of a column. The run is on all rows where the data are small. Where they are large, all may not fit, and a few
    are enough unless what is kept depends on them. That is seen from copies of the model, each run on other rows.

    Raises:
        ModelNotSplittableError: where a model keeps something of its run on a few rows where its copies share it.
        SourceRuleError: where the model keeps what depends on rows that are not in memory.
    """
    is_little = sum(x.numel() * x.element_size() for x in arguments.data if not is_source(x)) <= LITTLE
    needs_all = _needs_all_rows(model, arguments) if arguments.sources or not is_little else True
    if needs_all and arguments.sources:
        check_outside(arguments.sources, ["what the model keeps of its first run"])
    has_run = not needs_all and _run(model, *arguments.build(_few_rows(arguments)))
    if not (has_run or arguments.sources):
        _run(model, *arguments.build(arguments.data))


def _few_rows(arguments: Arguments, last: bool = False) -> Data:
    """The first few, or the last few, rows of the longest arrays and of every source."""
    longest = max((x.shape[0] for x in arguments.data if x.ndim), default=0)
    shortest = min((x.shape[0] for x in arguments.sources.values()), default=longest)  # every source is read
    size = min(longest, shortest)
    first = max(size - FEW_ROWS + 1, 0) if last else 0  # the last are one fewer, as what is kept may be their number
    rows = torch.arange(first, size if last else min(FEW_ROWS, size))
    is_long = [bool(x.ndim) and x.shape[0] == longest and not is_sparse(x) for x in arguments.data]
    return take(RowBlock(rows, first), arguments.data, [0 if long else None for long in is_long])


def _run(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Run the model with values and leave Pyro's store and torch's generator as they are; whether that succeeded."""
    store = pyro.get_param_store()
    with store.scope(store.get_state()), torch.random.fork_rng(), torch.no_grad(), poutine.block(), unvalidated():
        with contextlib.suppress(Exception), tensors_for_arrays():
            poutine.trace(model).get_trace(*args, **kwargs).compute_log_prob()
            return True
    return False


def _needs_all_rows(model: Callable[..., Any], arguments: Arguments) -> bool:
    """Whether a model keeps something of its first run that depends on the rows, or cannot be copied to see that."""
    is_open, kept = HELD in arguments.build(_few_rows(arguments))[1], set()
    before = code_of(model, with_numbers=False)
    for last in (False, True):
        try:
            own = model if is_open else copy_of(model)  # one that holds arrays is put together anew for each run
        except Exception:  # it holds what has no copy, such as a lock
            return not arguments.sources
        _run(own, *arguments.build(_few_rows(arguments, last)))
        kept.add("" if is_open else code_of(own))
    innermost = getattr(model, "__wrapped__", model)
    innermost = getattr(innermost, "__self__", innermost)  # a bound method is another object each time
    if code_of(model, with_numbers=False) != before:
        SPOILT.append(ref(innermost))
    if any(spoilt() is innermost for spoilt in SPOILT):
        raise ModelNotSplittableError(
            f"a model of more than {LITTLE >> 20} MiB of data must keep nothing of its first run, which is on a few "
            "rows, where a copy of the model keeps it too, got one that does. Compute what it keeps outside the model; "
            "or define it anew, and run it once on all rows before it is divided"
        )
    return len(kept) > 1


def _fix_params(names: Sequence[str], model: Callable[..., Any], arguments: Arguments) -> None:
    """Leave the values of a model's params in Pyro's store as the host leaves them: as all rows give them.

    Raises:
        SourceRuleError: where they depend on rows that are not in memory, or on how many these are.
    """
    sources, store = arguments.sources, pyro.get_param_store()
    if sources:
        args, kwargs = arguments.build(_few_rows(arguments))
        with tensors_for_arrays():
            resting = params_of_data(model, args, kwargs)
        one, other = (_first_params(names, model, arguments, last) for last in (False, True))
        differing = [name for name in one if name not in other or not torch.equal(one[name], other[name])]
        resting += [name for name in differing if name not in resting]
        check_outside(sources, [f"the parameter {name!r}" for name in resting])
    elif any(name not in store for name in names):
        args, kwargs = arguments.build(arguments.data)
        with torch.random.fork_rng(), torch.no_grad(), poutine.block(), unvalidated(), tensors_for_arrays():
            model(*args, **kwargs)


def _first_params(
    names: Sequence[str], model: Callable[..., Any], arguments: Arguments, last: bool
) -> dict[str, Tensor]:
    """Values of a model's params after a run on the first few rows or the last, which are one fewer."""
    store, (args, kwargs) = pyro.get_param_store(), arguments.build(_few_rows(arguments, last))
    with store.scope(store.get_state()), torch.random.fork_rng(), torch.no_grad(), poutine.block(), unvalidated():
        torch.manual_seed(0)
        with tensors_for_arrays():
            model(*args, **kwargs)
        return {name: store[name].detach() for name in names if name in store}


def _check_not_read(watch: Watch, arguments: Arguments) -> None:
    """Raise where Python reads values of rows that are not in memory."""
    if watch.has_seen and arguments.sources:
        raise ReadingError(must_not_read(list(arguments.sources)))


def _versions(data: Data) -> list[int]:
    """The number of times that each tensor was written to."""
    return [0 if is_source(x) or x.is_inference() else x._version for x in data]


def _check_settled(model: Callable[..., Any], arguments: Arguments) -> None:
    """Raise where a model that writes to its data changes them each time, so that no two runs are on the same data.

    Raises:
        ModelNotSplittableError: naming the arguments that change.
    """
    before = tuple(x.clone() for x in arguments.data)
    describe_model(model, *arguments.build(arguments.data))
    if changed := _changed(arguments, before, arguments.data):
        raise ModelNotSplittableError(
            "a model must not change its data each time it runs, as x /= 2 does, got one that changes "
            f"{', '.join(map(repr, changed))}; write x = x / 2, or change the data outside the model"
        )


def check_written_by_row(density: ModelDensity, parts: Iterable[Tensor]) -> None:
    """Raise where a model writes to the rows of its data what depends on other rows, as in ``X -= X.mean(0)``.

    What the model writes on all rows, :func:`describe` has let it write: another run leaves the data as they are. A run
    on some rows must do so too. It is given copies, and ends the check if it writes nothing.

    Args:
        density: the model, and how its rows are selected.
        parts: row numbers of each run.

    Raises:
        ModelNotSplittableError: naming the arguments that change.
    """
    for indices in parts:
        before = density.take(density.arguments.data, RowBlock(indices))
        copies = tuple(x.detach().clone() for x in before)
        _run(density.model, *density.rows(copies, indices))
        if changed := _changed(density.arguments, before, copies):
            raise ModelNotSplittableError(
                "a model must not write to its data what depends on other rows, as X -= X.mean(0) does, got one that "
                f"changes {', '.join(map(repr, changed))}; write X = X - X.mean(0), or change them outside the model"
            )
        if not any(_versions(copies)):
            break


def _changed(arguments: Arguments, before: Data, after: Data) -> list[str]:
    """Names of the tensors that a run has changed."""
    named = zip(arguments.named_arrays(), before, after, strict=True)
    return [name for (name, _), x, y in named if not torch.equal(torch.nan_to_num(x), torch.nan_to_num(y))]


def describe(model: Callable[..., Any], arguments: Arguments, plate: str | None = None) -> tuple[ModelSites, Readings]:
    """Trace the model for its sites and readings; where it fails on data of unequal length, the error says so.

    Args:
        model: the model.
        arguments: what it is called with.
        plate: name of the data plate, which yields other numbers on other rows; None for any that holds observations.
    """
    args, kwargs = arguments.build(arguments.data)
    versions = _versions(arguments.data)
    _run_first(model, arguments)
    try:
        with Watch() as watch:
            try:
                sites = describe_model(model, args, kwargs, only_shapes=bool(arguments.sources))
            except Exception:
                _check_not_read(watch, arguments)
                raise
        if _versions(arguments.data) != versions:
            _check_settled(model, arguments)
        _check_not_read(watch, arguments)
        if sites.fixed:
            _fix_params(sites.fixed, model, arguments)
        if not watch.has_seen:
            return sites, Readings()
        with tensors_for_arrays():
            return sites, find_readings(model, args, kwargs, sites.holders if plate is None else [plate])
    except (TypeError, ValueError, RuntimeError) as error:
        raise_if_unequal({name: x.shape[0] for name, x in arguments.named_arrays() if x.ndim}, error)
        raise
