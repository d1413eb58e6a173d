"""Description of a model before it is divided: its sites, and the values that it reads with Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpyro_split.potential.arguments import Arguments
from numpyro_split.potential.model_rows import ModelSites, RowSelectableModel, describe_model
from numpyro_split.potential.readings import UNREADABLE, Readings, find_readings
from split_common.data_axes import raise_if_unequal
from split_common.errors import ConversionError, ReadingError, line_of_user


def describe(model: Callable[..., Any], arguments: Arguments) -> tuple[ModelSites, Readings]:
    """Trace the model for its sites and readings; where it fails on data of unequal length, the error says so."""
    args, kwargs = ((), {}) if arguments.sources else arguments.build(arguments.data)
    model = arguments.in_trace(model) if arguments.sources else model
    try:
        return describe_model(model, args, kwargs), Readings()
    except UNREADABLE:
        readings = find_readings(model, arguments)
        with readings.answering():
            return describe_model(model, args, kwargs), readings
    except (TypeError, ValueError) as error:
        if "JAX arrays are immutable" in str(error):
            raise ConversionError(
                f"{line_of_user(error)}: a model must not assign to entries of its data, which are JAX "
                "arrays in it, got an assignment; write x = jnp.where(mask, value, x) or x.at[...].set(value), or "
                "change the data outside the model"
            ) from error
        raise_if_unequal({name: x.shape[0] for name, x in arguments.named_arrays() if x.ndim}, error)
        raise


def describe_undivided(model: Callable[..., Any], arguments: Arguments) -> tuple[ModelSites, Readings]:
    """Like :func:`describe`, with readings of the arguments themselves, which are traced in the potential."""
    sites, readings = describe(model, arguments)
    if not readings and not arguments.sources:
        readings = find_readings(model, arguments)
    return sites, readings


def readings_behind(failures: Mapping[str, Exception], model: RowSelectableModel, arguments: Arguments) -> Readings:
    """Readings of a model that no mode divides: on a part of the rows it may have read other values."""
    try:
        return find_readings(model, arguments)
    except ReadingError:
        if any(isinstance(error, UNREADABLE) for error in failures.values()):
            raise
        return Readings()
