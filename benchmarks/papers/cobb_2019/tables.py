"""Tables of the sine and of the CNN, the paper's figures beside those found."""

from __future__ import annotations

import re
from typing import Any

from benchmarks.common.markdown import results_of, settings_of, table

SINE = {
    "small, fixed": "small, λ = 100",
    "large, fixed": "large, λ = 100",
}
HOSTS = {"NumPyro": "numpyro", "Pyro": "pyro"}
LAYERS = {
    "0.weight": "convolution 1, weights",
    "3.weight": "convolution 2, weights",
    "7.weight": "dense 1, weights",
    "9.weight": "dense 2, weights",
}


def sine() -> str:
    """Log-likelihoods, and how the chains ran; a paper's figure without its setting in brackets."""
    header = ["", "paper", "mean", "log mean", "without constant", "λ [5%, 95%]", "acceptance", "step", "steps"]
    return table([*header, "divergent", "ESS", "R-hat", "s"], map(_sine_row, results_of("cobb_2019_sine_numpyro")))


def _sine_row(found: dict[str, Any]) -> list[str]:
    precisions = found["precisions"]
    is_fixed = found["name"] in SINE
    output = precisions.get("output")
    return [
        SINE.get(found["name"], found["name"]),
        f"{found['paper']:.2f}" if is_fixed else f"({found['paper']:.2f})",
        f"{found['expected']:.1f}",
        f"{found['log_mean']:.1f}",
        f"{found['expected_without_constant']:.1f}",
        f"{output['mean']:.0f} [{output['q05']:.0f}, {output['q95']:.0f}]" if output else "",
        f"{found['accept_prob']:.2f}",
        f"{found['step_size']:.4f}",
        f"{found['num_steps']:.0f}",
        f"{found['diverging']}",
        f"{min(x['ess'] for x in precisions.values()):.0f}",
        f"{max(x['r_hat'] for x in precisions.values()):.2f}",
        f"{found['seconds']:.0f}",
    ]


def precisions() -> str:
    """Of both networks with a known output precision."""
    small, large = ({x["name"]: x for x in results_of("cobb_2019_sine_numpyro")}[name]["precisions"] for name in SINE)
    cells = {name: [cell for network in (small, large) for cell in _precision(network.get(name))] for name in large}
    columns = [cell for about in SINE.values() for cell in (about, "ESS", "R-hat")]
    return table(["precision of", *columns], ([_plural(name), *row] for name, row in cells.items()))


def _plural(name: str) -> str:
    return (
        name
        if name == "bias 3"
        else re.sub("^(weight|bias)", lambda kind: {"weight": "weights"}.get(kind[0], "biases"), name)
    )


def _precision(found: dict[str, float] | None) -> list[str]:
    if found is None:
        return ["", "", ""]
    return [
        f"{found['mean']:.2f} [{found['q05']:.2f}, {found['q95']:.2f}]",
        f"{found['ess']:.0f}",
        f"{found['r_hat']:.2f}",
    ]


def cnn_predictions() -> str:
    """Accuracy and entropy, at the optimum and by the draws."""
    header = ["", "accuracy %, paper", "ours", "log loss", "median entropy, nats: MNIST", "Fashion-MNIST", "AUROC"]
    rows = []
    for host, name in HOSTS.items():
        found, draws = results_of(f"cobb_2019_mnist_cnn_{name}"), settings_of(f"cobb_2019_mnist_cnn_{name}")["draws"]
        labels = {"optimised": f"optimised (the paper's by SGD), {host}", "S3HMC": f"S3HMC, {host}, {draws} draws"}
        rows += [
            [
                label,
                f"{found['paper_accuracy'][key]:.2f}",
                f"{found['predictions'][key]['accuracy']:.2f}",
                f"{found['predictions'][key]['log_loss']:.3f}",
                f"{found['predictions'][key]['entropy_mnist']:.3f}",
                f"{found['predictions'][key]['entropy_fashion_mnist']:.2f}",
                f"{found['predictions'][key]['auroc']:.3f}",
            ]
            for key, label in labels.items()
        ]
    return table(header, rows)


def cnn_cost() -> str:
    """Acceptance, seconds and memory."""
    found = [results_of(f"cobb_2019_mnist_cnn_{name}") for name in HOSTS.values()]
    return table(
        ["", *HOSTS],
        [
            ["acceptance; step size", *(f"{x['accept_prob']:.2f}; {x['step_size']:.3f}" for x in found)],
            [
                "seconds per iteration (80 gradients of 500 digits); to the end of the first",
                *(f"{x['seconds_per_iteration']:.0f}; {x['seconds_setup']:.0f}" for x in found),
            ],
            ["peak memory of the process", *(f"{x['peak_mib']:,.0f} MiB" for x in found)],
        ],
    )


def cnn_precisions() -> str:
    """How far each precision moved, in NumPyro."""
    header = ["precision of", "weights", "start", "first draw", "last draw", "sd", "sd of log"]
    rows = (
        [
            LAYERS.get(path, "biases"),
            f"{x['weights']:,}",
            *(_three_digits(x[key]) for key in ("start", "first", "last")),
            f"{x['std']:.2g}",
            f"{x['std_of_log']:.2g}",
            f"{x['sd_of_log_given_weights']:.2g}",
        ]
        for path, x in results_of("cobb_2019_mnist_cnn_numpyro")["precisions"].items()
    )
    return table([*header, "its sd if weights stood still"], rows)


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


TABLES = {
    "sine": sine,
    "precisions": precisions,
    "CNN, predictions": cnn_predictions,
    "CNN, cost": cnn_cost,
    "CNN, precisions": cnn_precisions,
}
