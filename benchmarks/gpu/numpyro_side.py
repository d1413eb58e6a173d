"""What ``benchmarks.gpu`` measures in NumPyro."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.common.labelled import Labelled
from benchmarks.common.numpyro_models import classifiers
from benchmarks.common.timing import Spread, interleaved
from benchmarks.data_pass.passes import STEP_SIZE
from benchmarks.gpu.cells import Cell
from benchmarks.gpu.devices import check_places
from numpyro_split import SymmetricSplitHMC, split_model

MIB = 2**20


def describe() -> dict[str, Any]:
    """The device that JAX computes on."""
    device = jax.devices()[0]
    limit = (device.memory_stats() or {}).get("bytes_limit")
    return {
        "device": device.device_kind,
        "platform": device.platform,
        "platform_version": device.client.platform_version,
        "memory_mib": None if limit is None else limit / MIB,
    }


def measure(cell: Cell, labelled: Labelled) -> dict[str, Any]:
    """Memory and time of a gradient of all rows, subset by subset, and time of an iteration."""
    check_places({"JAX": jax.default_backend()}, cell.device)
    model = classifiers()[cell.target]
    inputs = labelled.inputs if cell.target == "pooled" else labelled.rows
    data, z = (jnp.asarray(inputs), jnp.asarray(labelled.labels)), model.position()
    potential = split_model(model, data, num_subsets=cell.num_subsets)
    gradient = jax.jit(lambda potential, z: potential.potential_and_grad(z)).lower(potential, z).compile()
    planned = gradient.memory_analysis().temp_size_in_bytes / MIB
    peak = _allocator_peak(lambda: jax.block_until_ready(gradient(potential, z)))

    kernel = SymmetricSplitHMC(
        model,
        cell.num_subsets,
        num_steps=cell.num_steps,
        step_size=STEP_SIZE,
        adapt_step_size=False,
        adapt_mass_matrix=False,
    )
    iterate = jax.jit(lambda state, data: kernel.sample(state, data, {}))
    state = iterate(kernel.init(jax.random.key(0), 0, z, data), data)
    check_places(_places({"data": data, "z": z, "gradient": gradient(potential, z), "state": state}), cell.device)
    seconds = interleaved(
        {
            "gradient": lambda: jax.block_until_ready(gradient(potential, z)),
            "iteration": lambda: jax.block_until_ready(iterate(state, data)),
        },
        cell.repeats,
    )
    times = {f"{name}_ms": Spread.of(1e3 * found)._asdict() for name, found in seconds.items()}
    return {"planned_mib": planned, **peak, **times, "num_grads": int(state.num_grads)}


def _allocator_peak(action: Any) -> dict[str, Any]:
    """Growth of the allocator's peak above what is held; a bound where an earlier peak was higher."""
    device = jax.devices()[0]
    before = device.memory_stats()
    action()
    after = device.memory_stats()
    if not (before and after):  # no allocator of its own, as on CPUs
        return {"peak_mib": None, "peak_is_bound": None}
    peak = after["peak_bytes_in_use"]
    return {
        "peak_mib": (peak - before["bytes_in_use"]) / MIB,
        "peak_is_bound": peak <= before["peak_bytes_in_use"],
    }


def _places(trees: dict[str, Any]) -> dict[str, str]:
    """The platform of each array, by its path."""
    return {
        name + jax.tree_util.keystr(path): "/".join(sorted({device.platform for device in leaf.devices()}))
        for name, tree in trees.items()
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
