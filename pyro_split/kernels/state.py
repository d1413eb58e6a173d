"""The state of one chain, of every method."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from pyro_split.adaptation.centering import CenterState
from pyro_split.adaptation.health import Health
from pyro_split.adaptation.step_size_and_metric import Adapter, WindowMean
from pyro_split.adaptation.threshold import ThresholdState
from pyro_split.host import AdaptState
from pyro_split.potential.expansion import Taylor
from pyro_split.potential.position import Position
from pyro_split.subsampling.estimates import Estimator
from pyro_split.subsampling.num_batches import NoiseState
from pyro_split.subsampling.proposals import Forces
from split_common.settling import Settled


class ChainState(NamedTuple):
    """State of the chain, replaced and never changed in place. What a method lacks is None.

    Attributes:
        i: iteration, counted through warm-up and sampling.
        z: the draw, a dict of unconstrained values by site.
        potential_energy: U(z); of methods that read a few rows, an estimate from the last iteration's.
        energy: that plus the kinetic energy, at the end of the transition.
        num_steps: steps of the last trajectory.
        num_grads: its gradients, each of a subset; of methods that read a few rows, of a minibatch.
        accept_prob: acceptance probability of the last trajectory; of trees and windows, the mean of
            min(1, exp(-energy change)) over the states but the start.
        mean_accept_prob: its mean so far, in warm-up or since.
        diverging: whether the last trajectory's energy error was above 1000, infinite or undefined.
        step_size: step size of the last trajectory.
        adapt_state: the host's adaptation state: step size and metric of the next trajectory.
        adapter: the host's adapter, a tool into which ``adapt_state`` is loaded.
        settled: what warm-up settled on, and how far it still moved.
        health: sums over the draws, of which the run's first warning is made.
        opening_grad: the kicks that open the next trajectory, a dict like ``z``; None where none are kept.
        energies: the terms of the potential at ``z``, in float64, shape (M + 1,).
        centering: where splitting is centred; None where it is not.
        center_order: order of centring, 0 for none.
        harmonic_drift: whether drifts follow a normal approximation; None where they never do.
        shortest_length: the shortest that trajectories may be, where lengths are learned in warm-up.
        trajectory_length: the longest that trajectories may be, where that is learned in warm-up.
        tree_depth: doublings of the last trajectory, a refused one included.
        reached_max_treedepth: whether the limit on them ended it.
        virial_average: mean of dG/dt over the last trajectory, in the form that its rule looks at.
        share_at_limit: share of draws since warm-up that ended at the limit.
        threshold: of exhaustion, at the last trajectory.
        threshold_state: how it adapts.
        weight_energy: S3HMC's first block of ``energy``: minus the log-likelihood, plus the kinetic energy of
            everything but the precisions.
        precision_energy: its second block: the rest of ``energy``. Both are 0 while warm-up moves by trees.
        precision_mean: of the unconstrained precisions, in the window that the mass matrix was adapted in.
        chi2: χ², variance of the estimate that the last proposal was accepted by.
        num_batches: K of that estimate.
        tail_error: estimate, from its rows, of how far single rows may put the log-density off.
        rows_touched: rows read in the last iteration, a row as often as it was read.
        noise: what is remembered of the noise.
        taylor: the control variate; None where there is none.
        estimator: a tool that estimates changes of energy from a few rows.
        forces: a tool that draws the forces of proposals.
        momentum: of stochastic gradients, r after the last iteration, a dict like ``z``.
        mean_square: of gradients divided by N, a dict like ``z``; None where no preconditioner adapts.
        extra: what a method from outside this package keeps, any pytree.
    """

    i: int
    z: Position
    potential_energy: float
    energy: float
    num_steps: int
    num_grads: int
    accept_prob: float
    mean_accept_prob: float
    diverging: bool
    step_size: float
    adapt_state: AdaptState | None = None
    adapter: Adapter | None = None
    settled: Settled | None = None
    health: Health | None = None
    opening_grad: Position | None = None
    energies: Tensor | None = None
    centering: CenterState | None = None
    center_order: int | None = None
    harmonic_drift: bool | None = None
    shortest_length: float | None = None
    trajectory_length: float | None = None
    tree_depth: int | None = None
    reached_max_treedepth: bool | None = None
    virial_average: float | None = None
    share_at_limit: float | None = None
    threshold: float | None = None
    threshold_state: ThresholdState | None = None
    weight_energy: float | None = None
    precision_energy: float | None = None
    precision_mean: WindowMean | None = None
    chi2: float | None = None
    num_batches: int | None = None
    tail_error: float | None = None
    rows_touched: int | None = None
    noise: NoiseState | None = None
    taylor: Taylor | None = None
    estimator: Estimator | None = None
    forces: Forces | None = None
    momentum: Position | None = None
    mean_square: Position | None = None
    extra: Any = None
