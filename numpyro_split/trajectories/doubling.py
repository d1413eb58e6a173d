r"""A trajectory that doubles until a rule says that it has gone far enough: a tree of states.

It grows by a run of its own length, forwards or backwards with equal probability, until a rule
(:mod:`numpyro_split.trajectories.termination`) holds of the whole, or of any part that the doubling of its halves went
through, in which case the new run is refused whole. Every state of the final trajectory would have built it with the
same probability, 2 to the power of minus its depth, because every other order of doublings goes through the same parts
and would have been stopped by the same rule. It takes steps that preserve volume and are undone by a step back in time
(every schedule, given the order of its subsets; :mod:`split_common.schedule`).

It remains to take a state of a given trajectory in a way that leaves the weights exp(-H) invariant: within a new run
each state by its weight, and the new run's state instead of the old one's with probability min(1, w_new / w_old). By
induction the old one's choice leaves the weights within the old run invariant, and w_old min(1, w_new / w_old) =
w_new min(1, w_old / w_new) is as much flow from the old run to the new as back. This holds for the U-turn and for
exhaustion alike: both take the same choice.

A tree of 2^d states is built state by state. Of each size 2^k there is at most one finished run that waits for its
second half, so d of them are kept: memory grows with the depth, not with the number of states.

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
        """Statistics of no tree, and the criterion's fields."""
        zero = jnp.zeros(())
        return {
            "tree_depth": jnp.zeros((), jnp.result_type(int)),
            "reached_max_treedepth": jnp.array(False),
            "virial_average": zero,
            "share_at_limit": zero,
            **self.criterion.first_fields(z),
        }

    def move(self, state: Any, integrator: IntegratorBase, num_warmup: int) -> tuple[Any, None]:
        """One iteration."""
        moved = tree_transition(state, integrator, self.criterion.rule(state), self.max_tree_depth)
        return self.criterion.updated(state, count_depth_limit(moved, num_warmup), num_warmup), None

    def watch(self, state: Any, num_warmup: int) -> None:
        """Warn where many of the first draws ended at the depth limit."""
        warn_if_often_at_limit(state, num_warmup, self.max_tree_depth)


class Trajectory(NamedTuple):
    """A trajectory that doubles.

    Attributes:
        first: its earliest state, without energies, which only a choice needs.
        last: its latest state, likewise.
        choice: the state taken.
        span: what the rule knows of the whole, in order of time.
        num_states: how many states, those of a refused run not counted.
        depth: doublings made, a refused one included.
        visits: what it met on its way.
        stopped: whether the rule has held, of the whole or of a part of a refused run.
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
        """Whether nothing forbids another doubling."""
        return ~self.stopped & ~self.visits.diverging


def doubling(path: Path, rule: Rule, max_tree_depth: int, rng_key: jax.Array) -> Trajectory:
    """A trajectory that doubles until ``rule`` holds, a step diverges, or it has doubled ``max_tree_depth`` times.

    Args:
        path: how it is integrated, and from where.
        rule: when it stops.
        max_tree_depth: most doublings.
        rng_key: for directions and choices.
    """
    choice, span = _look_at_start(path, rule)
    end, zero = _without_energies(path.start), jnp.zeros((), jnp.result_type(int))
    trajectory = Trajectory(end, end, choice, span, zero + 1, zero, Visits.none(), jnp.array(False))

    def grow(carry: tuple[Trajectory, Span, Uniforms]) -> tuple[Trajectory, Span, Uniforms]:
        trajectory, waiting, uniforms = carry
        uniform, uniforms = uniforms.take()
        forwards = uniform < 0.5
        run = _run(path, trajectory, forwards, rule, waiting, uniforms)
        uniform, uniforms = run.uniforms.take()
        return _extend(trajectory, run, forwards, rule, uniform), run.waiting, uniforms

    def goes_on(carry: tuple[Trajectory, Span, Uniforms]) -> jax.Array:
        return carry[0].grows & (carry[0].depth < max_tree_depth)

    waiting = jax.tree.map(lambda x: jnp.zeros((max_tree_depth, *x.shape), x.dtype), span)
    return lax.while_loop(goes_on, grow, (trajectory, waiting, Uniforms.of(rng_key)))[0]


class _Run(NamedTuple):
    """A new run of states, on its way to the length of the trajectory that it doubles.

    Attributes:
        state: the outermost state, without energies.
        choice: the state taken.
        span: the largest finished run that ends here, in the order of the visit.
        waiting: finished runs of 1, 2, 4, ... states that wait for their second half, one to a row; a row is written
            before it is read, so a run may begin with those of the run before.
        num_states: states so far.
        visits: the trajectory's and this run's.
        stopped: whether the rule has held of a part.
        uniforms: for the choices.
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
    trajectory: Trajectory,
    forwards: jax.Array,
    rule: Rule,
    waiting: Span,
    uniforms: Uniforms,
) -> _Run:
    """As many states beyond the end of ``trajectory`` as it has, or fewer if the rule holds or a step diverges."""
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
    """Join a state with the finished runs before it, as a binary counter carries, until the rule holds.

    Returns:
        The largest finished run that ends with the state, the runs that now wait, and whether the rule held.
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
    # updated in place, which a scatter is not
    waiting = jax.tree.map(lambda x, row: lax.dynamic_update_index_in_dim(x, row, level, 0), waiting, span)
    return span, waiting, stopped


def _extend(trajectory: Trajectory, run: _Run, forwards: jax.Array, rule: Rule, uniform: jax.Array) -> Trajectory:
    """The trajectory with a finished run, or as it was with a refused one."""
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
    """Choice and span of the state that a trajectory starts from."""
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
    """One iteration whose trajectory doubles, at the state's step size and metric, which it leaves as they are.

    Args:
        state: where the chain is.
        integrator: the schedule on the target's potential, with the state's metric.
        rule: when the trajectory stops.
        max_tree_depth: most doublings.

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


def _virial_average(trajectory: Trajectory, step_size: jax.Array) -> jax.Array:
    """The mean of dG/dt in the form that the rule looks at; under the U-turn rule, which looks at none, over time."""
    span = trajectory.span
    if isinstance(span, Virial) and span.mean_rate is not None:
        return span.mean_rate
    first, last = (
        sum((jnp.vdot(state.z[name], state.p[name]) for name in state.z), jnp.zeros(()))
        for state in (trajectory.first, trajectory.last)
    )
    return mean_rate_in_time(last - first, trajectory.num_states, step_size)


def count_depth_limit(moved: Any, num_warmup: int) -> Any:
    """``moved`` with its iteration counted in the share of draws that ended at the depth limit."""
    num_draws, share = moved.i + 1 - num_warmup, moved.share_at_limit
    counted = share + (moved.reached_max_treedepth - share) / jnp.maximum(num_draws, 1)
    return moved._replace(share_at_limit=jnp.where(num_draws < 1, 0.0, counted))


def warn_if_often_at_limit(state: Any, num_warmup: int, max_tree_depth: int) -> None:
    """Warn once, of all chains together, where many of the first draws ended at the depth limit."""
    share = jnp.mean(state.share_at_limit)
    warns = (jnp.max(state.i) - num_warmup == DRAWS_BEFORE_WARNING) & (share > WARN_ABOVE_SHARE)

    def warn(warns: Any, share: Any) -> None:
        # a batch of chains that do not share their count evaluates both branches, so this one asks again
        if warns:
            warn_of_depth_limit(max_tree_depth, share)

    lax.cond(warns, partial(call_back, warn), lambda *_: None, warns, share)
