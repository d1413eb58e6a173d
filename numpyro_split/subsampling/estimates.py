"""Estimating a change of energy from batches of rows, with its variance.

Formulae are in :mod:`split_common.penalty`, and in :mod:`split_common.certainty` those of single rows' influence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from numpyro_split.potential.expansion import Taylor, controlled
from numpyro_split.potential.position import Position
from numpyro_split.potential.split_potential import SplitPotential
from numpyro_split.subsampling.rows import draw_rows
from split_common.certainty import tail_terms
from split_common.penalty import Batches, RowSampling


class Estimate(NamedTuple):
    """A change of energy, known with noise.

    Attributes:
        change: U(new) - U(old), an unbiased estimate.
        chi2: estimate of its variance.
        num_batches: K that both rest on.
        energies: estimates of U(old) and U(new), shape (2,).
        tail_error: estimate of how far single rows may put the log-density off.
    """

    change: jax.Array
    chi2: jax.Array
    num_batches: jax.Array
    energies: jax.Array
    tail_error: jax.Array


class Estimator:
    """Estimates changes of the target's energy -log p(z) - s Σ_i ℓ_i(z) from batches of rows.

    Args:
        potential: whose rows are read.
        batches: how many of all rows.
        target: "posterior" (s = 1) or "expected" (s = n/N).
        taylor: the control variate, or None.
        certainty_rows: numbers of the rows that are always read, ascending, shape (C,).
    """

    def __init__(
        self,
        potential: SplitPotential,
        batches: Batches,
        target: str,
        taylor: Taylor | None,
        certainty_rows: jax.Array,
    ):
        self.potential, self.batches, self.taylor = potential, batches.beside(certainty_rows.shape[-1]), taylor
        self._certainty_rows = certainty_rows
        self._row_weight, self._likelihood_power = (
            self.batches.row_weight(target),
            self.batches.likelihood_power(target),
        )

    def __call__(self, new: Position, old: Position, num_groups: jax.Array, rng_key: jax.Array) -> Estimate:
        """Estimate U(new) - U(old).

        Args:
            new: a position.
            old: another.
            num_groups: how many times as many batches as the least number.
            rng_key: draws the rows.
        """
        points = jax.tree.map(lambda a, b: jnp.stack([a, b]), old, new)
        num_batches = num_groups * self.batches.num_batches
        changes, values, tail = self._batch_sums(points, num_groups, rng_key)
        used = jnp.arange(changes.size) < num_batches
        mean = jnp.sum(changes, where=used) / num_batches
        between = jnp.sum((changes - mean) ** 2, where=used) / (num_batches - 1)

        prior = jax.vmap(self.potential.log_prior)(points)
        change, known = prior[1] - prior[0], prior
        if self.taylor is not None:
            of_expansion = self._likelihood_power * self.taylor.change(new, old)
            change += of_expansion
            known += self._likelihood_power * self.taylor.total(old) + jnp.stack([jnp.zeros(()), of_expansion])
        if self.batches.num_certain:
            certain = self._likelihood_power * self._rest(points, self._certainty_rows)
            change += jnp.sum(certain[1] - certain[0])
            known += certain.sum(1)
        energies, chi2 = -known - values / num_batches, self.batches.chi2(between, num_batches)
        # a proposal whose energy is infinite is refused, and told of as a divergence: no fault of single rows
        tail = jnp.where(jnp.isfinite(tail), tail * self.batches.unread(num_batches), 0.0)
        return Estimate(-change - mean, chi2, num_batches, energies, tail)

    def _batch_sums(self, points: Position, num_groups: jax.Array, rng_key: jax.Array) -> tuple[jax.Array, ...]:
        """Changes by batch, 0 for those not used; sum over batches of both points' terms, shape (2,); tail's error."""
        groups = self._draw(rng_key)

        def add_group(group: jax.Array, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            terms = self._row_weight * self._rest(points, groups(group))
            changes = terms[1] - terms[0]
            tail = jnp.sum(tail_terms(changes / (num_groups * self.batches.num_batches)))
            by_batch = changes.reshape(self.batches.num_batches, -1).sum(1)
            return sums[0].at[group].set(by_batch), sums[1] + terms.sum(1), sums[2] + tail

        zeros = (jnp.zeros((self.batches.max_groups, self.batches.num_batches)), jnp.zeros(2), jnp.zeros(()))
        if self.batches.max_groups == 1:
            changes, values, tail = add_group(jnp.array(0), zeros)
        else:
            changes, values, tail = lax.fori_loop(0, num_groups, add_group, zeros)
        return changes.ravel(), values, tail

    def _rest(self, points: Position, rows: jax.Array) -> jax.Array:
        """Residuals of some rows' log-likelihood after the control variate, at both points, shape (2, n)."""
        row_terms = self.potential.row_terms(rows)
        return jax.vmap(lambda z: controlled(self.taylor, row_terms, z))(points)

    def _draw(self, rng_key: jax.Array) -> Callable[[jax.Array], jax.Array]:
        """From the number of a group of batches to its rows, shape (Kn,), batch by batch."""
        places = self._draw_places(rng_key)
        if not self.batches.num_certain:
            return places
        # place j among the rows that are drawn is row j + (how many of the others come before it)
        skipped = self._certainty_rows - jnp.arange(self.batches.num_certain)
        return lambda group: (at := places(group)) + jnp.searchsorted(skipped, at, side="right")

    def _draw_places(self, rng_key: jax.Array) -> Callable[[jax.Array], jax.Array]:
        """As :meth:`_draw`, of places among the rows that are drawn."""
        batches = self.batches
        size, num_drawn = batches.batch_size * batches.num_batches, batches.num_drawn
        if batches.sampling is RowSampling.INDEPENDENT_ROWS:
            return lambda group: random.randint(random.fold_in(rng_key, group), (size,), 0, num_drawn)
        if batches.sampling is RowSampling.DISTINCT_ROWS:
            rows = draw_rows(rng_key, num_drawn, size * batches.max_groups).reshape(batches.max_groups, size)
            return lambda group: rows[group]

        def each_distinct(group: jax.Array) -> jax.Array:
            keys = random.split(random.fold_in(rng_key, group), batches.num_batches)
            return jax.vmap(lambda key: draw_rows(key, num_drawn, batches.batch_size))(keys).ravel()

        return each_distinct
