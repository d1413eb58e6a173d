"""What is asked of each case, in one place for both hosts."""

from __future__ import annotations

import importlib
import re
from types import ModuleType

import numpy as np

from split_common.errors import ModelNotSplittableError
from tests.public_models.case import RIGHT, Case

LEAST_POINTS = 5
RELATIVE, ABSOLUTE = 1e-5, 1e-3  # of differences between points; nats


def host_of(case: Case) -> ModuleType:
    """How the case's host runs a model."""
    return importlib.import_module(f"tests.public_models.{case.host}_host")


def outcome(case: Case) -> str:
    """What came of the case, for the table of the README: right, refused with its words, or what is wrong."""
    host = host_of(case)
    if case.expected != RIGHT:
        error = host.refusal(case)
        return "TAKEN, to be refused" if error is None else fault_of_refusal(case, error) or f"refused: {error}"
    try:
        ours, theirs = host.energies(case)
    except (ModelNotSplittableError, ValueError) as error:
        return f"REFUSED: {error}"
    fault = difference(ours, theirs)
    if fault:
        return f"WRONG: {fault}"
    return f"right, {host.verdict(case)}" if case.divides else "right"


def fault_of_refusal(case: Case, error: Exception) -> str:
    """What is wrong with a refusal; empty if it is an error of ours with the words that help."""
    if not isinstance(error, ModelNotSplittableError | ValueError):
        return f"BARE {type(error).__name__}: {error}"
    if not re.search(case.words, str(error)):
        return f"OTHER WORDS than {case.words!r}: {error}"
    return ""


def difference(ours: np.ndarray, theirs: np.ndarray) -> str:
    """Where differences of energy between the points are not the host's; empty where they all are."""
    assert len(theirs) >= LEAST_POINTS
    ours, theirs = ours - ours[0], theirs - theirs[0]
    apart = np.abs(ours - theirs)
    return "" if np.all(apart <= np.maximum(ABSOLUTE, RELATIVE * np.abs(theirs))) else f"{ours} instead of {theirs}"
