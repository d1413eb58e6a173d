"""The tables, figures and stated results of the five papers, by name."""

from __future__ import annotations

from benchmarks.papers.cobb_2019.items import ITEMS as COBB_2019
from benchmarks.papers.cobb_2021.items import DRAFT, PUBLISHED
from benchmarks.papers.findings import Item
from benchmarks.papers.lau_2018.items import ITEMS as LAU_2018
from benchmarks.papers.penalty_bnn.items import ITEMS as PENALTY_BNN

PAPERS: dict[str, tuple[Item, ...]] = {
    "A: Cobb and Jalaian (2021), symmetric split HMC": PUBLISHED,
    "A′: its draft of 2020": DRAFT,
    "B: Cobb and others (2019), S3HMC": COBB_2019,
    "C: Lau (2018), thesis on dynamic HMC for Bayesian networks": LAU_2018,
    "D: Data subsampling for Bayesian networks (penalty BNN)": PENALTY_BNN,
}
