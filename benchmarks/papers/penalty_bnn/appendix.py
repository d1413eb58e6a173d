"""SGLD at two step sizes and a tempered posterior beside PBNN, on the regression.

The paper's appendix draws SGLD at step sizes 1e-7 and 1e-8, a BNN tempered by a power not legible in our copy, and
PBNN, without data or batch size, and says that tempering differs from PBNN in kind. Here all four at n = 10 of N = 300
rows, on the regression of :mod:`benchmarks.papers.penalty_bnn.network`, with the exact band dotted in each panel.

SGLD aims at the posterior of all rows. Its step sizes here are a quarter of the largest that is stable, given all rows,
and a hundredth of that; it starts at the exact mean, lest the start be mistaken for the step. The tempered posterior,
the likelihood to the power n/N, is sampled by SymmetricSplitHMC through ``numpyro.handlers.scale`` and knows nothing of
minibatches; the mean over minibatches of n of these rows is the same function, so it should agree with PBNN, and does.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from benchmarks.common.report import save
from benchmarks.papers.penalty_bnn.chains import Chain, Size, cells, header, parse_options, run, save_figure
from benchmarks.papers.penalty_bnn.network import (
    GRID,
    NOISE,
    NUM_ROWS,
    Regression,
    draw_bands,
    exact,
    exact_weights,
    load,
    model,
    penalty_kernel,
    summary,
)
from numpyro_split import SGLD, SymmetricSplitHMC

BATCH_SIZE = 10
POWER = BATCH_SIZE / NUM_ROWS
LARGE_STEP, SMALL_STEP = 1.0, 0.01  # times 1 / (largest second derivative of the energy); 4 is the limit
COLUMNS = {
    "accept_prob": "11.2f",
    "step_size": "9.2g",
    "mean_sd": "7.3f",
    "sd_ratio": "8.3f",
    "mean_error": "10.3f",
    "coverage_90": "11.2f",
    "ess": "6.0f",
    "seconds": "7.0f",
}


class Case(NamedTuple):
    """A panel: a kernel, its length, the power of the likelihood that it aims at, and where it starts."""

    kernel: Any
    size: Size
    power: float
    start: dict[str, Any] | None = None


def cases(data: Regression, is_quick: bool) -> dict[str, Case]:
    """The four panels."""
    features = data.features(data.x)
    unit = 1 / (1 + np.linalg.eigvalsh(features.T @ features)[-1] / NOISE**2)
    shrink = 10 if is_quick else 1
    long, middle, short = Size(20_000, 100_000), Size(5_000, 10_000), Size(1_000, 2_000)
    sizes = [Size(size.warmup // shrink, size.draws // shrink) for size in (long, middle, short)]
    start = {"weights": jnp.asarray(exact_weights(data, 1.0)[0], jnp.float32)}
    sgld = partial(SGLD, model, BATCH_SIZE)
    tempered = SymmetricSplitHMC(partial(model, power=POWER), num_subsets=1, dense_mass=True)
    return {
        "SGLD, large step": Case(sgld(step_size=LARGE_STEP * unit), sizes[0], 1.0, start),
        "SGLD, small step": Case(sgld(step_size=SMALL_STEP * unit), sizes[0], 1.0, start),
        f"tempered, power {BATCH_SIZE}/{NUM_ROWS}": Case(tempered, sizes[2], POWER),
        f"PBNN, n = {BATCH_SIZE}": Case(penalty_kernel(BATCH_SIZE), sizes[1], POWER),
    }


def draw(data: Regression, panels: dict[str, tuple[Case, Chain]], directory: str) -> None:
    """Bands of each chain, with the exact band of what it aims at."""
    figure = Figure(figsize=(12, 8), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    for ax, (name, (case, chain)) in zip(axes.flat, panels.items(), strict=True):
        draw_bands(ax, data, chain, case.power, name)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, ncols=5, loc="outside upper center", fontsize="small")
    save_figure(figure, directory, "penalty_bnn_appendix")


def main(arguments: list[str] | None = None) -> None:
    """Run the chains, print a table, draw the figure."""
    options = parse_options(__doc__, arguments)
    data = load(options.seed)
    print(f"N = {NUM_ROWS}, n = {BATCH_SIZE}\n{'':24s}", header(COLUMNS))
    panels, results = {}, []
    for name, case in cases(data, options.quick).items():
        chain = run(case.kernel, case.size, options.seed, *data.rows, init_params=case.start)
        panels[name] = case, chain
        results.append({"name": name, "power": case.power, **summary(data, chain, exact(data, case.power, GRID))})
        print(f"{name:24s}", cells(results[-1], COLUMNS), flush=True)
    if options.figures:
        draw(data, panels, options.figures)
    save(options.json, {"rows": NUM_ROWS, "batch_size": BATCH_SIZE}, results)


if __name__ == "__main__":
    main()
