"""How the first rank of a process group tells the others what a stored run does (:mod:`split_common.runs.leader`)."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import Tensor

from split_common.runs.leader import Broadcast


class Ended(NamedTuple):
    """What a run left, as every rank's ``MCMC`` holds it.

    Attributes:
        samples: draws by site, chains and draws first; None where they are not loaded.
        diagnostics: of each chain.
    """

    samples: dict[str, Tensor] | None
    diagnostics: list[dict[str, Any]]


def broadcast_in(group: Any) -> Broadcast | None:
    """What the first rank of a group says, on all of its ranks; None where there is no group."""
    return None if group is None else partial(_from_first, group)


def _from_first(group: Any, message: Any) -> Any:
    said = [message]
    dist.broadcast_object_list(said, dist.get_global_rank(group, 0), group)
    return said[0]
