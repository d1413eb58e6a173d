"""Effective draws per second on tall data: PenaltyMH against the host's NUTS and HMCECS, logistic regression (NumPyro).

D = 20 independent inputs and N = 10,000 to 1,000,000 rows; with ``--hard`` 50 inputs that are correlated, some of heavy
tails, and 1% of positives among 100,000 rows. In float32, which is the host's default. Methods, and numbers of rows,
take turns; what is compiled is compiled before. PenaltyMH is named by rows of a batch x batches x leapfrog steps,
HMCECS (degree 2) by rows of its subsample / blocks. One chain each, and 64 or 256 of PenaltyMH's as
``chain_method="vectorized"`` runs them, which the host's MCMC refuses to do with HMCECS: what 64 chains of it would do
is seen by ``jax.vmap`` over its ``sample``. With ``taskset -c 0`` in front all methods have the same one core, where
times are steadier.

The effective size is that of the worse of z and z² (about the mean), of the worst coordinate. NUTS on many rows makes
so few draws that this is rough; the median over coordinates is steadier. Set-up is all that comes before the draws:
splitting, the mode, the expansion, compiling, warm-up. Every chain starts at the mode or near it; finding it counts
towards the set-up of PenaltyMH and HMCECS, which need it, and not towards that of NUTS.

Agreement is the largest difference of a coordinate's mean, and of its standard deviation, from those of another
method, in standard errors of the difference: 2 to 3.5 is chance among 20 to 50 coordinates.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax, random
from numpyro.infer import HMCECS, NUTS
from scipy.optimize import brentq
from scipy.special import expit

from benchmarks.report import save
from benchmarks.timing import interleaved
from numpyro_split import PenaltyMH
from split_common.penalty import TRUSTED_NOISE
from split_common.reference import find_mode

PRIOR_SCALE = 2.5
DIM, ROWS, WEIGHT = 20, (10_000, 100_000, 1_000_000), 0.5
HARD_DIM, HARD_ROWS, HARD_WEIGHT = 50, (100_000,), 0.3
CORRELATION, POSITIVES, HEAVY_EVERY, DEGREES_OF_FREEDOM = 0.9, 0.01, 5, 4.0
EFFECTIVE = 1000  # draws that ESS/s with set-up is for
RIVALS_FROM = 100_000  # rows; on fewer only the time of an iteration is asked for
NUTS_ROWS = 5e7  # rows times draws of NUTS in a repetition
NUM_CHAINS, MANY_CHAINS = 64, 256  # where they are vectorised
BY_HAND = "vmap of"  # begins the name of what the host's MCMC does not offer
PENALTY_WARMUP, NUTS_WARMUP = 500, 150  # iterations; of NUTS at least

Data = tuple[jax.Array, jax.Array]
Weights = dict[str, jax.Array]


def model(x: jax.Array, y: jax.Array, subsample_size: int | None = None) -> None:
    """Logistic regression; HMCECS asks for a subsample."""
    w = numpyro.sample("w", dist.Normal(0.0, PRIOR_SCALE).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("data", x.shape[0], subsample_size=subsample_size):
        inputs, labels = numpyro.subsample(x, event_dim=1), numpyro.subsample(y, event_dim=0)
        numpyro.sample("y", dist.Bernoulli(logits=inputs @ w), obs=labels)


def independent_data(num_rows: int) -> Data:
    """Inputs N(0, 1), labels of a logistic regression on them."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(num_rows, DIM)), WEIGHT * rng.normal(size=DIM)
    return _as_data(rng, x, x @ w)


