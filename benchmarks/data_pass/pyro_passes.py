"""What ``benchmarks.data_pass`` times in Pyro."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pyro
import torch
from torch import Tensor

from benchmarks.common.labelled import Labelled
from benchmarks.common.pyro_models import Classifier, classifiers
from benchmarks.data_pass.passes import STEP_SIZE, PassTimer, Settings
from pyro_split import NaiveSplitHMC, SymmetricSplitHMC, split_model

VERSIONS = {"torch": torch.__version__, "pyro": pyro.__version__}
KERNELS = {"symmetric": SymmetricSplitHMC, "naive": NaiveSplitHMC}


def pass_timer(model_name: str, labelled: Labelled, settings: Settings) -> PassTimer:
    """Set up the kernels, and trace the bare gradients, of one model."""
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    model = classifiers()[model_name]
    x = torch.as_tensor(labelled.rows if model_name == "softmax" else labelled.inputs)
    y = torch.as_tensor(labelled.labels).long()
    z = model.position()
    part = slice(0, len(y) // settings.num_subsets)
    whole = bare_gradients(model, z, x, y)
    potential = split_model(model, (x, y), num_subsets=settings.num_subsets)
    timer = PassTimer(
        bare=whole,
        bare_subset=bare_gradients(model, z, x[part], y[part])["eager"],
        end_point=lambda: potential.energies(z),
    )
    for name, kernel_class in KERNELS.items():
        timer.transitions[name], timer.num_passes[name] = _transition(kernel_class, model, (x, y), z, settings)
    return timer


def bare_gradients(model: Classifier, z: dict[str, Tensor], x: Tensor, y: Tensor) -> dict[str, Callable[[], object]]:
    """The gradient by autograd, of the potential as written and of its trace."""
    names, leaves = list(z), [u.clone().requires_grad_() for u in z.values()]

    def potential(x: Tensor, y: Tensor, *leaves: Tensor) -> Tensor:
        return model.potential(dict(zip(names, leaves, strict=True)), x, y)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit says that it is deprecated
        traced = torch.jit.trace(potential, (x, y, *leaves), check_trace=False)
    return {
        "eager": lambda: torch.autograd.grad(potential(x, y, *leaves), leaves),
        "traced": lambda: torch.autograd.grad(traced(x, y, *leaves), leaves),
    }


def _transition(kernel_class: type, model: Classifier, data: tuple, z: dict[str, Tensor], settings: Settings):
    """An iteration, and the data passes in it."""
    kernel = kernel_class(
        model,
        settings.num_subsets,
        num_steps=settings.num_steps,
        step_size=STEP_SIZE,
        adapt_step_size=False,
        adapt_mass_matrix=False,
    )
    kernel.initial_params = z
    kernel.setup(0, *data)
    position = kernel.initial_params

    def iterate() -> None:
        nonlocal position
        position = kernel.sample(position)

    iterate()
    return iterate, kernel.diagnostics()["num_grads"][-1] / settings.num_subsets
