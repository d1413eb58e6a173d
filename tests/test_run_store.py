"""The store of a run, on chains of NumPy that cost nothing: every place to die, every file to damage."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from split_common.errors import StoreError
from split_common.runs import drive
from split_common.runs.chain_writer import Drawn
from split_common.runs.packed import Packed
from split_common.runs.plan import Plan
from split_common.runs.pointwise import Grid, Piece, Posterior, Rows, check_free, collected
from split_common.runs.reading import largest_rectangle, open_store, progress_of, report_of, summary_of
from split_common.runs.session import Criterion, Options, opened, run
from split_common.runs.starting import Found, found_in
from split_common.runs.stopping import StopWhen
from split_common.runs.store import SAMPLING, WARMUP, Form, RunStore, decoded
from split_common.runs.store_path import checked_path, is_held, locked
from tests.stored_run import Death, Killed, draws_in


class Walk:
    """Chains that take a step of an autoregression each time, with random numbers of their own."""

    def __init__(self, numbers, plan, size=2):
        self.numbers, self.plan, self.size, self.position = tuple(numbers), plan, size, 0
        self.x = np.zeros((len(self.numbers), size))
        self.random = [np.random.default_rng(number) for number in self.numbers]
        self.text = "walking"

    def go_on(self, packed):
        for k, one in enumerate(packed):
            self.x[k] = one.arrays["x"]
            self.random[k].bit_generator.state = one.values["random"]
        self.position = sum(packed[0].values["counts"])

    def advance(self, num):
        phase = WARMUP if self.position < self.plan.num_warmup else SAMPLING
        drawn = []
        for k, random in enumerate(self.random):
            draws = []
            for _ in range(num):
                self.x[k] = 0.5 * self.x[k] + random.normal(size=self.size)
                draws.append(self.x[k].copy())
            draws = np.array(draws)
            drawn.append(Drawn(phase, num, {"x": draws, "a/b": draws[:, 0]}, {"lp": -(draws**2).sum(1)}))
        self.position += num
        return drawn

    def states(self):
        return [
            Packed({"random": random.bit_generator.state}, {"x": self.x[k].copy()})
            for k, random in enumerate(self.random)
        ]

    def found(self):
        return [Found(1.0, {("x",): np.ones(2)}) for _ in self.numbers]

    def progress(self):
        return [{"seconds": 1.0, "settled": []} for _ in self.numbers]


class WalkStart:
    """The start of a run of such chains: each alone, or all together."""

    identity, about, start_energies = {"model": "walk"}, {"kernel": "Walk", "split": None}, [0.0]

    def __init__(self, plan, together):
        numbers = range(plan.num_chains)
        self.groups = [Walk(numbers, plan)] if together else [Walk([number], plan) for number in numbers]

    def forms(self):
        float64 = np.dtype("float64")
        return {"x": Form((2,), float64), "a/b": Form((), float64)}, {"lp": Form((), float64)}

    def observed(self):
        return {"y": np.arange(3.0)}


def sample(path, together=False, plan=None, stop_when=None, stop_on=("SIGTERM",), progress=lambda *_: None, **fields):
    plan = plan or Plan(num_chains=2, num_warmup=25, num_draws=130, every=30, keeps_warmup=True)
    plan = plan._replace(**fields)
    options = Options.checked(path, plan, stop_when, stop_on, False)
    with opened(options, lambda about: WalkStart(plan, together)) as (store, begun):
        reason = run(options, store, begun, progress)
    return open_store(path, warmup=True), reason


def with_slash(opened):
    """Name of the variable "a/b" in ArviZ's format: trees have no slash in names."""
    posterior = getattr(opened, "posterior", opened)
    return "a/b" if "a/b" in posterior else "a%2Fb"


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "run.zarr")


