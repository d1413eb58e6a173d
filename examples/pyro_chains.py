"""Chains over processes, on one machine or many: one process makes one chain, and they are joined at the end.

    torchrun --nproc-per-node=2 examples/pyro_chains.py --folder chains
    python examples/pyro_chains.py --folder chains --join

Chains have nothing to say to one another, so there is no process group. Each has random numbers of its own and a file
of its own in a folder that all machines see.
"""

import argparse
import os
from pathlib import Path

import arviz as az
import numpy as np
import pyro
import pyro.distributions
import torch
from pyro.infer import MCMC

from pyro_split import SplitHMC, to_inference_data

SEED = 100


def model(X, y=None):
    w = pyro.sample("w", pyro.distributions.Normal(torch.zeros(X.shape[1]), 1.0).to_event(1))
    with pyro.plate("data", X.shape[0]):
        pyro.sample("y", pyro.distributions.Normal(X @ w, 1.0), obs=y)


def all_rows(num_rows=1000):
    """The rows, the same for every chain."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((num_rows, 3))
    return torch.tensor(X), torch.tensor(X @ np.array([1.0, -1.0, 0.5]) + rng.standard_normal(num_rows))


def make_chain(folder, rank, draws):
    """One chain, written to a file."""
    pyro.set_rng_seed(SEED + rank)  # another one for every chain
    mcmc = MCMC(SplitHMC(model, num_subsets=4), draws, warmup_steps=draws, disable_progbar=True)
    mcmc.run(*all_rows())
    folder.mkdir(parents=True, exist_ok=True)
    to_inference_data(mcmc).to_netcdf(folder / f"{rank}.nc")


def joined(folder):
    """All chains, in order of their ranks, in one ``InferenceData``."""
    files = sorted(folder.glob("*.nc"), key=lambda file: int(file.stem))
    return az.concat(*(az.from_netcdf(file) for file in files), dim="chain")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("chains"))
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--join", action="store_true", help="join the chains that are there")
    options = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    if options.join:
        print(az.summary(joined(options.folder)).to_string())
    else:
        make_chain(options.folder, int(os.environ.get("RANK", "0")), options.draws)


if __name__ == "__main__":
    main()
