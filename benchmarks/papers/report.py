"""Writes ``docs/results.md`` and its figures from the committed results: no data, no accelerator, seconds.

``python -m benchmarks.papers.report``, or ``make report``. The page's first line counts the statuses of all items of
``benchmarks.papers.registry``; then each item has the paper's number beside ours. Figures are SVG in ``docs/figures``.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.common.figures import save_figure
from benchmarks.common.markdown import table
from benchmarks.papers.findings import CLOSED, NOT_RUN, STATUSES, Finding, Item, status_of
from benchmarks.papers.registry import PAPERS

ROOT = Path(__file__).parents[2]
PAGE, FIGURES = ROOT / "docs" / "results.md", ROOT / "docs" / "figures"
AGREEMENT = {True: "yes", False: "no", None: "open"}
INTRODUCTION = """
Each table, figure and stated result of the five papers that this library rests on, rerun by `benchmarks/papers`.
Every item has one status. *Reproduced*: at the published size, and all that is compared agrees. *Contradicted*: it
differs, for a reason that is given and that more draws would not take away. *At a fraction of the size*: shorter
chains or fewer rows than published, so its agreement is a trend. *On a stand-in*: other data, where the paper's
cannot be had. Errors are standard errors, over chains or splits unless said otherwise; two numbers agree within two
of them, and *open* says that they leave it undecided, or that there is nothing to compare with. Rows of the
thesis's tables have the test error in %, and the least and the median effective size of all weights in % of the
draws. Everything ran on at most two cores that other jobs shared: times hold for the order of magnitude.

This page is written by `make report`; the numbers of its tables are read from `benchmarks/results`.
"""


def count(items: list[Item]) -> str:
    """The first line: how many items have which status."""
    found = Counter(status_of(item)[0] for item in items)
    return f"Of {len(items)} items: " + ", ".join(f"{found[status]} {status}" for status in STATUSES) + "."


def section(item: Item) -> str:
    """An item's part of the page."""
    status, found = status_of(item)
    lines = [f"### {item.key}: {item.title}", "", f"**{status.capitalize()}.** The paper: {item.reports}", ""]
    if status == CLOSED:
        lines += [str(item.closed), ""]
    elif found is None:
        lines += [f"{NOT_RUN.capitalize()} yet.", ""]
    else:
        lines += _of_finding(found)
    if item.draw is not None and found is not None:
        lines += [f"![{item.title}](figures/{item.figure})", ""]
    return "\n".join(lines)


def _of_finding(found: Finding) -> list[str]:
    rows = [[one.what, one.paper, one.ours, AGREEMENT[one.agrees]] for one in found.comparisons]
    lines = [table(["", "paper", "ours", "agrees"], rows)] if rows else []
    about = [f"Size: {found.size}."]
    if found.stand_in:
        about.append(f"Stand-in: {found.stand_in}.")
    if found.contradicted:
        about.append(f"Contradicted: {found.contradicted}")
    about.append(found.sentence)
    lines += [" ".join(part for part in about if part), ""]
    sources = [f"`python -m {found.command}`"] if found.command else []
    return [*lines, "; ".join(sources + [run.about for run in found.runs]) + ".", ""]


def page() -> str:
    """The whole page."""
    items = [item for group in PAPERS.values() for item in group]
    overview = table(["item", "", "status"], ([item.key, item.title, status_of(item)[0]] for item in items))
    parts = ["# The papers' results, rerun", "", count(items), INTRODUCTION, overview]
    for paper, group in PAPERS.items():
        parts += [f"## {paper}", "", *(section(item) for item in group)]
    return "\n".join(parts).rstrip() + "\n"


def draw(directory: Path = FIGURES) -> list[Path]:
    """Draw every figure of what was run."""
    import matplotlib.pyplot as plt

    drawn = []
    for item in (item for group in PAPERS.values() for item in group):
        if item.draw is not None and item.found() is not None:
            figure: Any = plt.figure(figsize=(9, 3.6), layout="constrained")
            item.draw(figure)
            drawn.append(directory / item.figure)
            save_figure(figure, drawn[-1])
    return drawn


def main() -> None:
    """Write page and figures."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "results"
    PAGE.write_text(page())
    print(page().splitlines()[2])
    for path in draw():
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
