"""All private names of Pyro and PyTorch that this package uses; ``tests/test_host.py`` shows which one has changed."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import pyro
import torch
from pyro.infer.mcmc.adaptation import WarmupAdapter
from pyro.infer.mcmc.api import MAX_SEED, _MultiSampler
from pyro.ops.integrator import _EXCEPTION_HANDLERS
from pyro.poutine.messenger import Messenger
from pyro.poutine.runtime import _PYRO_STACK
from pyro.poutine.subsample_messenger import SubsampleMessenger
from pyro.poutine.subsample_messenger import _Subsample as Subsample
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.autograd.function import FunctionCtx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes as without_modes

FAKE_TENSOR_LOG = "torch._subclasses.fake_tensor"  # name of PyTorch's logger of failures on fake tensors
FACTORISATION_CHECK = torch.ops.aten._linalg_check_errors.default  # raises where a matrix could not be factorised
GIVEN_TRANSFORMS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # by run, the transforms that it was made with
NUMBER_OF = torch.ops.aten._local_scalar_dense.default  # by which PyTorch reads, as in torch.full((1,), y.mean())
VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)  # of contiguous memory alone


def is_numerical(error: Exception) -> bool:
    """Whether Pyro treats an error as numerical: caused by values, not by a fault of the program."""
    return any(handles(error) for handles in _EXCEPTION_HANDLERS.values())


def is_functional(x: Any) -> bool:
    """Whether a value is a tensor's wrapper by which PyTorch functionalizes in-place writes."""
    return isinstance(x, torch.Tensor) and torch._is_functional_tensor(x)


def is_random(target: Any, settings: Any, *args: Any) -> bool:
    """Whether an operation gives random numbers; ``settings`` are arguments by name, ``args`` by position."""
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    arguments = target._schema.arguments
    given = {x.name: x.default_value for x in arguments if x.has_default_value()}
    given |= {x.name: value for x, value in zip(arguments, args, strict=False)} | dict(settings)
    return given.get("dropout_p") != 0.0


def writes(target: Any) -> bool:
    """Whether an operation of a graph writes into one of its operands."""
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def compiled(function: Callable[..., list[torch.Tensor]], like: tuple[torch.Tensor, ...]) -> Any:
    """A function of tensors as a program of PyTorch's JIT, whose memory is freed with it.

    Programs of ``torch.jit.trace`` stand in a table of the process, from which none is removed: they would take
    megabytes for each run of a simulation study.

    Args:
        function: from tensors to a list of tensors; its operations must not depend on their values.
        like: arguments that it is traced with.

    Raises:
        RuntimeError: for an operation that the JIT does not take.
    """
    graph, _ = torch._C._create_graph_by_tracing(function, like, lambda value: "", False, False)
    torch._C._jit_pass_constant_propagation(graph)
    return torch._C._create_function_from_graph("compiled", graph)


@contextmanager
def plain_recurrences() -> Iterator[None]:
    """Context in which a recurrent network is many operations; MKL-DNN has one, which a list of them does not run."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


class AnyNumberOfRows(Messenger):
    """Lets one plate take any number of rows, where Pyro requires its ``subsample_size``, and scale none of them.

    A plate compares that number with the rows that handlers give it before any handler can see the plate, and
    multiplies scales by N/B, which a handler can undo but for rounding. So a handler alone cannot avoid either. Pyro's
    methods are therefore patched once, when this file is imported, and the patches look for this handler. Patching them
    for each run and restoring them afterwards would not be safe with threads.

    Args:
        plate: name of the plate.
    """

    def __init__(self, plate: str):
        super().__init__()
        self.plate = plate


class _OwnNames(Messenger):
    """Stores a plate's unscoped name on its message, before handlers such as ``scope`` rename it."""

    def _pyro_sample(self, msg: Any) -> None:
        if isinstance(msg["fn"], Subsample):
            msg["fn"].own_name = msg["name"]  # type: ignore[attr-defined]


def plate_of(msg: Any) -> str | None:
    """Unscoped name of the plate whose rows a message asks for; None for other messages."""
    return getattr(msg["fn"], "own_name", msg["name"]) if isinstance(msg["fn"], Subsample) else None


_own_subsample = SubsampleMessenger._subsample


def _subsample(name: str, size: int | None = None, subsample_size: int | None = None, *rest: Any, **others: Any) -> Any:
    """Pyro's own method, without a ``subsample_size`` for a plate that may take any number of rows."""
    if _takes_any_number(name):
        subsample_size = None
    with _OwnNames():
        return _own_subsample(name, size, subsample_size, *rest, **others)


_own_process_message = SubsampleMessenger._process_message


