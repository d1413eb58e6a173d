"""The point that control variates expand about, and the directions in which they are worth a second order.

Both are found once, on all the data, by SciPy: the mode by L-BFGS, in float64 whatever the model computes in; the
leading eigenvectors of the log-likelihood's Hessian by Lanczos iteration, from products alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, eigsh

MAX_ITERATIONS = 500
# Relative: at a million rows a change of 1e-4, far below what tells one draw from another.
TOLERANCE = 1e-10


def find_mode(energy_and_grad: Callable[[np.ndarray], tuple[float, np.ndarray]], start: np.ndarray) -> np.ndarray:
    """Approximate minimum of a potential energy.

    Args:
        energy_and_grad: value and gradient, shape (D,), at a point of shape (D,).
        start: where to begin, shape (D,).

    Returns:
        The best point found, shape (D,), float64. A point that is not quite the mode makes control variates worse,
        never wrong.

    Example:
        >>> find_mode(lambda x: (float(((x - 2.0) ** 2).sum()), 2 * (x - 2.0)), np.zeros(2)).round(6)
        array([2., 2.])
    """
    found = minimize(
        lambda x: energy_and_grad(x),
        np.asarray(start, np.float64),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": MAX_ITERATIONS, "ftol": TOLERANCE, "gtol": 0.0, "maxcor": 20},
    )
    return found.x


def leading_directions(product: Callable[[np.ndarray], np.ndarray], size: int, rank: int) -> np.ndarray:
    """Eigenvectors of the eigenvalues of largest magnitude.

    Args:
        product: a symmetric matrix times a vector, both of shape (D,).
        size: D.
        rank: how many, below D.

    Returns:
        Orthonormal columns, shape (D, rank).

    Example:
        >>> abs(leading_directions(lambda v: np.array([1.0, 5.0, 2.0]) * v, 3, 1)).round(6).ravel()
        array([0., 1., 0.])
    """
    operator = _Products(product, size)
    host: Any = eigsh  # whose annotation has an integer tolerance
    return host(operator, k=rank, v0=np.ones(size), tol=1e-3)[1]


class _Products(LinearOperator):
    """A symmetric matrix known by its products with vectors."""

    def __init__(self, product: Callable[[np.ndarray], np.ndarray], size: int):
        super().__init__(np.float64, (size, size))
        self._product = product

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        return self._product(np.ravel(x))


def covariance_of(precision: np.ndarray) -> np.ndarray | None:
    """Inverse of a matrix of shape (D, D), or None unless it is that of a proper normal distribution."""
    precision = np.asarray(precision, np.float64)
    try:
        root = np.linalg.cholesky(precision)
    except np.linalg.LinAlgError:
        return None
    inverse_root = np.linalg.inv(root)
    return inverse_root.T @ inverse_root
