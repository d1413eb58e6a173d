"""``benchmarks.papers``: statuses follow from results, and the page is what the committed results render."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("numpyro")  # some scripts that the items name are NumPyro's, some Pyro's
pytest.importorskip("pyro")

from benchmarks.papers import report
from benchmarks.papers.findings import (
    CLOSED,
    CONTRADICTED,
    FRACTION,
    NOT_RUN,
    REPRODUCED,
    STAND_IN,
    STATUSES,
    Comparison,
    Finding,
    Item,
    Run,
    close,
    number,
    order,
    share_error,
    status_of,
)
from benchmarks.papers.registry import PAPERS

pytestmark = pytest.mark.both_packages
ITEMS = [item for group in PAPERS.values() for item in group]


def finding(*agreements: bool | None, **more: object) -> Finding:
    """A finding of these comparisons."""
    return Finding([Comparison("x", "1", "1", agrees) for agrees in agreements], "all", [], "", **more)  # pyright: ignore


def test_there_are_44_items_each_with_a_name_and_a_status_of_its_own():
    assert len(ITEMS) == len({item.key for item in ITEMS}) == len({item.figure for item in ITEMS}) == 44
    assert {status_of(item)[0] for item in ITEMS} <= set(STATUSES)


def test_the_page_is_what_the_results_render():
    """After a script has been run: ``make report``."""
    assert report.page() == report.PAGE.read_text()
    assert report.page().splitlines()[2] == report.count(ITEMS)


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (finding(True), FRACTION),
        (finding(False), FRACTION),
        (finding(True, None, is_full=True), REPRODUCED),
        (finding(False, is_full=True, contradicted="a reason"), CONTRADICTED),
        (finding(True, is_full=True, stand_in="others"), STAND_IN),
    ],
)
def test_a_status_follows_from_what_was_found(found, status):
    assert status_of(Item("X", "x", "x", lambda: found))[0] == status


def test_an_item_without_results_is_not_run_and_a_closed_one_closed():
    assert status_of(Item("X", "x", "x", lambda: Finding([], "", [Run("no such run")], "")))[0] == NOT_RUN
    assert status_of(Item("X", "x", "x"))[0] == NOT_RUN
    assert status_of(Item("X", "x", "x", closed="not public"))[0] == CLOSED


def test_a_disagreement_at_the_published_size_needs_its_reason():
    with pytest.raises(ValueError, match="must say why"):
        status_of(Item("X", "x", "x", lambda: finding(True, False, is_full=True)))


def test_an_order_needs_two_standard_errors():
    close_by, apart = {"a": [1.0, 2.0, 3.0], "b": [0.5, 1.5, 2.5]}, {"a": [1.0, 1.1, 0.9], "b": [0.0, 0.1, -0.1]}
    assert order(close_by, "a", "b").agrees is None
    assert order(apart, "a", "b").agrees is True
    assert order(apart, "b", "a").agrees is False


def test_numbers_are_rounded_to_their_error():
    assert number(0.81432, 0.0321) == "0.814 ± 0.032"
    assert number(81.432, None) == "81.4"
    assert share_error(50, 100) == pytest.approx(5.0)
    assert close(1.0, 0.1, 1.19)
    assert not close(1.0, 0.1, 1.21)


def test_a_figure_is_drawn_of_each_item_that_was_run(tmp_path):
    """One of each paper; all of them are drawn by ``make report``."""
    import matplotlib

    matplotlib.use("svg")
    drawn = report.draw(tmp_path)
    assert drawn
    assert all(path.stat().st_size > 1_000 for path in drawn)


def test_a_run_goes_on_from_what_an_earlier_one_has_written(tmp_path):
    from benchmarks.papers.options import earlier, parse_options, settings_of, write

    sizes = {"quick": {"rows": 5, "arms": ("a", "b")}, "full": {"rows": 9, "arms": ("a", "b")}}
    options = parse_options("", sizes, ["--json", str(tmp_path / "found.json")])
    settings = settings_of(options, sizes)
    assert settings["published_rows"] == 9
    write(options, settings, {"arms": {"a": np.float64(1.5)}})
    assert earlier(options, settings, "arms") == {"a": 1.5}
    assert earlier(options, {**settings, "rows": 6}, "arms") == {}
    assert json.loads((tmp_path / "found.json").read_text())["settings"]["seed"] == 0


def test_a_script_runs_and_resumes(tmp_path):
    """The cheapest one, two networks of a committee; the others are slow."""
    from benchmarks.papers.lau_2018 import committees

    committees.main(["--pool", "2", "--epochs", "2", "--json", str(tmp_path / "found.json")])
    found = json.loads((tmp_path / "found.json").read_text())["results"]
    assert [row["members"] for row in found["committees"]] == [2]


SCRIPTS = {
    "cobb_2021.curve": ["--chains", "2", "--warmup", "2", "--draws", "4", "--schemes", "symmetric"],
    "cobb_2021.softmax": ["--rows", "60", "--draws", "4", "--schemes", "randomised"],
    "cobb_2021.prior_widths": ["--rows", "40", "--draws", "2", "--warmup", "2", "--widths", "0.1"],
    "cobb_2021.fashion": [
        "--rows",
        "60",
        "--test",
        "20",
        "--warmup",
        "1",
        "--draws",
        "4",
        "--schemes",
        "naive",
        "--chains",
        "2",
    ],
    "cobb_2021.cifar": [
        "--rows",
        "40",
        "--test",
        "20",
        "--warmup",
        "1",
        "--draws",
        "4",
        "--schemes",
        "symmetric",
        "--chains",
        "2",
    ],
    "cobb_2021.hyperparameters": ["--rows", "60", "--trials", "2", "--first", "1", "--arms", "SGD"],
}


@pytest.fixture
def _single_precision(_float64):
    """The frameworks' own precision, in which the scripts are run."""
    import jax
    import torch

    jax.config.update("jax_enable_x64", False)
    torch.set_default_dtype(torch.float32)


in_single_precision = pytest.mark.usefixtures("_single_precision")


@pytest.mark.slow
@in_single_precision
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_longer_script_runs(name, tmp_path):
    import importlib
    import os

    if not os.environ.get("SPLIT_MCMC_DATA"):
        pytest.skip("needs the data sets, in the directory that SPLIT_MCMC_DATA names")
    module = importlib.import_module(f"benchmarks.papers.{name}")
    module.main([*SCRIPTS[name], "--json", str(tmp_path / "found.json")])
    assert json.loads((tmp_path / "found.json").read_text())["results"]


@pytest.mark.slow
@in_single_precision
@pytest.mark.parametrize(
    "name", ["output_priors", "scaled_priors", "layers", "waic", "precision", "covariance", "sghmc_grid"]
)
def test_a_table_of_the_thesis_runs(name, tmp_path):
    import importlib

    only = {"covariance": ["normal, unit"], "precision": ["normal, float"], "output_priors": ["HS ARD"]}
    module = importlib.import_module(f"benchmarks.papers.lau_2018.{name}")
    rows = (
        ["--only", only[name][0]]
        if name in only
        else ["--only", module.rows()[0].name]
        if hasattr(module, "rows")
        else []
    )
    module.main(["--chains", "2", "--warmup", "3", "--draws", "4", *rows, "--json", str(tmp_path / "found.json")])
    assert json.loads((tmp_path / "found.json").read_text())["results"]
