"""Whether the draws that a host's ``MCMC`` holds are those of the arguments that it holds.

They are not after a second run on other data that was interrupted: the host keeps the draws of the run before, and the
arguments of the interrupted one. Nor are they where data, or what a model reads besides its arguments, have changed
since the run. The potential energy that was recorded with a draw tells: computed again it must come out as it was.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

ABSOLUTE = 0.05  # difference in nats that rounding of single precision may make, from a draw to its position and back
RELATIVE = 1e-4  # the same, in units of the energy
MOST_COMPARED = 4  # draws whose energies are computed again


def warn_of_other_arguments(recorded: Sequence[float], computed: Sequence[float]) -> None:
    """Warn where most draws have another potential energy now than when they were made.

    Args:
        recorded: potential energies that the run recorded with some draws.
        computed: those of the same draws by the arguments that ``mcmc`` holds now.

    Warns:
        UserWarning: naming the energies of one draw.

    Example:
        >>> warn_of_other_arguments([1234.5, 1230.0], [1234.51, 1230.0])
    """
    before, now = np.asarray(recorded, float), np.asarray(computed, float)
    differs = np.abs(now - before) > ABSOLUTE + RELATIVE * np.abs(before)  # never of NaN, which says nothing
    if len(before) and 2 * np.sum(differs) > len(before):
        place = int(np.argmax(differs))
        warnings.warn(
            f"log-likelihoods are of other data or another model than the draws: a draw whose potential energy was "
            f"{before[place]:.7g} in the run has {now[place]:.7g} by the arguments that mcmc holds. The last run was "
            "interrupted, or what the model reads has changed; run again, or give mcmc the data of its draws",
            stacklevel=4,
        )
