"""Effective draws per data pass and per second: centred splitting and single visits against whole gradients (NumPyro).

A logistic regression of N rows and D = 20 inputs from N(0, 1), weights from N(0, 1/9), in float64, four vectorised
chains, 300 iterations of warm-up (1,000 for the host's kernels, their default in most of their examples). The effective
size is the bulk one of ArviZ, of the worse of z and z² (about the mean), of the worst coordinate. A data pass is a
gradient of all rows; a forward pass counts as its measured share of one. What is compiled is compiled before it is
timed. No arm is tuned by hand: lengths of the host's HMC are the grid that is shown, and those of ours, where one is
given, a quarter of a turn times U(0.5, 1.5).
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from typing import Any, NamedTuple

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax, random
from numpyro.infer import HMC, MCMC, NUTS

from benchmarks.common.report import add_common_options, save
from numpyro_split import SplitHMC, SplitNUTS, SymmetricSplitHMC, split_model

NUM_INPUTS, NUM_CHAINS = 20, 4
QUARTER = {"trajectory_length": math.pi / 2, "step_size_jitter": 0.5}


class Arm(NamedTuple):
    """A way of sampling.

    Attributes:
        kernel: from the model and M.
        num_warmup: iterations of warm-up.
        is_host: whether it takes the gradient of all rows at once.
        forward: forward passes over the data, "draw" for one each, "step" for one at each step, "" for none.
    """

    kernel: Any
    num_warmup: int = 300
    is_host: bool = False
    forward: str = "draw"


def visits(order: int | None) -> Any:
    """Single visits, centred."""
    return lambda model, m: SplitHMC(model, m, schedule="single_visit", center="auto", center_order=order, **QUARTER)


ARMS = {
    "SymmetricSplitHMC": Arm(SymmetricSplitHMC),
    "symmetric, quarter turns": Arm(lambda model, m: SymmetricSplitHMC(model, m, **QUARTER)),
    "symmetric, quarter turns, centred": Arm(lambda model, m: SymmetricSplitHMC(model, m, center="auto", **QUARTER)),
    "single visits": Arm(lambda model, m: SplitHMC(model, m, schedule="single_visit", **QUARTER)),
    "single visits, centred, order 1": Arm(visits(1)),
    "single visits, centred": Arm(visits(None)),
    "SplitNUTS": Arm(SplitNUTS, forward="step"),
    "SplitNUTS, single visits, centred": Arm(
        lambda model, m: SplitNUTS(model, m, schedule="single_visit", center="auto"), forward="step"
    ),
    "single visits, centred, metric auto": Arm(
        lambda model, m: SplitHMC(model, m, schedule="single_visit", center="auto", metric="auto"), 200
    ),
    "SymmetricSplitHMC, centred, metric auto": Arm(
        lambda model, m: SymmetricSplitHMC(model, m, center="auto", metric="auto"), 200
    ),
    "SplitNUTS, metric auto": Arm(lambda model, m: SplitNUTS(model, m, metric="auto"), 200, forward="step"),
    "host NUTS": Arm(lambda model, _: NUTS(model), 1000, True, ""),
    **{
        f"host HMC, length {length:.3g}": Arm(
            lambda model, _, length=length: HMC(model, trajectory_length=length), 1000, True, ""
        )
        for length in (math.pi / 2, 2.0, 2 * math.pi)
    },
}


def model(X: Any, y: Any) -> None:
    """Logistic regression."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("data", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def data(num_rows: int) -> tuple[jax.Array, jax.Array]:
    """Inputs and labels."""
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(num_rows, NUM_INPUTS)), rng.normal(size=NUM_INPUTS) / 3
    return jnp.array(X), jnp.array((rng.random(num_rows) < 1 / (1 + np.exp(-X @ w))).astype(float))


