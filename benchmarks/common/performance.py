"""Writes the tables and figures of ``docs/performance.md`` from the results of benchmarks.

``python -m benchmarks.common.performance``: each table stands between ``<!-- begin NAME -->`` and
``<!-- end NAME -->``, figures are SVG in ``docs/figures``. What was not run is said to be not run yet; no number is
written by hand.
"""

from __future__ import annotations

import json
import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.figures import draw_arms, draw_ratios
from benchmarks.efficiency.records import Results, interval, ratios, read, values

ROOT = Path(__file__).parents[2]
RESULTS, PAGE, FIGURES = ROOT / "benchmarks" / "results", ROOT / "docs" / "performance.md", ROOT / "docs" / "figures"
TARGETS = ("tall_20k", "tall_1m", "covtype", "mnist_pooled")
OURS, NUTS, NUTS_GIVEN = "SplitHMC", "host NUTS", "host NUTS, given metric"
NOT_RUN = "not run yet"
METRIC_ARMS = {"auto": '`SplitNUTS(metric="auto")`', "default": "`SplitHMC`", "host": "host NUTS"}
METRIC_RATIOS = {"ratios": METRIC_ARMS["auto"], "default_ratios": METRIC_ARMS["default"]}
FIELDS = {
    "ess_per_pass": "ESS a data pass",
    "ess_per_gradient": "ESS a gradient",
    "ess_per_second": "ESS/s",
    "passes_per_draw": "passes a draw",
    "warmup_passes": "passes of a warm-up",
    "reference_passes": "passes of a reference",
    "accept_prob": "acceptance",
}


def table(header: tuple[str, ...], lines: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in (list(header), ["---"] * len(header), *lines))


def of_target(results: Results, target: str) -> str:
    """Facts of a target, and its arms."""
    if target not in results:
        return NOT_RUN.capitalize() + "."
    entry = results[target]
    facts = [
        f"{entry['source']}; N = {entry['rows']:,}, D = {entry['parameters']:,}, M = {entry['subsets']}",
        f"a forward pass is {entry['forward_share']:.2f} of a gradient",
    ]
    if "condition" in entry:
        whole, scaled = entry["condition"]
        facts.append(
            f"condition number of the covariance at the mode {whole:,.3g}, in units of its diagonal {scaled:,.3g}"
        )
    lines = []
    for name, arm in entry["arms"].items():
        sizes = arm["settings"]
        seeds = f"{len(arm['seeds'])} seed{'s' if len(arm['seeds']) > 1 else ''}"
        run = f"{sizes['num_chains']} × {sizes['num_samples']:,} after {sizes['num_warmup']:,}, {seeds}"
        lines.append([name, *(interval(values(results, target, name, field)) for field in FIELDS), run])
    return "; ".join(facts) + ".\n\n" + table(("arm", *FIELDS.values(), "draws, warm-up, seeds"), lines)


def best(results: Results, target: str, pattern: str, field: str) -> str:
    """The arm of a pattern that has most by the median, or the pattern where none was run."""
    found = {arm: values(results, target, arm, field) for arm in results.get(target, {}).get("arms", {})}
    found = {arm: float(np.median(x)) for arm, x in found.items() if fnmatch(arm, pattern) and len(x)}
    return max(found, key=lambda arm: found[arm]) if found else pattern


def of_metric(found: dict[str, Any]) -> str:
    """Ratios by target, and over targets."""
    if not found:
        return NOT_RUN.capitalize() + "."
    lines = []
    for name, runs in found.items():
        sizes = [interval(_each(runs, arm, "ess_per_gradient")) for arm in METRIC_ARMS]
        ratios = [interval(np.array(runs.get(kind, []))) for kind in METRIC_RATIOS]
        warmups = [_median(_each(runs, arm, "warmup_gradients")) for arm in METRIC_ARMS]
        lines.append([name, *sizes, *ratios, *warmups, str(len(runs["ratios"]))])
    arms, compared = METRIC_ARMS.values(), METRIC_RATIOS.values()
    header = ("target", *arms, *(f"{arm} over the host" for arm in compared), *(f"warm-up of {arm}" for arm in arms))
    return table((*header, "seeds"), lines)


def _each(runs: dict[str, Any], arm: str, field: str) -> np.ndarray:
    """A figure of each run of an arm; empty where it was not run."""
    return np.array([run[field] for run in runs.get(arm, [])])


def _median(numbers: np.ndarray) -> str:
    return f"{np.median(numbers):,.0f}" if len(numbers) else NOT_RUN


def of_verdict(found: dict[str, Any]) -> str:
    """What was decided on each network."""
    lines = [
        [
            name,
            f"{entry['parameters']:,}",
            ", ".join(str(run["order"]) for run in entry["seeds"]),
            ", ".join("turning" if run["harmonic"] else "straight" for run in entry["seeds"]),
            f"{max(run['difference'] for run in entry['seeds']):.3g}",
            f"{min(run['difference_of_control'] for run in entry['seeds']):.3g}",
            interval(np.array([run["warmup_ratio"] for run in entry["seeds"]])),
        ]
        for name, entry in found.items()
    ]
    header = ("network", "weights", "order by seed", "drifts", "largest difference of draws", "least of the control")
    header += ("warm-up",)
    return table(header, lines) if lines else NOT_RUN.capitalize() + "."


