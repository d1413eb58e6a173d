r"""A metric of low rank plus diagonal from draws and gradients, for too many parameters for a dense one.

The inverse mass matrix is

.. math:: M^{-1} = S (I + U (\Lambda - I) U^T) S,

with S diagonal, the columns of U orthonormal and Λ diagonal. Powers of the middle factor are powers of Λ, so momenta,
velocities and energies take O(D × rank), and so does memory, besides the last :data:`MAX_DRAWS` draws and gradients of
the current window. With S the units in which draws and gradients of a window have the same variance, C and
G their covariances in these units (:mod:`split_common.gradient_metric`), :data:`SHRINKAGE` times the identity added to
both, the middle is the geometric mean of C and G⁻¹ within a span, and the identity beside it. Eigenvalues between
1/:data:`CUTOFF` and :data:`CUTOFF` count as 1: they are noise, or not worth their cost. All are squares of singular
values of roots, for single precision.

The span decides how well n draws show a long direction. Let λ be the variance along that direction, 1 that along all
others, and n < D. In the span of *all* draws and gradients both covariances are singular, and the mean gives about
(D + nλ)/(D + n) instead of λ: draws also have components in all other directions, which shrink it towards 1 as D more
draws of variance 1 would. In the span of a few *leading* directions the n draws are many, and the mean is λ if the
direction is among them. But only directions that stand out of the others lead. So there are two stages:

1. The mean in the span of the :data:`LEADING` leading directions, those of the largest eigenvalues, of the draws, of
   the gradients, and of draws minus gradients. (On a normal target of which all but a few directions have variance 1,
   a deviation of the draws differs from that of the gradients by something in these few alone, however little of them
   the chain has seen.) These directions say what is left for the diagonal, so S is taken from what is left of draws and
   gradients beside them, and the directions in these units once more, :data:`ROUNDS` times in all. (On independent
   coordinates with a few common factors, the units of the first round are far from those of what the factors leave.)
2. In the units of the first stage, the mean in the span of all draws and gradients, of which the :data:`MAX_RANK`
   eigenvalues farthest from 1 are kept.

The product of both, R (I + W (K - I) Wᵀ) R with R the root of the first middle, is again of the form above.

Reference:
    Seyboldt, Carlson and Carpenter (2026), Preconditioning Hamiltonian Monte Carlo by minimizing Fisher divergence,
    arXiv 2603.18845, whose algorithm is the second stage in the units of the first round.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from split_common.gradient_metric import MAX_DENSE_SIZE, above_rounding, root_of_mean, same_variance_units
from split_common.values import copied, real_array, shown

SHRINKAGE = 1e-3  # less than for a dense metric: a span has fewer directions than there are draws
CUTOFF = 2.0  # eigenvalues this near to 1, or their inverses, count as 1
LEADING = 5  # directions of draws, gradients and differences each, in the first stage: a window may have 25 draws
ROUNDS = 4  # rounds of the first stage
MAX_RANK = 50  # directions of the second stage
MAX_DRAWS = 200  # draws of a window that are kept, the latest
LEAST_LEFT = 1e-6  # share of a variance outside the leading directions above which it is more than rounding
ROUNDING = 1e-6  # departure of given directions from orthonormal ones above which they are made so


class LowRank(NamedTuple):
    """An inverse mass matrix S (I + U (Λ - I) Uᵀ) S, in arrays of NumPy, JAX or PyTorch; its inverse and its roots.

    Attributes:
        scales: the diagonal of S, shape (D,).
        directions: U, of orthonormal columns, shape (D, K).
        factors: the diagonal of Λ, shape (K,); 1 where a direction is like all others.

    Example:
        >>> metric = LowRank(np.array([1.0, 2.0]), np.array([[0.6], [0.8]]), np.array([4.0]))
        >>> metric.velocity(np.array([1.0, 0.0])).round(2).tolist(), metric.variances.round(2).tolist()
        ([2.08, 2.88], [2.08, 11.68])
    """

    scales: Any
    directions: Any
    factors: Any

    @classmethod
    def of_variances(cls, variances: Any) -> LowRank:
        """A diagonal metric, of rank 0."""
        return cls(variances**0.5, variances[:, None][:, :0], variances[:0])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that a diagonal metric would have: (D,), with a leading axis where there is one for chains."""
        return tuple(self.scales.shape)

    @property
    def variances(self) -> Any:
        """The diagonal of M⁻¹, shape (D,)."""
        return self.scales**2 * (1 + self.directions**2 @ (self.factors - 1))

    def velocity(self, p: Any) -> Any:
        """M⁻¹p for a momentum of shape (D,), or for several, shape (n, D)."""
        scales = _like(self.scales, p)
        return scales * powered(self.directions, self.factors, 1.0, scales * p)

    def momentum(self, v: Any) -> Any:
        """M v, the momentum of a velocity."""
        scales = _like(self.scales, v)
        return powered(self.directions, self.factors, -1.0, v / scales) / scales

    def unscale(self, p: Any) -> Any:
        """The standard normal variable that :meth:`scale` turned into a momentum."""
        return powered(self.directions, self.factors, 0.5, _like(self.scales, p) * p)

    def scale(self, r: Any) -> Any:
        """A momentum from N(0, M), made from a standard normal variable."""
        return powered(self.directions, self.factors, -0.5, r) / _like(self.scales, r)

    def padded(self, rank: int, xp: Any) -> LowRank:
        """The same, with directions of factor 1 up to a rank; ``xp`` is the arrays' module."""
        num_more, one = max(0, rank - len(self.factors)), xp.ones_like(self.scales[:1])
        directions = xp.concatenate((self.directions, *[0 * self.scales[:, None]] * num_more), 1)
        return LowRank(self.scales, directions, xp.concatenate((self.factors, *[one] * num_more)))

    def converted(self, array: Any) -> LowRank:
        """The same metric, with ``array`` applied to its fields."""
        return LowRank(*(array(x) for x in self))


