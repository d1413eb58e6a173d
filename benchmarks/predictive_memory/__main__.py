"""Memory that predictions at a million rows take, of a thousand draws: written to a store, and summed up.

``python -m benchmarks.predictive_memory`` prints, for a linear regression with 10 columns in float32, the peak of the
resident memory of a process of its own that makes the data, predicts, and looks at one row of what came out; and its
seconds. All numbers at once would take 4 GB. ``--rows`` and ``--draws`` take other numbers; the store lies in a
temporary folder, and is deleted.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import xarray

from benchmarks.common.report import add_common_options, chosen, save, verdict

FRAMEWORKS = ("numpyro", "pyro")
FORMS = ("store", "summaries")
COLUMNS, CHAINS = 10, 4
GOAL = 2.0  # GiB


def posterior(num_draws: int) -> xarray.Dataset:
    """Draws of the coefficients and of the noise."""
    rng = np.random.default_rng(0)
    shape = (CHAINS, num_draws // CHAINS)
    noise = np.exp(0.1 * rng.standard_normal(shape, np.float32))
    return xarray.Dataset(
        {
            "b": (("chain", "draw", "b_dim_0"), rng.standard_normal((*shape, COLUMNS), np.float32)),
            "s": (("chain", "draw"), noise),
        }
    )


def numpyro_prediction(X: np.ndarray, draws: xarray.Dataset, into: str) -> Any:
    """Predict in NumPyro."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    from numpyro_split.runs.prediction import predict

    def model(X: Any, y: Any = None) -> None:
        b = numpyro.sample("b", dist.Normal(jnp.zeros(COLUMNS), 1.0).to_event(1))
        s = numpyro.sample("s", dist.HalfNormal(1.0))
        with numpyro.plate("data", X.shape[0]):
            numpyro.sample("y", dist.Normal(X @ b, s), obs=y)

    return predict(model, draws, X, rng_key=jax.random.key(0), into=into)


def pyro_prediction(X: np.ndarray, draws: xarray.Dataset, into: str) -> Any:
    """Predict in Pyro."""
    import pyro
    import pyro.distributions as dist
    import torch

    from pyro_split.runs.prediction import predict

    def model(X: Any, y: Any = None) -> None:
        b = pyro.sample("b", dist.Normal(torch.zeros(COLUMNS), 1.0).to_event(1))
        s = pyro.sample("s", dist.HalfNormal(torch.tensor(1.0)))
        with pyro.plate("data", X.shape[0]):
            pyro.sample("y", dist.Normal(X @ b, s), obs=y)

    return predict(model, draws, X, into=into)


def measured(framework: str, form: str, rows: int, num_draws: int) -> dict[str, float]:
    """Peak memory and seconds of a prediction in this process."""
    X = np.random.default_rng(1).standard_normal((rows, COLUMNS), np.float32)
    predict = {"numpyro": numpyro_prediction, "pyro": pyro_prediction}[framework]
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        found = predict(X, posterior(num_draws), f"{folder}/run.zarr" if form == "store" else form)["y"]
        seconds = time.perf_counter() - start
        last = found[..., -1].values if form == "store" else found["mean"].values[-1]
        written = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    assert np.isfinite(last).all()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"peak_gib": peak, "seconds": seconds, "written_gib": written / 2**30}


def in_a_process(framework: str, form: str, rows: int, num_draws: int) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.predictive_memory", "--framework", framework, "--form", form]
    command += ["--rows", str(rows), "--draws", str(num_draws)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, help="default 10⁶")
    parser.add_argument("--draws", type=int, help="default 1,000, in 4 chains")
    parser.add_argument("--form", choices=FORMS, help="one form alone, in this process; prints JSON")
    add_common_options(parser, FRAMEWORKS)
    options = parser.parse_args()
    rows = options.rows or (10**4 if options.quick else 10**6)
    num_draws = options.draws or (40 if options.quick else 1000)
    if options.form:
        print(json.dumps(measured(options.framework, options.form, rows, num_draws)))
        return
    results = {}
    for framework in chosen(options.framework, FRAMEWORKS):
        for form in FORMS:
            found = results[f"{framework}, {form}"] = in_a_process(framework, form, rows, num_draws)
            peak, seconds = found["peak_gib"], found["seconds"]
            print(f"{framework:10}{form:12}{peak:6.2f} GiB, {verdict(peak, GOAL)}{seconds:10.0f} s", flush=True)
    save(options.json, {"rows": rows, "draws": num_draws, "columns": COLUMNS, "dtype": "float32"}, results)


if __name__ == "__main__":
    main()
