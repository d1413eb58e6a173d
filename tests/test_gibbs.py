"""Block Gibbs sampling: its draw of precisions, what it keeps up to date, its posteriors, and what it refuses.

The target of the posteriors is y ~ N(Xw, 1) of 24 rows and six weights, three for each of two units, w_i ~ N(0, 1/τ)
with τ ~ Gamma(2, 1): one τ for all; its inverse, a variance with an inverse gamma prior, which is the same posterior;
or a τ for each unit. Given τ the weights are normal, so that p(y given τ) is known, and every moment is a sum over a
grid of log τ.

The negative controls run without adaptation, at a step size that leaves energy errors to correct (there the honest
kernel agrees too):

* ``shape``: τ is drawn from Gamma(α, β') instead of Gamma(α + Q/2, β').
* ``stale_energies``: after the draw, the energies are still those of the old τ. That moves little (|z| of 10 from
  80,000 draws, ``shape`` 150), and an opening gradient left stale less still: both are also compared with what
  they should be.
"""

from __future__ import annotations

import importlib
import itertools
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import special, stats

from tests import models
from tests.backends import NumPyroBackend, PyroBackend
from tests.statistics import Disagreement, assert_agree, compare_moments

NUM_ROWS, UNITS, INPUTS = 24, 2, 3
ALPHA, BETA = 2.0, 1.0
slow = pytest.mark.slow


