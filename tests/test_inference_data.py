"""Observed data and pointwise log-likelihoods for ArviZ, in both packages; what is made of them."""

import warnings
from importlib import import_module

import arviz as az
import jax
import matplotlib
import numpy as np
import pytest
import scipy.special

from tests.backends import NumPyroBackend, PyroBackend

matplotlib.use("Agg")
NUM_ROWS, NUM_SUBSETS = 23, 4  # subsets of 6, 6, 6 and 5 rows


def data_of(lib):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(NUM_ROWS, 2))
    return lib.array(X), lib.array(X[:, 0] + 0.3 * rng.normal(size=NUM_ROWS))


def regression(lib):
    def model(X, y=None):
        b = lib.ppl.sample("b", lib.dist.Normal(lib.np.zeros(2), lib.np.ones(2)).to_event(1))
        s = lib.ppl.sample("s", lib.dist.HalfNormal(lib.array(1.0)))
        with lib.ppl.plate("data", X.shape[0]):
            mean = lib.ppl.deterministic("mean", (X * b).sum(-1))
            lib.ppl.sample("y", lib.dist.Normal(mean, s), obs=y)

    return model


def run(lib, model, *data, num_warmup=0, **options):
    """A few draws by plain HMC; where they come from does not matter here."""
    kernel = lib.split.NaiveSplitHMC(model, num_subsets=NUM_SUBSETS, num_steps=2, **options)
    return lib.run(kernel, *data, num_warmup=num_warmup, num_samples=20)


@pytest.fixture
def standard(lib, cache={}):  # noqa: B006
    """One run for each framework, for the tests that only look at it."""
    if lib.name not in cache:
        cache[lib.name] = run(lib, regression(lib), *data_of(lib), num_warmup=40)
    return cache[lib.name]


