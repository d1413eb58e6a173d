r"""Semi-separable Hamiltonian Monte Carlo over subsets: weights and their precisions move together.

Target: the full posterior of a model whose Normal weights ω have scales set by precisions τ, exactly. With u the
unconstrained precisions (log τ),

.. math:: H = U(z) + \tfrac12 \tilde p^T V \tilde p + \tfrac12 \log|G(u)| + \tfrac12 \textstyle\sum_l p_{u,l}^2 / c_l ,

each term once: momenta are drawn from exp(-K) given the position, so that exp(-H) has the posterior as its marginal, a
trajectory of explicit, reversible, volume-preserving steps (:mod:`pyro_split.integrators.alternating`) is made, and it
is accepted with probability min(1, exp(H - H')). G gives weights the mass of their prior precision plus what the data
add to it (:mod:`pyro_split.integrators.hierarchical_kinetic`), c is the Fisher information of the weights' density in
u: Q/2 for a precision of Q weights, plus α - 1 under a gamma prior. The log determinant is what lets the two blocks
exchange energy; without it, or with H written as the sum of the paper's H_τ and H_ω, which share terms, the target is
missed.

Where no length is given, a trajectory's is uniform between 0 and one that warm-up learns from trees
(:mod:`split_common.exploration`): fixed before the first draw, so resting on no state. Trees compare momenta of
different positions as the standard normals that they were made from, V^½ p̃ and p_u / c^½: their sum over a run is how
far it goes in units of the scales where it goes, and a run turns back where one of its ends moves against that.
Until the last metric is there, trees are of plain leapfrog steps with the constant mass of V and c: far from the
posterior, weights that are as slow as their prior is narrow keep their precision large.

Sites that are neither weights nor precisions move with the weights, in the block that reads the data anyway, with an
adapted mass: in the second block each of its steps would take a data pass for them. The precision of a Normal
likelihood can be in the second block, with the Fisher information N/2 (``output_precision``), at that price.

Reference:
    Cobb, Baydin, Kiskin, Markham and Roberts (2019), Semi-separable Hamiltonian Monte Carlo for inference in Bayesian
    neural networks; its equation (5) lacks ½ and the inverse, its Algorithm 1 counts shared terms twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from pyro.infer.autoguide.initialization import init_to_uniform
from torch import Tensor

from pyro_split.adaptation.exploration import explored
from pyro_split.adaptation.step_size_and_metric import WindowMean
from pyro_split.integrators.alternating import AlternatingIntegrator
from pyro_split.integrators.euclidean import EuclideanKinetic
from pyro_split.integrators.hierarchical_kinetic import HierarchicalKinetic
from pyro_split.integrators.integrator import Integrator
from pyro_split.kernels.hierarchical import HierarchicalKernel
from pyro_split.kernels.split_hmc import transition, warn_if_cut_short
from pyro_split.potential.position import Position
from pyro_split.potential.split_potential import SplitPotential
from split_common.checks import MAX_COUNT, check_positive_int
from split_common.exploration import FIRST_LENGTH
from split_common.fixed_length import LengthSettings, resolve_length, resolve_step_size_jitter
from split_common.health import STATISTICS
from split_common.hierarchy import BLOCK_STATISTICS
from split_common.mass import mass_blocks
from split_common.schedule import ScheduleChoice, check_schedule
from split_common.settling import Settled


class S3HMCState(NamedTuple):
    """State of the chain.

    The first fields are those of :class:`~pyro_split.kernels.split_hmc.SplitHMCState`.

    Attributes:
        weight_energy: the first block's part of ``energy``: minus the log-likelihood, plus the kinetic energy of
            everything but the precisions.
        precision_energy: the second block's: the rest of ``energy``, minus the log-prior, ½ log|G| and the kinetic
            energy of the precisions. Both are 0 while warm-up moves by trees.
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
    weight_energy: float
    precision_energy: float
    trajectory_length: float


