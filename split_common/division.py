"""Finding a model's division, the part that names no framework: ways are tried, and rows proved independent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from split_common.errors import ModelNotSplittableError, NumberMeetsError, RowsMeetError, SourceError, first_line
from split_common.plates import Latents, Observation, divisible_without_plate, no_data_plate
from split_common.row_independence import NOT_PROVED, PROVED, Verdict
from split_common.selection import NUMBERED, SLICE
from split_common.sources.rules import SourceRuleError
from split_common.start import NoFiniteStartError

NOT_DIVIDED = Verdict(PROVED, "nothing is divided, a gradient takes all rows at once (num_subsets=1)")


class Division(Protocol):
    """One way of dividing a model."""

    mode: str
    verdict: Verdict


Way = TypeVar("Way", bound=Division)


def first_that_divides(
    ways: Iterable[Way], prepare: Callable[[Way], None], check: Callable[[Way], None]
) -> tuple[Way | None, dict[str, Exception]]:
    """The first way that is proved, or else the first that passes the check; and the errors of the others.

    The way "numbered" is tried only where "slice" fails because of row numbers, and taken only where it is proved.

    Args:
        ways: in the order in which they are tried.
        prepare: examines the model, and gives a way its verdict.
        check: compares numbers; raises where they differ.

    Raises:
        NoFiniteStartError: for a log-density that is nowhere finite.
        SourceError: for rows that cannot be read.
        SourceRuleError: for a model that depends on rows which it is not given.
    """
    failures: dict[str, Exception] = {}
    unproved: list[Way] = []
    for way in ways:
        if way.mode == NUMBERED and not isinstance(failures.get(SLICE), NumberMeetsError):
            continue
        try:
            prepare(way)
            if way.verdict.kind == PROVED:
                check(way)
                return way, failures
            if way.mode == NUMBERED:
                raise ModelNotSplittableError(f"that rows are independent must be proved, got {way.verdict}")
        except (NoFiniteStartError, SourceError, SourceRuleError):
            raise
        except Exception as error:  # whatever a model raises on fewer rows
            failures[way.mode] = error
        else:
            unproved.append(way)
    for way in unproved:
        try:
            check(way)
        except Exception as error:  # whatever a model raises on fewer rows
            failures[way.mode] = _with_verdict(error, way.verdict)
        else:
            return way, failures
    return None, failures


def _with_verdict(error: Exception, verdict: Verdict) -> Exception:
    """The error of a check of numbers, with the verdict that says why there is no proof."""
    return (
        ModelNotSplittableError(f"{first_line(error)} ({verdict})") if type(error) is ModelNotSplittableError else error
    )


def divided_without_plate(
    observed: Sequence[Observation],
    latents: Latents,
    package: str,
    has_rows: Callable[[int], bool],
    divide: Callable[[str], Way],
) -> Way:
    """The division of a model with one observed site, in no plate, if its rows are proved independent.

    Args:
        observed: the observed sites.
        latents: the plates around each latent site, and the shape of its value, by the site's name.
        package: name of the host, for messages.
        has_rows: whether an argument holds so many rows.
        divide: divides the model as if the site of a name stood in a plate.

    Raises:
        ModelNotSplittableError: with the edit that would help, where there is no such site or no proof.
    """
    site = divisible_without_plate(observed)
    if site is None:
        raise no_data_plate(observed, latents, package)
    [num_rows] = site.batch_shape
    if not has_rows(num_rows):
        raise no_data_plate(
            observed, latents, package, f", and give the rows as arguments, none of which has {num_rows}"
        )
    try:
        found = divide(site.name)
    except RowsMeetError:
        raise
    except ModelNotSplittableError as error:
        raise no_data_plate(observed, latents, package, f" (without one, {first_line(error)})") from error
    if found.verdict.kind != PROVED:
        raise no_data_plate(
            observed, latents, package, f" (without one, that its rows are independent is {found.verdict})"
        )
    return found


def proved_in_all(sizes: Collection[int], prove: Callable[[int], Any]) -> tuple[Verdict, dict[Any, Any], int]:
    """Whether rows are independent of one another for all these numbers of rows; the first verdict that is no proof.

    Args:
        sizes: numbers of rows.
        prove: from a number of rows to the ``Proof`` for the model's operations on so many.

    Returns:
        The verdict; where it is a proof, the shared values by their place, and the number of operations.
    """
    held: dict[Any, Any] = {}
    num_steps = 0
    for size in sorted(sizes):
        try:
            proof = prove(size)
        except Exception as error:  # whatever a model raises on fewer rows; numbers are compared then
            return Verdict(NOT_PROVED, first_line(error)), {}, 0
        if proof.verdict.kind != PROVED:
            return proof.verdict, {}, 0
        held |= proof.held
        num_steps = proof.num_steps
    return Verdict(PROVED) if sizes else NOT_DIVIDED, held, num_steps
