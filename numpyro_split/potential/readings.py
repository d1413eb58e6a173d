"""Values that a model reads from its data with Python or NumPy: ``int(y.max())``, ``len(np.unique(group))``.

Traced data have no values that Python could read. Those that the model asks for are found before it is divided: it is
traced on all rows and stopped where it first reads one; that value is computed from all the data; and so on, with the
values known so far, until the model runs to its end. From then on each reading is answered with its value. A reading
is identified by its place in the code, down to the expression, and by how often that place was passed before, by
concrete and by traced values. So the model is the same function of parameters and rows as on all the data, with the
values that Python read as constants; whether it divides is checked as for any other.

A reading that depends on parameters has no fixed value. The host refuses such a model too.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax import random
from jax.core import Tracer
from jax.errors import (
    ConcretizationTypeError,
    NonConcreteBooleanIndexError,
    TracerArrayConversionError,
    TracerIntegerConversionError,
)
from numpyro.handlers import seed, substitute, trace
from numpyro.infer.initialization import init_to_uniform

from numpyro_split.host import ArrayImpl
from split_common.errors import ConversionError, ReadingError, first_line, line_of_user
from split_common.readings import must_not_read, reading_advice

if TYPE_CHECKING:
    from numpyro_split.potential.arguments import Arguments, Data

# errors that JAX raises where Python reads a traced value
UNREADABLE = (
    ConcretizationTypeError,
    NonConcreteBooleanIndexError,
    TracerArrayConversionError,
    TracerIntegerConversionError,
)
MOST = 100  # readings that one model may make
# methods by which Python and NumPy read the value of an array, and how each value is read
READERS: dict[str, Callable[..., Any]] = {
    "__array__": lambda x, dtype=None, copy=None: np.array(x, dtype=dtype),
    "__int__": int,
    "__float__": float,
    "__bool__": bool,
    "__complex__": complex,
    "__index__": lambda x: x.item().__index__(),
    "item": lambda x, *args: x.item(*args),
    "tolist": lambda x: x.tolist(),
}
LIBRARIES = ("numpy", "jax", "jaxlib", "numpyro", "contextlib", "functools")  # packages that read for a model
Line = tuple[CodeType, int, tuple[int | None, ...]]  # a code object, its line, the expression's place there
Place = tuple[Line, Line, int]  # line of the model, line of a library that reads for it, earlier readings there

_active = threading.local()


class Reading(NamedTuple):
    """One value that Python reads.

    Attributes:
        line: line of the model that reads, as ``model.py:12``.
        value: the value that is read from all the data.
        arguments: names of the data that it depends on.
    """

    line: str
    value: np.ndarray
    arguments: list[str]


class Readings:
    """Values that a model reads, by place; they answer the same readings where the model runs on some rows."""

    def __init__(self) -> None:
        self.found: dict[Place, Reading] = {}
        self._is_complete = True

    def __bool__(self) -> bool:
        return bool(self.found)

    def __getstate__(self) -> dict[str, Any]:
        """An empty state: code objects do not pickle, and every run finds its readings anew."""
        return {"found": {}, "_is_complete": True}

    @property
    def advice(self) -> str:
        """Advice to the user, for a message."""
        return reading_advice([(r.line, r.value, r.arguments) for r in self.found.values()])

    @contextmanager
    def answering(self) -> Iterator[None]:
        """A context in which traced arrays answer the readings that were found."""
        if self._is_complete and not self.found:
            yield
            return
        outer = getattr(_active, "run", None)
        _active.run = run = _Run(self.found, self._is_complete)
        try:
            with _asking_arrays():
                yield
        finally:
            _active.run = outer
        run.check_all_passed()

    def find_next(self, model: Callable[..., Any], arguments: Arguments) -> Reading | None:
        """Find the first reading that is not known yet; None where there is none."""
        stopped: list[_Unknown] = []

        def run(data: Data) -> tuple[list[Any], Any]:
            latents: list[Any] = []

            def start(site: dict[str, Any]) -> Any:
                value = init_to_uniform(site)
                if site["type"] == "sample" and not site["is_observed"] and isinstance(value, Tracer):
                    latents.append(value)
                return value

            args, kwargs = arguments.build(data)
            self._is_complete = False
            try:
                with self.answering():
                    trace(substitute(seed(model, random.key(0)), substitute_fn=start)).get_trace(*args, **kwargs)
            except _Unknown as unknown:
                stopped.append(unknown)
                return latents, unknown.tracer
            finally:
                self._is_complete = True
            return [], ()

        expression = jax.make_jaxpr(run)(arguments.data).jaxpr
        if not stopped:
            return None
        *latents, read = expression.outvars
        if read in _reached(expression, latents):
            raise ReadingError(
                f"{stopped[0].line}: a value that is read with Python must rest on data alone, got one that rests on "
                "parameters"
            )
        value = np.asarray(jax.jit(lambda data: run(data)[1])(arguments.data))
        named = zip(arguments.named_arrays(), expression.invars, strict=True)
        depends_on = [name for (name, _), x in named if read in _reached(expression, [x])]
        self.found[stopped[0].place] = reading = Reading(stopped[0].line, value, depends_on)
        return reading


class _Run:
    """One run of a model, which counts the readings at each place."""

    def __init__(self, found: dict[Place, Reading], is_complete: bool):
        self._found, self._is_complete = found, is_complete
        self._passed: dict[tuple[Line, Line], int] = {}

    def pass_by(self, here: tuple[Line, Line]) -> int:
        """Count that a place is passed; how often it was passed before."""
        count = self._passed[here] = self._passed.get(here, -1) + 1
        return count

    def check_all_passed(self) -> None:
        """Raise where a place was passed less often than readings were found there, so that readings are confused.

        NumPy may read an array that is not traced without calling its methods.
        """
        found: dict[tuple[Line, Line], int] = {}
        for line, reader, count in self._found:
            found[line, reader] = max(count, found.get((line, reader), 0))
        for (line, reader), last in found.items():
            if self._is_complete and self._passed.get((line, reader), last) < last:
                raise ReadingError(
                    f"{_shown(line)}: what NumPy reads in one place must be arguments, or computed of these, got both; "
                    "read them apart, or take jnp.asarray of an argument first"
                )

    def read(self, tracer: Any, reader: Callable[..., Any], here: tuple[Line, Line], *args: Any) -> Any:
        """The value of a reading at a place, as ``reader`` gives it."""
        count = self.pass_by(here)
        reading = self._found.get((*here, count))
        if reading is not None:
            return reader(reading.value, *args)
        line = _shown(here[0])
        if not self._is_complete:
            raise _Unknown(tracer, (*here, count), line)
        raise ReadingError(f"{line}: what Python reads on some rows must be read on all rows too, got another reading")


class _Unknown(BaseException):  # not an Exception, which a model might catch
    """A reading whose value is not known."""

    def __init__(self, tracer: Any, place: Place, line: str):
        super().__init__(line)
        self.tracer, self.place, self.line = tracer, place, line


def find_readings(model: Callable[..., Any], arguments: Arguments) -> Readings:
    """Find the values that a model reads from its data with Python, computed from all rows.

    Args:
        model: the user's model, which is run on all rows.
        arguments: its arguments, not traced.

    Raises:
        ReadingError: with the line, where a reading depends on parameters or cannot be answered; for any reading where
            rows are read from a source.
    """
    if arguments.sources:
        raise ReadingError(must_not_read(list(arguments.sources)))
    readings = Readings()
    try:
        for _ in range(MOST):
            if readings.find_next(model, arguments) is None:
                return readings
    except UNREADABLE as error:
        raise ConversionError(
            f"{line_of_user(error)}: the number of values must not rest on traced data, got {first_line(error)} (write "
            "it with NumPy, as np.unique for jnp.unique and x[np.nonzero(mask)[0]] for x[mask], or with "
            "jnp.where(mask, ...), or compute it outside the model, on all rows, and pass it as an argument)"
        ) from error
    raise ReadingError(f"a model must read at most {MOST} values of its data with Python, got more")


def _reached(expression: Any, start: list[Any]) -> set[Any]:
    """Variables of a jaxpr that depend on the given ones."""
    reached = {x for x in start if not hasattr(x, "val")}
    for equation in expression.eqns:
        if any(not hasattr(x, "val") and x in reached for x in equation.invars):
            reached.update(equation.outvars)
    return reached


@contextmanager
def _asking_arrays() -> Iterator[None]:
    """Patch JAX: a tracer that Python reads asks this thread's run for the value, an array reports that it is read."""
    own = [(kind, name, vars(kind)[name]) for kind in (Tracer, ArrayImpl) for name in READERS]
    for kind, name, method in own:
        setattr(kind, name, _asking(method, READERS[name]))
    try:
        yield
    finally:
        for kind, name, method in own:
            setattr(kind, name, method)


