"""What the tables share: digits, the networks, how a row is run and printed."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import MCMC
from sklearn.datasets import load_digits

from benchmarks.common.numpyro_models import Classifier, Position
from benchmarks.common.report import add_common_options, save, size_named
from benchmarks.papers.lau_2018.ess import counting_lag_zero, effective_sizes
from numpyro_split import sample

NUM_ROWS = 500  # of training and of test data
HIDDEN = 35
PIXEL_DIVISORS = {"255": 255.0, "range": 16.0, "none": 1.0}
TARGET_ACCEPT_PROB = 0.9
STATISTICS = ("num_steps", "num_grads", "accept_prob", "diverging", "step_size")
PAPER_DRAWS = 4000


class Digits(NamedTuple):
    """Images, one a row of 64 pixels, and their labels."""

    x_train: jax.Array
    y_train: jax.Array
    x_test: jax.Array
    y_test: jax.Array


class Size(NamedTuple):
    """How long a row runs; "full" is the thesis's."""

    chains: int
    warmup: int
    draws: int


SIZES = {
    "quick": Size(chains=2, warmup=10, draws=10),
    "default": Size(chains=2, warmup=100, draws=100),
    "full": Size(chains=4, warmup=1000, draws=1000),
}


class Paper(NamedTuple):
    """What the thesis gives for a row: test error in %, effective sample sizes of 4,000 draws."""

    test_error: float
    min_ess: float
    median_ess: float


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        name: what is run.
        paper: the thesis's figures, where it has them.
        kernel: the kernel, or what makes it.
        statistics: those to record that not every kernel has.
        weights: the weights among a kernel's draws.
        logits: of weights and images.
        double: whether the chains run in double precision.
        measure: further figures of the weights, each with a leading axis of draws.
    """

    name: str
    paper: Paper | None
    kernel: Any
    statistics: tuple[str, ...] = ()
    weights: Callable[[Position], Position] = lambda draws: draws
    logits: Callable[[Position, jax.Array], jax.Array] = lambda z, x: logits(z, x)
    double: bool = False
    measure: Callable[[Position, Digits], dict[str, float]] | None = None


def load(scaling: str) -> Digits:
    """The first 500 of scikit-learn's digits to train on, the last 500 to test on."""
    x, y = load_digits(return_X_y=True)
    x = jnp.asarray(x / PIXEL_DIVISORS[scaling], jnp.float32)
    y = jnp.asarray(y)
    return Digits(x[:NUM_ROWS], y[:NUM_ROWS], x[-NUM_ROWS:], y[-NUM_ROWS:])


def logits(z: Position, x: jax.Array) -> jax.Array:
    """One hidden layer of tanh units without biases."""
    return jnp.tanh(x @ z["hidden"]) @ z["output"]


def network(units: int = HIDDEN) -> Classifier:
    """The thesis's model: every weight N(0, 1)."""
    return Classifier(logits, {"hidden": (64, units), "output": (units, 10)})


def predictive_errors(
    z: Position, digits: Digits, logits: Callable[[Position, jax.Array], jax.Array] = logits
) -> tuple[float, float]:
    """Error in % of the predictive distribution, and of single draws on average.

    Args:
        z: weights, each with a leading axis of draws.
        digits: images and labels.
        logits: of weights and images.
    """

    def add(total: jax.Array, one: Position) -> tuple[jax.Array, jax.Array]:
        probs = jax.nn.softmax(logits(one, digits.x_test))
        return total + probs, jnp.mean(probs.argmax(axis=1) != digits.y_test)

    total, single = jax.lax.scan(add, jnp.zeros((NUM_ROWS, 10)), z)
    return 100 * float(jnp.mean(total.argmax(axis=1) != digits.y_test)), 100 * float(single.mean())


def run_row(row: Row, digits: Digits, size: Size, seed: int, store: str | None = None) -> dict[str, Any]:
    """Run the chains of a row one after the other; its figures.

    Args:
        row: of the table.
        digits: images and labels.
        size: of the run.
        seed: of the chains.
        store: folder that the run is written to and goes on from; None keeps it in memory.
    """
    with jax.enable_x64(True) if row.double else nullcontext():
        if row.double:
            x_train, x_test = (jnp.asarray(np.asarray(x), jnp.float64) for x in (digits.x_train, digits.x_test))
            digits = digits._replace(x_train=x_train, x_test=x_test)
        return _run_row(row, digits, size, seed, store)


