"""Predictions and log-likelihoods some draws and some rows at a time, in both packages."""

import importlib

import arviz as az
import numpy as np
import pandas as pd
import pytest
import xarray
import zarr

from split_common import metrics
from split_common.errors import StoreError
from split_common.runs.pointwise import Grid
from split_common.runs.store import is_whole
from tests.backends import NumPyroBackend
from tests.test_inference_data import data_of, normal_log_density, regression
from tests.test_inference_data import run as run_model

NUM_ROWS = 23


def rooms(lib):
    return importlib.import_module(f"{lib.name}_split.runs.prediction")


def predict(lib, model, draws, *args, seed=0, **options):
    if lib.name == "numpyro":
        import jax

        return rooms(lib).predict(model, draws, *args, rng_key=jax.random.key(seed), **options)
    lib.ppl.set_rng_seed(seed)
    return rooms(lib).predict(model, draws, *args, **options)


def posterior(seed=0, chains=2, draws=7, **shapes):
    """Draws of sites by name, in ArviZ's format; a scale is positive."""
    rng = np.random.default_rng(seed)
    variables = {}
    for name, shape in shapes.items():
        x = rng.normal(size=(chains, draws, *shape))
        dims = ("chain", "draw", *(f"{name}_dim_{k}" for k in range(len(shape))))
        variables[name] = (dims, np.exp(x) if name == "s" else x)
    return xarray.Dataset(variables, coords={"chain": np.arange(chains), "draw": np.arange(draws)})


def features(lib, num=NUM_ROWS, seed=3):
    return lib.array(np.random.default_rng(seed).normal(size=(num, 2)))


def logistic(lib):
    def model(X, y=None):
        b = lib.ppl.sample("b", lib.dist.Normal(lib.np.zeros(2), lib.np.ones(2)).to_event(1))
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Bernoulli(logits=(X * b).sum(-1)), obs=y)

    return model


def softmax(lib):
    """Three classes, and a normal observation beside them."""

    def model(X, k=None, y=None):
        W = lib.ppl.sample("W", lib.dist.Normal(lib.np.zeros((2, 3)), lib.np.ones((2, 3))).to_event(2))
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("k", lib.dist.Categorical(logits=X @ W), obs=k)
            lib.ppl.sample("y", lib.dist.Normal((X @ W)[..., 0], 0.5), obs=y)

    return model


def flat(x):
    """Chains and draws as one axis."""
    return x.values.reshape(-1, *x.shape[2:])


