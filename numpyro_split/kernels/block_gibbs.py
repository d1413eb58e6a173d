"""Neal's hybrid Gibbs sampler: precisions drawn from their conjugate conditional, weights moved by HMC or NUTS.

Target: exactly the full posterior. An iteration draws every precision from its distribution given the weights, then
moves all other sites by a transition that leaves the posterior given the precisions invariant
(:mod:`numpyro_split.kernels.split_hmc`, :mod:`numpyro_split.kernels.split_nuts`). The composition of both leaves the
joint posterior invariant. Whether a model has such conditionals is decided from its expression before anything
is drawn (:mod:`split_common.conjugacy`).

Precisions and weights limit each other's moves: if Q weights share a precision τ and the data say little about them, τ
changes only by a fraction of about 1/√Q in an iteration. :class:`~numpyro_split.S3HMC` moves them together.

Reference:
    Neal (1995), Bayesian Learning for Neural Networks, section 3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from numpyro_split.integrators.euclidean import EuclideanKinetic
from numpyro_split.integrators.hierarchical_kinetic import like
from numpyro_split.integrators.integrator import Integrator, IntegratorBase
from numpyro_split.integrators.wrappers import HeldPotential
from numpyro_split.kernels.hamiltonian import Hamiltonian
from numpyro_split.kernels.host_kernel import SplitKernel
from numpyro_split.kernels.method import Setup
from numpyro_split.kernels.options import DEFAULTS, Options, resolve_options
from numpyro_split.kernels.state import ChainState
from numpyro_split.kernels.system import PrecisionSites
from numpyro_split.potential.centering import FollowedPotential
from numpyro_split.potential.position import Position
from numpyro_split.splitting.conjugacy import read_terms
from numpyro_split.trajectories.doubling import Doubling
from numpyro_split.trajectories.fixed_length import FixedLength
from numpyro_split.trajectories.termination import U_TURN
from split_common.adaptation import AdaptationSettings
from split_common.conjugacy import check_conjugacy
from split_common.fixed_length import LengthSettings
from split_common.hierarchy import check_priors_only, check_shapes, check_trajectory, conjugate_shapes, shape_of
from split_common.options import with_options
from split_common.schedule import ChosenSchedule, Schedule, ScheduleChoice
from split_common.termination import FixedRule
from split_common.trajectory import Trajectory

LEAST_SHARE = 1e-3
"""Least rate · τ, as a share of the shape, at which a rate is read from a gradient: rounding spoils it below."""

MOST_MOVES = 4
"""Most times that precisions are moved to where their rates can be read; each time by a factor of up to 1/eps."""


class Conjugate(NamedTuple):
    """Distributions of the precisions given all other sites: log τ = sign · u with τ ~ Gamma(shape, rate).

    Attributes:
        signs: 1 for a precision, -1 for a variance, by site.
        shapes: α + Q/2 of each precision, by site.
    """

    signs: dict[str, float]
    shapes: dict[str, np.ndarray]

    def products(self, z: Position, prior_grad: Position) -> Position:
        """The product rate · τ of each precision; the gradient of the prior's energy by log τ is rate · τ - shape."""
        products = {}
        for name, sign in self.signs.items():
            shape = like(self.shapes[name], z[name])
            rounding = jnp.finfo(shape.dtype).eps
            products[name] = jnp.maximum(sign * prior_grad[name] + shape, rounding * shape)
        return products

    def rates(self, z: Position, prior_grad: Position) -> Position:
        """The rate of each precision, from the gradient of the prior's energy."""
        products = self.products(z, prior_grad)
        return {name: jnp.exp(-sign * z[name]) * products[name] for name, sign in self.signs.items()}

    def where_rates_are_known(
        self, z: Position, prior_grad: Position, prior_grad_at: Callable[[Position], Position]
    ) -> tuple[Position, Position]:
        """``z`` with its precisions moved to where their rates can be read from the gradient, and that gradient.

        rate · τ is the gradient plus the shape. Where τ is far below shape / rate (weights near zero, as at a start),
        rounding leaves little of the sum, so the gradient is taken again at a larger τ; the rate is the same there.

        Args:
            z: current position.
            prior_grad: the gradient of the prior's energy at ``z``.
            prior_grad_at: that gradient as a function of the position.
        """

        def shares(z: Position, grad: Position) -> Position:
            return {name: x / like(self.shapes[name], x) for name, x in self.products(z, grad).items()}

        def is_lost(found: tuple[jax.Array, Position, Position]) -> jax.Array:
            moves, z, grad = found
            lowest = jnp.stack([jnp.min(share) for share in shares(z, grad).values()])
            return (moves < MOST_MOVES) & jnp.any(lowest < LEAST_SHARE)

        def move(found: tuple[jax.Array, Position, Position]) -> tuple[jax.Array, Position, Position]:
            moves, z, grad = found
            moved = {
                name: jnp.where(share < LEAST_SHARE, z[name] - self.signs[name] * jnp.log(share), z[name])
                for name, share in shares(z, grad).items()
            }
            z = {**z, **moved}
            return moves + 1, z, prior_grad_at(z)

        _, z, grad = jax.lax.while_loop(is_lost, move, (jnp.array(0), z, prior_grad))
        return z, grad

    def measured_shapes(self, z: Position, prior_grad_at: Callable[[Position], Position]) -> Position:
        """α + Q/2 of each precision, measured from the gradient of the prior's energy at two positions."""
        z, grad = self.where_rates_are_known(z, prior_grad_at(z), prior_grad_at)
        logs = {name: jnp.log(like(self.shapes[name], x) / x) for name, x in self.products(z, grad).items()}
        near = {**z, **{name: z[name] + self.signs[name] * x for name, x in logs.items()}}
        beyond = {**near, **{name: near[name] + sign for name, sign in self.signs.items()}}
        grad, grad_beyond = prior_grad_at(near), prior_grad_at(beyond)
        return {name: sign * shape_of(grad[name], grad_beyond[name]) for name, sign in self.signs.items()}

    def draw(self, z: Position, prior_grad: Position, rng_key: jax.Array) -> Position:
        """``z`` with the precisions drawn given all other sites."""
        drawn = {}
        for i, (name, rate) in enumerate(self.rates(z, prior_grad).items()):
            log_gamma = random.loggamma(random.fold_in(rng_key, i), like(self.shapes[name], rate), dtype=rate.dtype)
            drawn[name] = self.signs[name] * (log_gamma - jnp.log(rate))
        return {**z, **drawn}


