"""The comparison of numbers: do the subsets add up to the model's own potential (:mod:`split_common.exactness`)?"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from pyro.infer.autoguide.initialization import init_to_value
from pyro.infer.mcmc.util import initialize_model
from pyro.ops.integrator import potential_grad

from pyro_split.host import is_numerical, unvalidated
from pyro_split.potential.densities import ModelDensity
from pyro_split.potential.host_density import HostDensity
from pyro_split.potential.model_rows import describe_model
from pyro_split.potential.position import Position
from pyro_split.potential.row_block import RowBlock
from pyro_split.potential.sources import first_rows, is_source, sources_in
from pyro_split.potential.split_potential import SplitPotential
from split_common.errors import ModelNotSplittableError, first_line
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
DESCENT = 100  # steps of the descent
STEP_SIZE = 0.05
FAR = (1.7, 3.0, 5.5, 10.0, 17.0, 30.0)  # standard deviations of points far out
SAME = 64  # number of roundings by which two runs at one point may differ, as where sums are in another order
ROUNDINGS = 100  # factor by which energies there may differ beyond the change that rounding a point makes
MEMORY_SHARE = 0.5  # share of the free memory that an evaluation on all rows may take
COPIES = 20  # copies of the data that a pass over all rows is assumed to need

logger = logging.getLogger(__name__)


def check_exact(
    density: ModelDensity, potential: SplitPotential, z: Position, is_proved: bool, must_be_whole: bool = False
) -> str:
    """Raise unless the subsets of ``density`` add up to the model.

    Args:
        density: the split model, bound to data.
        potential: the potential that will be sampled.
        z: a point with a finite density on some rows; points near it are compared.
        is_proved: whether rows are proved independent, so that one point is enough.
        must_be_whole: whether no sample of the rows stands for all, since a latent's size follows their number.

    Returns:
        What was compared, in words.

    Raises:
        ModelNotSplittableError: with both numbers.
    """
    num_rows = density.layout.num_rows
    sources = density.arguments.sources
    done = f"all {num_rows} rows: energy and gradient"
    if num_rows <= ROW_BUDGET or must_be_whole:
        if sources:
            density = density.for_rows(density.layout, RowBlock(torch.arange(num_rows), 0), z)
            potential = SplitPotential(density, density.arguments.data, jit_compile=False)
        _compare(density, potential, z, is_proved, with_grad=True)
    elif not density.held.numbers and _takes_size_from_arguments(density, sources):
        done = f"a sample of {ROW_BUDGET} of {num_rows} rows: energy and gradient"
        sample, cut = _sample_rows(density, z)
        data = sample.hold(sample.arguments.data)
        split = SplitPotential(sample, data, jit_compile=False)
        points = _compare(sample, split, cut, is_proved, with_grad=True, is_sample=True)
        if not is_proved and _has_memory(density):
            points = _points_beside(density, z) if density.local_axes else points  # a latent has an entry for each row
            _compare_at(density, potential, points, with_grad=False)
            done += f"; all {num_rows} rows: energy"
    else:
        done = f"all {num_rows} rows: energy only (the model fixes their number)"
        _compare(density, potential, z, is_proved, with_grad=False)
    logger.info("split checked on %s", done)
    return done


def _sample_rows(density: ModelDensity, z: Position) -> tuple[ModelDensity, Position]:
    """The same model on some rows, in a few subsets of unequal size, and a position on them."""
    data = density.arguments.data
    arrays = [
        x.detach().cpu().movedim(axis, 0).numpy()
        for x, axis in zip(data, density.arguments.axes, strict=True)
        if axis is not None and not is_source(x)
    ]
    of_sources = np.concatenate([np.zeros(0, int), *(x.survey.extremes for x in sources_in(data))])
    rows = extreme_rows(arrays, ROW_BUDGET, density.layout.num_rows, of_sources)
    block = RowBlock(torch.as_tensor(rows))
    cut = block.local(z, density.local_axes)
    layout = SubsetLayout(ROW_BUDGET, SAMPLE_SUBSETS, density.layout.subset_order)
    return density.for_rows(layout, block, cut), cut


def _takes_size_from_arguments(density: ModelDensity, sources: Mapping[str, Source]) -> bool:
    """Whether the untouched model, on fewer rows, has a smaller plate; of rows that are not in memory it must."""
    if not cuts_data(density.mode):
        return False
    few = RowBlock(torch.arange(2), 0)
    args, kwargs = density.arguments.build(density.arguments.take(few, density.arguments.data))
    try:
        takes_size = describe_model(density.model.model, args, kwargs).plate_sizes[density.plate or ""] == 2
    except (TypeError, ValueError, IndexError, RuntimeError):
        takes_size = False
    check_size_from_arguments(sources, takes_size)
    return takes_size


def _has_memory(density: ModelDensity) -> bool:
    """Whether there is memory for the model's own potential on all rows."""
    needed = COPIES * sum(x.numel() * x.element_size() for x in density.arguments.data)
    try:
        return needed < MEMORY_SHARE * os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # the system does not say
        return False


