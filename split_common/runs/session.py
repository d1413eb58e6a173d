"""A run with a store, from its arguments to its end: the part that both packages share."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import numpy as np

from split_common.errors import StoreError
from split_common.runs.drive import Chains, Recording, drive, resumed
from split_common.runs.identity import check_same, check_same_density
from split_common.runs.interruption import checked_signals, interruptible
from split_common.runs.plan import Plan
from split_common.runs.reading import joined, progress_of, summary_of
from split_common.runs.stopping import StopWhen
from split_common.runs.store import DRAWN, Form, RunStore, check_names
from split_common.runs.store_path import checked_path, explained, locked, readable
from split_common.values import shown

Forms = Mapping[str, Form]


class Options(NamedTuple):
    """Arguments of ``sample`` besides those of the host.

    Attributes:
        path: path of the store.
        plan: how long the run is, and what is kept.
        stop_when: criterion that ends it early; None for none.
        signals: signals that end it early.
        load: whether the draws are loaded into memory at the end.
        called: when ``sample`` was called, in seconds of the process's clock.
    """

    path: str
    plan: Plan
    stop_when: StopWhen | None
    signals: tuple[Any, ...]
    load: bool
    called: float

    @classmethod
    def checked(cls, store: Any, plan: Plan, stop_when: Any, stop_on: Any, load: Any) -> Options:
        """The options that arguments ask for, or an error that names the argument."""
        if stop_when is not None and not isinstance(stop_when, StopWhen):
            raise TypeError(f"stop_when must be a StopWhen or None, got {shown(stop_when)}")
        if not isinstance(load, bool):
            raise TypeError(f"load must be True or False, got {shown(load)}")
        if stop_when is not None:
            stop_when.check_reachable(plan.num_chains, plan.num_draws)
        load = load and plan.keep == "draws"
        return cls(checked_path(store), plan, stop_when, checked_signals(stop_on), load, time.monotonic())

    @property
    def summarises(self) -> bool:
        """Whether summaries of the draws are needed."""
        return self.plan.keep == "summaries" or (self.stop_when is not None and self.stop_when.needs_summaries)


class Start(Protocol):
    """A run of a host at its start, its chains set up."""

    @property
    def groups(self) -> Sequence[Chains]:
        """Chains that move together."""
        ...

    @property
    def identity(self) -> Mapping[str, str]:
        """The texts that identify what the run depends on, by place."""
        ...

    @property
    def about(self) -> Mapping[str, Any]:
        """Further properties of the run, for its store."""
        ...

    @property
    def start_energies(self) -> Sequence[float]:
        """Potential energies where the chains start, or the terms of one chain's."""
        ...

    def forms(self) -> tuple[Forms, Forms]:
        """Shape and type of a draw of one chain, and of its statistics."""
        ...

    def observed(self) -> Mapping[str, np.ndarray]:
        """Observed values of the model, by site."""
        ...


@contextmanager
def opened(options: Options, start: Callable[[Mapping[str, Any] | None], Start]) -> Any:
    """Context with the store of a run, new or existing and locked, and the run at its start.

    Args:
        options: options of the run.
        start: sets the chains up, given the store's properties of the run, or None where the store is new.
    """
    with locked(options.path):
        with readable(options.path):
            store = RunStore.of(options.path)
        if store is not None:
            store.check_plan(options.plan)
        begun = start(None if store is None else store.attributes["about"])
        if store is None:
            with explained(options.path, "the beginning of the run", is_begun=False):
                store = _made(options, begun)
        else:
            check_same(store.attributes["identity"], begun.identity, options.path)
            check_same_density(store.attributes["start_energies"], begun.start_energies, options.path)
            forms = _forms(options, begun)
            with readable(options.path):
                store.go_on(options.plan, *forms)
        yield store, begun


