"""Runs that must be told of: ten causes of trouble, each made for real in both packages.

That nothing is told of where nothing is wrong is asked by ``test_report.py``, of short runs, and by
``benchmarks/arrival``, of long ones.
"""

import warnings

import numpy as np
import pytest

from tests.test_certainty import few_rows_that_matter

pytestmark = pytest.mark.slow
SEED = 0


def regression(lib, correlation=0.0):
    """Two coefficients of 200 rows, noise known."""
    rng = np.random.default_rng(0)
    x = correlation + np.sqrt(1 - correlation**2) * rng.normal(size=200)
    y = x + rng.normal(size=200)

    def model(x, y):
        a = lib.ppl.sample("a", lib.dist.Normal(lib.array(0.0), lib.array(1e4)))
        b = lib.ppl.sample("b", lib.dist.Normal(lib.array(0.0), lib.array(10.0)))
        with lib.ppl.plate("data", x.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(a + b * x, 1.0), obs=y)

    return model, (lib.array(x), lib.array(y))


def narrow(lib):
    """An intercept of 1,000 known to a thousandth, and the noise that says so: 150 iterations do not arrive."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=400)
    y = 1000.0 + x + 0.02 * rng.normal(size=400)

    def model(x, y):
        w = lib.ppl.sample("w", lib.dist.Normal(lib.np.zeros(2), 1e4 * lib.np.ones(2)).to_event(1))
        scale = lib.ppl.sample("scale", lib.dist.HalfNormal(lib.array(0.2)))
        with lib.ppl.plate("data", x.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(w[0] + w[1] * x, scale), obs=y)

    return model, (lib.array(x), lib.array(y))


def with_data(lib, latents):
    """Latent sites of which ten rows say nothing."""

    def model(y):
        latents()
        with lib.ppl.plate("data", y.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(lib.array(0.0), lib.array(1.0)), obs=y)

    return model, (lib.array(np.zeros(10)),)


def funnel(lib):
    """Neal's."""

    def latents():
        v = lib.ppl.sample("v", lib.dist.Normal(lib.array(0.0), lib.array(3.0)))
        scale = lib.np.exp(v / 2) * lib.np.ones(9)
        lib.ppl.sample("x", lib.dist.Normal(0.0 * scale, scale).to_event(1))

    return with_data(lib, latents)


def two_modes(lib):
    """Known up to its sign."""

    def model(y):
        m = lib.ppl.sample("m", lib.dist.Normal(lib.array(0.0), lib.array(10.0)))
        with lib.ppl.plate("data", y.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(m**2, lib.array(1.0)), obs=y)

    return model, (lib.array(np.full(50, 25.0)),)


FIXED = {"adapt_step_size": False, "adapt_mass_matrix": False, "find_heuristic_step_size": False}
# what must be told of: kernel, its options, model, warm-up, draws, chains' starts
CASES = {
    "divergences": (
        *("SymmetricSplitHMC", {"num_subsets": 2, "step_size": 1.0, "num_steps": 20, **FIXED}),
        *(funnel, 0, 500, None),
    ),
    "E-BFMI": ("SymmetricSplitHMC", {"num_subsets": 2}, funnel, 300, 500, None),
    "cut trajectories": (
        *("SymmetricSplitHMC", {"num_subsets": 1, "step_size": 0.01, "trajectory_length": 100.0, **FIXED}),
        *(regression, 0, 4, None),
    ),
    "depth limit": (
        *("SplitNUTS", {"num_subsets": 2, "max_tree_depth": 2}),
        *(lambda lib: regression(lib, 0.999), 300, 200, None),
    ),
    "noise": (
        *("PenaltyMH", {"batch_size": 5, "num_batches": 4, "control_variate": None, "proposal": "random_walk"}),
        *(regression, 0, 200, None),
    ),
    "influential rows": (
        *("PenaltyMH", {"batch_size": 200, "control_variate": None, "proposal": "random_walk"}),
        *(lambda lib: few_rows_that_matter(lib, 2)[:2], 50, 200, {"b": 0.5}),
    ),
    "acceptance": (
        *("SymmetricSplitHMC", {"num_subsets": 2, "step_size": 50.0, "num_steps": 3, **FIXED}),
        *(regression, 0, 200, None),
    ),
    "R-hat": ("SplitNUTS", {"num_subsets": 2}, two_modes, 200, 200, {"m": [4.0, -4.0]}),
    "effective draws": (
        *("SymmetricSplitHMC", {"num_subsets": 2, "step_size": 1e-3, "num_steps": 2, **FIXED}),
        *(regression, 0, 200, None),
    ),
    "moving parameters": (
        *("SymmetricSplitHMC", {"num_subsets": 2, "step_size": 1e-30, "num_steps": 2, **FIXED}),
        *(regression, 0, 200, None),
    ),
    "settled metric": ("SymmetricSplitHMC", {"num_subsets": 2}, narrow, 150, 100, None),
}


@pytest.mark.parametrize("cause", CASES)
def test_it_is_told_of(lib, cause):
    kernel, options, make, num_warmup, num_samples, start = CASES[cause]
    model, args = make(lib)
    if cause == "noise":
        options = {**options, "step_size": 0.5, "adapt_step_size": False, "adapt_mass_matrix": False}
    kernel = getattr(lib.split, kernel)(model, **options)
    given = {name: lib.array(np.asarray(x, float)) for name, x in (start or {}).items()} or None
    num_chains = max((np.size(x) for x in (start or {}).values()), default=1)
    sizes = {"num_warmup": num_warmup, "num_samples": num_samples, "num_chains": num_chains}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is told while the run goes on
        mcmc = lib.run(kernel, *args, seed=SEED, init_params=given, **sizes)
    report = kernel.report(mcmc)
    assert cause in [check.name for check in report.trouble], str(report)
    with pytest.warns(UserWarning, match="What to do about it"):
        lib.split.to_inference_data(mcmc)
