"""Items of Cobb and others (2019): what the paper shows, and what was found."""

from __future__ import annotations

from typing import Any

from benchmarks.papers.findings import Comparison, Finding, Item, Run, close, number, share_error

SCRIPTS = "benchmarks.papers.cobb_2019"
TEST_IMAGES = 10_000
PAPER_ACCURACY = {"SGD": 98.20, "S3HMC": 98.15, "MC dropout": 98.68}
ACCURACY_ERROR = share_error(98.2, TEST_IMAGES)
CNN_SIZE = (
    "10 draws after 5 iterations of 2 steps (NumPyro), 4 after 4 (Pyro); "
    "the paper does not give the length of its chain"
)
DROPOUT = "cobb_2019_dropout"


def _arms() -> tuple[list[Run], dict[str, dict[str, float]]]:
    """Predictions by arm."""
    numpyro, pyro = Run("cobb_2019_mnist_cnn_numpyro"), Run("cobb_2019_mnist_cnn_pyro")
    arms = {"SGD": numpyro.results["predictions"]["optimised"], "S3HMC": numpyro.results["predictions"]["S3HMC"]}
    arms["S3HMC, Pyro"] = pyro.results["predictions"]["S3HMC"]
    runs = [numpyro, pyro]
    try:
        dropout = Run(DROPOUT)
        runs.append(dropout)
        arms["MC dropout"] = dropout.results["MC dropout"]
    except FileNotFoundError:
        pass
    return runs, arms


def accuracies() -> Finding:
    """Accuracy on the test digits."""
    runs, arms = _arms()
    comparisons = []
    for name, found in arms.items():
        paper = PAPER_ACCURACY[name.split(",")[0]]
        images = int(found.get("images", TEST_IMAGES))
        error = share_error(found["accuracy"], images)
        agrees = close(found["accuracy"], error, paper, ACCURACY_ERROR)
        ours = f"{number(found['accuracy'], error)}, log loss {found['log_loss']:.3f}"
        comparisons.append(Comparison(f"accuracy %, {name}", f"{paper:.2f}", ours, agrees))
    sentence = "Adam leads to where the chain starts, and is the point estimate here where the paper has SGD."
    return Finding(comparisons, CNN_SIZE, runs, sentence, command=f"{SCRIPTS}.mnist_cnn")


def entropies() -> Finding:
    """Entropies in and out of distribution."""
    runs, arms = _arms()
    comparisons = [
        Comparison(
            f"{name}: median entropy of digits and of others, nats",
            "",
            f"{found['entropy_mnist']:.3f} and {found['entropy_fashion_mnist']:.2f}, AUROC {found['auroc']:.3f}",
        )
        for name, found in arms.items()
    ]
    others = [name for name in arms if not name.startswith("S3HMC")]
    for name in others:
        ours = arms["S3HMC"]["entropy_fashion_mnist"] - arms[name]["entropy_fashion_mnist"]
        comparisons.append(
            Comparison(
                f"S3HMC less sure than {name} of what is no digit", "yes", f"median by {ours:.2f} nats more", ours > 0
            )
        )
    return Finding(
        comparisons,
        CNN_SIZE,
        runs,
        "One chain of few draws, so no error of the medians but that of the images, below 0.02.",
        stand_in="Fashion-MNIST for notMNIST",
        command=f"{SCRIPTS}.mnist_cnn",
    )


def draw_entropies(figure: Any) -> None:
    """Median entropies by arm."""
    _, arms = _arms()
    for ax, key, name in zip(
        figure.subplots(1, 2), ("entropy_mnist", "entropy_fashion_mnist"), ("MNIST", "Fashion-MNIST"), strict=True
    ):
        ax.barh(range(len(arms)), [found[key] for found in arms.values()])
        ax.set_yticks(range(len(arms)), list(arms))
        ax.set(xlabel="median predictive entropy, nats", title=name)


def _sine() -> tuple[list[Run], dict[str, dict[str, Any]]]:
    runs = [Run("cobb_2019_sine_numpyro"), Run("cobb_2019_sine_pyro")]
    return runs, {row["name"]: row for row in runs[0].results}


SINE_SIZE = "two chains of 500 draws in NumPyro, of 60 in Pyro; the paper does not give the length of its chain"