def forward_share(args: tuple[Any, ...], num_subsets: int) -> float:
    """Time of a forward pass over the data, in gradients."""
    potential, z = split_model(model, args, num_subsets=num_subsets), {"w": jnp.zeros(NUM_INPUTS)}
    seconds: dict[str, list[float]] = {"energies": [], "energies_and_grad": []}
    for i in range(12):
        for name, found in seconds.items():
            begin = time.perf_counter()
            jax.block_until_ready(getattr(potential, name)(z))
            found += [time.perf_counter() - begin] if i > 1 else []
    return float(np.median(seconds["energies"]) / np.median(seconds["energies_and_grad"]))


def seconds_of_draws(made: MCMC, args: tuple[Any, ...]) -> float:
    """Median time of as many further draws, without the compiling that the host does for each run."""
    loop = jax.jit(
        lambda state: lax.fori_loop(0, made.num_samples, lambda _, state: made.sampler.sample(state, args, {}), state)
    )
    compiled, seconds = loop.lower(made.last_state).compile(), []
    for _ in range(3):
        begin = time.perf_counter()
        jax.block_until_ready(compiled(made.last_state))
        seconds.append(time.perf_counter() - begin)
    return float(np.median(seconds))


def run(arm: Arm, args: tuple[Any, ...], num_subsets: int, num_samples: int, share: float) -> dict[str, float]:
    """The figures of one arm."""
    fields = ("num_steps",) if arm.is_host else ("num_steps", "num_grads", "accept_prob")
    made = MCMC(
        arm.kernel(model, num_subsets),
        num_warmup=arm.num_warmup,
        num_samples=num_samples,
        num_chains=NUM_CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    made.warmup(random.key(1), *args, extra_fields=fields, collect_warmup=True)

    def passes() -> float:
        found = made.get_extra_fields()
        num_steps = float(np.sum(found["num_steps"]))
        whole = num_steps if arm.is_host else float(np.sum(found["num_grads"])) / num_subsets
        num_draws = np.size(found["num_steps"])
        return whole + share * {"": 0.0, "draw": num_draws, "step": num_steps}[arm.forward]

    of_warmup = passes()
    made.run(random.key(2), *args, extra_fields=fields)
    seconds = seconds_of_draws(made, args)
    w = np.asarray(made.get_samples(group_by_chain=True)["w"])
    squared = (w - w.mean((0, 1))) ** 2
    size = min(float(np.min(az.ess(az.convert_to_dataset({"x": x}))["x"])) for x in (w, squared))
    found = made.get_extra_fields()
    return {
        "ess": size,
        "ess_per_pass": size / passes(),
        "ess_per_second": size / seconds,
        "passes_per_draw": passes() / (NUM_CHAINS * num_samples),
        "warmup_passes": of_warmup / NUM_CHAINS,
        "steps": float(np.mean(found["num_steps"])),
        "accept_prob": float(np.mean(found["accept_prob"])) if "accept_prob" in found else math.nan,
    }


def main() -> None:
    """Run every arm and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--subsets", type=int, default=50)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="arms whose name contains one of these")
    add_common_options(parser, ("numpyro",))
    options = parser.parse_args()
    if options.quick:
        options.rows, options.samples = 500, 20
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")
    args, results = data(options.rows), {}
    share = forward_share(args, options.subsets)
    print(f"N = {options.rows:,}, D = {NUM_INPUTS}, M = {options.subsets}; a forward pass is {share:.2f} of a gradient")
    header = ("arm", "ESS a pass", "ESS/s", "passes a draw", "passes of a warm-up", "steps", "acceptance", "ESS")
    for line in (header, ["---"] * len(header)):
        print("|", " | ".join(line), "|")
    for name, arm in ARMS.items():
        if options.only and not any(text in name for text in options.only):
            continue
        found = results[name] = run(arm, args, options.subsets, options.samples, share)
        cells = [f"{found['ess_per_pass']:.3f}", f"{found['ess_per_second']:.1f}", f"{found['passes_per_draw']:.2f}"]
        cells += [f"{found['warmup_passes']:,.0f}", f"{found['steps']:.1f}", f"{found['accept_prob']:.2f}"]
        print("|", " | ".join([name, *cells, f"{found['ess']:,.0f}"]), "|", flush=True)
        jax.clear_caches()
    save(options.json, {**vars(options), "forward_share": share}, results)


if __name__ == "__main__":
    main()
