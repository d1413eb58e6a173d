"""One subset takes whatever the host's HMC takes; more than one divides a model without a plate where that is proved.

``WHOLE`` are models that no plate divides: a Gaussian process, an autoregression, a mixture whose assignments the host
sums out, observations in two plates, weights and their precision without any plate. ``linear`` has no plate either, but
rows that are proved independent. Their potentials are compared with the host's at random points, and the draws of every
exact kernel with those of the host's NUTS.
"""

import contextlib
import functools
import pickle

import arviz as az
import numpy as np
import pytest

from split_common.errors import ModelNotSplittableError
from tests.backends import NumPyroBackend, PyroBackend
from tests.statistics import assert_agree, compare_with_reference

pytestmark = pytest.mark.contract

NUM_ROWS = 20
in_numpyro = pytest.mark.parametrize("lib", [NumPyroBackend], ids=["numpyro"], indirect=True)
in_pyro = pytest.mark.parametrize("lib", [PyroBackend], ids=["pyro"], indirect=True)


def rows(lib):
    """Predictors (N, 2) and responses (N,), in two clusters and autocorrelated."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(NUM_ROWS, 2))
    return lib.array(X), lib.array(X @ np.array([1.0, -0.5]) + 2.0 * np.sign(X[:, 0]) + 0.5 * rng.normal(size=NUM_ROWS))


def gaussian_process(lib):
    """Regression by a Gaussian process: the responses are one draw of N dimensions."""

    def model(X, y):
        length = lib.ppl.sample("length", lib.dist.LogNormal(lib.array(0.0), 0.5))
        noise = lib.ppl.sample("noise", lib.dist.Gamma(lib.array(3.0), 3.0))
        distance = (X[:, None, 0] - X[None, :, 0]) ** 2
        covariance = 4.0 * lib.np.exp(-distance / length**2) + noise * lib.np.eye(len(y))
        lib.ppl.sample("y", lib.dist.MultivariateNormal(lib.np.zeros(len(y)), covariance), obs=y)

    return model, rows(lib)


def autoregression(lib):
    """AR(2): by a scan in NumPyro, by a loop in Pyro."""

    def latents():
        a = lib.ppl.sample("a", lib.dist.Normal(lib.array(0.0), 0.5))
        b = lib.ppl.sample("b", lib.dist.Normal(lib.array(0.0), 0.5))
        return a, b, lib.ppl.sample("s", lib.dist.LogNormal(lib.array(0.0), 1.0))

    def scanned(y):
        from numpyro.contrib.control_flow import scan

        a, b, s = latents()

        def step(last, value):
            lib.ppl.sample("y", lib.dist.Normal(a * last[0] + b * last[1], s), obs=value)
            return (value, last[0]), None

        scan(step, (y[1], y[0]), y[2:])

    def looped(y):
        a, b, s = latents()
        for t in range(2, len(y)):
            lib.ppl.sample(f"y_{t}", lib.dist.Normal(a * y[t - 1] + b * y[t - 2], s), obs=y[t])

    return scanned if lib.name == "numpyro" else looped, rows(lib)[1:]


def mixture(lib):
    """Two normal components; to which one each row belongs is a discrete latent site."""

    def model(y):
        share = lib.ppl.sample("share", lib.dist.Beta(lib.array(2.0), 2.0))
        centre = lib.ppl.sample("centre", lib.dist.Normal(lib.array(0.0), 1.0))
        gap = lib.ppl.sample("gap", lib.dist.LogNormal(lib.array(0.5), 0.5))  # above 0: components keep their names
        means = centre + gap * lib.array([-1.0, 1.0])
        weights = lib.np.stack([share, 1.0 - share])
        with lib.ppl.plate("data", len(y)):
            which = lib.ppl.sample("which", lib.dist.Categorical(weights), infer={"enumerate": "parallel"})
            lib.ppl.sample("y", lib.dist.Normal(means[which], 1.0), obs=y)

    return model, rows(lib)[1:]


def two_plates(lib):
    """Observations in two plates of unequal size."""

    def model(X, y, other):
        w = lib.ppl.sample("w", lib.dist.Normal(lib.np.zeros(2), lib.np.ones(2)).to_event(1))
        s = lib.ppl.sample("s", lib.dist.LogNormal(lib.array(0.0), 1.0))
        with lib.ppl.plate("data", len(y)):
            lib.ppl.sample("y", lib.dist.Normal(X @ w, s), obs=y)
        with lib.ppl.plate("others", len(other)):
            lib.ppl.sample("other", lib.dist.Normal(w.sum(), s), obs=other)

    return model, (*rows(lib), lib.array(np.linspace(-1.0, 2.0, 7)))


def hierarchy(lib):
    """Weights under a precision; the responses are one value of N dimensions, and a factor holds the weights' sum."""

    def model(X, y):
        tau = lib.ppl.sample("tau", lib.dist.Gamma(lib.array(3.0), 2.0))
        w = lib.ppl.sample("w", lib.dist.Normal(lib.np.zeros(2), tau**-0.5 * lib.np.ones(2)).to_event(1))
        lib.ppl.factor("sum", -0.5 * (w.sum() - 1.0) ** 2)
        lib.ppl.sample("y", lib.dist.Normal(X @ w, 1.0).to_event(1), obs=y)

    return model, rows(lib)


