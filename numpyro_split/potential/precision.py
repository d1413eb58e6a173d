"""Matrix products in full float32 precision, which the decision of an exact sampler needs.

By default JAX multiplies float32 matrices in lower precision on accelerators: TF32 on NVIDIA's GPUs, bfloat16 on TPUs.
Differences of energy can then be wrong by more than a nat (docs/scale.md), so that a chain would sample a rough
potential, and the sums of :mod:`numpyro_split.potential.compensated` would add up rounded terms.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax

Function = TypeVar("Function", bound=Callable[..., Any])


def full_precision(function: Function) -> Function:
    """Decorator: a function multiplies matrices in full precision, unless the user has set JAX's default precision.

    A precision that a model asks of a single product (``precision=``) stays as it is.

    Example:
        >>> import jax.numpy as jnp
        >>> product = full_precision(lambda x: x @ x)
        >>> "Precision.HIGHEST" in str(jax.make_jaxpr(product)(jnp.eye(2)))
        True
    """

    @functools.wraps(function)
    def precise(*args: Any, **kwargs: Any) -> Any:
        if jax.config.jax_default_matmul_precision is not None:  # pyright: ignore[reportAttributeAccessIssue]
            return function(*args, **kwargs)
        with jax.default_matmul_precision("highest"):
            return function(*args, **kwargs)

    return precise  # type: ignore[return-value]
