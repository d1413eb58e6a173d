"""Priors on weights and networks that hold them: what a prior does, shapes, units, which prior for which parameter.

A prior is called inside a model, outside the data plate. Write W for the weights, ``name`` for their site. Each prior
has two forms of one distribution. Centred, W is a latent site itself: Normal(0, scale). Non-centred
(``centered=False``), the latent site is ``{name}_raw`` ~ Normal(0, 1) and W = scale × raw is deterministic. The first
suits weights that the data inform well, the second those that the prior holds.

A *unit* is an index along ``unit_axis``. The default, the last axis, is that of weights of shape (inputs, units) used
as ``x @ W``: a unit's group is then the weights that enter it. ``unit_axis=0`` is for weights of shape
(units, inputs, ...), as PyTorch and Equinox keep them; for ``x @ W`` it groups the weights that leave each input, as in
Neal's automatic relevance determination (ARD). ``per_unit=True`` gives each unit a precision or local scale of its own.

A hyperparameter may be a number or an array, the value of a latent site included. An array's shape is checked, its
sign only where it is NumPy's.

References:
    Neal (1996), Bayesian Learning for Neural Networks. Carvalho, Polson and Scott (2010), The horseshoe estimator for
    sparse signals, Biometrika 97. Piironen and Vehtari (2017), Sparsity information and regularization in the
    horseshoe and other shrinkage priors, Electronic Journal of Statistics 11. Lau (2018), Exploring dynamic
    Hamiltonian Monte Carlo for Bayesian neural networks, sections 3.4, 3.5 and 4.5.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from split_common.checks import check_callable, check_positive_float, check_positive_int

ACTIVATIONS = ("tanh", "relu")


class Groups(NamedTuple):
    """The groups of weights that share a local scale or a precision.

    Attributes:
        shape: shape of the site that holds one value for each group.
        broadcast: the shape to which its value is reshaped, to broadcast against the weights.
    """

    shape: tuple[int, ...]
    broadcast: tuple[int, ...]


def check_shape(shape: Any) -> tuple[int, ...]:
    """Return ``shape`` as a tuple of ints, or raise unless it is a sequence of whole numbers of at least 1."""
    sizes = list(shape) if isinstance(shape, Sequence) and not isinstance(shape, str) else [0]
    if not all(isinstance(n, numbers.Integral) and not isinstance(n, bool) and int(n) >= 1 for n in sizes):
        raise ValueError(f"shape must be a tuple of whole numbers of at least 1, got {shape!r}")
    return tuple(int(n) for n in sizes)


def check_unit_axis(unit_axis: Any, shape: tuple[int, ...]) -> int:
    """Return ``unit_axis`` counted from 0, or raise unless it is an axis of ``shape``."""
    ndim = len(shape)
    if isinstance(unit_axis, bool) or unit_axis not in range(-ndim, ndim):
        raise ValueError(f"unit_axis must be an axis of the weights' shape {shape}, got {unit_axis!r}")
    return int(unit_axis) % ndim


def check_positive(name: str, value: Any, shape: tuple[int, ...] = ()) -> Any:
    """Return ``value``, or raise unless it is positive and broadcasts to ``shape``.

    Numbers and NumPy arrays are checked by value. An array of a framework is checked by its shape only: it may be
    the value of a latent site, known by its shape alone while the model is traced.
    """
    if not hasattr(value, "shape"):
        return check_positive_float(name, value)
    try:
        fits = np.broadcast_shapes(tuple(value.shape), shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"{name} must be a number or broadcast to shape {shape}, got shape {tuple(value.shape)}")
    known: Any = value if isinstance(value, np.ndarray | np.generic) else np.ones(())
    if not np.all((known > 0) & np.isfinite(known)):
        raise ValueError(f"{name} must be finite and above 0 everywhere, got {value!r}")
    return value


def groups(shape: tuple[int, ...], per_unit: bool, unit_axis: int, flat: tuple[int, ...]) -> Groups:
    """The groups of weights of a hierarchical prior.

    Args:
        shape: shape of the weights.
        per_unit: one group for each unit, else those of ``flat``.
        unit_axis: the axis along which the units lie.
        flat: shape of the groups where they are not units: () for one, ``shape`` for one for each weight.
    """
    if not isinstance(per_unit, bool):
        raise ValueError(f"per_unit must be True or False, got {per_unit!r}")
    if not per_unit:
        return Groups(flat, flat)
    axis = check_unit_axis(unit_axis, shape)
    return Groups((shape[axis],), tuple(n if i == axis else 1 for i, n in enumerate(shape)))


def fan_in(shape: tuple[int, ...], unit_axis: int) -> int:
    """Number of weights that enter each unit; 1 for a vector of biases."""
    return math.prod(shape) // shape[check_unit_axis(unit_axis, shape)]


def slab_parameters(slab_scale: Any, slab_df: Any) -> tuple[float, float]:
    """Concentration and rate of the inverse-Gamma of c², which makes the slab a Student-t."""
    slab_scale, slab_df = check_positive_float("slab_scale", slab_scale), check_positive_float("slab_df", slab_df)
    return slab_df / 2, slab_df * slab_scale**2 / 2


def prior_of_each(prior: Any, paths: Sequence[str], unit_axis: int) -> dict[str, Callable[..., Any]]:
    """The prior of each parameter of a module.

    Args:
        prior: a function of a site's name and shape, for all parameters; or a mapping from a parameter's path, or
            from the last part of it, to such a function. The whole path goes first.
        paths: paths of the module's parameters.
        unit_axis: axis of the module's units, passed to priors that take ``unit_axis`` and were not given it.

    Raises:
        TypeError: where a prior is not a function.
        ValueError: for a parameter without a prior, and for a name that fits no parameter.
    """
    if not paths:
        raise ValueError("module must hold floating-point parameters, got none")
    if not isinstance(prior, Mapping):
        return dict.fromkeys(paths, _prior("prior", prior, unit_axis))
    keys = {path: path if path in prior else path.rpartition(".")[2] for path in paths}
    missing = [path for path, key in keys.items() if key not in prior]
    unused = [key for key in prior if key not in keys.values()]
    if missing or unused:
        raise ValueError(
            f"prior must name each parameter, by its path or the last part of it, of {list(paths)}, "
            f"got none for {missing} and unknown names {unused}"
        )
    return {path: _prior(f"prior[{key!r}]", prior[key], unit_axis) for path, key in keys.items()}


def check_weights(path: str, weights: Any, shape: tuple[int, ...]) -> Any:
    """Return the weights that a prior made, or raise unless they have the parameter's shape."""
    got = tuple(weights.shape) if hasattr(weights, "shape") else type(weights).__name__
    if got != shape:
        raise ValueError(f"prior must return an array of shape {shape} for parameter {path!r}, got {got}")
    return weights


