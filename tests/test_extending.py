"""The parts of docs/extending.md meet the contract of all kernels, and sample what they should.

The code is the page's own. Moments are those of a normal posterior in closed form; a false alarm has probability 2.7e-5
a comparison (see :mod:`tests.statistics`): 2 packages x 4 parts x 3 seeds x 6 comparisons, 0.4 % together.
"""

import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests import test_contract
from tests.kernels import TREE, Entry
from tests.statistics import assert_agree, compare_moments
from tests.test_contract import _quick  # noqa: F401

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
contract, slow = pytest.mark.contract, pytest.mark.slow


@cache
def of_page(package: str) -> dict[str, Any]:
    """What the page defines for a package, as a module, so that it pickles; its runs are the tests' of examples."""
    numpyro, pyro = PAGE.read_text().split("\n## Pyro\n")
    code = "\n".join(BLOCK.findall(numpyro if package == "numpyro" else pyro))
    module = sys.modules[f"extending_{package}"] = ModuleType(f"extending_{package}")
    exec(re.sub(r"^(estimate = |X = |y = ).*$", "", code, flags=re.MULTILINE), vars(module))
    return vars(module)


class Part(Entry):
    """A kernel of the page."""

    def make(self, lib: Any, model: Any, num_subsets: int = 2, **options: Any) -> Any:
        """The kernel of a model or a potential."""
        page, options = of_page(lib.name), {"find_heuristic_step_size": False, **self.options, **options}
        if self.name == "SplitHMC":
            return lib.split.SplitHMC(model, num_subsets, schedule=page["single_visit"], **options)
        return page[self.name](model, num_subsets, **options)


PARTS = {
    "schedule": Part("SplitHMC"),
    "rule": Part("OneEndHMC", {"max_tree_depth": 4}, statistics=TREE),
    "kinetic energy": Part("LogisticHMC"),
    "metric": Part("OneDirectionHMC"),
}
every_part = pytest.mark.parametrize("entry", PARTS.values(), ids=PARTS.keys())


@contract
@every_part
def test_runs_and_tells(lib, entry):
    test_contract.test_runs_and_tells(lib, entry)


@slow
@every_part
def test_single_precision(lib, entry):
    test_contract.test_single_precision(lib, entry)


@slow
@every_part
def test_runs_on_a_potential(lib, entry):
    test_contract.test_runs_on_a_potential(lib, entry)


@slow
@every_part
def test_new_data(lib, entry):
    test_contract.test_new_data(lib, entry)


@slow
@every_part
def test_starts(lib, entry):
    test_contract.test_starts(lib, entry)


@slow
@every_part
def test_two_runs_at_once(lib, entry):
    test_contract.test_two_runs_at_once(lib, entry)


@slow
@pytest.mark.parametrize("seed", range(3))
@every_part
def test_moments_of_a_normal_posterior(lib, entry, seed):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)) @ np.array([[1.0, 0.6, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.5]])
    y = X @ np.array([1.0, -0.5, 0.2]) + 0.5 * rng.normal(size=60)
    covariance = np.linalg.inv(np.eye(3) + X.T @ X / 0.25)
    mean = covariance @ X.T @ y / 0.25

    kernel = entry.make(lib, of_page(lib.name)["model"], 4, **({} if entry.statistics else {"num_steps": 5}))
    lengths = {"num_warmup": 300, "num_samples": 4000}
    mcmc = lib.run(kernel, lib.array(X), lib.array(y), seed=seed, **lengths)
    draws = lib.to_numpy(mcmc.get_samples(group_by_chain=True)["b"])
    assert_agree(compare_moments("b", draws, mean, np.diag(covariance)))
