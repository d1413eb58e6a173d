"""The check that the subsets add up to the model's own potential, made before anything is sampled.

It compares energy and gradient at a jittered point. Up to a budget of rows it uses all of them; above that it
must not need the memory that splitting saves, so it compares on a random sample of rows, whole against split.
A model that fixes N itself cannot be run on a sample: then the energy alone is compared, on the host.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pyro
import torch
from pyro.infer.mcmc.util import initialize_model
from pyro.ops.integrator import potential_grad

from pyro_split.densities import ModelDensity, Position, RowBlock
from pyro_split.potential import SplitPotential
from pyro_split.rows import describe_model
from split_common.checks import compare_split
from split_common.subsets import SubsetLayout

ROW_BUDGET = 2048
SAMPLE_SUBSETS = 5
JITTER = 0.1

logger = logging.getLogger(__name__)


def check_exact(density: ModelDensity, potential: SplitPotential, z: Position) -> None:
    """Raise unless the subsets of ``density`` add up to the model.

    Args:
        density: the split model, bound to data.
        potential: the potential that will be sampled.
        z: a point with a finite density; the check is made near it.

    Raises:
        ModelNotSplittableError: with both numbers.
    """
    point = _jitter(z)
    num_rows = density.layout.num_rows
    if num_rows <= ROW_BUDGET:
        logger.info("split checked on all %d rows: energy and gradient", num_rows)
        _compare(density, potential, point, z)
    elif _takes_size_from_arguments(density):
        logger.info("split checked on a sample of %d of %d rows: energy and gradient", ROW_BUDGET, num_rows)
        sample, block = _sample_rows(density)
        cut = [density.cut(u, density.arguments.data, block)[0] for u in (point, z)]
        _compare(sample, SplitPotential(sample, sample.arguments.data, jit_compile=False), *cut)
    else:
        logger.info("split checked on all %d rows: energy only (the model fixes their number)", num_rows)
        _compare_energy(density, potential, point)


def _sample_rows(density: ModelDensity) -> tuple[ModelDensity, RowBlock]:
    """The same model on a random sample of rows, in a few subsets of unequal size."""
    rows = np.sort(np.random.default_rng(0).choice(density.layout.num_rows, ROW_BUDGET, replace=False))
    block, layout = RowBlock(torch.as_tensor(rows)), SubsetLayout(ROW_BUDGET, SAMPLE_SUBSETS)
    arguments = density.arguments.replace(density.arguments.take(block, density.arguments.data))
    sample = ModelDensity(
        density.model, layout, density.mode, arguments, density.transforms, density.local_axes, density.prior_rows
    )
    return sample, block


def _takes_size_from_arguments(density: ModelDensity) -> bool:
    """Whether the untouched model, on fewer rows, has a smaller plate."""
    if density.mode == "index":
        return False
    few = RowBlock(torch.arange(2), 0)
    args, kwargs = density.arguments.build(density.arguments.take(few, density.arguments.data))
    try:
        return describe_model(density.model.model, args, kwargs).plate_sizes[density.plate or ""] == 2
    except (TypeError, ValueError, IndexError, RuntimeError):
        return False


def _compare(density: ModelDensity, potential: SplitPotential, point: Position, fallback: Position) -> None:
    whole_fn = _host_potential(density, fallback)
    with pyro.validation_enabled(False):
        whole_grad, whole = potential_grad(whole_fn, point)
        if not torch.isfinite(whole):
            point = fallback
            whole_grad, whole = potential_grad(whole_fn, point)
    energies = _in_precision_of(point, potential.energies(point))
    split_grad = potential.potential_and_grad(point)[1]
    compare_split(float(whole), energies, _flat(whole_grad), _flat(split_grad))


def _compare_energy(density: ModelDensity, potential: SplitPotential, point: Position) -> None:
    with torch.no_grad(), pyro.validation_enabled(False):
        whole = _host_potential(density, point)(point)
    compare_split(float(whole), _in_precision_of(point, potential.energies(point)))


def _host_potential(density: ModelDensity, z: Position) -> Any:
    """Pyro's own potential of the model."""
    args, kwargs = density.arguments.build(density.arguments.data)
    with torch.no_grad(), pyro.validation_enabled(False):
        host = initialize_model(density.model, args, kwargs, transforms=density.transforms, initial_params=z)
    return host[1]


def _jitter(z: Position) -> Position:
    generator = torch.Generator().manual_seed(1)
    return {
        name: u + JITTER * torch.randn(u.shape, generator=generator, dtype=u.dtype).to(u.device)
        for name, u in z.items()
    }


def _in_precision_of(z: Position, energies: torch.Tensor) -> np.ndarray:
    """Energies are float64 whatever the model; the tolerance is that of the model's own precision."""
    return energies.numpy().astype(next(iter(z.values())).detach().cpu().numpy().dtype)


def _flat(z: Position) -> np.ndarray:
    return np.concatenate([z[name].detach().cpu().numpy().ravel() for name in sorted(z)])
