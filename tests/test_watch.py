"""The screens of a run, of stores that are written here: what they say, what they read, and that they never fail."""

import datetime
import io
import re
import shutil
import time
from types import SimpleNamespace

import arviz
import numpy as np
import pytest
import rich
import xarray
from rich.console import Console

from split_common import watch as module
from split_common.errors import StoreError
from split_common.report import MOST_RHAT
from split_common.runs import findings
from split_common.runs.packed import Packed
from split_common.runs.plan import Plan
from split_common.runs.store import AFTER_WARMUP, SAMPLING, Form, RunStore
from split_common.runs.store_path import FORMAT, is_held, locked
from split_common.watch import main, snapshot, watch

STATISTICS = {
    "diverging": "bool",
    "energy": "f8",
    "lp": "f8",
    "acceptance_rate": "f8",
    "n_steps": "i4",
    "step_size": "f8",
    "num_grads": "i4",
}
pytestmark = pytest.mark.filterwarnings("error")  # none reaches a screen


class Run:
    """A store that is written by hand, as a run would."""

    def __init__(self, path, num_draws=300, num_warmup=200, num_chains=4, every=50, keep="draws"):
        self.path, self.plan = str(path), Plan(num_chains, num_warmup, num_draws, every, keep)
        self.store = RunStore.begin(self.path, self.plan, {}, {"kernel": "SplitNUTS"}, [])
        self.rng = np.random.default_rng(0)

    def made(self, **forms):
        """Room for variables of these shapes and types."""
        draws = {name: Form(shape, np.dtype(dtype)) for name, (shape, dtype) in forms.items()}
        self.store.make_arrays(SAMPLING, draws, {n: Form((), np.dtype(t)) for n, t in STATISTICS.items()})
        self.store.made()
        return self

    def note(self, chain, draws, warmup=None, seconds=10.0, age=0.0):
        written = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age)
        warmup = self.plan.num_warmup if warmup is None else warmup
        self.store.note(chain, draws=draws, warmup_draws=warmup, time=written.isoformat(), seconds=seconds, settled=[])

    def write(self, draws, **statistics):
        """Draws by variable, shape (chains, n, ...), from the first on."""
        shape = next(iter(draws.values())).shape[:2]
        fields = {
            "diverging": np.zeros(shape, bool),
            "energy": self.rng.normal(size=shape),
            "lp": self.rng.normal(size=shape),
            "acceptance_rate": np.full(shape, 0.8),
            "n_steps": np.full(shape, 7, "i4"),
            "step_size": np.full(shape, 0.25),
            "num_grads": np.full(shape, 28, "i4"),
        } | statistics
        for chain in range(shape[0]):
            self.write_chain(chain, {"posterior": draws, "sample_stats": fields})
            self.note(chain, shape[1], seconds=10.0 + chain)
        return self

    def write_chain(self, chain, groups):
        """All draws of a chain, chunk by chunk; of arrays with a leading axis of chains."""
        num = next(x.shape[1] for arrays in groups.values() for x in arrays.values())
        for k, start in enumerate(range(0, num, self.plan.chunk)):
            part = slice(start, start + self.plan.chunk)
            content = {group: {name: x[chain, part] for name, x in a.items()} for group, a in groups.items()}
            self.store.write(chain, k, content)


def ordinary(path, num=300, of=300, **options):
    run = Run(path, of, **options).made(w=((3,), "f8"))
    return run.write({"w": run.rng.normal(size=(run.plan.num_chains, num, 3))})


def shown(screen, width=100, **options):
    console = Console(width=width, file=io.StringIO(), **options)
    console.print(screen)
    return console.file.getvalue()


def words(screen, width=400):
    """Text without frame and gaps."""
    return re.sub(r"[\s│]+", " ", shown(screen, width))


def row_of(name, screen):
    """Numbers of a coordinate's row."""
    lines = [line.strip("│ ").split() for line in shown(screen).splitlines()]
    return next(line[1:5] for line in lines if line and line[0] == name)


