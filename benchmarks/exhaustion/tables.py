"""The table of XHMC against NUTS."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.common.markdown import NO_FIGURE, results_of, table

CRITERIA = ("per_length", "mean", "boundary")
THRESHOLDS = (0.01, 0.05, 0.1, 0.2, 1.0, "adapt")


def efficiency(result: dict[str, Any]) -> str:
    """Mean and standard error over runs; no figure where a run had too few effective draws."""
    values = np.array([run["efficiency"] for run in result["runs"]], float)
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return NO_FIGURE if np.isnan(values).any() else f"{values.mean():.3g} ± {error:.2g}"


def exhaustion() -> str:
    """By target, criterion and threshold."""
    return table(["target, D", "method", *map(str, THRESHOLDS)], _rows())


def _rows() -> Iterator[list[str]]:
    by_target = itertools.groupby(results_of("exhaustion"), lambda found: (found["target"], found["dimension"]))
    for (target, dimension), results in by_target:
        cells = {(found["method"], found["threshold"]): efficiency(found) for found in results}
        yield [f"{target}, {dimension}", f"NUTS: {cells['NUTS', None]}", *[""] * len(THRESHOLDS)]
        for criterion in CRITERIA:
            yield ["", criterion, *(cells[f"XHMC {criterion}", threshold] for threshold in THRESHOLDS)]


TABLES = {"efficiency": exhaustion}
