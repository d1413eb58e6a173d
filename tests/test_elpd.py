"""Leave-one-out and WAIC by blocks of rows: ArviZ's numbers on all rows at once, and errors that say what is wrong."""

import tracemalloc
import warnings

import arviz as az
import numpy as np
import pytest
import xarray

from split_common.errors import StoreError
from split_common.runs import elpd
from split_common.runs.pointwise import Batch, Piece, Posterior, Rows, collected
from split_common.runs.reading import as_inference_data

CHAINS, DRAWS, ROWS = 2, 150, 37
OLD = az.__version__.startswith("0.")  # ArviZ 1.x has no WAIC, and other names
POINTWISE = "loo_i" if OLD else "elpd_i"
pytestmark = pytest.mark.filterwarnings("ignore:Estimated shape parameter", "ignore:the variance over draws")


def groups(seed=0, shape=(ROWS,), dtype=np.float64, chains=CHAINS, influence=1.0):
    """A mean of known variance: draws of it, and log-likelihoods of rows, one of them far away."""
    rng = np.random.default_rng(seed)
    mu = rng.normal(size=(chains, DRAWS)) * 0.3
    y = rng.normal(size=shape)
    y.flat[0] = 6.0 * influence
    log_likelihood = -0.5 * (y - mu.reshape(chains, DRAWS, *[1] * len(shape))) ** 2
    dims = ("chain", "draw", *(f"y_dim_{k}" for k in range(len(shape))))
    labels = {"chain": np.arange(chains), "draw": np.arange(DRAWS)}
    return {
        "posterior": xarray.Dataset(
            {"mu": (dims[:2], mu), "v": ((*dims[:2], "i"), rng.normal(size=(chains, DRAWS, 5)))}, labels
        ),
        "log_likelihood": xarray.Dataset({"y": (dims, log_likelihood.astype(dtype))}, labels),
    }


@pytest.fixture
def few_rows(monkeypatch):
    """Blocks of five rows and the rest; of the posterior, of few coordinates."""
    monkeypatch.setattr(elpd, "BLOCK_BYTES", 5 * 8 * CHAINS * DRAWS)


def assert_same(found, expected):
    assert type(found) is type(expected)
    names = list(expected.index) if OLD else ["kind", "elpd", "se", "p", "n_samples", "n_data_points", "warning"]
    for name in names:
        ours, theirs = found[name], expected[name]
        if isinstance(theirs, xarray.DataArray):
            assert ours.dims == theirs.dims
            np.testing.assert_allclose(ours.values, theirs.values, rtol=1e-8, atol=1e-8)
        elif isinstance(theirs, str | bool | np.bool_ | np.integer | int):
            assert ours == theirs, name
        else:
            np.testing.assert_allclose(ours, theirs, rtol=1e-8, err_msg=name)


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize(("shape", "chains"), [((ROWS,), 2), ((ROWS,), 1), ((3, ROWS), 2), ((ROWS, 40), 2), ((1,), 2)])
def test_loo_by_blocks_is_arvizs_of_all_rows(shape, chains):
    data = as_inference_data(groups(shape=shape, chains=chains))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_same(elpd.loo(data), az.loo(data, pointwise=True))


@pytest.mark.usefixtures("few_rows")
@pytest.mark.skipif(not OLD, reason="ArviZ 1.x has no WAIC")
@pytest.mark.parametrize("shape", [(ROWS,), (3, ROWS), (ROWS, 40)])
def test_waic_by_blocks_is_arvizs_of_all_rows(shape):
    data = as_inference_data(groups(shape=shape))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_same(elpd.waic(data), az.waic(data, pointwise=True))


@pytest.mark.usefixtures("few_rows")
def test_waic_is_its_formula():
    held = groups()
    x = held["log_likelihood"]["y"].values.reshape(-1, ROWS)
    found = elpd.waic(held["log_likelihood"])
    by_row = np.log(np.exp(x).mean(axis=0)) - x.var(axis=0)
    np.testing.assert_allclose(found["waic_i" if OLD else "elpd_i"], by_row, rtol=1e-10)
    np.testing.assert_allclose(found["elpd_waic" if OLD else "elpd"], by_row.sum(), rtol=1e-10)
    np.testing.assert_allclose(found["p_waic" if OLD else "p"], x.var(axis=0).sum(), rtol=1e-10)
    np.testing.assert_allclose(found["se"], np.sqrt(ROWS) * by_row.std(), rtol=1e-10)


