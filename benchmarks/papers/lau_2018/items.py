"""Items of Lau (2018): what the thesis has, and what was found.

Test errors have the standard error of 500 images. Effective sizes are in % of the draws, with lag 0 counted as the
thesis's own figures seem to have it (see the README beside this file).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.papers.findings import Comparison, Finding, Item, Run, close, number, share_error
from benchmarks.papers.lau_2018.covariance import PAPER_SECONDS
from benchmarks.papers.lau_2018.ess import counting_lag_zero
from benchmarks.papers.lau_2018.sghmc_grid import PAPER, RATES, STEPS
from benchmarks.papers.lau_2018.waic import PAPER_WAIC

SCRIPTS = "benchmarks.papers.lau_2018"
PAPER_DRAWS, IMAGES = 4_000, 500
ERROR_SENTENCE = (
    "Test errors are about half of the thesis's in every row, by scalings of the "
    "pixels that it does not give; what it compares are the rows."
)


def size_of(run: Run) -> str:
    """Length of the chains beside the thesis's."""
    settings = run.settings
    return (
        f"{settings['chains']} chains of {settings['draws']} draws after "
        f"{settings['warmup']}, of 4 of 1,000 after 1,000; "
        f"a share of {settings['chains'] * settings['draws'] / PAPER_DRAWS:.3g} of the draws"
    )


def is_full(run: Run) -> bool:
    """Whether the chains have the thesis's length."""
    return run.settings["chains"] * run.settings["draws"] >= PAPER_DRAWS


def percent(run: Run, row: dict[str, Any], key: str) -> float:
    """An effective size in % of the draws, lag 0 counted."""
    draws = run.settings["chains"] * run.settings["draws"]
    return float(100 * counting_lag_zero(row[key], draws) / draws)


def of_row(run: Run, row: dict[str, Any]) -> Comparison:
    """A row of a table: error, least and median effective size."""
    paper = row["paper"]
    sizes = [key for key in ("variance_ess", "min_ess", "median_ess") if key in row]
    theirs = "–" if paper is None else f"error {paper['test_error']}"
    if paper is not None and np.isfinite(paper["min_ess"]):
        theirs += "; ESS " + ", ".join(f"{100 * paper[key] / PAPER_DRAWS:.1f}" for key in sizes)
    ours = f"error {number(row['test_error'], share_error(row['test_error'], IMAGES))}; ESS "
    ours += ", ".join(f"{percent(run, row, key):.1f}" for key in sizes)
    agrees = (
        None if paper is None else close(row["test_error"], share_error(row["test_error"], IMAGES), paper["test_error"])
    )
    return Comparison(row["name"] + (": σ², least and median ESS" if len(sizes) == 3 else ""), theirs, ours, agrees)


def named(run: Run) -> dict[str, dict[str, Any]]:
    """The rows of a run by name."""
    return {row["name"]: row for row in run.results}


def errors_differ(worse: dict[str, Any], better: dict[str, Any]) -> Comparison:
    """Whether one row predicts worse than another; they share the test images, so the error is an upper bound."""
    errors = [share_error(row["test_error"], IMAGES) for row in (worse, better)]
    difference, error = worse["test_error"] - better["test_error"], float(np.hypot(*errors))
    agrees = True if difference > 2 * error else False if difference < -2 * error else None
    return Comparison(
        f"{worse['name']} predicts worse than {better['name']}", "yes", f"by {number(difference, error)} %", agrees
    )


def of_table(
    name: str,
    script: str,
    claims: Callable[[Run], Sequence[Comparison]],
    sentence: str,
    rows: int | None = None,
    **more: Any,
) -> Finding:
    """A table whose rows are a run's, of so many as the thesis has."""
    run = Run(name)
    comparisons = [*claims(run), *(of_row(run, row) for row in run.results)]
    is_whole = rows is None or len(run.results) == rows
    size = size_of(run) if is_whole else f"{len(run.results)} of {rows} rows; {size_of(run)}"
    return Finding(comparisons, size, [run], sentence, is_full(run) and is_whole, command=f"{SCRIPTS}.{script}", **more)


