"""The state of one chain, of every method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
from numpyro.infer.hmc_util import HMCAdaptState

from numpyro_split.adaptation.centering import CenterState
from numpyro_split.adaptation.health import Health
from numpyro_split.adaptation.step_size_and_metric import WindowMean
from numpyro_split.adaptation.threshold import ThresholdState
from numpyro_split.potential.compensated import Compensated
from numpyro_split.potential.content import DataDigest, resumable
from numpyro_split.potential.expansion import Taylor
from numpyro_split.potential.position import Position
from numpyro_split.subsampling.num_batches import NoiseState
from split_common.settling import Settled


@jax.tree_util.register_static
@dataclass(frozen=True)
class Warmup:
    """How long a state's warm-up is: in the state, but no number of it, so that compiled programs know it.

    Attributes:
        num_warmup: number of warm-up iterations.
    """

    num_warmup: int


@resumable
class ChainState(NamedTuple):
    """State of one chain; each field gets a leading axis where chains are vectorised. What a method lacks is None.

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
        data_digest: of the data that what is kept of them belongs to.
        warmup: how long warm-up is.
        rng_key: key of the next transition.
        adapt_state: the host's adaptation state: step size and metric of the next trajectory.
        settled: what warm-up settled on, and how far it still moved.
        health: sums over the draws, of which the run's first warning is made.
        opening_grad: the kicks that open the next trajectory, a dict like ``z``; None where none are kept.
        energies: the terms of the potential at ``z``, shape (M + 1,).
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
        certainty_rows: numbers of the rows that every iteration reads, ascending, shape (C,).
        momentum: of stochastic gradients, r after the last iteration, a dict like ``z``.
        mean_square: of gradients divided by N, a dict like ``z``; None where no preconditioner adapts.
        extra: what a method from outside this package keeps, any pytree.
    """

    i: jax.Array
    z: Position
    potential_energy: jax.Array
    energy: jax.Array
    num_steps: jax.Array
    num_grads: jax.Array
    accept_prob: jax.Array
    mean_accept_prob: jax.Array
    diverging: jax.Array
    step_size: jax.Array
    data_digest: DataDigest
    warmup: Warmup
    rng_key: jax.Array
    adapt_state: HMCAdaptState | None = None
    settled: Settled | None = None
    health: Health | None = None
    opening_grad: Position | None = None
    energies: Compensated | None = None
    centering: CenterState | None = None
    center_order: jax.Array | None = None
    harmonic_drift: jax.Array | None = None
    shortest_length: jax.Array | None = None
    trajectory_length: jax.Array | None = None
    tree_depth: jax.Array | None = None
    reached_max_treedepth: jax.Array | None = None
    virial_average: jax.Array | None = None
    share_at_limit: jax.Array | None = None
    threshold: jax.Array | None = None
    threshold_state: ThresholdState | None = None
    weight_energy: jax.Array | None = None
    precision_energy: jax.Array | None = None
    precision_mean: WindowMean | None = None
    chi2: jax.Array | None = None
    num_batches: jax.Array | None = None
    tail_error: jax.Array | None = None
    rows_touched: jax.Array | None = None
    noise: NoiseState | None = None
    taylor: Taylor | None = None
    certainty_rows: jax.Array | None = None
    momentum: Position | None = None
    mean_square: Position | None = None
    extra: Any = None
