"""Predictions at new rows and log-likelihoods of the data for all draws, in the memory of a few draws and rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.infer import MCMC
from pyro.infer.autoguide.initialization import init_to_value
from pyro.poutine.condition_messenger import ConditionMessenger
from torch import Tensor

from pyro_split.host import Subsample, has_draws, plate_of, unvalidated
from pyro_split.inference_data import Observations, posterior_of_run, row_block, tensors
from pyro_split.kernels.host_kernel import SplitKernel
from pyro_split.potential.arguments import Arguments
from pyro_split.potential.forms import FORMS
from pyro_split.potential.host_density import WHOLE
from pyro_split.potential.running import tensors_for_arrays
from pyro_split.splitting.model_split import ModelSplit
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
        >>> import torch, pyro, pyro.distributions as dist
        >>> from pyro.infer import MCMC
        >>> from pyro_split import SplitHMC
        >>> from pyro_split.runs.prediction import log_likelihood
        >>> def model(y):
        ...     mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        ...     with pyro.plate("data", y.shape[0]):
        ...         pyro.sample("y", dist.Normal(mu, 1.0), obs=y)
        >>> mcmc = MCMC(SplitHMC(model, num_subsets=2), warmup_steps=200, num_samples=500, disable_progbar=True)
        >>> mcmc.run(torch.tensor([1.2, -0.3, 0.8, 0.1]))
        >>> log_likelihood(mcmc)["y"].shape
        (1, 500, 4)
    """
    batch = check_positive_int("draws_per_batch", draws_per_batch)
    check_free(into, LOG_LIKELIHOOD)
    check_reported(getattr(mcmc, "kernel", mcmc), SplitKernel)
    if mcmc.transforms is None:
        raise ValueError("mcmc must have been run, or continued from its store, got one that has not")
    if draws is None and not has_draws(mcmc):
        raise ValueError("draws must be given for a run that holds none, got None")
    posterior = posterior_of_run(mcmc) if draws is None else Posterior.of(draws)
    observations = Observations.of(mcmc)
    grid = observations.grid(batch)
    found = collected(
        observations.pieces(posterior, grid), posterior, grid, observations.row_axes, LOG_LIKELIHOOD, into
    )
    found.attrs["split"] = str(observations.verdict)
    if target := mcmc.kernel._method.target:
        found.attrs[TARGET] = target
        warn_of_target(target)
    return found


def predict(
    model: Callable[..., Any],
    draws: Any,
    *args: Any,
    data_axes: dict[str, int | None] | None = None,
    into: str | os.PathLike[str] | None = None,
    draws_per_batch: int = DRAWS_PER_BATCH,
    rows_per_batch: int = 10_000,
    **kwargs: Any,
) -> Any:
    """Predict what a model observes at new rows, some draws and some rows at a time.

    Every random site of the model that is neither observed nor among the draws is predicted, as by Pyro's
    ``Predictive``. Predictions do not depend on ``draws_per_batch``, except for rounding; random draws do depend on
    ``rows_per_batch``, because each block of rows has random numbers of its own. All seeds are derived from one number
    that is drawn from torch's generator. Rows must be independent of one another given the parameters, as in training;
    a value that mixes rows but does not depend on parameters, such as a column mean for centring, is computed from all
    the rows that are given here, not from those of the training data.

    Args:
        model: a Pyro model whose observations lie in a plate over the rows.
        draws: its posterior, in ArviZ's format (``InferenceData``, ``DataTree`` or ``Dataset``), which may be read from
            a store as it is needed.
        *args: the model's positional arguments, without observations, as in ``model(X, y=None)``.
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
        >>> import numpy as np, torch, pyro, pyro.distributions as dist, xarray
        >>> from pyro_split.runs.prediction import predict
        >>> def model(X, y=None):
        ...     w = pyro.sample("w", dist.Normal(0.0, 1.0))
        ...     with pyro.plate("data", X.shape[0]):
        ...         pyro.sample("y", dist.Normal(w * X, 0.5), obs=y)
        >>> draws = xarray.Dataset({"w": (("chain", "draw"), np.array([[1.0, 3.0]]))})
        >>> X = torch.tensor([0.0, 1.0, 2.0])
        >>> predict(model, draws, X)["y"].shape
        (1, 2, 3)
        >>> found = predict(model, draws, X, into="summaries")["y"]
        >>> found["mean"].values, found["aleatoric"].values, found["epistemic"].values
        (array([0., 2., 4.]), array([0.25, 0.25, 0.25]), array([0., 1., 4.]))
    """
    check_callable("model", model)
    options = Options.checked(draws, into, draws_per_batch, rows_per_batch)

    def divide(opened: tuple[Any, ...], named: dict[str, Any], form: Form) -> Predictor:
        return Predictor.of(model, options, opened, named, data_axes)

    origin = int(torch.randint(2**62, ()))
    with torch.random.fork_rng():
        predictor = FORMS.divide(model, args, kwargs, divide, advice="")
    read = _moments if options.is_summary else _value
    return options.collect(
        predictor.pieces(read, origin, options.posterior), predictor.target, predictor.grid, predictor.verdict
    )


