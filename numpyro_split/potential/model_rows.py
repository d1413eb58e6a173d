"""Running a model on some rows of its data plate, and reading off what each site contributes.

The user's model is never rewritten. A handler answers the plate's question "which rows?", so the model itself
evaluates exactly those rows; log-probabilities are then read site by site from the trace, each belonging to the
prior (outside the plate) or to the rows (inside it: observations, local latents with their Jacobians, factors).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import random
from jax.core import Tracer
from numpyro.distributions import Independent, MaskedDistribution, Unit
from numpyro.distributions.constraints import Constraint
from numpyro.handlers import seed, substitute, trace
from numpyro.infer.initialization import init_to_uniform
from numpyro.primitives import Messenger

from numpyro_split.potential.readings import Readings
from split_common.digest import Digest
from split_common.plates import Observation
from split_common.tables import NUMBERS

Trace = dict[str, dict[str, Any]]
ROWS_KWARG = "_rows_of_data_plate"
ROUNDING = 1e-12


class SelectRows(Messenger):
    """Answers the data plate with given row indices, without the N/B scaling of stochastic methods.

    Args:
        plate: name of the data plate.
        indices: rows to take, shape (n,); None for all of them, also where the model asks for a subsample, unless a
            handler of the model's gives the plate its rows.
    """

    def __init__(self, plate: str, indices: jax.Array | None):
        super().__init__(None)
        self.plate, self.indices, self.size = plate, indices, 0

    def process_message(self, msg: dict[str, Any]) -> None:
        """Substitute the plate's indices; undo its scaling at every site inside."""
        if msg["type"] == "prng_key" and msg["value"] is None:
            msg["value"] = random.key(0)  # as the host does: one fixed stream inside the density
        elif msg["type"] == "plate" and msg["name"] == self.plate:
            self._select(msg)
        elif msg["type"] == "sample":
            frame = plate_frame(msg, self.plate)
            if frame is not None and self.size and frame.size != self.size:
                msg["scale"] = _without_factor(msg["scale"], self.size / frame.size)

    def _select(self, msg: dict[str, Any]) -> None:
        size, self.size = msg["args"][0], 0
        if self.indices is not None:
            msg["value"] = self.indices
        elif msg["value"] is None:
            msg["value"] = jnp.arange(size)
        else:
            return
        self.size, msg["args"] = size, (size, msg["value"].shape[0])


def _without_factor(scale: Any, factor: float) -> Any:
    """A site's scale divided by a factor; None where 1 is left but for rounding, so that nothing else scales it."""
    left = scale / factor
    return None if isinstance(left, float) and abs(left - 1.0) < ROUNDING else left


