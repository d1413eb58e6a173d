"""Pyro: rows over ranks of a process group, and chains over processes, in two processes started by ``torchrun``."""

import os
import pickle
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from split_common.errors import StoreError
from tests import kernels, rank_run
from tests.backends import PyroBackend

ROOT = Path(__file__).parents[1]
TOLERANCE = 1e-10
SECONDS = 240  # for a pair of processes
LENGTHS = (4, 6)
QUICK = ("SplitHMC", "SplitNUTS", "PenaltyMH")
M = 2
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def torchrun(*script, num=2):
    """Run a script in so many processes; what it prints."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num)]
    done = subprocess.run(
        [*launcher, *map(str, script)], cwd=ROOT, env=ENVIRONMENT, timeout=SECONDS, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def launch(folder, *options, num=2):
    """What each rank finds, by job."""
    torchrun("-m", "tests.rank_run", folder, *options, num=num)
    return findings(folder, num)


def ranks_of_two():
    """The environment that ``torchrun`` gives to each of two processes."""
    with socket.socket() as at:
        at.bind(("localhost", 0))
        port = str(at.getsockname()[1])
    common = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    return [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]


def findings(folder, num=2):
    return [pickle.loads((folder / f"{rank}.pickle").read_bytes()) for rank in range(num)]


@pytest.fixture
def lib():
    return PyroBackend()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where they write it, and their stores."""
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def found(folder):
    """What two ranks find in the jobs of all quick tests."""
    jobs = ("draws", "influential", "counts", "chosen", "faults", "parted", "precisions", "stored")
    of_draws = ("--kernels", *QUICK, "--lengths", *LENGTHS, "--model", "small")
    return launch(folder, *jobs, *of_draws)


def of_one_process(lib, model, name, num_warmup, num_samples):
    """What one process with all rows finds, its subsets made of the same rows."""
    kind = kernels.TABLE[name].name
    order = range(rank_run.NUM_ROWS) if kind in rank_run.FEW_ROWS else rank_run.INTERLEAVED
    return rank_run.run(lib, name, rank_run.all_rows(lib, order), num_warmup, num_samples, model=model)


def of_two_shards(lib, model, name, num_warmup, num_samples):
    """What one process finds that adds up the terms of the ranks' rows in the ranks' order."""
    if kernels.TABLE[name].name in rank_run.FEW_ROWS:
        return of_one_process(lib, model, name, num_warmup, num_samples)
    with rank_run.in_two_shards():
        return rank_run.run(lib, name, rank_run.all_rows(lib), num_warmup, num_samples, model=model)


def check_draws(reference, lib, model, by_rank, num_warmup, num_samples):
    first, second = (found["draws"] for found in by_rank)
    for name in first:
        alone = reference(lib, model, name, num_warmup, num_samples)
        assert first[name].keys() == second[name].keys() == alone.keys()
        for what, expected in alone.items():
            np.testing.assert_array_equal(first[name][what], second[name][what], err_msg=f"{name}: {what}")
            np.testing.assert_allclose(
                first[name][what], expected, rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"{name}: {what}"
            )
        assert any(np.ptp(x) > 0 for what, x in alone.items() if not what.startswith("statistic"))


def test_two_ranks_draw_what_one_process_draws(lib, found):
    check_draws(of_one_process, lib, kernels.small(lib).model, found, *LENGTHS)


@pytest.mark.slow
def test_every_kernel_draws_on_two_ranks_what_it_draws_on_one(lib, tmp_path):
    """Given the same two shards, over 50 iterations, half of them of warm-up."""
    found = launch(tmp_path, "draws", "--kernels", *kernels.TABLE)
    check_draws(of_two_shards, lib, kernels.mixed(lib).model, found, rank_run.WARMUP, rank_run.DRAWS)


