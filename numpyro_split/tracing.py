"""What has to be known before a chain starts, computed at once also where the host traces the start."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import jax
import jax.numpy as jnp
from jax.core import Tracer


def at_once() -> AbstractContextManager[None]:
    """A context in which operations on known values are carried out, not staged.

    Only asked of JAX where something is being traced (chains in parallel start so): it compiles every operation on
    known values for itself, those in functions that are compiled whole included (211 compilations for 122, once).
    """
    return jax.ensure_compile_time_eval() if isinstance(jnp.zeros(()), Tracer) else nullcontext()
