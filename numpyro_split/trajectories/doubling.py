r"""Trajectories that double until a rule stops them: binary trees of states.

Each doubling adds a subtree as long as the trajectory, forwards or backwards with equal probability. Growth stops when
the rule (:mod:`numpyro_split.trajectories.termination`) holds for the whole trajectory; if it holds for a part of the
new subtree, that subtree is discarded. Every state of the final trajectory would have built it with the same
probability, 2^-d for depth d, because the doublings from any other state go through the same subtrees, which the same
rule checks. Steps must preserve volume and be reversible by a step back in time; every schedule has such steps, given
the order of its subsets (:mod:`split_common.schedule`).

The next state of the chain is chosen from the trajectory so that the weights exp(-H) are left invariant. Within a new
subtree the proposal is each state with probability in proportion to its weight. The proposal of the subtree replaces
that of the old trajectory with probability min(1, w_new / w_old), where w is a sum of weights: biased progressive
sampling. By induction the choice within the old trajectory leaves its weights invariant, and detailed balance holds
between the two halves: w_old min(1, w_new / w_old) = w_new min(1, w_old / w_new). This holds for the U-turn and for
exhaustion alike, because both choose in the same way.

A tree of 2^d states is built state by state. Of each size 2^k there is at most one finished subtree that waits for its
second half, so only d of them are kept: memory grows with the depth, not with the number of states.

References:
    Betancourt (2017), A Conceptual Introduction to Hamiltonian Monte Carlo, appendix A. Phan, Pradhan and Jankowiak
    (2019), Composable Effects for Flexible and Accelerated Probabilistic Programming in NumPyro, on trees without
    recursion.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random

from numpyro_split.integrators.integrator import IntegratorBase, IntegratorState
from numpyro_split.potential.position import Position, where
from numpyro_split.potential.tracing import call_back
from numpyro_split.trajectories.path import Path, draw_path
from numpyro_split.trajectories.selection import Choice, Uniforms, Visits, add_by_weight, at_choice, choose, only
from numpyro_split.trajectories.termination import Virial, mean_rate_in_time
from split_common.health import DRAWS_BEFORE_WARNING, WARN_ABOVE_SHARE
from split_common.termination import DoublingBase, Rule, Span, warn_of_depth_limit


@dataclass(frozen=True)
class Doubling(DoublingBase):
    """Trajectories that double until a criterion holds (:class:`~split_common.termination.DoublingBase`)."""

    def first_fields(self, z: Position) -> dict[str, Any]:
        """Initial values of the statistics of a tree, and the fields of the criterion."""
        zero = jnp.zeros(())
        return {
            "tree_depth": jnp.zeros((), jnp.result_type(int)),
            "reached_max_treedepth": jnp.array(False),
            "virial_average": zero,
            "share_at_limit": zero,
            **self.criterion.first_fields(z),
        }

    def move(self, state: Any, integrator: IntegratorBase, num_warmup: int) -> tuple[Any, None]:
        """One iteration: a tree, then an update of the criterion."""
        moved = tree_transition(state, integrator, self.criterion.rule(state), self.max_tree_depth)
        return self.criterion.updated(state, count_depth_limit(moved, num_warmup), num_warmup), None

    def watch(self, state: Any, num_warmup: int) -> None:
        """Warn if the trajectories of many of the first draws ended at the depth limit."""
        warn_if_often_at_limit(state, num_warmup, self.max_tree_depth)


class Tree(NamedTuple):
    """A trajectory that doubles: a binary tree of states.

    Attributes:
        first: earliest state, without energies, which only a choice needs.
        last: latest state, without energies.
        choice: the proposal, and the sum of all weights.
        span: summary of the whole trajectory for the rule, in order of time.
        num_states: number of states, without those of a discarded subtree.
        depth: number of doublings, including one that was discarded.
        visits: statistics of the states visited, including those of a discarded subtree.
        stopped: whether the rule has held, for the whole trajectory or for a part of a discarded subtree.
    """

    first: IntegratorState
    last: IntegratorState
    choice: Choice
    span: Span
    num_states: jax.Array
    depth: jax.Array
    visits: Visits
    stopped: jax.Array

    @property
    def grows(self) -> jax.Array:
        """Whether another doubling is allowed: neither has the rule held nor has a step diverged."""
        return ~self.stopped & ~self.visits.diverging


def doubling(path: Path, rule: Rule, max_tree_depth: int, rng_key: jax.Array) -> Tree:
    """Double a trajectory until ``rule`` holds, a step diverges, or it has doubled ``max_tree_depth`` times.

    Args:
        path: how the trajectory is integrated, and its start.
        rule: when the trajectory stops.
        max_tree_depth: largest number of doublings.
        rng_key: random key for directions and choices.
    """
    choice, span = _look_at_start(path, rule)
    end, zero = _without_energies(path.start), jnp.zeros((), jnp.result_type(int))
    trajectory = Tree(end, end, choice, span, zero + 1, zero, Visits.none(), jnp.array(False))

    def grow(carry: tuple[Tree, Span, Uniforms]) -> tuple[Tree, Span, Uniforms]:
        trajectory, waiting, uniforms = carry
        uniform, uniforms = uniforms.take()
        forwards = uniform < 0.5
        run = _run(path, trajectory, forwards, rule, waiting, uniforms)
        uniform, uniforms = run.uniforms.take()
        return _extend(trajectory, run, forwards, rule, uniform), run.waiting, uniforms

    def goes_on(carry: tuple[Tree, Span, Uniforms]) -> jax.Array:
        return carry[0].grows & (carry[0].depth < max_tree_depth)

    waiting = jax.tree.map(lambda x: jnp.zeros((max_tree_depth, *x.shape), x.dtype), span)
    return lax.while_loop(goes_on, grow, (trajectory, waiting, Uniforms.of(rng_key)))[0]


class _Run(NamedTuple):
    """A new subtree while it grows to the length of the trajectory that it doubles.

    Attributes:
        state: outermost state, without energies.
        choice: the proposal, and the sum of the subtree's weights.
        span: summary of the largest finished part that ends here, in the order of the visit.
        waiting: summaries of finished parts of 1, 2, 4, ... states that wait for their second half, one in each row. A
            row is written before it is read, so a subtree may start with the rows of the last subtree.
        num_states: number of states so far.
        visits: statistics of the states visited, of the trajectory and of this subtree.
        stopped: whether the rule has held for a part of the subtree.
        uniforms: random numbers for the choices.
    """

    state: IntegratorState
    choice: Choice
    span: Span
    waiting: Span
    num_states: jax.Array
    visits: Visits
    stopped: jax.Array
    uniforms: Uniforms


def _run(
    path: Path,
    trajectory: Tree,
    forwards: jax.Array,
    rule: Rule,
    waiting: Span,
    uniforms: Uniforms,
) -> _Run:
    """The new subtree: as many states as ``trajectory`` has, or fewer if the rule holds or a step diverges."""
    direction = jnp.where(forwards, 1.0, -1.0)
    end = where(forwards, trajectory.last, trajectory.first)

    def add_state(run: _Run) -> _Run:
        state = path.step(run.state, direction)
        choice, span = _look(path, rule, state)
        uniform, uniforms = run.uniforms.take()
        span, waiting, stopped = _merge(run.waiting, span, run.num_states, rule)
        return _Run(
            state=_without_energies(state),
            choice=add_by_weight(run.choice, choice, uniform),
            span=span,
            waiting=waiting,
            num_states=run.num_states + 1,
            visits=run.visits.with_state(choice.energy_change),
            stopped=stopped,
            uniforms=uniforms,
        )

    def goes_on(run: _Run) -> jax.Array:
        return (run.num_states < trajectory.num_states) & ~run.stopped & ~run.visits.diverging

    nothing = trajectory.choice._replace(log_weight=jnp.array(-jnp.inf))
    zero, no = jnp.zeros((), jnp.result_type(int)), jnp.array(False)
    run = _Run(end, nothing, trajectory.span, waiting, zero, trajectory.visits, no, uniforms)
    return lax.while_loop(goes_on, add_state, run)


def _merge(waiting: Span, span: Span, num_before: jax.Array, rule: Rule) -> tuple[Span, Span, jax.Array]:
    """Join a state with the finished parts before it, like the carries of a binary counter, until the rule holds.

    Returns:
        Summary of the largest finished part that ends with the state, the parts that now wait, and whether the rule
        held.
    """

    def carries(counter: tuple[jax.Array, Span, jax.Array]) -> jax.Array:
        level, _, stopped = counter
        return ((num_before >> level) % 2 == 1) & ~stopped

    def carry(counter: tuple[jax.Array, Span, jax.Array]) -> tuple[jax.Array, Span, jax.Array]:
        level, second, _ = counter
        first = jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, level, keepdims=False), waiting)
        whole = first.joined(second)
        return level + 1, whole, rule.holds(first, second, whole)

    level, span, stopped = lax.while_loop(carries, carry, (jnp.zeros_like(num_before), span, jnp.array(False)))
    # this is updated in place; a scatter would not be
    waiting = jax.tree.map(lambda x, row: lax.dynamic_update_index_in_dim(x, row, level, 0), waiting, span)
    return span, waiting, stopped


def _extend(trajectory: Tree, run: _Run, forwards: jax.Array, rule: Rule, uniform: jax.Array) -> Tree:
    """The trajectory with a finished subtree added, or without a subtree that is discarded."""
    refused = run.stopped | run.visits.diverging
    before = where(forwards, trajectory.span, trajectory.span.reversed())
    whole = before.joined(run.span)
    grown = trajectory._replace(
        first=where(forwards, trajectory.first, run.state),
        last=where(forwards, run.state, trajectory.last),
        choice=choose(trajectory.choice, run.choice, run.choice.log_weight - trajectory.choice.log_weight, uniform),
        span=where(forwards, whole, whole.reversed()),
        num_states=2 * trajectory.num_states,
        stopped=rule.holds(before, run.span, whole),
    )
    kept = trajectory._replace(stopped=run.stopped)
    return where(refused, kept, grown)._replace(depth=trajectory.depth + 1, visits=run.visits)


def _look_at_start(path: Path, rule: Rule) -> tuple[Choice, Span]:
    """Choice and span of the state in which a trajectory starts."""
    grad = path.integrator.energies_and_grad(path.start)[1] if rule.takes_gradients else None
    choice = only(path.start, path.energies, jnp.zeros(()))
    return choice, rule.span.of(path, path.start, choice.log_weight, grad)


def _look(path: Path, rule: Rule, state: IntegratorState) -> tuple[Choice, Span]:
    """Choice and span of one state."""
    if rule.takes_gradients:
        energies, grad = path.integrator.energies_and_grad(state)
    else:
        energies, grad = path.integrator.energies(state), None
    choice = only(state, energies, path.energy_change(state, energies))
    return choice, rule.span.of(path, state, choice.log_weight, grad)


def _without_energies(state: IntegratorState) -> IntegratorState:
    return state._replace(energies=None)


def tree_transition(state: Any, integrator: IntegratorBase, rule: Rule, max_tree_depth: int) -> Any:
    """One iteration whose trajectory doubles, at the state's step size and metric, which do not change.

    Args:
        state: current state of the chain.
        integrator: integrator of the schedule on the target's potential, at the state's metric.
        rule: when the trajectory stops.
        max_tree_depth: largest number of doublings.

    Returns:
        The next state.
    """
    rng_key, key_momentum, key_tree = random.split(state.rng_key, 3)
    path = draw_path(state, integrator, state.adapt_state.step_size, key_momentum)
    trajectory = doubling(path, rule, max_tree_depth, key_tree)
    num_states = trajectory.visits.num_states
    moved = at_choice(state, path, trajectory.choice, trajectory.visits, num_states)
    takes_whole_gradients = rule.takes_gradients and integrator.schedule.closing_kick is None
    return moved._replace(
        num_grads=moved.num_grads + takes_whole_gradients * integrator.schedule.num_subsets * (num_states + 1),
        tree_depth=trajectory.depth,
        reached_max_treedepth=trajectory.grows,
        virial_average=_virial_average(trajectory, path.step_size),
        rng_key=rng_key,
    )


def _virial_average(trajectory: Tree, step_size: jax.Array) -> jax.Array:
    """The mean of dG/dt in the form that the rule uses; for rules that use no gradients, the mean over time."""
    span = trajectory.span
    if isinstance(span, Virial) and span.mean_rate is not None:
        return span.mean_rate
    first, last = (
        sum((jnp.vdot(state.z[name], state.p[name]) for name in state.z), jnp.zeros(()))
        for state in (trajectory.first, trajectory.last)
    )
    return mean_rate_in_time(last - first, trajectory.num_states, step_size)


def count_depth_limit(moved: Any, num_warmup: int) -> Any:
    """``moved`` with the share of draws at the depth limit brought up to date."""
    num_draws, share = moved.i + 1 - num_warmup, moved.share_at_limit
    counted = share + (moved.reached_max_treedepth - share) / jnp.maximum(num_draws, 1)
    return moved._replace(share_at_limit=jnp.where(num_draws < 1, 0.0, counted))


def warn_if_often_at_limit(state: Any, num_warmup: int, max_tree_depth: int) -> None:
    """Warn once, for all chains together, if the trajectories of many of the first draws ended at the depth limit."""
    share = jnp.mean(state.share_at_limit)
    warns = (jnp.max(state.i) - num_warmup == DRAWS_BEFORE_WARNING) & (share > WARN_ABOVE_SHARE)

    def warn(warns: Any, share: Any) -> None:
        # vectorised chains that do not share their iteration count evaluate both branches, so check again
        if warns:
            warn_of_depth_limit(max_tree_depth, share)

    lax.cond(warns, partial(call_back, warn), lambda *_: None, warns, share)
