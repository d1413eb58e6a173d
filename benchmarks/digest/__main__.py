"""What it costs that a state knows its data: the digest on the host, in the graph, and what a run spends on both.

``python -m benchmarks.digest`` prints seconds for 10⁶ rows of 50 float32 numbers (minimum, median and maximum of 5): of
the digest itself; of looking at the model's expression; and of an iteration of a compiled chain with and without data
that could be checked, interleaved. ``--rows`` takes another number.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from benchmarks.common.report import add_common_options, save
from numpyro_split import SymmetricSplitHMC
from numpyro_split.potential.arguments import Arguments
from numpyro_split.potential.content import program_of_model, traced_digest
from split_common.digest import digest_of_arrays

RUNS = 5


def model(X: Any, y: Any) -> None:
    """Logistic regression."""
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("data", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def seconds(work: Callable[[], Any]) -> float:
    """Of one call."""
    start = time.perf_counter()
    jax.block_until_ready(work())
    return time.perf_counter() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, help="default 10⁶")
    add_common_options(parser, ["numpyro"])
    options = parser.parse_args()
    options.rows = options.rows or (10**4 if options.quick else 10**6)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((options.rows, 50), np.float32)
    y = (rng.random(options.rows) < 0.5).astype(np.float32)
    data = (jnp.asarray(X), jnp.asarray(y))
    in_graph = jax.jit(lambda data: traced_digest(data, "program"))
    kernel = SymmetricSplitHMC(model, num_subsets=4, num_steps=1, step_size=1e-4, adapt_step_size=False)
    state = kernel.init(jax.random.key(0), 0, None, data, {})
    checked = jax.jit(lambda state, data: kernel.sample(state, data, {}))
    known = jax.jit(lambda state: kernel.sample(state, data, {}))
    state = jax.block_until_ready(checked(known(state), data))
    jax.block_until_ready((known(state), in_graph(data)))
    works = {
        "digest on the host": lambda: digest_of_arrays((X, y)).words,
        "digest in the graph": lambda: in_graph(data),
        "the model's expression": lambda: program_of_model(model, Arguments(data, {})),
        "iteration, data as constants": lambda: known(state),
        "iteration, data as arguments": lambda: checked(state, data),
    }
    taken = {name: [] for name in works}
    for _ in range(RUNS):
        for name, work in works.items():
            taken[name].append(seconds(work))
    figures = {name: [min(x), float(np.median(x)), max(x)] for name, x in taken.items()}
    for name, (low, middle, high) in figures.items():
        print(f"{name:32}{low:8.3f}{middle:8.3f}{high:8.3f}")
    save(options.json, {"rows": options.rows}, {"seconds": figures})


if __name__ == "__main__":
    main()
