"""The protocol of a method: how one chain starts and moves, independently of the host's protocol.

A method is a frozen value. Before chains start, :meth:`Method.prepare` is given the model, the data and the length of
warm-up, and returns a new method that knows them. Only the state evolves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import jax

from numpyro_split.kernels.state import ChainState
from numpyro_split.potential.position import Position
from numpyro_split.potential.split_potential import SplitPotential
from numpyro_split.splitting.divided_model import DividedModel


class Setup(NamedTuple):
    """The model, data and length of warm-up of a run, which a method is given before chains start.

    Attributes:
        num_warmup: number of warm-up iterations.
        potential: potential, bound to the data.
        split: how the model divides; None for a kernel made from a potential.
        args: the model's positional arguments, with JAX arrays.
        kwargs: the model's keyword arguments, with JAX arrays.
        init_params: starting point of the first chain; None if it is not given.
    """

    num_warmup: int
    potential: SplitPotential
    split: DividedModel | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    init_params: Position | None


class Method(Protocol):
    """Protocol of a method, for one chain; functions of a state are pure."""

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

    @property
    def layout(self) -> tuple[str, ...]:
        """Settings on which cached energies and gradients depend, as texts; part of the data digest."""
        ...

    @property
    def plan(self) -> str:
        """What the method found in the model, as text; data sets with equal text share one compiled program."""
        ...

    @property
    def depends_on_data(self) -> bool:
        """Whether a state holds values that depend on the data, and must be refreshed for other data."""
        ...

    @property
    def given_start(self) -> Position | None:
        """Starting point of a chain on a potential without ``init_params``; None if ``init_params`` are needed."""
        ...

    @property
    def shared_fields(self) -> Mapping[str, Any]:
        """Fields of the state that vectorised chains share, by name: True, or a tree prefix of the field."""
        ...

    @property
    def free_fields(self) -> tuple[str, ...]:
        """Names of the fields of the state whose shape may depend on the data."""
        ...

    def batch_sizes(self, num_rows: int) -> Iterable[int]:
        """Numbers of rows that are evaluated together besides those of a subset; the model is checked for each."""
        ...

    def check_warmup(self, num_warmup: int) -> None:
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

    def serves(self, init_params: Position | None) -> bool:
        """Whether a later run on the same data, with or without a starting point, may use this prepared method."""
        ...

    def without_data(self) -> Method:
        """This prepared method, for other data than those that it was prepared with."""
        ...

    def find_start(self, rng_key: jax.Array) -> Position | None:
        """Starting point that the method chooses, one for each key; None to use the host's strategy."""
        ...

    def start(self, potential: SplitPotential, z: Position, rng_key: jax.Array) -> ChainState:
        """The state of a chain at its starting point.

        Args:
            potential: potential, bound to the data.
            z: starting point, a dict of unconstrained values by site.
            rng_key: random key of the chain.

        Returns:
            The state before the first iteration.
        """
        ...

    def step(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """The state after one iteration.

        Args:
            potential: potential, bound to the data.
            state: state of one chain.

        Returns:
            The next state.
        """
        ...

    def refresh(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """The state at the same position, with everything that depends on the data recomputed."""
        ...

    def shorten_step(self, potential: SplitPotential, state: ChainState) -> ChainState:
        """The state with a step size that is not too long for this potential, which it was not adapted to."""
        ...

    def watch(self, state: ChainState) -> None:
        """Warn of problems of the run that the state shows; the state is of one chain or of a batch of chains."""
        ...