@cache
def data():
    """X and y, drawn from the model; little is known of the weights of the first unit."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(NUM_ROWS, UNITS * INPUTS)) * np.repeat([0.25, 0.6], INPUTS)
    return X, X @ rng.normal(size=UNITS * INPUTS) + rng.normal(size=NUM_ROWS)


def linear(lib, form):
    """The model, by the form of its prior, and its data."""

    def model(X, y):
        shape = {"units": (UNITS, 1)}.get(form, ())
        alpha = ALPHA * lib.np.ones(shape)
        if form == "variance":
            scale = lib.ppl.sample("variance", lib.dist.InverseGamma(alpha, BETA)) ** 0.5
        else:
            scale = lib.ppl.sample("tau", lib.dist.Gamma(alpha, BETA).to_event(len(shape))) ** -0.5
        w = lib.ppl.sample("w", lib.dist.Normal(lib.np.zeros((UNITS, INPUTS)), scale).to_event(2))
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(X @ w.reshape(-1), 1.0), obs=y)

    return model, tuple(lib.array(x) for x in data())


@cache
def exact_moments(num_precisions):
    """Mean and variance of log τ and τ, by element, and of the first weight of each unit."""
    X, y = data()
    u = np.linspace(-12.0, 5.0, 171)
    grid = np.stack(np.meshgrid(*num_precisions * [u], indexing="ij"), axis=-1).reshape(-1, num_precisions)
    of_weights = np.exp(np.repeat(grid, UNITS * INPUTS // num_precisions, axis=1))
    covariance = np.linalg.inv(X.T @ X + of_weights[:, :, None] * np.eye(UNITS * INPUTS))
    mean = covariance @ (X.T @ y)
    log_p = stats.gamma.logpdf(np.exp(grid), ALPHA, scale=1 / BETA).sum(axis=1) + grid.sum(axis=1)
    log_p = log_p + 0.5 * (np.log(of_weights).sum(axis=1) + np.linalg.slogdet(covariance)[1] + mean @ (X.T @ y))
    weights = np.exp(log_p - log_p.max())
    weights = (weights / weights.sum())[:, None]

    def moments(x, variance=0.0):
        centre = (weights * x).sum(axis=0)
        return centre, (weights * (variance + (x - centre) ** 2)).sum(axis=0)

    some = slice(None, None, INPUTS)
    of_w = moments(mean[:, some], np.diagonal(covariance, axis1=1, axis2=2)[:, some])
    return {"log tau": moments(grid), "tau": moments(np.exp(grid)), "w": of_w}


def compare(samples, form):
    """Compare the mean and the variance of every quantity, samples of shape (chains, draws, ...)."""
    tau = 1 / samples["variance"] if form == "variance" else samples["tau"]
    tau = tau.reshape(*tau.shape[:2], -1)
    draws = {"log tau": np.log(tau), "tau": tau, "w": samples["w"][..., 0]}
    known = exact_moments(tau.shape[2])
    return [c for name, x in draws.items() for c in compare_moments(name, x, *known[name])]


def run(lib, form, num_subsets, seed, lengths, **options):
    """Run the kernel and compare."""
    model, args = linear(lib, form)
    mcmc = lib.run(lib.split.BlockGibbsHMC(model, num_subsets, **options), *args, seed=seed, **lengths)
    return compare({name: lib.to_numpy(x) for name, x in mcmc.get_samples(group_by_chain=True).items()}, form)


LENGTHS = {
    # τ has a long tail: with a quarter of these draws the z of its variance is not yet normal
    "numpyro": {"num_warmup": 300, "num_samples": 3200, "num_chains": 8},
    "pyro": {"num_warmup": 200, "num_samples": 4000},
}
OPTIONS = {"step_size": 0.3, "find_heuristic_step_size": False}  # the search takes as long to compile as sampling
CASES = [
    *itertools.product(["precision"], [1, 4], ["nuts", "hmc"]),
    ("variance", 4, "nuts"),
    ("units", 1, "hmc"),
    ("units", 4, "nuts"),
]
IN_DEFAULT_SUITE = {("numpyro", "precision", 4, "nuts", 0), ("pyro", "units", 1, "hmc", 0)}
GRID = [
    pytest.param(backend, *case, seed, id="-".join(map(str, (backend.name, *case, seed))), marks=[slow] * is_slow)
    for backend, case, seed in itertools.product([NumPyroBackend, PyroBackend], CASES, range(5))
    for is_slow in [(backend.name, *case, seed) not in IN_DEFAULT_SUITE]
]


@pytest.mark.slow
@pytest.mark.parametrize(("lib", "form", "num_subsets", "trajectory", "seed"), GRID, indirect=["lib"])
def test_moments_are_those_of_quadrature(lib, form, num_subsets, trajectory, seed):
    """Means and variances of precisions and of a weight of each unit.

    A false alarm has probability 2.7e-5 a comparison (see :mod:`tests.statistics`): the whole grid makes
    2 packages x 5 seeds x (5 x 8 + 2 x 12) = 640 comparisons, 1.7 % together; the default part 20, 0.05 %.
    """
    options = {"trajectory": trajectory, **OPTIONS}
    assert_agree(run(lib, form, num_subsets, seed, LENGTHS[lib.name], **options))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_precision_of_one_weight_and_a_small_concentration_is_drawn(lib, seed):
    """Automatic relevance determination: α + Q/2 = 0.9, below the 1 that a mass in S3HMC needs.

    Four comparisons a run, 24 together: 0.07 %.
    """
    alpha, beta, y = 0.4, 1.0, np.random.default_rng(4).normal(0.8, 1.0, NUM_ROWS)

    def model(y):
        tau = lib.ppl.sample("tau", lib.dist.Gamma(alpha * lib.np.ones(()), beta))
        w = lib.ppl.sample("w", lib.dist.Normal(lib.np.zeros(()), tau**-0.5))
        with lib.ppl.plate("data", y.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(w, 1.0), obs=y)

    w = np.linspace(-2, 3, 2001)
    log_p = stats.norm.logpdf(y[:, None], w).sum(axis=0) - (alpha + 0.5) * np.log(beta + w**2 / 2)
    p = np.exp(log_p - log_p.max()) / np.exp(log_p - log_p.max()).sum()
    log_tau = special.digamma(alpha + 0.5) - np.log(beta + w**2 / 2)
    moments = {name: (p @ x, p @ (x - p @ x) ** 2) for name, x in {"w": w, "log tau": log_tau}.items()}
    moments["log tau"] = moments["log tau"][0], moments["log tau"][1] + special.polygamma(1, alpha + 0.5)
    mcmc = lib.run(lib.split.BlockGibbsHMC(model, 4, **OPTIONS), lib.array(y), seed=seed, **LENGTHS[lib.name])
    draws = {name: lib.to_numpy(x) for name, x in mcmc.get_samples(group_by_chain=True).items()}
    draws = {"w": draws["w"], "log tau": np.log(draws["tau"])}
    assert_agree(
        [
            c
            for name, x in draws.items()
            for c in compare_moments(name, x[..., None], *map(np.atleast_1d, moments[name]))
        ]
    )


def draw_without_weights(lib, patch):
    """Gamma(α, β'), β' as it should be: what the shape lacks is added to the gradient that β' is made from."""
    conjugate = _gibbs(lib).Conjugate
    honest = conjugate.draw

    def draw(self, z, prior_grad, *key):
        lacking = lib.array(self.shapes["tau"] - ALPHA)
        wrong = self._replace(shapes={"tau": np.full_like(self.shapes["tau"], ALPHA)})
        return honest(wrong, z, {**prior_grad, "tau": prior_grad["tau"] + lacking}, *key)

    patch.setattr(conjugate, "draw", draw)


def leave_energies(lib, patch):
    """The draw leaves the energies as they were."""
    gibbs = _gibbs(lib)
    honest = gibbs.draw_precisions

    def draw(state, *args):
        return honest(state, *args)._replace(energies=state.energies, potential_energy=state.potential_energy)

    patch.setattr(gibbs, "draw_precisions", draw)


def _gibbs(lib):
    return importlib.import_module(f"{lib.split.__name__}.kernels.block_gibbs")


FAULTS = {"shape": draw_without_weights, "stale_energies": leave_energies}
FIXED = {"adapt_step_size": False, "adapt_mass_matrix": False, "find_heuristic_step_size": False}
SETTING = {"trajectory": "hmc", "step_size": 0.4, "num_steps": 3, **FIXED}
LENGTHS_OF_CONTROLS = {
    "numpyro": {"num_warmup": 50, "num_samples": 5000, "num_chains": 16},
    "pyro": {"num_warmup": 50, "num_samples": 12_000},
}


def compare_in_the_setting_of_the_controls(lib, seed=0):
    """One subset, no adaptation."""
    return run(lib, "precision", 1, seed, LENGTHS_OF_CONTROLS[lib.name], **SETTING)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lib", "name"),
    [
        pytest.param(NumPyroBackend, "shape", id="numpyro-shape"),
        pytest.param(NumPyroBackend, "stale_energies", id="numpyro-stale_energies", marks=slow),
        # where stale energies would take minutes to show
        pytest.param(PyroBackend, "shape", id="pyro-shape", marks=slow),
    ],
    indirect=["lib"],
)
def test_broken_kernel_disagrees(lib, name, monkeypatch):
    """Each fault shows, at an effective sample size that is enough (see :func:`assert_agree`)."""
    FAULTS[name](lib, monkeypatch)
    with pytest.raises(Disagreement):
        assert_agree(compare_in_the_setting_of_the_controls(lib))


