"""How models are run: one run of MCMC at a time, and with tensors where a model expects NumPy arrays."""

from __future__ import annotations

import inspect
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from pyro.infer.mcmc import api
from torch import Tensor

from pyro_split.host import FakeTensor, is_functional
from split_common.tables import RowsOf


@contextmanager
def tensors_for_arrays() -> Iterator[None]:
    """Context in which a model that converts NumPy arrays and pandas columns to tensors may be given tensors."""
    own = {name: getattr(torch, name) for name in ("from_numpy", "tensor", "as_tensor")}
    torch.from_numpy = lambda data: _as_tensor(data) if _is_tensor(data) else own["from_numpy"](data)
    torch.as_tensor = lambda data, *args, **kwargs: own["as_tensor"](_as_tensor(data), *args, **kwargs)
    torch.tensor = lambda data, **kwargs: (
        _copy(_as_tensor(data), **kwargs) if _is_tensor(data) else own["tensor"](data, **kwargs)
    )
    try:
        yield
    finally:
        for name, function in own.items():
            setattr(torch, name, function)


@contextmanager
def keeping_no_shapes(model: Any) -> Iterator[None]:
    """Context of one run of a model, after which its networks, objects and dicts keep no tensors without values.

    An object that keeps a value of its last run (``self.hidden = ...``) keeps the one that it had before a run on
    shapes alone, so that it can be read, saved and sent to other processes.
    """
    places = [place for x in _held_by(inspect.unwrap(model)) for place in _places_in(x)]
    before = [dict(place) for place in places]
    try:
        yield
    finally:
        for place, old in zip(places, before, strict=True):
            for name, value in list(place.items()):
                if (isinstance(value, FakeTensor) or is_functional(value)) and value is not old.get(name):
                    place.pop(name)
                    place |= {name: old[name]} if name in old else {}


def _held_by(model: Any) -> list[Any]:
    """A model, the object whose method it is, and what it closes over."""
    cells = getattr(model, "__closure__", None) or ()
    filled = [cell.cell_contents for cell in cells if cell != types.CellType()]
    return [model, getattr(model, "__self__", None), *filled]


def _places_in(holder: Any) -> list[dict[Any, Any]]:
    """The dicts in which a network, an object, a function or a dict keeps values."""
    if isinstance(holder, torch.nn.Module):
        return [place for module in holder.modules() for place in (vars(module), module._buffers)]
    place = holder if isinstance(holder, dict) else getattr(holder, "__dict__", None)
    return [place] if isinstance(place, dict) and not isinstance(holder, types.ModuleType) else []


def _is_tensor(data: Any) -> bool:
    return isinstance(data, Tensor | RowsOf)


def _as_tensor(data: Any) -> Any:
    return data.to_numpy() if isinstance(data, RowsOf) else data


def _copy(data: Tensor, dtype: Any = None, device: Any = None, requires_grad: bool = False, **rest: Any) -> Tensor:
    made = data.detach().clone().to(device=device, dtype=dtype)
    return made.requires_grad_() if requires_grad else made


def check_only_run() -> None:
    """Raise when another thread of this process is in the middle of a run of MCMC.

    Pyro's own ``MCMC`` leaves its stack of handlers in disorder when two threads run it at once, and both draw from
    torch's one generator.

    Raises:
        RuntimeError: naming both threads.
    """
    frames = sys._current_frames()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and _is_in_run(frames.get(thread.ident or 0)):
            raise RuntimeError(
                "Pyro runs one MCMC at a time in a process (its handlers and random numbers are the process's), got "
                f"a run in thread {threading.current_thread().name!r} while thread {thread.name!r} is in one; use "
                "processes"
            )


def check_gradients_are_enabled() -> None:
    """Raise where PyTorch keeps no graph, so that a model has no gradients.

    Raises:
        RuntimeError: naming the context.
    """
    if not torch.is_grad_enabled():
        context = "inference_mode" if torch.is_inference_mode_enabled() else "no_grad"
        raise RuntimeError(f"mcmc.run must be called with gradients enabled, got it inside torch.{context}()")


def _is_in_run(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == api.__file__ and frame.f_code.co_name == "run":
            return True
        frame = frame.f_back
    return False
