"""Logistic regression on rows that two processes hold, half each; one chain, which both make.

    torchrun --nproc-per-node=2 examples/pyro_two_processes.py

On two machines, with the same line on both but for the rank:

    torchrun --nnodes=2 --nproc-per-node=1 --node-rank=0 --master-addr=HOST --master-port=29500 \\
        examples/pyro_two_processes.py

Each process reads its own rows; none ever holds the other's. A kick is one message of 8 (D + 3) bytes.
"""

import argparse
from datetime import timedelta

import numpy as np
import pyro
import pyro.distributions
import torch
import torch.distributed
from pyro.infer import MCMC

from pyro_split import SplitHMC

COEFFICIENTS = np.array([1.0, -0.5, 0.25, 0.0])


def model(X, y=None):
    w = pyro.sample("w", pyro.distributions.Normal(torch.zeros(X.shape[1]), 1.0).to_event(1))
    with pyro.plate("data", X.shape[0]):
        pyro.sample("y", pyro.distributions.Bernoulli(logits=X @ w), obs=y)


def rows_of(rank, num_rows):
    """This process's rows, where yours would read its own file; not from torch's generator, which ranks share."""
    rng = np.random.default_rng([0, rank])
    X = rng.standard_normal((num_rows, len(COEFFICIENTS)))
    y = rng.random(num_rows) < 1 / (1 + np.exp(-X @ COEFFICIENTS))
    return torch.tensor(X), torch.tensor(y, dtype=torch.float64)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000, help="of each process")
    parser.add_argument("--draws", type=int, default=300)
    options = parser.parse_args()

    # a process that waits longer than this for another ends with an error
    torch.distributed.init_process_group("gloo", timeout=timedelta(minutes=2))
    rank, num_ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.set_default_dtype(torch.float64)
    X, y = rows_of(rank, options.rows)

    pyro.set_rng_seed(0)  # the same on every rank
    kernel = SplitHMC(model, num_subsets=4, process_group="world")
    mcmc = MCMC(kernel, options.draws, warmup_steps=options.draws, disable_progbar=rank > 0)
    mcmc.run(X, y)

    if rank == 0:  # every rank has the same draws
        w = mcmc.get_samples()["w"]
        print(f"{num_ranks * options.rows:,} rows on {num_ranks} ranks")
        for name, x in (("mean", w.mean(0)), ("standard deviation", w.std(0)), ("truth", torch.tensor(COEFFICIENTS))):
            print(f"{name:>20}: " + "  ".join(f"{value:7.4f}" for value in x.tolist()))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
