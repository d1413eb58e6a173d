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
probability, until a rule (:mod:`pyro_split.termination`) holds of the whole, or of any part that the doubling of
its halves went through, in which case the new run is refused whole. Every state of the final trajectory would have
built it with the same probability, 2 to the power of minus its depth, because every other order of doublings goes
through the same parts and would have been stopped by the same rule. It remains to take a state of a given trajectory in
a way that leaves the weights exp(-H) invariant: within a new run each state by its weight, and the new run's state
instead of the old one's with probability min(1, w_new / w_old). By induction the old one's choice leaves the weights
within the old run invariant, and w_old min(1, w_new / w_old) = w_new min(1, w_old / w_new) is as much flow from the
old run to the new as back. This holds for the U-turn and for exhaustion alike: both take the same choice.

A tree of 2^d states is built state by state. Of each size 2^k there is at most one finished run that waits for its
second half, so d of them are kept: memory grows with the depth, not with the number of states.

The decision rests on the *change* of energy, taken subset by subset in float64, and for the
kinetic energy in the form ½ (p' - p)ᵀ M⁻¹ (p' + p).

References:
    Neal (2011), MCMC using Hamiltonian dynamics, Handbook of MCMC, sections 3 and 5.1. Neal (1994), An improved
    acceptance procedure for the hybrid Monte Carlo algorithm. Betancourt (2017), A Conceptual Introduction to
    Hamiltonian Monte Carlo, appendix A. Phan, Pradhan and Jankowiak (2019), Composable Effects for Flexible and
    Accelerated Probabilistic Programming in NumPyro, on trees without recursion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pyro_split.densities import Position
from pyro_split.integrators import Integrator, IntegratorState, Velocity
from pyro_split.termination import Rule, Span, join, log_add
from split_common.trajectory import MAX_ENERGY_CHANGE, MAX_WARMUP_STEPS


def fixed_length(
    integrator: Integrator, start: IntegratorState, step_size: float, num_steps: int, order: Sequence[int]
) -> IntegratorState:
    """The end of a trajectory of ``num_steps`` steps."""
    state = start
    for _ in range(num_steps):
        state = integrator.step(state, step_size, order)
    return state


def draw_length(shortest: float, longest: float) -> float:
    """A length between the two; of a fixed length both are equal."""
    return shortest + (longest - shortest) * float(torch.rand(()))


def steps_of_length(trajectory_length: float, step_size: float, in_warmup: bool) -> tuple[int, float]:
    """Number of steps, and the step size that makes them exactly ``trajectory_length`` long.

    In warm-up at most ``MAX_WARMUP_STEPS`` are taken: before the metric is known, a length in units of the posterior's
    scale can be thousands of steps, which would adapt nothing more.
    """
    num_steps = math.ceil(trajectory_length / step_size)
    if in_warmup and num_steps > MAX_WARMUP_STEPS:
        return MAX_WARMUP_STEPS, step_size
    return num_steps, trajectory_length / num_steps


def kinetic_change(velocity: Velocity, new: Position, old: Position) -> float:
    """K(new) - K(old) without the cancellation of two large numbers."""
    speed = velocity({name: new[name] + old[name] for name in new})
    products = [0.5 * (new[name] - old[name]) * speed[name] for name in new]
    return float(sum(product.sum(dtype=torch.float64) for product in products))


def kinetic_energy(velocity: Velocity, p: Position) -> float:
    """½ pᵀM⁻¹p."""
    return kinetic_change(velocity, p, {name: torch.zeros_like(u) for name, u in p.items()})


class Decision(NamedTuple):
    """An accept-reject decision.

    Attributes:
        accepted: whether the end point is taken.
        accept_prob: with what probability.
        diverging: whether the energy error was infinite, undefined or above 1000.
    """

    accepted: bool
    accept_prob: float
    diverging: bool


def metropolis(energy_change: float, uniform: Callable[[], float]) -> Decision:
    """Accept with probability min(1, exp(-energy change)); an undefined change is a rejection."""
    energy_change = math.inf if math.isnan(energy_change) else energy_change
    accept_prob = math.exp(-max(energy_change, 0.0))
    return Decision(uniform() < accept_prob, accept_prob, energy_change > MAX_ENERGY_CHANGE)


