r"""Trajectories of a given length that are accepted by windows of states at their two ends.

A trajectory has L + 1 states, and its start is at a place drawn uniformly from the first W. With w the sum of exp(-H)
over a window, the window of the last W states is accepted against that of the first W with probability min(1, w'/w).
Then one state of the window taken is chosen with probability exp(-H)/w. Given the L + 1 states, each state of the first
window is equally likely to have been the start, and so is, with time reversed, each state of the last window. So the
flow from a state of one window to a state of the other is proportional to exp(-H) exp(-H') min(1/w, 1/w') in both
directions, and exp(-H) is left invariant. Steps must preserve volume and be reversible by a step back in time; every
schedule has such steps, given the order of its subsets, which is drawn as often as its reverse
(:mod:`split_common.schedule`). W = 1 is the usual decision at the end point.

Reference:
    Neal (1994), An improved acceptance procedure for the hybrid Monte Carlo algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, random

from numpyro_split.integrators.integrator import IntegratorBase
from numpyro_split.potential.position import Position, where
from numpyro_split.potential.tracing import updated_if
from numpyro_split.trajectories.fixed_length import jittered
from numpyro_split.trajectories.path import Path, draw_path
from numpyro_split.trajectories.selection import Choice, Visits, add_by_weight, at_choice, choose, only
from split_common.exploration import FIRST_LENGTH
from split_common.fixed_length import WindowedBase


@dataclass(frozen=True)
class Windowed(WindowedBase):
    """Trajectories accepted by windows at their two ends (:class:`~split_common.fixed_length.WindowedBase`)."""

    def first_fields(self, z: Position) -> dict[str, Any]:
        """A field for the length that the trees of warm-up learn; these trajectories do not use it."""
        return {"trajectory_length": jnp.full((), FIRST_LENGTH)}

    def move(self, state: Any, integrator: IntegratorBase, num_warmup: int) -> tuple[Any, None]:
        """One iteration: a trajectory accepted by windows."""
        return windowed_transition(state, integrator, self.num_steps, self.window_size, self.step_size_jitter), None


def windowed_transition(
    state: Any, integrator: IntegratorBase, num_steps: int, window_size: int, step_size_jitter: float
) -> Any:
    """One iteration of ``num_steps`` steps, accepted by windows, at the state's step size and metric.

    Args:
        state: current state of the chain.
        integrator: integrator of the schedule on the target's potential, at the state's metric.
        num_steps: number of steps of the trajectory.
        window_size: number of states in a window.
        step_size_jitter: j; the step size of a trajectory is multiplied by a draw from U(1 - j, 1 + j).

    Returns:
        The next state.
    """
    rng_key, key_momentum, key_path, key_jitter = random.split(state.rng_key, 4)
    path = draw_path(state, integrator, state.adapt_state.step_size, key_momentum)
    path = path._replace(step_size=jittered(path.step_size, step_size_jitter, key_jitter))
    choice, visits = windowed(path, num_steps, window_size, key_path)
    return at_choice(state, path, choice, visits, jnp.full_like(state.num_steps, num_steps))._replace(rng_key=rng_key)


def windowed(path: Path, num_steps: int, window_size: int, rng_key: jax.Array) -> tuple[Choice, Visits]:
    """The choice and the statistics of a trajectory of ``num_steps`` steps with windows of ``window_size`` states."""
    key_place, key_states, key_accept = random.split(rng_key, 3)
    place = random.randint(key_place, (), 0, window_size)
    unseen = only(path.start, path.energies, jnp.array(jnp.inf))
    at_start = only(path.start, path.energies, jnp.zeros(()))

    def see(windows: tuple[Choice, Choice], state: Choice, i: jax.Array) -> tuple[Choice, Choice]:
        members = (i < window_size, i > num_steps - window_size)
        uniforms = random.uniform(random.fold_in(key_states, i), (2,))
        seen = [add_by_weight(window, state, uniform) for window, uniform in zip(windows, uniforms, strict=True)]
        return tuple(where(member, new, old) for member, new, old in zip(members, seen, windows, strict=True))

    def move(direction: int, i: jax.Array, carry: tuple) -> tuple:
        state, windows, visits = carry
        state = path.step(state, direction)

        def look() -> tuple[tuple[Choice, Choice], Visits]:
            energies = path.integrator.energies(state)
            change = path.energy_change(state, energies)
            return see(windows, only(state, energies, change), i), visits.with_state(change)

        in_a_window = (i < window_size) | (i > num_steps - window_size)
        return state, *updated_if(in_a_window, look, (windows, visits))

    carry = (path.start, see((unseen, unseen), at_start, place), Visits.none())
    back = lax.fori_loop(0, place, lambda k, c: move(-1, place - 1 - k, c), carry)
    forth = lax.fori_loop(place + 1, num_steps + 1, lambda i, c: move(1, i, c), (path.start, *back[1:]))
    (first, last), visits = forth[1:]
    return choose(first, last, last.log_weight - first.log_weight, random.uniform(key_accept)), visits
