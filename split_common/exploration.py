r"""Which iterations of warm-up are made by trees, where a kernel's own trajectories are of a length set beforehand.

Before a metric is there, no length suits: a quarter turn in units of a posterior's scale is nothing in units of 1, or
thousands of steps. A tree on the same schedule ends where its path turns back, whatever the units, so early warm-up
moves by trees until the last metric is estimated. What they need not be is exact: nothing of warm-up is a draw.

Where the user gives no length, all of warm-up moves by trees, and those of the last window, which have the metric of
the draws, tell how far the posterior reaches. The length of a draw's trajectory is then uniform between 0 and the mean
length of those trees (of the states they visited, refused ones included): fixed by warm-up, and so resting on no state.
A uniform length has no period, and half of a tree is what it takes on average: gradients a draw are half of NUTS's.

Where the metric fits, less will do. With draws z, gradients g and a metric X, let :math:`a = E[g^\top X g] / c` and
:math:`b = E[(z - \mu)^\top X^{-1} (z - \mu)] / c`, with :math:`c = E[g^\top (z - \mu)]`. On a normal target they are
the means of the squared frequencies of its oscillations, and of their inverses, each weighted by how far the draws went
along it, so :math:`ab \geq 1`, and 1 only where all are equal, whichever draws there are. A quarter of such a turn
makes a draw and its square nearly independent of where it started. So where gradients are known
(:mod:`split_common.gradient_metric`), the last window, which the metric has not seen, measures both: up to
:data:`MOST_SPREAD` lengths are drawn from :data:`QUARTERS` of a quarter turn instead. They do not hang on the state.

Reference:
    Wu, Stoehr and Robert (2019), Faster Hamiltonian Monte Carlo by learning leapfrog scale, arXiv 1810.04449.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

MAX_EXPLORATION_DEPTH = 10  # doublings of a tree of warm-up; as many as the hosts' NUTS makes
QUARTERS = (0.75, 1.25)  # shortest and longest length, in quarter turns: too narrow for equal periods to be felt
MOST_SPREAD = 1.25  # of the squared frequencies: their mean times that of their inverses
FIRST_LENGTH = math.pi  # the longest of trajectories before one is learned: half a turn in a metric that fits


class Exploration(NamedTuple):
    """Which iterations are made by trees.

    Attributes:
        num_trees: so many, the first ones of warm-up.
        num_before: of these, those before the metric of the draws was there; lengths are learned from the others.

    Example:
        >>> Exploration.of([75, 100, 250, 300], 300, learns_length=True, adapts_metric=True)
        Exploration(num_trees=300, num_before=250)
        >>> Exploration.of([75, 100, 250, 300], 300, learns_length=False, adapts_metric=True)
        Exploration(num_trees=250, num_before=250)
    """

    num_trees: int
    num_before: int

    @property
    def before(self) -> Exploration:
        """Without the trees that lengths are learned from."""
        return self._replace(num_trees=min(self))

    @classmethod
    def of(cls, window_ends: Sequence[int], num_warmup: int, learns_length: bool, adapts_metric: bool) -> Exploration:
        """Exploration of a warm-up.

        Args:
            window_ends: how many iterations are over at the end of each of the host's windows.
            num_warmup: number of warm-up iterations.
            learns_length: whether trajectories are as long as trees make them.
            adapts_metric: whether the metric adapts in the windows between the first and the last.
        """
        num_before = window_ends[-2] if len(window_ends) >= 3 else 0
        return cls(num_warmup if learns_length else num_before * adapts_metric, num_before)


def quarter_turn(squared: Any, inverse: Any) -> Any:
    """Length of a quarter turn, where all frequencies are nearly equal; 0 where they are not.

    Args:
        squared: mean of the squared frequencies, a float or a scalar array.
        inverse: mean of their inverses.

    Example:
        >>> round(quarter_turn(1.0, 1.0), 3), round(quarter_turn(4.0, 0.25), 3), quarter_turn(2.0, 2.0)
        (1.571, 0.785, 0.0)
    """
    return (squared * inverse <= MOST_SPREAD) * (math.pi / 2) * (inverse / squared) ** 0.25
