"""Rules for models whose rows are read subset by subset, and errors that name the rule.

Where rows are not in memory, the split cannot be compared with the model on all rows, so it must be proved; and
whatever depends on all rows at once must be computed outside the model and passed as an argument.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from split_common.errors import ModelNotSplittableError
from split_common.row_independence import PROVED, Verdict
from split_common.sources.rows import Source, wants_sequential
from split_common.sources.survey import LARGEST_F
from split_common.subsets import SubsetLayout


class SourceRuleError(ModelNotSplittableError):
    """A model needs all rows at once, but they are read subset by subset."""


def check_axes(sources: Mapping[str, Source], axes: Mapping[str, int | None], num_rows: int) -> None:
    """Raise unless each source holds the rows of the data plate, along axis 0.

    Args:
        sources: sources by the argument's name.
        axes: axis of the rows in each argument, by name.
        num_rows: N.
    """
    for name, source in sources.items():
        if axes.get(name) != 0:
            raise SourceRuleError(
                f"an argument that is read from a source must hold the {num_rows} rows of the data plate along axis 0, "
                f"got {name!r} of shape {source.shape} (from {source.where}); pass an array, as np.asarray makes it"
            )


def check_local(sources: Mapping[str, Source], local_sites: Sequence[str]) -> None:
    """Raise for latent sites with an entry for each row."""
    if sources and local_sites:
        raise _must(sources, f"no latent site may have an entry for each row, got {list(local_sites)}")


def check_proved_over_sources(sources: Mapping[str, Source], verdict: Verdict) -> None:
    """Raise unless a model's rows are proved independent, without shared values."""
    if sources and verdict.held:
        raise _must(
            sources,
            f"the model must make nothing of all rows at once, got {verdict.held[0]}; compute it once outside, and "
            "pass it as an argument",
        )
    if sources and verdict.kind != PROVED:
        raise _must(sources, f"that rows are independent of one another must be proved, got {verdict}")


def check_outside(sources: Mapping[str, Source], resting: Sequence[str]) -> None:
    """Raise where something outside the likelihood depends on the rows.

    Args:
        sources: sources by the argument's name.
        resting: values that depend on the rows, in words.
    """
    if resting:
        raise _must(
            sources,
            f"nothing but the likelihood may rest on them, got {', '.join(resting)}; leave it out of the model, and "
            "compute it outside",
        )


def check_size_from_arguments(sources: Mapping[str, Source], takes_size: bool) -> None:
    """Raise where a model fixes the number of rows, so that it cannot be run on a sample of them."""
    if sources and not takes_size:
        raise _must(sources, "the plate must take its size from an argument, as X.shape[0], got one of a fixed size")


def check_order(sources: Mapping[str, Source], layout: SubsetLayout) -> None:
    """Raise for an order that would read rows one by one, and warn where rows are sorted, so that subsets differ.

    Warns:
        UserWarning: naming the source.
    """
    wants_sequential(layout.subset_order, [source.where for source in sources.values()])
    if layout.num_subsets == 1:
        return
    for name, source in sources.items():
        if source.survey.f > LARGEST_F:
            warnings.warn(
                f"the rows of {name!r} ({source.where}) are sorted or drift, so the {layout.num_subsets} subsets "
                f"differ and acceptance suffers (means of a column over stretches of rows vary {source.survey.f:.0f} "
                "times as much as in a drawn order); write the rows in a drawn order once, by shuffle_rows",
                stacklevel=2,
            )


def _must(sources: Mapping[str, Any], rule: str) -> SourceRuleError:
    names = ", ".join(map(repr, sources))
    return SourceRuleError(f"rows of {names} are read from a source, subset by subset, so {rule}")
