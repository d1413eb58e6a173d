"""Rules for arguments. Each failure names the argument, the rule and the value, before any work starts."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

LIKELY_REASON = (
    "likely the model uses a statistic of all rows (a column mean), rows depend on one another, or an argument "
    "is not what it seems (name the ones that hold rows with data_axes)"
)


class ModelNotSplittableError(ValueError):
    """The sum over subsets is not the model's own potential, so no split kernel would be exact.

    Example:
        >>> issubclass(ModelNotSplittableError, ValueError)
        True
    """


class NoFiniteStartError(ValueError):
    """The log-density is not finite where sampling would start."""


def check_positive_int(name: str, value: Any) -> int:
    """Return ``value`` as an int, or raise unless it is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(value)


def check_positive_float(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise unless it is finite and above 0."""
    if isinstance(value, bool) or not _is_scalar(value) or not math.isfinite(value) or not value > 0:
        raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
    return float(value)


def check_probability(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise unless it lies strictly between 0 and 1."""
    if isinstance(value, bool) or not _is_scalar(value) or not 0 < value < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}")
    return float(value)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Return ``value``, or raise unless it is one of ``choices``."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {list(choices)}, got {value!r}")
    return value


def check_callable(name: str, value: Any) -> Any:
    """Return ``value``, or raise unless it can be called."""
    if not callable(value):
        raise TypeError(f"{name} must be callable, got {type(value).__name__}")
    return value


def check_num_subsets(num_subsets: int, num_rows: int) -> int:
    """Return ``num_subsets``, or raise unless every subset gets at least one of ``num_rows`` rows."""
    check_positive_int("num_subsets", num_subsets)
    if num_subsets > num_rows:
        raise ValueError(
            f"num_subsets must be at most the number of rows in the data plate, {num_rows}, got {num_subsets}"
        )
    return num_subsets


def check_inverse_mass_matrix(
    value: Any, site_sizes: Mapping[str, int], dense: bool | Sequence[tuple[str, ...]]
) -> None:
    """Raise unless an initial inverse mass matrix fits the latent sites.

    Args:
        value: None, an array over all sites (sorted by name), or a dict from tuples of names to arrays.
        site_sizes: number of unconstrained values at each latent site.
        dense: the kernel's ``dense_mass`` or ``full_mass``.

    Raises:
        ValueError: when a name is unknown or a shape is neither (D,) nor, for a dense block, (D, D).
    """
    if value is None:
        return
    dense_blocks = [tuple(block) for block in dense] if not isinstance(dense, bool) else []
    blocks = value if isinstance(value, Mapping) else {tuple(sorted(site_sizes)): value}
    for names, matrix in blocks.items():
        unknown = [name for name in names if name not in site_sizes]
        if unknown:
            raise ValueError(f"inverse_mass_matrix must name latent sites {sorted(site_sizes)}, got {unknown}")
        size = sum(site_sizes[name] for name in names)
        is_dense = dense is True or tuple(names) in dense_blocks
        allowed = [(size, size)] if is_dense else [(size,)]
        if tuple(matrix.shape) not in allowed:
            raise ValueError(
                f"inverse_mass_matrix for sites {list(names)} must have shape {allowed[0]} "
                f"(their {size} unconstrained values), got {tuple(matrix.shape)}"
            )


def check_mass_blocks(name: str, value: Any, site_sizes: Mapping[str, int] | None = None) -> None:
    """Raise unless ``value`` is a bool or a list of disjoint tuples of latent site names."""
    if isinstance(value, bool):
        return
    if not isinstance(value, list) or not all(isinstance(block, tuple) and block for block in value):
        raise ValueError(f"{name} must be a bool or a list of tuples of site names, got {value!r}")
    names = [site for block in value for site in block]
    if len(set(names)) != len(names):
        raise ValueError(f"{name} must name each site at most once, got {value!r}")
    unknown = [site for site in names if site_sizes is not None and site not in site_sizes]
    if unknown:
        raise ValueError(f"{name} must name latent sites {sorted(site_sizes or ())}, got {unknown}")


