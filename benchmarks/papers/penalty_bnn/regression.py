"""Non-linear regression against batch size: predictive bands widen as n falls.

The paper draws four panels: a BNN given all rows, PBNN at n = 5 and at n = 10, and the rule without a penalty at n = 10
and the usual δ, scaled by N/n. It names neither data, K nor steps (:mod:`benchmarks.papers.penalty_bnn.network` says
what is taken here). Here also n = 100 and 25. The chain of all rows is SymmetricSplitHMC; the one without a penalty is
a random walk in its metric, with K = 2: K = 20 batches of 10 are most of the rows, and leave little noise.

Beside each chain is the exact posterior of its target: the likelihood to the power n/N, or 1.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from benchmarks.common.report import save, size_named
from benchmarks.papers.penalty_bnn.chains import (
    Chain,
    Size,
    WithoutPenalty,
    cells,
    header,
    parse_options,
    run,
    save_figure,
)
from benchmarks.papers.penalty_bnn.network import (
    GRID,
    NUM_BATCHES,
    NUM_ROWS,
    Regression,
    draw_bands,
    exact,
    load,
    model,
    penalty_kernel,
    summary,
    truth,
)
from numpyro_split import SymmetricSplitHMC
from split_common.plots import COLOURS

BATCH_SIZES, CONTROL_SIZE = (100, 25, 10, 5), 10
SIZES = {"quick": Size(1_000, 1_000), "default": Size(5_000, 10_000)}
HMC_SIZES = {"quick": Size(200, 200), "default": Size(1_000, 2_000)}
COLUMNS = {
    "accept_prob": "11.2f",
    "chi2": "6.2f",
    "mean_sd": "7.3f",
    "sd_ratio": "8.3f",
    "mean_error": "10.3f",
    "coverage_90": "11.2f",
    "ess": "5.0f",
    "rows_touched": "12.0f",
    "seconds": "7.0f",
}


def run_all(data: Regression, length: str, seed: int) -> dict[str, tuple[Chain, float]]:
    """Chains by name, each with the power of the likelihood in its target."""
    found = {
        "all rows": (
            run(SymmetricSplitHMC(model, num_subsets=1, dense_mass=True), HMC_SIZES[length], seed, *data.rows),
            1.0,
        )
    }
    for batch_size in BATCH_SIZES:
        chain = run(penalty_kernel(batch_size), SIZES[length], seed, *data.rows)
        found[f"n = {batch_size}"] = chain, batch_size / NUM_ROWS
    control = run_control(data, found["all rows"][0], SIZES[length], seed)
    return found | {f"n = {CONTROL_SIZE}, no penalty, N/n": (control, 1.0)}


def run_control(data: Regression, full: Chain, size: Size, seed: int) -> Chain:
    """The usual δ without a penalty; a random walk in the metric that the chain of all rows has adapted."""
    kernel = penalty_kernel(
        CONTROL_SIZE,
        WithoutPenalty,
        num_batches=2,
        proposal="random_walk",
        target="posterior",
        inverse_mass_matrix=full.state.adapt_state.inverse_mass_matrix,
        adapt_mass_matrix=False,
    )
    return run(kernel, size, seed, *data.rows)


def draw(data: Regression, chains: dict[str, tuple[Chain, float]], directory: str) -> None:
    """A panel of bands for each chain, with the exact band of the function dotted."""
    figure = Figure(figsize=(12, 7), layout="constrained")
    axes = figure.subplots(2, 3, sharex=True, sharey=True)
    for ax, (name, (chain, power)) in zip(axes.flat, chains.items(), strict=True):
        draw_bands(ax, data, chain, power, name)
        ax.plot(GRID, truth(GRID), color=COLOURS[1], linestyle="--", linewidth=1, label="truth")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, ncols=6, loc="outside upper center", fontsize="small")
    save_figure(figure, directory, "penalty_bnn_regression")


def main(arguments: list[str] | None = None) -> None:
    """Run the chains, print a table, draw the figure."""
    options = parse_options(__doc__, arguments)
    length, data = size_named(options), load(options.seed)
    chains = run_all(data, length, options.seed)
    print(
        f"N = {NUM_ROWS}, K = {NUM_BATCHES}, {SIZES[length]}, of all rows {HMC_SIZES[length]}\n{'':26s}",
        header(COLUMNS),
    )
    results = []
    for name, (chain, power) in chains.items():
        results.append({"name": name, "power": power, **summary(data, chain, exact(data, power, GRID))})
        print(f"{name:26s}", cells(results[-1], COLUMNS))
    if options.figures:
        draw(data, chains, options.figures)
    save(options.json, {"rows": NUM_ROWS, "batches": NUM_BATCHES, **SIZES[length]._asdict()}, results)


if __name__ == "__main__":
    main()
