"""Warnings after the first draws of a run, from sums in the state: divergences and slowly explored energies.

The host does not tell a kernel when a run ends, so there is one warning after the first draws; the kernel's ``report``
describes the whole run.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from numpyro_split.potential.tracing import call_back
from split_common.health import DRAWS_BEFORE_WARNING, LEAST_BFMI, warn_of_first_draws


class Health(NamedTuple):
    """Sums over the draws of one chain.

    Attributes:
        num_diverging: number of draws whose trajectory diverged.
        first: the first energy, from which the mean is counted: of large energies single precision would lose it.
        mean: mean of the energies, less the first.
        squares: sum of their squared distances from the mean.
        changes: sum of their squared changes from draw to draw.
        last: the last energy.
    """

    num_diverging: jax.Array
    first: jax.Array
    mean: jax.Array
    squares: jax.Array
    changes: jax.Array
    last: jax.Array

    @classmethod
    def none(cls) -> Health:
        """Sums over no draws."""
        zero = jnp.zeros(())
        return cls(jnp.zeros((), jnp.result_type(int)), zero, zero, zero, zero, zero)

    def with_draw(self, number: jax.Array, energy: jax.Array, diverging: jax.Array) -> Health:
        """The sums with one more draw; its number counts from 1 after warm-up, and numbers below 1 are ignored."""
        first = jnp.where(number > 1, self.first, energy)
        distance = (energy - first) - self.mean
        mean = self.mean + distance / jnp.maximum(number, 1)
        change = jnp.where(number > 1, energy - self.last, 0.0)
        counted = Health(
            num_diverging=self.num_diverging + diverging,
            first=first,
            mean=mean,
            squares=self.squares + distance * (energy - first - mean),
            changes=self.changes + change**2,
            last=energy,
        )
        return jax.tree.map(lambda new, old: jnp.where(number < 1, old, new.astype(old.dtype)), counted, self)

    @property
    def bfmi(self) -> jax.Array:
        """The energy Bayesian fraction of missing information."""
        return self.changes / self.squares


def warn_if_in_trouble(state: Any, num_warmup: int) -> None:
    """Warn once, for all chains together, if the first draws diverged or explored their energies slowly."""
    num_diverging, bfmi = jnp.sum(state.health.num_diverging), jnp.nanmin(state.health.bfmi)
    is_time = jnp.max(state.i) - num_warmup == DRAWS_BEFORE_WARNING
    warns = is_time & ((num_diverging > 0) | (bfmi < LEAST_BFMI))

    def warn(warns: Any, num_diverging: Any, bfmi: Any) -> None:
        # vectorised chains that do not share their iteration count evaluate both branches, so check again
        if warns:
            warn_of_first_draws(num_diverging, bfmi)

    lax.cond(warns, partial(call_back, warn), lambda *_: None, warns, num_diverging, bfmi)
