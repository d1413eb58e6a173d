"""Gradients, backwards or forwards: the latter for models with loops that cannot be differentiated backwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax


def value_and_grad(function: Callable[[Any], Any], forwards: bool, has_aux: bool = False) -> Callable[[Any], Any]:
    """A scalar function's value (with what it returns besides) and its gradient.

    Args:
        function: of one tree of arrays, a scalar; with ``has_aux`` also something else.
        forwards: derive forwards, which takes as many passes as there are parameters.
        has_aux: whether it returns something else.

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