def powered(directions: Any, factors: Any, power: float, x: Any) -> Any:
    """(I + U (Λ - I) Uᵀ)^power x, where x may be several, shape (n, D)."""
    return x + (_like(factors**power - 1, x) * (x @ directions)) @ directions.T


def _like(vector: Any, x: Any) -> Any:
    """A vector with leading axes added to match ``x``: JAX can be set to refuse implicit ones."""
    return vector[(None,) * (x.ndim - 1)]


def is_usable(metric: LowRank, xp: Any) -> Any:
    """Whether a metric is finite, and positive definite in spite of rounding; ``xp`` is the arrays' module."""
    is_finite = xp.isfinite(metric.scales.sum() + metric.directions.sum() + metric.factors.sum())
    return is_finite & (metric.factors > 0).all()


def uses_low_rank(metric: str | None, size: int) -> bool:
    """Whether a metric of so many parameters is made of low rank.

    Example:
        >>> uses_low_rank("auto", 500), uses_low_rank("auto", 501), uses_low_rank(None, 501)
        (False, True, False)
    """
    return metric is not None and size > MAX_DENSE_SIZE


def full_rank(size: int) -> int:
    """Directions that a metric of so many parameters may have."""
    return min(size, 3 * LEADING + MAX_RANK)


def has_low_rank(inverse_mass_matrix: Any) -> bool:
    """Whether an inverse mass matrix, or a block of one, is of low rank."""
    blocks = inverse_mass_matrix.values() if isinstance(inverse_mass_matrix, Mapping) else (inverse_mass_matrix,)
    return any(isinstance(block, LowRank) for block in blocks)


