"""Running a model on some rows of its data plate, and reading off what each site contributes.

The user's model is never rewritten. A handler answers the plate's question "which rows?", so the model itself
evaluates exactly those rows; log-probabilities are then read site by site from the trace, each belonging to the
prior (outside the plate) or to the rows (inside it: observations, local latents with their Jacobians, factors).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import pyro
import torch
from pyro import poutine
from pyro.distributions import Independent, MaskedDistribution, Unit
from torch import Tensor
from torch.distributions.constraints import Constraint

from pyro_split.host import (
    AnyNumberOfRows,
    FakeTensor,
    FakeTensorMode,
    Subsample,
    is_functional,
    plate_of,
    unvalidated,
    validated,
)
from pyro_split.potential.capture import unlogged
from pyro_split.potential.readings import Readings
from pyro_split.potential.running import keeping_no_shapes, tensors_for_arrays
from split_common.errors import ModelNotSplittableError
from split_common.plates import Observation

ROWS_KWARG = "_rows_of_data_plate"
SELECTED = "rows_are_selected"  # set on a plate's message once a handler has chosen its rows


class SelectRows(AnyNumberOfRows):
    """Answers the data plate with given row indices, without the N/B scaling of stochastic methods.

    Args:
        plate: name of the data plate.
        indices: rows to take, shape (n,); None for all of them, also where the model asks for a subsample, in the order
            that the model gives, if it does.
    """

    def __init__(self, plate: str, indices: Tensor | None):
        super().__init__(plate)
        self.indices = indices

    def _pyro_sample(self, msg: Any) -> None:
        if isinstance(msg["fn"], Subsample) and plate_of(msg) == self.plate:
            if not msg.get(SELECTED, False):
                _check_all_rows(msg, self.indices)
            if self.indices is not None:
                msg["value"] = self.indices
            elif msg["value"] is None:
                msg["value"] = torch.arange(msg["fn"].size)
            msg[SELECTED] = True


def _check_all_rows(msg: Any, indices: Tensor | None) -> None:
    """Raise where a model says itself which of a plate's rows are to be taken, or takes some of them several times.

    Row numbers that are an argument are cut with the data, and then are as many as the rows that are asked for, of
    which some may be the same: they are drawn with replacement by some kernels.
    """
    given, size = msg["value"], msg["fn"].size
    if given is not None and len(given) not in (size, size if indices is None else len(indices)):
        raise ModelNotSplittableError(
            f"the data plate must take all of its rows, got plate({msg['name']!r}, {size}, subsample=...) with "
            f"{len(given)} of them: leave `subsample` out"
        )
    if given is not None and indices is None and _are_repeated(torch.as_tensor(given)):
        raise ModelNotSplittableError(
            f"the data plate must take each of its rows once, got plate({msg['name']!r}, {size}, subsample=...) with "
            "some of them several times, as in a bootstrap: leave `subsample` out, and pass the rows that it chooses, "
            "as in X[subsample]"
        )


def _are_repeated(rows: Tensor) -> bool:
    """Whether some row numbers occur several times; False where they have no values yet."""
    return not (isinstance(rows, FakeTensor) or is_functional(rows)) and len(rows.unique()) < len(rows)


class RowSelectableModel:
    """The user's model, with a reserved keyword for the rows to run it on.

    The keyword lets Pyro's own preparation (transforms, initialisation) drive it. A class at module level, so
    that kernels pickle.
    """

    def __init__(self, model: Callable[..., Any], plate: str, readings: Readings | None = None):
        self.model, self.plate = model, plate
        self.readings = Readings() if readings is None else readings

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model."""
        indices = kwargs.pop(ROWS_KWARG, None)
        with SelectRows(self.plate, indices), tensors_for_arrays(), self.readings.answering():
            with keeping_no_shapes(self.model):
                return self.model(*args, **kwargs)


class Site(NamedTuple):
    """Properties of one sample site that splitting depends on."""

    name: str
    observed: bool
    is_factor: bool
    discrete: bool
    plates: dict[str, int | None]  # name of each enclosing plate -> its dim, None for a sequential one
    batch_ndim: int
    shape: tuple[int, ...]  # shape of its value
    observation: Observation | None = None  # for an observed site that is no factor


class ModelSites(NamedTuple):
    """The sample sites of a model, the full size of each plate, and the names of its param sites."""

    sites: list[Site]
    plate_sizes: dict[str, int]
    fixed: tuple[str, ...]

    @property
    def candidates(self) -> list[str]:
        """Plates that hold observations, or, where nothing is observed, factors."""
        observed = [site for site in self.sites if site.observed]
        holders = [site for site in observed if not site.is_factor] or observed
        return list(dict.fromkeys(name for site in holders for name in site.plates))

    @property
    def holders(self) -> list[str]:
        """Plates that hold observations or factors."""
        return list(dict.fromkeys(name for site in self.sites if site.observed for name in site.plates))

    @property
    def latents(self) -> dict[str, tuple[list[str], tuple[int, ...]]]:
        """The plates around each latent site, and the shape of its value, by the site's name."""
        return {site.name: (list(site.plates), site.shape) for site in self.sites if not site.observed}

    @property
    def observations(self) -> list[Observation]:
        """Properties of the observed sites, factors and deterministic sites left out."""
        return [site.observation for site in self.sites if site.observation is not None]


def describe_model(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], only_shapes: bool = False
) -> ModelSites:
    """Trace ``model`` for its sites, without computing where that can be done: shapes only, no memory taken.

    Args:
        model: the model.
        args: its positional arguments.
        kwargs: its keyword arguments.
        only_shapes: whether a model that does not run on shapes alone is an error, as where the arguments have no
            values.
    """
    try:
        with pyro.get_param_store().scope(), unlogged(), FakeTensorMode(allow_non_fake_inputs=True):
            return _describe(model, args, kwargs)
    except Exception:  # not every model runs on shapes alone; its own faults come up again here
        if only_shapes:
            raise
        with torch.no_grad():
            return _describe(model, args, kwargs)


