"""Table 1 of Cobb and Jalaian (2021): acceptance of plain, naive, randomised and symmetric split HMC on MNIST.

Bayesian softmax regression, 48,000 images, 7,850 parameters, M = 10 subsets, trajectories of L = 20 steps of size
6e-4, unit mass. The paper runs 5 chains of 3,000 iterations; the default here is 2 chains of 30, which is enough
for acceptances and for nothing else: the effective sample sizes are those of so short a chain. All schemes start
from the same points of the typical set. The paper does not say how inputs are scaled or which prior it takes; see
the README beside this file.
"""

from __future__ import annotations

import argparse
import importlib
from typing import Any

import numpy as np

from benchmarks.common.labelled import MNIST_MEAN, MNIST_SD, load_images
from benchmarks.common.report import add_common_options, chosen, save
from benchmarks.logistic_mnist.chains import SCHEMES, Setting, laplace_draw

NUM_ROWS, QUICK_ROWS = 48_000, 2_000
PAPER = {  # acceptance, mean ESS, mean ESS per second
    "full": (0.87, 68.7, 0.211),
    "naive": (0.87, 68.7, 0.018),
    "randomised": (0.45, 38.4, 0.010),
    "symmetric": (0.96, 75.0, 0.021),
}
SCALINGS = {"unit": (0.0, 1.0), "standardised": (MNIST_MEAN, MNIST_SD), "centred": (0.5, 0.5)}  # centre, scale
SAME = 0.03  # acceptances of full and naive that differ by less are alike: their draws are the same up to rounding


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    default = Setting()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common_options(parser, data=True)
    parser.set_defaults(framework="numpyro")
    parser.add_argument("--rows", type=int, help=f"number of images; default {NUM_ROWS}")
    parser.add_argument("--subsets", type=int, default=default.num_subsets)
    parser.add_argument("--num-steps", type=int, default=default.num_steps)
    parser.add_argument("--step-size", type=float, default=default.step_size)
    parser.add_argument("--prior-sd", type=float, default=default.prior_sd)
    parser.add_argument("--scaling", choices=list(SCALINGS), default="centred", help="of the inputs")
    parser.add_argument("--warmup", type=int, help=f"iterations before the common start; default {default.warmup}")
    parser.add_argument("--iterations", type=int, help=f"of each chain; default {default.iterations}")
    parser.add_argument("--chains", type=int, help=f"default {default.chains}")
    return parser.parse_args(arguments)


def setting_of(options: argparse.Namespace) -> Setting:
    """The setting that the options name; the quick one is for seeing that the script runs."""
    size = Setting(warmup=3, iterations=3, chains=1) if options.quick else Setting()
    return Setting(
        num_subsets=options.subsets,
        num_steps=options.num_steps,
        step_size=options.step_size,
        prior_sd=options.prior_sd,
        warmup=options.warmup or size.warmup,
        iterations=options.iterations or size.iterations,
        chains=options.chains or size.chains,
    )


def compare(framework: str, x: np.ndarray, y: np.ndarray, setting: Setting) -> list[dict[str, Any]]:
    """Run every scheme from the same starting points; one result for each."""
    side = importlib.import_module(f"benchmarks.logistic_mnist.{framework}_chains").Chains(x, y, setting)
    runs: dict[str, list[Any]] = {scheme: [] for scheme in SCHEMES}
    for seed in range(setting.chains):
        start = side.warm_up(laplace_draw(x, y, setting.prior_sd, seed), seed)
        for scheme in SCHEMES:
            chain = side.run(scheme, start, seed)
            print(f"chain {seed}, {scheme}: acceptance {chain.accept_prob:.3f}, {chain.seconds:.0f} s", flush=True)
            runs[scheme].append(chain)
    results = []
    for scheme, chains in runs.items():
        accept_probs = [chain.accept_prob for chain in chains]
        effective = side.effective_samples(np.array([chain.draws for chain in chains]))
        seconds = sum(chain.seconds for chain in chains)
        results.append(
            {
                "framework": framework,
                "scheme": scheme,
                "accept_prob": float(np.mean(accept_probs)),
                "accept_prob_sd": float(np.std(accept_probs)),
                "mean_ess": effective,
                "mean_ess_per_second": effective / seconds,
                "seconds": seconds,
            }
        )
    return results


def ordering_holds(results: list[dict[str, Any]]) -> bool:
    """Full and naive alike, symmetric above both, randomised below both."""
    accept = {result["scheme"]: result["accept_prob"] for result in results}
    plain = (accept["full"], accept["naive"])
    return max(plain) - min(plain) < SAME and accept["symmetric"] > max(plain) and accept["randomised"] < min(plain)


def print_results(results: list[dict[str, Any]]) -> None:
    """The table, the paper's figures beside ours."""
    print(f"{'framework':9s} {'scheme':11s} {'acceptance':>13s} {'paper':>6s} {'mean ESS':>9s} {'ESS/s':>8s} {'s':>7s}")
    for result in results:
        print(
            "{framework:9s} {scheme:11s} {accept_prob:6.3f} ± {accept_prob_sd:.3f}".format(**result),
            f"{PAPER[result['scheme']][0]:6.2f}",
            "{mean_ess:9.1f} {mean_ess_per_second:8.3f} {seconds:7.1f}".format(**result),
        )
    print("symmetric > full ≈ naive > randomised:", "reproduced" if ordering_holds(results) else "NOT reproduced")


def main(arguments: list[str] | None = None) -> None:
    """Run the chains, print a table, and write JSON where asked."""
    options = parse_options(arguments)
    setting = setting_of(options)
    images = load_images(options.data, options.rows or (QUICK_ROWS if options.quick else NUM_ROWS))
    centre, scale = SCALINGS[options.scaling]
    x = (images.rows - np.float32(centre)) / np.float32(scale)
    print(f"{images.source}, inputs {options.scaling}; {setting}")
    results = []
    for framework in chosen(options.framework, ("numpyro", "pyro")):
        found = compare(framework, x, images.labels, setting)
        print_results(found)
        results += found
    save(options.json, setting._asdict() | {"scaling": options.scaling, "data": images.source}, results)


if __name__ == "__main__":
    main()