class TestLogLikelihood:
    @pytest.fixture
    def mcmc(self, lib, cache={}):  # noqa: B006
        if lib.name not in cache:
            cache[lib.name] = run_model(lib, regression(lib), *data_of(lib), num_warmup=20)
        return cache[lib.name]

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("batch", [7, 100])
    def test_as_in_inference_data(self, lib, mcmc, batch, tmp_path):
        """Twenty draws by sevens, in memory and on disk; leave-one-out takes what is on disk."""
        whole = lib.split.to_inference_data(mcmc, log_likelihood=True)
        expected = whole.log_likelihood["y"]
        found = rooms(lib).log_likelihood(mcmc, draws_per_batch=batch)
        np.testing.assert_allclose(found["y"], expected, rtol=1e-12)
        assert found["y"].dims[:2] == ("chain", "draw")
        stored = rooms(lib).log_likelihood(mcmc, whole, into=tmp_path / "run.zarr", draws_per_batch=batch)
        assert not isinstance(stored["y"].variable._data, np.ndarray)  # read when it is looked at
        np.testing.assert_array_equal(stored["y"], found["y"])
        assert zarr.open(tmp_path / "run.zarr")["log_likelihood/y"].chunks == (1, min(batch, 20), 6)
        opened = az.InferenceData(posterior=whole.posterior, log_likelihood=stored)
        assert np.isfinite(az.loo(opened, pointwise=True).loo_i).all()

    def test_some_of_the_draws(self, lib, mcmc):
        """From a store as they are needed, or thinned; what else a posterior holds does not matter."""
        X, y = (lib.to_numpy(x) for x in data_of(lib))
        draws = lib.split.to_inference_data(mcmc).posterior.isel(draw=slice(None, None, 3))
        found = rooms(lib).log_likelihood(mcmc, draws, draws_per_batch=2)
        expected = normal_log_density(y, draws["b"].values @ X.T, draws["s"].values[..., None])
        np.testing.assert_allclose(found["y"], expected, rtol=1e-10)
        np.testing.assert_array_equal(found["draw"], draws["draw"])

    @pytest.mark.filterwarnings("ignore")
    def test_shuffled_rows_a_mask_and_a_site_outside(self, lib):
        rng = np.random.default_rng(2)
        Y, seen = rng.normal(size=(3, NUM_ROWS)), rng.uniform(size=(3, NUM_ROWS)) < 0.8
        mask_handler = (lib.ppl.handlers if lib.name == "numpyro" else lib.ppl.poutine).mask

        def model(Y, seen, total):
            mu = lib.ppl.sample("mu", lib.dist.Normal(lib.array(0.0), 1.0))
            lib.ppl.sample("total", lib.dist.Normal(mu, 1.0), obs=total)
            with lib.ppl.plate("columns", 3, dim=-2), lib.ppl.plate("data", Y.shape[1], dim=-1):
                with mask_handler(mask=seen):
                    lib.ppl.sample("Y", lib.dist.Normal(mu, 1.0), obs=Y)

        options = {"plate": "data", "subset_order": "shuffled", "data_axes": {"Y": 1, "seen": 1}}
        mcmc = run_model(lib, model, lib.array(Y), lib.array(seen), lib.array(0.7), **options)
        found = rooms(lib).log_likelihood(mcmc, draws_per_batch=6)
        mu = flat(lib.split.to_inference_data(mcmc).posterior["mu"])
        expected = np.where(seen, normal_log_density(Y, mu[:, None, None], 1.0), 0.0)
        np.testing.assert_allclose(flat(found["Y"]), expected, rtol=1e-10)
        np.testing.assert_allclose(flat(found["total"]), normal_log_density(0.7, mu, 1.0), rtol=1e-10)

    def test_a_latent_for_each_row(self, lib):
        y = np.random.default_rng(1).normal(size=NUM_ROWS)

        def model(y):
            mu = lib.ppl.sample("mu", lib.dist.Normal(lib.array(0.0), 1.0))
            with lib.ppl.plate("data", y.shape[0]):
                a = lib.ppl.sample("a", lib.dist.Normal(mu, 1.0))
                lib.ppl.sample("y", lib.dist.Normal(a, 1.0), obs=y)

        mcmc = run_model(lib, model, lib.array(y))
        draws = posterior(mu=(), a=(NUM_ROWS,))
        found = rooms(lib).log_likelihood(mcmc, draws, draws_per_batch=3)
        np.testing.assert_allclose(found["y"], normal_log_density(y, draws["a"].values, 1.0), rtol=1e-10)

    def test_errors(self, lib, mcmc, tmp_path):
        compute = rooms(lib).log_likelihood
        with pytest.raises(ValueError, match="draws_per_batch must be a whole number of at least 1, got 0"):
            compute(mcmc, draws_per_batch=0)
        with pytest.raises(ValueError, match=r"needs draws of every latent site, got none of \['s'\]"):
            compute(mcmc, posterior(b=(2,)))
        with pytest.raises(ValueError, match=r"\(2,\) at site 'b', got \(1,\)"):
            compute(mcmc, posterior(b=(1,), s=()))
        host = lib.ppl.infer.NUTS(regression(lib))
        with pytest.raises(TypeError, match="NUTS"):
            compute(lib.ppl.infer.MCMC(host, num_samples=1, **({"num_warmup": 1} if lib.name == "numpyro" else {})))
        kernel = lib.split.NaiveSplitHMC(regression(lib), num_subsets=2, num_steps=1)
        with pytest.raises(ValueError, match="mcmc must have been run"):
            compute(lib.ppl.infer.MCMC(kernel, num_samples=1, **({"num_warmup": 1} if lib.name == "numpyro" else {})))
        with pytest.raises(TypeError, match="draws must be a posterior in ArviZ's format"):
            compute(mcmc, {"b": np.zeros((1, 4, 2))})
        (tmp_path / "file").write_text("")
        with pytest.raises(StoreError, match="which is a file"):
            compute(mcmc, into=tmp_path / "file")


