"""A run on disk: draws and statistics in ArviZ's layout, and the state of every chain, in a zarr store.

Groups ``posterior`` and ``sample_stats`` (of warm-up ``warmup_posterior`` and ``warmup_sample_stats``) have an array
for each variable, of shape (chain, draw, ...), made for the whole run at its beginning. Group ``chains/<number>`` has
what a chain goes on from.

A commit is made in this order: the chunks of draws that have changed; the chain's packed state
(:mod:`split_common.runs.packed`), in the older of two places; and at last the number of draws, in an attribute, for
those who watch the run. A state says how many draws belong to it, and has a digest of each of their chunks. So whenever
a process dies, the run goes on from the newest state that is whole and whose draws are whole; draws after it are
written again, the same. The state at the end of warm-up is kept besides. Where draws in the middle are damaged, the run
goes on from the newest state before them, from its beginning at worst, and comes to the same draws.

Only whole chunks are written, the last one filled up: damaged content where draws are to be written is never read.

zarr writes each of its files whole or not at all, since its version 3.1.3. One process at a time writes to a store
(:func:`split_common.runs.store_path.locked`).
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import numpy as np

from split_common.digest import Digest
from split_common.errors import StoreError, first_line
from split_common.runs.packed import Packed
from split_common.runs.plan import Plan
from split_common.runs.store_path import FORMAT, open_group, zarr_module

SLOTS = ("state_0", "state_1")
AFTER_WARMUP = "state_after_warmup"
NO_NAMES = ("", ".", "..", "zarr.json")  # names that no array in a group may have: files and folders have them
LENGTH_BYTES = 8  # bytes before a state that hold its length
ALL_WRITTEN = "all_files_written"  # attribute of a group whose arrays have a file for each chunk
DRAWN = ("chain", "draw")  # dimensions that every array of draws has first
SLACK = 1.25  # factor of room for states that grow

Variables = Mapping[str, np.ndarray]


class Phase(NamedTuple):
    """Part of a run whose draws are kept together.

    Attributes:
        draws: group of the draws.
        statistics: group of the statistics.
    """

    draws: str
    statistics: str


WARMUP = Phase("warmup_posterior", "warmup_sample_stats")
SAMPLING = Phase("posterior", "sample_stats")


class Form(NamedTuple):
    """Shape and type of one draw of a variable."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class RunStore:
    """A store of a run that this process writes to.

    Args:
        path: a local path, or an address that fsspec knows.
        group: its zarr group.
        plan: how long the run is.
    """

    def __init__(self, path: str, group: Any, plan: Plan):
        self.path, self.plan = path, plan
        self._group = group
        self._arrays: dict[str, Any] = {}

    @classmethod
    def begin(
        cls,
        path: str,
        plan: Plan,
        identity: Mapping[str, str],
        about: Mapping[str, Any],
        start_energies: Iterable[float],
    ) -> RunStore:
        """A new store.

        Args:
            path: path at which there is no store yet.
            plan: how long the run is.
            identity: texts that identify the run (:mod:`split_common.runs.identity`).
            about: further properties of the run: its kernel, how the model divides, what it samples.
            start_energies: potential energies where the chains start.
        """
        attributes = {
            "format": FORMAT,
            "plan": plan._asdict(),
            "identity": dict(identity),
            "start_energies": list(start_energies),
            "about": dict(about),
            "started": now(),
            "made": False,
        }
        # one write, so that a process which dies leaves a store, or what counts as nothing
        group = zarr_module().open_group(path, mode="w", zarr_format=3, attributes=attributes)
        return cls(path, group, plan)

    @classmethod
    def of(cls, path: str) -> RunStore | None:
        """The store at a path, which is not changed; None where there is none.

        Raises:
            StoreError: for a path of something else.
        """
        group = open_group(path, mode="r+")
        if group is None or not group.attrs.get("made"):  # a process died before it had drawn anything
            return None
        return cls(path, group, Plan(**group.attrs["plan"]))

    def check_plan(self, plan: Plan) -> None:
        """Raise unless a plan is this store's, or a longer one."""
        _check_plan(self.path, self.plan, plan)

    def go_on(self, plan: Plan, draws: Iterable[str], statistics: Iterable[str]) -> None:
        """Prepare the store for writing, with room for all draws of a plan.

        Args:
            plan: the store's plan, or a longer one.
            draws: names of the variables that the store was made with.
            statistics: names of its statistics.

        Raises:
            KeyError: for a name that has no array.
        """
        for phase in self.phases:
            for group, names in ((phase.draws, draws), (phase.statistics, statistics)):
                for name in names:
                    self._group[f"{group}/{encoded(name)}"]
        self._lengthen(plan)
        for phase in self.phases:
            for name in phase:
                self._number(name)
        self.ended(None)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Phases of the run whose draws or statistics are kept."""
        return (WARMUP, SAMPLING) if self.plan.keeps_warmup else (SAMPLING,)

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the store, which describe the run."""
        return dict(self._group.attrs)

    def made(self) -> None:
        """Note in the store that all arrays are there; makes a group for each chain."""
        for chain in range(self.plan.num_chains):
            self.chain(chain)
        self._group.update_attributes({"made": True})

    def ended(self, reason: str | None) -> None:
        """Note in the store why the run was stopped; None where it was not."""
        self._group.update_attributes({"stopped": reason})

    def make_arrays(self, phase: Phase, draws: Mapping[str, Form], statistics: Mapping[str, Form]) -> None:
        """Make the arrays of a phase, of the length that it will have."""
        num = self.plan.num_warmup if phase is WARMUP else self.plan.num_draws
        for name, forms in ((phase.draws, draws), (phase.statistics, statistics)):
            group = self._group.require_group(name)
            for variable, form in forms.items():
                _array(group, variable, form, (self.plan.num_chains, num), self.plan.chunk)
            self._number(name)

    def put_group(self, name: str, variables: Variables) -> None:
        """Write a group of arrays that are known as a whole, such as the observed data."""
        group = self._group.require_group(name)
        written = {"write_empty_chunks": True}  # so that a file which is not there is one that was lost
        for variable, x in variables.items():
            dims = _dimensions(variable, x.ndim)
            group.create_array(encoded(variable), data=x, dimension_names=dims, overwrite=True, config=written)
            for dim, n in zip(dims, x.shape, strict=True):
                write_coordinate(group, encoded(dim), n)
        group.attrs[ALL_WRITTEN] = True

    def chain(self, chain: int) -> Any:
        """Group of one chain, looked up once."""
        path = f"chains/{chain}"
        if path not in self._arrays:
            self._check_readable(path)
            self._arrays[path] = self._group.require_group(path)
        return self._arrays[path]

    def write(self, chain: int, chunk: int, content: Mapping[str, Variables]) -> None:
        """Write a chain's chunk of draws, full or not: arrays by group, then by variable, shape (n, ...)."""
        length, chunks = self.plan.chunk, []
        for group, arrays in content.items():
            for name, x in arrays.items():
                array = self._array(f"{group}/{encoded(name)}")
                padded = np.full((length, *x.shape[1:]), array.fill_value, array.dtype)
                padded[: len(x)] = x
                chunks.append((array, (chain, chunk, *(0 for _ in x.shape[1:])), padded))
        put_chunks(chunks)

    def read(self, phase: Phase, chain: int, start: int, stop: int) -> dict[str, dict[str, np.ndarray]]:
        """Draws of a chain, by group, then by variable."""
        return {
            name: {decoded(key): np.asarray(x[chain, start:stop]) for key, x in self._variables(name).items()}
            for name in (phase.draws, phase.statistics)
        }

    def put_state(self, chain: int, name: str, packed: Packed) -> None:
        """Write a chain's state to a place."""
        content = packed.to_bytes()
        content = np.frombuffer(len(content).to_bytes(LENGTH_BYTES, "little") + content, np.uint8)
        path = f"chains/{chain}/{name}"
        array = self._arrays.get(path)
        if array is None or array.shape[0] < len(content):
            size = int(SLACK * len(content))
            array = self.chain(chain).create_array(
                name,
                shape=(size,),
                chunks=(size,),
                dtype="uint8",
                compressors=None,
                dimension_names=[f"{name}_byte"],
                overwrite=True,
            )
            self._arrays[path] = array
        put_chunks([(array, (0,), np.pad(content, (0, array.shape[0] - len(content))))])

    def get_state(self, chain: int, name: str) -> Packed | None:
        """The state at a place; None where there is none, or none that is whole."""
        return state_in(self._group, chain, name)

    def noted(self, chain: int) -> dict[str, Any] | None:
        """The progress of a chain for those who watch the run; None where its group is gone."""
        path = f"chains/{chain}"
        self._check_readable(path)
        return dict(self.chain(chain).attrs) if path in self._group else None

    def note(self, chain: int, **progress: Any) -> None:
        """Update the progress of a chain for those who watch the run."""
        self.chain(chain).update_attributes(progress)

    def _check_readable(self, path: str) -> None:
        """Raise for a chain's group whose description, without which the run can go on, is damaged."""
        try:
            _ = path in self._group
        except Exception as error:  # whatever zarr raises of JSON that is cut off or is something else
            raise StoreError(
                f"store {self.path!r} is damaged where it says what its arrays are: {path}/zarr.json cannot be read "
                f"({first_line(error)}). It says only how far the chain is: delete this file, and the same call goes on"
            ) from error

    def _number(self, name: str) -> None:
        """Write the coordinates of a group: numbers from 0 along every dimension."""
        group = self._group[name]
        lengths = {"chain": self.plan.num_chains}
        for x in self._variables(name).values():
            lengths |= dict(zip(x.metadata.dimension_names, x.shape, strict=True))
        for dimension, num in lengths.items():
            write_coordinate(group, encoded(dimension), num)

    def _array(self, path: str) -> Any:
        """An array, looked up once."""
        if path not in self._arrays:
            self._arrays[path] = self._group[path]
        return self._arrays[path]

    def _variables(self, name: str) -> dict[str, Any]:
        """Arrays of a group that hold draws."""
        return {key: x for key, x in self._group[name].arrays() if x.metadata.dimension_names[:2] == DRAWN}

    def _lengthen(self, plan: Plan) -> None:
        """Make room for the draws of a plan, also where a process died that made room for those of another."""
        for name in (SAMPLING.draws, SAMPLING.statistics):
            for x in self._variables(name).values():
                if x.shape[1] != plan.num_draws:
                    x.resize((x.shape[0], plan.num_draws, *x.shape[2:]))
        if plan != self.plan:
            self._group.update_attributes({"plan": plan._asdict()})
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


