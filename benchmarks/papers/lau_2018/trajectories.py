"""Table 4.13 of Lau (2018): static and windowed HMC over a range of lengths, and dynamic HMC.

A Bayesian network of one hidden layer on scikit-learn's digits. The thesis does not give the size of its windows;
here a window is a fifth of the steps. The default size leaves the longest trajectories out.
"""

from __future__ import annotations

from benchmarks.common.report import size_named
from benchmarks.papers.lau_2018.digits import TARGET_ACCEPT_PROB, Paper, Row, network, parse_options, run_table
from numpyro_split import SplitNUTS, SymmetricSplitHMC, WindowedHMC

STATIC_PAPER = {
    10: Paper(22.8, 704, 1061),
    50: Paper(27.0, 36, 379),
    100: Paper(28.6, 126, 823),
    200: Paper(22.2, 713, 1196),
    500: Paper(23.8, 345, 1245),
}
WINDOWED_PAPER = {
    10: Paper(22.2, 283, 765),
    50: Paper(24.2, 196, 1533),
    100: Paper(23.8, 254, 1256),
    200: Paper(24.0, 340, 1204),
    500: Paper(23.4, 693, 1252),
}
DYNAMIC_PAPER = Paper(23.4, 358, 1348)
LONGEST = {"quick": 10, "default": 200, "full": 500}
STEPS_PER_WINDOW_STATE = 5


def rows(longest: int) -> list[Row]:
    """Static, windowed and dynamic HMC; trajectories of at most ``longest`` steps but for the dynamic ones."""
    lengths = [num_steps for num_steps in STATIC_PAPER if num_steps <= longest]
    dynamic = SplitNUTS(network(), target_accept_prob=TARGET_ACCEPT_PROB)
    return [
        *(Row(f"static L={num_steps}", STATIC_PAPER[num_steps], static(num_steps)) for num_steps in lengths),
        *(Row(f"windowed L={num_steps}", WINDOWED_PAPER[num_steps], windowed(num_steps)) for num_steps in lengths),
        Row("dynamic", DYNAMIC_PAPER, dynamic, ("tree_depth",)),
    ]


def static(num_steps: int) -> SymmetricSplitHMC:
    """HMC: the symmetric schedule of one subset is leapfrog."""
    return SymmetricSplitHMC(network(), num_subsets=1, num_steps=num_steps, target_accept_prob=TARGET_ACCEPT_PROB)


def windowed(num_steps: int) -> WindowedHMC:
    """HMC with windows of acceptance."""
    return WindowedHMC(
        network(),
        num_steps=num_steps,
        window_size=num_steps // STEPS_PER_WINDOW_STATE,
        target_accept_prob=TARGET_ACCEPT_PROB,
    )


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    options = parse_options(__doc__, arguments)
    run_table(rows(LONGEST[size_named(options)]), options)


if __name__ == "__main__":
    main()
