"""Whether centring and harmonic drifts turn themselves off on three networks, and what having asked costs (NumPyro).

The networks of ``benchmarks.efficiency``. Asked of each, for every seed: the verdicts of warm-up are "off" (the
statistic ``center_order`` is 0, ``harmonic_drift`` false); the draws after warm-up are those of ``center=None`` and
``drift=None`` at the same metric, step size, length and place, bit for bit; the gradients of warm-up are at most 1.05
times those of ``center=None``. One chain in float32. A run with centring forced (a kernel given a reference) is the
control: its draws must differ.
"""

from __future__ import annotations

import argparse
import warnings
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from benchmarks.common.report import add_common_options, save, verdict
from benchmarks.efficiency.targets import NETWORKS, Target, target_of
from numpyro_split import SplitHMC

AUTO: dict[str, Any] = {"schedule": "symmetric", "center": "auto", "metric": "auto", "drift": "auto"}
OFF: dict[str, Any] = {"schedule": "symmetric", "center": None, "metric": "auto", "drift": None}
OF_VERDICTS = ("centering", "center_order", "harmonic_drift")  # what a state has besides, where these were asked for
MOST_DEARER = 1.05


class Chain:
    """A kernel's chain, which can go on from another's state."""

    def __init__(self, target: Target, settings: dict[str, Any], num_warmup: int, length: int, seed: int):
        kernel = SplitHMC(target.model, target.num_subsets, **settings)
        self.state = kernel.init(random.key(seed), num_warmup, None, target.args, {})

        def iterate(args: tuple[Any, ...], state: Any, _: None) -> tuple[Any, Any]:
            state = kernel.sample(state, args, {})
            return state, (state.z, state.num_grads)

        def run(state: Any, args: tuple[Any, ...]) -> tuple[Any, Any]:
            return lax.scan(partial(iterate, args), state, None, length=length)

        self._run, self._args, self._length = jax.jit(run), target.args, length

    def advance(self, iterations: int) -> tuple[dict[str, np.ndarray], float]:
        """Positions, iterations on axis 0, and gradients of subsets that they took."""
        parts, num_grads = [], 0.0
        for _ in range(iterations // self._length):
            self.state, (z, spent) = self._run(self.state, self._args)
            parts.append(jax.tree.map(np.asarray, z))
            num_grads += float(np.sum(spent))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, num_grads

    def go_on_from(self, state: Any) -> None:
        """Take all of another's state that is not of its centring."""
        shared = {
            name: jax.tree.map(jnp.array, getattr(state, name)) for name in state._fields if name not in OF_VERDICTS
        }
        self.state = self.state._replace(**shared)


def compare(target: Target, num_warmup: int, num_samples: int, seed: int) -> dict[str, Any]:
    """Verdict, largest difference of draws from those without centring, and ratio of warm-ups' gradients.

    Args:
        target: a network.
        num_warmup: iterations of warm-up.
        num_samples: draws that are compared; divides ``num_warmup``.
        seed: of the chains.
    """
    asked, off = (Chain(target, settings, num_warmup, num_samples, seed) for settings in (AUTO, OFF))
    forced = Chain(target, OFF | {"center": target.position()}, num_warmup, num_samples, seed)
    (_, cost), (_, cost_off) = asked.advance(num_warmup), off.advance(num_warmup)
    for chain in (off, forced):
        chain.go_on_from(asked.state)
    draws, draws_off, draws_forced = (chain.advance(num_samples)[0] for chain in (asked, off, forced))
    return {
        "order": int(asked.state.center_order),
        "harmonic": bool(asked.state.harmonic_drift),
        "difference": difference(draws, draws_off),
        "difference_of_control": difference(draws, draws_forced),
        "warmup_ratio": cost / cost_off,
        "acceptance": float(asked.state.mean_accept_prob),
    }


def difference(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> float:
    """The largest."""
    return max(float(np.max(np.abs(first[name] - second[name]))) for name in first)


def main() -> None:
    """Ask of each network and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", nargs="+", choices=tuple(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--samples", type=int, default=20, help="draws that are compared; divides --warmup")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    add_common_options(parser, ("numpyro",))
    options = parser.parse_args()
    if options.quick:
        options.targets, options.warmup, options.samples, options.seeds = ["bnn_1_16_1"], 40, 10, [1]
    warnings.simplefilter("ignore")
    results: dict[str, Any] = {}
    header = (
        "network",
        "weights",
        "order found",
        "harmonic drifts",
        "difference of draws",
        "of the control",
        "warm-up over center=None",
    )
    for line in (header, ["---"] * len(header)):
        print("|", " | ".join(line), "|")
    for name in options.targets:
        target = target_of(name)
        found = [compare(target, options.warmup, options.samples, seed) for seed in options.seeds]
        results[name] = {"parameters": target.num_parameters, "seeds": found}
        cells = [", ".join(f"{run[field]:.3g}" for run in found) for field in list(found[0])[:5]]
        print("|", " | ".join([name, f"{target.num_parameters:,}", *cells]), "|", flush=True)
        ratio = float(np.median([run["warmup_ratio"] for run in found]))
        print(f"warm-up, median over seeds: {ratio:.3f}, {verdict(ratio, MOST_DEARER)}", flush=True)
        save(options.json, vars(options), results)
        jax.clear_caches()


if __name__ == "__main__":
    main()