def thresholds(run: Run) -> list[Comparison]:
    """XHMC beside GNUTS."""
    rows = named(run)
    sizes = {name: percent(run, row, "median_ess") for name, row in rows.items() if row["paper"]}
    steps = {name: row["num_steps"] for name, row in rows.items() if row["paper"]}
    low = ", ".join(f"{name} {size:.1f}" for name, size in sizes.items())
    small = min(sizes["XHMC 0.01"], sizes["XHMC 0.05"])
    cost = ", ".join(f"{name} {count:.0f}" for name, count in steps.items())
    return [
        Comparison("XHMC with δ ≤ 0.05 as efficient as GNUTS (median ESS %)", "yes", low, small > 0.9 * sizes["GNUTS"]),
        Comparison("δ does not matter up to 0.2", "yes", low, sizes["XHMC 0.2"] > 0.9 * sizes["GNUTS"]),
        Comparison("XHMC cheaper than GNUTS (steps a draw)", "yes", cost, steps["XHMC 0.1"] < 0.9 * steps["GNUTS"]),
    ]


def gibbs(run: Run) -> list[Comparison]:
    """The variance by each sampler."""
    rows = named(run)
    sizes = {
        name: percent(run, rows[name], "variance_ess")
        for name in ("Gibbs, step 0.01", "joint centred", "joint non-centred")
    }
    text = ", ".join(f"{name} {size:.1f}" for name, size in sizes.items())
    above = sizes["joint non-centred"] > 5 * max(sizes["Gibbs, step 0.01"], sizes["joint centred"])
    failing = rows["Gibbs, step 0.01"]
    return [
        Comparison("ESS of σ² is that of the non-centred model only", "yes", text, above),
        Comparison(
            "Gibbs sampling fails (error 88.4 %)",
            "yes",
            number(failing["test_error"], share_error(failing["test_error"], IMAGES)),
            False,
        ),
    ]


def trajectories(run: Run) -> list[Comparison]:
    """Windows and lengths."""
    rows = named(run)
    pairs = [
        (row, rows["windowed" + name.removeprefix("static")]) for name, row in rows.items() if name.startswith("static")
    ]
    gains = [percent(run, windowed, "median_ess") / percent(run, static, "median_ess") for static, windowed in pairs]
    dynamic = percent(run, rows["dynamic"], "median_ess")
    static = {name: percent(run, row, "median_ess") for name, row in rows.items() if name.startswith("static")}
    shortest = min(static, key=lambda name: static[name])
    text = ", ".join(f"{x:.2f}" for x in gains)
    return [
        Comparison("no gain by windows (ratios of median ESS)", "yes", text, bool(min(gains) < 1)),
        Comparison(
            "ESS does not depend on the length",
            "yes",
            f"{shortest} {static[shortest]:.1f} %, dynamic {dynamic:.1f} %",
            static[shortest] > 0.5 * dynamic,
        ),
    ]


def output_priors(run: Run) -> list[Comparison]:
    """Hierarchical priors and ARD."""
    rows = named(run)
    least = {name: percent(run, row, "min_ess") for name, row in rows.items()}
    divergent = {name: row["diverging"] for name, row in rows.items()}
    return [
        errors_differ(rows["HS"], rows["normal"]),
        errors_differ(rows["RHS"], rows["normal"]),
        errors_differ(rows["HS"], rows["HS ARD"]),
        Comparison(
            "the horseshoe without ARD mixes worst (least ESS %)",
            "yes",
            ", ".join(f"{name} {x:.1f}" for name, x in least.items()),
            min(least, key=lambda name: least[name]) == "HS",
        ),
        Comparison(
            "no divergences with the regularised horseshoe, some with the other",
            "yes",
            ", ".join(f"{name} {100 * divergent[name]:.1f} %" for name in ("RHS", "HS")),
            divergent["RHS"] == 0 < divergent["HS"],
        ),
    ]


def scaled(run: Run) -> list[Comparison]:
    """Scaled against unscaled priors."""
    rows = named(run)
    return [errors_differ(rows[f"{units} units, scaled"], rows[f"{units} units, N(0, 1)"]) for units in (35, 50, 65)]