def draw_precisions(
    state: ChainState, integrator: IntegratorBase, conjugate: Conjugate, rng_key: jax.Array
) -> ChainState:
    """``state`` with the precisions drawn given all other sites, and with its energies and opening gradient updated.

    Args:
        state: current state of the chain.
        integrator: integrator of all other sites, on a :class:`HeldPotential`.
        conjugate: distributions of the precisions.
        rng_key: random key of the draw.
    """
    held = integrator.potential
    assert isinstance(held, HeldPotential)
    _, old = held.whole.prior_energy_and_grad(state.z)
    known = conjugate.where_rates_are_known(state.z, old, lambda z: held.whole.prior_energy_and_grad(z)[1])
    z = conjugate.draw(*known, rng_key)
    prior, new = held.whole.prior_energy_and_grad(z)
    energies = jax.tree.map(lambda terms, first: terms.at[0].set(first), state.energies, prior)
    return state._replace(
        z=z,
        energies=energies,
        potential_energy=jnp.sum(energies.value),
        opening_grad=integrator.with_prior_changed(state.opening_grad, held.hold(new), held.hold(old)),
    )


@dataclass(frozen=True)
class ConjugatePrecisions:
    """A :class:`~numpyro_split.kernels.system.System` whose precisions are drawn before a trajectory and fixed in it.

    Attributes:
        sites: which sites are precisions.
        conjugate: distributions of the precisions given all other sites; None before they are found.
    """

    sites: PrecisionSites
    conjugate: Conjugate | None = None
    statistics = ()
    has_constant_mass = False

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
        """Every trajectory is allowed."""

    def find(self, setup: Setup) -> ConjugatePrecisions:
        """The system with the groups of the model, and the distributions of their precisions.

        Raises:
            ValueError: for a precision that is not known to have a gamma distribution given all other sites.
        """
        sites = self.sites.find(setup)
        found, split = sites.found, setup.split
        assert split is not None  # because the kernel is made from a model
        conjugate = Conjugate(*conjugate_shapes(found.groups, found.concentrations))
        check_conjugacy(read_terms(split, setup.args, setup.kwargs, found.precisions), found.groups)
        check_priors_only(found.needs_data, found.precisions)
        if split.few_rows is None:  # with shards, what stands outside the plate is proved to rest on no row
            prior_grad_at = jax.jit(lambda z: setup.potential.prior_energy_and_grad(z)[1])
            measured = conjugate.measured_shapes(split.reference_position, prior_grad_at)
            check_shapes(conjugate.shapes, {name: np.asarray(x) for name, x in measured.items()})
        return replace(self, sites=sites, conjugate=conjugate)

    def coordinates(self, z: Mapping[str, Any]) -> dict[str, Any]:
        """All entries but those of the precisions."""
        return self.sites.found.without_precisions(z)

    def first_inverse_mass_matrix(self, z: Position, adaptation: AdaptationSettings) -> Any:
        """The inverse mass matrix that was given."""
        return adaptation.inverse_mass_matrix

    def first_fields(self, z: Position) -> dict[str, Any]:
        """No fields of its own."""
        return {}

    def potential(self, potential: FollowedPotential) -> HeldPotential:
        """The potential of the target, in which the precisions do not move."""
        return HeldPotential(potential, self.sites.found.precisions)

    def kinetic(self, adapted: EuclideanKinetic, state: ChainState) -> EuclideanKinetic:
        """The kinetic energy of the adapted mass matrix, in which the precisions do not move."""
        return adapted._replace(held=self.sites.found.precisions)

    def integrator(self, schedule: Schedule, potential: FollowedPotential, kinetic: EuclideanKinetic) -> IntegratorBase:
        """Kicks and drifts of the schedule, in which the precisions do not move."""
        return Integrator(schedule, self.potential(potential), kinetic)

    def early_integrator(self, integrator: IntegratorBase) -> None:
        """No integrator of its own for early warm-up."""

    def before(self, state: ChainState, integrator: IntegratorBase) -> ChainState:
        """The state with the precisions drawn given all other sites."""
        assert self.conjugate is not None
        rng_key, key_precisions = random.split(state.rng_key)
        return draw_precisions(state._replace(rng_key=rng_key), integrator, self.conjugate, key_precisions)

    def noted(self, state: ChainState, p: Position | None, integrator: IntegratorBase) -> ChainState:
        """The state as it is: there are no statistics of the system."""
        return state

    def adapted(self, state: ChainState, moved: ChainState, num_warmup: int) -> ChainState:
        """The state as it is: nothing else adapts."""
        return moved


