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

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyro.distributions as dist
import torch
from torch import Tensor

from pyro_split.integrators.euclidean import EuclideanKinetic
from pyro_split.integrators.integrator import IntegratorState
from pyro_split.integrators.low_rank import LowRankKinetic
from pyro_split.potential.position import Position
from pyro_split.potential.split_potential import SplitPotential
from pyro_split.splitting.divided_model import DividedModel
from split_common.hierarchy import Group, Rows, Scales, find_concentrations, find_groups, precision_masses


class Hierarchy:
    """The groups of a model: which precisions scale which weights, and the scales as functions of a position.

    Args:
        groups: weights and observations, each with the precision that scales them.
        masses: mass of each precision, by site.
        concentrations: α of each precision whose prior is conjugate with a constant α, by site.
        needs_data: whether the likelihood of the rows depends on a precision.
        z: a position; constants get its dtype and device.

    Attributes:
        mass: mass of each precision, a tensor by site.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        masses: Mapping[str, np.ndarray],
        concentrations: Mapping[str, np.ndarray],
        needs_data: bool,
        z: Position,
    ):
        self.groups, self.masses, self.needs_data = tuple(groups), dict(masses), needs_data
        self.concentrations = dict(concentrations)
        self.mass = {name: torch.tensor(mass).to(z[name]) for name, mass in masses.items()}
        self._weights = [group for group in groups if not group.observed]
        self._elements = {g.weights: torch.tensor(g.element, device=z[g.weights].device) for g in self._weights}
        self._offsets = {g.weights: torch.tensor(g.offset).to(z[g.weights]) for g in self._weights}
        self.shapes = {name: tuple(u.shape) for name, u in self.without_precisions(z).items()}

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
            group.weights: group.exponent * self._of_element(z[group.precision], group) + self._offsets[group.weights]
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
        totals = {name: torch.zeros_like(mass) for name, mass in self.mass.items()}
        for group in self._weights:
            total = group.exponent * self._by_element(x[group.weights], group)
            totals[group.precision] = totals[group.precision] + total.reshape(totals[group.precision].shape)
        return totals

    def _of_element(self, u: Tensor, group: Group) -> Tensor:
        """For each weight, the element of ``u`` that sets its scale."""
        if u.numel() == 1:
            return u.reshape(())
        return u.reshape(-1)[self._elements[group.weights]]

    def _by_element(self, x: Tensor, group: Group) -> Tensor:
        """Sum of ``x`` over the weights of each element, shape (elements,)."""
        size = self.masses[group.precision].size
        if size == 1:
            return x.sum().reshape(1)
        return x.new_zeros(size).index_add(0, self._elements[group.weights].reshape(-1), x.reshape(-1))


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
            log_variances[name] = variances[name].log()
            log_data_shares[name] = (-(log_variances[name] - 2 * log_scale).expm1()).clamp(min=0.0).log()
        return cls(hierarchy, adapted, log_variances, log_data_shares)

    def constant(self) -> Any:
        """Kinetic energy of V and c alone, in which the masses of weights do not depend on the precisions."""
        if isinstance(self.adapted, LowRankKinetic):
            return self.adapted.joined({name: 1 / mass for name, mass in self.hierarchy.mass.items()})
        of_precisions = {(name,): (1 / mass).reshape(-1) for name, mass in self.hierarchy.mass.items()}
        return EuclideanKinetic.of_inverse({**self.adapted.inverse_mass_matrix, **of_precisions})

    def at(self, z: Position) -> HierarchicalKinetic:
        """The kinetic energy with the precisions fixed at those of ``z``."""
        return self._replace(scales=self.mass_scales(z))

    def mass_scales(self, z: Position) -> Position:
        """ρ of each weight, by site."""
        return {name: log_mass_scale.exp() for name, log_mass_scale in self.log_mass_scales(z).items()}

    def log_mass_scales(self, z: Position) -> Position:
        """Log ρ of each weight, by site."""
        return {
            name: -0.5 * torch.logaddexp(self.log_variances[name] - 2 * log_scale, self.log_data_shares[name])
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
        return {name: speed[name] if name in speed else torch.zeros_like(u) for name, u in p.items()}

    def precision_velocity(self, p: Position) -> Position:
        """Velocity of the precisions, from their momenta."""
        return {name: p[name] / mass for name, mass in self.hierarchy.mass.items()}

    def draw(self, z: Position) -> Position:
        """Momenta at ``z``, drawn from exp(-K) by torch's generator."""
        scaled = self.adapted.draw(self.hierarchy.without_precisions(z))
        p = _times(scaled, {name: 1 / scale for name, scale in self.mass_scales(z).items()})
        for name, mass in self.hierarchy.mass.items():
            p[name] = mass.sqrt() * torch.randn_like(z[name])
        return {name: p[name] for name in z}

    def unscale(self, z: Position, p: Position) -> Tensor:
        """The standard normal draw that the momentum at ``z`` was made from, shape (D,)."""
        of_precisions = [(p[name] / mass.sqrt()).reshape(-1) for name, mass in self.hierarchy.mass.items()]
        return torch.cat([self.adapted.unscale(z, self.scaled(z, p)), *of_precisions])

    def energy(self, z: Position, p: Position) -> float:
        """The kinetic energy K, without the constant part of ½ log|G|."""
        velocity = self.precision_velocity(p)
        of_precisions = _total(0.5 * p[name] * v for name, v in velocity.items())
        return self.weight_energy(z, p) + of_precisions - _total(self.log_mass_scales(z).values())

    def weight_energy(self, z: Position, p: Position) -> float:
        """The first term of K, that of all sites but the precisions."""
        scaled = self.scaled(z, p)
        return self.adapted.energy(scaled, scaled)

    def change(self, new: IntegratorState, old: IntegratorState) -> float:
        """K at ``new`` minus K at ``old``, a sum of the differences of each term."""
        of_weights = self.adapted.change_of(*(self.scaled(state.z, state.p) for state in (new, old)))
        terms = [
            0.5 * (new.p[name] - old.p[name]) * (new.p[name] + old.p[name]) / mass
            for name, mass in self.hierarchy.mass.items()
        ]
        new_log, old_log = (self.log_mass_scales(state.z) for state in (new, old))
        terms += [old_log[name] - new_log[name] for name in new_log]
        return of_weights + _total(terms)

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
            name: (2 * (log_mass_scale - log_scales[name]) + variances[name]).exp()
            for name, log_mass_scale in self.log_mass_scales(z).items()
        }


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
        potential: the potential of the rows of all ranks, bound to the same arguments.
        args: the model's positional arguments.
        kwargs: its keyword arguments.
        precision_sites: see :func:`split_common.hierarchy.find_groups`.
        output_precision: see :func:`split_common.hierarchy.find_groups`.

    Raises:
        ValueError: as :func:`split_common.hierarchy.find_groups` and :func:`~split_common.hierarchy.precision_masses`.
    """
    start = split.reference_position(args, kwargs)
    z = {name: u.cpu().numpy() for name, u in start.items()}
    read = split.reader(_scales, args, kwargs)
    ranks = potential.ranks
    rows_of = {True: Rows(split.num_parts, sum(ranks.rows_here) / len(split.part(0))), False: Rows(1, 1.0)}
    in_plate = {site.name: potential.plate in site.plates for site in split.sites if site.observed}
    observed = {name: rows_of[has_rows] for name, has_rows in in_plate.items()}

    def scales_at(position: dict[str, np.ndarray], part: int) -> Scales:
        return read({name: torch.as_tensor(u).to(start[name]) for name, u in position.items()}, part)

    groups = [
        group._replace(counts=sum(ranks.of_all(group.counts))) if in_plate.get(group.weights) else group
        for group in find_groups(scales_at, z, observed, precision_sites, output_precision)
    ]
    concentrations = find_concentrations(scales_at, z, groups)
    masses = precision_masses(groups, {name: u.shape for name, u in z.items()}, concentrations)
    return Hierarchy(groups, masses, concentrations, potential.likelihood_uses(start, masses), start)


def _scales(nodes: Mapping[str, Any]) -> Scales:
    log_scale, gamma, inverse_gamma = {}, {}, {}
    for name, site in nodes.items():
        fn, shape = site["fn"], torch.broadcast_shapes(site["value"].shape, site["fn"].shape())
        while isinstance(fn, dist.Independent | dist.MaskedDistribution):
            fn = fn.base_dist
        if isinstance(fn, dist.Normal):
            log_scale[name] = np.broadcast_to(fn.scale.detach().double().log().cpu().numpy(), shape)
        elif isinstance(fn, dist.Gamma | dist.InverseGamma):
            found = gamma if isinstance(fn, dist.Gamma) else inverse_gamma
            found[name] = np.broadcast_to(fn.concentration.detach().double().cpu().numpy(), shape)
    return Scales(log_scale, gamma, inverse_gamma)


def _times(x: Position, scales: Position) -> Position:
    """``x`` with the entries of weights multiplied by their scales."""
    return {name: u * scales[name] if name in scales else u for name, u in x.items()}


def _total(terms: Iterable[Tensor]) -> float:
    return float(sum(term.sum(dtype=torch.float64) for term in terms))