@pytest.mark.slow
@slow
def test_unbroken_kernel_agrees_in_the_setting_of_the_controls(lib):
    """What the controls show is their fault and not their setting (16 comparisons, 0.04 %)."""
    assert_agree(compare_in_the_setting_of_the_controls(lib))


def many_precisions(lib, as_variances=False):
    """A model of precisions of every kind, or of their inverses, and its data: w, v share τ; a has one a unit."""
    gamma = lib.dist.InverseGamma if as_variances else lib.dist.Gamma
    power = 0.5 if as_variances else -0.5

    def model(X, y):
        mean = lib.ppl.sample("mean", lib.dist.Normal(lib.array(0.0), 1.0))
        tau = lib.ppl.sample("tau", gamma(lib.array(0.5), 0.7))
        unit = lib.ppl.sample("unit", gamma(lib.array([1.5, 2.5]), lib.array([0.3, 2.0])).to_event(1))
        w = lib.ppl.sample("w", lib.dist.Normal(mean * lib.np.ones(INPUTS), 3.0 * tau**power).to_event(1))
        v = lib.ppl.sample("v", lib.dist.Normal(lib.np.zeros(2), tau**power).to_event(1))
        a = lib.ppl.sample("a", lib.dist.Normal(lib.np.ones((2, INPUTS)), unit[:, None] ** power).to_event(2))
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(X @ (w + v @ a), 1.0), obs=y)

    X, y = data()
    return model, (lib.array(X[:, :INPUTS]), lib.array(y))


def closed_form(z):
    """Shape and rate of the precisions of :func:`many_precisions` given everything else."""
    squares = ((z["w"] - z["mean"]) ** 2).sum() / 9 + (z["v"] ** 2).sum()
    of_units = ((z["a"] - 1.0) ** 2).sum(axis=1)
    return {
        "tau": (0.5 + (INPUTS + 2) / 2, 0.7 + squares / 2),
        "unit": (np.array([1.5, 2.5]) + INPUTS / 2, np.array([0.3, 2.0]) + of_units / 2),
    }


