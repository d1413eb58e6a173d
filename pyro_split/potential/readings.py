"""Values that a model reads from its data with Python or NumPy: ``y.max().item()``, ``len(torch.unique(group))``.

On the rows of a subset such a value would be another one, and the model another model. So a model that reads is run
once on all rows, and the values read there answer its readings on any rows. A reading is identified by its place in the
code, its operation, and how often that was passed before. Readings that depend on parameters are not answered: they are
made anew in each run, as on the host. They are found by following values through the operations of that one run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np
import pyro
import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger
from torch import Tensor
from torch.nn.functional import one_hot
from torch.overrides import TorchFunctionMode

from pyro_split.host import NUMBER_OF, Subsample, TorchDispatchMode, plate_of, pytree, unvalidated
from split_common.errors import ReadingError
from split_common.readings import reading_advice

# methods by which Python and NumPy read a tensor's value, and operations whose result's shape depends on values
READERS: set[Any] = {
    *(getattr(Tensor, name) for name in ("item", "tolist", "numpy", "unique", "nonzero", "bincount", "argwhere")),
    *(getattr(Tensor, name) for name in ("equal", "allclose", "is_nonzero", "unique_consecutive", "__format__")),
    *(getattr(Tensor, f"__{name}__") for name in ("int", "float", "bool", "complex", "index", "array", "contains")),
    *(getattr(torch, name) for name in ("unique", "nonzero", "bincount", "unique_consecutive", "argwhere")),
    *(getattr(torch, name) for name in ("equal", "allclose", "is_nonzero")),
    one_hot,
}
LIBRARIES = ("numpy", "torch", "pyro", "contextlib", "functools", "split_common")  # read for their callers
BETWEEN = ("torch._ops", "torch._compile", "torch._dynamo.eval_frame", __name__)  # between a reading and its reader
MODES = ("__torch_function__", "__torch_dispatch__")
Line = tuple[CodeType, int]  # a code object, and a line in it
Place = tuple[Line, Line, Any, int]  # line of the model, of a library that reads for it, operation, times passed before


class Reading(NamedTuple):
    """One value that Python reads.

    Attributes:
        line: line of the model that reads, as ``model.py:12``.
        value: the value that is read from all the data.
        depends_on_parameters: whether it depends on parameters, and so is read anew in each run.
    """

    line: str
    value: Any
    depends_on_parameters: bool


class Readings:
    """Values that a model reads, by place; they answer the same readings where the model runs on some rows."""

    def __init__(self) -> None:
        self.found: dict[Place, Reading] = {}

    def __getstate__(self) -> dict[str, Any]:
        """An empty state: code objects do not pickle, and every run finds its readings anew."""
        return {"found": {}}

    @property
    def of_data(self) -> dict[str, Any]:
        """The values that do not depend on parameters, by line and number, as ``model.py:12 0``."""
        read = [r for r in self.found.values() if not r.depends_on_parameters]
        return {f"{r.line} {i}": r.value for i, r in enumerate(read)}

    @property
    def depend_on_parameters(self) -> bool:
        """Whether any value does, so that another run may read elsewhere."""
        return any(r.depends_on_parameters for r in self.found.values())

    @property
    def advice(self) -> str:
        """Advice to the user, for a message."""
        read = [r for r in self.found.values() if not r.depends_on_parameters]
        values = [(r.line, x) for r in read for x in _arrays_of(r.value)]
        return reading_advice([(line, x, ["the data"]) for line, x in values])

    @contextmanager
    def answering(self) -> Iterator[None]:
        """A context in which tensors answer the readings that were found."""
        if not self.found:
            yield
            return
        answers, reads = _Answers(self.found), any(operation is NUMBER_OF for _, _, operation, _ in self.found)
        every = _ToPyTorch(answers.number) if reads else nullcontext()  # every operation passes through it
        with answers, every, _Draws(answers):
            yield

    @contextmanager
    def made_anew(self) -> Iterator[None]:
        """A context in which no reading is answered, as on the host."""
        found, self.found = self.found, {}
        try:
            yield
        finally:
            self.found = found


class _ToPyTorch(TorchDispatchMode):
    """Hands over the readings that PyTorch makes itself, where it is given a tensor in place of a number.

    Args:
        number: function from a scalar tensor to the number that is read.
    """

    def __init__(self, number: Callable[[Tensor], Any]):
        super().__init__()
        self._number = number

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Hand over a reading; run any other operation."""
        return self._number(*args) if func is NUMBER_OF else func(*args, **(kwargs or {}))


