"""One public model on data of ours, and what the split has to do with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.public_models.origin import Origin

RIGHT, REFUSED = "right", "refused"


@dataclass(frozen=True)
class Case:
    """A model, its arguments and what is expected of the split.

    Attributes:
        host: "numpyro" or "pyro".
        path: of the file in the host's repository.
        model: name of the definition, or what makes the model from the file's definitions.
        arguments: from the file's definitions, the model's arguments (:func:`call`).
        num_subsets: M.
        expected: ``RIGHT`` or ``REFUSED``.
        words: a regular expression that a refusal's message must match.
        which: which of several definitions of that name.
        plate: the data plate, where it has to be named.
        data_axes: the axes of the rows, where they have to be named.
        keep: names of assignments in the file that its definitions need.
        given: values of global names that the file makes of its data.
        label: tells apart two cases of one model.
        by_logarithm: sites without a variance, such as of a half-Cauchy prior, whose logarithms are compared with the
            host's: a mean of such values has no standard error.
        num_samples: draws that a chain starts with, where posteriors are compared.
        target_accept_prob: of both kernels, where posteriors are compared; nearer to 1 for a funnel, in whose stiff
            part a chain with steps that suit the rest stays for hundreds of draws, and reports divergences.
        bits: of numbers; 64 where 32 leave the host's own potential too coarse to compare.
    """

    host: str
    path: str
    model: str | Callable[[Origin], Any]
    arguments: Callable[[Origin], tuple[tuple[Any, ...], dict[str, Any]]]
    num_subsets: int = 1
    expected: str = RIGHT
    words: str = ""
    which: int = -1
    plate: str | None = None
    data_axes: dict[str, int | None] | None = None
    keep: tuple[str, ...] = ()
    given: dict[str, Any] = field(default_factory=dict)
    label: str = ""
    by_logarithm: tuple[str, ...] = ()
    num_samples: int = 1000
    target_accept_prob: float = 0.8
    bits: int = 32

    @property
    def name(self) -> str:
        """File, model and M, by which the test is called."""
        model = self.model if isinstance(self.model, str) else ""
        return ":".join(part for part in (self.path, model, self.label, f"M={self.num_subsets}") if part)

    @property
    def divides(self) -> bool:
        """Whether the model divides over rows."""
        return self.num_subsets > 1 and self.expected == RIGHT

    def build(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """The model, its positional and its keyword arguments.

        Raises:
            Unavailable: where the host's file, or something that it needs, is not on this machine.
        """
        origin = Origin(self.path, self.keep, self.given)
        model = origin.definition(self.model, self.which) if isinstance(self.model, str) else self.model(origin)
        return model, *self.arguments(origin)


def call(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a model, as they stand in its call."""
    return args, kwargs
