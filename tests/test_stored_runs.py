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

from split_common.runs.reading import open_store
from tests.kernels import TABLE, mixed
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


def killed(lib, kernel, path, moments, tmp_path):
    """Run in processes that are killed at these moments, then in one that is not; how many were killed in time."""
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled"), "OMP_NUM_THREADS": "1"}
    command, count = [sys.executable, "-m", "tests.killed_run", lib.name, kernel, path], 0
    for seconds in moments:
        ended = subprocess.run([*command, "--seconds", str(seconds)], env=environment, cwd=ROOT).returncode
        assert ended in (0, -signal.SIGKILL)
        count += ended != 0
    subprocess.run(command, env=environment, cwd=ROOT, check=True)
    return count


@pytest.mark.slow
@pytest.mark.parametrize("name", KILLED)
def test_kill_9(lib, tmp_path, name):
    """At random moments, one after the other; ``SPLIT_MCMC_KILLS`` takes another number of them."""
    num = int(os.environ.get("SPLIT_MCMC_KILLS", 5))
    moments = np.random.default_rng(len(name)).exponential(0.4, size=num)
    whole, path = str(tmp_path / "whole.zarr"), str(tmp_path / "run.zarr")
    killed(lib, name, whole, [], tmp_path)
    count = killed(lib, name, path, moments, tmp_path)
    assert count > num // 2
    assert draws_in(open_store(path, warmup=True), warmup=True) == draws_in(open_store(whole, warmup=True), warmup=True)
    print(f"killed {count} times")