class S3HMC(HierarchicalKernel):
    """Weights and their precisions, sampled jointly by explicit Riemannian dynamics.

    For hierarchical models as they are usually written, centred: weights ~ Normal(·, precision^-½) with a precision
    that has a prior of its own. Which site scales which is found from the model's trace, and shown by ``repr(kernel)``
    after ``run``. Supported is any site whose logarithm enters the log of the scale linearly: a precision, a variance
    or a scale, of any prior, shared by several sites of weights or with an entry for each unit.

    Args:
        model: Pyro model whose likelihood sits in a plate over the data rows.
        num_subsets: M, from 1 to the number of rows. Memory of a gradient is that of N/M rows.
            One subset takes any model that the host's HMC takes, also where none divides it.
        precision_sites: names of the precision sites; None finds all.
        output_precision: whether the precision of Normal observations is one of them, with the Fisher information
            N/2 (and α - 1); each of its steps takes a data pass. False leaves it among the other sites, with an
            adapted mass.
        step_size: step size, or where its adaptation starts.
        num_steps: fixed number of steps of a trajectory; not with ``trajectory_length``.
        trajectory_length: fixed length of a trajectory. Neither given: warm-up moves by trees that double until they
            turn back, as NUTS's, and learns their mean length; that of each draw's trajectory is then drawn uniformly
            between 0 and it (:mod:`split_common.exploration`).
        step_size_jitter: steps of a trajectory are drawn anew to be up to this share longer or shorter than the
            adapted step size, from 0 up to, but not including, 1. None for 0.5 with ``num_steps``, else 0.
        weight_steps: steps of the weights in each half of a step.
        precision_steps: leapfrog steps of the precisions in a step.
        adapt_step_size: adapt the step size in warm-up, by dual averaging.
        adapt_mass_matrix: adapt in warm-up, in the host's windows, what the data add to the mass of weights, and the
            mass of every other site. The precisions keep theirs.
        full_mass: False for a diagonal mass matrix, True for a dense one, or a list of tuples of site names,
            each a dense block; of the sites that are no precisions.
        target_accept_prob: acceptance that the step size is adapted to.
        inverse_mass_matrix: inverse mass matrix to start from, of the sites that are no precisions: shape (D,), or
            (D, D) for a dense one, sites sorted by name; or a dict from tuples of site names. None for the prior
            variance of weights and 1 for every other site; a list is an array.
        init_strategy: the host's initialisation strategy.
        find_heuristic_step_size: look for a workable step size at the start and after each metric update.
        plate: name of the data plate; None takes the only plate with observations.
        data_axes: for each argument that holds rows, the axis they lie along; None takes every tensor whose
            axis 0 has length N.
        subset_order: "sequential" cuts the rows as they stand; "shuffled" deals them by a fixed seed, for
            sorted data.
        jit_compile: trace the model once and keep its tensor operations (a model that cannot be traced is
            replayed, with a warning); False replays it at every gradient, which is slower.
        schedule: by which the weights move: "symmetric", "naive", a palindromic
            :class:`~split_common.schedule.Schedule` of M subsets, or a function from M to one.

    Raises:
        TypeError: at construction for a flag that is no bool, or for what is no function or mapping and should be.
        ValueError: at construction for an argument out of range; at ``run`` for faults of model or data (see
            :func:`~pyro_split.split_model`), and naming the site for a model without weights and precisions, weights
            with two precisions or of no supported form, a precision that scales nothing, a name in
            ``precision_sites`` that is no site, and Q/2 + α - 1 not above 0.
        ModelNotSplittableError: at ``run``, when the subsets do not add up to the model's potential.

    Example:
        >>> import torch, pyro, pyro.distributions as dist
        >>> from pyro.infer import MCMC
        >>> def model(X, y):
        ...     tau = pyro.sample("tau", dist.Gamma(2.0, 2.0))
        ...     w = pyro.sample("w", dist.Normal(torch.zeros(3), tau**-0.5).to_event(1))
        ...     with pyro.plate("data", y.shape[0]):
        ...         pyro.sample("y", dist.Normal(X @ w, 1.0), obs=y)
        >>> kernel = S3HMC(model, num_subsets=2)
        >>> mcmc = MCMC(kernel, warmup_steps=50, num_samples=50, disable_progbar=True)
        >>> mcmc.run(torch.eye(3).repeat_interleave(4, 0), torch.arange(12.0))
        >>> print(kernel)
        S3HMC(model=model, num_subsets=2, plate=None, schedule='symmetric', precision tau -> w (Q = 3, mass 2.5))
    """

    _statistic_names = (*STATISTICS, *BLOCK_STATISTICS)

    def __init__(
        self,
        model: Callable[..., Any],
        num_subsets: int = 1,
        *,
        precision_sites: list[str] | None = None,
        output_precision: bool = True,
        step_size: float = 1.0,
        num_steps: int | None = None,
        trajectory_length: float | None = None,
        step_size_jitter: float | None = None,
        weight_steps: int = 1,
        precision_steps: int = 1,
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
    ):
        num_steps, length = resolve_length(num_steps, trajectory_length)
        jitter = resolve_step_size_jitter(step_size_jitter, num_steps)
        self._proposal = LengthSettings(num_steps, length, draws_order=False, step_size_jitter=jitter)
        self._weight_steps = check_positive_int("weight_steps", weight_steps, MAX_COUNT)
        self._precision_steps = check_positive_int("precision_steps", precision_steps, MAX_COUNT)
        self._schedule_name = check_schedule(schedule, palindromic=True)
        super().__init__(
            model,
            num_subsets,
            precision_sites=precision_sites,
            output_precision=output_precision,
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
    def _longest_step(self) -> float:
        return self._proposal.longest_step

    def _first_inverse_mass_matrix(self, z: Position) -> Any:
        given, hierarchy = self._settings.inverse_mass_matrix, self._found
        if given is not None:
            return given
        # the prior's, where the chain starts, in the blocks of the host's matrix
        variances = {name: torch.ones_like(u) for name, u in hierarchy.without_precisions(z).items()}
        variances |= {name: (2 * log_scale).exp() for name, log_scale in hierarchy.log_scales(z).items()}
        blocks = mass_blocks(self._settings.full_mass, variances)
        flat = {sites: torch.cat([variances[name].reshape(-1) for name in sites]) for sites in blocks}
        return {sites: flat[sites].diag() if dense else flat[sites] for sites, dense in blocks.items()}

    def _kinetic(self, adapted: EuclideanKinetic) -> HierarchicalKinetic:
        return HierarchicalKinetic.adapted_at(self._found, adapted, self._precision_mean.adapted)

    def _integrator(self, potential: SplitPotential, kinetic: HierarchicalKinetic) -> AlternatingIntegrator:
        return AlternatingIntegrator(self._rows, potential, kinetic, self._weight_steps, self._precision_steps)

    def _start(self, potential: SplitPotential, z: Position) -> S3HMCState:
        self._precision_mean = WindowMean(self._found.of_precisions(z))
        return super()._start(potential, z)

    def _first_state(self, **common: Any) -> S3HMCState:
        return S3HMCState(**common, weight_energy=0.0, precision_energy=0.0, trajectory_length=FIRST_LENGTH)

    def _learned(self, state: S3HMCState) -> dict[str, float]:
        return {"trajectory_length": state.trajectory_length} if self._proposal.learns_length else {}

    def _move(self, integrator: AlternatingIntegrator, state: S3HMCState) -> S3HMCState:
        proposal = self._proposal.at(state.trajectory_length)
        warn_if_cut_short(self._t - self._warmup_steps, self._adapter.step_size, proposal)

        def move(state: S3HMCState) -> S3HMCState:
            moved, p = transition(state, integrator, self._adapter, proposal)
            weight_energy = float(moved.energies[1:].sum()) + integrator.kinetic.weight_energy(moved.z, p)
            return moved._replace(weight_energy=weight_energy, precision_energy=moved.energy - weight_energy)

        exploration = self._exploration(self._proposal.learns_length)
        explorer: Integrator = integrator
        if self._t <= exploration.before.num_trees:
            explorer = Integrator(self._rows, integrator.potential, integrator.kinetic.constant())
        moved = explored(state, explorer, self._adapter, exploration, self._t, move)
        if self._settings.adapt_mass_matrix:
            self._precision_mean.update(self._t, moved.z, self._adapter.window_ends)
        return moved
