"""The CNN of Cobb and others (2019): 431,080 weights and their precisions sampled by S3HMC on 10,000 digits of MNIST.

The likelihood is split over subsets of the digits, so that a gradient takes the memory of one subset. The chain starts
where a few epochs of the host's Adam lead, each precision at its mean given the weights. Predictions are for the test
digits and for Fashion-MNIST in the place of the paper's notMNIST. MNIST and Fashion-MNIST are read from the directory
that --data or the environment variable SPLIT_MCMC_DATA names.
"""

from __future__ import annotations

import argparse
import importlib
import resource
import time
from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from benchmarks.common.report import add_common_options, save, size_named
from benchmarks.papers.cobb_2019.figures import entropy_figure
from benchmarks.papers.cobb_2019.lenet import SHAPES, SITE, Data, Setting, Weights, load, start_of_chain
from split_common.metrics import predictive_entropy, predictive_probabilities

PAPER_ACCURACY = {"optimised": 98.20, "S3HMC": 98.15}
SIZES = {
    "quick": {"warmup": 1, "draws": 2, "num_steps": 1, "epochs": 1},
    "default": {"warmup": 5, "draws": 10, "num_steps": 2, "epochs": 5},
    "full": {"warmup": 300, "draws": 500, "num_steps": 20, "epochs": 10},
}


class Record:
    """What a chain leaves, gathered while it runs; weights are not kept."""

    def __init__(self) -> None:
        self.precisions: list[dict[str, float]] = []
        self.seconds: list[float] = []
        self.test: list[np.ndarray] = []
        self.other: list[np.ndarray] = []
        self.accept_prob = self.step_size = float("nan")


def run_chain(host: Any, data: Data, start: Weights, setting: Setting) -> Record:
    """Run S3HMC, and predict with each draw."""
    record = Record()
    iterations = host.chain(data.x_train, data.y_train, start, setting)
    for i in range(setting.warmup + setting.draws):
        clock = time.perf_counter()
        iteration = next(iterations)
        record.seconds.append(time.perf_counter() - clock)
        record.precisions.append(iteration.precisions)
        record.accept_prob, record.step_size = iteration.accept_prob, iteration.step_size
        if i >= setting.warmup:
            record.test.append(host.probabilities(iteration.weights, data.x_test))
            record.other.append(host.probabilities(iteration.weights, data.x_other))
        print(
            f"{'warm-up' if i < setting.warmup else 'draw':8s}{i + 1:4d}  step {iteration.step_size:.5f}",
            f"mean acceptance {iteration.accept_prob:.2f}  {record.seconds[-1]:.1f} s",
            flush=True,
        )
    return record


def predictions(test: np.ndarray, other: np.ndarray, labels: np.ndarray) -> tuple[dict[str, float], dict[str, Any]]:
    """Figures of the predictions, and the entropies by data set.

    Args:
        test: class probabilities of the test digits, shape (draws, images, classes).
        other: likewise, of the clothes.
        labels: of the test digits.
    """
    probs = predictive_probabilities(test)
    probs /= probs.sum(axis=1, keepdims=True)  # in single precision they add up to 1 less closely than log_loss asks
    entropies = {"MNIST": predictive_entropy(test), "Fashion-MNIST": predictive_entropy(other)}
    is_other = np.repeat([0, 1], [len(test[0]), len(other[0])])
    figures = {
        "accuracy": 100 * accuracy_score(labels, probs.argmax(axis=1)),
        "log_loss": log_loss(labels, probs),
        "entropy_mnist": float(np.median(entropies["MNIST"])),
        "entropy_fashion_mnist": float(np.median(entropies["Fashion-MNIST"])),
        "auroc": float(roc_auc_score(is_other, np.concatenate(list(entropies.values())))),
    }
    return figures, entropies


def movement(record: Record, start: Weights, warmup: int) -> dict[str, dict[str, float]]:
    """How each precision moved: where it started, its first and last draw, and the spread of its draws.

    ``sd_given_weights`` is the standard deviation of its logarithm if the weights stood still.
    """
    sites = start_of_chain(start)
    rows = {}
    for path, shape in SHAPES.items():
        draws = np.array([precisions[path] for precisions in record.precisions[warmup:]])
        count = int(np.prod(shape))
        rows[path] = {
            "weights": count,
            "start": float(sites[f"{SITE}.{path}_precision"]),
            "first": draws[0],
            "last": draws[-1],
            "std": draws.std(),
            "std_of_log": np.log(draws).std(),
            "sd_of_log_given_weights": (2 / count) ** 0.5,
        }
    return rows


