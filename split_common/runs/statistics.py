"""Statistics of draws under ArviZ's names."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

ARVIZ_NAMES = {"accept_prob": "acceptance_rate", "num_steps": "n_steps"}


def arviz_statistics(fields: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Statistics by ArviZ's names, from statistics by the names of a state's fields.

    Example:
        >>> arviz_statistics({"num_steps": np.array([3]), "potential_energy": np.array([1.5])})
        {'n_steps': array([3]), 'lp': array([-1.5])}
    """
    found = {ARVIZ_NAMES.get(name, name): x for name, x in fields.items()}
    if "potential_energy" in found:
        found["lp"] = -found.pop("potential_energy")
    return found


def state_fields(statistics: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Statistics by the names of a state's fields, from statistics by ArviZ's names: inverse of the above."""
    names = {theirs: ours for ours, theirs in ARVIZ_NAMES.items()}
    found = {names.get(name, name): x for name, x in statistics.items()}
    if "lp" in found:
        found["potential_energy"] = -found.pop("lp")
    return found
