r"""Hamiltonian Monte Carlo whose integrator visits the data subset by subset.

Target: the full posterior, exactly. With H(z, p) = Σ_m U_m(z) + ½ pᵀM⁻¹p the transition draws p ~ N(0, M), runs
L steps of a schedule (:mod:`split_common.schedule`), flips p, and accepts with probability
min(1, exp(H(z, p) - H(z', p'))) where H is that of *all* the data. Each step preserves volume; for a palindromic
schedule steps-then-flip is its own inverse, for an order drawn uniformly it is undone by the reversed order,
which is drawn as often. Either way the transition satisfies detailed balance with respect to exp(-H), whatever
the step size. Splitting changes the energy error, and so the acceptance, never the target.

An order of subsets drawn independently of the state (``subset_permutation="per_trajectory"``) keeps this true
for the symmetric schedule as well; so does a length drawn independently of it.

Reference:
    Cobb and Jalaian (2021), Scaling Hamiltonian Monte Carlo Inference for Bayesian Neural Networks with
    Symmetric Splitting, UAI. Neal (1995), Bayesian Learning for Neural Networks, section 3.5.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from pyro.infer.autoguide.initialization import init_to_uniform
from torch import Tensor

from pyro_split.adaptation.exploration import explored
from pyro_split.adaptation.step_size_and_metric import Adapter
from pyro_split.integrators.integrator import Integrator, make_steps
from pyro_split.kernels.hamiltonian import HamiltonianKernel
from pyro_split.potential.position import Position
from pyro_split.potential.split_potential import SplitPotential
from pyro_split.trajectories.fixed_length import draw_length, jittered, metropolis, steps_of_length
from split_common.checks import check_choice
from split_common.exploration import FIRST_LENGTH
from split_common.fixed_length import (
    SUBSET_PERMUTATIONS,
    LengthSettings,
    resolve_length,
    resolve_step_size_jitter,
    warn_of_cut_trajectories,
)
from split_common.schedule import ScheduleChoice, check_schedule
from split_common.settling import Settled


class SplitHMCState(NamedTuple):
    """State of the chain.

    Attributes:
        z: the draw, a dict of unconstrained values by site.
        opening_grad: the kicks that open the next trajectory, a dict like ``z``; None where none are kept.
        energies: the terms of the potential at ``z`` in float64, shape (M + 1,).
        potential_energy: U(z).
        energy: H at the end of the transition.
        num_steps: steps of the last trajectory.
        num_grads: subset gradients of the last trajectory.
        accept_prob: acceptance probability of the last trajectory.
        diverging: whether the last trajectory's energy error was above 1000, infinite or undefined.
        step_size: step size of the last trajectory.
        settled: what warm-up settled on, and how far it still moved.
        trajectory_length: the longest that trajectories may be, where that is learned in warm-up.
    """

    z: Position
    opening_grad: Position | None
    energies: Tensor
    potential_energy: float
    energy: float
    num_steps: int
    num_grads: int
    accept_prob: float
    diverging: bool
    step_size: float
    settled: Settled
    trajectory_length: float


def first_state_of_lengths(**common: Any) -> SplitHMCState:
    """The state of a chain that has not moved, from the fields that every kernel's state has."""
    return SplitHMCState(**common, trajectory_length=FIRST_LENGTH)


def transition(
    state: Any,
    integrator: Integrator,
    adapter: Adapter,
    proposal: LengthSettings,
) -> tuple[Any, Position]:
    """One iteration of split HMC at the adapter's step size and metric, which it leaves as they are.

    Args:
        state: where the chain is, a :class:`SplitHMCState` or one with more fields.
        integrator: the schedule on the target's potential, with the adapter's metric.
        adapter: step size and metric.
        proposal: length and order of the trajectory, and by how much its steps are longer or shorter.

    Returns:
        The next state, and the momentum there.
    """
    schedule = integrator.schedule
    p = integrator.kinetic.draw(state.z)
    order, opening_grad = list(range(schedule.num_subsets)), state.opening_grad
    if proposal.draws_order:
        order = torch.randperm(schedule.num_subsets).tolist()
        opening_grad = integrator.opening_grad_at(state.z, order)
    if proposal.trajectory_length is not None:
        num_steps, step_size = steps_of_length(draw_length(*proposal.trajectory_length), adapter.step_size)
    else:
        num_steps, step_size = proposal.num_steps or 0, adapter.step_size
    step_size = jittered(step_size, proposal.step_size_jitter)

    start = integrator.known(state.z, p, opening_grad, state.energies)
    end = make_steps(integrator, start, step_size, num_steps, order)
    energies = integrator.energies(end)
    energy_change = float((energies - state.energies).sum()) + integrator.kinetic.change(end, start)
    decision = metropolis(energy_change, lambda: float(torch.rand(())))

    z, opening_grad, p = state.z, state.opening_grad, p
    if decision.accepted:
        z, p, opening_grad = end.z, end.p, end.opening_grad if state.opening_grad is not None else None
    else:
        energies = state.energies
    potential_energy = float(energies.sum())
    moved = state._replace(
        z=z,
        opening_grad=opening_grad,
        energies=energies,
        potential_energy=potential_energy,
        energy=potential_energy + integrator.kinetic.energy(z, p),
        num_steps=num_steps,
        num_grads=num_steps * integrator.grads_per_step + proposal.draws_order * schedule.opening_grads,
        accept_prob=decision.accept_prob,
        diverging=decision.diverging,
        step_size=step_size,
    )
    return moved, p


