"""All kernels in one table, and the models that every one of them is asked about.

A kernel added here gets every ask of tests/test_contract.py in both packages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

NUM_ROWS, DIM = 24, 2


class Entry(NamedTuple):
    """One kernel with its options.

    Attributes:
        name: of the class.
        options: its arguments but model and num_subsets.
        takes_potential: whether it can be made from a SplitPotential.
        is_noisy: whether its potential energy is an estimate from a few rows.
        least_subsets: fewest subsets that it works with.
        statistics: what it records besides the statistics of every kernel.
        adapts: whether it adapts a step size.
    """

    name: str
    options: dict[str, Any] = {}  # noqa: RUF012
    takes_potential: bool = True
    is_noisy: bool = False
    least_subsets: int = 1
    statistics: tuple[str, ...] = ()
    adapts: bool = True

    def make(self, lib: Any, model: Any, num_subsets: int = 2, **options: Any) -> Any:
        """The kernel of a model or a potential; it looks for no first step size, which is half of the compiling."""
        kernel = getattr(lib.split, self.name)
        if self.adapts:
            options["find_heuristic_step_size"] = False
        if self.name == "PenaltyMH":
            options.setdefault("batch_size", 6)
            options.setdefault("num_batches", 3)
        return kernel(model, num_subsets=num_subsets, **{**self.options, **options})


TREE = ("tree_depth", "reached_max_treedepth", "virial_average")
PENALTY = ("chi2", "num_batches", "tail_error", "rows_touched")
FEW = {"is_noisy": True, "least_subsets": 2}
TABLE = {
    "SymmetricSplitHMC": Entry("SymmetricSplitHMC"),
    "SymmetricSplitHMC in a drawn order": Entry("SymmetricSplitHMC", {"subset_permutation": "per_trajectory"}),
    "NaiveSplitHMC": Entry("NaiveSplitHMC", {"num_steps": 3}),
    "RandomisedSplitHMC": Entry("RandomisedSplitHMC"),
    "SplitHMC": Entry("SplitHMC", statistics=("harmonic_drift",)),
    "SplitHMC in single visits, centred": Entry(
        "SplitHMC", {"schedule": "single_visit", "center": "auto", "metric": "auto"}, statistics=("center_order",)
    ),
    "SplitNUTS": Entry("SplitNUTS", {"max_tree_depth": 4}, statistics=TREE),
    "XHMC": Entry("XHMC", {"max_tree_depth": 4}, statistics=TREE),
    "XHMC adapted": Entry("XHMC", {"threshold": "adapt", "max_tree_depth": 4}, statistics=TREE),
    "WindowedHMC": Entry("WindowedHMC", {"num_steps": 4, "window_size": 2}),
    "S3HMC": Entry("S3HMC", takes_potential=False, statistics=("weight_energy", "precision_energy")),
    "BlockGibbsHMC by NUTS": Entry("BlockGibbsHMC", {"max_tree_depth": 4}, takes_potential=False, statistics=TREE),
    "BlockGibbsHMC by HMC": Entry("BlockGibbsHMC", {"trajectory": "hmc"}, takes_potential=False),
    "PenaltyMH": Entry("PenaltyMH", **FEW, statistics=PENALTY),
    "PenaltyMH of first order": Entry(
        "PenaltyMH", {"control_variate": "taylor1", "proposal": "langevin"}, **FEW, statistics=PENALTY
    ),
    "PenaltyMH without control variate": Entry(
        "PenaltyMH", {"control_variate": None, "proposal": "random_walk"}, **FEW, statistics=PENALTY
    ),
    "SGLD": Entry("SGLD", {"batch_size": 12, "step_size": 1e-5}, **FEW, statistics=("rows_touched",), adapts=False),
    "SGHMC": Entry("SGHMC", {"batch_size": 12, "step_size": 1e-5}, **FEW, statistics=("rows_touched",), adapts=False),
}


class Problem(NamedTuple):
    """A model with its data.

    Attributes:
        model: with sites of every shape: scalar, vector, matrix, simplex, positive.
        args: its arguments.
        held: what the model reads from a closure; may be changed and replaced.
    """

    model: Callable[..., Any]
    args: tuple[Any, ...]
    held: dict[str, Any]


def data(lib: Any, num_rows: int = NUM_ROWS, shift: float = 0.0) -> tuple[Any, Any]:
    """Predictors and responses; ``shift`` is added to the responses."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(num_rows, DIM))
    return lib.array(X), lib.array(X @ np.array([1.0, -0.5]) + 0.5 * rng.normal(size=num_rows) + shift)


def mixed(lib: Any) -> Problem:
    """A model of sites of every shape."""

    def model(X: Any, y: Any = None) -> None:
        zero, one = lib.np.zeros(DIM), lib.np.ones(DIM)
        tau = lib.ppl.sample("tau", lib.dist.Gamma(lib.array(3.0), lib.array(2.0)))
        w = lib.ppl.sample("w", lib.dist.Normal(zero, tau**-0.5 * one).to_event(1))
        m = lib.ppl.sample("m", lib.dist.Normal(lib.np.zeros((DIM, DIM)), lib.np.ones((DIM, DIM))).to_event(2))
        p = lib.ppl.sample("p", lib.dist.Dirichlet(2.0 * lib.np.ones(3)))
        a = lib.ppl.sample("a", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        mean = a + X @ w + 0.1 * (X @ m).sum(-1) + (p * lib.array([-1.0, 0.0, 1.0])).sum()
        lib.ppl.deterministic("total", w.sum())
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(mean, 1.0), obs=y)

    return Problem(model, data(lib), {})


def small(lib: Any) -> Problem:
    """One scalar under a precision; a number, a flag and an array of a closure."""
    held = {"offset": lib.array(np.zeros(1))}

    def model(X: Any, y: Any = None, scale: float = 1.0, centred: bool = True) -> None:
        tau = lib.ppl.sample("tau", lib.dist.Gamma(lib.array(3.0), lib.array(2.0)))
        a = lib.ppl.sample("a", lib.dist.Normal(lib.array(0.0), tau**-0.5))
        mean = a * X[:, 0] + held["offset"].sum()
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(mean if centred else mean + 40.0, scale), obs=y)

    return Problem(model, data(lib), held)


def potential(lib: Any, num_subsets: int) -> Any:
    """A potential made from functions, and where to start: a scalar and a vector."""

    def log_prior(z: Any) -> Any:
        return -0.5 * (z["w"] ** 2).sum() - 0.5 * z["a"] ** 2

    def log_likelihood(z: Any, batch: Any) -> Any:
        X, y = batch
        return -0.5 * (y - z["a"] - X @ z["w"]) ** 2

    made = lib.split.SplitPotential.from_functions(log_prior, log_likelihood, data(lib), num_subsets)
    return made, {"a": lib.array(0.1), "w": lib.array(np.zeros(DIM))}
