"""Warm-up by trees: kernels arrive where no metric was known, lengths are learned, and no step count is a period."""

import importlib

import numpy as np
import pytest

from split_common.exploration import Exploration
from tests.kernels import TABLE
from tests.statistics import assert_agree, compare_moments

FAR = [
    "SymmetricSplitHMC",
    "WindowedHMC",
    pytest.param("SymmetricSplitHMC in a drawn order", marks=pytest.mark.contract),
    pytest.param("NaiveSplitHMC", marks=pytest.mark.contract),
    pytest.param("RandomisedSplitHMC", marks=pytest.mark.contract),
    pytest.param("SplitNUTS", marks=pytest.mark.contract),
]
PERIODS = (9, 10, 11, 12, 13, 21, 22, 23, 33)


def far(lib):
    """An intercept of 25,000 and a slope of 300, known to some 300; and their exact posterior means and sds."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    X, y = np.stack([np.ones(40), x], 1), 25000.0 + 300.0 * x + rng.normal(size=40) * 2000.0

    def model(x, y):
        a = lib.ppl.sample("a", lib.dist.Normal(lib.array(0.0), lib.array(1e5)))
        b = lib.ppl.sample("b", lib.dist.Normal(lib.array(0.0), lib.array(1e5)))
        with lib.ppl.plate("data", x.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(a + b * x, lib.array(2000.0)), obs=y)

    covariance = np.linalg.inv(X.T @ X / 4e6 + np.eye(2) / 1e10)
    means = covariance @ X.T @ y / 4e6
    return model, (lib.array(x), lib.array(y)), means, np.sqrt(np.diag(covariance))


def arrives(lib, entry):
    """Whether the draws after a warm-up of 150 lie where the posterior does."""
    model, args, means, sds = far(lib)
    kernel = entry.make(lib, model)
    start = {name: lib.array(0.0) for name in "ab"}
    samples = lib.run(kernel, *args, num_warmup=150, num_samples=50, init_params=start).get_samples()
    draws = np.stack([lib.to_numpy(samples[name]) for name in "ab"], 1)
    return bool(np.all(np.abs(draws.mean(0) - means) < 3 * sds) and np.all(draws.std(0) < 3 * sds))


@pytest.mark.parametrize("name", FAR)
def test_a_chain_arrives_from_far_away(lib, name):
    assert arrives(lib, TABLE[name])


def without_trees(lib, monkeypatch):
    """No iteration is made by a tree, and no length is learned."""
    hamiltonian = importlib.import_module(f"{lib.split.__name__}.kernels.hamiltonian")

    class NoTrees(Exploration):
        @classmethod
        def of(cls, *args, **kwargs):
            return Exploration(0, 0)

    monkeypatch.setattr(hamiltonian, "Exploration", NoTrees)


def test_without_trees_it_does_not(lib, monkeypatch):
    """Negative control: lengths of a quarter turn, in units that are not the posterior's."""
    without_trees(lib, monkeypatch)
    assert not arrives(lib, TABLE["SymmetricSplitHMC"])


NUM_GROUPS, ROWS_OF_GROUP, NOISE, SPREAD, AWAY = 8, 5, 100.0, 500.0, 1e4  # the last two are priors' scales


