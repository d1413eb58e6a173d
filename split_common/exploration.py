r"""Which iterations of warm-up move by trees, for kernels whose trajectories have a length that is set beforehand.

Before a metric has been estimated, no length is suitable: without the scales of the posterior, a length may be much too
short, or take thousands of steps. A tree with the same schedule ends where its path turns back, whatever the scales, so
warm-up moves by trees until the last metric has been estimated. These transitions need not be exact, because no draw is
taken from warm-up.

If the user gives no length, all of warm-up moves by trees, and the trees of the last window, which have the metric of
the draws, show how long trajectories should be. After warm-up the length of each trajectory is drawn uniformly between
0 and the mean length of those trees (over the states they visited, refused ones included). That mean is fixed by
warm-up, so it does not depend on the state. A uniform length has no period, and on average it is half that of a tree,
so a draw costs half as many gradients as in NUTS.

Where the metric fits well, shorter trajectories suffice. With draws z, gradients g and a metric X, let
:math:`a = E[g^\top X g] / c` and :math:`b = E[(z - \mu)^\top X^{-1} (z - \mu)] / c`, with
:math:`c = E[g^\top (z - \mu)]`. On a normal target these are the mean of the squared frequencies of its oscillations
and the mean of their inverses, each weighted by how far the draws spread along it. So :math:`ab \geq 1`, with equality
only if all frequencies are equal, whichever draws there are. After a quarter of a period a draw and its square are
nearly independent of the starting point. So where gradients are known (:mod:`split_common.gradient_metric`), the last
window, which the metric was not estimated from, measures both. If ab is at most :data:`MOST_SPREAD`, lengths are drawn
between the multiples :data:`QUARTERS` of a quarter period instead. They do not depend on the state either.

Reference:
    Wu, Stoehr and Robert (2019), Faster Hamiltonian Monte Carlo by learning leapfrog scale, arXiv 1810.04449.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

MAX_EXPLORATION_DEPTH = 10  # doublings of a tree of warm-up, as many as the hosts' NUTS makes by default
QUARTERS = (0.75, 1.25)  # shortest and longest length, in quarter turns: too narrow for equal periods to be felt
MOST_SPREAD = 1.25  # largest ab: mean of the squared frequencies times that of their inverses
FIRST_LENGTH = math.pi  # longest length of trajectories before one is learned: half a turn in a metric that fits


class Exploration(NamedTuple):
    """Which iterations move by trees.

    Attributes:
        num_trees: number of iterations that move by trees, the first ones of warm-up.
        num_before: how many of them come before the metric of the draws was estimated; lengths are learned from the
            rest.

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
        """The exploration without the trees that lengths are learned from."""
        return self._replace(num_trees=min(self))

    @classmethod
    def of(cls, window_ends: Sequence[int], num_warmup: int, learns_length: bool, adapts_metric: bool) -> Exploration:
        """Exploration of a warm-up.

        Args:
            window_ends: number of iterations that have been made at the end of each of the host's windows.
            num_warmup: number of warm-up iterations.
            learns_length: whether the length of trajectories is learned from trees.
            adapts_metric: whether the metric adapts in the windows between the first and the last.
        """
        num_before = window_ends[-2] if len(window_ends) >= 3 else 0
        return cls(num_warmup if learns_length else num_before * adapts_metric, num_before)


def quarter_turn(squared: Any, inverse: Any) -> Any:
    """Length of a quarter period, if all frequencies are nearly equal; 0 if they are not.

    Args:
        squared: mean of the squared frequencies, a float or a scalar array.
        inverse: mean of their inverses.

    Example:
        >>> round(quarter_turn(1.0, 1.0), 3), round(quarter_turn(4.0, 0.25), 3), quarter_turn(2.0, 2.0)
        (1.571, 0.785, 0.0)
    """
    return (squared * inverse <= MOST_SPREAD) * (math.pi / 2) * (inverse / squared) ** 0.25
