"""Convolutions in full float32 precision, which the decision of an exact sampler needs.

cuDNN convolves float32 in TF32 by default on NVIDIA's GPUs (matrices are multiplied in full precision); its rounding is
larger than the tolerance of the exactness check. :mod:`numpyro_split.potential.precision` says what TF32 does to
differences of energy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def full_precision(function: Function) -> Function:
    """Decorator: a function convolves in full precision on a GPU, and the setting is restored after it.

    Precisions that the user has set by PyTorch's newer ``fp32_precision`` stay as they are.
    """

    @functools.wraps(function)
    def precise(*args: Any, **kwargs: Any) -> Any:
        if not (torch.cuda.is_initialized() and _convolves_in_tf32()):
            return function(*args, **kwargs)
        torch.backends.cudnn.allow_tf32 = False
        try:
            return function(*args, **kwargs)
        finally:
            torch.backends.cudnn.allow_tf32 = True

    return precise  # type: ignore[return-value]


def _convolves_in_tf32() -> bool:
    try:
        return torch.backends.cudnn.allow_tf32
    except RuntimeError:  # where the newer settings were used, the older ones cannot be read
        return False


def autocast_advice() -> str:
    """Advice for numbers that differ where PyTorch computes in half precision; "" where autocast is off.

    Example:
        >>> autocast_advice()
        ''
    """
    on = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    if not on:
        return ""
    return (
        f"; autocast is on ({', '.join(on)}), whose half precision rounds more than the comparison allows: switch it "
        "off for the model"
    )
