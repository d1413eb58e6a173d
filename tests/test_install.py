"""What an installed package must do by itself: be imported without the other framework, sample, convert, be typed."""

import importlib.resources
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
HOSTS = {"numpyro_split": {"jax", "jaxlib", "numpyro"}, "pyro_split": {"torch", "pyro"}, "split_common": set()}
IMPORT_ALL = """
import importlib, pkgutil, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in {absent}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
package = importlib.import_module({package!r})
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
"""


@pytest.mark.parametrize("package", sorted(HOSTS))
def test_every_module_is_imported_without_the_other_frameworks(package):
    absent = sorted(set().union(*HOSTS.values()) - HOSTS[package])
    code = IMPORT_ALL.format(package=package, absent=absent)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", sorted(HOSTS))
def test_typed(package):
    assert importlib.resources.files(package).joinpath("py.typed").is_file()


def test_samples_and_converts(lib):
    rng = np.random.default_rng(0)
    x = lib.array(rng.normal(size=(40, 2)))
    y = lib.array(rng.binomial(1, 0.5, size=40).astype(float))

    def model(x, y):
        w = lib.ppl.sample("w", lib.dist.Normal(lib.np.zeros(2), 1.0).to_event(1))
        with lib.ppl.plate("data", len(x)):
            lib.ppl.sample("y", lib.dist.Bernoulli(logits=x @ w), obs=y)

    split = lib.split.split_model(model, (x, y), num_subsets=4)
    z = {"w": lib.array(np.array([0.1, -0.2]))}
    value, _ = lib.host_potential_and_grad(model, (x, y), {}, z)
    np.testing.assert_allclose(float(split.potential(z)), float(value), rtol=1e-10)

    mcmc = lib.run(lib.split.SplitNUTS(model, num_subsets=4), x, y, num_warmup=20, num_samples=20, num_chains=1)
    data = lib.split.to_inference_data(mcmc)
    assert data["posterior"]["w"].shape == (1, 20, 2)
    assert {"lp", "diverging", "acceptance_rate", "n_steps"} <= set(data["sample_stats"].data_vars)