def normal_log_density(y, mean, sd):
    return -0.5 * ((y - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)


def test_groups_of_a_regression(lib, standard):
    X, y = (lib.to_numpy(x) for x in data_of(lib))
    idata = lib.split.to_inference_data(standard, log_likelihood=True)
    assert set(idata.groups()) == {"posterior", "sample_stats", "log_likelihood", "observed_data"}
    assert list(idata.observed_data) == list(idata.log_likelihood) == ["y"]
    np.testing.assert_array_equal(idata.observed_data["y"], y)
    b, s = idata.posterior["b"].values, idata.posterior["s"].values
    np.testing.assert_allclose(idata.log_likelihood["y"], normal_log_density(y, b @ X.T, s[..., None]), rtol=1e-10)
    assert idata.log_likelihood["y"].dims == ("chain", "draw", *idata.observed_data["y"].dims)


def test_log_likelihoods_are_left_out_unless_asked_for(lib, standard):
    idata = lib.split.to_inference_data(standard)
    assert set(idata.groups()) == {"posterior", "sample_stats", "observed_data"}


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_leave_one_out(lib, standard):
    loo = az.loo(lib.split.to_inference_data(standard, log_likelihood=True), pointwise=True)
    assert np.isfinite(loo.loo_i).all()
    assert loo.loo_i.shape == (NUM_ROWS,)


def test_names_of_dimensions(lib, standard):
    options = {"dims": {"y": ["patient"]}, "coords": {"patient": np.arange(NUM_ROWS) + 100}}
    idata = lib.split.to_inference_data(standard, log_likelihood=True, **options)
    assert idata.log_likelihood["y"].dims == ("chain", "draw", "patient")
    np.testing.assert_array_equal(idata.observed_data["patient"], np.arange(NUM_ROWS) + 100)
    np.testing.assert_array_equal(idata.log_likelihood["patient"], np.arange(NUM_ROWS) + 100)


def test_names_of_plates_are_dimensions_in_every_call(lib):
    """ArviZ's own way fails in a second call, where a handler of the model holds an array."""

    def model(y, weights):
        with lib.ppl.plate("groups", 3):
            a = lib.ppl.sample("a", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        scale = lib.ppl.handlers.scale if lib.name == "numpyro" else lib.ppl.poutine.scale
        with lib.ppl.plate("data", y.shape[0]), scale(scale=lib.np.exp(-weights)):
            lib.ppl.sample("y", lib.dist.Normal(a.sum(), lib.array(1.0)), obs=y)

    rng = np.random.default_rng(4)
    mcmc = run(lib, model, lib.array(rng.normal(size=NUM_ROWS)), lib.array(rng.uniform(size=NUM_ROWS)))
    expected = "groups" if lib.name == "numpyro" else "a_dim_0"
    for _ in range(2):
        assert lib.split.to_inference_data(mcmc).posterior["a"].dims == ("chain", "draw", expected)


def test_posterior_predictive_checks(lib, standard):
    """By the host's ``Predictive``, next to the observations."""
    key = (jax.random.key(0),) if lib.name == "numpyro" else ()
    predictive = lib.ppl.infer.Predictive(regression(lib), standard.get_samples())(*key, data_of(lib)[0])
    idata = lib.split.to_inference_data(standard, posterior_predictive={"y": predictive["y"]})
    assert idata.posterior_predictive["y"].dims == ("chain", "draw", *idata.observed_data["y"].dims)
    az.plot_ppc(idata)
    matplotlib.pyplot.close("all")


def test_other_data_since(lib, standard):
    """Each run's observations are those of its own arguments, and looking at the first leaves the second as it is."""
    X, y = data_of(lib)
    kernel = standard.sampler if lib.name == "numpyro" else standard.kernel
    second = lib.run(kernel, X[:10], 2 * y[:10], num_warmup=0, num_samples=20)
    for mcmc, values in ((second, 2 * y[:10]), (standard, y), (second, 2 * y[:10])):
        idata = lib.split.to_inference_data(mcmc, log_likelihood=True)
        np.testing.assert_array_equal(idata.observed_data["y"], lib.to_numpy(values))
        assert idata.log_likelihood["y"].shape == (1, 20, len(values))


@pytest.mark.parametrize("changed", [False, True])
def test_draws_of_another_model_are_told(lib, changed):
    """What the model reads besides its arguments has changed since the run."""
    known = {"s": 1.0}

    def model(X, y):
        b = lib.ppl.sample("b", lib.dist.Normal(lib.np.zeros(2), lib.np.ones(2)).to_event(1))
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal((X * b).sum(-1), lib.array(known["s"])), obs=y)

    mcmc = run(lib, model, *data_of(lib))
    known["s"] = 3.0 if changed else 1.0
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        lib.split.to_inference_data(mcmc, log_likelihood=True)
    assert any("are of other data or another model than the draws" in str(one.message) for one in told) is changed


@pytest.mark.parametrize("lib", [PyroBackend], ids=["pyro"], indirect=True)
def test_draws_of_the_run_before_an_interrupted_one_are_told(lib):
    def interrupt(kernel, z, stage, i):
        if interrupts and i == 5:
            raise KeyboardInterrupt

    (X, y), interrupts = data_of(lib), []
    mcmc = lib.mcmc(lib.split.SplitNUTS(regression(lib), num_subsets=2), 10, 20, hook_fn=interrupt)
    mcmc.run(X, y)
    interrupts.append(True)
    with pytest.raises(KeyboardInterrupt):
        mcmc.run(X, y + 5)
    with pytest.warns(UserWarning, match="are of other data .* The last run was interrupted"):
        lib.split.log_likelihood(mcmc)


def test_a_latent_for_each_row(lib):
    """Observations with event dimensions that depend on it, and one outside the plate."""
    Y = np.random.default_rng(1).normal(size=(NUM_ROWS, 3))

    def model(Y, total):
        mu = lib.ppl.sample("mu", lib.dist.Normal(lib.array(0.0), 1.0))
        lib.ppl.sample("total", lib.dist.Normal(mu, 1.0), obs=total)
        with lib.ppl.plate("data", Y.shape[0]):
            a = lib.ppl.sample("a", lib.dist.Normal(mu, 1.0))
            lib.ppl.sample("Y", lib.dist.Normal(a[..., None], lib.np.ones(3)).to_event(1), obs=Y)

    idata = lib.split.to_inference_data(run(lib, model, lib.array(Y), lib.array(0.7)), log_likelihood=True)
    np.testing.assert_array_equal(idata.observed_data["Y"], Y)
    assert idata.observed_data["total"].values.item() == 0.7
    a, mu = idata.posterior["a"].values, idata.posterior["mu"].values
    expected = normal_log_density(Y, a[..., None], 1.0).sum(-1)
    np.testing.assert_allclose(idata.log_likelihood["Y"], expected, rtol=1e-10)
    np.testing.assert_allclose(idata.log_likelihood["total"], normal_log_density(0.7, mu, 1.0), rtol=1e-10)


def test_rows_that_the_model_indexes(lib):
    """Data in a closure, rows dealt to subsets in another order, a mask, and a plate across the rows."""
    rng = np.random.default_rng(2)
    Y, seen = rng.normal(size=(3, NUM_ROWS)), rng.uniform(size=(3, NUM_ROWS)) < 0.8
    values, mask = lib.array(Y), lib.array(seen)
    mask_handler = (lib.ppl.handlers if lib.name == "numpyro" else lib.ppl.poutine).mask

    def model():
        mu = lib.ppl.sample("mu", lib.dist.Normal(lib.array(0.0), 1.0))
        with lib.ppl.plate("columns", 3, dim=-2), lib.ppl.plate("data", NUM_ROWS, dim=-1) as i:
            with mask_handler(mask=mask[:, i]):
                lib.ppl.sample("Y", lib.dist.Normal(mu, 1.0), obs=values[:, i])

    mcmc = run(lib, model, plate="data", subset_order="shuffled")
    idata = lib.split.to_inference_data(mcmc, log_likelihood=True)
    np.testing.assert_array_equal(idata.observed_data["Y"], Y)
    mu = idata.posterior["mu"].values[..., None, None]
    expected = np.where(seen, normal_log_density(Y, mu, 1.0), 0.0)
    np.testing.assert_allclose(idata.log_likelihood["Y"], expected, rtol=1e-10)


def test_a_plate_that_asks_for_a_subsample_has_all_rows(lib, tmp_path):
    """As it is sampled: in observed data, log-likelihoods and stores too."""
    y = lib.array(np.arange(NUM_ROWS) / 10.0)

    def model(y):
        mu = lib.ppl.sample("mu", lib.dist.Normal(lib.array(0.0), 1.0))
        with lib.ppl.plate("data", len(y), subsample_size=7) as i:
            lib.ppl.sample("y", lib.dist.Normal(mu, 1.0), obs=y[i])

    mcmc = run(lib, model, y)
    idata = lib.split.to_inference_data(mcmc, log_likelihood=True)
    np.testing.assert_array_equal(idata.observed_data["y"], lib.to_numpy(y))
    expected = normal_log_density(lib.to_numpy(y), idata.posterior["mu"].values[..., None], 1.0)
    np.testing.assert_allclose(idata.log_likelihood["y"], expected, rtol=1e-10)
    kernel = lib.split.NaiveSplitHMC(model, num_subsets=NUM_SUBSETS, num_steps=2)
    opened = lib.sample(lib.mcmc(kernel, 0, 5), y, store=str(tmp_path / "run.zarr"))
    np.testing.assert_array_equal(opened.observed_data["y"], lib.to_numpy(y))


@pytest.mark.parametrize("lib", [NumPyroBackend], ids=["numpyro"], indirect=True)
def test_one_value_for_all_rows_has_no_dimension(lib):
    """A deterministic site may be written in the plate and not depend on its rows; Pyro repeats it for each."""
    y = lib.array(np.arange(NUM_ROWS) / 10.0)

    def model(y):
        mu = lib.ppl.sample("mu", lib.dist.Normal(lib.array(0.0), 1.0))
        with lib.ppl.plate("data", len(y)):
            lib.ppl.deterministic("square", mu**2)
            lib.ppl.sample("y", lib.dist.Normal(mu, 1.0), obs=y)

    mcmc = run(lib, model, y)
    idata = lib.split.to_inference_data(mcmc)
    np.testing.assert_allclose(idata.posterior["square"], idata.posterior["mu"] ** 2, rtol=1e-12)
    assert mcmc.sampler.report(mcmc).checks


@pytest.mark.parametrize("lib", [NumPyroBackend], indirect=True, ids=["numpyro"])
def test_arrays_in_a_deterministic_value_are_variables(lib):
    """NumPyro takes tuples and dicts there, of which ArviZ takes none."""

    def model(X, y):
        regression(lib)(X, y)
        b = X[0]
        with lib.ppl.plate("pairs", 2):
            lib.ppl.deterministic("pair", (b, {"twice": 2 * b}))

    mcmc = run(lib, model, *data_of(lib), plate="data")
    assert "1 chain of 20 draws" in str(mcmc.sampler.report(mcmc))
    idata = lib.split.to_inference_data(mcmc, log_likelihood=True)
    assert set(idata.posterior) == {"b", "s", "mean", "pair[0]", "pair[1]['twice']"}
    np.testing.assert_array_equal(idata.posterior["pair[1]['twice']"], 2 * idata.posterior["pair[0]"])


@pytest.mark.parametrize("lib", [NumPyroBackend], ids=["numpyro"], indirect=True)
def test_an_axis_between_plates_has_a_name_of_its_own(lib):
    y = lib.array(np.arange(6.0).reshape(2, 1, 3))

    def model(y):
        mu = lib.ppl.sample("mu", lib.dist.Normal(0.0, 1.0))
        with lib.ppl.plate("data", 2, dim=-3), lib.ppl.plate("columns", 3, dim=-1):
            lib.ppl.sample("y", lib.dist.Normal(mu, 1.0), obs=y)

    kernel = lib.split.NaiveSplitHMC(model, num_subsets=2, num_steps=2, plate="data")
    idata = lib.split.to_inference_data(lib.run(kernel, y, num_warmup=0, num_samples=20))
    assert idata.observed_data["y"].dims == ("data", "y_dim_1", "columns")
    np.testing.assert_array_equal(idata.observed_data["y"], lib.to_numpy(y))


@pytest.mark.parametrize("num_subsets", [1, NUM_SUBSETS])
def test_what_lies_outside_the_data_plate_is_read_from_all_rows(lib, num_subsets):
    def model(x, counts, y):
        a = lib.ppl.sample("a", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        lib.ppl.sample("total", lib.dist.Normal(a * x.sum(), lib.array(1.0)), obs=y.sum())
        with lib.ppl.plate("first", x.shape[0]):
            lib.ppl.sample("counts", lib.dist.Poisson(lib.np.exp(a + x)), obs=counts)
        with lib.ppl.plate("second", x.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(a * x, lib.array(1.0)), obs=y)

    rng = np.random.default_rng(2)
    x, y, counts = rng.normal(size=NUM_ROWS), rng.normal(size=NUM_ROWS), rng.poisson(2.0, size=NUM_ROWS).astype(float)
    kernel = lib.split.NaiveSplitHMC(model, num_subsets=num_subsets, num_steps=2, plate="first")
    mcmc = lib.run(kernel, *map(lib.array, (x, counts, y)), num_warmup=5, num_samples=10)
    idata = lib.split.to_inference_data(mcmc, log_likelihood=True)
    a = idata.posterior["a"].values[..., None]
    np.testing.assert_allclose(np.squeeze(idata.observed_data["total"]), y.sum(), rtol=1e-12)
    np.testing.assert_array_equal(idata.observed_data["y"], y)
    np.testing.assert_array_equal(idata.observed_data["counts"], counts)
    found = {name: values.values for name, values in idata.log_likelihood.items()}
    assert set(found) == {"total", "counts", "y"}
    np.testing.assert_allclose(found["y"], normal_log_density(y, a * x, 1.0), rtol=1e-10)
    total = normal_log_density(y.sum(), a * x.sum(), 1.0)
    np.testing.assert_allclose(found["total"].reshape(total.shape), total, rtol=1e-10)
    np.testing.assert_allclose(
        found["counts"].sum((-1, -2)), poisson_log_density(counts, a + x).sum((-1, -2)), rtol=1e-10
    )


def poisson_log_density(counts, log_rate):
    return counts * log_rate - np.exp(log_rate) - scipy.special.gammaln(counts + 1)


def test_reparametrised_latents_are_no_observations(lib):
    def model(group, y):
        scale = lib.ppl.sample("scale", lib.dist.HalfNormal(lib.array(1.0)))
        with lib.ppl.plate("groups", 3):
            a = lib.ppl.sample("a", lib.dist.Normal(lib.array(0.0), scale))
        with lib.ppl.plate("data", y.shape[0]):
            u = lib.ppl.sample("u", lib.dist.Normal(lib.array(0.0), scale))
            lib.ppl.sample("y", lib.dist.Normal(a[group] + u, lib.array(1.0)), obs=y)

    rng = np.random.default_rng(3)
    y = rng.normal(size=NUM_ROWS)
    uncentred = import_module(f"{lib.name}.infer.reparam").LocScaleReparam
    reparam = lib.ppl.handlers.reparam if lib.name == "numpyro" else lib.ppl.poutine.reparam
    moved = reparam(model, config={"a": uncentred(0.0), "u": uncentred(0.0)})
    mcmc = run(lib, moved, lib.array(np.arange(NUM_ROWS) % 3), lib.array(y))
    idata = lib.split.to_inference_data(mcmc, log_likelihood=True)
    assert list(idata.observed_data) == list(idata.log_likelihood) == ["y"]
    np.testing.assert_array_equal(idata.observed_data["y"], y)


def test_a_potential_has_no_observations(lib):
    potential = lib.split.SplitPotential.from_functions(
        lambda z: -0.5 * z["mu"] ** 2, lambda z, y: -0.5 * (y - z["mu"]) ** 2, lib.array(np.arange(8.0)), 2
    )
    kernel = lib.split.NaiveSplitHMC(potential, num_steps=1)
    mcmc = lib.run(kernel, num_warmup=0, num_samples=4, init_params={"mu": lib.array(0.0)})
    assert set(lib.split.to_inference_data(mcmc).groups()) == {"posterior", "sample_stats"}
    with pytest.raises(ValueError, match="log_likelihood=True needs a model, got a run of a SplitPotential"):
        lib.split.to_inference_data(mcmc, log_likelihood=True)


class TestPyro:
    """What only Pyro's side has to see to itself: the host keeps no observations."""

    @pytest.fixture
    def lib(self):
        from tests.backends import PyroBackend

        return PyroBackend()

    def test_factors_and_subsampled_plates(self, lib):
        """A factor observes nothing; a plate written for subsampling yields all its rows."""
        y = lib.array(np.arange(NUM_ROWS) / 10.0)

        def model(y):
            mu = lib.ppl.sample("mu", lib.dist.Normal(lib.array(0.0), 1.0))
            lib.ppl.factor("extra", -0.5 * mu**2)
            with lib.ppl.plate("data", len(y), subsample_size=5, subsample=None) as i:
                lib.ppl.sample("y", lib.dist.Normal(mu, 1.0), obs=y[i])

        idata = lib.split.to_inference_data(run(lib, model, y, subset_order="shuffled"))
        assert list(idata.observed_data) == ["y"]
        np.testing.assert_array_equal(idata.observed_data["y"], y)

    def test_a_site_for_each_row(self, lib):
        y = lib.array(np.array([0.3, -1.0, 0.5, 2.0]))

        def model(y):
            mu = lib.ppl.sample("mu", lib.dist.Normal(lib.array(0.0), 1.0))
            for i in lib.ppl.plate("data", len(y)):
                lib.ppl.sample(f"y_{i}", lib.dist.Normal(mu, 1.0), obs=y[i])

        idata = lib.split.to_inference_data(run(lib, model, y, jit_compile=False))
        assert [idata.observed_data[f"y_{i}"].values.item() for i in range(4)] == y.tolist()

    def test_data_that_are_gone(self, lib):
        """The draws are still converted, with a warning; log-likelihoods cannot be had."""
        data = {"y": data_of(lib)[1]}

        def model():
            mu = lib.ppl.sample("mu", lib.dist.Normal(lib.array(0.0), 1.0))
            with lib.ppl.plate("data", NUM_ROWS) as i:
                lib.ppl.sample("y", lib.dist.Normal(mu, 1.0), obs=data["y"][i])

        mcmc = run(lib, model)
        del data["y"]
        with pytest.warns(UserWarning, match="observed_data are left out, as the model does not run"):
            idata = lib.split.to_inference_data(mcmc)
        assert set(idata.groups()) == {"posterior", "sample_stats"}
        with pytest.raises(ValueError, match="log_likelihood=True is not possible, as the model does not run"):
            lib.split.to_inference_data(mcmc, log_likelihood=True)

    def test_latent_sites_that_were_not_kept(self, lib):
        kernel = lib.split.NaiveSplitHMC(regression(lib), num_subsets=NUM_SUBSETS, num_steps=2)
        mcmc = lib.run(kernel, *data_of(lib), num_warmup=0, num_samples=4, save_params=["s"])
        assert list(lib.split.to_inference_data(mcmc).observed_data) == ["y"]
        with pytest.raises(ValueError, match=r"needs draws of every latent site, got none of \['b'\]"):
            lib.split.to_inference_data(mcmc, log_likelihood=True)


def test_the_verdict_is_an_attribute_of_the_posterior(lib, standard):
    assert (
        lib.split.to_inference_data(standard)
        .posterior.attrs["split"]
        .startswith("proved; compared in numbers on all 23")
    )


@pytest.mark.parametrize("lib", [NumPyroBackend], indirect=True, ids=["numpyro"])
def test_a_run_of_the_hosts_own_kernel(lib):
    """NumPyro's conversion takes it, and so does ours."""
    from numpyro.infer import NUTS

    mcmc = lib.run(NUTS(regression(lib)), *data_of(lib), num_warmup=10, num_samples=5)
    assert lib.split.to_inference_data(mcmc).posterior["b"].shape == (1, 5, 2)
