r"""Which precision scales which weights, found by asking the model, and the Hamiltonian of S3HMC that depends on it.

Normal weights ω_i of scale s_i belong to a precision when, in the unconstrained coordinate u of one latent site,

.. math:: \log s_i = a\, u_{l(i)} + c_i ,

with one exponent a for the site and one element l(i) for each weight. That is the algebra S3HMC depends on: the
weights' momenta scale with s, ½ log|G| is linear in u, and the Fisher information of the weights' density in u,

.. math:: F_l = \sum_{i:\, l(i) = l} 2 a^2 ,

is a constant. A precision τ = exp(u) has a = -½, F = Q/2; a variance a = ½; a scale a = 1, F = 2Q, whatever its prior.
Constant factors (a width) go to c. A gamma prior on a precision adds α - 1, as in Cobb et al. (2019), and so does an
inverse gamma prior on a variance, which is the same model.

The scales are read at a few positions: one where u is larger by one tells a, one where its elements rise by different
amounts tells l, and random ones near and far check both. No form of a model is privileged, no expression is parsed.
S3HMC is exact whatever is found here, for its kinetic energy is normalised at every position; a kernel that draws
precisions from their distribution needs the form to hold for all values (:mod:`split_common.conjugacy`).

S3HMC targets the posterior with momenta beside: u the unconstrained precisions, V the metric of everything else,

.. math:: H = U(z) + \tfrac12 \tilde p^T V \tilde p + \tfrac12 \log|G(u)| + \tfrac12 \textstyle\sum_l p_{u,l}^2 / c_l ,

each term once: momenta are drawn from exp(-K) given the position, so that exp(-H) has the posterior as its marginal, a
trajectory of explicit, reversible, volume-preserving steps is made, and it is accepted with probability min(1, exp(H -
H')). G gives weights the mass of their prior precision plus what the data add to it, c is the Fisher information of the
weights' density in u: Q/2 for a precision of Q weights, plus α - 1 under a gamma prior. The log determinant is what
lets the two blocks exchange energy; without it, or with H written as the sum of the paper's H_τ and H_ω, which share
terms, the target is missed.

Where no length is given, a trajectory's is uniform between 0 and one that warm-up learns from trees
(:mod:`split_common.exploration`): fixed before the first draw, so depending on no state. Trees compare momenta of
different positions as the standard normals that they were made from, V^½ p̃ and p_u / c^½: their sum over a run
measures how far it goes in units of the local scales, and a run turns back where one of its ends moves against that.

Until the last metric is estimated, trees are of plain leapfrog steps with the constant mass of V and c: far from the
posterior, weights that are as slow as their prior is narrow keep their precision large.

Sites that are neither weights nor precisions move with the weights, in the block that reads the data anyway, with an
adapted mass: in the second block each of its steps would take a data pass for them. The precision of a Normal
likelihood can be in the second block, with the Fisher information N/2 (``output_precision``), at that price.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from split_common.checks import check_choice

Position = dict[str, np.ndarray]
ScalesAt = Callable[[Position, int], "Scales"]
TOLERANCE, ROUNDING = 1e-3, 1e-5  # allowed differences of log scales, which float32 gives to 1e-6 or so
FAR = (-6.0, 0.0, 6.0)  # offsets from a position, where the form of a scale is checked
BLOCK_STATISTICS = ("weight_energy", "precision_energy")
TRAJECTORIES = ("nuts", "hmc")  # trajectories of the weights between conjugate draws of their precisions
FORMS = (
    "weights ~ Normal(., scale) where log(scale) is a constant plus a multiple of the log of ONE positive latent: a "
    "precision (scale = precision ** -0.5), a variance, or a scale, of any prior (Gamma, InverseGamma, HalfCauchy, "
    "HalfNormal, ...); of these BlockGibbsHMC takes a precision with a Gamma prior and a variance with an InverseGamma "
    "prior"
)


def check_trajectory(trajectory: Any, lengths: Mapping[str, Any], max_tree_depth: Any) -> str:
    """Return ``trajectory``, or raise unless it is one of ``TRAJECTORIES`` and no argument is given of another.

    Args:
        trajectory: the argument of that name.
        lengths: arguments by name that say how long trajectories without trees are; None where not given.
        max_tree_depth: the argument of that name; None where not given.
    """
    chosen = check_choice("trajectory", trajectory, TRAJECTORIES)
    if chosen == "hmc" and max_tree_depth is not None:
        raise ValueError(
            "max_tree_depth must be None unless trajectory is 'nuts' (the others do not double), "
            f"got {max_tree_depth!r}"
        )
    for name, value in lengths.items():
        if chosen == "nuts" and value is not None:
            raise ValueError(f"{name} must be None unless trajectory is 'hmc' (trees end by themselves), got {value!r}")
    return chosen


class Scales(NamedTuple):
    """Scales and gamma parameters that a model has at one position.

    Attributes:
        log_scale: log of the scale of each Normal site, in the shape of its value.
        gamma: α of each site with a gamma distribution, in the shape of its value.
        inverse_gamma: α of each site with an inverse gamma distribution, likewise.
    """

    log_scale: dict[str, np.ndarray]
    gamma: dict[str, np.ndarray]
    inverse_gamma: dict[str, np.ndarray]


class Group(NamedTuple):
    """Weights, or observations, whose scale one precision sets: log s = exponent · u[element] + offset.

    Attributes:
        weights: name of their site.
        precision: name of the site that sets their scale.
        exponent: a; -½ for a precision.
        element: for each weight its element of the precision, counted along the flattened site; shape of the weights.
        offset: c, shape of the weights.
        observed: whether they are observations, the precision being that of the output; ``element`` and ``offset`` are
            then of some rows only.
        counts: number of weights that each element scales, shape (elements,); of observations, in all rows.
    """

    weights: str
    precision: str
    exponent: float
    element: np.ndarray
    offset: np.ndarray
    observed: bool
    counts: np.ndarray


class Rows(NamedTuple):
    """How the rows of an observed site are divided for reading.

    Attributes:
        parts: number of parts, which ``scales_at`` shows one at a time; 1 where it shows all rows, or a sample of them.
        ratio: number of all rows over that of the first part.
    """

    parts: int
    ratio: float


def find_groups(
    scales_at: ScalesAt,
    z: Position,
    observed: Mapping[str, Rows],
    precision_sites: Sequence[str] | None = None,
    output_precision: bool = True,
) -> list[Group]:
    """Find the groups of a model.

    Args:
        scales_at: the model's :class:`Scales` at a position, a dict of unconstrained values by latent site, on one part
            of the data.
        z: some position.
        observed: the observed sites.
        precision_sites: the sites to examine; None for all.
        output_precision: whether a latent that scales observations and nothing else counts.

    Returns:
        The groups, in the order of the model's Normal sites.

    Raises:
        ValueError: for a name in ``precision_sites`` that is no latent site or scales no weights, for weights that
            two latents scale, or whose scale is of no supported form; and when there is no group of weights.
    """
    if precision_sites is not None:
        absent = [name for name in precision_sites if name not in z]
        if absent:
            raise ValueError(f"precision_sites must name latent sites {sorted(z)}, got {absent}")
    base = scales_at(z, 0).log_scale
    setters = _setters(scales_at, z, base)
    groups = []
    for site, names in setters.items():
        chosen = names if precision_sites is None else [name for name in names if name in precision_sites]
        if not chosen:
            continue
        if site in observed:
            scales_more = any(chosen[0] in others for other, others in setters.items() if other not in observed)
            if len(names) == 1 and (output_precision or scales_more):
                group = _fit(scales_at, z, base[site], site, names[0], observed[site])
                groups += [group] if group else []
            continue
        if len(names) > 1:
            raise ValueError(
                f"a weight site must have one precision, got {site!r} whose scale depends on {names}; "
                "write it non-centred, or name other precision_sites"
            )
        group = _fit(scales_at, z, base[site], site, names[0], None)
        if group is None:
            raise ValueError(
                f"the scale of weight site {site!r} must depend on {names[0]!r} in a supported form, which is {FORMS}, "
                "got another form; write it non-centred, or leave it out of precision_sites"
            )
        groups.append(group)
    _check_used(groups, precision_sites)
    return groups


def find_concentrations(scales_at: ScalesAt, z: Position, groups: Sequence[Group]) -> dict[str, np.ndarray]:
    """α of each precision with a gamma prior, or variance with an inverse gamma prior, where α is a constant.

    Args:
        scales_at: the model's :class:`Scales` at a position.
        z: some position.
        groups: what the precisions scale.
    """
    rng = np.random.default_rng(1)
    moved = {name: u + rng.uniform(-1.0, 1.0, u.shape) for name, u in z.items()}
    here, there = scales_at(z, 0), scales_at(moved, 0)
    found = {}
    for name in dict.fromkeys(group.precision for group in groups):
        exponents = {group.exponent for group in groups if group.precision == name}
        if exponents not in ({-0.5}, {0.5}):
            continue
        alphas = [said.gamma if exponents == {-0.5} else said.inverse_gamma for said in (here, there)]
        if name in alphas[0] and np.array_equal(alphas[0][name], alphas[1][name]):
            found[name] = np.broadcast_to(alphas[0][name], z[name].shape)
    return found


def precision_masses(
    groups: Sequence[Group], shapes: Mapping[str, tuple[int, ...]], concentrations: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The mass of each precision in its unconstrained coordinate: Fisher information, plus α - 1 of a gamma prior.

    Args:
        groups: what the precisions scale.
        shapes: shape of each precision site.
        concentrations: α of each precision with a gamma prior (see :func:`find_concentrations`).

    Raises:
        ValueError: when an element of a precision scales nothing.
    """
    masses = {}
    for name in dict.fromkeys(group.precision for group in groups):
        counts = _weights_of(name, groups, shapes)
        if not np.all(counts):
            raise ValueError(
                f"every element of a precision must scale a weight, got none for element {int(np.argmin(counts))} "
                f"of {name!r}"
            )
        mine = [group for group in groups if group.precision == name]
        mass = sum((2 * group.exponent**2 * group.counts for group in mine), np.zeros(counts.size))
        if name in concentrations:
            mass = mass + concentrations[name].ravel() - 1
        masses[name] = mass.reshape(shapes[name])
    return masses