def hierarchical_mixture(lib):
    """Component means under a precision, and discrete latent sites."""

    def model(y):
        tau = lib.ppl.sample("tau", lib.dist.Gamma(lib.array(3.0), 2.0))
        away = lib.ppl.sample("away", lib.dist.Normal(lib.np.zeros(2), tau**-0.5 * lib.np.ones(2)).to_event(1))
        means = away + lib.array([-2.0, 2.0])  # far enough apart, and shares that differ, to keep their names
        with lib.ppl.plate("data", len(y)):
            shares = lib.array([0.4, 0.6])
            which = lib.ppl.sample("which", lib.dist.Categorical(shares), infer={"enumerate": "parallel"})
            lib.ppl.sample("y", lib.dist.Normal(means[which], 1.0), obs=y)

    return model, rows(lib)[1:]


def linear(lib):
    """A regression without any plate."""

    def model(X, y):
        w = lib.ppl.sample("w", lib.dist.Normal(lib.np.zeros(2), lib.np.ones(2)).to_event(1))
        s = lib.ppl.sample("s", lib.dist.LogNormal(lib.array(0.0), 1.0))
        lib.ppl.sample("y", lib.dist.Normal(X @ w, s), obs=y)

    return model, rows(lib)


def nothing_observed(lib):
    """A density without data."""

    def model():
        v = lib.ppl.sample("v", lib.dist.Normal(lib.array(0.0), 1.0))
        lib.ppl.sample("x", lib.dist.Normal(lib.array(0.0), lib.np.exp(0.5 * v)))

    return model, ()


WHOLE = [gaussian_process, autoregression, mixture, two_plates, hierarchy, hierarchical_mixture, nothing_observed]
BOTH = [*WHOLE, linear]
name_of = lambda build: build.__name__  # noqa: E731


def host_potential(lib, model, args):
    """The host's own potential and gradient, enumeration included, and a position."""
    if lib.name == "numpyro":
        import jax
        from numpyro.infer.util import initialize_model

        info = initialize_model(jax.random.key(0), model, model_args=args)
        return jax.value_and_grad(info.potential_fn), info.param_info.z
    from pyro.infer.mcmc.util import initialize_model
    from pyro.ops.integrator import potential_grad

    z, potential_fn, *_ = initialize_model(model, args, {})

    def value_and_grad(z):
        grad, value = potential_grad(potential_fn, {name: u.clone() for name, u in z.items()})
        return value, grad

    return value_and_grad, z


