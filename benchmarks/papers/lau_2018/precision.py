"""Section 4.10 of Lau (2018): single against double precision, energies of leapfrog trajectories and table 4.12.

Energies: points of a short chain in double precision, each with a momentum of its own, are led along one trajectory in
either precision; given is the mean of |H_d - H_f|, differences of the ends' energies. The thesis names neither the
number of points, nor steps and step size. Table 4.12: test errors of chains in either precision.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpyro.infer import MCMC
from numpyro.infer.util import initialize_model, unconstrain_fn

from benchmarks.common.report import save
from benchmarks.papers.lau_2018 import output_priors
from benchmarks.papers.lau_2018.digits import (
    TARGET_ACCEPT_PROB,
    Digits,
    Paper,
    Row,
    load,
    parse_options,
    print_header,
    print_result,
    run_row,
    size_of,
    store_of,
)
from numpyro_split import SplitNUTS

PRIORS = ("normal", "normal-inv-gamma")
PAPER_ERROR = {("normal", "float"): 27.6, ("normal", "double"): 25.8}
PAPER_ERROR |= {("normal-inv-gamma", "float"): 23.2, ("normal-inv-gamma", "double"): 28.8}
PAPER_ENERGY = {"normal": 1e-5, "normal-inv-gamma": 1e-2}
NUM_STEPS, STEP_SIZE, POINTS = 100, 0.01, 50


def rows() -> list[Row]:
    """The thesis's cells."""
    return [
        Row(
            f"{name}, {precision}",
            Paper(error, float("nan"), float("nan")),
            partial(SplitNUTS, partial(output_priors.network, name), target_accept_prob=TARGET_ACCEPT_PROB),
            ("tree_depth",),
            output_priors.weights,
            double=precision == "double",
        )
        for (name, precision), error in PAPER_ERROR.items()
    ]


def energy_difference(name: str, digits: Digits, warmup: int, seed: int) -> dict[str, Any]:
    """Mean and largest difference of the ends' energies over the points of a chain from which both ends are finite."""
    start = time.perf_counter()
    model = partial(output_priors.network, name)
    with jax.enable_x64(True):
        x, y = jnp.asarray(np.asarray(digits.x_train), jnp.float64), jnp.asarray(np.asarray(digits.y_train))
        mcmc = MCMC(SplitNUTS(model), num_warmup=warmup, num_samples=POINTS, progress_bar=False)
        mcmc.run(jax.random.key(seed), x, y)
        draws = {key: u for key, u in mcmc.get_samples().items() if key != "output"}  # which is worked out from others
        z = jax.vmap(partial(unconstrain_fn, model, (x, y), {}))(draws)
        z = {key: np.asarray(u) for key, u in z.items()}
        rng = np.random.default_rng(seed)
        p = {key: rng.normal(size=u.shape) for key, u in z.items()}
        z, p = ({key: u.astype(np.float32) for key, u in values.items()} for values in (z, p))
        in_double = _ends(model, x, y, z, p, np.float64)
    in_single = _ends(model, digits.x_train, digits.y_train, z, p, np.float32)
    finite = np.isfinite(in_double) & np.isfinite(in_single)
    difference = np.abs(in_double - in_single)[finite]
    return {
        "name": name,
        "paper": PAPER_ENERGY[name],
        "mean_difference": float(difference.mean()),
        "median_difference": float(np.median(difference)),
        "largest_difference": float(difference.max()),
        "energy": float(np.abs(in_double[finite]).mean()),
        "change_of_accept_prob": float(np.mean(np.abs(np.expm1(-difference)))),
        "points": POINTS,
        "points_not_finite": int(POINTS - finite.sum()),
        "num_steps": NUM_STEPS,
        "step_size": STEP_SIZE,
        "seconds": time.perf_counter() - start,
    }


def _ends(model: Any, x: Any, y: Any, z: dict[str, Any], p: dict[str, Any], dtype: Any) -> np.ndarray:
    """Energies at the ends of trajectories from each point, in one precision; the sum is of that precision too."""
    potential = initialize_model(jax.random.key(0), model, model_args=(x, y)).potential_fn
    gradient = jax.grad(potential)

    def end(one: tuple[Any, Any]) -> jax.Array:
        def step(point: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], None]:
            q, r = point
            r = jax.tree.map(lambda r, g: r - STEP_SIZE / 2 * g, r, gradient(q))
            q = jax.tree.map(lambda q, r: q + STEP_SIZE * r, q, r)
            return (q, jax.tree.map(lambda r, g: r - STEP_SIZE / 2 * g, r, gradient(q))), None

        q, r = lax.scan(step, one, length=NUM_STEPS)[0]
        return potential(q) + sum(0.5 * jnp.sum(u**2) for u in jax.tree.leaves(r))

    points = ({key: jnp.asarray(u, dtype) for key, u in values.items()} for values in (z, p))
    return np.asarray(jax.jit(partial(lax.map, end))(tuple(points)), np.float64)


def main(arguments: list[str] | None = None) -> None:
    """Print both."""
    options = parse_options(__doc__, arguments)
    digits, size = load(options.scaling), size_of(options)
    energies = [energy_difference(name, digits, size.warmup, options.seed) for name in PRIORS]
    for found in energies:
        print(f"{found['name']:18s} |H_d - H_f| mean {found['mean_difference']:.2g}, thesis {found['paper']:g}")
    print_header()
    settings = size._asdict() | {"scaling": options.scaling, "seed": options.seed}
    results: dict[str, Any] = {"energies": energies, "errors": []}
    save(options.json, settings, results)
    for row in rows():
        if not options.only or row.name in options.only:
            results["errors"].append(run_row(row, digits, size, options.seed, store_of(options)))
            print_result(results["errors"][-1], size.chains * size.draws)
        save(options.json, settings, results)


if __name__ == "__main__":
    main()
