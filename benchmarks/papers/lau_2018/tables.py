"""Tables 4.2, 4.3 and 4.13, the thesis's figures beside those found."""

from __future__ import annotations

from typing import Any

from benchmarks.common.markdown import figure, results_of, settings_of, table
from benchmarks.papers.lau_2018.ess import counting_lag_zero

PAPER_DRAWS = 4000
ERROR = ["test error % thesis", "ours", "1 draw"]
COST = ["steps", "acceptance"]


def thresholds() -> str:
    """Table 4.2."""
    name = "lau_2018_xhmc_thresholds"
    header = ["", *ERROR, *_ess_header("min", "median"), *COST, "δ", "s"]
    rows = (
        [*_figures(found, name), figure(found.get("threshold"), ".3f"), _seconds(found)] for found in results_of(name)
    )
    return table(header, rows)


def trajectories() -> str:
    """Table 4.13."""
    name = "lau_2018_trajectories"
    header = ["", *ERROR, *_ess_header("min", "median"), *COST, "s"]
    return table(header, ([*_figures(found, name), _seconds(found)] for found in results_of(name)))


def gibbs_and_joint() -> str:
    """Table 4.3."""
    name = "lau_2018_gibbs_joint"
    header = ["", *ERROR, *_ess_header("σ²", "min", "median"), *COST, "σ² by chain", "s"]
    rows = (
        [*_figures(found, name), ", ".join(f"{x:.0f}" for x in found["variance_by_chain"]), _seconds(found)]
        for found in results_of(name)
    )
    return table(header, rows)


def _ess_header(*names: str) -> list[str]:
    return [
        cell for name in names for cell in (f"{name} ESS thesis" if name != "σ²" else "σ² ESS thesis", "ours", "lag 0")
    ]


def _figures(found: dict[str, Any], name: str) -> list[str]:
    settings, paper = settings_of(name), found["paper"]
    num_draws = settings["chains"] * settings["draws"]
    sizes = [key for key in ("variance_ess", "min_ess", "median_ess") if key in found]
    return [
        found["name"],
        figure(paper and paper["test_error"], ".1f"),
        f"{found['test_error']:.1f}",
        f"{found['test_error_single_draw']:.1f}",
        *(cell for key in sizes for cell in _ess(paper and paper[key], found[key], num_draws)),
        f"{found['num_steps']:.0f}",
        f"{found['accept_prob']:.2f}",
    ]


def _ess(theirs: float | None, ours: float, num_draws: int) -> list[str]:
    """In % of the draws: the thesis's, and in brackets its number; ours; and ours with lag 0."""
    with_lag_zero = counting_lag_zero(ours, num_draws)
    paper = "" if theirs is None else f"{_percent(theirs)} ({theirs:g})"
    return [paper, f"{100 * ours / num_draws:.1f}", f"{100 * with_lag_zero / num_draws:.1f}"]


def _percent(size: float) -> str:
    share = 100 * size / PAPER_DRAWS
    return f"{share:.1f}" if share >= 1 else f"{share:.2f}"


def _seconds(found: dict[str, Any]) -> str:
    return f"{found['seconds']:.0f}"


TABLES = {"4.2": thresholds, "4.13": trajectories, "4.3": gibbs_and_joint}
