"""Rows in shards, over devices and processes: what is sent, what is drawn, and what is refused."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.experimental import multihost_utils
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from numpyro.infer import MCMC

from numpyro_split import (
    ModelNotSplittableError,
    PenaltyMH,
    ShardedRows,
    SplitHMC,
    SplitPotential,
    open_store,
    sample,
    shard_rows,
    split_model,
    to_inference_data,
)
from numpyro_split.kernels.agreement import check_alike, digest_of_rest
from numpyro_split.potential.arguments import Arguments
from numpyro_split.potential.compensated import Compensated
from numpyro_split.potential.shards import _energy, _words
from numpyro_split.runs.leader import broadcast
from split_common.errors import RanksError, StoreError
from tests.kernels import TABLE
from tests.sharded_run import DIM, NUM_ROWS

ROOT = Path(__file__).parents[1]
QUICK = ("SplitHMC", "PenaltyMH")
ENERGY_WORDS = 2  # of one energy, in one message with a gradient
SIZE = 1 + DIM + 1  # of a position of the model of tests/sharded_run.py
NUM_SUBSETS = 3


def launch(*arguments, seconds=280):
    """Start a process of tests/sharded_run.py."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.sharded_run", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def finish(*processes, seconds=280):
    """Wait for processes, all of which must end well."""
    try:
        for process in processes:
            _, errors = process.communicate(timeout=seconds)
            assert process.returncode == 0, errors[-3000:]
    finally:
        for process in processes:
            process.kill()


def free_port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def draws_of(tmp_path, kernels, *options, processes=1, name="draws"):
    """Draws of some kernels, of one process with two shards or of two with one each."""
    out = tmp_path / f"{name}.npz"
    if processes == 1:
        finish(launch("draws", out, *kernels, "--devices", 2, *options))
    else:
        finish(*pair("draws", out, *kernels, *options))
    return dict(np.load(out))


def stored_draws(tmp_path, name, *options, processes=1, kernels=QUICK):
    """Draws of stored runs of some kernels, by process; of one process with two shards or of two with one each."""
    if processes == 1:
        finish(launch("stored", tmp_path / name, *kernels, "--devices", 2, *options))
    else:
        finish(*pair("stored", tmp_path / name, *kernels, *options))
    return [dict(np.load(tmp_path / f"{name}-{place}.npz")) for place in range(processes)]


def pair(what, out, *options):
    """Start two processes with a shard each."""
    shared = (what, out, *options, "--devices", 1, "--processes", 2, "--port", free_port())
    return [launch(*shared, "--place", place) for place in range(2)]


def sent_by(tmp_path, kernels, devices):
    out = tmp_path / "text.json"
    finish(launch("text", out, *kernels, "--devices", devices))
    return json.loads(out.read_text())


def check_sent(found, devices):
    """No row is sent; a kick sends one message, of a gradient and its energy.

    What else is sent are the energies of all subsets, with or without the gradient of all rows, and the data's digest.
    Two kicks at one position, such as those that open and close a trajectory, XLA sends as one.
    """
    kick, energies, digest = SIZE + ENERGY_WORDS, ENERGY_WORDS * NUM_SUBSETS, 4
    of_trajectories = {kick, 2 * kick, energies, SIZE + energies, digest}
    # changes by batch, and sums, with a gradient or not; an expansion of second order where data are new
    of_batches = {3 + 6, SIZE + 3 + 6, SIZE**2 + SIZE + energies, SIZE + energies, SIZE + 1, digest}
    for name, messages in found["sent"].items():
        sizes = {words for _, words in messages}
        assert {operation for operation, _ in messages} == {"all-reduce"}, name
        assert sizes <= (of_batches if TABLE[name].is_noisy else of_trajectories), (name, messages)
        assert TABLE[name].is_noisy or kick in sizes, (name, messages)
    assert found["rows"] == [-(-NUM_ROWS // devices)] * devices


@pytest.mark.parametrize("devices", [2])
def test_no_row_is_sent(tmp_path, devices):
    check_sent(sent_by(tmp_path, QUICK, devices), devices)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 4])
def test_no_row_is_sent_by_any_kernel(tmp_path, devices):
    check_sent(sent_by(tmp_path, TABLE, devices), devices)


def same(a, b, tolerance):
    assert a.keys() == b.keys()
    return all(np.allclose(a[name], b[name], rtol=tolerance, atol=tolerance) for name in a)


@pytest.mark.slow
def test_two_processes_draw_what_one_does(tmp_path):
    one = draws_of(tmp_path, QUICK[:1], name="one")
    assert same(one, draws_of(tmp_path, QUICK[:1], processes=2, name="two"), 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE)
