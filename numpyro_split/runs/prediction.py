"""Predictions at new rows and log-likelihoods of the data for all draws, in the memory of a few draws and rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import random
from numpyro.handlers import condition, seed, substitute, trace
from numpyro.infer import MCMC
from numpyro.infer.initialization import init_to_value

from numpyro_split.host import has_draws
from numpyro_split.inference_data import Observations, posterior_of_run
from numpyro_split.kernels.host_kernel import SplitKernel
from numpyro_split.potential.arguments import Arguments, Data
from numpyro_split.potential.forms import FORMS
from numpyro_split.potential.host_density import WHOLE
from numpyro_split.potential.model_rows import samples_of
from numpyro_split.potential.readings import UNREADABLE
from numpyro_split.potential.row_block import RowBlock
from numpyro_split.splitting.model_split import ModelSplit
from split_common.checks import check_callable, check_positive_int
from split_common.containers import Form
from split_common.data_axes import check_data_axes
from split_common.errors import ModelNotSplittableError
from split_common.open_model import OpenModel
from split_common.report import TARGET, check_reported, warn_of_target
from split_common.runs.pointwise import (
    DRAWS_PER_BATCH,
    LOG_LIKELIHOOD,
    Grid,
    Piece,
    Posterior,
    check_free,
    collected,
    num_subsets_for,
)
from split_common.runs.prediction import (
    GIVEN,
    Moments,
    Options,
    PredictedSite,
    Probabilities,
    Target,
    cannot_divide,
    lengths_of_rows,
    no_moments,
)


def log_likelihood(
    mcmc: MCMC,
    draws: Any = None,
    *,
    into: str | os.PathLike[str] | None = None,
    draws_per_batch: int = DRAWS_PER_BATCH,
) -> Any:
    """Log-likelihood of every observation at every draw, some draws and the rows of one subset at a time.

    The numbers are those of ``to_inference_data(mcmc, log_likelihood=True)``. Written to the store of a run, they are
    found there by :func:`~split_common.runs.reading.open_store`, and ``az.loo`` takes what that returns. If
    the run has been extended since, the same call writes those of all draws in their place.

    Args:
        mcmc: a run with a kernel of this package.
        draws: draws of its model, in ArviZ's format (``InferenceData``, ``DataTree`` or ``Dataset``), which may be read
            from a store as they are needed; None for those that the run holds.
        into: path of a zarr store, where group ``log_likelihood`` is written; None for memory.
        draws_per_batch: draws that are evaluated together.

    Returns:
        ``xarray.Dataset`` with a variable for each observed site, of shape (chains, draws, rows, ...). In a store,
        numbers are read when they are used. The attribute ``split`` says whether the rows were proved to be independent
        of one another.

    Raises:
        TypeError: for a run of another package's kernel, draws that are not in ArviZ's format, or an ``into`` that is
            not a path.
        ValueError: for an ``mcmc`` that was not run, a run without a model, draws that are not those of its model, and
            a number out of range; as :class:`~split_common.errors.StoreError` for a store that holds log-likelihoods
            of its run's draws already, and for some draws only in the store of their run.

    Warns:
        UserWarning: for draws of another distribution than the posterior.

    Example:
        >>> import jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist
        >>> from numpyro.infer import MCMC
        >>> from numpyro_split import SplitHMC
        >>> from numpyro_split.runs.prediction import log_likelihood
        >>> def model(y):
        ...     mu = numpyro.sample("mu", dist.Normal(0, 1))
        ...     with numpyro.plate("data", y.shape[0]):
        ...         numpyro.sample("y", dist.Normal(mu, 1), obs=y)
        >>> mcmc = MCMC(SplitHMC(model, num_subsets=2), num_warmup=300, num_samples=500, progress_bar=False)
        >>> mcmc.run(jax.random.key(0), jnp.array([1.2, -0.3, 0.8, 0.1]))
        >>> log_likelihood(mcmc)["y"].shape
        (1, 500, 4)
    """
    batch = check_positive_int("draws_per_batch", draws_per_batch)
    check_free(into, LOG_LIKELIHOOD)
    check_reported(getattr(mcmc, "sampler", mcmc), SplitKernel)
    if mcmc.last_state is None:
        raise ValueError("mcmc must have been run, or continued from its store, got one that has not")
    if draws is None and not has_draws(mcmc):
        raise ValueError("draws must be given for a run that holds none, got None")
    posterior = posterior_of_run(mcmc) if draws is None else Posterior.of(draws)
    observations = Observations(mcmc)
    grid = observations.grid(batch)
    found = collected(
        observations.pieces(posterior, grid), posterior, grid, observations.row_axes, LOG_LIKELIHOOD, into
    )
    found.attrs["split"] = str(observations.verdict)
    if target := mcmc.sampler._method.target:
        found.attrs[TARGET] = target
        warn_of_target(target)
    return found


def predict(
    model: Callable[..., Any],
    draws: Any,
    *args: Any,
    rng_key: jax.Array,
    data_axes: dict[str, int | None] | None = None,
    into: str | os.PathLike[str] | None = None,
    draws_per_batch: int = DRAWS_PER_BATCH,
    rows_per_batch: int = 10_000,
    **kwargs: Any,
) -> Any:
    """Predict what a model observes at new rows, some draws and some rows at a time.

    Every random site of the model that is neither observed nor among the draws is predicted, as by NumPyro's
    ``Predictive``. Predictions do not depend on ``draws_per_batch``, except for rounding; random draws do depend on
    ``rows_per_batch``, because each block of rows has random numbers of its own. Rows must be independent of one
    another given the parameters, as in training; a value that mixes rows but does not depend on parameters, such as a
    column mean for centring, is computed from all the rows that are given here, not from those of the training data.

    Args:
        model: a NumPyro model whose observations lie in a plate over the rows.
        draws: its posterior, in ArviZ's format (``InferenceData``, ``DataTree`` or ``Dataset``), which may be read from
            a store as it is needed.
        *args: the model's positional arguments, without observations, as in ``model(X, y=None)``.
        rng_key: random key of the draws of the predictive distribution.
        data_axes: for each argument that holds rows, by name, the axis they lie along; one array inside an argument
            by its place, as "data['X']". None takes every array whose axis 0 has as many entries as there are rows.
        into: None for draws in memory; a path, to write them to group ``posterior_predictive`` of a zarr store; or
            "summaries" of each row's predictive distribution, without sampling it.
        draws_per_batch: draws that are evaluated together.
        rows_per_batch: rows that are evaluated together.
        **kwargs: the model's keyword arguments.

    Returns:
        For draws, ``xarray.Dataset`` with a variable for each predicted site, of shape (chains, draws, rows, ...); in a
        store, numbers are read when they are used. For summaries, a dict from each site to an ``xarray.Dataset`` with a
        value for each row: of Bernoulli and categorical sites ``probabilities`` of the classes, ``predictive_entropy``,
        ``expected_entropy`` and ``mutual_information``; of others ``mean``, ``aleatoric`` and ``epistemic`` variance,
        all as :mod:`split_common.metrics` defines them. The attribute ``split`` says whether the rows were proved to be
        independent of one another.

    Raises:
        TypeError: for a model that is not a function, draws that are not in ArviZ's format, or an ``into`` that is not
            a path.
        ValueError: for a site with an entry for each row among the draws, a latent site that is not among them, one of
            another shape, rows that are not independent, a number out of range, and a distribution without mean or
            variance where summaries are asked for; as :class:`~split_common.errors.StoreError` for a store that holds
            predictions already.

    Example:
        >>> import jax, jax.numpy as jnp, numpy as np, numpyro, numpyro.distributions as dist, xarray
        >>> from numpyro_split.runs.prediction import predict
        >>> def model(X, y=None):
        ...     w = numpyro.sample("w", dist.Normal(0, 1))
        ...     with numpyro.plate("data", X.shape[0]):
        ...         numpyro.sample("y", dist.Normal(w * X, 0.5), obs=y)
        >>> draws = xarray.Dataset({"w": (("chain", "draw"), np.array([[1.0, 3.0]]))})
        >>> X = jnp.array([0.0, 1.0, 2.0])
        >>> predict(model, draws, X, rng_key=jax.random.key(0))["y"].shape
        (1, 2, 3)
        >>> found = predict(model, draws, X, rng_key=jax.random.key(0), into="summaries")["y"]
        >>> found["mean"].values, found["aleatoric"].values, found["epistemic"].values
        (array([0., 2., 4.]), array([0.25, 0.25, 0.25]), array([0., 1., 4.]))
    """
    check_callable("model", model)
    options = Options.checked(draws, into, draws_per_batch, rows_per_batch)

    def divide(opened: tuple[Any, ...], named: dict[str, Any], form: Form) -> Predictor:
        return Predictor.of(model, options, opened, named, data_axes)

    predictor = FORMS.divide(model, args, kwargs, divide, advice="")
    read = _moments if options.is_summary else _value
    return options.collect(
        predictor.pieces(read, rng_key, options.posterior), predictor.target, predictor.grid, predictor.verdict
    )


BERNOULLI = (dist.BernoulliProbs, dist.BernoulliLogits)
CATEGORICAL = (dist.CategoricalProbs, dist.CategoricalLogits)


class Draw(NamedTuple):
    """One draw of the posterior.

    Attributes:
        sites: values of the latent sites.
        rng_key: random key of the sites that are drawn given them.
    """

    sites: dict[str, Any]
    rng_key: jax.Array


class Predicting:
    """A model with an additional argument, which gives it values of its sites.

    Args:
        model: the user's model, opened.
        target: what it predicts.
    """

    def __init__(self, model: OpenModel, target: Target):
        self.__wrapped__, self._target = model, target  # __wrapped__ gives this object the model's signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model: at a :class:`Draw`, or on observations by site, with rows first."""
        given = kwargs.pop(GIVEN)
        if isinstance(given, Draw):
            return seed(substitute(self.__wrapped__, data=given.sites), given.rng_key)(*args, **kwargs)
        return _Observing(self.__wrapped__, self._target, given)(*args, **kwargs)


