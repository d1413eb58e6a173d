"""What the processes of ``tests/test_ranks.py`` run, by ``torchrun``: ``python -m tests.rank_run FOLDER JOB ...``.

Rank 0 holds the first 15 of 25 rows and rank 1 the other 10; what each job finds is written to ``FOLDER/RANK.pickle``.
"""

from __future__ import annotations

import argparse
import os
import pickle
import signal
import warnings
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from unittest import mock

import numpy as np

from tests import kernels
from tests.backends import PyroBackend

SHARDS = (range(15), range(15, 25))
NUM_ROWS = 25
# subset m of two is made of each rank's subset m: the rows that one process has in that order
INTERLEAVED = [*range(8), *range(15, 20), *range(8, 15), *range(20, 25)]
FEW_ROWS = ("PenaltyMH", "SGLD", "SGHMC")  # kernels that draw numbers of rows, in the order of ranks
WARMUP, DRAWS = 25, 25


def all_rows(lib, order=range(NUM_ROWS)):
    """The arguments of the model, rows in an order."""
    rows = list(order)
    return tuple(x[rows] for x in kernels.data(lib, NUM_ROWS))


def run(lib, name, args, num_warmup=WARMUP, num_samples=DRAWS, seed=3, model=None, **options):
    """Draws and statistics of one kernel, by name."""
    model = kernels.mixed(lib).model if model is None else model
    kernel = kernels.TABLE[name].make(lib, model, **options)
    mcmc = lib.run(kernel, *args, num_warmup=num_warmup, num_samples=num_samples, seed=seed, hook_fn=None)
    found = {name: x.numpy() for name, x in mcmc.get_samples().items()}
    own = mcmc.diagnostics()
    kept = {name: x["chain 0"] for name, x in own.items() if isinstance(x, dict) and "chain 0" in x}
    return found | {f"statistic {name}": np.array(x) for name, x in kept.items() if isinstance(x, list)}


@contextmanager
def in_two_shards():
    """Kernels of one process that hold the rows of both shards, as where a stored run goes on in one process.

    A sum over 13 rows differs in its last digit from one over 8 and one over 5 added up, and fifty iterations of some
    kernels make more than 1e-10 of that.
    """
    from pyro_split.kernels.host_kernel import SplitKernel

    init, shards = SplitKernel.__init__, tuple(map(len, SHARDS))

    def over_shards(kernel, model, splitting, method):
        init(kernel, model, splitting.for_shards(shards, splitting.num_subsets), method)

    with mock.patch.object(SplitKernel, "__init__", over_shards):
        yield


def said(function):
    """The error of a function, by its type and text."""
    try:
        function()
    except Exception as error:
        return type(error).__name__, str(error)
    return None


class Counter:
    """Counts messages and their numbers, in place of ``torch.distributed.all_reduce``."""

    def __init__(self, all_reduce):
        self._all_reduce, self.sizes = all_reduce, []

    def __call__(self, message, **options):
        self.sizes.append(len(message))
        return self._all_reduce(message, **options)


def draws(lib, rank, model, names, num_warmup, num_samples):
    args = all_rows(lib, SHARDS[rank])
    options = {"num_warmup": num_warmup, "num_samples": num_samples, "model": getattr(kernels, model)(lib).model}
    return {name: run(lib, name, args, **options, process_group="world") for name in names}


