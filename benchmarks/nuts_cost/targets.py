"""What ``benchmarks.nuts_cost`` samples: the data of four targets, the same in both frameworks."""

from __future__ import annotations

import numpy as np

from benchmarks.common.labelled import tall_table

TARGETS = ("logistic", "tall", "hierarchical", "normal")
NUM_GROUPS = 20


def data(target: str, quick: bool = False) -> tuple[np.ndarray, ...]:
    """The model's arguments.

    Args:
        target: "logistic", 10,000 rows and 20 coefficients; "tall", the same with 100,003 rows; "hierarchical", 2,000
            rows in 20 groups, means non-centred; "normal", 50 means of 100 rows.
        quick: a tenth of the rows.
    """
    rng = np.random.default_rng(0)
    rows = {"logistic": 10_000, "tall": 100_003, "hierarchical": 2_000, "normal": 100}[target] // (10 if quick else 1)
    if target in ("logistic", "tall"):
        table = tall_table(rows)
        return table.rows, table.labels.astype(np.float32)
    if target == "hierarchical":
        group = np.arange(rows) % NUM_GROUPS
        y = 1 + rng.normal(size=NUM_GROUPS)[group] + rng.normal(size=rows)
        return group, y.astype(np.float32)
    return ((rng.normal(size=(rows, 50)) * np.logspace(-1, 1, 50)).astype(np.float32),)
