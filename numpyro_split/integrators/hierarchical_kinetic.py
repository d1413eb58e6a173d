r"""The kinetic energy of S3HMC: the mass of the weights depends on their precisions.

With s(u) the scales of the weights ω (:mod:`split_common.hierarchy`), V the host's adapted inverse mass matrix of all
sites but the precisions, ū the mean of the precisions in the window that V was adapted in, and c the masses of the
precisions,

.. math:: K(u, p) = \tfrac12 \tilde p^T V \tilde p - \textstyle\sum_i \log \rho_i(u)
    + \tfrac12 \sum_l p_{u,l}^2 / c_l , \qquad \tilde p_i = \rho_i(u)\, p_i , \qquad
    \rho_i(u)^{-2} = V_{ii} / s_i(u)^2 + \max(0, 1 - V_{ii} / s_i(\bar u)^2) .

Where V is diagonal the mass of a weight is 1/s_i(u)² + h_i: its prior precision at the current state, plus the
contribution of the data, h_i = max(0, 1/V_ii - 1/s_i(ū)²). The first term alone, the metric of Cobb et al. (2019), fits
weights about which the data are uninformative; where the data are informative, the posterior of a weight is narrow
however wide its prior is. A dense V keeps its correlations.

Given the position, exp(-K) is the density of momenta p̃ ~ N(0, V⁻¹), p = p̃/ρ, p_u ~ N(0, c): the second term is its
normalising constant, ½ log|G|, which depends on the position and so must be included (once). V and ū are fixed after
warm-up. With a the exponent of the group, ∂ log ρ_i/∂u = a φ_i, where φ_i = ρ_i² V_ii/s_i(u)² is the share of the
prior in the mass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import random

from numpyro_split.host import dce_jaxpr
from numpyro_split.integrators.euclidean import EuclideanKinetic
from numpyro_split.integrators.integrator import IntegratorState
from numpyro_split.integrators.low_rank import LowRankKinetic
from numpyro_split.potential.compensated import compensated_total
from numpyro_split.potential.model_rows import Trace
from numpyro_split.potential.position import Position
from numpyro_split.potential.split_potential import SplitPotential
from numpyro_split.splitting.divided_model import DividedModel
from split_common.digest import Digest
from split_common.hierarchy import Group, Rows, Scales, find_concentrations, find_groups, precision_masses


class Hierarchy:
    """The groups of a model: which precisions scale which weights, and the scales as functions of a position.

    Args:
        groups: weights and observations, each with the precision that scales them.
        masses: mass of each precision, by site.
        concentrations: α of each precision whose prior is conjugate with a constant α, by site.
        needs_data: whether the likelihood of the rows depends on a precision.
        shapes: shape of every latent site.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        masses: Mapping[str, np.ndarray],
        concentrations: Mapping[str, np.ndarray],
        needs_data: bool,
        shapes: Mapping[str, tuple[int, ...]],
    ):
        self.groups, self.masses, self.needs_data = tuple(groups), dict(masses), needs_data
        self.concentrations = dict(concentrations)
        self.shapes = self.without_precisions(shapes)
        self._weights = [group for group in groups if not group.observed]

    @property
    def digest(self) -> str:
        """Digest of the groups, masses, concentrations and shapes, in hexadecimal."""
        digest = Digest().add(str(self.needs_data), str(sorted(self.shapes.items())))
        for group in self.groups:
            digest.add(group.weights, group.precision, str(group.exponent), str(group.observed))
            digest.add_array(group.element).add_array(group.offset).add_array(group.counts)
        for values in (self.masses, self.concentrations):
            for name, value in values.items():
                digest.add(name).add_array(np.asarray(value))
        return digest.key

    @property
    def precisions(self) -> tuple[str, ...]:
        """Names of the precision sites."""
        return tuple(self.masses)

    def is_precision(self, name: str) -> bool:
        """Whether a site is one of the precisions."""
        return name in self.masses

    def log_scales(self, z: Position) -> Position:
        """Log of the scale of each weight, by site."""
        return {
            group.weights: group.exponent * _of_element(z[group.precision], group)
            + like(group.offset, z[group.precision])
            for group in self._weights
        }

    def without_precisions(self, x: Mapping[str, Any]) -> dict[str, Any]:
        """The entries of all sites but the precisions."""
        return {name: u for name, u in x.items() if not self.is_precision(name)}

    def of_precisions(self, x: Mapping[str, Any]) -> dict[str, Any]:
        """The entries of the precisions."""
        return {name: x[name] for name in self.masses}

    def sum_by_element(self, x: Position) -> Position:
        """For each precision, the sum of a ``x`` over the weights it scales, with a the exponent of their group."""
        totals: Position = {}
        for group in self._weights:
            size, shape = self.masses[group.precision].size, self.masses[group.precision].shape
            total = group.exponent * _by_element(x[group.weights], group, size).reshape(shape)
            totals[group.precision] = totals[group.precision] + total if group.precision in totals else total
        return {name: totals[name] if name in totals else jnp.zeros(mass.shape) for name, mass in self.masses.items()}


