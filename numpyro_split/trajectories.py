r"""Where a trajectory ends, and which of its points is taken.

All leave exp(-H) invariant, with H the energy on all the data, when a step preserves volume and is undone by one step
back in time (every palindromic schedule; :mod:`split_common.schedule`).

End point (:func:`fixed_length`): L steps, their number and size drawn without regard to the state, then the end point
is accepted with probability min(1, exp(H - H')), else the start is kept. The map (steps, then flip of the momentum) is
its own inverse, or, for an order drawn with its reverse, is proposed as often as its inverse.

Windows (:func:`windowed`): of L + 1 states the start is at a place drawn from the first W. With w the sum of exp(-H)
over a window, the last W states are accepted with probability min(1, w'/w) against the first W, then one state of the
window taken with probability exp(-H)/w. Given the L + 1 states, every state of the first window is as likely to have
been the start as any other, and, time reversed, every state of the last one; so the flow from a state of one window to
a state of the other is proportional to exp(-H) exp(-H') min(1/w, 1/w') both ways. W = 1 is the end point.

Doubling (:func:`doubling`): the trajectory grows by a run of its own length, forwards or backwards with equal
probability, until a rule (:mod:`numpyro_split.termination`) holds of the whole, or of any part that the doubling of
its halves went through, in which case the new run is refused whole. Every state of the final trajectory would have
built it with the same probability, 2 to the power of minus its depth, because every other order of doublings goes
through the same parts and would have been stopped by the same rule. It remains to take a state of a given trajectory in
a way that leaves the weights exp(-H) invariant: within a new run each state by its weight, and the new run's state
instead of the old one's with probability min(1, w_new / w_old). By induction the old one's choice leaves the weights
within the old run invariant, and w_old min(1, w_new / w_old) = w_new min(1, w_old / w_new) is as much flow from the
old run to the new as back. This holds for the U-turn and for exhaustion alike: both take the same choice.

A tree of 2^d states is built state by state. Of each size 2^k there is at most one finished run that waits for its
second half, so d of them are kept: memory grows with the depth, not with the number of states.

The decision rests on the *change* of energy, taken subset by subset before it is rounded
(:mod:`numpyro_split.energies`), and for the kinetic energy in the form ½ (p' - p)ᵀ M⁻¹ (p' + p).

References:
    Neal (2011), MCMC using Hamiltonian dynamics, Handbook of MCMC, sections 3 and 5.1. Neal (1994), An improved
    acceptance procedure for the hybrid Monte Carlo algorithm. Betancourt (2017), A Conceptual Introduction to
    Hamiltonian Monte Carlo, appendix A. Phan, Pradhan and Jankowiak (2019), Composable Effects for Flexible and
    Accelerated Probabilistic Programming in NumPyro, on trees without recursion.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.flatten_util import ravel_pytree

from numpyro_split.densities import Position
from numpyro_split.energies import Compensated, compensated_total, difference
from numpyro_split.integrators import Integrator, IntegratorState, Velocity
from numpyro_split.termination import Rule, Span, join
from split_common.trajectory import MAX_ENERGY_CHANGE, MAX_WARMUP_STEPS


def fixed_length(
    integrator: Integrator, start: IntegratorState, step_size: jax.Array, num_steps: jax.Array | int, order: jax.Array
) -> IntegratorState:
    """The end of a trajectory of ``num_steps`` steps, which may be traced."""
    return lax.fori_loop(0, num_steps, lambda _, state: integrator.step(state, step_size, order), start)


def draw_length(shortest: float, longest: float, rng_key: jax.Array) -> jax.Array:
    """A length between the two; of a fixed length both are equal."""
    return shortest + (longest - shortest) * random.uniform(rng_key)


def steps_of_length(
    trajectory_length: jax.Array, step_size: jax.Array, in_warmup: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Number of steps, and the step size that makes them exactly ``trajectory_length`` long.

    In warm-up at most ``MAX_WARMUP_STEPS`` are taken: before the metric is known, a length in units of the posterior's
    scale can be thousands of steps, which would adapt nothing more.
    """
    num_steps = jnp.ceil(trajectory_length / step_size)
    limited = jnp.where(in_warmup & (num_steps > MAX_WARMUP_STEPS), MAX_WARMUP_STEPS, num_steps)
    exact = jnp.where(limited < num_steps, step_size, trajectory_length / num_steps)
    return limited.astype(jnp.result_type(int)), exact


