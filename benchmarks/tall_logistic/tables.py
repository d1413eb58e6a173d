"""The tables of PenaltyMH against NUTS and HMCECS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.common.markdown import NO_FIGURE, results_of, significant, table

HEADER = (
    "rows",
    "method",
    "ESS/s",
    "with set-up",
    "set-up, s",
    "µs an iteration",
    "ESS per draw: worst, median",
    "draws",
    "acceptance",
    "steps",
    "rows an iteration",
    "χ²",
    "χ² > K/4, %",
)


def cells(num_rows: int | str, name: str, figures: dict[str, Any]) -> list[str]:
    """One line of the table."""
    median, least, most = figures["microseconds"]
    noise = [f"{figures['chi2']:.2g}", f"{100 * figures['above']:.2g}"] if "chi2" in figures else [NO_FIGURE, NO_FIGURE]
    return [
        f"{int(num_rows):,}",
        name,
        significant(figures["ess_per_second"]),
        significant(figures["ess_per_second_with_setup"]),
        f"{figures['setup_seconds']:.1f}",
        f"{median:,.3g} [{least:,.3g}, {most:,.3g}]" if most < 1000 else f"{median:,.0f} [{least:,.0f}, {most:,.0f}]",
        f"{figures['ess_per_draw']['worst']:.2g}, {figures['ess_per_draw']['median']:.2g}",
        f"{figures['draws']:,}",
        f"{figures['accept_prob']:.2f}",
        f"{figures['num_steps']:.1f}",
        f"{figures['rows']:,.0f}",
        *noise,
    ]


def table_of(results: Mapping[Any, dict[str, Any]]) -> str:
    """By number of rows and method."""
    return table(HEADER, (cells(n, name, found) for n, methods in results.items() for name, found in methods.items()))


def independent() -> str:
    """Independent inputs."""
    return table_of(results_of("tall_logistic"))


def hard() -> str:
    """Correlated inputs, heavy tails, rare positives."""
    return table_of(results_of("tall_logistic_hard"))


TABLES = {"independent inputs": independent, "hard": hard}