def host_draw(lib, model, sites, X, draw, first_row, seed=0):
    """What the host's own handlers draw at one draw of the posterior, the random numbers as documented."""
    if lib.name == "numpyro":
        import jax
        from numpyro.infer import Predictive

        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), draw), first_row)
        found = Predictive(model, {k: lib.array(x) for k, x in sites.items()}, batch_ndims=0)(key, X)
        return {k: np.asarray(x) for k, x in found.items()}
    lib.ppl.set_rng_seed(seed)
    origin = int(lib.np.randint(2**62, ()))
    lib.np.manual_seed(rooms(lib)._seed(origin, draw, first_row))
    traced = lib.ppl.poutine.trace(lib.ppl.poutine.condition(model, {k: lib.array(x) for k, x in sites.items()}))
    return {k: x["value"].numpy() for k, x in traced.get_trace(X).nodes.items() if x["type"] == "sample"}


class TestDraws:
    @pytest.mark.parametrize("make", [logistic, softmax])
    def test_are_the_hosts(self, lib, make):
        model, X = make(lib), features(lib)
        draws = posterior(b=(2,), W=(2, 3))
        found = predict(lib, model, draws, X, draws_per_batch=3, rows_per_batch=NUM_ROWS)
        names = ["b"] if make is logistic else ["W"]
        for chain, draw in ((0, 0), (1, 6)):
            sites = {name: draws[name].values[chain, draw] for name in names}
            expected = host_draw(lib, model, sites, X, 7 * chain + draw, 0)
            for name in found:
                np.testing.assert_allclose(found[name][chain, draw], expected[name], rtol=1e-10)

    def test_do_not_depend_on_the_batch(self, lib):
        X, draws = features(lib), posterior(b=(2,), s=())
        expected = predict(lib, regression(lib), draws, X, rows_per_batch=10)
        for batch in (1, 3):
            found = predict(lib, regression(lib), draws, X, rows_per_batch=10, draws_per_batch=batch)
            np.testing.assert_allclose(found["y"], expected["y"], rtol=1e-10)

    def test_every_row_and_draw_has_numbers_of_its_own(self, lib):
        """Noise without a mean: no two of all the numbers are the same, in blocks that overlap too."""

        def model(X, y=None):
            lib.ppl.sample("b", lib.dist.Normal(lib.array(0.0), 1.0))
            with lib.ppl.plate("data", X.shape[0]):
                lib.ppl.sample("y", lib.dist.Normal(lib.array(0.0), 1.0), obs=y)

        found = predict(lib, model, posterior(b=()), features(lib), rows_per_batch=10, draws_per_batch=3)["y"].values
        assert len(np.unique(found)) == found.size
        again = predict(lib, model, posterior(b=()), features(lib), rows_per_batch=10, seed=1)["y"].values
        assert not np.intersect1d(found, again).size

    def test_in_a_store(self, lib, tmp_path):
        X, draws, path = features(lib), posterior(b=(2,), s=()), tmp_path / "run.zarr"
        options = {"rows_per_batch": 10, "draws_per_batch": 3}
        expected = predict(lib, regression(lib), draws, X, **options)
        zarr.open_group(path, mode="w").create_group("posterior_predictive").create_group("half")  # of a dead process
        found = predict(lib, regression(lib), draws, X, into=path, **options)
        assert not isinstance(found["y"].variable._data, np.ndarray)
        xarray.testing.assert_identical(found.load().drop_attrs(), expected.drop_attrs())
        group = zarr.open_group(path)["posterior_predictive"]
        assert group["y"].chunks == (1, 3, 10)
        assert "half" not in group
        assert is_whole(group)
        with pytest.raises(StoreError, match="must hold no group 'posterior_predictive' yet"):
            predict(lib, regression(lib), draws, X, into=path, **options)

    def test_files_that_are_missing_from_a_store_are_known(self, lib, tmp_path):
        """Zeros are written too, so that a file that is not there is one that was lost."""
        path = tmp_path / "run.zarr"

        def model(X, y=None):
            b = lib.ppl.sample("b", lib.dist.Normal(lib.array(0.0), 1.0))
            with lib.ppl.plate("data", X.shape[0]):
                lib.ppl.sample("y", lib.dist.Poisson(1e-9 * lib.ppl.deterministic("rate", b**2) + 1e-12), obs=y)

        options = {"rows_per_batch": 10, "draws_per_batch": 3}
        assert not predict(lib, model, posterior(b=()), features(lib), into=path, **options)["y"].values.any()
        group = zarr.open_group(path)["posterior_predictive"]
        assert is_whole(group)
        next(file for file in (path / "posterior_predictive" / "y" / "c").rglob("*") if file.is_file()).unlink()
        assert not is_whole(group)

    def test_their_moments(self, lib):
        """|z| < 4.2 for two moments at three rows: a false alarm in 6,000 runs; at other rows they fail."""
        X, draws = features(lib, 3), posterior(b=(2,), s=(), chains=1, draws=2000)
        y = flat(predict(lib, regression(lib), draws, X, seed=5)["y"])
        f = flat(draws["b"]) @ lib.to_numpy(X).T
        z = (y - f) / flat(draws["s"])[:, None]

        def worst(z):
            first, second = z.mean(0) * np.sqrt(len(z)), ((z**2).mean(0) - 1) * np.sqrt(len(z) / 2)
            return max(np.abs(first).max(), np.abs(second).max())

        assert worst(z) < 4.2
        assert worst((y - f[:, ::-1]) / flat(draws["s"])[:, None]) > 4.2


