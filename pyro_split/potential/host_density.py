r"""The host's own potential as a density of one subset, for models that do not divide: M = 1 runs them as they are.

.. math:: -U(z) = \log p(z) + \ell(z)

with :math:`\log p` the latent sites, Jacobians included, and :math:`\ell` whatever is observed, factors included: the
kernels for hierarchical models draw precisions given the first alone. Nothing is cut, so both are on all arguments.

Where the host sums discrete latent sites out ("enumeration"), what follows the first of them in the model may depend on
it. Then :math:`\log p` are the latent sites before it, and :math:`\ell` is the host's sum for the model without these
sites' terms: a factor of every summand, which comes out of the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from pyro import poutine
from pyro.infer import config_enumerate
from pyro.infer.mcmc.util import TraceEinsumEvaluator
from torch import Tensor

from pyro_split.host import unvalidated
from pyro_split.potential.arguments import Arguments, Data
from pyro_split.potential.model_rows import Site, check_observed, log_prob_shape, sample_sites
from pyro_split.potential.position import Position
from pyro_split.potential.row_block import RowBlock
from split_common.subsets import SubsetLayout

WHOLE = "whole"


class Parts(NamedTuple):
    """Which terms of the potential are the prior's, and where the rest comes from.

    Attributes:
        prior_sites: names of latent sites.
        evaluator: the host's sum over discrete sites; None where there are none.
        depth: number of dimensions that plates take.
    """

    prior_sites: frozenset[str] = frozenset()
    evaluator: TraceEinsumEvaluator | None = None
    depth: int = 0

    @classmethod
    def of(cls, sites: list[Site], model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Parts:
        """Parts of a model with these sites, in its order."""
        first = next((place for place, site in enumerate(sites) if site.discrete), len(sites))
        prior_sites = frozenset(site.name for site in sites[:first] if not site.observed)
        if first == len(sites):
            return cls(prior_sites)
        depth = max((-(dim or 0) for site in sites for dim in site.plates.values()), default=0)
        with poutine.block(), torch.random.fork_rng(), unvalidated():
            model_trace = poutine.trace(enumerated(model, depth)).get_trace(*args, **kwargs)
            return cls(prior_sites, TraceEinsumEvaluator(model_trace, True, depth), depth)


def enumerated(model: Callable[..., Any], depth: int) -> Callable[..., Any]:
    """The model with a dimension for each discrete latent site, left of those of its plates."""
    return poutine.enum(config_enumerate(model), first_available_dim=-1 - depth)


class HostDensity:
    """The log-density of a Pyro model that is not divided.

    Args:
        model: the user's model.
        arguments: how to put the model's arguments together from data tensors.
        transforms: for each latent site, the transform to unconstrained values.
        parts: which terms are the prior's.
    """

    plate: str | None = None
    mode = WHOLE
    local_axes: dict[str, int] = {}  # noqa: RUF012

    def __init__(self, model: Callable[..., Any], arguments: Arguments, transforms: dict[str, Any], parts: Parts):
        self.model, self.layout, self.arguments = model, SubsetLayout(1, 1), arguments
        self.transforms, self.parts = transforms, parts
        self._run = model if parts.evaluator is None else enumerated(model, parts.depth)

    @property
    def row_axes(self) -> list[int | None]:
        """None for each tensor: nothing is divided."""
        return [None] * len(self.arguments.data)

    def prior(self, z: Position, data: Data) -> Tensor:
        """Terms of the latent sites, Jacobians included."""
        model_trace, constrained = self._trace(z, data)
        names = self.parts.prior_sites
        return _log_prob(model_trace, names) + self._jacobians(z, constrained, names)

    def prior_sites(self, z: Position, data: Data) -> dict[str, Any]:
        """The latent sites, whose log-probabilities are the terms of :meth:`prior`, with these."""
        model_trace, names = self._trace(z, data)[0], self.parts.prior_sites
        _log_prob(model_trace, names)
        return {name: site for name, site in sample_sites(model_trace).items() if name in names}

    def likelihood(self, z: Position, data: Data, indices: Tensor) -> Tensor:
        """All terms but the prior's."""
        names, evaluator = self.parts.prior_sites, self.parts.evaluator
        if evaluator is None:
            model_trace, _ = self._trace(z, data)
            return _log_prob(model_trace, sample_sites(model_trace).keys() - names)
        model_trace, constrained = self._trace(z, data)
        for name in names:  # zeros in place of the prior's terms, since the host's evaluator reads every site
            site = model_trace.nodes[name]
            site["log_prob"] = site["unscaled_log_prob"] = torch.zeros(log_prob_shape(site["fn"], site["value"]))
        with unvalidated():
            total = torch.as_tensor(evaluator.log_prob(model_trace)).sum(dtype=torch.float64)
        return total + self._jacobians(z, constrained, z.keys() - names)

    def pointwise(self, z: Position, data: Data, indices: Tensor) -> Tensor:
        """All terms but the prior's, as those of the only row."""
        return self.likelihood(z, data, indices).expand(len(indices))

    def hold(self, data: Data) -> Data:
        """The data, unchanged: nothing is held."""
        return data

    def take(self, data: Data, block: RowBlock) -> Data:
        """The data, unchanged: no rows are cut."""
        return data

    def rows_of(self, data: Data, indices: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The model's arguments, whole: no rows are cut."""
        return self.arguments.build(data)

    def for_outside(self, values: Position, data: Data, axes: Mapping[str, int]) -> tuple[Position, Any, Any]:
        """Values of the latent sites, unchanged, and the model's arguments, whole."""
        return values, *self.arguments.build(data)

    def sites_at(self, z: Position, indices: Tensor) -> dict[str, Any]:
        """The model's sample sites at a position that do not depend on a discrete one."""
        sites = sample_sites(self._trace(z, self.arguments.data)[0])
        if self.parts.evaluator is None:
            return sites
        return {name: site for name, site in sites.items() if name in self.parts.prior_sites}

    def check_observed(self, z: Position) -> None:
        """Have distributions check their arguments and observations at a position.

        Raises:
            ValueError: the distribution's own.
        """
        constrained = {name: self.transforms[name].inv(u) for name, u in z.items()}
        args, kwargs = self.arguments.build(self.arguments.data)
        check_observed(poutine.condition(self.model, constrained), args, kwargs, constrained)

    def _jacobians(self, z: Position, constrained: Position, names: Any) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for name, u in z.items():
            if name in names:
                total = total - self.transforms[name].log_abs_det_jacobian(constrained[name], u).sum(
                    dtype=torch.float64
                )
        return total

    def _trace(self, z: Position, data: Data) -> tuple[Any, Position]:
        """The model's trace at a position, and the position constrained."""
        args, kwargs = self.arguments.build(data)
        constrained = {name: self.transforms[name].inv(u) for name, u in z.items()}
        with poutine.block(), unvalidated():
            return poutine.trace(poutine.condition(self._run, constrained)).get_trace(*args, **kwargs), constrained


def _log_prob(model_trace: Any, names: Any) -> Tensor:
    """Sum of the log-probabilities of some sites."""
    with unvalidated():
        model_trace.compute_log_prob(lambda name, site: name in names)
    terms = (model_trace.nodes[name]["log_prob"].sum(dtype=torch.float64) for name in names)
    return sum(terms, torch.zeros((), dtype=torch.float64))