def _compare(
    density: ModelDensity,
    potential: SplitPotential,
    z: Position,
    is_proved: bool,
    with_grad: bool,
    is_sample: bool = False,
) -> list[Position]:
    """Find points where the potential is finite, and compare there; returns these points."""
    host = _host_potential(density, z, is_sample)

    def is_finite(point: Position) -> bool:
        with torch.no_grad(), unvalidated():
            return bool(torch.isfinite(host(point)))

    points = [_finite_point(is_finite, z, density)]
    _check_same_again(host, points[0])
    if not is_proved:
        points += [point for point in _descent(potential, points[0]) if is_finite(point)]
    _compare_at(density, potential, points, with_grad, is_sample)
    if not is_proved:
        _compare_far_out(host, potential, z)
    return points


def _points_beside(density: ModelDensity, z: Position) -> list[Position]:
    """A few points beside ``z`` at which the model's own potential on all rows is finite."""
    host, generator = _host_potential(density, z, is_sample=False), torch.Generator().manual_seed(4)
    points = [z, *({name: u + _noise(u, generator) for name, u in z.items()} for _ in range(2))]
    with torch.no_grad(), unvalidated():
        return [point for point in points if torch.isfinite(host(point))]


def _compare_far_out(host: Any, potential: SplitPotential, z: Position) -> None:
    """Compare energies far away, where a sampler seldom goes: equality near the start alone would show little."""
    generator = torch.Generator().manual_seed(3)
    for scale in FAR:
        drawn = {name: scale / JITTER * _noise(u, generator) for name, u in z.items()}
        for sign in (1.0, -1.0):
            point = {name: sign * u for name, u in drawn.items()}
            beside = {name: u * (1.0 + 4.0 * torch.finfo(u.dtype).eps) for name, u in point.items()}
            try:
                with torch.no_grad(), unvalidated():
                    whole, moved = float(host(point)), float(host(beside))
            except Exception as error:  # whatever a model raises: it may refuse such values itself
                logger.info("not compared %g sd away: the model raises %s there", scale, first_line(error))
                continue
            energies = _in_precision_of(point, potential.energies(point))
            is_rounding = abs(whole - float(energies.sum())) <= ROUNDINGS * abs(whole - moved)
            if np.isfinite(whole) and not is_rounding:
                compare_split(whole, energies)


def warn_unless_same_again(density: HostDensity, z: Position) -> bool:
    """Whether an undivided model's log-density is the same in two runs; warns where it is not, which the host allows.

    Args:
        density: the model's log-density.
        z: a point where it is finite.
    """
    data = density.arguments.data

    def run(z: Position) -> torch.Tensor:
        return -density.prior(z, data) - density.likelihood(z, data, torch.arange(1))

    differing = _differing(run, z)
    if differing:
        warnings.warn(f"draws will be of no posterior: {differing}", stacklevel=2)
    return not differing


def _check_same_again(host: Any, z: Position) -> None:
    """Raise where the model's own potential is another one in a second run."""
    if differing := _differing(host, z):
        raise ModelNotSplittableError(differing)


def _differing(potential: Callable[[Position], torch.Tensor], z: Position) -> str:
    """The two values of a potential in two runs at one point, in words; "" where they are the same."""
    with torch.no_grad(), unvalidated():
        once, again = float(potential(z)), float(potential(z))
    if abs(once - again) <= SAME * torch.finfo(next(iter(z.values())).dtype).eps * max(abs(once), 1.0) or once == again:
        return ""
    return (
        "the model's log-density must be a function of its parameters and its data, got "
        f"{-once:.10g} and {-again:.10g} from two runs at one point: draw random numbers outside the model and "
        "pass them as an argument, switch dropout off (`.eval()`), or keep nothing from run to run"
    )


