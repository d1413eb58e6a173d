"""The state of one chain, for all methods."""

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
    """State of one chain, replaced and never changed in place. Fields that a method lacks are None.

    Attributes:
        i: iteration, counted through warm-up and sampling.
        z: the draw, a dict of unconstrained values by site.
        potential_energy: U(z); for methods that read a few rows, an estimate from the rows of the last iteration.
        energy: potential plus kinetic energy at the end of the transition.
        num_steps: number of steps of the last trajectory.
        num_grads: number of gradients in the last iteration, each of a subset; for methods that read a few rows, of a
            minibatch.
        accept_prob: acceptance probability of the last trajectory; for trees and windows, the mean of
            min(1, exp(-energy change)) over the states without the start.
        mean_accept_prob: mean of ``accept_prob`` so far, over warm-up or over the draws.
        diverging: whether the energy error of the last trajectory was above 1000, infinite or undefined.
        step_size: step size of the last trajectory.
        adapt_state: the host's adaptation state: step size and metric of the next trajectory.
        adapter: adapter of step size and metric, into which ``adapt_state`` is loaded.
        settled: values that warm-up settled on, and how much they still changed.
        health: sums over the draws for the warning after the first draws.
        opening_grad: weighted sum of the gradients that open the next trajectory, a dict like ``z``; None where the
            schedule keeps none.
        energies: the terms of the potential at ``z``, in float64, shape (M + 1,).
        centering: centring of the splitting; None for no centring.
        center_order: order of centring, 0 for none.
        harmonic_drift: whether drifts follow a normal approximation; None where they never do.
        shortest_length: shortest length of trajectories, where lengths are learned in warm-up.
        trajectory_length: longest length of trajectories, where lengths are learned in warm-up.
        tree_depth: number of doublings of the last trajectory, including one that was discarded.
        reached_max_treedepth: whether the depth limit ended the last trajectory.
        virial_average: mean of dG/dt over the last trajectory, in the form that its rule uses.
        share_at_limit: share of the draws since warm-up whose trajectories ended at the depth limit.
        threshold: XHMC's threshold at the last trajectory.
        threshold_state: threshold of the next trajectory, and the state of its adaptation.
        weight_energy: S3HMC's first block of ``energy``: minus the log-likelihood, plus the kinetic energy of
            all sites but the precisions.
        precision_energy: S3HMC's second block of ``energy``, the rest. Both are 0 while warm-up moves by trees.
        precision_mean: mean of the unconstrained precisions, over the window that the mass matrix was adapted in.
        chi2: χ², variance of the estimate that the last decision was made with.
        num_batches: K, number of batches of that estimate.
        tail_error: estimate, from the rows of that estimate, of the error in the log-density due to single rows.
        rows_touched: number of rows read in the last iteration, each as often as it was read.
        noise: running statistics of the noise of estimates.
        taylor: control variate; None for no control variate.
        estimator: estimator of changes of energy from a few rows.
        forces: source of the drawn forces of proposals.
        momentum: momentum r of stochastic-gradient methods after the last iteration, a dict like ``z``.
        mean_square: mean square of gradients divided by N, a dict like ``z``; None where no preconditioner adapts.
        extra: fields of a method from outside this package, any pytree.
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
