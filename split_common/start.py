"""Rules for the start of a chain: parameters at which its energy is finite, or the state of an earlier run."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np


class NoFiniteStartError(ValueError):
    """The log-density is not finite where sampling would start."""


def made_nan(arrays: Iterable[tuple[str, np.ndarray]]) -> NoFiniteStartError | None:
    """The error for data that make a log-density NaN, with the place of a NaN; None where the data have none."""
    for name, x in arrays:
        if np.issubdtype(x.dtype, np.floating) and np.isnan(x).any():
            where = tuple(int(i) for i in np.argwhere(np.isnan(x))[0])
            return NoFiniteStartError(
                f"data argument {name!r} must not make the log-density NaN, got NaN at {list(where)}"
            )
    return None


def no_finite_start(arrays: Iterable[tuple[str, np.ndarray]]) -> NoFiniteStartError:
    """The error for a model whose log-density is finite nowhere, naming the data that make it so."""
    return made_nan(arrays) or NoFiniteStartError(
        "the model's log-density and its gradient must be finite at the start, got no such point in 100 tries; "
        "check the model, or give init_strategy or initial parameters"
    )


def check_has_latents(sites: Collection[str]) -> None:
    """Raise when a model has no latent site."""
    if not sites:
        raise ValueError("model must have a latent site to sample, got one of which every sample site is observed")


def check_sites(name: str, sizes: Mapping[str, int], expected: Mapping[str, int]) -> None:
    """Raise unless a position holds every latent site, with its number of unconstrained values."""
    if dict(sizes) != dict(expected):
        raise ValueError(
            f"{name} must hold the unconstrained values of every latent site, sizes {dict(expected)}, got {dict(sizes)}"
        )


def check_shapes(name: str, shapes: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]]) -> None:
    """Raise unless a position holds every latent site, with its unconstrained values in their shape."""
    check_sites(name, *({site: math.prod(shape) for site, shape in of.items()} for of in (shapes, expected)))
    if dict(shapes) != dict(expected):
        raise ValueError(
            f"{name} must hold the unconstrained values of every latent site, shapes {dict(expected)}, got "
            f"{dict(shapes)}"
        )


def check_is_position(name: str, value: Any) -> None:
    """Raise unless a value can be a position, or is None."""
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict of unconstrained values by site, got {type(value).__name__}")


def check_names(z: Any, sites: Iterable[str]) -> None:
    """Raise unless a position has a value for each of these latent sites."""
    check_is_position("z", z)
    for name in sites:
        if name not in z:
            raise ValueError(
                f"z must hold an unconstrained value for every latent site, got none for {name!r} among {sorted(z)}"
            )


def check_finite_start(energy: Any, z: Mapping[str, Any]) -> None:
    """Raise unless the potential energy of every chain is finite at its initial parameters.

    Args:
        energy: energy of one chain, a scalar, or of several, shape (chains,).
        z: the initial parameters by site, unconstrained; with a leading axis of chains where there are several.
    """
    energy = np.asarray(energy)
    if np.all(np.isfinite(energy)):
        return
    chain = int(np.argmin(np.isfinite(np.atleast_1d(energy))))
    of_chain = {name: np.asarray(u)[chain] if energy.ndim else np.asarray(u) for name, u in z.items()}
    raise NoFiniteStartError(
        f"initial parameters must have a finite potential energy, got {np.atleast_1d(energy)[chain]}"
        f"{f' in chain {chain} of those that start together,' if energy.ndim else ''} at {reprlib.repr(of_chain)}"
    )


def check_is_state(kernel: str, state: Any) -> None:
    """Raise unless ``state`` is one of these kernels' states."""
    if not hasattr(state, "data_digest"):
        raise TypeError(f"post_warmup_state must be a state of {kernel}, got {type(state).__name__}")


def check_state_form(kernel: str, expected: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise unless a state has the arrays that a kernel's chains have on a model and its data.

    Args:
        kernel: name of the kernel.
        expected: shape and type of each array, by its place in the state.
        given: shape and type of each array of the given state.
    """
    for place in sorted({*expected, *given}):
        if expected.get(place) != given.get(place):
            raise ValueError(
                f"post_warmup_state must be a state of {kernel} with these arguments on this model and data of this "
                f"shape, got {given.get(place, 'nothing')} at {place}, where {expected.get(place, 'nothing')} is needed"
            )