def check_low_rank_values(where: str, value: LowRank, host_array: type) -> LowRank:
    """Return a metric of low rank that was given, copied, or raise unless it can be one.

    Args:
        where: the argument's name.
        value: the user's value.
        host_array: the host's class of arrays. Those and NumPy's are copied; all others become NumPy's.

    Raises:
        ValueError: unless its fields are finite real numbers of shapes (D,), (D, K) and (K,), scales and factors above
            0 and directions orthonormal.
    """
    found = [real_array(x) for x in value]
    scales, directions, factors = found
    if any(x is None or not np.all(np.isfinite(x)) for x in found):
        raise ValueError(f"{where} of low rank must have fields of finite real numbers, got {shown(value)}")
    assert scales is not None
    assert directions is not None
    assert factors is not None
    if scales.ndim != 1 or factors.ndim != 1 or directions.shape != (len(scales), len(factors)):
        shapes = [x.shape for x in (scales, directions, factors)]
        raise ValueError(
            f"{where} of low rank must have scales, directions and factors of shapes (D,), (D, K) and (K,), of one "
            f"chain, got {shapes}"
        )
    if not (np.all(scales > 0) and np.all(factors > 0)):
        raise ValueError(f"{where} of low rank must have scales and factors above 0, got {shown(value)}")
    if not np.allclose(directions.T @ directions, np.identity(len(factors)), atol=1e-4):
        raise ValueError(f"{where} of low rank must have directions with orthonormal columns, got {shown(value)}")
    if np.abs(directions.T @ directions - np.identity(len(factors))).max(initial=0.0) > ROUNDING:
        return LowRank(scales, *_orthonormal(directions, factors))
    return value.converted(lambda x: copied(x) if isinstance(x, host_array | np.ndarray) else np.asarray(x))