class Draw(NamedTuple):
    """One draw of the posterior.

    Attributes:
        sites: values of the latent sites.
    """

    sites: dict[str, Tensor]


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
            return poutine.condition(self.__wrapped__, given.sites)(*args, **kwargs)
        with _Observing(self._target, given):
            return self.__wrapped__(*args, **kwargs)


class _Observing(ConditionMessenger):
    """Gives a model its observations, on the rows that its plate yields."""

    def __init__(self, target: Target, values: dict[str, Tensor]):
        axes = target.row_axes
        self._given = {name: x.movedim(0, axes[name]) for name, x in values.items()}
        super().__init__(self._given)
        self._target, self._values = target, values

    def _pyro_post_sample(self, msg: Any) -> None:
        """Select the observations of the rows that the plate yields, where it does not yield all of them."""
        if isinstance(msg["fn"], Subsample) and plate_of(msg) == self._target.plate:
            for name, x in self._values.items():
                if len(x) != len(msg["value"]):
                    self._given[name] = x[msg["value"]].movedim(0, self._target.row_axes[name])


class Predictor:
    """Predictions of a model at some draws and some rows of the data that it was given.

    Args:
        target: what it predicts.
        split: how it divides over the rows.
        args: the model's positional arguments, opened.
        kwargs: its keyword arguments, likewise.
        grid: how draws and rows are divided.
    """

    def __init__(self, target: Target, split: ModelSplit, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Grid):
        self.target, self.grid, self.verdict = target, grid, str(split.verdict)
        self._density = split._density(args, kwargs)

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
        first = tensors(options.posterior.first(), arguments.data)
        found = _sites_at(OpenModel(model), first, arguments)
        lengths = lengths_of_rows([(name, tuple(x.shape)) for name, x in arguments.named_arrays()], axes)
        target = Target.of(*_described(found), options.posterior, lengths)
        draw = {name: first[name] for name in target.latents}
        values = {name: found[name]["value"].movedim(target.row_axes[name], 0) for name in target.sites}
        kwargs = {**kwargs, GIVEN: values}
        split = _divided(Predicting(OpenModel(model), target), args, kwargs, target, options, draw, axes)
        whole = bool(split.verdict.held) or split.mode == WHOLE
        grid = Grid.of(target.num_rows, options.rows_per_batch, options.draws_per_batch, whole)
        return cls(target, split, args, kwargs, grid)

    def pieces(self, read: Callable[[dict[str, Any]], Any], origin: int, posterior: Posterior) -> Iterator[Piece]:
        """Values read from the predicted sites, at all draws and rows.

        Args:
            read: function from a site to arrays.
            origin: number from which the seeds of the predictive distribution's draws are derived.
            posterior: the draws.
        """
        density = self._density
        for batch in posterior.batches(self.grid.draws_per_batch):
            draws = tensors(posterior.read(self.target.latents, batch), density.arguments.data)
            for rows in self.grid.blocks:
                args, kwargs = density.rows_of(density.arguments.data, row_block(rows).indices)
                found: list[dict[str, Any]] = []
                for i in range(batch.stop - batch.start):
                    draw = Draw({name: x[i] for name, x in draws.items()})
                    with torch.no_grad(), torch.random.fork_rng(), poutine.block(), unvalidated():
                        torch.manual_seed(_seed(origin, batch.before + i, rows.first))
                        model_trace: Any = poutine.trace(density.model).get_trace(*args, **{**kwargs, GIVEN: draw})
                        found.append({name: read(model_trace.nodes[name]) for name in self.target.sites})
                yield Piece(batch, rows, {name: _stacked([x[name] for x in found]) for name in self.target.sites})