def hard_data(num_rows: int) -> Data:
    """An intercept, 49 autocorrelated inputs, every fifth of them divided by the root of a χ²; few positives."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_rows, HARD_DIM))
    for j in range(2, HARD_DIM):
        x[:, j] = CORRELATION * x[:, j - 1] + math.sqrt(1 - CORRELATION**2) * x[:, j]
    x[:, HEAVY_EVERY::HEAVY_EVERY] /= np.sqrt(rng.chisquare(DEGREES_OF_FREEDOM, (num_rows, 1)) / DEGREES_OF_FREEDOM)
    x[:, 0] = 1.0
    logits = x[:, 1:] @ (HARD_WEIGHT * rng.normal(size=HARD_DIM - 1))
    return _as_data(rng, x, logits + brentq(lambda b: expit(logits + b).mean() - POSITIVES, -30.0, 0.0))


def _as_data(rng: np.random.Generator, x: np.ndarray, logits: np.ndarray) -> Data:
    y = rng.random(len(x)) < expit(logits)
    return jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)


def mode_of(data: Data) -> Weights:
    """The mode of the posterior, as PenaltyMH finds its own."""
    x, y = (np.asarray(part) for part in data)

    def energy_and_grad(w: np.ndarray) -> tuple[float, np.ndarray]:
        logits = (x @ w.astype(x.dtype)).astype(float)
        grad = (expit(logits) - y).astype(x.dtype) @ x
        energy = np.logaddexp(0, logits).sum() - y @ logits + 0.5 * w @ w / PRIOR_SCALE**2
        return float(energy), grad + w / PRIOR_SCALE**2

    return {"w": jnp.asarray(find_mode(energy_and_grad, np.zeros(x.shape[1])), jnp.float32)}


class Method(NamedTuple):
    """A sampler and how long it runs.

    Attributes:
        make: from the mode to a kernel.
        warmup: iterations.
        draws: of one repetition.
        finds_mode: whether it has its own way to.
        needs_mode: whether it must be told.
        subsample_size: what it asks of the model.
        num_chains: vectorised where there are several.
        by_hand: whether its chains are vectorised by ``jax.vmap``, as the kernel itself does not take several.
    """

    make: Callable[[Weights], Any]
    warmup: int
    draws: int
    finds_mode: bool = False
    needs_mode: bool = False
    subsample_size: int | None = None
    num_chains: int = 1
    by_hand: bool = False


def penalty_method(
    batch_size: int, num_batches: int, num_steps: int, draws: int, num_chains: int = 1, **settings: Any
) -> Method:
    """PenaltyMH with a control variate of second order."""
    make = partial(PenaltyMH, model, batch_size, num_batches, num_steps=num_steps, **settings)
    return Method(lambda _: make(), PENALTY_WARMUP, draws, finds_mode=True, num_chains=num_chains)


def ecs_method(subsample_size: int, num_blocks: int, warmup: int, draws: int, num_chains: int = 1) -> Method:
    """HMCECS with a proxy of second order."""

    def make(mode: Weights) -> HMCECS:
        return HMCECS(NUTS(model), num_blocks=num_blocks, proxy=HMCECS.taylor_proxy(mode, 2))

    options: dict[str, Any] = {"num_chains": num_chains, "by_hand": num_chains > 1}
    return Method(make, warmup, draws, needs_mode=True, subsample_size=subsample_size, **options)


def nuts_method(draws: int) -> Method:
    """The host's NUTS, its warm-up as long as one repetition."""
    return Method(lambda _: NUTS(model), draws * math.ceil(NUTS_WARMUP / draws), draws)