class HierarchicalKinetic(NamedTuple):
    """The kinetic energy K(u, p), in which the mass of the weights depends on their precisions.

    Attributes:
        hierarchy: the groups of the model.
        adapted: kinetic energy of all sites but the precisions, with inverse mass matrix V.
        log_variances: log V_ii of the weights, by site.
        log_data_shares: log max(0, 1 - V_ii/s_i(ū)²) of the weights, by site.
        scales: ρ of the weights by site, while the precisions are fixed; None while they move.
    """

    hierarchy: Hierarchy
    adapted: EuclideanKinetic | LowRankKinetic
    log_variances: Position
    log_data_shares: Position
    scales: Position | None = None

    @classmethod
    def adapted_at(cls, hierarchy: Hierarchy, adapted: EuclideanKinetic, precisions: Position) -> HierarchicalKinetic:
        """Kinetic energy of a mass matrix that was adapted at mean precisions ū, a dict of values by site."""
        variances, log_variances, log_data_shares = adapted.variances(hierarchy.shapes), {}, {}
        for name, log_scale in hierarchy.log_scales(precisions).items():
            log_variances[name] = jnp.log(variances[name])
            log_data_shares[name] = jnp.log(jnp.maximum(0.0, -jnp.expm1(log_variances[name] - 2 * log_scale)))
        return cls(hierarchy, adapted, log_variances, log_data_shares)

    def constant(self) -> Any:
        """Kinetic energy of V and c alone, in which the masses of weights do not depend on the precisions."""
        sites, adapted = tuple(sorted(self.hierarchy.shapes)), self.adapted
        if isinstance(adapted, LowRankKinetic):
            some = next(iter(adapted.inverse_mass_matrix.values())).scales
            return adapted.joined({name: like(1 / mass, some) for name, mass in self.hierarchy.masses.items()})

        def joined(matrix: Any, power: float) -> dict[tuple[str, ...], jax.Array]:
            blocks = matrix if isinstance(matrix, dict) else {sites: matrix}
            some = next(iter(blocks.values()))
            masses = self.hierarchy.masses.items()
            return {**blocks, **{(name,): like(mass.ravel() ** power, some) for name, mass in masses}}

        return EuclideanKinetic(
            joined(adapted.inverse_mass_matrix, -1),
            joined(adapted.mass_matrix_sqrt, 0.5),
            joined(adapted.mass_matrix_sqrt_inv, -0.5),
        )

    def at(self, z: Position) -> HierarchicalKinetic:
        """The kinetic energy with the precisions fixed at those of ``z``."""
        return self._replace(scales=self.mass_scales(z))

    def mass_scales(self, z: Position) -> Position:
        """ρ of each weight, by site."""
        return jax.tree.map(jnp.exp, self.log_mass_scales(z))

    def log_mass_scales(self, z: Position) -> Position:
        """Log ρ of each weight, by site."""
        return {
            name: -0.5 * jnp.logaddexp(self.log_variances[name] - 2 * log_scale, self.log_data_shares[name])
            for name, log_scale in self.hierarchy.log_scales(z).items()
        }

    def scaled(self, z: Position, p: Position) -> Position:
        """p̃: the momenta of all sites but the precisions, those of weights times ρ."""
        return _times(self.hierarchy.without_precisions(p), self.mass_scales(z))

    def velocity(self, p: Position) -> Position:
        """The velocity G⁻¹p while the precisions are fixed; their velocity is 0."""
        if self.scales is None:
            raise ValueError("the velocity of weights depends on their precisions: take that of at(z)")
        speed = self.adapted.velocity(_times(self.hierarchy.without_precisions(p), self.scales))
        speed = _times(speed, self.scales)
        return {name: speed[name] if name in speed else jnp.zeros_like(u) for name, u in p.items()}

    def precision_velocity(self, p: Position) -> Position:
        """Velocity of the precisions, from their momenta."""
        return {name: p[name] / like(mass, p[name]) for name, mass in self.hierarchy.masses.items()}

    def draw(self, z: Position, rng_key: jax.Array) -> Position:
        """Momenta at ``z``, drawn from exp(-K)."""
        key_weights, key_precisions = random.split(rng_key)
        scaled = self.adapted.draw(self.hierarchy.without_precisions(z), key_weights)
        p = _times(scaled, {name: 1 / scale for name, scale in self.mass_scales(z).items()})
        for i, (name, mass) in enumerate(self.hierarchy.masses.items()):
            noise = random.normal(random.fold_in(key_precisions, i), z[name].shape, z[name].dtype)
            p[name] = jnp.sqrt(like(mass, noise)) * noise
        return {name: p[name] for name in z}

    def unscale(self, z: Position, p: Position) -> Position:
        """The standard normal draw that the momentum at ``z`` was made from."""
        of_precisions = {name: p[name] / like(np.sqrt(mass), p[name]) for name, mass in self.hierarchy.masses.items()}
        return {**self.adapted.unscale(z, self.scaled(z, p)), **of_precisions}

    def energy(self, z: Position, p: Position) -> jax.Array:
        """The kinetic energy K, without the constant part of ½ log|G|."""
        return self.weight_energy(z, p) + self._precision_energy(p) - _total(self.log_mass_scales(z))

    def weight_energy(self, z: Position, p: Position) -> jax.Array:
        """The first term of K, that of all sites but the precisions."""
        scaled = self.scaled(z, p)
        return self.adapted.energy(scaled, scaled)

    def change(self, new: IntegratorState, old: IntegratorState) -> jax.Array:
        """K at ``new`` minus K at ``old``, a sum of the differences of each term."""
        of_weights = self.adapted.change_of(*(self.scaled(state.z, state.p) for state in (new, old)))
        terms = [
            0.5 * (new.p[name] - old.p[name]) * (new.p[name] + old.p[name]) / like(mass, new.p[name])
            for name, mass in self.hierarchy.masses.items()
        ]
        new_log, old_log = (self.log_mass_scales(state.z) for state in (new, old))
        terms += [old_log[name] - new_log[name] for name in new_log]
        return of_weights + compensated_total(terms).value

    def coupling_grad(self, z: Position, p: Position) -> Position:
        """Gradient of K with respect to the precisions: for each, the sum of a φ (p̃ (Vp̃) - 1) over its weights."""
        scaled = self.scaled(z, p)
        speed = self.adapted.velocity(scaled)
        shares = self.prior_shares(z).items()
        return self.hierarchy.sum_by_element({name: share * (scaled[name] * speed[name] - 1) for name, share in shares})

    def prior_shares(self, z: Position) -> Position:
        """φ of each weight, by site."""
        log_scales, variances = self.hierarchy.log_scales(z), self.log_variances
        return {
            name: jnp.exp(2 * (log_mass_scale - log_scales[name]) + variances[name])
            for name, log_mass_scale in self.log_mass_scales(z).items()
        }

    def _precision_energy(self, p: Position) -> jax.Array:
        velocity = self.precision_velocity(p)
        return _total({name: 0.5 * p[name] * velocity[name] for name in velocity})


