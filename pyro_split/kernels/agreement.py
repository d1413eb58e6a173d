"""Comparison, before a run begins, of what processes that share its rows must have in common.

Processes that differ would wait for one another, or make a chain of several posteriors. So each process first does
everything that can fail on its own; then they exchange how that went, and what they are about to run. An error in one
process, or a difference, raises an error in all of them. Only dtypes and columns are compared of the rows, and the
numbers of everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from pyro_split.kernels.method import Method
from pyro_split.potential.densities import FunctionDensity
from pyro_split.potential.position import Position
from pyro_split.potential.ranks import Ranks, digest_of_random_state, group_of, random_state, set_random_state, together
from pyro_split.potential.split_potential import SplitPotential
from pyro_split.splitting.divided_model import DividedModel
from pyro_split.splitting.settings import Splitting
from split_common.errors import RanksError
from split_common.runs.identity import code_of, texts_of, versions_of
from split_common.values import shown

LEAST_ROWS = 2  # rows of a rank: independence of rows cannot be proved with one
MOST_SHOWN = 3  # number of differences in a message
RANDOM = "random numbers"


class Bound(NamedTuple):
    """A model bound to the arguments of a run.

    Attributes:
        args: positional arguments, as tensors.
        kwargs: keyword arguments, as tensors.
        split: how the model divides; None for a kernel made from a potential.
        potential: potential of these arguments.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    split: DividedModel | None
    potential: SplitPotential


class Settings(NamedTuple):
    """The parts of a kernel that ranks compare.

    Attributes:
        kernel: name of the kernel's class.
        model: the model; None for a kernel made from a potential.
        splitting: how the model is divided.
        method: how a chain starts and moves.
        warmup_steps: number of warm-up iterations.
        initial_params: starting point of the chain; None if it is not given.
    """

    kernel: str
    model: Callable[..., Any] | None
    splitting: Splitting
    method: Method
    warmup_steps: int
    initial_params: Position | None


def bind_over_ranks(settings: Settings, given: Mapping[str, Any], bind: Callable[[int | None], Bound]) -> Bound:
    """A model bound to the rows of all ranks, after these agree; all ranks take the random state of the first.

    Args:
        settings: the parts of the kernel.
        given: the model's arguments by name, as the user gave them.
        bind: function that binds the model to the rows of this process without waiting for others; its argument is the
            number of subsets, or None for that of the kernel.

    Raises:
        RanksError: on every rank, if one of them fails or they differ.
    """
    group, own, shards = group_of(settings.splitting.process_group), [], settings.splitting.shards
    rank = torch.distributed.get_rank(group)
    per_rank = len(shards) // torch.distributed.get_world_size(group) if shards else 1
    check_alike(together(group, lambda: _facts_before(settings, given)))

    def find(num_subsets: int | None) -> tuple[dict[str, str], int, int, list[torch.Tensor]]:
        bound = bind(num_subsets)
        _check_over_ranks(bound)
        check_shards(bound, shards[rank * per_rank : (rank + 1) * per_rank])
        own.append(bound)
        return _facts(bound), bound.potential.plate_size, bound.potential.num_subsets, random_state()

    by_rank = together(group, lambda: find(None))
    check_alike([facts for facts, *_ in by_rank])
    numbers = {num_subsets for _, _, num_subsets, _ in by_rank}
    if len(numbers) > 1:  # each rank chose by its own rows; all take the largest number
        together(group, lambda: find(max(numbers)))
        _note_choice(own[-1], max(numbers))
    set_random_state(by_rank[0][3])
    bound = own[-1]
    ranks = Ranks(shards or tuple(num_rows for _, num_rows, *_ in by_rank), rank, group, per_rank)
    return bound._replace(potential=bound.potential.over(ranks))


def bind_over_shards(bound: Bound, shards: tuple[int, ...]) -> Bound:
    """A model bound to the rows of all shards, where one process holds them all.

    Raises:
        RanksError: if the process holds another number of rows.
    """
    check_shards(bound, shards)
    return bound._replace(potential=bound.potential.over(Ranks(shards, shards_per_rank=len(shards))))


def check_shards(bound: Bound, shards: Sequence[int]) -> None:
    """Raise unless a process holds as many rows as its shards have; without shards any number is allowed.

    Raises:
        RanksError: naming both numbers of rows.
    """
    if shards and bound.potential.plate_size != sum(shards):
        raise RanksError(
            f"rows of a process must be those of its shards, which have {' + '.join(map(str, shards))} rows in the "
            f"store, got {bound.potential.plate_size}"
        )


