"""Priors on weights: functions that make the sample statements and return the weights (:mod:`split_common.priors`)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from split_common.priors import check_positive, check_shape, fan_in, groups, slab_parameters

Value = float | jax.Array


def normal(name: str, shape: tuple[int, ...], scale: Value = 1.0, *, centered: bool = True) -> jax.Array:
    """W ~ Normal(0, scale²), independent.

    Args:
        name: name of the weights' site.
        shape: shape of the weights.
        scale: standard deviation; a number, or an array that broadcasts to ``shape``.
        centered: whether the weights are the latent site; else ``{name}_raw`` is.

    Returns:
        The weights, shape ``shape``.

    Raises:
        ValueError: for a shape, a scale or a flag out of range.

    Example:
        >>> import numpyro
        >>> with numpyro.handlers.seed(rng_seed=0):
        ...     normal("w", (3, 5), scale=0.5).shape
        (3, 5)
    """
    shape = check_shape(shape)
    return _weights(name, shape, check_positive("scale", scale, shape), centered)


def width_scaled_normal(
    name: str, shape: tuple[int, ...], scale: Value = 1.0, *, unit_axis: int = -1, centered: bool = True
) -> jax.Array:
    """W ~ Normal(0, scale² / fan_in), so that a unit's input keeps its variance however wide the layer before is.

    fan_in is the number of weights that enter a unit: the product of the axes other than ``unit_axis``. For a vector of
    biases it is 1.

    Args:
        name: name of the weights' site.
        shape: shape of the weights.
        scale: standard deviation at fan_in = 1; a number, or an array that broadcasts to ``shape``.
        unit_axis: axis of the units.
        centered: whether the weights are the latent site; else ``{name}_raw`` is.

    Returns:
        The weights, shape ``shape``.

    Raises:
        ValueError: for a shape, a scale, an axis or a flag out of range.

    Example:
        >>> import numpyro
        >>> with numpyro.handlers.seed(rng_seed=0):
        ...     width_scaled_normal("w", (3, 5)).shape  # standard deviation 1 / sqrt(3)
        (3, 5)
    """
    shape = check_shape(shape)
    width = fan_in(shape, unit_axis)
    return _weights(name, shape, check_positive("scale", scale, shape) / math.sqrt(width), centered)


def normal_gamma(
    name: str,
    shape: tuple[int, ...],
    concentration: Value = 1.0,
    rate: Value = 1.0,
    *,
    per_unit: bool = False,
    unit_axis: int = -1,
    centered: bool = True,
) -> jax.Array:
    """τ ~ Gamma(concentration, rate), W given τ ~ Normal(0, 1/τ): a precision that is learnt.

    With τ integrated out, a weight is a Student-t of 2 concentration degrees of freedom and scale
    sqrt(rate / concentration). The same prior in the words of the variance: 1/τ ~ InverseGamma(concentration, rate).

    Sites: ``{name}_precision``, a scalar or shape (units,), and ``name`` or ``{name}_raw``.

    Args:
        name: name of the weights' site.
        shape: shape of the weights.
        concentration: concentration of the Gamma; a number, or an array that broadcasts to the precision's shape.
        rate: rate of the Gamma; likewise.
        per_unit: one precision for each unit (ARD); else one for all the weights.
        unit_axis: axis of the units.
        centered: whether the weights are the latent site; else ``{name}_raw`` is.

    Returns:
        The weights, shape ``shape``.

    Raises:
        ValueError: for a shape, a hyperparameter, an axis or a flag out of range.

    Example:
        >>> import numpyro
        >>> with numpyro.handlers.trace() as trace, numpyro.handlers.seed(rng_seed=0):
        ...     w = normal_gamma("w", (3, 5), concentration=2.0, rate=2.0, per_unit=True)
        >>> trace["w_precision"]["value"].shape
        (5,)
    """
    shape = check_shape(shape)
    group = groups(shape, per_unit, unit_axis, flat=())
    concentration = check_positive("concentration", concentration, group.shape)
    rate = check_positive("rate", rate, group.shape)
    precision = _positive(f"{name}_precision", dist.Gamma(concentration, rate), group.shape)
    return _weights(name, shape, precision.reshape(group.broadcast) ** -0.5, centered)


def horseshoe(
    name: str,
    shape: tuple[int, ...],
    global_scale: Value = 1.0,
    *,
    per_unit: bool = False,
    unit_axis: int = -1,
    centered: bool = False,
) -> jax.Array:
    """τ ~ HalfCauchy(global_scale), λ ~ HalfCauchy(1), W given τ and λ ~ Normal(0, τ² λ²).

    Non-centred, the default here because the centred form is a funnel in every weight, also writes each half-Cauchy
    as a product that is easier to move in: r₁ sqrt(r₂) with r₁ ~ HalfNormal(1) and r₂ ~ InverseGamma(½, ½). (Lau 2018,
    section 3.4.1, prints r₁ r₂, which is not a half-Cauchy.)

    Sites: ``{name}_local_scale`` (λ), shape ``shape`` or (units,), and ``{name}_global_scale`` (τ), a scalar; latent
    if centred, else deterministic beside the latent ``..._r1`` and ``..._r2`` of each; and ``name`` or ``{name}_raw``.

    Args:
        name: name of the weights' site.
        shape: shape of the weights.
        global_scale: scale of τ, a number or a scalar array.
        per_unit: one local scale for each unit; else one for each weight.
        unit_axis: axis of the units.
        centered: whether weights and scales are latent sites themselves.

    Returns:
        The weights, shape ``shape``.

    Raises:
        ValueError: for a shape, a scale, an axis or a flag out of range.

    Example:
        >>> import numpyro
        >>> with numpyro.handlers.trace() as trace, numpyro.handlers.seed(rng_seed=0):
        ...     w = horseshoe("w", (3, 5), global_scale=0.1, per_unit=True)
        >>> trace["w_local_scale"]["value"].shape
        (5,)
    """
    shape = check_shape(shape)
    scale = _global_local_scale(name, shape, global_scale, per_unit, unit_axis, centered)
    return _weights(name, shape, scale, centered)


def regularised_horseshoe(
    name: str,
    shape: tuple[int, ...],
    global_scale: Value = 1.0,
    slab_scale: float = 2.0,
    slab_df: float = 4.0,
    *,
    per_unit: bool = False,
    unit_axis: int = -1,
    centered: bool = False,
) -> jax.Array:
    """The horseshoe with a slab: W given τ, λ and c ~ Normal(0, τ² c² λ² / (c² + τ² λ²)).

    τ and λ are those of :func:`horseshoe`, c² ~ InverseGamma(slab_df / 2, slab_df slab_scale² / 2). A weight that
    escapes shrinkage is then a Student-t of slab_df degrees of freedom and scale slab_scale, not nearly a Cauchy. The
    defaults are c² ~ InverseGamma(2, 8), as in Lau (2018), section 3.4.1.

    Sites: those of :func:`horseshoe`, and ``{name}_slab_variance`` (c²), a scalar, always latent.

    Args:
        name: name of the weights' site.
        shape: shape of the weights.
        global_scale: scale of τ, a number or a scalar array. Piironen and Vehtari advise p₀ σ / ((D - p₀) sqrt(N)) for
            p₀ of D weights expected away from zero, noise of standard deviation σ and N rows.
        slab_scale: scale of the slab.
        slab_df: degrees of freedom of the slab.
        per_unit: one local scale for each unit; else one for each weight.
        unit_axis: axis of the units.
        centered: whether weights and scales are latent sites themselves.

    Returns:
        The weights, shape ``shape``.

    Raises:
        ValueError: for a shape, a hyperparameter, an axis or a flag out of range.

    Example:
        >>> import numpyro
        >>> with numpyro.handlers.trace() as trace, numpyro.handlers.seed(rng_seed=0):
        ...     w = regularised_horseshoe("w", (3, 5), global_scale=0.1)
        >>> trace["w_slab_variance"]["value"].shape
        ()
    """
    shape = check_shape(shape)
    slab = dist.InverseGamma(*slab_parameters(slab_scale, slab_df))
    scale = _global_local_scale(name, shape, global_scale, per_unit, unit_axis, centered)
    slab_root = jnp.sqrt(_positive(f"{name}_slab_variance", slab, ()))
    return _weights(name, shape, slab_root * (scale / jnp.hypot(slab_root, scale)), centered)


def _global_local_scale(
    name: str, shape: tuple[int, ...], global_scale: Value, per_unit: bool, unit_axis: int, centered: bool
) -> jax.Array:
    """τ λ, in a shape that broadcasts to the weights'."""
    group = groups(shape, per_unit, unit_axis, flat=shape)
    scale = check_positive("global_scale", global_scale)
    local = _half_cauchy(f"{name}_local_scale", 1.0, group.shape, centered)
    return _half_cauchy(f"{name}_global_scale", scale, (), centered) * local.reshape(group.broadcast)


def _half_cauchy(name: str, scale: Value, shape: tuple[int, ...], centered: bool) -> jax.Array:
    if centered:
        return _positive(name, dist.HalfCauchy(scale), shape)
    r1 = _positive(f"{name}_r1", dist.HalfNormal(1.0), shape)
    r2 = _positive(f"{name}_r2", dist.InverseGamma(0.5, 0.5), shape)
    return jnp.asarray(numpyro.deterministic(name, scale * r1 * jnp.sqrt(r2)))


def _positive(name: str, fn: dist.Distribution, shape: tuple[int, ...]) -> jax.Array:
    return jnp.asarray(numpyro.sample(name, fn.expand(shape).to_event(len(shape))))


def _weights(name: str, shape: tuple[int, ...], scale: Value, centered: bool) -> jax.Array:
    if not isinstance(centered, bool):
        raise ValueError(f"centered must be True or False, got {centered!r}")
    zeros = jnp.zeros(shape)
    if centered:
        return jnp.asarray(numpyro.sample(name, dist.Normal(zeros, scale).to_event(len(shape))))
    raw = numpyro.sample(f"{name}_raw", dist.Normal(zeros, 1.0).to_event(len(shape)))
    return jnp.asarray(numpyro.deterministic(name, scale * raw))
