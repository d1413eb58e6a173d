"""The comparison of numbers: do the subsets add up to the model's own potential (:mod:`split_common.exactness`)?"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpyro.infer.util import potential_energy
from numpyro.optim import Adam

from numpyro_split.potential.arguments import Arguments, Data
from numpyro_split.potential.densities import ModelDensity
from numpyro_split.potential.derivatives import value_and_grad
from numpyro_split.potential.model_rows import describe_model
from numpyro_split.potential.position import Position
from numpyro_split.potential.row_block import RowBlock
from numpyro_split.potential.sources import first_rows, is_source, sources_in
from numpyro_split.potential.split_potential import SplitPotential
from split_common.errors import ModelNotSplittableError
from split_common.exactness import compare_differences, compare_split
from split_common.selection import cuts_data
from split_common.sources.rows import Source
from split_common.sources.rules import check_size_from_arguments
from split_common.start import no_finite_start
from split_common.subsets import SubsetLayout, extreme_rows

ROW_BUDGET = 2048
SAMPLE_SUBSETS = 5
JITTER = 0.1
TRIES = 20
FAR = (3.0, 10.0, 30.0, 100.0)  # standard deviations of far points
DESCENT = 100  # steps of the descent
STEP_SIZE = 0.05
MEMORY_SHARE = 0.5  # share of the free memory that an evaluation on all rows may take

Compare = Callable[[Position], tuple[Any, ...]]

logger = logging.getLogger(__name__)


def check_exact(density: ModelDensity, data: Data, z: Position, is_proved: bool, must_be_whole: bool = False) -> str:
    """Raise unless the subsets of ``density`` add up to the model.

    Args:
        density: the split model.
        data: its data arrays, concrete.
        z: a point with a finite density on some rows; points near it are compared.
        is_proved: whether rows are proved independent, so that one point is enough.
        must_be_whole: whether no sample of the rows stands for all, since a latent's size follows their number.

    Returns:
        What was compared, in words.

    Raises:
        ModelNotSplittableError: with both numbers.
    """
    num_rows = density.layout.num_rows
    sources = density.arguments.replace(data).sources
    done = f"all {num_rows} rows: energy and gradient"
    if num_rows <= ROW_BUDGET or must_be_whole:
        data = tuple(jnp.asarray(first_rows(x)) if is_source(x) else x for x in data)
        _compare(density, data, z, is_proved, with_grad=True)
    elif _takes_size_from_arguments(density, data, sources):
        done = f"a sample of {ROW_BUDGET} of {num_rows} rows: energy and gradient"
        rows = _rows_to_look_at(density, data)
        block = RowBlock(jnp.asarray(rows))
        layout = SubsetLayout(ROW_BUDGET, SAMPLE_SUBSETS, density.layout.subset_order)
        taken = density.arguments.take(block, data)
        sample = density.for_layout(layout, density.arguments.replace(taken))
        points, far = _compare(sample, taken, density.local(z, block), is_proved, with_grad=True)
        if not is_proved and _has_memory(density, data, z):
            if density.local_axes:  # a latent has an entry for each row
                points, far = _points_beside(density, data, z), []
            _compare_at(density, data, points, far, is_proved, with_grad=False)
            done += f"; all {num_rows} rows, on the host: energy"
    else:
        done = f"all {num_rows} rows, on the host: energy only (the model fixes their number)"
        _compare(density, data, z, is_proved, with_grad=False)
    logger.info("split checked on %s", done)
    return done


def _rows_to_look_at(density: ModelDensity, data: Data) -> np.ndarray:
    """Numbers of the rows to compare on, ascending; rows with extreme values are among them."""
    of_sources = np.concatenate([np.zeros(0, int), *(x.survey.extremes for x in sources_in(data))])
    arrays = [
        np.moveaxis(np.asarray(x), axis, 0)
        for x, axis in zip(data, density.arguments.axes, strict=True)
        if axis is not None and not is_source(x)
    ]
    return extreme_rows(arrays, ROW_BUDGET, density.layout.num_rows, of_sources)


def _takes_size_from_arguments(density: ModelDensity, data: Data, sources: Mapping[str, Source]) -> bool:
    """Whether the untouched model, on fewer rows, has a smaller plate; of rows that are not in memory it must."""
    if not cuts_data(density.mode):
        return False
    args, kwargs = density.arguments.build(density.arguments.take(RowBlock(jnp.arange(2)), data))
    try:
        takes_size = describe_model(density.model.model, args, kwargs).plate_sizes[density.plate] == 2
    except (TypeError, ValueError, IndexError):
        takes_size = False
    check_size_from_arguments(sources, takes_size)
    return takes_size


def _has_memory(density: ModelDensity, data: Data, z: Position) -> bool:
    """Whether the host has the memory for the model's own potential on all rows."""
    with _on_host():
        compiled = jax.jit(partial(_host_energy, density)).lower(z, data).compile()
    memory = compiled.memory_analysis()
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # the system does not tell its free memory
        return False
    return memory is not None and memory.temp_size_in_bytes < MEMORY_SHARE * free