def check_alike(by_rank: Sequence[Mapping[str, str]]) -> None:
    """Raise unless all ranks are about to run the same thing.

    Args:
        by_rank: for each rank, texts by the place they come from.

    Raises:
        RanksError: naming what differs, and on which ranks.
    """
    first = by_rank[0]
    found = [
        f"{place} {first.get(place, 'nothing')} on rank 0 and {other.get(place, 'nothing')} on rank {rank}"
        for rank, other in enumerate(by_rank)
        for place in {**first, **other}
        if first.get(place) != other.get(place)
    ]
    if not found:
        return
    more = f"; and {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
    has_other_seed = any(text.startswith(RANDOM) for text in found)
    advice = "; call pyro.set_rng_seed(seed) with the same seed on all ranks before the run" if has_other_seed else ""
    raise RanksError(
        f"processes of one process_group must run the same, got {'; '.join(found[:MOST_SHOWN])}{more}{advice}"
    )


def _note_choice(bound: Bound, num_subsets: int) -> None:
    """Record on every rank that the number of subsets is the largest that a rank needs."""
    if bound.split is not None:
        chosen = f"num_subsets={num_subsets} chosen, which is the most that a rank needs"
        bound.split.verdict = bound.split.verdict._replace(chosen=chosen)


def _check_over_ranks(bound: Bound) -> None:
    """Raise unless a rank has enough rows, and their terms are proved not to depend on the rows of other ranks."""
    split, num_rows, num_subsets = bound.split, bound.potential.plate_size, bound.potential.num_subsets
    if split is None:
        if not isinstance(bound.potential._density, FunctionDensity):
            raise ValueError(
                "model must be the model itself where process_group is given (its rows are then proved to be "
                f"independent of other ranks' rows), got {shown(bound.potential)} made of one"
            )
    elif split.local_sites:
        raise ValueError(
            "process_group needs a model whose latent sites all lie outside the data plate, got "
            f"{sorted(split.local_sites)} inside it; marginalise them, or run on one process"
        )
    elif why := split.depends_on_other_rows(bound.args, bound.kwargs):
        raise ValueError(
            "process_group needs a model of which it is proved that a row's terms rest on that row alone, and what "
            f"stands outside the data plate on none, since a rank has no other rows than its own, got: {why}"
        )
    if num_rows < max(num_subsets, LEAST_ROWS):
        raise ValueError(
            f"rows of each rank must be at least num_subsets, {num_subsets}, and at least {LEAST_ROWS}, got {num_rows}"
        )


def _facts_before(settings: Settings, given: Mapping[str, Any]) -> dict[str, str]:
    """Facts that must be the same on all ranks before models are divided, as texts by place."""
    model = {} if settings.model is None else {"model": code_of(settings.model, with_numbers=False)}
    arrays = {name: x for name, x in given.items() if hasattr(x, "shape") and hasattr(x, "dtype")}
    rows_first = settings.splitting.data_axes is None
    return {
        "kernel": settings.kernel,
        **texts_of(settings.splitting.anywhere, "kernel argument splitting"),
        **texts_of(settings.method, "kernel argument"),
        **model,
        "warmup_steps": str(settings.warmup_steps),
        RANDOM: digest_of_random_state(),
        "default type": str(torch.get_default_dtype()),
        **{f"argument {name}": _of_rows(x, 0 if rows_first else None) for name, x in arrays.items()},
        **texts_of(settings.initial_params, "initial_params"),
        **versions_of("pyro-ppl", "torch"),
    }


def _facts(bound: Bound) -> dict[str, str]:
    """Facts that must be the same on all ranks after models are bound, as texts by place."""
    if bound.split is None:
        density = bound.potential._density
        assert isinstance(density, FunctionDensity)
        functions = {f"model.{name}": code_of(x, with_numbers=False) for name, x in density.functions.items()}
        return {**functions, **{f"data[{i}]": _of_rows(x, 0) for i, x in enumerate(bound.potential._data)}}
    sites = {f"latent site {name}": f"of {size} values" for name, size in bound.split.site_sizes.items()}
    arguments = bound.split._density(bound.args, bound.kwargs).arguments
    rest = texts_of(arguments.others, "argument")
    for (name, x), axis in zip(arguments.named_arrays(), arguments.axes, strict=True):
        rest |= texts_of(x, f"argument {name}") if axis is None else {f"argument {name}": _of_rows(x, axis)}
    for name, value in bound.split.read_values.items():
        rest |= texts_of(value, f"value that Python reads at {name.rpartition(' ')[0]}")
    return {"rows selected by": bound.split.mode, **sites, **rest}


def _of_rows(x: Any, axis: int | None) -> str:
    """Dtype and columns of an array that holds rows along an axis; None for an unknown axis."""
    shape = ["rows" if i == axis else str(n) for i, n in enumerate(x.shape)]
    columns = f"{len(shape)} axes" if axis is None else f"shape ({', '.join(shape)})"
    return f"{x.dtype} array of {columns} on {getattr(x, 'device', 'cpu')!s}".partition(":")[0]
