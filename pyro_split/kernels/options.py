"""Options that many kernels have: names, types and defaults, where the host decides them, and what they make."""

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
    """Options of kernels that adapt nothing."""

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
    """How a kernel divides its model, and what it adapts in warm-up.

    Args:
        model: the model, or a potential, which brings its own number of subsets.
        num_subsets: M, or "auto".
        options: as the constructor was given them, with defaults.
        least_subsets: a smaller number counts as this one.

    Raises:
        TypeError: for a flag that is no bool, or for what is no function or mapping and should be.
        ValueError: for an argument out of range.
    """
    adapted: dict[str, Any] = {**options}
    of_splitting = {name: adapted.pop(name) for name in OF_SPLITTING if name in adapted}
    splitting = Splitting.checked(model, num_subsets, least_subsets=least_subsets, **of_splitting)
    return splitting, AdaptationSettings.checked(adapted.pop(DENSE), DENSE, Tensor, **adapted)