class _Observing(condition):
    """Gives a model its observations, on the rows that its plate yields.

    Masks that are False are left out: a draw of a site does not know of them, but a log-density that they make constant
    would say nothing of how it depends on rows.
    """

    def __init__(self, model: Callable[..., Any], target: Target, values: dict[str, jax.Array]):
        axes = target.row_axes
        self._given: dict[str, Any] = {name: jnp.moveaxis(x, 0, axes[name]) for name, x in values.items()}
        super().__init__(model, data=self._given)
        self._target, self._values = target, values

    def process_message(self, msg: Any) -> None:
        """Observe a predicted site."""
        super().process_message(msg)
        if msg["type"] == "sample" and msg["name"] in self._given:
            msg["fn"] = _counted(msg["fn"])

    def postprocess_message(self, msg: Any) -> None:
        """Select the observations of the rows that the plate yields, where it does not yield all of them."""
        if msg["type"] == "plate" and msg["name"] == self._target.plate:
            for name, x in self._values.items():
                if len(x) != len(msg["value"]):
                    self._given[name] = jnp.moveaxis(x[msg["value"]], 0, self._target.row_axes[name])


def _counted(fn: Any) -> Any:
    """A distribution without masks that are False."""
    if isinstance(fn, dist.Independent):
        return _counted(fn.base_dist).to_event(fn.reinterpreted_batch_ndims)
    if isinstance(fn, dist.ExpandedDistribution):
        return _counted(fn.base_dist).expand(fn.batch_shape)
    return _counted(fn.base_dist) if isinstance(fn, dist.MaskedDistribution) and fn._mask is False else fn


