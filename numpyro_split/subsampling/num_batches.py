"""Running statistics of the noise of estimates, by which the number of batches adapts and warnings are given."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from numpyro_split.potential.tracing import call_back
from numpyro_split.subsampling.estimates import Estimate
from split_common.certainty import LARGEST_TAIL_ERROR
from split_common.health import DRAWS_BEFORE_WARNING, WARN_ABOVE_SHARE
from split_common.penalty import TRUSTED_NOISE, Batches, growth_times, warn_of_noise, warn_of_tail


class NoiseState(NamedTuple):
    """Running statistics of the noise.

    Attributes:
        num_groups: the number of batches, as a multiple of the least.
        mean: mean of χ² times ``num_groups``, over the quarter of warm-up that is under way.
        count: number of iterations in that mean.
        mean_chi2: mean of χ² over the draws so far.
        share_above: share of the draws so far with χ² above K/4.
        mean_tail_error: mean over the draws so far of how far single rows may put the log-density off.
    """

    num_groups: jax.Array
    mean: jax.Array
    count: jax.Array
    mean_chi2: jax.Array
    share_above: jax.Array
    mean_tail_error: jax.Array

    @classmethod
    def start(cls) -> NoiseState:
        """Empty statistics and the least number of batches."""
        zero, none = jnp.zeros(()), jnp.zeros((), jnp.result_type(int))
        return cls(none + 1, zero, none, zero, zero, zero)


class NoiseAdapter:
    """Updates the statistics of the noise, and in warm-up the number of batches, which is fixed while sampling.

    Args:
        target_noise: χ² to aim at; None leaves the number of batches.
        batches: batches of the estimates.
        num_warmup: number of warm-up iterations.
    """

    def __init__(self, target_noise: float | None, batches: Batches, num_warmup: int):
        self._target_noise, self._batches, self._num_warmup = target_noise, batches, num_warmup

    def update(self, i: jax.Array, estimate: Estimate, noise: NoiseState) -> NoiseState:
        """Running statistics after iteration ``i``, counted from 0."""
        # a proposal without an energy is rejected, and says nothing of the noise
        is_known, num_draws = jnp.isfinite(estimate.chi2), jnp.maximum(i + 1 - self._num_warmup, 0)
        chi2 = jnp.where(is_known, estimate.chi2, noise.mean_chi2)
        tail_error = jnp.where(is_known, estimate.tail_error, 0.0)
        above = chi2 > TRUSTED_NOISE * estimate.num_batches
        weight = jnp.where(num_draws > 0, 1 / jnp.maximum(num_draws, 1), 0.0)
        noise = noise._replace(
            mean_chi2=noise.mean_chi2 + weight * (chi2 - noise.mean_chi2),
            share_above=noise.share_above + weight * (above - noise.share_above),
            mean_tail_error=noise.mean_tail_error + weight * is_known * (tail_error - noise.mean_tail_error),
        )
        if self._target_noise is None:
            return noise
        count = noise.count + is_known
        change = (chi2 * noise.num_groups - noise.mean) / jnp.maximum(count, 1)
        mean = noise.mean + jnp.where(is_known, change, 0.0)
        wanted = jnp.ceil(mean / self._target_noise).astype(noise.num_groups.dtype)
        wanted = jnp.where(count > 0, wanted, noise.num_groups)
        at_end = jnp.any(i + 1 == jnp.array(growth_times(self._num_warmup) or [-1]))
        groups = jnp.where(at_end, jnp.clip(wanted, 1, self._batches.max_groups), noise.num_groups)
        return noise._replace(num_groups=groups, mean=jnp.where(at_end, 0.0, mean), count=jnp.where(at_end, 0, count))


def warn_if_noisy(num_draws: jax.Array, num_batches: jax.Array, noise: NoiseState) -> None:
    """Warn once for all chains together if their first draws depend on noise that cannot be trusted.

    Noise cannot be trusted where it is large in many draws, or where single rows cause it.

    Args:
        num_draws: number of draws since warm-up; like every argument, of one chain or with a leading axis of chains.
        num_batches: K, the number of batches.
        noise: running statistics of the noise.
    """
    kept = (noise.share_above, noise.mean_chi2, num_batches, noise.mean_tail_error)
    share, chi2, num_batches, tail = (jnp.mean(x) for x in kept)
    warns = (jnp.max(num_draws) == DRAWS_BEFORE_WARNING) & ((share > WARN_ABOVE_SHARE) | (tail > LARGEST_TAIL_ERROR))

    def warn(warns: Any, share: Any, chi2: Any, num_batches: Any, tail: Any) -> None:
        # if num_draws differs between chains in a batch, both branches are evaluated: this one checks again
        if warns and share > WARN_ABOVE_SHARE:
            warn_of_noise(share, chi2, num_batches)
        elif warns:
            warn_of_tail(tail)

    told = (warns, share, chi2, num_batches, tail)
    lax.cond(warns, partial(call_back, warn), lambda *_: None, *told)