@pytest.mark.usefixtures("few_rows")
def test_single_precision_is_computed_in_double():
    """What is stored in float32 gives what ArviZ gives of the same numbers in float64."""
    held = groups(dtype=np.float32)
    wide = as_inference_data(held | {"log_likelihood": held["log_likelihood"].astype(np.float64)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_same(elpd.loo(as_inference_data(held)), az.loo(wide, pointwise=True))


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("criterion", [elpd.loo, elpd.waic])
def test_models_are_compared(criterion):
    """By ArviZ, of two models; the one whose draws lie nearer to the rows is the first."""
    held, other = groups(influence=0.1), groups(influence=0.1)
    other["log_likelihood"] = other["log_likelihood"] - 0.5
    found = az.compare({name: criterion(as_inference_data(x)) for name, x in {"far": other, "near": held}.items()})
    assert list(found.index) == ["near", "far"]
    np.testing.assert_allclose(found["elpd_diff"].abs().max(), 0.5 * ROWS, rtol=1e-8)
    assert repr(criterion(as_inference_data(held))).startswith(f"Computed from {CHAINS * DRAWS} posterior samples")


@pytest.mark.usefixtures("few_rows")
def test_one_warning_counts_the_rows_of_all_blocks():
    data = as_inference_data(groups(influence=3.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        all_rows = az.loo(data, pointwise=True)
    num_bad = int((all_rows["pareto_k"] > all_rows["good_k"]).sum())
    assert num_bad > 1
    with pytest.warns(UserWarning, match=f"is greater than 0.60 at {num_bad} of {ROWS} rows: leaving") as caught:
        assert elpd.loo(data).warning
    assert len(caught) == 1
    num_wide = int((data["log_likelihood"]["y"].var(dim=("chain", "draw")) > 0.4).sum())
    with pytest.warns(UserWarning, match=f"greater than 0.4 at {num_wide} of {ROWS} rows, so that WAIC may fail; take"):
        assert elpd.waic(data).warning


def test_rows_are_not_all_in_memory_at_once(tmp_path, monkeypatch):
    """Of a group in a store, written by blocks of rows: the peak is of blocks, not of 16 MB of numbers."""
    num_rows, step = 20_000, 2_000
    held = groups(shape=(1,), chains=1)
    posterior = Posterior.of(held["posterior"].isel(draw=slice(0, 100)))
    rng = np.random.default_rng(0)

    def pieces():
        for start in range(0, num_rows, step):
            values = rng.normal(-1.0, 0.1, size=(100, step))
            yield Piece(Batch(0, 0, 100, 0), Rows(start, start + step, start), {"y": values})

    class Grid:
        rows_per_block, draws_per_batch = step, 100

    Grid.num_rows = num_rows
    stored = collected(pieces(), posterior, Grid, {"y": -1}, "log_likelihood", tmp_path / "run.zarr")
    monkeypatch.setattr(elpd, "BLOCK_BYTES", 8 * 100 * 250)
    tracemalloc.start()
    found = elpd.waic(stored)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.n_data_points == num_rows
    assert peak < 0.5 * 8 * 100 * num_rows


def without(name):
    held = groups()
    del held[name]
    return as_inference_data(held)


def changed(**changes):
    held = groups()
    return as_inference_data(held | {name: change(held[name]) for name, change in changes.items()})


def spoilt(value):
    def change(dataset):
        dataset = dataset.copy(deep=True)
        first = next(iter(dataset.data_vars))
        dataset[first][dict.fromkeys(dataset[first].dims, -1)] = value
        return dataset

    return change


@pytest.mark.parametrize("criterion", [elpd.loo, elpd.waic])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda: without("log_likelihood"), "data must hold a group 'log_likelihood', got none"),
        (lambda: changed(log_likelihood=lambda x: x.assign(z=x["y"])), r"one of the observed sites, \['y', 'z'\], got"),
        (lambda: changed(log_likelihood=spoilt(np.nan)), r"y must be finite at every draw, got nan, between 0 and 37"),
        (lambda: changed(log_likelihood=spoilt(-np.inf)), "y must be finite at every draw, got -inf"),
        (lambda: changed(log_likelihood=lambda x: x.isel(draw=slice(0, 9))), "those of 9 of dimension 'draw' .* 150"),
        (lambda: changed(posterior=lambda x: x.assign_coords(draw=x["draw"] + 1)), "or with other labels"),
        (lambda: changed(posterior=lambda x: x.isel(chain=[0])), "those of 2 of dimension 'chain' .* has 1"),
    ],
    ids=["none", "several", "not a number", "infinite", "fewer draws", "other draws", "other chains"],
)
def test_bad_data(criterion, data, message):
    with pytest.raises(ValueError, match=message):
        criterion(data())


def test_bad_draws_of_the_posterior():
    with pytest.raises(ValueError, match="mu must be finite at every draw, got nan"):
        elpd.loo(changed(posterior=spoilt(np.nan)))
    with pytest.raises(ValueError, match="reff must be given, as data hold several chains and no posterior, got None"):
        elpd.loo(without("posterior"))
    assert elpd.loo(without("posterior"), reff=1.0).n_data_points == ROWS


@pytest.mark.parametrize("reff", [0, -1.0, np.nan, "1", True])
def test_bad_efficiencies(reff):
    with pytest.raises(ValueError, match="reff must be a number above 0, got"):
        elpd.loo(without("posterior"), reff=reff)


def test_bad_sites_and_kinds():
    data = as_inference_data(groups())
    with pytest.raises(ValueError, match=r"var_name must name one of the observed sites, \['y'\], got 'x'"):
        elpd.waic(data, var_name="x")
    assert elpd.waic(data, var_name="y").n_data_points == ROWS
    for bad in (np.zeros((2, 3)), [1.0], None):
        with pytest.raises(TypeError, match=f"data must be in ArviZ's format .*got {type(bad).__name__}"):
            elpd.loo(bad)
    with pytest.raises(StoreError, match="where nothing is"):
        elpd.loo("nothing.zarr")
