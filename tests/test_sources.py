"""Rows read from disk or from an object: the same draws as of rows in memory, one read for all chains, errors."""

import contextlib
import functools
import importlib
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from split_common.digest import Digest
from split_common.errors import ModelNotSplittableError, SourceError
from split_common.sources.reader import PREFETCH_VARIABLE, Reader
from split_common.sources.rows import Rows, gives_rows, rows_of
from split_common.sources.shuffle import shuffle_rows
from split_common.sources.survey import LARGEST_F
from split_common.sources.tables import table_rows
from tests.backends import NumPyroBackend, PyroBackend
from tests.kernels import TABLE

ROOT = Path(__file__).parents[1]
NUM_ROWS, DIM, SUBSETS = 25, 2, 3
DEFAULT = ("SymmetricSplitHMC", "PenaltyMH")
in_numpyro = pytest.mark.parametrize("lib", [NumPyroBackend], ids=["numpyro"], indirect=True)
in_pyro = pytest.mark.parametrize("lib", [PyroBackend], ids=["pyro"], indirect=True)
each_kernel = pytest.mark.parametrize(
    "entry", [pytest.param(e, id=k, marks=[pytest.mark.slow] * (k not in DEFAULT)) for k, e in TABLE.items()]
)
FIXED = {"num_steps": 2, "step_size": 0.1, "adapt_step_size": False, "adapt_mass_matrix": False}


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(available_cpu|left by other data|depth|cut off|noise|χ²).*")
        yield


class Slices:
    """An object with ``shape``, ``dtype`` and slices, which counts them."""

    def __init__(self, x, shift=0):
        self._x, self._shift, self.shape, self.dtype, self.num_reads = x, shift, x.shape, x.dtype, 0

    def __getitem__(self, rows):
        self.num_reads += 1
        found = self._x[rows]
        return np.roll(self._x, self._shift, axis=0)[rows] if len(found) < len(self._x) else found


def arrays(num_rows=NUM_ROWS):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(num_rows, DIM))
    return X, X @ np.array([1.0, -0.5]) + 0.5 * rng.normal(size=num_rows)


def maps(folder, *found):
    paths = [Path(folder) / f"{i}.npy" for i in range(len(found))]
    for path, x in zip(paths, found, strict=True):
        np.save(path, x)
    return [np.load(path, mmap_mode="r") for path in paths]


def linear(lib):
    def model(X, y):
        tau = lib.ppl.sample("tau", lib.dist.Gamma(lib.array(3.0), lib.array(2.0)))
        w = lib.ppl.sample("w", lib.dist.Normal(lib.np.zeros(DIM), tau**-0.5 * lib.np.ones(DIM)).to_event(1))
        lib.ppl.deterministic("twice", 2 * w)
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(X @ w, 1.0), obs=y)

    return model


def draws(lib, kernel, *args, **options):
    mcmc = lib.run(kernel, *args, **{"num_warmup": 6, "num_samples": 6, **options})
    return {name: lib.to_numpy(x) for name, x in mcmc.get_samples(group_by_chain=True).items()}


def same(first, second):
    return first.keys() == second.keys() and all(np.array_equal(x, second[name]) for name, x in first.items())


@functools.cache
def draws_in_memory(lib, name):
    """Draws of a kernel for rows in memory; ``lib`` is the class of a backend."""
    X, y = arrays()
    return draws(lib(), TABLE[name].make(lib(), linear(lib()), SUBSETS), lib().array(X), lib().array(y))


def evaluated(lib, *args):
    """What a potential makes of rows: terms and gradients of all subsets, of single rows, of a minibatch, curvature."""
    potential = lib.split.split_model(linear(lib), args, num_subsets=SUBSETS)
    z = {"tau": lib.array(np.array(0.2)), "w": lib.array(np.array([0.3, -0.2]))}
    rows = lib.array(np.array([3, 1, 3, 24]))
    energies, grad = potential.energies_and_grad(z)
    value, of_batch = potential.batch_potential_and_grad(z, rows)
    directions = {name: lib.np.stack([u, 2 * u]) for name, u in z.items()}
    products = potential.likelihood_hessian_products(z, directions)
    energies = energies.value if lib.name == "numpyro" else energies
    found = [energies, grad["tau"], grad["w"], value, of_batch["w"], products["w"]]
    found.append(potential.pointwise_log_likelihood(z, rows))
    return {str(place): lib.to_numpy(x) for place, x in enumerate(found)}


def in_form(form, folder, X, y):
    """Rows of a form; skips where a package is missing."""
    if form == "memmap":
        return maps(folder, X, y)
    if form == "path":
        maps(folder, X, y)
        return [Rows(Path(folder) / f"{i}.npy") for i in range(2)]
    if form == "part of a map":
        [wide] = maps(folder, np.concatenate([np.zeros((3, DIM + 1)), np.column_stack([X, y])]))
        return [wide[3:, :DIM], wide[3:, DIM]]
    if form == "object":
        return [Slices(X), Slices(y)]
    if form == "zarr":
        zarr = pytest.importorskip("zarr")
        found = [
            zarr.create_array(f"{folder}/{i}.zarr", shape=x.shape, dtype=x.dtype, chunks=(4, *x.shape[1:]))
            for i, x in enumerate((X, y))
        ]
        for array, x in zip(found, (X, y), strict=True):
            array[:] = x
        return found
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"a": X[:, 0], "b": X[:, 1], "y": y})
    if form == "parquet":
        from pyarrow import parquet

        parquet.write_table(table, f"{folder}/rows.parquet", row_group_size=4)
        return table_rows(f"{folder}/rows.parquet", ["a", "b"], label="y", dtype="float64")
    if form == "arrow":
        return table_rows(table, ["a", "b"], label="y", dtype="float64")
    if form == "lists":
        lists = pyarrow.table({"x": pyarrow.FixedSizeListArray.from_arrays(X.ravel(), DIM), "y": y})
        return table_rows(lists, "x", label="y", dtype="float64")
    datasets = pytest.importorskip("datasets")
    return table_rows(datasets.Dataset(table), ["a", "b"], label="y", dtype="float64")


