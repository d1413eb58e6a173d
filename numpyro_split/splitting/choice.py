"""The split of a model into as few subsets as memory allows: the number is chosen before chains start, from the data.

A model is first divided in two, to learn how it divides; for other numbers of subsets the gradient is only compiled,
not run. The model is then divided into the chosen number and checked, as for a number that was given.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from jax.core import Tracer
from jax.experimental import multihost_utils

from numpyro_split.potential.arguments import Arguments
from numpyro_split.potential.memory import bytes_of_gradient
from numpyro_split.potential.tracing import eagerly
from numpyro_split.splitting.divided_model import DividedModel
from split_common.errors import ModelNotSplittableError, first_line
from split_common.memory import AutoSubsets, ChosenSubsets, choose_num_subsets, does_not_fit
from split_common.subsets import SubsetLayout

WORD = 2**24

Split = TypeVar("Split", bound=DividedModel)

logger = logging.getLogger(__name__)


def find_fitting(
    find: Callable[[int], Split],
    auto: AutoSubsets,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    num_chains: int = 1,
) -> Split:
    """The split into the fewest subsets whose gradient fits into a memory.

    Args:
        find: divides the model into a number of subsets, and checks the split.
        auto: the memory, and the fewest subsets.
        args: the model's positional arguments, with JAX arrays.
        kwargs: its keyword arguments, likewise.
        num_chains: number of chains whose gradients are evaluated at once.

    Raises:
        ValueError: for data that are traced, and where no number of subsets makes the gradient fit; as
            :class:`~split_common.errors.ModelNotSplittableError` where the model does not divide and does not fit.
    """
    arguments = Arguments(args, kwargs)
    if any(isinstance(x, Tracer) for x in arguments.data):
        raise ValueError(
            "num_subsets must be a number where the data are traced (`run` under a transformation), got 'auto', which "
            "is chosen from the data's shapes and devices before a run"
        )
    refusal = ""
    with warnings.catch_warnings(), eagerly():
        warnings.simplefilter("ignore")  # warnings are given when the model is divided into the chosen number
        try:
            split = find(2)
        except ModelNotSplittableError as error:
            if auto.least > 1:
                raise
            split, refusal = find(1), first_line(error)
        except ValueError:  # the data have one row
            split = find(1)
        chosen = _chosen(split, auto, args, kwargs, num_chains, refusal)
    found = find(chosen.num_subsets)
    found.verdict = found.verdict._replace(chosen=str(chosen))
    logger.info("%s (%d measured)", chosen, chosen.num_measured)
    return found


def _chosen(
    split: Any,
    auto: AutoSubsets,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    num_chains: int,
    refusal: str,
) -> ChosenSubsets:
    """The number of subsets: one where the model does not divide, for the reason in ``refusal``."""

    def measure(num_subsets: int) -> int:
        divided = copy.copy(split)
        divided.layout = SubsetLayout(split.layout.num_rows, num_subsets, split.layout.subset_order)
        taken = bytes_of_gradient(divided.bind(args, kwargs), split.reference_position, num_chains)
        return _largest_of_processes(taken) if split.shards is not None else taken

    if refusal:
        taken = bytes_of_gradient(split.bind(args, kwargs), split.reference_position, num_chains)
        if taken > auto.memory:
            raise ModelNotSplittableError(str(does_not_fit(auto.memory, taken, refusal)))
        return ChosenSubsets(1, taken, auto.memory, 1)
    num_rows = split.layout.num_rows if split.shards is None else max(split.shards.sizes)
    return choose_num_subsets(measure, num_rows, auto, takes_memory=False)


def _largest_of_processes(taken: int) -> int:
    """The most bytes that any process needs; all of them divide alike, and compile the same programs to find out."""
    words = np.array(divmod(taken, WORD), np.int32)  # in single precision a number of bytes would be rounded
    by_process = np.reshape(multihost_utils.process_allgather(words), (-1, 2)).astype(np.int64)
    return int(np.max(by_process @ np.array([WORD, 1])))