def asked(
    results: Results,
    one_core: Results,
    metric: dict[str, Any],
    verdicts: dict[str, Any],
    memory: list[dict[str, Any]],
    small_network: dict[str, dict[str, float]],
) -> str:
    """What was asked for, and what was seen."""
    lines = []
    for target, nuts in (("tall_20k", NUTS), ("tall_1m", NUTS_GIVEN)):
        lines.append([f"`{target}`, ESS a data pass", "≥ 0.6", interval(values(results, target, OURS, "ess_per_pass"))])
        for field, text in (("ess_per_pass", "data pass"), ("ess_per_second", "second")):
            found = interval(ratios(results, target, OURS, nuts, field))
            lines.append([f"`{target}`, over {nuts}, a {text}", "≥ 6", found])
    found = interval(ratios(one_core, "tall_20k", OURS, NUTS, "ess_per_second"))
    lines.insert(3, [f"`tall_20k` on one core, over {NUTS}, a second", "≥ 6", found])
    found = interval(ratios(results, "covtype", OURS, NUTS_GIVEN, "ess_per_second"))
    lines.append([f"`covtype`, over {NUTS_GIVEN}, a second", "≥ 10", found])
    goals = {"median": "≥ 3", "worst": "≥ 0.85"}
    for kind, arm in METRIC_RATIOS.items():
        number = sum(kind in runs for runs in metric.values())
        for name, cell in _over_targets(metric, kind).items():
            lines.append([f"{arm} over host NUTS, a gradient, {name} of {number} targets", goals[name], cell])
    for pattern, goal in (("hamiltorch*", "≥ 10"), ("host HMC*", "≥ 1.5")):
        rival = best(results, "mnist_pooled", pattern, "ess_per_second")
        found = interval(ratios(results, "mnist_pooled", OURS, rival, "ess_per_second"))
        lines.append([f"`mnist_pooled`, over {rival.rstrip('*')}, a second", goal, found])
    for framework, goal in (("numpyro", "≥ 20"), ("pyro", "≥ 5")):
        name = "NumPyro" if framework == "numpyro" else "Pyro"
        found = small_network.get(f"{framework}: hamiltorch over ours")
        cell = "{median:.3g} ({quartile_1:.3g} to {quartile_3:.3g})".format(**found) if found else NOT_RUN
        lines.append([f"1-D network, M = 4, hamiltorch's symmetric splitting over {name}'s, in seconds", goal, cell])
    lines.append(
        [
            "three networks: warm-up turns centring and harmonic drifts off, draws are those without them, and it "
            "takes at most 1.05 times as long",
            "yes",
            _verdict(verdicts),
        ]
    )
    centred = [f"{part['ratio']:.3f}" for part in memory if "centred" in part["what"]]
    lines.append(["memory of a gradient at M = 10, centred, over M = 1", "≤ 0.15", centred[0] if centred else NOT_RUN])
    return table(("what", "asked", "seen"), lines)


def _over_targets(metric: dict[str, Any], kind: str) -> dict[str, str]:
    from benchmarks.gradient_metric.__main__ import summary

    found = summary(metric, kind)
    if not found:
        return {"median": NOT_RUN, "worst": NOT_RUN}
    return {name: f"{x[0]:.3g} ({x[1]:.3g} to {x[2]:.3g})" for name, x in found.items()}


def _verdict(found: dict[str, Any]) -> str:
    if len(found) < 3:
        return NOT_RUN
    runs = [run for entry in found.values() for run in entry["seeds"]]
    is_off = all(run["order"] == 0 and not run["harmonic"] and run["difference"] == 0 for run in runs)
    dearest = max(float(np.median([run["warmup_ratio"] for run in entry["seeds"]])) for entry in found.values())
    return f"{'yes' if is_off and dearest <= 1.05 else 'no'} (warm-up at most {dearest:.3f})"


def _results(name: str, empty: Any) -> Any:
    path = RESULTS / name
    return json.loads(path.read_text())["results"] if path.exists() else empty


def tables() -> dict[str, str]:
    """Every table of the page, by name."""
    results, metric = read(RESULTS / "efficiency.json"), _results("gradient_metric_numpyro.json", {})
    verdicts, memory = _results("network_verdict.json", {}), _results("compile_and_memory_numpyro.json", [])
    return {
        "asked": asked(
            results,
            read(RESULTS / "efficiency_one_core.json"),
            metric,
            verdicts,
            memory,
            _results("small_network.json", {}).get("ratios", {}),
        ),
        **{target: of_target(results, target) for target in TARGETS},
        "gradient_metric": of_metric(metric),
        "network_verdict": of_verdict(verdicts),
    }


def with_tables(page: str, made: dict[str, str]) -> str:
    """The page with these tables in their places.

    Raises:
        ValueError: where a table has no place.
    """
    for name, text in made.items():
        place = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        page, number = place.subn(lambda found, text=text: f"{found[1]}\n{text}\n\n{found[2]}", page)
        if number != 1:
            raise ValueError(f"the page must have one place for the table {name!r}, got {number}")
    return page


def main() -> None:
    """Write the page and its figures."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "performance"
    PAGE.write_text(with_tables(PAGE.read_text(), tables()))
    results = read(RESULTS / "efficiency.json")
    for target in TARGETS:
        draw_arms(results, target, FIGURES / f"{target}.svg")
    metric = _results("gradient_metric_numpyro.json", {})
    by_arm = {
        arm.replace("`", ""): {name: runs[kind] for name, runs in metric.items() if kind in runs}
        for kind, arm in METRIC_RATIOS.items()
    }
    draw_ratios(by_arm, FIGURES / "gradient_metric.svg")


if __name__ == "__main__":
    main()
