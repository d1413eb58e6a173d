"""Values that warm-up settled on, and how far they still moved, in the state (:mod:`split_common.settling`)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from numpyro.infer.hmc_util import HMCAdaptState

from numpyro_split.adaptation.step_size_and_metric import Adapter
from split_common.settling import Settled


def not_settled() -> Settled:
    """Before warm-up."""
    return Settled(*(jnp.full((), value, jnp.result_type(float)) for value in Settled()))


def settle(
    settled: Settled,
    i: jax.Array,
    adapter: Adapter,
    adapt_state: HMCAdaptState,
    learned: dict[str, jax.Array] | None = None,
) -> Settled:
    """Update after iteration ``i`` of warm-up; after warm-up everything stays as it is.

    Args:
        settled: what was known.
        i: the iteration, counted from 0.
        adapter: of step size and metric.
        adapt_state: its state now.
        learned: what else adapts, by field, as it is now.
    """
    window, num_over = adapter.last_window, i + 1
    if not window.end:
        return settled
    is_middle, is_end = num_over == window.middle, num_over == window.end

    def noted() -> Settled:
        found: dict[str, Any] = {}
        for name, value in {**adapter.averages(adapt_state), **(learned or {})}.items():
            old = getattr(settled, name)
            found |= {name: value, name + "_change": jnp.where(is_end, log_change(value, old), jnp.nan)}
        if window.num_of_metric:
            found["metric_change"] = jnp.where(is_end, distance(*adapter.variances(adapt_state)), jnp.nan)
        return settled._replace(**{name: x.astype(getattr(settled, name).dtype) for name, x in found.items()})

    return lax.cond(is_middle | is_end, noted, lambda: settled)


def log_change(value: jax.Array, old: jax.Array) -> jax.Array:
    """As :func:`split_common.settling.log_change`."""
    change = jnp.where((value > 0) & (old > 0), jnp.abs(jnp.log(value / old)), jnp.inf)
    return jnp.where(jnp.isnan(old), jnp.nan, change)


def distance(first: jax.Array, second: jax.Array) -> jax.Array:
    """Root mean square of the logs of the ratios of two arrays of variances."""
    logs = (jnp.log(jnp.maximum(x, jnp.finfo(x.dtype).tiny)) for x in (first, second))
    return jnp.sqrt(jnp.mean(jnp.subtract(*logs) ** 2))
