"""Runs with a store: whenever a process dies, the run goes on to the same draws; what is not the run's is refused."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from split_common.errors import StoreError
from split_common.runs.reading import open_store
from split_common.runs.stopping import StopWhen
from tests.backends import PACKAGES, NumPyroBackend, PyroBackend
from tests.kernels import TABLE, Problem, data, mixed
from tests.stored_run import Death, Run, draws_in

ROOT = Path(__file__).parent.parent
KILLED = ("SymmetricSplitHMC", "SplitNUTS", "S3HMC", "PenaltyMH")  # kernels whose processes are killed
WRITES_OF_A_RUN = {1: 150, 7: 24}  # at least, by ``every``
pytestmark = pytest.mark.filterwarnings("ignore:.*(noise|depth|cut off|diverge|E-BFMI|stopped after|available_cpu).*")


@pytest.fixture
def run(lib, tmp_path):
    return Run(lib, TABLE["SplitNUTS"], str(tmp_path / "run.zarr"))


def test_the_draws_are_those_of_the_host(lib, run):
    run.sample(every=7, warmup=True)
    expected = run.host_draws()
    found = run.loaded()
    for name, x in expected.items():
        np.testing.assert_array_equal(found[name], x)
    opened = open_store(run.path, warmup=True)
    for name in opened.posterior.data_vars:
        np.testing.assert_array_equal(np.asarray(opened.posterior[name]), expected[name])
    assert opened.warmup_posterior.sizes["draw"] == run.num_warmup
    np.testing.assert_allclose(np.asarray(opened.observed_data["y"]), lib.to_numpy(run.problem.args[1]))
    assert opened.posterior.attrs["split"].startswith("proved")
    assert run.kernel.report(run.mcmc).verdict.startswith("proved")
    assert str(run.kernel.report(run.path)) == str(run.kernel.report(run.mcmc))


@pytest.mark.filterwarnings("error:.*left by other data.*")
def test_the_draws_of_products_of_matrices_are_those_of_the_host(lib, tmp_path):
    run = Run(lib, TABLE["NaiveSplitHMC"], str(tmp_path / "run.zarr"), 0, 4, problem=mixed(lib))
    run.sample()
    for name, x in run.host_draws().items():
        np.testing.assert_allclose(run.loaded()[name], x, rtol=1e-10)


def test_arviz_takes_an_opened_store(lib, run):
    """Summary, trace plot and leave-one-out, of ArviZ 0.x and 1.x."""
    import arviz as az
    import matplotlib

    matplotlib.use("Agg")
    run.sample(num_samples=50, load=False)
    lib.split.log_likelihood(run.mcmc, open_store(run.path), into=run.path)
    opened = open_store(run.path)
    assert len(az.summary(opened)) == len(opened["posterior"].data_vars)
    found = az.loo(opened)
    assert 0 < (found.p_loo if hasattr(found, "p_loo") else found.p) < 10
    assert az.plot_trace(opened) is not None


@pytest.mark.parametrize(("every", "share"), [(1, 0.3), (7, 0.5), (7, 0.95)])
def test_a_run_that_dies_comes_to_the_same_draws(run, every, share):
    """What a process that is killed leaves: some of its writes, in their order."""
    whole = draws_in(run.sample(every=every, warmup=True), warmup=True)
    shutil.rmtree(run.path)
    with Death(int(share * WRITES_OF_A_RUN[every])) as died:
        run.try_to_sample(every=every, warmup=True)
    assert died.happened
    assert draws_in(run.sample(every=every, warmup=True), warmup=True) == whole


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE)
def test_every_kernel_goes_on(lib, tmp_path, name):
    """Of every kernel: stopped in warm-up, and after it, it comes to the draws of a run that was not."""
    run = Run(lib, TABLE[name], str(tmp_path / "run.zarr"), num_warmup=40, num_samples=24, problem=mixed(lib))
    whole = draws_in(run.sample(every=8))
    for share in (0.3, 0.8):
        shutil.rmtree(run.path)
        with Death(int(share * 24)) as died:
            run.try_to_sample(every=8)
        assert died.happened
        assert draws_in(run.sample(every=8)) == whole


def start(lib, kernel, path, tmp_path, *options):
    """Run in a process of its own; its exit code."""
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.killed_run", lib.name, kernel, path, *options]
    return subprocess.run(command, env=environment, cwd=ROOT).returncode


@pytest.mark.slow
@pytest.mark.parametrize("name", KILLED)
def test_kill_9(lib, tmp_path, name):
    """At random moments; a run that ends before begins anew. ``SPLIT_MCMC_KILLS`` takes another number of them."""
    whole, path = str(tmp_path / "whole.zarr"), str(tmp_path / "run.zarr")
    assert start(lib, name, whole, tmp_path) == 0
    expected = draws_in(open_store(whole, warmup=True), warmup=True)
    random, count, goal = np.random.default_rng(len(name)), 0, int(os.environ.get("SPLIT_MCMC_KILLS", 5))
    while count < goal or start(lib, name, path, tmp_path):
        ended = start(lib, name, path, tmp_path, "--seconds", str(random.exponential(0.3)))
        assert ended in (0, -signal.SIGKILL)
        count += ended != 0
        if ended == 0:
            assert draws_in(open_store(path, warmup=True), warmup=True) == expected
            shutil.rmtree(path)
    assert draws_in(open_store(path, warmup=True), warmup=True) == expected


class TestProcesses:
    """Pyro's chains in processes of their own."""

    @pytest.fixture
    def lib(self, monkeypatch):
        if "pyro" not in PACKAGES:
            pytest.skip("needs Pyro")
        import torch.multiprocessing

        monkeypatch.setattr(torch.multiprocessing, "cpu_count", lambda: 8)
        lib = PyroBackend()
        lib.set_precision(64)
        return lib

    def run(self, lib, path, context, **options):
        problem = Problem(lib.picklable_model(), data(lib), {})
        return Run(lib, TABLE["NaiveSplitHMC"], path, problem=problem, num_chains=2, mp_context=context, **options)

    def test_no_bar_is_shown_where_none_is_asked_for(self, lib, tmp_path, capfd):
        self.run(lib, str(tmp_path / "run.zarr"), "fork").sample(every=6)
        assert "it/s" not in capfd.readouterr().err

    @pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
    def test_the_draws_are_those_of_one_process(self, lib, tmp_path, monkeypatch, context):
        run = self.run(lib, str(tmp_path / "run.zarr"), context)
        found = draws_in(run.sample(every=6))
        assert run.loaded()["w"].shape == (2, 20, 2)
        assert len(run.mcmc.diagnostics()["num_steps"]["chain 1"]) == 20
        monkeypatch.setattr("torch.multiprocessing.cpu_count", lambda: 1)
        assert draws_in(self.run(lib, str(tmp_path / "one.zarr"), None).sample(every=6)) == found
        monkeypatch.setattr("torch.multiprocessing.cpu_count", lambda: 8)
        longer = self.run(lib, str(tmp_path / "run.zarr"), context, num_samples=26)
        assert longer.sample(every=6).posterior.sizes["draw"] == 26

    def test_they_stop_when_they_are_told(self, lib, tmp_path):
        run = self.run(lib, str(tmp_path / "run.zarr"), "fork", num_samples=10**6)
        with pytest.warns(UserWarning, match="stopped after .* the time of 15 seconds is over"):
            found = run.sample(every=10, stop_when=StopWhen(seconds=15))  # processes of a busy machine begin late
        assert 10 <= found.posterior.sizes["draw"] < 10**5
        with pytest.warns(UserWarning, match="the smallest effective sample size"):
            run.sample(every=10, stop_when=StopWhen(ess=1))

    def test_a_signal_to_all_processes_ends_the_run(self, lib, tmp_path):
        """As a terminal, `timeout` and systemd send it, to the process group; each chain finishes its draw."""
        run = self.run(lib, str(tmp_path / "run.zarr"), "fork", num_samples=10**6, hook_fn=terminate)
        with pytest.warns(UserWarning, match="stopped after .* SIGTERM"):
            found = run.sample(every=6)
        assert found.posterior.sizes["draw"] > 0

    @pytest.mark.parametrize("cores", [1, 8])
    def test_the_next_run_has_chains_of_its_own(self, lib, tmp_path, monkeypatch, cores):
        """Also where the first was complete; in turns and in processes they are the same."""
        monkeypatch.setattr("torch.multiprocessing.cpu_count", lambda: cores)
        runs = [self.run(lib, str(tmp_path / name), "fork") for name in ("one.zarr", "two.zarr")]
        first, second = (self.in_one_script(lib, runs) for _ in range(2))
        assert first == second
        assert len(first[0] | first[1]) == 4

    def in_one_script(self, lib, runs):
        """The chains of each run; the seed is set before the first alone."""
        lib.ppl.set_rng_seed(3)
        opened = [lib.split.sample(run.make(), *run.problem.args, store=run.path) for run in runs]
        return [{np.asarray(x.posterior["w"][chain]).tobytes() for chain in range(2)} for x in opened]

    def test_a_failure_is_told(self, lib, tmp_path):
        run = self.run(lib, str(tmp_path / "run.zarr"), "fork", hook_fn=fail)
        with pytest.raises(RuntimeError, match=r"chain \d failed:\n(.|\n)*hook fails"):
            run.sample(every=6)

    def test_a_death_is_told(self, lib, tmp_path):
        run = self.run(lib, str(tmp_path / "run.zarr"), "fork", hook_fn=die)
        with pytest.raises(RuntimeError, match=r"the process of chain \d died \(exit code -9\)"):
            run.sample(every=6)


