"""What it costs to write a run to a store: seconds against a run that is not written, and memory of a long one.

``python -m benchmarks.stored_runs`` prints seconds of a logistic regression by ``SplitNUTS``, one chain, by the
host's own ``run`` and by ``sample`` with ``every=100``, in five interleaved pairs, of which either goes first in
turn; a run takes about a minute. Both compile the same programs anew each time, in XLA for some 10 seconds that vary
by more than a store costs; so these are counted apart, as JAX reports them, and left out of the ratio. Then the peak
of the resident memory of processes of their own that draw 10⁴ parameters 10⁴ and 10⁵ times, from one row, and do not
load the draws at the end.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common.report import add_common_options, chosen, save, verdict

FRAMEWORKS = ("numpyro", "pyro")
PAIRS, EVERY = 5, 100
COMPILING = "/jax/core/compile/backend_compile_duration"  # JAX's event of a program that XLA has compiled
ROWS, COLUMNS = 20_000, 20
LENGTHS = {"numpyro": (500, 16000), "pyro": (500, 12000)}  # warm-up and draws of about a minute
PARAMETERS = 10_000
FIXED = {"num_steps": 2, "step_size": 0.1, "adapt_step_size": False, "adapt_mass_matrix": False}
GOAL = 0.02  # of the time of a run that is not written


def data(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Of a logistic regression."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, COLUMNS), np.float32)
    return X, (rng.random(rows) < 1 / (1 + np.exp(-X @ rng.normal(size=COLUMNS)))).astype(np.float32)


class Seconds(NamedTuple):
    """Of one run.

    Attributes:
        total: from its call to its end.
        compiling: of these, those of XLA's compiler.
    """

    total: float
    compiling: float = 0.0

    @property
    def rest(self) -> float:
        """Those that are not the compiler's."""
        return self.total - self.compiling


def numpyro_seconds(rows: int, lengths: tuple[int, int], store: str | None) -> Seconds:
    """Of one run."""
    import jax
    import jax.monitoring
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC

    from numpyro_split import SplitNUTS, sample

    def model(X: Any, y: Any) -> None:
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([COLUMNS]).to_event(1))
        with numpyro.plate("data", X.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)

    compiling: list[float] = []

    def heard(event: str, seconds: float, **_: Any) -> None:
        if event == COMPILING:
            compiling.append(seconds)

    num_warmup, num_samples = lengths
    mcmc = MCMC(SplitNUTS(model, 4), num_warmup=num_warmup, num_samples=num_samples, progress_bar=False)
    X, y = data(rows)
    jax.monitoring.register_event_duration_secs_listener(heard)
    start = time.perf_counter()
    if store is None:
        mcmc.run(jax.random.key(0), X, y)
        jax.block_until_ready(mcmc.get_samples())
    else:
        sample(mcmc, jax.random.key(0), X, y, store=store, every=EVERY)
    total = time.perf_counter() - start
    jax.monitoring.unregister_event_duration_listener(heard)
    return Seconds(total, sum(compiling))


def pyro_seconds(rows: int, lengths: tuple[int, int], store: str | None) -> Seconds:
    """Of one run."""
    import pyro
    import pyro.distributions as dist
    import torch
    from pyro.infer import MCMC

    from pyro_split import SplitNUTS, sample

    def model(X: Any, y: Any) -> None:
        w = pyro.sample("w", dist.Normal(torch.zeros(COLUMNS), 1.0).to_event(1))
        with pyro.plate("data", X.shape[0]):
            pyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)

    num_warmup, num_samples = lengths
    mcmc = MCMC(SplitNUTS(model, 4), num_samples, num_warmup, disable_progbar=True)
    X, y = map(torch.from_numpy, data(rows))
    pyro.set_rng_seed(0)
    start = time.perf_counter()
    if store is None:
        mcmc.run(X, y)
    else:
        sample(mcmc, X, y, store=store, every=EVERY)
    return Seconds(time.perf_counter() - start)