def far_groups(lib):
    """Groups about 2,500, some 300 apart: the model, its arguments, and the mean of each group's rows."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(NUM_GROUPS), ROWS_OF_GROUP)
    y = 2500.0 + 300.0 * rng.normal(size=NUM_GROUPS)[group] + NOISE * rng.normal(size=group.size)

    def model(group, y):
        m = lib.ppl.sample("m", lib.dist.Normal(lib.array(0.0), lib.array(AWAY)))
        s = lib.ppl.sample("s", lib.dist.HalfNormal(lib.array(SPREAD)))
        one = lib.np.ones(NUM_GROUPS)
        a = lib.ppl.sample("a", lib.dist.Normal(m * one, s * one).to_event(1))
        with lib.ppl.plate("data", y.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(a[group], lib.array(NOISE)), obs=y)

    return model, (lib.array(group), lib.array(y)), y.reshape(NUM_GROUPS, ROWS_OF_GROUP).mean(1)


def exact_moments(y):
    """Mean and variance of log s, m and a[0]: given s all is normal, and log s is summed over a grid."""
    u = np.linspace(-4.0, 10.0, 4001)
    s, noise = np.exp(u), NOISE**2 / ROWS_OF_GROUP
    v = s**2 + noise  # of a group's mean about m
    precision = NUM_GROUPS / v + AWAY**-2
    m, var_m = y.sum() / v / precision, 1 / precision
    log_p = u - 0.5 * (s / SPREAD) ** 2 - 0.5 * NUM_GROUPS * np.log(v) - 0.5 * np.log(precision)
    log_p -= 0.5 * ((y**2).sum() / v - m**2 * precision)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    share = noise / v  # of m in the mean of a group, given s
    a, var_a = share * m + (1 - share) * y[0], s**2 * share + share**2 * var_m

    def moments(x, variance=0.0):
        mean = (p * x).sum()
        return float(mean), float((p * (variance + (x - mean) ** 2)).sum())

    return {"log s": moments(u), "m": moments(m, var_m), "a[0]": moments(a, var_a)}


def far_groups_compared(lib, **lengths):
    """S3HMC from 0 against quadrature, and its statistics."""
    model, args, y = far_groups(lib)
    start = {"m": lib.array(0.0), "s": lib.array(0.0), "a": lib.np.zeros(NUM_GROUPS)}
    mcmc = lib.run(lib.split.S3HMC(model), *args, num_warmup=300, init_params=start, **lengths)
    draws = {name: lib.to_numpy(x) for name, x in mcmc.get_samples(group_by_chain=True).items()}
    of_name = {"log s": np.log(draws["s"]), "m": draws["m"], "a[0]": draws["a"][..., 0]}
    found = [c for name, exact in exact_moments(y).items() for c in compare_moments(name, of_name[name], *exact)]
    return [c for c in found if c.name.startswith("mean")], lib.statistics(mcmc)


@pytest.mark.slow
def test_s3hmc_arrives_from_far_away(lib):
    """Means of 3 quantities in each package; |z| < 4.2, a false alarm in about 6,000 runs."""
    comparisons, statistics = far_groups_compared(lib, num_samples=1000)
    assert_agree(comparisons)
    lengths = statistics["num_steps"] * statistics["step_size"]
    assert np.unique(lengths).size == 1000
    assert lengths.min() < 0.1 * lengths.max()


@pytest.mark.slow
def test_s3hmc_does_not_without_trees(lib, monkeypatch):
    """Negative control: warm-up by quarter turns, in units that are not the posterior's."""
    without_trees(lib, monkeypatch)
    comparisons, _ = far_groups_compared(lib, num_samples=500)
    with pytest.raises(AssertionError):
        assert_agree(comparisons)


def test_steps_are_jittered_where_their_number_is_fixed(lib):
    """By a half unless another share is given; and the lengths of a given trajectory length stay."""
    model, args, _, _ = far(lib)
    kernels = {
        0.5: lib.split.SymmetricSplitHMC(model, num_steps=3, step_size=10.0, adapt_step_size=False),
        0.25: lib.split.WindowedHMC(model, num_steps=4, step_size_jitter=0.25, step_size=10.0, adapt_step_size=False),
    }
    for jitter, kernel in kernels.items():
        sizes = lib.statistics(lib.run(kernel, *args, num_warmup=0, num_samples=100))["step_size"].ravel() / 10.0
        assert 1 - jitter <= sizes.min() < 1 - 0.8 * jitter
        assert 1 + 0.8 * jitter < sizes.max() <= 1 + jitter


def regression(lib):
    """Ten parameters, of which most have the same scale in the adapted metric."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 10))
    y = X @ rng.normal(size=10) + rng.normal(size=200)

    def model(X, y):
        w = lib.ppl.sample("w", lib.dist.Normal(lib.np.zeros(10), lib.np.ones(10)).to_event(1))
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(X @ w, 1.0), obs=y)

    return model, (lib.array(X), lib.array(y))


@pytest.mark.slow
@pytest.mark.parametrize("num_steps", PERIODS)
def test_no_number_of_steps_stands_still(lib, num_steps):
    """At least 100 effective draws of 400, of every parameter, whether or not the steps are a whole period."""
    import arviz as az

    model, args = regression(lib)
    kernel = lib.split.SymmetricSplitHMC(model, num_subsets=4, num_steps=num_steps)
    mcmc = lib.run(kernel, *args, num_warmup=300, num_samples=400)
    draws = lib.to_numpy(mcmc.get_samples()["w"])[None]
    ess = [float(az.ess(draws[:, :, i])) for i in range(draws.shape[-1])]
    assert min(ess) >= 100, ess
