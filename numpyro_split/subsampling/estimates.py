"""Estimating a change of energy from batches of rows, with its variance.

Formulae are in :mod:`split_common.penalty`; those of single rows' influence are in :mod:`split_common.certainty`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from numpyro_split.potential.expansion import Taylor, controlled
from numpyro_split.potential.local_rows import LocalRows
from numpyro_split.potential.position import Position
from numpyro_split.potential.split_potential import SplitPotential
from numpyro_split.subsampling.rows import draw_rows
from split_common.certainty import tail_terms
from split_common.penalty import Batches, RowSampling


class Estimate(NamedTuple):
    """A noisy estimate of a change of energy.

    Attributes:
        change: U(new) - U(old), an unbiased estimate.
        chi2: estimate of its variance.
        num_batches: K, the number of batches behind both.
        energies: estimates of U(old) and U(new), shape (2,).
        tail_error: estimate of how far single rows may put the log-density off.
    """

    change: jax.Array
    chi2: jax.Array
    num_batches: jax.Array
    energies: jax.Array
    tail_error: jax.Array


class Sums(NamedTuple):
    """Sums over the rows that are read.

    Attributes:
        changes: weighted changes of the log-likelihood by batch, 0 for unused batches, shape (groups, K).
        values: sums of the weighted terms of all batches at both points, shape (2,).
        tail: estimate of the error caused by single rows, a scalar.
        certain_change: change of the rows that are always read.
        certain: sums of their terms at both points, shape (2,).
    """

    changes: jax.Array
    values: jax.Array
    tail: jax.Array
    certain_change: jax.Array
    certain: jax.Array


class DrawnFrom(NamedTuple):
    """The rows among which batches are drawn.

    Attributes:
        num_rows: number of these rows.
        row_at: from places among them to their numbers among all rows, or among those of a shard.
    """

    num_rows: Any
    row_at: Callable[[jax.Array], jax.Array]


class Estimator:
    """Estimates changes of the target's energy -log p(z) - s Σ_i ℓ_i(z) from batches of rows.

    Args:
        potential: the potential whose rows are read.
        batches: how rows are drawn.
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
        self.potential, self.taylor, self._certainty_rows = potential, taylor, certainty_rows
        self.batches = batches.beside(certainty_rows.shape[-1])._replace(num_shards=potential.num_shards)
        self._likelihood_power = self.batches.likelihood_power(target)

    def __call__(self, new: Position, old: Position, num_groups: jax.Array, rng_key: jax.Array) -> Estimate:
        """Estimate U(new) - U(old).

        Args:
            new: a position.
            old: another.
            num_groups: number of batches, as a multiple of the least number.
            rng_key: random key of the rows.
        """
        points = jax.tree.map(lambda a, b: jnp.stack([a, b]), old, new)
        num_batches = num_groups * self.batches.num_batches
        sums = self.potential.over_rows(self._sums, points, num_groups, rng_key, self.taylor, self._certainty_rows)
        changes = sums.changes.ravel()
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
            change += sums.certain_change
            known += sums.certain
        energies, chi2 = -known - sums.values / num_batches, self.batches.chi2(between, num_batches)
        # a proposal of infinite energy is rejected and counted as a divergence, so it says nothing about single rows
        tail = jnp.where(jnp.isfinite(sums.tail), sums.tail * self.batches.unread(num_batches), 0.0)
        return Estimate(-change - mean, chi2, num_batches, energies, tail)

    def _sums(
        self,
        rows: LocalRows,
        points: Position,
        num_groups: jax.Array,
        rng_key: jax.Array,
        taylor: Taylor | None,
        certainty_rows: jax.Array,
    ) -> Sums:
        """The sums over all rows, or over those of a shard."""
        drawn = self._drawn_from(rows, certainty_rows)
        groups, num_batches = self._draw(drawn, rows.own_key(rng_key)), self.batches.num_batches
        row_weight = self._likelihood_power * drawn.num_rows / self.batches.share  # s(N - C)/n, or of a shard

        def rest(z: Position, row_terms: Callable[[Position], jax.Array]) -> jax.Array:
            return controlled(taylor, row_terms, z)

        def add_group(group: jax.Array, sums: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            read = groups(group)
            of_read = rows.of_numbers(read)
            terms = row_weight * jax.vmap(lambda z: rest(z, lambda z: of_read.drawn(z, read)))(points)
            changes = terms[1] - terms[0]
            tail = jnp.sum(tail_terms(changes / (num_groups * num_batches)))
            by_batch = changes.reshape(num_batches, -1).sum(1)
            return sums[0].at[group].set(by_batch), sums[1] + terms.sum(1), sums[2] + tail

        zeros = (jnp.zeros((self.batches.max_groups, num_batches)), jnp.zeros(2), jnp.zeros(()))
        if self.batches.max_groups == 1:
            changes, values, tail = add_group(jnp.array(0), zeros)
        else:
            changes, values, tail = lax.fori_loop(0, num_groups, add_group, zeros)
        certain = jnp.zeros((2, 1))
        if self.batches.num_certain:
            of_these = rows.of_numbers(certainty_rows)
            of_certain = jax.vmap(lambda z: rest(z, lambda z: of_these.pointwise(z, certainty_rows)))
            certain = self._likelihood_power * of_certain(points)
        return Sums(changes, values, tail, jnp.sum(certain[1] - certain[0]), certain.sum(1))

    def _drawn_from(self, rows: LocalRows, certainty_rows: jax.Array) -> DrawnFrom:
        """The rows that are drawn from: those that are not always read."""
        if not self.batches.num_certain:
            return DrawnFrom(rows.num_rows, lambda places: places)
        if self.batches.num_shards == 1:
            # place j among the rows that are drawn is row j + (number of always-read rows before it)
            skipped = certainty_rows - jnp.arange(self.batches.num_certain)
            return DrawnFrom(
                self.batches.num_drawn, lambda places: places + jnp.searchsorted(skipped, places, side="right")
            )
        local, is_here = rows.here(certainty_rows)
        num_before = jnp.sum(local < 0)
        skipped = jnp.where(is_here, local - (jnp.arange(self.batches.num_certain) - num_before), rows.length)
        skipped = jnp.where(local < 0, -1, skipped)
        return DrawnFrom(
            rows.num_rows - jnp.sum(is_here),
            lambda places: places + jnp.searchsorted(skipped, places, side="right") - num_before,
        )

    def _draw(self, drawn: DrawnFrom, rng_key: jax.Array) -> Callable[[jax.Array], jax.Array]:
        """From the number of a group of batches to its rows, shape (Kn,), batch by batch."""
        places = self._draw_places(drawn.num_rows, rng_key)
        return lambda group: drawn.row_at(places(group))

    def _draw_places(self, num_drawn: Any, rng_key: jax.Array) -> Callable[[jax.Array], jax.Array]:
        """Like :meth:`_draw`, but gives places among the rows that are not always read."""
        batches = self.batches
        size = batches.share * batches.num_batches
        if batches.sampling is RowSampling.INDEPENDENT_ROWS:
            return lambda group: random.randint(random.fold_in(rng_key, group), (size,), 0, num_drawn)
        if batches.sampling is RowSampling.DISTINCT_ROWS:
            rows = draw_rows(rng_key, num_drawn, size * batches.max_groups).reshape(batches.max_groups, size)
            return lambda group: rows[group]

        def each_distinct(group: jax.Array) -> jax.Array:
            keys = random.split(random.fold_in(rng_key, group), batches.num_batches)
            return jax.vmap(lambda key: draw_rows(key, num_drawn, batches.batch_size))(keys).ravel()

        return each_distinct
