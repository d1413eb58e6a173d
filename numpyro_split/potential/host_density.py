r"""The host's own potential as a density of one subset, for models that do not divide: M = 1 runs them as they are.

.. math:: -U(z) = \log p(z) + \ell(z)

with :math:`\log p` the latent sites, Jacobians included, and :math:`\ell` whatever is observed, factors included: the
kernels for hierarchical models draw precisions given the first alone. Nothing is cut, so both are on all arguments.

Where the host sums discrete latent sites out ("enumeration"), what follows the first of them in the model may depend on
it, and so may the steps of a scan. Then :math:`\log p` are the latent sites before it, outside scans, and :math:`\ell`
is the host's potential of the model without these sites' terms: a factor of every summand, which comes out of the sum.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpyro.handlers import seed, substitute, trace
from numpyro.primitives import Messenger

from numpyro_split.host import names_of_jacobian, unconstrain_reparam
from numpyro_split.potential.arguments import Arguments, Data
from numpyro_split.potential.model_rows import RowSelectableModel, Site, Trace, log_prob_of, samples_of
from numpyro_split.potential.position import Position
from numpyro_split.potential.precision import full_precision
from numpyro_split.potential.readings import Readings
from numpyro_split.potential.row_block import RowBlock
from split_common.subsets import SubsetLayout

WHOLE = "whole"
WITHOUT_KWARG = "_without_terms_of_sites"


def whole_model(model: Callable[..., Any], readings: Readings | None = None) -> RowSelectableModel:
    """The user's model, on all of its arguments, with a reserved keyword for sites whose terms are left out."""
    return RowSelectableModel(_ModelWithoutTerms(model), "", readings)  # a name that no plate has


class _ModelWithoutTerms:
    """A model with the keyword ``WITHOUT_KWARG``; a class at module level, so that kernels pickle."""

    def __init__(self, model: Callable[..., Any]):
        self.model = model

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model."""
        with _WithoutTerms(kwargs.pop(WITHOUT_KWARG, frozenset())):
            return self.model(*args, **kwargs)


class _WithoutTerms(Messenger):
    """Sets the log-probabilities of some sites to zero."""

    def __init__(self, names: frozenset[str]):
        super().__init__(None)
        self.names = names

    def process_message(self, msg: dict[str, Any]) -> None:
        """Mask the site if it is one of them."""
        if msg["type"] == "sample" and msg["name"] in self.names:
            msg["fn"] = msg["fn"].mask(False)


class Parts(NamedTuple):
    """Which terms of the potential are the prior's, and where the rest comes from.

    Attributes:
        prior_sites: names of latent sites, and of their Jacobians.
        enumerated: the host's potential, as a function of the arguments that returns one of a position, where it sums
            over discrete sites; else None.
    """

    prior_sites: frozenset[str] = frozenset()
    enumerated: Callable[..., Any] | None = None

    @classmethod
    def of(cls, sites: list[Site], potential_fn: Callable[..., Any] | None) -> Parts:
        """Parts of a model with these sites, in its order; the function is the host's (``dynamic_args=True``)."""
        names, is_enumerated = [], any(site.discrete for site in sites)
        for site in sites:
            if site.discrete:
                break
            if not site.observed and not (is_enumerated and site.in_loop):
                names += [site.name, *names_of_jacobian(site.name)]
        return cls(frozenset(names), potential_fn if is_enumerated else None)


class HostDensity:
    """The log-density of a NumPyro model that is not divided.

    Args:
        model: the user's model.
        arguments: how to put the model's arguments together from data arrays.
        program: digest of what the model computes (:mod:`numpyro_split.potential.content`).
        parts: which terms are the prior's.
    """

    plate: str | None = None
    mode = WHOLE
    num_blocks = 1
    shards = None
    forward_mode = False
    local_axes: dict[str, int] = {}  # noqa: RUF012

    def __init__(self, model: RowSelectableModel, arguments: Arguments, program: str, parts: Parts):
        self.model, self.layout, self.program, self.parts = model, SubsetLayout(1, 1), program, parts
        self.arguments = arguments.replace(())

    def __hash__(self) -> int:
        """Equal densities compute the same: one bound anew to similar data finds its compiled functions again."""
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HostDensity) and self._key == other._key

    @property
    def _key(self) -> tuple[Any, ...]:
        places = self.forward_mode, self.parts.prior_sites, self.parts.enumerated is None
        return self.program, self.model.key_of_values, *places, self.arguments.structure

    def for_program(self, program: str) -> HostDensity:
        """A copy whose computation is known to have the digest ``program``."""
        density = copy.copy(self)
        density.program = program
        return density

    def row_axes(self, data: Data) -> list[int | None]:
        """None for every array, as no array is cut."""
        return [None] * len(data)

    @full_precision
    def prior(self, z: Position, data: Data) -> list[jax.Array]:
        """Terms of the latent sites."""
        return [log_prob_of(site) for site in self.prior_sites(z, data).values()]

    def prior_sites(self, z: Position, data: Data) -> Trace:
        """The latent sites and their Jacobians, whose log-probabilities are the terms of :meth:`prior`."""
        return {site["name"]: site for site in self._sites(z, data) if self._is_prior(site)}

    @full_precision
    def block(
        self, z: Position, data: Data, m: jax.Array, b: jax.Array | int, filled: jax.Array | None = None
    ) -> list[jax.Array]:
        """All terms but the prior's."""
        if self.parts.enumerated is None:
            return [log_prob_of(site) for site in self._sites(z, data) if not self._is_prior(site)]
        args, kwargs = self.arguments.build(data)
        potential = self.parts.enumerated(*args, **{**kwargs, WITHOUT_KWARG: self.parts.prior_sites})
        return [-jnp.asarray(potential(z))]

    @full_precision
    def pointwise(self, z: Position, data: Data, indices: jax.Array) -> jax.Array:
        """All terms but the prior's, as those of the only row."""
        terms = self.block(z, data, jnp.array(0), 0)
        return jnp.full(indices.shape, sum((jnp.sum(term) for term in terms), jnp.zeros(())))

    def for_outside(self, data: Data) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The model's arguments, whole."""
        return self.arguments.build(data)

    def rows(self, data: Data, block: RowBlock) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The model's arguments, whole: no rows are cut."""
        return self.arguments.build(data)

    def hold(self, data: Data) -> Data:
        """The data, unchanged: nothing is held."""
        return data

    def readable(self, model_trace: Trace) -> Trace:
        """The sites of a trace that do not depend on a discrete one."""
        if self.parts.enumerated is None:
            return model_trace
        return {name: site for name, site in model_trace.items() if name in self.parts.prior_sites}

    def _is_prior(self, site: dict[str, Any]) -> bool:
        return site["name"] in self.parts.prior_sites

    def _sites(self, z: Position, data: Data) -> list[dict[str, Any]]:
        args, kwargs = self.arguments.build(data)
        model = self.model if self.parts.enumerated is None else seed(self.model, jax.random.key(0))
        unconstrained = substitute(model, substitute_fn=lambda site: unconstrain_reparam(z, site))
        return samples_of(trace(unconstrained).get_trace(*args, **kwargs))