class Path(NamedTuple):
    """How a trajectory is integrated, and the energy that its states are weighed against.

    Attributes:
        integrator: the schedule on the potential, with the metric.
        step_size: size of a step.
        order: which subset stands at each place of the schedule, M numbers.
        p: momentum at the start.
        energies: terms of the potential at the start, shape (M + 1,).
    """

    integrator: Integrator
    step_size: float
    order: Sequence[int]
    p: Position
    energies: Tensor

    def step(self, state: IntegratorState, direction: int) -> IntegratorState:
        """One step forwards (1) or backwards (-1) in time."""
        return self.integrator.step(state, direction * self.step_size, self.order)

    def energy_change(self, state: IntegratorState, energies: Tensor) -> float:
        """H at ``state`` minus H at the start; infinite where it is undefined."""
        change = float((energies - self.energies).sum()) + kinetic_change(self.integrator.velocity, state.p, self.p)
        return math.inf if math.isnan(change) else change


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
    energies: Tensor
    energy_change: float
    log_weight: float


def only(state: IntegratorState, energies: Tensor, energy_change: float) -> Choice:
    """The choice among one state."""
    return Choice(state.z, state.force, energies, energy_change, -energy_change)


def choose(one: Choice, other: Choice, log_prob_of_other: float) -> Choice:
    """Take ``other`` with the given probability (of 1 where it is above 1, of 0 where it is undefined)."""
    taken = other if float(torch.rand(())) < math.exp(min(log_prob_of_other, 0.0)) else one
    return taken._replace(log_weight=log_add(one.log_weight, other.log_weight))


def add_by_weight(one: Choice, other: Choice) -> Choice:
    """Of both, take each with probability in proportion to its weight."""
    if other.log_weight == -math.inf:
        return one
    return choose(one, other, other.log_weight - log_add(one.log_weight, other.log_weight))


class Visits(NamedTuple):
    """What a trajectory met on its way, for the statistics.

    Attributes:
        num_states: states besides the start whose energy was looked at.
        sum_accept_prob: sum of their min(1, exp(-energy change)).
        diverging: whether one of them has an energy error above 1000, infinite or undefined.
    """

    num_states: int = 0
    sum_accept_prob: float = 0.0
    diverging: bool = False

    def with_state(self, energy_change: float) -> Visits:
        """One more state."""
        accept_prob = math.exp(-max(energy_change, 0.0))
        diverging = self.diverging or energy_change > MAX_ENERGY_CHANGE
        return Visits(self.num_states + 1, self.sum_accept_prob + accept_prob, diverging)

    @property
    def mean_accept_prob(self) -> float:
        """What the step size is adapted to."""
        return self.sum_accept_prob / max(self.num_states, 1)


def windowed(path: Path, start: IntegratorState, num_steps: int, window_size: int) -> tuple[Choice, Visits]:
    """A trajectory of ``num_steps`` steps, accepted by windows of ``window_size`` states."""
    place, visits = int(torch.randint(window_size, ())), Visits()
    unseen, at_start = only(start, path.energies, math.inf), only(start, path.energies, 0.0)

    def see(windows: list[Choice], state: Choice, i: int) -> list[Choice]:
        members = (i < window_size, i > num_steps - window_size)
        return [add_by_weight(w, state) if member else w for w, member in zip(windows, members, strict=True)]

    windows = see([unseen, unseen], at_start, place)
    for direction, places in ((-1, range(place - 1, -1, -1)), (1, range(place + 1, num_steps + 1))):
        state = start
        for i in places:
            state = path.step(state, direction)
            if i < window_size or i > num_steps - window_size:
                energies = path.integrator.energies(state)
                change = path.energy_change(state, energies)
                windows, visits = see(windows, only(state, energies, change), i), visits.with_state(change)
    first, last = windows
    return choose(first, last, last.log_weight - first.log_weight), visits


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
    depth: int
    visits: Visits
    stopped: bool

    @property
    def grows(self) -> bool:
        """Whether nothing forbids another doubling."""
        return not (self.stopped or self.visits.diverging)


def doubling(
    path: Path, start: IntegratorState, rule: Rule, max_tree_depth: int, with_rates: bool = False
) -> Trajectory:
    """A trajectory that doubles until ``rule`` holds, a step diverges, or it has doubled ``max_tree_depth`` times.

    Args:
        path: how it is integrated.
        start: where it starts.
        rule: when it stops.
        max_tree_depth: most doublings.
        with_rates: whether the rule asks for dG/dt, which takes the whole gradient at every state.
    """
    choice, span = _look_at_start(path, start, with_rates)
    trajectory = Trajectory(start, start, choice, span, 0, Visits(), False)
    while trajectory.grows and trajectory.depth < max_tree_depth:
        forwards = bool(torch.rand(()) < 0.5)
        run = _run(path, trajectory, forwards, rule, with_rates)
        trajectory = _extend(trajectory, run, forwards, rule)
    return trajectory


