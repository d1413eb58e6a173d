"""What every benchmark's command line and report share."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PACKAGES = ("jax", "numpyro", "torch", "pyro-ppl", "numpy")


def add_common_options(
    parser: argparse.ArgumentParser,
    frameworks: Sequence[str] = ("numpyro", "pyro"),
    data: bool = False,
    full: str | None = None,
    one_at_a_time: bool = False,
) -> None:
    """Options that every benchmark takes.

    Args:
        parser: of its command line.
        frameworks: that it runs in; empty for one that needs none.
        data: whether it reads MNIST.
        full: what ``--full`` is, of a benchmark that has a size above the one of its figures.
        one_at_a_time: whether one run is in one framework, the first where none is named.
    """
    several = len(frameworks) > 1 and not one_at_a_time
    choices = [*frameworks, "both"] if several else list(frameworks)
    if frameworks:
        parser.add_argument("--framework", choices=choices, default="both" if several else choices[0])
    parser.add_argument("--json", metavar="FILE", help="file to write the results to")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_true", help="a small size: shows that the script runs, not a figure")
    if full is not None:
        sizes.add_argument("--full", action="store_true", help=full)
    if data:
        parser.add_argument("--data", help="directory with mnist.npz; default: environment variable SPLIT_MCMC_DATA")


def size_named(options: argparse.Namespace) -> str:
    """The size asked for: "quick", "default" or "full"."""
    return "quick" if options.quick else "full" if getattr(options, "full", False) else "default"


def chosen(option: str, names: Sequence[str]) -> Sequence[str]:
    """The one name asked for, or all of them."""
    return names if option == "both" else [option]


def verdict(value: float, goal: float) -> str:
    """``value`` against a goal that it should not exceed."""
    return f"goal {goal:.2f}: {'PASS' if value <= goal else 'above'}"


def save(path: str | None, settings: dict[str, Any], results: Any) -> None:
    """Write settings, machine, versions and results as JSON; nothing where ``path`` is None."""
    if path is None:
        return
    report = {
        "machine": {"processor": platform.machine(), "cores": _cores(), "python": platform.python_version()},
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES if _installed(name)},
        "settings": settings,
        "results": results,
    }
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(report, indent=1, default=float) + "\n")


def _cores() -> int | None:
    """Cores that the process may use, where the system tells; else those of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
