"""Comparison, before a run begins, of what processes that share its rows must have in common.

Every process runs the same program on its part of the rows. JAX assumes, without a check, that whatever each process
holds whole, such as a random key, is the same in all of them. Processes that differ would wait for sums that the others
do not compute, or make a chain of several posteriors. So they exchange digests of what they are about to run, and a
difference raises an error in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax.experimental import multihost_utils

from numpyro_split.potential.arguments import Arguments
from numpyro_split.potential.content import digest_of_data
from numpyro_split.potential.sharded_rows import is_elsewhere
from split_common.digest import Digest
from split_common.errors import RanksError
from split_common.runs.identity import texts_of


def shares_rows(arguments: Arguments) -> bool:
    """Whether other processes hold some of the rows of a run."""
    return any(map(is_elsewhere, arguments.data))


def digest_of_rest(arguments: Arguments) -> str:
    """Digest of the arguments of a run that this process holds whole, and of the dtypes and shapes of the others."""
    digest = Digest()
    for name, x in arguments.named_arrays():
        digest.add(name, str(x.dtype), str(x.shape))
        if not is_elsewhere(x):
            digest.add(digest_of_data((x,)).key)
    for place, text in texts_of(arguments.others, "").items():
        digest.add(place, text)
    return digest.key


def check_alike(facts: Mapping[str, Any]) -> None:
    """Raise unless all processes are about to run the same thing.

    Args:
        facts: values by name whose texts and numbers must be the same in all processes; the same names in each.

    Raises:
        RanksError: in every process, naming what differs, and in which processes.
    """
    words = []
    for name, value in facts.items():
        digest = Digest()
        for place, text in sorted(texts_of(value, name).items()):
            digest.add(place, text)
        words.append(digest.words)
    by_process = np.asarray(multihost_utils.process_allgather(np.stack(words)))
    differs = np.any(by_process != by_process[0], axis=-1)
    if differs.any():
        names = [name for name, somewhere in zip(facts, differs.any(0), strict=True) if somewhere]
        raise RanksError(
            "processes that share the rows of a run must run the same, with the same random key, got another "
            f"{' and another '.join(names)} in processes {np.flatnonzero(differs.any(1)).tolist()} than in process 0"
        )