def run(options: Options, store: RunStore, begun: Start, progress: Callable[[Chains, int], None]) -> str | None:
    """Move the chains to the end of the run; returns the reason where they were stopped before.

    Args:
        options: options of the run.
        store: store that the run is written to.
        begun: the run at its start.
        progress: called with chains that have moved, and by how much.
    """
    forms = begun.forms()[0] if options.summarises else {}
    with readable(options.path):
        recordings = resumed(store, begun.groups, forms)
    criterion = Criterion(options)
    with interruptible(options.signals) as noted:
        reason = drive(
            begun.groups, recordings, options.plan, lambda: noted() or criterion.by_time(), criterion.by_draws, progress
        )
    with explained(options.path, "the end of the run"):
        store.ended(reason)
    return reason


class Criterion:
    """Decides whether a run ends before its plan does.

    Args:
        options: options of the run.
    """

    def __init__(self, options: Options):
        self._stop_when, self._plan, self._called, self._looked = options.stop_when, options.plan, options.called, 0

    def by_time(self) -> str | None:
        """The reason to stop at once, by the clock; None where there is none."""
        return self._reason({}, 0)

    def by_draws(self, recordings: Mapping[int, Recording], position: int) -> str | None:
        """The reason to stop, by the draws of this process once all chains are level; None to go on."""
        draws = position - self._plan.num_warmup
        if not self._is_time_to_look(draws - self._plan.every, draws):
            return None
        chains = [recordings[number].summaries for number in sorted(recordings)]
        return self._reason({name: joined([chain[name] for chain in chains]) for name in chains[0]}, draws)

    def by_store(self, path: str) -> str | None:
        """The reason to stop, by what chains in other processes have written; None where there is none."""
        if self._stop_when is None or not self._stop_when.needs_summaries:
            return None
        draws = min(chain.get("draws", 0) for chain in progress_of(path).chains)
        if not self._is_time_to_look(self._looked, draws):
            return None
        try:
            summaries = summary_of(path)
        except StoreError:  # the run was begun without summaries, and has committed nothing since
            return None
        self._looked = draws
        return self._reason(summaries, draws)

    def _is_time_to_look(self, before: int, draws: int) -> bool:
        """Whether the criterion is to be computed, as the number of draws has risen from ``before`` to ``draws``."""
        return (
            self._stop_when is not None
            and self._stop_when.needs_summaries
            and draws >= self._stop_when.next_look(max(before, 0))
        )

    def _reason(self, summaries: Mapping[str, Any], draws: int) -> str | None:
        if self._stop_when is None:
            return None
        seconds = time.monotonic() - self._called
        return self._stop_when.reason(summaries, draws=draws, seconds=seconds, now=datetime.now(UTC))


def warn_of_end(reason: str | None, path: str, draws: Sequence[int], plan: Plan) -> None:
    """Say why a run has fewer draws than were asked for."""
    if reason is not None:
        warnings.warn(
            f"the run was stopped after {min(draws)} of {plan.num_draws} draws of each chain: {reason}. The same call "
            f"goes on; what there is, is in {path!r}",
            stacklevel=3,
        )


def _made(options: Options, begun: Start) -> RunStore:
    """A new store with room for all that will be drawn."""
    plan, (draws, statistics), observed = options.plan, _forms(options, begun), _observed(begun)
    check_names({name: len(form.shape) for name, form in draws.items()}, DRAWN)
    check_names({name: x.ndim for name, x in observed.items()})
    store = RunStore.begin(options.path, plan, begun.identity, begun.about, begun.start_energies)
    for phase in store.phases:
        store.make_arrays(phase, draws, statistics)
    store.put_group("observed_data", observed)
    store.made()
    return store


def _forms(options: Options, begun: Start) -> tuple[Forms, Forms]:
    """Shape and type of the kept variables of a draw of one chain, and of its statistics."""
    draws, statistics = begun.forms()
    return draws if options.plan.keep == "draws" else {}, statistics


def _observed(begun: Start) -> Mapping[str, np.ndarray]:
    """Observed values of the model; empty where it cannot be run for them."""
    try:
        return begun.observed()
    except Exception as error:  # whatever a model raises that is run in another way than in sampling
        warnings.warn(
            f"observed_data are left out of the store, as the model cannot be run to read them: {error!r}", stacklevel=2
        )
        return {}