def _run_row(row: Row, digits: Digits, size: Size, seed: int, store: str | None) -> dict[str, Any]:
    kernel = row.kernel() if callable(row.kernel) and not hasattr(row.kernel, "sample") else row.kernel
    mcmc = MCMC(
        kernel,
        num_warmup=size.warmup,
        num_samples=size.draws,
        num_chains=size.chains,
        chain_method="sequential",
        progress_bar=False,
    )
    start = time.perf_counter()
    rows, fields = (digits.x_train, digits.y_train), STATISTICS + row.statistics
    if store is None:
        mcmc.run(jax.random.key(seed), *rows, extra_fields=fields)
    else:
        sample(mcmc, jax.random.key(seed), *rows, store=f"{store}/{row.name}_{seed}.zarr", extra_fields=fields)
    draws = jax.block_until_ready(mcmc.get_samples())
    seconds = time.perf_counter() - start
    z = row.weights(draws)
    by_chain = [np.asarray(u).reshape(size.chains, size.draws, -1) for u in z.values()]
    sizes = effective_sizes(np.concatenate(by_chain, axis=2))
    predictive, single = predictive_errors(z, digits, row.logits)
    means = {name: float(np.mean(value)) for name, value in mcmc.get_extra_fields().items()}
    return {
        "name": row.name,
        "paper": row.paper and row.paper._asdict(),
        "test_error": predictive,
        "test_error_single_draw": single,
        "min_ess": float(sizes.min()),
        "median_ess": float(np.median(sizes)),
        "parameters": int(sum(np.prod(u.shape[1:]) for u in z.values())),
        "seconds": seconds,
        **(row.measure(z, digits) if row.measure else {}),
        **means,
    }


def parse_options(description: str | None, arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line that the scripts take."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common_options(parser, ["numpyro"], full="the thesis's lengths; hours")
    parser.add_argument("--scaling", choices=list(PIXEL_DIVISORS), default="255", help="what pixels are divided by")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="names of the rows to run; default all")
    parser.add_argument("--chains", type=int)
    parser.add_argument("--warmup", type=int, help="iterations of each chain before its draws")
    parser.add_argument("--draws", type=int, help="of each chain")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--store", metavar="DIR", help="folder to write the draws to, from which the same command goes on"
    )
    return parser.parse_args(arguments)


def size_of(options: argparse.Namespace) -> Size:
    """The named size, but for what the options say."""
    given = {name: getattr(options, name) for name in Size._fields if getattr(options, name) is not None}
    return SIZES[size_named(options)]._replace(**given)


def run_table(rows: Sequence[Row], options: argparse.Namespace) -> None:
    """Run the rows, print the table, and write JSON where asked."""
    chosen = [row for row in rows if not options.only or row.name in options.only]
    if not chosen:
        raise SystemExit(f"--only must name some of {[row.name for row in rows]}, got {options.only}")
    digits, size = load(options.scaling), size_of(options)
    print(f"pixels divided by {PIXEL_DIVISORS[options.scaling]:g}; {size}; thesis: 4 chains, 4,000 draws")
    print_header()
    settings = size._asdict() | {"scaling": options.scaling, "seed": options.seed, "rows": NUM_ROWS}
    store, results = store_of(options), []
    for row in chosen:
        results.append(run_row(row, digits, size, options.seed, store))
        print_result(results[-1], size.chains * size.draws)
        save(options.json, settings, results)


def store_of(options: argparse.Namespace) -> str | None:
    """Folder of the runs' stores; runs of the published size have one unless told otherwise."""
    folder = options.store or ("paper_runs/lau_2018" if options.full else None)
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
    return folder


def print_header() -> None:
    """What the columns hold; effective sizes are in % of the draws, since the draws differ in number."""
    print("ESS in % of draws; 'lag 0': with lag 0 among the correlations summed, see the README")
    print(f"{'':18s} {'test error %':^20s} {'min ESS':^23s} {'median ESS':^23s}")
    ess = f"{'thesis':>7s} {'ours':>7s} {'lag 0':>7s}"
    cost = f"{'steps':>6s} {'accept':>7s} {'δ':>7s} {'s':>6s}"
    print(f"{'':18s} {'thesis':>6s} {'ours':>5s} {'1 draw':>7s} {ess} {ess} {cost}")


def print_result(result: dict[str, Any], num_draws: int) -> None:
    """One row of the table."""
    paper = result["paper"]
    error = f"{paper['test_error']:6.1f}" if paper else f"{'-':>6s}"
    sizes = " ".join(effective_cells(paper, result, name, num_draws) for name in ("min_ess", "median_ess"))
    threshold = f"{result['threshold']:7.3f}" if "threshold" in result else f"{'-':>7s}"
    print(
        f"{result['name']:18s} {error} {result['test_error']:5.1f} {result['test_error_single_draw']:7.1f} {sizes}",
        f"{result['num_steps']:6.0f} {result['accept_prob']:7.2f} {threshold} {result['seconds']:6.0f}",
        flush=True,
    )


def effective_cells(paper: dict[str, float] | None, result: dict[str, Any], name: str, num_draws: int) -> str:
    """The thesis's effective size, ours, and ours with lag 0, in % of the draws."""
    theirs = f"{100 * paper[name] / PAPER_DRAWS:7.2f}" if paper else f"{'-':>7s}"
    with_lag_zero = counting_lag_zero(result[name], num_draws)
    return f"{theirs} {100 * result[name] / num_draws:7.1f} {100 * with_lag_zero / num_draws:7.1f}"