def test_two_processes_draw_what_one_does_by_every_kernel(tmp_path, name):
    one = draws_of(tmp_path, [name], "--draws", 50, name="one")
    assert same(one, draws_of(tmp_path, [name], "--draws", 50, processes=2, name="two"), 1e-10)


@pytest.mark.slow
def test_without_the_sum_over_shards_draws_differ(tmp_path):
    """The control: a kernel whose shards do not add up."""
    kernels = QUICK[:1]
    assert not same(draws_of(tmp_path, kernels, name="one"), draws_of(tmp_path, kernels, "--break", name="other"), 1e-3)


@pytest.mark.slow
def test_chains_over_a_second_axis_draw_what_vectorised_ones_do(tmp_path):
    """Two on each half of four devices, whose rows lie on two; the kernel must be left its own axis."""
    out = tmp_path / "chains.npz"
    finish(launch("chains", out, *QUICK, "--devices", 4, "--draws", 5))
    found = dict(np.load(out))
    assert "must leave the mesh's axis 'rows'" in str(found.pop("error"))
    mapped, vectorised = (
        {name.removeprefix(how): x for name, x in found.items() if name.startswith(how)}
        for how in ("mapped", "vectorised")
    )
    assert mapped
    assert same(mapped, vectorised, 1e-10)
    assert all(np.all(np.ptp(x, axis=0) > 0) for x in mapped.values())


@pytest.mark.slow
@pytest.mark.parametrize(("option", "what"), [("--seeds", "random key"), ("--codes", "model"), ("--numbers", "model")])
def test_processes_that_differ_are_refused(tmp_path, option, what):
    for process in pair("draws", tmp_path / "no", "SplitHMC", option):
        _, errors = process.communicate(timeout=200)
        assert process.returncode != 0
        assert "RanksError: processes that share the rows of a run must run the same" in errors
        assert f"got another {what} in processes [1]" in errors


@pytest.mark.parametrize("fact", ["random key", "kernel", "argument besides the rows"])
def test_what_differs_between_processes_is_named(monkeypatch, fact):
    """Of two processes, the other of which says something else of one fact."""
    facts = {
        "random key": np.arange(2),
        "kernel": SplitHMC(model, num_subsets=2)._method,
        "argument besides the rows": digest_of_rest(Arguments((jnp.arange(3.0), "text"), {})),
    }

    def gathered(words, changed):
        other = words.copy()
        other[list(facts).index(fact)] += changed
        return np.stack([words, other])

    monkeypatch.setattr(multihost_utils, "process_allgather", lambda words: gathered(words, 0))
    check_alike(facts)
    monkeypatch.setattr(multihost_utils, "process_allgather", lambda words: gathered(words, 1))
    with pytest.raises(RanksError, match=rf"another {fact} in processes \[1\]"):
        check_alike(facts)


def test_the_rest_of_the_arguments_counts_by_its_numbers():
    keys = {
        digest_of_rest(Arguments(args, {}))
        for args in ((jnp.arange(3.0), 1), (jnp.arange(3.0), 2), (jnp.arange(3.0) + 1, 1), (jnp.arange(3), 1))
    }
    assert len(keys) == 4


# --- in this process, on the two devices of tests/conftest.py


def meshes():
    return [jax.make_mesh((2,), ("rows",), axis_types=(kind,)) for kind in (AxisType.Auto, AxisType.Explicit)]


def model(X, y=None):
    w = numpyro.sample("w", dist.Normal(jnp.zeros(DIM), 1.0).to_event(1))
    with numpyro.plate("data", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ w, 1.0), obs=y)


def data(num_rows=NUM_ROWS):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(num_rows, DIM))
    return X, X @ np.array([1.0, -0.5]) + 0.5 * rng.normal(size=num_rows)


