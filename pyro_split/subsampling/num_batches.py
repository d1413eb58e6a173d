"""Running statistics of the noise of estimates, by which the number of batches adapts and warnings are given."""

from __future__ import annotations

import math
from typing import NamedTuple

from pyro_split.subsampling.estimates import Estimate
from split_common.certainty import LARGEST_TAIL_ERROR
from split_common.health import DRAWS_BEFORE_WARNING, WARN_ABOVE_SHARE
from split_common.penalty import TRUSTED_NOISE, Batches, growth_times, warn_of_noise, warn_of_tail


class NoiseState(NamedTuple):
    """Running statistics of the noise.

    Attributes:
        num_groups: the number of batches, as a multiple of the least.
        mean: mean of χ² times ``num_groups``, over the quarter of warm-up that is under way.
        count: number of iterations in that mean.
        mean_chi2: mean of χ² over the draws so far.
        share_above: share of the draws so far with χ² above K/4.
        mean_tail_error: mean over the draws so far of how far single rows may put the log-density off.
    """

    num_groups: int = 1
    mean: float = 0.0
    count: int = 0
    mean_chi2: float = 0.0
    share_above: float = 0.0
    mean_tail_error: float = 0.0


class NoiseAdapter:
    """Updates the statistics of the noise, and in warm-up the number of batches, which is fixed while sampling.

    Args:
        target_noise: χ² to aim at; None leaves the number of batches.
        batches: batches of the estimates.
        warmup_steps: number of warm-up iterations.
    """

    def __init__(self, target_noise: float | None, batches: Batches, warmup_steps: int):
        self._target_noise, self._batches, self._warmup_steps = target_noise, batches, warmup_steps

    def update(self, t: int, estimate: Estimate, noise: NoiseState) -> NoiseState:
        """Running statistics after iteration ``t``, counted from 1 as the host does."""
        # a proposal without an energy is rejected, and says nothing of the noise
        is_known, num_draws = math.isfinite(estimate.chi2), t - self._warmup_steps
        chi2 = estimate.chi2 if is_known else noise.mean_chi2
        tail_error = estimate.tail_error if is_known else noise.mean_tail_error
        if num_draws > 0:
            above = chi2 > TRUSTED_NOISE * estimate.num_batches
            return noise._replace(
                mean_chi2=noise.mean_chi2 + (chi2 - noise.mean_chi2) / num_draws,
                share_above=noise.share_above + (above - noise.share_above) / num_draws,
                mean_tail_error=noise.mean_tail_error + (tail_error - noise.mean_tail_error) / num_draws,
            )
        if self._target_noise is None:
            return noise
        count, mean = noise.count, noise.mean
        if is_known:
            count += 1
            mean += (chi2 * noise.num_groups - mean) / count
        if t not in growth_times(self._warmup_steps):
            return noise._replace(mean=mean, count=count)
        wanted = math.ceil(mean / self._target_noise) if count else noise.num_groups
        return noise._replace(num_groups=min(max(wanted, 1), self._batches.max_groups), mean=0.0, count=0)


def warn_if_noisy(num_draws: int, num_batches: int, noise: NoiseState) -> None:
    """Warn once for each chain if its first draws depend on noise that cannot be trusted.

    Noise cannot be trusted where it is large in many draws, or where single rows cause it.

    Args:
        num_draws: number of draws since warm-up.
        num_batches: K, the number of batches.
        noise: running statistics of the noise.
    """
    if num_draws != DRAWS_BEFORE_WARNING:
        return
    if noise.share_above > WARN_ABOVE_SHARE:
        warn_of_noise(noise.share_above, noise.mean_chi2, num_batches)
    elif noise.mean_tail_error > LARGEST_TAIL_ERROR:
        warn_of_tail(noise.mean_tail_error)
