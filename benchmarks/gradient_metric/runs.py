"""One run, and what it was worth."""

from __future__ import annotations

from typing import Any

import arviz as az
import jax
import numpy as np
from jax import random
from numpyro.infer import MCMC


def run(
    kernel: Any,
    num_warmup: int,
    num_samples: int,
    counts: str,
    seed: int,
    num_chains: int = 4,
    start: dict[str, jax.Array] | None = None,
) -> dict[str, float]:
    """Effective draws a gradient, gradients a draw, and those of a chain's warm-up.

    Args:
        kernel: to be run.
        num_warmup: iterations of warm-up.
        num_samples: draws of each chain.
        counts: the field of the state that counts gradients.
        seed: of the run.
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
    made.warmup(random.key(2 * seed), extra_fields=(counts,), collect_warmup=True, init_params=start)
    of_warmup = float(np.sum(made.get_extra_fields()[counts])) / num_chains
    made.run(random.key(2 * seed + 1), extra_fields=(counts,))
    num_grads = float(np.sum(made.get_extra_fields()[counts]))
    x = np.asarray(made.get_samples(group_by_chain=True)["x"])
    squared = (x - x.mean((0, 1))) ** 2
    size = min(float(np.min(az.ess(az.convert_to_dataset({"x": u}))["x"])) for u in (x, squared))
    return {
        "ess_per_gradient": size / num_grads,
        "gradients_per_draw": num_grads / num_chains / num_samples,
        "warmup_gradients": of_warmup,
    }
