"""Options that many kernels share, where they depend on the host: names, types, defaults and checked settings."""

from __future__ import annotations

from typing import Any

from pyro.infer.autoguide.initialization import init_to_uniform
from torch import Tensor

from pyro_split.splitting.settings import Splitting
from split_common.adaptation import AdaptationSettings
from split_common.options import (
    ADAPTATION_DEFAULTS,
    HAMILTONIAN_DEFAULTS,
    AdaptationOptions,
    DivisionOptions,
    HamiltonianOptions,
)

DENSE = "full_mass"  # the host's name of the argument for a dense mass matrix
OF_SPLITTING = ("memory", "plate", "data_axes", "subset_order", "init_strategy", "jit_compile", "process_group")


class SplittingOptions(DivisionOptions, total=False):
    """Options of kernels that adapt neither step size nor mass matrix."""

    subset_order: str
    jit_compile: bool
    process_group: Any


class CommonOptions(AdaptationOptions, DivisionOptions, total=False):
    """Options of kernels that adapt a step size and a mass matrix."""

    full_mass: bool | list[tuple[str, ...]]
    jit_compile: bool
    process_group: Any


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
    "jit_compile": True,
    "process_group": None,
}
COMMON_DEFAULTS: CommonOptions = {
    **ADAPTATION_DEFAULTS,
    "full_mass": False,
    "init_strategy": init_to_uniform,
    "jit_compile": True,
    "process_group": None,
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
    return splitting, AdaptationSettings.checked(adapted.pop(DENSE), DENSE, Tensor, **adapted)
