"""How models are run and traced: eagerly at a chain's start, in one thread at a time, and in branches of few chains."""

from __future__ import annotations

import functools
import os
import re
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jax.sharding import AbstractMesh, PartitionSpec

from numpyro_split.host import dce_jaxpr

ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # address of a function in the text of a jaxpr

Function = TypeVar("Function", bound=Callable[..., Any])

# NumPyro keeps its handlers in one stack for the whole process, so two threads that trace a model at once disturb each
# other; compiled programs may run meanwhile.
_HANDLERS = threading.RLock()


def one_thread_at_a_time(function: Function) -> Function:
    """Have a function that runs a model wait for other threads that do."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        with _HANDLERS:
            return function(*args, **kwargs)

    return guarded  # type: ignore[return-value]


def updated_if(needed: jax.Array, update: Callable[[], Any], old: Any) -> Any:
    """``update()`` where it is needed, else ``old``, a tree of the same form.

    As ``lax.cond``, for branches that vectorised chains decide one by one: ``lax.cond`` would evaluate both branches
    for every chain, with a copy for each of all that the branch reads, the data included. A loop of at most one pass
    is run only if some chain needs it, and its constants stay shared.
    """
    once = jnp.zeros((), bool)
    return lax.while_loop(lambda state: state[0], lambda _: (once, update()), (needed, old))[1]


def eagerly() -> AbstractContextManager[Any]:
    """Context in which operations on concrete values are evaluated eagerly, even while the host traces.

    Used only where something is being traced, as at the start of parallel chains: JAX then compiles every operation on
    known values separately, even inside jitted functions.
    Where chains are divided over one axis of a mesh and rows over another, the mesh is left out of the context too:
    values that lie on the whole mesh belong to no single chain.
    """
    if not isinstance(jnp.zeros(()), Tracer):
        return nullcontext()
    context = ExitStack()
    context.enter_context(jax.ensure_compile_time_eval())
    if undivided_axes():
        context.enter_context(jax.sharding.use_abstract_mesh(AbstractMesh((), ())))
    return context


def undivided_axes() -> set[str]:
    """Axes of the mesh that are left to JAX in a program that ``shard_map`` divides along other axes."""
    context = jax.sharding.get_abstract_mesh()
    return set(context.axis_names) - set(context.manual_axes) if context.manual_axes else set()


def constants_once(tree: Any) -> Any:
    """The same tree, whose arrays are constants of the program that is being traced, each held by it once.

    XLA copies a constant into every loop and branch that reads it, which would make data some nine times as large.
    """
    if not isinstance(jnp.zeros(()), Tracer):  # evaluated eagerly, arrays would be copied
        return tree

    def once(x: Any) -> Any:
        return lax.optimization_barrier(x) if isinstance(x, jax.Array) and not isinstance(x, Tracer) else x

    return jax.tree.map(once, tree)


WARNINGS_VARIABLE = "SPLIT_MCMC_WARNINGS"  # "report" in this environment variable leaves warnings to the report


def call_back(function: Callable[..., None], *operands: Any) -> None:
    """Make a compiled program call a Python function, such as a warning, with the values of its operands.

    JAX keeps no program that calls back in its persistent cache, and the chain is the program that takes longest to
    compile. So with ``SPLIT_MCMC_WARNINGS=report`` in the environment nothing is called.

    Raises:
        ValueError: for another value of that variable.
    """
    chosen = os.environ.get(WARNINGS_VARIABLE)
    if chosen not in (None, "report"):
        raise ValueError(f"{WARNINGS_VARIABLE} must be 'report' or not set, got {chosen!r}")
    if chosen is None:
        always_call_back(function, *operands)


def always_call_back(function: Callable[..., None], *operands: Any) -> None:
    """Like :func:`call_back`, whatever the environment says.

    XLA supports no callback in a program that ``shard_map`` divides along some axes of a mesh only, as it divides one
    over chains whose rows lie along another axis. So there the call is divided along all axes, and each device calls,
    with one more number, since XLA takes no divided call without operands.
    """
    if not (axes := undivided_axes()):
        jax.debug.callback(function, *operands)
        return
    call = partial(jax.debug.callback, lambda _, *told: function(*told))
    alike = PartitionSpec()
    jax.shard_map(call, in_specs=alike, out_specs=alike, axis_names=axes, check_vma=False)(jnp.zeros(()), *operands)


def reads_inputs(function: Callable[[Any], Any], inputs: Any) -> bool:
    """Whether the results of a function depend on its inputs, by its jaxpr, which is not evaluated."""
    expression = jax.make_jaxpr(function)(inputs).jaxpr
    used = dce_jaxpr(expression, [True] * len(expression.outvars))[1]
    return any(used)
