"""The reference of centred splitting, found in warm-up at the ends of the host's windows.

See :mod:`split_common.centering`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pyro_split.adaptation.step_size_and_metric import WindowMean
from pyro_split.integrators.integrator import Velocity
from pyro_split.potential.centering import Center, grad_differences
from pyro_split.potential.position import Position, flatten, subtract, unflatten, zeros
from pyro_split.potential.split_potential import SplitPotential
from split_common.centering import LONGEST_CENTRED_LENGTH, LONGEST_CENTRED_STEP, CenterSettings, choose_order


class CenterState(NamedTuple):
    """Centring of a chain's splitting, and the mean position from which warm-up finds the reference.

    Attributes:
        center: reference and correction terms of the next trajectory.
        mean: mean of the position over windows of warm-up; None where the reference is given.
        left: squared differences between the subsets' gradients at a draw: without centring, and left by centring of
            first and of second order.
    """

    center: Center
    mean: WindowMean | None
    left: tuple[float, float, float]

    def longest_step(self, learns_length: bool) -> float:
        """Upper limit of the step size; it differs for trajectories whose lengths are learned."""
        longest = LONGEST_CENTRED_LENGTH if learns_length else LONGEST_CENTRED_STEP
        return longest if self.center.order else math.inf


def first_center(settings: CenterSettings, potential: SplitPotential, z: Position, sites: Sequence[str]) -> CenterState:
    """Centring before warm-up: about the given reference, or none yet."""
    unknown = (math.nan, math.nan, math.nan)
    if not settings.is_found:
        given = {name: torch.as_tensor(settings.center[name]).to(u).reshape(u.shape) for name, u in z.items()}
        return CenterState(Center.at(potential, given, sites, settings.order or 1), None, unknown)
    return CenterState(Center.none(z, sites, potential.num_subsets), WindowMean.start(z), unknown)


def recentred(
    state: CenterState,
    settings: CenterSettings,
    potential: SplitPotential,
    velocity: Velocity,
    coordinates: Callable[[Position], Position],
    t: int,
    z: Position,
    window_ends: Sequence[int],
) -> tuple[CenterState, int]:
    """Centring after iteration ``t``: at the end of a window of the metric, about the mean position of the window.

    Args:
        state: centring so far.
        settings: whether and how splitting is centred.
        potential: potential of the target.
        velocity: function from a momentum to its velocity, the inverse mass matrix times the momentum.
        coordinates: function from a position to the entries that the mass matrix adapts to.
        t: the iteration, counted from 1 as by the host.
        z: position at its end.
        window_ends: iterations that end a window of warm-up, counted from 1.

    Returns:
        The centring, and the number of subset gradients that were evaluated for it.
    """
    if state.mean is None or len(window_ends) < 3:
        return state, 0
    mean = state.mean.update(t, z, window_ends)
    if t not in window_ends[1:-1]:
        return state._replace(mean=mean), 0
    sites, num_subsets, like = state.center.sites, potential.num_subsets, coordinates(zeros(z))
    size = sum(z[name].numel() for name in sites)
    order = 2 if t == window_ends[-2] and settings.keeps_second_order(size) else 1  # order 2 takes many gradients
    found = Center.at(potential, mean.adapted, sites, order)
    left = differences_left(found, potential, lambda p: velocity({**like, **p}), z)
    best = choose_order(left, settings.order if order == 2 else 1)
    center = found._replace(order=best, curvatures=found.curvatures if best == 2 else None)
    if not best:
        center = Center.none(mean.adapted, sites, num_subsets)
    return CenterState(center, mean, left), num_subsets * (2 + 2 * size * (order == 2))


def differences_left(
    center: Center, potential: SplitPotential, velocity: Velocity, z: Position
) -> tuple[float, float, float]:
    """Squared differences of the subsets' gradients at ``z``: without centring, and left by either order."""
    differences = grad_differences(potential, z, center.sites)
    first = subtract(differences, center.grads)

    def squared(differences: Position) -> float:
        total = 0.0
        for m in range(potential.num_subsets):
            difference = {name: u[m] for name, u in differences.items()}
            speed = velocity(difference)
            total += sum(float((u * speed[name]).sum()) for name, u in difference.items())
        return total

    of_second = math.inf
    if center.curvatures is not None:
        offset = center.offset(z)
        linear: Tensor = center.curvatures @ flatten(offset)
        of_second = squared(subtract(first, unflatten(linear, offset)))
    return squared(differences), squared(first), of_second