def choose_plate(requested: str | None, sizes: Mapping[str, int], candidates: Sequence[str]) -> str:
    """Return the name of the data plate.

    Args:
        requested: the user's ``plate``, or None to take the only candidate.
        sizes: size of every plate in the model.
        candidates: the plates that hold observations.

    Raises:
        ValueError: for an unknown name, no candidate, or several.
    """
    if requested is not None:
        if requested not in sizes:
            raise ValueError(
                f"plate must name a plate of the model, {sorted(sizes) or 'which has none'}, got {requested!r}"
            )
        return requested
    if not candidates:
        raise ValueError(
            "the model must hold its likelihood in a plate over the data rows, got no plate with observations; "
            'write `with plate("data", len(y)): sample("obs", ..., obs=y)`'
        )
    if len(candidates) > 1:
        listed = ", ".join(f"{name!r} (size {sizes[name]})" for name in candidates)
        raise ValueError(f"plate must be given when several plates hold observations: {listed}; got plate=None")
    return candidates[0]


def check_no_discrete(sites: Sequence[str]) -> None:
    """Raise when the model has discrete latent sites."""
    if sites:
        raise ValueError(
            f"every latent site must be continuous, got discrete latent sites {list(sites)}; marginalise them "
            "(for a mixture use MixtureSameFamily), or use NumPyro's DiscreteHMCGibbs"
        )


def check_data_axes(data_axes: Any, argument_names: Sequence[str]) -> None:
    """Raise unless ``data_axes`` is None or maps argument names to an axis or None."""
    if data_axes is None:
        return
    if not isinstance(data_axes, Mapping):
        raise TypeError(f"data_axes must map argument names to an axis or None, got {data_axes!r}")
    for name, axis in data_axes.items():
        if name not in argument_names:
            raise ValueError(f"data_axes must name model arguments {list(argument_names)}, got {name!r}")
        if axis is not None and (isinstance(axis, bool) or not isinstance(axis, int) or axis < 0):
            raise ValueError(f"data_axes[{name!r}] must be None or an axis of at least 0, got {axis!r}")


def check_lengths(lengths: Mapping[str, int]) -> None:
    """Raise unless every data argument has the same number of rows, and at least one."""
    for name, length in lengths.items():
        if length == 0:
            raise ValueError(f"data argument {name!r} must have at least one row, got 0 rows")
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise ValueError(f"data arguments must have equal length (rows), got: {listed}")


def raise_if_unequal(lengths: Mapping[str, int], error: Exception) -> None:
    """Raise a model's ``error`` as one of unequal data arguments, where they are unequal."""
    try:
        check_lengths(lengths)
    except ValueError as unequal:
        raise ValueError(f"{unequal} (the model fails with: {_first_line(error)})") from error


def check_row_axis(name: str, shape: tuple[int, ...], axis: int | None, num_rows: int) -> None:
    """Raise unless an argument named in ``data_axes`` has the plate's number of rows along its axis."""
    if axis is None:
        return
    if axis >= len(shape) or shape[axis] != num_rows:
        raise ValueError(
            f"data arguments must have equal length (rows): {name!r} must have {num_rows} along axis {axis}, "
            f"the size of the data plate, got shape {shape}"
        )


def argument_names(function: Callable[..., Any] | None, num_positional: int, kwargs: Mapping[str, Any]) -> list[str]:
    """Name of each positional argument as the signature has it, then of each keyword argument."""
    try:
        parameters = list(inspect.signature(function).parameters.values()) if function else []
    except (TypeError, ValueError):
        parameters = []
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    positional = [named[i] if i < len(named) else f"argument {i}" for i in range(num_positional)]
    return positional + list(kwargs)


