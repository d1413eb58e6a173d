"""Copies of a kernel that know one model and one data set, kept by content.

A kernel object may serve several runs, in turn or at once, and a run may go on from a state that other data left. So
nothing that a run learns before it starts (how the model divides, which precision scales which weights, where the
control variate is expanded) lies on the object that the user made. It lies on a copy, found by digests of the model and
of the data.

The host calls ``init`` in every run, also where it goes on from a given state, so that copies are made from known data.
``sample`` finds the copy again while it is traced: by its digest where the data are known, and by the program alone
where they are traced (``jit_model_args=True``).
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import jax

from numpyro_split.potential.content import Content
from split_common.containers import Form

MOST_KEPT = 16  # copies, of one kernel
PLAIN = (int, float, complex, str, bytes, type(None))  # values that do not change


class PreparedKernels:
    """The copies of one kernel; may be used by several threads at once.

    Attributes:
        form: in what form the model of the last run takes its arguments; None before there is one.
    """

    def __init__(self) -> None:
        self.form: Form | None = None
        self._lock = threading.RLock()
        self._kernels: OrderedDict[tuple[str, str, int], Any] = OrderedDict()
        self._programs: OrderedDict[Hashable, str] = OrderedDict()
        self._seen: dict[Hashable, tuple[list[Any], str]] = {}

    def find(self, content: Content, num_warmup: int) -> Any:
        """The copy for known data, or None."""
        with self._lock:
            key = (content.program, content.key or "", num_warmup)
            if key in self._kernels:
                self._kernels.move_to_end(key)
            return self._kernels.get(key)

    def find_for_traced(self, program: str, num_warmup: int) -> Any:
        """The copy for data of which only the program is known, or None.

        Raises:
            ValueError: when the program's data sets so far divide in different ways.
        """
        with self._lock:
            found = [kernel for (p, _, n), kernel in self._kernels.items() if (p, n) == (program, num_warmup)]
        if len({kernel.plan for kernel in found}) > 1:
            raise ValueError(
                "data that are traced (jit_model_args=True) must divide like those of earlier runs of the same "
                "kernel, got data for which the model divides in another way; make a kernel for each"
            )
        return found[-1] if found else None

    def keep(self, content: Content, num_warmup: int, kernel: Any) -> None:
        """Keep a copy; the one that was used least recently goes."""
        with self._lock:
            _put(self._kernels, (content.program, content.key or "", num_warmup), kernel)

    def latest(self, program: str | None = None) -> Any:
        """The copy that was kept last, of one program or of any; None where there is none."""
        with self._lock:
            found = [kernel for (p, *_), kernel in self._kernels.items() if program in (None, p)]
        return found[-1] if found else None

    def program_of(self, signature: Hashable) -> str | None:
        """The program that the last run with arguments like these had."""
        with self._lock:
            return self._programs.get(signature)

    def note_run(self, signature: Hashable, leaves: list[Any], content: Content) -> None:
        """Take note of a run's arguments, before anything of it is compiled.

        The host keeps compiled programs by the identity of the arguments, whose values are constants in them. Where
        the same arguments now have another content (changed in place, or the model reads something else), these
        programs are dropped.
        """
        given = [x for x in leaves if not isinstance(x, PLAIN)]
        key = (signature, tuple(map(id, given)))
        with self._lock:
            _put(self._programs, signature, content.program)
            if content.key is None:
                return
            # an argument that is gone can have left its identity to another one
            self._seen = {k: (xs, d) for k, (xs, d) in self._seen.items() if all(x() is not None for x in xs)}
            changed = key in self._seen and self._seen[key][1] != content.key
            self._seen[key] = (_references(given), content.key)
        if changed:
            jax.clear_caches()


def _put(table: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    table[key] = value
    table.move_to_end(key)
    while len(table) > MOST_KEPT:
        table.popitem(last=False)


def _references(values: list[Any]) -> list[Any]:
    """Weak references that show when values are gone; some objects allow none."""
    found = []
    for value in values:
        try:
            found.append(weakref.ref(value))
        except TypeError:
            continue
    return found