class BlockGibbsHMC(SplitKernel):
    """Precisions drawn from their gamma conditionals, alternating with HMC or NUTS on all other sites (Neal 1995).

    Args:
        model: NumPyro model whose likelihood sits in a plate over the data rows, with Normal weights whose precision
            has a Gamma prior, or whose variance has an InverseGamma prior.
        num_subsets: M, the number of subsets, from 1 to the number of rows N, or "auto" for the smallest number whose
            gradient fits into ``memory``. A gradient takes the memory of N/M rows. With one subset, every model that
            NumPyro's HMC takes is allowed, also one that cannot be divided.
        precision_sites: names of the precision (or variance) sites; None finds all.
        trajectory: "nuts" for trajectories that double until they turn back; "hmc" for trajectories of a length that is
            given or drawn.
        max_tree_depth: largest number of doublings of a trajectory, from 1 to 30, for "nuts". None for 10.
        num_steps: fixed number of steps of a trajectory, for "hmc"; not with ``trajectory_length``.
        trajectory_length: fixed length of a trajectory, for "hmc". If neither is given, it is learned in warm-up, as by
            :class:`~numpyro_split.SplitHMC`.
        step_size_jitter: j, from 0 up to but not including 1, for "hmc": the step size of each trajectory is the
            adapted one times a draw from U(1 - j, 1 + j). None for 0.5 with ``num_steps``, otherwise for 0.
        step_size: step size, or the value from which its adaptation starts.
        adapt_step_size: whether the step size adapts in warm-up, by dual averaging.
        adapt_mass_matrix: whether the mass matrix of the sites that are not precisions adapts in warm-up, in NumPyro's
            windows.
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
            None for the identity.
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
        schedule: kicks and drifts of one step: "symmetric", "naive", "randomised" or "single_visit", a
            :class:`~split_common.schedule.Schedule` of M subsets, or a function from M to one.

    Raises:
        TypeError: at construction, for a flag that is not a bool, and for an argument that must be a function or a
            mapping and is not.
        ValueError: at construction, for an argument out of range; at ``run``, as for :class:`~numpyro_split.S3HMC`, and
            for a precision that cannot be proved, from the model's expression, to have a gamma distribution given all
            other sites.
        ModelNotSplittableError: at ``run``, when the subsets do not add up to the model's potential.

    Example:
        >>> def model(X, y): ...
        >>> BlockGibbsHMC(model, num_subsets=4, schedule="naive")
        BlockGibbsHMC(model=model, num_subsets=4, plate=None, schedule='naive', precisions are found when it runs)
    """

    @with_options(DEFAULTS)
    def __init__(
        self,
        model: Callable[..., Any],
        num_subsets: int | str = 1,
        *,
        precision_sites: list[str] | None = None,
        trajectory: str = "nuts",
        max_tree_depth: int | None = None,
        num_steps: int | None = None,
        trajectory_length: float | None = None,
        step_size_jitter: float | None = None,
        schedule: ScheduleChoice = "symmetric",
        **options: Unpack[Options],
    ):
        system = ConjugatePrecisions(PrecisionSites.checked(model, precision_sites, output_precision=False))
        splitting, adaptation = resolve_options(model, num_subsets, options)
        trees = Doubling(FixedRule(U_TURN), 10 if max_tree_depth is None else max_tree_depth)
        lengths = FixedLength(LengthSettings.checked(num_steps, trajectory_length, step_size_jitter))
        given = {"num_steps": num_steps, "trajectory_length": trajectory_length, "step_size_jitter": step_size_jitter}
        moves = trees if check_trajectory(trajectory, given, max_tree_depth) == "nuts" else lengths
        chosen = ChosenSchedule(schedule, splitting.num_subsets)
        super().__init__(model, splitting, Hamiltonian(chosen, moves, adaptation, system))