def worst_names(screen):
    text = shown(screen).split("R-hat")[1]
    return [line.strip("│ ").split()[0] for line in text.splitlines() if "[" in line and "chain" not in line]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("num", [0, 100])
def test_fits_every_width(tmp_path, width, num):
    run = Run(tmp_path / "s").made(**{"a long/name of a [red]site": ((3,), "f8")})
    if num:
        run.write({"a long/name of a [red]site": run.rng.normal(size=(4, num, 3))})
    lines = shown(snapshot(tmp_path / "s"), width).splitlines()
    assert {len(line) for line in lines} == {width}
    assert num == 0 or width < 80 or "a long/name of a [red]site[0]" in "".join(lines)


def test_says_how_far_an_ended_run_is(tmp_path):
    ordinary(tmp_path / "s")
    text = words(snapshot(tmp_path / "s"))
    assert "SplitNUTS: 4 chains of 300 draws after 200 of warm-up" in text
    assert "ended: all 300 draws of each chain, written" in text
    assert text.count("300/300 0 0.80 0.25 28") == 4
    assert "E-BFMI" in text.split("fine: ")[1].split("The worst")[0]


def test_one_chain(tmp_path):
    ordinary(tmp_path / "s", num_chains=1)
    screen = snapshot(tmp_path / "s")
    assert "1 chain of 300" in words(screen)
    assert row_of("w[0]", screen)[3] == "–"


@pytest.mark.parametrize("width", [80, 200])
def test_ascii_terminal(tmp_path, width):
    ordinary(tmp_path / "s")
    console = Console(width=width, file=io.TextIOWrapper(io.BytesIO(), "ascii"))
    console.print(snapshot(tmp_path / "s"))  # raises UnicodeEncodeError for other letters


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ({}, "being set up: nothing has been written yet; begun"),
        ({"draws": 0, "warmup": 50}, "warm-up: about"),
        ({"draws": 50}, "sampling: about"),
        ({"draws": 300}, "ended: all 300 draws of each chain, written"),
        (
            {"draws": 50, "age": 7200.0},
            "nothing has been written for 2 h (usually every 5 s): its process may have died",
        ),
    ],
)
def test_states(tmp_path, at, expected):
    run = Run(tmp_path / "s").made()
    for chain in range(4 if at else 0):
        run.note(chain, **at)
    text = words(snapshot(tmp_path / "s"))
    assert expected in text
    assert "Traceback" not in text


def test_lock_tells_a_dead_run_from_one_that_goes_on(tmp_path):
    run = ordinary(tmp_path / "s", 100)
    with locked(run.path):
        assert "sampling: about" in words(snapshot(run.path))
        run.store.ended("SIGTERM")  # of an earlier call
        assert "sampling: about" in words(snapshot(run.path))
        for chain in range(4):
            run.note(chain, 100, age=7200.0)
        assert "it goes on only just now, or hangs" in words(snapshot(run.path))
    assert "stopped: SIGTERM; written 2 h ago; the same call goes on" in words(snapshot(run.path))
    run.store.ended(None)
    assert "no process writes to it: written 2 h ago; the same call goes on from there" in words(snapshot(run.path))


def test_whether_a_store_is_held(tmp_path):
    path = str(tmp_path / "s")
    assert is_held(path) is None  # nothing has ever locked it
    with locked(path):
        assert is_held(path) is True
        assert is_held(str(tmp_path / "t")) is None
        assert is_held(f"file://{path}") is None
    assert is_held(path) is False


def test_a_look_does_not_keep_a_run_from_its_store(tmp_path):
    run = ordinary(tmp_path / "s", 100)
    with locked(run.path):
        pass
    snapshot(run.path)
    with locked(run.path):
        pass