def state_in(group: Any, chain: int, name: str) -> Packed | None:
    """The state of a chain at a place; None where there is none, or none that is whole.

    Args:
        group: group of the store.
        chain: number of the chain.
        name: name of the place.
    """
    try:
        content = np.asarray(group[f"chains/{chain}/{name}"][:]).tobytes()
        length = int.from_bytes(content[:LENGTH_BYTES], "little")
        return Packed.of_bytes(content[LENGTH_BYTES : LENGTH_BYTES + length])
    except Exception:  # whatever zarr raises of what is damaged or missing
        return None


def whole_draws(group: Any, phase: Phase, lengths: Sequence[int]) -> list[int]:
    """Number of draws of each chain that lie before its first missing file, of draws or of statistics.

    Args:
        group: group of the store.
        phase: phase of the run.
        lengths: number of draws of each chain, as its progress says.
    """
    whole = list(lengths)
    for name in phase:
        for _, array in group[name].arrays():
            if array.metadata.dimension_names[:2] != DRAWN:
                continue
            chunk, files, inner = array.chunks[1], _files_of(array), (0,) * (array.ndim - 2)
            for chain, num in enumerate(whole):
                keys = (array.metadata.encode_chunk_key((chain, k, *inner)) for k in range(-(-num // chunk)))
                lost = next((k for k, key in enumerate(keys) if key not in files), None)
                whole[chain] = num if lost is None else lost * chunk
    return whole


def is_whole(group: Any) -> bool:
    """Whether all files of a group that was written at once are there; True where that cannot be told."""
    if not group.attrs.get(ALL_WRITTEN, False):
        return True
    variables = [x for name, x in group.arrays() if x.metadata.dimension_names != (name,)]  # coordinates left out
    return all(x.nchunks <= len(_files_of(x) - {"zarr.json"}) for x in variables)


def _files_of(array: Any) -> set[str]:
    """Names of the files of an array's chunks."""
    from zarr.core.sync import sync

    prefix = f"{array.path}/"

    async def names() -> set[str]:
        return {key.removeprefix(prefix) async for key in array.store.list_prefix(prefix)}

    return sync(names())


def digest_of(content: Mapping[str, Variables]) -> np.ndarray:
    """Digest of draws and statistics, shape (4,), uint32."""
    digest = Digest()
    for group, arrays in content.items():
        for name in sorted(arrays):
            digest.add(group, name).add_array(arrays[name])
    return digest.words


def check_names(num_axes: Mapping[str, int], leading: Sequence[str] = ()) -> None:
    """Raise for a site whose array cannot have its name, in a group that has coordinates beside the arrays.

    Args:
        num_axes: number of axes of a value of each site.
        leading: dimensions that the arrays have before these.

    Raises:
        ValueError: naming the site.
    """
    owners = {dim: f"site {name!r}" for name, num in num_axes.items() for dim in _dimensions(name, num)}
    owners |= dict.fromkeys(leading, "all draws")
    for name in num_axes:
        if name in NO_NAMES:
            raise ValueError(f"a site of a stored run must not have one of the names {NO_NAMES}, got {name!r}")
        if name in owners:
            raise ValueError(
                f"a site of a stored run must not be named like a dimension of {owners[name]} in the store, got "
                f"{name!r}; give it another name in the model"
            )


def encoded(name: str) -> str:
    """Name of a variable's array, with slashes escaped, since a slash would make a group."""
    return quote(name, safe="".join(chr(i) for i in range(32, 127) if chr(i) not in "/\\%"))


def decoded(name: str) -> str:
    """Name of an array's variable."""
    return unquote(name)


def now() -> str:
    """The time, with its zone."""
    return datetime.datetime.now(datetime.UTC).isoformat()


def _dimensions(variable: str, num: int) -> list[str]:
    """Names of the axes of a variable's value."""
    return [f"{variable}_dim_{k}" for k in range(num)]


def put_chunks(chunks: Iterable[tuple[Any, tuple[int, ...], np.ndarray]]) -> None:
    """Write whole chunks of arrays without compressors, all at once.

    They are written through zarr's stores, whose files hold such chunks as they are: faster than an assignment to each
    array in turn.

    Args:
        chunks: array, place of the chunk in its grid, and the content, of the chunk's shape and the array's type.
    """
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.sync import sync

    to_buffer = default_buffer_prototype().buffer.from_bytes

    async def put() -> None:
        writes = []
        for array, place, content in chunks:
            little = np.ascontiguousarray(content, content.dtype.newbyteorder("<"))
            key = f"{array.path}/{array.metadata.encode_chunk_key(place)}"
            writes.append(array.store.set(key, to_buffer(little.tobytes())))
        await asyncio.gather(*writes)

    sync(put())


def write_coordinate(group: Any, name: str, num: int) -> None:
    """Write the numbers from 0 along a dimension to a group, unless they are there."""
    try:
        if np.array_equal(group[name][:], np.arange(num)):
            return
    except Exception:  # whatever zarr raises of what is damaged or missing
        pass
    group.create_array(name, data=np.arange(num), chunks=(max(num, 1),), dimension_names=[name], overwrite=True)


def _array(group: Any, variable: str, form: Form, lengths: Iterable[int], chunk: int) -> None:
    """An array for all draws of a variable, empty on disk."""
    shape = (*lengths, *form.shape)
    missing = np.nan if form.dtype.kind == "f" else form.dtype.type(0)
    group.create_array(
        encoded(variable),
        shape=shape,
        dtype=form.dtype,
        chunks=(1, chunk, *(max(n, 1) for n in form.shape)),
        fill_value=missing,
        compressors=None,
        dimension_names=[*DRAWN, *_dimensions(variable, len(form.shape))],
        overwrite=True,
    )
