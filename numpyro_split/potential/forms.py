"""A model's arguments as a user has them, in JAX.

Arrays of NumPy, lists of numbers, columns of pandas and fields of dataclasses become JAX arrays, which are cut to some
rows and traced (:mod:`split_common.containers`, :mod:`split_common.forms`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import random
from jax.dtypes import canonicalize_dtype
from numpyro.handlers import seed, substitute, trace
from numpyro.infer.initialization import init_to_uniform

from numpyro_split.potential.arguments import Arguments, Data
from numpyro_split.potential.model_rows import log_prob_of
from numpyro_split.potential.precision import full_precision
from numpyro_split.potential.readings import UNREADABLE
from numpyro_split.potential.tracing import ADDRESS, eagerly
from split_common.containers import Opened
from split_common.forms import VALUE_OF, Forms, Framework
from split_common.tables import NUMBERS, Operations


def _build(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    arguments = Arguments(args, kwargs)
    return arguments.build(arguments.data)


@full_precision
def _log_probs(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, np.ndarray]:
    with eagerly():
        started = substitute(seed(model, random.key(0)), substitute_fn=init_to_uniform())
        found = {}
        for name, site in trace(started).get_trace(*args, **kwargs).items():
            if site["type"] == "sample" and (site["is_observed"] or not site["fn"].support.is_discrete):
                found[str(name)] = np.asarray(log_prob_of(site))
            elif site["type"] == "deterministic":
                leaves = enumerate(map(np.asarray, jax.tree.leaves(site["value"])))
                found |= {f"{VALUE_OF}{name}[{place}]": x for place, x in leaves if x.dtype.kind in NUMBERS}
        return found


def _is_alike(
    model: Callable[..., Any],
    own: tuple[tuple[Any, ...], dict[str, Any]],
    opened: tuple[tuple[Any, ...], dict[str, Any]],
) -> bool:
    """Whether a model runs the same operations on JAX arrays as on NumPy arrays; no row is evaluated.

    NumPy computes in 64 bits what JAX does in 32, refuses an index for which JAX takes the last entry, and changes in
    place what JAX copies.

    Raises:
        IndexError: for an index that NumPy refuses.
    """
    arguments = Arguments(*opened)
    try:
        expected = _operations(model, (), lambda data: own)
    except UNREADABLE:
        return False
    except IndexError:
        raise
    except Exception:  # whatever the model raises: its numbers are compared then, or it raises again
        return False
    try:
        return expected == _operations(model, arguments.data, arguments.build)
    except Exception:
        return False


def _operations(
    model: Callable[..., Any], data: Data, build: Callable[[Data], tuple[tuple[Any, ...], dict[str, Any]]]
) -> list[tuple[Any, ...]]:
    """The operations of a model in JAX: the name, parameters, literal operands and result types of each.

    Checks that differ for NumPy arrays are left out: whether values are in a support, and whether an index is negative.
    """

    def run(data: Data) -> list[jax.Array]:
        args, kwargs = build(data)
        started = substitute(seed(model, random.key(0)), substitute_fn=init_to_uniform())
        sites = trace(started).get_trace(*args, **kwargs)
        return [log_prob_of(site) for site in sites.values() if site["type"] == "sample"]

    with numpyro.validation_enabled(False):
        equations = jax.make_jaxpr(run)(data).jaxpr.eqns
    return [
        (
            equation.primitive.name,
            ADDRESS.sub("", str(equation.params)),
            [str(x) for x in equation.invars if hasattr(x, "val")],
            [str(x.aval) for x in equation.outvars],
        )
        for equation in equations
        if not _is_of_index(equation)
    ]


def _is_of_index(equation: Any) -> bool:
    """Whether an operation tests if an index is negative."""
    if equation.primitive.name != "lt":
        return False
    index, bound = equation.invars
    return str(getattr(bound, "val", None)) == "0" and jnp.issubdtype(index.aval.dtype, jnp.integer)


class Place:
    """The place of a container's part, as an element of a tree path.

    Args:
        text: text that shows it in messages.
    """

    def __init__(self, text: str):
        self._text = text

    def __str__(self) -> str:
        return self._text


def _with_keys(opened: Opened) -> tuple[list[tuple[Any, Any]], Any]:
    whole = opened.whole
    return [(Place(whole.path(name)), x) for name, x in zip(whole.names, opened.parts, strict=True)], whole


jax.tree_util.register_pytree_with_keys(
    Opened, _with_keys, lambda whole, parts: whole.build(parts), lambda opened: (opened.parts, opened.whole)
)

FORMS = Forms(
    Framework(
        tree_map=jax.tree.map,
        operations=Operations(
            # from a copy: JAX may share the memory of a NumPy array, and may keep what it once converted it to, so that
            # an array which is changed in place would be seen as it was, or be seen to change
            array=lambda x: jnp.asarray(x.copy()),
            listed=jnp.array,
            take=partial(jnp.take, axis=0),
            stack=partial(jnp.stack, axis=1),
            kind=jax.Array,
            dtype=canonicalize_dtype,
        ),
        is_alike=_is_alike,
        rounding=3e-3,  # of float32, in columns such as years or temperatures that a model standardises
        is_array=lambda x: isinstance(x, jax.Array),
        build=_build,
        log_probs=_log_probs,
    )
)
