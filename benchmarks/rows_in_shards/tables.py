"""The table of :mod:`benchmarks.rows_in_shards`, in ``docs/distributed.md``."""

from __future__ import annotations

from pathlib import Path

from benchmarks.common.markdown import results_of, table

PAGE = Path(__file__).parents[2] / "docs" / "distributed.md"
HOSTS = {"NumPyro": "numpyro", "Pyro": "pyro"}


def scaling() -> str:
    """Milliseconds a gradient by M, and bytes a kick, of each layout; medians and quartiles."""
    results = results_of("rows_in_shards")
    subsets = sorted({found["num_subsets"] for found in results})
    layouts = dict.fromkeys((found["package"], found["layout"]) for found in results)
    by_cell = {(found["package"], found["layout"], found["num_subsets"]): found for found in results}
    names = {package: host for host, package in HOSTS.items()}
    rows = (
        [
            names[package],
            layout,
            *(_milliseconds(by_cell[package, layout, m]["seconds"]) for m in subsets),
            _bytes([by_cell[package, layout, m] for m in subsets]),
        ]
        for package, layout in layouts
    )
    return table(["", "rows on", *(f"M = {m}" for m in subsets), "bytes a kick"], rows)


def _milliseconds(seconds: dict[str, float]) -> str:
    return "{median:.3g} [{quartile_1:.3g}, {quartile_3:.3g}]".format(**{k: 1e3 * x for k, x in seconds.items()})


def _bytes(found: list[dict[str, int]]) -> str:
    """The bytes of a kick's one message, the same for every M."""
    kinds = {(x["messages"], x["bytes"]) for x in found}
    return "; ".join(
        f"{size:,} in {'one message' if num == 1 else f'{num} messages'}" if num else "none"
        for num, size in sorted(kinds)
    )


TABLES = {"rows_in_shards": scaling}