FORMS = ["path", "part of a map", "object", "zarr", "parquet", "arrow", "lists", "datasets"]


@pytest.mark.parametrize("form", ["memmap", *FORMS])
def test_every_form_gives_the_same_rows(form, tmp_path):
    arrays_in_memory = arrays()
    sources = [rows_of(x).open() for x in in_form(form, tmp_path, *arrays_in_memory)]
    for source, x in zip(sources, arrays_in_memory, strict=True):
        assert (source.shape, source.dtype) == (x.shape, x.dtype)
        np.testing.assert_array_equal(source.read(5, 19), x[5:19])
        for rows in ([7, 3, 3, 24, 0], np.random.default_rng(0).integers(0, NUM_ROWS, 90)):
            np.testing.assert_array_equal(source.take(np.array(rows)), x[rows])
        assert source.survey.digest == Digest().add_array(x).key


@pytest.mark.parametrize("form", ["path", "zarr", "parquet", "arrow", "datasets"])
def test_rows_pickle(form, tmp_path):
    """As they do on their way to a chain in another process."""
    in_memory = arrays()
    given = [x if isinstance(x, Rows) else Rows(x) for x in in_form(form, tmp_path, *in_memory)]
    for rows, x in zip(pickle.loads(pickle.dumps(given)), in_memory, strict=True):
        np.testing.assert_array_equal(rows.open().read(0, NUM_ROWS), x)


@each_kernel
def test_draws_are_those_of_rows_in_memory(lib, entry, tmp_path):
    if entry.name == "S3HMC":
        pytest.skip("needs a model of a network")
    found = draws(lib, entry.make(lib, linear(lib), SUBSETS), *maps(tmp_path, *arrays()))
    name = next(name for name, other in TABLE.items() if other is entry)
    assert same(draws_in_memory(type(lib), name), found)
    if "twice" in found:  # a deterministic site, which NumPyro computes after the run
        np.testing.assert_array_equal(found["twice"], 2 * found["w"])


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["SymmetricSplitHMC", "PenaltyMH"])
def test_draws_of_every_form(lib, form, name, tmp_path):
    found = draws(lib, TABLE[name].make(lib, linear(lib), SUBSETS), *in_form(form, tmp_path, *arrays()))
    assert same(draws_in_memory(type(lib), name), found)


@in_numpyro
@pytest.mark.slow
def test_blocks_of_a_subset(lib, monkeypatch, tmp_path):
    X, y = arrays(131)
    found = importlib.import_module("numpyro_split.potential.arguments")
    monkeypatch.setattr(found, "BLOCK_BYTES", 200)
    monkeypatch.setattr(found, "MIN_BLOCK_ROWS", 5)
    model = linear(lib)
    results = [
        draws(lib, TABLE["SplitHMC"].make(lib, model, 4), *args)
        for args in ((lib.array(X), lib.array(y)), maps(tmp_path, X, y))
    ]
    assert same(*results)


def test_what_is_evaluated(lib, tmp_path):
    """Negative control: a source that reads a block one row off where not all are asked for."""
    X, y = arrays()
    in_memory = evaluated(lib, lib.array(X), lib.array(y))
    assert same(in_memory, evaluated(lib, *maps(tmp_path, X, y)))
    assert not same(in_memory, evaluated(lib, Slices(X, shift=1), Slices(y)))


def test_a_mixture_of_sources_and_arrays(lib, tmp_path):
    X, y = arrays()
    assert same(evaluated(lib, lib.array(X), lib.array(y)), evaluated(lib, maps(tmp_path, X)[0], lib.array(y)))


def test_transform(lib, tmp_path):
    X, y = arrays()
    pixels = (100 + 50 * X).clip(0, 255).astype(np.uint8)
    rows = Rows(maps(tmp_path, pixels)[0], transform=lambda x: x / 255)
    np.testing.assert_array_equal(rows.open().take(np.array([3, 1])), pixels[[3, 1]] / 255)
    assert same(evaluated(lib, lib.array(pixels / 255), lib.array(y)), evaluated(lib, rows, Slices(y)))


def test_a_potential_of_functions(lib, tmp_path):
    X, y = arrays()

    def log_prior(z):
        return -0.5 * (z["w"] ** 2).sum()

    def log_likelihood(z, batch):
        return -0.5 * ((batch[1] - batch[0] @ z["w"]) ** 2).sum()

    z = {"w": lib.array(np.array([0.3, -0.2]))}
    values = []
    for data in ((lib.array(X), lib.array(y)), tuple(maps(tmp_path, X, y))):
        made = lib.split.SplitPotential.from_functions(log_prior, log_likelihood, data, SUBSETS)
        rows = lib.array(np.array([3, 1, 3]))
        values.append([made.potential(z), made.potential_and_grad(z)[1]["w"], made.pointwise_log_likelihood(z, rows)])
    for a, b in zip(*values, strict=True):
        np.testing.assert_array_equal(lib.to_numpy(a), lib.to_numpy(b))


