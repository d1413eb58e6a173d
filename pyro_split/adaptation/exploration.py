"""Iterations of warm-up that move by trees, and the length of trajectories learned from them.

See :mod:`split_common.exploration`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyro_split.integrators.integrator import IntegratorBase
from pyro_split.trajectories.doubling import doubling
from pyro_split.trajectories.path import draw_path
from pyro_split.trajectories.selection import at_choice
from pyro_split.trajectories.termination import U_TURN
from split_common.exploration import MAX_EXPLORATION_DEPTH, Exploration


def explored(state: Any, integrator: IntegratorBase, exploration: Exploration, move: Callable[[Any], Any]) -> Any:
    """One iteration: a tree while warm-up explores, ``move`` afterwards; late trees give the length of trajectories.

    Args:
        state: current state of the chain, with a field ``trajectory_length``.
        integrator: integrator of the schedule on the target's potential, at the state's metric.
        exploration: which iterations move by trees.
        move: function from a state to the next one, by the kernel's own trajectories.
    """
    if state.i >= exploration.num_trees:
        return move(state)
    moved = explore(state, integrator)
    num_seen = state.i + 1 - exploration.num_before
    if num_seen < 1:
        return moved
    length = moved.num_steps * moved.step_size
    return moved._replace(trajectory_length=state.trajectory_length + (length - state.trajectory_length) / num_seen)


def explore(state: Any, integrator: IntegratorBase) -> Any:
    """One iteration whose trajectory doubles until it makes a U-turn, at the state's step size and metric."""
    opening_grad, opening_grads = state.opening_grad, 0
    if opening_grad is None:
        opening_grad = integrator.opening_grad_at(state.z, range(integrator.schedule.num_subsets))
        opening_grads = integrator.schedule.opening_grads
    path = draw_path(state._replace(opening_grad=opening_grad), integrator, state.adapt_state.step_size)
    trajectory = doubling(path, U_TURN, MAX_EXPLORATION_DEPTH)
    moved = at_choice(state, path, trajectory.choice, trajectory.visits, trajectory.visits.num_states)
    return moved._replace(
        opening_grad=None if state.opening_grad is None else moved.opening_grad,
        num_grads=moved.num_grads + opening_grads,
    )
