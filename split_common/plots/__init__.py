"""Figures of predictive uncertainty, calibration, precisions and runs, with Matplotlib.

Each takes data and optionally axes, and returns the axes; ``ax.figure.savefig(...)`` writes them.
"""

from __future__ import annotations

from split_common.plots.axes import COLOURS, DATA_COLOUR, PRIOR_COLOUR, RIGHT_COLOUR, WRONG_COLOUR
from split_common.plots.bands import plot_bands
from split_common.plots.calibration import plot_coverage, plot_reliability
from split_common.plots.entropies import (
    plot_entropies,
    plot_entropy,
    plot_error_entropies,
    plot_mutual_information,
)
from split_common.plots.precisions import ROW_HEIGHT, plot_precisions
from split_common.plots.runs import plot_acceptance, plot_cumulative, plot_ess, plot_log_posterior, plot_rhat

__all__ = [
    "COLOURS",
    "DATA_COLOUR",
    "PRIOR_COLOUR",
    "RIGHT_COLOUR",
    "ROW_HEIGHT",
    "WRONG_COLOUR",
    "plot_acceptance",
    "plot_bands",
    "plot_coverage",
    "plot_cumulative",
    "plot_entropies",
    "plot_entropy",
    "plot_error_entropies",
    "plot_ess",
    "plot_log_posterior",
    "plot_mutual_information",
    "plot_precisions",
    "plot_reliability",
    "plot_rhat",
]
