"""What both frameworks share of the sine regression: the data, the cases, the network, what draws say of a case."""

from __future__ import annotations

from typing import Any, NamedTuple

import arviz as az
import numpy as np

from split_common.metrics import data_log_likelihood

SITE, OUTPUT = "net", "output_precision"  # prefix of the sites of a network's parameters; site of λ
NOISE_PRECISION = 100.0  # 1 / 0.1²
CONCENTRATION, RATE = 2.0, 2.0  # of the Gamma prior of every precision of weights: mean 1, where the paper's start
OUTPUT_RATE = 1.0
START, OUTPUT_START = 1.0, 10.0  # where the paper's precisions start
GROUPS, GROUP_SIZE = ((-5.0, -3.0), (-1.0, 1.0), (3.0, 5.0)), 25
SMALL, LARGE = (1, 50, 1), (1, 50, 50, 1)
PAPER_SMALL, PAPER_LARGE, PAPER_SAMPLED = -37.59, -640.52, -36.25


class Case(NamedTuple):
    """A network, and whether the output precision λ is fixed or sampled.

    Attributes:
        name: for tables and figures.
        widths: of the layers.
        output_concentration: α of λ ~ Gamma(α, OUTPUT_RATE); None fixes λ at that of the noise.
        paper: the paper's log p(Y | X); that with λ sampled is given for no particular α.
    """

    name: str
    widths: tuple[int, ...]
    output_concentration: float | None
    paper: float

    @property
    def precisions(self) -> dict[str, str]:
        """Names of the precisions of weights and biases, layer by layer, and their sites."""
        layers = range(len(self.widths) - 1)
        return {
            f"{kind} {layer + 1}": f"{SITE}.{2 * layer}.{kind}_precision"
            for layer in layers
            for kind in ("weight", "bias")
        }

    @property
    def start(self) -> dict[str, float]:
        """Precisions where chains start; weights start at the host's random default."""
        values = dict.fromkeys(self.precisions.values(), START)
        return values if self.output_concentration is None else values | {OUTPUT: OUTPUT_START}


class Chain(NamedTuple):
    """What one chain leaves.

    Attributes:
        draws: posterior and statistics, ArviZ's.
        output_in_warmup: λ in each iteration of warm-up, shape (iterations,); empty where it is fixed.
    """

    draws: Any
    output_in_warmup: np.ndarray


CASES = (
    Case("small, fixed", SMALL, None, PAPER_SMALL),
    Case("large, fixed", LARGE, None, PAPER_LARGE),
    *(Case(f"small, α = {alpha:g}", SMALL, alpha, PAPER_SAMPLED) for alpha in (1.0, 10.0, 100.0)),
)


def load() -> tuple[np.ndarray, np.ndarray]:
    """Inputs, shape (75, 1), in three groups with gaps between them, and y = sin x + N(0, 0.1²), shape (75,)."""
    x = np.concatenate([np.linspace(*ends, GROUP_SIZE) for ends in GROUPS])
    y = np.sin(x) + np.random.default_rng(0).normal(0.0, NOISE_PRECISION**-0.5, x.size)
    return x[:, None].astype(np.float32), y.astype(np.float32)


def means(draws: Any, case: Case, x: np.ndarray) -> np.ndarray:
    """Output of the network under each draw of all chains, shape (draws, rows)."""
    posterior = draws.posterior.stack(draw_of_all=("chain", "draw"), create_index=False)
    layers = [
        tuple(
            posterior[f"{SITE}.{2 * i}.{kind}"].transpose("draw_of_all", ...).to_numpy() for kind in ("weight", "bias")
        )
        for i in range(len(case.widths) - 1)
    ]
    return np.array([_forward([(w[s], b[s]) for w, b in layers], x) for s in range(len(layers[0][0]))])


def output_precisions(draws: Any, case: Case) -> np.ndarray:
    """λ under each draw of all chains, shape (draws,)."""
    if case.output_concentration is not None:
        return draws.posterior[OUTPUT].to_numpy().ravel()
    return np.full(draws.posterior.sizes["chain"] * draws.posterior.sizes["draw"], NOISE_PRECISION)


def figures_of(draws: Any, case: Case, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """How well the draws fit, how well they were made, and where the precisions are."""
    lam = output_precisions(draws, case)[:, None]
    misfit = -0.5 * lam * (means(draws, case, x) - y) ** 2
    whole = data_log_likelihood(misfit + 0.5 * np.log(lam / (2 * np.pi)))
    statistics = draws.sample_stats
    return {
        "paper": case.paper,
        "expected": whole.expected,
        "log_mean": whole.log_mean,
        "expected_without_constant": data_log_likelihood(misfit).expected,
        "accept_prob": float(statistics["acceptance_rate"].mean()),
        "step_size": float(statistics["step_size"].mean()),
        "num_steps": float(statistics["n_steps"].mean()),
        "diverging": int(statistics["diverging"].sum()),
        "precisions": {name: _summary(draws, site) for name, site in _sites(case).items()},
    }


def _sites(case: Case) -> dict[str, str]:
    return case.precisions if case.output_concentration is None else case.precisions | {"output": OUTPUT}


def _summary(draws: Any, site: str) -> dict[str, float]:
    values = draws.posterior[site]
    low, high = np.quantile(values, [0.05, 0.95])
    return {
        "mean": float(values.mean()),
        "q05": low,
        "q95": high,
        "ess": float(az.ess(values)[site]),
        "r_hat": float(az.rhat(values)[site]),
    }


def _forward(layers: list[tuple[np.ndarray, np.ndarray]], x: np.ndarray) -> np.ndarray:
    for weight, bias in layers[:-1]:
        x = np.tanh(x @ weight.T + bias)
    weight, bias = layers[-1]
    return (x @ weight.T + bias)[:, 0]
