"""The state of one chain, for all methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import random
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
    """Length of warm-up, static metadata of the state, so that compiled programs see a constant.

    Attributes:
        num_warmup: number of warm-up iterations.
        cut_at: number of iterations after which a run went on to draw, where these were too few; None otherwise.
    """

    num_warmup: int
    cut_at: int | None = None


def check_warmup_ended(warmup: Warmup) -> None:
    """Raise where a run draws from a state within warm-up, whose step size and metric would go on changing."""
    if warmup.cut_at is not None:
        raise ValueError(
            f"post_warmup_state must be a state after warm-up, got one after {warmup.cut_at} of {warmup.num_warmup} "
            "iterations of warm-up, as a stored run leaves it that was stopped there; let warm-up end first"
        )


@resumable
class ChainState(NamedTuple):
    """State of one chain; with vectorised chains, fields have a leading axis. Fields that a method lacks are None.

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
        data_digest: digest of the data from which the cached energies and gradients were computed.
        warmup: length of warm-up.
        rng_key: random key of the next transition.
        adapt_state: the host's adaptation state: step size and metric of the next trajectory.
        settled: values that warm-up settled on, and how much they still changed; -1 for what is not known.
        health: sums over the draws for the warning after the first draws.
        opening_grad: weighted sum of the gradients that open the next trajectory, a dict like ``z``; None where the
            schedule keeps none.
        energies: the terms of the potential at ``z``, shape (M + 1,).
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
        certainty_rows: indices of the rows that every iteration reads, ascending, shape (C,).
        momentum: momentum r of stochastic-gradient methods after the last iteration, a dict like ``z``.
        mean_square: mean square of gradients divided by N, a dict like ``z``; None where no preconditioner adapts.
        extra: fields of a method from outside this package, any pytree.
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


def with_key_like(state: ChainState, key: Any) -> ChainState:
    """A state whose key of adaptation is of the kind of another key, ``jax.random.key`` or ``PRNGKey``.

    The host gives a chain that goes on from a state a new ``rng_key``, and leaves the key of adaptation.

    Args:
        state: state of one chain, or of several.
        key: the other key, for as many chains; None for the state as it is.
    """
    if state.adapt_state is None or key is None:
        return state
    words, expected = (random.key_data(x) if is_typed(x) else x for x in (state.adapt_state.rng_key, key))
    if words.shape != expected.shape:  # keys of different generators, which checks refuse
        return state
    own = random.wrap_key_data(words, impl=random.key_impl(key)) if is_typed(key) else words
    return state._replace(adapt_state=state.adapt_state._replace(rng_key=own))


def is_typed(x: Any) -> bool:
    """Whether an array is of random keys of ``jax.random.key``, and not of the numbers of ``PRNGKey``."""
    return jnp.issubdtype(jnp.asarray(x).dtype, jax.dtypes.prng_key)
