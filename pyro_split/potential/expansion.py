"""Taylor expansions of the log-likelihood, row by row, with exact totals (:mod:`split_common.reference`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import jvp
from torch.overrides import TorchFunctionMode

from pyro_split.potential.position import Position, flatten, subtract, unflatten
from pyro_split.potential.split_potential import SplitPotential
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

ARITHMETIC = {"add", "div", "divide", "mul", "multiply", "sub", "subtract", "truediv", "true_divide"}
IN_PLACE_OR_REVERSED = {kind + name for kind in "ir" for name in ARITHMETIC}


class Taylor(NamedTuple):
    """The expansion of a log-likelihood about a reference. Vectors lie in the order of sites sorted by name.

    Attributes:
        reference: z*.
        value: the log-likelihood of all rows there, in float64.
        grad: its gradient, shape (D,).
        directions: U, shape (D, r); None for all directions, one parameter each.
        hessian: UᵀHU, shape (r, r); None for an expansion of first order.
        coordinates: U⁻¹, shape (D, D), where U is a basis of all directions; None where U is orthonormal.
    """

    reference: Position
    value: float
    grad: Tensor
    directions: Tensor | None
    hessian: Tensor | None
    coordinates: Tensor | None = None

    @classmethod
    def at(
        cls,
        potential: SplitPotential,
        reference: Position,
        order: int,
        directions: Tensor | None = None,
        coordinates: Tensor | None = None,
    ) -> Taylor:
        """The expansion about a reference, from all rows, subset by subset.

        Args:
            potential: the potential whose log-likelihood is expanded.
            reference: z*.
            order: 1 or 2.
            directions: those of the second order, shape (D, r); None for all.
            coordinates: the inverse of directions that are a basis, shape (D, D).
        """
        energies, whole = potential.energies_and_grad(reference)
        prior_grad = potential.prior_energy_and_grad(reference)[1]
        grad = flatten({name: prior_grad[name] - whole[name] for name in reference})
        value = -float(energies[1:].sum())
        if order == 1:
            return cls(reference, value, grad, None, None)
        columns = torch.eye(len(grad)).to(grad) if directions is None else directions
        products = potential.likelihood_hessian_products(reference, unflatten(columns.T, reference))
        hessian = columns.T @ flatten(products, batch_dims=1).T
        return cls(reference, value, grad, directions, (hessian + hessian.T) / 2, coordinates)

    def total(self, z: Position) -> float:
        """The sum of T_i(z) over all rows."""
        return self.value + self.change(z, self.reference)

    def change(self, new: Position, old: Position) -> float:
        """The sum over all rows of T_i(new) - T_i(old)."""
        new_d, old_d = self._offset(new), self._offset(old)
        change = torch.dot(self.grad, new_d - old_d)
        if self.hessian is not None:
            new_d, old_d = self._inside(new_d), self._inside(old_d)
            change = change + 0.5 * torch.dot(new_d - old_d, self.hessian @ (new_d + old_d))
        return float(change)

    def total_grad(self, z: Position) -> Position:
        """The gradient of :meth:`total`, a dict like ``z``."""
        grad = self.grad
        if self.hessian is not None:
            product = self.hessian @ self._inside(self._offset(z))
            if self.coordinates is not None:
                grad = grad + self.coordinates.T @ product
            else:
                grad = grad + (product if self.directions is None else self.directions @ product)
        return unflatten(grad, z)

    def rows(self, row_terms: Callable[[Position], Tensor], z: Position) -> Tensor:
        """T_i(z) of some rows, shape (n,), from the function of their log-likelihoods."""
        offset = self._offset(z)
        if self.hessian is None:
            value, slope = _along(row_terms, self.reference, unflatten(offset, z))
            return value + slope

        def along(direction: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            tangent = unflatten(direction, z)
            (value, slope), (_, curvature) = _along(lambda z: _along(row_terms, z, tangent), self.reference, tangent)
            return value, slope, curvature

        if self.directions is None or self.coordinates is not None:
            value, slope, curvature = along(offset)
        else:
            value, slope = _along(row_terms, self.reference, unflatten(offset, z))
            curvature = along(self.directions @ self._inside(offset))[2]
        return value + slope + 0.5 * curvature

    def _offset(self, z: Position) -> Tensor:
        return flatten(subtract(z, self.reference))

    def _inside(self, offset: Tensor) -> Tensor:
        if self.coordinates is not None:
            return self.coordinates @ offset
        return offset if self.directions is None else self.directions.T @ offset


def controlled(taylor: Taylor | None, row_terms: Callable[[Position], Tensor], z: Position) -> Tensor:
    """Log-likelihoods of some rows less their control variate, if there is one, shape (n,)."""
    return divided(taylor, row_terms, z)[0]


def divided(taylor: Taylor | None, row_terms: Callable[[Position], Tensor], z: Position) -> tuple[Tensor, Tensor]:
    """Log-likelihoods of some rows less their control variate, and the control variate, shape (n,) each."""
    terms = row_terms(z)
    if taylor is None:
        return terms, torch.zeros_like(terms)
    expansion = taylor.rows(row_terms, z)
    return terms - expansion, expansion


class Reference(NamedTuple):
    """A point near the mode, and what is known there.

    Attributes:
        z: the point; None where none was looked for.
        taylor: the expansion of the log-likelihood about it; None for no control variate.
        covariance: of the target's normal approximation there, shape (D, D); None where it has none, or D is too large.
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
    flat = flatten(start)

    def energy_and_grad(x: np.ndarray) -> tuple[float, np.ndarray]:
        z = unflatten(torch.as_tensor(x).to(flat), start)
        energies, grad = potential.energies_and_grad(z)
        prior, whole = (_to_float64(flatten(part)) for part in (potential.prior_energy_and_grad(z)[1], grad))
        return float(energies[0] + likelihood_power * energies[1:].sum()), prior + likelihood_power * (whole - prior)

    return unflatten(torch.as_tensor(find_mode(energy_and_grad, _to_float64(flat), covariance)).to(flat), start)


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
    size, directions = sum(u.numel() for u in z.values()), None
    if settings.hessian_rank is not None:
        directions = _find_directions(potential, z, settings.hessian_rank)
    taylor = None if settings.order == 0 else Taylor.at(potential, z, settings.order, directions)
    if size > MAX_HESSIAN_SIZE:
        return Reference(z, taylor, None)
    whole = settings.order == 2 and directions is None
    full = taylor if taylor is not None and whole else Taylor.at(potential, z, 2)
    prior, slope = _log_prior_derivatives(potential, z)
    assert full.hessian is not None
    precision = -prior - likelihood_power * _to_float64(full.hessian)
    basis = basis_for(precision, torch.finfo(full.grad.dtype).eps)
    if basis is not None:
        full = Taylor.at(potential, z, 2, *(torch.as_tensor(x).to(full.grad) for x in (basis, np.linalg.inv(basis))))
        assert full.hessian is not None
        precision = -basis.T @ prior @ basis - likelihood_power * _to_float64(full.hessian)
    covariance = covariance_of(precision)
    if basis is not None and covariance is not None:
        covariance = basis @ covariance @ basis.T
    step, distance = step_to_mode(-slope - likelihood_power * _to_float64(full.grad), covariance)
    return Reference(z, full if whole else taylor, covariance, None, step, distance)


