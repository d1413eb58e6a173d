"""Tables of the runs, by target."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.arrival.chance import counts
from benchmarks.arrival.record import HOST
from benchmarks.common.markdown import NO_FIGURE, results_of, table

KERNELS = ("SymmetricSplitHMC", "SplitNUTS", "S3HMC")
FRAMEWORKS = ("numpyro", "pyro")


def runs(framework: str) -> str:
    """Of every target: R-hat and trouble of the host, and of each kernel those, |z|, and gradients over the host's."""
    header = ["target", "seeds", "R-hat of NUTS", *(f"{kernel}: R-hat; \\|z\\|; gradients" for kernel in KERNELS)]
    return table(header, (_row(name, found) for name, found in results_of(f"arrival_{framework}").items()))


def by_chance() -> str:
    """Of runs whose host has an R-hat below 1.02: how many have more, and how many would have by chance alone."""
    header = ["kernel", *(f"{host}: runs; R-hat of 1.02 or more; by chance" for host in ("NumPyro", "Pyro"))]
    found = [results_of(f"arrival_{framework}") for framework in FRAMEWORKS]
    rows = ((f"`{kernel}`", *("{}; {}; {:.1f}".format(*counts(x, kernel)) for x in found)) for kernel in KERNELS)
    return table(header, rows)


def _row(target: str, found: dict[str, dict[str, Any]]) -> list[str]:
    host = found[HOST]
    worst = f"{_largest(host, host, 'rhat'):.3f}{_told(host)}"
    return [f"`{target}`", str(len(host)), worst, *(_cell(found.get(kernel, {}), host) for kernel in KERNELS)]


def _cell(by_seed: dict[str, Any], host: dict[str, Any]) -> str:
    """Worst R-hat and |z|, least and most gradients over the host's, and how many runs the report found trouble in."""
    runs = {seed: row for seed, row in by_seed.items() if row is not None}
    if not runs:
        return NO_FIGURE
    passes = sorted(row["passes"] for row in runs.values())
    price = f"{passes[0]:.2f}" if len(passes) == 1 else f"{passes[0]:.2f} to {passes[-1]:.2f}"
    return f"{_largest(runs, host, 'rhat'):.3f}; {_largest(runs, host, 'z'):.1f}; {price}{_told(runs)}"


def _told(runs: dict[str, Any]) -> str:
    """In how many runs the report finds trouble; empty where it is in none."""
    troubled = sum(bool(row["trouble"]) for row in runs.values())
    return f"; trouble in {troubled}" if troubled else ""


def _largest(runs: dict[str, Any], host: Iterable[str], figure: str) -> float:
    return max(runs[seed][figure] for seed in host if seed in runs)


TABLES = {
    **{framework: lambda framework=framework: runs(framework) for framework in FRAMEWORKS},
    "by chance": by_chance,
}
