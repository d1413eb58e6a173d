r"""Hamiltonian Monte Carlo over subsets of the data, with windows of acceptance.

Target: the full posterior, exactly, with H(z, p) = Σ_m U_m(z) + ½ pᵀM⁻¹p of *all* the data. A transition draws
p ~ N(0, M), makes the steps of a palindromic schedule (:mod:`split_common.schedule`) from a start somewhere in the
first window, and takes a state of either window in a way that leaves exp(-H) invariant: why is derived in
:mod:`numpyro_split.trajectories.windows`.

Each state of a window is weighed by its energy on all the data. Where a step's closing gradients bring it (one subset,
the naive schedule) it costs nothing; under the symmetric schedule it is a forward pass on the subsets, which
``num_grads`` does not count, being no gradient.

Reference:
    Neal (1994), An improved acceptance procedure for the hybrid Monte Carlo algorithm. Lau (2018), chapter 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import random
from numpyro.infer.initialization import init_to_uniform

from numpyro_split.adaptation.exploration import explored
from numpyro_split.integrators.integrator import Integrator
from numpyro_split.kernels.hamiltonian import HamiltonianKernel
from numpyro_split.kernels.split_hmc import SplitHMCState, first_state_of_lengths
from numpyro_split.potential.split_potential import SplitPotential
from numpyro_split.trajectories.fixed_length import jittered
from numpyro_split.trajectories.path import draw_path
from numpyro_split.trajectories.selection import at_choice
from numpyro_split.trajectories.windows import windowed
from split_common.checks import MAX_COUNT, check_fraction, check_positive_int
from split_common.fixed_length import DEFAULT_JITTER, check_window_size
from split_common.schedule import ScheduleChoice, check_schedule


def windowed_transition(
    state: SplitHMCState, integrator: Integrator, num_steps: int, window_size: int, step_size_jitter: float
) -> SplitHMCState:
    """One iteration of ``num_steps`` steps, accepted by windows, at the state's step size and metric.

    Args:
        state: where the chain is.
        integrator: the schedule on the target's potential, with the state's metric.
        num_steps: steps of the trajectory.
        window_size: states in a window.
        step_size_jitter: j; all steps are u times as long, u drawn from U(1 - j, 1 + j).

    Returns:
        The next state.
    """
    rng_key, key_momentum, key_path, key_jitter = random.split(state.rng_key, 4)
    path = draw_path(state, integrator, state.adapt_state.step_size, key_momentum)
    path = path._replace(step_size=jittered(path.step_size, step_size_jitter, key_jitter))
    choice, visits = windowed(path, num_steps, window_size, key_path)
    return at_choice(state, path, choice, visits, jnp.full_like(state.num_steps, num_steps))._replace(rng_key=rng_key)


class WindowedHMC(HamiltonianKernel):
    """Hamiltonian Monte Carlo with windows of acceptance (Neal 1994).

    Of the ``num_steps`` + 1 states of a trajectory that contains the start among its first W, the last W are accepted
    together or not at all, so an error of the energy that goes up and down along the trajectory averages out. W = 1 is
    HMC. Statistics ``accept_prob`` and ``diverging`` are over the states of both windows but the start.

    Args:
        model: see :class:`~numpyro_split.SplitNUTS`, also for every argument not listed here.
        num_subsets: M.
        num_steps: L, steps of a trajectory.
        window_size: W, from 1 to L + 1.
        step_size_jitter: steps of a trajectory are drawn anew to be up to this share longer or shorter than the
            adapted step size, from 0 up to, but not including, 1.

    Example:
        >>> kernel = WindowedHMC(lambda y: None, num_subsets=4, num_steps=20, window_size=5)
        >>> kernel.num_subsets
        4
    """

    def __init__(
        self,
        model: Callable[..., Any] | SplitPotential,
        num_subsets: int = 1,
        *,
        num_steps: int = 16,
        window_size: int = 4,
        step_size_jitter: float = DEFAULT_JITTER,
        step_size: float = 1.0,
        adapt_step_size: bool = True,
        adapt_mass_matrix: bool = True,
        dense_mass: bool | list[tuple[str, ...]] = False,
        target_accept_prob: float = 0.8,
        inverse_mass_matrix: Any = None,
        init_strategy: Callable[..., Any] = init_to_uniform,
        find_heuristic_step_size: bool = True,
        forward_mode_differentiation: bool = False,
        regularize_mass_matrix: bool = True,
        plate: str | None = None,
        data_axes: dict[str, int | None] | None = None,
        subset_order: str = "sequential",
        schedule: ScheduleChoice = "symmetric",
    ):
        self._num_steps = check_positive_int("num_steps", num_steps, MAX_COUNT)
        self._window_size = check_window_size(window_size, self._num_steps)
        self._step_size_jitter = check_fraction("step_size_jitter", step_size_jitter)
        self._schedule_name = check_schedule(schedule, palindromic=True)
        super().__init__(
            model,
            num_subsets,
            step_size=step_size,
            adapt_step_size=adapt_step_size,
            adapt_mass_matrix=adapt_mass_matrix,
            dense_mass=dense_mass,
            target_accept_prob=target_accept_prob,
            inverse_mass_matrix=inverse_mass_matrix,
            init_strategy=init_strategy,
            find_heuristic_step_size=find_heuristic_step_size,
            forward_mode_differentiation=forward_mode_differentiation,
            regularize_mass_matrix=regularize_mass_matrix,
            plate=plate,
            data_axes=data_axes,
            subset_order=subset_order,
        )

    def _first_state(self, **common: Any) -> SplitHMCState:
        return first_state_of_lengths(**common)

    def _move(self, integrator: Integrator, state: SplitHMCState) -> SplitHMCState:
        def move(state: SplitHMCState) -> SplitHMCState:
            window = self._num_steps, self._window_size
            return windowed_transition(state, integrator, *window, self._step_size_jitter)

        return explored(state, integrator, self._exploration(learns_length=False), move)
