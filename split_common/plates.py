"""The plate that holds the data rows: how it is chosen, and advice where a model has none that can be divided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from split_common.errors import WHOLE_RUNS, ModelNotSplittableError, NoDataPlateError, RowsMeetError, first_line
from split_common.selection import INDEX, NUMBERED, SLICE
from split_common.values import is_name, shown

Latents = Mapping[str, tuple[Sequence[str], Sequence[int]]]  # plates around each latent site, shape of its value
MOST_NAMED = 3  # sites that a message names


class Observation(NamedTuple):
    """Properties of an observed site.

    Attributes:
        name: name of the site.
        batch_shape: shape of its log-probability.
        event_shape: shape of one value.
        distribution: name of its distribution's class.
        joined: whether independent values were joined into one by ``to_event``.
        in_loop: whether it is a step of a loop that the host runs (a scan).
        plates: the plates that it lies in.
    """

    name: str
    batch_shape: tuple[int, ...]
    event_shape: tuple[int, ...]
    distribution: str
    joined: bool
    in_loop: bool
    plates: tuple[str, ...]


def divisible_without_plate(observed: Sequence[Observation]) -> Observation | None:
    """The observed site whose rows a plate could hold: the only one, of batch shape (N,), in no plate; or None.

    Example:
        >>> site = Observation("y", (100,), (), "Normal", False, False, ())
        >>> divisible_without_plate([site]).name, divisible_without_plate([site, site._replace(name="x")])
        ('y', None)
    """
    if len(observed) != 1:
        return None
    [site] = observed
    is_column = len(site.batch_shape) == 1 and site.batch_shape[0] > 1
    return site if is_column and not site.plates and not site.in_loop else None


def no_data_plate(observed: Sequence[Observation], latents: Latents, package: str, why: str = "") -> NoDataPlateError:
    """The error for a model without a plate over its rows: the exact edit, or why there is none.

    Args:
        observed: the observed sites, factors left out.
        latents: the plates around each latent site, and the shape of its value, by the site's name.
        package: name of the host's package: "numpyro" or "pyro".
        why: further text, with the comma or bracket it begins with.

    Example:
        >>> error = no_data_plate([Observation("y", (100,), (), "Normal", False, False, ())], {}, "pyro")
        >>> "got none: write `with pyro.plate('data', 100):` round the site 'y'" in str(error)
        True
    """
    return NoDataPlateError(
        "the model must hold its likelihood in a plate over the data rows, got none: "
        f"{_advice(observed, latents, package)}{why}; {WHOLE_RUNS}"
    )


def _advice(observed: Sequence[Observation], latents: Latents, package: str) -> str:
    if not observed:
        return (
            "no site is observed; pass the observations to run (was an argument such as y=None left out?), or, if the "
            f"likelihood is a factor, write `with {package}.plate('data', N):` round a factor of N values, one for "
            "each row, in place of one of their sum"
        )
    names = ", ".join(repr(site.name) for site in observed[:MOST_NAMED])
    names += f" and {len(observed) - MOST_NAMED} others" if len(observed) > MOST_NAMED else ""
    if any(site.in_loop for site in observed):
        return f"{names} is observed in the steps of a scan, which rest on one another, so that it does not divide"
    shapes = [(*site.batch_shape, *site.event_shape) for site in observed]
    if () in shapes or len({site.batch_shape[:1] for site in observed}) > 1:
        sites = f"the site {names} has no rows" if len(observed) == 1 else f"the sites {names} have no rows in common"
        return f"{sites} that a plate could hold"
    sites = f"the site {observed[0].name!r}" if len(observed) == 1 else f"the sites {names}"
    first = observed[0]
    if first.batch_shape:
        rows, depth = first.batch_shape[0], max(len(site.batch_shape) for site in observed)
        dim = f", dim=-{depth}" if depth > 1 else ""
        local = [name for name, (plates, shape) in latents.items() if not plates and tuple(shape[:1]) == (rows,)]
        too = f", and round the latent {local[0]!r} too, if its entries belong to the rows" if local else ""
        return f"write `with {package}.plate('data', {rows}{dim}):` round {sites}{too}"
    if first.joined:
        rows = first.event_shape[0]
        return (
            f"write `with {package}.plate('data', {rows}):` round {sites}, and leave out `.to_event(...)`, which makes "
            "one value of all rows (or keep in it the axes after the first)"
        )
    return (
        f"{sites} is one draw of {first.distribution}, whose {' x '.join(map(str, first.event_shape))} entries rest on "
        "one another (as those of a Gaussian process do), so that it does not divide"
    )


def check_plate(value: Any) -> str | None:
    """Return ``value``, or raise unless it is None or may be the name of a plate."""
    if value is not None and not is_name(value):
        raise ValueError(f"plate must be None or the name of a plate, got {shown(value)}")
    return value


def choose_plate(
    requested: str | None, sizes: Mapping[str, int], candidates: Sequence[str], holders: Sequence[str]
) -> str:
    """Return the name of the data plate.

    Args:
        requested: the user's ``plate``, or None to take the only candidate.
        sizes: size of every plate in the model.
        candidates: the plates that hold observations.
        holders: the plates that hold observations or factors.

    Raises:
        ValueError: for an unknown name.
        NoDataPlateError: for no candidate.
        ModelNotSplittableError: for several; for a plate with neither observations nor factors.
    """
    if requested is not None:
        check_plate(requested)
        if requested not in sizes:
            raise ValueError(
                f"plate must name a plate of the model, {sorted(sizes) or 'which has none'}, got {requested!r}"
            )
        if requested not in holders:
            named = list(holders) or "of which there is none"
            raise ModelNotSplittableError(
                f"plate must name a plate that holds observations or factors, {named}, got {requested!r}, which holds "
                f"none: nothing would be divided; {WHOLE_RUNS}"
            )
        return requested
    if not candidates:
        raise NoDataPlateError("the model must hold its likelihood in a plate over the data rows, got none")
    if len(candidates) > 1:
        listed = ", ".join(f"{name!r} (size {sizes[name]})" for name in candidates)
        raise ModelNotSplittableError(
            f"plate must be given when several plates hold observations: {listed}; got plate=None; {WHOLE_RUNS}"
        )
    return candidates[0]


def latents_advice(latents: Latents, sizes: Mapping[str, int], plate: str) -> str:
    """Advice for a latent site with as many entries as there are rows that lies outside their plate.

    Args:
        latents: the plates around each latent site, and the shape of its value, by the site's name.
        sizes: sizes of the plates, by name.
        plate: name of the plate that holds the rows.

    Example:
        >>> latents_advice({"z": (["people"], (100,)), "w": ([], ())}, {"data": 100, "people": 100}, "data")[:68]
        "; latent 'z' has an entry for each row (100), but in plate 'people':"
        >>> latents_advice({"z": ([], (100,))}, {"data": 100}, "data")[:62]
        "; latent 'z' has an entry for each row (100), but in no plate:"
    """
    apart = {
        name: plates
        for name, (plates, shape) in latents.items()
        if plate not in plates and sizes[plate] in (*shape, *(sizes.get(other) for other in plates))
    }
    if not apart:
        return ""
    name, plates = next(iter(apart.items()))
    others = sorted(plates, key=lambda other: sizes.get(other) != sizes[plate])  # a plate of the same size first
    place = f"in plate {others[0]!r}" if others else "in no plate"
    return (
        f"; latent {name!r} has an entry for each row ({sizes[plate]}), but {place}: sample it in plate {plate!r}, if "
        "its entries belong to the rows and are independent given the rest, or look it up by the row's number, as in "
        f"`with plate({plate!r}, {sizes[plate]}) as i: ... {name}[i]`, with the data looked up in the same way"
    )


def neither_mode_splits(failures: Mapping[str, Exception], advice: str = "") -> ModelNotSplittableError:
    """The error for a model that no way of selecting rows divides exactly; ``advice`` comes last."""
    tried = {
        SLICE: "with the data arguments cut to a subset's rows",
        INDEX: "with the plate yielding a subset's row numbers",
        NUMBERED: "with both",
    }
    reports = "; ".join(f"{tried[mode]}: {first_line(error)}" for mode, error in failures.items())
    all_meet = all(isinstance(error, RowsMeetError) for error in failures.values())
    return (RowsMeetError if all_meet else ModelNotSplittableError)(
        f"the model does not divide over its data plate: {reports}{advice}; {WHOLE_RUNS}"
    )
