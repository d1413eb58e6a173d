"""What is compared, and how long it runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from numpyro.infer import HMCECS, NUTS

from benchmarks.tall_logistic.data import Weights, model
from numpyro_split import PenaltyMH

RIVALS_FROM = 100_000  # rows; on fewer only the time of an iteration is asked for
NUTS_ROWS = 5e7  # rows times draws of NUTS in a repetition
NUM_CHAINS, MANY_CHAINS = 64, 256  # where they are vectorised
BY_HAND = "vmap of"  # begins the name of what the host's MCMC does not offer
PENALTY_WARMUP, NUTS_WARMUP = 500, 150  # iterations; of NUTS at least


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
