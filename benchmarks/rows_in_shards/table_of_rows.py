"""The rows of the benchmark, and those that one of several processes holds."""

from __future__ import annotations

import numpy as np

COLUMNS = 50


def rows_of(num_rows: int, place: int, processes: int) -> tuple[np.ndarray, np.ndarray]:
    """Predictors and responses of one process of several, in float32."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((num_rows, COLUMNS), np.float32)
    y = (rng.random(num_rows) < 1 / (1 + np.exp(-X[:, 0]))).astype(np.float32)
    ends = [num_rows * i // processes for i in range(processes + 1)]
    own = slice(*ends[place : place + 2])
    return X[own], y[own]
