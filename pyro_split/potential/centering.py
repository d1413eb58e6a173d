"""A reference about which splitting is centred, and the centred potential (:mod:`split_common.centering`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pyro_split.potential.position import Position, add, flatten, unflatten
from pyro_split.potential.split_potential import SplitPotential


class Center(NamedTuple):
    """Offsets that are subtracted from the subsets' gradients.

    Attributes:
        reference: z*, a dict of all sites: c_m depends on those too that are not centred.
        grads: c_m, a dict of the centred sites with a leading axis of M subsets; 0 for no centring.
        curvatures: C_m, shape (M, D, D); None for no second order.
        order: 0 for no centring, 1 or 2.
    """

    reference: Position
    grads: Position
    curvatures: Tensor | None
    order: int

    @classmethod
    def none(cls, z: Position, sites: Sequence[str], num_subsets: int) -> Center:
        """No centring: offsets of 0, in the same structure as those that centre these sites."""
        grads = {name: z[name].new_zeros((num_subsets, *z[name].shape)) for name in sites}
        return cls(dict(z), grads, None, 0)

    @classmethod
    def at(cls, potential: SplitPotential, z: Position, sites: Sequence[str], order: int) -> Center:
        """Centring about ``z`` of first or second order, from all rows, subset by subset."""
        curvatures = subset_curvatures(potential, z, sites) if order == 2 else None
        return cls(dict(z), grad_differences(potential, z, sites), curvatures, order)

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the centred sites."""
        return tuple(self.grads)

    def offset(self, z: Position) -> Position:
        """Distance of ``z`` from z*, a dict of the centred sites."""
        return {name: z[name] - self.reference[name] for name in self.grads}

    def grad(self, z: Position, m: int) -> Position:
        """c_m + C_m (z - z*), a dict of the centred sites."""
        grads = {name: c[m] for name, c in self.grads.items()}
        if self.curvatures is None:
            return grads
        offset = self.offset(z)
        linear = unflatten(self.curvatures[m] @ flatten(offset), offset)
        return add(grads, linear, 1.0)


class CenteredPotential:
    """A potential with centred subset gradients; their sum, and every energy, is that of the given potential.

    Args:
        whole: the potential.
        center: the offsets that are subtracted.
    """

    def __init__(self, whole: SplitPotential, center: Center):
        self._whole, self._center = whole, center

    def subset_energies_and_grad(self, z: Position, m: int) -> tuple[tuple[Tensor, Tensor], Position]:
        """The terms of U(z), which centring does not change, and the gradient of U'_m."""
        energies, grad = self._whole.subset_energies_and_grad(z, m)
        return energies, self._centred(grad, z, m)

    def subset_grad(self, z: Position, m: int) -> Position:
        """The gradient of U'_m."""
        return self._centred(self._whole.subset_grad(z, m), z, m)

    def energies_and_grad(self, z: Position) -> tuple[Tensor, Position]:
        """The given potential's energies and gradient, which centring does not change."""
        return self._whole.energies_and_grad(z)

    def energies(self, z: Position) -> Tensor:
        """The given potential's energies, which centring does not change."""
        return self._whole.energies(z)

    def prior_energy(self, z: Position) -> Tensor:
        """The prior's energy, which centring does not change."""
        return self._whole.prior_energy(z)

    def prior_energy_and_grad(self, z: Position) -> tuple[Tensor, Position]:
        """The prior's energy and gradient, which centring does not change."""
        return self._whole.prior_energy_and_grad(z)

    def _centred(self, grad: Position, z: Position, m: int) -> Position:
        return {**grad, **{name: grad[name] - c for name, c in self._center.grad(z, m).items()}}


FollowedPotential = SplitPotential | CenteredPotential  # a potential that trajectories follow


def grad_differences(potential: SplitPotential, z: Position, sites: Sequence[str]) -> Position:
    """Gradients of the subsets minus their mean, a dict of some sites with a leading axis of M subsets."""
    by_subset = [potential.subset_grad(z, m) for m in range(potential.num_subsets)]
    grads = {name: torch.stack([grad[name] for grad in by_subset]) for name in sites}
    return {name: g - g.mean(0) for name, g in grads.items()}


def subset_curvatures(potential: SplitPotential, z: Position, sites: Sequence[str]) -> Tensor:
    """Hessians of the subsets in some sites minus their mean, shape (M, D, D); the prior's share is alike in all."""
    centred = {name: z[name] for name in sites}
    basis = unflatten(torch.eye(sum(u.numel() for u in centred.values())).to(next(iter(centred.values()))), centred)
    size = len(next(iter(basis.values())))
    directions = {name: basis.get(name, u.new_zeros((size, *u.shape))) for name, u in z.items()}

    def hessian(m: int) -> Tensor:
        products = potential.subset_hessian_products(z, m, directions)
        return -flatten({name: products[name] for name in sites}, batch_dims=1)

    hessians = torch.stack([hessian(m) for m in range(potential.num_subsets)])
    hessians = (hessians + hessians.mT) / 2
    return hessians - hessians.mean(0)
