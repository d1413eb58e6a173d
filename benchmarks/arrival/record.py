"""What was found, by target, kernel and seed, in a file that later runs add to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.report import save

HOST = "host NUTS"
Rows = Mapping[str, dict[str, Any] | None]


class Record:
    """Rows of each target by kernel and seed; None for a kernel that does not apply to the target.

    Args:
        path: JSON file whose rows are kept and added to; None where nothing is written.
        settings: with which all its rows were made.
    """

    def __init__(self, path: str | None, settings: dict[str, Any]):
        self._path, self._settings = path, settings
        known = json.loads(Path(path).read_text()) if path is not None and Path(path).is_file() else None
        if known is not None and known["settings"] != settings:
            raise ValueError(f"--json must name a file of runs with settings {settings}, got {known['settings']}")
        self._rows: dict[str, dict[str, dict[str, Any]]] = known["results"] if known is not None else {}

    def missing(self, target: str, kernels: Iterable[str], seeds: Sequence[int]) -> list[int]:
        """Seeds that some of the kernels, or the host, have not run on a target."""
        known = self._rows.get(target, {})
        return [seed for seed in seeds if any(str(seed) not in known.get(name, {}) for name in (HOST, *kernels))]

    def add(self, target: str, seed: int, rows: Rows) -> None:
        """Keep the rows of a target and a seed, by kernel, and write all of them."""
        for kernel, row in rows.items():
            self._rows.setdefault(target, {}).setdefault(kernel, {})[str(seed)] = row
        save(self._path, self._settings, self._rows)