class RowSelectableModel:
    """The user's model, with a reserved keyword for the rows to run it on.

    The keyword lets NumPyro's own preparation (transforms, initialisation, postprocessing) drive it. A class
    at module level, so that kernels pickle.
    """

    def __init__(self, model: Callable[..., Any], plate: str, readings: Readings | None = None):
        self.model, self.plate = model, plate
        self.values: dict[str, Any] = {}
        self.key_of_values: Hashable = ""
        self.readings = Readings() if readings is None else readings

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model; ``values`` fix its ``numpyro.param`` and mutable sites, ``readings`` what Python reads."""
        with numpyro.handlers.substitute(data=self.values):
            return self._run(*args, **kwargs)

    def fix(self, values: dict[str, Any]) -> None:
        """Fix the values of the model's ``numpyro.param`` and mutable sites; densities of other values are others."""
        self.values, self.key_of_values = values, _key_of(values)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        indices = kwargs.pop(ROWS_KWARG, None)
        with SelectRows(self.plate, indices), self.readings.answering():
            return self.model(*args, **kwargs)

    def first_values(self, names: Sequence[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The values that the model itself gives ``numpyro.param`` and mutable sites, on the rows of its arguments."""
        started = substitute(seed(self._run, random.key(0)), substitute_fn=init_to_uniform())
        model_trace = trace(started).get_trace(*args, **kwargs)
        return {name: model_trace[name]["value"] for name in names}


def _key_of(values: dict[str, Any]) -> Hashable:
    """Digest of values by site, in hexadecimal; where they are traced, an object that equals no other."""
    digest, leaves = Digest(), jax.tree_util.tree_leaves_with_path(values)
    if any(isinstance(x, Tracer) for _, x in leaves):
        return object()
    for path, x in leaves:
        is_key = isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
        numbers = np.asarray(random.key_data(x) if is_key else x)
        digest.add(jax.tree_util.keystr(path))
        digest = digest.add_array(numbers) if numbers.dtype.kind in NUMBERS else digest.add(repr(x))
    return digest.key if leaves else ""


class Site(NamedTuple):
    """Properties of one sample site that splitting depends on."""

    name: str
    observed: bool
    is_factor: bool
    discrete: bool
    plates: dict[str, int]  # name of each enclosing plate -> its dim
    batch_ndim: int
    shape: tuple[int, ...]  # shape of its value
    value: Any
    in_loop: bool = False  # whether it lies inside a scan
    support: Any = None  # of a latent site: the classes of its support and the plain numbers among its bounds
    observation: Observation | None = None  # for an observed site that is no factor


class ModelSites(NamedTuple):
    """The sample sites of a model, the full size of each plate, and the names of its param and mutable sites."""

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
        """Properties of the observed sites, factors left out."""
        return [site.observation for site in self.sites if site.observation is not None]


def describe_model(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> ModelSites:
    """Trace ``model`` abstractly: shapes only, so that no row is read and no memory taken."""
    found: list[ModelSites] = []

    def run() -> None:
        # initial values are found as by the host, so that distributions which cannot be sampled (improper ones) work
        started = substitute(seed(model, random.key(0)), substitute_fn=init_to_uniform())
        model_trace = trace(started).get_trace(*args, **kwargs)
        plate_sizes = {k: site["args"][0] for k, site in model_trace.items() if site["type"] == "plate"}
        samples = [site for site in model_trace.values() if site["type"] == "sample"]
        for site in samples:  # plates inside control flow send no message of their own
            for frame in site["cond_indep_stack"]:
                plate_sizes.setdefault(frame.name, frame.size)
        fixed = tuple(name for name, site in model_trace.items() if site["type"] in ("param", "mutable"))
        found.append(ModelSites([_describe_site(site) for site in samples], plate_sizes, fixed))

    jax.eval_shape(run)
    return found[-1]


def bounds_of(support: Any) -> list[Any]:
    """The numbers in a support, including those of the supports that it consists of."""
    found: list[Any] = []
    for value in vars(support).values():
        for part in value if isinstance(value, list | tuple) else [value]:
            found += bounds_of(part) if isinstance(part, Constraint) else [part]
    return found


def form_of(support: Any) -> Any:
    """The classes that a support consists of and the plain numbers among its bounds; arrays are left out."""
    if isinstance(support, Constraint):
        return type(support).__name__, *(form_of(value) for value in vars(support).values())
    if isinstance(support, list | tuple):
        return tuple(map(form_of, support))
    return support if isinstance(support, int | float) else None


def _describe_site(site: dict[str, Any]) -> Site:
    fn: Any = site["fn"]
    observed, in_loop = site["is_observed"], "_scan_current_index" in site["infer"]
    plates = {frame.name: frame.dim for frame in site["cond_indep_stack"]}
    observation = None
    if observed:
        shape = log_prob_of(site).shape  # data of the wrong length fail here
        if not isinstance(fn, Unit):
            base, joined = _without_joints(fn)
            observation = Observation(site["name"], shape, fn.event_shape, base, joined, in_loop, tuple(plates))
    return Site(
        name=site["name"],
        observed=observed,
        is_factor=isinstance(fn, Unit),
        discrete=not observed and bool(site["fn"].support.is_discrete),
        plates=plates,
        batch_ndim=len(fn.batch_shape),
        shape=tuple(jnp.shape(site["value"])),
        value=None if isinstance(site["value"], Tracer) else site["value"],
        in_loop=in_loop,
        support=None if observed else form_of(fn.support),
        observation=observation,
    )


def _without_joints(fn: Any) -> tuple[str, bool]:
    """Name of a distribution's class, and whether ``to_event`` joined independent values of it."""
    joined = False
    while isinstance(fn, Independent | MaskedDistribution):
        joined, fn = joined or isinstance(fn, Independent), fn.base_dist
    return type(fn).__name__, joined


def plate_frame(site: dict[str, Any], plate: str) -> Any:
    """The frame of ``plate`` round a site, or None where the site lies outside it."""
    return next((frame for frame in site["cond_indep_stack"] if frame.name == plate), None)


def prior_terms(model_trace: Trace, plate: str) -> list[jax.Array]:
    """Log-probabilities of the sites outside the data plate."""
    return [log_prob_of(site) for site in prior_sites(model_trace, plate).values()]


def prior_sites(model_trace: Trace, plate: str) -> Trace:
    """The sample sites outside the data plate, by name."""
    return {site["name"]: site for site in samples_of(model_trace) if plate_frame(site, plate) is None}


def row_terms(model_trace: Trace, plate: str) -> list[tuple[jax.Array, int]]:
    """Log-probabilities of the sites inside the data plate, each with the axis (negative) of the rows."""
    frames = [(site, plate_frame(site, plate)) for site in samples_of(model_trace)]
    return [(log_prob_of(site), frame.dim) for site, frame in frames if frame is not None]


def samples_of(model_trace: Trace) -> list[dict[str, Any]]:
    """The sample sites of a trace, in the model's order."""
    return [site for site in model_trace.values() if site["type"] == "sample"]


def log_prob_of(site: dict[str, Any]) -> jax.Array:
    """Log-probability of a sample site at its value, its scale included, in the shape of its batch."""
    arguments = (site["value"], site["intermediates"]) if site["intermediates"] else (site["value"],)
    log_prob = site["fn"].log_prob(*arguments)
    return log_prob if site["scale"] is None else site["scale"] * log_prob
