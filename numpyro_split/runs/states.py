"""Conversion of a chain's state to arrays, and back."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from numpyro_split.kernels.state import is_typed
from split_common.errors import StoreError
from split_common.runs.packed import Packed


def pack_state(state: Any) -> Packed:
    """The arrays of a state, by their paths in it."""
    return Packed({}, {place: np.asarray(_numbers(x)) for place, x in _leaves(state)})


def unpack_state(packed: Packed, like: Any) -> Any:
    """A state made of packed arrays.

    Args:
        packed: made by :func:`pack_state`.
        like: a state of the same form.

    Raises:
        StoreError: for arrays of another form.
    """
    leaves = []
    for place, x in _leaves(like):
        expected, given = _numbers(x), packed.arrays.get(place)
        if given is None or given.shape != jnp.shape(expected) or given.dtype != expected.dtype:
            found = "nothing" if given is None else f"{given.dtype}{list(given.shape)}"
            raise StoreError(
                f"store must hold states of the form that the kernel has now, got {found} for {place}, which is "
                f"{expected.dtype}{list(jnp.shape(expected))}"
            )
        leaves.append(_like(jnp.asarray(given), x))
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def on_one_device(state: Any) -> Any:
    """Move a state that is replicated on several devices to one device of this process, as a state from a store is.

    So a program always takes states of the same kind and is compiled once, both for new and for resumed runs. This
    function is called after every piece of a run; a state on one device is returned as it is.
    """
    is_on_one = all(len(x.sharding.device_set) == 1 for x in jax.tree.leaves(state) if isinstance(x, jax.Array))
    return state if is_on_one else jax.tree.map(_on_one_device, state)


def _on_one_device(x: Any) -> Any:
    numbers = _numbers(x)
    if len(numbers.sharding.device_set) == 1 or not numbers.is_fully_replicated:
        return x
    return _like(jnp.asarray(np.asarray(numbers)), x)


def _like(numbers: jax.Array, x: Any) -> jax.Array:
    """An array, made a random key where ``x`` is one."""
    return random.wrap_key_data(numbers, impl=random.key_impl(x)) if is_typed(x) else numbers


def _leaves(state: Any) -> list[tuple[str, Any]]:
    return [(jax.tree_util.keystr(path), x) for path, x in jax.tree_util.tree_leaves_with_path(state)]


def _numbers(x: Any) -> Any:
    """An array, or the data of a random key as integers."""
    return random.key_data(x) if is_typed(x) else jnp.asarray(x)
