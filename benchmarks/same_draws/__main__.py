"""Are the draws of every kernel those of another commit, bit for bit?

``python -m benchmarks.same_draws COMMIT`` checks the commit out into a temporary worktree, runs every kernel of both
packages on one model with the same keys there and here, and prints for each kernel whether all draws are equal, or else
the largest difference and the first draw that differs; and which kernels are there
or here only.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
RUN = """
import inspect, sys, warnings
import numpy as np
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.normal(size=(60, 2)); y = X @ np.array([1.0, -0.5]) + 0.5 * rng.normal(size=60)
OPTIONS = {
    "SymmetricSplitHMC": {}, "NaiveSplitHMC": {}, "RandomisedSplitHMC": {}, "SplitNUTS": {}, "XHMC": {},
    "SplitHMC": {"schedule": "randomised", "num_steps": 6},
    "WindowedHMC": {"num_steps": 6, "window_size": 2}, "S3HMC": {}, "BlockGibbsHMC": {},
    "PenaltyMH": {"batch_size": 10, "num_batches": 5},
    "SGLD": {"batch_size": 20, "step_size": 1e-4}, "SGHMC": {"batch_size": 20, "step_size": 1e-5},
}
draws = {}
def kernels_of(split):
    found = {name: (getattr(split, name, None), options) for name, options in OPTIONS.items()}
    return {name: (k, options) for name, (k, options) in found.items() if k and not inspect.isabstract(k)}
if sys.argv[1] == "numpyro":
    import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist, numpyro_split as split
    from numpyro.infer import MCMC
    def model(X, y):
        tau = numpyro.sample("tau", dist.Gamma(3.0, 2.0))
        w = numpyro.sample("w", dist.Normal(jnp.zeros(2), tau**-0.5).to_event(1))
        with numpyro.plate("data", X.shape[0]):
            numpyro.sample("y", dist.Normal(X @ w, 1.0), obs=y)
    for name, (kernel, options) in kernels_of(split).items():
        mcmc = MCMC(kernel(model, num_subsets=3, **options), num_warmup=60, num_samples=60, progress_bar=False)
        mcmc.run(jax.random.key(1), jnp.asarray(X), jnp.asarray(y))
        draws[name] = np.concatenate([np.asarray(x).reshape(60, -1) for x in mcmc.get_samples().values()], 1)
else:
    import torch, pyro, pyro.distributions as dist, pyro_split as split
    from pyro.infer import MCMC
    torch.set_num_threads(1)
    def model(X, y):
        tau = pyro.sample("tau", dist.Gamma(torch.tensor([3.0]), torch.tensor([2.0])).to_event(1))
        w = pyro.sample("w", dist.Normal(torch.zeros(2), tau**-0.5 * torch.ones(2)).to_event(1))
        with pyro.plate("data", X.shape[0]):
            pyro.sample("y", dist.Normal(X @ w, 1.0), obs=y)
    data = torch.tensor(X).float(), torch.tensor(y).float()
    for name, (kernel, options) in kernels_of(split).items():
        pyro.set_rng_seed(1)
        mcmc = MCMC(kernel(model, num_subsets=3, **options), 60, 60, disable_progbar=True)
        mcmc.run(*data)
        draws[name] = np.concatenate([x.numpy().reshape(60, -1) for x in mcmc.get_samples().values()], 1)
np.savez(sys.argv[2], **draws)
"""


def draws_in(place: Path, package: str, output: Path) -> dict[str, np.ndarray]:
    """The draws of every kernel of a package, by the code in a directory."""
    subprocess.run([sys.executable, "-c", RUN, package, str(output)], cwd=place, check=True)
    return dict(np.load(output))


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("commit")
    commit = parser.parse_args().commit
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        subprocess.run(["git", "worktree", "add", "-q", "--detach", place / "then", commit], cwd=ROOT, check=True)
        try:
            for package in ("numpyro", "pyro"):
                then = draws_in(place / "then", package, place / "then.npz")
                now = draws_in(ROOT, package, place / "now.npz")
                for name in [*now, *(name for name in then if name not in now)]:
                    if name not in now or name not in then:
                        print(f"{package:8}{name:20}is a kernel {'now' if name in now else 'then'} only", flush=True)
                        continue
                    differ = np.any(then[name] != now[name], 1)
                    told = "equal bit for bit"
                    if differ.any():
                        largest = np.abs(then[name] - now[name]).max()
                        told = f"differ from draw {int(np.argmax(differ))} on, by at most {largest:.3g}"
                    print(f"{package:8}{name:20}{told}", flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", place / "then"], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