def warn_if_cut_short(num_draws: int, step_size: float, proposal: LengthSettings) -> None:
    """Warn once, of each chain, where trajectories are longer than can be made at the step size of its draws."""
    if num_draws == 1 and proposal.is_cut_short(step_size):
        assert proposal.trajectory_length is not None  # nothing else is cut
        warn_of_cut_trajectories(step_size, proposal.trajectory_length)


class SplitHMC(HamiltonianKernel):
    """Split HMC by any schedule: the three named kernels, or one of your own.

    Args:
        model: Pyro model whose likelihood sits in a plate over the data rows; or a
            :class:`~pyro_split.SplitPotential`, which brings its own ``num_subsets`` and needs ``initial_params``.
        num_subsets: M, from 1 to the number of rows. Memory of a gradient is that of N/M rows.
            One subset takes any model that the host's HMC takes, also where none divides it.
        step_size: step size, or where its adaptation starts.
        num_steps: fixed number of steps of a trajectory; not with ``trajectory_length``.
        trajectory_length: fixed length of a trajectory, as Pyro's. Neither given: warm-up moves by trees that
            double until they turn back, as NUTS's, and learns their mean length; that of each draw's trajectory is then
            drawn uniformly between 0 and it (:mod:`split_common.exploration`).
        step_size_jitter: steps of a trajectory are drawn anew to be up to this share longer or shorter than the
            adapted step size, from 0 up to, but not including, 1. None for 0.5 with ``num_steps``, of which a whole
            period could be made otherwise, at which a chain stands still; else 0.
        adapt_step_size: adapt the step size in warm-up, by dual averaging.
        adapt_mass_matrix: adapt the mass matrix in warm-up, in the host's windows.
        full_mass: False for a diagonal mass matrix, True for a dense one, or a list of tuples of site names,
            each a dense block.
        target_accept_prob: acceptance that the step size is adapted to.
        inverse_mass_matrix: inverse mass matrix to start from: shape (D,), or (D, D) for a dense one, sites
            sorted by name; or a dict from tuples of site names; a list is an array. None for the identity.
        init_strategy: the host's initialisation strategy.
        find_heuristic_step_size: look for a workable step size at the start and after each metric update.
        plate: name of the data plate; None takes the only plate with observations.
        data_axes: for each argument that holds rows, the axis they lie along; None takes every tensor whose
            axis 0 has length N.
        subset_order: "sequential" cuts the rows as they stand; "shuffled" deals them by a fixed seed, for
            sorted data.
        schedule: "symmetric", "naive" or "randomised", a :class:`~split_common.schedule.Schedule` of M subsets, or a
            function from M to one. Of a schedule that is not palindromic an order is drawn for each trajectory.
        subset_permutation: "fixed" visits the subsets in their order; "per_trajectory" draws an order for each
            trajectory, at the cost of its opening gradients.
        jit_compile: trace the model once and keep its tensor operations (a model that cannot be traced is
            replayed, with a warning); False replays it at every gradient, which is slower.

    Raises:
        TypeError: at construction for a flag that is no bool, or for what is no function or mapping and should be.
        ValueError: at construction for an argument out of range, and for both lengths given; at ``run`` for
            faults of model or data (see :func:`~pyro_split.split_model`), a mass matrix of the wrong shape,
            or a start where the density is not finite.
        ModelNotSplittableError: at ``run``, when the subsets do not add up to the model's potential.

    Example:
        >>> SplitHMC(print, num_subsets=4, schedule="naive")
        SplitHMC(model=print, num_subsets=4, plate=None, schedule='naive')
    """

    _runs_backwards = False

    def __init__(
        self,
        model: Callable[..., Any] | SplitPotential,
        num_subsets: int = 1,
        *,
        step_size: float = 1.0,
        num_steps: int | None = None,
        trajectory_length: float | None = None,
        step_size_jitter: float | None = None,
        adapt_step_size: bool = True,
        adapt_mass_matrix: bool = True,
        full_mass: bool | list[tuple[str, ...]] = False,
        target_accept_prob: float = 0.8,
        inverse_mass_matrix: Any = None,
        init_strategy: Callable[..., Any] = init_to_uniform,
        find_heuristic_step_size: bool = True,
        plate: str | None = None,
        data_axes: dict[str, int | None] | None = None,
        subset_order: str = "sequential",
        jit_compile: bool = True,
        schedule: ScheduleChoice = "symmetric",
        subset_permutation: str = "fixed",
    ):
        self._num_steps, self._trajectory_length = resolve_length(num_steps, trajectory_length)
        self._step_size_jitter = resolve_step_size_jitter(step_size_jitter, self._num_steps)
        self._schedule_name = check_schedule(schedule, palindromic=False)
        self._subset_permutation = check_choice("subset_permutation", subset_permutation, SUBSET_PERMUTATIONS)
        super().__init__(
            model,
            num_subsets,
            step_size=step_size,
            adapt_step_size=adapt_step_size,
            adapt_mass_matrix=adapt_mass_matrix,
            full_mass=full_mass,
            target_accept_prob=target_accept_prob,
            inverse_mass_matrix=inverse_mass_matrix,
            init_strategy=init_strategy,
            find_heuristic_step_size=find_heuristic_step_size,
            plate=plate,
            data_axes=data_axes,
            subset_order=subset_order,
            jit_compile=jit_compile,
        )

    @property
    def _proposal(self) -> LengthSettings:
        drawn = not self._rows.keeps_opening or self._subset_permutation == "per_trajectory"
        return LengthSettings(self._num_steps, self._trajectory_length, drawn, self._step_size_jitter)

    @property
    def _draws_order(self) -> bool:
        return self._proposal.draws_order

    @property
    def _longest_step(self) -> float:
        return self._proposal.longest_step

    def _first_state(self, **common: Any) -> SplitHMCState:
        return first_state_of_lengths(**common)

    def _learned(self, state: SplitHMCState) -> dict[str, float]:
        return {"trajectory_length": state.trajectory_length} if self._proposal.learns_length else {}

    def _move(self, integrator: Integrator, state: SplitHMCState) -> SplitHMCState:
        proposal = self._proposal.at(state.trajectory_length)
        warn_if_cut_short(self._t - self._warmup_steps, self._adapter.step_size, proposal)

        def move(state: SplitHMCState) -> SplitHMCState:
            return transition(state, integrator, self._adapter, proposal)[0]

        exploration = self._exploration(self._proposal.learns_length)
        return explored(state, integrator, self._adapter, exploration, self._t, move)