@in_numpyro
@pytest.mark.parametrize("schedule", [pytest.param("symmetric", marks=pytest.mark.slow), "single_visit"])
def test_vectorised_chains_share_reads(lib, schedule, monkeypatch):
    """As many reads for four chains as for one; with an order that is drawn, one order is drawn for all."""
    monkeypatch.setenv(PREFETCH_VARIABLE, "off")
    X, y = arrays()
    counts = []
    for num_chains in (1, 4):
        source = Slices(X)
        kernel = lib.split.SplitHMC(linear(lib), num_subsets=SUBSETS, schedule=schedule, **FIXED)
        lib.run(kernel, source, lib.array(y), num_warmup=0, num_samples=2, num_chains=num_chains)
        before = source.num_reads
        lib.run(kernel, source, lib.array(y), num_warmup=0, num_samples=12, num_chains=num_chains)
        counts.append(source.num_reads - before)
    assert counts[0] == counts[1]


@in_numpyro
@pytest.mark.slow
def test_chains_by_themselves_and_vectorised(lib, tmp_path):
    X, y = arrays()
    kernel = TABLE["SymmetricSplitHMC"].make(lib, linear(lib), SUBSETS)
    options = {"num_chains": 3, "num_warmup": 3, "num_samples": 3}
    in_memory, read = (
        draws(lib, kernel, *args, **options) for args in ((lib.array(X), lib.array(y)), maps(tmp_path, X, y))
    )
    assert same(in_memory, read)
    one_by_one = draws(lib, kernel, *maps(tmp_path, X, y), **options, chain_method="sequential")
    for name, x in one_by_one.items():
        np.testing.assert_allclose(x, read[name], rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_reading_ahead_changes_nothing(lib, monkeypatch, tmp_path):
    X, y = arrays()
    model, found = linear(lib), []
    for choice in ("on", "off"):
        monkeypatch.setenv(PREFETCH_VARIABLE, choice)
        found.append(draws(lib, TABLE["SymmetricSplitHMC"].make(lib, model, SUBSETS), *maps(tmp_path, X, y)))
    assert same(*found)


@pytest.mark.parametrize("sweep", [[0, 1, 2, 3], [1, 2, 3, 2, 1, 0]], ids=["up", "up and down"])
def test_what_comes_next_is_guessed(sweep, monkeypatch):
    monkeypatch.delenv(PREFETCH_VARIABLE, raising=False)
    reader = Reader([Rows(Slices(np.arange(8.0))).open()])
    for place in sweep * 5:
        [rows] = reader.read(2 * place, 2)
        np.testing.assert_array_equal(rows, [2 * place, 2 * place + 1])
    assert reader.num_ahead >= 0.8 * reader.num_reads


def test_nothing_is_read_ahead_in_a_drawn_order():
    reader, rng = Reader([Rows(Slices(np.arange(64.0))).open()]), np.random.default_rng(0)
    for _ in range(20):
        for place in rng.permutation(32):
            reader.read(2 * int(place), 2)
    assert reader.num_ahead < 0.2 * reader.num_reads


# --- what is refused --------------------------------------------------------------------------------------------------


def refused(lib, model, *args, match, error=ModelNotSplittableError, **options):
    with pytest.raises(error, match=match):
        lib.split.split_model(model, args, num_subsets=SUBSETS, **options)


def plain(lib, X, y, mean, name="y"):
    with lib.ppl.plate("data", X.shape[0]):
        lib.ppl.sample(name, lib.dist.Normal(mean, 1.0), obs=y)


def test_a_latent_for_each_row_is_refused(lib, tmp_path):
    def model(X, y):
        w = lib.ppl.sample("w", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        with lib.ppl.plate("data", X.shape[0]):
            u = lib.ppl.sample("u", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
            lib.ppl.sample("y", lib.dist.Normal(w * X[:, 0] + u, 1.0), obs=y)

    refused(lib, model, *maps(tmp_path, *arrays()), match="no latent site may have an entry for each row.*'u'")


def test_a_mean_of_all_rows_is_refused(lib, tmp_path):
    def model(X, y):
        w = lib.ppl.sample("w", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        plain(lib, X, y, w * (X[:, 0] - X[:, 0].mean()))

    refused(lib, model, *maps(tmp_path, *arrays()), match="make nothing of all rows at once")


def test_rows_that_meet_are_refused(lib, tmp_path):
    def model(X, y):
        w = lib.ppl.sample("w", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        plain(lib, X, y, (w * X[:, 0]).cumsum(0))

    refused(lib, model, *maps(tmp_path, *arrays()), match="rows|row")


def test_a_prior_on_rows_is_refused(lib, tmp_path):
    def model(X, y):
        w = lib.ppl.sample("w", lib.dist.Normal(X.mean(), lib.array(1.0)))
        plain(lib, X, y, w * X[:, 0])

    refused(lib, model, *maps(tmp_path, *arrays()), match="nothing but the likelihood may rest on them")


def test_a_latent_with_as_many_entries_as_rows_is_refused(lib, tmp_path):
    def model(X, y):
        w = lib.ppl.sample("w", lib.dist.Normal(lib.np.zeros(len(y)), 1.0).to_event(1))
        plain(lib, X, y, w[0] * X[:, 0])

    refused(lib, model, *maps(tmp_path, *arrays()), match="nothing but the likelihood may rest on them, got the size")


def test_a_param_of_rows_is_refused(lib, tmp_path):
    def model(X, y):
        center = lib.ppl.param("center", y.mean())
        w = lib.ppl.sample("w", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        plain(lib, X, y, w * X[:, 0] + center)

    refused(lib, model, *maps(tmp_path, *arrays()), match="nothing but the likelihood may rest on them, got .*center")


def test_a_param_of_the_number_of_rows_is_refused(lib, tmp_path):
    """It is found on a part of the rows, and would follow their number."""

    def model(X, y):
        scale = lib.ppl.param("scale", lib.array(1.0 / len(y)))
        w = lib.ppl.sample("w", lib.dist.Normal(lib.array(0.0), scale))
        plain(lib, X, y, w * X[:, 0])

    refused(lib, model, *maps(tmp_path, *arrays()), match="nothing but the likelihood may rest on them, got .*scale")


def test_a_support_that_follows_the_number_of_rows_is_refused(lib, tmp_path):
    def model(X, y):
        high = lib.array(float(len(y))) if lib.name == "pyro" else len(y)
        w = lib.ppl.sample("w", lib.dist.Uniform(0.0, high))
        plain(lib, X, y, w * X[:, 0])

    refused(
        lib, model, *maps(tmp_path, *arrays()), match="nothing but the likelihood may rest on them, got the support"
    )


@in_pyro
def test_what_a_model_keeps_of_rows_is_refused(lib, tmp_path):
    kept = {}

    def model(X, y):
        w = lib.ppl.sample("w", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        plain(lib, X, y, w * (X[:, 0] - kept.setdefault("center", X[:, 0].mean())))

    refused(
        lib,
        model,
        *maps(tmp_path, *arrays()),
        match="nothing but the likelihood may rest on them, got what the model keeps",
    )


@in_numpyro
def test_a_deterministic_site_on_rows_is_refused(lib, tmp_path):
    def model(X, y):
        w = lib.ppl.sample("w", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        plain(lib, X, y, lib.ppl.deterministic("mean", w * X[:, 0]))

    refused(lib, model, *maps(tmp_path, *arrays()), match="site 'mean'")


def test_values_that_python_reads_are_refused(lib, tmp_path):
    def model(X, y):
        scale = float(X.max())
        w = lib.ppl.sample("w", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        plain(lib, X, y, w * X[:, 0] / scale)

    refused(lib, model, *maps(tmp_path, *arrays()), match="must not read values of its data with Python")


def test_a_plate_of_a_fixed_size_is_refused(lib, tmp_path):
    def model(X, y):
        w = lib.ppl.sample("w", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        with lib.ppl.plate("data", 3000):
            lib.ppl.sample("y", lib.dist.Normal(w * X[:, 0], 1.0), obs=y)

    refused(lib, model, *maps(tmp_path, *arrays(3000)), match="take its size from an argument")


def test_one_subset_of_a_model_that_does_not_divide_is_refused(lib, tmp_path):
    def model(X, y):
        w = lib.ppl.sample("w", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        lib.ppl.sample("y", lib.dist.Normal((w * X[:, 0]).sum(), 1.0), obs=lib.array(0.3))

    X, _ = maps(tmp_path, *arrays())
    with pytest.raises(ModelNotSplittableError):
        lib.split.split_model(model, (X, lib.array(0.3)), num_subsets=1)


def test_a_shuffled_order_is_refused(lib, tmp_path):
    args = maps(tmp_path, *arrays())
    refused(lib, linear(lib), *args, match="shuffle_rows", error=SourceError, subset_order="shuffled")


def test_unequal_lengths_are_refused(lib, tmp_path):
    X, y = arrays()
    refused(
        lib, linear(lib), *maps(tmp_path, X, y[:-1]), match="equal length.*'X' has 25, 'y' has 24", error=ValueError
    )


def test_a_source_of_no_rows_is_refused(lib, tmp_path):
    def model(X, y, W):
        w = lib.ppl.sample("w", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        plain(lib, X, y, w * X[:, 0] + W.sum())

    X, y = arrays()
    [W] = maps(tmp_path, np.ones((2, NUM_ROWS)))
    refused(lib, model, lib.array(X), lib.array(y), W, match="'W'", error=(ValueError,))


@in_numpyro
def test_traced_arguments_are_refused(lib, tmp_path):
    kernel = lib.split.SymmetricSplitHMC(linear(lib), num_subsets=SUBSETS)
    with pytest.raises(RuntimeError, match="jit_model_args must be False"):
        lib.run(kernel, *maps(tmp_path, *arrays()), num_warmup=1, num_samples=1, jit_model_args=True)


# --- files that are not what they were --------------------------------------------------------------------------------


def test_missing_files():
    with pytest.raises(SourceError, match="a file must be there.*nowhere.npy"):
        Rows("/nowhere.npy")
    pytest.importorskip("pyarrow")
    with pytest.raises(SourceError, match="nowhere.parquet"):
        table_rows("/nowhere.parquet", "x")


@pytest.mark.parametrize(
    ("data", "options", "match"),
    [
        (np.zeros(3), {}, "data must be the path"),
        ("text", {}, "must be there"),
        (Slices(np.array(["a", "b"])), {}, "data must be the path"),
        (Slices(np.zeros((9, 2))), {"transform": lambda x: x[:-1]}, "as many rows"),
        (Slices(np.arange(9.0)), {"transform": lambda x: x - x.mean()}, "each row by itself"),
        (Slices(np.zeros(9)), {"transform": lambda x: x.astype(str)}, "rows of numbers"),
    ],
)
def test_what_are_no_rows(data, options, match):
    with pytest.raises(SourceError, match=match):
        Rows(data, **options)


@in_numpyro
@pytest.mark.parametrize(
    ("times", "match"),
    [
        (1_600_000_000_000 + 250 * np.arange(300), "must fit in int32, .* got 16000000"),
        (1.6e9 + 0.25 * np.arange(300), "float32 must tell the rows of float64 apart, got numbers from 16000000"),
    ],
    ids=["integers", "fractions"],
)
def test_numbers_of_more_bits_than_the_model_gets(lib, times, match, tmp_path):
    """Narrowed without a word they would be other numbers; a transform makes them small enough."""

    def model(t, y):
        w = lib.ppl.sample("w", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        plain(lib, t, y, w * t / 1000)

    lib.set_precision(32)
    maps(tmp_path, times, np.zeros(len(times)))
    rows, y = tmp_path / "0.npy", lib.array(np.zeros(len(times)))
    with pytest.raises(SourceError, match=match):
        lib.split.split_model(model, (Rows(rows), y), num_subsets=SUBSETS)
    small = Rows(rows, transform=lambda t: t - times[0])
    potential = lib.split.split_model(model, (small, y), num_subsets=SUBSETS)
    given = lib.array(times - times[0])
    whole = lib.host_potential_and_grad(model, (given, y), {}, {"w": lib.array(0.3)})[0]
    np.testing.assert_allclose(float(potential.potential_and_grad({"w": lib.array(0.3)})[0]), float(whole), rtol=1e-5)


@pytest.mark.parametrize(
    ("first", "step", "made", "dtype", "is_told_apart"),
    [
        (1_700_000_000, 3, "int32", "float32", False),
        (1_700_000_000, 5, "uint32", "float32", False),
        (30_000, 1, "int16", "float16", False),
        (1_700_000_000 * 10**9, 3, "int64", "float64", False),
        (1_700_000_000 * 10**9, 10**9, "int64", "float64", True),
        (1_700_000_000, 10**6, "int32", "float32", True),
        (30_000, 1, "int16", "float32", True),
        (0, 1, "uint32", "float32", True),
    ],
)
def test_whole_numbers_as_floating_ones(first, step, made, dtype, is_told_apart):
    """A floating type has fewer digits than the integers of as many bits."""
    numbers = (first + step * np.arange(100)).astype(made)
    source = Rows(Slices(numbers), dtype=dtype).open()
    if is_told_apart:
        np.testing.assert_allclose(source.survey and source.read(0, 100), numbers, rtol=1e-6)
        return
    with pytest.raises(SourceError, match=f"{dtype} must tell the rows of {made} apart, got numbers from {first} to"):
        source.survey  # noqa: B018


@pytest.mark.parametrize("beside", ["float64", "float32", "uint64"])
def test_whole_numbers_beside_floating_ones(beside):
    """Side by side they have a type for both."""
    pyarrow = pytest.importorskip("pyarrow")
    for step in (3, 10**9):
        times = 1_700_000_000 * 10**9 + step * np.arange(100)
        table = pyarrow.table({"t": times, "x": np.arange(100).astype(beside)})
        source = table_rows(table, ["t", "x"], dtype="float64").open()
        if step > 3:
            assert source.survey
            np.testing.assert_array_equal(source.read(0, 100)[:, 1], np.arange(100))
            continue
        with pytest.raises(SourceError, match="float64 must tell the rows of int64 apart, got .* in 't' beside"):
            source.survey  # noqa: B018


def test_neighbours_that_are_close_together_do_not_count():
    """What is rounded is measured against the spread of all rows, not against that of the few that are read."""
    pyarrow = pytest.importorskip("pyarrow")
    times = 1_700_000_000 * 10**9 + 10**15 * (np.arange(100) // 2) + 300 * (np.arange(100) % 2)
    source = table_rows(pyarrow.table({"t": times, "x": np.zeros(100)}), ["t", "x"], dtype="float64").open()
    assert source.survey
    np.testing.assert_allclose(source.read(0, 2)[:, 0], times[:2], rtol=1e-15)
    np.testing.assert_allclose(source.take(np.array([2, 3]))[:, 0], times[2:4], rtol=1e-15)


RAGGED = {
    "other lengths": [[1.0, 2.0], [3.0, 1.0, 2.0], [4.0], [1.0, 2.0]],
    "another length": [[1.0, 2.0], [3.0, 1.0, 2.0], [3.0, 1.0, 2.0], [1.0, 2.0]],
    "other lengths within": [[[1.0, 2.0], [3.0, 4.0]], [[3.0], [4.0, 5.0, 6.0]], [[3.0], [4.0, 5.0, 6.0]]],
    "another length within": [[[1.0, 2.0], [3.0, 4.0]], [[3.0], [4.0]], [[3.0], [4.0]]],
    "no number": [[1.0, 2.0], [3.0, None], [1.0, 2.0]],
    "no list within": [[[1.0], [2.0]], [None, [3.0]], [[1.0], [2.0]]],
}


@pytest.mark.parametrize("lists", RAGGED.values(), ids=RAGGED)
def test_lists_of_other_lengths(lists):
    """Whatever rows are asked for: all of them, which may have as many numbers together as lists of one length."""
    pyarrow = pytest.importorskip("pyarrow")
    for type_of in (pyarrow.list_, pyarrow.large_list):
        inner = pyarrow.array(lists).type.value_type
        source = table_rows(pyarrow.table({"x": pyarrow.array(lists, type_of(inner))}), "x").open()
        np.testing.assert_array_equal(source.read(0, 1), lists[:1])
        for read in (
            lambda source=source: source.read(0, len(lists)),
            lambda source=source: source.read(1, 2),
            lambda source=source: source.read(1, 3),
            lambda source=source: source.take(np.array([0, 1])),
        ):
            with pytest.raises(
                SourceError, match="a column must (hold numbers, or lists of as many|have a number).*'x'"
            ):
                read()


def test_what_is_a_source(tmp_path):
    [mapped] = maps(tmp_path, np.zeros(4))
    assert gives_rows(mapped)
    assert gives_rows(Slices(np.zeros(3)))
    assert not any(map(gives_rows, (np.zeros(3), np.asarray(mapped), mapped + 1, mapped.copy(), 3.0, None, "a", [1])))


def spoiling(path, after, spoil):
    """A transform that spoils the file after some reads."""
    count = [0]

    def transform(x):
        count[0] += 1
        if count[0] == after:
            spoil(path)
        return x

    return transform


def shorten(path):
    os.truncate(path, os.path.getsize(path) - 8)


def touch(path):
    os.utime(path, (1, 1))


@pytest.mark.parametrize("spoil", [shorten, touch, os.remove])
def test_a_file_that_changes(spoil, tmp_path):
    maps(tmp_path, *arrays())
    source = Rows(tmp_path / "0.npy").open()
    source.read(0, 5)
    spoil(tmp_path / "0.npy")
    for read in (lambda: source.read(0, 5), lambda: source.take(np.arange(0, 25, 2))):
        with pytest.raises(SourceError, match=r"0\.npy"):
            read()
    with contextlib.suppress(SourceError):  # of a file that is gone
        assert not source.is_current()


def test_a_parquet_file_in_the_place_of_another(tmp_path):
    """New rows, or an error: never the old ones, which the file that was opened still has."""
    pyarrow, path = pytest.importorskip("pyarrow"), tmp_path / "rows.parquet"
    from pyarrow import parquet

    def write(**columns):
        parquet.write_table(pyarrow.table(columns), tmp_path / "new", row_group_size=4)
        os.replace(tmp_path / "new", path)

    write(x=np.arange(6.0), y=np.arange(6))
    X, y = table_rows(path, "x", label="y", dtype="float64")
    old = [X.open(), y.open()]
    write(x=-np.arange(9.0), y=np.arange(9) + 1)
    for source in old:
        with pytest.raises(SourceError, match=r"rows\.parquet.*must stay as they are"):
            source.read(0, 6)
    np.testing.assert_array_equal(X.open().read(0, 9), -np.arange(9.0))
    np.testing.assert_array_equal(y.open().take(np.array([8, 3])), [9, 4])
    assert (X.shape, len(y), X.open() is X.open()) == ((9,), 9, True)
    write(z=np.arange(9.0))
    with pytest.raises(SourceError, match=r"columns must be of \['z'\] in .*rows\.parquet"):
        X.open()
    path.write_text("no table")
    with pytest.raises(SourceError, match=r"must be the path of a Parquet file, got .*rows\.parquet"):
        X.open()


def test_columns_of_one_name_are_an_error_that_names_them(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table([np.arange(4.0), np.ones(4), np.zeros(4)], names=["a", "a", "y"])
    parquet.write_table(table, tmp_path / "rows.parquet")
    for rows in (table, tmp_path / "rows.parquet"):
        with pytest.raises(SourceError, match=r"columns must be of one name each in .*, got \['a'\]"):
            table_rows(rows, ["a"], label="y")


class Split:
    """What is used of a split of ``datasets``."""

    __module__, column_names = "datasets", ["x"]

    def __init__(self, table, path):
        self._table, self.cache_files = table, [{"filename": str(path)}]

    def __len__(self):
        return len(self._table)

    def __getitem__(self, rows):
        return self._table[rows]

    def select_columns(self, names):
        return self

    def with_format(self, name):
        return self


def test_files_in_the_place_of_those_of_a_split(tmp_path):
    """Of which nothing new can be read, as it has its own open."""
    table = pytest.importorskip("pyarrow").table({"x": np.arange(6.0)})
    (tmp_path / "rows.arrow").write_text("old")
    rows = table_rows(Split(table, tmp_path / "rows.arrow"), "x")
    rows.open().read(0, 6)
    (tmp_path / "new").write_text("other")
    os.replace(tmp_path / "new", tmp_path / "rows.arrow")
    with pytest.raises(SourceError, match=r"table must be a split .*rows\.arrow.*load it again"):
        rows.open()


@pytest.mark.parametrize(
    "view",
    [np.s_[:], np.s_[:, ::2], np.s_[::-1], np.s_[2:20:3, ::-1]],
    ids=["all", "some columns", "backwards", "some rows, columns backwards"],
)
def test_a_map_whose_file_another_is_in_the_place_of(view, tmp_path):
    x = np.arange(100.0).reshape(25, 4)
    [mapped] = maps(tmp_path, x)
    rows = Rows(mapped[view])
    np.testing.assert_array_equal(rows.open().read(0, 5), x[view][:5])
    np.save(tmp_path / "new.npy", -x)
    os.replace(tmp_path / "new.npy", tmp_path / "0.npy")
    np.testing.assert_array_equal(np.asarray(mapped), x)  # the map keeps the old rows
    num = len(x[view])
    np.testing.assert_array_equal(rows.open().read(0, num), -x[view])
    np.testing.assert_array_equal(rows.open().take(np.arange(0, num, 2)), -x[view][::2])
    os.truncate(tmp_path / "0.npy", 200)
    with pytest.raises(SourceError, match=r"0\.npy.*must hold"):
        rows.open().read(0, num)


@pytest.mark.parametrize("spoil", [shorten, *(pytest.param(x, marks=pytest.mark.slow) for x in (touch, os.remove))])
def test_a_file_that_changes_in_a_run(lib, spoil, tmp_path):
    X, y = arrays()
    maps(tmp_path, X, y)
    rows = Rows(tmp_path / "0.npy", transform=spoiling(tmp_path / "0.npy", 60, spoil))
    with pytest.raises(
        Exception, match=r"(?s)(rows must stay as they are|a file must be there).*0\.npy|0\.npy.*rows must"
    ):
        draws(lib, TABLE["SymmetricSplitHMC"].make(lib, linear(lib), SUBSETS), rows, lib.array(y), num_samples=50)


def test_a_stored_run_keeps_what_it_drew(lib, tmp_path):
    X, y = arrays()
    maps(tmp_path, X, y)
    rows = Rows(tmp_path / "0.npy", transform=spoiling(tmp_path / "0.npy", 300, shorten))
    kernel = lib.split.SymmetricSplitHMC(linear(lib), num_subsets=SUBSETS, **FIXED)
    with pytest.raises(SourceError, match=r"0\.npy"):
        lib.sample(lib.mcmc(kernel, 5, 500), rows, lib.array(y), store=f"{tmp_path}/run.zarr", every=5)
    kept = lib.split.open_store(f"{tmp_path}/run.zarr")
    assert kept["posterior"]["w"].shape[1] >= 5


def test_a_type_that_changes():
    data = Slices(np.arange(6.0))
    source = Rows(data).open()
    data._x = np.arange(6)
    with pytest.raises(SourceError, match="must be of float64 as at first, got int64"):
        source.read(0, 3)


def test_a_shape_that_changes():
    data = Slices(np.arange(6.0))
    rows = Rows(data)
    source = rows.open()
    data._x, data.shape = np.arange(5.0), (5,)
    with pytest.raises(SourceError, match="must stay as they are"):
        source.read(0, 3)


# --- digests ----------------------------------------------------------------------------------------------------------


def test_one_pass_finds_the_extremes(tmp_path):
    X, _ = arrays(1000)
    survey = Rows(maps(tmp_path, X)[0]).open().survey
    assert {int(x) for x in survey.extremes} == {int(x) for x in (*X.argmin(0), *X.argmax(0))}


def test_changes_in_place_are_seen(tmp_path):
    """Of a writable map, also where its pages were written before; of a zarr array, in chunks that it has."""
    X, y = arrays()
    maps(tmp_path, X)
    written = [np.load(tmp_path / "0.npy", mmap_mode="r+"), *in_form("zarr", tmp_path, X, y)]
    for data in written:
        rows = Rows(data)
        for value in (1.0, 2.0):
            source = rows.open()
            assert rows.open() is source
            data[0] = value
            assert rows.open() is not source
            np.testing.assert_array_equal(rows.open().read(0, 1), np.asarray(data[:1]))


def test_a_map_whose_changes_are_in_no_file_is_refused(tmp_path):
    maps(tmp_path, np.zeros(4))
    with pytest.raises(SourceError, match="mode 'r'.*got 'c'"):
        Rows(np.load(tmp_path / "0.npy", mmap_mode="c"))


@in_numpyro
@pytest.mark.slow
def test_a_run_goes_on_from_changed_rows(lib, tmp_path):
    X, y = arrays()
    session = lib.session(lib.split.SymmetricSplitHMC(linear(lib), num_subsets=SUBSETS), num_warmup=2, num_samples=2)
    args = maps(tmp_path, X, y)
    session.fresh(*args)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.again(*args)
    np.save(tmp_path / "1.npy", y + 1)
    os.utime(tmp_path / "1.npy", (1, 1))
    with pytest.warns(UserWarning, match="left by other data"):
        session.again(*args)


@pytest.mark.slow
def test_a_store_belongs_to_its_rows(lib, tmp_path):
    X, y = arrays()
    args, store = maps(tmp_path, X, y), f"{tmp_path}/run.zarr"
    kernel = lib.split.SymmetricSplitHMC(linear(lib), num_subsets=SUBSETS, **FIXED)
    whole = lib.host_draws(lib.mcmc(kernel, 2, 6), *args)
    found = lib.sample(lib.mcmc(kernel, 2, 6), *args, store=store, every=2)
    np.testing.assert_array_equal(found["posterior"]["w"].values, whole["w"])
    lib.sample(lib.mcmc(kernel, 2, 6), *args, store=store, every=2)
    np.save(tmp_path / "1.npy", y + 1)
    os.utime(tmp_path / "1.npy", (1, 1))
    with pytest.raises(ValueError, match="data"):
        lib.sample(lib.mcmc(kernel, 2, 6), *args, store=store, every=2)


# --- order of rows ----------------------------------------------------------------------------------------------------


def test_sorted_rows_are_told_of(lib, tmp_path):
    X, y = arrays(2500)
    order = np.argsort(y)
    sorted_maps = maps(tmp_path, X[order], y[order])
    with pytest.warns(UserWarning, match="sorted or drift.*shuffle_rows"):
        lib.split.split_model(linear(lib), sorted_maps, num_subsets=SUBSETS)
    shuffled = shuffle_rows(sorted_maps, [tmp_path / "X.npy", tmp_path / "y.npy"], seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lib.split.split_model(linear(lib), shuffled, num_subsets=SUBSETS)


def test_shuffled_rows(tmp_path):
    X = np.arange(6000.0).reshape(2000, 3)
    few = shuffle_rows([X, X[:, 0]], [tmp_path / "a.npy", tmp_path / "b.npy"], seed=0, memory=2**12)
    np.testing.assert_array_equal(few[0][:, 0], few[1])
    np.testing.assert_array_equal(np.sort(few[1]), X[:, 0])
    assert Rows(few[0]).open().survey.f < LARGEST_F < Rows(Slices(X)).open().survey.f
    again, other = (
        shuffle_rows([X, X[:, 0]], [tmp_path / f"{name}.npy", tmp_path / f"{name}-y.npy"], seed=seed, memory=2**12)[0]
        for name, seed in (("c", 0), ("d", 1))
    )
    np.testing.assert_array_equal(again, few[0])
    assert not np.array_equal(again, other)
    with pytest.raises(SourceError, match="new file"):
        shuffle_rows(X, tmp_path / "c.npy")


@pytest.mark.slow
def test_every_order_is_as_likely(tmp_path):
    """Of four rows in several buckets: each of 24 orders; χ² of 23 degrees above 65 is chance once in 10⁵ times."""
    counts = {}
    for seed in range(1200):
        path = tmp_path / f"{seed}.npy"
        order = tuple(shuffle_rows(np.arange(4), path, seed=seed, memory=32).tolist())
        counts[order] = counts.get(order, 0) + 1
        path.unlink()
    assert len(counts) == 24
    assert sum((n - 50) ** 2 / 50 for n in counts.values()) < 65


# --- memory -----------------------------------------------------------------------------------------------------------

MEMORY = """
import sys, threading, time, warnings
import numpy as np
warnings.simplefilter("ignore")
lib, path, rows, kernel = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
def anon():
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("RssAnon")) / 1024
peak, done = [0.0], []
def watch():
    while not done:
        peak[0] = max(peak[0], anon()); time.sleep(0.005)
X = np.memmap(path, np.float32, "r", shape=(rows, 50))
y = np.memmap(path + ".y", np.float32, "r", shape=(rows,))
options = {"step_size": 1e-3, "adapt_step_size": False, "adapt_mass_matrix": False, "num_steps": 1}
if kernel == "PenaltyMH":
    options = {"batch_size": 500, "num_batches": 5}
if lib == "numpyro":
    import jax, numpyro, numpyro.distributions as dist
    from numpyro.infer import MCMC
    import numpyro_split as split
    def model(X, y):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([50]).to_event(1))
        with numpyro.plate("data", X.shape[0]):
            numpyro.sample("y", dist.Normal(X @ w, 1.0), obs=y)
    run = lambda X, y: MCMC(getattr(split, kernel)(model, num_subsets=20, **options), num_warmup=2, num_samples=2,
                            progress_bar=False).run(jax.random.key(0), X, y)
else:
    import torch, pyro, pyro.distributions as dist
    from pyro.infer import MCMC
    import pyro_split as split
    torch.set_num_threads(1)
    def model(X, y):
        w = pyro.sample("w", dist.Normal(torch.zeros(50), 1.0).to_event(1))
        with pyro.plate("data", X.shape[0]):
            pyro.sample("y", dist.Normal(X @ w, 1.0), obs=y)
    run = lambda X, y: MCMC(getattr(split, kernel)(model, num_subsets=20, **options), 2, 2,
                            disable_progbar=True).run(X, y)
few = 20_000
run(np.memmap(path, np.float32, "r", shape=(few, 50)), np.memmap(path + ".y", np.float32, "r", shape=(few,)))
before = anon()
threading.Thread(target=watch, daemon=True).start()
run(X, y)
done.append(1)
print(peak[0] - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["SplitHMC", "PenaltyMH"])
@pytest.mark.parametrize("lib", ["numpyro", "pyro"])
def test_memory_is_that_of_a_few_subsets(lib, kernel, tmp_path):
    """Of 800 MB in 20 subsets, where a run on few rows has been: less than 8 subsets of 40 MB, and not 800 MB.

    Arrays of less than 32 MB would be kept, once freed, by the memory allocator of glibc: by each thread its own.
    """
    rows, rng = 4_000_000, np.random.default_rng(0)
    path = str(tmp_path / "X")
    with open(path, "wb") as X, open(f"{path}.y", "wb") as y:
        for _ in range(20):
            block = rng.standard_normal((rows // 20, 50), np.float32)
            X.write(block.tobytes())
            y.write((block[:, 0] + rng.standard_normal(rows // 20, np.float32)).tobytes())
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, lib, path, str(rows), kernel], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) < 320


@pytest.mark.parametrize("kind", ["file", "zarr"])
def test_rows_in_another_machines_order_are_read_by_number(kind, tmp_path):
    zarr = pytest.importorskip("zarr")
    X = np.random.default_rng(0).normal(size=(400, 3)).astype(">f4")
    np.save(tmp_path / "X.npy", X)
    stored = zarr.create_array(tmp_path / "X.zarr", shape=X.shape, chunks=(50, 3), dtype=X.dtype)
    stored[:] = X
    source = Rows(str(tmp_path / "X.npy") if kind == "file" else stored).open()
    for indices in (np.arange(5), np.array([1, 7, 300])):
        np.testing.assert_array_equal(source.take(indices), X[indices])


def test_a_folder_is_no_parquet_file(tmp_path):
    with pytest.raises(SourceError, match=r"must be the path of a Parquet file, got .*; read a folder with pyarrow"):
        table_rows(str(tmp_path), ["x"])


def test_a_data_set_of_a_closed_file_says_so(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "X.h5", "w") as file:
        file["X"] = np.ones((4, 2))
        closed = file["X"]
    with pytest.raises(SourceError, match="rows of a Dataset must be readable"):
        Rows(closed)


def test_a_column_of_tensors_of_one_shape(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    x = np.arange(24.0).reshape(4, 2, 3)
    source = table_rows(pyarrow.table({"x": pyarrow.FixedShapeTensorArray.from_numpy_ndarray(x)}), "x").open()
    assert source.shape == x.shape
    np.testing.assert_array_equal(source.read(1, 3), x[1:3])
