"""The reference of centred splitting, found in warm-up at the ends of the host's windows.

See :mod:`split_common.centering`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from numpyro.infer.hmc_util import build_adaptation_schedule

from numpyro_split.adaptation.step_size_and_metric import WindowMean
from numpyro_split.integrators.integrator import Velocity
from numpyro_split.potential.centering import Center, grad_differences, subset_curvatures
from numpyro_split.potential.position import Position, where, zeros
from numpyro_split.potential.split_potential import SplitPotential
from split_common.centering import LONGEST_CENTRED_LENGTH, LONGEST_CENTRED_STEP, MOST_LEFT, CenterSettings


class CenterState(NamedTuple):
    """Centring of a chain's splitting, and the mean position from which warm-up finds the reference.

    Attributes:
        center: reference and correction terms of the next trajectory.
        mean: mean of the position over windows of warm-up; None where the reference is given.
        left: squared differences between the subsets' gradients at a draw, shape (3,): without centring, and left by
            centring of first and of second order; -1 before they are known.
    """

    center: Center
    mean: WindowMean | None
    left: jax.Array

    def longest_step(self, learns_length: bool) -> jax.Array:
        """Upper limit of the step size; it differs for trajectories whose lengths are learned."""
        longest = LONGEST_CENTRED_LENGTH if learns_length else LONGEST_CENTRED_STEP
        return jnp.where(self.center.order > 0, longest, jnp.inf)


def first_center(settings: CenterSettings, potential: SplitPotential, z: Position, sites: Sequence[str]) -> CenterState:
    """Centring before warm-up: about the given reference, or none yet."""
    sites = tuple(sites)
    keeps = settings.keeps_second_order(sum(z[name].size for name in sites))
    unknown = jnp.full((3,), -1.0)
    if not settings.is_found:
        given = {name: jnp.asarray(settings.center[name], u.dtype).reshape(u.shape) for name, u in z.items()}
        return CenterState(Center.at(potential, given, sites, keeps), None, unknown)
    return CenterState(Center.none(z, sites, potential.num_subsets, keeps), WindowMean.start(z), unknown)


def moved_to_data(state: CenterState, potential: SplitPotential) -> CenterState:
    """Centring on other data, about the same reference and of the same order.

    It does not depend on the position of the chain, so an outer kernel may call this in every iteration.

    Args:
        state: centring so far.
        potential: potential of the other data.
    """
    center = state.center
    found = Center.at(potential, center.reference, center.sites, center.curvatures is not None)
    return state._replace(center=_of_order(found, center.order))


def recentred(
    state: CenterState,
    settings: CenterSettings,
    potential: SplitPotential,
    velocity: Velocity,
    coordinates: Callable[[Position], Position],
    i: jax.Array,
    z: Position,
    num_warmup: int,
) -> tuple[CenterState, jax.Array]:
    """Centring after iteration ``i``: at the end of a window of the metric, about the mean position of the window.

    Args:
        state: centring so far.
        settings: whether and how splitting is centred.
        potential: potential of the target.
        velocity: function from a momentum to its velocity, the inverse mass matrix times the momentum.
        coordinates: function from a position to the entries that the mass matrix adapts to.
        i: the iteration, counted from 0.
        z: position at its end.
        num_warmup: number of warm-up iterations.

    Returns:
        The centring, and the number of subset gradients that were evaluated for it.
    """
    none, ends = jnp.zeros((), jnp.result_type(int)), [w.end for w in build_adaptation_schedule(num_warmup)]
    if state.mean is None or len(ends) < 3:
        return state, none
    mean = state.mean.update(i, z, num_warmup)
    sites, num_subsets, like = state.center.sites, potential.num_subsets, coordinates(zeros(z))

    def move() -> tuple[CenterState, jax.Array]:
        is_last, kept = i == ends[-2], state.center.curvatures
        curvatures, size = None, 0
        if kept is not None:  # takes many gradients, so only at the end of the last window of the metric
            size = kept.shape[1]
            curvatures = lax.cond(
                is_last, lambda: subset_curvatures(potential, mean.adapted, sites), lambda: jnp.zeros_like(kept)
            )
        found = Center.at(potential, mean.adapted, sites, False)._replace(curvatures=curvatures)
        left = differences_left(found, potential, lambda p: velocity({**like, **p}), z)
        order = choose_order(left.at[2].set(jnp.where(is_last, left[2], jnp.inf)), settings.order, is_last)
        num_grads = num_subsets * (2 + 2 * size * is_last)
        return CenterState(_of_order(found, order), mean, left), num_grads.astype(none.dtype) + none

    def stay() -> tuple[CenterState, jax.Array]:
        return state._replace(mean=mean), none

    return lax.cond(jnp.any(i == jnp.array(ends[1:-1])), move, stay)


def differences_left(center: Center, potential: SplitPotential, velocity: Velocity, z: Position) -> jax.Array:
    """Squared differences of the subsets' gradients at ``z``: without centring, and left by either order, (3,)."""
    differences = grad_differences(potential, z, center.sites)
    first = jax.tree.map(jnp.subtract, differences, center.grads)
    offset, unravel = ravel_pytree(center.offset(z))
    second = first
    if center.curvatures is not None:
        second = jax.tree.map(jnp.subtract, first, jax.vmap(unravel)(center.curvatures @ offset))

    def squared(differences: Position) -> jax.Array:
        def of_subset(difference: Position) -> jax.Array:
            speed = velocity(difference)
            return sum((jnp.sum(u * speed[name]) for name, u in difference.items()), jnp.zeros(()))

        return jnp.sum(lax.map(of_subset, differences))

    return jnp.stack([squared(x) for x in (differences, first, second)])


def choose_order(left: jax.Array, allowed: int | None, is_last: jax.Array) -> jax.Array:
    """The order as by :func:`split_common.centering.choose_order`; before the last window, the second is not known."""
    candidates = jnp.where(jnp.isfinite(left), left, jnp.inf)
    if allowed == 1:
        candidates = candidates.at[2].set(jnp.inf)
    if allowed == 2:
        candidates = candidates.at[1].set(jnp.where(is_last, jnp.inf, candidates[1]))
    best = 1 + jnp.argmin(candidates[1:])
    return jnp.where(jnp.isfinite(candidates[best]) & (candidates[best] <= MOST_LEFT * left[0]), best, 0)


def _of_order(center: Center, order: jax.Array) -> Center:
    """A center with only the correction terms of the given order."""
    kept = center._replace(
        grads=where(order > 0, center.grads, zeros(center.grads)), order=order.astype(center.order.dtype)
    )
    if center.curvatures is None:
        return kept
    return kept._replace(curvatures=jnp.where(order > 1, center.curvatures, 0.0))
