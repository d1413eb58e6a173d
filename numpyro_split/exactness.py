"""The check that the subsets add up to the model's own potential, made before anything is sampled.

It compares energy and gradient at a jittered point. Up to a budget of rows it uses all of them; above that it
must not need the memory that splitting saves, so it compares on a random sample of rows, whole against split.
A model that fixes N itself cannot be run on a sample: then the energy alone is compared, on the host.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.util import potential_energy

from numpyro_split.densities import Data, ModelDensity, Position, RowBlock
from numpyro_split.potential import SplitPotential
from numpyro_split.rows import describe_model
from split_common.checks import compare_split
from split_common.subsets import SubsetLayout

ROW_BUDGET = 2048
SAMPLE_SUBSETS = 5
JITTER = 0.1

logger = logging.getLogger(__name__)


def check_exact(density: ModelDensity, data: Data, z: Position) -> None:
    """Raise unless the subsets of ``density`` add up to the model.

    Args:
        density: the split model.
        data: its data arrays, concrete.
        z: a point with a finite density; the check is made near it.

    Raises:
        ModelNotSplittableError: with both numbers.
    """
    point = _jitter(z)
    num_rows = density.layout.num_rows
    if num_rows <= ROW_BUDGET:
        logger.info("split checked on all %d rows: energy and gradient", num_rows)
        _compare(density, data, point, z)
    elif _takes_size_from_arguments(density, data):
        logger.info("split checked on a sample of %d of %d rows: energy and gradient", ROW_BUDGET, num_rows)
        rows = np.sort(np.random.default_rng(0).choice(num_rows, ROW_BUDGET, replace=False))
        block, layout = RowBlock(jnp.asarray(rows)), SubsetLayout(ROW_BUDGET, SAMPLE_SUBSETS)
        taken = density.arguments.take(block, data)
        sample = density.for_layout(layout, density.arguments.replace(taken))
        _compare(sample, taken, density.local(point, block), density.local(z, block))
    else:
        logger.info("split checked on all %d rows, on the host: energy only (the model fixes their number)", num_rows)
        _compare_energy(density, data, point)


def _takes_size_from_arguments(density: ModelDensity, data: Data) -> bool:
    """Whether the untouched model, on fewer rows, has a smaller plate."""
    if density.mode == "index":
        return False
    args, kwargs = density.arguments.build(density.arguments.take(RowBlock(jnp.arange(2)), data))
    try:
        return describe_model(density.model.model, args, kwargs).plate_sizes[density.plate] == 2
    except (TypeError, ValueError, IndexError):
        return False


def _compare(density: ModelDensity, data: Data, point: Position, fallback: Position) -> None:
    whole_fn = jax.jit(jax.value_and_grad(partial(_host_energy, density)))
    whole, whole_grad = whole_fn(point, data)
    if not jnp.isfinite(whole):
        point = fallback
        whole, whole_grad = whole_fn(point, data)
    energies, split_grad = SplitPotential(density, density.hold(data)).energies_and_grad(point)
    compare_split(float(whole), np.asarray(energies.value), _flat(whole_grad), _flat(split_grad))


def _compare_energy(density: ModelDensity, data: Data, point: Position) -> None:
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        whole = jax.jit(partial(_host_energy, density))(point, data)
    compare_split(float(whole), np.asarray(SplitPotential(density, density.hold(data)).energies(point).value))


def _host_energy(density: ModelDensity, z: Position, data: Data) -> jax.Array:
    """The host's potential of the untouched model; the data are arguments, lest XLA folds them as constants."""
    args, kwargs = density.arguments.build(data)
    return jnp.asarray(potential_energy(density.model, args, kwargs, z))


def _jitter(z: Position) -> Position:
    rng = np.random.default_rng(1)
    return {name: u + (JITTER * rng.standard_normal(u.shape)).astype(u.dtype) for name, u in z.items()}


def _flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)] or [np.zeros(0)])