def covariance(run: Run) -> list[Comparison]:
    """Dense, diagonal and unit metrics."""
    rows = named(run)
    found = []
    for prior in dict.fromkeys(name.split(",")[0] for name in rows):
        if f"{prior}, dense" in rows and f"{prior}, diagonal" in rows:
            dense, diagonal = (
                percent(run, rows[f"{prior}, {metric}"], "median_ess") for metric in ("dense", "diagonal")
            )
            text = f"median ESS {dense:.1f} %, {diagonal:.1f} % diagonal"
            found.append(Comparison(f"{prior}: a dense metric harms", "yes", text, dense < 0.5 * diagonal))
            seconds = [rows[f"{prior}, {metric}"]["seconds"] for metric in ("dense", "diagonal")]
            text = f"{seconds[0]:.0f} s, {seconds[1]:.0f} s"
            theirs = f"{PAPER_SECONDS[prior][0]:,} s, {PAPER_SECONDS[prior][1]:,} s"
            found.append(Comparison(f"{prior}: and takes longer", theirs, text, seconds[0] > seconds[1]))
    return found


def layers(run: Run) -> list[Comparison]:
    """Depth."""
    rows = named(run)
    return [errors_differ(rows["4 layers"], rows["2 layers"])] if {"4 layers", "2 layers"} <= set(rows) else []


def waic(run: Run) -> list[Comparison]:
    """What WAIC chooses."""
    rows = named(run)
    by_waic, by_error = (min(rows, key=lambda name: rows[name][key]) for key in ("waic", "test_error"))
    values = ", ".join(f"{name} {number(row['waic'], row['waic_se'])}" for name, row in rows.items())
    return [
        Comparison("WAIC", ", ".join(f"{x:.3g}" for x in PAPER_WAIC.values()), values, False),
        Comparison(
            "the least WAIC is not that of the least test error",
            "yes",
            f"WAIC: {by_waic}; error: {by_error}",
            by_waic != by_error,
        ),
    ]


WAIC_REASON = (
    "500 images of ten classes have a deviance of 2,303 for predictions no better than guessing, so 10⁴ is no WAIC "
    "by the formula that the thesis prints; by that formula it falls with the width, where the thesis's rises, and "
    "test errors do not differ."
)


def draw_errors(
    name: str, figure: Any, results: Callable[[Run], list[dict[str, Any]]] = lambda run: run.results
) -> None:
    """Test errors of a table, and of the thesis."""
    rows = results(Run(name))
    ax = figure.subplots()
    places = np.arange(len(rows))
    errors = [share_error(row["test_error"], IMAGES) for row in rows]
    ax.errorbar([row["test_error"] for row in rows], places, xerr=errors, fmt="o", capsize=3, label="ours")
    theirs = [(place, row["paper"]["test_error"]) for place, row in zip(places, rows, strict=True) if row["paper"]]
    ax.plot([error for _, error in theirs], [place for place, _ in theirs], "x", color="black", label="thesis")
    ax.set_yticks(places, [row["name"] for row in rows])
    ax.invert_yaxis()
    ax.set(xlabel="test error, %", xlim=(0, None))
    ax.legend()


def committees() -> Finding:
    """Committees of early-stopped networks."""
    run = Run("lau_2018_committees")
    comparisons = []
    for row in run.results["committees"]:
        error = row["test_error_se"] or share_error(row["test_error"], IMAGES)
        agrees = close(row["test_error"], float(np.hypot(error, share_error(row["test_error"], IMAGES))), row["paper"])
        ours = number(row["test_error"], error)
        comparisons.append(Comparison(f"committee of {row['members']}, error %", f"{row['paper']}", ours, agrees))
    network = run.results["network"]
    comparisons.append(
        Comparison(
            "BNN, XHMC with δ = 0.1, error %",
            "23.4",
            number(network["test_error"], share_error(network["test_error"], IMAGES)),
            False,
        )
    )
    first, last = run.results["committees"][0], run.results["committees"][-1]
    comparisons.append(
        Comparison(
            "larger committees err less",
            "yes",
            f"{first['test_error']:.1f} to {last['test_error']:.1f}",
            last["test_error"] < first["test_error"],
        )
    )
    sentence = (
        "Small committees err by far less than the thesis's 91 and 89 %, which is "
        "guessing: its networks start from weights that ours, by PyTorch's "
        "initialisation and Adam, do not need to be rescued from."
    )
    size = (
        f"committees of 2 to {last['members']} members, {run.settings['repeats']} committees of each "
        f"size drawn from {run.settings['pool']} networks; {size_of_network(run)}"
    )
    return Finding(comparisons, size, [run], sentence, command=f"{SCRIPTS}.committees")


