"""Table 4.4 of Lau (2018): seven priors on the weights out of the hidden layer, by the generalised No-U-Turn sampler.

Weights into the hidden layer are N(0, 1) in every row. ARD gives each hidden unit a scale of its own for the weights
that leave it, besides the layer's one where there is one. All hierarchical priors are sampled non-centred; the thesis
has a product r₁√r₂ of two variables for each half-Cauchy scale, which has the same law.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from benchmarks.common.numpyro_models import Position
from benchmarks.papers.lau_2018.digits import (
    HIDDEN,
    TARGET_ACCEPT_PROB,
    Paper,
    Row,
    logits,
    parse_options,
    run_table,
)
from numpyro_split import SplitNUTS

SLAB_CONCENTRATION, SLAB_RATE = 2.0, 8.0  # of the Inv-Gamma on c², squared scale of a weight that is not shrunk
PAPER = {
    "normal": Paper(23.4, 358, 1348),
    "normal-inv-gamma": Paper(26.8, 440, 1298),
    "normal ARD": Paper(24.0, 574, 1220),
    "RHS": Paper(37.8, 151, 911),
    "RHS ARD": Paper(30.8, 334, 1354),
    "HS": Paper(41.0, 4, 80),
    "HS ARD": Paper(33.6, 349, 1356),
}


def _normal(shape: tuple[int, ...]) -> jax.Array:
    return jnp.ones(shape)


def _inverse_gamma(shape: tuple[int, ...], units: bool) -> jax.Array:
    """Standard deviations whose precisions are Gamma(½, ½), one for the layer or one for each unit."""
    group = (shape[0], 1) if units else (1, 1)
    precision = numpyro.sample("precision", dist.Gamma(0.5, 0.5).expand(group).to_event(2))
    return jnp.asarray(precision) ** -0.5


def _horseshoe(shape: tuple[int, ...], units: bool, slab: bool) -> jax.Array:
    """λτ with half-Cauchy λ for each weight, or each unit, and τ; with a slab, λ is held below c/τ."""
    group = (shape[0], 1) if units else shape
    local = jnp.asarray(numpyro.sample("local", dist.HalfCauchy(1.0).expand(group).to_event(2)))
    whole = jnp.asarray(numpyro.sample("whole", dist.HalfCauchy(1.0)))
    if not slab:
        return local * whole
    c2 = jnp.asarray(numpyro.sample("slab", dist.InverseGamma(SLAB_CONCENTRATION, SLAB_RATE)))
    return local * whole * jnp.sqrt(c2 / (c2 + (whole * local) ** 2))


SCALES: dict[str, Callable[[tuple[int, ...]], jax.Array]] = {
    "normal": _normal,
    "normal-inv-gamma": partial(_inverse_gamma, units=False),
    "normal ARD": partial(_inverse_gamma, units=True),
    "RHS": partial(_horseshoe, units=False, slab=True),
    "RHS ARD": partial(_horseshoe, units=True, slab=True),
    "HS": partial(_horseshoe, units=False, slab=False),
    "HS ARD": partial(_horseshoe, units=True, slab=False),
}


def network(name: str, x: jax.Array, y: jax.Array) -> None:
    """The network of a row; its weights are kept as deterministic sites."""
    shape = (HIDDEN, 10)
    hidden = numpyro.sample("hidden", dist.Normal(jnp.zeros((64, HIDDEN)), 1.0).to_event(2))
    white = jnp.asarray(numpyro.sample("white", dist.Normal(jnp.zeros(shape), 1.0).to_event(2)))
    output = numpyro.deterministic("output", white * SCALES[name](shape))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Categorical(logits=logits({"hidden": hidden, "output": output}, x)), obs=y)


def weights(draws: Position) -> Position:
    """The two groups of weights among the draws."""
    return {name: draws[name] for name in ("hidden", "output")}


def rows() -> list[Row]:
    """The thesis's rows in its order."""
    return [
        Row(
            name,
            paper,
            partial(SplitNUTS, partial(network, name), target_accept_prob=TARGET_ACCEPT_PROB),
            ("tree_depth",),
            weights,
        )
        for name, paper in PAPER.items()
    ]


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    run_table(rows(), parse_options(__doc__, arguments))


if __name__ == "__main__":
    main()