def assert_is_the_hosts(lib, build, num_subsets, **options):
    """Value and gradient at three points, one of them far out."""
    model, args = build(lib)
    value_and_grad, start = host_potential(lib, model, args)
    potential = lib.split.split_model(model, args, num_subsets=num_subsets, **options)
    rng = np.random.default_rng(0)
    for spread in (0.1, 1.0, 2.0):
        z = {name: lib.array(spread * rng.normal(size=np.shape(lib.to_numpy(u)))) for name, u in start.items()}
        (whole, whole_grad), (value, grad) = value_and_grad(z), potential.potential_and_grad(z)
        assert float(value) == pytest.approx(float(whole), rel=1e-10)
        parts = float(potential.log_prior(z)) + sum(
            float(potential.subset_log_likelihood(z, m)) for m in range(num_subsets)
        )
        assert -parts == pytest.approx(float(whole), rel=1e-10)
        for name in z:
            np.testing.assert_allclose(lib.to_numpy(grad[name]), lib.to_numpy(whole_grad[name]), rtol=1e-8, atol=1e-8)
    return potential


@pytest.mark.parametrize("build", WHOLE, ids=name_of)
def test_one_subset_is_the_hosts_potential(lib, build):
    potential = assert_is_the_hosts(lib, build, 1)
    assert (potential.plate, potential.subset_sizes) == (None, (1,))


@pytest.mark.parametrize("num_subsets", [1, 3, 10])
def test_rows_without_a_plate_are_divided(lib, num_subsets):
    potential = assert_is_the_hosts(lib, linear, num_subsets)
    assert (potential.plate, potential.plate_size) == ("rows of y", NUM_ROWS)
    assert len(potential.subset_sizes) == num_subsets


@in_pyro
@pytest.mark.parametrize("build", BOTH, ids=name_of)
def test_a_model_that_is_replayed_is_the_hosts_too(lib, build):
    assert_is_the_hosts(lib, build, 1, jit_compile=False)


def test_values_per_row_may_be_vectors(lib):
    """One observed site of batch shape (N,) and event shape (2,); its mean is that of a latent alone."""

    def model(y):
        m = lib.ppl.sample("m", lib.dist.Normal(lib.np.zeros(2), lib.np.ones(2)).to_event(1))
        lib.ppl.sample("y", lib.dist.Normal(m, lib.np.ones(2)).to_event(1), obs=y)

    potential = assert_is_the_hosts(lib, lambda lib: (model, rows(lib)[:1]), 3)
    assert potential.subset_sizes == (7, 7, 6)


ADVICE = {
    gaussian_process: "'y' is one draw of MultivariateNormal, whose 20 entries rest on one another",
    mixture: r"every latent site must be continuous, got discrete latent sites \['which'\]",
    two_plates: r"plate must be given when several plates hold observations: 'data' \(size 20\), 'others' \(size 7\)",
    hierarchy: r"write `with {package}.plate\('data', 20\):` round the site 'y', and leave out `.to_event\(...\)`",
    nothing_observed: "(no site is observed|the sites? .* have no rows|got none)",
}


@pytest.mark.parametrize("build", ADVICE, ids=name_of)
def test_more_subsets_are_refused_with_the_reason(lib, build):
    model, args = build(lib)
    with pytest.raises(ModelNotSplittableError, match=ADVICE[build].replace("{package}", lib.name)) as caught:
        lib.split.split_model(model, args, num_subsets=2)
    assert "num_subsets=1 of an exact kernel, such as SplitNUTS, runs the model as it is" in str(caught.value)


def test_a_time_series_is_refused(lib):
    model, args = autoregression(lib)
    reason = {
        "numpyro": "'y' is observed in the steps of a scan",
        "pyro": "'y_2', 'y_3', 'y_4' and 15 others have no rows",
    }
    with pytest.raises(ModelNotSplittableError, match=reason[lib.name]):
        lib.split.split_model(model, args, num_subsets=2)


