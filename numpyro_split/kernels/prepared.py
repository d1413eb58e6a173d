"""Prepared methods: what a kernel's method knows of one model and one data set, stored by digests of both.

A kernel object may serve several runs, in turn or at once, and a run may continue from a state that was made with other
data. So what a run learns before it starts (how the model divides, which precision scales which weights, where the
control variate is expanded) is not stored on the kernel object of the user. It is stored in a :class:`Prepared`, which
is looked up by digests of the model and of the data.

The host calls ``init`` in every run, also if the run continues from a given state, so each :class:`Prepared` is made
from known data. ``sample`` looks it up again while it is traced: by both digests if the data are known, and by that of
the model alone if they are traced (``jit_model_args=True``).
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import jax

from numpyro_split.kernels.method import Method
from numpyro_split.potential.content import Content
from numpyro_split.potential.split_potential import SplitPotential
from numpyro_split.splitting.divided_model import DividedModel
from split_common.containers import Form

MOST_KEPT = 16  # entries of each table of one kernel
PLAIN = (int, float, complex, str, bytes, type(None))  # types of values that cannot change in place


@dataclass
class Prepared:
    """A method that knows one model and one data set.

    Attributes:
        split: how the model divides; None for a kernel made from a potential.
        potential: potential of the kernel; None for a kernel made from a model.
        method: the prepared method.
        compiled_start: the method's ``start``, compiled.
        state_like: shapes and dtypes of the state of one chain; None before a chain has started.
    """

    split: DividedModel | None
    potential: SplitPotential | None
    method: Method
    compiled_start: Any
    state_like: Any = None

    @property
    def known_split(self) -> DividedModel:
        """How the model divides; the kernel must be made from a model."""
        assert self.split is not None
        return self.split

    @property
    def num_subsets(self) -> int:
        """M, the number of subsets."""
        return self.known_split.layout.num_subsets if self.potential is None else self.potential.num_subsets

    @property
    def plan(self) -> str:
        """How the model divides and what the method found, as text; equal texts share one compiled program."""
        return "" if self.split is None else self.split.plan + self.method.plan

    def without_data(self) -> Prepared:
        """The same, for other data than those that the method was prepared with."""
        return replace(self, method=self.method.without_data())


class PreparedRuns:
    """The prepared methods of the runs of one kernel; may be used by several threads at once.

    Attributes:
        form: form in which the model of the last run takes its arguments; None before the first run.
        num_chains: number of chains of the last run that are evaluated at once.
        is_block: whether the last run is that of a block of the host's ``Gibbs``.
        num_subsets: M of the last run; None before the first run.
    """

    def __init__(self) -> None:
        self.form: Form | None = None
        self.num_chains = 1
        self.is_block = False
        self.num_subsets: int | None = None
        self._lock = threading.RLock()
        self._prepared: OrderedDict[tuple[str, str, int], Prepared] = OrderedDict()
        self._programs: OrderedDict[Hashable, str] = OrderedDict()
        self._seen: dict[Hashable, tuple[list[Any], str]] = {}

    def find(self, content: Content, num_warmup: int) -> Prepared | None:
        """The prepared method of a model and known data, or None."""
        with self._lock:
            key = (content.program, content.key or "", num_warmup)
            if key in self._prepared:
                self._prepared.move_to_end(key)
            return self._prepared.get(key)

    def find_for_traced(self, program: str, num_warmup: int) -> Prepared | None:
        """The prepared method of a model, given by its digest, and of traced data, or None.

        A block of ``Gibbs`` has that of its last ``init``: sites of other blocks count as data, and move.

        Raises:
            ValueError: if the model divided the data sets so far in different ways.
        """
        with self._lock:
            found = self._all_of(program, num_warmup)
        if len({x.plan for x in found}) > 1 and not self.is_block:
            raise ValueError(
                "data that are traced (jit_model_args=True) must divide like those of earlier runs of the same "
                "kernel, got data for which the model divides in another way; make a kernel for each"
            )
        return found[-1] if found else None

    def keep(self, content: Content, num_warmup: int, prepared: Prepared) -> None:
        """Store a prepared method; the least recently used one is dropped.

        The host runs a program that was compiled for traced data on other data of their shapes too. What was found in
        the first data is constant in it, so where other things are found now, compiled programs are dropped, and
        :meth:`find_for_traced` refuses these data.
        """
        with self._lock:
            found = self._all_of(content.program, num_warmup)
            _put(self._prepared, (content.program, content.key or "", num_warmup), prepared)
        if any(x.plan != prepared.plan for x in found):
            jax.clear_caches()

    def latest(self, program: str | None = None) -> Prepared | None:
        """The prepared method that was stored or used last, of one program or of any; None if there is none."""
        with self._lock:
            found = [x for (p, *_), x in self._prepared.items() if program in (None, p)]
        return found[-1] if found else None

    def _all_of(self, program: str, num_warmup: int) -> list[Prepared]:
        """The prepared methods of a model, given by its digest, one for each data set; the last used one last."""
        return [x for (p, _, n), x in self._prepared.items() if (p, n) == (program, num_warmup)]

    def program_of(self, signature: Hashable) -> str | None:
        """Digest of the model in the last run with arguments of this signature, or None."""
        with self._lock:
            return self._programs.get(signature)

    def note_run(self, signature: Hashable, leaves: list[Any], content: Content) -> None:
        """Record the arguments of a run before anything is compiled for it.

        The host stores compiled programs by the identity of the arguments, whose values are constants in them, or by
        their shapes. If the same arguments now have other content (changed in place), or the model is another one for
        arguments of these shapes (it reads something else), these programs are dropped.
        """
        given = [x for x in leaves if not isinstance(x, PLAIN)]
        key = (signature, tuple(map(id, given)))
        with self._lock:
            changed = self._programs.get(signature, content.program) != content.program
            _put(self._programs, signature, content.program)
            if content.key is not None:
                # another argument may have the id of one that was deleted
                self._seen = {k: (xs, d) for k, (xs, d) in self._seen.items() if all(x() is not None for x in xs)}
                changed |= key in self._seen and self._seen[key][1] != content.key
                self._seen[key] = (_references(given), content.key)
        if changed:
            jax.clear_caches()


def _put(table: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    table[key] = value
    table.move_to_end(key)
    while len(table) > MOST_KEPT:
        table.popitem(last=False)


def _references(values: list[Any]) -> list[Any]:
    """Weak references, which show when values are deleted; objects that allow none are left out."""
    found = []
    for value in values:
        try:
            found.append(weakref.ref(value))
        except TypeError:
            continue
    return found