def _asking(own: Any, reader: Callable[..., Any]) -> Callable[..., Any]:
    def ask(self: Any, *args: Any, **kwargs: Any) -> Any:
        here, run = _where(), getattr(_active, "run", None)
        is_asked = reader is not READERS["__index__"] or not self.ndim  # NumPy tries __index__ on any array first
        if run is None or here is None or not is_asked:
            return own.__get__(self, type(self))(*args, **kwargs)
        if not isinstance(self, Tracer):
            run.pass_by(here)
            return own.__get__(self, type(self))(*args, **kwargs)
        return run.read(self, functools.partial(reader, **kwargs), here, *args)

    return ask


def _where() -> tuple[Line, Line] | None:
    """The line of the model that reads, and the line in it or in a library that does so; None outside the model."""
    reader = frame = sys._getframe(2)
    while frame.f_back is not None and _package(frame) in LIBRARIES:
        frame = frame.f_back
    is_model = _package(frame) not in (*LIBRARIES, "numpyro_split")
    return (_line(frame), _line(reader)) if is_model else None


def _line(frame: FrameType) -> Line:
    # not the instruction itself: Python has several for one expression, and may run one or another
    return frame.f_code, frame.f_lineno, _expressions(frame.f_code)[frame.f_lasti // 2]


@functools.lru_cache(maxsize=1000)
def _expressions(code: CodeType) -> list[tuple[int | None, ...]]:
    """For each instruction, where the expression that it belongs to begins and ends."""
    return list(code.co_positions())


def _package(frame: FrameType) -> str:
    return frame.f_globals.get("__name__", "").partition(".")[0]


def _shown(line: Line) -> str:
    return f"{line[0].co_filename.rpartition('/')[2]}:{line[1]}"
