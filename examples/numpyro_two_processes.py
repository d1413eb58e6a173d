"""A regression whose rows lie in two processes, each of which has its own half and sees no row of the other's.

On one machine, in two shells (or in one, with ``&``):

    python examples/numpyro_two_processes.py --place 0 --processes 2 --address localhost:12355
    python examples/numpyro_two_processes.py --place 1 --processes 2 --address localhost:12355

Under Slurm, Open MPI or Kubernetes the places are found by JAX, and the same line is started everywhere:

    srun --ntasks=2 python examples/numpyro_two_processes.py

Alone, with all rows in one process: ``python examples/numpyro_two_processes.py --alone``.
"""

import argparse
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC

from numpyro_split import SplitHMC, shard_rows

DIM = 3


def model(X: Any, y: Any = None) -> None:
    """A regression with a precision."""
    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([DIM]).to_event(1))
    with numpyro.plate("data", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ w, tau**-0.5), obs=y)


def rows_of(place: int, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows that one process has: read them from its own file, or its own part of one."""
    rng = np.random.default_rng(place)
    X = rng.normal(size=(num_rows, DIM)).astype(np.float32)
    return X, (X @ np.array([1.0, -1.0, 0.5]) + 0.5 * rng.normal(size=num_rows)).astype(np.float32)


def main() -> None:
    """One of the processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--place", type=int)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--address")
    parser.add_argument("--rows", type=int, default=10_000, help="of a process; the second one has one more")
    parser.add_argument("--samples", type=int, default=200)
    asked = parser.parse_args()
    if not asked.alone:
        jax.distributed.initialize(asked.address, asked.processes, asked.place)
    mesh = jax.make_mesh((jax.device_count(),), ("rows",))
    X, y = shard_rows(rows_of(jax.process_index(), asked.rows + jax.process_index()), mesh)
    kernel = SplitHMC(model, num_subsets=4)
    mcmc = MCMC(kernel, num_warmup=200, num_samples=asked.samples, jit_model_args=True, progress_bar=False)
    mcmc.run(jax.random.key(0), X, y)  # the same key everywhere
    if jax.process_index() == 0:
        print(f"{jax.device_count()} devices in {jax.process_count()} processes")
        print({name: np.round(np.mean(x, 0), 2).tolist() for name, x in mcmc.get_samples().items()})


if __name__ == "__main__":
    main()