def test_expected_end_counts_warmup_apart(tmp_path):
    run = ordinary(tmp_path / "s", 100, 300)
    for chain in range(4):
        run.note(chain, 100, seconds=1000.0 + chain)  # 990 s of them in warm-up: 0.1 s for a draw
        run.store.put_state(chain, AFTER_WARMUP, Packed({"seconds": 990.0 + chain}, {}))
    text = words(snapshot(run.path))
    assert "about 80 s left" in text  # 4 chains take turns for 200 draws of 0.1 s each
    end = (datetime.datetime.now() + datetime.timedelta(seconds=80)).strftime("%H:%M")
    assert f"until {end}" in text or time.localtime().tm_sec > 30
    for chain in range(4):
        run.note(chain, 100, seconds=1000.0)  # chains that move together
        run.store.put_state(chain, AFTER_WARMUP, Packed({"seconds": 990.0}, {}))
    assert "about 20 s left" in words(snapshot(run.path))


def test_expected_end_in_warmup_takes_chains_that_wait_into_account(tmp_path):
    run = Run(tmp_path / "s").made()
    run.note(0, 0, warmup=100, seconds=10.0)  # 0.1 s for an iteration: 40 s left, and 50 for each of three others
    assert "about 3 min left" in words(snapshot(run.path))


def test_coordinates_are_judged_as_arviz_does(tmp_path):
    run = Run(tmp_path / "s").made(w=((2, 2), "f8"), k=((), "i8"))
    w, k = run.rng.normal(size=(4, 300, 2, 2)), run.rng.poisson(3.0, size=(4, 300))
    w[1, :, 1, 0] += 3.0
    run.write({"w": w, "k": k})
    screen = snapshot(run.path)
    x = xarray.Dataset({"x": (("chain", "draw"), w[:, :, 1, 0])})
    ess, rhat = float(arviz.ess(x, method="bulk")["x"]), float(arviz.rhat(x)["x"])
    assert rhat > MOST_RHAT
    assert worst_names(screen)[0] == "w[1,"
    line = next(line for line in shown(screen).splitlines() if "w[1, 0]" in line)
    assert line.strip("│ ").split()[2:] == [
        f"{w[:, :, 1, 0].mean():.1f}",
        f"{w[:, :, 1, 0].std():.1f}",
        f"{ess:.0f}",
        f"{rhat:.3f}",
    ]
    assert "of all 5, by all 300 draws" in words(screen)
    assert "w[1, 0], all draws" in words(screen)
    assert float(row_of("k", screen)[3]) < MOST_RHAT


def test_lights(tmp_path):
    run = Run(tmp_path / "s", 600).made(w=((3,), "f8"))
    w = run.rng.normal(size=(4, 300, 3))
    w[:, :, 1] += 0.3 * np.arange(4)[:, None]  # R-hat about 1.05
    w[:, :, 2] += 3.0 * np.arange(4)[:, None]
    run.write({"w": w})

    def light(name):
        text = shown(snapshot(run.path), force_terminal=True, color_system="standard")
        line = next(line for line in text.splitlines() if name in line)
        return [int(code) for code in re.findall(r"\x1b\[(3[123])m", line)]

    green, red, yellow = 32, 31, 33
    assert light("w[0]") == [green, green]
    assert light("w[1]")[1] == yellow
    assert light("w[2]")[1] == red
    assert light("w[2]")[0] == yellow  # few effective draws, of a run that goes on
    run.store.ended("SIGINT")
    assert light("w[1]")[1] == red
    assert light("w[2]") == [red, red]


def test_divergences_of_all_draws_are_counted(tmp_path):
    run = Run(tmp_path / "s", 6000).made(w=((), "f4"))
    diverging = np.zeros((4, 5000), bool)
    diverging[2, [3, 700, 4999]] = True  # two of them before the last 2,000 draws
    run.write({"w": run.rng.normal(size=(4, 5000))}, diverging=diverging)
    text = words(snapshot(run.path))
    assert "3 (0.1%) 0.80" in text
    assert "3 of 20000 draws diverged. Where trajectories diverge" in text
    assert "one in 3 of all 5000 draws" in text