@pytest.fixture(scope="module", params=[False, True], ids=["one by one", "together"])
def whole(request, tmp_path_factory):
    """What a run that was never stopped has drawn, and where; how its chains move."""
    path = str(tmp_path_factory.mktemp("whole") / "run.zarr")
    return draws_in(sample(path, request.param)[0], warmup=True), path, request.param


def test_a_run_that_dies_before_any_of_its_writes_comes_to_the_same_draws(whole, path):
    expected, _, together = whole
    with Death(10**9) as alive:
        sample(path, together)
    for place in range(1, alive.count + 1, 4):
        shutil.rmtree(path)
        with Death(place), pytest.raises(Killed):
            sample(path, together)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # nothing is damaged
            with contextlib.suppress(StoreError):  # the run has only begun
                open_store(path, warmup=True)
            assert draws_in(sample(path, together)[0], warmup=True) == expected


def test_xarray_reads_a_finished_run_as_it_is(whole):
    """Without this package: as many draws as were made, in whole trees too."""
    import xarray

    _, path, _ = whole
    opened = open_store(path, warmup=True)
    tree = xarray.open_datatree(path, engine="zarr", consolidated=False)
    for group in ("posterior", "sample_stats", "warmup_posterior", "warmup_sample_stats"):
        plain, ours = tree[group].to_dataset(), opened[group]
        assert plain.sizes["draw"] == ours.sizes["draw"]
        for name in plain.data_vars:
            np.testing.assert_array_equal(plain[name], ours[name if name in ours else decoded(name)])


@pytest.mark.parametrize("together", [False, True])
def test_draws_that_come_fast_are_written_seldom_and_all_of_them(path, monkeypatch, together):
    monkeypatch.setattr(drive, "LONGEST_WAIT", 60.0)
    with Death(10**9) as alive:
        opened, _ = sample(path, together, num_draws=3000)
    # of 101 multiples of `every` a chain: the first, the end of warm-up, the last, and few between
    assert alive.count < 120
    assert draws_in(opened, warmup=True) == draws_in(sample(f"{path}2", together, num_draws=3000)[0], warmup=True)


def test_wide_draws_do_not_wait(path, monkeypatch):
    """What waits to be written has a bound in bytes, however fast draws come."""
    monkeypatch.setattr(drive, "LONGEST_WAIT", 60.0)
    monkeypatch.setattr(drive, "MOST_BYTES", 2 * 30 * (3 + 1) * 8)  # 30 draws of either chain
    waiting = []
    write = drive.Commits._write
    monkeypatch.setattr(
        drive.Commits,
        "_write",
        lambda self, chains: (waiting.append(sum(self._bytes.values())), write(self, chains))[1],
    )
    sample(path, num_draws=3000)
    assert max(waiting) <= 2 * drive.MOST_BYTES
    assert len(waiting) > 100