def position(lib, seed=0):
    """Unconstrained values of :func:`many_precisions`, as arrays and as the framework's."""
    rng = np.random.default_rng(seed)
    shapes = {"mean": (), "tau": (), "unit": (2,), "w": (INPUTS,), "v": (2,), "a": (2, INPUTS)}
    z = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    return z, {name: lib.array(u) for name, u in z.items()}


class Prepared(NamedTuple):
    """A kernel that has studied :func:`many_precisions`, its potential and its distributions of precisions."""

    method: Any
    potential: Any
    conjugate: Any


@cache
def prepared_by(backend, as_variances, options):
    lib = backend()
    model, args = many_precisions(lib, as_variances)
    kernel = lib.split.BlockGibbsHMC(model, **dict(options))
    with pytest.MonkeyPatch.context() as patch:  # that subsets add up is tested elsewhere, and takes long to compile
        patch.setattr(
            importlib.import_module(f"{lib.split.__name__}.splitting.model_split"), "check_exact", lambda *args: None
        )
        method, potential = lib.prepared(kernel, args)
    return Prepared(method, potential, method.system.conjugate)


def prepared(lib, as_variances=False, **options):
    """The kernel, ready to be taken to pieces; made once."""
    return prepared_by(type(lib), as_variances, tuple(options.items()))


both_forms = pytest.mark.parametrize("as_variances", [False, True], ids=["precisions", "variances"])


@both_forms
def test_distributions_are_the_conjugate_ones(lib, as_variances):
    """Gamma(α + Q/2, β + Σ w²/2), with constant factors, means and several sites, wherever the precisions are."""
    kernel = prepared(lib, as_variances)
    rates_at = lib.compiled(lambda z: kernel.conjugate.rates(z, kernel.potential.prior_energy_and_grad(z)[1]))
    for seed in range(3):
        at, z = position(lib, seed)
        rates = rates_at(z)
        for name, (shape, rate) in closed_form(at).items():
            np.testing.assert_allclose(kernel.conjugate.shapes[name], shape, rtol=1e-12)
            np.testing.assert_allclose(lib.to_numpy(rates[name]), rate, rtol=1e-10)


@both_forms
def test_rates_of_weights_near_zero(lib, as_variances):
    """Where τ is far too small for the weights the gradient is the shape to all its digits, and its rate lost in it."""
    kernel = prepared(lib, as_variances)
    at, z = position(lib)
    near = {name: (at["mean"] if name == "w" else 1.0 * (name == "a")) + 1e-6 * at[name] for name in ("w", "v", "a")}
    far = {name: (60.0 if as_variances else -60.0) + at[name] for name in ("tau", "unit")}
    at = {**at, **near, **far}
    z = {name: lib.array(u) for name, u in at.items()}

    def rates_at(z):
        def grad_at(z):
            return kernel.potential.prior_energy_and_grad(z)[1]

        return kernel.conjugate.rates(*kernel.conjugate.where_rates_are_known(z, grad_at(z), grad_at))

    rates = lib.compiled(rates_at)(z)
    for name, (_, rate) in closed_form(at).items():
        np.testing.assert_allclose(lib.to_numpy(rates[name]), rate, rtol=1e-10)


def test_many_weights_that_start_at_zero(lib):
    """In 32 bits: 50,000 weights of one precision, whose rate is 1e-4 / 25,000 of the gradient at the start."""
    lib.set_precision(32)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8, 50_000)) / 50_000**0.5

    def model(X):
        tau = lib.ppl.sample("tau", lib.dist.Gamma(lib.array(1e-4), 1e-4))
        w = lib.ppl.sample("w", lib.dist.Normal(lib.np.zeros(X.shape[1]), tau**-0.5).to_event(1))
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(X @ w, 1.0), obs=X[:, 0])

    start = {"tau": lib.array(0.0), "w": lib.np.zeros(50_000)}
    kernel = lib.split.BlockGibbsHMC(model, num_subsets=2, trajectory="hmc", num_steps=3)
    mcmc = lib.run(kernel, lib.array(X), num_warmup=5, num_samples=5, init_params=start)
    tau = lib.to_numpy(mcmc.get_samples()["tau"])
    assert np.isfinite(tau).all()
    assert (tau > 10).all(), tau


