"""Cobb and Jalaian (2021), table 2, figure 1 and coverage (section 5.2): a network of 10,401 weights on 400 points.

Data of Izmailov and others (2019); layers [1, 100, 100, 1], which is what 10,401 weights are (the text says three
hidden layers); every weight N(0, 1); M = 4 subsets of 100 points, L = 30, ε = 5e-4, unit mass, ten chains of 1,000
iterations of which 200 are dropped. The output precision comes from a Gaussian process with a Matérn 3/2 kernel, by
scikit-learn in the place of GPyTorch. Not given, and taken here: inputs divided by 4, which was chosen among 1, 2 and
4 because full HMC's acceptance then comes nearest to the paper's (undivided it is 0.19, and 0.81 of symmetric; the
standard deviation of the inputs is 4.9), so that the level of acceptances is no independent check; tanh units (with
rectified ones hardly anything is accepted), the usual initialisation of PyTorch (uniform within 1 / sqrt(fan-in)) for
the start of each chain, points in the file's order, which is random.

The draft's table 1 and figure 1 are the same experiment with other figures.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from benchmarks.papers.cobb_2021.schemes import (
    SCHEMES,
    Chains,
    print_summary,
    run_scheme,
    setting_from,
    store_of,
    summary,
)
from benchmarks.papers.options import earlier, parse_options, settings_of, write
from split_common.datasets import load_izmailov
from split_common.metrics import normal_interval_coverage

PAPER = {  # acceptance, its standard deviation over chains, mean ESS, mean ESS a second
    "full": (0.71, 0.07, 9.27, 0.0584),
    "naive": (0.68, 0.06, 9.13, 0.0082),
    "randomised": (0.75, 0.06, 9.78, 0.0087),
    "symmetric": (0.89, 0.05, 10.01, 0.0089),
}
DRAFT = {"full": (0.63, 0.06, 6.92), "naive": (0.59, 0.05, 6.77), "randomised": (0.73, 0.07, 7.52)}
DRAFT |= {"symmetric": (0.88, 0.04, 7.72)}
COVERAGE = {"1 sd": 0.305, "2 sd": 0.035}  # share of the points outside
WIDTHS = (1, 100, 100, 1)
STEPS = {"num_subsets": 4, "num_steps": 30, "step_size": 5e-4, "mass": 1.0}
TAKEN = {"activation": "tanh", "divisor": 4.0, "schemes": SCHEMES}
SIZES = {
    "quick": {**STEPS, **TAKEN, "warmup": 200, "draws": 800, "chains": 4},
    "full": {**STEPS, **TAKEN, "warmup": 200, "draws": 800, "chains": 10},
}
GRID = np.linspace(-10, 10, 101)
KEPT = 50  # draws of each chain that bands and coverage are made of
LEVELS = (0.6827, 0.9545)  # of 1 and 2 standard deviations


def output_precision(x: np.ndarray, y: np.ndarray) -> float:
    """1 / noise variance, where a Gaussian process puts it."""
    kernel = ConstantKernel(1.0) * Matern(1.0, nu=1.5) + WhiteKernel(0.01)
    fitted = GaussianProcessRegressor(kernel).fit(x[:, None], y).kernel_
    return float(1 / fitted.k2.noise_level)  # pyright: ignore[reportAttributeAccessIssue]


def starts(chains: int, seed: int) -> dict[str, np.ndarray]:
    """PyTorch's initialisation, by site, a leading axis of chains."""
    rng = np.random.default_rng(seed)
    found = {}
    for i, (inputs, units) in enumerate(pairwise(WIDTHS)):
        bound = inputs**-0.5
        found[f"net.{2 * i}.weight"] = rng.uniform(-bound, bound, (chains, units, inputs)).astype(np.float32)
        found[f"net.{2 * i}.bias"] = rng.uniform(-bound, bound, (chains, units)).astype(np.float32)
    return found


