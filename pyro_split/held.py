"""Giving a model what is held (:mod:`split_common.held`): operations are counted as they are run, and some replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from split_common.checks import ModelNotSplittableError
from split_common.held import HeldValue

Place = tuple[int, int]  # of a result: the operation's number, and which of its results


class HeldNumber(NamedTuple):
    """An argument of an operation, a number that depends on how many rows there are.

    Attributes:
        number: on all rows.
        what: the same in words, with its line in the model.
    """

    number: Any
    what: str


class Held(NamedTuple):
    """What a model's likelihood on some rows takes from all rows.

    Attributes:
        values: each value, by its place.
        numbers: of operations, by their number, the arguments that are numbers of all rows: name and value.
        num_steps: how many operations the likelihood has.
        position: a position on all rows, to run the likelihood at.
    """

    values: tuple[tuple[Place, HeldValue], ...] = ()
    numbers: tuple[tuple[int, tuple[tuple[str, Any], ...]], ...] = ()
    num_steps: int = 0
    position: tuple[tuple[str, Tensor], ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is."""
        return bool(self.values or self.numbers)


NOTHING_HELD = Held()


class Counting(TorchDispatchMode):
    """Numbers the operations that make tensors, in the order in which they are run.

    Attributes:
        num_steps: how many there were.
    """

    def __init__(self) -> None:
        super().__init__()
        self.num_steps = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation."""
        args, kwargs = self.arguments(func, args, kwargs or {})
        results = func(*args, **kwargs)
        if any(isinstance(x, Tensor) for x in pytree.tree_leaves(results)):
            results = self.results(results)
            self.num_steps += 1
        return results

    def arguments(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """What an operation is given."""
        return args, kwargs

    def results(self, results: Any) -> Any:
        """What is made of an operation's results."""
        return results


class Capture(Counting):
    """Keeps some results.

    Args:
        places: of the results.

    Attributes:
        found: the results, by their place.
    """

    def __init__(self, places: Sequence[Place]):
        super().__init__()
        self._open = set(places)
        self.found: dict[Place, Tensor] = {}

    def results(self, results: Any) -> Any:
        """Keep what is wanted; when nothing is any more, stop."""
        tensors = [x for x in pytree.tree_leaves(results) if isinstance(x, Tensor)]
        for place in [place for place in self._open if place[0] == self.num_steps]:
            self.found[place] = tensors[place[1]].detach().clone()
            self._open.remove(place)
        if not self._open:
            raise AllCapturedError
        return results


class AllCapturedError(Exception):
    """Ends a run that has given all that was wanted of it."""


class Replace(Counting):
    """Gives what is held in place of what is computed.

    Args:
        held: what is held.
        given: its values, cut to the rows that are there.
    """

    def __init__(self, held: Held, given: Sequence[Tensor]):
        super().__init__()
        self._held, self._numbers = held, dict(held.numbers)
        self._given = {place: x for (place, _), x in zip(held.values, given, strict=True)}

    def __exit__(self, *error: Any) -> None:
        """Raise where the model was another one than the one that was looked at."""
        super().__exit__(*error)
        if error[0] is None and self.num_steps != self._held.num_steps:
            raise ModelNotSplittableError(
                f"the model must run the same operations on every part of the rows, {self._held.num_steps} of them, "
                f"got {self.num_steps}"
            )

    def arguments(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Numbers as all rows have them."""
        numbers = dict(self._numbers.get(self.num_steps, ()))
        if not numbers:
            return args, kwargs
        names = [argument.name for argument in func._schema.arguments]
        return [numbers.get(name, x) for name, x in zip(names, args, strict=False)], kwargs | {
            name: x for name, x in numbers.items() if name in kwargs
        }

    def results(self, results: Any) -> Any:
        """Values as all rows have them."""
        leaves, form = pytree.tree_flatten(results)
        places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]
        for number, i in enumerate(places):
            leaves[i] = self._given.get((self.num_steps, number), leaves[i])
        return pytree.tree_unflatten(leaves, form)


def capture(run: Any, places: Sequence[Place]) -> list[Tensor]:
    """Some results of operations that a function runs.

    Args:
        run: a function without arguments.
        places: of the results.
    """
    if not places:
        return []
    counting = Capture(places)
    try:
        with torch.no_grad(), counting:
            run()
    except AllCapturedError:
        pass
    return [counting.found[place] for place in places]