class Predictor:
    """Predictions of a model at some draws and some rows of the data that it was given.

    Args:
        target: what it predicts.
        split: how it divides over the rows.
        data: its arguments.
        grid: how draws and rows are divided.
    """

    def __init__(self, target: Target, split: ModelSplit, data: Arguments, grid: Grid):
        self.target, self.grid, self.verdict = target, grid, str(split.verdict)
        self._density, self._data = split._density(data), data.data

    @classmethod
    def of(
        cls,
        model: Callable[..., Any],
        options: Options,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        data_axes: dict[str, int | None] | None,
    ) -> Predictor:
        """Examine a model with its opened arguments, and divide it.

        Args:
            model: the user's model.
            options: the draws, and how many of them and of the rows are evaluated together.
            args: positional arguments of the model.
            kwargs: keyword arguments.
            data_axes: the axis of the rows by argument; None to find them.

        Raises:
            ValueError: for what cannot be predicted.
            ModelNotSplittableError: where rows are not independent of one another.
        """
        arguments = Arguments(args, kwargs, model=model)
        axes = check_data_axes(data_axes, arguments.argument_names, [name for name, _ in arguments.named_arrays()])
        first = {name: jnp.asarray(x) for name, x in options.posterior.first().items()}
        sites, plate_sizes = _describe(OpenModel(model), first, arguments)
        lengths = lengths_of_rows([(name, x.shape) for name, x in arguments.named_arrays()], axes)
        target = Target.of(sites, plate_sizes, options.posterior, lengths)
        draw = {name: first[name] for name in target.latents}
        opened = Predicting(OpenModel(model), target)
        values = _possible_values(OpenModel(model), draw, target, arguments)
        kwargs = {**kwargs, GIVEN: values}
        split = _divided(opened, args, kwargs, target, options, draw, axes)
        whole = bool(split.verdict.held) or split.mode == WHOLE
        grid = Grid.of(target.num_rows, options.rows_per_batch, options.draws_per_batch, whole)
        return cls(target, split, Arguments(args, kwargs, split._row_axes), grid)

    def pieces(
        self, read: Callable[[dict[str, Any]], Any], rng_key: jax.Array, posterior: Posterior
    ) -> Iterator[Piece]:
        """Values read from the predicted sites, at all draws and rows.

        Args:
            read: function from a site to arrays.
            rng_key: random key of the draws of the predictive distribution.
            posterior: the draws.
        """
        density, target, size = self._density, self.target, self.grid.rows_per_block

        @jax.jit
        def predictions(keys: jax.Array, draws: dict[str, jax.Array], data: Data, start: jax.Array) -> dict[str, Any]:
            args, kwargs = density.rows(data, RowBlock(start + jnp.arange(size), start))

            def at(rng_key: jax.Array, draw: dict[str, jax.Array]) -> dict[str, Any]:
                model_trace = trace(density.model).get_trace(*args, **{**kwargs, GIVEN: Draw(draw, rng_key)})
                return {name: read(model_trace[name]) for name in target.sites}

            return jax.vmap(at)(keys, draws)

        for batch in posterior.batches(self.grid.draws_per_batch):
            draws = {name: jnp.asarray(x) for name, x in posterior.read(target.latents, batch).items()}
            for rows in self.grid.blocks:
                keys = _keys(rng_key, batch.before + np.arange(batch.stop - batch.start), rows.first)
                found = predictions(keys, draws, self._data, jnp.asarray(rows.start))
                yield Piece(batch, rows, jax.tree.map(np.asarray, found))


