"""What NumPyro's ``MCMC`` asks of a kernel, met once for every split kernel.

A kernel object holds arguments and how its model divides, never data, positions or anything of one chain: what
evolves is in the state, and the potential is bound to the arguments that each call brings.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.core import Tracer
from numpyro.infer.initialization import init_to_uniform
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import identity, is_prng_key

from numpyro_split.adaptation import AdaptationSettings
from numpyro_split.densities import Position
from numpyro_split.potential import SplitPotential
from numpyro_split.splitting import ModelSplit
from numpyro_split.tracing import at_once
from split_common.checks import (
    check_callable,
    check_choice,
    check_data_axes,
    check_finite_start,
    check_flag,
    check_plate,
    check_positive_float,
    check_positive_int,
    check_probability,
    check_sites,
)
from split_common.mass import check_inverse_mass_matrix, check_mass_blocks, check_mass_matrix_values
from split_common.subsets import SUBSET_ORDERS
from split_common.trajectory import STATISTICS
from split_common.values import describe_kernel

INIT_TRIES = 100


class SplitKernel(MCMCKernel):
    """Base of the split kernels: splitting, starting points, resuming, pickling.

    A concrete kernel says how one chain starts (:meth:`_start`) and moves (:meth:`_transition`), both pure
    functions of the potential they are given.
    """

    _statistic_names: tuple[str, ...] = STATISTICS

    def __init__(
        self,
        model: Callable[..., Any] | SplitPotential,
        num_subsets: int = 1,
        *,
        plate: str | None = None,
        data_axes: dict[str, int | None] | None = None,
        subset_order: str = "sequential",
        step_size: float = 1.0,
        inverse_mass_matrix: Any = None,
        adapt_step_size: bool = True,
        adapt_mass_matrix: bool = True,
        dense_mass: bool | list[tuple[str, ...]] = False,
        target_accept_prob: float = 0.8,
        init_strategy: Callable[..., Any] = init_to_uniform,
        find_heuristic_step_size: bool = True,
    ):
        self._model = check_callable("model", model) if not isinstance(model, SplitPotential) else None
        self._potential = model if isinstance(model, SplitPotential) else None
        self._num_subsets = check_positive_int("num_subsets", num_subsets)
        if self._potential is not None:
            self._num_subsets = self._potential.num_subsets
        self._plate, self._data_axes = check_plate(plate), check_data_axes(data_axes)
        self._subset_order = check_choice("subset_order", subset_order, SUBSET_ORDERS)
        self._init_strategy = check_callable("init_strategy", init_strategy)
        self._settings = AdaptationSettings(
            step_size=check_positive_float("step_size", step_size),
            inverse_mass_matrix=check_mass_matrix_values(inverse_mass_matrix, jax.Array),
            adapt_step_size=check_flag("adapt_step_size", adapt_step_size),
            adapt_mass_matrix=check_flag("adapt_mass_matrix", adapt_mass_matrix),
            dense_mass=check_mass_blocks("dense_mass", dense_mass),
            target_accept_prob=check_probability("target_accept_prob", target_accept_prob),
            find_heuristic_step_size=check_flag("find_heuristic_step_size", find_heuristic_step_size),
        )
        self._num_warmup = 0
        self._forget_model()

    def __repr__(self) -> str:
        """Class, model, number of subsets and plate, and what a kind of kernels adds."""
        model = self._potential if self._model is None else self._model
        return describe_kernel(self, model, self._num_subsets, self._plate, self._details)

    @property
    def _details(self) -> list[str]:
        """What the repr says besides."""
        return []

    @abstractmethod
    def _start(self, potential: SplitPotential, z: Position, rng_key: jax.Array) -> Any:
        """The state of one chain at its starting point."""

    @abstractmethod
    def _transition(self, potential: SplitPotential, state: Any) -> Any:
        """One iteration of one chain."""

    @abstractmethod
    def _recompute(self, potential: SplitPotential, state: Any) -> Any:
        """``state`` with everything that depends on the data computed afresh."""

    @property
    def model(self) -> Callable[..., Any] | None:
        """The user's model; ArviZ reads it."""
        return self._model

    @property
    def num_subsets(self) -> int:
        """M."""
        return self._num_subsets

    @property
    def sample_field(self) -> str:
        """Field of the state that holds the draw."""
        return "z"

    @property
    def default_fields(self) -> tuple[str, ...]:
        """The draw and every statistic, so that plain ArviZ conversion is complete."""
        return ("z", *self._statistic_names)

    def init(
        self,
        rng_key: jax.Array,
        num_warmup: int,
        init_params: Position | None = None,
        model_args: tuple[Any, ...] = (),
        model_kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Split and check the model, then start one chain, or a batch of chains for a batch of keys.

        Raises:
            ValueError: for faults of the model or the data (see :func:`numpyro_split.split_model`), a mass
                matrix of the wrong shape, or a starting point where the density is not finite.
        """
        model_kwargs = model_kwargs or {}
        self._num_warmup = num_warmup
        self._split_model(model_args, model_kwargs)
        potential = self._bind(model_args, model_kwargs)
        single = is_prng_key(rng_key)
        first = init_params if single else jax.tree.map(lambda u: u[0], init_params)
        self._set_up(potential, first)
        keys = random.split(rng_key) if single else jnp.swapaxes(jax.vmap(random.split)(rng_key), 0, 1)
        key_position, key_chain = keys[0], keys[1]
        if init_params is None:
            z = self._find_start(key_position, potential, model_args, model_kwargs)
        else:
            z = jax.tree.map(jnp.asarray, init_params)
        self._check_sites(z, single)
        start = self._compiled_start(num_warmup)
        state = (start if single else jax.vmap(start, (None, 0, 0)))(potential, z, key_chain)
        state = state._replace(data_fingerprint=_like_chains(self._fingerprint(potential), state))
        if not isinstance(state.potential_energy, Tracer):
            check_finite_start(np.asarray(state.potential_energy))
        self._sample_fn = self.sample  # tells MCMC that init need not be called again
        return state

    def sample(self, state: Any, model_args: tuple[Any, ...], model_kwargs: dict[str, Any] | None) -> Any:
        """One iteration, on the data given here; a state left by other data is brought up to date first."""
        potential = self._bind(model_args, model_kwargs or {})
        fingerprint = self._fingerprint(potential)
        stale = jnp.any(state.data_fingerprint != fingerprint)
        state = lax.cond(stale, lambda s: self._refreshed(potential, s, fingerprint), lambda s: s, state)
        return _over_chains(partial(self._transition, potential), state, self._shared_by_chains(state))

    def refresh(self, state: Any, model_args: tuple[Any, ...], model_kwargs: dict[str, Any] | None) -> Any:
        """Recompute what ``state`` caches of the potential, without moving (for the host's ``Gibbs``)."""
        potential = self._bind(model_args, model_kwargs or {})
        return self._refreshed(potential, state, self._fingerprint(potential))

    def wrap_model(self, wrapper: Callable[..., Any]) -> SplitKernel:
        """A copy of this kernel whose model is ``wrapper(model)``."""
        if self._model is None:
            raise ValueError("wrap_model needs a kernel made from a model, got one made from a SplitPotential")
        kernel = copy.copy(self)
        kernel._model = wrapper(self._model)
        kernel._forget_model()
        return kernel

    def postprocess_fn(self, model_args: tuple[Any, ...], model_kwargs: dict[str, Any]) -> Callable[[Position], Any]:
        """Map from a position to constrained values and deterministic sites."""
        return identity if self._split is None else self._split.postprocess_fn(model_args, model_kwargs)

    def get_constrain_fn(
        self, model_args: tuple[Any, ...] = (), model_kwargs: dict[str, Any] | None = None
    ) -> Callable[[Position], Any]:
        """Map from a position to constrained values, without running the model."""
        return identity if self._split is None else self._split.constrain_fn(model_args, model_kwargs or {})

    def get_diagnostics_str(self, state: Any) -> str:
        """What the progress bar shows."""
        acceptance = float(state.mean_accept_prob)
        return f"{int(state.num_steps)} steps of size {float(state.step_size):.2e}. acc. prob={acceptance:.2f}"

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what ``init`` finds again."""
        state = self.__dict__.copy()
        state.update(_split=None, _split_of=[], _sample_fn=None, _starts={})
        return state

    def _forget_model(self) -> None:
        self._split: ModelSplit | None = None
        self._split_of: list[Any] = []
        self._sample_fn: Callable[..., Any] | None = None
        self._starts: dict[int, Callable[..., Any]] = {}

    def _compiled_start(self, num_warmup: int) -> Callable[..., Any]:
        """:meth:`_start`, compiled once for chains that start one by one."""
        return self._starts.setdefault(num_warmup, jax.jit(self._start))

    def _split_model(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Find and check the split, once for the same arguments: sequential chains come here one by one."""
        if self._model is None:
            return
        leaves = jax.tree.leaves((args, kwargs))
        same = len(leaves) == len(self._split_of) and all(a is b for a, b in zip(leaves, self._split_of, strict=True))
        if self._split is not None and same:
            return
        split = ModelSplit.find(
            self._model,
            args,
            kwargs,
            num_subsets=self._num_subsets,
            plate=self._plate,
            data_axes=self._data_axes,
            subset_order=self._subset_order,
            init_strategy=self._init_strategy,
        )
        with at_once():  # chains in parallel come here traced
            self._study_split(split, args, kwargs)
        self._split = split
        self._split_of = [] if any(isinstance(x, Tracer) for x in leaves) else leaves

    def _study_split(self, split: ModelSplit, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Learn what else a kernel needs to know of a model that has just been divided."""

    def _set_up(self, potential: SplitPotential, init_params: Position | None) -> None:
        """Learn what a kernel needs to know of the data before chains start; ``init_params`` are the first one's."""

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SplitPotential:
        if self._potential is not None:
            return self._potential
        if self._split is None:
            raise RuntimeError("init must be called before sample")
        return self._split.bind(args, kwargs)

    def _find_start(
        self, rng_key: jax.Array, potential: SplitPotential, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Position:
        """Starting points with a finite density on all rows; the host looks at the rows of one subset only."""
        if self._split is None:
            raise ValueError("init_params must be given for a kernel made from a SplitPotential, got None")
        z = self._split.initial_position(rng_key, args, kwargs)
        for attempt in range(INIT_TRIES):
            energies = potential.energies(z) if is_prng_key(rng_key) else jax.vmap(potential.energies)(z)
            finite = jnp.isfinite(jnp.sum(energies.value, axis=-1))
            if isinstance(finite, Tracer) or np.all(finite):
                break
            fold_in = jax.vmap(random.fold_in, (0, None)) if finite.ndim else random.fold_in
            fresh = self._split.initial_position(fold_in(rng_key, attempt), args, kwargs)
            z = jax.tree.map(partial(_where_chain, finite), z, fresh)
        return z

    def _check_sites(self, z: Position, single: bool) -> None:
        sizes = {name: int(np.prod(u.shape if single else u.shape[1:])) for name, u in z.items()}
        if self._split is not None:
            check_sites("init_params", sizes, self._split.site_sizes)
        self._check_mass(sizes)

    def _check_mass(self, sizes: dict[str, int]) -> None:
        """Raise unless the given mass matrix fits sites of these sizes."""
        check_mass_blocks("dense_mass", self._settings.dense_mass, sizes)
        check_inverse_mass_matrix(self._settings.inverse_mass_matrix, sizes, self._settings.dense_mass)

    def _shared_by_chains(self, state: Any) -> Any:
        """A tree prefix of the state: which parts are alike in all chains that are vectorised."""
        return type(state)(*(field == "i" for field in state._fields))

    def _fingerprint(self, potential: SplitPotential) -> jax.Array:
        """By what a state left by other data is known."""
        return data_fingerprint(potential)

    def _refreshed(self, potential: SplitPotential, state: Any, fingerprint: jax.Array) -> Any:
        recompute = partial(self._recompute, potential)
        state = jax.vmap(recompute)(state) if jnp.ndim(state.i) else recompute(state)
        return state._replace(data_fingerprint=_like_chains(fingerprint, state))


def data_fingerprint(potential: SplitPotential, max_entries: int | None = None) -> jax.Array:
    """A 32-bit digest of the data arrays, by which a resumed state knows data that are not its own.

    Args:
        potential: bound to the data.
        max_entries: how many entries of each array to read, evenly spaced; None for all.
    """
    arrays = [x for x in jax.tree.leaves(potential) if not jnp.issubdtype(x.dtype, jax.dtypes.extended)]
    if any(isinstance(x, Tracer) for x in arrays):
        return _digest(arrays, max_entries)
    with at_once():
        return _digest(arrays, max_entries)


@partial(jax.jit, static_argnums=1)
def _digest(arrays: list[jax.Array], max_entries: int | None) -> jax.Array:
    digest = jnp.zeros((), jnp.uint32)
    for x in arrays:
        x = x if max_entries is None else _evenly_spaced(x, max_entries)
        bits = x.astype(jnp.uint8) if x.dtype == bool else x
        words = lax.bitcast_convert_type(bits, {1: jnp.uint8, 2: jnp.uint16}.get(bits.dtype.itemsize, jnp.uint32))
        words = jnp.ravel(words).astype(jnp.uint32)
        weights = 2 * jnp.arange(words.size, dtype=jnp.uint32) + 1
        digest = digest * jnp.uint32(1000003) + jnp.sum(words * weights, dtype=jnp.uint32)
    return digest


def _evenly_spaced(x: jax.Array, number: int) -> jax.Array:
    places = np.linspace(0, max(x.size - 1, 0), min(x.size, number)).astype(int)
    return x[tuple(np.unravel_index(places, x.shape))]


def _over_chains(transition: Callable[[Any], Any], state: Any, shared: Any) -> Any:
    """Apply a map of one chain's state to one chain or to a batch of them.

    Args:
        transition: the map.
        state: of one chain, or of a batch of them, with a leading axis.
        shared: a tree prefix of ``state``: True for what is alike in all chains, False for what is not. Of the former
            only the count ``i`` may change. What it decides is decided once, where of a batch of decisions every
            branch is evaluated; and matrices are not multiplied chain by chain.
    """
    if not jnp.ndim(state.i):
        return transition(state)
    by_leaf = jax.tree.broadcast(shared, state)
    one = jax.tree.map(lambda same, x: x[0] if same else x, by_leaf, state)
    axes = jax.tree.map(lambda same: None if same else 0, shared)
    moved = jax.vmap(transition, (axes,))(one)
    return jax.tree.map(lambda same, old, new: old if same else new, by_leaf, state, moved)._replace(i=moved.i)


def _like_chains(value: jax.Array, state: Any) -> jax.Array:
    return jnp.broadcast_to(value, jnp.shape(state.i))


def _where_chain(keep: jax.Array, old: jax.Array, new: jax.Array) -> jax.Array:
    """``old`` where a chain keeps it, else ``new``."""
    return jnp.where(keep.reshape(keep.shape + (1,) * (old.ndim - keep.ndim)), old, new)
