"""A metric from draws and gradients, after 200 iterations of warm-up, against the host's NUTS after 1,000 (NumPyro).

Six normal targets of D = 50 dimensions: independent, of scales over 10⁸, autocorrelated by 0.9, equicorrelated by 0.9,
rotated of condition 1,000, and of three factors. One subset, whose draws are those of the host but for the metric; four
vectorised chains from the host's own starts, in float64. The effective size is ArviZ's bulk one, of the worse of z and
z² (about the mean), of the worst coordinate; gradients of warm-up are counted apart.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import NUTS

from benchmarks.common.report import add_common_options, save
from benchmarks.gradient_metric import large
from benchmarks.gradient_metric.runs import run
from numpyro_split import SplitNUTS

DIM = 50


def targets() -> dict[str, np.ndarray]:
    """Covariances, by name."""
    rng, places = np.random.default_rng(0), np.arange(DIM)
    turn, _ = np.linalg.qr(rng.normal(size=(DIM, DIM)))
    factors = rng.normal(size=(DIM, 3))
    return {
        "independent": np.identity(DIM),
        "scales over 10⁴": np.diag(np.logspace(-4, 4, DIM)),
        "AR(1), 0.9": 0.9 ** np.abs(places[:, None] - places),
        "equicorrelated, 0.9": 0.9 + 0.1 * np.identity(DIM),
        "rotated, condition 1,000": turn * np.logspace(0, 3, DIM) @ turn.T,
        "three factors": 3 * factors @ factors.T + np.diag(rng.uniform(0.05, 0.5, DIM)),
    }


def main() -> None:
    """Run both kernels on every target, with every seed, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--large", action="store_true", help="targets of 600 and 650 parameters, low rank or diagonal")
    parser.add_argument("--warmup", type=int, default=300, help="iterations of warm-up with --large")
    add_common_options(parser, ("numpyro",), data=True)
    options = parser.parse_args()
    if options.quick:
        options.samples, options.seeds, options.warmup = 20, [1], 30
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")
    if options.large:
        found = large.compare(options.warmup, options.samples, options.seeds, options.data)
        return save(options.json, vars(options), found)
    results = {}
    header = ("target", "metric auto", "host NUTS", "ratio (least to most)", "warm-up", "host's warm-up")
    for line in (header, ["---"] * len(header)):
        print("|", " | ".join(line), "|")
    for name, covariance in targets().items():
        precision = jnp.array(np.linalg.inv(covariance))

        def model(precision: Any = precision) -> None:
            x = numpyro.sample("x", dist.ImproperUniform(dist.constraints.real_vector, (), (DIM,)))
            numpyro.factor("density", -0.5 * x @ precision @ x)

        ours = [run(SplitNUTS(model, 1, metric="auto"), 200, options.samples, "num_grads", s) for s in options.seeds]
        hosts = [run(NUTS(model), 1000, options.samples, "num_steps", s) for s in options.seeds]
        ratios = [a["ess_per_gradient"] / b["ess_per_gradient"] for a, b in zip(ours, hosts, strict=True)]
        results[name] = {"auto": ours, "host": hosts, "ratios": ratios}
        sizes, warmups = (
            [np.median([found[field] for found in arm]) for arm in (ours, hosts)]
            for field in ("ess_per_gradient", "warmup_gradients")
        )
        cells = [f"{size:.4f}" for size in sizes] + [
            f"{np.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        ]
        print("|", " | ".join([name, *cells, *(f"{number:,.0f}" for number in warmups)]), "|", flush=True)
        jax.clear_caches()
    save(options.json, vars(options), results)


if __name__ == "__main__":
    main()