def draw_many(lib, kernel, z, num, seed=0):
    """``num`` draws of the precisions' unconstrained values given the rest of ``z``."""
    grad = lib.compiled(kernel.potential.prior_energy_and_grad)(z)[1]
    if lib.name == "numpyro":
        keys = lib._jax.random.split(lib._jax.random.key(seed), num)
        drawn = lib._jax.jit(lib._jax.vmap(lambda key: kernel.conjugate.draw(z, grad, key)))(keys)
        return {name: lib.to_numpy(u) for name, u in drawn.items()}
    lib.ppl.set_rng_seed(seed)
    draws = [kernel.conjugate.draw(z, grad) for _ in range(num)]
    return {name: np.stack([lib.to_numpy(draw[name]) for draw in draws]) for name in z}


@pytest.mark.slow
@pytest.mark.parametrize("as_variances", [False, pytest.param(True, marks=slow)], ids=["precisions", "variances"])
def test_draws_have_the_conjugate_distribution(lib, as_variances):
    """Kolmogorov-Smirnov for each of three precisions, p > 1e-4, and three correlations: a false alarm 0.04 %."""
    at, z = position(lib)
    num = 4000
    drawn = draw_many(lib, prepared(lib, as_variances), z, num)
    for name in ("mean", "w", "v", "a"):
        np.testing.assert_array_equal(drawn[name][0], at[name])
    uniform = []
    for name, (shape, rate) in closed_form(at).items():
        tau = np.exp(-drawn[name] if as_variances else drawn[name])
        uniform += list(stats.gamma.cdf(tau, shape, scale=1 / rate).reshape(num, -1).T)
    for u in uniform:
        assert stats.kstest(u, "uniform").pvalue > 1e-4
    correlations = np.corrcoef(uniform)[np.triu_indices(len(uniform), 1)]
    assert np.abs(correlations).max() * num**0.5 < 4.2


class State(NamedTuple):
    """As much of a chain's state as the draw touches."""

    z: dict[str, Any]
    energies: Any
    potential_energy: Any
    opening_grad: Any


@pytest.mark.parametrize(
    ("lib", "num_subsets", "schedule"),
    [
        pytest.param(backend, *case, id="-".join(map(str, (backend.name, *case))), marks=[slow] * is_slow)
        for backend, case in itertools.product(
            [NumPyroBackend, PyroBackend], [(1, "symmetric"), (3, "symmetric"), (3, "naive")]
        )
        for is_slow in [backend is NumPyroBackend and case != (3, "naive")]
    ],
    indirect=["lib"],
)
def test_what_is_kept_is_up_to_date_after_the_draw(lib, num_subsets, schedule):
    kernel = prepared(lib, num_subsets=num_subsets, schedule=schedule)
    unit_metric = lib.kinetic({("a", "mean", "v", "w"): np.ones(3 * INPUTS + 3)})
    method = kernel.method
    integrator = method.system.integrator(method.schedule.rows, kernel.potential, unit_metric)
    keys = [lib._jax.random.key(0)] if lib.name == "numpyro" else []
    order = np.arange(num_subsets)
    order = lib.array(order) if lib.name == "numpyro" else order.tolist()

    @lib.compiled
    def at(z):
        energies = kernel.potential.energies(z)
        terms = energies.value if lib.name == "numpyro" else energies
        return State(z, energies, terms.sum(), integrator.opening_grad_at(z, order))

    @lib.compiled
    def drawn(state):
        return _gibbs(lib).draw_precisions(state, integrator, kernel.conjugate, *keys)

    before = at(position(lib)[1])
    after = drawn(before)
    fresh = at(after.z)
    assert abs(float(fresh.potential_energy - before.potential_energy)) > 0.1
    assert np.abs(lib.to_numpy(fresh.opening_grad["a"] - before.opening_grad["a"])).max() > 0.1
    assert float(after.potential_energy) == pytest.approx(float(fresh.potential_energy), abs=1e-10)
    for kept, new in ((after.energies, fresh.energies), (after.opening_grad, fresh.opening_grad)):
        for x, y in zip(leaves(kept), leaves(new), strict=True):
            np.testing.assert_allclose(lib.to_numpy(x), lib.to_numpy(y), atol=1e-10, rtol=0)
    assert not any(np.any(lib.to_numpy(fresh.opening_grad[name])) for name in ("tau", "unit"))


def leaves(x):
    """The arrays of a dict, a tuple or an array."""
    if isinstance(x, dict):
        return [x[name] for name in sorted(x)]
    return list(x) if isinstance(x, tuple) else [x]