def check_masses(
    masses: Mapping[str, np.ndarray], groups: Sequence[Group], concentrations: Mapping[str, np.ndarray]
) -> None:
    """Raise unless the masses of precisions that move are above 0; those that are drawn need none.

    Args:
        masses: mass of each precision (see :func:`precision_masses`).
        groups: what the precisions scale.
        concentrations: α of each precision with a gamma prior.
    """
    for name, mass in masses.items():
        worst = int(np.argmin(mass))
        if name in concentrations and mass.ravel()[worst] <= 0:
            counts = _weights_of(name, groups, {name: mass.shape})
            raise ValueError(
                f"Q/2 + alpha - 1 must be above 0 for precision site {name!r}, got {mass.ravel()[worst]:.4g} "
                f"(Q = {counts[worst]:g} weights, alpha = {concentrations[name].ravel()[worst]:.4g})"
            )


def _weights_of(name: str, groups: Sequence[Group], shapes: Mapping[str, tuple[int, ...]]) -> np.ndarray:
    """Q, the number of weights that each element of a precision scales."""
    size = int(np.prod(shapes[name]))
    return sum((group.counts for group in groups if group.precision == name), np.zeros(size))


def conjugate_shapes(
    groups: Sequence[Group], concentrations: Mapping[str, np.ndarray]
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """For each precision τ given its Q weights, a gamma variable: the sign of u in log τ = ± u, and its α + Q/2.

    Raises:
        ValueError: for a precision without a gamma prior, or a variance without an inverse gamma prior.
    """
    signs, shapes = {}, {}
    for name in dict.fromkeys(group.precision for group in groups):
        mine = [group for group in groups if group.precision == name]
        if name not in concentrations:
            raise ValueError(
                f"the prior of precision site {name!r} must be conjugate, Gamma for a precision or InverseGamma for a "
                "variance, of a concentration that is a constant, got another prior or concentration; S3HMC takes any "
                "prior"
            )
        counts = sum((group.counts for group in mine), np.zeros(concentrations[name].size))
        signs[name] = -2 * mine[0].exponent
        shapes[name] = concentrations[name] + counts.reshape(concentrations[name].shape) / 2
    return signs, shapes


def shape_of(grad: Any, grad_beyond: Any) -> Any:
    """α + Q/2 of a precision, from the gradient of the prior's energy by log τ, rate · τ - α - Q/2, at τ and at e τ."""
    return (grad_beyond - math.e * grad) / (math.e - 1.0)


def check_shapes(shapes: Mapping[str, np.ndarray], of_all_rows: Mapping[str, np.ndarray]) -> None:
    """Raise unless the shapes of the precisions' gamma distributions are those of the prior on all rows.

    They are read off a model that is run on some of its rows, of which α, or which weights there are, may depend.

    Args:
        shapes: α + Q/2 of each precision, as read.
        of_all_rows: the same, from the gradient of the prior's energy.
    """
    for name, shape in shapes.items():
        known = of_all_rows[name]
        if not np.allclose(shape, known, rtol=float(np.finfo(known.dtype).eps) ** 0.5, atol=0):
            raise ValueError(
                f"the concentration of the prior of precision site {name!r}, and which weights it scales, must not "
                f"depend on the data rows, got alpha + Q/2 = {np.ravel(shape)[0]:.6g} on some rows and "
                f"{np.ravel(known)[0]:.6g} on all of them; compute it outside the model and pass it as an argument, or "
                "use S3HMC"
            )


def check_priors_only(needs_data: bool, names: Sequence[str]) -> None:
    """Raise where the likelihood depends on a precision, as where weights have an entry per row of the data plate."""
    if needs_data:
        raise ValueError(
            f"precisions to be drawn must enter the prior alone, got {list(names)}, on which the likelihood depends; "
            "use S3HMC, or name other precision_sites"
        )


def describe_groups(groups: Sequence[Group], masses: Mapping[str, np.ndarray]) -> str:
    """For each precision what it scales, and its mass."""
    parts = []
    for name, mass in masses.items():
        mine = [group for group in groups if group.precision == name]
        counts = _weights_of(name, groups, {name: mass.shape})
        kind = {-0.5: "precision", 0.5: "variance", 1.0: "scale"}.get(round(mine[0].exponent, 3), "log-scale factor")
        spread = [f"{x.min():g}" if x.min() == x.max() else f"{x.min():g} to {x.max():g}" for x in (counts, mass)]
        scaled = ", ".join(group.weights for group in mine)
        elements = f"{mass.size} elements, each of Q = {spread[0]}" if mass.size > 1 else f"Q = {spread[0]}"
        parts.append(f"{kind} {name} -> {scaled} ({elements}, mass {spread[1]})")
    return "; ".join(parts)


def _setters(scales_at: ScalesAt, z: Position, base: dict[str, np.ndarray]) -> dict[str, list[str]]:
    """For each Normal site, the latent sites that its scale depends on."""
    setters: dict[str, list[str]] = {site: [] for site in base}
    for name in z:
        moved = scales_at({**z, name: z[name] + 1.0}, 0).log_scale
        for site, log_scale in moved.items():
            if not np.allclose(log_scale, base[site], rtol=0, atol=TOLERANCE):  # a NaN is a dependence too
                setters[site].append(name)
    return setters


def _fit(scales_at: ScalesAt, z: Position, base: np.ndarray, site: str, name: str, rows: Rows | None) -> Group | None:
    """The group of ``site`` under ``name``, or None where the scale is not of the supported form."""
    u, size = z[name], z[name].size

    def change(by: np.ndarray, part: int = 0) -> np.ndarray:
        moved = scales_at({**z, name: u + by.reshape(u.shape)}, part).log_scale[site]
        return moved - (base if part == 0 else scales_at(z, part).log_scale[site])

    exponents = change(np.ones(size))
    exponent = float(np.median(exponents))
    if not np.allclose(exponents, exponent, rtol=0, atol=TOLERANCE) or abs(exponent) < TOLERANCE:
        return None

    def elements(part: int) -> np.ndarray:
        return np.rint(change(np.arange(1, size + 1) / size, part) / exponent * size).astype(int) - 1

    element = elements(0)
    if element.min() < 0 or element.max() >= size:
        return None
    rng = np.random.default_rng(0)
    for far in FAR:  # a scale such as 0.1 + h is nearly a power of h in one place, and not in another
        probe = far + rng.uniform(-1.0, 1.0, size)
        if not np.allclose(change(probe), exponent * probe[element], rtol=0, atol=TOLERANCE):
            return None
    exponent = round(2 * exponent) / 2 if abs(2 * exponent - round(2 * exponent)) < TOLERANCE else exponent
    offset = base - exponent * u.ravel()[element]
    if np.ptp(offset) < ROUNDING:
        offset = np.broadcast_to(offset.mean(), offset.shape)  # one number, in memory too
    return Group(site, name, exponent, element, offset, rows is not None, _counts(elements, element, size, rows))


def _counts(elements: Callable[[int], np.ndarray], first: np.ndarray, size: int, rows: Rows | None) -> np.ndarray:
    """How many weights each element scales, of which ``first`` are those of the first part of the data."""
    counts = np.bincount(first.ravel(), minlength=size).astype(float)
    if rows is None:
        return counts
    if size == 1 or rows.parts == 1:  # an estimate where rows are a sample; a mass need not be exact
        return np.rint(counts * rows.ratio)
    parts = [np.bincount(elements(part).ravel(), minlength=size) for part in range(1, rows.parts)]
    return sum(parts, counts)


def _check_used(groups: Sequence[Group], precision_sites: Sequence[str] | None) -> None:
    if precision_sites is not None:
        used = {group.precision for group in groups}
        idle = [name for name in precision_sites if name not in used]
        if idle:
            raise ValueError(f"precision_sites must each scale some weights, got {idle}, which scale nothing")
    if not any(not group.observed for group in groups):
        raise ValueError(f"the model must have weights with a precision, got none; supported is {FORMS}")
