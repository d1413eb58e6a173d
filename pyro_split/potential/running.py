"""How models are run: one run of MCMC at a time, and with tensors where a model expects NumPy arrays."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from pyro.infer.mcmc import api
from torch import Tensor

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


def _is_in_run(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == api.__file__ and frame.f_code.co_name == "run":
            return True
        frame = frame.f_back
    return False