def methods(num_rows: int, draws: int) -> dict[str, Method]:
    """By name, for independent inputs; ``draws`` of a repetition of PenaltyMH."""
    ours = {
        "PenaltyMH 25x20x5": penalty_method(25, 20, 5, draws),
        "PenaltyMH 5x10x3": penalty_method(5, 10, 3, draws),
        "PenaltyMH 5x10x5": penalty_method(5, 10, 5, draws),
        f"PenaltyMH 5x10x5, {NUM_CHAINS} chains": penalty_method(5, 10, 5, max(1, draws // 10), NUM_CHAINS),
        f"PenaltyMH 1x5x5, {NUM_CHAINS} chains": penalty_method(1, 5, 5, max(1, draws // 10), NUM_CHAINS),
        f"PenaltyMH 1x3x5, {MANY_CHAINS} chains": penalty_method(1, 3, 5, max(1, draws // 50), MANY_CHAINS),
    }
    if num_rows < RIVALS_FROM:
        return ours
    return ours | {
        "HMCECS 500/10": ecs_method(500, 10, 500, draws // 10),
        "HMCECS 50/5": ecs_method(50, 5, 500, draws // 5),
        "HMCECS 10/2": ecs_method(10, 2, 500, draws // 5),
        "HMCECS 2/1": ecs_method(2, 1, 500, draws // 5),
        f"{BY_HAND} HMCECS 2/1, {NUM_CHAINS} chains": ecs_method(2, 1, 500, max(1, draws // 50), NUM_CHAINS),
        "NUTS": nuts_method(max(1, min(draws // 10, int(NUTS_ROWS / num_rows)))),
    }


def hard_methods(num_rows: int, draws: int) -> dict[str, Method]:
    """By name, for the hard data."""
    return {
        "PenaltyMH 100x20x5": penalty_method(100, 20, 5, draws),
        f"PenaltyMH 100x20x5, {NUM_CHAINS} chains": penalty_method(100, 20, 5, max(1, draws // 20), NUM_CHAINS),
        "PenaltyMH 500x20x5, minibatch": penalty_method(500, 20, 5, draws // 8, gradient="minibatch"),
        "HMCECS 500/10": ecs_method(500, 10, 300, draws // 20),
        "NUTS": nuts_method(max(1, min(draws // 100, int(NUTS_ROWS / num_rows)))),
    }


class Chains:
    """One chain or several, compiled and warmed up.

    Attributes:
        setup_seconds: what that took, with the mode where the method needs to be told.
        draws: the draws so far, shape (chains, draws, D).
        statistics: by name, the iterations on axis 0.
    """

    def __init__(self, method: Method, data: Data, mode: Weights, mode_seconds: float):
        jax.clear_caches()  # or the first chain would compile for the others
        begin = time.perf_counter()
        kernel, self._method, self._data = method.make(mode), method, data
        kwargs = {} if method.subsample_size is None else {"subsample_size": method.subsample_size}
        start = None if method.finds_mode else mode
        rng_key = random.key(1) if method.num_chains == 1 else random.split(random.key(1), method.num_chains)
        if method.by_hand:
            states = [kernel.init(key, method.warmup, start, data, kwargs) for key in rng_key]
            self._state = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
        else:
            self._state = kernel.init(rng_key, method.warmup, start, data, kwargs)

        def iterate(data: Data, state: Any, _: None) -> tuple[Any, Any]:
            sample = partial(kernel.sample, model_args=data, model_kwargs=kwargs)
            state = (jax.vmap(sample) if method.by_hand else sample)(state)
            return state, (state.z["w"], _statistics(state, data[0].shape[0], method.subsample_size))

        length = math.gcd(method.warmup, method.draws)
        run = jax.jit(lambda state, data: lax.scan(partial(iterate, data), state, None, length=length))
        self._run, self._length = run.lower(self._state, data).compile(), length
        self._recorded: list[Any] = []
        self._advance(method.warmup)
        self._recorded.clear()
        self.setup_seconds = time.perf_counter() - begin + (mode_seconds if method.needs_mode else 0.0)

    def repeat(self) -> None:
        """One repetition."""
        self._advance(self._method.draws)

    def _advance(self, iterations: int) -> None:
        for _ in range(iterations // self._length):
            self._state, recorded = self._run(self._state, self._data)
            self._recorded.append(recorded)
        jax.block_until_ready(self._state)

    @property
    def draws(self) -> np.ndarray:
        draws = np.concatenate([np.asarray(draws, float) for draws, _ in self._recorded])
        return draws.reshape(len(draws), self._method.num_chains, -1).swapaxes(0, 1)

    @property
    def statistics(self) -> dict[str, np.ndarray]:
        names = self._recorded[0][1]
        return {name: np.concatenate([np.asarray(part[1][name]) for part in self._recorded]) for name in names}


def _statistics(state: Any, num_rows: int, subsample_size: int | None) -> dict[str, jax.Array]:
    """Acceptance, steps, distinct rows of an iteration; and the noise, where there is any."""
    if hasattr(state, "chi2"):
        above = state.chi2 > TRUSTED_NOISE * state.num_batches
        noise = {"rows": state.rows_touched, "chi2": state.chi2, "above": above}
        return {"accept_prob": state.accept_prob, "num_steps": state.num_steps, **noise}
    inner, rows = getattr(state, "hmc_state", state), subsample_size or num_rows
    return {"accept_prob": inner.accept_prob, "num_steps": inner.num_steps, "rows": jnp.array(rows)}


def effective_sizes(draws: np.ndarray) -> np.ndarray:
    """For each coordinate the smaller of those of z and z² about the mean; 0 for one that never moved."""
    centred = draws - draws.mean((0, 1))
    sizes = [[float(az.ess(x, method="mean")) for x in np.moveaxis(power, 2, 0)] for power in (centred, centred**2)]
    return np.where(np.ptp(draws, axis=(0, 1)) > 0, np.min(sizes, axis=0), 0.0)


def moments(draws: np.ndarray) -> np.ndarray:
    """Of each coordinate the mean, the standard deviation and their standard errors, shape (4, D)."""
    errors = [[float(az.mcse(x, method=name)) for x in np.moveaxis(draws, 2, 0)] for name in ("mean", "sd")]
    return np.stack([draws.mean((0, 1)), draws.std((0, 1), ddof=1), *np.array(errors)])


def agreement(first: np.ndarray, second: np.ndarray) -> list[float]:
    """Largest differences of means and of standard deviations, in standard errors."""
    differences = np.abs(first[:2] - second[:2]) / np.hypot(first[2:], second[2:])
    return [float(x) for x in differences.max(1)]


def summary(chains: Chains, seconds: np.ndarray) -> dict[str, Any]:
    """The figures of one method's chains, from the seconds of their repetitions."""
    draws, statistics = chains.draws, chains.statistics
    num_chains, per_chain, _ = draws.shape
    per_iteration = seconds * len(seconds) / per_chain
    sizes = effective_sizes(draws) / (num_chains * per_chain)
    per_second = float(num_chains * sizes.min() / np.median(per_iteration))
    whole = chains.setup_seconds + (EFFECTIVE / per_second if per_second else math.inf)
    return {
        "draws": num_chains * per_chain,
        "num_chains": num_chains,
        "microseconds": [float(1e6 * f(per_iteration)) for f in (np.median, np.min, np.max)],
        "seconds": [float(x) for x in per_iteration],
        "ess_per_draw": {"worst": float(sizes.min()), "median": float(np.median(sizes))},
        "ess_per_second": per_second,
        "setup_seconds": chains.setup_seconds,
        "ess_per_second_with_setup": EFFECTIVE / whole,
        **{name: float(values.mean()) for name, values in statistics.items()},
    }


def measure(data: dict[int, Data], chosen: dict[int, dict[str, Method]], repeats: int) -> dict[int, dict[str, Any]]:
    """Every method on every number of rows, taking turns."""
    chains: dict[tuple[int, str], Chains] = {}
    for num_rows, by_name in chosen.items():
        begin = time.perf_counter()
        mode = mode_of(data[num_rows])
        mode_seconds = time.perf_counter() - begin
        for name, method in by_name.items():
            chains[num_rows, name] = Chains(method, data[num_rows], mode, mode_seconds)
    keys = {f"{num_rows} {name}": (num_rows, name) for num_rows, name in chains}
    seconds = interleaved({label: chains[key].repeat for label, key in keys.items()}, repeats, warmup=0)
    results: dict[int, dict[str, Any]] = {num_rows: {} for num_rows in chosen}
    for label, (num_rows, name) in keys.items():
        results[num_rows][name] = summary(chains[num_rows, name], seconds[label])
    for num_rows, by_name in results.items():
        found = {name: moments(chains[num_rows, name].draws) for name in by_name}
        first = next(iter(by_name))
        for name, figures in by_name.items():
            figures["agreement"] = {
                other: agreement(found[name], found[other]) for other in (first, "NUTS") if other in found
            }
    return results


HEADER = (
    "rows",
    "method",
    "ESS/s",
    "with set-up",
    "set-up, s",
    "µs an iteration",
    "ESS per draw: worst, median",
    "draws",
    "acceptance",
    "steps",
    "rows an iteration",
    "χ²",
    "χ² > K/4, %",
    "agreement with the first: mean, sd",
    "with NUTS: mean, sd",
)


def cells(num_rows: int, name: str, figures: dict[str, Any]) -> list[str]:
    """One line of the table."""
    median, least, most = figures["microseconds"]
    noise = [f"{figures['chi2']:.2g}", f"{100 * figures['above']:.2g}"] if "chi2" in figures else ["–", "–"]
    return [
        f"{num_rows:,}",
        name,
        f"{figures['ess_per_second']:.3g}",
        f"{figures['ess_per_second_with_setup']:.3g}",
        f"{figures['setup_seconds']:.1f}",
        f"{median:,.3g} [{least:,.3g}, {most:,.3g}]" if most < 1000 else f"{median:,.0f} [{least:,.0f}, {most:,.0f}]",
        f"{figures['ess_per_draw']['worst']:.2g}, {figures['ess_per_draw']['median']:.2g}",
        f"{figures['draws']:,}",
        f"{figures['accept_prob']:.2f}",
        f"{figures['num_steps']:.1f}",
        f"{figures['rows']:,.0f}",
        *noise,
        *_agreements(figures["agreement"]),
    ]


def _agreements(by_other: dict[str, list[float]]) -> list[str]:
    found = [f"{mean:.1f}, {sd:.1f}" if mean or sd else "–" for mean, sd in by_other.values()]
    return found + ["–"] * (2 - len(found))


def print_results(results: dict[int, dict[str, Any]]) -> None:
    """The table, and by what the best setting of each rival is behind."""
    for line in (HEADER, ["---"] * len(HEADER)):
        print("|", " | ".join(line), "|")
    for num_rows, by_name in results.items():
        for name, figures in by_name.items():
            print("|", " | ".join(cells(num_rows, name, figures)), "|")
    for num_rows, by_name in results.items():
        best: dict[str, dict[str, Any]] = {}
        for name, figures in by_name.items():
            kind = BY_HAND + " HMCECS" if name.startswith(BY_HAND) else name.split()[0]
            if kind not in best or figures["ess_per_second"] > best[kind]["ess_per_second"]:
                best[kind] = figures
        ours = best.pop("PenaltyMH")
        for kind, theirs in best.items():
            low, median, high = advantage(ours, theirs)
            print(
                f"{num_rows:,} rows: PenaltyMH has {median:.3g} [{low:.3g}, {high:.3g}] times the ESS/s of {kind}, "
                "best settings, by repetition"
            )


def advantage(ours: dict[str, Any], theirs: dict[str, Any]) -> list[float]:
    """Quartiles, over repetitions, of one method's ESS/s divided by another's."""
    per_repetition = (
        figures["ess_per_draw"]["worst"] * figures["num_chains"] / np.array(figures["seconds"])
        for figures in (ours, theirs)
    )
    return [float(x) for x in np.quantile(np.divide(*per_repetition), (0.25, 0.5, 0.75))]


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hard", action="store_true", help="correlated inputs with heavy tails, rare positives")
    parser.add_argument("--rows", type=int, nargs="+", help="numbers of rows; default: 10⁴, 10⁵ and 10⁶, or 10⁵")
    parser.add_argument(
        "--draws", type=int, help="of a repetition of PenaltyMH, the others fewer; default: 5000, or 2000"
    )
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", help="file to write the results to")
    parser.add_argument("--quick", action="store_true", help="a small size: shows that the script runs, not a figure")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rows, options.draws, options.repeats = [RIVALS_FROM], 400, 2
    rows = options.rows or (HARD_ROWS if options.hard else ROWS)
    draws = options.draws or (2000 if options.hard else 5000)
    make_data, make_methods = (hard_data, hard_methods) if options.hard else (independent_data, methods)
    load = [os.getloadavg()[0]]
    results = measure({n: make_data(n) for n in rows}, {n: make_methods(n, draws) for n in rows}, options.repeats)
    load.append(os.getloadavg()[0])
    print_results(results)
    cores = len(os.sched_getaffinity(0))
    settings = {"hard": options.hard, "draws": draws, "repeats": options.repeats, "cores": cores, "load": load}
    save(options.json, settings, results)


if __name__ == "__main__":
    main()
