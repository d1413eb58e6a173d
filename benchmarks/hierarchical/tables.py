"""The table of S3HMC and block Gibbs against NUTS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.common.markdown import results_of, settings_of, significant, table

CHAINS = 4
FILES = ("hierarchical", "hierarchical_network")
TARGETS = {
    "few rows": "linear, 50 weights, 20 rows",
    "many rows": "linear, 50 weights, 2,000 rows",
    "effects": "40 groups of 4 rows, noise 2",
    "network": "1-8-1 tanh, 50 rows",
}
HEADER = [
    "target",
    "method",
    "ESS, % of draws",
    "ESS/s",
    "with warm-up",
    "with all",
    "ESS per 1,000 gradients",
    "gradients a draw",
    "step",
    "divergent, %",
    "log σ",
]


def spread(values: np.ndarray) -> str:
    """Median, least and most."""
    return f"{significant(np.median(values))} [{significant(values.min())}, {significant(values.max())}]"


def log_scale(runs: list[dict[str, Any]]) -> str:
    """Mean of log σ and its standard error, of the precision that is known worst."""
    of_precisions = [np.array([run["log_scales"][name] for run in runs]) for name in runs[0]["log_scales"]]
    worst = max(of_precisions, key=lambda x: x[:, 1].mean())
    return f"{worst[:, 0].mean():.3f} ± {np.hypot.reduce(worst[:, 1]) / len(worst):.3f}"


def hierarchical() -> str:
    """By target and method."""
    return table(HEADER, _rows())


def _rows() -> Iterator[list[str]]:
    for file in FILES:
        num_draws = CHAINS * settings_of(file)["draws"]
        for target, methods in results_of(file).items():
            for place, (method, result) in enumerate(methods.items()):
                yield [TARGETS[target] if place == 0 else "", method, *_figures(result["runs"], num_draws)]


def _figures(runs: list[dict[str, Any]], num_draws: int) -> list[str]:
    column = {name: np.array([run[name] for run in runs]) for name in runs[0] if name != "log_scales"}
    median = {name: float(np.median(values)) for name, values in column.items()}
    return [
        f"{100 * median['ess'] / num_draws:.1f}",
        spread(column["per_second"]),
        significant(median["with_warmup"]),
        significant(median["with_all"]),
        spread(column["per_gradient"]),
        f"{median['grads']:.1f}",
        f"{median['step_size']:.2g}",
        f"{median['diverging']:.2f}",
        log_scale(runs),
    ]


TABLES = {"S3HMC and others": hierarchical}
