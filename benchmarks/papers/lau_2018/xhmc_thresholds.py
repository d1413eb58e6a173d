"""Table 4.2 of Lau (2018): exhaustive HMC at several thresholds against the generalised No-U-Turn sampler.

A Bayesian network of one hidden layer on scikit-learn's digits. The last row, not in the thesis, is the threshold
that adapts in warm-up.
"""

from __future__ import annotations

from benchmarks.papers.lau_2018.digits import TARGET_ACCEPT_PROB, Paper, Row, network, parse_options, run_table
from numpyro_split import XHMC, SplitNUTS

XHMC_PAPER = {
    0.01: Paper(25.6, 681, 1330),
    0.05: Paper(25.8, 738, 1346),
    0.1: Paper(28.6, 396, 1351),
    0.2: Paper(23.4, 822, 1324),
}
GNUTS_PAPER = Paper(26.0, 682, 1369)
STATISTICS = ("tree_depth", "threshold")


def exhaustive(threshold: float | str) -> XHMC:
    """XHMC by the thesis's Algorithm 13, steps and diagonal metric adapted."""
    return XHMC(network(), threshold=threshold, criterion="per_length", target_accept_prob=TARGET_ACCEPT_PROB)


def rows() -> list[Row]:
    """The thesis's rows in its order, then ours."""
    gnuts = SplitNUTS(network(), target_accept_prob=TARGET_ACCEPT_PROB)
    return [
        *(
            Row(f"XHMC {threshold:g}", paper, exhaustive(threshold), STATISTICS)
            for threshold, paper in XHMC_PAPER.items()
        ),
        Row("GNUTS", GNUTS_PAPER, gnuts, ("tree_depth",)),
        Row("XHMC adapt", None, exhaustive("adapt"), STATISTICS),
    ]


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    run_table(rows(), parse_options(__doc__, arguments))


if __name__ == "__main__":
    main()