def _process_message(plate: Any, msg: Any) -> None:
    """Pyro's own method, without the factor N/B for a plate that may take any number of rows."""
    scale = msg["scale"]
    if _takes_any_number(plate.name):
        msg["scale"] = 1.0  # so that the factor enters no operation on a tensor
    _own_process_message(plate, msg)
    if _takes_any_number(plate.name):
        msg["scale"] = scale


def _takes_any_number(name: str) -> bool:
    return any(isinstance(handler, AnyNumberOfRows) and handler.plate == name for handler in _PYRO_STACK)


SubsampleMessenger._subsample = staticmethod(_subsample)  # type: ignore[method-assign]
SubsampleMessenger._process_message = _process_message  # type: ignore[method-assign]

Blocks = dict[tuple[str, ...], Any]  # blocks of a matrix by the sites of each: tensors, or low-rank matrices
MATRICES = ("_inverse_mass_matrix", "_mass_matrix_sqrt", "_mass_matrix_sqrt_inverse")


class AdaptState(NamedTuple):
    """The state of the host's adapter of step size and mass matrix, as a value: the adapter itself changes in place.

    Attributes:
        step_size: step size of the next trajectory.
        window: number of the window of warm-up.
        averaging: state of dual averaging.
        matrices: inverse mass matrix, square root of the mass matrix, and its inverse.
        covariances: state of the covariance estimator of each block.
    """

    step_size: float
    window: int
    averaging: dict[str, Any]
    matrices: tuple[Blocks, Blocks, Blocks]
    covariances: dict[tuple[str, ...], dict[str, Any]]

    @property
    def inverse_mass_matrix(self) -> Blocks:
        """Inverse mass matrix, by block of sites."""
        return self.matrices[0]


def store_adapter(adapter: Any) -> AdaptState:
    """The state of an adapter as a value, which later changes of the adapter do not affect."""
    mass = adapter.mass_matrix_adapter
    return AdaptState(
        step_size=float(adapter.step_size),
        window=adapter._current_window,
        averaging=dict(vars(adapter._step_size_adapt_scheme)) if adapter.adapt_step_size else {},
        matrices=matrices_of(mass),
        covariances={sites: _own(vars(scheme)) for sites, scheme in mass._adapt_scheme.items()},
    )


def window_ends(adapter: Any) -> list[int]:
    """Iterations that end a window of warm-up, counted from 1; the host has windows only where something adapts."""
    return [window.end for window in adapter.adaptation_schedule or adapter._build_adaptation_schedule()]


def load_adapter(adapter: Any, state: AdaptState) -> None:
    """Set an adapter to a state; later changes of the adapter do not affect the state."""
    mass = adapter.mass_matrix_adapter
    adapter.step_size, adapter._current_window = state.step_size, state.window
    if adapter.adapt_step_size:
        vars(adapter._step_size_adapt_scheme).update(state.averaging)
    for name, blocks in zip(MATRICES, state.matrices, strict=True):
        setattr(mass, name, dict(blocks))
    for sites, remembered in state.covariances.items():
        vars(mass._adapt_scheme[sites]).update(_own(remembered))


def _own(remembered: dict[str, Any]) -> dict[str, Any]:
    """The state of an estimator with its tensors copied, because the estimator adds to them in place."""
    return {name: x.clone() if isinstance(x, torch.Tensor) else x for name, x in remembered.items()}


def matrices_of(mass: Any) -> tuple[Blocks, Blocks, Blocks]:
    """Present M⁻¹, a root S of M = S Sᵀ, and S⁻¹, of shape (D,) where diagonal; a low-rank block has no roots."""
    inverse, root, inverse_root = (dict(getattr(mass, name)) for name in MATRICES)
    return inverse, root, inverse_root


def covariances(adapter: Any) -> dict[tuple[str, ...], torch.Tensor]:
    """Covariance of each block of the draws that a mass-matrix adapter was given, without shrinkage."""
    return {sites: found.get_covariance(regularize=False) for sites, found in adapter._adapt_scheme.items()}


def log_average_step_size(adapter: WarmupAdapter) -> float:
    """Log of the averaged step size of dual averaging."""
    return float(adapter._step_size_adapt_scheme.get_state()[1])


