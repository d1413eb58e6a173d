"""Tables of a page, made of the results that a benchmark has written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"
NO_FIGURE = "–"


def results_of(name: str) -> Any:
    """What a benchmark found, from the file of that name in ``results``."""
    return json.loads((RESULTS / f"{name}.json").read_text())["results"]


def settings_of(name: str) -> Any:
    """What a benchmark was run with."""
    return json.loads((RESULTS / f"{name}.json").read_text())["settings"]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    if any(len(line) != len(header) for line in lines):
        raise ValueError(f"rows must have {len(header)} cells as the header, got {[len(line) for line in lines]}")
    return "".join("|" + "".join(f" {cell} |" if cell else " |" for cell in line) + "\n" for line in lines).replace(
        "| --- ", "|---"
    )


def significant(value: float, digits: int = 3) -> str:
    """A number to some digits, written out where it is large."""
    text = f"{value:.{digits}g}"
    return f"{float(text):,.0f}" if abs(value) >= 10**digits else text


def figure(value: Any, form: str) -> str:
    """A number in a form; nothing where there is none."""
    return "" if value is None else format(value, form)