def kinetic_change(velocity: Velocity, new: Position, old: Position) -> jax.Array:
    """K(new) - K(old) without the cancellation of two large numbers."""
    change = jax.tree.map(jnp.subtract, new, old)
    speed = velocity(jax.tree.map(jnp.add, new, old))
    products = jax.tree.map(lambda d, v: 0.5 * d * v, change, {name: speed[name] for name in change})
    return compensated_total(jax.tree.leaves(products)).value


class Decision(NamedTuple):
    """An accept-reject decision.

    Attributes:
        accepted: whether the end point is taken.
        accept_prob: with what probability.
        diverging: whether the energy error was infinite, undefined or above 1000.
    """

    accepted: jax.Array
    accept_prob: jax.Array
    diverging: jax.Array


def metropolis(energy_change: jax.Array, uniform: Callable[[], jax.Array]) -> Decision:
    """Accept with probability min(1, exp(-energy change)); an undefined change is a rejection."""
    energy_change = jnp.where(jnp.isnan(energy_change), jnp.inf, energy_change)
    accept_prob = jnp.minimum(jnp.exp(-energy_change), 1.0)
    return Decision(uniform() < accept_prob, accept_prob, energy_change > MAX_ENERGY_CHANGE)


class Path(NamedTuple):
    """How a trajectory is integrated, and the energy that its states are weighed against.

    Attributes:
        integrator: the schedule on the potential, with the metric.
        step_size: size of a step.
        order: which subset stands at each place of the schedule, shape (M,).
        p: momentum at the start.
        energies: terms of the potential at the start, shape (M + 1,).
    """

    integrator: Integrator
    step_size: jax.Array
    order: jax.Array
    p: Position
    energies: Compensated

    def step(self, state: IntegratorState, direction: jax.Array | int) -> IntegratorState:
        """One step forwards (1) or backwards (-1) in time."""
        return self.integrator.step(state, direction * self.step_size, self.order)

    def energy_change(self, state: IntegratorState, energies: Compensated) -> jax.Array:
        """H at ``state`` minus H at the start; infinite where it is undefined."""
        change = difference(energies, self.energies) + kinetic_change(self.integrator.velocity, state.p, self.p)
        return jnp.where(jnp.isnan(change), jnp.inf, change)


class Choice(NamedTuple):
    """The state taken of those seen so far.

    Attributes:
        z: its position.
        force: the kicks that open a step there; None where the schedule keeps none.
        energies: the terms of the potential there, shape (M + 1,).
        energy_change: H there minus H at the start.
        log_weight: log of the sum of exp(-energy change) over all states seen.
    """

    z: Position
    force: Position | None
    energies: Compensated
    energy_change: jax.Array
    log_weight: jax.Array


def only(state: IntegratorState, energies: Compensated, energy_change: jax.Array) -> Choice:
    """The choice among one state."""
    return Choice(state.z, state.force, energies, energy_change, -energy_change)


def choose(one: Choice, other: Choice, log_prob_of_other: jax.Array, rng_key: jax.Array) -> Choice:
    """Take ``other`` with the given probability (of 1 where it is above 1, of 0 where it is undefined)."""
    takes_other = jnp.log(random.uniform(rng_key)) < log_prob_of_other
    taken = jax.tree.map(lambda a, b: jnp.where(takes_other, b, a), one, other)
    return taken._replace(log_weight=jnp.logaddexp(one.log_weight, other.log_weight))


def add_by_weight(one: Choice, other: Choice, rng_key: jax.Array) -> Choice:
    """Of both, take each with probability in proportion to its weight."""
    return choose(one, other, other.log_weight - jnp.logaddexp(one.log_weight, other.log_weight), rng_key)


class Visits(NamedTuple):
    """What a trajectory met on its way, for the statistics.

    Attributes:
        num_states: states besides the start whose energy was looked at.
        sum_accept_prob: sum of their min(1, exp(-energy change)).
        diverging: whether one of them has an energy error above 1000, infinite or undefined.
    """

    num_states: jax.Array
    sum_accept_prob: jax.Array
    diverging: jax.Array

    @classmethod
    def none(cls) -> Visits:
        """No state yet."""
        return cls(jnp.zeros((), jnp.result_type(int)), jnp.zeros(()), jnp.array(False))

    def with_state(self, energy_change: jax.Array) -> Visits:
        """One more state."""
        accept_prob = jnp.minimum(jnp.exp(-energy_change), 1.0)
        diverging = self.diverging | (energy_change > MAX_ENERGY_CHANGE)
        return Visits(self.num_states + 1, self.sum_accept_prob + accept_prob, diverging)

    @property
    def mean_accept_prob(self) -> jax.Array:
        """What the step size is adapted to."""
        return self.sum_accept_prob / jnp.maximum(self.num_states, 1)


