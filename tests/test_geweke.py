"""The joint distribution of parameters and data, by successive conditionals (Geweke 2004).

The data are drawn anew from the model at every state of a chain, and the kernel then moves the state on those data. A
kernel that leaves the posterior of whatever data it is given invariant leaves the joint distribution of parameters and
data invariant, so that along the chain the parameters have their prior, and the data's residuals their noise, for
marginals. Every iteration meets other data: what a state caches of the old ones and does not refresh shows here too.

tau ~ Gamma(3, 2), a ~ N(0, 1/tau) and y_i ~ N(a x_i, 3²) for twelve rows. Checked are mean and variance of log tau, of
e = a √tau ~ N(0, 1), of the first row's residual r = (y_1 - a x_1)/3 ~ N(0, 1), and of e r, by tests/statistics.py:
eight comparisons, of which a right kernel fails with probability below 2.2e-4.

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

SHAPE, RATE, NOISE, NUM_ROWS = 3.0, 2.0, 3.0, 12
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
    return entry.make(lib, model, 3, **options)


def sample_numpyro(lib: Any, entry: Entry, num_chains: int, num_iterations: int, is_refreshed: bool) -> Any:
    """log tau, a and the first row's response; shape (chains, draws) each."""
    import jax

    kernel, x = make(lib, entry), lib.array(predictor())
    first = kernel.init(jax.random.key(0), 0, None, (x, 0.0 * x), {})

    def iterate(carry, key):
        state, y = carry
        key, key_data = jax.random.split(key)
        if is_refreshed:
            state = kernel.refresh(state, (x, y), {})
        else:  # negative control: the first data for ever
            y = 0.0 * x
        state = kernel.sample(state._replace(rng_key=key), (x, y), {})
        found = state.z["tau"], state.z["a"], y[0]
        return (state, state.z["a"] * x + NOISE * jax.random.normal(key_data, x.shape)), found

    def chain(key):
        return jax.lax.scan(iterate, (first, 0.0 * x), jax.random.split(key, num_iterations))[1]

    return [np.asarray(u) for u in jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(1), num_chains))]


def sample_pyro(lib: Any, entry: Entry, num_chains: int, num_iterations: int, is_refreshed: bool) -> Any:
    """The same, in one run: the data change in place, and a state moved by the caller is computed afresh."""
    import torch

    lib.ppl.set_rng_seed(1)
    kernel, x = make(lib, entry), lib.array(predictor())
    found, z, y = [], {"tau": lib.array(0.0), "a": lib.array(0.0)}, 0.0 * x
    kernel.initial_params = z
    kernel.setup(0, x, y)
    for _ in range(num_chains * num_iterations):
        z = kernel.sample({name: u.clone() for name, u in z.items()})
        found.append([float(z["tau"]), float(z["a"]), float(y[0])])
        if is_refreshed:
            y[...] = z["a"] * x + NOISE * torch.randn(NUM_ROWS)
    return np.moveaxis(np.array(found).reshape(num_chains, num_iterations, 3), -1, 0)


def comparisons(lib: Any, entry: Entry, is_refreshed: bool = True) -> list[Any]:
    sample = sample_numpyro if lib.name == "numpyro" else sample_pyro
    log_tau, a, y = (u[:, 100:] for u in sample(lib, entry, *NUM_ITERATIONS[lib.name], is_refreshed))
    e, r = a * np.exp(0.5 * log_tau), (y - a * predictor()[0]) / NOISE
    return [
        *compare_moments("log tau", log_tau, special.digamma(SHAPE) - np.log(RATE), special.polygamma(1, SHAPE)),
        *compare_moments("e", e, 0.0, 1.0),
        *compare_moments("r", r, 0.0, 1.0),
        *compare_moments("e r", e * r, 0.0, 1.0),
    ]


@pytest.mark.parametrize("entry", EXACT.values(), ids=EXACT.keys())
def test_joint_distribution(lib, entry):
    if lib.name == "pyro" and entry.name == "PenaltyMH" and entry.options.get("control_variate", "") is not None:
        pytest.skip("its expansion is of the data that the run began with")
    assert_agree(comparisons(lib, entry))


@pytest.mark.parametrize("lib", [NumPyroBackend, PyroBackend], ids=["numpyro", "pyro"], indirect=True)
def test_data_that_stay_are_seen(lib):
    """Negative control: the data are never drawn anew."""
    with pytest.raises(Disagreement):
        assert_agree(comparisons(lib, TABLE["SymmetricSplitHMC"], is_refreshed=False))
