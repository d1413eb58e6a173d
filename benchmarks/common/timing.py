"""Timing that survives a shared machine: what is compared takes turns in one process."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np


class Spread(NamedTuple):
    """Where repeated measurements lie."""

    minimum: float
    quartile_1: float
    median: float
    quartile_3: float

    @classmethod
    def of(cls, values: Sequence[float] | np.ndarray) -> Spread:
        """Minimum, quartiles and median of ``values``."""
        return cls(*(float(q) for q in np.quantile(values, [0.0, 0.25, 0.5, 0.75])))


def interleaved(
    actions: Mapping[str, Callable[[], object]],
    repeats: int,
    warmup: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, np.ndarray]:
    """Seconds that each action takes, one after the other in every round.

    A slow spell of the machine then falls on all of them, and a ratio within one round stays fair.

    Args:
        actions: what to time, by name; each returns when its work is done.
        repeats: rounds that are kept.
        warmup: rounds before them that are not.
        clock: seconds; ``time.process_time`` counts the processor's, of all threads.

    Returns:
        For each name the seconds of each round, shape (repeats,).
    """
    seconds = {name: np.zeros(repeats) for name in actions}
    gc.collect()
    for round_ in range(-warmup, repeats):
        for name, action in actions.items():
            start = clock()
            action()
            if round_ >= 0:
                seconds[name][round_] = clock() - start
    return seconds