def print_report(results: dict[str, Any]) -> None:
    """The figures, the paper's beside them."""
    print(
        f"\n{'precision of':12s} {'weights':>8s}",
        *(f"{name:>9s}" for name in ("start", "first", "last", "std", "of log")),
    )
    for path, row in results["precisions"].items():
        print(
            f"{path:12s} {row['weights']:8d} {row['start']:9.4g} {row['first']:9.4g} {row['last']:9.4g}",
            f"{row['std']:9.3g} {row['std_of_log']:10.2g}",
        )
    print(f"\n{'':12s} {'accuracy % paper':>16s} {'ours':>6s} {'log loss':>9s}", end=" ")
    print(f"{'entropy: MNIST':>15s} {'Fashion':>8s} {'AUROC':>6s}")
    for name, row in results["predictions"].items():
        print(
            f"{name:12s} {PAPER_ACCURACY[name]:16.2f} {row['accuracy']:6.2f} {row['log_loss']:9.3f}",
            f"{row['entropy_mnist']:15.3f} {row['entropy_fashion_mnist']:8.3f} {row['auroc']:6.3f}",
        )
    print(
        f"\nacceptance {results['accept_prob']:.2f} at step {results['step_size']:.5f};",
        f"{results['seconds_per_iteration']:.1f} s per iteration, {results['seconds_setup']:.0f} s to the first;",
        f"peak of the process {results['peak_mib']:.0f} MiB",
    )


def run(options: argparse.Namespace, setting: Setting) -> dict[str, Any]:
    """Start, chain, predictions; all figures."""
    host = importlib.import_module(f"benchmarks.papers.cobb_2019.{options.framework}_lenet")
    data = load(options.data, options.train)
    clock = time.perf_counter()
    start = host.optimised(data.x_train, data.y_train, setting.epochs, setting.seed)
    print(f"Adam, {setting.epochs} epochs: {time.perf_counter() - clock:.0f} s", flush=True)
    at_start, start_entropies = predictions(
        host.probabilities(start, data.x_test)[None], host.probabilities(start, data.x_other)[None], data.y_test
    )
    record = run_chain(host, data, start, setting)
    after, entropies = predictions(np.array(record.test), np.array(record.other), data.y_test)
    entropy_figure(options.figures, {"optimised": start_entropies, "S3HMC": entropies}, options.framework)
    return {
        "predictions": {"optimised": at_start, "S3HMC": after},
        "paper_accuracy": PAPER_ACCURACY,
        "precisions": movement(record, start, setting.warmup),
        "trace": record.precisions,
        "accept_prob": record.accept_prob,
        "step_size": record.step_size,
        "seconds_setup": record.seconds[0],
        "seconds_per_iteration": float(np.median(record.seconds[setting.warmup :])),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,  # Linux counts it in KiB
        "peak_device_bytes": host.peak_device_bytes(),
    }


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common_options(parser, data=True, full="for an accelerator", one_at_a_time=True)
    parser.add_argument("--num-subsets", type=int, default=20, help="M; 1 does not split")
    parser.add_argument("--train", type=int, default=10_000, help="digits to train on")
    parser.add_argument("--warmup", type=int, help="iterations before the draws")
    parser.add_argument("--draws", type=int)
    parser.add_argument("--num-steps", type=int, help="of a trajectory")
    parser.add_argument("--epochs", type=int, help="of the optimiser, before the chain")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--figures", help="directory to draw the figure in")
    return parser.parse_args(arguments)


def setting_of(options: argparse.Namespace) -> Setting:
    """The named size, but for what the options say."""
    size = SIZES[size_named(options)]
    given = {name: getattr(options, name) for name in size if getattr(options, name) is not None}
    return Setting(num_subsets=options.num_subsets, seed=options.seed, **size | given)


def main(arguments: list[str] | None = None) -> None:
    """Run, print, draw and save."""
    options = parse_options(arguments)
    setting = setting_of(options)
    results = run(options, setting)
    print_report(results)
    save(options.json, setting._asdict() | {"framework": options.framework, "train": options.train}, results)


if __name__ == "__main__":
    main()
