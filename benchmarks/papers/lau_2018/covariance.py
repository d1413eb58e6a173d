"""Table 4.10 of Lau (2018): a dense, a diagonal and a unit metric, with three priors on the output weights.

A dense metric is learnt from the draws of warm-up, of which there have to be more than weights for it to have full
rank: the thesis has 4,000 for its 2,590, a short warm-up has a few, and the host then shrinks it towards a multiple
of the identity.
"""

from __future__ import annotations

from functools import partial

from benchmarks.papers.lau_2018 import output_priors
from benchmarks.papers.lau_2018.digits import TARGET_ACCEPT_PROB, Paper, Row, parse_options, run_table
from numpyro_split import SplitNUTS

METRICS = {
    "dense": {"dense_mass": True},
    "diagonal": {},
    "unit": {"adapt_mass_matrix": False},
}
PAPER = {
    "normal": (Paper(67.0, 5, 17), Paper(24.4, 563, 1331), Paper(20.6, 708, 1324)),
    "normal-inv-gamma": (Paper(86.2, 4, 1271), Paper(22.4, 453, 1348), Paper(26.0, 378, 1271)),
    "normal ARD": (Paper(91.2, 4, 8), Paper(23.2, 370, 1295), Paper(27.2, 140, 1332)),
}
PAPER_SECONDS = {
    "normal": (36596, 10165, 11569),
    "normal-inv-gamma": (38095, 9234, 9158),
    "normal ARD": (74326, 34940, 33212),
}


def rows() -> list[Row]:
    """The thesis's rows in its order."""
    return [
        Row(
            f"{name}, {metric}",
            paper,
            partial(
                SplitNUTS,
                partial(output_priors.network, name),
                target_accept_prob=TARGET_ACCEPT_PROB,
                **METRICS[metric],
            ),
            ("tree_depth",),
            output_priors.weights,
        )
        for name, papers in PAPER.items()
        for metric, paper in zip(METRICS, papers, strict=True)
    ]


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    run_table(rows(), parse_options(__doc__, arguments))


if __name__ == "__main__":
    main()