def influential(lib, rank):
    """Three of 400 rows say all that is said of a slope: which are always read, and the draws of PenaltyMH."""
    x, y = np.zeros(400), np.arange(400.0) % 2
    x[[7, 260, 391]] = 5.0

    def model(x, y):
        b = lib.ppl.sample("b", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        with lib.ppl.plate("data", x.shape[0]):
            lib.ppl.sample("y", lib.dist.Bernoulli(logits=b * x), obs=y)

    mine = slice(None) if rank is None else (slice(250), slice(250, 400))[rank]
    group = None if rank is None else "world"
    kernel = lib.split.PenaltyMH(model, 10, 4, find_heuristic_step_size=False, process_group=group)
    mcmc = lib.run(kernel, lib.array(x[mine]), lib.array(y[mine]), num_warmup=5, num_samples=15, hook_fn=None)
    return kernel._prepared.method.reference.certainty_rows, mcmc.get_samples()["b"].numpy()


def counts(lib, rank):
    """Sizes of messages: of one kick, of the energies at the end of a trajectory, and of iterations of kernels."""
    import torch.distributed as dist

    lib.ppl.set_rng_seed(0)
    kernel = kernels.TABLE["SplitHMC"].make(lib, kernels.small(lib).model, process_group="world")
    kernel.setup(0, *all_rows(lib, SHARDS[rank]))
    found: dict = {"size": sum(u.numel() for u in kernel.initial_params.values())}
    potential, z = kernel._chain.prepared.potential, kernel.initial_params

    def counted(function):
        with mock.patch.object(dist, "all_reduce", Counter(dist.all_reduce)) as counter:
            function()
        return counter.sizes

    found["kick"] = counted(lambda: potential.subset_grad(z, 0))
    found["closing kick"] = counted(lambda: potential.subset_energies_and_grad(z, 1))
    found["energies"] = counted(lambda: potential.energies(z))
    found["gradient"] = counted(lambda: potential.energies_and_grad(z))
    for name, options in (("SymmetricSplitHMC", {"num_steps": 3}), ("PenaltyMH", {}), ("SGLD", {})):
        options = {**options, "step_size": 1e-3, "process_group": "world"}
        kernel = kernels.TABLE[name].make(lib, kernels.small(lib).model, **options)
        kernel.setup(0, *all_rows(lib, SHARDS[rank]))
        found[name] = counted(lambda kernel=kernel: kernel.sample(kernel.initial_params))
    return found


def faults(lib, rank):
    """What each rank hears of arguments that differ."""
    import torch

    mine, alone = all_rows(lib, SHARDS[rank]), {"process_group": "world"}
    small, short = kernels.small(lib).model, {"num_warmup": 2, "num_samples": 4}

    def of(name="SplitHMC", args=mine, **options):
        options = {"model": small, **short, **alone, **options}
        return said(lambda: run(lib, name, args, **options))

    def other_model(X, y=None):
        return (kernels.mixed(lib).model if rank else kernels.small(lib).model)(X, y)

    def scaled_by_rank(X, y=None, offset=float(rank)):
        return kernels.small(lib).model(X, y)

    def local(X, y=None):
        with lib.ppl.plate("data", X.shape[0]):
            u = lib.ppl.sample("u", lib.dist.Normal(lib.array(0.0), 1.0))
            lib.ppl.sample("y", lib.dist.Normal(u, 1.0), obs=y)

    def centred(X, y=None):
        a = lib.ppl.sample("a", lib.dist.Normal(lib.array(0.0), 1.0))
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(a * (X[:, 0] - X[:, 0].mean()), 1.0), obs=y)

    def prior_of_rows(X, y=None):
        a = lib.ppl.sample("a", lib.dist.Normal(y.mean(), 1.0))
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(a, 1.0), obs=y)

    def reads_a_mean(X, y=None):
        a, mean = lib.ppl.sample("a", lib.dist.Normal(lib.array(0.0), 1.0)), y.mean().item()
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(a + mean, 1.0), obs=y)

    scale = torch.tensor(1.0 + rank)

    def prior_held(X, y=None):
        a = lib.ppl.sample("a", lib.dist.Normal(lib.array(0.0), scale))
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(a, 1.0), obs=y)

    def noise_held(X, y=None):
        a = lib.ppl.sample("a", lib.dist.Normal(lib.array(0.0), 1.0))
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(a, scale), obs=y)

    def indexed(X, y=None, held=False):
        """A model that selects the rows itself, and may hold a number of its rank's."""
        a = lib.ppl.sample("a", lib.dist.Normal(lib.array(0.0), 1.0))
        with lib.ppl.plate("data", X.shape[0]) as rows:
            lib.ppl.sample("y", lib.dist.Normal(a * X[rows, 0], scale if held else 1.0), obs=y[rows])

    kept = {}

    def keeps_a_mean(X, y=None):
        a = lib.ppl.sample("a", lib.dist.Normal(lib.array(0.0), 1.0))
        kept.setdefault("mean", X[:, 0].mean())
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(a * (X[:, 0] - kept["mean"]), 1.0), obs=y)

    def of_start(model):
        """At 0, where neither mean nor scale count."""
        kernel = kernels.TABLE["SplitHMC"].make(lib, model, **alone)
        start = {"a": lib.array(0.0)}
        return said(lambda: lib.run(kernel, *mine, num_warmup=2, num_samples=2, hook_fn=None, init_params=start))

    def fails_on_one(X, y=None):
        if len(y) == len(SHARDS[1]):
            raise KeyError("no such column")
        kernels.small(lib).model(X, y)

    few = tuple(x[:3] for x in mine) if rank else mine
    return {
        "few rows": of(args=few, num_subsets=4),
        "one row": of(args=tuple(x[:1] for x in mine) if rank else mine, num_subsets=1),
        "seeds": of(seed=rank),
        "options": of(target_accept_prob=0.7 + 0.1 * rank),
        "kernels": of(("SplitNUTS", "SplitHMC")[rank]),
        "warm-up": of(num_warmup=2 + rank),
        "types": of(args=tuple(x.float() for x in mine) if rank else mine),
        "columns": of(args=(torch.cat([mine[0], mine[0]], 1)[:, : 2 + rank], mine[1])),
        "models": of(model=other_model),
        "defaults": of(model=scaled_by_rank),
        "local latents": of(model=local),
        "rows that meet": of(model=centred, num_subsets=1),
        "a prior of rows": of(model=prior_of_rows),
        "a reading of rows": of(model=reads_a_mean),
        "a prior that differs": of(model=prior_held),
        "a likelihood that differs": of(model=noise_held),
        "a likelihood of indices that differs": of(args=(*mine, True), model=indexed),
        "a mean that is kept": of_start(keeps_a_mean),
        "a failure": of(model=fails_on_one),
        "a batch too large": of("PenaltyMH", batch_size=26),
        "starting points": said(
            lambda: lib.run(
                kernels.TABLE["SplitHMC"].make(lib, kernels.small(lib).model, **alone),
                *mine,
                **{"num_warmup": 2, "num_samples": 2, "hook_fn": None},
                init_params={"a": lib.array(0.1 * rank), "tau": lib.array(0.2)},
            )
        ),
        "none": of(),
        "none, of indices": of(model=indexed),
    }