def numpyro_of_many(num_samples: int, store: str) -> Any:
    """Draws of many parameters."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC

    from numpyro_split import NaiveSplitHMC, sample

    def model(y: Any) -> None:
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([PARAMETERS]).to_event(1))
        with numpyro.plate("data", 1):
            numpyro.sample("y", dist.Normal(w[0], 1.0), obs=y)

    mcmc = MCMC(NaiveSplitHMC(model, 1, **FIXED), num_warmup=0, num_samples=num_samples, progress_bar=False)
    return sample(mcmc, jax.random.key(0), jnp.zeros(1), store=store, every=EVERY, load=False)


def pyro_of_many(num_samples: int, store: str) -> Any:
    """Draws of many parameters."""
    import pyro
    import pyro.distributions as dist
    import torch
    from pyro.infer import MCMC

    from pyro_split import NaiveSplitHMC, sample

    def model(y: Any) -> None:
        w = pyro.sample("w", dist.Normal(torch.zeros(PARAMETERS), 1.0).to_event(1))
        with pyro.plate("data", 1):
            pyro.sample("y", dist.Normal(w[0], 1.0), obs=y)

    mcmc = MCMC(NaiveSplitHMC(model, 1, **FIXED), num_samples, 0, disable_progbar=True)
    return sample(mcmc, torch.zeros(1), store=store, every=EVERY, load=False)


def memory(framework: str, num_samples: int) -> dict[str, float]:
    """Peak memory and seconds of a run of many parameters in this process."""
    run = {"numpyro": numpyro_of_many, "pyro": pyro_of_many}[framework]
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        found = run(num_samples, f"{folder}/run.zarr")
        assert np.isfinite(found["posterior"]["w"][0, -1].values).all()
        written = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"peak_gib": peak, "seconds": seconds, "written_gib": written / 2**30}


def overhead(framework: str, quick: bool) -> dict[str, Any]:
    """Seconds of pairs of runs, without a store and with one."""
    run = {"numpyro": numpyro_seconds, "pyro": pyro_seconds}[framework]
    rows, lengths = (500, (50, 50)) if quick else (ROWS, LENGTHS[framework])
    pairs = []
    for number in range(1 if quick else PAIRS):
        with tempfile.TemporaryDirectory() as folder:
            order = (None, f"{folder}/run.zarr")[:: 1 - 2 * (number % 2)]
            found = {store is not None: run(rows, lengths, store) for store in order}
        plain, stored = found[False], found[True]
        pairs.append((plain, stored))
        print(
            f"{framework:10}{plain.total:8.1f} s plain{stored.total:8.1f} s with a store, of which compiling "
            f"{plain.compiling:.1f} and {stored.compiling:.1f}",
            flush=True,
        )
    ratios = [stored.rest / plain.rest - 1 for plain, stored in pairs]
    return {
        "seconds": [[plain.total, stored.total] for plain, stored in pairs],
        "compiling": [[plain.compiling, stored.compiling] for plain, stored in pairs],
        "overheads": ratios,
        "overhead": float(np.median(ratios)),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--memory", type=int, help="memory of so many draws alone, in this process; prints JSON")
    add_common_options(parser, FRAMEWORKS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.memory:
        print(json.dumps(memory(options.framework, options.memory)))
        return
    results: dict[str, Any] = {}
    for framework in chosen(options.framework, FRAMEWORKS):
        found = results[framework] = overhead(framework, options.quick)
        print(f"{framework:10}overhead {100 * found['overhead']:.1f} %, {verdict(found['overhead'], GOAL)}", flush=True)
        for num in (100, 200) if options.quick else (10**4, 10**5):
            command = [sys.executable, "-m", "benchmarks.stored_runs", "--framework", framework, "--memory", str(num)]
            of_many = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            found[f"{num} draws"] = of_many
            written = of_many["written_gib"]
            print(f"{framework:10}{num} draws: {of_many['peak_gib']:.2f} GiB, {written:.2f} GiB written", flush=True)
    save(options.json, {"every": EVERY, "rows": ROWS, "columns": COLUMNS, "parameters": PARAMETERS}, results)


if __name__ == "__main__":
    main()
