"""How a kernel divides its model: the arguments for it, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pyro.infer.autoguide.initialization import init_to_uniform

from pyro_split.potential.ranks import check_process_group
from pyro_split.potential.split_potential import SplitPotential
from pyro_split.splitting.model_split import ModelSplit
from split_common.checks import check_callable, check_choice, check_flag, check_positive_int
from split_common.data_axes import check_data_axes
from split_common.open_model import OpenModel
from split_common.plates import check_plate
from split_common.subsets import SUBSET_ORDERS


@dataclass(frozen=True)
class Splitting:
    """How a model is divided over subsets of the rows, before there are any.

    Attributes:
        num_subsets: M.
        plate: name of the data plate; None for the only plate with observations.
        data_axes: for each argument that holds rows, the axis they lie along; None for every array whose axis 0 has
            length N.
        subset_order: "sequential" or "shuffled".
        init_strategy: the host's initialisation strategy.
        jit_compile: whether the model is traced once.
        process_group: processes that hold rows each, "world" for all there are; None for this one alone.
    """

    num_subsets: int = 1
    plate: str | None = None
    data_axes: dict[str, int | None] | None = None
    subset_order: str = "sequential"
    init_strategy: Callable[..., Any] = init_to_uniform
    jit_compile: bool = True
    process_group: Any = None

    @classmethod
    def checked(
        cls,
        model: Callable[..., Any] | SplitPotential,
        num_subsets: int,
        *,
        plate: str | None,
        data_axes: dict[str, int | None] | None,
        subset_order: str = "sequential",
        init_strategy: Callable[..., Any],
        jit_compile: bool = True,
        process_group: Any = None,
    ) -> Splitting:
        """The division that a kernel's arguments ask for; a potential brings its own number of subsets.

        Raises:
            TypeError: for a model that is no function, a flag that is no bool, or axes that are no mapping.
            ValueError: for an argument out of range.
        """
        if not isinstance(model, SplitPotential):
            check_callable("model", model)
        num_subsets = check_positive_int("num_subsets", num_subsets)
        return cls(
            num_subsets=model.num_subsets if isinstance(model, SplitPotential) else num_subsets,
            plate=check_plate(plate),
            data_axes=check_data_axes(data_axes),
            subset_order=check_choice("subset_order", subset_order, SUBSET_ORDERS),
            init_strategy=check_callable("init_strategy", init_strategy),
            jit_compile=check_flag("jit_compile", jit_compile),
            process_group=check_process_group(process_group),
        )

    def find(
        self,
        model: OpenModel,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        batch_sizes: Callable[[int], Iterable[int]],
    ) -> ModelSplit:
        """How the model divides over these arguments, checked.

        Args:
            model: the model.
            args: its positional arguments, with tensors.
            kwargs: its keyword arguments, likewise.
            batch_sizes: from the number of rows to how many are evaluated at a time besides a subset's.
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
            jit_compile=self.jit_compile,
            batch_sizes=batch_sizes,
        )