def regression(lib, precision, weights):
    """A model of X and y whose weights are ``weights(precision)``, shape (DIM,) or (rows, DIM)."""

    def model(X, y):
        w = weights(lib.ppl.sample("tau", precision))
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal((X * w).sum(-1), 1.0), obs=y)

    return model


def normal_weights(lib):
    return lambda tau: lib.ppl.sample("w", lib.dist.Normal(lib.np.zeros(models.DIM), tau**-0.5).to_event(1))


def refused(lib, model, match):
    """``model`` is refused at once, with a message that says so."""
    with pytest.raises(ValueError, match=match):
        lib.prepared(lib.split.BlockGibbsHMC(model), models.data(lib))


def test_prior_that_is_not_conjugate(lib):
    model = regression(lib, lib.dist.HalfCauchy(lib.array(1.0)), normal_weights(lib))
    refused(lib, model, r"'tau' must be conjugate.*S3HMC takes any prior")


def test_masked_weights(lib):
    """The mask takes two of three weights out of the density: Gamma(α + Q/2, ·) would be wrong."""
    mask = lib.array(np.arange(models.DIM) == 0)

    def weights(tau):
        dist = lib.dist.Normal(lib.np.zeros(models.DIM), tau**-0.5)
        return lib.ppl.sample("w", dist.mask(mask).to_event(1))

    model = regression(lib, lib.dist.Gamma(lib.array(2.0), 1.0), weights)
    refused(lib, model, "'tau' must have a gamma distribution.*use S3HMC")


def test_concentration_that_depends_on_rows(lib):
    """The model is read on a subset's rows, whose mean is not that of all rows."""

    def model(X, y):
        w = normal_weights(lib)(lib.ppl.sample("tau", lib.dist.Gamma(1.0 + (y**2).mean(), 1.0)))
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(X @ w, 1.0), obs=y)

    lib.prepared(lib.split.BlockGibbsHMC(model, num_subsets=1), models.data(lib))
    with pytest.raises(ValueError, match=r"'tau'.* must not depend on the data rows, got alpha \+ Q/2 = .* use S3HMC"):
        lib.prepared(lib.split.BlockGibbsHMC(model, num_subsets=2), models.data(lib))


def test_weights_with_an_entry_for_each_row(lib):
    def model(X, y):
        tau = lib.ppl.sample("tau", lib.dist.Gamma(lib.array(2.0), 1.0))
        with lib.ppl.plate("data", X.shape[0]):
            w = lib.ppl.sample("w", lib.dist.Normal(lib.np.zeros(X.shape[0]), tau**-0.5))
            lib.ppl.sample("y", lib.dist.Normal(w + X[:, 0], 1.0), obs=y)

    refused(lib, model, "tau")


def test_arguments_out_of_range(lib):
    model = linear(lib, "precision")[0]
    with pytest.raises(ValueError, match=r"trajectory must be .*'x'"):
        lib.split.BlockGibbsHMC(model, trajectory="x")
    with pytest.raises(ValueError, match="num_steps and trajectory_length must not both be given"):
        lib.split.BlockGibbsHMC(model, trajectory="hmc", num_steps=3, trajectory_length=1.0)
    with pytest.raises(ValueError, match="max_tree_depth"):
        lib.split.BlockGibbsHMC(model, max_tree_depth=0)
    with pytest.raises(ValueError, match="num_steps must be None unless trajectory is 'hmc' .*, got 3"):
        lib.split.BlockGibbsHMC(model, num_steps=3)
    with pytest.raises(ValueError, match="step_size_jitter must be None unless trajectory is 'hmc' .*, got 0.1"):
        lib.split.BlockGibbsHMC(model, trajectory="nuts", step_size_jitter=0.1)
    with pytest.raises(ValueError, match="max_tree_depth must be None unless trajectory is 'nuts' .*, got 5"):
        lib.split.BlockGibbsHMC(model, trajectory="hmc", max_tree_depth=5)


def test_depth_limit_is_warned_of(lib):
    """Steps so small that no trajectory turns in two doublings."""
    model, args = linear(lib, "precision")
    options = {"step_size": 0.001, "adapt_step_size": False, "find_heuristic_step_size": False}
    with pytest.warns(UserWarning, match=r"100% of the first 100 trajectories ended at max_tree_depth=2"):
        lib.run(lib.split.BlockGibbsHMC(model, max_tree_depth=2, **options), *args, num_warmup=0, num_samples=101)