def windowed(
    path: Path, start: IntegratorState, num_steps: int, window_size: int, rng_key: jax.Array
) -> tuple[Choice, Visits]:
    """A trajectory of ``num_steps`` steps, accepted by windows of ``window_size`` states."""
    key_place, key_states, key_accept = random.split(rng_key, 3)
    place = random.randint(key_place, (), 0, window_size)
    unseen = only(start, path.energies, jnp.array(jnp.inf))
    at_start = only(start, path.energies, jnp.zeros(()))

    def see(windows: tuple[Choice, Choice], state: Choice, i: jax.Array) -> tuple[Choice, Choice]:
        members = (i < window_size, i > num_steps - window_size)
        keys = random.split(random.fold_in(key_states, i))
        seen = [add_by_weight(window, state, key) for window, key in zip(windows, keys, strict=True)]
        return tuple(_where(member, new, old) for member, new, old in zip(members, seen, windows, strict=True))

    def move(direction: int, i: jax.Array, carry: tuple) -> tuple:
        state, windows, visits = carry
        state = path.step(state, direction)

        def look() -> tuple[tuple[Choice, Choice], Visits]:
            energies = path.integrator.energies(state)
            change = path.energy_change(state, energies)
            return see(windows, only(state, energies, change), i), visits.with_state(change)

        in_a_window = (i < window_size) | (i > num_steps - window_size)
        return state, *lax.cond(in_a_window, look, lambda: (windows, visits))

    carry = (start, see((unseen, unseen), at_start, place), Visits.none())
    back = lax.fori_loop(0, place, lambda k, c: move(-1, place - 1 - k, c), carry)
    forth = lax.fori_loop(place + 1, num_steps + 1, lambda i, c: move(1, i, c), (start, *back[1:]))
    (first, last), visits = forth[1:]
    return choose(first, last, last.log_weight - first.log_weight, key_accept), visits


class Trajectory(NamedTuple):
    """A trajectory that doubles.

    Attributes:
        first: its earliest state.
        last: its latest state.
        choice: the state taken.
        span: what the rule knows of the whole, in order of time.
        depth: doublings made, a refused one included.
        visits: what it met on its way.
        stopped: whether the rule has held, of the whole or of a part of a refused run.
    """

    first: IntegratorState
    last: IntegratorState
    choice: Choice
    span: Span
    depth: jax.Array
    visits: Visits
    stopped: jax.Array

    @property
    def grows(self) -> jax.Array:
        """Whether nothing forbids another doubling."""
        return ~self.stopped & ~self.visits.diverging


def doubling(
    path: Path, start: IntegratorState, rule: Rule, max_tree_depth: int, rng_key: jax.Array, with_rates: bool = False
) -> Trajectory:
    """A trajectory that doubles until ``rule`` holds, a step diverges, or it has doubled ``max_tree_depth`` times.

    Args:
        path: how it is integrated.
        start: where it starts.
        rule: when it stops.
        max_tree_depth: most doublings.
        rng_key: for directions and choices.
        with_rates: whether the rule asks for dG/dt, which takes the whole gradient at every state.
    """
    choice, span = _look_at_start(path, start, with_rates)
    no, zero = jnp.array(False), jnp.zeros((), jnp.result_type(int))
    trajectory = Trajectory(start, start, choice, span, zero, Visits.none(), no)

    def grow(carry: tuple[Trajectory, jax.Array]) -> tuple[Trajectory, jax.Array]:
        trajectory, rng_key = carry
        rng_key, key_direction, key_run, key_choice = random.split(rng_key, 4)
        forwards = random.bernoulli(key_direction)
        run = _run(path, trajectory, forwards, rule, max_tree_depth, key_run, with_rates)
        return _extend(trajectory, run, forwards, rule, key_choice), rng_key

    def goes_on(carry: tuple[Trajectory, jax.Array]) -> jax.Array:
        return carry[0].grows & (carry[0].depth < max_tree_depth)

    return lax.while_loop(goes_on, grow, (trajectory, rng_key))[0]


class _Run(NamedTuple):
    """A new run of states, on its way to the length of the trajectory that it doubles.

    Attributes:
        state: the outermost state.
        choice: the state taken.
        span: the largest finished run that ends here, in the order of the visit.
        waiting: finished runs of 1, 2, 4, ... states that wait for their second half.
        num_states: states so far.
        visits: the trajectory's and this run's.
        stopped: whether the rule has held of a part.
        rng_key: for the choices.
    """

    state: IntegratorState
    choice: Choice
    span: Span
    waiting: Span
    num_states: jax.Array
    visits: Visits
    stopped: jax.Array
    rng_key: jax.Array


