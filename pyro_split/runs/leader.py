"""Broadcast from the first rank of a process group, which leads a stored run (:mod:`split_common.runs.leader`)."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import Tensor

from split_common.runs.leader import Broadcast


class Ended(NamedTuple):
    """Results of a run, as every rank's ``MCMC`` holds them.

    Attributes:
        samples: draws by site, chains and draws first; None where they are not loaded.
        diagnostics: diagnostics of each chain.
    """

    samples: dict[str, Tensor] | None
    diagnostics: list[dict[str, Any]]


def broadcast_in(group: Any) -> Broadcast | None:
    """A function that returns the first rank's message on all ranks of a group; None where there is no group."""
    return None if group is None else partial(_from_first, group)


def _from_first(group: Any, message: Any) -> Any:
    said = [message]
    dist.broadcast_object_list(said, dist.get_global_rank(group, 0), group)
    return said[0]
