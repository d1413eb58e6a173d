"""Values that warm-up found, stored beside the states of a run, with which a later run may start, also on more data.

A metric, a step size and a reference of centring are settings of a sampler, which any later run may be given: its draws
are right whatever they are. A state is no setting, and belongs to its own run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from split_common.checks import check_chain
from split_common.errors import StoreError
from split_common.low_rank_metric import LowRank
from split_common.runs.packed import Packed
from split_common.runs.store import state_in
from split_common.runs.store_path import checked_path, open_group

FOUND = "found"  # name of its place among a chain's states


class Found(NamedTuple):
    """Values that warm-up of one chain found.

    Attributes:
        step_size: step size of the chain.
        inverse_mass_matrix: from tuples of site names to blocks as NumPy arrays, or to a :class:`LowRank` of such; None
            where the kernel has none.
        center: unconstrained values by site, about which splitting is centred; None where it is not.
    """

    step_size: float
    inverse_mass_matrix: dict[tuple[str, ...], Any] | None = None
    center: dict[str, np.ndarray] | None = None

    def packed(self) -> Packed:
        """The same as arrays and plain values."""
        arrays, blocks = {}, []
        for k, (sites, block) in enumerate((self.inverse_mass_matrix or {}).items()):
            parts = block._asdict() if isinstance(block, LowRank) else {"block": block}
            arrays |= {f"metric/{k}/{name}": np.asarray(x) for name, x in parts.items()}
            blocks.append(list(sites))
        arrays |= {f"center/{name}": np.asarray(x) for name, x in (self.center or {}).items()}
        has = {"metric": self.inverse_mass_matrix is not None, "center": self.center is not None}
        return Packed({"step_size": float(self.step_size), "blocks": blocks, "has": has}, arrays)

    @classmethod
    def of(cls, packed: Packed) -> Found:
        """Inverse of :meth:`packed`."""
        values, arrays = packed
        metric = {tuple(sites): _block(arrays, f"metric/{k}/") for k, sites in enumerate(values["blocks"])}
        center = {name.removeprefix("center/"): x for name, x in arrays.items() if name.startswith("center/")}
        has = values["has"]
        return cls(values["step_size"], metric if has["metric"] else None, center if has["center"] else None)


def found_in(store: str | os.PathLike[str], chain: int) -> Found:
    """The values that warm-up of a chain of a stored run found.

    Args:
        store: path of the store.
        chain: number of the chain.

    Raises:
        ValueError: where there is no such chain; as :class:`~split_common.errors.StoreError` where there is no store,
            or where its run has no warm-up or is still in it.
    """
    path = checked_path(store)
    group = open_group(path)
    if group is None:
        raise StoreError(f"store must be the path of a run's store, got {path!r}, where nothing is")
    place = check_chain(chain, group.attrs["plan"]["num_chains"])
    if not group.attrs["plan"]["num_warmup"]:
        raise StoreError(f"store must be of a run with warm-up, got {path!r} of one without")
    packed = state_in(group, place, FOUND)
    if packed is None:
        raise StoreError(
            f"store must be of a run whose warm-up is over, got {path!r}, where that of chain {place} is not"
        )
    return Found.of(packed)


def is_path(run: Any) -> bool:
    """Whether a run is given as the path of its store."""
    return isinstance(run, str | os.PathLike)


def required(found: Any, what: str, path: Any) -> Any:
    """``found``; where it is None, an error that names what the run lacks."""
    if found is None:
        raise ValueError(f"run must be one with a kernel that {what}, got the store {str(path)!r} of one without that")
    return found


def _block(arrays: Mapping[str, np.ndarray], prefix: str) -> Any:
    """A block of a metric."""
    parts = {name.removeprefix(prefix): x for name, x in arrays.items() if name.startswith(prefix)}
    return parts["block"] if "block" in parts else LowRank(**parts)