def output_precision() -> Finding:
    """λ with its prior."""
    runs, rows = _sine()
    found = {alpha: rows[f"small, α = {alpha}"] for alpha in (1, 10, 100)}
    means = {alpha: row["precisions"]["output"]["mean"] for alpha, row in found.items()}
    comparisons = [
        Comparison(
            "λ depends on α (1, 10, 100)",
            "yes",
            ", ".join(f"{x:.0f}" for x in means.values()),
            sorted(means.values()) == list(means.values()),
        ),
        Comparison(
            "log p(Y\\|X), without the constant, α not given",
            "-36.25",
            ", ".join(f"{row['expected_without_constant']:.1f}" for row in found.values()),
        ),
    ]
    sentence = (
        "Neither the number of points nor α nor the estimate of log p(Y|X) is in "
        "the paper; the figure compares in order of magnitude."
    )
    return Finding(comparisons, SINE_SIZE, runs, sentence, command=f"{SCRIPTS}.sine")


def networks() -> Finding:
    """The small and the large network."""
    runs, rows = _sine()
    small, large = rows["small, fixed"], rows["large, fixed"]
    worst = max(row["r_hat"] for row in large["precisions"].values())
    comparisons = [
        Comparison("log p(Y\\|X), small network", "-37.59", f"{small['expected_without_constant']:.1f}"),
        Comparison("log p(Y\\|X), large network", "-640.52", f"{large['expected_without_constant']:.1f}", False),
    ]
    reason = (
        "a mean squared residual of 17 noise variances is that of a chain far from "
        "its equilibrium: the small network had -998 after "
        f"8 iterations, and the large one fits as well as the small one here, "
        f"although R-hat of its precisions is still {worst:.2f} "
        "(a trajectory moves the precision of 2,500 weights by 4 %)."
    )
    return Finding(comparisons, SINE_SIZE, runs, "", contradicted=reason, command=f"{SCRIPTS}.sine")


def precisions() -> Finding:
    """Precisions of the layers."""
    runs, rows = _sine()
    found = rows["small, fixed"]["precisions"]
    widths = {name: row["q95"] / row["q05"] for name, row in found.items()}
    ess = {name: row["ess"] for name, row in found.items()}
    comparisons = [
        Comparison(
            "the last bias's precision varies most from draw to draw (ESS)",
            "yes",
            ", ".join(f"{name} {x:.0f}" for name, x in ess.items()),
            max(ess, key=lambda name: ess[name]) == "bias 2",
        ),
        Comparison(
            "precisions of weights stay near 1",
            "yes",
            ", ".join(
                f"{row['mean']:.2f} [{row['q05']:.2f}, {row['q95']:.2f}]"
                for name, row in found.items()
                if "weight" in name
            ),
        ),
    ]
    widest = max(widths, key=lambda name: widths[name])
    sentence = (
        f"Precisions of weights have means of 2 to 3 and not 1, under a Gamma(2, 2) "
        f"taken for the prior; widest is that of {widest}."
    )
    return Finding(comparisons, SINE_SIZE, runs, sentence, command=f"{SCRIPTS}.sine")


def draw_precisions(figure: Any) -> None:
    """Intervals of the precisions of both networks."""
    _, rows = _sine()
    for ax, name in zip(figure.subplots(1, 2, sharex=True), ("small, fixed", "large, fixed"), strict=True):
        found = rows[name]["precisions"]
        for place, row in enumerate(found.values()):
            ax.plot([row["q05"], row["q95"]], [place, place], color="tab:blue")
            ax.plot(row["mean"], place, "o", color="tab:blue")
        ax.set_yticks(range(len(found)), list(found))
        ax.set(xscale="log", xlabel="precision, 5 % to 95 %", title=f"{name.split(',')[0]} network")


ITEMS = (
    Item(
        "B 2.2",
        "accuracy of a CNN of 431,080 weights on 10,000 digits of MNIST",
        "SGD 98.20 %, S3HMC 98.15 %, MC dropout 98.68 %.",
        accuracies,
    ),
    Item(
        "B fig. 1",
        "entropies on MNIST and notMNIST",
        "S3HMC is less sure than SGD and MC dropout of what is no digit.",
        entropies,
        draw_entropies,
    ),
    Item("B fig. 2", "output precision sampled with the weights", "α matters; log p(Y|X) = -36.25.", output_precision),
    Item(
        "B fig. 3",
        "a small and a large network on a sine",
        "log p(Y|X) = -37.59 and -640.52, the small one is to be taken.",
        networks,
    ),
    Item(
        "B fig. 4",
        "precisions of the layers",
        "most stay near 1; the last bias's varies most.",
        precisions,
        draw_precisions,
    ),
)