def no_finite_start(arrays: Iterable[tuple[str, np.ndarray]]) -> NoFiniteStartError:
    """The error for a model whose log-density is finite nowhere, naming the data that make it so."""
    for name, x in arrays:
        if np.issubdtype(x.dtype, np.floating) and np.isnan(x).any():
            where = tuple(int(i) for i in np.argwhere(np.isnan(x))[0])
            return NoFiniteStartError(
                f"data argument {name!r} must not make the log-density NaN, got NaN at {list(where)}"
            )
    return NoFiniteStartError(
        "the model's log-density and its gradient must be finite at the start, got no such point in 100 tries; "
        "check the model, or give init_strategy or initial parameters"
    )


def check_sites(name: str, sizes: Mapping[str, int], expected: Mapping[str, int]) -> None:
    """Raise unless a position holds every latent site, with its number of unconstrained values."""
    if dict(sizes) != dict(expected):
        raise ValueError(
            f"{name} must hold the unconstrained values of every latent site, sizes {dict(expected)}, got {dict(sizes)}"
        )


def check_finite_start(energy: np.ndarray) -> None:
    """Raise unless the potential energy of every chain is finite at its initial parameters."""
    energy = np.atleast_1d(energy)
    if not np.all(np.isfinite(energy)):
        chain = int(np.argmin(np.isfinite(energy)))
        raise NoFiniteStartError(
            f"initial parameters must have a finite potential energy, got {energy[chain]} in chain {chain}"
        )


def compare_split(
    whole: float,
    energies: np.ndarray,
    whole_grad: np.ndarray | None = None,
    split_grad: np.ndarray | None = None,
) -> None:
    """Raise unless the terms of a split potential add up to the whole, in value and gradient.

    Args:
        whole: the model's own potential.
        energies: the prior's energy and those of the subsets, shape (M + 1,).
        whole_grad: its gradient, flat; None to compare values only.
        split_grad: the gradient summed over subsets, flat.

    Raises:
        ModelNotSplittableError: with both numbers and the likely reason.
    """
    tolerance = 1e-8 if energies.dtype == np.float64 else 1e-4
    energies = energies.astype(np.float64)
    split = float(energies.sum())
    if not np.any(energies[1:]):
        raise ModelNotSplittableError(
            f"the data plate must hold the likelihood, got a log-likelihood of 0 for all {len(energies) - 1} subsets "
            f"(the whole potential is {whole:.10g}): nothing in the plate depends on the data"
        )
    if not abs(whole - split) <= tolerance * max(np.abs(energies).sum(), 1.0):
        raise ModelNotSplittableError(
            f"the sum over subsets must equal the model's own potential, got {split:.10g} against {whole:.10g}; "
            + LIKELY_REASON
        )
    if whole_grad is None or split_grad is None:
        return
    norm, off = np.linalg.norm(whole_grad), np.linalg.norm(whole_grad - split_grad)
    if not off <= tolerance * max(norm, 1.0):
        raise ModelNotSplittableError(
            f"the gradient summed over subsets must equal the model's own, got norm {np.linalg.norm(split_grad):.10g} "
            f"against {norm:.10g}, a difference of {off:.3g}; " + LIKELY_REASON
        )


def neither_mode_splits(failures: Mapping[str, Exception]) -> ModelNotSplittableError:
    """The error for a model that neither sliced data nor plate indices divide exactly."""
    tried = {
        "slice": "with the data arguments cut to a subset's rows",
        "index": "with the plate yielding a subset's row numbers",
    }
    reports = "; ".join(f"{tried[mode]}: {_first_line(error)}" for mode, error in failures.items())
    return ModelNotSplittableError(f"the model does not divide over its data plate: {reports}")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _is_scalar(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def check_site_names(name: str, value: Any) -> list[str] | None:
    """Return ``value`` as a list, or None; raise unless it is a sequence of at least one name, each once."""
    if value is None:
        return None
    is_sequence = isinstance(value, Sequence) and not isinstance(value, str)
    if not is_sequence or not value or not all(isinstance(site, str) for site in value) or len(set(value)) < len(value):
        raise ValueError(f"{name} must be None or a list of site names, each once, got {value!r}")
    return list(value)
