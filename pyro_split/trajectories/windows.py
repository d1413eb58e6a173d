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

import math
from dataclasses import dataclass
from typing import Any

import torch

from pyro_split.integrators.integrator import IntegratorBase
from pyro_split.potential.position import Position
from pyro_split.trajectories.fixed_length import jittered
from pyro_split.trajectories.path import Path, draw_path
from pyro_split.trajectories.selection import Choice, Visits, add_by_weight, at_choice, choose, only
from split_common.exploration import FIRST_LENGTH
from split_common.fixed_length import WindowedBase


@dataclass(frozen=True)
class Windowed(WindowedBase):
    """Trajectories accepted by windows at their two ends (:class:`~split_common.fixed_length.WindowedBase`)."""

    def first_fields(self, z: Position) -> dict[str, Any]:
        """A length that the trees of warm-up write down and nothing reads."""
        return {"trajectory_length": FIRST_LENGTH}

    def move(self, state: Any, integrator: IntegratorBase, warmup_steps: int) -> tuple[Any, None]:
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
    path = draw_path(state, integrator, state.adapt_state.step_size)
    path = path._replace(step_size=jittered(path.step_size, step_size_jitter))
    choice, visits = windowed(path, num_steps, window_size)
    return at_choice(state, path, choice, visits, num_steps)


def windowed(path: Path, num_steps: int, window_size: int) -> tuple[Choice, Visits]:
    """A trajectory of ``num_steps`` steps, accepted by windows of ``window_size`` states."""
    place, visits = int(torch.randint(window_size, ())), Visits()
    unseen, at_start = only(path.start, path.energies, math.inf), only(path.start, path.energies, 0.0)

    def see(windows: list[Choice], state: Choice, i: int) -> list[Choice]:
        members = (i < window_size, i > num_steps - window_size)
        return [add_by_weight(w, state) if member else w for w, member in zip(windows, members, strict=True)]

    windows = see([unseen, unseen], at_start, place)
    for direction, places in ((-1, range(place - 1, -1, -1)), (1, range(place + 1, num_steps + 1))):
        state = path.start
        for i in places:
            state = path.step(state, direction)
            if i < window_size or i > num_steps - window_size:
                energies = path.integrator.energies(state)
                change = path.energy_change(state, energies)
                windows, visits = see(windows, only(state, energies, change), i), visits.with_state(change)
    first, last = windows
    return choose(first, last, last.log_weight - first.log_weight), visits
