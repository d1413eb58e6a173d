"""Base of S3HMC and BlockGibbsHMC: finds the groups, and adapts the metric of the other sites."""

from __future__ import annotations

from typing import Any

from pyro_split.integrators.hierarchical_kinetic import Hierarchy, find_hierarchy
from pyro_split.kernels.hamiltonian import HamiltonianKernel
from pyro_split.potential.position import Position
from pyro_split.potential.split_potential import SplitPotential
from pyro_split.splitting.model_split import ModelSplit
from split_common.checks import check_flag, check_site_names
from split_common.hierarchy import describe_groups
from split_common.values import shown


class HierarchicalKernel(HamiltonianKernel):
    """Base of the kernels for hierarchical models; for the arguments see :class:`~pyro_split.S3HMC`."""

    def __init__(self, model: Any, num_subsets: int, *, precision_sites: Any, output_precision: bool, **options: Any):
        if isinstance(model, SplitPotential):
            raise ValueError(
                f"model must be a model, from whose trace precisions are found, got a SplitPotential, {shown(model)}"
            )
        self._precision_sites = check_site_names("precision_sites", precision_sites)
        self._output_precision = check_flag("output_precision", output_precision)
        self._hierarchy: Hierarchy | None = None
        super().__init__(model, num_subsets, **options)

    @property
    def _details(self) -> list[str]:
        """The groups too, once they are found."""
        found = "precisions are found when it runs"
        if self._hierarchy is not None:
            found = describe_groups(self._hierarchy.groups, self._hierarchy.masses)
        return [*super()._details, found]

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what ``setup`` finds again."""
        return {**super().__getstate__(), "_hierarchy": None}

    @property
    def _found(self) -> Hierarchy:
        assert self._hierarchy is not None
        return self._hierarchy

    def _study_split(self, split: ModelSplit, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        potential = split.bind(args, kwargs)
        self._hierarchy = find_hierarchy(split, potential, args, kwargs, self._precision_sites, self._output_precision)

    def _check_mass(self, sizes: dict[str, int]) -> None:
        super()._check_mass({name: size for name, size in sizes.items() if not self._found.is_precision(name)})

    def _coordinates(self, z: Position) -> Position:
        return self._found.without_precisions(z)
