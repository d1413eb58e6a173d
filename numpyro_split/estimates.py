"""Estimating a change of energy from batches of rows, with its variance: formulae in :mod:`split_common.penalty`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from numpyro_split.control_variates import Taylor, controlled
from numpyro_split.densities import Position
from numpyro_split.minibatches import draw_rows
from numpyro_split.potential import SplitPotential
from split_common.penalty import Batches, Draws


class Estimate(NamedTuple):
    """A change of energy, known with noise.

    Attributes:
        change: U(new) - U(old), an unbiased estimate.
        chi2: estimate of its variance.
        num_batches: K that both rest on.
        energies: estimates of U(old) and U(new), shape (2,).
    """

    change: jax.Array
    chi2: jax.Array
    num_batches: jax.Array
    energies: jax.Array


class Estimator:
    """Estimates changes of the target's energy -log p(z) - s Σ_i ℓ_i(z) from batches of rows.

    Args:
        potential: whose rows are read.
        batches: how many.
        target: "posterior" (s = 1) or "expected" (s = n/N).
        taylor: the control variate, or None.
    """

    def __init__(self, potential: SplitPotential, batches: Batches, target: str, taylor: Taylor | None):
        self._potential, self._batches, self._taylor = potential, batches, taylor
        self._row_weight, self._temper = batches.row_weight(target), batches.temper(target)

    def __call__(self, new: Position, old: Position, num_groups: jax.Array, rng_key: jax.Array) -> Estimate:
        """Estimate U(new) - U(old).

        Args:
            new: a position.
            old: another.
            num_groups: how many times as many batches as the least number.
            rng_key: draws the rows.
        """
        points = jax.tree.map(lambda a, b: jnp.stack([a, b]), old, new)
        num_batches = num_groups * self._batches.num_batches
        changes, values = self._batch_sums(points, num_groups, rng_key)
        used = jnp.arange(changes.size) < num_batches
        mean = jnp.sum(changes, where=used) / num_batches
        between = jnp.sum((changes - mean) ** 2, where=used) / (num_batches - 1)

        prior = jax.vmap(self._potential.log_prior)(points)
        change, known = prior[1] - prior[0], prior
        if self._taylor is not None:
            of_expansion = self._temper * self._taylor.change(new, old)
            change += of_expansion
            known += self._temper * self._taylor.total(old) + jnp.stack([jnp.zeros(()), of_expansion])
        energies = -known - values / num_batches
        return Estimate(-change - mean, self._batches.chi2(between, num_batches), num_batches, energies)

    def _batch_sums(self, points: Position, num_groups: jax.Array, rng_key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Changes by batch, 0 for those not used, and the sum over batches of the terms at both points, shape (2,)."""
        groups = self._draw(rng_key)

        def add_group(group: jax.Array, sums: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            terms = self._row_weight * jax.vmap(lambda z: self._rest(z, groups(group)))(points)
            by_batch = (terms[1] - terms[0]).reshape(self._batches.num_batches, -1).sum(1)
            return sums[0].at[group].set(by_batch), sums[1] + terms.sum(1)

        zeros = (jnp.zeros((self._batches.max_groups, self._batches.num_batches)), jnp.zeros(2))
        if self._batches.max_groups == 1:
            changes, values = add_group(jnp.array(0), zeros)
        else:
            changes, values = lax.fori_loop(0, num_groups, add_group, zeros)
        return changes.ravel(), values

    def _rest(self, z: Position, rows: jax.Array) -> jax.Array:
        """What the control variate leaves of the log-likelihood of some rows, shape (n,)."""

        def row_terms(z: Position) -> jax.Array:
            return self._potential.pointwise_log_likelihood(z, rows)

        return controlled(self._taylor, row_terms, z)

    def _draw(self, rng_key: jax.Array) -> Callable[[jax.Array], jax.Array]:
        """From the number of a group of batches to its rows, shape (Kn,), batch by batch."""
        batches = self._batches
        size, num_rows = batches.batch_size * batches.num_batches, batches.num_rows
        if batches.draws is Draws.INDEPENDENT_ROWS:
            return lambda group: random.randint(random.fold_in(rng_key, group), (size,), 0, num_rows)
        if batches.draws is Draws.DISTINCT_ROWS:
            rows = draw_rows(rng_key, num_rows, size * batches.max_groups).reshape(batches.max_groups, size)
            return lambda group: rows[group]

        def each_distinct(group: jax.Array) -> jax.Array:
            keys = random.split(random.fold_in(rng_key, group), batches.num_batches)
            return jax.vmap(lambda key: draw_rows(key, num_rows, batches.batch_size))(keys).ravel()

        return each_distinct
