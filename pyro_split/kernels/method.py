"""What a method is: how one chain starts and moves, as a value that knows nothing of the host's protocol.

A method is frozen. Before a chain starts it is told of the model, the data and the length of warm-up, and gives the
method that knows them (:meth:`Method.prepare`), which is again a frozen value. What evolves is in the state alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from pyro_split.kernels.state import ChainState
from pyro_split.potential.position import Position
from pyro_split.potential.split_potential import SplitPotential
from pyro_split.splitting.model_split import ModelSplit


class Setup(NamedTuple):
    """What a method is told before a chain starts.

    Attributes:
        warmup_steps: number of warm-up iterations.
        potential: bound to the data.
        split: how the model divides; None for a kernel made from a potential.
        args: the model's positional arguments, with tensors.
        kwargs: its keyword arguments, likewise.
        initial_params: where the chain starts; None where that is not given.
    """

    warmup_steps: int
    potential: SplitPotential
    split: ModelSplit | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    initial_params: Position | None


class Method(Protocol):
    """Protocol of a method; a function of a state leaves it as it is and draws from torch's generator alone."""

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the fields of the state that are kept with the draws."""
        ...

    @property
    def details(self) -> list[str]:
        """Its part of the repr of a kernel."""
        ...

    def batch_sizes(self, num_rows: int) -> Iterable[int]:
        """Numbers of rows that are evaluated at a time besides a subset's; the model is asked about each."""
        ...

    def check_warmup(self, warmup_steps: int) -> None:
        """Raise unless a run may have so many warm-up iterations."""
        ...

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Raise unless what was given for sites, such as a mass matrix, fits sites of these sizes."""
        ...

    def for_subsets(self, num_subsets: int) -> Method:
        """This method, for a number of subsets that was chosen."""
        ...

    def prepare(self, setup: Setup) -> Method:
        """The method that knows model, data and length of warm-up."""
        ...

    def find_start(self) -> Position | None:
        """A starting point of the method's own; None for the host's strategy."""
        ...

    def start(self, potential: SplitPotential, z: Position) -> ChainState:
        """The state of a chain at its starting point."""
        ...

    def step(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """One iteration."""
        ...

    def refresh(self, potential: SplitPotential, state: ChainState, z: Position) -> ChainState:
        """The state moved to ``z``, with everything that depends on the position computed afresh."""
        ...

    def watch(self, state: ChainState) -> None:
        """Warn of what the state says of the run."""
        ...

    def diagnostics(self, state: ChainState) -> dict[str, Any]:
        """What a chain's diagnostics have at its end besides the statistics."""
        ...