def parted(lib, rank):
    """Draws with terms that are not reduced, but marks that are; and with a chain that is moved on one rank."""
    import torch.distributed as dist

    all_reduce = dist.all_reduce

    def marks_only(message, **options):
        all_reduce(message[-2:], **options)

    def but_energies(message, **options):  # of two subsets
        all_reduce(message[-2:] if len(message) == 2 + 2 else message, **options)

    def moved(kernel, params, stage, i):
        if i == 4 and rank == 1:
            next(iter(params.values())).add_(1e-9)

    args, lengths = all_rows(lib, SHARDS[rank]), {"num_warmup": 5, "num_samples": 5}
    found, model = {}, kernels.small(lib).model
    with mock.patch.object(dist, "all_reduce", marks_only):
        found["not reduced"] = said(lambda: run(lib, "SplitHMC", args, model=model, **lengths, process_group="world"))
    with mock.patch.object(dist, "all_reduce", but_energies):
        of_naive = {"model": kernels.mixed(lib).model, "num_warmup": 10, "num_samples": 5, "process_group": "world"}
        found["energies not reduced"] = said(lambda: run(lib, "NaiveSplitHMC", args, **of_naive))
    kernel = kernels.TABLE["SplitHMC"].make(lib, model, process_group="world")
    found["moved"] = said(lambda: lib.run(kernel, *args, **lengths, hook_fn=moved))
    return found


