"""The split of a model into as few subsets as memory allows: the number is chosen before chains start, from the data.

A model is first divided in two, to learn how it divides; then gradients of few rows are evaluated and measured, and of
more rows as long as these are expected to fit. The model is then divided into the chosen number and checked, as for a
number that was given.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from pyro_split.potential.memory import bytes_of_gradient
from pyro_split.splitting.divided_model import DividedModel
from split_common.errors import ModelNotSplittableError, first_line
from split_common.memory import AutoSubsets, ChosenSubsets, choose_num_subsets, does_not_fit

Split = TypeVar("Split", bound=DividedModel)

logger = logging.getLogger(__name__)


def find_fitting(
    find: Callable[[int], Split],
    auto: AutoSubsets,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Split:
    """The split into the fewest subsets whose gradient fits into a memory; leaves torch's generator as it is.

    Args:
        find: divides the model into a number of subsets, and checks the split.
        auto: the memory, and the fewest subsets.
        args: the model's positional arguments, with tensors.
        kwargs: its keyword arguments, likewise.

    Raises:
        ValueError: where no number of subsets makes the gradient fit; as
            :class:`~split_common.errors.ModelNotSplittableError` where the model does not divide and does not fit.
    """
    refusal = ""
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")  # warnings are given when the model is divided into the chosen number
        try:
            split = find(2)
        except ModelNotSplittableError as error:
            if auto.least > 1:
                raise
            split, refusal = find(1), first_line(error)
        except ValueError:  # for data of one row
            split = find(1)
        chosen = _chosen(split, auto, args, kwargs, refusal)
    found = find(chosen.num_subsets)
    found.verdict = found.verdict._replace(chosen=str(chosen))
    logger.info("%s (%d measured)", chosen, chosen.num_measured)
    return found


def _chosen(
    split: Any, auto: AutoSubsets, args: tuple[Any, ...], kwargs: dict[str, Any], refusal: str
) -> ChosenSubsets:
    """The number of subsets: one where the model does not divide, for the reason in ``refusal``."""
    potential, z = split.bind(args, kwargs), split.reference_position(args, kwargs)
    num_rows = split.layout.num_rows
    if refusal:
        taken = bytes_of_gradient(potential, z, num_rows)
        if taken > auto.memory:
            raise ModelNotSplittableError(str(does_not_fit(auto.memory, taken, refusal)))
        return ChosenSubsets(1, taken, auto.memory, 1)

    def measure(num_subsets: int) -> int:
        return bytes_of_gradient(potential, z, -(-num_rows // num_subsets))

    return choose_num_subsets(measure, num_rows, auto, takes_memory=True)