def check_widths(name: str, widths: Any, least: int) -> tuple[int, ...]:
    """Return ``widths``, or raise unless it has at least ``least`` whole numbers of at least 1."""
    if not isinstance(widths, Sequence) or isinstance(widths, str) or len(widths) < least:
        raise ValueError(f"{name} must be a sequence of at least {least} widths, got {widths!r}")
    return tuple(check_positive_int(f"{name}[{i}]", width) for i, width in enumerate(widths))


def pooled_features(image_shape: tuple[int, ...], channels: Sequence[int], kernel_size: int) -> int:
    """Number of features left of an image after each of ``channels``: a convolution, unpadded, then pooling by 2."""
    height, width = image_shape[1:]
    for _ in channels:
        height, width = ((side - kernel_size + 1) // 2 for side in (height, width))
    if height < 1 or width < 1:
        raise ValueError(
            f"image_shape must leave at least one pixel after {len(channels)} convolutions by {kernel_size} "
            f"and poolings by 2, got {image_shape}"
        )
    return height * width * (channels[-1] if channels else image_shape[0])


def _prior(name: str, prior: Any, unit_axis: int) -> Callable[..., Any]:
    if hasattr(prior, "log_prob"):
        raise TypeError(
            f"{name} must be a function (name, shape) -> weights, such as functools.partial(priors.normal, scale=0.5), "
            f"got the distribution {type(prior).__name__}"
        )
    check_callable(name, prior)
    try:
        asks = "unit_axis" in inspect.signature(prior).parameters
    except (TypeError, ValueError):
        asks = False
    told = "unit_axis" in getattr(prior, "keywords", ())
    return partial(prior, unit_axis=unit_axis) if asks and not told else prior
