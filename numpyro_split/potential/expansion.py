"""Taylor expansions of the log-likelihood, row by row, with exact totals (:mod:`split_common.reference`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from numpyro_split.potential.derivatives import grad
from numpyro_split.potential.position import Position, subtract
from numpyro_split.potential.split_potential import SplitPotential
from split_common.penalty import MAX_HESSIAN_SIZE, PenaltySettings
from split_common.reference import (
    LARGEST_DISTANCE,
    MAX_RESTARTS,
    basis_for,
    covariance_of,
    find_mode,
    leading_directions,
    step_to_mode,
)


class Taylor(NamedTuple):
    """The expansion of a log-likelihood about a reference. Vectors lie in the order of sites sorted by name.

    Attributes:
        reference: z*.
        value: the log-likelihood of all rows there, a scalar.
        grad: its gradient, shape (D,).
        directions: U, shape (D, r); None for all directions, one parameter each.
        hessian: UᵀHU, shape (r, r); None for an expansion of first order.
        coordinates: U⁻¹, shape (D, D), where U is a basis of all directions; None where U is orthonormal.
    """

    reference: Position
    value: jax.Array
    grad: jax.Array
    directions: jax.Array | None
    hessian: jax.Array | None
    coordinates: jax.Array | None = None

    @classmethod
    def at(
        cls,
        potential: SplitPotential,
        reference: Position,
        order: int,
        directions: jax.Array | None = None,
        coordinates: jax.Array | None = None,
    ) -> Taylor:
        """The expansion about a reference, from all rows, subset by subset.

        Args:
            potential: the potential whose log-likelihood is expanded.
            reference: z*.
            order: 1 or 2.
            directions: those of the second order, shape (D, r); None for all.
            coordinates: the inverse of directions that are a basis, shape (D, D).
        """
        flat, unravel = ravel_pytree(reference)
        energies, grad = potential.energies_and_grad(reference)
        prior_grad = potential.prior_energy_and_grad(reference)[1]
        grad = ravel_pytree(subtract(prior_grad, grad))[0]
        value = -jnp.sum(energies.value[1:])
        if order == 1:
            return cls(reference, value, grad, None, None)
        columns = jnp.identity(flat.size, flat.dtype) if directions is None else directions
        products = potential.likelihood_hessian_products(reference, jax.vmap(unravel)(columns.T))
        hessian = columns.T @ jax.vmap(lambda product: ravel_pytree(product)[0])(products).T
        return cls(reference, value, grad, directions, (hessian + hessian.T) / 2, coordinates)

    def total(self, z: Position) -> jax.Array:
        """The sum of T_i(z) over all rows, a scalar."""
        return self.value + self.change(z, self.reference)

    def change(self, new: Position, old: Position) -> jax.Array:
        """The sum over all rows of T_i(new) - T_i(old), a scalar."""
        new_d, old_d = self._offset(new), self._offset(old)
        change = jnp.dot(self.grad, new_d - old_d)
        if self.hessian is None:
            return change
        new_d, old_d = self._inside(new_d), self._inside(old_d)
        return change + 0.5 * jnp.dot(new_d - old_d, self.hessian @ (new_d + old_d))

    def rows(self, row_terms: Callable[[Position], jax.Array], z: Position) -> jax.Array:
        """T_i(z) of some rows, shape (n,), from the function of their log-likelihoods."""
        offset = self._offset(z)
        unravel = ravel_pytree(self.reference)[1]  # into the types of the reference, which may not be those of z
        if self.hessian is None:
            value, slope = jax.jvp(row_terms, (self.reference,), (unravel(offset),))
            return value + slope

        def along(direction: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            tangent = unravel(direction)
            (value, slope), (_, curvature) = jax.jvp(
                lambda z: jax.jvp(row_terms, (z,), (tangent,)), (self.reference,), (tangent,)
            )
            return value, slope, curvature

        if self.directions is None or self.coordinates is not None:
            value, slope, curvature = along(offset)
        else:
            value, slope = jax.jvp(row_terms, (self.reference,), (unravel(offset),))
            curvature = along(self.directions @ self._inside(offset))[2]
        return value + slope + 0.5 * curvature

    def _offset(self, z: Position) -> jax.Array:
        return ravel_pytree(subtract(z, self.reference))[0]

    def _inside(self, offset: jax.Array) -> jax.Array:
        if self.coordinates is not None:
            return self.coordinates @ offset
        return offset if self.directions is None else self.directions.T @ offset


def controlled(taylor: Taylor | None, row_terms: Callable[[Position], jax.Array], z: Position) -> jax.Array:
    """Log-likelihoods of some rows less their control variate, if there is one, shape (n,)."""
    return divided(taylor, row_terms, z)[0]


def divided(
    taylor: Taylor | None, row_terms: Callable[[Position], jax.Array], z: Position
) -> tuple[jax.Array, jax.Array]:
    """Log-likelihoods of some rows less their control variate, and the control variate, shape (n,) each."""
    terms = row_terms(z)
    if taylor is None:
        return terms, jnp.zeros_like(terms)
    expansion = taylor.rows(row_terms, z)
    return terms - expansion, expansion


class Reference(NamedTuple):
    """A point near the mode, and what is known there.

    Attributes:
        z: the point; None where none was looked for.
        taylor: the expansion of the log-likelihood about it; None for no control variate.
        covariance: covariance of the target's normal approximation there, shape (D, D); None where it has none, or D is
            too large.
        certainty_rows: numbers of the rows to read always, ascending; None where no row needs it, or none is known to.
        step: offset from the point to the mode of the normal approximation, shape (D,); None where there is none.
        distance: length of that step, in standard deviations.
    """

    z: Position | None
    taylor: Taylor | None
    covariance: np.ndarray | None
    certainty_rows: np.ndarray | None = None
    step: np.ndarray | None = None
    distance: float = 0.0


def find_reference(
    potential: SplitPotential, start: Position, likelihood_power: float, covariance: np.ndarray | None = None
) -> Position:
    """The mode of p(z) times the likelihood to the power ``likelihood_power``, from all rows, subset by subset.

    Args:
        potential: the potential with these rows.
        start: where the search begins.
        likelihood_power: the power of the likelihood in the target.
        covariance: that of the normal approximation at the start, in whose standard deviations to search, or None.
    """
    flat, unravel = ravel_pytree(start)

    def energy_and_grad(x: np.ndarray) -> tuple[float, np.ndarray]:
        z = unravel(jnp.asarray(x, flat.dtype))
        energies, grad = potential.energies_and_grad(z)
        terms = np.asarray(energies.high, np.float64) + np.asarray(energies.low, np.float64)
        prior_grad = potential.prior_energy_and_grad(z)[1]
        prior, whole = (np.asarray(ravel_pytree(part)[0], np.float64) for part in (prior_grad, grad))
        return float(terms[0] + likelihood_power * terms[1:].sum()), prior + likelihood_power * (whole - prior)

    return unravel(jnp.asarray(find_mode(energy_and_grad, np.asarray(flat), covariance), flat.dtype))


def near_mode(
    potential: SplitPotential, found: Reference, likelihood_power: float, settings: PenaltySettings
) -> Reference:
    """The expansion about the mode, where the search for it had stopped before it was there."""
    for _ in range(MAX_RESTARTS):
        if found.z is None or found.distance <= LARGEST_DISTANCE:
            break
        z = find_reference(potential, found.z, likelihood_power, found.covariance)
        found = expand(potential, z, likelihood_power, settings)
    return found


def expand(potential: SplitPotential, z: Position, likelihood_power: float, settings: PenaltySettings) -> Reference:
    """Expansion and normal approximation about a reference, as a kernel's settings ask for."""
    size, directions = sum(u.size for u in z.values()), None
    if settings.hessian_rank is not None:
        directions = _find_directions(potential, z, settings.hessian_rank)
    taylor = None if settings.order == 0 else Taylor.at(potential, z, settings.order, directions)
    if size > MAX_HESSIAN_SIZE:
        return Reference(z, taylor, None)
    whole = settings.order == 2 and directions is None
    full = taylor if taylor is not None and whole else Taylor.at(potential, z, 2)
    prior, slope = _log_prior_derivatives(potential, z)
    assert full.hessian is not None
    precision = -prior - likelihood_power * np.asarray(full.hessian, np.float64)
    basis = basis_for(precision, float(jnp.finfo(full.grad.dtype).eps))
    if basis is not None:
        full = Taylor.at(potential, z, 2, *(jnp.asarray(x, full.grad.dtype) for x in (basis, np.linalg.inv(basis))))
        precision = -basis.T @ prior @ basis - likelihood_power * np.asarray(full.hessian, np.float64)
    covariance = covariance_of(precision)
    if basis is not None and covariance is not None:
        covariance = basis @ covariance @ basis.T
    step, distance = step_to_mode(-slope - likelihood_power * np.asarray(full.grad, np.float64), covariance)
    return Reference(z, full if whole else taylor, covariance, None, step, distance)


def _find_directions(potential: SplitPotential, reference: Position, rank: int) -> jax.Array:
    """The directions of the largest second derivatives of the log-likelihood at a point, shape (D, rank)."""
    flat, unravel = ravel_pytree(reference)

    def product(v: np.ndarray) -> np.ndarray:
        direction = jax.vmap(unravel)(jnp.asarray(v, flat.dtype)[None])
        return np.asarray(ravel_pytree(potential.likelihood_hessian_products(reference, direction))[0], np.float64)

    return jnp.asarray(leading_directions(product, flat.size, rank), flat.dtype)


def _log_prior_derivatives(potential: SplitPotential, z: Position) -> tuple[np.ndarray, np.ndarray]:
    """Second and first derivatives of the log-prior at a point, shapes (D, D) and (D,)."""
    flat, unravel = ravel_pytree(z)
    gradient = grad(lambda x: potential.log_prior(unravel(x)), potential.forward_mode)
    return tuple(np.asarray(jax.jit(f)(flat), np.float64) for f in (jax.jacfwd(gradient), gradient))  # type: ignore[return-value]