def test_the_exact_edit_is_named(lib):
    """Where rows are not proved independent, rest on one another, are made by the model, or have a latent each."""
    X, y = rows(lib)
    edit = rf"write `with {lib.name}.plate\('data', 20\):` round the site 'y'"

    def made():
        w = lib.ppl.sample("w", lib.dist.Normal(lib.array(0.0), 1.0))
        lib.ppl.sample("y", lib.dist.Normal(w, 1.0), obs=lib.array(np.sin(np.arange(20.0))))

    def summed(X, y):
        w = lib.ppl.sample("w", lib.dist.Normal(lib.np.zeros(2), lib.np.ones(2)).to_event(1))
        mean = X @ w
        lib.ppl.sample("y", lib.dist.Normal(mean - mean.mean(), 1.0), obs=y)

    def wide(X, y):
        m = lib.ppl.sample("m", lib.dist.Normal(lib.array(0.0), 1.0))
        lib.ppl.sample("y", lib.dist.Normal(m + 0.0 * X, 1.0), obs=X)

    def noisy(X, y, in_plate):
        w = lib.ppl.sample("w", lib.dist.Normal(lib.array(0.0), 1.0))
        with lib.ppl.plate("data", 20) if in_plate else contextlib.nullcontext():
            t = lib.ppl.sample("t", lib.dist.Normal(w * X[:, 0], 1.0))
            lib.ppl.sample("y", lib.dist.Normal(t, 1.0), obs=y)

    split = functools.partial(lib.split.split_model, num_subsets=4)
    with pytest.raises(ModelNotSplittableError, match=edit + ", and round the latent 't' too"):
        split(noisy, (X, y, False))
    split(noisy, (X, y, True))
    with pytest.raises(ModelNotSplittableError, match=edit + ", and give the rows as arguments, none of which has 20"):
        split(made, ())
    with pytest.raises(ModelNotSplittableError, match=r"test_whole_models.py:\d+: .*(mean|sum|product|contract)"):
        split(summed, (X, y))
    with pytest.raises(ModelNotSplittableError, match=r"plate\('data', 20, dim=-2\):` round the site 'y'"):
        split(wide, (X, y))


def test_kernels_that_read_rows_say_why_they_refuse(lib):
    model, args = gaussian_process(lib)
    for name in ("PenaltyMH", "SGLD", "SGHMC"):
        options = {"batch_size": 5} | ({} if name == "PenaltyMH" else {"step_size": 1e-4})
        with pytest.raises(ModelNotSplittableError, match=r"MultivariateNormal.*num_subsets=1 of an exact kernel"):
            lib.run(getattr(lib.split, name)(model, **options), *args)


KERNELS = {
    "SymmetricSplitHMC": {},
    "RandomisedSplitHMC": {},
    "NaiveSplitHMC": {},
    "SplitNUTS": {},
    "XHMC": {},
    "WindowedHMC": {},
}
MODELS = [gaussian_process, autoregression, mixture, two_plates]
QUICK = [("SymmetricSplitHMC", mixture, 1), ("NaiveSplitHMC", linear, 10)]


@functools.cache
def reference(name, build):
    """Moments of every entry of every site, by the host's NUTS."""
    lib = {"numpyro": NumPyroBackend, "pyro": PyroBackend}[name]()
    lib.set_precision(64)
    model, args = build(lib)
    if name == "numpyro":
        from numpyro.infer import NUTS

        mcmc = lib.run(NUTS(model), *args, num_warmup=500, num_samples=3000, num_chains=2)
    else:
        from pyro.infer import MCMC, NUTS

        lib.ppl.set_rng_seed(0)
        mcmc = MCMC(NUTS(model, jit_compile=True, ignore_jit_warnings=True), 2000, 300, disable_progbar=True)
        mcmc.run(*args)
    return {label: moments(x) for label, x in entries(lib, mcmc)}


def moments(x):
    return {"mean": x.mean(), "sd": x.std(ddof=1), "mcse_mean": float(az.mcse(x, method="mean"))}


def entries(lib, mcmc):
    for name, draws in mcmc.get_samples(group_by_chain=True).items():
        draws = lib.to_numpy(draws)
        for place in np.ndindex(draws.shape[2:]):
            yield f"{name}{list(place) if place else ''}", draws[(..., *place)]