def numpyro_model(activation: str, precision: float, x: Any, y: Any) -> None:
    """The model in NumPyro."""
    import numpyro
    import numpyro.distributions as dist

    from numpyro_split import networks, priors

    f = networks.random_module("net", networks.mlp(WIDTHS, activation), priors.normal)(x[:, None])[:, 0]
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Normal(f, precision**-0.5), obs=y)


def pyro_model(activation: str, precision: float, x: Any, y: Any) -> None:
    """The model in Pyro."""
    import pyro
    import pyro.distributions as dist

    from pyro_split import networks, priors

    f = networks.random_module("net", networks.mlp(WIDTHS, activation), priors.normal)(x[:, None])[:, 0]
    with pyro.plate("data", x.shape[0]):
        pyro.sample("y", dist.Normal(f, precision**-0.5), obs=y)


def functions(draws: dict[str, np.ndarray], activation: str, x: np.ndarray) -> np.ndarray:
    """What draws make of points, shape (chains, draws, points)."""
    act = {"relu": lambda h: np.maximum(h, 0), "tanh": np.tanh}[activation]
    h = np.broadcast_to(x[:, None], (*next(iter(draws.values())).shape[:2], len(x), 1))
    layers = len(WIDTHS) - 1
    for i in range(layers):
        h = h @ np.swapaxes(draws[f"net.{2 * i}.weight"], -1, -2) + draws[f"net.{2 * i}.bias"][:, :, None]
        h = act(h) if i < layers - 1 else h
    return h[..., 0]


def predictions(chains: Chains, options: Any, precision: float, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Coverage of 1 and 2 standard deviations by chain, and bands of the first chain that has moved."""
    every = max(chains.accept_prob.shape[1] // KEPT, 1)
    kept = {name: u[:, ::every] for name, u in chains.draws.items()}
    f = functions(kept, options.activation, x / options.divisor)
    by_chain = [normal_interval_coverage(g.mean(0), g.var(0) + 1 / precision, y, LEVELS).share for g in f]
    outside = 1 - np.array(by_chain)
    bands = functions(kept, options.activation, GRID / options.divisor)
    shown = bands[int(np.argmax(chains.accept_prob.mean(axis=1) > 0))]
    return {
        "outside": {name: outside[:, i].tolist() for i, name in enumerate(COVERAGE)},
        "rmse": [float(np.sqrt(np.mean((g.mean(axis=0) - y) ** 2))) for g in f],
        "bands": {"mean": shown.mean(0).round(4).tolist(), "sd": shown.std(0).round(4).tolist()},
        "sd_outside_data": [float(g.std(0)[np.abs(GRID) > np.abs(x).max()].mean()) for g in bands],
    }


def main(arguments: list[str] | None = None) -> None:
    """Run the schemes."""
    options = parse_options(__doc__, SIZES, arguments, frameworks=("numpyro", "pyro"))
    setting = setting_from(options)
    curve = load_izmailov(options.data)
    x, y = (curve.x / options.divisor).astype(np.float32), curve.y.astype(np.float32)
    precision = output_precision(curve.x, curve.y)
    if options.framework == "pyro":
        import torch

        model, rows = partial(pyro_model, options.activation, precision), (torch.as_tensor(x), torch.as_tensor(y))
    else:
        model, rows = partial(numpyro_model, options.activation, precision), (x, y)
    settings = settings_of(options, SIZES, precision=precision, points=len(x))
    results = earlier(options, settings, "schemes")
    for scheme in [name for name in options.schemes if name not in results]:
        start = starts(setting.chains, options.seed)
        chains = run_scheme(options.framework, scheme, model, rows, setting, start, options.seed, store_of(options))
        results[scheme] = summary(scheme, chains)
        results[scheme] |= predictions(chains, options, precision, curve.x, curve.y)
        print_summary(results[scheme], PAPER[scheme])
        print({name: round(float(np.mean(found)), 3) for name, found in results[scheme]["outside"].items()}, COVERAGE)
        write(
            options,
            settings,
            {"schemes": results, "grid": GRID.tolist(), "x": curve.x.round(4).tolist(), "y": curve.y.round(4).tolist()},
        )


if __name__ == "__main__":
    main()
