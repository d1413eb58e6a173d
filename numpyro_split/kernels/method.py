"""What a method is: how one chain starts and moves, as a value that knows nothing of the host's protocol.

A method is frozen. Before chains start it is told of the model, the data and the length of warm-up, and gives the
method that knows them (:meth:`Method.prepare`), which is again a frozen value. What evolves is in the state alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import jax

from numpyro_split.kernels.state import ChainState
from numpyro_split.potential.position import Position
from numpyro_split.potential.split_potential import SplitPotential
from numpyro_split.splitting.model_split import ModelSplit


class Setup(NamedTuple):
    """What a method is told before chains start.

    Attributes:
        num_warmup: number of warm-up iterations.
        potential: bound to the data.
        split: how the model divides; None for a kernel made from a potential.
        args: the model's positional arguments, with JAX arrays.
        kwargs: its keyword arguments, likewise.
        init_params: where the first chain starts; None where that is not given.
    """

    num_warmup: int
    potential: SplitPotential
    split: ModelSplit | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    init_params: Position | None


class Method(Protocol):
    """Protocol of a method, for one chain; every function of a state is pure."""

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the fields of the state that are kept with the draws."""
        ...

    @property
    def details(self) -> list[str]:
        """Its part of the repr of a kernel."""
        ...

    @property
    def layout(self) -> tuple[str, ...]:
        """Text of the settings that what a state keeps of the data depends on."""
        ...

    @property
    def plan(self) -> str:
        """Text of what it has found of the model; equal for data sets that one compiled program may serve."""
        ...

    @property
    def rests_on_data(self) -> bool:
        """Whether a state keeps anything that other data would change."""
        ...

    @property
    def given_start(self) -> Position | None:
        """Start of a chain on a potential without ``init_params``; None where there is none."""
        ...

    @property
    def shared_fields(self) -> Mapping[str, Any]:
        """Fields of the state that vectorised chains share: True, or a tree prefix of the field."""
        ...

    @property
    def free_fields(self) -> tuple[str, ...]:
        """Fields of the state whose shape may differ from data to data."""
        ...

    def batch_sizes(self, num_rows: int) -> Iterable[int]:
        """Numbers of rows that are evaluated at a time besides a subset's; the model is asked about each."""
        ...

    def check_warmup(self, num_warmup: int) -> None:
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

    def without_data(self) -> Method:
        """This prepared method, for data whose values are not those that it has seen."""
        ...

    def find_start(self, rng_key: jax.Array) -> Position | None:
        """A starting point of the method's own, of a chain for each key; None for the host's strategy."""
        ...

    def start(self, potential: SplitPotential, z: Position, rng_key: jax.Array) -> ChainState:
        """The state of a chain at its starting point."""
        ...

    def step(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """One iteration."""
        ...

    def refresh(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """The state at the same place, with everything that depends on the data computed afresh."""
        ...

    def shorten_step(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """The state with a step size that is not too long for a potential that it was not adapted to."""
        ...

    def watch(self, state: ChainState) -> None:
        """Warn of what the state, of one chain or of a batch, says of the run."""
        ...