def arguments_of_run(mcmc: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of a run's model."""
    return mcmc._args or (), mcmc._kwargs or {}


def fill_run(
    mcmc: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    samples: dict[str, torch.Tensor] | None,
    diagnostics: list[dict[str, Any]],
) -> None:
    """Fill a run's fields as the host itself does at the end of a run.

    Args:
        mcmc: the run.
        args: positional arguments of the model.
        kwargs: keyword arguments.
        samples: draws of all chains by site, chains and draws first; None where they are not in memory.
        diagnostics: diagnostics of each chain.
    """
    given = given_transforms(mcmc)
    mcmc.transforms = mcmc.kernel.transforms if given is None else given
    mcmc._args, mcmc._kwargs = args, kwargs
    mcmc._samples, mcmc._diagnostics = samples, diagnostics


def given_transforms(mcmc: Any) -> Any:
    """Transforms that a run was made with; None for those of the model, which a run leaves in the same place."""
    if mcmc not in GIVEN_TRANSFORMS:
        GIVEN_TRANSFORMS[mcmc] = None if has_draws(mcmc) else mcmc.transforms
    return GIVEN_TRANSFORMS[mcmc]


def moves_in_processes(mcmc: Any) -> Any:
    """The context of multiprocessing in which a run's chains move; None where they move in this process."""
    return mcmc.sampler.ctx if isinstance(mcmc.sampler, _MultiSampler) else None


def shows_progress(mcmc: Any) -> bool:
    """Whether a run shows its progress; so too where the thread of the host's bars, which alone knows it, has ended."""
    if not isinstance(mcmc.sampler, _MultiSampler):
        return not mcmc.sampler.disable_progbar
    *_, is_disabled = getattr(mcmc.sampler.log_thread, "_args", (False,))
    return not is_disabled


def number_of_chain() -> int | None:
    """Number of the chain that the host draws in this process, by the name of the process; None in any other."""
    name = multiprocessing.current_process().name
    return int(name) if name.isdigit() else None


def start_of_chain(mcmc: Any, chain: int) -> dict[str, torch.Tensor] | None:
    """Initial parameters of a chain of a run; None where they are not given."""
    given = mcmc.sampler.initial_params
    return None if given is None else {name: x[chain] for name, x in given.items()}


def validates_distributions() -> bool:
    """Whether distributions check their arguments at present."""
    return torch.distributions.Distribution._validate_args


@contextmanager
def as_in_a_run(mcmc: Any) -> Iterator[None]:
    """Context in which the host runs a kernel: no handlers around it, and validation as the run says."""
    with Messenger() if mcmc.disable_validation is None else pyro.validation_enabled(not mcmc.disable_validation):
        with pyro.poutine.block():
            yield


def has_draws(mcmc: Any) -> bool:
    """Whether a run holds draws."""
    return mcmc._samples is not None


def diagnostics_by_chain(mcmc: Any) -> list[Any]:
    """Diagnostics of each chain's kernel, in the order of the chains; Pyro itself sorts names as strings."""
    return mcmc._diagnostics


@contextmanager
def unvalidated() -> Iterator[None]:
    """Context without validation, also of distributions made before: a check of values cannot be traced."""
    own = torch.distributions.Distribution._validate_sample
    torch.distributions.Distribution._validate_sample = _no_check  # type: ignore[method-assign]
    try:
        with pyro.validation_enabled(False):
            yield
    finally:
        torch.distributions.Distribution._validate_sample = own  # type: ignore[method-assign]


@contextmanager
def validated() -> Iterator[None]:
    """Context in which distributions check arguments and values, but plates not how many rows they are given."""
    with pyro.validation_enabled(True):
        pyro.poutine.enable_validation(False)
        yield


@contextmanager
def forward_alone() -> Iterator[None]:
    """Context in which operations with custom derivatives (``autograd.Function``) run their forward pass alone.

    It is for evaluations without derivatives, because PyTorch's transformations refuse such operations.
    """
    own = torch.autograd.Function.__dict__["apply"]
    torch.autograd.Function.apply = classmethod(_forward)  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.autograd.Function.apply = own


def _forward(function: Any, *args: Any, **kwargs: Any) -> Any:
    if function.setup_context is not torch.autograd.Function.setup_context:
        return function.forward(*args, **kwargs)
    ctx: Any = FunctionCtx()
    ctx.needs_input_grad = (False,) * len(args)
    return function.forward(ctx, *args, **kwargs)


def _no_check(distribution: Any, value: Any) -> None:
    """Replacement for the check of a value against a distribution's support, which does nothing."""


__all__ = [
    "FAKE_TENSOR_LOG",
    "MAX_SEED",
    "AdaptState",
    "AnyNumberOfRows",
    "Blocks",
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "Subsample",
    "TorchDispatchMode",
    "arguments_of_run",
    "as_in_a_run",
    "compiled",
    "covariances",
    "diagnostics_by_chain",
    "dispatch_functionalize",
    "fill_run",
    "forward_alone",
    "has_draws",
    "is_functional",
    "is_numerical",
    "is_random",
    "load_adapter",
    "log_average_step_size",
    "make_fx",
    "matrices_of",
    "moves_in_processes",
    "plate_of",
    "pytree",
    "shows_progress",
    "start_of_chain",
    "store_adapter",
    "unvalidated",
    "validated",
    "validates_distributions",
    "window_ends",
    "without_modes",
    "writes",
]
