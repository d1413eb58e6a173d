"""One fresh process of ``benchmarks.start_up``: prints the seconds from a kernel to its first draw as JSON.

``python -m benchmarks.start_up.first_draw ARM [DIRECTORY]``, with a directory for JAX's compiled programs.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable

NUM_WARMUP, NUM_SUBSETS, TALL_ROWS, TALL_WARMUP = 300, 4, 100_000, 500


def store_programs(directory: str | None) -> None:
    """Have JAX keep what it compiles, the chain too, where a directory is given."""
    if directory is not None:
        import jax

        os.environ["SPLIT_MCMC_WARNINGS"] = "report"
        jax.config.update("jax_compilation_cache_dir", directory)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def numpyro_run(ours: bool, directory: str | None) -> Callable[[], object]:
    """The README's model in NumPyro, its data made: 300 iterations of warm-up and one draw."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    from numpyro_split import SymmetricSplitHMC

    store_programs(directory)

    def model(X, y=None):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
        with numpyro.plate("data", X.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)

    X = jax.random.normal(jax.random.key(0), (1_000, 3))
    noise = jax.random.logistic(jax.random.key(1), (1_000,))
    y = jax.block_until_ready((X @ jnp.array([1.0, -1.0, 0.5]) + noise > 0).astype(float))

    def run() -> None:
        kernel = SymmetricSplitHMC(model, num_subsets=NUM_SUBSETS) if ours else NUTS(model)
        mcmc = MCMC(kernel, num_warmup=NUM_WARMUP, num_samples=1, progress_bar=False)
        mcmc.run(jax.random.key(2), X, y)
        jax.block_until_ready(mcmc.get_samples())

    return run


def pyro_run(ours: bool, directory: str | None) -> Callable[[], object]:
    """The same in Pyro."""
    import pyro
    import pyro.distributions as dist
    import torch
    from pyro.infer import MCMC, NUTS

    from pyro_split import SymmetricSplitHMC

    torch.set_num_threads(1)
    pyro.set_rng_seed(0)

    def model(X, y=None):
        w = pyro.sample("w", dist.Normal(torch.zeros(X.shape[1]), 1.0).to_event(1))
        with pyro.plate("data", X.shape[0]):
            pyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)

    X = torch.randn(1_000, 3)
    y = torch.bernoulli(torch.sigmoid(X @ torch.tensor([1.0, -1.0, 0.5])))

    def run() -> None:
        kernel = SymmetricSplitHMC(model, num_subsets=NUM_SUBSETS) if ours else NUTS(model)
        MCMC(kernel, num_samples=1, warmup_steps=NUM_WARMUP, disable_progbar=True).run(X, y)

    return run


def penalty_run(ours: bool, directory: str | None) -> Callable[[], object]:
    """PenaltyMH on the regression of ``benchmarks.tall_logistic``: 500 iterations of warm-up and one draw."""
    import jax
    from numpyro.infer import MCMC

    from benchmarks.tall_logistic.data import independent_data, model
    from numpyro_split import PenaltyMH

    store_programs(directory)
    data = jax.block_until_ready(independent_data(TALL_ROWS))

    def run() -> None:
        kernel = PenaltyMH(model)
        mcmc = MCMC(kernel, num_warmup=TALL_WARMUP, num_samples=1, progress_bar=False)
        mcmc.run(jax.random.key(0), *data)
        jax.block_until_ready(mcmc.get_samples())

    return run


ARMS = {
    "numpyro NUTS": (numpyro_run, False),
    "numpyro ours": (numpyro_run, True),
    "pyro NUTS": (pyro_run, False),
    "pyro ours": (pyro_run, True),
    "numpyro PenaltyMH": (penalty_run, True),
}


def main() -> None:
    """Run and print."""
    warnings.simplefilter("ignore")
    make, ours = ARMS[sys.argv[1]]
    run = make(ours, sys.argv[2] if len(sys.argv) > 2 else None)
    wall, processor = time.perf_counter(), time.process_time()
    run()
    print(json.dumps({"wall": time.perf_counter() - wall, "processor": time.process_time() - processor}))


if __name__ == "__main__":
    main()
