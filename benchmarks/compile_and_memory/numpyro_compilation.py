"""What ``benchmarks.compile_and_memory`` asks of NumPyro's side: compile times and XLA's memory plans."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.common.labelled import Labelled
from benchmarks.common.numpyro_models import classifiers
from benchmarks.data_pass.passes import STEP_SIZE
from numpyro_split import NaiveSplitHMC, RandomisedSplitHMC, SymmetricSplitHMC, split_model
from numpyro_split.potential.centering import Center, CenteredPotential

KERNELS = {"symmetric": SymmetricSplitHMC, "naive": NaiveSplitHMC, "randomised": RandomisedSplitHMC}
NUM_STEPS = 10


def started_kernel(kernel_name: str, model_name: str, labelled: Labelled, num_subsets: int) -> tuple[Any, Any, Any]:
    """A kernel after ``init``, its state, and the data."""
    model = classifiers()[model_name]
    x = jnp.asarray(labelled.rows if model_name == "softmax" else labelled.inputs)
    data = (x, jnp.asarray(labelled.labels))
    kernel = KERNELS[kernel_name](
        model, num_subsets, num_steps=NUM_STEPS, step_size=STEP_SIZE, adapt_step_size=False, adapt_mass_matrix=False
    )
    state = kernel.init(jax.random.key(0), 0, model.position(), data)
    return kernel, state, data


def compile_seconds(started: tuple[Any, Any, Any]) -> float:
    """Seconds to trace, lower and compile one iteration from nothing."""
    kernel, state, data = started
    jax.clear_caches()
    start = time.perf_counter()
    _compiled(lambda state, data: kernel.sample(state, data, {}), state, data)
    return time.perf_counter() - start


def temporary_mib(model_name: str, labelled: Labelled, num_subsets: int) -> dict[str, float]:
    """Temporary buffers of one subset gradient, and of an iteration of each kernel."""
    kernel, state, data = started_kernel("symmetric", model_name, labelled, num_subsets)
    potential = split_model(kernel.model, data, num_subsets=num_subsets)
    gradient = _compiled(
        lambda potential, z, m: potential.subset_potential_and_grad(z, m), potential, state.z, jnp.array(0)
    )
    iteration = _compiled(lambda state, data: kernel.sample(state, data, {}), state, data)
    compiled = {"subset gradient": gradient, "symmetric iteration": iteration}
    return {name: each.memory_analysis().temp_size_in_bytes / 2**20 for name, each in compiled.items()}


def centred_mib(model_name: str, labelled: Labelled, num_subsets: int) -> float:
    """Temporary buffers of a centred subset gradient, of first order, and what is kept for it: M gradients."""
    kernel, state, data = started_kernel("symmetric", model_name, labelled, num_subsets)
    potential = split_model(kernel.model, data, num_subsets=num_subsets)
    center = Center.at(potential, state.z, tuple(state.z), False)
    gradient = _compiled(
        lambda potential, center, z, m: CenteredPotential(potential, center).subset_energies_and_grad(z, m),
        *(potential, center, state.z, jnp.array(0)),
    )
    kept = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(center))
    return (gradient.memory_analysis().temp_size_in_bytes + kept) / 2**20


def _compiled(function: Callable[..., Any], *arguments: Any) -> Any:
    return jax.jit(function).lower(*arguments).compile()