def find_hierarchy(
    split: DividedModel,
    potential: SplitPotential,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    precision_sites: Sequence[str] | None,
    output_precision: bool,
) -> Hierarchy:
    """Find the groups of a model, from its traces at a few positions.

    Args:
        split: how the model divides.
        potential: its potential, bound to the same arguments.
        args: the model's positional arguments.
        kwargs: its keyword arguments.
        precision_sites: see :func:`split_common.hierarchy.find_groups`.
        output_precision: see :func:`split_common.hierarchy.find_groups`.

    Raises:
        ValueError: as :func:`split_common.hierarchy.find_groups` and :func:`~split_common.hierarchy.precision_masses`.
    """
    start = split.reference_position
    z = {name: np.asarray(u) for name, u in start.items()}
    read = split.reader(_scales, args, kwargs)
    rows_of = {True: Rows(split.num_parts, potential.plate_size / len(split.part(0))), False: Rows(1, 1.0)}
    observed = {site.name: rows_of[potential.plate in site.plates] for site in split.sites if site.observed}

    def scales_at(position: dict[str, np.ndarray], part: int) -> Scales:
        said = read(jax.tree.map(jnp.asarray, position), part)
        # in the model's order of sites, which a compiled function does not keep
        return Scales(*({s.name: np.asarray(x[s.name]) for s in split.sites if s.name in x} for x in said))

    groups = find_groups(scales_at, z, observed, precision_sites, output_precision)
    concentrations = find_concentrations(scales_at, z, groups)
    shapes = {name: u.shape for name, u in z.items()}
    masses = precision_masses(groups, shapes, concentrations)
    needs_data = _likelihood_depends_on(potential, start, tuple(masses))
    return Hierarchy(groups, masses, concentrations, needs_data, shapes)


