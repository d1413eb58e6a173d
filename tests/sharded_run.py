"""Runs on rows in shards, as a process of its own: JAX's devices and processes are set before it starts.

``python -m tests.sharded_run WHAT OUT KERNEL... [--devices P] [--processes Q --place I --port PORT]``
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal

DIM, NUM_ROWS, SEED = 2, 23, 0
OPCODES = "all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter|collective-broadcast"
SENT = re.compile(rf"= (?P<type>.*?) (?P<name>{OPCODES})(?:-start)?\(")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["text", "draws", "stored", "chains"])
    parser.add_argument("out")
    parser.add_argument("kernels", nargs="+")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--shards", type=int, default=None)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--place", type=int, default=0)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--rows", type=int, default=NUM_ROWS)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--store", default="", help="where each kernel's store lies, whose name comes first")
    parser.add_argument("--dies", type=int, default=None, help="the process that is killed in the middle of a run")
    parser.add_argument("--explicit", action="store_true")
    parser.add_argument("--break", dest="broken", action="store_true")
    parser.add_argument("--codes", action="store_true", help="a model of each process's own")
    parser.add_argument("--numbers", action="store_true", help="an array of each process's own that the model holds")
    parser.add_argument("--held", action="store_true", help="a program that holds the rows")
    parser.add_argument("--seeds", action="store_true", help="a random key of each process's own")
    asked = parser.parse_args()
    os.environ["XLA_FLAGS"] = (
        f"--xla_force_host_platform_device_count={asked.devices} --xla_backend_optimization_level=0 "
        "--xla_llvm_disable_expensive_passes=true"
    )
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    jax.config.update("jax_enable_x64", True)
    if asked.processes > 1:
        jax.distributed.initialize(
            f"localhost:{asked.port}",
            asked.processes,
            asked.place,
            initialization_timeout=60,
            heartbeat_timeout_seconds=30,
        )
    if asked.broken:
        import numpyro_split.potential.shards as shards

        shards.lax = Unsummed(shards.lax)
    {"text": texts, "draws": draws, "stored": stored, "chains": chains}[asked.what](asked)


class Unsummed:
    """``jax.lax`` without the sum over shards."""

    def __init__(self, lax):
        self._lax = lax

    def __getattr__(self, name):
        return (lambda x, axis: x) if name == "psum" else getattr(self._lax, name)


def problem(asked):
    """A model, this process's rows in shards, and all rows."""
    import jax
    import numpy as np
    import numpyro
    import numpyro.distributions as dist
    from jax.sharding import AxisType

    from numpyro_split import shard_rows

    num = asked.shards or asked.devices * asked.processes
    kind = AxisType.Explicit if asked.explicit else AxisType.Auto
    mesh = jax.make_mesh((num,), ("rows",), axis_types=(kind,), devices=jax.devices()[:num])
    rng = np.random.default_rng(0)
    X = rng.normal(size=(asked.rows, DIM))
    y = X @ np.array([1.0, -0.5]) + 0.5 * rng.normal(size=asked.rows)
    ends = np.cumsum([0, *(asked.rows // num + (i < asked.rows % num) for i in range(num))])[:: num // asked.processes]
    own = slice(*ends[asked.place : asked.place + 2])

    scale = 1.0 + asked.codes * asked.place
    offset = np.asarray(1.0 * asked.numbers * asked.place)

    def model(X, y=None):
        tau = numpyro.sample("tau", dist.Gamma(3.0, 2.0))
        w = numpyro.sample("w", dist.Normal(np.zeros(DIM), tau**-0.5).to_event(1))
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        numpyro.deterministic("total", w.sum())
        with numpyro.plate("data", X.shape[0]):
            numpyro.sample("y", dist.Normal(a + X @ w + offset, scale), obs=y)

    return model, shard_rows((X[own], y[own]), mesh), (X, y)


def kernel_of(name, model, num_subsets=3):
    """A kernel of the table."""
    import numpyro_split
    from tests.kernels import TABLE

    class Lib:
        split = numpyro_split

    entry = TABLE[name]
    return entry.make(Lib, model, num_subsets)


def texts(asked):
    """What the compiled iteration of each kernel sends: operation and number of words."""
    import jax
    import numpy as np

    found = {}
    model, rows, _ = problem(asked)
    for name in asked.kernels:
        kernel = kernel_of(name, model)
        state = kernel.init(jax.random.key(SEED), 10, None, rows, {})
        lowered = jax.jit(lambda state, rows, kernel=kernel: kernel.sample(state, rows, {})).lower(state, rows)
        compiled = lowered.compile()
        found[name] = [
            (sent["name"], sum(int(np.prod([int(n) for n in re.findall(r"\d+", dims)] or [1])) for dims in shapes))
            for line in compiled.as_text().splitlines()
            if (sent := SENT.search(line))
            for shapes in [re.findall(r"[a-z]+\d*\[([\d,]*)\]", sent["type"])]
        ]
    shards = [len(part.data) for part in jax.tree.leaves(rows)[0].addressable_shards]
    with open(asked.out, "w") as file:
        json.dump({"sent": found, "rows": shards}, file)


def draws(asked):
    """Draws of each kernel, written by the first process."""
    import jax
    import numpy as np
    from numpyro.infer import MCMC

    model, rows, _ = problem(asked)
    found = {}
    for name in asked.kernels:
        mcmc = MCMC(
            kernel_of(name, model),
            num_warmup=asked.draws // 2,
            num_samples=asked.draws,
            progress_bar=False,
            jit_model_args=True,
        )
        mcmc.run(jax.random.key(SEED + asked.place * asked.seeds), *rows)
        for site, x in {**mcmc.get_samples(), "energy": mcmc.get_extra_fields()["potential_energy"]}.items():
            found[f"{name}/{site}"] = np.asarray(x)
    if asked.place == 0:
        np.savez(asked.out, **found)


def chains(asked):
    """Draws of four chains of each kernel, rows over two devices: by chains over two more, and vectorised; an error."""
    import jax
    import numpy as np
    from jax.sharding import AxisType, PartitionSpec
    from numpyro.infer import MCMC

    from numpyro_split import shard_rows

    mesh = jax.make_mesh((2, 2), ("chains", "rows"), axis_types=(AxisType.Auto,) * 2)
    model, _, rows = problem(asked)
    rows, found = shard_rows(rows, mesh), {}

    def run(name, method):
        mcmc = MCMC(
            kernel_of(name, model),
            num_warmup=asked.draws,
            num_samples=asked.draws,
            num_chains=4,
            chain_method=method,
            progress_bar=False,
        )
        mcmc.run(jax.random.key(SEED), *rows)
        return {site: np.asarray(x) for site, x in mcmc.get_samples(group_by_chain=True).items()}

    def over(*axes):
        specs = {"in_specs": PartitionSpec("chains"), "out_specs": PartitionSpec("chains")}
        return lambda f: jax.jit(jax.shard_map(jax.vmap(f), mesh=mesh, axis_names=set(axes), check_vma=False, **specs))

    for name in asked.kernels:
        for method, how in ((over("chains"), "mapped"), ("vectorized", "vectorised")):
            found |= {f"{how}/{name}/{site}": x for site, x in run(name, method).items()}
    try:
        run(asked.kernels[0], over("chains", "rows"))
    except ValueError as error:
        found["error"] = np.array(str(error))
    np.savez(asked.out, **found)


def stored(asked):
    """Draws of each kernel by runs with a store, written by every process, to OUT and its place."""
    import jax
    import numpy as np
    from numpyro.infer import MCMC

    from numpyro_split import sample
    from split_common.runs import drive

    drive.SECONDS, drive.LONGEST_WAIT = 0.0, 0.0  # one draw at a time, each written
    if asked.place == asked.dies:
        die_in_a_run()
    model, rows, _ = problem(asked)
    found = {}
    for name in asked.kernels:
        kernel = kernel_of(name, model)
        mcmc = MCMC(kernel, num_warmup=6, num_samples=asked.draws, progress_bar=False, jit_model_args=not asked.held)
        store = sample(mcmc, jax.random.key(SEED), *rows, store=f"{asked.store}{name}.zarr", every=3)
        assert (store is None) == (asked.place > 0)
        found |= {f"{name}/{site}": np.asarray(x) for site, x in mcmc.get_samples().items()}
    np.savez(f"{asked.out}-{asked.place}.npz", **found)


def die_in_a_run():
    """Have this process killed as it is about to make its second draw after warm-up."""
    from numpyro_split.runs.chains import CompiledChains

    advance = CompiledChains.advance

    def dying(self, num):
        if self.position > 6:
            os.kill(os.getpid(), signal.SIGKILL)
        return advance(self, num)

    CompiledChains.advance = dying  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
