"""Forms of a model's log-density terms as functions of its precisions, read off its expression, a jaxpr.

:mod:`split_common.conjugacy` says what is made of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from numpyro_split.host import GIBBS_SITES, names_of_jacobian
from numpyro_split.potential.arguments import Arguments, Data
from numpyro_split.potential.flat_program import FlatProgram
from numpyro_split.potential.model_rows import log_prob_of
from numpyro_split.potential.position import Position
from numpyro_split.splitting.divided_model import DividedModel
from numpyro_split.splitting.row_independence import place_of
from split_common.conjugacy import PARAMETERS, SUPPORT, Free, Log, Other, Term, Value, result

FAMILIES = {dist.Normal: "Normal", dist.Gamma: "Gamma", dist.Chi2: "Gamma", dist.InverseGamma: "InverseGamma"}
WRAPPERS = {dist.Independent, dist.ExpandedDistribution, dist.MaskedDistribution}
SAME = {"broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "rev", "slice", "dynamic_slice", "gather"}
SAME |= {"copy", "copy_p"}


def read_terms(
    split: DividedModel, args: tuple[Any, ...], kwargs: dict[str, Any], precisions: Sequence[str]
) -> list[Term]:
    """The terms of a model's log-density outside the data plate; nothing is evaluated.

    Args:
        split: how the model divides.
        args: the model's positional arguments.
        kwargs: its keyword arguments.
        precisions: names of the sites that are asked about.
    """
    sites_at, data = split.prior_sites(args, kwargs)
    said: dict[str, dict[str, str]] = {}

    def run(z: Position, data: Data) -> dict[str, dict[str, Any]]:
        sites = sites_at(z, data)
        said.update({name: _in_words(site, z) for name, site in sites.items()})
        return {name: _in_numbers(site) for name, site in sites.items()}

    z = split.reference_position
    expression, outputs = jax.make_jaxpr(run, return_shape=True)(z, data)
    inputs = [Log(name, 1.0) if name in precisions else Free(fixed=False) for name in sorted(z)]
    # sites of other blocks of the host's Gibbs are data that move
    moves = [name.startswith(GIBBS_SITES) for name, _ in Arguments(args, kwargs).named_arrays()]
    values = follow(FlatProgram(expression), [*inputs, *(Free(fixed=not moving) for moving in moves)])
    known = jax.tree.unflatten(jax.tree.structure(outputs), values)
    return [
        Term(**said[name], log_density=x.pop("log_density"), value=x.pop("value"), parameters=x)
        for name, x in known.items()
    ]


def _in_words(site: dict[str, Any], z: Position) -> dict[str, str]:
    fn, under = site["fn"], "" if site["scale"] is None else "a scale"
    while type(fn) in WRAPPERS:
        fn, under = fn.base_dist, "a mask" if type(fn) is dist.MaskedDistribution else under
    family = FAMILIES.get(type(fn), type(fn).__name__)
    name, is_factor = site["name"], type(fn) is dist.Unit
    of_support = {jacobian: latent for latent in z for jacobian in names_of_jacobian(latent)}
    if is_factor and name in of_support:
        return {"site": of_support[name], "kind": SUPPORT, "family": family, "under": under}
    kind = "factor" if is_factor else "observed site" if site["is_observed"] else "site"
    return {"site": name, "kind": kind, "family": family, "under": under}


def _in_numbers(site: dict[str, Any]) -> dict[str, Any]:
    fn = site["fn"]
    while type(fn) in WRAPPERS:
        fn = fn.base_dist
    parameters = PARAMETERS.get(FAMILIES.get(type(fn), ""), ())
    said = {name: getattr(fn, name) for name in parameters} | {"log_density": log_prob_of(site), "value": site["value"]}
    return {name: jnp.asarray(x) for name, x in said.items()}


def follow(program: FlatProgram, inputs: Sequence[Value]) -> list[Value]:
    """Propagate what is known of a program's inputs to its outputs."""
    known: dict[int, Value] = {number: _constant(x) for number, x in program.constants.items()}
    known.update(zip(program.inputs, inputs, strict=True))
    for step in program.steps:
        found = _operation(step.name, step.equation.params, [known[i] for i in step.inputs])
        if isinstance(found, Other) and not found.where:
            found = found._replace(where=place_of(step.caller))
        known.update(dict.fromkeys(step.outputs, found))
    return [known[i] for i in program.outputs]


def _operation(name: str, params: dict[str, Any], operands: list[Value]) -> Value:
    """Propagate what is known of an operation's operands to its results."""
    if name == "integer_pow":
        return result("pow", [*operands, Free(number=float(params["y"]))])
    is_same = name in SAME or (name == "convert_element_type" and jnp.issubdtype(params["new_dtype"], jnp.inexact))
    return result("same" if is_same else name, operands)


def _constant(x: Any) -> Free:
    """Knowledge of a literal number or array in an expression."""
    dtype = getattr(x, "dtype", np.dtype(float))
    is_key = jnp.issubdtype(dtype, jax.dtypes.prng_key)  # of a model that is seeded
    if is_key or np.size(x) != 1 or dtype.kind not in "iuf":
        return Free()
    return Free(number=float(np.asarray(x).item()))