def assert_draws_are_the_hosts(lib, name, build, num_subsets, **options):
    model, args = build(lib)
    sizes = {"num_warmup": 400, "num_samples": 2500} | ({"num_chains": 2} if lib.name == "numpyro" else {})
    kernel = getattr(lib.split, name)(model, num_subsets=num_subsets, **options)
    mcmc, expected = lib.run(kernel, *args, seed=1, **sizes), reference(lib.name, build)
    found = dict(entries(lib, mcmc))
    assert found.keys() == expected.keys()
    comparisons = [c for label, x in found.items() for c in compare_with_reference(label, x, expected[label])]
    assert_agree(comparisons)


@pytest.mark.parametrize(("name", "build", "num_subsets"), QUICK, ids=lambda value: getattr(value, "__name__", value))
def test_draws_are_the_hosts(lib, name, build, num_subsets):
    assert_draws_are_the_hosts(lib, name, build, num_subsets)


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(
    ("build", "num_subsets"),
    [(build, 1) for build in MODELS] + [(linear, 1), (linear, 10)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_draws_of_every_kernel_are_the_hosts(lib, name, build, num_subsets):
    assert_draws_are_the_hosts(lib, name, build, num_subsets)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["S3HMC", "BlockGibbsHMC"])
@pytest.mark.parametrize("build", [hierarchy, hierarchical_mixture], ids=name_of)
def test_draws_of_weights_and_precisions_are_the_hosts(lib, name, build):
    assert_draws_are_the_hosts(lib, name, build, 1)


@pytest.mark.parametrize("build", [hierarchy, hierarchical_mixture], ids=name_of)
def test_weights_and_precisions_are_told_from_what_is_observed(lib, build):
    """No plate: the precision is the prior's, the factor and the observations are the likelihood's."""
    model, args = build(lib)
    kernel = lib.split.BlockGibbsHMC(model)
    _, potential = lib.prepared(kernel, args)
    assert "precision tau -> " in repr(kernel)
    z = {"tau": lib.array(0.3), "w" if build is hierarchy else "away": lib.array([0.5, -1.0])}
    apart = {**z, "tau": lib.array(1.3)}
    assert float(potential.subset_log_likelihood(z, 0)) == float(potential.subset_log_likelihood(apart, 0))
    assert float(potential.log_prior(z)) != float(potential.log_prior(apart))


def test_a_run_tells_all_of_it(lib):
    """Deterministic sites, statistics, observed data, log-likelihoods; and pickling."""
    model, args = linear(lib)[0], rows(lib)

    def with_total(X, y):
        model(X, y)
        lib.ppl.deterministic("total", X.sum())

    kernel = lib.split.SymmetricSplitHMC(gaussian_process(lib)[0], num_steps=3)
    mcmc = lib.run(kernel, *args, num_warmup=5, num_samples=6)
    idata = lib.split.to_inference_data(mcmc, log_likelihood=True)
    np.testing.assert_allclose(np.asarray(idata.observed_data["y"]), lib.to_numpy(args[1]))
    assert np.asarray(idata.log_likelihood["y"]).shape == (1, 6)
    mcmc = lib.run(lib.split.SymmetricSplitHMC(with_total, num_subsets=4, num_steps=3), *args)
    assert np.asarray(lib.split.to_inference_data(mcmc, log_likelihood=True).log_likelihood["y"]).shape == (1, 10, 20)
    model, args = mixture(lib)
    mcmc = lib.run(lib.split.SymmetricSplitHMC(model, num_steps=3), *args, num_warmup=5, num_samples=6)
    assert "which" not in lib.split.to_inference_data(mcmc).posterior
    with pytest.raises(ValueError, match=r"got none of \['which'\], which were summed out"):
        lib.split.to_inference_data(mcmc, log_likelihood=True)


def test_other_data_are_seen(lib):
    """On one kernel, of which the model does not divide: another run on other data, going on where the host can."""
    model, args = gaussian_process(lib)
    session = lib.session(lib.split.SymmetricSplitHMC(model, num_steps=2), num_warmup=2, num_samples=2)
    for begin, data in ((session.fresh, args), (session.again, (args[0][:9], args[1][:9] + 3.0))):
        with pytest.warns(UserWarning, match="other data") if begin.__name__ == "again" else _quiet():
            state = begin(*data)
        assert float(state.potential_energy) == pytest.approx(lib.host_energy(model, data, {}, state.z), rel=1e-9)


def _quiet():
    import contextlib

    return contextlib.nullcontext()


@in_numpyro
def test_chains_of_every_kind_are_the_same_and_go_on(lib):
    """Sequential, vectorised and parallel chains; a run in two halves is the run in one."""
    model, args = mixture(lib)
    run = functools.partial(lib.run, num_warmup=4, num_samples=8, num_chains=2)
    kernel = functools.partial(lib.split.SymmetricSplitHMC, model, num_steps=2)
    draws = [
        np.asarray(run(kernel(), *args, chain_method=method).get_samples()["centre"])
        for method in ("sequential", "vectorized", "parallel")
    ]
    for others in draws[1:]:
        np.testing.assert_allclose(others, draws[0], rtol=0, atol=1e-10)
    half = lib.session(lib.split.SymmetricSplitHMC(model, num_steps=2), num_warmup=4, num_samples=4)
    half.fresh(*args)
    first = np.asarray(half.mcmc.get_samples()["centre"])
    half.go_on(*args)
    whole = lib.run(kernel(), *args, num_warmup=4, num_samples=8)
    joined = np.concatenate([first, np.asarray(half.mcmc.get_samples()["centre"])])
    np.testing.assert_array_equal(joined, np.asarray(whole.get_samples()["centre"]))


def picklable_numpyro(y):
    """A model at module level, which pickles, and whose observations are one value."""
    import numpyro
    import numpyro.distributions as dist

    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(m, 1.0).expand([len(y)]).to_event(1), obs=y)


