"""Positions (unconstrained values by site) and arithmetic on them, which also serves momenta and gradients."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

Position = dict[str, jax.Array]


def zeros(z: Position) -> Position:
    """A position of zeros."""
    return jax.tree.map(jnp.zeros_like, z)


def add(x: Any, y: Any, scale: Any) -> Any:
    """``x + scale * y``, leaf by leaf, in the precision of ``x``."""
    return jax.tree.map(lambda a, b: a + (scale * b).astype(a.dtype), x, y)


def subtract(x: Any, y: Any) -> Any:
    """``x - y``, leaf by leaf."""
    return jax.tree.map(jnp.subtract, x, y)


def hold(x: Position, sites: Collection[str]) -> Position:
    """``x`` with zeros in some sites."""
    return {name: jnp.zeros_like(u) if name in sites else u for name, u in x.items()}


def where(condition: jax.Array, yes: Any, no: Any) -> Any:
    """``yes`` or ``no``, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def flatten(x: Position, sites: Iterable[str] | None = None) -> jax.Array:
    """The entries of some sites, or of all, shape (D,), the sites in JAX's order of a dict's keys."""
    return ravel_pytree({name: x[name] for name in (x if sites is None else sites)})[0]