@pytest.mark.parametrize(("num_bytes", "num_chunks"), [(2**28, 10), (4 * 4 * 100 * 500 * 8, 4)])
def test_reads_few_chunks_of_a_wide_variable(tmp_path, monkeypatch, num_bytes, num_chunks):
    import zarr

    run = Run(tmp_path / "s", 2000).made(w=((500,), "f8"))
    w = run.rng.normal(size=(4, 1000, 500))
    run.write({"w": w})
    monkeypatch.setattr(findings, "MOST_BYTES", num_bytes)
    read, get = [], zarr.storage.LocalStore.get

    async def noted(self, key, *args, **kwargs):
        read.append(key)
        return await get(self, key, *args, **kwargs)

    monkeypatch.setattr(zarr.storage.LocalStore, "get", noted)
    screen = snapshot(run.path)
    assert len([key for key in read if key.startswith("posterior/w/c/")]) == 4 * num_chunks
    part = "all 1000 draws" if num_chunks == 10 else "the last 400 of 1000 draws"
    assert f"200 of 500, by {part}" in words(screen)
    name = worst_names(screen)[0]
    at = int(name[2:-1])
    x = xarray.Dataset({"x": (("chain", "draw"), w[:, -100 * num_chunks :, at])})
    assert row_of(name, screen)[2:] == [
        f"{float(arviz.ess(x, method='bulk')['x']):.0f}",
        f"{float(arviz.rhat(x)['x']):.3f}",
    ]


