"""Table 4.9 of Lau (2018): weights N(0, 1) against N(0, 1 / hidden units), for three widths of the hidden layer."""

from __future__ import annotations

from functools import partial

from benchmarks.papers.lau_2018.digits import TARGET_ACCEPT_PROB, Paper, Row, network, parse_options, run_table
from numpyro_split import SplitNUTS

UNSCALED = {35: Paper(23.4, 358, 1348), 50: Paper(22.8, 952, 1358), 65: Paper(22.0, 610, 1352)}
SCALED = {35: Paper(64.2, 683, 1337), 50: Paper(65.0, 66, 1348), 65: Paper(69.6, 660, 1324)}


def row(units: int, paper: Paper, is_scaled: bool) -> Row:
    """A width with one of the two variances."""
    model = network(units)
    model.prior_sd = units**-0.5 if is_scaled else 1.0
    kernel = partial(SplitNUTS, model, target_accept_prob=TARGET_ACCEPT_PROB)
    return Row(f"{units} units, {'scaled' if is_scaled else 'N(0, 1)'}", paper, kernel, ("tree_depth",))


def rows() -> list[Row]:
    """The thesis's rows in its order."""
    return [
        row(units, papers[units], is_scaled)
        for units in UNSCALED
        for papers, is_scaled in ((UNSCALED, False), (SCALED, True))
    ]


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    run_table(rows(), parse_options(__doc__, arguments))


if __name__ == "__main__":
    main()
