"""The form in which a model is given its data: the first in which it runs, computes what it should, and divides.

What a user has (lists, columns of pandas, arrays that the model holds) can be given to a model in several forms
(:class:`split_common.containers.Form`). Of those that concern arguments the first is taken in which the model runs; and
where the model also runs on the user's own objects, its log-probabilities must be the same as with them. So no method
silently means something else on an array (the standard deviation of pandas is not that of NumPy), and no digits are
lost where an array has fewer bits. Arrays that the model holds become data where it does not divide without them. A
model that is not to be divided, and does not take arrays, is given the user's own objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from split_common.containers import Form, Given, Opener, copied, cut_to, locked
from split_common.data_axes import argument_names
from split_common.errors import (
    WHOLE_RUNS,
    ConversionError,
    ModelNotSplittableError,
    ReadingError,
    first_line,
    line_of_user,
)
from split_common.model_copy import copy_of
from split_common.open_model import HELD, OpenModel, open_held
from split_common.rounding import rounding_of
from split_common.subsets import extreme_rows
from split_common.tables import Operations

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Result = TypeVar("Result")
FEW_ROWS = 2048  # rows of a source on which forms are tried
TOLERANCE = 1e-4  # relative difference allowed between log-probabilities in float32
MOST_ROUNDING = 3e-5  # of a column's standard deviation, in an array that the model computes with in NumPy
VALUE_OF = "value of "  # put before the name of a deterministic site, among log-probabilities


class Framework(NamedTuple):
    """Operations of a framework on arguments.

    Attributes:
        tree_map: its map over containers, with ``is_leaf``.
        operations: its operations on arrays and columns.
        is_alike: whether a model runs the very same operations on the user's NumPy arrays as on the opened arguments.
        is_array: whether a leaf is one of its arrays, and data.
        build: from opened arguments to those that a model is given.
        rounding: largest relative difference of log-probabilities where the user's arguments hold only NumPy arrays.
        log_probs: from a model and its arguments to the log-probabilities of its sites at a start, except unobserved
            discrete sites, whose values are drawn; and values of deterministic sites. Raises whatever the model raises.
    """

    tree_map: Callable[..., Any]
    operations: Operations
    is_alike: Callable[[Callable[..., Any], tuple[Args, Kwargs], tuple[Args, Kwargs]], bool]
    rounding: float
    is_array: Callable[[Any], bool]
    build: Callable[[Args, Kwargs], tuple[Args, Kwargs]]
    log_probs: Callable[[Callable[..., Any], Args, Kwargs], dict[str, np.ndarray]]


class Forms:
    """Finds the form in which a model is given its data.

    Args:
        framework: the framework in which the model is written.
    """

    def __init__(self, framework: Framework):
        self._framework = framework

    def open(
        self, model: Callable[..., Any] | None, args: Args, kwargs: Kwargs, form: Form | None = None
    ) -> tuple[Args, Kwargs, Form]:
        """A model's arguments, taken apart as far as they hold arrays.

        Args:
            model: the user's model; None for a potential, which has none.
            args: positional arguments.
            kwargs: keyword arguments.
            form: the form in which the model is given them; None to find it.

        Returns:
            The arguments, for the framework's ``Arguments``, and the form.

        Raises:
            ConversionError: where the model takes columns of pandas in no form, naming the arguments.
        """
        opener = self._opener(form or Form())
        opened_args, opened_kwargs = opened = _open(opener, args, kwargs)
        if any(map(is_masked, opener.arrays)):
            names = ", ".join(map(repr, self._names_of(is_masked, model, args, kwargs)))
            raise ConversionError(
                f"{names} must be no masked array, since arrays of the framework have no masks, got one of numpy.ma; "
                "pass .filled(0.0) and the mask, and mask the site with it"
            )
        if model is not None and form is not None and form.held:
            held = open_held(model, opener, self._framework.is_array)
            opened_kwargs |= {} if held is None else {HELD: held}
        if model is None or form is not None:
            return opened_args, opened_kwargs, form or Form()
        if opener.sources:
            form = self._form_on_few_rows(model, args, kwargs, opener)
            return *_open(self._opener(form), args, kwargs), form
        if not (opener.tables or opener.lists or opener.arrays):
            return opened_args, opened_kwargs, Form()
        if not (opener.tables or opener.lists) and self._framework.is_alike(model, self._locked(args, kwargs), opened):
            return opened_args, opened_kwargs, Form()
        return self._first_that_runs(model, args, kwargs, opener)

    def _form_on_few_rows(self, model: Callable[..., Any], args: Args, kwargs: Kwargs, opener: Opener) -> Form:
        """The form that a model takes beside rows that are read from a source, of which it is run on some only.

        Raises:
            ConversionError: where the model runs on these rows, and computes something else with arrays in its
                framework.
        """
        num_rows = opener.sources[0].shape[0]
        columns = [x for x in opener.arrays if x.shape[:1] == (num_rows,)]
        rows = extreme_rows(columns, min(FEW_ROWS, num_rows), num_rows)
        framework = self._framework
        try:
            few_args, few_kwargs = cut_to((args, kwargs), rows, num_rows, framework.tree_map, framework.operations)
            trial = copy_of(model)  # the model itself must keep nothing of a run on some rows
        except Exception:  # whatever an object raises of which no rows can be taken, or that has no copy
            return Form()
        try:
            return self.open(trial, few_args, few_kwargs)[2]
        except ConversionError:
            if self._try(trial, *self._copied(few_args, few_kwargs), []) is None:  # it takes no other number of rows
                return Form()
            raise

    def divide(
        self,
        model: Callable[..., Any] | None,
        args: Args,
        kwargs: Kwargs,
        divide: Callable[[Args, Kwargs, Form], Result],
        last: Form | None = None,
        undivided: bool = False,
        advice: str = WHOLE_RUNS,
    ) -> Result:
        """Result for the first form in which a model divides: without the arrays that it holds, or with them.

        Args:
            model: the user's model; None for a potential, which has none.
            args: positional arguments, as the user has them.
            kwargs: keyword arguments, likewise.
            divide: from arguments taken apart, and their form, to the result.
            last: the form in which the model was divided last, which is tried first.
            undivided: whether a model that does not divide runs as it is, on the user's own objects if need be.
            advice: text for the message that says what would run a model which needs the user's own objects.

        Raises:
            ModelNotSplittableError: where it divides in neither form.
            ConversionError: where it takes no arrays of the framework.
        """
        try:
            return self._divide(model, args, kwargs, divide, last)
        except ReadingError as error:
            opener = self._opener(Form())
            _open(opener, args, kwargs)
            if model is not None:
                open_held(model, opener, self._framework.is_array)
            may_run = not opener.sources and bool(opener.arrays or opener.tables or opener.lists)
            if not undivided and may_run and advice and isinstance(error, ConversionError):
                raise ConversionError(f"{error}; {advice}") from error.__cause__
            if not undivided or not may_run:
                raise
            try:
                return divide(*self.open(model, args, kwargs, own := Form(own=True))[:2], own)
            except Exception as failure:  # a kernel's own ValueError counts; else the first error does
                is_of_kernel = isinstance(failure, ValueError) and not isinstance(failure, ReadingError)
                raise (failure if is_of_kernel else error) from (error if is_of_kernel else failure)

    def _divide(
        self,
        model: Callable[..., Any] | None,
        args: Args,
        kwargs: Kwargs,
        divide: Callable[[Args, Kwargs, Form], Result],
        last: Form | None,
    ) -> Result:
        opened_args, opened_kwargs, form = self.open(model, args, kwargs)

        def plain() -> Result:
            return divide(opened_args, opened_kwargs, form)

        def held() -> Result:
            held_args, held_kwargs, held_form = self.open(model, args, kwargs, form._replace(held=True))
            if HELD not in held_kwargs:
                raise ModelNotSplittableError("the model holds no arrays")
            assert model is not None
            self._check_held(model, args, kwargs, (held_args, held_kwargs))
            return divide(held_args, held_kwargs, held_form)

        attempts = [plain, held]
        first, second = attempts[::-1] if last is not None and last.held else attempts
        try:
            return first()
        except ModelNotSplittableError as error:
            try:
                return second()
            except ConversionError:
                raise
            except Exception:
                raise self._with_advice(error, model, args, kwargs) from None

    def _check_held(self, model: Callable[..., Any], args: Args, kwargs: Kwargs, opened: tuple[Args, Kwargs]) -> None:
        """Raise where a model computes something else with arrays of the framework than with the NumPy arrays it holds.

        Raises:
            ConversionError: naming these arrays.
        """
        opener, opens, held = self._opener(Form()), OpenModel(model), opened[1][HELD]
        open_held(model, opener, self._framework.is_array)
        if not opener.arrays or self._framework.is_alike(opens, self._locked(args, kwargs), opened):
            return
        failures: list[Exception] = []
        expected = self._try(model, *self._copied(args, kwargs), [])
        found = self._try(opens, *self._framework.build(*opened), failures)
        rounding, is_rounded = self._framework.rounding, self._is_rounded(opener.arrays)
        if expected is not None and (found is None or is_rounded or not _are_close(expected, found, rounding)):
            raise computes_of_data(held.whole.names, failures)

    def _is_rounded(self, arrays: Sequence[np.ndarray]) -> bool:
        """Whether rounding to the framework's type blurs some column, such as seconds since 1970.

        At a start, where scales are of order 1, the log-probabilities hardly show it; at a small scale they do.
        """
        narrowed = [(x, np.dtype(self._framework.operations.dtype(x.dtype))) for x in arrays if x.dtype.kind == "f"]
        narrowed = [(x, dtype) for x, dtype in narrowed if dtype.itemsize < x.dtype.itemsize and x.ndim and len(x)]
        return any((rounding_of(x, dtype) > MOST_ROUNDING).any() for x, dtype in narrowed)

    def _with_advice(
        self, error: ModelNotSplittableError, model: Callable[..., Any] | None, args: Args, kwargs: Kwargs
    ) -> ModelNotSplittableError:
        """The error, and what to do about tables where there are any."""
        named = zip(argument_names(model, len(args), kwargs), [*args, *kwargs.values()], strict=True)
        names = [name for name, value in named if self._opened(value).tables]
        return type(error)(f"{error}{tables_advice(names)}") if names else error

    def _names_of(
        self, is_such: Callable[[np.ndarray], bool], model: Callable[..., Any] | None, args: Args, kwargs: Kwargs
    ) -> list[str]:
        """Names of the arguments that hold such an array."""
        named = zip(argument_names(model, len(args), kwargs), [*args, *kwargs.values()], strict=True)
        return [name for name, value in named if any(map(is_such, self._opened(value).arrays))]

    def _opened(self, value: Any) -> Opener:
        opener = self._opener(Form())
        opener.open(value)
        return opener

    def _opener(self, form: Form) -> Opener:
        return Opener(self._framework.tree_map, self._framework.operations, form)

    def _first_that_runs(
        self, model: Callable[..., Any], args: Args, kwargs: Kwargs, opener: Opener
    ) -> tuple[Args, Kwargs, Form]:
        failures: list[Exception] = []
        is_numpy = not (opener.tables or opener.lists)
        tolerance = self._framework.rounding if is_numpy else TOLERANCE
        expected = self._try(model, *self._copied(args, kwargs), [])
        is_rounded = is_numpy and self._is_rounded(opener.arrays)
        for form in _forms(opener):
            opened = _open(self._opener(form), args, kwargs)
            found = self._try(model, *self._framework.build(*opened), failures)
            if found is None:
                continue
            is_same = expected is None or (not is_rounded and _are_close(expected, found, tolerance))
            if is_same and self._is_same_with_arrays_of_rows(model, opened, expected):
                return *opened, form
        if expected is None and not opener.tables:
            return *_open(self._opener(Form()), args, kwargs), Form()  # the model raises its own error again
        names = [
            name
            for name, value in zip(argument_names(model, len(args), kwargs), [*args, *kwargs.values()], strict=True)
            if self._must_be_converted(value)
        ]
        if is_numpy:
            raise computes_of_data(names, failures) from (failures[0] if failures else None)
        raise must_be_converted(names, failures) from (failures[0] if failures else None)

    def _is_same_with_arrays_of_rows(
        self, model: Callable[..., Any], opened: tuple[Args, Kwargs], expected: dict[str, np.ndarray] | None
    ) -> bool:
        """Whether the model computes the same when its lists of N numbers are arrays, as they are once rows are cut.

        The number of rows is taken to be the largest length of an axis of the log-probabilities.
        """
        num_rows = max((n for x in (expected or {}).values() for n in x.shape), default=0)
        replaced: list[Given] = []

        def replace(x: Any) -> Any:
            if not (isinstance(x, Given) and len(x.original) == num_rows):
                return x
            replaced.append(x)
            return x.array

        args, kwargs = self._framework.tree_map(replace, opened)
        if not replaced or expected is None:
            return True
        found = self._try(model, *self._framework.build(args, kwargs), [])
        return found is not None and _are_close(expected, found, TOLERANCE)

    def _copied(self, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """Copies of a user's arguments, in which a model may change arrays in place."""
        return copied((args, kwargs), self._framework.tree_map)

    def _locked(self, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """A user's arguments as read-only views: a model that writes to an array fails. Nothing is copied."""
        return locked((args, kwargs), self._framework.tree_map)

    def _must_be_converted(self, value: Any) -> bool:
        opener = self._opened(value)
        return bool(opener.tables or opener.lists or opener.arrays)

    def _try(
        self, model: Callable[..., Any], args: Args, kwargs: Kwargs, failures: list[Exception]
    ) -> dict[str, np.ndarray] | None:
        """Log-probabilities of a model's sites at a start; None where the model fails, for whatever reason."""
        try:
            return self._framework.log_probs(model, args, kwargs)
        except Exception as error:
            failures.append(error)
            return None


def _open(opener: Opener, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    return tuple(map(opener.open, args)), {name: opener.open(x) for name, x in kwargs.items()}


def _forms(opener: Opener) -> list[Form]:
    lists = [True, False] if opener.lists else [True]
    return [Form(plain, own) for plain in ([True, False] if opener.tables else [True]) for own in lists]


def _are_close(expected: dict[str, np.ndarray], found: dict[str, np.ndarray], tolerance: float) -> bool:
    def is_close(name: str, a: np.ndarray, b: np.ndarray) -> bool:
        scale = max(1.0, np.max(np.abs(a[np.isfinite(a)]), initial=0.0)) if name.startswith(VALUE_OF) else 1.0
        return a.shape == b.shape and np.allclose(a, b, tolerance, tolerance * scale, equal_nan=True)

    return expected.keys() == found.keys() and all(is_close(name, x, found[name]) for name, x in expected.items())


def is_masked(x: np.ndarray) -> bool:
    """Whether an array of NumPy hides some of its entries."""
    return bool(np.ma.is_masked(x))


def must_be_converted(names: Sequence[str], failures: Sequence[Exception]) -> ConversionError:
    """The error for a model that does not take, in place of a user's objects, the arrays that can be cut to rows.

    Args:
        names: names of the arguments that hold such objects.
        failures: errors of the model; none where it runs, but computes something else than with the objects themselves.
    """
    listed = ", ".join(map(repr, names))
    reason = f"the model fails with {first_line(failures[0])}" if failures else "the model then computes something else"
    return ConversionError(
        "data arguments that are no arrays of the framework must be such that the model takes arrays of it in their "
        f"place, got {listed} ({reason}); pass arrays, as in df['x'].to_numpy() or torch.tensor(x), and compute "
        "outside the model what needs the methods of another library"
    )


def computes_of_data(names: Sequence[str], failures: Sequence[Exception]) -> ConversionError:
    """The error for a model that computes something else with NumPy's arrays than with the framework's.

    Args:
        names: names of the arguments that hold such arrays.
        failures: errors of the model with the framework's arrays; none where it runs.
    """
    reason = "another log-density: they may have fewer bits, are not changed in place, and have methods such as std()"
    if failures:
        reason = f"{type(failures[0]).__name__} at {line_of_user(failures[0])}: {first_line(failures[0])}"
    return ConversionError(
        "what a model computes of its data must be the same with arrays of the framework in place of NumPy's, got "
        f"{', '.join(map(repr, names))} ({reason}); compute it outside the model with NumPy, and pass arrays of the "
        "framework, as in jnp.asarray(x) or torch.tensor(x)"
    )


def tables_advice(names: Sequence[str]) -> str:
    """Advice about arguments that hold objects of pandas, in a model that does not divide."""
    return (
        f"; what functions of pandas make of {', '.join(map(repr, names))} has all rows, not some: call them outside "
        "the model, and pass arrays, as in df['x'].to_numpy()"
    )
