"""What a model must be like for its rows to lie in shards, of which no device has all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from numpyro_split.potential.arguments import Arguments, Data
from numpyro_split.potential.position import Position
from numpyro_split.potential.shards import Shards
from numpyro_split.potential.tracing import reads_inputs
from numpyro_split.splitting.divided_model import DividedModel
from split_common.errors import ModelNotSplittableError
from split_common.row_independence import PROVED
from split_common.selection import SLICE, yields_numbers

IN_SHARDS = "a model whose rows lie on several devices must"


def check_over_shards(split: DividedModel, shards: Shards, row_axes: Mapping[str, int], names: Iterable[str]) -> None:
    """Raise unless a split, found on a few rows, is one that shards can have.

    Args:
        split: the split of the model on a few rows of each shard.
        shards: the shards of all rows.
        row_axes: for the path of each array that holds rows, their axis.
        names: names of the arguments that hold rows.
    """
    if split.mode != SLICE or split.row_axes != row_axes:
        raise ModelNotSplittableError(
            f"{IN_SHARDS} take them from its arguments {list(names)} and give its data plate as many rows as these "
            f"have, as in numpyro.plate('data', X.shape[0]), got one that {_how(split)}"
        )
    if split.local_sites:
        raise ModelNotSplittableError(f"{IN_SHARDS} have no latent site inside the data plate, got {split.local_sites}")
    if split.reads:
        raise ModelNotSplittableError(f"{IN_SHARDS} read no values of them with Python, which has none of them all")


def _how(split: DividedModel) -> str:
    if split.mode != SLICE:
        return "is told the numbers of its rows" if yields_numbers(split.mode) else "does not divide"
    return f"has rows in other arguments: {sorted(split.row_axes)}"


def check_proved(split: DividedModel, held: Iterable[Any]) -> None:
    """Raise unless the rows of a model are proved to be independent, without shared values."""
    if split.verdict.kind != PROVED:
        raise ModelNotSplittableError(
            f"{IN_SHARDS} be proved to have rows independent of one another (no numbers are compared on all of them), "
            f"got one of which that is {split.verdict}"
        )
    if list(held):
        raise ModelNotSplittableError(
            f"{IN_SHARDS} take nothing from all rows, got one that does ({split.verdict}); compute it beforehand, and "
            "give the result as an argument"
        )


def depending_on(
    density: Any,
    postprocess: Callable[..., Callable[[Position], dict[str, jax.Array]]],
    z: Position,
    arguments: Arguments,
    elsewhere: list[bool],
    fixed: Sequence[str],
) -> list[str]:
    """Descriptions of values, the likelihood apart, that depend on rows which lie elsewhere.

    Args:
        density: the model's density.
        postprocess: from the model's arguments to the map from a position to the values of its sites.
        z: a position.
        arguments: the model's arguments.
        elsewhere: for each data array, whether it holds rows that no process has all of.
        fixed: names of the ``numpyro.param`` and mutable sites.
    """
    rows = [x for x, is_such in zip(arguments.shapes(), elsewhere, strict=True) if is_such]

    def given(rows: list[jax.Array]) -> Data:
        found, places = iter(rows), zip(arguments.data, elsewhere, strict=True)
        return tuple(next(found) if is_such else x for x, is_such in places)

    def prior(rows: list[jax.Array]) -> list[jax.Array]:
        return [jnp.sum(term) for term in density.prior(z, given(rows))]

    def sites(rows: list[jax.Array]) -> dict[str, jax.Array]:
        args, kwargs = arguments.build(given(rows))
        return postprocess(*args, **kwargs)(z)

    def first_values(rows: list[jax.Array]) -> list[jax.Array]:
        return arrays_in(density.model.first_values(fixed, *arguments.build(given(rows))))

    found = ["the log-density outside the data plate"] if reads_inputs(prior, rows) else []
    found += [f"a parameter, one of {list(fixed)}," for _ in fixed[:1] if reads_inputs(first_values, rows)]
    for name in jax.eval_shape(sites, rows):
        if reads_inputs(lambda rows, name=name: sites(rows)[name], rows):
            found.append(f"the {'site' if name in z else 'deterministic site'} {name!r}")
    return found


def following_number(
    read: Callable[[Data], dict[str, list[jax.Array]]],
    arguments: Arguments,
    elsewhere: list[bool],
    lengths: tuple[int, int],
) -> list[str]:
    """Descriptions of values that are others on another number of rows that lie elsewhere.

    Args:
        read: from the arguments' arrays to values by description; none depends on these rows, for which zeros stand.
        arguments: the model's arguments.
        elsewhere: for each data array, whether it holds rows that no process has all of.
        lengths: two numbers of rows.
    """

    @partial(jax.jit, static_argnums=0)  # so that rows which no result depends on take no memory
    def values(length: int) -> dict[str, list[jax.Array]]:
        places = zip(arguments.shapes(), arguments.axes, strict=True)
        rows = [jnp.zeros(_with_length(x, axis, length), x.dtype) for x, axis in places]
        return read(tuple(y if is_such else x for x, y, is_such in zip(arguments.data, rows, elsewhere, strict=True)))

    one, other = map(values, lengths)
    return [what for what in one if not _are_equal(one[what], other[what])]


def parameters(density: Any, arguments: Arguments, fixed: Sequence[str], data: Data) -> dict[str, list[jax.Array]]:
    """First values of a model's ``numpyro.param`` and mutable sites, by description, for :func:`following_number`."""
    args, kwargs = arguments.build(data)
    found = density.model.first_values(fixed, args, kwargs) if fixed else {}
    return {f"the parameter {name!r}": _numbers_in(value) for name, value in found.items()}