class Watch(TorchFunctionMode):
    """Notices whether a model reads any value.

    Attributes:
        has_seen: whether it has.
    """

    def __init__(self) -> None:
        super().__init__()
        self.has_seen = False
        self._to_pytorch = _ToPyTorch(self._note)

    def __enter__(self) -> Watch:
        """Begin to watch."""
        self._to_pytorch.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        """End it."""
        super().__exit__(*error)
        self._to_pytorch.__exit__(*error)

    def _note(self, x: Tensor) -> Any:
        self.has_seen = self.has_seen or _where() is not None
        return NUMBER_OF(x)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note a reading, and let it pass."""
        self.has_seen = self.has_seen or (_reads(func, args, kwargs) and _where() is not None)
        return func(*args, **(kwargs or {}))


class _Tainted(TorchDispatchMode):
    """Follows which values depend on parameters: by the memory that they lie in, through every operation.

    Attributes:
        are_read: whether Python knows a number, a truth or a length that depends on parameters. Whatever is read from
            then on may do so too, since Python may have chosen what to compute.
    """

    def __init__(self) -> None:
        super().__init__()
        self.are_read = False
        self._tensors: dict[int, Tensor] = {}  # by memory, a tensor that keeps it alive

    def taint(self, value: Any) -> None:
        """Note that a value is a parameter, or depends on one."""
        self._tensors |= {_memory(x): x for x in pytree.tree_leaves(value) if isinstance(x, Tensor)}

    def holds(self, value: Any) -> bool:
        """Whether any tensor in a value depends on parameters."""
        tensors = [x for x in pytree.tree_leaves(value) if isinstance(x, Tensor)]
        return any(_memory(x) in self._tensors or x.requires_grad for x in tensors)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation; note results and overwritten tensors that depend on parameters."""
        results = func(*args, **(kwargs or {}))
        if self.holds((args, kwargs)):
            self.are_read = self.are_read or self.holds(_shaping(func, args))
            self.taint((results, args[:1] if func._schema.is_mutable else ()))
        return results


def _shaping(func: Any, args: Any) -> Any:
    """Operands of an operation whose values decide on the shape of its results."""
    if torch.Tag.dynamic_output_shape not in func.tags:
        return ()
    if func is torch.ops.aten.index.Tensor:
        return [x for x in args[1] if x is not None and x.dtype in (torch.bool, torch.uint8)]  # others look entries up
    return args[1] if func is torch.ops.aten.masked_select.default else args


def _memory(x: Tensor) -> int:
    return x.untyped_storage()._cdata if x.layout == torch.strided else id(x)


class _Reader(TorchFunctionMode):
    """Knows whether a tensor's method is reading, during which PyTorch makes no reading of its own.

    Attributes:
        is_drawing: whether a site draws its value. What is read meanwhile, as by a rejection sampler, belongs to that
            draw: it is neither noted nor answered.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_reading = self.is_drawing = False

    def _place(self, func: Any, args: Any, kwargs: Any) -> tuple[Line, Line] | None:
        """Where an operation reads; None where it does not, outside the model, and in a draw."""
        return _where() if not self.is_drawing and _reads(func, args, kwargs) else None

    @contextmanager
    def _reading(self) -> Iterator[None]:
        self._is_reading = True
        try:
            yield
        finally:
            self._is_reading = False


class _Recorder(_Reader):
    """Notes every reading, and whether it depends on parameters.

    Args:
        tainted: knows the values that do.
    """

    def __init__(self, tainted: _Tainted) -> None:
        super().__init__()
        self.found: dict[Place, Reading] = {}
        self._tainted, self._passed = tainted, {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and note what is read."""
        here = self._place(func, args, kwargs)
        if here is None:
            return func(*args, **(kwargs or {}))
        with self._reading():
            result = func(*args, **(kwargs or {}))
        kept = result.copy() if isinstance(result, np.ndarray) else result
        self._note(here, func, (args, kwargs), result.shape[-1] if func is one_hot else kept)
        return result

    def number(self, x: Tensor) -> Any:
        """The number in a scalar tensor, and note that PyTorch read it, unless a method of the tensor's did."""
        result = NUMBER_OF(x)
        if not (self._is_reading or self.is_drawing) and (here := _where()) is not None:
            self._note((here[0], here[0]), NUMBER_OF, x, result)
        return result

    def _note(self, here: tuple[Line, Line], func: Any, operands: Any, result: Any) -> None:
        is_tainted = self._tainted.are_read or self._tainted.holds(operands)
        self._tainted.are_read = is_tainted
        count = self._passed[here, func] = self._passed.get((here, func), -1) + 1
        self.found[(*here, func, count)] = Reading(_shown(here[0]), result, is_tainted)


