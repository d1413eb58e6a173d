"""The figures: traces, energies, and the entropy of right and wrong predictions."""

from pathlib import Path

import arviz as az
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from demo.outcomes import Outcome
from demo.settings import MODELS, SAMPLERS
from split_common.plots import plot_entropy

MODEL_TITLES = {"softmax": "softmax regression", "network": "one-hidden-layer network"}
ENERGY_COLOURS = ("#2b6cb0", "#ed8936")
RESOLUTION = 130  # dots per inch


def write_figures(outcomes: list[Outcome], directory: Path) -> list[Path]:
    """Write every figure, and return where they are."""
    directory.mkdir(parents=True, exist_ok=True)
    figures = {"predictive_entropy": entropy_figure(outcomes)}
    for framework in dict.fromkeys(outcome.framework for outcome in outcomes):
        chosen = [outcome for outcome in outcomes if outcome.framework == framework]
        figures[f"trace_{framework.lower()}"] = trace_figure(chosen)
        figures[f"energy_{framework.lower()}"] = energy_figure(chosen)
    paths = []
    for name, figure in sorted(figures.items()):
        paths.append(directory / f"{name}.png")
        figure.savefig(paths[-1], dpi=RESOLUTION)
    return paths


def trace_figure(outcomes: list[Outcome]) -> Figure:
    """Density and trace of the mean log-probability of the right class, a row for each run of one framework."""
    figure = Figure(figsize=(11, 2.1 * len(outcomes) + 1), layout="constrained")
    axes = figure.subplots(len(outcomes), 2, squeeze=False, width_ratios=(1, 2))
    for row, outcome in zip(axes, outcomes, strict=True):
        data = az.from_dict(
            posterior={"log density": outcome.test_log_density},
            sample_stats={"diverging": outcome.statistics["diverging"].astype(bool)},
        )
        az.plot_trace(data, axes=row[None], compact=False, legend=False)
        count = int(outcome.statistics["diverging"].sum())
        row[0].set_title(f"{MODEL_TITLES[outcome.model]}, {outcome.sampler}", fontsize=9)
        row[1].set_title(f"divergent draws (ticks on the axis): {count}", fontsize=9)
        row[0].xaxis.set_major_locator(MaxNLocator(4))
        for ax in row:
            ax.tick_params(labelsize=8)
    axes[-1, 0].set_xlabel("mean log-probability of the right class (nats)", fontsize=8)
    axes[-1, 1].set_xlabel("draw", fontsize=8)
    figure.suptitle(
        f"{outcomes[0].framework}: log-probability of the right class, mean over the test images;\n"
        "density (left) and trace (right) of each chain"
    )
    return figure


def energy_figure(outcomes: list[Outcome]) -> Figure:
    """Marginal energy against energy transitions, with BFMI, for the runs of one framework that record energies."""
    recorded = [outcome for outcome in outcomes if "energy" in outcome.statistics]
    samplers = [name for name in SAMPLERS if any(outcome.sampler == name for outcome in recorded)]
    figure = Figure(figsize=(1 + 3.6 * len(samplers), 6), layout="constrained")
    axes = figure.subplots(len(MODELS), len(samplers), squeeze=False)
    for outcome in recorded:
        ax = axes[MODELS.index(outcome.model), samplers.index(outcome.sampler)]
        energy = outcome.statistics["energy"]
        data = az.from_dict(sample_stats={"energy": energy})
        az.plot_energy(
            data, ax=ax, legend=False, bfmi=False, textsize=9, fill_alpha=(0.7, 0.6), fill_color=ENERGY_COLOURS
        )
        worst = float(np.min(az.bfmi(data)))
        ax.set_title(f"{MODEL_TITLES[outcome.model]},\n{outcome.sampler}: worst BFMI {worst:.2f}", fontsize=9)
        ax.set_xlabel("energy less its mean; change from draw to draw (nats)", fontsize=8)
        ax.xaxis.set_major_locator(MaxNLocator(5))  # ArviZ takes the ticks away
        ax.tick_params(labelsize=8)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    absent = [name for name in SAMPLERS if name not in samplers]
    note = f"\n({', '.join(absent)} of {outcomes[0].framework} records no energies)" if absent else ""
    figure.suptitle(f"{outcomes[0].framework}: energy and its changes between draws{note}")
    return figure


def entropy_figure(outcomes: list[Outcome]) -> Figure:
    """Predictive entropy of right and of wrong test predictions under symmetric splitting."""
    shown = [outcome for outcome in outcomes if outcome.sampler == "symmetric"]
    frameworks = list(dict.fromkeys(outcome.framework for outcome in shown))
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    axes = figure.subplots(len(MODELS), len(frameworks), squeeze=False, sharex=True, sharey=True)
    bins = np.linspace(0.0, max(outcome.entropy.max() for outcome in shown), 17)
    for outcome in shown:
        ax = axes[MODELS.index(outcome.model), frameworks.index(outcome.framework)]
        plot_entropy(outcome.entropy, outcome.is_right, ax, bins)
        ax.set_title(f"{outcome.framework}, {MODEL_TITLES[outcome.model]}", fontsize=10)
    for ax in axes.flat:
        ax.label_outer()
    figure.suptitle("Symmetric splitting: predictive entropy of right and of wrong test predictions")
    return figure
