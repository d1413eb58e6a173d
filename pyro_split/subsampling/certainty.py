"""Finding the rows that every iteration reads: those of the largest influence, by :mod:`split_common.certainty`.

The same pass over all rows shows whether the total of a control variate is right (:mod:`split_common.reference`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from pyro_split.potential.expansion import Reference, divided
from pyro_split.potential.position import Position, flatten, unflatten
from pyro_split.potential.split_potential import SplitPotential
from split_common.certainty import PROBE_SCALE, PROBED_ROWS, Everyone, Pieces, most_influential, probe_directions
from split_common.penalty import Batches
from split_common.reference import LARGEST_DISTANCE, check_total


def find_certainty_rows(
    potential: SplitPotential, reference: Reference, batches: Batches, likelihood_power: float
) -> np.ndarray | None:
    """The numbers of the rows to read always, ascending, or None where no row needs it. All rows are read.

    Where rows lie over ranks, each rank examines its own rows, and all ranks choose together.

    Args:
        potential: the potential whose rows are examined.
        reference: the expansion and its point.
        batches: how rows are drawn.
        likelihood_power: the power of the likelihood in the target.

    Raises:
        ValueError: where the total of the control variate is not that of its rows, by rounding.
    """
    assert reference.z is not None
    flat, z = flatten(reference.z), reference.z
    offsets = _center(potential, reference, likelihood_power) + _offsets(potential, reference)
    points = [unflatten(flat + offset, z) for offset in torch.as_tensor(offsets).to(flat)]
    taylor, sums = reference.taylor, {}  # of the expansion's terms, by the first row of a piece

    def change(points: list[Position], row_terms: Callable[[Position], Tensor]) -> Tensor:
        old, new = (torch.stack(divided(taylor, row_terms, z)) for z in points)
        return new - old

    ranks = potential.ranks
    function, num_rows = potential.row_function(change, 2, list(z)), len(ranks.here)
    size = min(PROBED_ROWS, num_rows // potential.num_subsets)
    pairs = [points[at : at + 2] for at in range(0, len(points), 2)]

    def piece(first: int) -> np.ndarray:
        rows = (first + torch.arange(size)).clamp(max=num_rows - 1)
        found = [function.value(*inputs) for inputs in potential.row_inputs_of(pairs, rows)]
        changes = likelihood_power * torch.stack(found, 1).detach().cpu().double().numpy()[..., : num_rows - first]
        sums[first] = changes[1].sum(1)
        return changes[0]

    pieces = Pieces(piece, range(0, num_rows, size))
    everyone = Everyone(ranks.here.start, ranks.of_all)
    rows = most_influential(pieces if potential.reads_sources else list(pieces), batches, everyone)
    if taylor is not None:
        totals = likelihood_power * np.array([taylor.change(new, old) for old, new in pairs])
        by_rank = np.array(everyone.of_all(sum(sums.values(), np.zeros(len(pairs)))))
        check_total(totals, by_rank.sum(0), math.sqrt(2) * PROBE_SCALE, str(flat.dtype).removeprefix("torch."))
    return rows


def _center(potential: SplitPotential, reference: Reference, likelihood_power: float) -> np.ndarray:
    """Offset from the reference to the point about which rows are examined, shape (D,): where the posterior is.

    That is the mode of the normal approximation where the reference is given and far from it, if that has less energy.
    """
    assert reference.z is not None
    flat = flatten(reference.z)
    if reference.step is None or reference.distance <= LARGEST_DISTANCE:
        return np.zeros(len(flat))
    there = unflatten(flat + torch.as_tensor(reference.step).to(flat), reference.z)
    change = potential.energies(there) - potential.energies(reference.z)
    return reference.step if change[0] + likelihood_power * change[1:].sum() < 0 else np.zeros(len(flat))


def _offsets(potential: SplitPotential, reference: Reference) -> np.ndarray:
    """Offsets from the reference to the points at which rows are examined, shape (8, D).

    Where there is no normal approximation these are random directions, scaled so that the log-likelihood's second-order
    term is as large as it is on average under one.
    """
    assert reference.z is not None
    flat = flatten(reference.z)
    directions = probe_directions(len(flat))
    if reference.covariance is not None:
        return directions @ np.linalg.cholesky(reference.covariance).T
    tangents = unflatten(torch.as_tensor(directions).to(flat), reference.z)
    products = flatten(potential.likelihood_hessian_products(reference.z, tangents), batch_dims=1)
    curvature = np.abs(np.sum(directions * products.detach().cpu().double().numpy(), 1))
    return directions * np.sqrt(PROBE_SCALE**2 * len(flat) / np.maximum(curvature, np.finfo(np.float32).tiny))[:, None]
