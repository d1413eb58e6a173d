"""XHMC against NUTS: effective draws per thousand gradients, by criterion and threshold.

Six normal targets, in 2 and in 50 dimensions: equally correlated (0.95), ill-conditioned (standard deviations from 0.1
to 10) and autocorrelated (0.9 to the power of the distance). Unit mass matrix, so that they stay as hard as they are,
or ``--metric auto`` beside the host's NUTS by its defaults; the step size adapts; M = 1. A figure is the smallest
effective sample size over all coordinates and their squares, over all gradients after warm-up, in thousands: mean and
standard error over independent runs of four chains, each started from the target. Of chains that have hardly moved it
says too much: below five draws a chain it is no figure, and is printed as "-".
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from numpyro.infer import NUTS

from benchmarks.common.report import add_common_options, save
from benchmarks.exhaustion.tables import CRITERIA, THRESHOLDS, efficiency
from numpyro_split import XHMC, SplitNUTS, SplitPotential

KINDS = ("correlated", "ill-conditioned", "autocorrelated")
CHAINS = 4
SETTINGS: dict[str, dict[str, Any]] = {
    "unit": {"step_size": 0.1, "adapt_mass_matrix": False, "find_heuristic_step_size": False},
    "auto": {"metric": "auto"},
}
HOST_WARMUP = 1000  # of the host's NUTS, whose metric of draws takes it
LEAST_ESS = 5 * CHAINS  # of independent chains that each stand still, ESS is a few by chance


class Run(NamedTuple):
    """What one run of four chains shows.

    Attributes:
        efficiency: smallest effective sample size per thousand gradients; NaN where it is too small to be told.
        num_grads: gradients per draw.
        threshold: geometric mean over the chains; None for NUTS.
    """

    efficiency: float
    num_grads: float
    threshold: float | None


def covariance(kind: str, size: int) -> np.ndarray:
    """Of a target, shape (D, D)."""
    if kind == "correlated":
        return 0.05 * np.eye(size) + 0.95
    if kind == "ill-conditioned":
        return np.diag(np.logspace(-2, 2, size))
    return 0.9 ** np.abs(np.subtract.outer(np.arange(size), np.arange(size)))


def normal(cov: np.ndarray) -> SplitPotential:
    """The potential of N(0, cov), as that of a single row."""
    precision = jnp.asarray(np.linalg.inv(cov))
    return SplitPotential.from_functions(
        lambda z: jnp.zeros(()), lambda z, rows: -0.5 * rows.sum() * z["x"] @ precision @ z["x"], jnp.ones(1), 1
    )


def sampler(kernel: Any, cov: np.ndarray, warmup: int, draws: int) -> Callable[[jax.Array, Any], tuple[Any, ...]]:
    """A compiled chain, from a key and a threshold to draws, gradients and thresholds."""
    root = jnp.asarray(np.linalg.cholesky(cov))

    def chain(rng_key: jax.Array, threshold: jax.Array | None) -> tuple[Any, ...]:
        key_start, key_chain = random.split(rng_key)
        start = {"x": root @ random.normal(key_start, (len(cov),))}
        state = kernel.init(key_chain, warmup, start, (), {})
        if threshold is not None:
            state = state._replace(threshold_state=state.threshold_state._replace(threshold=threshold))
        state = lax.fori_loop(0, warmup, lambda _, s: kernel.sample(s, (), {}), state)

        def draw(state: Any, _: None) -> tuple[Any, Any]:
            state = kernel.sample(state, (), {})
            num_grads = state.num_steps if isinstance(kernel, NUTS) else state.num_grads
            return state, (state.z["x"], num_grads, getattr(state, "threshold", None))

        return lax.scan(draw, state, None, length=draws)[1]

    return jax.jit(chain)


def run(chain: Callable[..., tuple[Any, ...]], threshold: float | None, seed: int) -> Run:
    """Four chains."""
    given = None if threshold is None else jnp.asarray(threshold)
    chains = [jax.device_get(chain(key, given)) for key in random.split(random.key(seed), CHAINS)]
    x, num_grads = (np.stack([c[i] for c in chains]) for i in (0, 1))
    ess = min(float(az.ess(f[:, :, d], method="mean")) for f in (x, x**2) for d in range(x.shape[2]))
    thresholds = None if chains[0][2] is None else float(np.exp(np.mean([np.log(c[2][-1]) for c in chains])))
    return Run(1000 * ess / num_grads.sum() if ess > LEAST_ESS else np.nan, float(num_grads.mean()), thresholds)


def measure(kind: str, size: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Every method on one target."""
    cov = covariance(kind, size)
    settings: dict[str, Any] = SETTINGS[options.metric]
    found = []

    def note(method: str, threshold: Any, chain: Callable[..., tuple[Any, ...]], traced: float | None) -> None:
        runs = [run(chain, traced, seed) for seed in range(options.runs)]
        about = {"target": kind, "dimension": size, "method": method, "threshold": threshold}
        found.append(about | {"runs": [r._asdict() for r in runs]})
        print_cell(found[-1])

    if options.metric == "auto":
        host = NUTS(potential_fn=normal(cov).potential)
        note("host's NUTS", None, sampler(host, cov, HOST_WARMUP, options.draws), None)
    note("NUTS", None, sampler(SplitNUTS(normal(cov), **settings), cov, options.warmup, options.draws), None)
    for criterion in options.criteria:
        fixed = XHMC(normal(cov), threshold=1.0, criterion=criterion, **settings)
        adapted = XHMC(normal(cov), threshold="adapt", criterion=criterion, **settings)
        fixed, adapted = (sampler(k, cov, options.warmup, options.draws) for k in (fixed, adapted))
        for threshold in THRESHOLDS:
            if isinstance(threshold, str):
                note(f"XHMC {criterion}", threshold, adapted, None)
            else:
                note(f"XHMC {criterion}", threshold, fixed, threshold)
    return found


def print_cell(result: dict[str, Any]) -> None:
    """One line of the table."""
    by_name = {name: np.array([r[name] for r in result["runs"]], float) for name in Run._fields}
    chosen = f"  ({by_name['threshold'].mean():.2g})" if result["threshold"] == "adapt" else ""
    print(
        f"{result['target']:16s}{result['dimension']:4d}  {result['method']:16s}{result['threshold'] or '':>6}"
        f"{efficiency(result):>18s}{by_name['num_grads'].mean():9.1f}{chosen}",
        flush=True,
    )


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=4, help="independent runs of four chains")
    parser.add_argument("--warmup", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--dimensions", type=int, nargs="+", default=[2, 50])
    parser.add_argument("--criteria", choices=CRITERIA, nargs="+", default=CRITERIA)
    parser.add_argument("--metric", choices=list(SETTINGS), default="unit")
    add_common_options(parser, ["numpyro"])
    options = parser.parse_args(arguments)
    if options.quick:
        options.runs, options.warmup, options.draws, options.dimensions = 2, 200, 200, [2]
    print(f"{'target':16s}{'D':>4s}  {'method':16s}{'thresh.':>6s}{'ESS/1000 grads':>18s}{'grads':>9s}")
    results = [found for kind in KINDS for size in options.dimensions for found in measure(kind, size, options)]
    settings = {"runs": options.runs, "warmup": options.warmup, "draws": options.draws, "metric": options.metric}
    save(options.json, settings, results)


if __name__ == "__main__":
    main()
