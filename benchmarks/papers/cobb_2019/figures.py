"""The figures of both scripts, written as PNG where a directory is named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.papers.cobb_2019.regression import (
    CONCENTRATION,
    NOISE_PRECISION,
    OUTPUT,
    OUTPUT_START,
    RATE,
    Case,
    Chain,
    load,
    means,
    output_precisions,
)
from split_common.metrics import variance_decomposition
from split_common.plots import COLOURS, PRIOR_COLOUR, plot_bands, plot_entropies, plot_precisions

ENTROPY_BINS = np.linspace(0, np.log(10), 24)  # nats; ten classes
GRID = np.linspace(-8.0, 8.0, 241)
SHOWN_DRAWS = 12


def sine_figures(directory: str, chains: Mapping[Case, Chain], name: str) -> None:
    """Bands of three cases, λ from the first iteration on for each α, and the precisions of both networks."""
    fixed = {case: chain for case, chain in chains.items() if case.output_concentration is None}
    sampled = {case: chain for case, chain in chains.items() if case.output_concentration is not None}
    middle = list(sampled)[len(sampled) // 2]
    _save(_bands(fixed | {middle: sampled[middle]}), directory, f"sine_bands_{name}")
    _save(_output_traces(sampled), directory, f"sine_output_precision_{name}")
    _save(_precisions(fixed), directory, f"sine_precisions_{name}")


def entropy_figure(directory: str | None, entropies: Mapping[str, Mapping[str, np.ndarray]], name: str) -> None:
    """A panel for each method: histograms of the predictive entropy of each data set."""
    if directory is None:
        return
    figure = Figure(figsize=(6, 5), layout="constrained")
    for ax, (method, groups) in zip(figure.subplots(len(entropies), sharex=True), entropies.items(), strict=True):
        plot_entropies(groups, ax, ENTROPY_BINS)
        ax.set_title(method, loc="left", fontsize="medium")
        ax.label_outer()
    _save(figure, directory, f"mnist_cnn_{name}")


def _bands(chains: Mapping[Case, Chain]) -> Figure:
    figure = Figure(figsize=(7, 9), layout="constrained")
    x, y = load()
    for ax, (case, chain) in zip(figure.subplots(len(chains), sharex=True, sharey=True), chains.items(), strict=True):
        f = means(chain.draws, case, GRID[:, None])
        plot_bands(GRID, *variance_decomposition(f, 1 / output_precisions(chain.draws, case)), ax, (x[:, 0], y))
        shown = f[:: max(1, len(f) // SHOWN_DRAWS)][:SHOWN_DRAWS]
        ax.plot(GRID, shown.T, color=PRIOR_COLOUR, linewidth=0.5, alpha=0.7)
        ax.plot(GRID, np.sin(GRID), color=COLOURS[1], linestyle="--", linewidth=1, label="sin x")
        ax.legend(frameon=False, fontsize="small", ncols=3, loc="upper center")
        ax.set_title(f"{case.name}: {len(shown)} draws in grey", loc="left", fontsize="medium")
        ax.label_outer()
    return figure


def _output_traces(chains: Mapping[Case, Chain]) -> Figure:
    figure = Figure(figsize=(7, 3.5), layout="constrained")
    ax = figure.add_subplot()
    for (case, chain), colour in zip(chains.items(), COLOURS, strict=False):
        trace = np.concatenate([[OUTPUT_START], chain.output_in_warmup, chain.draws.posterior[OUTPUT].to_numpy()[0]])
        ax.plot(trace, color=colour, linewidth=0.7, label=case.name)
        ax.axvline(len(chain.output_in_warmup), color=PRIOR_COLOUR, linewidth=0.7)
    ax.axhline(NOISE_PRECISION, color=PRIOR_COLOUR, linestyle="--", label="of the noise")
    ax.set(yscale="log", xlabel="iteration of the first chain; warm-up ends at the line", ylabel="output precision")
    ax.margins(x=0)
    ax.legend(frameon=False, fontsize="small", ncols=4, loc="lower right")
    return figure


def _precisions(chains: Mapping[Case, Chain]) -> Figure:
    figure = Figure(figsize=(7, 6), layout="constrained")
    rng = np.random.default_rng(0)
    heights = [len(case.precisions) for case in chains]
    axes = figure.subplots(len(chains), sharex=True, height_ratios=heights)
    for ax, (case, chain) in zip(axes, chains.items(), strict=True):
        draws = {name: chain.draws.posterior[site].to_numpy().ravel() for name, site in case.precisions.items()}
        plot_precisions(draws, ax, {name: rng.gamma(CONCENTRATION, 1 / RATE, 4000) for name in draws})
        ax.set_title(case.name, loc="left", fontsize="medium")
        ax.label_outer()
    return figure


def _save(figure: Any, directory: str, name: str) -> None:
    Path(directory).mkdir(parents=True, exist_ok=True)
    figure.savefig(Path(directory) / f"{name}.png", dpi=120)
