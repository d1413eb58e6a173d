"""Writes the tables of the benchmarks' pages from the JSON that they rest on.

``python -m benchmarks.render`` writes them, and names the pages that it changed. In a page the lines

    <!-- table: NAME -->
    <!-- end of table -->

say where a table is; what stands between them is rendered. The tables of a folder are the functions in the ``TABLES``
of its ``tables.py``, by name; its page is its ``README.md``, or the ``PAGE`` that ``tables.py`` names.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parent
PLACE = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end of table -->\n)", re.DOTALL)


def pages() -> dict[Path, Mapping[str, Callable[[], str]]]:
    """Each page that has tables, and what makes them, by name."""
    found: dict[Path, dict[str, Callable[[], str]]] = {}
    for path in sorted(ROOT.rglob("tables.py")):
        module = importlib.import_module(".".join(("benchmarks", *path.relative_to(ROOT).with_suffix("").parts)))
        found.setdefault(getattr(module, "PAGE", path.with_name("README.md")), {}).update(module.TABLES)
    return dict(found)


def rendered(text: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """A page with its tables as they should be.

    Raises:
        ValueError: unless the page has a place for each table, and no other.
    """
    places = [name for _, name, _ in PLACE.findall(text)]
    if sorted(places) != sorted(tables):
        raise ValueError(f"a page must have a place for each of {sorted(tables)}, got {sorted(places)}")
    return PLACE.sub(lambda found: found[1] + tables[found[2]]() + found[3], text)


def main() -> None:
    """Write the pages that differ."""
    for page, tables in pages().items():
        text = page.read_text()
        new = rendered(text, tables)
        if new != text:
            page.write_text(new)
            print(page.relative_to(ROOT.parent))


if __name__ == "__main__":
    main()
