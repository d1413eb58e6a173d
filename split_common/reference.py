r"""Expansions of the log-likelihood about a fixed reference, row by row, and how reference and directions are found.

With d = z - z*, g_i and H_i the gradient and Hessian of row i's log-likelihood ℓ_i at the reference z*, and U
orthonormal columns (all of them, or the few directions in which the second order matters most),

.. math:: T_i(z) = \ell_i(z^*) + g_i^\top d + \tfrac12 (P d)^\top H_i (P d), \qquad P = U U^\top.

The sum of T_i over *all* rows is known from Σ g_i and Uᵀ(Σ H_i)U, made once; so only ℓ_i - T_i, which is of third
order in d, is left to estimate from a few rows. T_i itself costs derivatives along d alone: no row's Hessian is ever
formed.

Reference and directions are found once, on all the data, by SciPy: the mode by L-BFGS, in float64 whatever the model
computes in; the leading eigenvectors of the log-likelihood's Hessian by Lanczos iteration, from products alone.

**Rounding.** What is estimated is :math:`\sum_i (\ell_i - T_i)`, and the total of the T_i is added. Any T whatever
leaves the target as it is, if the total is that of the rows' own T_i; where the two differ by :math:`\epsilon(z)`, the
draws are those of :math:`\pi(z) e^{\epsilon(z)}`. The reference need not be the mode for that, but the total must be
right to a small part of a nat over the posterior, and rounding may take it far from there: with P the precision of the
normal approximation and C its inverse, entries of P are rounded by :math:`\varepsilon P_{ii}`, which counts
:math:`\varepsilon P_{ii} C_{ii}` over the posterior. :math:`P_{ii} C_{ii}`, the factor of variance inflation of
parameter i, is :math:`1 + (\bar x / s)^2` for the slope of a covariate of mean :math:`\bar x` and standard deviation s
beside an intercept: 10⁶ for x = 1000 ± 1, where float32 has :math:`\varepsilon = 10^{-7}`. Three things are done.

* Where :math:`\max_i \varepsilon P_{ii} C_{ii}` is not small, the second order is computed anew in a basis B of all
  directions, in which the posterior is about standard normal: BᵀHB, from products of the rows' Hessians with B's
  columns, and :math:`w = B^{-1} d` in place of d. A row's numbers cancel before they are multiplied and added, so that
  rounding counts the root of the above. B itself may be inaccurate.
* A search for the mode that has stopped more than a standard deviation away, by :math:`\lambda^2 = \nabla U^\top C
  \nabla U`, starts again there in the coordinates u of :math:`z = z_0 + C^{1/2} u`.
* The total is compared with the sum, in float64, of the T_i as rows are given them, between points about the mode
  (:func:`check_total`); a kernel whose total is off by more than :data:`LARGEST_TOTAL_ERROR` refuses to run.

What is left is the rounding of each row's :math:`\ell_i` and T_i in the type of the model, of either sign, which grows
like the root of N and is part of the model as the host computes it.

Reference:
    Bardenet, Doucet and Holmes (2017), On Markov chain Monte Carlo methods for tall data, JMLR 18. Quiroz, Kohn,
    Villani and Tran (2019), Speeding up MCMC by efficient data subsampling, JASA 114.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, eigsh

MAX_ITERATIONS = 500
MAX_RESTARTS = 3  # of a search for the mode that stopped early
LARGEST_DISTANCE = 1.0  # from the mode, in posterior standard deviations, up to which a search has not stopped early
LARGEST_LOSS = 1e-3  # share of a nat that rounding the entries of a Hessian may cost
LARGEST_TOTAL_ERROR = 0.1  # nats by which an expansion's total may be off over a posterior standard deviation
# Relative tolerance: at a million rows a change of 1e-4, far below the differences between draws.
TOLERANCE = 1e-10


def find_mode(
    energy_and_grad: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: np.ndarray,
    covariance: np.ndarray | None = None,
) -> np.ndarray:
    """Approximate minimum of a potential energy.

    Args:
        energy_and_grad: value and gradient, shape (D,), at a point of shape (D,).
        start: where to begin, shape (D,).
        covariance: that of the normal approximation there, in whose standard deviations to search, shape (D, D); None
            to search in the parameters themselves.

    Returns:
        The best point found, shape (D,), float64. A point that is not quite the mode makes control variates worse, and
        is not wrong for as long as their total is right (:func:`check_total`).

    Example:
        >>> find_mode(lambda x: (float(((x - 2.0) ** 2).sum()), 2 * (x - 2.0)), np.zeros(2)).round(6)
        array([2., 2.])
    """
    options = {"maxiter": MAX_ITERATIONS, "ftol": TOLERANCE, "gtol": 0.0, "maxcor": 20}
    start = np.asarray(start, np.float64)
    if covariance is None:
        return minimize(lambda x: energy_and_grad(x), start, jac=True, method="L-BFGS-B", options=options).x
    root = np.linalg.cholesky(covariance)

    def in_deviations(u: np.ndarray) -> tuple[float, np.ndarray]:
        energy, grad = energy_and_grad(start + root @ u)
        return energy, root.T @ grad

    zero = np.zeros_like(start)
    return start + root @ minimize(in_deviations, zero, jac=True, method="L-BFGS-B", options=options).x


def leading_directions(product: Callable[[np.ndarray], np.ndarray], size: int, rank: int) -> np.ndarray:
    """Eigenvectors of the eigenvalues of largest magnitude.

    Args:
        product: a symmetric matrix times a vector, both of shape (D,).
        size: D.
        rank: number of eigenvectors, below D.

    Returns:
        Orthonormal columns, shape (D, rank).

    Example:
        >>> abs(leading_directions(lambda v: np.array([1.0, 5.0, 2.0]) * v, 3, 1)).round(6).ravel()
        array([0., 1., 0.])
    """
    operator = _Products(product, size)
    host: Any = eigsh  # its annotation says that the tolerance is an integer
    return host(operator, k=rank, v0=np.ones(size), tol=1e-3)[1]


class _Products(LinearOperator):
    """A symmetric matrix known by its products with vectors."""

    def __init__(self, product: Callable[[np.ndarray], np.ndarray], size: int):
        super().__init__(np.float64, (size, size))
        self._product = product

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        return self._product(np.ravel(x))


def covariance_of(precision: np.ndarray) -> np.ndarray | None:
    """Covariance of a precision matrix of shape (D, D); None unless that is positive definite."""
    precision = np.asarray(precision, np.float64)
    try:
        root = np.linalg.cholesky(precision)
    except np.linalg.LinAlgError:
        return None
    inverse_root = np.linalg.inv(root)
    return inverse_root.T @ inverse_root


def basis_for(precision: np.ndarray, spacing: float) -> np.ndarray | None:
    """A basis in which the normal distribution of a precision matrix is about standard, where rounding spoils that.

    Args:
        precision: the matrix P as it was computed, symmetric, shape (D, D).
        spacing: relative spacing of the numbers that it was computed in.

    Returns:
        Columns B, shape (D, D), so that BᵀPB is about the identity; None where P is accurate enough, and where it is
        not that of a mode, whatever its rounding.

    Example:
        >>> close = np.array([[1.0, 1000.0], [1000.0, 1000001.0]])  # an intercept and x = 1000 ± 1, 1 row
        >>> basis = basis_for(close, spacing=1e-7)
        >>> bool(abs(basis.T @ close @ basis - np.eye(2)).max() < 1e-3)
        True
        >>> basis_for(close, spacing=1e-16) is None
        True
    """
    precision = np.asarray(precision, np.float64)
    covariance, diagonal = covariance_of(precision), np.diag(precision)
    if covariance is not None and spacing * np.max(diagonal * np.diag(covariance)) <= LARGEST_LOSS:
        return None
    if not np.all(np.isfinite(precision)) or np.any(diagonal <= 0):
        return None
    scale = 1 / np.sqrt(diagonal)
    values, vectors = np.linalg.eigh(scale[:, None] * precision * scale)
    if values[0] < -LARGEST_LOSS * values[-1]:  # not by rounding
        return None
    return scale[:, None] * vectors / np.sqrt(np.maximum(np.abs(values), spacing * values[-1]))


def step_to_mode(grad: np.ndarray, covariance: np.ndarray | None) -> tuple[np.ndarray | None, float]:
    """Offset to the mode of a normal approximation, shape (D,), and its length λ in standard deviations.

    Args:
        grad: gradient of the energy, shape (D,).
        covariance: that of the normal approximation, shape (D, D); None where there is none: no step, of length 0.

    Example:
        >>> step_to_mode(np.array([4.0]), np.array([[0.25]]))
        (array([-1.]), 2.0)
    """
    if covariance is None:
        return None, 0.0
    step = -covariance @ grad
    return step, float(np.sqrt(max(0.0, -(grad @ step))))


def check_total(totals: np.ndarray, sums: np.ndarray, distance: float, dtype: str) -> None:
    """Raise where an expansion's total is not the sum of what rows are given, so that draws would be off.

    An error that is linear in z has a change between random points that is normal, of standard deviation ``distance``
    times that over the posterior.

    Args:
        totals: changes of the total between pairs of points, shape (P,).
        sums: sums over all rows of the changes of their terms, shape (P,).
        distance: of the two points of a pair in each direction, in posterior standard deviations, on average.
        dtype: name of the type that the expansion was computed in.

    Raises:
        ValueError: where they differ by more than 0.1 nats over a posterior standard deviation.
    """
    off = totals - sums
    error = float(np.sqrt(np.mean(off[np.isfinite(off)] ** 2))) / distance if np.isfinite(off).any() else 0.0
    if error > LARGEST_TOTAL_ERROR:
        remedy = "" if dtype == "float64" else "compute in float64, "
        raise ValueError(
            "control_variate must have a sum over all rows that is known to within "
            f"{LARGEST_TOTAL_ERROR} nats over a posterior standard deviation, got one that {dtype} rounds by "
            f"{error:.2g} nats, so that draws would come from another distribution; centre or standardise the inputs, "
            f"{remedy}or take control_variate=None"
        )