def fail(kernel, position, stage, i):
    if "Sample" in stage and i == 3:
        raise ArithmeticError("the hook fails")


def die(kernel, position, stage, i):
    if "Sample [1]" in stage and i == 3:
        os.kill(os.getpid(), signal.SIGKILL)


def terminate(kernel, position, stage, i):
    if "Sample [1]" in stage and i == 3:
        os.kill(os.getppid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("lib", [PyroBackend], ids=["pyro"], indirect=True)
def test_what_comes_after_a_complete_run_is_as_after_the_run(lib, run):
    """A script with two runs, started again once the first is complete."""
    after = []
    for _ in range(2):
        run.sample()
        after.append(lib.ppl.sample("x", lib.dist.Normal(0.0, 1.0)))
    assert after[0] == after[1]


@pytest.mark.parametrize("lib", [NumPyroBackend], ids=["numpyro"], indirect=True)
@pytest.mark.parametrize("kind", ["tuple", "bfloat16"])
def test_a_site_that_cannot_be_stored_is_named(lib, tmp_path, kind):
    import jax.numpy as jnp
    import numpyro

    def model(X, y):
        w = numpyro.sample("w", lib.dist.Normal(0.0, jnp.ones(2)).to_event(1))
        numpyro.deterministic("pair", (w[0], w[1]) if kind == "tuple" else w.astype("bfloat16"))
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", lib.dist.Normal(X @ w, 1.0), obs=y)

    problem = Problem(model, (jnp.ones((6, 2)), jnp.arange(6.0)), {})
    with pytest.raises(ValueError, match=f"one array of numbers .* got {kind} at site 'pair'"):
        Run(lib, TABLE["NaiveSplitHMC"], str(tmp_path / "run.zarr"), problem=problem).sample()


class TestChainMethods:
    """NumPyro's chains, however they move, go on to the draws of a run that was not stopped."""

    @pytest.mark.parametrize(
        ("method", "options"),
        [
            pytest.param("sequential", {"thinning": 2}, marks=pytest.mark.slow),
            ("vectorized", {"jit_model_args": True}),
            pytest.param("parallel", {}, marks=pytest.mark.slow),
            pytest.param("vmap", {}, marks=pytest.mark.slow),
        ],
    )
    def test_they_go_on(self, tmp_path, method, options):
        if "numpyro" not in PACKAGES:
            pytest.skip("needs NumPyro")
        import jax

        lib, method = NumPyroBackend(), jax.vmap if method == "vmap" else method
        options = {**options, "num_chains": 2, "chain_method": method}
        run = Run(lib, TABLE["NaiveSplitHMC"], str(tmp_path / "run.zarr"), **options)
        fields = {"extra_fields": ("adapt_state.step_size", "~z.tau")} if method == "sequential" else {}
        whole = draws_in(run.sample(every=6, **fields))
        if fields:
            extra = run.mcmc.get_extra_fields(group_by_chain=True)
            assert extra["adapt_state.step_size"].shape == extra["step_size"].shape == (2, 10)
            assert "tau" not in run.loaded()
            with pytest.raises(ValueError, match="extra_fields must name arrays of the state, got 'opening_grad'"):
                Run(lib, TABLE["NaiveSplitHMC"], run.path + ".other").sample(extra_fields=("opening_grad",))
        if method in ("sequential", "vectorized"):
            for name, x in run.host_draws().items():
                if name in run.loaded():
                    np.testing.assert_allclose(run.loaded()[name], x, rtol=1e-6)
        shutil.rmtree(run.path)
        with Death(30) as died:
            run.try_to_sample(every=6, **fields)
        assert died.happened
        assert draws_in(run.sample(every=6, **fields)) == whole


def test_a_kernel_keeps_nothing_of_a_stored_run(lib, run):
    """Its next run starts as one of a new kernel does."""
    run.sample(every=7)
    mcmc = lib.mcmc(run.kernel, run.num_warmup, run.num_samples)
    for name, x in lib.host_draws(mcmc, *run.problem.args, seed=3).items():
        np.testing.assert_array_equal(x, lib.host_draws(run.make(), *run.problem.args, seed=3)[name])


def test_data_changed_in_place_are_seen(lib, run):
    X, y = run.problem.args
    mine = lib.mutable(y)
    run.sample(every=7, args=(X, mine))
    kernel = run.kernel
    mine += 1.0
    with pytest.raises(StoreError, match="another data"):
        run.sample(every=7, args=(X, mine))
    run.path += ".other"
    changed = draws_in(lib.sample(lib.mcmc(kernel, run.num_warmup, run.num_samples), X, mine, store=run.path, every=7))
    run.path += ".fresh"
    assert changed == draws_in(run.sample(every=7, args=(X, lib.array(mine))))


@pytest.mark.parametrize("lib", [PyroBackend], ids=["pyro"], indirect=True)
def test_other_values_of_params_are_seen(lib, tmp_path):
    """Also from a start whose energy does not see them."""

    def model(X, y):
        gain = lib.ppl.param("gain", lib.array(1.0))
        w = lib.ppl.sample("w", lib.dist.Normal(lib.np.zeros(X.shape[1]), 1.0).to_event(1))
        with lib.ppl.plate("data", len(X)):
            lib.ppl.sample("y", lib.dist.Normal(gain * X @ w, 1.0), obs=y)

    X, y = data(lib)[:2]

    def go_on(num_samples):
        kernel = lib.split.NaiveSplitHMC(model, num_subsets=2, num_steps=2)
        start = {"w": lib.np.zeros(X.shape[1])}
        mcmc = lib.ppl.infer.MCMC(kernel, num_samples, 2, initial_params=start, disable_progbar=True)
        lib.ppl.set_rng_seed(0)
        lib.split.sample(mcmc, X, y, store=tmp_path / "run.zarr", every=2)

    lib.ppl.clear_param_store()
    go_on(4)
    go_on(6)
    lib.ppl.get_param_store()["gain"] = lib.array(30.0)
    try:
        with pytest.raises(StoreError, match="another pyro.param.gain"):
            go_on(8)
    finally:
        lib.ppl.clear_param_store()


def test_log_likelihoods_of_another_run_are_refused(lib, run):
    run.sample()
    X, y = run.problem.args
    other = run.make()
    lib.host_draws(other, X, y + 1.0, seed=3)
    with pytest.raises(StoreError, match="draws must be those of the run"):
        lib.split.log_likelihood(other, into=run.path)


def test_bad_input(lib, run):
    for options, message in (
        ({"every": 0}, "every must be a whole number of at least 1, got 0"),
        ({"keep": "all"}, "keep must be one of"),
        ({"warmup": 1}, "warmup must be True or False, got 1"),
        ({"load": "no"}, "load must be True or False, got 'no'"),
        ({"stop_when": 400}, "stop_when must be a StopWhen or None, got 400"),
        ({"stop_when": StopWhen(ess=10**6)}, "stop_when with ess or rhat must have at least 100 draws"),
        ({"stop_on": ("SIGKILL",)}, "stop_on must name signals"),
        ({"stop_on": "SIGTERM"}, "stop_on must be a tuple"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            run.sample(**options)
    with pytest.raises(TypeError, match="must have been run with a kernel of this package"):
        lib.split.sample("mcmc", 0, store=run.path)
    assert not os.path.exists(run.path)


@pytest.mark.parametrize("name", ["chain", "w_dim_0"])
def test_a_site_named_like_a_dimension_is_refused(lib, tmp_path, name):
    """By a stored run alone."""

    def model(y):
        w = lib.ppl.sample("w", lib.dist.Normal(lib.np.zeros(2), lib.np.ones(2)).to_event(1))
        shift = lib.ppl.sample(name, lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        with lib.ppl.plate("data", y.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(w.sum() + shift, 1.0), obs=y)

    run = Run(lib, TABLE["NaiveSplitHMC"], str(tmp_path / "run.zarr"), 2, 3, Problem(model, data(lib)[1:], {}))
    with pytest.raises(ValueError, match=f"must not be named like a dimension of .* in the store, got '{name}'"):
        run.sample()
    assert not os.path.exists(run.path)
    assert run.host_draws()[name].shape == (1, 3)


def test_other_types_of_numbers_are_refused(lib, run):
    """Draws of 32 bits would follow draws of 64."""
    run.sample(every=6)
    if lib.name == "numpyro":
        import jax

        with jax.enable_x64(False), pytest.raises(StoreError, match="another setting jax_enable_x64: True in the"):
            run.sample(every=6)
    else:
        import torch

        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        try:
            with pytest.raises(
                StoreError, match=r"another default type: torch\.float64 in the store, got torch\.float32"
            ):
                run.sample(every=6)
        finally:
            torch.set_default_dtype(before)


def test_another_run_is_refused(lib, run):
    run.sample(every=6)
    X, y = run.problem.args
    with pytest.raises(StoreError, match="another data"):
        run.sample(every=6, args=(X, y + 1))
    run.options = {"max_tree_depth": 3}
    with pytest.raises(StoreError, match="another kernel argument"):
        run.sample(every=6)
    run.options, own = {}, run.problem
    run.problem = mixed(lib)
    with pytest.raises(StoreError, match="another model"):
        run.sample(every=6, args=(X, y))
    run.problem, run.entry = own, TABLE["SymmetricSplitHMC"]
    with pytest.raises(StoreError, match="another kernel"):
        run.sample(every=6)


@pytest.mark.parametrize("name", ["SplitHMC", "SymmetricSplitHMC", "WindowedHMC", "SplitNUTS", "PenaltyMH"])
def test_the_step_size_of_a_run_is_that_of_its_store(lib, run, name):
    """What warm-up adapted to, not the length of the last step, which is drawn or shortened to fit."""
    run.entry = TABLE[name]
    run.options = {"num_steps": 3} if name in ("SymmetricSplitHMC", "WindowedHMC") else {}
    run.sample(every=6)
    assert lib.split.step_size_of(run.mcmc) == pytest.approx(lib.split.step_size_of(run.path), rel=1e-6)


def test_a_run_on_more_data_starts_from_the_metric_of_a_store(lib, run):
    run.sample(every=6)
    found = lib.split.metric_of(run.path)
    assert {site for sites in found for site in sites} == set(run.loaded())
    for sites, block in lib.split.metric_of(run.mcmc).items():
        np.testing.assert_array_equal(lib.to_numpy(block), lib.to_numpy(found[sites]))
    step_size = lib.split.step_size_of(run.path)
    run.options = {"inverse_mass_matrix": found, "step_size": step_size, "adapt_mass_matrix": False}
    X, y = run.problem.args
    run.path += ".more"
    run.sample(every=6, args=tuple(lib.array(np.concatenate([lib.to_numpy(x)] * 2)) for x in (X, y)))
    with pytest.raises(ValueError, match="with a kernel that centres"):
        lib.split.center_of(run.path)


def test_observed_data_of_which_files_are_missing_are_left_out(lib, run):
    """Read as the zeros that zarr fills in, they would be compared with predictions."""
    run.sample()
    assert "observed_data" in open_store(run.path).groups()
    shutil.rmtree(Path(run.path) / "observed_data" / "y" / "c")
    with pytest.warns(UserWarning, match="lacks files of its observed_data, which are left out"):
        opened = open_store(run.path)
    assert "observed_data" not in opened.groups()
    assert opened.posterior.sizes["draw"] == run.num_samples


def test_a_chain_whose_progress_cannot_be_read_is_missed_aloud(run):
    run.sample()
    (Path(run.path) / "chains" / "0" / "zarr.json").write_text("")
    with pytest.warns(UserWarning, match=r"how far each chain is, got chains/0/zarr.json that cannot be read"):
        open_store(run.path)
