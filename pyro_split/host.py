"""Every private name of Pyro and PyTorch that this package leans on; ``tests/test_host.py`` says which one broke."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyro
import torch
from pyro.infer.mcmc.adaptation import WarmupAdapter
from pyro.ops.integrator import _EXCEPTION_HANDLERS
from pyro.poutine.subsample_messenger import SubsampleMessenger
from pyro.poutine.subsample_messenger import _Subsample as Subsample
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes as without_modes

FAKE_TENSOR_LOG = "torch._subclasses.fake_tensor"  # name of the logger of what fails on shapes


def is_numerical(error: Exception) -> bool:
    """Whether Pyro takes an error for a matter of values, not of the program."""
    return any(handles(error) for handles in _EXCEPTION_HANDLERS.values())


def is_functional(x: Any) -> bool:
    """Whether a tensor stands for others while writes into it are made functional."""
    return torch._is_functional_tensor(x)


def writes(target: Any) -> bool:
    """Whether an operation of a graph writes into one of its operands."""
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def covariances(adapter: Any) -> dict[tuple[str, ...], torch.Tensor]:
    """Covariance of each block of the draws that a mass-matrix adapter was given, without shrinkage."""
    return {sites: found.get_covariance(regularize=False) for sites, found in adapter._adapt_scheme.items()}


def log_average_step_size(adapter: WarmupAdapter) -> float:
    """Log of what dual averaging has averaged so far."""
    return float(adapter._step_size_adapt_scheme.get_state()[1])


def arguments_of_run(mcmc: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of a run's model."""
    return mcmc._args or (), mcmc._kwargs or {}


def has_draws(mcmc: Any) -> bool:
    """Whether a run has been made."""
    return mcmc._samples is not None


def diagnostics_by_chain(mcmc: Any) -> list[Any]:
    """Diagnostics of each chain's kernel, in the order of the chains; Pyro itself sorts names as strings."""
    return mcmc._diagnostics


@contextmanager
def unvalidated() -> Iterator[None]:
    """Run without validation, of distributions too that were made before: a check of values cannot be traced."""
    own = torch.distributions.Distribution._validate_sample
    torch.distributions.Distribution._validate_sample = _no_check  # type: ignore[method-assign]
    try:
        with pyro.validation_enabled(False):
            yield
    finally:
        torch.distributions.Distribution._validate_sample = own  # type: ignore[method-assign]


def _no_check(distribution: Any, value: Any) -> None:
    """In place of the check of a value against a distribution's support."""


__all__ = [
    "FAKE_TENSOR_LOG",
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "Subsample",
    "SubsampleMessenger",
    "TorchDispatchMode",
    "arguments_of_run",
    "covariances",
    "diagnostics_by_chain",
    "dispatch_functionalize",
    "has_draws",
    "is_functional",
    "is_numerical",
    "log_average_step_size",
    "make_fx",
    "pytree",
    "unvalidated",
    "without_modes",
    "writes",
]
