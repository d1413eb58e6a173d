"""Opening of a store: the draws made so far, in ArviZ's format, read from disk when they are used."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from split_common.errors import StoreError, first_line
from split_common.health import Watched, put_watched
from split_common.report import TARGET, Report, note_free_sites
from split_common.runs.chain_writer import ChainWriter
from split_common.runs.drive import SUMMARY, summaries_in
from split_common.runs.plan import Plan
from split_common.runs.store import (
    DRAWN,
    SAMPLING,
    SLOTS,
    WARMUP,
    Phase,
    RunStore,
    decoded,
    encoded,
    is_whole,
    state_in,
    whole_draws,
)
from split_common.runs.store_path import FORMAT, checked_path, open_group, zarr_module
from split_common.runs.summaries import RunningSummary
from split_common.settling import Settled, put_settled

DONE = "complete"  # attribute of a group: whether all of it has been written
LOG_LIKELIHOOD = "log_likelihood"  # name of the group whose entries each belong to a draw
OTHER_GROUPS = ("observed_data", LOG_LIKELIHOOD, "posterior_predictive", "predictions")


class Progress(NamedTuple):
    """How far a run is.

    Attributes:
        plan: planned length of the run.
        started: time when it began, in ISO 8601.
        about: properties of the run: ``kernel``; ``split``, how the model divides; ``site_sizes``, unconstrained values
            of each latent site, None without a model; and ``target``, the distribution sampled, where it is not the
            posterior.
        chains: progress of each chain: ``draws`` and ``warmup_draws``, how many there are; ``time``, when it was
            written last; ``seconds`` of sampling so far; ``settled``, the values that warm-up settled on; ``watched``,
            the divergences and E-BFMI of all iterations of a thinned run.
        stopped: why it was stopped before its end; None where it was not.
    """

    plan: Plan
    started: str
    about: dict[str, Any]
    chains: list[dict[str, Any]]
    stopped: str | None


def open_store(store: str | os.PathLike[str], *, warmup: bool = False) -> Any:
    """The draws that a store holds so far, while its run goes on or after it has ended.

    Numbers are read from disk when they are used, so a store of any size can be opened. If chains have different
    numbers of draws, the chains and draws are chosen that make the largest rectangle; the attribute ``draws_by_chain``
    of the posterior has the number of draws of each chain. Nothing that is read is executed.

    Numbers that would be wrong are left out with a warning: draws from the first missing file on; the newest draws,
    where they are not those that were written, as after a crash of the machine; and log-likelihoods that do not belong
    to the draws that are shown, as after a run was extended.

    Args:
        store: path of a store, or an address that fsspec knows.
        warmup: whether to open the draws of warm-up too, where the run keeps them.

    Returns:
        ``arviz.InferenceData`` for ArviZ 0.x, ``xarray.DataTree`` for ArviZ 1.x, as ``to_inference_data`` makes them
        from a run in memory; in a tree, whose names cannot have a slash, a slash is written ``%2F``. For a run that
        keeps summaries only, there are statistics but no draws; see :func:`summary_of`.

    Raises:
        TypeError: for a store that is not a path.
        StoreError: for a path where there is nothing, or something that is not a store; for a run that has just begun.

    Example:
        >>> open_store("nothing.zarr")
        Traceback (most recent call last):
        ...
        split_common.errors.StoreError: store must be the path of a run's store, got 'nothing.zarr', where nothing is
    """
    path = checked_path(store)
    found, group = progress_of(path), _opened(path)
    if not group.attrs["made"]:
        raise StoreError(f"store must hold draws, got {path!r}, whose run has begun and has made no arrays yet")
    groups = _phase_groups(path, found, SAMPLING, "draws")
    if warmup and found.plan.keeps_warmup:
        groups |= _phase_groups(path, found, WARMUP, "warmup_draws")
    posterior, statistics = groups[SAMPLING.draws], groups[SAMPLING.statistics]
    for name in OTHER_GROUPS:
        if name not in group or not group[name].attrs.get(DONE, True):
            continue
        if is_whole(group[name]):
            groups[name] = dataset_in(path, name)
        else:
            warnings.warn(f"store {path!r} lacks files of its {name}, which are left out", stacklevel=2)
    if LOG_LIKELIHOOD in groups and found.plan.keep == "draws" and not same_draws(groups[LOG_LIKELIHOOD], posterior):
        warnings.warn(
            f"the log-likelihoods in store {path!r} are left out: they are of {counted(groups.pop(LOG_LIKELIHOOD))}, "
            f"where the run now has {counted(posterior)}. They can be written again",
            stacklevel=2,
        )
    posterior.attrs.update({name: found.about[name] for name in ("split", TARGET) if found.about.get(name)})
    if "site_sizes" in found.about:
        note_free_sites(posterior, found.about["site_sizes"])
    posterior.attrs["draws_by_chain"] = [chain.get("draws", 0) for chain in found.chains]
    chains = [found.chains[i] for i in posterior["chain"].values]
    if columns := _columns(chains, "settled"):
        put_settled(statistics, Settled(*columns))
    if columns := _columns(chains, "watched"):
        put_watched(statistics, Watched(*columns))
    return as_inference_data(groups)


def _columns(chains: Sequence[dict[str, Any]], name: str) -> list[list[float]]:
    """Numbers of all chains, by kind; empty unless every chain has them."""
    numbers = [chain.get(name) for chain in chains]
    if not (numbers and all(numbers)):
        return []
    return [[math.nan if x is None else x for x in column] for column in zip(*numbers, strict=True)]


def summary_of(store: str | os.PathLike[str]) -> dict[str, RunningSummary]:
    """Summaries of the draws by variable, from the store of a run that keeps them.

    Args:
        store: path of a store that was written with ``keep="summaries"``, or with a criterion that needs them.

    Returns:
        For each variable, the summary of the draws of all chains.

    Raises:
        StoreError: for a store without summaries, or with those of some of its chains only.

    Example:
        >>> summary_of("nothing.zarr")
        Traceback (most recent call last):
        ...
        split_common.errors.StoreError: store must be the path of a run's store, got 'nothing.zarr', where nothing is
    """
    path = checked_path(store)
    group, found = _opened(path), progress_of(path)
    by_chain = [_summaries_of_chain(group, i) for i in range(len(found.chains))]
    if not any(by_chain):
        raise StoreError(f"store must hold summaries (keep='summaries'), got {path!r}, which holds none")
    if not all(by_chain):
        without = [i for i, chain in enumerate(by_chain) if not chain]
        raise StoreError(f"store must hold summaries of every chain, got {path!r}, which has none yet of {without}")
    return {name: joined([chain[name] for chain in by_chain]) for name in by_chain[0]}


def progress_of(store: str | os.PathLike[str]) -> Progress:
    """How far a run is.

    Args:
        store: path of a store.

    Raises:
        StoreError: for a path where there is nothing, or something that is not a store.

    Example:
        >>> progress_of("nothing.zarr")
        Traceback (most recent call last):
        ...
        split_common.errors.StoreError: store must be the path of a run's store, got 'nothing.zarr', where nothing is
    """
    group = _opened(checked_path(store))
    attributes = dict(group.attrs)
    plan = Plan(**attributes["plan"])
    chains = [_attributes_of_chain(group, i) for i in range(plan.num_chains)]
    return Progress(plan, attributes["started"], attributes["about"], chains, attributes.get("stopped"))


def report_of(store: str | os.PathLike[str]) -> Report:
    """Report on a run that keeps its draws in a store, whether it goes on or has ended.

    Args:
        store: path of the store.

    Raises:
        ValueError: where there are no draws yet, or none are kept; as :class:`~split_common.errors.StoreError` where
            there is nothing at the path, or no store.
    """
    found, opened = progress_of(store), open_store(store)
    if found.plan.keep != "draws" or not opened["posterior"].sizes["draw"]:
        raise ValueError(f"store must hold draws to be reported on, got {checked_path(store)!r}, which holds none")
    return Report.of(opened, found.about["kernel"])


def joined(chains: Sequence[RunningSummary]) -> RunningSummary:
    """Summary of the chains of several summaries."""
    arrays = [chain.arrays() for chain in chains]
    return RunningSummary.of_arrays({name: np.concatenate([x[name] for x in arrays]) for name in arrays[0]})


def as_inference_data(groups: Mapping[str, Any]) -> Any:
    """Datasets by group, in the form that the installed ArviZ has."""
    import xarray

    try:
        import arviz
    except ImportError:
        arviz = None
    if arviz is not None and arviz.__version__.startswith("0."):
        return arviz.InferenceData(**groups)
    return xarray.DataTree.from_dict({group: _without_slashes(x) for group, x in groups.items()})


def _without_slashes(dataset: Any) -> Any:
    """A dataset whose names have no slash, which a tree takes for a path."""
    return dataset.rename({name: encoded(str(name)) for name in dataset.variables if "/" in str(name)})


def largest_rectangle(lengths: Sequence[int]) -> tuple[list[int], int]:
    """The choice of chains and of one number of draws for all of them that gives the most draws.

    Example:
        >>> largest_rectangle([500, 500, 37, 0]), largest_rectangle([100, 90])
        (([0, 1], 500), ([0, 1], 90))
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    most = max(range(len(order)), key=lambda k: ((k + 1) * lengths[order[k]], k))
    num = lengths[order[most]]
    return (sorted(order[: most + 1]) if num else list(range(len(lengths)))), num


