"""Runs of one kernel, and what they were worth."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import random
from numpyro.infer import MCMC

from benchmarks.efficiency.measures import effective_size


def run(
    kernel: Any,
    num_warmup: int,
    num_samples: int,
    counts: str,
    seeds: list[int],
    args: tuple[Any, ...] = (),
    num_chains: int = 4,
    start: dict[str, jax.Array] | None = None,
) -> list[dict[str, float]]:
    """For each seed effective draws a gradient, gradients a draw, and those of a chain's warm-up; compiled once.

    Args:
        kernel: to be run.
        num_warmup: iterations of warm-up.
        num_samples: draws of each chain.
        counts: the field of the state that counts gradients.
        seeds: of the runs.
        args: of the model.
        num_chains: vectorised chains.
        start: where they start; None for where the host starts them.
    """
    made = MCMC(
        kernel,
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=num_chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    runs = []
    for seed in seeds:
        made.post_warmup_state = None
        made.warmup(random.key(2 * seed), *args, extra_fields=(counts,), collect_warmup=True, init_params=start)
        of_warmup = float(np.sum(made.get_extra_fields()[counts])) / num_chains
        made.run(random.key(2 * seed + 1), *args, extra_fields=(counts,))
        num_grads = float(np.sum(made.get_extra_fields()[counts]))
        sites = made.get_samples(group_by_chain=True).values()
        x = np.concatenate([np.asarray(u).reshape(num_chains, num_samples, -1) for u in sites], axis=2)
        figures = {
            "ess_per_gradient": effective_size(x) / num_grads,
            "gradients_per_draw": num_grads / num_chains / num_samples,
            "warmup_gradients": of_warmup,
        }
        runs.append(figures)
    return runs
