"""Iterations of warm-up that move by trees, and the length of trajectories learned from them.

See :mod:`split_common.exploration`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax, random

from numpyro_split.integrators.integrator import IntegratorBase
from numpyro_split.trajectories.doubling import doubling
from numpyro_split.trajectories.path import draw_path
from numpyro_split.trajectories.selection import at_choice
from numpyro_split.trajectories.termination import U_TURN
from split_common.exploration import MAX_EXPLORATION_DEPTH, Exploration


def explored(state: Any, integrator: IntegratorBase, exploration: Exploration, move: Callable[[Any], Any]) -> Any:
    """One iteration: a tree while warm-up explores, ``move`` afterwards; late trees give the length of trajectories.

    Args:
        state: current state of the chain, with a field ``trajectory_length``.
        integrator: integrator of the schedule on the target's potential, at the state's metric.
        exploration: which iterations move by trees.
        move: function from a state to the next one, by the kernel's own trajectories.
    """
    if not exploration.num_trees:
        return move(state)

    def by_tree(state: Any) -> Any:
        moved = explore(state, integrator)
        num_seen = state.i + 1 - exploration.num_before
        length = moved.num_steps * moved.step_size
        mean = state.trajectory_length + (length - state.trajectory_length) / jnp.maximum(num_seen, 1)
        return moved._replace(trajectory_length=jnp.where(num_seen > 0, mean, state.trajectory_length))

    return lax.cond(state.i < exploration.num_trees, by_tree, move, state)


def explore(state: Any, integrator: IntegratorBase) -> Any:
    """One iteration whose trajectory doubles until it makes a U-turn, at the state's step size and metric."""
    rng_key, key_momentum, key_tree = random.split(state.rng_key, 3)
    opening_grad = state.opening_grad
    if opening_grad is None:
        opening_grad = integrator.opening_grad_at(state.z, jnp.arange(integrator.schedule.num_subsets))
    path = draw_path(state._replace(opening_grad=opening_grad), integrator, state.adapt_state.step_size, key_momentum)
    trajectory = doubling(path, U_TURN, MAX_EXPLORATION_DEPTH, key_tree)
    moved = at_choice(state, path, trajectory.choice, trajectory.visits, trajectory.visits.num_states)
    opening_grads = integrator.schedule.opening_grads if state.opening_grad is None else 0
    return moved._replace(
        opening_grad=None if state.opening_grad is None else moved.opening_grad,
        num_grads=moved.num_grads + opening_grads,
        rng_key=rng_key,
    )
