"""Where splitting is centred is found in warm-up: at the ends of the host's windows (:mod:`split_common.centering`)."""

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
    """Where a chain's splitting is centred, and what is known of where it should be.

    Attributes:
        center: of the next trajectory.
        mean: of the position, over windows of warm-up; None where the reference is given.
        left: squared differences of the forces at a draw, without centring, of first and of second order, shape (3,).
    """

    center: Center
    mean: WindowMean | None
    left: jax.Array

    def longest_step(self, learns_length: bool) -> jax.Array:
        """Upper limit of the step size, of trajectories whose lengths are learned, or of others."""
        longest = LONGEST_CENTRED_LENGTH if learns_length else LONGEST_CENTRED_STEP
        return jnp.where(self.center.order > 0, longest, jnp.inf)


def first_center(settings: CenterSettings, potential: SplitPotential, z: Position, sites: Sequence[str]) -> CenterState:
    """Before warm-up: about the given reference, or nowhere yet."""
    sites = tuple(sites)
    keeps = settings.keeps_second_order(sum(z[name].size for name in sites))
    unknown = jnp.full((3,), jnp.nan)
    if not settings.is_found:
        given = {name: jnp.asarray(settings.center[name], u.dtype).reshape(u.shape) for name, u in z.items()}
        return CenterState(Center.at(potential, given, sites, keeps), None, unknown)
    return CenterState(Center.none(z, sites, potential.num_subsets, keeps), WindowMean.start(z), unknown)


def moved_to_data(state: CenterState, potential: SplitPotential) -> CenterState:
    """Centred about the same reference, of the same order, on other data.

    Nothing of it depends on where the chain is, so that an outer kernel may ask for it in each iteration.

    Args:
        state: where splitting was centred.
        potential: of the other data.
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
    """After iteration ``i``, which ended at ``z``: at the end of a window of the metric, centred about its mean.

    Args:
        state: where splitting was centred.
        settings: what is asked for.
        potential: of the target.
        velocity: the inverse mass matrix times a momentum.
        coordinates: from a position to what the mass matrix is of.
        i: the iteration.
        z: where it ended.
        num_warmup: number of warm-up iterations.

    Returns:
        The state, and the gradients that it took, each of a subset.
    """
    none, ends = jnp.zeros((), jnp.result_type(int)), [w.end for w in build_adaptation_schedule(num_warmup)]
    if state.mean is None or len(ends) < 3:
        return state, none
    mean = state.mean.update(i, z, num_warmup)
    sites, num_subsets, like = state.center.sites, potential.num_subsets, coordinates(zeros(z))

    def move() -> tuple[CenterState, jax.Array]:
        is_last, kept = i == ends[-2], state.center.curvatures
        curvatures, size = None, 0
        if kept is not None:  # many gradients, so only once
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
    """Squared differences of the forces at ``z``: without centring, of first and of second order, shape (3,)."""
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
    """As :func:`split_common.centering.choose_order`; before the last window a second order is not known yet."""
    candidates = jnp.where(jnp.isfinite(left), left, jnp.inf)
    if allowed == 1:
        candidates = candidates.at[2].set(jnp.inf)
    if allowed == 2:
        candidates = candidates.at[1].set(jnp.where(is_last, jnp.inf, candidates[1]))
    best = 1 + jnp.argmin(candidates[1:])
    return jnp.where(candidates[best] <= MOST_LEFT * left[0], best, 0)


def _of_order(center: Center, order: jax.Array) -> Center:
    """A center with the terms of its order alone."""
    kept = center._replace(
        grads=where(order > 0, center.grads, zeros(center.grads)), order=order.astype(center.order.dtype)
    )
    if center.curvatures is None:
        return kept
    return kept._replace(curvatures=jnp.where(order > 1, center.curvatures, 0.0))
