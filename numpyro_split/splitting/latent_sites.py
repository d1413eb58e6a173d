"""What the host's own initialisation tells of a model's latent sites: sizes, supports and a position."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import biject_to
from numpyro.handlers import seed
from numpyro.infer.util import ModelInfo, constrain_fn, initialize_model, unconstrain_fn

from numpyro_split.host import GIBBS_SITES
from numpyro_split.potential.arguments import Arguments, Data
from numpyro_split.potential.densities import ModelDensity
from numpyro_split.potential.host_density import HostDensity
from numpyro_split.potential.model_rows import RowSelectableModel, bounds_of
from numpyro_split.potential.position import Position
from numpyro_split.potential.row_block import RowBlock
from numpyro_split.potential.sources import first_rows, is_source
from numpyro_split.potential.tracing import reads_inputs
from split_common.selection import NUMBERED
from split_common.start import made_nan, no_finite_start


class Initialisation(NamedTuple):
    """The host's initialisation of a model, on some of its rows.

    Attributes:
        model: the model.
        strategy: the host's strategy for a starting point.
        mode: how rows are selected.
        num_rows: N.
    """

    model: RowSelectableModel
    strategy: Callable[..., Any]
    mode: str
    num_rows: int

    def on(self, rows: np.ndarray, rng_key: jax.Array, density: ModelDensity | HostDensity, data: Data) -> ModelInfo:
        """The host's initialisation on these rows, with a starting point of finite density for each key.

        Statistics of few rows, as a column's deviation, may be degenerate; all rows are then tried too.
        """
        try:
            return self._on(jnp.asarray(rows), rng_key, density, data)
        except (RuntimeError, ValueError) as error:
            has_sources, has_all = any(map(is_source, data)), len(rows) == self.num_rows
            if has_sources or has_all or not ("valid initial" in str(error) or "got invalid" in str(error)):
                raise
            return self._on(jnp.arange(self.num_rows), rng_key, density, data)

    def _on(self, rows: jax.Array, rng_key: jax.Array, density: ModelDensity | HostDensity, data: Data) -> ModelInfo:
        if self.mode == NUMBERED:  # the model may also use these numbers to look up entries of the cut arrays
            rows = jnp.arange(len(rows))
        args, kwargs = density.rows(data, RowBlock(rows))
        return initialize_model(
            rng_key,
            self.model,
            init_strategy=self.strategy,
            dynamic_args=True,
            model_args=args,
            model_kwargs=kwargs,
            validate_grad=False,  # gradients are compared by the exactness check
        )


class LatentSites(NamedTuple):
    """The latent sites of a model, by one initialisation.

    Attributes:
        position: a point with a finite density on some rows, the same for any key.
        transforms: the host's transform of unconstrained values, by site.
        has_dynamic_supports: whether a support may depend on other values of the model.
        potential_fn: from the model's arguments to the host's potential.
        postprocess_fn: from the model's arguments to the host's map from a position to constrained values and
            deterministic sites.
    """

    position: Position
    transforms: dict[str, Any]
    has_dynamic_supports: bool
    potential_fn: Callable[..., Any] | None
    postprocess_fn: Callable[..., Any] | None

    @classmethod
    def of(cls, info: ModelInfo, model: RowSelectableModel, has_discrete: bool) -> LatentSites:
        """The latent sites of this initialisation of a model, with or without discrete sites."""
        z = as_arrays(info.param_info.z)
        supports = {name: info.model_trace[name]["fn"].support for name in z}
        is_dynamic = any(_depends_on_values(support) for support in supports.values())
        postprocess_fn = info.postprocess_fn
        if is_dynamic and not has_discrete:
            postprocess_fn = partial(_at_position, model)  # the host overlooks supports made of others
        transforms = {name: biject_to(support) for name, support in supports.items()}
        return cls(z, transforms, is_dynamic, info.potential_fn, postprocess_fn)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of the unconstrained values at each site."""
        return {name: u.shape for name, u in self.position.items()}


NOT_LEARNED = LatentSites({}, {}, False, None, None)


@contextmanager
def starts_explained(arguments: Arguments) -> Iterator[None]:
    """Name the columns that are at fault where no starting point is found."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        columns = ((name, first_rows(x)) for name, x in arguments.named_arrays())  # copied only for a message
        if "valid initial parameters" in str(error):
            raise no_finite_start(columns) from error
        if "distribution got invalid" in str(error) and (of_data := made_nan(columns)):
            raise of_data from error
        raise


def as_arrays(z: Mapping[str, Any]) -> Position:
    """A position as floating-point arrays of 32 bits at least: the host passes on what an init strategy may give."""
    wide = partial(jnp.promote_types, jnp.float32)
    return {name: jnp.asarray(u, wide(jnp.result_type(u, float))) for name, u in z.items()}


def unconstrained_by(model: RowSelectableModel, *args: Any, **kwargs: Any) -> Callable[[Position], Position]:
    """The map from constrained values of the latent sites to a position, by running the model there."""
    return partial(unconstrain_fn, seed(model, 0), args, kwargs)


def _at_position(model: RowSelectableModel, *args: Any, **kwargs: Any) -> Callable[[Position], Any]:
    """The map from a position to the values of the model's sites, by running the model there."""
    return partial(constrain_fn, seed(model, 0), args, kwargs, return_deterministic=True)


def check_supports_of_block(split: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise where a support depends on a site of another block of the host's ``Gibbs``, as the host itself does.

    Args:
        split: the split of the block's model, conditioned on the sites of other blocks.
        args: the model's positional arguments.
        kwargs: its keyword arguments, with the values of these sites.
    """
    z = split.reference_position

    def value_of(name: str, sites: dict[str, Any]) -> jax.Array:
        return split.constrain_fn(args, {**kwargs, GIBBS_SITES: sites})(z)[name]

    names = [name for name in z if reads_inputs(partial(value_of, name), kwargs[GIBBS_SITES])]
    if names:
        raise ValueError(
            f"the supports of sites {names} must not depend on sites of other blocks of Gibbs, got a model in which "
            "they do: give these sites to the same block"
        )


def _depends_on_values(support: Any) -> bool:
    """Whether a bound of the support is not a plain number, and so may depend on other values of the model."""
    return any(not isinstance(bound, int | float) for bound in bounds_of(support))
