"""Options that many kernels share, where they depend on the host: names, types, defaults and checked settings."""

from __future__ import annotations

from typing import Any

import jax
from numpyro.infer.initialization import init_to_uniform

from numpyro_split.splitting.settings import Splitting
from split_common.adaptation import AdaptationSettings
from split_common.options import (
    ADAPTATION_DEFAULTS,
    HAMILTONIAN_DEFAULTS,
    AdaptationOptions,
    DivisionOptions,
    HamiltonianOptions,
)

DENSE = "dense_mass"  # the host's name of the argument for a dense mass matrix
OF_SPLITTING = ("memory", "plate", "data_axes", "subset_order", "init_strategy", "forward_mode_differentiation")


class SplittingOptions(DivisionOptions, total=False):
    """Options of kernels that adapt neither step size nor mass matrix."""

    subset_order: str


class CommonOptions(AdaptationOptions, DivisionOptions, total=False):
    """Options of kernels that adapt a step size and a mass matrix."""

    dense_mass: bool | list[tuple[str, ...]]
    forward_mode_differentiation: bool
    regularize_mass_matrix: bool


class Options(CommonOptions, HamiltonianOptions, total=False):
    """Options of kernels that follow Hamilton's equations over subsets."""


class EuclideanOptions(Options, total=False):
    """Options of kernels whose kinetic energy is that of one constant mass matrix."""

    drift: str | None


SPLITTING_DEFAULTS: SplittingOptions = {
    "memory": None,
    "plate": None,
    "data_axes": None,
    "subset_order": "sequential",
    "init_strategy": init_to_uniform,
}
COMMON_DEFAULTS: CommonOptions = {
    **ADAPTATION_DEFAULTS,
    "dense_mass": False,
    "init_strategy": init_to_uniform,
    "forward_mode_differentiation": False,
    "regularize_mass_matrix": True,
    "memory": None,
    "plate": None,
    "data_axes": None,
}
DEFAULTS: Options = {**COMMON_DEFAULTS, **HAMILTONIAN_DEFAULTS}
EUCLIDEAN_DEFAULTS: EuclideanOptions = {**DEFAULTS, "drift": None}
RECOMMENDED: EuclideanOptions = {**DEFAULTS, "metric": "default", "drift": "default"}


def resolve_options(
    model: Any, num_subsets: int | str, options: Options, least_subsets: int = 1
) -> tuple[Splitting, AdaptationSettings]:
    """Checked settings of how a kernel divides its model, and of what it adapts in warm-up.

    Args:
        model: the model, or a potential, which brings its own number of subsets.
        num_subsets: M, or "auto".
        options: options of the constructor, with defaults filled in.
        least_subsets: least number of subsets; a smaller ``num_subsets`` is raised to it.

    Raises:
        TypeError: for a flag that is not a bool, and for an argument that must be a function or a mapping and is not.
        ValueError: for an argument out of range.
    """
    adapted: dict[str, Any] = {**options}
    of_splitting = {name: adapted.pop(name) for name in OF_SPLITTING if name in adapted}
    splitting = Splitting.checked(model, num_subsets, least_subsets=least_subsets, **of_splitting)
    return splitting, AdaptationSettings.checked(adapted.pop(DENSE), DENSE, jax.Array, **adapted)
