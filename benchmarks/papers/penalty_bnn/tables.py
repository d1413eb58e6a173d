"""The tables of the penalty method's experiments."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.common.markdown import figure, results_of, table

OF_CHAINS = {"acceptance": ("accept_prob", ".2f"), "χ²": ("chi2", ".2f")}
OF_BANDS = {"spread": ("mean_sd", ".3f"), "ratio": ("sd_ratio", ".3f"), "error of mean": ("mean_error", ".3f")}
COVERAGE = {"coverage": ("coverage_90", ".2f"), "ESS": ("ess", ".0f")}
SECONDS = {"s": ("seconds", ".0f")}
CONTROL = "n = 10, no penalty, N/n"
REGRESSION = {
    "all rows": "all rows, SymmetricSplitHMC, 2,000 draws",
    CONTROL: "n = 10, K = 2, δ scaled by N/n, no penalty",
}
SAMPLERS = {"SGLD, large step": "SGLD", "SGLD, small step": "SGLD"}


def linear() -> str:
    """By target and batch size, with and without the penalty."""
    header = ["target", "n", "acceptance with", "without", "χ²", "ratio with", "without"]
    by_rule = {(x["target"], x["n"], x["rule"]): x for x in results_of("penalty_bnn_linear")}
    rows = []
    for target, n in dict.fromkeys((target, n) for target, n, _ in by_rule):
        found, control = (by_rule[target, n, f"{rule} penalty"] for rule in ("with", "without"))
        acceptances, ratios = ([x["accept_prob"] for x in (found, control)], [x["sd_ratio"] for x in (found, control)])
        cells = [*(f"{x:.2f}" for x in acceptances), f"{found['chi2']:.2f}", *(f"{x:.3f}" for x in ratios)]
        rows.append([target, str(n), *cells])
    return table(header, rows)


def regression() -> str:
    """By batch size."""
    columns = OF_CHAINS | OF_BANDS | COVERAGE
    rows = []
    for found in results_of("penalty_bnn_regression"):
        cells = _cells(found, columns)
        if found["name"] == CONTROL:
            cells[1] = "not used"
        read = f"{found['rows_touched']:,.0f}" if "rows_touched" in found else "all, in every gradient"
        rows.append([REGRESSION.get(found["name"], found["name"]), *cells, read, *_cells(found, SECONDS)])
    return table(["", *columns, "rows read", "s"], rows)


def reliability_of_regression() -> str:
    """Calibration by batch size."""
    columns = {
        "calibration error": ("calibration_error", ".3f"),
        "coverage": ("coverage_90", ".2f"),
        "log density": ("log_density", ".2f"),
    }
    names = {"all rows": "all rows, exact"}
    return _by_name(results_of("penalty_bnn_reliability")["regression"], columns, names)


def reliability_of_mnist() -> str:
    """Calibration by batch size."""
    columns = {
        "calibration error": ("calibration_error", ".3f"),
        "accuracy": ("accuracy", ".3f"),
        "confidence": ("confidence", ".3f"),
        "log loss": ("log_loss", ".3f"),
    }
    ess = {"ESS": ("ess", ".0f")}
    return _by_name(results_of("penalty_bnn_reliability")["mnist"], columns | OF_CHAINS | ess | SECONDS)


def samplers() -> str:
    """SGLD, tempering and PBNN."""
    rows = []
    for found in results_of("penalty_bnn_appendix"):
        step = f"{found['step_size']:.1e}".replace("e-0", "e-") if found["name"] in SAMPLERS else ""
        bands = OF_BANDS | COVERAGE | SECONDS
        columns = {name: bands[name] for name in ("ratio", "error of mean", "spread", "coverage", "ESS", "s")}
        rows.append([SAMPLERS.get(found["name"], found["name"]), step, *_cells(found, columns)])
    return table(["", "step", "ratio", "error of mean", "spread", "coverage", "ESS", "s"], rows)


def acceptance() -> str:
    """By batch size, number of batches and control variate."""
    header = ["n", "K", "Kn", "none: acceptance", "predicted", "χ²"]
    header += [f"{name}: acceptance" if place == 0 else "χ²" for name in ("taylor1", "taylor2") for place in range(2)]
    pairs = itertools.groupby(results_of("penalty_bnn_acceptance"), lambda x: (x["n"], x["K"]))
    by_pair = {pair: {x["control_variate"]: x for x in found} for pair, found in pairs}
    rows = []
    for (n, k), found in sorted(by_pair.items(), key=lambda x: (x[0][0] * x[0][1], x[0][1])):
        plain = found[None]
        cells = [f"{plain['accept_prob']:.3f}", f"{plain['predicted']:.3f}", f"{plain['chi2']:.3g}"]
        for name in ("taylor1", "taylor2"):
            cells += [f"{found[name]['accept_prob']:.3f}", f"{found[name]['chi2']:.2g}".replace("e-0", "e-")]
        rows.append([str(n), str(k), f"{n * k:,}", *cells])
    return table(header, rows)


def _by_name(
    results: Sequence[dict[str, Any]], columns: Mapping[str, tuple[str, str]], names: Mapping[str, str] | None = None
) -> str:
    rows = ([(names or {}).get(found["name"], found["name"]), *_cells(found, columns)] for found in results)
    return table(["", *columns], rows)


def _cells(found: dict[str, Any], columns: Mapping[str, tuple[str, str]]) -> list[str]:
    return [figure(found.get(key), form) for key, form in columns.values()]


TABLES = {
    "linear": linear,
    "regression": regression,
    "reliability, regression": reliability_of_regression,
    "reliability, MNIST": reliability_of_mnist,
    "samplers": samplers,
    "acceptance": acceptance,
}