def _run(
    path: Path,
    trajectory: Trajectory,
    forwards: jax.Array,
    rule: Rule,
    max_tree_depth: int,
    rng_key: jax.Array,
    with_rates: bool,
) -> _Run:
    """As many states beyond the end of ``trajectory`` as it has, or fewer if the rule holds or a step diverges."""
    direction = jnp.where(forwards, 1.0, -1.0)
    end = _where(forwards, trajectory.last, trajectory.first)
    length = 2**trajectory.depth

    def add_state(run: _Run) -> _Run:
        state = path.step(run.state, direction)
        choice, span = _look(path, state, with_rates)
        rng_key, key_choice = random.split(run.rng_key)
        span, waiting, stopped = _merge(run.waiting, span, run.num_states, rule)
        return _Run(
            state=state,
            choice=add_by_weight(run.choice, choice, key_choice),
            span=span,
            waiting=waiting,
            num_states=run.num_states + 1,
            visits=run.visits.with_state(choice.energy_change),
            stopped=stopped,
            rng_key=rng_key,
        )

    def goes_on(run: _Run) -> jax.Array:
        return (run.num_states < length) & ~run.stopped & ~run.visits.diverging

    nothing = trajectory.choice._replace(log_weight=jnp.array(-jnp.inf))
    waiting = jax.tree.map(lambda x: jnp.zeros((max_tree_depth, *x.shape), x.dtype), trajectory.span)
    zero, no = jnp.zeros((), jnp.result_type(int)), jnp.array(False)
    run = _Run(end, nothing, trajectory.span, waiting, zero, trajectory.visits, no, rng_key)
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
        first = jax.tree.map(lambda x: x[level], waiting)
        whole = join(first, second)
        return level + 1, whole, rule(first, second, whole)

    level, span, stopped = lax.while_loop(carries, carry, (jnp.zeros_like(num_before), span, jnp.array(False)))
    return span, jax.tree.map(lambda all, x: all.at[level].set(x), waiting, span), stopped


def _extend(trajectory: Trajectory, run: _Run, forwards: jax.Array, rule: Rule, rng_key: jax.Array) -> Trajectory:
    """The trajectory with a finished run, or as it was with a refused one."""
    refused = run.stopped | run.visits.diverging
    before = _where(forwards, trajectory.span, trajectory.span.reversed())
    whole = join(before, run.span)
    grown = trajectory._replace(
        first=_where(forwards, trajectory.first, run.state),
        last=_where(forwards, run.state, trajectory.last),
        choice=choose(trajectory.choice, run.choice, run.choice.log_weight - trajectory.choice.log_weight, rng_key),
        span=_where(forwards, whole, whole.reversed()),
        stopped=rule(before, run.span, whole),
    )
    kept = trajectory._replace(stopped=run.stopped)
    return _where(refused, kept, grown)._replace(depth=trajectory.depth + 1, visits=run.visits)


def _look_at_start(path: Path, start: IntegratorState, with_rates: bool) -> tuple[Choice, Span]:
    """What there is to know of the state that a trajectory starts from."""
    grad = path.integrator.energies_and_grad(start)[1] if with_rates else None
    choice = only(start, path.energies, jnp.zeros(()))
    return choice, _span_of(path, start, choice.log_weight, grad)


def _look(path: Path, state: IntegratorState, with_rates: bool) -> tuple[Choice, Span]:
    """What there is to know of one state."""
    if with_rates:
        energies, grad = path.integrator.energies_and_grad(state)
    else:
        energies, grad = path.integrator.energies(state), None
    choice = only(state, energies, path.energy_change(state, energies))
    return choice, _span_of(path, state, choice.log_weight, grad)


def _span_of(path: Path, state: IntegratorState, log_weight: jax.Array, grad: Position | None) -> Span:
    velocity = path.integrator.velocity(state.p)
    z, p, v = (ravel_pytree({name: x[name] for name in state.z})[0] for x in (state.z, state.p, velocity))
    rate = None if grad is None else jnp.dot(p, v) - jnp.dot(z, ravel_pytree(grad)[0])
    virial = jnp.dot(z, p)
    return Span(p, v, p, v, p, virial, virial, log_weight, rate, jnp.ones((), jnp.result_type(int)))


def _where(condition: jax.Array, yes: Any, no: Any) -> Any:
    """``yes`` or ``no``, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
