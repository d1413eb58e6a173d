"""The arguments of a kernel that say how its model is divided, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from pyro.infer.autoguide.initialization import init_to_uniform

from pyro_split.potential.ranks import check_process_group
from pyro_split.potential.split_potential import SplitPotential
from pyro_split.splitting.model_split import ModelSplit
from split_common.checks import check_callable, check_choice, check_flag
from split_common.data_axes import check_data_axes
from split_common.memory import AUTO, AutoSubsets, check_subsets, text_of_bytes
from split_common.open_model import OpenModel
from split_common.plates import check_plate
from split_common.subsets import SUBSET_ORDERS, SubsetLayout


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
        jit_compile: whether the model is traced once.
        process_group: the processes that hold rows, "world" for all there are; None for this one alone.
        shards: rows of each shard, of a run that was begun by as many processes and goes on in fewer; () where each
            process holds one, whatever its size.
    """

    num_subsets: int | AutoSubsets = 1
    plate: str | None = None
    data_axes: dict[str, int | None] | None = None
    subset_order: str = "sequential"
    init_strategy: Callable[..., Any] = init_to_uniform
    jit_compile: bool = True
    process_group: Any = None
    shards: tuple[int, ...] = ()

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
        jit_compile: bool = True,
        process_group: Any = None,
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
            jit_compile=check_flag("jit_compile", jit_compile),
            process_group=check_process_group(process_group),
        )

    @property
    def details(self) -> list[str]:
        """What the repr of a kernel says of it besides the number of subsets."""
        auto = self.num_subsets
        return [f"memory={text_of_bytes(auto.memory)!r}"] if isinstance(auto, AutoSubsets) else []

    def for_subsets(self, num_subsets: int) -> Splitting:
        """A copy with a number of subsets that was chosen."""
        return replace(self, num_subsets=num_subsets)

    def for_shards(self, shards: tuple[int, ...], num_subsets: int) -> Splitting:
        """A copy for a run that goes on, with the rows of each of its shards, and its number of subsets."""
        return replace(self, num_subsets=num_subsets, shards=shards)

    @property
    def anywhere(self) -> Splitting:
        """A copy without the settings that say where the rows lie."""
        return replace(self, process_group=None, shards=())

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
            batch_sizes: function from the number of rows to further numbers of rows that are evaluated at a time.
        """
        number = self.num_subsets
        of_shards = [] if isinstance(number, AutoSubsets) else [SubsetLayout(n, number).sizes for n in self.shards]
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
            batch_sizes=lambda num_rows: {*batch_sizes(num_rows), *chain.from_iterable(of_shards)},
        )
