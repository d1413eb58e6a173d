"""Semi-separable Hamiltonian Monte Carlo over subsets: weights and their precisions move together.

Target: exactly the full posterior of a model whose Normal weights have scales set by precisions. For the Hamiltonian,
and why its marginal is the posterior, see :mod:`split_common.hierarchy`; for its steps, see
:mod:`numpyro_split.integrators.alternating`; for its kinetic energy,
:mod:`numpyro_split.integrators.hierarchical_kinetic`.

Reference:
    Cobb, Baydin, Kiskin, Markham and Roberts (2019), Semi-separable Hamiltonian Monte Carlo for inference in Bayesian
    neural networks; its equation (5) lacks ½ and the inverse, its Algorithm 1 counts shared terms twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Unpack

import jax.numpy as jnp

from numpyro_split.adaptation.step_size_and_metric import WindowMean
from numpyro_split.integrators.alternating import AlternatingIntegrator
from numpyro_split.integrators.euclidean import EuclideanKinetic
from numpyro_split.integrators.hierarchical_kinetic import HierarchicalKinetic
from numpyro_split.integrators.integrator import Integrator, IntegratorBase
from numpyro_split.kernels.hamiltonian import Hamiltonian
from numpyro_split.kernels.host_kernel import SplitKernel
from numpyro_split.kernels.method import Setup
from numpyro_split.kernels.options import DEFAULTS, Options, resolve_options
from numpyro_split.kernels.state import ChainState
from numpyro_split.kernels.system import PrecisionSites
from numpyro_split.potential.centering import FollowedPotential
from numpyro_split.potential.position import Position
from numpyro_split.trajectories.fixed_length import FixedLength
from split_common.adaptation import AdaptationSettings
from split_common.checks import MAX_COUNT, check_positive_int
from split_common.fixed_length import LengthSettings
from split_common.hierarchy import BLOCK_STATISTICS, check_masses
from split_common.mass import mass_blocks
from split_common.options import with_options
from split_common.schedule import ChosenSchedule, Schedule, ScheduleChoice
from split_common.trajectory import Trajectory


@dataclass(frozen=True)
class SemiSeparable:
    """A :class:`~numpyro_split.kernels.system.System` in which the mass of the weights depends on their precisions.

    Attributes:
        sites: which sites are precisions.
        weight_steps: number of steps of the weights in each half of a step.
        precision_steps: number of leapfrog steps of the precisions in a step.
    """

    sites: PrecisionSites
    weight_steps: int = 1
    precision_steps: int = 1
    statistics = BLOCK_STATISTICS
    has_constant_mass = False

    def __post_init__(self) -> None:
        for name in ("weight_steps", "precision_steps"):
            object.__setattr__(self, name, check_positive_int(name, getattr(self, name), MAX_COUNT))

    @property
    def details(self) -> list[str]:
        """Text of the groups, or a note that they are found when the kernel runs."""
        return self.sites.details

    @property
    def layout(self) -> tuple[str, ...]:
        """Settings of the precision sites, as texts."""
        return self.sites.layout

    @property
    def plan(self) -> str:
        """Digest of the groups, as text."""
        return self.sites.plan

    def check_trajectory(self, trajectory: Trajectory) -> None:
        """Raise unless the trajectory is a :class:`~numpyro_split.trajectories.fixed_length.FixedLength`."""
        if not isinstance(trajectory, FixedLength):
            raise ValueError(
                f"trajectory must be FixedLength for a SemiSeparable system, got {type(trajectory).__name__}"
            )

    def find(self, setup: Setup) -> SemiSeparable:
        """The system with the groups of the model.

        Raises:
            ValueError: for a precision whose mass is not above 0.
        """
        sites = self.sites.find(setup)
        check_masses(sites.found.masses, sites.found.groups, sites.found.concentrations)
        return replace(self, sites=sites)

    def coordinates(self, z: Mapping[str, Any]) -> dict[str, Any]:
        """All entries but those of the precisions."""
        return self.sites.found.without_precisions(z)

    def first_inverse_mass_matrix(self, z: Position, adaptation: AdaptationSettings) -> Any:
        """The matrix that was given, or the prior variances of weights at the start and 1 for other sites."""
        given, hierarchy = adaptation.inverse_mass_matrix, self.sites.found
        if given is not None:
            return given
        variances = {name: jnp.ones_like(u) for name, u in hierarchy.without_precisions(z).items()}
        variances |= {name: jnp.exp(2 * log_scale) for name, log_scale in hierarchy.log_scales(z).items()}
        blocks = mass_blocks(adaptation.dense, variances)
        return {sites: jnp.concatenate([variances[name].ravel() for name in sites]) for sites in blocks}

    def first_fields(self, z: Position) -> dict[str, Any]:
        """Energies of the two blocks, 0 so far, and the mean of the precisions, which starts at ``z``."""
        mean = WindowMean.start(self.sites.found.of_precisions(z))
        return {"weight_energy": jnp.zeros(()), "precision_energy": jnp.zeros(()), "precision_mean": mean}

    def potential(self, potential: FollowedPotential) -> FollowedPotential:
        """The potential of the target."""
        return potential

    def kinetic(self, adapted: EuclideanKinetic, state: ChainState) -> HierarchicalKinetic:
        """The kinetic energy of the adapted mass matrix, with masses of weights that depend on the precisions."""
        assert state.precision_mean is not None
        return HierarchicalKinetic.adapted_at(self.sites.found, adapted, state.precision_mean.adapted)

    def integrator(
        self, schedule: Schedule, potential: FollowedPotential, kinetic: HierarchicalKinetic
    ) -> AlternatingIntegrator:
        """The integrator that alternates steps of the weights and of the precisions."""
        return AlternatingIntegrator(schedule, potential, kinetic, self.weight_steps, self.precision_steps)

    def early_integrator(self, integrator: AlternatingIntegrator) -> IntegratorBase:
        """Steps of the schedule for all sites together, with constant masses."""
        return Integrator(integrator.schedule, integrator.potential, integrator.kinetic.constant())

    def before(self, state: ChainState, integrator: IntegratorBase) -> ChainState:
        """The state as it is: there is no transition before the trajectory."""
        return state

    def noted(self, state: ChainState, p: Position | None, integrator: AlternatingIntegrator) -> ChainState:
        """The state with the energies of the two blocks."""
        assert state.energies is not None
        assert p is not None  # trajectories of fixed length return the momentum
        weight_energy = jnp.sum(state.energies.value[1:]) + integrator.kinetic.weight_energy(state.z, p)
        return state._replace(weight_energy=weight_energy, precision_energy=state.energy - weight_energy)

    def adapted(self, state: ChainState, moved: ChainState, num_warmup: int) -> ChainState:
        """The state ``moved`` with the mean of the precisions, over the window that the mass matrix is made from."""
        assert state.precision_mean is not None
        return moved._replace(precision_mean=state.precision_mean.update(state.i, moved.z, num_warmup))


class S3HMC(SplitKernel):
    """Semi-separable split HMC: weights and their precisions, sampled jointly by explicit Riemannian dynamics.

    For hierarchical models in the usual, centred parametrisation: weights ~ Normal(·, precision^-½), where the
    precision has a prior of its own. The kernel finds from the model's trace which site scales which, and
    ``repr(kernel)`` shows it after ``run``. A precision site is any site whose logarithm enters the log of the scale
    linearly: a precision, a variance or a scale with any prior, shared by several sites of weights or with an entry for
    each unit.

    Args:
        model: NumPyro model whose likelihood sits in a plate over the data rows.
        num_subsets: M, the number of subsets, from 1 to the number of rows N, or "auto" for the smallest number whose
            gradient fits into ``memory``. A gradient takes the memory of N/M rows. With one subset, every model that
            NumPyro's HMC takes is allowed, also one that cannot be divided.
        precision_sites: names of the precision sites; None finds all.
        output_precision: whether the precision of Normal observations is one of the precision sites, with the Fisher
            information N/2 (plus α - 1); each of its steps costs a data pass. False leaves it among the other sites,
            with an adapted mass.
        step_size: step size, or the value from which its adaptation starts.
        num_steps: fixed number of steps of a trajectory; not with ``trajectory_length``.
        trajectory_length: fixed length of a trajectory. If neither is given, warm-up moves by trees that double until
            they turn back, as in NUTS, and learns their mean length; the length of each trajectory after warm-up is
            then drawn uniformly between 0 and that mean (:mod:`split_common.exploration`).
        step_size_jitter: j, from 0 up to but not including 1: the step size of each trajectory is the adapted one times
            a draw from U(1 - j, 1 + j). None for 0.5 with ``num_steps``, otherwise for 0.
        weight_steps: number of steps of the weights in each half of a step.
        precision_steps: number of leapfrog steps of the precisions in a step.
        adapt_step_size: whether the step size adapts in warm-up, by dual averaging.
        adapt_mass_matrix: whether warm-up adapts, in NumPyro's windows, what the data add to the mass of the weights,
            and the mass of every other site. The mass of the precisions does not adapt.
        dense_mass: form of the mass matrix of the sites that are not precisions: False for diagonal, True for dense, or
            a list of tuples of site names, each of them a dense block.
        target_accept_prob: acceptance probability that the step size is adapted to.
        metric: how the mass matrix is estimated: None for NumPyro's way, from the covariance of draws; "auto" for one
            from draws and gradients, dense up to 500 parameters and of low rank beyond. That needs few draws, and costs
            a gradient of all rows for each draw of warm-up that it is estimated from
            (:mod:`split_common.gradient_metric`). Not with ``dense_mass``.
        center: reference point about which the gradients of the subsets are centred, so that subsets differ less;
            neither the target nor the accept-reject decision changes. None for no centring, "auto" for a point that
            warm-up finds and uses if that is measured to help, or a dict of unconstrained values by site
            (:mod:`split_common.centering`).
        center_order: order of centring: 1 for gradients, 2 for curvature too, with at most 100 parameters. None chooses
            by measurement with ``center="auto"``, and is 1 with a given center.
        inverse_mass_matrix: inverse mass matrix to start from, for the sites that are not precisions: an array of shape
            (D,), or (D, D) for a dense one, with sites sorted by name; or a dict from tuples of site names to arrays.
            None for the prior variance of the weights and 1 for every other site.
        init_strategy: NumPyro's initialisation strategy.
        find_heuristic_step_size: whether to search for a workable step size at the start and after each update of the
            mass matrix.
        forward_mode_differentiation: whether to differentiate in forward mode, for models with loops of unknown length
            (``lax.while_loop``, adaptive solvers of differential equations); it costs one pass for each parameter.
        regularize_mass_matrix: whether to shrink the estimated mass matrix towards a small multiple of the identity, as
            NumPyro does.
        memory: with ``num_subsets="auto"``, the memory that one gradient may take: bytes, or text such as "2GiB" or
            "500MB" ("Choosing M" in docs/scale.md). None otherwise.
        plate: name of the data plate; None takes the only plate with observations.
        data_axes: dict from the name of each argument that holds rows (or of one array in it, as "data['X']") to the
            axis they lie along; None takes every array whose axis 0 has length N.
        subset_order: "sequential" divides the rows into subsets in their order; "shuffled" deals them out at random by
            a fixed seed, for sorted data.
        schedule: kicks and drifts of one step of the weights: "symmetric", "naive", "randomised" or "single_visit", a
            :class:`~split_common.schedule.Schedule` of M subsets, or a function from M to one.

    Raises:
        TypeError: at construction, for a flag that is not a bool, and for an argument that must be a function or a
            mapping and is not.
        ValueError: at construction, for an argument out of range; at ``run``, for faults of the model or the data (see
            :func:`~numpyro_split.split_model`), and, naming the site, for a model without weights and precisions,
            weights with two precisions or of an unsupported form, a precision that scales nothing, a name in
            ``precision_sites`` that is not a site, and Q/2 + α - 1 not above 0.
        ModelNotSplittableError: at ``run``, when the subsets do not add up to the model's potential.

    Example:
        >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist
        >>> from numpyro.infer import MCMC
        >>> def model(X, y):
        ...     tau = numpyro.sample("tau", dist.Gamma(2.0, 2.0))
        ...     w = numpyro.sample("w", dist.Normal(jnp.zeros(3), tau**-0.5).to_event(1))
        ...     with numpyro.plate("data", y.shape[0]):
        ...         numpyro.sample("y", dist.Normal(X @ w, 1.0), obs=y)
        >>> kernel = S3HMC(model, num_subsets=2)
        >>> mcmc = MCMC(kernel, num_warmup=50, num_samples=50, progress_bar=False)
        >>> mcmc.run(jax.random.key(0), jnp.eye(3).repeat(4, axis=0), jnp.arange(12.0))
        >>> print(kernel)
        S3HMC(model=model, num_subsets=2, plate=None, schedule='symmetric', precision tau -> w (Q = 3, mass 2.5))
    """

    @with_options(DEFAULTS)
    def __init__(
        self,
        model: Callable[..., Any],
        num_subsets: int | str = 1,
        *,
        precision_sites: list[str] | None = None,
        output_precision: bool = True,
        num_steps: int | None = None,
        trajectory_length: float | None = None,
        step_size_jitter: float | None = None,
        weight_steps: int = 1,
        precision_steps: int = 1,
        schedule: ScheduleChoice = "symmetric",
        **options: Unpack[Options],
    ):
        sites = PrecisionSites.checked(model, precision_sites, output_precision)
        splitting, adaptation = resolve_options(model, num_subsets, options)
        trajectory = FixedLength(LengthSettings.checked(num_steps, trajectory_length, step_size_jitter))
        system = SemiSeparable(sites, weight_steps, precision_steps)
        chosen = ChosenSchedule(schedule, splitting.num_subsets)
        super().__init__(model, splitting, Hamiltonian(chosen, trajectory, adaptation, system))