def draws_of_run(path: str) -> Any:
    """A dataset of the chains and draws that :func:`open_store` shows; None where the store keeps no run's draws.

    Args:
        path: path of the store, which exists.
    """
    import xarray

    if zarr_module().open_group(path, mode="r").attrs.get("format") != FORMAT:
        return None
    found = progress_of(path)
    if found.plan.keep != "draws":
        return None
    chains, num = _shown(path, found, SAMPLING, "draws")
    return xarray.Dataset(coords={"chain": chains, "draw": np.arange(num)})


def same_draws(one: Any, other: Any) -> bool:
    """Whether two datasets are of the same chains and draws."""
    return all(np.array_equal(one[dim], other[dim]) for dim in DRAWN)


def counted(dataset: Any) -> str:
    """The draws and chains of a dataset, in words.

    Example:
        >>> import xarray
        >>> counted(xarray.Dataset(coords={"chain": [0, 2], "draw": range(500)}))
        'draws 0 to 499 (500) of chains [0, 2]'
    """
    chains, draws = (dataset[dim].values.tolist() for dim in DRAWN)
    return f"draws {draws[0]} to {draws[-1]} ({len(draws)}) of chains {chains}" if draws else "no draws"


def _opened(path: str) -> Any:
    group = open_group(path)
    if group is None:
        raise StoreError(f"store must be the path of a run's store, got {path!r}, where nothing is")
    return group