def _describe(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> ModelSites:
    with poutine.block(), unvalidated():
        with tensors_for_arrays(), keeping_no_shapes(model):
            model_trace = poutine.trace(model).get_trace(*args, **kwargs)
        nodes = [site for site in model_trace.nodes.values() if site["type"] == "sample"]
        subsamples = [site for site in nodes if isinstance(site["fn"], Subsample)]
        plate_sizes = {str(plate_of(site)): site["fn"].size for site in subsamples if site["fn"].size > 0}
        sites = [_describe_site(site) for site in nodes if not (_is_plate(site) or is_deterministic(site))]
        for site in nodes:
            for frame in _sized(site):  # also of an implied plate, which sends no message of its own
                plate_sizes.setdefault(frame.name, frame.full_size or frame.size)
            if site["is_observed"]:
                site["fn"].log_prob(site["value"])  # so that data of the wrong length fail here
        fixed = tuple(name for name, site in model_trace.nodes.items() if site["type"] == "param")
        return ModelSites(sites, plate_sizes, fixed)


def _sized(site: Any) -> list[Any]:
    """The frames of the plates round a site; one that was given no size, -1, divides nothing."""
    return [frame for frame in site["cond_indep_stack"] if (frame.full_size or frame.size) != -1]


def _is_plate(site: Any) -> bool:
    return isinstance(site["fn"], Subsample)


def is_deterministic(site: Any) -> bool:
    """Whether a site is a value that follows from others: ``deterministic``, or what a reparametrisation leaves."""
    return site["is_observed"] and isinstance(site["fn"], MaskedDistribution) and site["fn"]._mask is False


def _describe_site(site: Any) -> Site:
    fn, observed = site["fn"], site["is_observed"]
    plates = {frame.name: frame.dim for frame in _sized(site)}
    observation = None
    if observed and not isinstance(fn, Unit) and not site["infer"].get("_deterministic"):
        shape = log_prob_shape(fn, site["value"])
        base, joined = _without_joints(fn)
        observation = Observation(site["name"], shape, shapes_of(fn)[1], base, joined, False, tuple(plates))
    return Site(
        name=site["name"],
        observed=observed,
        is_factor=isinstance(fn, Unit),
        discrete=not observed and bool(site["fn"].support.is_discrete),
        plates=plates,
        batch_ndim=len(shapes_of(fn)[0]),
        shape=tuple(site["value"].shape) if isinstance(site["value"], Tensor) else (),
        observation=observation,
    )


def log_prob_shape(fn: Any, value: Tensor) -> tuple[int, ...]:
    """Shape of a distribution's log-probability at a value."""
    batch_shape, event_shape = shapes_of(fn)
    return tuple(torch.broadcast_shapes(batch_shape, value.shape[: value.dim() - len(event_shape)]))


def shapes_of(fn: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of a distribution's batch and event; empty ones of a class of the user's that does not say."""
    batch_shape, event_shape = (getattr(fn, name, ()) for name in ("batch_shape", "event_shape"))
    return tuple(batch_shape), tuple(event_shape)


def _without_joints(fn: Any) -> tuple[str, bool]:
    """Name of a distribution's class, and whether ``to_event`` joined independent values of it."""
    joined = False
    while isinstance(fn, Independent | MaskedDistribution):
        joined, fn = joined or isinstance(fn, Independent), fn.base_dist
    return type(fn).__name__, joined


def plate_frame(site: Any, plate: str) -> Any:
    """The frame of ``plate`` round a site, or None where the site lies outside it."""
    return next((frame for frame in site["cond_indep_stack"] if frame.name == plate), None)


def sample_sites(model_trace: Any) -> dict[str, Any]:
    """The sample sites of a trace, without those that are plates."""
    return {
        name: site
        for name, site in model_trace.nodes.items()
        if site["type"] == "sample" and not isinstance(site["fn"], Subsample)
    }


def site_terms(model_trace: Any, plate: str, inside: bool) -> dict[str, tuple[Tensor, int | None]]:
    """Log-probabilities of the sites inside (or outside) the data plate, with the dim (negative) of the rows."""
    frames = {name: plate_frame(site, plate) for name, site in sample_sites(model_trace).items()}
    chosen = {name: frame for name, frame in frames.items() if (frame is not None) is inside}
    model_trace.compute_log_prob(lambda name, site: name in chosen)
    return {name: (model_trace.nodes[name]["log_prob"], frame and frame.dim) for name, frame in chosen.items()}


def check_observed(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], latents: Collection[str]
) -> None:
    """Run a model as the host does with validation, where distributions check arguments and observations.

    Args:
        model: the model, with values for its latent sites.
        args: its positional arguments.
        kwargs: its keyword arguments.
        latents: names of the latent sites. Their values are not checked, as one may have an entry for each row of all.

    Raises:
        ValueError: the distribution's own, which names the argument or the support.
    """
    with torch.no_grad(), torch.random.fork_rng(), poutine.block(), validated():
        model_trace = poutine.trace(model).get_trace(*args, **kwargs)
        model_trace.compute_log_prob(lambda name, site: site["is_observed"] and name not in latents)


def bounds_of(support: Any) -> list[Tensor]:
    """The numbers in a support, including those of the supports that it consists of."""
    found: list[Tensor] = []
    for value in vars(support).values():
        for part in value if isinstance(value, list | tuple) else [value]:
            if isinstance(part, Constraint):
                found += bounds_of(part)
            elif isinstance(part, Tensor | float | int):
                found.append(torch.as_tensor(part))
    return found