def size_of_network(run: Run) -> str:
    """Length of the chains that the committees are compared with."""
    return f"the BNN's chains are those of table 4.2, {run.settings['network_draws']} draws of 4,000"


def sghmc(epsilon: float) -> Finding:
    """One of the four tables of SGHMC."""
    run = Run("lau_2018_sghmc_grid")
    ours = {(row["L"], row["eta"]): row for row in run.results}
    comparisons = []
    for i, steps in enumerate(STEPS):
        theirs = ", ".join("NA" if x is None else f"{x:.1f}" for x in PAPER[epsilon][i])
        found = [ours[steps, rate] for rate in RATES if (steps, rate) in ours]
        text = ", ".join("NA" if row["test_error"] is None else f"{row['test_error']:.1f}" for row in found)
        comparisons.append(Comparison(f"L = {steps}, η = 0.1 to 0.0001, error %", theirs, text))
    best = min((row for row in run.results if row["test_error"] is not None), key=lambda row: row["test_error"])
    nuts = named(Run("lau_2018_xhmc_thresholds"))["GNUTS"]["test_error"]
    errors = [share_error(error, IMAGES) for error in (best["test_error"], nuts)]
    is_similar = best["test_error"] < nuts + 2 * float(np.hypot(*errors))
    text = f"{number(best['test_error'], errors[0])} at L = {best['L']}, η = {best['eta']:g}; "
    text += f"GNUTS {number(nuts, errors[1])}"
    comparisons.append(Comparison("the best cell is as good as HMC", "yes", text, is_similar))
    spread = [row["test_error"] for row in run.results if row["test_error"] is not None]
    comparisons.append(
        Comparison(
            "the result depends on L and η",
            "yes",
            f"{min(spread):.1f} to {max(spread):.1f}",
            max(spread) > 2 * min(spread),
        )
    )
    sentence = (
        "In the kernel the velocity's scale is √η, so the thesis's ε has no counterpart and "
        "one grid stands beside its four tables, which differ by noise; "
        "its algorithm 16, as printed, loses the velocity."
    )
    settings = run.settings
    size = (
        f"{settings['draws']} draws after {settings['warmup']}, minibatches of "
        f"{settings['batch_size']}; the thesis names neither"
    )
    return Finding(comparisons, size, [run], sentence, command=f"{SCRIPTS}.sghmc_grid")


def draw_sghmc(figure: Any) -> None:
    """The grid."""
    ours = {(row["L"], row["eta"]): row["test_error"] for row in Run("lau_2018_sghmc_grid").results}
    grids = {"ours": [[ours.get((L, rate)) for rate in RATES] for L in STEPS], "thesis, ε = 0.1": PAPER[0.1]}
    for ax, (name, grid) in zip(figure.subplots(1, 2), grids.items(), strict=True):
        values = np.array([[np.nan if x is None else x for x in row] for row in grid], float)
        ax.imshow(values, vmin=0, vmax=100, cmap="viridis_r")
        for (i, j), x in np.ndenumerate(values):
            ax.text(
                j,
                i,
                "NA" if np.isnan(x) else f"{x:.0f}",
                ha="center",
                va="center",
                color="white" if x > 60 else "black",
            )
        ax.set_xticks(range(len(RATES)), [f"{rate:g}" for rate in RATES])
        ax.set_yticks(range(len(STEPS)), [str(steps) for steps in STEPS])
        ax.set(xlabel="η", ylabel="L", title=f"test error %, {name}")