def damaged_files(path):
    """A few files of each kind, without those that say what the arrays are."""
    files = sorted(x for x in Path(path).rglob("*") if x.is_file() and x.name != "zarr.json")
    kinds = {}
    for file in files:
        kinds.setdefault(file.relative_to(path).parts[:3], []).append(file)
    return [file for group in kinds.values() for file in {group[0], group[len(group) // 2], group[-1]}]


@pytest.mark.parametrize("damage", ["truncated", "flipped", "emptied", "deleted"])
def test_what_is_damaged_is_drawn_again(whole, path, damage):
    expected, source, together = whole
    for file in damaged_files(source):
        if "observed_data" in str(file) or (
            file.parent.name == "c" and file.parent.parent.name.startswith(("chain", "draw"))
        ):
            continue  # no draws
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(source, path)
        hurt = Path(path) / file.relative_to(source)
        content = bytearray(hurt.read_bytes())
        content[len(content) // 2] ^= 0x10
        if damage == "deleted":
            hurt.unlink()
        else:
            hurt.write_bytes({"truncated": content[: len(content) // 2], "flipped": content, "emptied": b""}[damage])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert draws_in(sample(path, together)[0], warmup=True) == expected, file


def test_damage_is_told(whole, path):
    _, source, together = whole
    shutil.copytree(source, path)
    hurt = Path(path) / "posterior/x/c/1/0/0"
    hurt.write_bytes(hurt.read_bytes()[:-3])
    with pytest.warns(UserWarning, match="damaged: chain 1 is complete up to iteration 25 of warm-up"):
        sample(path, together)


@pytest.mark.parametrize("lost", ["chains", "chains/0", "chains/0/zarr.json"])
def test_a_chain_that_is_lost_is_told(whole, path, lost):
    """Of a run that only died before its first commit nothing is lost, and nothing told."""
    expected, source, together = whole
    shutil.copytree(source, path)
    place = Path(path) / lost
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    with pytest.warns(UserWarning, match="is damaged: chain 0 is complete up to"):
        opened, _ = sample(path, together)
    assert draws_in(opened, warmup=True) == expected
    shutil.rmtree(path)
    with Death(1), pytest.raises(Killed):
        sample(path, together)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sample(path, together)


@pytest.mark.parametrize("content", ["", '{"zarr_form', "[]"])
def test_a_chain_whose_progress_cannot_be_read_goes_on_without_it(whole, path, content):
    """As a power cut may leave it; states and draws are whole."""
    expected, source, together = whole
    shutil.copytree(source, path)
    hurt = Path(path) / "chains/0/zarr.json"
    hurt.write_text(content)
    with pytest.raises(StoreError, match=r"chains/0/zarr.json cannot be read .* delete this file"):
        sample(path, together)
    hurt.unlink()
    with pytest.warns(UserWarning, match="is damaged: chain 0 is complete up to draw 130"):
        opened, _ = sample(path, together)
    assert draws_in(opened, warmup=True) == expected


@pytest.mark.parametrize(
    ("lost", "left"),
    [("posterior/x/c/1/0/0", [130, 0]), ("sample_stats/lp/c/0/1", [120, 130]), ("posterior/a%2Fb/c/0/0", [0, 130])],
)
def test_draws_after_a_lost_file_are_not_opened(whole, path, lost, left):
    """Their places would hold what the array is filled with: NaN, or 0 for whole numbers."""
    expected, source, together = whole
    shutil.copytree(source, path)
    (Path(path) / lost).unlink()
    with pytest.warns(
        UserWarning,
        match=re.escape(
            f"lacks files of its draws, of which the chains have [130, 130]: those "
            f"after the first that is missing are left out, which leaves {left}"
        ),
    ):
        found = open_store(path)
    assert np.isfinite(found.posterior["x"]).all()
    assert np.isfinite(found.sample_stats["lp"]).all()
    assert found.posterior.sizes["draw"] in left
    with pytest.warns(UserWarning, match="is damaged"):
        opened, _ = sample(path, together)
    assert draws_in(opened, warmup=True) == expected


def test_a_lost_last_write_is_not_opened(whole, path):
    """After a crash of the machine a file may be as it was before its last write: filled up with NaN."""
    expected, source, together = whole
    shutil.copytree(source, path)
    hurt = Path(path) / "posterior/x/c/1/1/0"
    numbers = np.frombuffer(hurt.read_bytes()).reshape(-1, 2).copy()
    numbers[5:] = np.nan
    hurt.write_bytes(numbers.tobytes())
    message = "the newest of its draws are not those that were written"
    with pytest.warns(UserWarning, match=f"{message}.* which leaves {re.escape('[130, 120]')}"):
        found = open_store(path)
    assert found.posterior.sizes["draw"] == 120
    assert np.isfinite(found.posterior["x"]).all()
    with pytest.warns(UserWarning, match="is damaged"):
        opened, _ = sample(path, together)
    assert draws_in(opened, warmup=True) == expected


def test_draws_that_were_made_again_in_another_way_are_opened(whole, path, monkeypatch):
    """Another machine rounds differently; a state of the draws before may be left, and be the newest."""
    _, source, together = whole
    shutil.copytree(source, path)
    (Path(path) / "posterior/x/c/1/0/0").unlink()
    (Path(path) / "posterior/x/c/0/0/0").unlink()
    advance = Walk.advance

    def otherwise(self, num):
        self.x += 1e-9
        return advance(self, num)

    monkeypatch.setattr(Walk, "advance", otherwise)
    with Death(8), pytest.raises(Killed), pytest.warns(UserWarning, match="is damaged"):
        sample(path, together)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = open_store(path)
    assert 0 < found.posterior.sizes["draw"] < 130


@pytest.mark.parametrize(
    "left",
    [
        {"zarr.json": '{"zarr_format": 3, "node_type": "group", "attributes": {}}'},
        {"zarr.json": ""},
        {"zarr.0123.partial": '{"zarr_for'},
        {"zarr.json": "", "zarr.0123.partial": ""},
    ],
)
def test_a_store_whose_first_file_could_not_be_written_is_begun_again(whole, path, left):
    """Where the disk was full, or the process died in that moment."""
    expected, _, together = whole
    Path(path).mkdir()
    for name, text in left.items():
        (Path(path) / name).write_text(text)
    with pytest.raises(StoreError, match="where nothing is"):
        open_store(path)
    assert draws_in(sample(path, together)[0], warmup=True) == expected


def test_what_is_no_store_is_not_written_over(path):
    Path(path).mkdir()
    (Path(path) / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {"title": "mine"}}')
    with pytest.raises(StoreError, match="which is neither"):
        sample(path)
    for text in ("[]", "{}", '{"zarr_format": 3, "node_type": "array", "shape": [0], "attributes": {}}'):
        (Path(path) / "zarr.json").write_text(text)
        with pytest.raises(StoreError, match="which is neither|or of nothing"):
            sample(path)
        assert (Path(path) / "zarr.json").read_text() == text
    (Path(path) / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    (Path(path) / "data").mkdir()
    with pytest.raises(StoreError, match="which is neither|or of nothing"):
        sample(path)
    assert (Path(path) / "data").is_dir()


def test_a_run_that_has_only_begun_has_no_draws_yet(path):
    plan = Plan(num_chains=2, num_warmup=25, num_draws=130, every=30, keeps_warmup=True)
    RunStore.begin(path, plan, {}, {"kernel": "Walk"}, [0.0, 0.0])
    for read in (open_store, report_of):
        with pytest.raises(StoreError, match="whose run has begun and has made no arrays yet"):
            read(path)


def test_an_address_of_a_local_file_is_its_path(path):
    found, _ = sample(f"file://{path}")
    assert draws_in(found) == draws_in(open_store(path))


def test_a_group_of_fewer_draws_than_the_run_has_is_left_out(whole, path):
    """Of a run that was extended since; of one that was not, the group is not written again."""
    _, source, together = whole
    shutil.copytree(source, path)

    def put():
        posterior, grid = Posterior.of(open_store(path)), Grid(4, 4, 100)
        ones = (
            Piece(batch, Rows(0, 4, 0), {"y": np.ones((batch.stop - batch.start, 4))})
            for batch in posterior.batches(100)
        )
        check_free(path, "log_likelihood")
        return collected(ones, posterior, grid, {"y": -1}, "log_likelihood", path)

    put()
    assert open_store(path).log_likelihood.sizes["draw"] == 130
    with pytest.raises(StoreError, match="into must hold no group 'log_likelihood' yet"):
        put()
    sample(path, together, num_draws=300)
    told = r"left out: they are of draws 0 to 129 \(130\) of chains \[0, 1\], where the run now has draws 0 to 299 "
    with pytest.warns(UserWarning, match=told):
        assert "log_likelihood" not in open_store(path)
    with pytest.warns(UserWarning, match="They can be written again"):
        put()
    assert open_store(path).log_likelihood.sizes["draw"] == 300
    (Path(path) / "posterior/x/c/1/1/0").unlink()
    with (
        pytest.warns(UserWarning, match="lacks files of its draws"),
        pytest.warns(UserWarning, match="where the run now has draws 0 to 299"),
    ):
        assert "log_likelihood" not in open_store(path)


def test_log_likelihoods_of_some_draws_are_no_part_of_a_run(whole, path):
    """Of an ``mcmc`` of a shorter run that the store has gone on from, say."""
    _, source, _ = whole
    shutil.copytree(source, path)
    few = Posterior.of(open_store(path).posterior.isel(draw=slice(100)))
    with pytest.raises(StoreError, match=r"those of the run, draws 0 to 129 .*, got draws 0 to 99 \(100\) of chains"):
        collected([], few, Grid(4, 4, 100), {"y": -1}, "log_likelihood", path)


def test_a_longer_run_goes_on(whole, path):
    _, source, together = whole
    shutil.copytree(source, path)
    longer = draws_in(sample(path, together, num_draws=300)[0], warmup=True)
    shutil.rmtree(path)
    assert longer == draws_in(sample(path, together, num_draws=300)[0], warmup=True)
    with pytest.raises(StoreError, match="at most 290 draws a chain"):
        sample(path, together, num_draws=290)
    with pytest.raises(StoreError, match=r"same every .* with 30, and 10 now"):
        sample(path, together, num_draws=300, every=10)


@pytest.mark.parametrize("num_draws", [130, 300])
def test_a_run_that_died_while_it_was_lengthened_goes_on(whole, path, monkeypatch, num_draws):
    """Between two arrays, by the call that lengthened it and by the one that made it."""
    import zarr

    _, source, together = whole
    shutil.copytree(source, path)
    own, count = zarr.Array.resize, []

    def resize(*args):
        count.append(1)
        if len(count) == 2:
            raise Killed
        own(*args)

    monkeypatch.setattr(zarr.Array, "resize", resize)
    with pytest.raises(Killed):
        sample(path, together, num_draws=300)
    monkeypatch.undo()
    found = draws_in(sample(path, together, num_draws=num_draws)[0], warmup=True)
    shutil.rmtree(path)
    assert found == draws_in(sample(path, together, num_draws=num_draws)[0], warmup=True)


def test_what_there_is_is_opened(path):
    with Death(25), pytest.raises(Killed):
        sample(path)
    opened, found = open_store(path, warmup=True), progress_of(path)
    draws = [chain["draws"] for chain in found.chains]
    assert opened.posterior.attrs["draws_by_chain"] == draws
    assert 0 < opened.posterior.sizes["draw"] < 130
    assert np.all(np.isfinite(opened.posterior["x"]))
    np.testing.assert_array_equal(opened["posterior"][with_slash(opened)], opened["posterior"]["x"][..., 0])
    np.testing.assert_array_equal(opened.observed_data["y"], np.arange(3.0))
    assert found.stopped is None


def test_what_warmup_found(path):
    with Death(4), pytest.raises(Killed):
        sample(path)
    with pytest.raises(StoreError, match="whose warm-up is over"):
        found_in(path, 0)
    sample(path)
    found = found_in(path, 1)
    assert found.step_size == 1.0
    np.testing.assert_array_equal(found.inverse_mass_matrix["x",], np.ones(2))
    assert found.center is None
    with pytest.raises(ValueError, match="chain must be"):
        found_in(path, 2)


@pytest.mark.parametrize("place", [3, 4, 5])
def test_what_warmup_found_is_written_by_a_later_call(path, place):
    """Where the process died between the state at the end of warm-up and what is kept beside it."""
    with Death(place), pytest.raises(Killed):
        sample(path)
    sample(path)
    for chain in range(2):
        assert found_in(path, chain).step_size == 1.0
        assert (Path(path) / f"chains/{chain}/state_after_warmup").exists()


def test_a_run_without_warmup_found_nothing(path):
    sample(path, num_warmup=0)
    with pytest.raises(StoreError, match="must be of a run with warm-up, got"):
        found_in(path, 0)


def test_a_path_in_the_users_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    opened, _ = sample("~/run.zarr")
    assert opened["posterior"].sizes["draw"] == 130
    assert [x.name for x in tmp_path.iterdir()] == ["home"]
    assert progress_of(Path("~/run.zarr")).plan == progress_of(tmp_path / "home/run.zarr").plan
    assert checked_path("memory://~/run.zarr") == "memory://~/run.zarr"


def test_a_site_with_a_backslash(path):
    store = RunStore.begin(path, Plan(1, 0, 4, 4), {}, {}, [])
    store.make_arrays(SAMPLING, {r"a\b": Form((), np.dtype("f8"))}, {})
    store.write(0, 0, {"posterior": {r"a\b": np.arange(4.0)}})
    np.testing.assert_array_equal(store.read(SAMPLING, 0, 0, 4)["posterior"][r"a\b"], np.arange(4.0))


def test_largest_rectangle():
    assert largest_rectangle([0, 0]) == ([0, 1], 0)
    assert largest_rectangle([10, 9, 1]) == ([0, 1], 9)


@pytest.mark.parametrize("together", [False, True])
def test_summaries_in_place_of_draws(path, together):
    """They are those of the draws, and those of a run that died are those of one that did not."""
    draws = sample(path + ".draws", together)[0]["posterior"]
    with Death(20), pytest.raises(Killed):
        sample(path, together, keep="summaries")
    opened, _ = sample(path, together, keep="summaries")
    assert not getattr(opened, "posterior", None)
    assert opened.sample_stats["lp"].shape == (2, 130)
    found = summary_of(path)
    np.testing.assert_allclose(found["x"].mean, draws["x"].mean(("chain", "draw")))
    np.testing.assert_allclose(found["a/b"].sd, draws[with_slash(draws)].std(ddof=1), rtol=0.01)
    with pytest.raises(StoreError, match="must hold summaries"):
        summary_of(path + ".draws")
    for state in (Path(path) / "chains/1").glob("state_*"):
        shutil.rmtree(state)
    with pytest.raises(StoreError, match=r"summaries of every chain, got .*, which has none yet of \[1\]"):
        summary_of(path)


def test_a_criterion_ends_a_run_where_it_would_have_without_a_death(path):
    plan = Plan(num_chains=2, num_warmup=25, num_draws=5000, every=30)
    whole, reason = sample(path, plan=plan, stop_when=StopWhen(ess=150))
    assert "smallest effective sample size" in reason
    assert progress_of(path).stopped == reason
    num, expected = whole.posterior.sizes["draw"], draws_in(whole)
    assert num % 30 == 0
    assert 100 <= num < 1500
    shutil.rmtree(path)
    with Death(30), pytest.raises(Killed):
        sample(path, plan=plan, stop_when=StopWhen(ess=150))
    again, _ = sample(path, plan=plan, stop_when=StopWhen(ess=150))
    assert draws_in(again) == expected


def test_a_criterion_may_come_later(path):
    plan = Plan(num_chains=2, num_warmup=25, num_draws=5000, every=30)
    sample(path, plan=plan, num_draws=130)
    sample(path, plan=plan, stop_when=StopWhen(ess=150))
    draws = open_store(path).posterior["x"]
    np.testing.assert_allclose(summary_of(path)["x"].mean, draws.mean(("chain", "draw")), rtol=1e-9)


def test_the_clock_ends_a_run(path):
    plan = Plan(num_chains=2, num_warmup=25, num_draws=10**6, every=30)
    _, reason = sample(path, plan=plan, stop_when=StopWhen(seconds=0.5))
    assert reason == "the time of 0.5 seconds is over"


def test_the_clock_runs_from_the_call(path):
    """What is done before the chains move counts too: reading the data, checking the split, compiling."""
    plan = Plan(num_chains=2, num_warmup=25, num_draws=130, every=30)
    options = Options.checked(path, plan, StopWhen(seconds=0.1), (), True)
    time.sleep(0.11)
    assert Criterion(options).by_time() == "the time of 0.1 seconds is over"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_a_signal_ends_a_run(whole, path, name):
    """What was drawn is written, and the run goes on from there."""
    expected, _, together = whole
    _, reason = sample(path, together, stop_on=(name,), progress=lambda *_: signal.raise_signal(signal.Signals[name]))
    assert reason == name
    assert progress_of(path).stopped == name
    assert draws_in(sample(path, together)[0], warmup=True) == expected
    assert progress_of(path).stopped is None


def test_a_full_disk_loses_nothing(whole, path, monkeypatch):
    expected, _, together = whole
    own, count = RunStore.write, []

    def write(self, *args):
        count.append(1)
        if len(count) == 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        own(self, *args)

    monkeypatch.setattr(RunStore, "write", write)
    with pytest.raises(OSError, match=r"No space left .* What was committed before is whole") as found:
        sample(path, together)
    assert found.value.errno == errno.ENOSPC
    assert draws_in(sample(path, together)[0], warmup=True) == expected


def test_a_disk_that_stays_full_is_no_damage(whole, path, monkeypatch):
    from zarr.storage import LocalStore

    _, source, together = whole
    shutil.copytree(source, path)

    async def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(LocalStore, "set", full)
    with pytest.raises(OSError, match=r"No space left .* free some space. What was committed before is whole") as found:
        sample(path, together, num_draws=300)
    assert found.value.errno == errno.ENOSPC


class TestRefused:
    def test_another_run(self, whole, path, monkeypatch):
        _, source, together = whole
        shutil.copytree(source, path)
        monkeypatch.setattr(WalkStart, "identity", {"model": "another"})
        with pytest.raises(StoreError, match=r"with another model: walk in the store, got another"):
            sample(path, together, num_draws=300)
        monkeypatch.undo()
        sample(path, together)  # of which a call that was refused has changed nothing

    def test_another_density(self, whole, path, monkeypatch):
        _, source, together = whole
        shutil.copytree(source, path)
        monkeypatch.setattr(WalkStart, "start_energies", [1.0])
        with pytest.raises(StoreError, match=r"potential energy of 0.0 where the run starts, which is 1.0 now"):
            sample(path, together)

    def test_what_is_no_store(self, path):
        Path(path).write_text("a file")
        with pytest.raises(StoreError, match="must be the path of a run's store, or of nothing"):
            sample(path)
        assert Path(path).read_text() == "a file"

    def test_a_folder_of_something_else(self, path):
        Path(path).mkdir()
        (Path(path) / "thesis.tex").write_text("dear")
        with pytest.raises(StoreError, match="must be the path of a run's store, or of nothing"):
            sample(path)
        assert (Path(path) / "thesis.tex").read_text() == "dear"

    def test_another_zarr(self, path):
        import zarr

        zarr.open_group(path, mode="w").create_array("x", data=np.arange(3))
        with pytest.raises(StoreError, match="which is neither"):
            sample(path)
        with pytest.raises(StoreError, match="which is neither"):
            open_store(path)

    @pytest.mark.parametrize("path", [None, 3, b"run.zarr", ""])
    def test_no_path(self, path):
        with pytest.raises(TypeError, match="store must be a path"):
            sample(path)

    def test_a_store_in_use(self, path):
        sample(path)
        hold = f"with locked({path!r}):\n    print('held', flush=True)\n    time.sleep(60)"
        holder = f"import time\nfrom split_common.runs.store_path import locked\n{hold}"
        with subprocess.Popen([sys.executable, "-c", holder], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "held\n"
            with pytest.raises(StoreError, match="must not be in use"):
                sample(path)
            assert open_store(path).posterior.sizes["draw"] == 130  # looking in takes no lock
            process.kill()
            process.wait()
        sample(path)  # a lock dies with its process

    def test_a_store_in_use_by_another_name(self, path, tmp_path):
        sample(path)
        (tmp_path / "link.zarr").symlink_to(path)
        (tmp_path / "folder").symlink_to(tmp_path)
        for name in ("link.zarr", "folder/run.zarr", "folder/link.zarr"):
            with locked(path):
                with pytest.raises(StoreError, match="must not be in use"):
                    sample(str(tmp_path / name))
                assert is_held(str(tmp_path / name))
            sample(str(tmp_path / name))
            assert is_held(str(tmp_path / name)) is False

    @pytest.mark.parametrize(
        "lost", ["posterior/x/zarr.json", "posterior/a%2Fb", "sample_stats/lp", "warmup_posterior/x", "sample_stats"]
    )
    def test_a_store_without_one_of_its_arrays(self, whole, path, lost):
        """Nothing is lost by that: what is there stays as it is."""
        _, source, together = whole
        shutil.copytree(source, path)
        place = Path(path) / lost
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        for num_draws in (130, 300):
            with pytest.raises(StoreError, match=f"damaged where it says what its arrays are.*{lost.split('/')[0]}"):
                sample(path, together, num_draws=num_draws)
        assert progress_of(path).plan.num_draws == 130

    @pytest.mark.parametrize("name", ["chain", "draw", "x_dim_0", "zarr.json", ".", "..", ""])
    def test_names_of_sites(self, path, monkeypatch, name):
        """Before anything is written."""
        called_x = WalkStart.forms
        monkeypatch.setattr(
            WalkStart,
            "forms",
            lambda self: ({**called_x(self)[0], name: Form((2,), np.dtype("f8"))}, called_x(self)[1]),
        )
        with pytest.raises(ValueError, match=rf"a site of a stored run must not .*got '{re.escape(name)}'"):
            sample(path)
        assert not Path(path).exists()

    def test_names_of_what_is_observed(self, path, monkeypatch):
        monkeypatch.setattr(WalkStart, "observed", lambda _: {"y": np.zeros(3), "y_dim_0": np.zeros(3)})
        with pytest.raises(ValueError, match="like a dimension of site 'y' in the store, got 'y_dim_0'"):
            sample(path)
        assert not Path(path).exists()

    @pytest.mark.parametrize("every", [0, -1, 1.5, True, None, "1"])
    def test_every(self, every):
        with pytest.raises(ValueError, match="every must be a whole number of at least 1"):
            Plan.checked(1, 10, 10, every, "draws", False)

    def test_keep(self):
        with pytest.raises(ValueError, match="keep must be one of"):
            Plan.checked(1, 10, 10, 1, "everything", False)

    @pytest.mark.parametrize("name", ["SIGKILL", "SIGNOTHING", 9])
    def test_signals(self, path, name):
        with pytest.raises(ValueError, match="stop_on must name signals"):
            Options.checked(path, Plan(1, 0, 1, 1), None, (name,), True)

    @pytest.mark.parametrize(
        "target", ["zarr.json", "posterior/x/zarr.json", "chains/0/zarr.json", "posterior/zarr.json"]
    )
    def test_a_store_whose_description_is_damaged(self, whole, path, target):
        """No draws are lost by guessing: it is an error, or comes to the same draws."""
        _, source, together = whole
        shutil.copytree(source, path)
        hurt = Path(path) / target
        hurt.write_bytes(hurt.read_bytes()[:20])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if target == "zarr.json":
                with pytest.raises(StoreError, match="must be the path"):
                    sample(path, together)
            else:
                with pytest.raises(StoreError, match="damaged where it says what its arrays are"):
                    sample(path, together)
