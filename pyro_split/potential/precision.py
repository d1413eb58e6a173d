"""Convolutions in all bits of their factors, which the decision of an exact sampler needs.

Unless told otherwise PyTorch has cuDNN convolve numbers of 32 bits in TF32 on NVIDIA's GPUs (it multiplies matrices in
all bits). On an H100 the gradient of a convolutional network, summed over ten subsets, was then 4e-4 of itself from
that of all rows, too far to be rounding in 32 bits, and the model was taken for one that does not divide. That TF32 was
the cause is an inference: the run was not repeated without it. What TF32 does to differences of energies is said in
:mod:`numpyro_split.potential.precision`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def full_precision(function: Function) -> Function:
    """Have a function convolve in all bits on a GPU, and leave the setting as it was.

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
