"""The runner knows every benchmark, and every benchmark says what it measures and takes the common options."""

import importlib
import re
from pathlib import Path

import pytest

from benchmarks.__main__ import benchmarks
from benchmarks.render import pages, rendered

ROOT = Path(__file__).parents[1] / "benchmarks"
KNOWN = benchmarks()
OWN_OPTIONS = {"same_draws"}  # which compares commits, of both packages


def script_of(name):
    path = ROOT / name.replace(".", "/")
    return path / "__main__.py" if path.is_dir() else path.with_suffix(".py")


def test_every_folder_is_a_benchmark_or_shared():
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"common", "papers"}
    assert folders == {name for name in KNOWN if not name.startswith("papers.")}
    assert len(KNOWN) > len(folders)


@pytest.mark.parametrize("name", KNOWN)
def test_it_says_what_it_measures(name):
    assert len(KNOWN[name]) > 20
    if not name.startswith("papers."):
        assert importlib.import_module(f"benchmarks.{name}").__doc__


@pytest.mark.parametrize("name", KNOWN)
def test_one_dialect_of_options(name):
    """The common options come from one place, none is defined again."""
    texts = [script_of(name).read_text()]
    if name.startswith("papers."):  # whose scripts share a command line
        texts += [path.read_text() for path in script_of(name).parent.glob("*.py")]
        texts.append((ROOT / "papers" / "options.py").read_text())
    assert any("add_common_options(" in text for text in texts) == (name not in OWN_OPTIONS)
    for text in texts:
        assert not re.findall(r'add_argument\("--(framework|json|quick|full|data)"', text)


def test_the_readme_names_each():
    text = (ROOT / "README.md").read_text()
    assert not [name for name in KNOWN if not name.startswith("papers.") and f"`{name}`" not in text]


PAGES = pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_a_page_is_what_its_results_render(page):
    """After a benchmark has been run: ``python -m benchmarks.render``."""
    assert rendered(page.read_text(), PAGES[page]) == page.read_text()


def test_a_figure_that_was_changed_by_hand_is_found():
    page = ROOT / "exhaustion" / "README.md"
    changed = page.read_text().replace("21.8 ± 1.8", "22.8 ± 1.8")
    assert changed != page.read_text()
    assert rendered(changed, PAGES[page]) == page.read_text()


def test_a_table_without_a_place_is_an_error():
    with pytest.raises(ValueError, match="a place for each"):
        rendered("no table", {"cost": str})


def test_the_control_leaves_the_penalty_out():
    """What the negative control of the penalty's experiments replaces is a step of the method that its kernel runs."""
    pytest.importorskip("numpyro")
    from benchmarks.papers.penalty_bnn.chains import NoPenalty, WithoutPenalty
    from numpyro_split.kernels.penalty import Penalty

    assert type(WithoutPenalty(lambda: None, 5)._method) is NoPenalty
    assert set(vars(NoPenalty)) & set(vars(Penalty)) >= {"_propose"}