def _seed(origin: int, draw: int, first_row: int) -> int:
    """A seed for each draw at a block of rows, whichever draws are evaluated with it."""
    return int(np.random.SeedSequence([origin, draw, first_row]).generate_state(1, np.uint64)[0])


def _stacked(found: list[Any]) -> Any:
    """Arrays of one draw each, with the draws first."""
    if isinstance(found[0], np.ndarray):
        return np.stack(found)
    return type(found[0])(*(np.stack(columns) for columns in zip(*found, strict=True)))


def _sites_at(model: OpenModel, draw: dict[str, Tensor], arguments: Arguments) -> dict[str, Any]:
    """The sample sites of a model at a draw on all rows, plates among them."""
    args, kwargs = arguments.build(arguments.data)
    with torch.no_grad(), torch.random.fork_rng(), poutine.block(), unvalidated(), tensors_for_arrays():
        with poutine.trace() as traced, _Latents(draw):
            model(*args, **kwargs)
    nodes: Any = traced.trace.nodes
    return {name: site for name, site in nodes.items() if site["type"] == "sample"}


class _Latents(ConditionMessenger):
    """Gives latent sites of a model their values where the shapes fit, and marks every unobserved site as latent."""

    def __init__(self, values: dict[str, Tensor]):
        super().__init__(values)
        self._values = values

    def _pyro_sample(self, msg: Any) -> None:
        if not msg["is_observed"]:
            msg["infer"]["_is_latent"] = True
            value = self._values.get(msg["name"])
            if value is not None and msg["fn"].shape() == value.shape:
                super()._pyro_sample(msg)


def _described(found: dict[str, Any]) -> tuple[list[PredictedSite], dict[str, int]]:
    """The sample sites, and sizes of the plates."""
    sites, sizes = [], {}
    for name, site in found.items():
        fn = site["fn"]
        if isinstance(fn, Subsample):
            sizes[str(plate_of(site))] = fn.size
            continue
        plates = {frame.name: frame.dim for frame in site["cond_indep_stack"]}
        sizes = {frame.name: frame.full_size or frame.size for frame in site["cond_indep_stack"]} | sizes
        observed = not site["infer"].get("_is_latent")
        sites.append(PredictedSite(name, observed, plates, tuple(fn.batch_shape), tuple(fn.event_shape)))
    return sites, sizes


def _divided(
    model: Predicting,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    target: Target,
    options: Options,
    draw: dict[str, Tensor],
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
            jit_compile=True,
            batch_sizes=lambda num_rows: {rows},
        )
    except ModelNotSplittableError as error:
        raise cannot_divide(error, target.num_rows, rows) from error


def _value(site: dict[str, Any]) -> np.ndarray:
    """A draw of a site."""
    return site["value"].numpy(force=True)


def _moments(site: dict[str, Any]) -> Probabilities | Moments:
    """Class probabilities of a site's distribution, or else its mean and variance."""
    fn: Any = site["fn"]
    base, shape = fn, fn.shape()
    while isinstance(base, dist.Independent | dist.MaskedDistribution | dist.ExpandedDistribution):
        base = base.base_dist
    is_binary = isinstance(base, dist.Bernoulli)
    if is_binary or isinstance(base, dist.Categorical):
        probs: Any = base.probs
        classes = torch.stack([1.0 - probs, probs], -1) if is_binary else probs
        return Probabilities(classes.expand(*shape, classes.shape[-1]).numpy(force=True))
    try:
        mean, variance = fn.mean, fn.variance
    except (NotImplementedError, AttributeError) as error:
        raise no_moments(site["name"], type(base).__name__) from error
    return Moments(mean.expand(shape).numpy(force=True), variance.expand(shape).numpy(force=True))