def dies(lib, rank, folder):
    """Rank 1 is killed in the middle of a stored run; where that has happened, it goes on, and another is run whole."""

    def kill(kernel, params, stage, i):
        if stage.startswith("Sample") and i == 5 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def run(name, hook=None):
        lib.ppl.set_rng_seed(7)
        kernel = kernels.TABLE["SplitHMC"].make(lib, kernels.small(lib).model, process_group="world")
        mcmc = lib.mcmc(kernel, 6, 10, hook_fn=hook)
        lib.split.sample(mcmc, *all_rows(lib, SHARDS[rank]), store=folder / name, every=2)
        return mcmc.get_samples()["a"].numpy()

    if (folder / f"{rank}.died").exists():
        return run("dies.zarr"), run("whole.zarr")
    (folder / f"{rank}.died").touch()
    return said(lambda: run("dies.zarr", kill))


def chosen(lib, rank):
    """How many subsets are chosen where a gradient takes 10 bytes a row, and a rank has more rows than the other."""
    from pyro_split.splitting import choice

    lib.ppl.set_rng_seed(0)
    options = {"memory": 50, "process_group": "world"}
    kernel = kernels.TABLE["NaiveSplitHMC"].make(lib, kernels.small(lib).model, "auto", **options)
    with mock.patch.object(choice, "bytes_of_gradient", lambda potential, z, num_rows: 10 * num_rows):
        kernel.setup(0, *all_rows(lib, SHARDS[rank]))
    return kernel.num_subsets, str(kernel._prepared.split.verdict), kernel._prepared.potential.subset_sizes


def stored(lib, rank, folder):
    """A run with a store that dies on both ranks, and goes on; and runs that the first rank cannot begin."""
    small, split = kernels.small(lib).model, lib.split
    args = all_rows(lib, SHARDS[rank])

    def dying(kernel, params, stage, i):
        if stage.startswith("Sample") and i == 5:
            raise OSError("the machine is gone")

    def of(name, hook=None, args=args, every=4, num_samples=12, model=small, **options):
        lib.ppl.set_rng_seed(7)
        kernel = kernels.TABLE["SplitNUTS"].make(lib, model, process_group="world")
        mcmc = lib.mcmc(kernel, 8, num_samples, hook_fn=hook)
        found = split.sample(mcmc, *args, store=folder / name, every=every, **options)
        assert (found is None) == (rank > 0)
        return mcmc

    whole = of("whole.zarr")
    found = {"whole": whole.get_samples(group_by_chain=True)["a"].numpy()}
    found["death"] = said(lambda: of("dying.zarr", dying))
    found["gone on"] = of("dying.zarr").get_samples(group_by_chain=True)["a"].numpy()
    found["steps"] = whole.kernel.__class__.__name__, len(whole._diagnostics[0]["num_steps"])
    found["extended"] = of("dying.zarr", num_samples=16).get_samples(group_by_chain=True)["a"].numpy()
    found["not loaded"] = of("dying.zarr", num_samples=16, load=False)._samples
    found["left"] = said(lambda: of("left.zarr", dying))
    found["table"] = of("table.zarr", args=(frame(args),), model=of_table(lib)).get_samples(group_by_chain=True)["a"]
    found["table left"] = said(lambda: of("table left.zarr", dying, args=(frame(args),), model=of_table(lib)))
    found["held"] = said(lambda: of("held.zarr", args=(), model=of_held(lib, *args)))
    changed = (-args[0] if rank else args[0], args[1])
    found["held changed"] = said(lambda: of("held.zarr", args=(), num_samples=16, model=of_held(lib, *changed)))
    other = tuple(x + rank for x in args)
    found["other rows"] = said(lambda: of("dying.zarr", args=other, num_samples=20))
    found["other length"] = said(lambda: of("dying.zarr", every=5, num_samples=20))
    return found


def frame(args):
    """Rows as a table of pandas, numbered from 0 on each rank."""
    import pandas as pd

    return pd.DataFrame({"x": args[0][:, 0].numpy(), "y": args[1].numpy()})


def of_table(lib):
    """A model of such a table."""

    def model(table):
        a = lib.ppl.sample("a", lib.dist.Normal(lib.array(0.0), 1.0))
        with lib.ppl.plate("data", len(table)):
            lib.ppl.sample("y", lib.dist.Normal(a * table["x"], 1.0), obs=table["y"])

    return model


