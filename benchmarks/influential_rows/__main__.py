"""Is PenaltyMH right, or does it warn, where single rows matter?

It compares PenaltyMH, with nothing but the model given, with the host's NUTS on logistic regressions of 100,000 rows:
with a slope that 1, 2 or 10 of the rows say anything of, with a predictor of heavy tails, and with a hundred or so rare
events; each also with no row that is always read. It prints the largest |z| of means and standard deviations (standard
errors of both), the fewest effective draws, the rows read in an iteration, the error that the rows not read may make,
and what the report calls trouble. ``--json FILE`` keeps them.
"""

from __future__ import annotations

import argparse
import functools
import json
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import arviz as az
import numpy as np

from benchmarks.common.report import add_common_options, chosen, save
from tests.backends import NumPyroBackend, PyroBackend

NUM_ROWS = 100_000
MOMENTS: dict[str, Callable[..., Any]] = {"mean": np.mean, "sd": np.std}
# of PenaltyMH: its chain remembers long where few rows make the posterior skewed
LENGTHS = {
    "numpyro": {"num_warmup": 500, "num_samples": 8000, "num_chains": 4},
    "pyro": {"num_warmup": 500, "num_samples": 8000},
}


def few_rows(number: int) -> tuple[np.ndarray, ...]:
    """A second predictor that is 5 in so many rows, their responses 1 and 0 in turn, and 0 in all the others."""
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=NUM_ROWS), np.zeros(NUM_ROWS)
    y = (rng.random(NUM_ROWS) < 1 / (1 + np.exp(0.5 - 0.5 * x))).astype(float)
    at = rng.choice(NUM_ROWS, number, replace=False)
    z[at], y[at] = 5.0, np.arange(number) % 2 == 0
    return x, z, y


def drawn(z: np.ndarray, intercept: float) -> tuple[np.ndarray, ...]:
    """Responses to a standard normal predictor and ``z``."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=NUM_ROWS)
    eta = intercept + 0.5 * x + 0.3 * z
    return x, z, (rng.random(NUM_ROWS) < 1 / (1 + np.exp(-np.clip(eta, -500, 500)))).astype(float)


TARGETS: dict[str, Callable[[], tuple[np.ndarray, ...]]] = {
    "1 row": lambda: few_rows(1),
    "2 rows": lambda: few_rows(2),
    "10 rows": lambda: few_rows(10),
    "heavy tails": lambda: drawn(np.random.default_rng(2).standard_t(1.2, NUM_ROWS), -0.5),
    "rare events": lambda: drawn(np.random.default_rng(2).normal(size=NUM_ROWS), -7.0),
}


def model_of(lib: Any) -> Callable[..., None]:
    """Logistic regression on two predictors."""

    def model(x: Any, z: Any, y: Any) -> None:
        a = lib.ppl.sample("a", lib.dist.Normal(lib.array(0.0), lib.array(5.0)))
        c = lib.ppl.sample("c", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        b = lib.ppl.sample("b", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        with lib.ppl.plate("data", x.shape[0]):
            lib.ppl.sample("y", lib.dist.Bernoulli(logits=a + c * x + b * z), obs=y)

    return model


def host_draws(lib: Any, model: Callable[..., None], args: tuple[Any, ...], seed: int) -> dict[str, np.ndarray]:
    """Draws of the host's NUTS by site, of one chain."""
    if lib.name == "numpyro":
        from numpyro.infer import NUTS

        run = lib.run(NUTS(model), *args, num_warmup=300, num_samples=2000, seed=seed)
    else:
        import pyro
        from pyro.infer import MCMC, NUTS

        pyro.set_rng_seed(seed)
        run = MCMC(NUTS(model, jit_compile=True, ignore_jit_warnings=True), 2000, 300, disable_progbar=True)
        run.run(*args)
    return {site: lib.to_numpy(x) for site, x in run.get_samples(group_by_chain=True).items()}


def compare(lib: Any, kernel: Any, args: tuple[Any, ...], host: dict[str, np.ndarray], seed: int) -> dict[str, Any]:
    """A run's moments beside the host's, and what it says of itself."""
    mcmc = lib.run(kernel, *args, seed=seed, **LENGTHS[lib.name])
    ours, z, ess = mcmc.get_samples(group_by_chain=True), [], []
    for name, b in host.items():
        a = lib.to_numpy(ours[name])
        for method, moment in MOMENTS.items():
            errors = [float(az.mcse(x, method=method)) for x in (a, b)]
            z.append(abs(float(moment(a)) - float(moment(b))) / float(np.hypot(*errors)))
            ess.append(float(az.ess(a, method=method)))
    statistics = lib.statistics(mcmc)
    return {
        "z": round(max(z), 2),
        "ess": round(min(ess)),
        "rows": int(np.max(statistics["rows_touched"])),
        "tail_error": float(f"{np.mean(statistics['tail_error']):.2g}"),
        "trouble": [check.name for check in kernel.report(mcmc).trouble],
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_common_options(parser)
    parser.add_argument("--only", nargs="*", metavar="NAME", help="names of targets; default all")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    options.only = options.only or list(TARGETS)[: 1 if options.quick else None]
    found = {framework: run_targets(framework, options) for framework in chosen(options.framework, ["numpyro", "pyro"])}
    save(options.json, {"seed": options.seed}, found)


def run_targets(framework: str, options: argparse.Namespace) -> dict[str, Any]:
    """Figures of each target with and without rows that are always read, printed as they come."""
    lib = NumPyroBackend() if framework == "numpyro" else PyroBackend()
    lib.set_precision(64)
    found = {}
    for name in options.only:
        model, args = model_of(lib), tuple(lib.array(x) for x in TARGETS[name]())
        host = host_draws(lib, model, args, options.seed)
        make = functools.partial(lib.split.PenaltyMH, model)
        found[name] = {"PenaltyMH": compare(lib, make(), args, host, options.seed)}
        with mock.patch(f"{lib.split.__name__}.kernels.penalty.find_certainty_rows", return_value=None):
            found[name]["no row always read"] = compare(lib, make(), args, host, options.seed)
        for kernel, row in found[name].items():
            print(f"{name:<14}{kernel:<20}{json.dumps(row)}", flush=True)
    return found


if __name__ == "__main__":
    main()