class SymmetricSplitHMC(SplitHMC):
    """Symmetric split HMC: up through the subsets and back down, with a drift between any two.

    Second order, and the best acceptance of the three at one step size. A trajectory of L steps costs
    L(2M - 2) subset gradients: two data passes a step for large M, one for M = 2. M = 1 is plain HMC.

    Args:
        model: see :class:`SplitHMC`, also for every argument not listed here.
        num_subsets: M.
        subset_permutation: "fixed" visits the subsets in their order; "per_trajectory" draws an order for each
            trajectory, at the cost of one more subset gradient.

    Example:
        >>> import torch, pyro, pyro.distributions as dist
        >>> from pyro.infer import MCMC
        >>> def model(y):
        ...     mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        ...     with pyro.plate("data", y.shape[0]):
        ...         pyro.sample("y", dist.Normal(mu, 1.0), obs=y)
        >>> mcmc = MCMC(SymmetricSplitHMC(model, num_subsets=4), warmup_steps=50, num_samples=50, disable_progbar=True)
        >>> mcmc.run(torch.sin(torch.arange(20.0)))
        >>> mcmc.get_samples()["mu"].shape
        torch.Size([50])
    """

    def __init__(
        self,
        model: Callable[..., Any] | SplitPotential,
        num_subsets: int = 1,
        *,
        step_size: float = 1.0,
        num_steps: int | None = None,
        trajectory_length: float | None = None,
        step_size_jitter: float | None = None,
        adapt_step_size: bool = True,
        adapt_mass_matrix: bool = True,
        full_mass: bool | list[tuple[str, ...]] = False,
        target_accept_prob: float = 0.8,
        inverse_mass_matrix: Any = None,
        init_strategy: Callable[..., Any] = init_to_uniform,
        find_heuristic_step_size: bool = True,
        plate: str | None = None,
        data_axes: dict[str, int | None] | None = None,
        subset_order: str = "sequential",
        jit_compile: bool = True,
        subset_permutation: str = "fixed",
    ):
        super().__init__(
            model,
            num_subsets,
            step_size=step_size,
            num_steps=num_steps,
            trajectory_length=trajectory_length,
            step_size_jitter=step_size_jitter,
            adapt_step_size=adapt_step_size,
            adapt_mass_matrix=adapt_mass_matrix,
            full_mass=full_mass,
            target_accept_prob=target_accept_prob,
            inverse_mass_matrix=inverse_mass_matrix,
            init_strategy=init_strategy,
            find_heuristic_step_size=find_heuristic_step_size,
            plate=plate,
            data_axes=data_axes,
            subset_order=subset_order,
            jit_compile=jit_compile,
            schedule="symmetric",
            subset_permutation=subset_permutation,
        )