def energies() -> Finding:
    """Energies at the ends of trajectories."""
    run = Run("lau_2018_precision")
    comparisons = [
        Comparison(
            f"mean \\|H_d - H_f\\|, {row['name']}",
            f"< {row['paper']:g}" if row["paper"] < 1e-3 else f"order of {row['paper']:g}",
            f"{row['mean_difference']:.2g}, median {row['median_difference']:.2g}, at most "
            f"{row['largest_difference']:.2g}, of energies of {row['energy']:,.0f}",
            row["mean_difference"] < 10 * row["paper"],
        )
        for row in run.results["energies"]
    ]
    changes = ", ".join(f"{100 * row['change_of_accept_prob']:.2g} %" for row in run.results["energies"])
    worst = max(row["change_of_accept_prob"] for row in run.results["energies"])
    comparisons.append(Comparison("change of the acceptance", "at most 1 %", changes, worst < 0.01))
    eps = f"{run.results['energies'][0]['energy'] * 6e-8:.1g}"
    left_out = " ".join(
        f"Left out are {row['points_not_finite']} of {row['points']} trajectories under {row['name']} that end where "
        "an energy is not finite."
        for row in run.results["energies"]
        if row["points_not_finite"]
    )
    reason = (
        f"an energy of some thousands is known to {eps} in single precision, whatever the trajectory, so 10⁻⁵ is out "
        "of reach of an end's energy. Under the hierarchical prior the median is alike, and the mean is made by a few "
        "points, at which the two trajectories part: there a step of 0.01 may be too long, which the thesis calls "
        "conservative and does not name."
    )
    first = run.results["energies"][0]
    size = f"{first['points']} points, {first['num_steps']} steps of {first['step_size']:g}; the thesis names neither"
    contradicted = reason if any(c.agrees is False for c in comparisons) else None
    return Finding(
        comparisons, size, [run], left_out, is_full=True, contradicted=contradicted, command=f"{SCRIPTS}.precision"
    )


def precision_errors() -> Finding:
    """Test errors in either precision."""
    run = Run("lau_2018_precision")
    rows = {row["name"]: row for row in run.results["errors"]}
    comparisons = []
    whole = [prior for prior in ("normal", "normal-inv-gamma") if {f"{prior}, float", f"{prior}, double"} <= set(rows)]
    if not whole:
        raise FileNotFoundError(f"no prior has both precisions in {run.name}.json")
    for prior in whole:
        single, double = rows[f"{prior}, float"], rows[f"{prior}, double"]
        difference = single["test_error"] - double["test_error"]
        error = float(np.hypot(*(share_error(row["test_error"], IMAGES) for row in (single, double))))
        text = f"{single['test_error']:.1f} and {double['test_error']:.1f}, difference {number(difference, error)}"
        theirs = f"{single['paper']['test_error']} and {double['paper']['test_error']}"
        comparisons.append(Comparison(f"{prior}: float and double, error %", theirs, text))
        comparisons.append(
            Comparison(
                f"{prior}: no significant difference", "yes", number(difference, error), abs(difference) < 2 * error
            )
        )
    return Finding(comparisons, size_of(run), [run], ERROR_SENTENCE, is_full(run), command=f"{SCRIPTS}.precision")


def draw_digits(figure: Any) -> None:
    """The 8 × 8 digits, which scikit-learn brings."""
    from sklearn.datasets import load_digits

    images = load_digits().images
    for ax, image in zip(figure.subplots(1, 10), images, strict=False):
        ax.imshow(image, cmap="gray_r")
        ax.axis("off")


def illustrations() -> Finding:
    """The digits of figure 4.1."""
    return Finding(
        [Comparison("8 × 8 digits", "second row of figure 4.1", "below")],
        "the second row; figure 2.1 is another author's, and the first row of "
        "figure 4.1 is of MNIST, whose images are not shown here",
        [],
        "",
        command="benchmarks.papers.report",
    )


