"""The blocks of a mass matrix, as the hosts' ``dense_mass`` and ``full_mass`` ask for them; rules for a given one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from split_common.low_rank_metric import LowRank, check_low_rank_values
from split_common.values import copied, is_name, real_array, shown

MAX_FACTORISED = 2000  # rows of a matrix whose factorisation takes a fraction of a second


def mass_blocks(
    dense: bool | list[tuple[str, ...]], sites: Iterable[str], diagonal: Iterable[tuple[str, ...]] = ()
) -> dict[tuple[str, ...], bool]:
    """Divide sites into the blocks of a mass matrix.

    Args:
        dense: True for one dense block of all sites, False for none, or the dense blocks.
        sites: names of all sites.
        diagonal: blocks that are kept apart, diagonal unless they are among the dense ones.

    Returns:
        For each block, a tuple of site names, whether it is dense; sites in no other block, sorted, make the last.

    Example:
        >>> mass_blocks([("w", "b")], ["b", "c", "a", "w"])
        {('w', 'b'): True, ('a', 'c'): False}
    """
    sites = tuple(sorted(sites))
    asked = ([sites] if dense else []) if isinstance(dense, bool) else dense
    blocks = {tuple(block): True for block in asked}
    blocks |= {tuple(block): False for block in diagonal if tuple(block) not in blocks}
    rest = tuple(name for name in sites if not any(name in block for block in blocks))
    return {**blocks, rest: False} if rest else blocks


def check_mass_blocks(name: str, value: Any, site_sizes: Mapping[str, int] | None = None) -> Any:
    """Return ``value``, or raise unless it is a bool or a list of disjoint tuples of latent site names."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if not isinstance(value, list) or not all(_is_block(block) for block in value):
        raise ValueError(f"{name} must be a bool or a list of tuples of site names, got {shown(value)}")
    names = [site for block in value for site in block]
    if len(set(names)) != len(names):
        raise ValueError(f"{name} must name each site at most once, got {shown(value)}")
    unknown = [site for site in names if site_sizes is not None and site not in site_sizes]
    if unknown:
        raise ValueError(f"{name} must name latent sites {sorted(site_sizes or ())}, got {unknown}")
    return value


def dense_blocks(value: Any) -> bool | list[tuple[str, ...]]:
    """Which blocks of an inverse mass matrix that was given are dense, as the hosts' argument says it.

    Example:
        >>> dense_blocks({("w",): np.eye(2), ("b",): np.ones(1)}), dense_blocks(np.ones(3))
        ([('w',)], False)
    """
    if isinstance(value, Mapping):
        return [tuple(block) for block, matrix in value.items() if len(matrix.shape) == 2]
    return value is not None and len(value.shape) == 2


def check_mass_matrix_values(value: Any, host_array: type) -> Any:
    """Return an initial inverse mass matrix, or raise unless it can be one of some model.

    A list of numbers counts as an array. Whether shapes fit the model is for :func:`check_inverse_mass_matrix` to say.

    Args:
        value: what was given as ``inverse_mass_matrix``.
        host_array: the host's class of arrays. Those and NumPy's are copied, if of floating numbers; all others become
            NumPy's.

    Raises:
        ValueError: unless it is None, an array of finite real numbers of shape (D,) or (D, D), a metric of low rank, or
            a dict from tuples of site names, each named once, to such; with a diagonal above 0, a matrix symmetric and
            positive definite (to be so is checked up to 2,000 rows).
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        return _checked_matrix("inverse_mass_matrix", value, host_array, value)
    names = [site for block in value if _is_block(block) for site in block]
    if not value or not all(_is_block(block) for block in value) or len(set(names)) < len(names):
        raise ValueError(
            f"inverse_mass_matrix must map tuples of site names, each named once, to arrays, got {shown(value)}"
        )
    return {
        block: _checked_matrix(f"inverse_mass_matrix[{block!r}]", matrix, host_array, value)
        for block, matrix in value.items()
    }


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


def _is_block(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) > 0 and all(is_name(site) for site in value)


def _checked_matrix(where: str, matrix: Any, host_array: type, given: Any) -> Any:
    if isinstance(matrix, LowRank):
        return check_low_rank_values(where, matrix, host_array)
    found = real_array(matrix)
    if found is None or found.size == 0 or found.ndim not in (1, 2) or not np.all(np.isfinite(found)):
        raise ValueError(
            f"{where} must be an array of finite real numbers of shape (D,) or (D, D)"
            f"{', None or a dict of such' if matrix is given else ''}, got {shown(given)}"
        )
    if found.ndim == 2 and found.shape[0] != found.shape[1]:
        raise ValueError(f"{where} must have shape (D,) or (D, D), got shape {found.shape}: {shown(given)}")
    if not np.all((found if found.ndim == 1 else found.diagonal()) > 0):
        raise ValueError(f"{where} must have entries above 0 on its diagonal, got {shown(given)}")
    if found.ndim == 2:
        # rounding is that of the numbers which were given
        is_single = getattr(getattr(matrix, "dtype", None), "itemsize", 8) < 8
        rounding = np.sqrt(np.finfo(np.float32 if is_single else np.float64).eps) * np.abs(found).max()
        if np.abs(found / 2 - found.T / 2).max() > rounding / 2:  # halves do not overflow
            raise ValueError(f"{where} must be symmetric, got {shown(given)}")
        if not _is_positive_definite(found / 2 + found.T / 2):
            raise ValueError(f"{where} must be positive definite, got {shown(given)}")
        if not np.array_equal(found, found.T):  # momenta are drawn by a root, which is that of a symmetric matrix
            matrix = _symmetric_part(matrix, host_array, found)
    return copied(matrix) if _is_floating(matrix, host_array) else real_array(matrix)


def _symmetric_part(matrix: Any, host_array: type, found: np.ndarray) -> Any:
    """(A + Aᵀ)/2, of the class and type of an array of the host's or of NumPy's, else in double precision."""
    return matrix / 2 + matrix.T / 2 if _is_floating(matrix, host_array) else found / 2 + found.T / 2


def _is_floating(matrix: Any, host_array: type) -> bool:
    """Whether a value is an array of the host's or of NumPy's with floating-point entries."""
    return isinstance(matrix, host_array | np.ndarray) and "float" in str(getattr(matrix, "dtype", ""))


def _is_positive_definite(matrix: np.ndarray) -> bool:
    if len(matrix) > MAX_FACTORISED:
        return True  # the host will factorise it
    # scaled to a unit diagonal, so that no entry overflows
    scale = np.sqrt(matrix.diagonal())
    try:
        np.linalg.cholesky(matrix / scale / scale[:, None])
    except np.linalg.LinAlgError:
        return False
    return True
