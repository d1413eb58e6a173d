"""Gradients in reverse or forward mode: the latter for models with loops that JAX cannot differentiate in reverse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax


def value_and_grad(function: Callable[[Any], Any], forwards: bool, has_aux: bool = False) -> Callable[[Any], Any]:
    """A scalar function's value (with its auxiliary output) and its gradient.

    Args:
        function: from one tree of arrays to a scalar; with ``has_aux`` to a scalar and an auxiliary output.
        forwards: use forward mode, which takes as many passes as there are parameters.
        has_aux: whether the function returns an auxiliary output.

    Example:
        >>> import jax.numpy as jnp
        >>> value, gradient = value_and_grad(lambda z: jnp.sum(z["x"] ** 2), True)({"x": jnp.array([1.0, 2.0])})
        >>> float(value), gradient["x"].tolist()
        (5.0, [2.0, 4.0])
    """
    if not forwards:
        return jax.value_and_grad(function, has_aux=has_aux)

    def with_itself(z: Any) -> tuple[Any, Any]:
        found = function(z)
        return (found[0] if has_aux else found), found

    def both(z: Any) -> tuple[Any, Any]:
        gradient, found = jax.jacfwd(with_itself, has_aux=True)(z)
        return found, gradient

    return both


def grad(function: Callable[[Any], Any], forwards: bool) -> Callable[[Any], Any]:
    """The gradient of a scalar function of one tree of arrays."""
    return jax.jacfwd(function) if forwards else jax.grad(function)
