"""Is a kernel as fast as at another commit: seconds to the first draw, and microseconds per subset gradient?

``python -m benchmarks.same_speed COMMIT`` checks the commit out into a temporary worktree and runs the README's model
there and here, in fresh processes that take turns: 300 warm-up iterations and one draw, compiling included; then draws
of a fixed length, compiled before they are timed. It prints medians [quartiles] of the ratios within rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.common.report import add_common_options, chosen, save

ROOT = Path(__file__).parents[2]
RUN = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
fixed = {"num_steps": 8, "step_size": 0.05, "adapt_step_size": False, "adapt_mass_matrix": False}
if sys.argv[1] == "numpyro":
    import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist
    from numpyro.infer import MCMC
    from numpyro_split import SymmetricSplitHMC
    def model(X, y=None):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
        with numpyro.plate("data", X.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)
    X = jax.random.normal(jax.random.key(0), (1_000, 3))
    y = (X @ jnp.array([1.0, -1.0, 0.5]) + jax.random.logistic(jax.random.key(1), (1_000,)) > 0).astype(float)
    def run(kernel, num_warmup, num_samples, mcmc=None):
        mcmc = mcmc or MCMC(kernel, num_warmup=num_warmup, num_samples=num_samples, progress_bar=False)
        mcmc.run(jax.random.key(2), X, y)
        jax.block_until_ready(mcmc.get_samples())
        return mcmc
    start = time.perf_counter()
    run(SymmetricSplitHMC(model, num_subsets=4), 300, 1)
    first = time.perf_counter() - start
    mcmc = run(SymmetricSplitHMC(model, num_subsets=4, **fixed), 0, 20_000)
    start = time.perf_counter()
    run(None, 0, 0, mcmc)
    gradients = int(mcmc.get_extra_fields()["num_grads"].sum()) if mcmc.get_extra_fields() else 20_000 * 48
else:
    import torch, pyro, pyro.distributions as dist
    from pyro.infer import MCMC
    from pyro_split import SymmetricSplitHMC
    torch.set_num_threads(1)
    def model(X, y=None):
        w = pyro.sample("w", dist.Normal(torch.zeros(X.shape[1]), 1.0).to_event(1))
        with pyro.plate("data", X.shape[0]):
            pyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)
    pyro.set_rng_seed(0)
    X = torch.randn(1_000, 3)
    y = torch.bernoulli(torch.sigmoid(X @ torch.tensor([1.0, -1.0, 0.5])))
    start = time.perf_counter()
    MCMC(SymmetricSplitHMC(model, num_subsets=4), num_samples=1, warmup_steps=300, disable_progbar=True).run(X, y)
    first = time.perf_counter() - start
    kernel = SymmetricSplitHMC(model, num_subsets=4, **fixed)
    kernel.setup(0, X, y)
    z = kernel.sample(kernel.initial_params)
    start = time.perf_counter()
    for _ in range(300):
        z = kernel.sample(z)
    gradients = 300 * 48
print(json.dumps({"first draw": first, "gradient": 1e6 * (time.perf_counter() - start) / gradients}))
"""


def figures_in(place: Path, package: str) -> dict[str, float]:
    """Seconds to the first draw and microseconds per gradient, by the code in a directory."""
    environment = {**os.environ, "PYTHONPATH": str(place)}
    command = [sys.executable, "-c", RUN, package]
    done = subprocess.run(command, cwd=place, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=7)
    add_common_options(parser)
    options = parser.parse_args()
    rounds = 2 if options.quick else options.rounds
    found = {}
    with tempfile.TemporaryDirectory() as directory:
        then = Path(directory) / "then"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", then, options.commit], cwd=ROOT, check=True)
        try:
            for package in chosen(options.framework, ["numpyro", "pyro"]):
                sides = [(figures_in(then, package), figures_in(ROOT, package)) for _ in range(rounds)]
                found[package] = {}
                for name, unit in (("first draw", "s"), ("gradient", "µs")):
                    old, new = (np.array([side[i][name] for side in sides]) for i in (0, 1))
                    low, middle, high = np.quantile(new / old, [0.25, 0.5, 0.75])
                    found[package][name] = {"then": old.tolist(), "now": new.tolist()}
                    print(
                        f"{package:8}{name:11} then {np.median(old):.4g} {unit}, now {np.median(new):.4g} {unit}, "
                        f"ratio {middle:.3f} [{low:.3f}, {high:.3f}]",
                        flush=True,
                    )
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", then], cwd=ROOT, check=True)
    save(options.json, {"commit": options.commit, "rounds": rounds}, found)


if __name__ == "__main__":
    main()
