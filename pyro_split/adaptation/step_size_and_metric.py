"""Adaptation of step size and mass matrix, by Pyro's own window adapter and dual averaging.

This module adds the search for a first step size, which the host cannot do in the memory of one subset: it makes steps
of the split schedule instead of leapfrog steps on all the data. It also passes gradients to the metrics that use them,
which have early windows of their own (:mod:`split_common.gradient_metric`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from pyro.infer.mcmc.adaptation import WarmupAdapter
from torch import Tensor

from pyro_split.adaptation.gradient_metric import GradientMassMatrix, dense_start
from pyro_split.adaptation.low_rank_metric import LowRankMassMatrix, low_rank_start
from pyro_split.host import (
    AdaptState,
    covariances,
    load_adapter,
    log_average_step_size,
    store_adapter,
    window_ends,
)
from pyro_split.integrators.integrator import IntegratorBase
from pyro_split.potential.position import Position
from split_common.adaptation import AdaptationSettings
from split_common.gradient_metric import early_window_ends, uses_gradients
from split_common.harmonic import LONGEST_HARMONIC_LENGTH, LONGEST_HARMONIC_STEP
from split_common.low_rank_metric import has_low_rank, uses_low_rank
from split_common.mass import mass_blocks
from split_common.settling import LastWindow, shrunk

SEARCH_ACCEPT_PROB = 0.8  # the threshold of the host's own search
SMALLEST_STEP, LARGEST_STEP = 1e-10, 1e10  # limits of the search

# Makes, from an adaptation state and a position, the energy error as a function of the step size.
Trial = Callable[[AdaptState, Position], Callable[[float], float]]


def one_step(integrator_for: Callable[[AdaptState], IntegratorBase]) -> Trial:
    """The trial that makes one step of the integrator at a given metric."""

    def trial(adapted: AdaptState, z: Position) -> Callable[[float], float]:
        integrator = integrator_for(adapted)
        order = range(integrator.schedule.num_subsets)
        opening_grad, energies = integrator.opening_grad_at(z, order), integrator.potential.energies(z)

        def energy_change(step_size: float) -> float:
            start = integrator.known(z, integrator.kinetic.draw(z), opening_grad, energies)
            end = integrator.step(start, step_size, order)
            return float((integrator.energies(end) - energies).sum()) + integrator.kinetic.change(end, start)

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
    count: int

    @classmethod
    def start(cls, x: Position) -> WindowMean:
        """The mean before warm-up."""
        return cls(x, x, 0)

    def update(self, t: int, x: Position, window_ends: Sequence[int]) -> WindowMean:
        """The mean after iteration ``t``, counted from 1 as by the host, which ended at ``x``."""
        ends = window_ends[:-1]  # the first window and the last adapt the step size alone
        if len(ends) < 2 or not ends[0] < t <= ends[-1]:
            return self
        count = self.count + 1
        running = {name: mean + (x[name] - mean) / count for name, mean in self.running.items()}
        return WindowMean(running, running, 0) if t in ends else WindowMean(self.adapted, running, count)


class Adapter:
    """The host's window adapter, with its own search for the step size; the state of a chain is loaded into it.

    Args:
        settings: settings of the adaptation.
        warmup_steps: number of warm-up iterations.
        coordinates: function from a position to the entries that the mass matrix adapts to, a dict of tensors; the
            identity for most kernels.
        z: starting point of the chain.
        trial: one trial of the search for a step size.
        longest_step: upper limit of the adapted step size. Single steps as long as a trajectory can be accepted often
            enough near the mode of a small model, and hardly ever in its tails, where the chain then sticks.
        measures_fit: whether the last window of warm-up should measure the fit of a metric from gradients.

    Attributes:
        measures_fit: whether the last window measures the fit of the metric.
        last_window: last window of warm-up, over which adapted values are compared with themselves.
        state: adaptation state that is loaded.
    """

    def __init__(
        self,
        settings: AdaptationSettings,
        warmup_steps: int,
        coordinates: Callable[[Position], Position],
        z: Position,
        trial: Trial,
        longest_step: float,
        measures_fit: bool = False,
    ):
        self._coordinates, self._longest_step = coordinates, longest_step
        self._settings, self._warmup_steps = settings, warmup_steps
        self._trial, self._z, adapted = trial, z, coordinates(z)
        size, given = sum(u.numel() for u in adapted.values()), settings.inverse_mass_matrix
        is_dense, is_low_rank = uses_gradients(settings.metric, size), uses_low_rank(settings.metric, size)
        self._uses_gradients = is_dense or is_low_rank
        self._follows_normal, self._learns_length = settings.drift is not None and is_dense, measures_fit
        if is_dense:
            settings = settings._replace(
                dense=True, inverse_mass_matrix=None if given is None else dense_start(given, adapted)
            )
        self._host = _host_adapter(settings)
        if is_dense:
            self._host.mass_matrix_adapter = GradientMassMatrix()
        elif is_low_rank or has_low_rank(given):
            self._host.mass_matrix_adapter = LowRankMassMatrix(low_rank_start(given, adapted), is_low_rank)
            settings = settings._replace(inverse_mass_matrix=None)
        some = next(iter(z.values()))
        self._host.configure(
            warmup_steps,
            mass_matrix_shape=_block_shapes(settings.dense, settings.inverse_mass_matrix, adapted),
            find_reasonable_step_size_fn=self._search,
            options={"dtype": some.dtype, "device": some.device},
        )
        self.window_ends = window_ends(self._host)
        self._early_ends = early_window_ends(self.window_ends) if self._uses_gradients and given is None else []
        self.last_window = LastWindow.of(self.window_ends, warmup_steps, settings.adapt_mass_matrix)
        self.measures_fit = measures_fit and self._uses_gradients and self.last_window.num_of_metric > 0
        if settings.inverse_mass_matrix is not None:
            self._set_inverse_mass_matrix(settings.inverse_mass_matrix, some)
        if settings.adapt_step_size:
            self._host.reset_step_size_adaptation(adapted)
        self.state = store_adapter(self._host)

    def load(self, state: AdaptState) -> None:
        """Load the adaptation state of a chain."""
        if state is not self.state:
            load_adapter(self._host, state)
            self.state = state

    @property
    def variances(self) -> tuple[Tensor, Tensor]:
        """Variances of the metric, and those estimated from the draws of the last window, shape (D,) each.

        For a metric from draws and gradients, the first are the variances of the draws that it was made from.
        """
        adapter = self._host.mass_matrix_adapter
        if isinstance(adapter, LowRankMassMatrix):
            return adapter.variances
        found = covariances(adapter)
        last = torch.cat([_diagonal(block) for block in found.values()])
        if isinstance(adapter, GradientMassMatrix):
            return adapter.variances, last
        metric = torch.cat([_diagonal(adapter.inverse_mass_matrix[sites]) for sites in found])
        return metric, shrunk(last, self.last_window.num_of_metric)

    @property
    def averages(self) -> dict[str, float]:
        """Running average of dual averaging, by field; empty if the step size does not adapt."""
        if not self._settings.adapt_step_size or self._warmup_steps < 2:  # the last iteration adapts nothing
            return {}
        return {"step_size": min(math.exp(log_average_step_size(self._host)), self._longest)}

    @property
    def is_harmonic(self) -> bool:
        """Whether drifts follow a normal approximation at the current metric."""
        return self._follows_normal and self._host.mass_matrix_adapter.reference is not None

    @property
    def _longest(self) -> float:
        """Upper limit of the adapted step size, for the current drifts."""
        if not self.is_harmonic:
            return self._longest_step
        return min(self._longest_step, LONGEST_HARMONIC_LENGTH if self._learns_length else LONGEST_HARMONIC_STEP)

    def wants_gradient(self, t: int) -> bool:
        """Whether the metric, or the measure of its fit, needs the gradient at the end of iteration ``t``."""
        ends = self.window_ends[:-1]  # the host's first window and last adapt the step size alone
        if not self._uses_gradients or len(ends) < 2:
            return False
        first, last = 0 if self._early_ends else ends[0], self._warmup_steps if self.measures_fit else ends[-1]
        return first < t <= last

    @property
    def fit(self) -> tuple[Tensor, Tensor]:
        """Mean of the squared frequencies in the metric, and mean of their inverses, in the last window."""
        return self._host.mass_matrix_adapter.fit

    def update(
        self,
        t: int,
        accept_prob: float,
        z: Position,
        trial: Trial,
        longest_step: float | None = None,
        grad: Position | None = None,
    ) -> None:
        """Adapt after iteration ``t``; after warm-up nothing changes.

        Args:
            t: the iteration, counted from 1 as by the host.
            accept_prob: acceptance probability of the iteration.
            z: position at its end.
            trial: one trial of a search for a step size at ``z``.
            longest_step: upper limit of the adapted step size from now on; None for the present one.
            grad: gradient of the potential at ``z``, a dict like ``z``, if :meth:`wants_gradient` asks for it.
        """
        if t <= self._warmup_steps:
            self._z, self._trial = z, trial
            self._longest_step = self._longest_step if longest_step is None else longest_step
            z_grad = None if grad is None else self._coordinates(grad)
            self._host.step(t, self._coordinates(z), torch.tensor(accept_prob, dtype=torch.float64), z_grad)
            if self._early_ends:
                self._update_early(t, self._coordinates(z), z_grad)
            if self.last_window.num_of_metric and t > self.last_window.start:
                # the estimator of the metric, which the host does not use in the last window
                self._host.mass_matrix_adapter.update(self._coordinates(z), z_grad)
            if self._settings.adapt_step_size:
                self._host.step_size = min(self._host.step_size, self._longest)
            self.state = store_adapter(self._host)

    def _update_early(self, t: int, x: Position, grad: Position | None) -> None:
        """Add a draw of the host's first window to the metric, and end an early window as the host ends its own."""
        if t <= self.window_ends[0]:
            self._host.mass_matrix_adapter.update(x, grad)
        if t in self._early_ends:
            self._host.mass_matrix_adapter.end_adaptation()
            if self._settings.adapt_step_size:
                self._host.reset_step_size_adaptation(x)

    def _search(self, adapted: Position) -> float:
        """Double or halve the step size until the acceptance probability of a trial crosses 0.8, as in the host."""
        step_size, z = float(self._host.step_size), self._z
        if not (self._settings.find_heuristic_step_size and self._warmup_steps):
            return step_size
        energy_change = self._trial(store_adapter(self._host), z)
        longest = self._longest
        step_size, last = min(step_size, longest), 0
        while SMALLEST_STEP < step_size < min(LARGEST_STEP, 2 * longest):
            direction = (
                1 if -energy_change(step_size) > math.log(SEARCH_ACCEPT_PROB) else -1
            )  # NaN counts as a rejection
            if last and direction != last:
                break
            last = direction
            step_size *= 2.0**direction
        return min(step_size, longest)

    def _set_inverse_mass_matrix(self, value: Any, like: Tensor) -> None:
        adapter = self._host.mass_matrix_adapter
        matrices = dict(adapter.inverse_mass_matrix)
        blocks = value if isinstance(value, dict) else {tuple(sorted(self._coordinates(self._z))): value}
        for sites, matrix in blocks.items():
            matrices[tuple(sites)] = torch.as_tensor(matrix).to(like)
        adapter.inverse_mass_matrix = matrices


def _host_adapter(settings: AdaptationSettings) -> Any:
    """The host's window adapter."""
    adapter: Any = WarmupAdapter  # the host annotates only the simplest of the values that it takes
    return adapter(
        settings.step_size,
        adapt_step_size=settings.adapt_step_size,
        adapt_mass_matrix=settings.adapt_mass_matrix,
        target_accept_prob=settings.target_accept_prob,
        dense_mass=settings.dense,
    )


def _block_shapes(
    full_mass: bool | list[tuple[str, ...]], given: Any, z: Position
) -> dict[tuple[str, ...], tuple[int, ...]]:
    """Shape of each block of the mass matrix: dense ones, diagonal ones that are given, and all other sites."""
    blocks = mass_blocks(full_mass, z, given if isinstance(given, dict) else ())
    sizes = {sites: sum(z[name].numel() for name in sites) for sites in blocks}
    return {sites: (sizes[sites],) * (2 if dense else 1) for sites, dense in blocks.items()}


def _diagonal(matrix: Tensor) -> Tensor:
    """Diagonal of a block, dense or diagonal."""
    return matrix if matrix.dim() == 1 else matrix.diagonal()