def _attributes_of_chain(group: Any, chain: int) -> dict[str, Any]:
    """Progress of a chain; empty where it has not been written, or cannot be read."""
    try:
        return dict(group[f"chains/{chain}"].attrs)
    except KeyError:
        return {}
    except ValueError as error:
        warnings.warn(
            f"a store must say how far each chain is, got chains/{chain}/zarr.json that cannot be read "
            f"({first_line(error)}): the chain is left out",
            stacklevel=4,
        )
        return {}


def _shown(path: str, found: Progress, phase: Phase, count: str) -> tuple[list[int], int]:
    """Chains that are shown, and the number of draws of each: the largest rectangle of draws that are there."""
    said, group = [chain.get(count, 0) for chain in found.chains], _opened(path)
    whole = whole_draws(group, phase, said)
    if whole != said:
        warnings.warn(
            f"store {path!r} lacks files of its draws, of which the chains have {said}: those after the first that is "
            f"missing are left out, which leaves {whole}. The call that made the store draws them again",
            stacklevel=4,
        )
    store, chunk = RunStore(path, group, found.plan), found.plan.chunk
    ends = [ChainWriter(store, chain).ends_as_written(phase, num) for chain, num in enumerate(whole)]
    if not all(ends):
        whole = [num if ends[chain] else (num - 1) // chunk * chunk for chain, num in enumerate(whole)]
        warnings.warn(
            f"store {path!r} is damaged: the newest of its draws are not those that were written, as after a crash of "
            f"the machine. They are left out, which leaves {whole}. The call that made the store draws them again",
            stacklevel=4,
        )
    return largest_rectangle(whole)


def _phase_groups(path: str, found: Progress, phase: Phase, count: str) -> dict[str, Any]:
    """Draws and statistics of a phase, cut to the chains and draws that are shown."""
    chains, num = _shown(path, found, phase, count)
    part = {"chain": chains, "draw": slice(num)}
    return {name: dataset_in(path, name).isel(part, missing_dims="ignore") for name in (phase.draws, phase.statistics)}


def dataset_in(path: str, group: str) -> Any:
    """A group of a store, whose numbers are read when they are used.

    Args:
        path: path of the store.
        group: name of the group.
    """
    import xarray

    found = xarray.open_zarr(path, group=group, consolidated=False, chunks=None)
    return found.rename({name: decoded(str(name)) for name in found.variables if decoded(str(name)) != name})


def _summaries_of_chain(group: Any, chain: int) -> dict[str, RunningSummary]:
    """Summaries in the newest whole state of a chain."""
    states = [state_in(group, chain, slot) for slot in SLOTS]
    whole = [packed for packed in states if packed is not None]
    if not whole:
        return {}
    newest = max(whole, key=lambda packed: sum(packed.values["counts"]))
    names = {key.split("/", 2)[2] for key in newest.arrays if key.startswith(f"{SUMMARY}/")}
    return summaries_in(newest, sorted(names))