def outside_plate(
    density: Any,
    postprocess: Callable[..., Callable[[Position], dict[str, jax.Array]]],
    z: Position,
    arguments: Arguments,
    fixed: Sequence[str],
    data: Data,
) -> dict[str, list[jax.Array]]:
    """What a model computes besides its likelihood, by description, for :func:`following_number`."""
    args, kwargs = arguments.build(data)
    found = parameters(density, arguments, fixed, data)
    found["the log-density outside the data plate"] = [jnp.asarray(x) for x in density.prior(z, data)]
    for name, value in postprocess(*args, **kwargs)(z).items():
        found[f"the {'site' if name in z else 'deterministic site'} {name!r}"] = _numbers_in(value)
    return found


def _numbers_in(value: Any) -> list[jax.Array]:
    """Arrays and numbers in the value of a site, which may be nested and hold other things."""
    return [jnp.asarray(x) for x in jax.tree.leaves(value) if isinstance(x, jax.Array | np.ndarray | int | float)]


def _with_length(x: jax.ShapeDtypeStruct, axis: int | None, length: int) -> tuple[int, ...]:
    return x.shape if axis is None else (*x.shape[:axis], length, *x.shape[axis + 1 :])


def _are_equal(one: Sequence[jax.Array], other: Sequence[jax.Array]) -> bool:
    pairs = zip(map(_numbers, one), map(_numbers, other), strict=False)
    return len(one) == len(other) and all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)


def _numbers(x: jax.Array) -> np.ndarray:
    return np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)


def arrays_in(values: Any) -> list[jax.Array]:
    """The arrays among the values of sites, which may be nested and hold other things."""
    return [x for x in jax.tree.leaves(values) if isinstance(x, jax.Array)]


def rows_are_read(what: str) -> ModelNotSplittableError:
    """The error for a model of which something besides the likelihood reads rows."""
    return ModelNotSplittableError(
        f"{IN_SHARDS} look at them in its data plate alone, got one in which {what} does; compute it outside the model"
    )


def number_is_read(what: str) -> ModelNotSplittableError:
    """The error for a model of which something besides the likelihood follows the number of rows."""
    return ModelNotSplittableError(
        f"{IN_SHARDS} look at their number in its data plate alone, got one in which {what} follows it; pass the "
        "number as an argument"
    )


def check_shard_rows(num_subsets: int, shards: Shards) -> None:
    """Raise unless the longest shard has a row for each subset."""
    if num_subsets > max(shards.sizes):
        raise ValueError(
            f"num_subsets must be at most the number of rows of a shard, {max(shards.sizes)}, got {num_subsets}: a "
            f"subset has rows of each of the {shards.num}"
        )