class _Answers(_Reader):
    """Answers readings in one run of a model."""

    def __init__(self, found: dict[Place, Reading]):
        super().__init__()
        self._found, self._passed = found, {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answer a reading; run any other operation."""
        here = self._place(func, args, kwargs)
        if here is None:
            return func(*args, **(kwargs or {}))
        if (reading := self._answer(here, func)) is None:
            with self._reading():
                return func(*args, **(kwargs or {}))
        if func is one_hot:
            with self._reading():
                return func(*args[:1], **{**(kwargs or {}), "num_classes": reading.value})
        return reading.value.copy() if isinstance(reading.value, np.ndarray) else reading.value

    def number(self, x: Tensor) -> Any:
        """The answer to a reading that PyTorch makes itself."""
        here = None if self._is_reading or self.is_drawing else _where()
        reading = None if here is None else self._answer((here[0], here[0]), NUMBER_OF)
        return NUMBER_OF(x) if reading is None else reading.value

    def _answer(self, here: tuple[Line, Line], func: Any) -> Reading | None:
        """The reading on all rows; None where it depends on parameters, or a library has read it."""
        count = self._passed[here, func] = self._passed.get((here, func), -1) + 1
        reading = self._found.get((*here, func, count))
        if reading is None and here[0] == here[1]:
            raise ReadingError(
                f"{_shown(here[0])}: what Python reads on some rows must be read on all rows too, got another reading"
            )
        return None if reading is None or reading.depends_on_parameters else reading


class _Draws(Messenger):
    """Tells a reader while a site draws its value."""

    def __init__(self, reader: _Reader):
        super().__init__()
        self._reader = reader

    def _pyro_sample(self, msg: Any) -> None:
        self._reader.is_drawing = not isinstance(msg["fn"], Subsample)

    def _pyro_post_sample(self, msg: Any) -> None:
        self._reader.is_drawing = False


class _Parameters(Messenger):
    """Notes as parameters the values of latent sites, and the numbers that plates yield where these are not constants.

    Args:
        tainted: keeps the notes.
        row_plates: plates of which one may yield the row numbers of a subset.
    """

    def __init__(self, tainted: _Tainted, row_plates: Collection[str]):
        super().__init__()
        self._tainted, self._row_plates = tainted, row_plates

    def _pyro_post_sample(self, msg: Any) -> None:
        if not (msg["is_observed"] or self._yields_constants(msg)):
            self._tainted.taint(msg["value"])

    def _yields_constants(self, msg: Any) -> bool:
        """Whether a site is a plate that yields 0, 1, 2 ... in every run."""
        is_whole = isinstance(msg["fn"], Subsample) and len(msg["value"]) == msg["fn"].size
        return is_whole and plate_of(msg) not in self._row_plates


def find_readings(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], row_plates: Collection[str] = ()
) -> Readings:
    """Find the values that a model reads from its data with Python, in a run on all rows.

    Args:
        model: the user's model, which is run on all rows.
        args: its positional arguments.
        kwargs: its keyword arguments.
        row_plates: names of the plates of which one may yield the row numbers of a subset.
    """
    readings, tainted, store = Readings(), _Tainted(), pyro.get_param_store()
    recorder = _Recorder(tainted)
    with store.scope(store.get_state()), torch.random.fork_rng(), torch.no_grad(), poutine.block(), unvalidated():
        with recorder, _ToPyTorch(recorder.number), tainted, _Parameters(tainted, row_plates), _Draws(recorder):
            model(*args, **kwargs)
    readings.found = recorder.found
    return readings


def params_of_data(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """The ``pyro.param`` sites of a model whose first values are computed from the tensors in its arguments."""
    tainted, store = _Tainted(), pyro.get_param_store()
    tainted.taint((args, kwargs))
    with store.scope(), torch.random.fork_rng(), torch.no_grad(), poutine.block(), unvalidated():
        recorder = _Recorder(tainted)
        with recorder, _ToPyTorch(recorder.number), tainted:
            model(*args, **kwargs)
        return [name for name, value in store.named_parameters() if tainted.are_read or tainted.holds(value.detach())]


def _reads(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether an operation reads; a one-hot code does where it is not told how many classes there are."""
    if func is one_hot:
        classes = [x for x in (*args, *(kwargs or {}).values())[1:] if isinstance(x, Tensor) or x != -1]
        return not classes
    return func in READERS


def _arrays_of(value: Any) -> list[np.ndarray]:
    leaves = pytree.tree_leaves(value) if isinstance(value, tuple) else [value]
    return [np.asarray(x.numpy(force=True) if isinstance(x, Tensor) else x) for x in leaves]


def _where() -> tuple[Line, Line] | None:
    """The line of the model that reads, and the line in it or in a library that does so; None outside the model."""
    frame = sys._getframe(2)
    while frame.f_back is not None and _lies_between(frame):
        frame = frame.f_back
    reader = frame
    while frame.f_back is not None and _package(frame) in LIBRARIES:
        frame = frame.f_back
    is_model = _package(frame) not in (*LIBRARIES, "pyro_split")
    return ((frame.f_code, frame.f_lineno), (reader.f_code, reader.f_lineno)) if is_model else None


def _lies_between(frame: FrameType) -> bool:
    """Whether a frame is of a mode that handles an operation, or of PyTorch's code that calls modes."""
    return frame.f_globals.get("__name__") in BETWEEN or frame.f_code.co_name in MODES


def _package(frame: FrameType) -> str:
    return frame.f_globals.get("__name__", "").partition(".")[0]


def _shown(line: Line) -> str:
    return f"{line[0].co_filename.rpartition('/')[2]}:{line[1]}"
