"""In what form a model is given its data: the first in which it runs, computes what it should, and divides.

What a user has (lists, columns of pandas, arrays that the model holds) can be given to a model in several forms
(:class:`split_common.containers.Form`). Of those that concern arguments the first is taken in which the model runs; and
where the model also runs on the user's own objects, its log-probabilities must be the same as with them. So no method
is called that an array has too, and means otherwise (the standard deviation of pandas is not that of NumPy). Arrays
that the model holds become data where it does not divide without them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from split_common.containers import Form, Opener
from split_common.data_axes import argument_names
from split_common.errors import ModelNotSplittableError, first_line
from split_common.open_model import HELD, open_held
from split_common.tables import Operations

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Result = TypeVar("Result")
TOLERANCE = 1e-4  # relative, of a log-probability in float32


class Framework(NamedTuple):
    """Operations of a framework on arguments.

    Attributes:
        tree_map: its map over containers, with ``is_leaf``.
        operations: what it does with arrays and columns.
        is_numpy: whether its arrays have the methods of NumPy's.
        is_array: whether a leaf is one of its arrays, and data.
        build: from opened arguments to those that a model is given.
        log_probs: of a model's sites at a start, from arguments of the model; raises whatever the model does.
    """

    tree_map: Callable[..., Any]
    operations: Operations
    is_numpy: bool
    is_array: Callable[[Any], bool]
    build: Callable[[Args, Kwargs], tuple[Args, Kwargs]]
    log_probs: Callable[[Callable[..., Any], Args, Kwargs], dict[str, np.ndarray]]


class Forms:
    """Finds the form in which a model is given its data.

    Args:
        framework: in which the model is written.
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
            form: in what form the model is given them; None to find out.

        Returns:
            The arguments, for the framework's ``Arguments``, and the form.

        Raises:
            ValueError: where the model takes columns of pandas in no form, naming the arguments.
        """
        opener = self._opener(form or Form())
        opened_args, opened_kwargs = _open(opener, args, kwargs)
        if model is not None and form is not None and form.held:
            held = open_held(model, opener, self._framework.is_array)
            opened_kwargs |= {} if held is None else {HELD: held}
        is_clear = bool(opener.sources) or not (opener.tables or opener.lists or self._differ(opener))
        if model is None or form is not None or is_clear:  # of a source no model is run on all rows to try
            return opened_args, opened_kwargs, form or Form()
        return self._first_that_runs(model, args, kwargs, opener)

    def divide(
        self,
        model: Callable[..., Any] | None,
        args: Args,
        kwargs: Kwargs,
        divide: Callable[[Args, Kwargs, Form], Result],
        last: Form | None = None,
    ) -> Result:
        """Result for the first form in which a model divides: without the arrays that it holds, or with them.

        Args:
            model: the user's model; None for a potential, which has none.
            args: positional arguments, as the user has them.
            kwargs: keyword arguments, likewise.
            divide: from arguments taken apart, and their form.
            last: the form in which the model was divided last, which is tried first.

        Raises:
            ModelNotSplittableError: where it divides in neither.
        """
        opened_args, opened_kwargs, form = self.open(model, args, kwargs)

        def plain() -> Result:
            return divide(opened_args, opened_kwargs, form)

        def held() -> Result:
            held_args, held_kwargs, held_form = self.open(model, args, kwargs, form._replace(held=True))
            if HELD not in held_kwargs:
                raise ModelNotSplittableError("the model holds no arrays")
            return divide(held_args, held_kwargs, held_form)

        attempts = [plain, held]
        first, second = attempts[::-1] if last is not None and last.held else attempts
        try:
            return first()
        except ModelNotSplittableError as error:
            try:
                return second()
            except Exception:
                raise self._with_advice(error, model, args, kwargs) from None

    def _with_advice(
        self, error: ModelNotSplittableError, model: Callable[..., Any] | None, args: Args, kwargs: Kwargs
    ) -> ModelNotSplittableError:
        """The error, and what to do about tables where there are any."""
        named = zip(argument_names(model, len(args), kwargs), [*args, *kwargs.values()], strict=True)
        names = [name for name, value in named if self._opened(value).tables]
        return type(error)(f"{error}{tables_advice(names)}") if names else error

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
        expected = self._try(model, args, kwargs, [])
        for form in _forms(opener):
            opened = _open(self._opener(form), args, kwargs)
            found = self._try(model, *self._framework.build(*opened), failures)
            if found is not None and (expected is None or _are_close(expected, found)):
                return *opened, form
        if expected is None and not opener.tables:
            return *_open(self._opener(Form()), args, kwargs), Form()  # the model's own error comes up again
        names = [
            name
            for name, value in zip(argument_names(model, len(args), kwargs), [*args, *kwargs.values()], strict=True)
            if self._must_be_converted(value)
        ]
        raise must_be_converted(names, failures) from (failures[0] if failures else None)

    def _differ(self, opener: Opener) -> bool:
        """Whether arrays of NumPy were met that the framework's own are not like."""
        return bool(opener.arrays) and not self._framework.is_numpy

    def _must_be_converted(self, value: Any) -> bool:
        opener = self._opened(value)
        return bool(opener.tables or opener.lists or self._differ(opener))

    def _try(
        self, model: Callable[..., Any], args: Args, kwargs: Kwargs, failures: list[Exception]
    ) -> dict[str, np.ndarray] | None:
        """Log-probabilities of a model's sites at a start; None where it fails, for whatever reason of its own."""
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


def _are_close(expected: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> bool:
    def is_close(a: np.ndarray, b: np.ndarray) -> bool:
        return a.shape == b.shape and np.allclose(a, b, TOLERANCE, TOLERANCE, equal_nan=True)

    return expected.keys() == found.keys() and all(is_close(x, found[name]) for name, x in expected.items())


def must_be_converted(names: Sequence[str], failures: Sequence[Exception]) -> ValueError:
    """The error for a model that does not take, in place of a user's objects, the arrays that can be cut to rows.

    Args:
        names: of the arguments that hold such objects.
        failures: of the model; none where it runs, but computes something else than with the objects themselves.
    """
    listed = ", ".join(map(repr, names))
    reason = f"the model fails with {first_line(failures[0])}" if failures else "the model then computes something else"
    return ValueError(
        "data arguments that are no arrays of the framework must be such that the model takes arrays of it in their "
        f"place, got {listed} ({reason}); pass arrays, as in df['x'].to_numpy() or torch.tensor(x), and compute "
        "outside the model what needs the methods of another library"
    )


def tables_advice(names: Sequence[str]) -> str:
    """Advice about arguments that hold objects of pandas, in a model that does not divide."""
    return (
        f"; what functions of pandas make of {', '.join(map(repr, names))} has all rows, not some: call them outside "
        "the model, and pass arrays, as in df['x'].to_numpy()"
    )
