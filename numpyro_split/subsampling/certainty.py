"""Finding the rows that every iteration reads: those of the largest influence, by :mod:`split_common.certainty`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree

from numpyro_split.potential.expansion import Reference, controlled
from numpyro_split.potential.position import Position
from numpyro_split.potential.split_potential import SplitPotential
from split_common.certainty import PROBE_SCALE, PROBED_ROWS, Pieces, most_influential, probe_directions
from split_common.penalty import Batches


def find_certainty_rows(
    potential: SplitPotential, reference: Reference, batches: Batches, likelihood_power: float
) -> np.ndarray | None:
    """The numbers of the rows to read always, ascending, or None where no row needs it. All rows are read.

    Args:
        potential: the potential whose rows are examined.
        reference: the expansion and its point.
        batches: how rows are drawn.
        likelihood_power: the power of the likelihood in the target.
    """
    assert reference.z is not None
    flat, unravel = ravel_pytree(reference.z)
    points = jax.vmap(unravel)(flat[None] + jnp.asarray(_offsets(potential, reference), flat.dtype))
    size = min(PROBED_ROWS, *potential.subset_sizes)

    @jax.jit
    def changes(potential: SplitPotential, first: jax.Array) -> jax.Array:
        row_terms = potential.row_terms(jnp.minimum(first + jnp.arange(size), batches.num_rows - 1))

        def rest(z: Position) -> jax.Array:
            return controlled(reference.taylor, row_terms, z)

        terms = lax.map(rest, points)
        return terms[1::2] - terms[::2]

    def piece(first: int) -> np.ndarray:
        found = changes(potential, jnp.asarray(first))[:, : batches.num_rows - first]
        return likelihood_power * np.asarray(found, np.float64)

    pieces = Pieces(piece, range(0, batches.num_rows, size))
    return most_influential(pieces if potential.reads_sources else list(pieces), batches)


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
