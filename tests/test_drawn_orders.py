"""Trajectories that go back in time by a schedule whose order of subsets is drawn: moments, and a control that fails.

The target is a normal of two correlated coordinates in three subsets, each of which pulls to a mode of its own. Steps
are long, so that a step back in time that is not the inverse of one forwards is seen in the draws.
"""

import importlib

import numpy as np
import pytest

from split_common.schedule import randomised, single_visit
from tests.backends import NumPyroBackend
from tests.statistics import Disagreement, assert_agree, compare_moments

pytestmark = pytest.mark.filterwarnings("ignore:.*max_tree_depth")

CORRELATION, NUM_SUBSETS = 0.6, 3
PRECISION = np.linalg.inv([[1.0, CORRELATION], [CORRELATION, 1.0]])
SHARES = np.array([0.6, 0.3, 0.1])
PULLS = np.array([[4.0, -2.0], [-6.0, 1.0], [2.0, 1.0]])  # sum to nothing
LENGTHS = {
    "numpyro": {"num_warmup": 0, "num_samples": 5000, "num_chains": 8, "chain_method": "vectorized"},
    "pyro": {"num_warmup": 0, "num_samples": 4000},
}
FIXED = {"step_size": 0.8, "adapt_step_size": False, "adapt_mass_matrix": False}
KERNELS = {
    "SplitNUTS": {"max_tree_depth": 4},
    "XHMC": {"max_tree_depth": 4, "criterion": "boundary", "threshold": 0.5},
    "WindowedHMC": {"num_steps": 4, "window_size": 2, "step_size_jitter": 0.2},
}


def potential(lib):
    """The target as a prior that says nothing and three rows."""

    def log_likelihood(z, rows):
        shares, pulls = rows
        x = z["x"]
        return -0.5 * shares.sum() * (x * (lib.array(PRECISION) @ x)).sum() + (pulls @ x).sum()

    return lib.split.SplitPotential.from_functions(
        lambda z: 0.0 * z["x"].sum(), log_likelihood, (lib.array(SHARES), lib.array(PULLS)), NUM_SUBSETS
    )


def comparisons(lib, name, schedule):
    """Means, variances and the covariance of the draws beside the exact ones."""
    kernel = getattr(lib.split, name)(potential(lib), schedule=schedule, **FIXED, **KERNELS[name])
    options = dict(LENGTHS[lib.name])
    num_chains = options.get("num_chains", 1)
    start = lib.array(np.zeros((num_chains, 2) if num_chains > 1 else 2))
    mcmc = lib.run(kernel, init_params={"x": start}, seed=1, **options)
    x = lib.to_numpy(mcmc.get_samples(group_by_chain=True)["x"])
    product = x[..., 0] * x[..., 1]
    of_product = compare_moments("product", product, CORRELATION, 1 + CORRELATION**2)[:1]
    return [*compare_moments("x", x, np.zeros(2), np.ones(2)), *of_product]


CASES = [(name, schedule) for name in KERNELS for schedule in ("single_visit", "randomised")]
IN_DEFAULT_SUITE = [("SplitNUTS", "single_visit")]


@pytest.mark.parametrize(
    ("name", "schedule"),
    [pytest.param(*case, marks=[] if case in IN_DEFAULT_SUITE else pytest.mark.slow) for case in CASES],
)
def test_moments_are_exact(lib, name, schedule):
    assert_agree(comparisons(lib, name, schedule))


def in_the_same_order(self, state, direction):
    """Control: a step back in time with the order of a step forwards."""
    return self.integrator.step(state, direction * self.step_size, self.order)


@pytest.mark.slow
def test_draws_by_a_step_back_in_the_same_order_are_off(monkeypatch):
    """By a few hundredths of a standard deviation, since the order is drawn: it takes many draws to see."""
    lib = NumPyroBackend()
    monkeypatch.setattr(importlib.import_module("numpyro_split.trajectories.path").Path, "step", in_the_same_order)
    monkeypatch.setitem(LENGTHS["numpyro"], "num_samples", 40_000)
    with pytest.raises(Disagreement):
        assert_agree(comparisons(lib, "SplitNUTS", "single_visit"))


@pytest.mark.parametrize("build", [single_visit, randomised])
def test_a_step_back_undoes_one_forwards(lib, build, monkeypatch):
    """And not in the same order, the control."""
    module = importlib.import_module(f"{lib.split.__name__}.trajectories.path")
    made, z = potential(lib), {"x": lib.array(np.array([0.3, -1.0]))}
    integrator = lib.potential_integrator(build(NUM_SUBSETS), made, z)
    order = lib.np.asarray(np.array([1, 2, 0])) if lib.name == "numpyro" else [1, 2, 0]
    path = module.Path(integrator, None, FIXED["step_size"], order, integrator.start(z, z, order), made.energies(z))

    def error():
        state = path.start
        for direction in (1, 1, 1, -1, -1, -1, -1, 1):
            state = path.step(state, direction)
        return max(float(abs(u["x"] - v["x"]).max()) for u, v in [(state.z, z), (state.p, z)])

    assert error() < 1e-12
    monkeypatch.setattr(module.Path, "step", in_the_same_order)
    assert error() > 0.1
