"""Cobb and Jalaian (2021), table 4 and figures 2 and 3; the draft's figure 7: four arms on free spoken digits.

Accuracy, negative log-likelihood and Brier score by SGD, SGLD, SGHMC and symmetric split HMC over random splits; the
entropies of predictions that are wrong; mutual information by true and predicted class; accuracy of the mean over the
first draws. Step sizes and priors are those that ``hyperparameters`` has found, by fewer rows or by all (``--search``).
The paper has seven splits, 1,878 rows to train on, chains of 400 to 3,000 draws. On all rows, some twenty minutes a
split:

    python -m benchmarks.papers.cobb_2021.digits_table --rows 1878 --search cobb_2021_hyperparameters_all_rows
        --arms SGLD SGHMC symmetric --json benchmarks/results/cobb_2021_digits_all_rows.json
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from benchmarks.papers.cobb_2021.schemes import store_of
from benchmarks.papers.cobb_2021.spoken_digits import ARMS, Digits, Length, Settings, load, run_arm
from benchmarks.papers.findings import RESULTS
from benchmarks.papers.options import earlier, parse_options, settings_of, write
from split_common.metrics import (
    brier_score,
    class_log_likelihood,
    cumulative_accuracy,
    cumulative_log_score,
    expected_calibration_error,
    mutual_information,
    mutual_information_by_class,
    predictive_entropy,
    predictive_probabilities,
)

SEARCH, SEARCH_ON_ALL_ROWS = "cobb_2021_hyperparameters", "cobb_2021_hyperparameters_all_rows"
PAPER = {  # accuracy %, NLL, Brier score, each with its standard deviation over splits
    "SGD": ((80.3, 3.1), (0.72, 0.15), (0.297, 0.052)),
    "SGLD": ((78.6, 3.3), (0.69, 0.10), (0.307, 0.043)),
    "SGHMC": ((82.6, 3.1), (0.59, 0.11), (0.252, 0.042)),
    "symmetric": ((84.4, 2.1), (0.51, 0.05), (0.228, 0.027)),
}
MOST_HALVINGS = 5
LENGTHS = {
    "SGD": Length(50, 100),
    "SGLD": Length(1500, 150, 20),
    "SGHMC": Length(150, 150),
    "symmetric": Length(250, 150),
}
SIZES = {
    "quick": {"rows": 300, "splits": 3, "factor": 1, "arms": ARMS, "search": SEARCH},
    "full": {"rows": 1878, "splits": 7, "factor": 18, "arms": ARMS, "search": SEARCH_ON_ALL_ROWS},
}


def tuned(search: str) -> dict[str, Settings]:
    """What a search has found for each arm, by the name of its results; the search by fewer rows for arms it lacks."""
    chosen = {}
    for name in (SEARCH, search):
        for arm, entry in json.loads((RESULTS / f"{name}.json").read_text())["results"]["arms"].items():
            best = entry["trials"][entry["best"]]
            chosen[arm] = Settings(best["step_size"], best["prior_sd"])
    return chosen


def figures(found: dict[str, Any], digits: Digits) -> dict[str, Any]:
    """The figures of an arm on a split, and what its plots are made of."""
    draws, labels = found["probabilities"], digits.y_test
    mean = predictive_probabilities(draws)
    wrong = mean.argmax(1) != labels
    matrix = mutual_information_by_class(draws, labels)
    information = mutual_information(draws)
    log_score = cumulative_log_score(np.maximum(class_log_likelihood(draws, labels), -50))
    return {
        "accuracy": 100 * float(np.mean(~wrong)),
        "nll": -float(log_score[-1]),
        "brier": brier_score(mean, labels),
        "calibration_error": expected_calibration_error(mean, labels).error,
        "train_accuracy": 100 * float(np.mean(predictive_probabilities(found["train"]).argmax(1) == digits.y_train)),
        "entropies_of_errors": predictive_entropy(draws)[wrong].round(4).tolist(),
        "information_right": float(information[~wrong].mean()),
        "information_wrong": float(information[wrong].mean()) if wrong.any() else None,
        "information": np.nan_to_num(matrix.mean).round(4).tolist(),
        "count": matrix.count.tolist(),
        "cumulative_accuracy": (100 * cumulative_accuracy(draws, labels)).round(2).tolist(),
        **found["statistics"],
    }


def finite_run(
    arm: str, digits: Digits, settings: Settings, length: Length, split: int, options: argparse.Namespace
) -> dict[str, Any]:
    """A run of an arm; where it diverged to weights that are no numbers, one at half the step size, and so on.

    A step size that was found in the search's short runs may be too long for a run of thousands of iterations. How
    often it was halved is among the statistics.
    """
    folder = store_of(options)
    for halvings in range(MOST_HALVINGS + 1):
        store = None if folder is None else f"{folder}/{halvings}_halvings"
        tried = settings._replace(step_size=settings.step_size / 2**halvings)
        found = run_arm(arm, digits, tried, length, options.seed + split, options.framework, store)
        if np.isfinite(found["probabilities"]).all():
            break
    return {**found, "statistics": {**found["statistics"], "halvings": halvings}}


def main(arguments: list[str] | None = None) -> None:
    """Run every arm on every split."""
    options = parse_options(__doc__, SIZES, arguments, frameworks=("pyro", "numpyro"))
    chosen = tuned(options.search)
    used = {arm: chosen[arm]._asdict() for arm in ARMS}
    settings = settings_of(options, SIZES, hyperparameters=used, lengths={a: x._asdict() for a, x in LENGTHS.items()})
    settings.pop("splits")  # a run of more splits goes on from one of fewer
    settings.pop("search")  # what it has found is written
    found = earlier(options, settings, "splits")
    for split in range(options.splits):
        digits = load(options.data, options.rows, split)
        by_arm = found.setdefault(str(split), {})
        for arm in [name for name in options.arms if name not in by_arm]:
            length = LENGTHS[arm]._replace(
                warmup=LENGTHS[arm].warmup * options.factor, draws=LENGTHS[arm].draws * options.factor
            )
            by_arm[arm] = figures(finite_run(arm, digits, chosen[arm], length, split, options), digits)
            row, paper = by_arm[arm], PAPER[arm]
            print(
                f"split {split} {arm:10s} accuracy {row['accuracy']:.1f} "
                f"({paper[0][0]}), NLL {row['nll']:.3f} ({paper[1][0]}),",
                f"Brier {row['brier']:.3f} ({paper[2][0]}), {row['seconds']:.0f} s",
                flush=True,
            )
            write(options, settings, {"splits": found})


if __name__ == "__main__":
    main()
