"""Table 4.3 of Lau (2018): Gibbs sampling of a hyperparameter against joint sampling, and S3HMC beside them.

The network of the other tables, with input weights N(0, σ²) and σ⁻² ~ Gamma(0.5, 0.5). The thesis's Gibbs sampler moves
the weights by NUTS with the identity metric and a step of 0.01; here also with an adapted step and metric. Joint
sampling is by NUTS, of the weights (centred) or of the weights over σ (non-centred). Figures are of the weights and σ²,
whatever is sampled. The target acceptance of everything that adapts is that of the other tables.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC

from benchmarks.common.numpyro_models import Position
from benchmarks.common.report import save
from benchmarks.papers.lau_2018.digits import (
    HIDDEN,
    NUM_ROWS,
    PIXEL_DIVISORS,
    STATISTICS,
    TARGET_ACCEPT_PROB,
    Digits,
    Size,
    effective_cells,
    load,
    logits,
    parse_options,
    predictive_errors,
    size_of,
)
from benchmarks.papers.lau_2018.ess import effective_sizes
from numpyro_split import S3HMC, BlockGibbsHMC, SplitNUTS

INPUT_SHAPE, OUTPUT_SHAPE = (64, HIDDEN), (HIDDEN, 10)
ESS_NAMES = ("variance_ess", "min_ess", "median_ess")


class Paper(NamedTuple):
    """What the thesis gives: test error in %, effective sizes of 4,000 draws."""

    test_error: float
    variance_ess: float
    min_ess: float
    median_ess: float


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        name: what is run.
        paper: the thesis's figures, where it has them.
        make: makes the kernel.
    """

    name: str
    paper: Paper | None
    make: Callable[[], Any]


def _standard_normal(name: str, shape: tuple[int, ...], scale: Any = 1.0) -> jax.Array:
    return jnp.asarray(numpyro.sample(name, dist.Normal(jnp.zeros(shape), scale).to_event(2)))


def _classify(hidden: jax.Array, x: jax.Array, y: jax.Array) -> None:
    z = {"hidden": hidden, "output": _standard_normal("output", OUTPUT_SHAPE)}
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Categorical(logits=logits(z, x)), obs=y)


def centred(x: jax.Array, y: jax.Array) -> None:
    """Input weights as the thesis writes them."""
    precision = numpyro.sample("precision", dist.Gamma(0.5, 0.5))
    _classify(_standard_normal("hidden", INPUT_SHAPE, precision**-0.5), x, y)


def non_centred(x: jax.Array, y: jax.Array) -> None:
    """The same network, input weights over σ."""
    precision = numpyro.sample("precision", dist.Gamma(0.5, 0.5))
    _classify(precision**-0.5 * _standard_normal("white", INPUT_SHAPE), x, y)


def weights_and_variance(draws: Position) -> tuple[Position, jax.Array]:
    """The weights and σ² of draws of either model."""
    variance = 1 / draws["precision"]
    white = draws.get("white")
    hidden = draws["hidden"] if white is None else jnp.sqrt(variance)[:, None, None] * white
    return {"hidden": hidden, "output": draws["output"]}, variance


FIXED = {"adapt_step_size": False, "adapt_mass_matrix": False, "find_heuristic_step_size": False}
ADAPTED = {"target_accept_prob": TARGET_ACCEPT_PROB}
ROWS = (
    Row("Gibbs, step 0.01", Paper(88.4, 4.38, 1.29, 45.3), lambda: BlockGibbsHMC(centred, step_size=0.01, **FIXED)),
    Row("Gibbs, adapted", None, lambda: BlockGibbsHMC(centred, **ADAPTED)),
    Row("joint centred", Paper(25.8, 4.86, 4.69, 1037), lambda: SplitNUTS(centred, **ADAPTED)),
    Row("joint non-centred", Paper(28.4, 504, 434, 1333), lambda: SplitNUTS(non_centred, **ADAPTED)),
    Row("S3HMC", None, lambda: S3HMC(centred, **ADAPTED)),
)


def run_row(row: Row, digits: Digits, size: Size, seed: int) -> dict[str, Any]:
    """Run the chains of a row one after the other; its figures."""
    mcmc = MCMC(
        row.make(),
        num_warmup=size.warmup,
        num_samples=size.draws,
        num_chains=size.chains,
        chain_method="sequential",
        progress_bar=False,
    )
    start = time.perf_counter()
    mcmc.run(jax.random.key(seed), digits.x_train, digits.y_train, extra_fields=STATISTICS)
    draws = jax.block_until_ready(mcmc.get_samples())
    seconds = time.perf_counter() - start
    weights, variance = weights_and_variance(draws)
    by_chain = [np.asarray(u).reshape(size.chains, size.draws, -1) for u in (variance, *weights.values())]
    sizes = effective_sizes(np.concatenate(by_chain, axis=2))
    predictive, single = predictive_errors(weights, digits)
    return {
        "name": row.name,
        "paper": row.paper and row.paper._asdict(),
        "test_error": predictive,
        "test_error_single_draw": single,
        "variance_ess": float(sizes[0]),
        "min_ess": float(sizes[1:].min()),
        "median_ess": float(np.median(sizes[1:])),
        "variance_by_chain": by_chain[0].mean(axis=(1, 2)).tolist(),
        "seconds": seconds,
        **{name: float(np.mean(value)) for name, value in mcmc.get_extra_fields().items()},
    }


def print_header() -> None:
    """What the columns hold; effective sizes are in % of the draws, since the draws differ in number."""
    print("ESS in % of draws; 'lag 0': with lag 0 among the correlations summed, see the README")
    print(f"{'':18s} {'test error %':^20s} {'σ² ESS':^23s} {'min ESS':^23s} {'median ESS':^23s}")
    ess = f"{'thesis':>7s} {'ours':>7s} {'lag 0':>7s}"
    cost = f"{'steps':>6s} {'accept':>7s} {'s':>6s}  mean σ² by chain"
    print(f"{'':18s} {'thesis':>6s} {'ours':>5s} {'1 draw':>7s} {ess} {ess} {ess} {cost}")


def print_result(result: dict[str, Any], num_draws: int) -> None:
    """One row of the table."""
    paper = result["paper"]
    error = f"{paper['test_error']:6.1f}" if paper else f"{'-':>6s}"
    print(
        f"{result['name']:18s} {error} {result['test_error']:5.1f} {result['test_error_single_draw']:7.1f}",
        *(effective_cells(paper, result, name, num_draws) for name in ESS_NAMES),
        f"{result['num_steps']:6.0f} {result['accept_prob']:7.2f} {result['seconds']:6.0f} ",
        ", ".join(f"{variance:.4g}" for variance in result["variance_by_chain"]),
        flush=True,
    )


def run_table(options: argparse.Namespace) -> None:
    """Run the rows, print the table, and write JSON where asked."""
    chosen = [row for row in ROWS if not options.only or row.name in options.only]
    if not chosen:
        raise SystemExit(f"--only must name some of {[row.name for row in ROWS]}, got {options.only}")
    digits, size = load(options.scaling), size_of(options)
    print(f"pixels divided by {PIXEL_DIVISORS[options.scaling]:g}; {size}; thesis: 4 chains, 4,000 draws")
    print_header()
    results = []
    for row in chosen:
        results.append(run_row(row, digits, size, options.seed))
        print_result(results[-1], size.chains * size.draws)
    settings = size._asdict() | {"scaling": options.scaling, "seed": options.seed, "rows": NUM_ROWS}
    save(options.json, settings, results)


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    run_table(parse_options(__doc__, arguments))


if __name__ == "__main__":
    main()
