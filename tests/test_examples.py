"""Every example of the docstrings and of the pages runs as it is printed, with the settings that a user starts with.

The Python blocks of a page run from top to bottom in one namespace. A block of text that follows one at once is what
it prints.
"""

import contextlib
import doctest
import importlib
import io
import logging
import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ["split_common", "numpyro_split", "pyro_split"]
PAGES = [p for p in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if "```python" in p.read_text()]
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<printed>.*?)^```\n)?", re.MULTILINE | re.DOTALL)
pytestmark = [
    pytest.mark.filterwarnings("error::UserWarning"),  # an example shows how things are done well
    pytest.mark.filterwarnings("ignore:Estimated shape parameter"),  # of az.loo; by chance where draws are few
    pytest.mark.filterwarnings("ignore:the fewest effective draws are"),  # some runs of the pages are short
]
# half a minute each: what they show is run by notebooks and by tests of its own too
LONG_PAGES = ("extending.md", "gradient_metric.md", "penalty_mh.md", "rows_from_disk.md", "stored_runs.md")
TORCH_SEED = 67280421310721  # that of a fresh process


def docstring_examples():
    """Those of every object in the packages, each under the object's name."""
    for package in PACKAGES:
        folder = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(folder, f"{package}."):
            for found in doctest.DocTestFinder().find(importlib.import_module(module.name)):
                if found.examples:
                    yield pytest.param(found, id=found.name)


@pytest.fixture(autouse=True)
def _as_users_start(_float64):
    """Single precision, fresh seeds, nothing stored; figures are not shown."""
    import jax
    import matplotlib.pyplot as plt
    import pyro
    import torch

    plt.switch_backend("Agg")
    jax.config.update("jax_enable_x64", False)
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(TORCH_SEED)
    pyro.clear_param_store()
    yield
    plt.close("all")
    for package in PACKAGES:
        logging.getLogger(package).setLevel(logging.NOTSET)


@pytest.mark.parametrize("example", docstring_examples())
def test_docstring(example):
    report = []
    doctest.DocTestRunner(verbose=False).run(example, out=report.append)
    assert not report, "".join(report)


@pytest.mark.parametrize(
    "page", [pytest.param(p, id=p.name, marks=[pytest.mark.slow] * (p.name in LONG_PAGES)) for p in PAGES]
)
def test_page(page):
    text, namespace = page.read_text(), {"__name__": page.stem}
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) == text.count("```python")
    for block in blocks:
        line, printed = text[: block.start("code")].count("\n"), io.StringIO()
        with contextlib.redirect_stdout(printed):
            # empty lines, so that a traceback gives the line of the page
            exec(compile("\n" * line + block["code"], str(page), "exec"), namespace)
        if block["printed"] is not None:
            assert printed.getvalue() == block["printed"]