class TestSummaries:
    @pytest.mark.parametrize(("rows", "batch"), [(1, 3), (10, 1), (1000, 3)])
    def test_of_a_regression(self, lib, rows, batch):
        X, draws = features(lib), posterior(b=(2,), s=())
        options = {"into": "summaries", "rows_per_batch": rows, "draws_per_batch": batch}
        found = predict(lib, regression(lib), draws, X, **options)["y"]
        expected = metrics.variance_decomposition(flat(draws["b"]) @ lib.to_numpy(X).T, flat(draws["s"]) ** 2)
        for name in ("mean", "aleatoric", "epistemic"):
            np.testing.assert_allclose(found[name], getattr(expected, name), rtol=1e-10, atol=1e-14)

    def test_of_means_far_from_zero(self, lib):
        """A sum of squares about zero would leave nothing of the variance."""
        X, draws = features(lib) + 1e8, posterior(b=(2,), s=())
        draws["b"] = 1.0 + 1e-8 * draws["b"]
        found = predict(lib, regression(lib), draws, X, into="summaries", draws_per_batch=2)["y"]
        means = flat(draws["b"]) @ lib.to_numpy(X).T
        np.testing.assert_allclose(found["epistemic"], means.var(0), rtol=1e-4)
        assert np.abs((means**2).mean(0) - means.mean(0) ** 2 - means.var(0)).max() > 1e-2  # the control

    @pytest.mark.parametrize("num_draws", [1, 7])
    def test_of_classes(self, lib, num_draws):
        X = features(lib)
        draws = posterior(b=(2,), W=(2, 3), draws=num_draws)
        options = {"into": "summaries", "rows_per_batch": 10, "draws_per_batch": 3}
        binary = predict(lib, logistic(lib), draws, X, **options)["y"]
        several, beside = map(predict(lib, softmax(lib), draws, X, **options).get, ("k", "y"))
        p = 1 / (1 + np.exp(-flat(draws["b"]) @ lib.to_numpy(X).T))
        logits = np.einsum("nj,sjk->snk", lib.to_numpy(X), flat(draws["W"]))
        softmaxes = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        np.testing.assert_allclose(beside["epistemic"], logits[..., 0].var(0), rtol=1e-9, atol=1e-14)
        for summary, classes in ((binary, np.stack([1 - p, p], -1)), (several, softmaxes)):
            np.testing.assert_allclose(summary["probabilities"], classes.mean(0), rtol=1e-9)
            for name in ("predictive_entropy", "expected_entropy", "mutual_information"):
                np.testing.assert_allclose(summary[name], getattr(metrics, name)(classes), rtol=1e-9, atol=1e-12)

    def test_of_a_distribution_without_variance(self, lib):
        def model(X, y=None):
            b = lib.ppl.sample("b", lib.dist.Normal(lib.array(0.0), 1.0))
            with lib.ppl.plate("data", X.shape[0]):
                lib.ppl.sample("y", lib.dist.Cauchy(b, 1.0), obs=y)

        with pytest.raises(ValueError, match=r"of site 'y' must be finite, got (nan|inf); take draws"):
            predict(lib, model, posterior(b=()), features(lib), into="summaries")


