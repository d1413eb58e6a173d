"""Finding the rows that every iteration reads: those of the largest influence, by :mod:`split_common.certainty`.

The same pass over all rows shows whether the total of a control variate is right (:mod:`split_common.reference`).
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree

from numpyro_split.potential.compensated import difference
from numpyro_split.potential.expansion import Reference, divided
from numpyro_split.potential.split_potential import SplitPotential
from split_common.certainty import PROBE_SCALE, PROBED_ROWS, Pieces, most_influential, probe_directions
from split_common.penalty import Batches
from split_common.reference import LARGEST_DISTANCE, check_total


def find_certainty_rows(
    potential: SplitPotential, reference: Reference, batches: Batches, likelihood_power: float
) -> np.ndarray | None:
    """The numbers of the rows to read always, ascending, or None where no row needs it. All rows are read.

    Args:
        potential: the potential whose rows are examined.
        reference: the expansion and its point.
        batches: how rows are drawn.
        likelihood_power: the power of the likelihood in the target.

    Raises:
        ValueError: where the total of the control variate is not that of its rows, by rounding.
    """
    assert reference.z is not None
    flat, unravel = ravel_pytree(reference.z)
    offsets = _center(potential, reference, likelihood_power) + _offsets(potential, reference)
    points = jax.vmap(unravel)(flat[None] + jnp.asarray(offsets, flat.dtype))
    size, taylor = min(PROBED_ROWS, *potential.subset_sizes), reference.taylor
    sums: dict[int, np.ndarray] = {}  # of the expansion's terms, by the first row of a piece

    @jax.jit
    def changes(potential: SplitPotential, first: jax.Array) -> tuple[jax.Array, jax.Array]:
        row_terms = potential.row_terms(jnp.minimum(first + jnp.arange(size), batches.num_rows - 1))

        rest, expansion = lax.map(lambda z: divided(taylor, row_terms, z), points)
        return rest[1::2] - rest[::2], expansion[1::2] - expansion[::2]

    def piece(first: int) -> np.ndarray:
        rest, expansion = (
            likelihood_power * np.asarray(x[:, : batches.num_rows - first], np.float64)
            for x in changes(potential, jnp.asarray(first))
        )
        sums[first] = expansion.sum(1)
        return rest

    pieces = Pieces(piece, range(0, batches.num_rows, size))
    rows = most_influential(pieces if potential.reads_sources else list(pieces), batches)
    if taylor is not None:
        new, old = (jax.tree.map(lambda x, at=at: x[at::2], points) for at in (1, 0))
        totals = likelihood_power * np.asarray(jax.vmap(taylor.change)(new, old), np.float64)
        check_total(totals, sum(sums.values(), np.zeros(len(totals))), math.sqrt(2) * PROBE_SCALE, str(flat.dtype))
    return rows


def _center(potential: SplitPotential, reference: Reference, likelihood_power: float) -> np.ndarray:
    """Offset from the reference to the point about which rows are examined, shape (D,): where the posterior is.

    That is the mode of the normal approximation where the reference is given and far from it, if that has less energy.
    """
    assert reference.z is not None
    flat, unravel = ravel_pytree(reference.z)
    if reference.step is None or reference.distance <= LARGEST_DISTANCE:
        return np.zeros(flat.size)
    new, old = (potential.energies(z) for z in (unravel(flat + jnp.asarray(reference.step, flat.dtype)), reference.z))
    weights = jnp.full(new.high.shape, likelihood_power).at[0].set(1.0)
    change = difference(*(jax.tree.map(lambda x: x * weights, energies) for energies in (new, old)))
    return reference.step if change < 0 else np.zeros(flat.size)


def _offsets(potential: SplitPotential, reference: Reference) -> np.ndarray:
    """Offsets from the reference to the points at which rows are examined, shape (8, D).

    Where there is no normal approximation these are random directions, scaled so that the log-likelihood's second-order
    term is as large as it is on average under one.
    """
    assert reference.z is not None
    flat, unravel = ravel_pytree(reference.z)
    directions = probe_directions(flat.size)
    if reference.covariance is not None:
        return directions @ np.linalg.cholesky(reference.covariance).T
    tangents = jax.vmap(unravel)(jnp.asarray(directions, flat.dtype))
    products = potential.likelihood_hessian_products(reference.z, tangents)
    curvature = np.abs(np.sum(directions * np.asarray(jax.vmap(lambda p: ravel_pytree(p)[0])(products)), 1))
    return directions * np.sqrt(PROBE_SCALE**2 * flat.size / np.maximum(curvature, np.finfo(np.float32).tiny))[:, None]
