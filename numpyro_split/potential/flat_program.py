"""A traced function as a flat list of operations, in which calls of jitted functions are written out.

Values are numbered in the order in which they come up, so that two functions which do the same on arrays of other
lengths have the same numbers. Loops, conditionals and functions with derivatives of their own stay single operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jax.extend.core import Literal

WRITTEN_OUT = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr"}


class Step(NamedTuple):
    """One operation.

    Attributes:
        equation: the equation of the jaxpr.
        inputs: number of each operand.
        outputs: number of each result.
        caller: the equation itself, or the outermost call that it was written out of. It knows the line of the model:
            JAX keeps what it traced of a jitted function, with the line that called it first.
    """

    equation: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    caller: Any

    @property
    def name(self) -> str:
        """Name of the operation."""
        return self.equation.primitive.name


class FlatProgram:
    """The operations of a closed jaxpr, or of an open one without constants.

    Attributes:
        inputs: numbers of the arguments.
        constants: value of each constant and literal, by its number.
        steps: the operations, in order.
        outputs: numbers of the results.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> program = FlatProgram(jax.make_jaxpr(lambda x: jax.jit(jnp.square)(x).sum())(jnp.ones(3)))
        >>> [step.name for step in program.steps]
        ['square', 'reduce_sum']
        >>> [float(x) for x in program.evaluate([jnp.arange(3.0)])]
        [5.0]
    """

    def __init__(self, jaxpr: Any):
        self.constants: dict[int, Any] = {}
        self.steps: list[Step] = []
        self._count = 0
        inner, constants = _open(jaxpr)
        self.inputs = [self._number() for _ in inner.invars]
        self.outputs = self._write_out(inner, constants, self.inputs)

    def evaluate(self, inputs: Sequence[Any], given: Mapping[int, Any] | None = None) -> list[Any]:
        """The results, computed from arguments and from values that are known already.

        Args:
            inputs: the arguments.
            given: values by number, in place of what would be computed.
        """
        return self.values(self.outputs, dict(zip(self.inputs, inputs, strict=True)) | dict(given or {}))

    def values(self, wanted: Sequence[int], given: Mapping[int, Any]) -> list[Any]:
        """Some values, computed from given ones; operations that they do not depend on are left out.

        Args:
            wanted: numbers of the values.
            given: values by number, the arguments among them where they are needed.
        """
        known = {**self.constants, **given}
        for step in self.needed(wanted, given):
            results = _carry_out(step.equation, [known[i] for i in step.inputs])
            # given values are kept: one may be among several results of an operation
            known.update((i, x) for i, x in zip(step.outputs, results, strict=True) if i not in given)
        return [known[i] for i in wanted]

    def needed(self, wanted: Iterable[int], given: Iterable[int] = ()) -> list[Step]:
        """The operations that some values depend on, where others are given."""
        given, open_ends, steps = set(given), set(wanted), []
        for step in reversed(self.steps):
            if open_ends.intersection(step.outputs).difference(given):
                open_ends.update(step.inputs)
                steps.append(step)
        return steps[::-1]

    def _write_out(
        self, jaxpr: Any, constants: Sequence[Any], arguments: Sequence[int], caller: Any = None
    ) -> list[int]:
        """Append a jaxpr's operations; the numbers of its results."""
        numbers = dict(zip(jaxpr.invars, arguments, strict=True))
        for var, value in zip(jaxpr.constvars, constants, strict=True):
            numbers[var] = self._constant(value)

        def number_of(atom: Any) -> int:
            return self._constant(atom.val) if isinstance(atom, Literal) else numbers[atom]

        for equation in jaxpr.eqns:
            inputs = tuple(number_of(atom) for atom in equation.invars)
            parameter = WRITTEN_OUT.get(equation.primitive.name)
            if parameter is None:
                outputs = tuple(self._number() for _ in equation.outvars)
                self.steps.append(Step(equation, inputs, outputs, caller or equation))
            else:
                outputs = tuple(self._write_out(*_open(equation.params[parameter]), inputs, caller or equation))
            numbers.update(zip(equation.outvars, outputs, strict=True))
        return [number_of(atom) for atom in jaxpr.outvars]

    def _constant(self, value: Any) -> int:
        number = self._number()
        self.constants[number] = value
        return number

    def _number(self) -> int:
        self._count += 1
        return self._count - 1


def _open(jaxpr: Any) -> tuple[Any, Sequence[Any]]:
    """A jaxpr and its constants."""
    return (jaxpr.jaxpr, jaxpr.consts) if hasattr(jaxpr, "consts") else (jaxpr, ())


def _carry_out(equation: Any, operands: Sequence[Any]) -> Sequence[Any]:
    """The results of one operation."""
    primitive = equation.primitive
    params = primitive.get_bind_params(equation.params)
    functions, params = params if isinstance(params, tuple) else ((), params)  # JAX before 0.10 gives a pair
    with equation.ctx.manager:
        found = primitive.bind(*functions, *operands, **params)
    return found if primitive.multiple_results else [found]