@jax.jit
def _keys(rng_key: jax.Array, draws: jax.Array, first_row: jax.Array) -> jax.Array:
    """A key for each draw at a block of rows, whichever draws are evaluated with it."""
    return jax.vmap(lambda draw: random.fold_in(random.fold_in(rng_key, draw), first_row))(draws)


def _describe(
    model: OpenModel, draw: dict[str, jax.Array], arguments: Arguments
) -> tuple[list[PredictedSite], dict[str, int]]:
    """The sample sites of a model at a draw, and sizes of its plates; no row is evaluated."""
    found: list[Any] = []

    def latent(site: dict[str, Any]) -> jax.Array | None:
        """The draw of a latent site, where it fits."""
        value = draw.get(site["name"]) if site["type"] == "sample" and not site["is_observed"] else None
        return value if value is not None and value.shape == site["fn"].shape() else None

    def run(data: Data) -> None:
        args, kwargs = arguments.build(data)
        sites = trace(seed(substitute(model, substitute_fn=latent), random.key(0))).get_trace(*args, **kwargs)
        samples = samples_of(sites)
        sizes = {frame.name: frame.size for site in samples for frame in site["cond_indep_stack"]}
        sizes |= {name: site["args"][0] for name, site in sites.items() if site["type"] == "plate"}
        found[:] = [[_described(site) for site in samples], sizes]

    _compiled_if_possible(run, arguments.data)
    return found[0], found[1]


