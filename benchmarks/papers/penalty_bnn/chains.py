"""What the scripts share: command line, chains and their figures, and the chain that leaves the penalty out."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC

from benchmarks.common.report import add_common_options
from numpyro_split import PenaltyMH
from numpyro_split.kernels.penalty import Penalty

STATISTICS = ("accept_prob", "step_size")
NOISE_STATISTICS = (*STATISTICS, "chi2", "rows_touched")


class Size(NamedTuple):
    """How long a chain runs."""

    warmup: int
    draws: int


class Chain(NamedTuple):
    """What a chain gave.

    Attributes:
        draws: by site, a leading axis of draws.
        statistics: mean over draws of each statistic, and the seconds, compilation included.
        state: the last one.
    """

    draws: dict[str, np.ndarray]
    statistics: dict[str, float]
    state: Any


class NoPenalty(Penalty):
    """Takes the noisy change of energy for the true one, and accepts by exp(-δ) alone."""

    def _propose(self, *args: Any) -> Any:
        start, end, estimate = super()._propose(*args)
        return start, end, estimate._replace(chi2=jnp.zeros_like(estimate.chi2))


class WithoutPenalty(PenaltyMH):
    """Negative control: PenaltyMH whose method leaves the penalty out."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._method = NoPenalty(**vars(self._method))


def parse_options(description: str | None, arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line that every script takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common_options(parser, ["numpyro"], data=True)
    parser.add_argument("--figures", help="directory for the figure; none is drawn without it")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def run(kernel: Any, size: Size, seed: int, *data: Any, init_params: Any = None) -> Chain:
    """One chain of a kernel."""
    names = NOISE_STATISTICS if isinstance(kernel, PenaltyMH) else STATISTICS
    mcmc = MCMC(kernel, num_warmup=size.warmup, num_samples=size.draws, progress_bar=False)
    start = time.perf_counter()
    mcmc.run(jax.random.key(seed), *data, extra_fields=names, init_params=init_params)
    draws = {name: np.asarray(values) for name, values in mcmc.get_samples().items()}
    statistics = {name: float(np.mean(values)) for name, values in mcmc.get_extra_fields().items()}
    return Chain(draws, statistics | {"seconds": time.perf_counter() - start}, mcmc.last_state)


def effective_size(values: np.ndarray) -> float:
    """Median over columns of the effective sample size; ``values`` has shape (draws, columns)."""
    return float(np.median(effective_sample_size(values[None])))


def cells(statistics: Mapping[str, float], formats: Mapping[str, str]) -> str:
    """Some of the figures of a row, as text; a dash for one that it lacks."""
    return " ".join(
        format(statistics[name], spec) if name in statistics else f"{'-':>{int(spec.split('.')[0])}s}"
        for name, spec in formats.items()
    )


def header(formats: Mapping[str, str]) -> str:
    """Names of the columns that :func:`cells` prints."""
    return " ".join(f"{name:>{int(spec.split('.')[0])}s}" for name, spec in formats.items())


def save_figure(figure: Figure, directory: str, name: str) -> None:
    """Write a PNG."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    figure.savefig(Path(directory) / f"{name}.png", dpi=120)
