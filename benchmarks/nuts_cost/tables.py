"""The table of SplitNUTS at M = 1 against the host's NUTS."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.common.markdown import results_of, table

TARGETS = {
    "logistic": "logistic regression, 10,000 × 20",
    "tall": "the same, 100,003 × 20",
    "hierarchical": "hierarchical, 2,000 rows",
    "normal": "50 means of 100 rows",
}
HEADER = [
    "target",
    "NumPyro, µs per gradient, host; ours",
    "ratio [quartiles]",
    "ESS per gradient, ratio",
    "Pyro, µs",
    "ratio",
    "ESS, ratio",
]


def times(result: dict[str, Any]) -> str:
    """Microseconds per gradient of the host and of ours."""
    host, ours = (
        f"{value:,.1f}" if value < 20 else f"{value:,.0f}" for value in (result["host_us"], result["split_us"])
    )
    return f"{host}; {ours}"


def time_ratio(result: dict[str, Any]) -> str:
    """Ours over the host's, median and quartiles over rounds."""
    return "{median:.2f} [{quartile_1:.2f}-{quartile_3:.2f}]".format(**result["time_ratio"])


def efficiency_ratio(result: dict[str, Any]) -> str:
    """Effective draws per gradient, ours over the host's, and the standard error."""
    ratios = np.array(result["split_ess"]) / np.mean(result["host_ess"])
    spread = np.hypot(*(np.std(result[n], ddof=1) / np.mean(result[n]) for n in ("host_ess", "split_ess")))
    return f"{ratios.mean():.2f} ± {spread / np.sqrt(len(ratios)):.2f}"


def cost() -> str:
    """By target."""
    numpyro = {found["target"]: found for found in results_of("nuts_cost_numpyro")}
    pyro = {found["target"]: found for name in ("", "_tall") for found in results_of(f"nuts_cost_pyro{name}")}
    return table(
        HEADER,
        (
            [about]
            + [
                cell
                for found in (numpyro[name], pyro[name])
                for cell in (times(found), time_ratio(found), efficiency_ratio(found))
            ]
            for name, about in TARGETS.items()
        ),
    )


TABLES = {"cost": cost}
