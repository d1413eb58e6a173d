"""Values that warm-up settled on, and how much they still changed at its end, noted in the state.

See :mod:`split_common.settling`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from numpyro.infer.hmc_util import HMCAdaptState

from numpyro_split.adaptation.step_size_and_metric import Adapter
from split_common.settling import Settled


def not_settled() -> Settled:
    """The values before warm-up, all unknown."""
    return Settled(*(jnp.full((), value, jnp.result_type(float)) for value in Settled()))


def settle(
    settled: Settled,
    i: jax.Array,
    adapter: Adapter,
    adapt_state: HMCAdaptState,
    learned: dict[str, jax.Array] | None = None,
) -> Settled:
    """The values after iteration ``i``; after warm-up they do not change.

    Args:
        settled: values so far.
        i: the iteration, counted from 0.
        adapter: adapter of step size and metric.
        adapt_state: current state of the adapter.
        learned: current values of what else adapts, by field.
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
    """Absolute log of the ratio of two values, as by :func:`split_common.settling.log_change`."""
    change = jnp.where((value > 0) & (old > 0), jnp.abs(jnp.log(value / old)), jnp.inf)
    return jnp.where(jnp.isnan(old), jnp.nan, change)


def distance(first: jax.Array, second: jax.Array) -> jax.Array:
    """Root mean square of the logs of the ratios of two arrays of variances."""
    logs = (jnp.log(jnp.maximum(x, jnp.finfo(x.dtype).tiny)) for x in (first, second))
    return jnp.sqrt(jnp.mean(jnp.subtract(*logs) ** 2))
