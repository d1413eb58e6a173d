"""One run on a table of floats, in a process of its own; prints what it took as JSON.

``python -m benchmarks.rows_from_disk.measure FRAMEWORK KERNEL FOLDER ROWS WHERE ITERATIONS TIMED`` with WHERE one of
``memory``, where the table is read into an array first; ``disk``, memory-mapped; and ``cold``, memory-mapped, where
what was read is dropped from the page cache at once, so that every pass comes from the disk. TIMED is ``yes`` or
``no``: NumPyro's iterations are made twice more by a program of their own, the second time timed, so that neither
compiling nor what a run does before its chains move is counted.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from split_common.digest import digest_of_arrays
from split_common.sources.stores import MemoryMap

COLUMNS, SUBSETS = 50, 64
OPTIONS = {
    "SplitHMC": {"num_steps": 1, "step_size": 1e-4, "adapt_step_size": False, "adapt_mass_matrix": False},
    "PenaltyMH": {"batch_size": 1000, "num_batches": 10},
}


class Memory:
    """The most memory that this process has had, in MiB: anonymous, and all that is resident."""

    def __init__(self) -> None:
        self.anonymous = self.resident = 0.0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
            self.anonymous = max(self.anonymous, int(status["RssAnon"].split()[0]) / 1024)
            self.resident = max(self.resident, int(status["VmRSS"].split()[0]) / 1024)
            time.sleep(0.01)


def tables(folder: str, rows: int) -> list[np.memmap[Any, Any]]:
    """The table and its labels, memory-mapped."""
    shapes = {"X": (rows, COLUMNS), "y": (rows,)}
    return [np.memmap(f"{folder}/{name}", np.float32, "r", shape=shape) for name, shape in shapes.items()]


def drop_behind() -> None:
    """Have what is read from a file dropped from the page cache."""
    read = MemoryMap.read

    def dropping(self: Any, start: int, stop: int) -> np.ndarray:
        rows = read(self, start, stop)
        at = self._offset + start * (rows.nbytes // max(1, stop - start))
        os.posix_fadvise(self._file, at, rows.nbytes, os.POSIX_FADV_DONTNEED)
        return rows

    MemoryMap.read = dropping


def run_numpyro(name: str, X: Any, y: Any, iterations: int, is_timed: bool) -> dict[str, Any]:
    """Draws of some iterations; and the seconds of as many more, which compile nothing."""
    import jax
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC

    import numpyro_split

    def model(X: Any, y: Any) -> None:
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([COLUMNS]).to_event(1))
        with numpyro.plate("data", X.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)

    kernel = getattr(numpyro_split, name)(model, num_subsets=SUBSETS, **OPTIONS[name])
    is_read = isinstance(X, np.memmap)
    rows = (X, y) if is_read else (jax.numpy.asarray(X), jax.numpy.asarray(y))
    mcmc = MCMC(kernel, num_warmup=0, num_samples=iterations, jit_model_args=not is_read, progress_bar=False)
    begun = time.perf_counter()
    mcmc.run(jax.random.key(0), *rows)
    draws = np.asarray(jax.block_until_ready(mcmc.get_samples()["w"]))
    found = {"whole": time.perf_counter() - begun, "draws": draws}
    if not is_timed:
        return found

    def chain(state: Any, args: tuple[Any, ...]) -> tuple[Any, Any]:
        def iterate(state: Any, _: None) -> tuple[Any, Any]:
            state = kernel.sample(state, args or rows, {})
            return state, state.num_grads

        return jax.lax.scan(iterate, state, None, length=iterations)

    run, args = jax.jit(chain), () if is_read else rows
    state, _ = jax.block_until_ready(run(mcmc.last_state, args))
    begun = time.perf_counter()
    _, grads = jax.block_until_ready(run(state, args))
    seconds = time.perf_counter() - begun
    return found | {"seconds_per_pass": seconds / (int(np.sum(grads)) / SUBSETS)}


def run_pyro(name: str, X: Any, y: Any, iterations: int, is_timed: bool) -> dict[str, Any]:
    """Draws of some iterations; and the seconds of all but the first, which traces."""
    import pyro
    import pyro.distributions as dist
    import torch
    from pyro.infer import MCMC

    import pyro_split

    def model(X: Any, y: Any) -> None:
        w = pyro.sample("w", dist.Normal(torch.zeros(COLUMNS), 1.0).to_event(1))
        with pyro.plate("data", X.shape[0]):
            pyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)

    times, grads = [], []

    def note(kernel: Any, *_: Any) -> None:
        times.append(time.perf_counter())
        grads.append(kernel._chain.state.num_grads)

    if not isinstance(X, np.memmap):
        X, y = torch.from_numpy(X), torch.from_numpy(y)
    pyro.set_rng_seed(0)
    kernel = getattr(pyro_split, name)(model, num_subsets=SUBSETS, **OPTIONS[name])
    mcmc = MCMC(kernel, iterations, 0, disable_progbar=True, hook_fn=note)
    begun = time.perf_counter()
    mcmc.run(X, y)
    found = {"whole": times[-1] - begun, "draws": mcmc.get_samples()["w"].numpy()}
    if not is_timed:
        return found
    return found | {"seconds_per_pass": (times[-1] - times[0]) / (sum(grads[1:]) / SUBSETS)}


def main() -> None:
    """Run, and print."""
    framework, name, folder, rows, where, iterations, timed = sys.argv[1:]
    warnings.simplefilter("ignore")
    memory = Memory()
    X, y = tables(folder, int(rows))
    if where == "memory":
        X, y = np.array(X), np.array(y)
    if where == "cold":
        drop_behind()
    found = {"numpyro": run_numpyro, "pyro": run_pyro}[framework](name, X, y, int(iterations), timed == "yes")
    found["draws"] = digest_of_arrays([found["draws"]]).key
    print(json.dumps(found | {"anonymous_mib": memory.anonymous, "resident_mib": memory.resident}))


if __name__ == "__main__":
    main()
