"""Adaptation of step size and mass matrix, by NumPyro's own window adapter and dual averaging.

This module adds the search for a first step size, which the host cannot do in the memory of one subset: it makes steps
of the split schedule instead of leapfrog steps on all the data. It also passes gradients to the metrics that use them,
which have early windows of their own (:mod:`split_common.gradient_metric`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, random
from numpyro.infer.hmc_util import (
    HMCAdaptState,
    build_adaptation_schedule,
    dual_averaging,
    warmup_adapter,
    welford_covariance,
)

from numpyro_split.adaptation.gradient_metric import GradientWindow, dense_start, with_window
from numpyro_split.adaptation.low_rank_metric import LowRankWindow, low_rank_start, with_low_rank_window
from numpyro_split.integrators.euclidean import EuclideanKinetic, kinetic_of_inverse
from numpyro_split.integrators.integrator import IntegratorBase
from numpyro_split.potential.compensated import Compensated, difference
from numpyro_split.potential.position import Position, flatten, zeros
from split_common.adaptation import AdaptationSettings
from split_common.gradient_metric import early_window_ends, uses_gradients
from split_common.harmonic import LONGEST_HARMONIC_LENGTH, LONGEST_HARMONIC_STEP
from split_common.low_rank_metric import has_low_rank, uses_low_rank
from split_common.mass import mass_blocks
from split_common.settling import LastWindow, shrunk

SEARCH_ACCEPT_PROB = 0.8  # the threshold of the host's own search
SMALLEST_STEP, LARGEST_STEP = 1e-10, 1e10  # limits of the search


class SearchPoint(NamedTuple):
    """The argument that the host's adapter passes on to the search for a step size.

    Attributes:
        coordinates: entries of the position that the mass matrix adapts to; the host's adapter reads the first field.
        z: position.
        energies: the terms of the potential at ``z``, if the trial needs them.
        active: whether a window ends here. Under ``vmap`` both branches of the adapter are computed; this stops the
            search where its result is not used.
        window: the window whose normal approximation drifts follow; None for straight drifts.
        inverse_mass_matrix: a low-rank matrix, during ``init`` only; None otherwise.
    """

    coordinates: Position
    z: Position
    energies: Compensated | None
    active: jax.Array
    window: GradientWindow | None = None
    inverse_mass_matrix: Any = None


# Makes an integrator from a kinetic energy and the gradient window that its drifts follow.
IntegratorFor = Callable[[EuclideanKinetic, GradientWindow | None], IntegratorBase]
# Makes, from a kinetic energy and a point, the energy error as a function of step size and random key.
Trial = Callable[[EuclideanKinetic, SearchPoint], Callable[[jax.Array, jax.Array], jax.Array]]


def one_step(integrator_for: IntegratorFor) -> Trial:
    """The trial that makes one step of the integrator at a given metric."""

    def trial(kinetic: EuclideanKinetic, point: SearchPoint) -> Callable[[jax.Array, jax.Array], jax.Array]:
        integrator = integrator_for(kinetic, point.window)
        order = jnp.arange(integrator.schedule.num_subsets)
        opening_grad = lax.cond(
            point.active,
            lambda: integrator.opening_grad_at(point.z, order),
            lambda: zeros(point.z) if integrator.schedule.keeps_opening else None,
        )

        assert point.energies is not None
        energies = point.energies

        def energy_change(step_size: jax.Array, rng_key: jax.Array) -> jax.Array:
            p = integrator.kinetic.draw(point.z, rng_key)
            start = integrator.known(point.z, p, opening_grad, energies)
            end = integrator.step(start, step_size, order)
            return difference(integrator.energies(end), energies) + integrator.kinetic.change(end, start)

        return energy_change

    return trial


class WindowMean(NamedTuple):
    """Mean of a part of the position over the host's windows, in addition to the host's variances.

    Attributes:
        adapted: mean over the window that the mass matrix was made from; before there is one, the start of the chain.
        running: mean over the current window so far.
        count: number of iterations in the current window.
    """

    adapted: Position
    running: Position
    count: jax.Array

    @classmethod
    def start(cls, x: Position) -> WindowMean:
        """The mean before warm-up."""
        return cls(x, x, jnp.zeros((), jnp.result_type(int)))

    def update(self, i: jax.Array, x: Position, num_warmup: int) -> WindowMean:
        """The mean after iteration ``i``, which ended at ``x``."""
        ends = [window.end for window in build_adaptation_schedule(num_warmup)]
        if len(ends) < 3:  # the first window and the last adapt the step size alone
            return self
        is_in_window = (ends[0] < i) & (i <= ends[-2])
        count = self.count + is_in_window
        weight = jnp.where(is_in_window, 1 / jnp.maximum(count, 1), 0.0)
        running = {name: mean + weight.astype(mean.dtype) * (x[name] - mean) for name, mean in self.running.items()}
        ends_here = jnp.any(i == jnp.array(ends[1:-1]))
        adapted = {name: jnp.where(ends_here, running[name], old) for name, old in self.adapted.items()}
        return WindowMean(adapted, running, jnp.where(ends_here, 0, count))


class Adapter:
    """The host's window adapter, with a search for the step size that is bound to one potential.

    Args:
        settings: settings of the adaptation.
        num_warmup: number of warm-up iterations.
        coordinates: function from a position to the entries that the mass matrix adapts to, a dict of arrays; the
            identity for most kernels.
        like: coordinates of any position; only their shapes are used.
        trial: one trial of the search for a step size.
        longest_step: upper limit of the adapted step size. Single steps as long as a trajectory can be accepted often
            enough near the mode of a small model, and hardly ever in its tails, where the chain then sticks.
        measures_fit: whether the last window of warm-up should measure the fit of a metric from gradients.

    Attributes:
        measures_fit: whether the last window measures the fit of the metric.
        last_window: last window of warm-up, over which adapted values are compared with themselves.
    """

    def __init__(
        self,
        settings: AdaptationSettings,
        num_warmup: int,
        coordinates: Callable[[Position], Position],
        like: Position,
        trial: Trial,
        longest_step: float | jax.Array,
        measures_fit: bool = False,
    ):
        self._coordinates, self._longest_step = coordinates, longest_step
        self._settings, self._num_warmup = settings, num_warmup
        self._trial, self._learns_length = trial, measures_fit
        ends = [window.end for window in build_adaptation_schedule(num_warmup)]
        self._ends, self._window_ends = ends, jnp.array(ends)
        size = sum(u.size for u in like.values())
        is_dense, is_low_rank = uses_gradients(settings.metric, size), uses_low_rank(settings.metric, size)
        self._uses_gradients = is_dense or is_low_rank
        has_early = self._uses_gradients and settings.inverse_mass_matrix is None
        early = [num - 1 for num in early_window_ends([end + 1 for end in ends])] if has_early else []
        self._metric_ends = [*early, *ends[1:-1]]  # the host's first window and its last adapt the step size alone
        self._metric_start = -1 if early else ends[0]
        self._is_low_rank = is_low_rank or (has_low_rank(settings.inverse_mass_matrix) and not is_dense)
        self._follows_normal = settings.drift is not None and is_dense
        dense = True if is_dense else settings.dense
        self.last_window = LastWindow.of([end + 1 for end in ends], num_warmup, settings.adapt_mass_matrix)
        self.measures_fit = measures_fit and self._uses_gradients and self.last_window.num_of_metric > 0
        search = self._search if settings.find_heuristic_step_size and num_warmup else None
        self._init, self._update = self._host_adapter(search, dense, like)
        if self._uses_gradients:  # windows end where the host's do not, so the search is made here, and compiled once
            _, self._update = self._host_adapter(None, dense, like)

    def _host_adapter(self, search: Any, dense: Any, like: Position) -> tuple[Any, Any]:
        """The host's functions that begin and update its adaptation, with a search for the step size or None."""
        settings = self._settings
        host_adapter: Any = warmup_adapter  # the host annotates only the simplest of the values that it takes
        return host_adapter(
            self._num_warmup,
            find_reasonable_step_size=search,
            adapt_step_size=settings.adapt_step_size,
            adapt_mass_matrix=settings.adapt_mass_matrix and not self._uses_gradients,
            dense_mass=[block for block, is_dense in mass_blocks(dense, like).items() if is_dense],
            target_accept_prob=settings.target_accept_prob,
            regularize_mass_matrix=settings.regularize_mass_matrix,
        )

    def init(
        self, z: Position, energies: Compensated | None, inverse_mass_matrix: Any, rng_key: jax.Array
    ) -> HMCAdaptState:
        """The first adaptation state, at a starting point; an ``inverse_mass_matrix`` of None is the identity."""
        point = SearchPoint(self._coordinates(z), z, energies, jnp.array(True))
        if self._is_low_rank:
            return self._init_low_rank(point, low_rank_start(inverse_mass_matrix, point.coordinates), rng_key)
        if self._uses_gradients:
            inverse_mass_matrix = dense_start(inverse_mass_matrix, point.coordinates)
        given = dict(inverse_mass_matrix) if isinstance(inverse_mass_matrix, dict) else inverse_mass_matrix
        step_size = jnp.asarray(self._settings.step_size, jnp.result_type(float))
        state = self._init(point, rng_key, step_size, inverse_mass_matrix=given)
        if self._uses_gradients:
            state = state._replace(mm_state=GradientWindow.start(flatten(point.coordinates, point.coordinates).size))
        return state

    def _init_low_rank(self, point: SearchPoint, inverse_mass_matrix: Any, rng_key: jax.Array) -> HMCAdaptState:
        """The host's first adaptation state with a metric of low rank, which the host does not adapt."""
        step_size = jnp.asarray(self._settings.step_size, jnp.result_type(float))
        state = self._init(point._replace(inverse_mass_matrix=inverse_mass_matrix), rng_key, step_size)
        state = state._replace(
            inverse_mass_matrix=inverse_mass_matrix, mass_matrix_sqrt=None, mass_matrix_sqrt_inv=None
        )
        if not self._uses_gradients:
            return state
        (block,), bounds = inverse_mass_matrix.values(), [-1, *self._ends]
        longest = max(end - last for last, end in itertools.pairwise(bounds))
        return state._replace(mm_state=LowRankWindow.start(len(block.scales), longest))

    def wants_gradient(self, i: jax.Array) -> jax.Array | bool:
        """Whether the metric, or the measure of its fit, needs the gradient at the end of iteration ``i``."""
        if not self._uses_gradients or not self._metric_ends:
            return False
        return (self._metric_start < i) & (i < (self._num_warmup if self.measures_fit else self.last_window.start))

    def fit(self, state: HMCAdaptState) -> tuple[jax.Array, jax.Array]:
        """Mean of the squared frequencies in the metric, and mean of their inverses, in the last window."""
        return state.mm_state.fit(*state.inverse_mass_matrix.values())

    def update(
        self,
        i: jax.Array,
        accept_prob: jax.Array,
        z: Position,
        energies: Compensated | None,
        state: HMCAdaptState,
        grad: Position | None = None,
    ) -> HMCAdaptState:
        """The adaptation state after iteration ``i``; after warm-up it does not change.

        Args:
            i: the iteration, counted from 0.
            accept_prob: acceptance probability of the iteration.
            z: position at its end.
            energies: the terms of the potential there, if the search for a step size needs them.
            state: adaptation state before.
            grad: gradient of the potential at ``z``, a dict like ``z``, if :meth:`wants_gradient` asks for it.
        """
        has_windows = self._uses_gradients and len(self._metric_ends) > 0
        ends_window = jnp.any(i == (jnp.array(self._metric_ends) if has_windows else self._window_ends))
        point = SearchPoint(self._coordinates(z), z, energies, ends_window)

        def adapted() -> HMCAdaptState:
            old = state
            if has_windows:
                assert grad is not None
                is_in_window = (self._metric_start < i) & (i <= self._metric_ends[-1])
                feed = with_low_rank_window if self._is_low_rank else with_window
                old = feed(state, point.coordinates, self._coordinates(grad), is_in_window, ends_window)
            # The host's count of windows follows from i, which vectorised chains share. Were it each chain's own, every
            # iteration would evaluate the branch of a window's end, on a copy of the data for each chain.
            window_idx = jnp.sum(self._window_ends < i).astype(state.window_idx.dtype)
            followed = point._replace(window=self._followed(old))
            new = self._update(i, accept_prob, followed, old._replace(window_idx=window_idx))
            if has_windows and self._settings.adapt_step_size:
                new = lax.cond(ends_window, self._restarted, lambda _, state: state, followed, new)
            last_grad = self._coordinates(grad) if self.measures_fit and grad is not None else None
            longest = self._longest(self._followed(old)) if self._settings.adapt_step_size else math.inf
            return new._replace(
                step_size=jnp.minimum(new.step_size, longest),
                mm_state=self._fed(i, point.coordinates, last_grad, new.mm_state),
            )

        return lax.cond(i < self._num_warmup, adapted, lambda: state)

    def _restarted(self, point: SearchPoint, state: HMCAdaptState) -> HMCAdaptState:
        """The state with a step size searched for again, and dual averaging begun again, as at the host's windows."""
        rng_key, key_search = random.split(state.rng_key)
        step_size = state.step_size
        if self._settings.find_heuristic_step_size:
            step_size = self._search(step_size, state.inverse_mass_matrix, point, key_search)
        host_averaging: Any = dual_averaging  # the host annotates the arrays that it takes as floats
        start, _ = host_averaging()
        return state._replace(step_size=step_size, ss_state=start(jnp.log(10) + jnp.log(step_size)), rng_key=rng_key)

    def _fed(self, i: jax.Array, x: Position, grad: Position | None, mm_state: Any) -> Any:
        """The estimator of the metric, fed with the draws of the last window too, in which the host does not use it."""
        window = self.last_window
        if not window.num_of_metric:
            return mm_state
        if self._uses_gradients:
            return lax.cond(i >= window.start, lambda: mm_state.fed(x, grad), lambda: mm_state)
        feed = welford_covariance()[1]
        return lax.cond(i >= window.start, lambda: feed(x, mm_state), lambda: mm_state)

    def averages(self, state: HMCAdaptState) -> dict[str, jax.Array]:
        """Running average of dual averaging, by field; empty if the step size does not adapt."""
        if not self._settings.adapt_step_size:
            return {}
        return {"step_size": jnp.minimum(jnp.exp(state.ss_state[1]), self._longest(self._followed(state)))}

    def _followed(self, state: HMCAdaptState) -> GradientWindow | None:
        """The window whose normal approximation drifts may follow; None for straight drifts."""
        return state.mm_state if self._follows_normal else None

    def _longest(self, window: GradientWindow | None) -> jax.Array | float:
        """Upper limit of the adapted step size, for drifts that follow this window."""
        if window is None:
            return self._longest_step
        longest = LONGEST_HARMONIC_LENGTH if self._learns_length else LONGEST_HARMONIC_STEP
        return jnp.minimum(self._longest_step, jnp.where(window.is_normal, longest, jnp.inf))

    def variances(self, state: HMCAdaptState) -> tuple[jax.Array, jax.Array]:
        """Variances of the metric, and those estimated from the draws of the last window, shape (D,) each.

        For a metric from draws and gradients, the first are the variances of the draws that it was made from.
        """
        if self._is_low_rank:
            return state.mm_state.variances, state.mm_state.draw_variances
        if self._uses_gradients:
            _, squares, num = state.mm_state.draws
            return state.mm_state.variances, jnp.diagonal(squares) / (num - 1)
        blocks, found = state.inverse_mass_matrix, state.mm_state
        pairs = [(blocks[sites], found[sites]) for sites in blocks] if isinstance(blocks, dict) else [(blocks, found)]
        metric = jnp.concatenate([_diagonal(block) for block, _ in pairs])
        last = jnp.concatenate([_diagonal(squares) / (num - 1) for _, (_, squares, num) in pairs])
        return metric, shrunk(last, self.last_window.num_of_metric) if self._settings.regularize_mass_matrix else last

    def search_again(
        self, z: Position, energies: Compensated | None, state: HMCAdaptState, rng_key: jax.Array
    ) -> HMCAdaptState:
        """The adaptation state with a step size for a potential that it was not adapted to, smaller if it was too long.

        This step size will not adapt. So a smaller one is half of what the search finds, because in the tails, where
        every step goes downhill, the search accepts steps that are too long near the mode.
        """
        settings = self._settings
        if not (settings.adapt_step_size and settings.find_heuristic_step_size and self._num_warmup):
            return state
        point = SearchPoint(self._coordinates(z), z, energies, jnp.array(True), window=self._followed(state))
        found = self._search(state.step_size, state.inverse_mass_matrix, point, rng_key)
        return state._replace(step_size=jnp.where(found < state.step_size, found / 2, state.step_size))

    def _search(
        self, step_size: jax.Array, inverse_mass_matrix: Any, point: SearchPoint, rng_key: jax.Array
    ) -> jax.Array:
        """Double or halve the step size until the acceptance probability of a trial crosses 0.8, as in the host."""
        if point.inverse_mass_matrix is not None:
            inverse_mass_matrix = point.inverse_mass_matrix
        energy_change = self._trial(kinetic_of_inverse(inverse_mass_matrix), point)
        longest = self._longest(point.window)

        def accepts(step_size: jax.Array, rng_key: jax.Array) -> jax.Array:
            # NaN counts as a rejection
            return jnp.where(-energy_change(step_size, rng_key) > jnp.log(SEARCH_ACCEPT_PROB), 1, -1)

        def go_on(search: tuple[jax.Array, ...]) -> jax.Array:
            step_size, last, direction, _ = search
            in_range = (step_size > SMALLEST_STEP) & (step_size < jnp.minimum(LARGEST_STEP, 2 * longest))
            return point.active & in_range & ((last == 0) | (direction == last))

        def probe(search: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            step_size, _, direction, rng_key = search
            rng_key, key_momentum = random.split(rng_key)
            step_size = step_size * 2.0**direction
            return step_size, direction, accepts(step_size, key_momentum), rng_key

        undecided = jnp.zeros((), jnp.result_type(int))
        step_size = jnp.minimum(step_size, longest)
        step_size = lax.while_loop(go_on, probe, (step_size, undecided, undecided, rng_key))[0]
        return jnp.minimum(step_size, longest)


def _diagonal(matrix: jax.Array) -> jax.Array:
    """Diagonal of a block, dense or diagonal."""
    return matrix if matrix.ndim == 1 else jnp.diagonal(matrix)
