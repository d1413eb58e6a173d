"""Results in a file to which every run adds its arms, and what is read from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

Results = dict[str, dict[str, Any]]


def read(path: str | Path | None) -> Results:
    """The results in a file; none where there is no file."""
    if path is None or not Path(path).exists():
        return {}
    return json.loads(Path(path).read_text())["results"]


def merged(old: Results, new: Results) -> Results:
    """Both; of an arm that both have, the new one."""
    names = [*old, *(name for name in new if name not in old)]
    return {
        name: {
            **old.get(name, {}),
            **new.get(name, {}),
            "arms": {**old.get(name, {}).get("arms", {}), **new.get(name, {}).get("arms", {})},
        }
        for name in names
    }


def values(results: Results, target: str, arm: str, field: str) -> np.ndarray:
    """A figure of an arm by seed; of none where it was not run."""
    runs = results.get(target, {}).get("arms", {}).get(arm, {}).get("seeds", {})
    return np.array([run[field] for run in runs.values()], float)


def ratios(results: Results, target: str, ours: str, theirs: str, field: str) -> np.ndarray:
    """Of one arm's figure to another's, seed by seed; of none where either was not run."""
    ours_, theirs_ = (values(results, target, arm, field) for arm in (ours, theirs))
    number = min(len(ours_), len(theirs_))
    with np.errstate(divide="ignore", invalid="ignore"):
        return ours_[:number] / theirs_[:number]


def interval(numbers: np.ndarray, form: str = ".3g") -> str:
    """Median, and least to most where there are several; the one number of a single seed."""
    if not len(numbers):
        return "not run yet"
    if len(numbers) == 1:
        return f"{numbers[0]:{form}}"
    return f"{np.median(numbers):{form}} ({min(numbers):{form}} to {max(numbers):{form}})"
