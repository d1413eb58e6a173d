"""Where splitting is centred is found in warm-up: at the ends of the host's windows (:mod:`split_common.centering`)."""

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
    """Where a chain's splitting is centred, and what is known of where it should be.

    Attributes:
        center: of the next trajectory.
        mean: of the position, over windows of warm-up; None where the reference is given.
        left: squared differences of the forces at a draw, without centring, of first and of second order.
    """

    center: Center
    mean: WindowMean | None
    left: tuple[float, float, float]

    def longest_step(self, learns_length: bool) -> float:
        """Upper limit of the step size, of trajectories whose lengths are learned, or of others."""
        longest = LONGEST_CENTRED_LENGTH if learns_length else LONGEST_CENTRED_STEP
        return longest if self.center.order else math.inf


def first_center(settings: CenterSettings, potential: SplitPotential, z: Position, sites: Sequence[str]) -> CenterState:
    """Before warm-up: about the given reference, or nowhere yet."""
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
    """After iteration ``t``, which ended at ``z``: at the end of a window of the metric, centred about its mean.

    Args:
        state: where splitting was centred.
        settings: what is asked for.
        potential: of the target.
        velocity: the inverse mass matrix times a momentum.
        coordinates: from a position to what the mass matrix is of.
        t: the iteration, counted from 1 as the host does.
        z: where it ended.
        window_ends: iterations that end a window of warm-up, counted likewise.

    Returns:
        The state, and the gradients that it took, each of a subset.
    """
    if state.mean is None or len(window_ends) < 3:
        return state, 0
    mean = state.mean.update(t, z, window_ends)
    if t not in window_ends[1:-1]:
        return state._replace(mean=mean), 0
    sites, num_subsets, like = state.center.sites, potential.num_subsets, coordinates(zeros(z))
    size = sum(z[name].numel() for name in sites)
    order = 2 if t == window_ends[-2] and settings.keeps_second_order(size) else 1  # the second takes many gradients
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
    """Squared differences of the forces at ``z``: without centring, of first and of second order."""
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