def _finite_point(is_finite: Callable[[Position], bool], z: Position, density: ModelDensity) -> Position:
    """A point near ``z``, or between it and zero, at which the model's own potential is finite."""
    generator = torch.Generator().manual_seed(1)
    for i in range(TRIES):
        shrink = 1.0 if i < TRIES / 2 else 1.0 - (2 * i / TRIES - 1.0)
        point = {name: shrink * u + shrink * _noise(u, generator) for name, u in z.items()}
        if is_finite(point):
            return point
    if is_finite(z):
        return z
    raise no_finite_start([(name, first_rows(x)) for name, x in density.arguments.named_arrays()])


def _descent(potential: SplitPotential, z: Position) -> list[Position]:
    """Points on the way down the split potential, each twice as far as the one before, and two beside the last."""
    leaves = {name: u.detach().clone() for name, u in z.items()}
    adam, points = torch.optim.Adam(list(leaves.values()), lr=STEP_SIZE), []
    for i in range(DESCENT):
        for name, grad in potential.potential_and_grad(leaves)[1].items():
            leaves[name].grad = grad
        adam.step()
        if i + 1 in (DESCENT // 4, DESCENT // 2, DESCENT):
            points.append({name: u.detach().clone() for name, u in leaves.items()})
    generator = torch.Generator().manual_seed(2)
    return points + [{name: u + _noise(u, generator) for name, u in points[-1].items()} for _ in range(2)]


def _compare_at(
    density: ModelDensity,
    potential: SplitPotential,
    points: list[Position],
    with_grad: bool,
    is_sample: bool = False,
) -> None:
    """Compare at some points."""
    host, wholes, by_point = _host_potential(density, points[0], is_sample), [], []
    for point in points:
        energies = _in_precision_of(point, potential.energies(point))
        with unvalidated():
            if with_grad:
                whole_grad, whole = potential_grad(host, point)
                compare_split(float(whole), energies, _flat(whole_grad), _flat(potential.potential_and_grad(point)[1]))
            else:
                with torch.no_grad():
                    whole = host(point)
                compare_split(float(whole), energies)
        wholes.append(float(whole))
        by_point.append(energies)
    compare_differences(wholes, by_point)


def _host_potential(density: ModelDensity, z: Position, is_sample: bool) -> Any:
    """Pyro's own potential of the model; on all rows it reads anew whatever it reads with Python, as on the host."""

    def model(*args: Any, **kwargs: Any) -> Any:
        with nullcontext() if is_sample else density.model.readings.made_anew():
            return density.model(*args, **kwargs)

    args, kwargs = density.arguments.build(density.arguments.data)
    transforms = density.transforms_at(z)
    with torch.no_grad(), unvalidated():
        start = init_to_value(values={name: transforms[name].inv(u) for name, u in z.items()})  # the host runs it there
        _, host, *_ = initialize_model(
            model, args, kwargs, transforms=transforms, initial_params=z, init_strategy=start
        )
    return lambda z: _unless_rejected(host, z)


def _unless_rejected(host: Callable[[Position], torch.Tensor], z: Position) -> torch.Tensor:
    """The host's potential; NaN after a numerical error, as for a matrix that cannot be factorised.

    It is given copies, since some transforms keep results by the identity of a tensor, without its derivatives.
    """
    try:
        return host({name: u.clone() for name, u in z.items()})
    except RuntimeError as error:
        if not is_numerical(error):
            raise
        return next(iter(z.values())).new_tensor(float("nan"))


def _noise(u: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return JITTER * torch.randn(u.shape, generator=generator, dtype=u.dtype).to(u.device)


def _in_precision_of(z: Position, energies: torch.Tensor) -> np.ndarray:
    """Energies are float64 whatever the model; the tolerance is that of the roughest type among its latents."""
    types = [u.detach().cpu().numpy().dtype for u in z.values()]
    return energies.numpy().astype(min(types, key=lambda dtype: dtype.itemsize))


def _flat(z: Position) -> np.ndarray:
    return np.concatenate([z[name].detach().cpu().numpy().ravel() for name in sorted(z)])
