r"""A metric from draws and gradients: the geometric mean of the draws' covariance and the inverse of the gradients'.

With C the covariance of the draws of a window, and G that of the gradients of the potential there, the inverse mass
matrix is the positive definite solution of

.. math:: X G X = C, \qquad X = G^{-1/2} (G^{1/2} C G^{1/2})^{1/2} G^{-1/2}.

It is the one whose Fisher divergence between the draws and the normal distribution of covariance X is least. On a
normal target of covariance Σ the gradient is :math:`\Sigma^{-1}(z - \mu)`, so that :math:`G = \Sigma^{-1} C
\Sigma^{-1}` and :math:`X = \Sigma` *exactly*, from any window of more than D draws, correlated or not; the covariance C
alone comes near Σ as D/n tends to 0. What warm-up adapts is fixed before the first draw, so the target stays what it
was (:mod:`numpyro_split.adaptation.step_size_and_metric`).

Both covariances are taken in units of each coordinate in which draws and gradients have the same variance, and a
multiple of the identity is added to both: directions that a window has not seen keep these units, and so the diagonal
metric :math:`\sqrt{\mathrm{var}(z_i) / \mathrm{var}(\partial_i U)}`. The multiple is :data:`SHRINKAGE` for a window of
at most D draws, which cannot see all directions, and falls with :math:`(D/n)^2` beyond. Beyond
:data:`MAX_DENSE_SIZE` parameters the metric is of low rank (:mod:`split_common.low_rank_metric`).

X is computed from roots. Let :math:`C = A^T A` and :math:`G = R^T R`, with what was added. If the singular value
decomposition of :math:`A R^T` is :math:`U S V^T`, then :math:`R C R^T = V S^2 V^T`, so that

.. math:: X = R^{-1} (R C R^T)^{1/2} R^{-T} = Y Y^T, \qquad Y = R^{-1} V S^{1/2},

and the eigenvalues of X are the squares of the singular values of Y. Rounding changes a singular value by a share of
the largest one, but an eigenvalue of :math:`R C R^T` by that share of the *square* of the largest one, which in single
precision is more than the squares of those along directions that the window has not seen. From eigenvalues these
directions would come out of any length, or of none.

On the way to the posterior the variance along the way can be 10⁶ times that of all else, so that even singular values
are lost. The multiple is therefore never less than the rounding of the largest one (:func:`above_rounding`): a
direction that rounding hides counts as one that the window has not seen.

Since the draws need be neither many nor from the posterior, windows end as early as after :data:`EARLY_ENDS`
iterations, where the host's first metric comes after some hundred. Until there is a metric, a posterior of condition
number κ takes :math:`\sqrt\kappa` steps a trajectory, which was most of what a warm-up cost. The draws since the last
early window go into the host's first window of the metric. A kernel that is given an inverse mass matrix has no early
windows: they would replace it by one from few draws.

Reference:
    Seyboldt, Carlson and Carpenter (2026), Preconditioning Hamiltonian Monte Carlo by minimizing Fisher divergence,
    arXiv 2603.18845. Bhatia (2007), Positive Definite Matrices, chapter 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from split_common.checks import check_optional_choice
from split_common.values import shown

SHRINKAGE = 0.05  # multiple of the identity added to covariances of few draws, in units of equal variance
LEAST_SHRINKAGE = 1e-4  # so that single precision does not lose the rest
MAX_DENSE_SIZE = 500  # parameters up to which the metric is a dense matrix, of which roots are taken at window ends
EARLY_ENDS = (10, 20, 40)  # iterations after which early windows end, so that the way to the posterior soon drops out
METRICS = ("auto",)


def check_metric(metric: Any, dense: Any, dense_name: str, adapt_mass_matrix: bool) -> str | None:
    """Return ``metric``, or raise unless it is None, or "auto" and nothing else is asked of the mass matrix.

    Args:
        metric: the user's value.
        dense: the host's argument for dense blocks.
        dense_name: name of that argument.
        adapt_mass_matrix: whether the mass matrix adapts.

    Raises:
        ValueError: for another value, and for "auto" together with dense blocks or a mass matrix that stands still.

    Example:
        >>> check_metric("auto", False, "dense_mass", True)
        'auto'
    """
    chosen = check_optional_choice("metric", metric, METRICS)
    if chosen is not None and dense is not False:
        raise ValueError(
            f"{dense_name} must be False where metric is 'auto', which chooses its form, got {shown(dense)}"
        )
    if chosen is not None and not adapt_mass_matrix:
        raise ValueError("adapt_mass_matrix must be True where metric is 'auto', got False")
    return chosen


def uses_gradients(metric: str | None, size: int) -> bool:
    """Whether a metric of so many parameters is dense, from draws and gradients; beyond that it is of low rank."""
    return metric is not None and size <= MAX_DENSE_SIZE


def early_window_ends(window_ends: Sequence[int]) -> list[int]:
    """Numbers of iterations after which early windows of the metric end, all within the first window of the host's.

    Args:
        window_ends: number of iterations that have been made at the end of each of the host's windows, the first and
            the last of which adapt the step size alone.

    Example:
        >>> early_window_ends([75, 100, 150, 250, 300]), early_window_ends([15, 90, 100]), early_window_ends([15])
        ([10, 20, 40], [10], [])
    """
    return [end for end in EARLY_ENDS if len(window_ends) > 2 and end <= window_ends[0]]


def shrinkage(num_draws: Any, size: int) -> Any:
    """Multiple of the identity that is added to the covariances of so many draws of ``size`` parameters.

    Example:
        >>> shrinkage(10, 20), round(shrinkage(100, 20), 6)
        (0.05, 0.002)
    """
    share = (size / num_draws) ** 2
    multiple = SHRINKAGE * ((share < 1) * share + (share >= 1))
    is_least = multiple < LEAST_SHRINKAGE
    return is_least * LEAST_SHRINKAGE + (1 - is_least) * multiple


def metric_of_window(draws: Any, grads: Any, num_draws: Any, xp: Any) -> Any:
    """The inverse mass matrix from a window of warm-up.

    Args:
        draws: covariance of the draws, shape (D, D).
        grads: covariance of the gradients of the potential there, shape (D, D).
        num_draws: number of draws that the covariances are from.
        xp: the arrays' module, ``jax.numpy`` or ``torch``.

    Returns:
        X, shape (D, D), symmetric; entries that are not finite where a covariance has such.

    Example:
        >>> import numpy as np
        >>> covariance = np.array([[4.0, 1.0], [1.0, 1.0]])
        >>> precision, seen = np.linalg.inv(covariance), np.diag([3.0, 1.0])  # the window may be any, up to shrinkage
        >>> metric_of_window(seen, precision @ seen @ precision, 20, np).round(1).tolist()
        [[4.0, 1.0], [1.0, 1.0]]
    """
    unit = same_variance_units(xp.diagonal(draws), xp.diagonal(grads), xp)
    row, column = unit[None, :], unit[:, None]
    draws, grads = draws / row / column, grads * row * column
    multiple = above_rounding(shrinkage(num_draws, len(unit)), draws, grads, xp)
    added = multiple * xp.diag(xp.ones_like(unit))
    return geometric_mean(draws + added, grads + added, xp) * (row * column)


def above_rounding(multiple: Any, draws: Any, grads: Any, xp: Any) -> Any:
    """A multiple of the identity that is added to two covariances, or what rounding hides of them, if that is more.

    Args:
        multiple: the least multiple.
        draws: covariance of the draws.
        grads: covariance of the gradients.
        xp: the arrays' module.

    Example:
        >>> import numpy as np
        >>> large, small = np.diag([1e8, 1.0]), np.identity(2)
        >>> [round(float(above_rounding(0.05, x, x, np)), 2) for x in np.float32([large, small])]
        [11.92, 0.05]
    """
    size = xp.sqrt(xp.linalg.norm(draws)) * xp.sqrt(xp.linalg.norm(grads))
    rounding = xp.finfo(draws.dtype).eps * size
    return xp.where(rounding <= multiple, multiple, rounding)


def geometric_mean(draws: Any, grads: Any, xp: Any) -> Any:
    """The solution X of X G X = C, for two positive definite matrices.

    Args:
        draws: C, shape (D, D).
        grads: G, shape (D, D).
        xp: the arrays' module.

    Example:
        >>> import numpy as np
        >>> geometric_mean(np.diag([4.0, 1.0]), np.diag([1.0, 9.0]), np).round(3).tolist()
        [[2.0, 0.0], [0.0, 0.333]]
    """
    root = root_of_mean(xp.linalg.cholesky(draws).T, xp.linalg.cholesky(grads).T, xp)
    mean = root @ root.T
    return (mean + mean.T) / 2


def root_of_mean(draws: Any, grads: Any, xp: Any) -> Any:
    """A root Y of the geometric mean X = Y Yᵀ, from roots of the two matrices.

    Args:
        draws: A, of C = AᵀA, shape (n, D) with n of D or more.
        grads: B, of G = BᵀB, of the same shape.
        xp: the arrays' module.

    Example:
        >>> import numpy as np
        >>> root = root_of_mean(np.diag([2.0, 1.0]), np.diag([1.0, 3.0]), np)
        >>> (root @ root.T).round(3).tolist()
        [[2.0, 0.0], [0.0, 0.333]]
    """
    _, triangle = xp.linalg.qr(grads)
    _, values, right = xp.linalg.svd(draws @ triangle.T, full_matrices=False)
    return xp.linalg.solve(triangle, right.T * xp.sqrt(values)[None, :])


def same_variance_units(draws: Any, grads: Any, xp: Any) -> Any:
    """Units in which draws and gradients of these variances have equal variances; 1 where one of them is constant."""
    vary = (draws > 0) & (grads > 0)
    one = xp.ones_like(draws)
    return xp.sqrt(xp.sqrt(xp.where(vary, draws, one) / xp.where(vary, grads, one)))
