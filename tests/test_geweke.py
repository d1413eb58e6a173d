"""The joint distribution of parameters and data, by successive conditionals (Geweke 2004).

The data are drawn anew from the model at every state of a chain, and the kernel then moves the state on those data. A
kernel that leaves the posterior of whatever data it is given invariant leaves the joint distribution of parameters and
data invariant, so that along the chain the parameters have their prior, and the data's residuals their noise, for
marginals. Every iteration meets other data: what a state caches of the old ones and does not refresh shows here too.

tau ~ Gamma(3, 2), a ~ N(0, 1/tau) and y_i ~ N(a x_i, 3²) for twelve rows in three subsets. Checked are mean and
variance of log tau, of e = a √tau ~ N(0, 1), of each subset's residual r_m = Σ x_i (y_i - a x_i) / (3 √Σ x_i²) ~
N(0, 1), and of e r_m, by tests/statistics.py: sixteen comparisons, of which a right kernel fails with probability below
4.3e-4. Where a kernel leaves a subset out, tau and a still have their prior: only that subset's residual shows it.

Reference:
    Geweke (2004), Getting it right: joint distribution tests of posterior simulators.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

from tests.backends import NumPyroBackend, PyroBackend
from tests.kernels import TABLE, Entry
from tests.statistics import Disagreement, assert_agree, compare_moments

SHAPE, RATE, NOISE, NUM_ROWS, NUM_SUBSETS = 3.0, 2.0, 3.0, 12, 3
ALL_ROWS = np.ones(NUM_ROWS, bool)
FIXED = {"adapt_step_size": False, "adapt_mass_matrix": False}
EXACT = {name: entry for name, entry in TABLE.items() if entry.adapts}  # the others' bias is of their step size
NUM_ITERATIONS = {"numpyro": (4, 5000), "pyro": (1, 8000)}
pytestmark = pytest.mark.slow


def predictor() -> np.ndarray:
    return np.random.default_rng(0).normal(size=NUM_ROWS)


def make(lib: Any, entry: Entry) -> Any:
    """The kernel of the model."""

    def model(x: Any, y: Any) -> None:
        tau = lib.ppl.sample("tau", lib.dist.Gamma(lib.array(SHAPE), lib.array(RATE)))
        a = lib.ppl.sample("a", lib.dist.Normal(lib.array(0.0), tau**-0.5))
        with lib.ppl.plate("data", NUM_ROWS):
            lib.ppl.sample("y", lib.dist.Normal(a * x, NOISE), obs=y)

    # PenaltyMH moves by one step, in units of the posterior's width at its reference
    options = {"step_size": 1.0 if entry.is_noisy else 0.5, **FIXED}
    if "metric" in entry.options:  # a form is chosen where it adapts only
        options["metric"] = None
    return entry.make(lib, model, NUM_SUBSETS, **options)


def sample_numpyro(lib: Any, entry: Entry, num_chains: int, num_iterations: int, seen: np.ndarray) -> Any:
    """log tau and a, shape (chains, draws), and the responses, shape (chains, draws, rows).

    The kernel is given new responses of the rows that are ``seen``, and 0 for the others.
    """
    import jax

    kernel, x = make(lib, entry), lib.array(predictor())
    first = kernel.init(jax.random.key(0), 0, None, (x, 0.0 * x), {})

    def iterate(carry, key):
        state, y = carry
        key, key_data = jax.random.split(key)
        given = x, seen * y
        state = kernel.sample(kernel.refresh(state, given, {})._replace(rng_key=key), given, {})
        found = state.z["tau"], state.z["a"], y
        return (state, state.z["a"] * x + NOISE * jax.random.normal(key_data, x.shape)), found

    def chain(key):
        return jax.lax.scan(iterate, (first, 0.0 * x), jax.random.split(key, num_iterations))[1]

    return [np.asarray(u) for u in jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(1), num_chains))]


def sample_pyro(lib: Any, entry: Entry, num_chains: int, num_iterations: int, seen: np.ndarray) -> Any:
    """The same, in one run: the data change in place, and a state moved by the caller is computed afresh."""
    import torch

    lib.ppl.set_rng_seed(1)
    kernel, x = make(lib, entry), lib.array(predictor())
    found, z, y = [], {"tau": lib.array(0.0), "a": lib.array(0.0)}, 0.0 * x
    given, is_seen = y.clone(), torch.tensor(seen)
    kernel.initial_params = z
    kernel.setup(0, x, given)
    for _ in range(num_chains * num_iterations):
        z = kernel.sample({name: u.clone() for name, u in z.items()})
        found.append([float(z["tau"]), float(z["a"]), *y.tolist()])
        y = z["a"] * x + NOISE * torch.randn(NUM_ROWS)
        given[...] = is_seen * y
    draws = np.array(found).reshape(num_chains, num_iterations, 2 + NUM_ROWS)
    return draws[..., 0], draws[..., 1], draws[..., 2:]


def comparisons(lib: Any, entry: Entry, seen: np.ndarray = ALL_ROWS) -> list[Any]:
    sample = sample_numpyro if lib.name == "numpyro" else sample_pyro
    log_tau, a, y = (u[:, 100:] for u in sample(lib, entry, *NUM_ITERATIONS[lib.name], seen))
    e, x = a * np.exp(0.5 * log_tau), predictor().reshape(NUM_SUBSETS, -1)
    residuals = (y - a[..., None] * predictor()).reshape(*a.shape, *x.shape) / NOISE
    r, zeros, ones = (x * residuals).sum(-1) / np.sqrt((x**2).sum(-1)), np.zeros(NUM_SUBSETS), np.ones(NUM_SUBSETS)
    return [
        *compare_moments("log tau", log_tau, special.digamma(SHAPE) - np.log(RATE), special.polygamma(1, SHAPE)),
        *compare_moments("e", e, 0.0, 1.0),
        *compare_moments("r", r, zeros, ones),
        *compare_moments("e r", e[..., None] * r, zeros, ones),
    ]


@pytest.mark.parametrize("entry", EXACT.values(), ids=EXACT.keys())
def test_joint_distribution(lib, entry):
    if lib.name == "pyro" and entry.name == "PenaltyMH" and entry.options.get("control_variate", "") is not None:
        pytest.skip("its expansion is of the data that the run began with")
    assert_agree(comparisons(lib, entry))


@pytest.mark.parametrize("lib", [NumPyroBackend, PyroBackend], ids=["numpyro", "pyro"], indirect=True)
@pytest.mark.parametrize("overlooked", [(0, 1, 2), (0,), (1,), (2,)], ids=["all", "first", "second", "third"])
def test_subsets_whose_data_stay_are_seen(lib, overlooked):
    """Negative controls: the kernel is given no new data of some subsets, as if it left them out."""
    seen = ~np.repeat(np.isin(np.arange(NUM_SUBSETS), overlooked), NUM_ROWS // NUM_SUBSETS)
    with pytest.raises(Disagreement):
        assert_agree(comparisons(lib, TABLE["SymmetricSplitHMC"], seen))
