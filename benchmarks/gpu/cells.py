"""One process of ``benchmarks.gpu``: reads cells from standard input and writes a line of JSON for each.

A process of its own, because the peak of JAX's allocator cannot be reset, and because neither framework should hold
memory while the other is measured.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any, NamedTuple

from benchmarks.common.labelled import Labelled, load_images, tall_table

IMAGES = {"softmax": "MNIST", "pooled": "Fashion-MNIST"}


class Cell(NamedTuple):
    """What is measured.

    Attributes:
        framework: "numpyro" or "pyro".
        target: name of a model of ``benchmarks.common``.
        num_rows: N.
        num_subsets: M.
        num_steps: L, of an iteration.
        repeats: rounds of timing.
        data: directory of the images; None for the environment's.
        device: "gpu" or "cpu", where all must lie.
    """

    framework: str
    target: str
    num_rows: int
    num_subsets: int
    num_steps: int
    repeats: int
    data: str | None
    device: str


def load(cell: Cell) -> Labelled:
    """The rows of a cell's target."""
    if cell.target == "tall":
        return tall_table(cell.num_rows)
    return load_images(cell.data, cell.num_rows, IMAGES[cell.target])


def measured(cell: Cell) -> dict[str, Any]:
    """What a cell shows; where its memory does not suffice, that."""
    side = importlib.import_module(f"benchmarks.gpu.{cell.framework}_side")
    labelled = load(cell)
    found = cell._asdict() | {"rows": len(labelled.labels), "source": labelled.source, "on": side.describe()}
    try:
        return found | side.measure(cell, labelled)
    except RuntimeError as error:
        if not any(words in str(error) for words in ("RESOURCE_EXHAUSTED", "out of memory")):
            raise
        return found | {"failed": "out of memory"}


def main() -> None:
    """Measure every cell."""
    for fields in json.load(sys.stdin):
        print(json.dumps(measured(Cell(**fields))), flush=True)


if __name__ == "__main__":
    main()