class TestRows:
    """Where the rows of the arguments are."""

    def check(self, lib, model, *args, means, **options):
        """By the means of a normal site of variance one."""
        draws = options.pop("draws", posterior(b=(2,)))
        options = {"into": "summaries", "rows_per_batch": 10, "draws_per_batch": 3, **options}
        found = predict(lib, model, draws, *args, **options)["y"]
        np.testing.assert_allclose(found["mean"], means(flat(draws["b"])).mean(0), rtol=1e-9)
        np.testing.assert_allclose(found["aleatoric"], 1.0)

    def test_along_another_axis(self, lib):
        """Three columns for each row, in a plate across the rows."""
        X = np.random.default_rng(0).normal(size=(3, NUM_ROWS))

        def model(X, y=None):
            b = lib.ppl.sample("b", lib.dist.Normal(lib.np.zeros(2), lib.np.ones(2)).to_event(1))
            with lib.ppl.plate("columns", 3, dim=-2), lib.ppl.plate("data", X.shape[1], dim=-1):
                lib.ppl.sample("y", lib.dist.Normal(b[..., 0] * X, 1.0), obs=y)

        def means(b):
            return b[:, 0, None, None] * X

        self.check(lib, model, lib.array(X), data_axes={"X": 1}, means=means)
        found = predict(lib, model, posterior(b=(2,)), lib.array(X), data_axes={"X": 1}, rows_per_batch=10)
        assert found["y"].shape == (2, 7, 3, NUM_ROWS)

    def test_events(self, lib):
        """Two values of each row, of a distribution with an event."""
        X = features(lib)

        def model(X, y=None):
            b = lib.ppl.sample("b", lib.dist.Normal(lib.np.zeros(2), lib.np.ones(2)).to_event(1))
            with lib.ppl.plate("data", X.shape[0]):
                lib.ppl.sample("y", lib.dist.Normal(X * b, 1.0).to_event(1), obs=y)

        self.check(lib, model, X, means=lambda b: b[:, None] * lib.to_numpy(X))

    @pytest.mark.parametrize("form", ["frame", "dict", "keyword", "numpy", "index", "no plate"])
    def test_forms(self, lib, form):
        x = np.random.default_rng(0).normal(size=(NUM_ROWS, 2))

        def body(u, v, num, y):
            b = lib.ppl.sample("b", lib.dist.Normal(lib.np.zeros(2), lib.np.ones(2)).to_event(1))
            if form == "no plate":
                lib.ppl.sample("y", lib.dist.Normal(b[0] * u + b[1] * v, 1.0), obs=y)
                return
            with lib.ppl.plate("data", num) as i:
                u, v = (u[i], v[i]) if form == "index" else (u, v)
                lib.ppl.sample("y", lib.dist.Normal(b[0] * u + b[1] * v, 1.0), obs=y)

        def of_table(df, y=None):
            u, v = df["a"], df["b"]
            if form == "frame":
                u, v = lib.np.asarray(u.to_numpy()), lib.np.asarray(v.to_numpy())
            body(u, v, len(u), y)

        def of_array(X, y=None):
            body(X[:, 0], X[:, 1], NUM_ROWS if form == "index" else X.shape[0], y)

        u, v = (lib.array(column) for column in x.T)
        table = pd.DataFrame(x, columns=["a", "b"]) if form == "frame" else {"a": u, "b": v}
        args = (table,) if form in ("frame", "dict") else ()
        kwargs = {"X": lib.array(x)} if form == "keyword" else {}
        args = args or (() if kwargs else (x if form == "numpy" else lib.array(x),))
        model = of_table if form in ("frame", "dict") else of_array
        self.check(lib, model, *args, **kwargs, means=lambda b: b @ x.T)

    def test_in_a_closure(self, lib):
        """The plate alone says which rows."""
        X = features(lib)

        def model(y=None):
            b = lib.ppl.sample("b", lib.dist.Normal(lib.np.zeros(2), lib.np.ones(2)).to_event(1))
            with lib.ppl.plate("data", NUM_ROWS) as i:
                lib.ppl.sample("y", lib.dist.Normal((X[i] * b).sum(-1), 1.0), obs=y)

        self.check(lib, model, means=lambda b: b @ lib.to_numpy(X).T)

    def test_what_rests_on_all_rows(self, lib):
        """Columns are centred by the mean of all rows, not of a block."""
        X = features(lib)

        def model(X, y=None):
            b = lib.ppl.sample("b", lib.dist.Normal(lib.np.zeros(2), lib.np.ones(2)).to_event(1))
            centred = X - X.mean(0)
            with lib.ppl.plate("data", X.shape[0]):
                lib.ppl.sample("y", lib.dist.Normal((centred * b).sum(-1), 1.0), obs=y)

        x = lib.to_numpy(X)
        self.check(lib, model, X, means=lambda b: b @ (x - x.mean(0)).T)

    def test_values_that_python_reads(self, lib):
        X = features(lib)

        def model(X, y=None):
            b = lib.ppl.sample("b", lib.dist.Normal(lib.np.zeros(2), lib.np.ones(2)).to_event(1))
            top = float(X.max())
            with lib.ppl.plate("data", X.shape[0]):
                lib.ppl.sample("y", lib.dist.Normal((X * b).sum(-1) / top, 1.0), obs=y)

        x = lib.to_numpy(X)
        self.check(lib, model, X, means=lambda b: b @ x.T / x.max())

    def test_what_is_known_of_them(self, lib):
        draws, options = posterior(b=(2,), s=()), {"rows_per_batch": 10}
        found = predict(lib, regression(lib), draws, features(lib), **options)
        summary = predict(lib, regression(lib), draws, features(lib), into="summaries", **options)["y"]
        assert found.attrs["split"].startswith("proved")
        assert summary.attrs["split"] == found.attrs["split"]

    def test_that_are_not_independent(self, lib):
        X = features(lib)

        def model(X, y=None):
            b = lib.ppl.sample("b", lib.dist.Normal(lib.np.zeros(2), lib.np.ones(2)).to_event(1))
            f = lib.np.exp((X * b).sum(-1))
            with lib.ppl.plate("data", X.shape[0]):
                lib.ppl.sample("y", lib.dist.Normal(f - f.mean(), 1.0), obs=y)

        with pytest.raises(ValueError, match="23 rows cannot be predicted 10 at a time: .* rows_per_batch=23 predicts"):
            predict(lib, model, posterior(b=(2,)), X, rows_per_batch=10)

        def means(b):
            f = np.exp(b @ lib.to_numpy(X).T)
            return f - f.mean(1, keepdims=True)

        self.check(lib, model, X, means=means, rows_per_batch=NUM_ROWS)

    def test_derived_values_of_the_training_rows(self, lib):
        """Deterministic sites that a posterior holds are computed anew."""
        draws = posterior(b=(2,), s=(), mean=(5,))
        found = predict(lib, regression(lib), draws, features(lib), into="summaries")["y"]
        expected = flat(draws["b"]) @ lib.to_numpy(features(lib)).T
        np.testing.assert_allclose(found["mean"], expected.mean(0), rtol=1e-9)

    def test_of_certain_classes(self, lib):
        """Every prediction then has a log-likelihood of exactly 0."""
        draws = posterior(b=(2,)) * 1e7
        found = predict(lib, logistic(lib), draws, features(lib), rows_per_batch=4)["y"].values
        logits = np.einsum("cdk,nk->cdn", draws["b"].values, lib.to_numpy(features(lib)))
        np.testing.assert_array_equal(found, logits > 0)


