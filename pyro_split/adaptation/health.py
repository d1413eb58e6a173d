"""Warnings of a run's first draws: divergences and slowly explored energies.

The host calls nothing on a kernel when a run ends, so a word is said once, after the first draws; all of it is in the
kernel's ``report``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from split_common.health import DRAWS_BEFORE_WARNING, LEAST_BFMI, warn_of_first_draws


def warn_if_in_trouble(diverging: Sequence[bool], energies: Sequence[float]) -> None:
    """Warn once, of each chain, where the first draws diverged or their energies were explored slowly.

    Args:
        diverging: of each draw so far.
        energies: likewise.
    """
    if len(energies) != DRAWS_BEFORE_WARNING:
        return
    num_diverging, values = sum(diverging), torch.tensor(energies, dtype=torch.float64)
    bfmi = float(values.diff().square().sum() / (values - values.mean()).square().sum())
    if num_diverging or bfmi < LEAST_BFMI:
        warn_of_first_draws(num_diverging, bfmi)
