r"""A trajectory of a given length, accepted by windows of states at its two ends.

Of L + 1 states the start is at a place drawn from the first W. With w the sum of exp(-H) over a window, the last W
states are accepted with probability min(1, w'/w) against the first W, then one state of the window is taken with
probability exp(-H)/w. Given the L + 1 states, every state of the first window is as likely to have been the start as
any other, and, time reversed, every state of the last one; so the flow from a state of one window to a state of the
other is proportional to exp(-H) exp(-H') min(1/w, 1/w') both ways, and exp(-H) is left invariant. It takes steps that
preserve volume and are undone by a step back in time (every schedule, given the order of its subsets, which is drawn as
often as its opposite; :mod:`split_common.schedule`). W = 1 is the end point alone.

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
from numpyro_split.trajectories.fixed_length import jittered
from numpyro_split.trajectories.path import Path, draw_path
from numpyro_split.trajectories.selection import Choice, Visits, add_by_weight, at_choice, choose, only
from split_common.exploration import FIRST_LENGTH
from split_common.fixed_length import WindowedBase


@dataclass(frozen=True)
class Windowed(WindowedBase):
    """Trajectories accepted by windows at their two ends (:class:`~split_common.fixed_length.WindowedBase`)."""

    def first_fields(self, z: Position) -> dict[str, Any]:
        """A length that the trees of warm-up write down and nothing reads."""
        return {"trajectory_length": jnp.full((), FIRST_LENGTH)}

    def move(self, state: Any, integrator: IntegratorBase, num_warmup: int) -> tuple[Any, None]:
        """One iteration."""
        return windowed_transition(state, integrator, self.num_steps, self.window_size, self.step_size_jitter), None


def windowed_transition(
    state: Any, integrator: IntegratorBase, num_steps: int, window_size: int, step_size_jitter: float
) -> Any:
    """One iteration of ``num_steps`` steps, accepted by windows, at the state's step size and metric.

    Args:
        state: where the chain is.
        integrator: the schedule on the target's potential, with the state's metric.
        num_steps: steps of the trajectory.
        window_size: states in a window.
        step_size_jitter: j; all steps are u times as long, u drawn from U(1 - j, 1 + j).

    Returns:
        The next state.
    """
    rng_key, key_momentum, key_path, key_jitter = random.split(state.rng_key, 4)
    path = draw_path(state, integrator, state.adapt_state.step_size, key_momentum)
    path = path._replace(step_size=jittered(path.step_size, step_size_jitter, key_jitter))
    choice, visits = windowed(path, num_steps, window_size, key_path)
    return at_choice(state, path, choice, visits, jnp.full_like(state.num_steps, num_steps))._replace(rng_key=rng_key)


def windowed(path: Path, num_steps: int, window_size: int, rng_key: jax.Array) -> tuple[Choice, Visits]:
    """A trajectory of ``num_steps`` steps, accepted by windows of ``window_size`` states."""
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
        return state, *lax.cond(in_a_window, look, lambda: (windows, visits))

    carry = (path.start, see((unseen, unseen), at_start, place), Visits.none())
    back = lax.fori_loop(0, place, lambda k, c: move(-1, place - 1 - k, c), carry)
    forth = lax.fori_loop(place + 1, num_steps + 1, lambda i, c: move(1, i, c), (path.start, *back[1:]))
    (first, last), visits = forth[1:]
    return choose(first, last, last.log_weight - first.log_weight, random.uniform(key_accept)), visits