def _compare(
    density: ModelDensity, data: Data, z: Position, is_proved: bool, with_grad: bool
) -> tuple[list[Position], list[Position]]:
    """Find points where the potential is finite, and compare there; returns these points, and those far away."""
    host = jax.jit(partial(_host_energy, density))
    is_finite = lambda point: bool(jnp.isfinite(host(point, data)))  # noqa: E731
    far: list[Position] = []
    with _on_host(not with_grad):
        points = [_finite_point(is_finite, z, density.arguments.replace(data))]
        if not is_proved:
            points += [point for point in _descent(density, data, points[0]) if is_finite(point)]
            far = [point for point in _far_points(z) if is_finite(point)]
    _compare_at(density, data, points, far, is_proved, with_grad)
    return points, far


def _points_beside(density: ModelDensity, data: Data, z: Position) -> list[Position]:
    """A few points beside ``z`` at which the model's own potential on all rows is finite."""
    rng, host = np.random.default_rng(4), jax.jit(partial(_host_energy, density))
    drawn = [{name: (JITTER * rng.standard_normal(u.shape)).astype(u.dtype) for name, u in z.items()} for _ in range(2)]
    points = [z, *({name: u + noise[name] for name, u in z.items()} for noise in drawn)]
    with _on_host():
        return [point for point in points if jnp.isfinite(host(point, data))]


def _far_points(z: Position) -> list[Position]:
    """Random points further and further away, where a model may take branches that it takes nowhere near a start."""
    rng = np.random.default_rng(3)
    return [
        {name: jnp.asarray(scale * rng.standard_normal(u.shape), u.dtype) for name, u in z.items()}
        for scale in FAR
        for _ in range(2)
    ]


def _finite_point(is_finite: Callable[[Position], bool], z: Position, arguments: Arguments) -> Position:
    """A point near ``z``, or between it and zero, at which the model's own potential is finite."""
    rng = np.random.default_rng(1)
    for i in range(TRIES):
        shrink = 1.0 if i < TRIES / 2 else 1.0 - (2 * i / TRIES - 1.0)
        point = {
            name: shrink * u + (JITTER * shrink * rng.standard_normal(u.shape)).astype(u.dtype) for name, u in z.items()
        }
        if is_finite(point):
            return point
    if is_finite(z):
        return z
    raise no_finite_start([(name, first_rows(x)) for name, x in arguments.named_arrays()])


