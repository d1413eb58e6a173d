"""What a trajectory is: how long it goes on, and which of its states is taken."""

from __future__ import annotations

from typing import Any, Protocol

from split_common.schedule import Schedule


class Trajectory(Protocol):
    """Protocol of a trajectory; the method ``Hamiltonian`` of either package is composed of one."""

    @property
    def explores(self) -> bool:
        """Whether warm-up moves by trees until a metric has been estimated."""
        ...

    @property
    def learns_length(self) -> bool:
        """Whether lengths are learned from these trees."""
        ...

    @property
    def varies_length(self) -> bool:
        """Whether trajectories differ in length, so that not every one of them can be a whole period."""
        ...

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the fields of the state that it adds to the statistics."""
        ...

    @property
    def longest_step(self) -> float:
        """Upper limit of the adapted step size."""
        ...

    def draws_order(self, schedule: Schedule) -> bool:
        """Whether an order of subsets is drawn for each trajectory."""
        ...

    def first_fields(self, z: Any, /) -> dict[str, Any]:
        """Its own fields of the state of a chain that starts at ``z``."""
        ...

    def move(self, state: Any, integrator: Any, num_warmup: int, /) -> tuple[Any, Any]:
        """One iteration at the state's step size and metric, which it does not change.

        Args:
            state: state of the chain.
            integrator: the schedule on the target's potential, with the state's metric.
            num_warmup: number of warm-up iterations.

        Returns:
            The next state, and the momentum there; None where that is not known.
        """
        ...

    def learned(self, state: Any, /) -> dict[str, Any]:
        """Values that warm-up learns, by field of :class:`split_common.settling.Settled`."""
        ...

    def watch(self, state: Any, num_warmup: int, /) -> None:
        """Warn of what the state, of one chain or of a batch of chains, says about the run."""
        ...