def of_held(lib, X, y):
    """A model that closes over the rows; at 0, where its chains start, the potential does not rest on X."""

    def model():
        a = lib.ppl.sample("a", lib.dist.Normal(lib.array(0.0), 1.0))
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(a * X[:, 0], 1.0), obs=y)

    return model


def precisions(lib, rank):
    """Masses of a precision of the noise, and of one for each of two groups of rows."""
    X, y = all_rows(lib, range(NUM_ROWS) if rank is None else SHARDS[rank])

    def one(X, y):
        weights = lib.ppl.sample("lam", lib.dist.Gamma(lib.array(2.0), 1.0))
        w = lib.ppl.sample("w", lib.dist.Normal(lib.array(np.zeros(X.shape[1])), weights**-0.5).to_event(1))
        noise = lib.ppl.sample("tau", lib.dist.Gamma(lib.array(2.0), 1.0))
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(X @ w, noise**-0.5), obs=y)

    def by_group(X, y, group):
        weights = lib.ppl.sample("lam", lib.dist.Gamma(lib.array(2.0), 1.0))
        w = lib.ppl.sample("w", lib.dist.Normal(lib.array(np.zeros(X.shape[1])), weights**-0.5).to_event(1))
        noise = lib.ppl.sample("tau", lib.dist.Gamma(lib.array([2.0, 2.0]), 1.0).to_event(1))
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(X @ w, noise[group] ** -0.5), obs=y)

    def masses(model, *args):
        lib.ppl.set_rng_seed(0)
        kernel = lib.split.S3HMC(model, 2, process_group=None if rank is None else "world")
        kernel.setup(0, *args)
        return kernel._prepared.method.system.sites.found.masses["tau"]

    group = (X[:, 0] > 0).long()
    return {"one": masses(one, X, y), "by group": masses(by_group, X, y, group)}


def divided(lib, rank, folder):
    """A run that dies in as many processes as there are, and a whole one; of four shards, however many hold them."""
    import torch.distributed as dist

    world = dist.get_world_size()
    mine = [
        i for rows in np.array_split(np.arange(NUM_ROWS), 4)[rank * 4 // world : (rank + 1) * 4 // world] for i in rows
    ]

    def dying(kernel, params, stage, i):
        if stage.startswith("Warmup") and i == 5 and world == 4:
            raise OSError("the machine is gone")

    def of(name, hook=None):
        lib.ppl.set_rng_seed(7)
        kernel = kernels.TABLE["SplitHMC"].make(lib, kernels.small(lib).model, process_group="world")
        mcmc = lib.mcmc(kernel, 8, 12, hook_fn=hook)
        lib.split.sample(mcmc, *all_rows(lib, mine), store=folder / name, every=2)
        return mcmc.get_samples()["a"].numpy()

    if world == 4:
        return of("four.zarr"), said(lambda: of("left.zarr", dying))
    return of("left.zarr")


JOBS = {
    job.__name__: job for job in (draws, influential, counts, chosen, faults, parted, precisions, dies, stored, divided)
}


def main():
    import torch
    import torch.distributed as dist

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("jobs", choices=JOBS, nargs="+")
    parser.add_argument("--kernels", nargs="*", default=[])
    parser.add_argument("--model", default="mixed", choices=["mixed", "small"])
    parser.add_argument("--lengths", nargs=2, type=int, default=(WARMUP, DRAWS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    lib, rank = PyroBackend(), dist.get_rank()
    of_draws = (options.model, options.kernels, *options.lengths)
    more = {"draws": of_draws, **dict.fromkeys(("stored", "dies", "divided"), (options.folder,))}
    found = {job: JOBS[job](lib, rank, *more.get(job, ())) for job in options.jobs}
    (options.folder / f"{rank}.pickle").write_bytes(pickle.dumps(found))
    dist.destroy_process_group()  # a process that ends with the group's threads running is sometimes aborted


if __name__ == "__main__":
    main()