def _orthonormal(directions: np.ndarray, factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal directions, and factors, of the same I + U (Λ - I) Uᵀ for a U that is orthonormal but for rounding.

    Powers of the metric assume UᵀU = I. Without it momenta would be drawn for another kinetic energy than the one that
    decides.
    """
    basis, triangle = np.linalg.qr(directions)
    inside = np.identity(len(factors)) + triangle * (factors - 1) @ triangle.T
    found, turn = np.linalg.eigh(inside)
    return basis @ turn, found


def check_low_rank(value: Any, metric: str | None, adapt_mass_matrix: bool, sites: Any) -> None:
    """Raise unless an inverse mass matrix of low rank that was given is one of all sites, which a kernel can use.

    Args:
        value: the user's ``inverse_mass_matrix``.
        metric: the kernel's ``metric``.
        adapt_mass_matrix: its ``adapt_mass_matrix``.
        sites: names of the sites that the mass matrix is of.

    Raises:
        ValueError: where the host would adapt it, which has no metric of this form, or where it is a block among
            others.
    """
    if not has_low_rank(value):
        return
    if metric is None and adapt_mass_matrix:
        raise ValueError(
            "inverse_mass_matrix of low rank needs metric='auto' or adapt_mass_matrix=False, "
            f"got metric=None and adapt_mass_matrix=True with {shown(value)}"
        )
    if isinstance(value, Mapping) and list(value) != [tuple(sorted(sites))]:
        raise ValueError(
            f"inverse_mass_matrix of low rank must have one block, of the sites {tuple(sorted(sites))}, got the blocks "
            f"{shown(list(value))}"
        )


def low_rank_of_window(draws: Any, grads: Any, seen: Any, xp: Any) -> LowRank:
    """The inverse mass matrix from a window of warm-up.

    Args:
        draws: the draws, shape (n, D).
        grads: the gradients of the potential there, shape (n, D).
        seen: 1 for each row that is a draw, 0 for each that is not yet, shape (n,).
        xp: the arrays' module, ``jax.numpy`` or ``torch``.

    Returns:
        With K at most :func:`full_rank`; entries that are not finite where a draw or a gradient has such.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> draws = 3.0 * rng.normal(size=(50, 1)) + rng.normal(size=(50, 20))  # of variance 181 along (1, ..., 1)
        >>> grads = draws - draws.mean(1, keepdims=True) * (9 * 20 / (1 + 9 * 20))
        >>> along = np.ones(20) / 20**0.5
        >>> round(float(along @ low_rank_of_window(draws, grads, np.ones(50), np).velocity(along)))
        161
    """
    draws, grads = (deviations(x, seen) for x in (draws, grads))
    unit, first = _leading_stage(draws, grads, xp)
    x, grad = powered(*first, -0.5, draws / _like(unit, draws)), powered(*first, 0.5, grads * _like(unit, grads))
    basis, _ = xp.linalg.qr(xp.concatenate((x, grad)).T)
    directions, factors = _mean_within(basis, x, grad, xp)
    farthest = xp.argsort(-xp.abs(xp.log(factors)))[:MAX_RANK]
    return LowRank(unit, *_product(first, (directions[:, farthest], factors[farthest]), xp))


def deviations(x: Any, seen: Any) -> Any:
    """Rows whose outer products sum to the covariance of the rows that were seen."""
    num, rows = seen.sum(), seen[:, None]
    mean = (rows * x).sum(0) / num
    return rows * (x - _like(mean, x)) / (num - 1) ** 0.5


def _leading_stage(draws: Any, grads: Any, xp: Any) -> tuple[Any, tuple[Any, Any]]:
    """Units, and directions and factors in these, of the first stage."""
    whole = (draws**2).sum(0), (grads**2).sum(0)
    unit = same_variance_units(*whole, xp)
    scaled = draws / _like(unit, draws), grads * _like(unit, grads)
    found = _leading_mean(*scaled, xp)
    for _ in range(ROUNDS - 1):
        directions = found[0] * _like(found[1] != 1, found[0])
        left = [((x - (x @ directions) @ directions.T) ** 2).sum(0) for x in scaled]
        is_left = (left[0] * unit**2 > LEAST_LEFT * whole[0]) & (left[1] > LEAST_LEFT * whole[1] * unit**2)
        kept = xp.ones_like(unit)
        unit = unit * xp.where(is_left, same_variance_units(*left, xp), kept)
        scaled = draws / _like(unit, draws), grads * _like(unit, grads)
        found = _leading_mean(*scaled, xp)
    return unit, found


def _leading_mean(x: Any, grad: Any, xp: Any) -> tuple[Any, Any]:
    """The mean in the span of the leading directions, of draws and gradients in their units."""
    basis, _ = xp.linalg.qr(xp.concatenate([_leading(rows, xp) for rows in (x, grad, x - grad)], 1))
    return _mean_within(basis, x, grad, xp)


def _leading(x: Any, xp: Any) -> Any:
    """Directions of the largest eigenvalues of xᵀx, shape (D, LEADING), not normalised."""
    _, vectors = xp.linalg.eigh(x @ x.T)
    return x.T @ vectors[:, -LEADING:]


def _mean_within(basis: Any, x: Any, grad: Any, xp: Any) -> tuple[Any, Any]:
    """Eigenvectors and eigenvalues of the geometric mean within the span of an orthonormal basis."""
    x, grad = x @ basis, grad @ basis
    multiple = above_rounding(SHRINKAGE, x.T @ x, grad.T @ grad, xp)
    added = xp.sqrt(multiple) * xp.diag(xp.ones_like(basis[0]))
    root = root_of_mean(xp.concatenate((x, added)), xp.concatenate((grad, added)), xp)
    vectors, roots, _ = xp.linalg.svd(root, full_matrices=False)
    factors = roots**2
    # what was added bounds the ratio of two factors, so that one of less than rounding of the largest says nothing
    is_rounding = factors <= xp.finfo(factors.dtype).eps * factors.max()
    is_near = (factors <= CUTOFF) & ((factors >= 1 / CUTOFF) | is_rounding)  # what is not finite stays so
    return basis @ vectors, xp.where(is_near, xp.ones_like(factors), factors)


def _product(first: tuple[Any, Any], second: tuple[Any, Any], xp: Any) -> tuple[Any, Any]:
    """Directions and factors of R (I + W (K - I) Wᵀ) R, with R the root of the first stage's middle, in one basis."""
    basis, _ = xp.linalg.qr(xp.concatenate((first[0], second[0]), 1))
    # singular values of a root, since rounding of the eigenvalues of the product is a share of the largest
    vectors, roots, _ = xp.linalg.svd(powered(*second, 0.5, powered(*first, 0.5, basis.T)) @ basis)
    return basis @ vectors, roots**2
