"""Description of a model before it is divided: its sites, its readings with Python, and the columns it observes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyro
import torch
from pyro import poutine

from pyro_split.host import unvalidated
from pyro_split.potential.arguments import Arguments
from pyro_split.potential.model_rows import ModelSites, describe_model
from pyro_split.potential.readings import Readings, Watch, find_readings, params_of_data
from pyro_split.potential.running import tensors_for_arrays
from pyro_split.potential.sources import is_source
from pyro_split.splitting.first_run import few_rows, run_first
from split_common.data_axes import raise_if_unequal
from split_common.errors import ModelNotSplittableError, ReadingError
from split_common.readings import must_not_read
from split_common.sources.rules import check_outside


def observed_columns(sites: ModelSites, plate: str, arguments: Arguments) -> list[tuple[str, Any]]:
    """Arguments named like an observed site, which usually are the labels."""
    observed = {site.name for site in sites.sites if site.observed and plate in site.plates}
    named = [(name, x) for name, x in arguments.named_arrays() if name in observed and not is_source(x)]
    return [(name, x.detach().cpu().numpy()) for name, x in named]


def _fix_params(names: Sequence[str], model: Callable[..., Any], arguments: Arguments) -> None:
    """Leave the values of a model's params in Pyro's store as the host leaves them: as all rows give them.

    Raises:
        SourceRuleError: where they depend on rows that are not in memory.
    """
    sources, store = arguments.sources, pyro.get_param_store()
    if sources:
        args, kwargs = arguments.build(few_rows(arguments))
        with tensors_for_arrays():
            check_outside(sources, [f"the parameter {name!r}" for name in params_of_data(model, args, kwargs)])
    elif any(name not in store for name in names):
        args, kwargs = arguments.build(arguments.data)
        with torch.random.fork_rng(), torch.no_grad(), poutine.block(), unvalidated(), tensors_for_arrays():
            model(*args, **kwargs)


def _check_not_read(watch: Watch, arguments: Arguments) -> None:
    """Raise where Python reads values of rows that are not in memory."""
    if watch.has_seen and arguments.sources:
        raise ReadingError(must_not_read(list(arguments.sources)))


def _versions(arguments: Arguments) -> list[int]:
    """The number of times that each tensor was written to."""
    return [0 if is_source(x) or x.is_inference() else x._version for x in arguments.data]


def _check_settled(model: Callable[..., Any], arguments: Arguments) -> None:
    """Raise where a model that writes to its data changes them each time, so that no two runs are on the same data.

    Raises:
        ModelNotSplittableError: naming the arguments that change.
    """
    before = [x.clone() for x in arguments.data]
    describe_model(model, *arguments.build(arguments.data))
    named = zip(arguments.named_arrays(), before, strict=True)
    changed = [name for (name, x), old in named if not torch.equal(torch.nan_to_num(x), torch.nan_to_num(old))]
    if changed:
        raise ModelNotSplittableError(
            "a model must not change its data each time it runs, as x /= 2 does, got one that changes "
            f"{', '.join(map(repr, changed))}; write x = x / 2, or change the data outside the model"
        )


def describe(model: Callable[..., Any], arguments: Arguments) -> tuple[ModelSites, Readings]:
    """Trace the model for its sites and readings; where it fails on data of unequal length, the error says so."""
    args, kwargs = arguments.build(arguments.data)
    versions = _versions(arguments)
    run_first(model, arguments)
    try:
        with Watch() as watch:
            try:
                sites = describe_model(model, args, kwargs, only_shapes=bool(arguments.sources))
            except Exception:
                _check_not_read(watch, arguments)
                raise
        if _versions(arguments) != versions:
            _check_settled(model, arguments)
        _check_not_read(watch, arguments)
        if sites.fixed:
            _fix_params(sites.fixed, model, arguments)
        if not watch.has_seen:
            return sites, Readings()
        with tensors_for_arrays():
            return sites, find_readings(model, args, kwargs)
    except (TypeError, ValueError, RuntimeError) as error:
        raise_if_unequal({name: x.shape[0] for name, x in arguments.named_arrays() if x.ndim}, error)
        raise