def test_influential_rows_are_found_among_all_and_read_by_who_holds_them(lib, found):
    rows, draws = rank_run.influential(lib, None)
    assert {7, 260, 391} <= set(rows)
    for own_rows, own_draws in (each["influential"] for each in found):
        np.testing.assert_array_equal(own_rows, rows)
        np.testing.assert_allclose(own_draws, draws, rtol=TOLERANCE, atol=TOLERANCE)


def test_the_rank_that_needs_most_subsets_says_how_many(found):
    needed = max(-(-len(rows) // 5) for rows in rank_run.SHARDS)
    assert min(-(-len(rows) // 5) for rows in rank_run.SHARDS) < needed
    for num_subsets, verdict, sizes in (each["chosen"] for each in found):
        assert num_subsets == len(sizes) == needed
        assert sum(sizes) == rank_run.NUM_ROWS
        assert f"num_subsets={needed} chosen, which is the most that a rank needs" in verdict


def test_a_kick_is_one_message(found):
    """Of D numbers and at most 4; the energies at the end of a trajectory are one of at most 2 (M + 1)."""
    for counts in (each["counts"] for each in found):
        D = counts["size"]
        assert counts["kick"] == counts["closing kick"] == [D + 3]
        assert counts["energies"] == [M + 2]
        assert M + 2 <= 2 * (M + 1)
        assert counts["gradient"] == [D + M + 2]
        # three steps of 2M kicks, of which those that close a step open the next; energies are one message at most
        assert all(size in (D + 3, M + 2) for size in counts["SymmetricSplitHMC"])
        assert counts["SymmetricSplitHMC"].count(D + 3) <= 3 * 2 * M
        assert counts["SymmetricSplitHMC"].count(M + 2) <= 1
        assert len(counts["PenaltyMH"]) == 1  # proposals follow the surrogate, which reads no row
        assert counts["SGLD"] == [D + 3]


ON_ALL = {  # fault: what every rank hears of it
    "few rows": ("on rank 1 of 2", "num_subsets", "got 4"),
    "one row": ("on rank 1 of 2", "rows of each rank", "got 1"),
    "seeds": ("random numbers", "same seed"),
    "options": ("target_accept_prob", "0.7 on rank 0", "on rank 1"),
    "kernels": ("kernel", "SplitNUTS", "SplitHMC"),
    "warm-up": ("warmup_steps", "2", "3"),
    "types": ("argument X", "float64", "float32"),
    "columns": ("argument X", "(rows, 2)", "(rows, 3)"),
    "models": ("model", "rank 1"),
    "defaults": ("model",),
    "local latents": ("outside the data plate", "['u']"),
    "rows that meet": ("that row alone", "mean"),
    "a prior of rows": ("outside the data plate",),
    "a reading of rows": ("that row alone", "rank_run.py", "Python reads a value that rests on the rows"),
    "a prior that differs": ("outside its data plate", "same on all ranks"),
    "a likelihood that differs": ("the first 8 rows of rank 0", "same on all ranks"),
    "a likelihood of indices that differs": ("the first 8 rows of rank 0", "same on all ranks"),
    "a mean that is kept": ("the first 8 rows of rank 0", "same on all ranks"),
    "a failure": ("on rank 1 of 2", "no such column"),
    "a batch too large": ("batch_size", "25", "26"),
    "starting points": ("initial_params", "rank 1"),
}


def test_ranks_that_differ_are_refused_on_every_rank(found):
    first, second = (each["faults"] for each in found)
    alike = {"none", "none, of indices"}
    assert all(found[name] is None for found in (first, second) for name in alike)
    assert first.keys() == second.keys() == {*ON_ALL, *alike}
    for fault, words in ON_ALL.items():
        assert first[fault] == second[fault], fault
        kind, text = first[fault]
        assert kind in ("RanksError", "ValueError"), (fault, kind, text)
        assert all(word in text for word in words), (fault, text)


def test_positions_that_part_are_noticed(found):
    """Where gradients are not reduced, or energies, and where one rank's chain is moved."""
    first, second = (each["parted"] for each in found)
    assert first == second
    for said in first.values():
        assert said is not None
        kind, text = said
        assert kind == "RanksError"
        assert "positions must be the same" in text
    assert "in iteration 6: " in first["moved"][1]
    assert "others on ranks [1]" in first["moved"][1]


def test_a_stored_run_goes_on_over_ranks(found):
    first, second = (each["stored"] for each in found)
    for stored in (first, second):
        assert stored["death"] == ("OSError", "the machine is gone")
        assert stored["steps"] == ("SplitNUTS", 12)
        np.testing.assert_array_equal(stored["gone on"], stored["whole"])
        np.testing.assert_array_equal(stored["extended"][:, :12], stored["whole"])
        np.testing.assert_array_equal(stored["extended"], first["extended"])
        assert stored["not loaded"] is None
    assert first["other rows"][0] == first["other length"][0] == "StoreError"
    assert "data[0] of shard 1" in first["other rows"][1]
    for fault in ("other rows", "other length"):
        kind, text = second[fault]
        assert kind == "RanksError"
        assert first[fault][1] in text


@pytest.mark.parametrize("group", [None, "world"])
def test_a_run_of_two_ranks_goes_on_in_one_process(lib, found, folder, tmp_path, one_rank, group):
    """To the same draws, bit for bit; with the same rows in the same order, and no others."""
    store = shutil.copytree(folder / "left.zarr", tmp_path / "left.zarr")

    def go_on(rows):
        lib.ppl.set_rng_seed(7)
        kernel = kernels.TABLE["SplitNUTS"].make(lib, kernels.small(lib).model, process_group=group)
        mcmc = lib.mcmc(kernel, 8, 12, hook_fn=None)
        lib.split.sample(mcmc, *rank_run.all_rows(lib, rows), store=store, every=4)
        return mcmc.get_samples(group_by_chain=True)["a"].numpy()

    assert found[0]["stored"]["left"] == ("OSError", "the machine is gone")
    everything = list(range(rank_run.NUM_ROWS))
    with pytest.raises(ValueError, match=r"15 \+ 10 rows in the store, got 24"):
        go_on(everything[:-1])
    with pytest.raises(ValueError, match=r"another data\[0\]: .*; another data\[0\] of shard 1"):
        go_on(everything[::-1])
    np.testing.assert_array_equal(go_on(everything), found[0]["stored"]["whole"])


@pytest.mark.parametrize("group", [None, "world"])
def test_a_run_on_a_table_goes_on_in_one_process(lib, found, folder, tmp_path, one_rank, group):
    """Whose rows are numbered from 0 on each rank, and through in one process."""
    store = shutil.copytree(folder / "table left.zarr", tmp_path / "left.zarr")
    lib.ppl.set_rng_seed(7)
    kernel = kernels.TABLE["SplitNUTS"].make(lib, rank_run.of_table(lib), process_group=group)
    mcmc = lib.mcmc(kernel, 8, 12, hook_fn=None)
    assert found[0]["stored"]["table left"] == ("OSError", "the machine is gone")
    lib.split.sample(mcmc, rank_run.frame(rank_run.all_rows(lib)), store=store, every=4)
    np.testing.assert_array_equal(mcmc.get_samples(group_by_chain=True)["a"], found[0]["stored"]["table"])


def test_rows_that_a_model_closes_over_are_known_of_every_rank(found):
    """A rank's rows that changed are refused; the first rank's own model is what it was."""
    first, second = (each["stored"] for each in found)
    assert first["held"] is None
    kind, text = first["held changed"]
    assert kind == "StoreError"
    assert "another model of shard 1" in text
    assert text in second["held changed"][1]


def test_a_run_of_a_potential_goes_on_in_as_many_processes(lib):
    from pyro_split.runs.sample import _division

    about = {"shards": [15, 10], "num_subsets": 2, "split": None}
    with pytest.raises(StoreError, match="SplitPotential, which holds its rows, must be as many as began it, 2, got 1"):
        _division(about, None, "run.zarr")


def test_the_mass_of_a_precision_counts_the_rows_of_all_ranks(lib, found):
    """Of the noise Q/2 + alpha - 1, of all rows; else ranks would differ where shards do."""
    alone = rank_run.precisions(lib, None)
    np.testing.assert_array_equal(alone["one"], rank_run.NUM_ROWS / 2 + 1)
    assert alone["by group"].sum() == rank_run.NUM_ROWS / 2 + 2
    for each in found:
        for name, expected in alone.items():
            np.testing.assert_array_equal(each["precisions"][name], expected)


@pytest.mark.slow
def test_a_run_of_four_ranks_goes_on_in_two_and_in_no_three(tmp_path):
    """To the same draws but for rounding, since sums of four come in another order."""
    of_four = launch(tmp_path, "divided", num=4)
    whole, death = of_four[0]["divided"]
    assert death == ("OSError", "the machine is gone")
    with pytest.raises(AssertionError, match="as many as divide its 4 shards of rows, got 3"):
        launch(tmp_path, "divided", num=3)
    first, second = (each["divided"] for each in launch(tmp_path, "divided"))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, whole, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.slow
def test_where_one_process_dies_the_other_ends_and_the_store_goes_on(tmp_path):
    """Within two minutes: at once here, as its connection is closed. To the draws of a run that was never stopped."""
    worker = [sys.executable, "-m", "tests.rank_run", str(tmp_path), "dies"]
    processes = [
        subprocess.Popen(worker, cwd=ROOT, env=ENVIRONMENT | rank, stderr=subprocess.DEVNULL) for rank in ranks_of_two()
    ]
    started = time.monotonic()
    try:
        codes = [process.wait(timeout=SECONDS) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert time.monotonic() - started < 120
    assert codes[1] == -9
    kind, text = pickle.loads((tmp_path / "0.pickle").read_bytes())["dies"]
    assert kind == "RuntimeError", text
    for found in launch(tmp_path, "dies"):
        np.testing.assert_array_equal(*found["dies"])


@pytest.mark.parametrize("value", [0, "all", True, [0, 1], object()])
def test_what_is_no_group_is_refused(lib, value):
    with pytest.raises(ValueError, match="process_group must be None, 'world' or a group"):
        lib.split.SplitHMC(lambda y: None, 2, process_group=value)


def test_a_group_must_be_there(lib):
    with pytest.raises(ValueError, match="init_process_group"):
        lib.split.SGLD(lambda y: None, step_size=0.1, process_group="world")


@pytest.fixture
def one_rank():
    """A group of this process alone."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
class TestOneRank:
    """A group of this process alone."""

    @pytest.mark.parametrize("name", ["SplitHMC", "SGHMC"])
    def test_draws_what_no_group_draws(self, lib, name):
        args, lengths = rank_run.all_rows(lib), {"num_warmup": 2, "num_samples": 4, "model": kernels.small(lib).model}
        over, alone = (rank_run.run(lib, name, args, **lengths, process_group=group) for group in ("world", None))
        for what, expected in alone.items():
            np.testing.assert_allclose(over[what], expected, rtol=TOLERANCE, atol=TOLERANCE)

    def test_a_report_and_a_conversion(self, lib):
        kernel = kernels.TABLE["SplitHMC"].make(lib, kernels.small(lib).model, process_group="world")
        mcmc = lib.run(kernel, *rank_run.all_rows(lib), num_warmup=20, num_samples=20)
        assert "how the model divides: proved" in str(kernel.report(mcmc))
        found = lib.split.to_inference_data(mcmc, log_likelihood=True)
        assert found.log_likelihood["y"].shape == (1, 20, rank_run.NUM_ROWS)

    def test_a_group_of_its_own(self, lib):
        import torch.distributed as dist

        args, lengths = rank_run.all_rows(lib), {"num_warmup": 2, "num_samples": 4, "model": kernels.small(lib).model}
        found = [
            rank_run.run(lib, "SplitHMC", args, **lengths, process_group=group)
            for group in (dist.new_group([0]), "world")
        ]
        np.testing.assert_array_equal(found[0]["a"], found[1]["a"])

    def test_a_potential_of_functions(self, lib):
        potential, z = kernels.potential(lib, 2)
        kernel = lib.split.SplitHMC(potential, process_group="world")
        mcmc = lib.run(kernel, num_warmup=2, num_samples=2, init_params=z)
        assert mcmc.get_samples()["w"].shape == (2, kernels.DIM)

    def test_a_potential_of_a_model_is_refused(self, lib):
        model, args = kernels.small(lib).model, rank_run.all_rows(lib)
        kernel = lib.split.SplitHMC(lib.split.split_model(model, args, num_subsets=2), process_group="world")
        with pytest.raises(ValueError, match="model must be the model itself"):
            lib.run(kernel, num_warmup=2, num_samples=2, init_params={"a": lib.array(0.0), "tau": lib.array(0.0)})

    def test_what_python_reads_must_not_rest_on_the_rows(self, lib):
        def checked(X, y):
            assert bool((y.abs() < 100).all())  # the same on any rows
            kernels.small(lib).model(X, y)

        def shifted(X, y):
            kernels.small(lib).model(X, y - y.mean().item())

        def setup(model):
            lib.split.SplitHMC(model, 2, process_group="world").setup(2, *rank_run.all_rows(lib))

        setup(checked)
        with pytest.raises(ValueError, match=r"test_ranks.py:\d+: Python reads a value that rests on the rows"):
            setup(shifted)

    def test_chains_in_processes_of_their_own_are_refused(self, lib):
        kernel = lib.split.SplitHMC(kernels.mixed(lib).model, 2, process_group="world")
        kernel._pid += 1  # as in a process that was forked
        with pytest.raises(ValueError, match="in the process that made the kernel"):
            kernel.setup(2, *rank_run.all_rows(lib))


def test_rows_that_influence_are_chosen_together():
    """Two processes choose, of their own rows, what one chooses of all."""
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier

    from split_common.certainty import Everyone, most_influential
    from split_common.penalty import Batches

    changes, batches = np.random.default_rng(0).standard_normal((4, 1000)), Batches(1000, 5, 4)
    changes[:, [7, 400, 800]] *= 1000
    alone, starts = most_influential([changes], batches), [0, 300, 1000]
    barrier, given = Barrier(2), [None, None]

    def choose(rank):
        def of_all(value):
            given[rank] = value
            barrier.wait()
            values = list(given)
            barrier.wait()
            return values

        mine = changes[:, starts[rank] : starts[rank + 1]]
        return most_influential([mine], batches, Everyone(starts[rank], of_all))

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(choose, range(2)))
    assert alone is not None
    assert {7, 400, 800} <= set(alone)
    for chosen in found:
        np.testing.assert_array_equal(chosen, alone)


@pytest.mark.slow
def test_the_example_of_two_processes():
    printed = torchrun("examples/pyro_two_processes.py", "--rows", 500, "--draws", 100)
    assert printed.startswith("1,000 rows on 2 ranks")
    assert printed.count("mean") == 1


@pytest.mark.slow
def test_the_example_of_chains(tmp_path):
    """One process a chain: different draws of one posterior, joined along the chains."""
    sys.path.insert(0, str(ROOT))
    from examples import pyro_chains

    torchrun("examples/pyro_chains.py", "--folder", tmp_path, "--draws", 200)
    found = pyro_chains.joined(tmp_path)
    assert found.posterior.sizes["chain"] == 2
    assert found.sample_stats.sizes["chain"] == 2
    first, second = found.posterior["w"].values
    assert not np.any(first == second)
    spread = found.posterior["w"].values.std((0, 1))
    assert np.all(abs(first.mean(0) - second.mean(0)) < spread)