def _compiled_if_possible(run: Callable[[Data], Any], data: Data) -> Any:
    """The result of a function of the data, compiled, so that nothing it does not depend on is computed.

    A model that reads values of its data with Python is run on the data without compilation.
    """
    try:
        return jax.jit(run)(data)
    except UNREADABLE:
        return run(data)


def _described(site: dict[str, Any]) -> PredictedSite:
    plates = {frame.name: frame.dim for frame in site["cond_indep_stack"]}
    return PredictedSite(
        site["name"], site["is_observed"], plates, tuple(site["fn"].batch_shape), tuple(site["fn"].event_shape)
    )


def _possible_values(
    model: OpenModel, draw: dict[str, jax.Array], target: Target, arguments: Arguments
) -> dict[str, jax.Array]:
    """A value of each predicted site at each row that its distribution allows, rows first; no row is evaluated."""

    def run(data: Data) -> dict[str, jax.Array]:
        args, kwargs = arguments.build(data)
        sites = trace(seed(substitute(model, data=draw), random.key(0))).get_trace(*args, **kwargs)
        found = {}
        for name in target.sites:
            fn, value = sites[name]["fn"], sites[name]["value"]
            possible = jnp.broadcast_to(fn.support.feasible_like(jnp.zeros(fn.shape())), fn.shape())
            found[name] = jnp.moveaxis(possible.astype(value.dtype), target.row_axes[name], 0)
        return found

    return _compiled_if_possible(run, arguments.data)


def _divided(
    model: Predicting,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    target: Target,
    options: Options,
    draw: dict[str, jax.Array],
    data_axes: dict[str, int | None] | None,
) -> ModelSplit:
    """How the model divides over rows when it is given observations; without them it divides in the same way."""
    rows = min(options.rows_per_batch, target.num_rows)
    try:
        return ModelSplit.find(
            model,
            args,
            kwargs,
            num_subsets=num_subsets_for(target.num_rows, rows),
            plate=target.plate,
            data_axes=None if data_axes is None else {**data_axes, GIVEN: 0},
            subset_order="shuffled",  # the order does not matter here, so no warning about sorted rows is wanted
            init_strategy=partial(init_to_value, values=draw),
            program=None,
            batch_sizes=lambda num_rows: {rows},
        )
    except ModelNotSplittableError as error:
        raise cannot_divide(error, target.num_rows, rows) from error


def _value(site: dict[str, Any]) -> jax.Array:
    """A draw of a site."""
    return site["value"]


def _moments(site: dict[str, Any]) -> Probabilities | Moments:
    """Class probabilities of a site's distribution, or else its mean and variance."""
    fn: Any = site["fn"]
    base, shape = fn, fn.shape()
    while isinstance(base, dist.Independent | dist.MaskedDistribution | dist.ExpandedDistribution):
        base = base.base_dist
    is_binary = isinstance(base, BERNOULLI)
    if is_binary or isinstance(base, CATEGORICAL):
        probs: Any = base.probs
        classes = jnp.stack([1.0 - probs, probs], -1) if is_binary else probs
        return Probabilities(jnp.broadcast_to(classes, (*shape, classes.shape[-1])))
    try:
        mean, variance = fn.mean, fn.variance
    except (NotImplementedError, AttributeError) as error:
        raise no_moments(site["name"], type(base).__name__) from error
    return Moments(jnp.broadcast_to(mean, shape), jnp.broadcast_to(variance, shape))
