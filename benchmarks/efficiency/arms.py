"""The ways of sampling that are compared, by name.

Lengths of the host's HMC and numbers of steps of hamiltorch are one grid for every target; no other arm is tuned.
HMCECS has the settings of ``benchmarks.tall_logistic``; its target is that of its estimate of the likelihood, near the
posterior.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpyro.infer import HMC, HMCECS, NUTS

from benchmarks.efficiency.laplace import Laplace
from benchmarks.efficiency.targets import Target
from numpyro_split import NaiveSplitHMC, SplitHMC, SplitNUTS, SymmetricSplitHMC

QUARTER = {"trajectory_length": math.pi / 2, "step_size_jitter": 0.5}
HOST_LENGTHS, HAMILTORCH_STEPS = (math.pi / 2, 2.0, 2 * math.pi), (10, 30)
KINDS = ("regression", "softmax", "network")


class Arm(NamedTuple):
    """A way of sampling.

    Attributes:
        make: from a target, and its mode and covariance where they are needed, to a kernel.
        num_warmup: iterations of warm-up.
        forward: forward passes over the rows of an iteration: "draw" for one, "step" for one at each step, "blocks" for
            two over a subsample, "" for none.
        counts: the gradients: "num_grads" of a subset each, or "num_steps" of all rows or of a subsample each.
        is_host: whether it takes the host's number of draws.
        given: what it is told and another finds: "" for nothing, "mode", or "start" for starts drawn from the normal
            distribution about the mode and its variances as metric.
        subsample_size: rows that HMCECS asks for.
        num_steps: of hamiltorch's trajectories.
        kinds: of the targets that it is run on.
    """

    make: Callable[[Target, Laplace | None], Any]
    num_warmup: int = 300
    forward: str = "draw"
    counts: str = "num_grads"
    is_host: bool = False
    given: str = ""
    subsample_size: int | None = None
    num_steps: int | None = None
    kinds: tuple[str, ...] = KINDS


def split(kernel: Any, num_warmup: int = 300, forward: str = "draw", **options: Any) -> Arm:
    """A kernel of ours."""
    return Arm(lambda target, _: kernel(target.model, target.num_subsets, **options), num_warmup, forward)


def host(kernel: Any, is_given: bool = False, **options: Any) -> Arm:
    """A kernel of NumPyro's on all rows, as its users start it, or with all but the step size given."""

    def make(target: Target, known: Laplace | None) -> Any:
        if known is None:
            return kernel(target.model, **options)
        assert known.covariance is not None
        variances = np.diag(known.covariance)
        return kernel(target.model, inverse_mass_matrix=variances, adapt_mass_matrix=False, **options)

    given = {"given": "start", "kinds": ("regression", "softmax")} if is_given else {}
    return Arm(make, 100 if is_given else 1000, "", "num_steps", True, **given)


def ecs(subsample_size: int, num_blocks: int) -> Arm:
    """HMCECS with a Taylor proxy of second order about the mode."""

    def make(target: Target, known: Laplace | None) -> HMCECS:
        assert known is not None
        proxy = HMCECS.taylor_proxy(known.at_mode(), 2)
        return HMCECS(NUTS(target.model), num_blocks=num_blocks, proxy=proxy)

    return Arm(make, 500, "blocks", "num_steps", False, "mode", subsample_size, kinds=("regression",))


def hamiltorch(num_steps: int) -> Arm:
    """hamiltorch's symmetric splitting, its step size adapted by its own dual averaging."""
    return Arm(lambda *_: None, 200, is_host=True, given="mode", num_steps=num_steps, kinds=("softmax",))


ARMS: dict[str, Arm] = {
    "SplitHMC": split(SplitHMC, 400, forward=""),  # by its defaults; a naive step keeps the energies of its end
    "single visits, centred, metric auto": split(
        SplitHMC, 200, schedule="single_visit", center="auto", metric="auto", drift=None
    ),
    "SplitNUTS, metric auto": split(SplitNUTS, 200, "step", metric="auto"),
    "SymmetricSplitHMC": split(SymmetricSplitHMC),
    "SymmetricSplitHMC, centred, metric auto": split(SymmetricSplitHMC, 200, center="auto", metric="auto"),
    "NaiveSplitHMC": split(NaiveSplitHMC, forward=""),
    "single visits, quarter turns": split(SplitHMC, schedule="single_visit", metric=None, **QUARTER),
    "single visits, centred, quarter turns": split(
        SplitHMC, schedule="single_visit", center="auto", metric=None, **QUARTER
    ),
    "host NUTS": host(NUTS),
    "host NUTS, given metric": host(NUTS, True),
    **{f"host HMC, length {length:.3g}": host(HMC, trajectory_length=length) for length in HOST_LENGTHS},
    **{
        f"host HMC, given metric, length {length:.3g}": host(HMC, True, trajectory_length=length)
        for length in HOST_LENGTHS
    },
    **{f"HMCECS {size}/{blocks}": ecs(size, blocks) for size, blocks in ((500, 10), (50, 5), (10, 2))},
    **{f"hamiltorch symmetric, {steps} steps": hamiltorch(steps) for steps in HAMILTORCH_STEPS},
}
