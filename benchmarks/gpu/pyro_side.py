"""What ``benchmarks.gpu`` measures in Pyro."""

from __future__ import annotations

from typing import Any

import pyro
import torch
from torch import Tensor

from benchmarks.common.labelled import Labelled
from benchmarks.common.pyro_models import classifiers
from benchmarks.common.timing import Spread, interleaved
from benchmarks.data_pass.passes import STEP_SIZE
from benchmarks.gpu.cells import Cell
from benchmarks.gpu.devices import check_places
from pyro_split import SymmetricSplitHMC, split_model

MIB = 2**20
PLACES = {"cuda": "gpu"}  # torch's name for AMD's too


def describe() -> dict[str, Any]:
    """The device that PyTorch would compute on."""
    if not torch.cuda.is_available():
        return {"device": "cpu", "platform": "cpu", "platform_version": None, "memory_mib": None}
    about = torch.cuda.get_device_properties(0)
    version = f"cuda {torch.version.cuda}" if torch.version.cuda else f"rocm {torch.version.hip}"
    return {
        "device": about.name,
        "platform": "gpu",
        "platform_version": version,
        "memory_mib": about.total_memory / MIB,
    }


def measure(cell: Cell, labelled: Labelled) -> dict[str, Any]:
    """Memory and time of a gradient of all rows, subset by subset, and time of an iteration."""
    on_gpu = cell.device == "gpu"
    check_places({"PyTorch": "gpu" if on_gpu and torch.cuda.is_available() else "cpu"}, cell.device)
    device, model = torch.device("cuda" if on_gpu else "cpu"), classifiers()[cell.target]
    inputs = labelled.inputs if cell.target == "pooled" else labelled.rows
    data = (torch.as_tensor(inputs).to(device), torch.as_tensor(labelled.labels).long().to(device))
    z = {name: u.to(device) for name, u in model.position().items()}
    potential = split_model(model, data, num_subsets=cell.num_subsets)
    for _ in range(2):  # the first traces, the second compiles
        grad = potential.potential_and_grad(z)[1]
    peak = _allocator_peak(lambda: potential.potential_and_grad(z)) if on_gpu else None

    pyro.set_rng_seed(0)
    kernel = SymmetricSplitHMC(
        model,
        cell.num_subsets,
        num_steps=cell.num_steps,
        step_size=STEP_SIZE,
        adapt_step_size=False,
        adapt_mass_matrix=False,
    )
    kernel.initial_params = z
    kernel.setup(0, *data)
    position = kernel.sample(z)
    named = {"x": data[0], "y": data[1]}
    named |= {f"{what}.{name}": u for what, us in (("gradient", grad), ("draw", position)) for name, u in us.items()}
    check_places({name: PLACES.get(u.device.type, u.device.type) for name, u in named.items()}, cell.device)
    seconds = interleaved(
        {
            "gradient": lambda: _wait(potential.potential_and_grad(z), on_gpu),
            "iteration": lambda: _wait(kernel.sample(position), on_gpu),
        },
        cell.repeats,
    )
    times = {f"{name}_ms": Spread.of(1e3 * found)._asdict() for name, found in seconds.items()}
    num_grads = int(kernel.diagnostics()["num_grads"][-1])
    return {"planned_mib": None, "peak_mib": peak, "peak_is_bound": False, **times, "num_grads": num_grads}


def _allocator_peak(action: Any) -> float:
    """MiB by which the allocator's peak rises above what is held."""
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    action()
    return (torch.cuda.max_memory_allocated() - held) / MIB


def _wait(result: dict[str, Tensor] | tuple[Tensor, dict[str, Tensor]], on_gpu: bool) -> None:
    del result
    if on_gpu:
        torch.cuda.synchronize()
