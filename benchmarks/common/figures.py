"""Figures of ``docs/performance.md``, as SVG, from the results of benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.efficiency.records import Results, values

FIELDS = {"ess_per_pass": "effective draws a data pass", "ess_per_second": "effective draws a second"}
OURS, OTHERS = "tab:blue", "tab:gray"
COLOURS = (OURS, "tab:orange")


def save_figure(figure: Any, path: Path) -> None:
    """Write an SVG that is the same for the same figures."""
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def draw_arms(results: Results, target: str, path: Path) -> None:
    """Medians, with least and most of seeds, of every arm of a target; a sentence where none was run."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    arms = list(results.get(target, {}).get("arms", {}))
    figure, axes = plt.subplots(1, 2, figsize=(9, 1.2 + 0.28 * max(len(arms), 3)), sharey=True, layout="constrained")
    for axis, (field, text) in zip(axes, FIELDS.items(), strict=True):
        axis.set_xlabel(text)
        if not arms:
            axis.text(0.5, 0.5, "not run yet", ha="center", transform=axis.transAxes)
        for place, arm in enumerate(arms):
            found = values(results, target, arm, field)
            middle = float(np.median(found))
            ends = [[middle - min(found)], [max(found) - middle]]
            colour = OTHERS if arm.startswith(("host", "HMCECS", "hamiltorch")) else OURS
            axis.errorbar(middle, place, xerr=ends, fmt="o", color=colour, capsize=2)
        if arms:
            axis.set_xscale("log")
            low, high = axis.get_xlim()
            axis.set_xlim(low / 1.5, high * 1.5)
            axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 50 * low else (1,)))
            axis.xaxis.set_minor_locator(NullLocator())
            axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.grid(axis="x", color="0.9")
    axes[0].set_yticks(range(len(arms)), arms)
    axes[0].set_ylim(max(len(arms), 1) - 0.5, -0.5)
    figure.suptitle(target)
    save_figure(figure, path)


def draw_ratios(by_arm: dict[str, dict[str, list[float]]], path: Path) -> None:
    """Ratios of each arm by target, medians with least and most; a sentence where there are none.

    Args:
        by_arm: for each arm, the seeds' ratios by target.
        path: of the figure.
    """
    import matplotlib.pyplot as plt

    first = next(iter(by_arm.values()), {})
    names = sorted(first, key=lambda name: float(np.median(first[name])))
    figure, axis = plt.subplots(figsize=(8, 1.6 + 0.3 * max(len(names), 3)), layout="constrained")
    for number, (arm, by_target) in enumerate(by_arm.items()):
        found = [(place, by_target[name]) for place, name in enumerate(names) if name in by_target]
        for place, ratios in found:
            axis.plot([min(ratios), max(ratios)], [place + 0.2 * number] * 2, color=COLOURS[number])
        middles, places = [np.median(x) for _, x in found], [place + 0.2 * number for place, _ in found]
        axis.plot(middles, places, "os"[number], color=COLOURS[number], label=arm)
    axis.set_yticks(range(len(names)), names)
    axis.set_xscale("log")
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_xlabel("effective draws a gradient after 200 iterations\nover those of the host's NUTS after 1,000")
    axis.legend(loc="lower right")
    if not names:
        axis.text(0.5, 0.5, "not run yet", ha="center", transform=axis.transAxes)
    save_figure(figure, path)
