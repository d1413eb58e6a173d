"""A run on disk: draws and statistics in ArviZ's layout, and the state of every chain, in a zarr store.

Groups ``posterior`` and ``sample_stats`` (of warm-up ``warmup_posterior`` and ``warmup_sample_stats``) have an array for
each variable, of shape (chain, draw, ...), made for the whole run at its beginning. Group ``chains/<number>`` has what a
chain goes on from.

A commit is made in this order: the draws since the last one; a digest of what they fill; the chain's packed state
(:mod:`split_common.runs.packed`), in the older of two places; and at last the number of draws, in an attribute, for
those who look in. A state says how many draws belong to it, with a digest of those that do not fill a chunk yet. So
whenever a process dies, the newest state that is whole, and whose draws are, is where the run goes on; draws after it
are written again, the same. The state at the end of warm-up is kept besides. Where draws in the middle are damaged, the
run goes on from the newest state before them, from its beginning at worst, and comes to the same draws.

zarr writes each of its files whole or not at all. On local paths a lock beside the store, which the system releases
when a process dies, keeps others from writing to it.
"""

from __future__ import annotations

import datetime
import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import numpy as np

from split_common.digest import Digest
from split_common.errors import StoreError
from split_common.runs.packed import Packed
from split_common.runs.plan import Plan

FORMAT = 1
SLOTS = ("state_0", "state_1")
AFTER_WARMUP = "state_after_warmup"
WORDS = 4  # of 32 bits, in a digest

Variables = Mapping[str, np.ndarray]


class Phase(NamedTuple):
    """Part of a run whose draws are kept together.

    Attributes:
        draws: group of the draws.
        statistics: group of the statistics.
        checksums: name of the array of digests, a chunk each.
    """

    draws: str
    statistics: str
    checksums: str


WARMUP = Phase("warmup_posterior", "warmup_sample_stats", "warmup_checksums")
SAMPLING = Phase("posterior", "sample_stats", "checksums")