def picklable_pyro(y):
    """The same in Pyro."""
    import pyro
    import pyro.distributions as dist
    import torch

    m = pyro.sample("m", dist.Normal(torch.tensor(0.0), 1.0))
    pyro.sample("y", dist.Normal(m, 1.0).expand([len(y)]).to_event(1), obs=y)


@in_numpyro
def test_a_run_goes_on_after_it_was_pickled(lib):
    args = rows(lib)[1:]
    half = lib.session(lib.split.NaiveSplitHMC(picklable_numpyro, num_steps=2), num_warmup=3, num_samples=4)
    half.fresh(*args)
    first, half = np.asarray(half.mcmc.get_samples()["m"]), pickle.loads(pickle.dumps(half))
    half.go_on(*args)
    whole = lib.run(lib.split.NaiveSplitHMC(picklable_numpyro, num_steps=2), *args, num_warmup=3, num_samples=8)
    joined = np.concatenate([first, np.asarray(half.mcmc.get_samples()["m"])])
    np.testing.assert_array_equal(joined, np.asarray(whole.get_samples()["m"]))


@in_pyro
@pytest.mark.contract
def test_spawned_chains(lib, monkeypatch):
    """A chain in a process of its own is the chain of a run with its seed."""
    monkeypatch.setattr(lib.np.multiprocessing, "cpu_count", lambda: 4)
    args, options = rows(lib)[1:], {"num_warmup": 3, "num_samples": 3}
    kernel = lib.split.NaiveSplitHMC(picklable_pyro, num_steps=2)
    both = lib.run(kernel, *args, num_chains=2, seed=7, mp_context="spawn", **options).get_samples(group_by_chain=True)
    for chain in range(2):
        alone = lib.run(lib.split.NaiveSplitHMC(picklable_pyro, num_steps=2), *args, seed=7 + chain, **options)
        np.testing.assert_allclose(both["m"][chain].numpy(), alone.get_samples()["m"].numpy(), rtol=0, atol=0)
