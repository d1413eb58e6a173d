"""A reference about which splitting is centred, and the centred potential (:mod:`split_common.centering`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from numpyro_split.potential.compensated import Compensated
from numpyro_split.potential.position import Position, flatten
from numpyro_split.potential.split_potential import SplitPotential


class Center(NamedTuple):
    """Offsets that are subtracted from the subsets' gradients.

    Attributes:
        reference: z*, a dict of all sites: c_m depends on those too that are not centred.
        grads: c_m, a dict of the centred sites with a leading axis of M subsets; 0 for no centring.
        curvatures: C_m, shape (M, D, D); None where no second order is kept, 0 for none.
        order: 0 for no centring, 1 or 2.
    """

    reference: Position
    grads: Position
    curvatures: jax.Array | None
    order: jax.Array

    @classmethod
    def none(cls, z: Position, sites: Sequence[str], num_subsets: int, keeps_second_order: bool) -> Center:
        """No centring: offsets of 0, in the same structure as those that centre these sites."""
        centred = {name: z[name] for name in sites}
        grads = jax.tree.map(lambda u: jnp.zeros((num_subsets, *u.shape), u.dtype), centred)
        flat, curvatures = ravel_pytree(centred)[0], None
        if keeps_second_order:
            curvatures = jnp.zeros((num_subsets, flat.size, flat.size), flat.dtype)
        return cls(dict(z), grads, curvatures, jnp.zeros((), jnp.result_type(int)))

    @classmethod
    def at(cls, potential: SplitPotential, z: Position, sites: Sequence[str], keeps_second_order: bool) -> Center:
        """Centring about ``z``, from all rows, subset by subset."""
        curvatures = subset_curvatures(potential, z, sites) if keeps_second_order else None
        order = jnp.asarray(2 if keeps_second_order else 1, jnp.result_type(int))
        return cls(dict(z), grad_differences(potential, z, sites), curvatures, order)

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the centred sites."""
        return tuple(self.grads)

    def offset(self, z: Position) -> Position:
        """Distance of ``z`` from z*, a dict of the centred sites."""
        return {name: z[name] - self.reference[name] for name in self.grads}

    def grad(self, z: Position, m: jax.Array) -> Position:
        """c_m + C_m (z - z*), a dict of the centred sites."""
        grads = {name: c[m] for name, c in self.grads.items()}
        if self.curvatures is None:
            return grads
        offset, unravel = ravel_pytree(self.offset(z))
        return jax.tree.map(jnp.add, grads, unravel(self.curvatures[m] @ offset))


class CenteredPotential:
    """A potential with centred subset gradients; their sum, and every energy, is that of the given potential.

    Args:
        whole: the potential.
        center: the offsets that are subtracted.
    """

    def __init__(self, whole: SplitPotential, center: Center):
        self._whole, self._center = whole, center

    def subset_energies_and_grad(self, z: Position, m: jax.Array) -> tuple[Compensated, Position]:
        """The terms of U(z), which centring does not change, and the gradient of U'_m."""
        energies, grad = self._whole.subset_energies_and_grad(z, m)
        return energies, {**grad, **{name: grad[name] - c for name, c in self._center.grad(z, m).items()}}

    def energies_and_grad(self, z: Position) -> tuple[Compensated, Position]:
        """The given potential's energies and gradient, which centring does not change."""
        return self._whole.energies_and_grad(z)

    def energies(self, z: Position) -> Compensated:
        """The given potential's energies, which centring does not change."""
        return self._whole.energies(z)

    def prior_energy_and_grad(self, z: Position) -> tuple[Compensated, Position]:
        """The prior's energy and gradient, which centring does not change."""
        return self._whole.prior_energy_and_grad(z)


FollowedPotential = SplitPotential | CenteredPotential  # a potential that trajectories follow


def grad_differences(potential: SplitPotential, z: Position, sites: Sequence[str]) -> Position:
    """Gradients of the subsets minus their mean, a dict of some sites with a leading axis of M subsets."""

    def of_subset(m: jax.Array) -> Position:
        grad = potential.subset_energies_and_grad(z, m)[1]
        return {name: grad[name] for name in sites}

    grads = lax.map(of_subset, jnp.arange(potential.num_subsets))
    return jax.tree.map(lambda g: g - jnp.mean(g, 0, keepdims=True), grads)


def subset_curvatures(potential: SplitPotential, z: Position, sites: Sequence[str]) -> jax.Array:
    """Hessians of the subsets in some sites minus their mean, shape (M, D, D), a column at a time."""
    flat, unravel = ravel_pytree({name: z[name] for name in sites})

    def hessian(m: jax.Array) -> jax.Array:
        def grad(x: jax.Array) -> jax.Array:
            return flatten(potential.subset_energies_and_grad({**z, **unravel(x)}, m)[1], sites)

        return lax.map(lambda column: jax.jvp(grad, (flat,), (column,))[1], jnp.identity(flat.size, flat.dtype))

    hessians = lax.map(hessian, jnp.arange(potential.num_subsets))
    hessians = (hessians + jnp.swapaxes(hessians, 1, 2)) / 2
    return hessians - jnp.mean(hessians, 0, keepdims=True)