ITEMS = (
    Item(
        "C 4.1",
        "early-stopping committees beside a BNN",
        "errors of 91.2, 88.6, 47.0, 51.6 and 19.2 % by 2 to 1,000 members; BNN 23.4 %.",
        committees,
    ),
    Item(
        "C 4.2",
        "XHMC at four thresholds beside GNUTS",
        "all sample alike, at errors of 23 to 29 %; XHMC is the cheaper.",
        partial(of_table, "lau_2018_xhmc_thresholds", "xhmc_thresholds", thresholds, ERROR_SENTENCE),
        partial(draw_errors, "lau_2018_xhmc_thresholds"),
    ),
    Item(
        "C 4.3",
        "Gibbs against joint sampling of a hyperparameter",
        "only the non-centred model moves σ²; Gibbs sampling fails.",
        partial(
            of_table,
            "lau_2018_gibbs_joint",
            "gibbs_joint",
            gibbs,
            "The order holds; that Gibbs predicts no better than guessing is not seen at its own "
            "settings, where trajectories of 1,023 steps reach what predicts.",
        ),
    ),
    Item(
        "C 4.4",
        "seven priors on the output weights",
        "the normal prior predicts best, ARD helps, the horseshoe hardly mixes.",
        partial(of_table, "lau_2018_output_priors", "output_priors", output_priors, ERROR_SENTENCE),
        partial(draw_errors, "lau_2018_output_priors"),
    ),
    *(
        Item(
            f"C {4.5 + 0.1 * i:.1f}",
            f"SGHMC over L and η, ε = {epsilon:g}",
            "errors from 15 to 98 %, some runs leave for infinity; the best is as good as HMC.",
            partial(sghmc, epsilon),
            draw_sghmc if i == 0 else None,
        )
        for i, epsilon in enumerate((0.1, 0.01, 0.001, 0.0001))
    ),
    Item(
        "C 4.9",
        "priors scaled by the number of units",
        "errors of 64 to 70 % with N(0, 1/units), 22 to 23 % with N(0, 1).",
        partial(of_table, "lau_2018_scaled_priors", "scaled_priors", scaled, ERROR_SENTENCE),
        partial(draw_errors, "lau_2018_scaled_priors"),
    ),
    Item(
        "C 4.10",
        "dense, diagonal and unit metrics",
        "a dense metric stops the chain and takes three times as long.",
        partial(
            of_table,
            "lau_2018_covariance",
            "covariance",
            covariance,
            ERROR_SENTENCE + " A dense metric of 2,590 weights from so few draws is mostly the "
            "shrinkage, so that it harms less here says little.",
            rows=9,
        ),
        partial(draw_errors, "lau_2018_covariance"),
    ),
    Item(
        "C 4.11",
        "two to four hidden layers",
        "errors of 16.4, 16.8 and 49.8 %.",
        partial(of_table, "lau_2018_layers", "layers", layers, ERROR_SENTENCE, rows=3),
        partial(draw_errors, "lau_2018_layers"),
    ),
    Item(
        "C 4.12",
        "test errors in single and double precision",
        "no significant difference.",
        precision_errors,
        partial(draw_errors, "lau_2018_precision", results=lambda run: run.results["errors"]),
    ),
    Item(
        "C 4.10 energies",
        "energies of trajectories in single and double precision",
        "ends differ by less than 10⁻⁵ (normal) and of the order of 10⁻² (normal-inverse-gamma).",
        energies,
    ),
    Item(
        "C 4.13",
        "static, windowed and dynamic HMC",
        "neither length nor windows matter.",
        partial(
            of_table,
            "lau_2018_trajectories",
            "trajectories",
            trajectories,
            ERROR_SENTENCE + " A length of 10 steps mixes slowly here; L = 500 is part of `--full`.",
        ),
        partial(draw_errors, "lau_2018_trajectories"),
    ),
    Item(
        "C 4.14",
        "WAIC of four widths",
        "WAIC of 3 to 8 × 10⁴, whose order is not that of the test errors.",
        partial(of_table, "lau_2018_waic", "waic", waic, "", contradicted=WAIC_REASON),
    ),
    Item(
        "C illustrations",
        "figures 2.1 and 4.1",
        "a trajectory that turns back; digits of MNIST and of 8 × 8 pixels.",
        illustrations,
        draw_digits,
    ),
)