class NaiveSplitHMC(SplitHMC):
    """Plain HMC in the memory of one subset: leapfrog, its gradient summed subset by subset.

    The same draws as plain HMC up to rounding. A trajectory of L steps costs LM subset gradients, L data
    passes. For the arguments see :class:`SplitHMC`.

    Example:
        >>> kernel = NaiveSplitHMC(lambda y: None, num_subsets=4, num_steps=10)
        >>> kernel.num_subsets
        4
    """

    def __init__(
        self,
        model: Callable[..., Any] | SplitPotential,
        num_subsets: int = 1,
        *,
        step_size: float = 1.0,
        num_steps: int | None = None,
        trajectory_length: float | None = None,
        step_size_jitter: float | None = None,
        adapt_step_size: bool = True,
        adapt_mass_matrix: bool = True,
        full_mass: bool | list[tuple[str, ...]] = False,
        target_accept_prob: float = 0.8,
        inverse_mass_matrix: Any = None,
        init_strategy: Callable[..., Any] = init_to_uniform,
        find_heuristic_step_size: bool = True,
        plate: str | None = None,
        data_axes: dict[str, int | None] | None = None,
        subset_order: str = "sequential",
        jit_compile: bool = True,
    ):
        super().__init__(
            model,
            num_subsets,
            step_size=step_size,
            num_steps=num_steps,
            trajectory_length=trajectory_length,
            step_size_jitter=step_size_jitter,
            adapt_step_size=adapt_step_size,
            adapt_mass_matrix=adapt_mass_matrix,
            full_mass=full_mass,
            target_accept_prob=target_accept_prob,
            inverse_mass_matrix=inverse_mass_matrix,
            init_strategy=init_strategy,
            find_heuristic_step_size=find_heuristic_step_size,
            plate=plate,
            data_axes=data_axes,
            subset_order=subset_order,
            jit_compile=jit_compile,
            schedule="naive",
        )


class RandomisedSplitHMC(SplitHMC):
    """Neal's randomised split HMC: a leapfrog step with each subset in turn, in an order drawn per trajectory.

    First order: at one step size its acceptance is the lowest of the three. A trajectory of L steps costs 2LM
    subset gradients, two data passes a step. For the arguments see :class:`SplitHMC`.

    Example:
        >>> kernel = RandomisedSplitHMC(lambda y: None, num_subsets=4, num_steps=10)
        >>> kernel.num_subsets
        4
    """

    def __init__(
        self,
        model: Callable[..., Any] | SplitPotential,
        num_subsets: int = 1,
        *,
        step_size: float = 1.0,
        num_steps: int | None = None,
        trajectory_length: float | None = None,
        step_size_jitter: float | None = None,
        adapt_step_size: bool = True,
        adapt_mass_matrix: bool = True,
        full_mass: bool | list[tuple[str, ...]] = False,
        target_accept_prob: float = 0.8,
        inverse_mass_matrix: Any = None,
        init_strategy: Callable[..., Any] = init_to_uniform,
        find_heuristic_step_size: bool = True,
        plate: str | None = None,
        data_axes: dict[str, int | None] | None = None,
        subset_order: str = "sequential",
        jit_compile: bool = True,
    ):
        super().__init__(
            model,
            num_subsets,
            step_size=step_size,
            num_steps=num_steps,
            trajectory_length=trajectory_length,
            step_size_jitter=step_size_jitter,
            adapt_step_size=adapt_step_size,
            adapt_mass_matrix=adapt_mass_matrix,
            full_mass=full_mass,
            target_accept_prob=target_accept_prob,
            inverse_mass_matrix=inverse_mass_matrix,
            init_strategy=init_strategy,
            find_heuristic_step_size=find_heuristic_step_size,
            plate=plate,
            data_axes=data_axes,
            subset_order=subset_order,
            jit_compile=jit_compile,
            schedule="randomised",
        )