@pytest.mark.parametrize("mesh", meshes(), ids=["automatic", "explicit"])
@pytest.mark.parametrize("order", ["sequential", "shuffled"])
@pytest.mark.parametrize("num_rows", [22, 23, 5])
def test_the_potential_is_that_of_all_rows(mesh, order, num_rows):
    X, y = data(num_rows)
    options = {"num_subsets": min(4, num_rows // 2), "subset_order": order}
    whole = split_model(model, (X, y), **options)
    sharded = split_model(model, tuple(shard_rows((X, y), mesh)), **options)
    z = {"w": jnp.array([0.3, -0.7])}
    assert sharded.plate_size == num_rows
    assert sum(sharded.subset_sizes) == num_rows
    for a, b in zip(
        jax.tree.leaves((whole.potential(z), whole.potential_and_grad(z), whole.energies_and_grad(z)[1])),
        jax.tree.leaves((sharded.potential(z), sharded.potential_and_grad(z), sharded.energies_and_grad(z)[1])),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-10)
    np.testing.assert_allclose(jax.grad(whole.potential)(z)["w"], jax.grad(sharded.potential)(z)["w"], rtol=1e-10)
    by_subset = [sharded.subset_potential(z, m) for m in range(sharded.num_subsets)]
    np.testing.assert_allclose(sum(by_subset), whole.potential(z), rtol=1e-10)
    np.testing.assert_allclose(jnp.sum(sharded.energies(z).value), whole.potential(z), rtol=1e-10)
    places = jnp.array([0, num_rows // 2, num_rows - 1])
    np.testing.assert_allclose(
        whole.pointwise_log_likelihood(z, places), sharded.pointwise_log_likelihood(z, places), rtol=1e-10
    )


def test_a_potential_of_functions_has_shards():
    X, y = data()
    functions = (
        lambda z: -0.5 * jnp.sum(z["w"] ** 2),
        lambda z, batch: -0.5 * (batch[1] - batch[0] @ z["w"]) ** 2,
    )
    whole = SplitPotential.from_functions(*functions, (X, y), 3)
    sharded = SplitPotential.from_functions(*functions, shard_rows((X, y), meshes()[0]), 3)
    z = {"w": jnp.array([0.3, -0.7])}
    np.testing.assert_allclose(whole.potential(z), sharded.potential(z), rtol=1e-10)
    scalar = SplitPotential.from_functions(
        functions[0], lambda z, batch: jnp.sum(functions[1](z, batch)), shard_rows((X, y), meshes()[0]), 3
    )
    with pytest.raises(ValueError, match="one value per row"):
        scalar.potential(z)


@pytest.mark.parametrize(
    "mesh", [pytest.param(meshes()[0], marks=pytest.mark.slow), meshes()[1]], ids=["automatic", "explicit"]
)
@pytest.mark.parametrize("traced", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_run_on_shards(mesh, traced):
    """Its draws are those of the rows on one device, where these are put into the same subsets."""
    X, y = data(24)
    order = np.concatenate([[*range(4 * m, 4 * m + 4), *range(12 + 4 * m, 16 + 4 * m)] for m in range(3)])
    found = []
    for rows in (shard_rows((X, y), mesh), (X[order], y[order])):
        mcmc = MCMC(
            SplitHMC(model, num_subsets=3, init_strategy=numpyro.infer.init_to_value(values={"w": jnp.zeros(DIM)})),
            num_warmup=5,
            num_samples=5,
            progress_bar=False,
            jit_model_args=traced,
        )
        mcmc.run(jax.random.key(0), *rows)
        found.append(mcmc.get_samples()["w"])
        mcmc.sampler.report(mcmc)
        assert ("observed_data" in to_inference_data(mcmc)) == (len(found) == 2)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-8)


def test_energies_that_are_sent_add_up():
    """To what they add up to in twice the precision, in float32 and at any size; what is infinite stays so."""
    rng = np.random.default_rng(0)
    high = np.float32(10.0 ** rng.uniform(0, 6, (64, 8)))
    low = np.float32(rng.uniform(-0.5, 0.5, high.shape) * np.spacing(high))
    words = _words(Compensated(jnp.asarray(high, jnp.float32), jnp.asarray(low, jnp.float32)), 1000)
    assert words.steps.dtype == jnp.float32
    found = _energy(type(words)(jnp.sum(words.steps, 0), jnp.sum(words.rest, 0)))
    exact = np.sum(np.float64(high) + low, 0)
    np.testing.assert_allclose(np.float64(found.high) + found.low, exact, atol=1e-3, rtol=0)
    infinite = _energy(_words(Compensated(jnp.array([jnp.inf, jnp.nan]), jnp.zeros(2)), 10))
    assert jnp.isposinf(infinite.value[0])
    assert jnp.isnan(infinite.value[1])


def test_energies_of_long_rows_add_up():
    """Of 8 shards of 60,000 rows, 3,000 nats each, as of images of normal pixels; a change of 1 nat is seen."""
    rng = np.random.default_rng(0)
    exact = 1.8e8 + rng.normal(0, 1e5, (8, 200))
    high = np.float32(exact)
    words = _words(Compensated(jnp.asarray(high), jnp.asarray(np.float32(exact - high))), 60_000)
    found = _energy(type(words)(jnp.sum(words.steps, 0), jnp.sum(words.rest, 0)))
    np.testing.assert_allclose(np.float64(found.high) + found.low, exact.sum(0), atol=0.01, rtol=0)


@pytest.mark.slow
def test_a_stored_run_on_shards(tmp_path):
    """Of one process: stopped and gone on with, to the draws of a run without a store."""
    rows = shard_rows(data(23), meshes()[0])

    def run(num_samples):
        kernel = SplitHMC(model, num_subsets=3, find_heuristic_step_size=False)
        return MCMC(kernel, num_warmup=4, num_samples=num_samples, progress_bar=False)

    for num_samples in (4, 8):
        stored = run(num_samples)
        sample(stored, jax.random.key(0), *rows, store=tmp_path / "run.zarr", every=4)
    with pytest.raises(StoreError, match="another shards: 2 shards of .* in the store, got nothing"):
        sample(run(9), jax.random.key(0), *data(23), store=tmp_path / "run.zarr", every=4)
    plain = run(8)
    plain.run(jax.random.key(0), *rows)
    np.testing.assert_allclose(stored.get_samples()["w"], plain.get_samples()["w"], rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("first", [1, 2])
def test_a_stored_run_goes_on_in_another_number_of_processes(tmp_path, first):
    """Begun in one process and ended in two, or the other way round, with two shards: to the same draws, each bit."""
    (whole,) = stored_draws(tmp_path, "whole", "--store", f"{tmp_path}/whole-", "--draws", 12)
    store = ("--store", f"{tmp_path}/")
    begun = stored_draws(tmp_path, "begun", *store, "--draws", 5, processes=first)
    ended = stored_draws(tmp_path, "ended", *store, "--draws", 12, processes=3 - first)
    for found in begun:
        assert all(np.array_equal(x, whole[name][:5]) for name, x in found.items())
    for found in ended:
        assert found.keys() == whole.keys()
        assert all(np.array_equal(x, whole[name]) for name, x in found.items())


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 1])
def test_where_one_process_dies_the_other_ends_and_the_store_goes_on(tmp_path, place):
    """Within two minutes, whether it is the one that writes or another."""
    options = ("stored", tmp_path / "draws", "SplitHMC", "--draws", 8, "--store", f"{tmp_path}/")
    started = time.monotonic()
    processes = pair(*options, "--dies", place)
    try:
        codes = [process.wait(timeout=240) for process in processes]
        assert time.monotonic() - started < 120
    finally:
        for process in processes:
            process.kill()
    assert codes[place] == -signal.SIGKILL
    assert codes[1 - place] not in (0, -signal.SIGKILL)
    assert open_store(tmp_path / "SplitHMC.zarr").posterior.sizes["draw"] < 8
    finish(*pair(*options))
    (whole,) = stored_draws(tmp_path, "whole", "--store", f"{tmp_path}/whole-", "--draws", 8, kernels=QUICK[:1])
    found = np.load(tmp_path / "draws-0.npz")
    assert all(np.array_equal(found[name], x) for name, x in whole.items())


@pytest.mark.slow
def test_stored_runs_that_cannot_be_in_processes_are_refused(tmp_path):
    stored_draws(tmp_path, "begun", "--store", f"{tmp_path}/", "--draws", 4, kernels=QUICK[:1])
    refused = {
        "--held": (("ValueError: jit_model_args must be True",) * 2, ()),
        "--rows": (("StoreError: store must be of the same", "RanksError: on rank 0, which writes"), (24,)),
    }
    for option, (messages, value) in refused.items():
        options = ("--store", f"{tmp_path}/", "--draws", 8, option, *value)
        for process, message in zip(pair("stored", tmp_path / "no", "SplitHMC", *options), messages, strict=True):
            _, errors = process.communicate(timeout=200)
            assert process.returncode != 0
            assert message in errors


@pytest.mark.parametrize("length", [0, 240, 255, 256, 257, 1000])
def test_a_message_is_what_was_said(length):
    """Of one process, which hears itself; however long, and wherever it is cut into pieces."""
    assert broadcast(("advance", 3, bytes(length))) == ("advance", 3, bytes(length))


def sharded(x, *spec, mesh=None):
    return jax.device_put(x, NamedSharding(mesh or meshes()[0], PartitionSpec(*spec)))


def refused():
    X, y = data(24)

    def local(X, y=None):
        with numpyro.plate("data", X.shape[0]):
            u = numpyro.sample("u", dist.Normal(0.0, 1.0))
            numpyro.sample("y", dist.Normal(X[:, 0] + u, 1.0), obs=y)

    def centred(X, y=None):
        model(X - X.mean(0), y)

    def prior_of_rows(X, y=None):
        model(X, y)
        numpyro.sample("s", dist.Normal(0.0, jnp.std(X)))

    def deterministic(X, y=None):
        model(X, y)
        numpyro.deterministic("mean", X.sum(1))

    def reads(X, y=None):
        model(X * int(X.sum()), y)

    def trend(X, y=None):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0))
        with numpyro.plate("data", X.shape[0]) as i:
            numpyro.sample("y", dist.Normal(X[:, 0] + w * i, 1.0), obs=y)

    good = sharded(X, "rows"), sharded(y, "rows")
    twofold = jax.make_mesh((2, 1), ("rows", "others"), axis_types=(AxisType.Auto,) * 2)
    return {
        "y on one device": (model, (good[0], y), "'y' must be sharded like 'X'"),
        "along columns": (model, (sharded(X, None, "rows"), y), "'X' must be sharded along the axis of its rows, 0"),
        "on another mesh": (model, (good[0], sharded(y, "rows", mesh=twofold)), "'y' must be sharded like 'X'"),
        "along two axes of a mesh": (
            model,
            tuple(sharded(x, ("rows", "others"), mesh=twofold) for x in (X, y)),
            "'X' must lie along one axis of the mesh",
        ),
        "more subsets than rows": (model, (sharded(X[:4], "rows"), sharded(y[:4], "rows")), "rows of a shard, 2"),
        "numbers of rows": (trend, good, "got one that is told the numbers of its rows"),
        "local latents": (local, good, "no latent site inside the data plate"),
        "from all rows": (centred, good, "take nothing from all rows"),
        "a prior of rows": (prior_of_rows, good, "outside the data plate does"),
        "a deterministic site of rows": (deterministic, good, "the deterministic site 'mean' does"),
        "read with Python": (reads, good, "read no values of them with Python"),
    }


def test_what_follows_the_number_of_rows_is_refused():
    """Shards are filled up, and supports are found on a few rows: both have other numbers of rows than all."""

    def number(X, y):
        scale = numpyro.sample("scale", dist.HalfNormal(1.0 / X.shape[0]))
        with numpyro.plate("data", X.shape[0]):
            numpyro.sample("y", dist.Normal(X[:, 0] * scale, 1.0), obs=y)

    def of_param(X, y):
        scale = numpyro.param("scale", 1.0 / X.shape[0])
        model(X * scale, y)

    def of_deterministic(X, y):
        model(X, y)
        numpyro.deterministic("number", jnp.asarray(X.shape[0]))

    uneven = shard_rows(data(23), meshes()[0])
    for follows, what in (
        (number, "the log-density outside the data plate"),
        (of_param, "the parameter 'scale'"),
        (of_deterministic, "the deterministic site 'number'"),
    ):
        with pytest.raises(ModelNotSplittableError, match=f"look at their number in its data plate alone, .*{what}"):
            split_model(follows, uneven, num_subsets=3)
    split_model(model, uneven, num_subsets=3)


@pytest.mark.parametrize("what", refused())
def test_what_cannot_be_in_shards_is_refused(what):
    a_model, rows, message = refused()[what]
    with pytest.raises((ValueError, ModelNotSplittableError), match=message):
        split_model(a_model, rows, num_subsets=3)


def test_rows_that_cannot_be_sharded():
    X, y = data(24)
    mesh = meshes()[0]
    with pytest.raises(ValueError, match="at least as many as this process's devices"):
        shard_rows(X[:1], mesh)
    with pytest.raises(ValueError, match="rows must be arrays of one length"):
        shard_rows((X, y[:3]), mesh)
    with pytest.raises(ValueError, match="axis must name an axis of the mesh"):
        shard_rows(X, mesh, "row")
    with pytest.raises(ValueError, match="the same rows in each shard"):
        split_model(model, (shard_rows(X[:23], mesh), ShardedRows(shard_rows(y, mesh), (11, 12))), num_subsets=2)


def test_penalty_reads_as_many_rows_of_each_shard():
    X, y = data(401)
    kernel = PenaltyMH(model, batch_size=15, num_batches=4)
    mcmc = MCMC(kernel, num_warmup=5, num_samples=5, progress_bar=False)
    mcmc.run(jax.random.key(0), *shard_rows((X, y), meshes()[0]))
    assert int(mcmc.last_state.rows_touched) == 4 * 16 + mcmc.last_state.certainty_rows.shape[0]
