r"""Energies that survive float32 at a million rows.

A potential of 10⁶ rows is about 10⁶, where float32 resolves only 0.06, and an accept-reject decision needs the
*difference* of two of them to a hundredth. So each energy is held as an unevaluated sum high + low, formed by
error-free additions (Knuth's two-sum), and differences are taken subset by subset before anything is rounded.

Reference:
    Ogita, Rump and Oishi (2005), Accurate sum and dot product, SIAM J. Sci. Comput. 26(6).
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

PARTS, SHORT = 16, 64  # parts of a sum that are added side by side; length up to which entries are added one by one


class Compensated(NamedTuple):
    """Numbers held as high + low, each of any one shape.

    Attributes:
        high: the rounded sums.
        low: their rounding errors, which complete them.
    """

    high: jax.Array
    low: jax.Array

    @property
    def value(self) -> jax.Array:
        """The numbers, rounded."""
        return self.high + self.low


def compensated_sum(x: jax.Array) -> Compensated:
    """Sum every entry of ``x`` as if in twice its precision.

    Args:
        x: array of any shape.

    Returns:
        The sum, two scalars.

    Example:
        >>> import jax.numpy as jnp
        >>> float(compensated_sum(jnp.array([1e8, 1.0, -1e8], dtype=jnp.float32)).value)
        1.0
    """
    high = jnp.ravel(x)
    low, odd = jnp.zeros_like(high), []
    while high.size > SHORT:
        # PARTS parts are added side by side, which vectorises; without the barrier XLA would recompute the level below.
        # Entries left over from a level are added at the end, as padding would cost more
        even = high.size - high.size % PARTS
        odd.append((high[even:], low[even:]))
        high, low = (part[:even].reshape(PARTS, -1) for part in (high, low))
        high, low = lax.optimization_barrier(reduce(_add, zip(high, low, strict=True)))
    high, low = (jnp.concatenate(parts) for parts in zip((high, low), *odd, strict=True))
    zero = jnp.zeros((), high.dtype)
    return Compensated(*lax.reduce((high, low), (zero, zero), _add, (0,)))


def compensated_total(terms: list[jax.Array]) -> Compensated:
    """Sum every entry of every array in ``terms``; zero where there is none."""
    zero = jnp.zeros((), jnp.result_type(float))
    total = (zero, zero)
    for term in terms:
        total = _add(total, compensated_sum(term))
    return Compensated(*total)


def compensated_add(a: Compensated, b: Compensated) -> Compensated:
    """``a + b``, entry by entry."""
    return Compensated(*_add(a, b))


def difference(new: Compensated, old: Compensated) -> jax.Array:
    """Sum of ``new - old`` over all entries, each difference taken before the sum is rounded."""
    by_entry = (new.high - old.high) + (new.low - old.low)
    return compensated_sum(by_entry).value


def _add(a: tuple[jax.Array, jax.Array], b: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    high = a[0] + b[0]
    kept = high - a[0]
    lost = (a[0] - (high - kept)) + (b[0] - kept)
    return high, a[1] + (b[1] + lost)
