"""Proposals of a Metropolis-Hastings step that read no row, or a few: leapfrog steps by a force drawn beforehand.

A map made of drifts and of kicks by any function of the position preserves volume, and with a flip of the momentum it
is its own inverse. So if the force is drawn independently of the state and kept for the whole trajectory, the ratio of
proposal densities is that of the momenta: acceptance needs their kinetic energies and nothing of the force. A proposal
without a force is a random walk, one with a single step a Langevin proposal, one with several steps a Hamiltonian one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.func import grad

from pyro_split.integrators.integrator import Integrator, IntegratorState, Kinetic, make_steps
from pyro_split.potential.expansion import Taylor, controlled
from pyro_split.potential.position import Position, flatten, unflatten, zeros
from pyro_split.potential.split_potential import SplitPotential
from pyro_split.subsampling.rows import draw_minibatch
from pyro_split.trajectories.fixed_length import draw_length
from split_common.penalty import Batches, PenaltySettings
from split_common.schedule import naive

Gradient = Callable[[Position], Position]
LEAPFROG = naive(1)


class Force:
    """Potential with a gradient alone: its energies are zeros, which the integrator carries but nothing uses."""

    def __init__(self, gradient: Gradient):
        self._gradient = gradient

    def subset_energies_and_grad(self, z: Position, m: int) -> tuple[tuple[Tensor, Tensor], Position]:
        """Zeros, and the gradient."""
        return (torch.zeros(()), torch.zeros(())), self._gradient(z)

    def subset_grad(self, z: Position, m: int) -> Position:
        """The gradient."""
        return self._gradient(z)

    def energies_and_grad(self, z: Position) -> tuple[Tensor, Position]:
        """Zeros, shape (2,), and the gradient."""
        return torch.zeros(2), self._gradient(z)

    def energies(self, z: Position) -> Tensor:
        """Zeros, shape (2,)."""
        return torch.zeros(2)


class Forces:
    """Draws the force of each proposal: none, that of the surrogate, or that of a minibatch.

    Args:
        settings: settings of the kernel, which say which force.
        batches: batches of the estimates, for the number of rows and the power of the likelihood.
        potential: the potential whose prior and rows give the force.
        taylor: the control variate, or None.
        sites: names of the latent sites.
    """

    def __init__(
        self,
        settings: PenaltySettings,
        batches: Batches,
        potential: SplitPotential,
        taylor: Taylor | None,
        sites: Sequence[str],
    ):
        self._settings, self._batches, self._potential, self._taylor = settings, batches, potential, taylor

        def rest_grad(points: list[Position], row_terms: Callable[[Position], Tensor]) -> Tensor:
            """Gradient of the residuals of some rows after the control variate, summed, shape (D,)."""
            return flatten(grad(lambda z: controlled(taylor, row_terms, z).sum())(points[0]))

        self._rest_grad = potential.row_function(rest_grad, 1, sites)

    def draw(self) -> Force:
        """The force of one proposal."""
        if self._settings.gradient is None:
            return Force(zeros)
        if self._settings.gradient == "surrogate":
            return Force(self._surrogate_grad)
        size = min(self._settings.gradient_batch_size, self._batches.num_rows)
        rows = draw_minibatch(self._batches.num_rows, size)
        row_weight = self._batches.likelihood_power(self._settings.target) * self._batches.num_rows / size
        if self._taylor is None:
            return Force(lambda z: self._potential.batch_potential_and_grad(z, rows, row_weight)[1])
        return Force(lambda z: self._controlled_grad(z, rows, row_weight))

    def _surrogate_grad(self, z: Position) -> Position:
        """Gradient of -log p(z) - s Σ_i T_i(z)."""
        assert self._taylor is not None  # settings are checked to have a control variate
        prior, total = self._potential.prior_energy_and_grad(z)[1], self._taylor.total_grad(z)
        likelihood_power = self._batches.likelihood_power(self._settings.target)
        return {name: prior[name] - likelihood_power * total[name] for name in z}

    def _controlled_grad(self, z: Position, rows: Tensor, row_weight: float) -> Position:
        """Gradient of the surrogate, plus an estimate of the residual's gradient."""
        rest = unflatten(self._potential.row_sum(self._rest_grad, [z], rows), z)
        surrogate = self._surrogate_grad(z)
        return {name: surrogate[name] - row_weight * rest[name] for name in z}


def propose(
    settings: PenaltySettings, force: Force, kinetic: Kinetic, z: Position, step_size: float
) -> tuple[IntegratorState, IntegratorState]:
    """Start of a proposal, with a momentum drawn now, and its end.

    The step of a Hamiltonian proposal is a random fraction of ``step_size``, so that trajectories do not return to
    their start.
    """
    integrator, order = Integrator(LEAPFROG, force, kinetic), range(1)
    step_size = step_size * draw_length(settings.shortest_step, 1.0)
    start = integrator.start(z, kinetic.draw(z), order)
    return start, make_steps(integrator, start, step_size, settings.num_steps, order)