class Form(NamedTuple):
    """Shape and type of one draw of a variable."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class RunStore:
    """A store of a run that this process writes to.

    Args:
        path: a local path, or an address that fsspec knows.
        group: the zarr group that it is.
        plan: how long the run is.
    """

    def __init__(self, path: str, group: Any, plan: Plan):
        self.path, self.plan = path, plan
        self._group = group

    @classmethod
    def begin(cls, path: str, plan: Plan, identity: Mapping[str, str], about: Mapping[str, Any]) -> RunStore:
        """A new store.

        Args:
            path: where there is none yet.
            plan: how long the run is.
            identity: what the store belongs to, as texts.
            about: what else is to be known of the run: its kernel, how the model divides.
        """
        group = _zarr().open_group(path, mode="w", zarr_format=3)
        started = now()
        group.attrs.update(
            format=FORMAT, plan=plan._asdict(), identity=dict(identity), started=started, about=dict(about), made=False
        )
        return cls(path, group, plan)

    @classmethod
    def of(cls, path: str, plan: Plan) -> RunStore | None:
        """The store that there is at a path; None where there is none.

        Raises:
            StoreError: for a path of something else, and for a plan that is not this store's, or shorter.
        """
        group = open_group(path, mode="r+")
        if group is None or not group.attrs.get("made"):  # of a process that died before it had drawn anything
            return None
        store = cls(path, group, Plan(**group.attrs["plan"]))
        store._lengthen(plan)
        return store

    @property
    def attributes(self) -> dict[str, Any]:
        """What the store says of the run."""
        return dict(self._group.attrs)

    def made(self) -> None:
        """Take note that all arrays are there."""
        self._group.attrs.update(made=True)

    def ended(self, reason: str | None) -> None:
        """Take note of why the run was stopped; None where it has come to its end."""
        self._group.attrs.update(stopped=reason)

    def make_arrays(self, phase: Phase, draws: Mapping[str, Form], statistics: Mapping[str, Form]) -> None:
        """Arrays for a phase, of the length that it will have."""
        num = self.plan.num_warmup if phase is WARMUP else self.plan.num_draws
        for name, forms in ((phase.draws, draws), (phase.statistics, statistics)):
            group = self._group.require_group(name)
            _coordinate(group, "chain", self.plan.num_chains)
            _coordinate(group, "draw", num)
            for variable, form in forms.items():
                _array(group, variable, form, (self.plan.num_chains, num), self.plan.chunk)
        for chain in range(self.plan.num_chains):
            self.chain(chain).require_array(
                phase.checksums, shape=(-(-num // self.plan.chunk), WORDS), chunks=(256, WORDS), dtype="uint32"
            )

    def chain(self, chain: int) -> Any:
        """Group of one chain."""
        return self._group.require_group(f"chains/{chain}")

    def write(self, phase: Phase, chain: int, start: int, variables: Mapping[str, Variables]) -> None:
        """Write draws of a chain from ``start`` on: by group, then by variable, shape (n, ...)."""
        for group, arrays in variables.items():
            for name, x in arrays.items():
                self._group[f"{group}/{encoded(name)}"][chain, start : start + len(x)] = x

    def read(self, phase: Phase, chain: int, start: int, stop: int) -> dict[str, dict[str, np.ndarray]]:
        """Draws of a chain, by group, then by variable."""
        found: dict[str, dict[str, np.ndarray]] = {}
        for name in (phase.draws, phase.statistics):
            arrays = self._variables(name)
            found[name] = {decoded(key): np.asarray(x[chain, start:stop]) for key, x in arrays.items()}
        return found

    def whole_chunks(self, phase: Phase, chain: int, num: int) -> int:
        """How many of a chain's first ``num`` chunks are whole, one after the other."""
        sums = np.asarray(self.chain(chain)[phase.checksums][:num])
        for k in range(num):
            try:
                content = self.read(phase, chain, k * self.plan.chunk, (k + 1) * self.plan.chunk)
            except Exception:  # whatever zarr and its codecs raise of damaged files
                return k
            if not np.array_equal(digest_of(content), sums[k]):
                return k
        return num

    def put_state(self, chain: int, name: str, packed: Packed) -> None:
        """Write a chain's state to a place."""
        content = np.frombuffer(packed.to_bytes(), np.uint8)
        self.chain(chain).create_array(
            name, data=content, chunks=content.shape, compressors=None, overwrite=True, config={"write_empty_chunks": True}
        )

    def get_state(self, chain: int, name: str) -> Packed | None:
        """The state at a place; None where there is none, or none that is whole."""
        try:
            return Packed.of_bytes(np.asarray(self.chain(chain)[name][:]).tobytes())
        except Exception:  # whatever zarr raises of what is damaged or missing
            return None

    def put_checksum(self, phase: Phase, chain: int, chunk: int, digest: np.ndarray) -> None:
        """Write the digest of a chunk that is full."""
        self.chain(chain)[phase.checksums][chunk] = digest

    def note(self, chain: int, **progress: Any) -> None:
        """Tell those who look in how far a chain is."""
        self.chain(chain).attrs.update(progress)

    def _variables(self, name: str) -> dict[str, Any]:
        """Arrays of a group that hold draws."""
        return {key: x for key, x in self._group[name].arrays() if x.metadata.dimension_names[:2] == ("chain", "draw")}

    def _lengthen(self, plan: Plan) -> None:
        """Make room for more draws, where a plan asks for more."""
        _check_plan(self.path, self.plan, plan)
        if plan.num_draws == self.plan.num_draws:
            return
        for name in (SAMPLING.draws, SAMPLING.statistics):
            for x in self._variables(name).values():
                x.resize((x.shape[0], plan.num_draws, *x.shape[2:]))
            _coordinate(self._group[name], "draw", plan.num_draws)
        for chain in range(plan.num_chains):
            self.chain(chain)[SAMPLING.checksums].resize((-(-plan.num_draws // plan.chunk), WORDS))
        self._group.attrs.update(plan=plan._asdict())
        self.plan = plan


def _check_plan(path: str, stored: Plan, plan: Plan) -> None:
    """Raise unless a plan is that of a store, or a longer one."""
    for name in ("num_chains", "num_warmup", "every", "keep", "keeps_warmup"):
        if getattr(stored, name) != getattr(plan, name):
            raise StoreError(
                f"store must be of a run with the same {name} to go on from, got {path!r} with "
                f"{getattr(stored, name)!r}, and {getattr(plan, name)!r} now"
            )
    if plan.num_draws < stored.num_draws:
        raise StoreError(
            f"store must be of a run of at most {plan.num_draws} draws a chain to go on from, got {path!r} of a run of "
            f"{stored.num_draws}; ask for as many, or for more"
        )


def digest_of(content: Mapping[str, Variables]) -> np.ndarray:
    """Digest of draws and statistics, shape (4,), uint32."""
    digest = Digest()
    for group, arrays in content.items():
        for name in sorted(arrays):
            digest.add(group, name).add_array(arrays[name])
    return digest.words


def open_group(path: str, mode: str = "r") -> Any:
    """The zarr group of a run's store; None where there is nothing at a path.

    Raises:
        StoreError: for something that is no store of a run.
        PermissionError: for a path that may not be read.
    """
    if is_local(path) and _is_nothing(path):
        return None
    try:
        group = _zarr().open_group(path, mode=mode)
        is_ours = group.attrs.get("format") == FORMAT
    except FileNotFoundError:
        if not is_local(path):
            return None
        is_ours = False
    except (ValueError, TypeError, KeyError, json.JSONDecodeError, NotADirectoryError) as error:
        raise StoreError(f"store must be the path of a run's store, or of nothing, got {path!r}: {error}") from error
    if not is_ours:
        raise StoreError(f"store must be the path of a run's store, or of nothing, got {path!r}, which is neither")
    return group


def is_local(path: str) -> bool:
    """Whether a path is one of this machine's files."""
    return "://" not in path


def checked_path(store: Any) -> str:
    """A path as a text, or raise."""
    if not isinstance(store, str | os.PathLike) or not str(store):
        raise TypeError(f"store must be a path, got {store!r}")
    path = os.fspath(store)
    if not isinstance(path, str):
        raise TypeError(f"store must be a path in text, got {store!r}")
    return path


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold a store against other processes, on local paths.

    Raises:
        StoreError: where another process holds it.
        PermissionError: where nothing can be written beside the store.
    """
    if not is_local(path):
        yield
        return
    from filelock import FileLock, Timeout

    place = Path(path).absolute()
    place.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(place.parent / f".{place.name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise StoreError(f"store must not be in use, got {path!r}, which another process writes to") from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def explained(path: str, what: str) -> Iterator[None]:
    """Say, of an error of the file system, what was being written, and that the rest is safe."""
    try:
        yield
    except OSError as error:
        full = "; free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        text = f"{error.strerror or error}: {what} could not be written to store {path!r}{full}. What was committed "
        raise type(error)(error.errno, text + "before is whole, and the same call goes on from there") from error


def encoded(name: str) -> str:
    """Name of a variable's array: a slash would make a group of it."""
    return quote(name, safe="".join(chr(i) for i in range(32, 127) if chr(i) not in "/%"))


def decoded(name: str) -> str:
    """Name of an array's variable."""
    return unquote(name)


def now() -> str:
    """The time, with its zone."""
    return datetime.datetime.now(datetime.UTC).isoformat()


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise ImportError("a store needs zarr: pip install 'split-mcmc[store]'") from error
    return zarr


def _is_nothing(path: str) -> bool:
    """Whether there is nothing at a path, or an empty folder."""
    place = Path(path)
    return not place.exists() or (place.is_dir() and not any(place.iterdir()))


def _coordinate(group: Any, name: str, num: int) -> None:
    group.create_array(name, data=np.arange(num), chunks=(max(num, 1),), dimension_names=[name], overwrite=True)


def _array(group: Any, variable: str, form: Form, lengths: Iterable[int], chunk: int) -> None:
    """An array for all draws of a variable, empty on disk."""
    dims = [f"{variable}_dim_{k}" for k in range(len(form.shape))]
    shape = (*lengths, *form.shape)
    missing = np.nan if form.dtype.kind == "f" else form.dtype.type(0)
    group.create_array(
        encoded(variable),
        shape=shape,
        dtype=form.dtype,
        chunks=(1, chunk, *(max(n, 1) for n in form.shape)),
        fill_value=missing,
        dimension_names=["chain", "draw", *dims],
        overwrite=True,
    )
    for dim, n in zip(dims, form.shape, strict=True):
        _coordinate(group, encoded(dim), n)