def _scales(model_trace: Trace) -> Scales:
    log_scale, gamma, inverse_gamma = {}, {}, {}
    for name, site in model_trace.items():
        if site["type"] != "sample":
            continue
        fn, shape = site["fn"], jnp.broadcast_shapes(jnp.shape(site["value"]), site["fn"].shape())
        while isinstance(fn, dist.Independent | dist.ExpandedDistribution | dist.MaskedDistribution):
            fn = fn.base_dist
        parameters: Any = fn
        if isinstance(fn, dist.Normal):
            log_scale[name] = jnp.broadcast_to(jnp.log(parameters.scale), shape)
        elif isinstance(fn, dist.Gamma | dist.InverseGamma):
            found = gamma if isinstance(fn, dist.Gamma) else inverse_gamma
            found[name] = jnp.broadcast_to(parameters.concentration, shape)
    return Scales(log_scale, gamma, inverse_gamma)


def _likelihood_depends_on(potential: SplitPotential, z: Position, names: tuple[str, ...]) -> bool:
    """Whether the likelihood depends on any of these sites, by its traced expression, which is not evaluated."""

    def log_likelihood(u: Position, m: jax.Array) -> jax.Array:
        return potential.subset_log_likelihood({**z, **u}, m)

    expression = jax.make_jaxpr(log_likelihood)({name: z[name] for name in names}, jnp.array(0)).jaxpr
    used = dce_jaxpr(expression, [True])[1]
    return any(used[: len(names)])


def like(constant: np.ndarray, x: jax.Array) -> jax.Array:
    """``constant`` as an array of the dtype of ``x``."""
    return jnp.asarray(constant, x.dtype)


def _of_element(u: jax.Array, group: Group) -> jax.Array:
    """For each weight, the element of ``u`` that sets its scale."""
    if u.size == 1:
        return jnp.broadcast_to(jnp.ravel(u)[0], group.element.shape)
    return jnp.ravel(u)[group.element]


def _by_element(x: jax.Array, group: Group, size: int) -> jax.Array:
    """Sum of ``x`` over the weights of each element, shape (size,)."""
    if size == 1:
        return jnp.sum(x)[None]
    return jax.ops.segment_sum(jnp.ravel(x), group.element.ravel(), size)


def _times(x: Position, scales: Position) -> Position:
    """``x`` with the entries of weights multiplied by their scales."""
    return {name: u * scales[name] if name in scales else u for name, u in x.items()}


def _total(terms: Position) -> jax.Array:
    return sum((jnp.sum(term) for term in terms.values()), jnp.zeros(()))
