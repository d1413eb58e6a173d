"""The draft's figure 6: symmetric split HMC under four widths of the prior, on free spoken digits.

Accuracy and negative log-likelihood of training and test digits, and the log-posterior density, draw by draw, for prior
standard deviations of 0.32, 0.10, 0.04 and 0.03; every chain from the usual initialisation, warm-up included.
"""

from __future__ import annotations

import numpy as np

from benchmarks.papers.cobb_2021.spoken_digits import Length, Settings, load, run_arm
from benchmarks.papers.options import earlier, parse_options, settings_of, write

WIDTHS = (0.32, 0.10, 0.04, 0.03)
STEP_SIZE = 0.01  # where adaptation starts
SIZES = {
    "quick": {"rows": 300, "draws": 60, "warmup": 40, "widths": WIDTHS},
    "full": {"rows": 1878, "draws": 500, "warmup": 50, "widths": WIDTHS},
}


def main(arguments: list[str] | None = None) -> None:
    """A chain for each width."""
    options = parse_options(__doc__, SIZES, arguments, frameworks=("pyro", "numpyro"))
    settings = settings_of(options, SIZES)
    digits = load(options.data, options.rows, 0)
    found = earlier(options, settings, "widths")
    for width in [width for width in options.widths if str(width) not in found]:
        run = run_arm(
            "symmetric",
            digits,
            Settings(STEP_SIZE, width),
            Length(options.warmup, options.draws),
            options.seed,
            options.framework,
        )
        entry: dict[str, object] = {
            "potential_energy": np.asarray(run["trace"], float).round(1).tolist(),
            **run["statistics"],
        }
        for name, probabilities, labels in (
            ("train", run["train"], digits.y_train),
            ("test", run["probabilities"], digits.y_test),
        ):
            of_label = probabilities[:, np.arange(len(labels)), labels]
            entry[f"{name}_accuracy"] = (100 * np.mean(probabilities.argmax(2) == labels, axis=1)).round(2).tolist()
            entry[f"{name}_nll"] = (-np.log(np.maximum(of_label, 1e-20)).mean(1)).round(4).tolist()
        found[str(width)] = entry
        last = {name: np.mean(entry[name][-20:]).round(3) for name in ("train_accuracy", "test_accuracy", "test_nll")}
        print(f"prior sd {width}: {last}, {run['statistics']['seconds']:.0f} s", flush=True)
        write(options, settings, {"widths": found})


if __name__ == "__main__":
    main()