class TestErrors:
    def refuse(self, lib, error, message, model=None, draws=None, args=None, **options):
        draws = posterior(b=(2,), s=()) if draws is None else draws
        with pytest.raises(error, match=message):
            predict(lib, model or regression(lib), draws, *(args or (features(lib),)), **options)

    def test_arguments(self, lib, tmp_path):
        self.refuse(lib, TypeError, "model must be callable", model=3)
        self.refuse(lib, ValueError, "draws_per_batch must be a whole number of at least 1, got 0", draws_per_batch=0)
        self.refuse(lib, ValueError, "rows_per_batch must be a whole number of at least 1, got 1.5", rows_per_batch=1.5)
        self.refuse(lib, TypeError, "draws must be a posterior in ArviZ's format", draws={"b": 1})
        self.refuse(lib, TypeError, "into must be None or a path, got 3", into=3)
        self.refuse(lib, ValueError, "data_axes must name model arguments", data_axes={"Z": 0})
        self.refuse(lib, ValueError, "at least one draw", draws=posterior(b=(2,), s=(), draws=0))

    def test_sites(self, lib):
        self.refuse(
            lib, ValueError, r"outside plate 'data', which holds the rows, got none of \['s'\]", draws=posterior(b=(2,))
        )
        self.refuse(lib, ValueError, r"\(2,\) at site 'b', got \(1,\)", draws=posterior(b=(1,), s=()))
        X = features(lib)
        self.refuse(lib, ValueError, "must leave a site to predict", args=(X, X[:, 0]))

    def test_a_latent_for_each_row(self, lib):
        def model(X, y=None):
            s = lib.ppl.sample("s", lib.dist.HalfNormal(lib.array(1.0)))
            with lib.ppl.plate("data", X.shape[0]):
                a = lib.ppl.sample("a", lib.dist.Normal(lib.array(0.0), s))
                lib.ppl.sample("y", lib.dist.Normal(a, 1.0), obs=y)

        message = r"must not have an entry for each row of plate 'data', got \['a'\]"
        for num in (NUM_ROWS, 5):  # as many as there are new rows, and as there were in training
            draws = posterior(s=(), a=(NUM_ROWS,))
            self.refuse(lib, ValueError, message, model=model, draws=draws, args=(features(lib, num),))
        found = predict(lib, model, posterior(s=()), features(lib))  # drawn from its prior
        assert set(found) == {"a", "y"}

    def test_plates(self, lib):
        def model(X, y=None):
            lib.ppl.sample("b", lib.dist.Normal(lib.array(0.0), 1.0))
            with lib.ppl.plate("columns", 3, dim=-2), lib.ppl.plate("data", X.shape[1], dim=-1):
                lib.ppl.sample("y", lib.dist.Normal(X, 1.0), obs=y)

        X = lib.array(np.zeros((3, 3)))
        self.refuse(lib, ValueError, "data_axes must say where the rows lie", model, posterior(b=()), (X,))

    def test_plates_of_one_size_side_by_side(self, lib):
        def model(X, counts=None, y=None):
            b = lib.ppl.sample("b", lib.dist.Normal(lib.array(0.0), 1.0))
            with lib.ppl.plate("first", X.shape[0]):
                lib.ppl.sample("counts", lib.dist.Poisson(lib.np.exp(b + X)), obs=counts)
            with lib.ppl.plate("second", X.shape[0]):
                lib.ppl.sample("y", lib.dist.Normal(b * X, 1.0), obs=y)

        X = lib.array(np.linspace(0.0, 1.0, 5))
        self.refuse(lib, ValueError, "model must leave sites of one plate", model, posterior(b=()), (X,))
        found = predict(lib, model, posterior(b=()), X, lib.array(np.zeros(5)))
        assert list(found) == ["y"]


@pytest.mark.parametrize("lib", [NumPyroBackend], ids=["numpyro"], indirect=True)
def test_a_likelihood_that_counts_for_nothing_hides_no_statistic_of_all_rows(lib):
    """As where a model masks its observations whenever it has none: draws of the sites know of no mask."""

    def model(X, y=None):
        w = lib.ppl.sample("w", lib.dist.Normal(lib.np.zeros(2), 1.0).to_event(1))
        with lib.ppl.handlers.mask(mask=y is not None), lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal((X - X.mean(0)) @ w, 1.0), obs=y)

    draws, X = posterior(w=(2,)), features(lib)
    whole, parts = (
        predict(lib, model, draws, X, into="summaries", rows_per_batch=rows)["y"]["mean"] for rows in (NUM_ROWS, 10)
    )
    np.testing.assert_allclose(whole, parts, rtol=1e-6)


def test_blocks_of_rows():
    """Each row counts once, and all blocks are of one size."""
    for num in range(1, 30):
        for size in range(1, 12):
            blocks = Grid.of(num, size, 1, whole=False).blocks
            assert np.concatenate([np.arange(x.first, x.stop) for x in blocks]).tolist() == list(range(num))
            assert {x.size for x in blocks} == {min(size, num)}