def _descent(density: ModelDensity, data: Data, z: Position) -> list[Position]:
    """Points on the way down the split potential, each twice as far as the one before, and two beside the last."""
    potential, adam = SplitPotential(density, density.hold(data)), Adam(STEP_SIZE)

    @jax.jit
    def walk(state: Any, num_steps: int) -> Any:
        def step(_: int, state: Any) -> Any:
            return adam.update(potential.potential_and_grad(adam.get_params(state))[1], state)

        return lax.fori_loop(0, num_steps, step, state)

    state, points = adam.init(z), []
    for num_steps in (DESCENT // 4, DESCENT // 4, DESCENT // 2):
        state = walk(state, num_steps)
        points.append(adam.get_params(state))
    rng = np.random.default_rng(2)
    beside = [
        {name: u + (JITTER * rng.standard_normal(u.shape)).astype(u.dtype) for name, u in points[-1].items()}
        for _ in range(2)
    ]
    return points + beside


def _compare_at(
    density: ModelDensity,
    data: Data,
    points: list[Position],
    far: list[Position],
    is_proved: bool,
    with_grad: bool,
) -> None:
    """Compare at some points; in float64, where the model takes it, without a proof or where float32 differs too much.

    In a large float32 network rounding alone may exceed the tolerance. Between far points, where energies are large,
    rounding exceeds any difference that counts: there the potentials are compared, relative to their terms.
    """
    with _on_host(not with_grad):
        if is_proved:
            try:
                return _compare_numbers(_numbers(density, data, points, with_grad), [])
            except ModelNotSplittableError:
                compared = None if density.held.values else _numbers_in_float64(density, data, points, with_grad)
                if compared is None:
                    raise
        else:
            compared = _numbers_in_float64(density, data, [*points, *far], with_grad)
            if compared is None:
                compared = _numbers(density, data, [*points, *far], with_grad)
    return _compare_numbers(compared[: len(points)], [x for x in compared[len(points) :] if _has_finite_grad(x)])


def _compare_numbers(compared: list[tuple[Any, ...]], far: list[tuple[Any, ...]]) -> None:
    for numbers in (*compared, *far):
        compare_split(*numbers)
    compare_differences([whole for whole, *_ in compared], [energies for _, energies, *_ in compared])


def _has_finite_grad(numbers: tuple[Any, ...]) -> bool:
    """Whether the host's gradient at a point is finite, where it was computed."""
    _, _, *gradients = numbers
    return not gradients or bool(np.isfinite(gradients[0]).all())


def _numbers_in_float64(
    density: ModelDensity, data: Data, points: list[Position], with_grad: bool
) -> list[tuple[Any, ...]] | None:
    """The results of :func:`_numbers` in float64; None for a model that fixes a type."""
    wide = lambda x: jnp.asarray(np.asarray(x).astype(np.float64) if x.dtype.kind == "f" else x)  # noqa: E731
    try:
        with jax.enable_x64(True):
            return _numbers(density, jax.tree.map(wide, data), jax.tree.map(wide, points), with_grad)
    except (TypeError, ValueError):
        return None


def _numbers(density: ModelDensity, data: Data, points: list[Position], with_grad: bool) -> list[tuple[Any, ...]]:
    """For each point, the numbers that :func:`split_common.exactness.compare_split` compares."""
    potential, energy = SplitPotential(density, density.hold(data)), partial(_host_energy, density)
    if not with_grad:
        host = jax.jit(energy)
        return [(float(host(z, data)), np.asarray(potential.energies(z).value)) for z in points]
    host_and_grad = jax.jit(lambda z, data: value_and_grad(lambda z: energy(z, data), density.forward_mode)(z))
    found = []
    for z in points:
        (whole, whole_grad), (energies, split_grad) = host_and_grad(z, data), potential.energies_and_grad(z)
        found.append((float(whole), np.asarray(energies.value), _flat(whole_grad), _flat(split_grad)))
    return found


def _host_energy(density: ModelDensity, z: Position, data: Data) -> jax.Array:
    """The host's potential of the untouched model; the data are arguments, which XLA does not fold as constants."""
    args, kwargs = density.arguments.build(data)
    return jnp.asarray(potential_energy(density.model, args, kwargs, z))


def _on_host(wanted: bool = True) -> AbstractContextManager[Any]:
    return jax.default_device(jax.local_devices(backend="cpu")[0] if wanted else None)


def _flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)] or [np.zeros(0)])
