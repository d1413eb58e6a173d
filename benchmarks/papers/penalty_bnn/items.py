"""Items of "Data subsampling for Bayesian neural networks": what the paper shows, and what was found.

The paper gives no sizes that a run could fall short of, but for MNIST; what was taken is in the README beside this
file.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from benchmarks.papers.findings import Comparison, Finding, Item, Run, number

SCRIPTS = "benchmarks.papers.penalty_bnn"


def _of(run: Run, **wanted: Any) -> dict[str, Any]:
    """The one row of a run that has these entries."""
    return next(row for row in run.results if all(row[key] == value for key, value in wanted.items()))


def _ratio_error(row: dict[str, Any]) -> float:
    """Standard error of a ratio of standard deviations, of a normal target."""
    return float(row["sd_ratio"] / (2 * row["ess"]) ** 0.5)


def linear() -> Finding:
    """With and without the penalty."""
    run = Run("penalty_bnn_linear")
    comparisons = []
    for n in (5, 10):
        for rule, claim in (("with", "right width"), ("without", "wrong width")):
            row = _of(run, target="posterior", n=n, rule=f"{rule} penalty")
            error = _ratio_error(row)
            is_right = abs(row["sd_ratio"] - 1) < 2 * error
            ratio = f"sd / exact sd {number(row['sd_ratio'], error)}, acceptance {row['accept_prob']:.2f}"
            comparisons.append(Comparison(f"n = {n}, {rule} penalty", claim, ratio, is_right == (rule == "with")))
    sentence = "In the paper's own target, the expected one, the noise is too slight for the penalty to be seen."
    size = f"{run.settings['draws']:,} draws of 2 coefficients, 500 rows, K = 20; the paper names no size"
    return Finding(comparisons, size, [run], sentence, is_full=True, command=f"{SCRIPTS}.linear")


def draw_linear(figure: Any) -> None:
    """Ratios of standard deviations, with and without."""
    run, ax = Run("penalty_bnn_linear"), figure.subplots()
    for place, (n, rule) in enumerate((n, rule) for n in (5, 10) for rule in ("with penalty", "without penalty")):
        row = _of(run, target="posterior", n=n, rule=rule)
        ax.errorbar(row["sd_ratio"], place, xerr=2 * _ratio_error(row), fmt="o", capsize=3, color="tab:blue")
    ax.set_yticks(range(4), [f"n = {n}, {rule}" for n in (5, 10) for rule in ("with", "without")])
    ax.axvline(1, color="black", linewidth=0.8)
    ax.set_xlabel("standard deviation of the chain over the exact one, ± 2 standard errors")


def regression() -> Finding:
    """Bands by batch size."""
    run = Run("penalty_bnn_regression")
    names = ["all rows", *(f"n = {n}" for n in (100, 25, 10, 5))]
    spreads = [_of(run, name=name)["mean_sd"] for name in names]
    comparisons = [
        Comparison(
            "bands widen as n falls (all rows, n = 100, 25, 10, 5)",
            "yes",
            ", ".join(f"{spread:.3f}" for spread in spreads),
            spreads == sorted(spreads),
        )
    ]
    control = _of(run, name="n = 10, no penalty, N/n")
    ratio = number(control["sd_ratio"], _ratio_error(control))
    comparisons.append(
        Comparison(
            "without the penalty",
            "wrong",
            f"sd / exact sd {ratio}",
            control["sd_ratio"] - 1 > 2 * _ratio_error(control),
        )
    )
    sentence = "The bands are, within 1 %, those of the likelihood to the power n/N."
    size = "10,000 draws, 300 rows, 51 random weights; the paper names no size"
    return Finding(comparisons, size, [run], sentence, is_full=True, command=f"{SCRIPTS}.regression")


def draw_regression(figure: Any) -> None:
    """Spread and coverage by batch size."""
    run = Run("penalty_bnn_regression")
    rows = [_of(run, name=f"n = {n}") for n in (100, 25, 10, 5)]
    axes = figure.subplots(1, 2)
    for ax, key, label in zip(
        axes, ("mean_sd", "coverage_90"), ("mean sd of the function", "coverage of 90 %"), strict=True
    ):
        ax.plot((100, 25, 10, 5), [row[key] for row in rows], "o-", label="PBNN")
        ax.axhline(_of(run, name="all rows")[key], color="black", linestyle=":", label="all rows")
        ax.set(xscale="log", xlabel="rows of a batch, n", ylabel=label)
    axes[1].axhline(0.9, color="gray", linewidth=0.8)
    axes[0].legend()


def _calibration(part: str, claim: str, sentence: str, size: str, is_full: bool, best: str) -> Finding:
    run = Run("penalty_bnn_reliability")
    by_name = {row["name"]: row for row in run.results[part]}
    errors = ", ".join(f"{name}: {row['calibration_error']:.3f}" for name, row in by_name.items())
    better = by_name[best]["calibration_error"] < by_name["all rows"]["calibration_error"] / 2
    comparisons = [Comparison(claim, "yes", errors, better)]
    return Finding(comparisons, size, [run], sentence, is_full, command=f"{SCRIPTS}.reliability")


def reliability_regression() -> Finding:
    """Calibration of a regression."""
    sentence = (
        "Below n = 5 predictions become too unsure: calibration has an optimum in n, and one n serves no two data sets."
    )
    size = "10,000 draws, 2,000 test points; the paper names no size"
    return _calibration("regression", "smaller batches calibrate (calibration error)", sentence, size, True, "n = 5")


def reliability_mnist() -> Finding:
    """Calibration on MNIST."""
    run = Run("penalty_bnn_reliability")
    sizes = [row["ess"] for row in run.results["mnist"] if "ess" in row]
    sentence = (
        "The order by n has settled; its chains start at the mode and hold "
        f"{min(sizes):.0f} to {max(sizes):.0f} effective draws of 15,000, so their errors are known to 0.01 or 0.02."
    )
    size = "5,000 of 60,000 images, 20 hidden units, 15,000 draws"
    return _calibration("mnist", "smaller batches calibrate (calibration error)", sentence, size, False, "n = 1000")


def draw_reliability(part: str, figure: Any) -> None:
    """Calibration errors by batch size."""
    rows = [row for row in Run("penalty_bnn_reliability").results[part] if row["name"] != "trained network"]
    ax = figure.subplots()
    ax.plot(range(len(rows)), [row["calibration_error"] for row in rows], "o-")
    ax.set_xticks(range(len(rows)), [row["name"] for row in rows])
    ax.set(ylabel="calibration error", ylim=(0, None))


def appendix() -> Finding:
    """SGLD, tempering and PBNN."""
    run = Run("penalty_bnn_appendix")
    large, small, tempered, penalty = run.results
    comparisons = [
        Comparison(
            "SGLD, large step", "biased", f"sd / exact sd {number(large['sd_ratio'], _ratio_error(large))}", None
        ),
        Comparison(
            "SGLD, small step", "does not get about", f"sd / exact sd {number(small['sd_ratio'], _ratio_error(small))}"
        ),
        Comparison(
            "tempering against PBNN",
            "qualitatively different",
            f"{number(tempered['sd_ratio'], _ratio_error(tempered))} and "
            f"{number(penalty['sd_ratio'], _ratio_error(penalty))}",
            False,
        ),
    ]
    reason = (
        "given a finite data set the expected posterior is the posterior "
        "tempered to the power n/N, so the two panels show one "
        "distribution; the statements on SGLD hold."
    )
    size = "100,000 draws of SGLD, 10,000 of the others, n = 10; the paper names no size"
    return Finding(comparisons, size, [run], "", contradicted=reason, command=f"{SCRIPTS}.appendix")


def acceptance() -> Finding:
    """Acceptance against n and K."""
    run = Run("penalty_bnn_acceptance")
    rows = sorted((row for row in run.results if row["control_variate"] is None), key=lambda row: row["n"] * row["K"])
    pairs = ", ".join(f"{row['n'] * row['K']:,}: {row['accept_prob']:.3f} ({row['predicted']:.3f})" for row in rows)
    rising = all(a["accept_prob"] <= b["accept_prob"] + 0.02 for a, b in pairwise(rows))
    comparisons = [Comparison("acceptance rises with the batch (Kn: acceptance, predicted)", "yes", pairs, rising)]
    sentence = (
        "It is the product Kn that counts, and it has to grow with N; about a mode the noise can be removed instead."
    )
    size = "1,000 draws of 10 coefficients, 10,000 rows; the paper names no size"
    return Finding(comparisons, size, [run], sentence, is_full=True, command=f"{SCRIPTS}.acceptance")


def draw_acceptance(figure: Any) -> None:
    """Acceptance against Kn, with the prediction."""
    rows = [row for row in Run("penalty_bnn_acceptance").results if row["control_variate"] is None]
    rows.sort(key=lambda row: row["n"] * row["K"])
    ax = figure.subplots()
    ax.plot([row["n"] * row["K"] for row in rows], [row["accept_prob"] for row in rows], "o", label="measured")
    ax.plot([row["n"] * row["K"] for row in rows], [row["predicted"] for row in rows], label="predicted")
    ax.set(xscale="log", xlabel="rows of an iteration, Kn", ylabel="acceptance")
    ax.legend()


ITEMS = (
    Item(
        "D linear",
        "linear regression with and without the penalty",
        "without the penalty the posterior is not sampled, with it it is.",
        linear,
        draw_linear,
    ),
    Item(
        "D regression",
        "predictions of a network by batch size, four panels",
        "bands widen as the batch shrinks; without the penalty they are wrong.",
        regression,
        draw_regression,
    ),
    Item(
        "D reliability 1",
        "reliability diagram of the regression",
        "the batch size calibrates predictions that are overconfident.",
        reliability_regression,
        lambda figure: draw_reliability("regression", figure),
    ),
    Item(
        "D reliability 2",
        "reliability diagram of MNIST",
        "the batch size calibrates predictions that are overconfident.",
        reliability_mnist,
        lambda figure: draw_reliability("mnist", figure),
    ),
    Item(
        "D appendix",
        "SGLD at two steps, tempering and PBNN",
        "SGLD needs a vanishing step; tempering gives qualitatively different results.",
        appendix,
    ),
    Item(
        "D text",
        "acceptance against the batch",
        "larger batches lessen the noise and raise the acceptance.",
        acceptance,
        draw_acceptance,
    ),
)