class _Run(NamedTuple):
    """A new run of states of the length of the trajectory that it doubles, or shorter if it was refused.

    Attributes:
        state: the outermost state.
        choice: the state taken.
        span: the largest finished run that ends here, in the order of the visit.
        visits: the trajectory's and this run's.
        stopped: whether the rule has held of a part.
    """

    state: IntegratorState
    choice: Choice
    span: Span
    visits: Visits
    stopped: bool


def _run(path: Path, trajectory: Trajectory, forwards: bool, rule: Rule, with_rates: bool) -> _Run:
    """As many states beyond the end of ``trajectory`` as it has, or fewer if the rule holds or a step diverges."""
    direction = 1 if forwards else -1
    state, visits = trajectory.last if forwards else trajectory.first, trajectory.visits
    taken = trajectory.choice._replace(log_weight=-math.inf)
    span, stopped, waiting = trajectory.span, False, []
    for num_before in range(2**trajectory.depth):
        state = path.step(state, direction)
        choice, span = _look(path, state, with_rates)
        taken, visits = add_by_weight(taken, choice), visits.with_state(choice.energy_change)
        span, stopped = _merge(waiting, span, num_before, rule)
        if stopped or visits.diverging:
            break
    return _Run(state, taken, span, visits, stopped)


def _merge(waiting: list[Span], span: Span, num_before: int, rule: Rule) -> tuple[Span, bool]:
    """Join a state with the finished runs before it, as a binary counter carries, until the rule holds.

    Returns:
        The largest finished run that ends with the state, which now waits, and whether the rule held.
    """
    level, stopped = 0, False
    while (num_before >> level) % 2 == 1 and not stopped:
        first = waiting.pop()
        whole = join(first, span)
        stopped, span, level = rule(first, span, whole), whole, level + 1
    waiting.append(span)
    return span, stopped


def _extend(trajectory: Trajectory, run: _Run, forwards: bool, rule: Rule) -> Trajectory:
    """The trajectory with a finished run, or as it was with a refused one."""
    trajectory = trajectory._replace(depth=trajectory.depth + 1, visits=run.visits)
    if run.stopped or run.visits.diverging:
        return trajectory._replace(stopped=run.stopped)
    before = trajectory.span if forwards else trajectory.span.reversed()
    whole = join(before, run.span)
    return trajectory._replace(
        first=trajectory.first if forwards else run.state,
        last=run.state if forwards else trajectory.last,
        choice=choose(trajectory.choice, run.choice, run.choice.log_weight - trajectory.choice.log_weight),
        span=whole if forwards else whole.reversed(),
        stopped=rule(before, run.span, whole),
    )


def _look_at_start(path: Path, start: IntegratorState, with_rates: bool) -> tuple[Choice, Span]:
    """What there is to know of the state that a trajectory starts from."""
    grad = path.integrator.energies_and_grad(start)[1] if with_rates else None
    return only(start, path.energies, 0.0), _span_of(path, start, 0.0, grad)


def _look(path: Path, state: IntegratorState, with_rates: bool) -> tuple[Choice, Span]:
    """What there is to know of one state."""
    if with_rates:
        energies, grad = path.integrator.energies_and_grad(state)
    else:
        energies, grad = path.integrator.energies(state), None
    change = path.energy_change(state, energies)
    return only(state, energies, change), _span_of(path, state, -change, grad)


def _span_of(path: Path, state: IntegratorState, log_weight: float, grad: Position | None) -> Span:
    z, p, v = _flat(state.z, state.z), _flat(state.p, state.z), _flat(path.integrator.velocity(state.p), state.z)
    rate = None if grad is None else float(torch.dot(p, v) - torch.dot(z, _flat(grad, state.z)))
    virial = float(torch.dot(z, p))
    return Span(p, v, p, v, p, virial, virial, log_weight, rate, 1)


def _flat(x: Position, like: Position) -> Tensor:
    """The entries of every site, shape (D,), in the order of the sites of ``like``."""
    return torch.cat([x[name].reshape(-1) for name in like])
