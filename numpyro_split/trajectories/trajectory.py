"""What a trajectory is: how long it goes on, and which of its states is taken."""

from __future__ import annotations

from typing import Any, Protocol

import jax

from numpyro_split.integrators.integrator import IntegratorBase
from numpyro_split.potential.position import Position
from split_common.schedule import Schedule


class Trajectory(Protocol):
    """Protocol of a trajectory, as :class:`~numpyro_split.kernels.hamiltonian.Hamiltonian` is composed of one."""

    @property
    def explores(self) -> bool:
        """Whether warm-up moves by trees until a metric is there."""
        ...

    @property
    def learns_length(self) -> bool:
        """Whether lengths are learned from these trees."""
        ...

    @property
    def varies_length(self) -> bool:
        """Whether trajectories differ in length, so that none has to be a whole period."""
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
        """Whether the order of subsets is drawn for each trajectory."""
        ...

    def first_fields(self, z: Position) -> dict[str, Any]:
        """Its own fields of the state of a chain that starts at ``z``."""
        ...

    def move(self, state: Any, integrator: IntegratorBase, num_warmup: int) -> tuple[Any, Position | None]:
        """One iteration at the state's step size and metric, which it leaves as they are.

        Args:
            state: where the chain is.
            integrator: the schedule on the target's potential, with the state's metric.
            num_warmup: number of warm-up iterations.

        Returns:
            The next state, and the momentum there; None where it is not known.
        """
        ...

    def learned(self, state: Any) -> dict[str, jax.Array]:
        """Values that warm-up learns, by field of :class:`split_common.settling.Settled`."""
        ...

    def watch(self, state: Any, num_warmup: int) -> None:
        """Warn of what the state, of one chain or of a batch, says of the run."""
        ...
