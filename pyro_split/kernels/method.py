"""The protocol of a method: how one chain starts and moves, independently of the host's protocol.

A method is a frozen value. Before a chain starts, :meth:`Method.prepare` is given the model, the data and the length of
warm-up, and returns a new method that knows them. Only the state evolves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from pyro_split.kernels.state import ChainState
from pyro_split.potential.position import Position
from pyro_split.potential.split_potential import SplitPotential
from pyro_split.splitting.divided_model import DividedModel


class Setup(NamedTuple):
    """The model, data and length of warm-up of a run, which a method is given before a chain starts.

    Attributes:
        warmup_steps: number of warm-up iterations.
        potential: potential, bound to the data.
        split: how the model divides; None for a kernel made from a potential.
        args: the model's positional arguments, with tensors.
        kwargs: the model's keyword arguments, with tensors.
        initial_params: starting point of the chain; None if it is not given.
    """

    warmup_steps: int
    potential: SplitPotential
    split: DividedModel | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    initial_params: Position | None


class Method(Protocol):
    """Protocol of a method; functions of a state do not change it, and draw only from torch's generator."""

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the fields of the state that are stored with the draws."""
        ...

    @property
    def details(self) -> list[str]:
        """Texts that this method adds to the kernel's repr."""
        ...

    @property
    def target(self) -> str:
        """The distribution that chains sample, in words, where it is not the posterior; else ""."""
        ...

    @property
    def records_energy(self) -> bool:
        """Whether the potential energy in a state is that of all rows, not an estimate from a few."""
        ...

    def batch_sizes(self, num_rows: int) -> Iterable[int]:
        """Numbers of rows that are evaluated together besides those of a subset; the model is checked for each."""
        ...

    def check_warmup(self, warmup_steps: int) -> None:
        """Raise unless a run may have this number of warm-up iterations."""
        ...

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Raise unless arguments that are given by site, such as a mass matrix, fit sites of these sizes."""
        ...

    def for_subsets(self, num_subsets: int) -> Method:
        """The method for this number of subsets."""
        ...

    def prepare(self, setup: Setup) -> Method:
        """The method with what it needs to know of model, data and length of warm-up."""
        ...

    def find_start(self) -> Position | None:
        """Starting point that the method chooses; None to use the host's strategy."""
        ...

    def start(self, potential: SplitPotential, z: Position) -> ChainState:
        """The state of a chain at its starting point.

        Args:
            potential: potential, bound to the data.
            z: starting point, a dict of unconstrained values by site.

        Returns:
            The state before the first iteration.
        """
        ...

    def step(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """The state after one iteration.

        Args:
            potential: potential, bound to the data.
            state: state of the chain.

        Returns:
            The next state.
        """
        ...

    def refresh(self, potential: SplitPotential, state: ChainState, z: Position) -> ChainState:
        """The state moved to ``z``, with everything that depends on the position recomputed."""
        ...

    def watch(self, state: ChainState) -> None:
        """Warn of problems of the run that the state shows."""
        ...

    def diagnostics(self, state: ChainState) -> dict[str, Any]:
        """Entries of a chain's diagnostics besides the statistics."""
        ...
