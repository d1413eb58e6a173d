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
        """A field for the length that the trees of warm-up learn; these trajectories do not use it."""
        return {"trajectory_length": FIRST_LENGTH}

    def move(self, state: Any, integrator: IntegratorBase, warmup_steps: int) -> tuple[Any, None]:
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
    path = draw_path(state, integrator, state.adapt_state.step_size)
    path = path._replace(step_size=jittered(path.step_size, step_size_jitter))
    choice, visits = windowed(path, num_steps, window_size)
    return at_choice(state, path, choice, visits, num_steps)


def windowed(path: Path, num_steps: int, window_size: int) -> tuple[Choice, Visits]:
    """The choice and the statistics of a trajectory of ``num_steps`` steps with windows of ``window_size`` states."""
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
