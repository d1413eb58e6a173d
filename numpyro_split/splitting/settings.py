"""The arguments of a kernel that say how its model is divided, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from numpyro.infer.initialization import init_to_uniform

from numpyro_split.potential.split_potential import SplitPotential
from numpyro_split.splitting.model_split import ModelSplit
from split_common.checks import check_callable, check_choice, check_flag
from split_common.data_axes import check_data_axes
from split_common.memory import AUTO, AutoSubsets, check_subsets, text_of_bytes
from split_common.open_model import OpenModel
from split_common.plates import check_plate
from split_common.subsets import SUBSET_ORDERS


@dataclass(frozen=True)
class Splitting:
    """How a model is to be divided over subsets of the rows, before there are data.

    Attributes:
        num_subsets: M, or how it is to be chosen.
        plate: name of the data plate; None for the only plate with observations.
        data_axes: for each argument that holds rows, the axis they lie along; None for every array whose axis 0 has
            length N.
        subset_order: "sequential" or "shuffled".
        init_strategy: the host's initialisation strategy.
        forward_mode: whether derivatives are taken in forward mode.
    """

    num_subsets: int | AutoSubsets = 1
    plate: str | None = None
    data_axes: dict[str, int | None] | None = None
    subset_order: str = "sequential"
    init_strategy: Callable[..., Any] = init_to_uniform
    forward_mode: bool = False

    @classmethod
    def checked(
        cls,
        model: Callable[..., Any] | SplitPotential,
        num_subsets: int | str,
        *,
        memory: int | str | None,
        least_subsets: int = 1,
        plate: str | None,
        data_axes: dict[str, int | None] | None,
        subset_order: str = "sequential",
        init_strategy: Callable[..., Any],
        forward_mode_differentiation: bool = False,
    ) -> Splitting:
        """The division that a kernel's arguments ask for; a potential brings its own number of subsets.

        Raises:
            TypeError: for a model that is no function, a flag that is no bool, or axes that are no mapping.
            ValueError: for an argument out of range.
        """
        checked = check_subsets(num_subsets, memory, least_subsets)
        if not isinstance(model, SplitPotential):
            check_callable("model", model)
        elif isinstance(checked, AutoSubsets):
            raise ValueError(f"num_subsets must be a number for a SplitPotential, which brings its own, got {AUTO!r}")
        return cls(
            num_subsets=model.num_subsets if isinstance(model, SplitPotential) else checked,
            plate=check_plate(plate),
            data_axes=check_data_axes(data_axes),
            subset_order=check_choice("subset_order", subset_order, SUBSET_ORDERS),
            init_strategy=check_callable("init_strategy", init_strategy),
            forward_mode=check_flag("forward_mode_differentiation", forward_mode_differentiation),
        )

    @property
    def layout(self) -> tuple[str, ...]:
        """Texts of all settings that decide which rows are in which subset, except the number of chains."""
        return str(self.num_subsets), self.subset_order, str(self.plate), str(self.data_axes)

    @property
    def is_chosen(self) -> bool:
        """Whether the number of subsets is chosen from the data."""
        return isinstance(self.num_subsets, AutoSubsets)

    @property
    def details(self) -> list[str]:
        """What the repr of a kernel says of it besides the number of subsets."""
        auto = self.num_subsets
        return [f"memory={text_of_bytes(auto.memory)!r}"] if isinstance(auto, AutoSubsets) else []

    def for_subsets(self, num_subsets: int) -> Splitting:
        """A copy with a number of subsets that was chosen."""
        return replace(self, num_subsets=num_subsets)

    def find(
        self,
        model: OpenModel,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        program: str,
        batch_sizes: Callable[[int], Iterable[int]],
        num_chains: int = 1,
    ) -> ModelSplit:
        """How the model divides over these arguments, checked.

        Args:
            model: the model.
            args: its positional arguments, with JAX arrays.
            kwargs: its keyword arguments, likewise.
            program: digest of what it computes.
            batch_sizes: function from the number of rows to further numbers of rows that are evaluated at a time.
            num_chains: number of chains whose gradients are evaluated at once.
        """
        return ModelSplit.find(
            model,
            args,
            kwargs,
            num_subsets=self.num_subsets,
            plate=self.plate,
            data_axes=self.data_axes,
            subset_order=self.subset_order,
            init_strategy=self.init_strategy,
            program=program,
            batch_sizes=batch_sizes,
            forward_mode=self.forward_mode,
            num_chains=num_chains,
        )