def test_window_is_evenly_spaced_and_has_the_last_draw():
    rng = np.random.default_rng(0)
    for _ in range(2000):
        num, chunk, num_chunks, most = (int(n) for n in rng.integers(1, [500, 60, 12, 100]))
        window = findings._window(num, chunk, num_chunks, most)
        assert len(window) <= most
        assert window[-1] == num - 1
        assert len({i // chunk for i in window}) <= num_chunks
        first = max(0, -(-num // chunk) - num_chunks) * chunk
        assert first <= window[0] < first + window.step


def test_columns_are_those_of_the_variable(monkeypatch):
    x = xarray.DataArray(np.random.default_rng(0).normal(size=(3, 40, 4, 5)))
    draws = range(3, 40, 4)
    for block in (1, 1000, 10_000, 2**25):
        monkeypatch.setattr(findings, "BLOCK_BYTES", block)
        found = findings._columns(x, draws, [0, 7, 19], 10)
        np.testing.assert_array_equal(found, x.values[:, 3::4].reshape(3, 10, 20)[:, :, [0, 7, 19]])


def test_draws_that_are_no_numbers_or_never_change(tmp_path, capfd):
    run = Run(tmp_path / "s").made(bad=((2,), "f8"), still=((), "f8"), stuck=((), "f8"), w=((), "f8"))
    bad, still = run.rng.normal(size=(4, 300, 2)), np.ones((4, 300))
    bad[2, 7, 0] = np.inf
    stuck = np.repeat(np.arange(4.0)[:, None], 300, 1)
    run.write({"bad": bad, "still": still, "stuck": stuck, "w": run.rng.normal(size=(4, 300))})
    screen = snapshot(run.path)
    assert worst_names(screen)[0] == "bad[0]"
    assert row_of("bad[0]", screen)[:2] == ["not", "finite"]
    assert row_of("stuck", screen)[3] == "∞" or float(row_of("stuck", screen)[3]) > 1e9
    assert not re.search(r"\bstill\b", words(screen))
    assert capfd.readouterr().err == ""  # ArviZ would say of each that it is not finite


@pytest.mark.parametrize("num", [1, 3])
def test_too_few_draws_to_judge(tmp_path, num):
    run = Run(tmp_path / "s").made(w=((), "f8"))
    run.write({"w": run.rng.normal(size=(4, num))})
    assert "too few draws, or none that changes" in words(snapshot(run.path))


def test_chains_that_lag_and_many_chains(tmp_path, monkeypatch):
    monkeypatch.setattr(findings, "MOST_CHAINS", 10)
    run = Run(tmp_path / "s", num_chains=20, num_warmup=0).made(w=((), "f8"))
    run.write({"w": run.rng.normal(size=(19, 100))})
    text = words(snapshot(run.path))
    assert "and 8 more chains, of 0 to 100 draws" in text
    assert "10 of 20 chains" in text
    few = Run(tmp_path / "t").made(w=((), "f8"))
    few.write({"w": few.rng.normal(size=(3, 100))})
    assert "warm-up 0/200 – – – –" in words(snapshot(few.path))
    assert "3 of 4 chains" in words(snapshot(few.path))


def test_summaries_of_draws_that_are_not_kept(tmp_path, monkeypatch):
    run = Run(tmp_path / "s", keep="summaries").made()
    fields = {name: np.zeros((4, 300), dtype) for name, dtype in STATISTICS.items()}
    for chain in range(4):
        run.write_chain(chain, {"sample_stats": fields})
        run.note(chain, 300)
    figures = {
        "w": SimpleNamespace(
            mean=np.arange(4.0).reshape(2, 2),
            sd=np.array([[1.0, 0.0], [1.0, 1.0]]),
            ess=np.array([[50.0, np.nan], [400.0, 500.0]]),
            rhat=np.array([[1.0, np.nan], [1.5, 1.0]]),
        ),
        "k": SimpleNamespace(mean=np.array(np.nan), sd=np.array(np.nan), ess=np.array(np.nan), rhat=np.array(np.nan)),
    }
    monkeypatch.setattr(findings, "summary_of", lambda path: figures)
    screen = snapshot(run.path)
    assert "of all 5, by summaries of all draws" in words(screen)
    names = [line.strip("│ ").split("  ")[0] for line in shown(screen).split("R-hat")[1].splitlines()[1:5]]
    assert names == ["k", "w[1, 0]", "w[0, 0]", "w[1, 1]"]


def test_damaged_draws_are_said_to_be(tmp_path):
    run = ordinary(tmp_path / "s")
    for path in (tmp_path / "s" / "posterior" / "w" / "c").rglob("*"):
        if path.is_file():
            path.write_bytes(b"nothing of the kind")
    text = words(snapshot(run.path))
    assert "draws cannot be read now: " in text
    assert text.count("300/300") == 4


@pytest.fixture
def console():
    before = rich.get_console()
    rich.reconfigure(width=100, record=True, file=io.StringIO(), force_terminal=True, height=60)
    yield rich.get_console()
    rich.reconfigure(file=before.file)


def test_watch_returns_when_the_run_ends(tmp_path, monkeypatch, console):
    run = ordinary(tmp_path / "s", 100)
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        assert len(slept) < 5
        if len(slept) == 2:
            run.write({"w": run.rng.normal(size=(4, 300, 3))})

    monkeypatch.setattr(time, "sleep", sleep)
    assert watch(run.path, refresh=7) is None
    assert slept == [7.0, 7.0]
    text = console.export_text()
    assert "sampling: about" in text
    assert "100/300" in text
    assert "ended: all 300" in text.split("sampling: about")[-1]
    assert "by all 300 draws" in text  # the last screen has looked at all


def test_watch_ends_by_ctrl_c_and_rests_between_looks(tmp_path, monkeypatch, console):
    run = ordinary(tmp_path / "s", 100)
    looks, look = [], module.look
    monkeypatch.setattr(module, "look", lambda *args: (looks.append(1), look(*args))[1])
    slept = iter(range(5))

    def sleep(seconds):
        if next(slept, None) is None:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    watch(run.path)
    assert len(looks) == 1  # nothing has been written since


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda path: None, "where nothing is"),
        (lambda path: path.mkdir(), "where nothing is"),
        (lambda path: path.write_text("a file"), "store must be the path of a run's store"),
        (lambda path: shutil.copytree(__file__.rsplit("/", 1)[0] + "/data", path), "which is neither"),
    ],
    ids=["nothing", "empty", "file", "foreign"],
)
def test_command_line_says_in_one_line_what_is_wrong(tmp_path, capsys, make, rule, once):
    make(tmp_path / "s")
    with pytest.raises(SystemExit) as found:
        main([str(tmp_path / "s"), *(["--once"] * once)])
    assert found.value.code == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert rule in line
    with pytest.raises(StoreError, match=rule):
        watch(tmp_path / "s")


@pytest.mark.parametrize("refresh", ["0", "-1", "nan", "inf", "soon"])
def test_refresh_is_checked(tmp_path, capsys, refresh):
    with pytest.raises(SystemExit) as found:
        main([str(tmp_path), "--refresh", refresh])
    assert found.value.code == 2
    assert "--refresh" in capsys.readouterr().err


def test_bad_arguments_of_functions(tmp_path):
    with pytest.raises(TypeError, match="store must be a path, got 3"):
        snapshot(3)
    with pytest.raises(ValueError, match="refresh must be a finite number above 0, got 0"):
        watch(tmp_path, refresh=0)


def test_command_line_shows_one_screen(tmp_path, console):
    ordinary(tmp_path / "s")
    main([str(tmp_path / "s"), "--once"])
    assert console.export_text().count("ended: all 300") == 1


def test_address_of_another_file_system(tmp_path):
    ordinary(tmp_path / "s", 100)
    assert "sampling: about" in words(snapshot(f"file://{tmp_path}/s"))


def test_notebook_cell_that_ends_with_a_screen_shows_it(tmp_path):
    ordinary(tmp_path / "s")
    shown_as = snapshot(tmp_path / "s")._repr_mimebundle_([], [])
    assert "ended" in shown_as["text/html"]


@pytest.mark.slow
def test_store_of_a_real_run(tmp_path):
    pytest.importorskip("numpyro")
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC

    from numpyro_split import SplitNUTS
    from numpyro_split.runs.sample import sample

    def a_model(y):
        mu = numpyro.sample("mu", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("data", y.shape[0]):
            numpyro.sample("y", dist.Normal(mu[0] + mu[1], 1), obs=y)

    kernel = SplitNUTS(a_model, num_subsets=2)
    mcmc = MCMC(kernel, num_warmup=60, num_samples=60, num_chains=2, chain_method="vectorized", progress_bar=False)
    sample(mcmc, jax.random.key(0), jnp.linspace(-1, 1, 8), store=tmp_path / "s", every=20)
    text = words(snapshot(tmp_path / "s"))
    assert "SplitNUTS: 2 chains of 60 draws after 60 of warm-up" in text
    assert "ended: all 60 draws" in text
    assert "of all 2, by all 60 draws" in text
    assert "cannot be read" not in text


@pytest.mark.parametrize("known", [["draws"], ["draws", "warmup_draws", "time"]])
def test_chains_of_which_not_all_is_noted_yet(tmp_path, known):
    run = Run(tmp_path / "s").made()
    values = {"draws": 0, "warmup_draws": 50, "time": datetime.datetime.now(datetime.UTC).isoformat()}
    run.store.note(0, **{name: values[name] for name in known})
    assert "being set up: nothing has been written yet" in words(snapshot(run.path))
    run.note(1, 0, warmup=50)
    assert "warm-up: about" in words(snapshot(run.path))


def test_store_that_is_only_just_being_made(tmp_path, capsys):
    import zarr

    zarr.open_group(tmp_path / "s", mode="w", zarr_format=3).attrs.update(format=FORMAT)
    with pytest.raises(SystemExit):
        main([str(tmp_path / "s")])
    assert "which is still being created, or damaged: it has no 'plan'" in capsys.readouterr().err
