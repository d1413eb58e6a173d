"""Options that every kernel of a Hamiltonian has: names, types and defaults, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

from pyro.infer.autoguide.initialization import init_to_uniform

from pyro_split.adaptation.step_size_and_metric import AdaptationSettings
from pyro_split.splitting.settings import Splitting
from split_common.options import is_default

OF_SPLITTING = ("memory", "plate", "data_axes", "subset_order", "init_strategy", "jit_compile", "process_group")


class CommonOptions(TypedDict, total=False):
    """Names and types of the options that PenaltyMH has too; what they mean stands with every kernel."""

    step_size: float
    adapt_step_size: bool
    adapt_mass_matrix: bool
    full_mass: bool | list[tuple[str, ...]]
    inverse_mass_matrix: Any
    init_strategy: Callable[..., Any]
    find_heuristic_step_size: bool
    jit_compile: bool
    memory: int | str | None
    plate: str | None
    data_axes: dict[str, int | None] | None
    process_group: Any


class Options(CommonOptions, total=False):
    """Those, and what a Hamiltonian has besides."""

    target_accept_prob: float
    metric: str | None
    center: Any
    center_order: int | None
    subset_order: str


class EuclideanOptions(Options, total=False):
    """Those, and what needs the kinetic energy of one mass matrix, the same everywhere."""

    drift: str | None


COMMON_DEFAULTS: CommonOptions = {
    "step_size": 1.0,
    "adapt_step_size": True,
    "adapt_mass_matrix": True,
    "full_mass": False,
    "inverse_mass_matrix": None,
    "init_strategy": init_to_uniform,
    "find_heuristic_step_size": True,
    "jit_compile": True,
    "memory": None,
    "plate": None,
    "data_axes": None,
    "process_group": None,
}
DEFAULTS: Options = {
    **COMMON_DEFAULTS,
    "target_accept_prob": 0.8,
    "metric": None,
    "center": None,
    "center_order": None,
    "subset_order": "sequential",
}
EUCLIDEAN_DEFAULTS: EuclideanOptions = {**DEFAULTS, "drift": None}
RECOMMENDED: EuclideanOptions = {**DEFAULTS, "metric": "default", "drift": "default"}


def with_recommended(options: EuclideanOptions, learns_length: bool) -> EuclideanOptions:
    """Options in which "default" stands for what is recommended, where other arguments leave room for it.

    Args:
        options: as the constructor was given them, with defaults.
        learns_length: whether lengths of trajectories are left to warm-up.
    """
    chosen: EuclideanOptions = {**options}
    if is_default(options["metric"]):
        leaves_room = options["full_mass"] is False and options["adapt_mass_matrix"] is True
        chosen["metric"] = "auto" if leaves_room else None
    if is_default(options["drift"]):
        chosen["drift"] = "auto" if chosen["metric"] is not None and learns_length else None
    return chosen


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
    of_splitting: dict[str, Any] = {name: x for name, x in options.items() if name in OF_SPLITTING}
    adapted: dict[str, Any] = {name: x for name, x in options.items() if name not in OF_SPLITTING}
    splitting = Splitting.checked(model, num_subsets, least_subsets=least_subsets, **of_splitting)
    return splitting, AdaptationSettings.checked(**adapted)