def _find_directions(potential: SplitPotential, reference: Position, rank: int) -> Tensor:
    """The directions of the largest second derivatives of the log-likelihood at a point, shape (D, rank)."""
    flat = flatten(reference)

    def product(v: np.ndarray) -> np.ndarray:
        direction = unflatten(torch.as_tensor(v).to(flat)[None], reference)
        return _to_float64(flatten(potential.likelihood_hessian_products(reference, direction), batch_dims=1)[0])

    return torch.as_tensor(leading_directions(product, len(flat), rank)).to(flat)


def _log_prior_derivatives(potential: SplitPotential, z: Position) -> tuple[np.ndarray, np.ndarray]:
    """Second and first derivatives of the log-prior at a point, shapes (D, D) and (D,)."""
    hessian = torch.autograd.functional.hessian(lambda x: potential.log_prior(unflatten(x, z)), flatten(z))
    assert isinstance(hessian, Tensor)
    return _to_float64(hessian), -_to_float64(flatten(potential.prior_energy_and_grad(z)[1]))


def _along(function: Callable[[Position], Any], z: Position, direction: Position) -> tuple[Any, Any]:
    """A function at a position, and its derivative along a direction."""
    in_order = {name: z[name] for name in direction}  # torch compares the order of sites too
    with NumbersOfOneType():
        value, slope, *_ = jvp(function, (in_order,), (direction,))
    return value, slope


class NumbersOfOneType(TorchFunctionMode):
    """Gives Python's numbers the type of the tensor without dimensions that they are added to or multiplied with.

    PyTorch's derivative of ``0.5 * t`` along a direction is of float64 for a ``t`` without dimensions in float32, as
    the number is; products of a matrix with what is made of it are then refused.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function, with tensors in place of numbers where it is such a sum or product."""
        kwargs = kwargs or {}
        if getattr(func, "__name__", "").strip("_") in ARITHMETIC | IN_PLACE_OR_REVERSED:
            like = next((x for x in args if isinstance(x, Tensor)), None)
            if like is not None and like.ndim == 0 and like.is_floating_point():
                args = tuple(_of_type(x, like) for x in args)
                kwargs = {name: _of_type(x, like) if name == "other" else x for name, x in kwargs.items()}
        return func(*args, **kwargs)


def _of_type(x: Any, like: Tensor) -> Any:
    """A number of Python's as a tensor of another's type; anything else as it is."""
    return torch.full((), x, dtype=like.dtype, device=like.device) if isinstance(x, float) else x


def _to_float64(x: Tensor) -> np.ndarray:
    return x.detach().cpu().double().numpy()
