"""Values that warm-up settled on, and how much they still changed at its end, noted in the state.

See :mod:`split_common.settling`. In a state, what is not known is :data:`UNKNOWN` and not NaN, because
``jax_debug_nans``, with which users look for NaN in their models, stops at every NaN that a compiled function returns.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpyro.infer.hmc_util import HMCAdaptState

from numpyro_split.adaptation.step_size_and_metric import Adapter
from split_common.settling import Settled

UNKNOWN = -1.0  # in a state, a value that is not known; all values that are known are 0 or more


def not_settled() -> Settled:
    """The values before warm-up, all unknown."""
    return Settled(*(jnp.full((), UNKNOWN, jnp.result_type(float)) for _ in Settled()))


def told_by(settled: Settled) -> Settled:
    """The values of a state as arrays of NumPy, with NaN for what is not known."""
    found = (np.asarray(x) for x in settled)
    return Settled(*(np.where(x >= 0, x, np.nan) for x in found))


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
            found |= {name: value, name + "_change": jnp.where(is_end, log_change(value, old), UNKNOWN)}
        if window.num_of_metric:
            found["metric_change"] = jnp.where(is_end, distance(*adapter.variances(adapt_state)), UNKNOWN)
        return settled._replace(**{name: x.astype(getattr(settled, name).dtype) for name, x in found.items()})

    return lax.cond(is_middle | is_end, noted, lambda: settled)


def log_change(value: jax.Array, old: jax.Array) -> jax.Array:
    """Absolute log of the ratio of two values; unknown if the old one is, infinite if either is not positive."""
    change = jnp.where((value > 0) & (old > 0), jnp.abs(jnp.log(value / old)), jnp.inf)
    return jnp.where(old >= 0, change, UNKNOWN)


def distance(first: jax.Array, second: jax.Array) -> jax.Array:
    """Root mean square of the logs of the ratios of two arrays of variances."""
    logs = (jnp.log(jnp.maximum(x, jnp.finfo(x.dtype).tiny)) for x in (first, second))
    return jnp.sqrt(jnp.mean(jnp.subtract(*logs) ** 2))
