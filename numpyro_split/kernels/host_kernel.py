"""NumPyro's protocol of a kernel, implemented once for every split kernel.

A kernel object holds its arguments. What evolves is in the state; what a data set teaches before chains start lies on a
copy of the kernel that is found by content (:mod:`numpyro_split.kernels.prepared`); the potential is bound to the
arguments that each call brings. A state carries a digest of the data that it was made with: where it meets others,
everything in it that rests on the data is computed afresh.
"""

from __future__ import annotations

import copy
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
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

from numpyro_split.adaptation.step_size_and_metric import AdaptationSettings
from numpyro_split.inference_data import to_inference_data
from numpyro_split.kernels.prepared import PreparedKernels
from numpyro_split.potential.arguments import Arguments
from numpyro_split.potential.content import Content, DataDigest, program_of_model, program_of_potential
from numpyro_split.potential.forms import FORMS
from numpyro_split.potential.position import Position
from numpyro_split.potential.split_potential import SplitPotential
from numpyro_split.potential.tracing import eagerly, one_thread_at_a_time
from numpyro_split.splitting.captured import check_captured
from numpyro_split.splitting.model_split import ModelSplit
from split_common.checks import (
    check_callable,
    check_choice,
    check_data_axes,
    check_finite_start,
    check_flag,
    check_is_state,
    check_plate,
    check_positive_float,
    check_positive_int,
    check_probability,
    check_sites,
    check_state_form,
)
from split_common.containers import Form
from split_common.health import STATISTICS, warn_of_other_data
from split_common.mass import check_inverse_mass_matrix, check_mass_blocks, check_mass_matrix_values
from split_common.open_model import OpenModel
from split_common.report import Report, check_reported
from split_common.subsets import SUBSET_ORDERS
from split_common.values import describe_kernel

INIT_TRIES = 100


class SplitKernel(MCMCKernel):
    """Base of the split kernels: splitting, starting points, resuming, pickling.

    A concrete kernel says how one chain starts (:meth:`_start`) and moves (:meth:`_transition`), both pure
    functions of the potential they are given.
    """

    _statistic_names: tuple[str, ...] = STATISTICS
    _rests_on_data = True  # whether a state holds anything that other data would change

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
        forward_mode_differentiation: bool = False,
        regularize_mass_matrix: bool = True,
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
            regularize_mass_matrix=check_flag("regularize_mass_matrix", regularize_mass_matrix),
        )
        self._forward_mode = check_flag("forward_mode_differentiation", forward_mode_differentiation)
        self._prepared = PreparedKernels()
        self._warmup = Warmup(0)
        # of a copy that knows a model and its data
        self._split: ModelSplit | None = None
        self._compiled_start: Any = None
        self._state_like: Any = None

    def __repr__(self) -> str:
        """Class, model, number of subsets and plate, and what a kind of kernels adds."""
        model = self._potential if self._model is None else self._model
        return describe_kernel(self, model, self._num_subsets, self._plate, self._details)

    @property
    def _details(self) -> list[str]:
        """Further parts of the repr."""
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

    @one_thread_at_a_time
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
        given, single = (tuple(model_args), dict(model_kwargs or {})), is_prng_key(rng_key)
        first = init_params if single else jax.tree.map(lambda u: u[0], init_params)
        if self._potential is not None and first is None and self._given_start is None:
            if (latest := self._prepared.latest()) is not None:
                self._begin(num_warmup, latest._state_like.z, *given)
            return NoStart()  # a run that goes on from a given state needs none
        args, kwargs, (kernel, potential, content) = self._begin(num_warmup, first, *given)
        keys = random.split(rng_key) if single else jnp.swapaxes(jax.vmap(random.split)(rng_key), 0, 1)
        if init_params is None:
            z = kernel._find_start(keys[0], potential, args, kwargs)
        else:
            z = jax.tree.map(jnp.asarray, init_params)
        kernel._check_sites(z, single)
        state = (kernel._compiled_start if single else jax.vmap(kernel._compiled_start, (None, 0, 0)))(
            potential, z, keys[1]
        )
        check_start(state.potential_energy, z)
        state = state._replace(data_digest=_like_chains(content.first_digest(), state))
        kernel._state_like = _shapes(state, single)
        return state

    @one_thread_at_a_time
    def sample(self, state: Any, model_args: tuple[Any, ...], model_kwargs: dict[str, Any] | None) -> Any:
        """One iteration, on the data given here; a state left by other data is brought up to date first.

        Where the data are traced, that is looked at when a run goes on from a state (the host gives it a new
        ``rng_key``) and not at every iteration; a loop of one's own that changes traced data calls :meth:`refresh`.
        """
        check_is_state(type(self).__name__, state)
        kernel, potential, content = self._look_up(state, model_args, model_kwargs)
        if kernel._rests_on_data:
            stale, digest = content.compare(state.data_digest)
            state = lax.cond(stale, partial(kernel._refreshed, potential), lambda s: s, state)
            state = state._replace(data_digest=digest)
        state = _over_chains(partial(kernel._transition, potential), state, kernel._shared_by_chains(state))
        kernel._watch(state)
        return state

    @one_thread_at_a_time
    def refresh(self, state: Any, model_args: tuple[Any, ...], model_kwargs: dict[str, Any] | None) -> Any:
        """Recompute what ``state`` caches of the potential, without moving (for the host's ``Gibbs``)."""
        kernel, potential, content = self._look_up(state, model_args, model_kwargs)
        _, digest = content.compare(state.data_digest)
        return _each_chain(partial(kernel._recompute, potential), state)._replace(data_digest=digest)

    def report(self, mcmc: Any) -> Report:
        """Report on a finished run: trouble, and what to do about it; ``print`` it, or take its ``table``.

        Args:
            mcmc: the host's ``MCMC``, which has been run with this kernel.

        Returns:
            Divergences, E-BFMI, limits that were reached, noise, acceptance, whether warm-up had settled, R-hat and
            effective draws, each with a limit; how the model divides, and what warm-up settled on.

        Raises:
            TypeError: for a run of another package's kernel.
        """
        check_reported(getattr(mcmc, "sampler", mcmc), SplitKernel)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what the report says
            return Report.of(to_inference_data(mcmc), type(mcmc.sampler).__name__)

    def wrap_model(self, wrapper: Callable[..., Any]) -> SplitKernel:
        """A copy of this kernel whose model is ``wrapper(model)``."""
        if self._model is None:
            raise ValueError("wrap_model needs a kernel made from a model, got one made from a SplitPotential")
        kernel = copy.copy(self)
        kernel._model = wrapper(self._model)
        kernel._prepared = PreparedKernels()
        return kernel

    @one_thread_at_a_time
    def postprocess_fn(self, model_args: tuple[Any, ...], model_kwargs: dict[str, Any]) -> Callable[[Position], Any]:
        """Map from a position to constrained values and deterministic sites."""
        if self._model is None:
            return identity
        args, kwargs = self._open(model_args, model_kwargs)
        split = self._latest_like(args, kwargs)._known_split
        constrain = split.postprocess_fn(args, kwargs)

        def postprocess(z: Position) -> Any:
            # of a state that a run goes on from, the host asks this first
            sizes = {name: jnp.size(u) for name, u in z.items()}
            check_sites(
                f"post_warmup_state must be a state of {type(self).__name__} on this model: it", sizes, split.site_sizes
            )
            return constrain(z)

        return one_thread_at_a_time(postprocess)

    @one_thread_at_a_time
    def get_constrain_fn(
        self, model_args: tuple[Any, ...] = (), model_kwargs: dict[str, Any] | None = None
    ) -> Callable[[Position], Any]:
        """Map from a position to constrained values, without running the model."""
        if self._model is None:
            return identity
        args, kwargs = self._open(model_args, model_kwargs)
        return one_thread_at_a_time(self._latest_like(args, kwargs)._known_split.constrain_fn(args, kwargs))

    def get_diagnostics_str(self, state: Any) -> str:
        """Text of the progress bar."""
        acceptance = float(state.mean_accept_prob)
        return f"{int(state.num_steps)} steps of size {float(state.step_size):.2e}. acc. prob={acceptance:.2f}"

    def __getstate__(self) -> dict[str, Any]:
        """The arguments; what a data set teaches is found again by the next run."""
        return {**self.__dict__, "_prepared": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepared = PreparedKernels()

    def _prepare(
        self,
        num_warmup: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        init_params: Position | None = None,
        given: Any = (),
    ) -> tuple[Any, SplitPotential, Content]:
        """The copy of this kernel that knows these arguments, made where there is none, and what it is bound to.

        Args:
            num_warmup: number of warm-up iterations.
            args: the model's positional arguments, with JAX arrays.
            kwargs: its keyword arguments, likewise.
            init_params: where the first chain starts.
            given: the arguments as the host has them, where this is the beginning of a run.
        """
        with eagerly():
            arguments = self._arguments(args, kwargs)
            if self._model is not None:
                check_captured(self._model)
                program = self._program(arguments, args, kwargs)
            else:
                program = program_of_potential(self._given_potential, init_params or self._given_start or {})
            content = self._content(program, arguments)
            self._prepared.note_run(arguments.signature, jax.tree.leaves(given), content)
            kernel = self._prepared.find(content, num_warmup) if content.words is not None else None
            if kernel is None:
                kernel = self._copy_for(num_warmup, args, kwargs, content, init_params)
                self._prepared.keep(
                    content, num_warmup, kernel if content.words is not None else kernel._without_knowledge()
                )
        return kernel, kernel._bind(args, kwargs), content

    def _look_up(
        self, state: Any, model_args: tuple[Any, ...], model_kwargs: dict[str, Any] | None
    ) -> tuple[Any, SplitPotential, Content]:
        """As :meth:`_prepare`, for a state; the model is not looked at anew, since every run begins with ``init``."""
        with eagerly():
            args, kwargs = self._open(model_args, model_kwargs)
            arguments = self._arguments(args, kwargs)
            program = self._prepared.program_of(arguments.signature)
            known = not any(isinstance(x, Tracer) for x in arguments.data)
            content = None if program is None or not known else self._content(program, arguments)
            kernel = None if content is None else self._prepared.find(content, state.warmup.num_warmup)
            if kernel is None and known:
                one = state.z if not jnp.ndim(state.i) else jax.tree.map(lambda u: u[0], state.z)
                kernel, _, content = self._prepare(state.warmup.num_warmup, args, kwargs, one)
        if not known:
            kernel = None if program is None else self._prepared.find_for_traced(program, state.warmup.num_warmup)
            if kernel is None or program is None:
                raise RuntimeError("init must be called before sample, on data of the same shapes and types")
            if kernel._split is not None and kernel._split.reads:
                raise ValueError("jit_model_args must be False for a model that reads values of its data with Python")
            kernel = kernel._without_knowledge()
            content = self._content(program, arguments)
        assert content is not None
        assert kernel is not None
        kernel._check_state(state)
        return kernel, kernel._bind(args, kwargs), content

    def _latest_like(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SplitKernel:
        """The copy for arguments of this form that a run used last."""
        program = self._prepared.program_of(self._arguments(args, kwargs).signature)
        kernel = None if program is None else self._prepared.latest(program)
        return self._prepare(0, args, kwargs)[0] if kernel is None else kernel

    def _copy_for(
        self,
        num_warmup: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        content: Content,
        init_params: Position | None,
    ) -> SplitKernel:
        kernel = copy.copy(self)
        kernel._prepared = PreparedKernels()
        kernel._warmup = Warmup(num_warmup)
        kernel._compiled_start = jax.jit(kernel._start)
        if self._potential is not None:
            kernel._potential = self._potential.for_program(content.program)
        else:
            kernel._split = self._divide(args, kwargs, content.program)
            kernel._study_split(kernel._split, args, kwargs)
        kernel._set_up(kernel._bind(args, kwargs), init_params)
        return kernel

    def _begin(
        self, num_warmup: int, init_params: Position | None, model_args: tuple[Any, ...], model_kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], tuple[Any, SplitPotential, Content]]:
        """A run's arguments as JAX arrays, in a form in which the model divides, and the copy that knows them."""

        def prepare(args: tuple[Any, ...], kwargs: dict[str, Any], form: Form) -> Any:
            self._prepared.form = form
            return args, kwargs, self._prepare(num_warmup, args, kwargs, init_params, (model_args, model_kwargs))

        with eagerly():  # chains in parallel come here traced
            return FORMS.divide(self._model, model_args, model_kwargs, prepare, self._prepared.form)

    def _open(
        self, model_args: tuple[Any, ...], model_kwargs: dict[str, Any] | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a run that has begun, as JAX arrays."""
        return FORMS.open(self._model, tuple(model_args), dict(model_kwargs or {}), self._prepared.form)[:2]

    @property
    def _running_model(self) -> OpenModel:
        """The user's model, which may be given what it holds as an argument."""
        assert self._model is not None
        return OpenModel(self._model)

    def _program(self, arguments: Arguments, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        try:
            return program_of_model(self._running_model, arguments)
        except Exception:
            self._divide(args, kwargs, program="")  # says in words what is wrong with model or data
            raise

    def _divide(self, args: tuple[Any, ...], kwargs: dict[str, Any], program: str) -> ModelSplit:
        """How the model divides over these arguments, checked."""
        return ModelSplit.find(
            self._running_model,
            args,
            kwargs,
            num_subsets=self._num_subsets,
            plate=self._plate,
            data_axes=self._data_axes,
            subset_order=self._subset_order,
            init_strategy=self._init_strategy,
            program=program,
            batch_sizes=self._batch_sizes,
            forward_mode=self._forward_mode,
        )

    def _batch_sizes(self, num_rows: int) -> Iterable[int]:
        """Numbers of rows that are evaluated at a time besides a subset's; the model is asked about each."""
        return ()

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """The arguments of a run; of a potential, which is bound to its own, its data."""
        if self._potential is not None:
            return Arguments(self._potential.data, {})
        return Arguments(args, kwargs, model=self._model)

    def _content(self, program: str, arguments: Arguments) -> Content:
        """Digests of all that a state rests on: the program, the data, and how the kernel divides them."""
        return Content.of(program, arguments.data, *self._layout)

    @property
    def _layout(self) -> tuple[str, ...]:
        """Settings besides model and data that a state's energies and kept forces depend on."""
        return str(self._num_subsets), self._subset_order, str(self._plate), str(self._data_axes)

    @property
    def _num_warmup(self) -> int:
        return self._warmup.num_warmup

    @property
    def _known_split(self) -> ModelSplit:
        assert self._split is not None
        return self._split

    @property
    def _given_potential(self) -> SplitPotential:
        assert self._potential is not None
        return self._potential

    @property
    def _given_start(self) -> Position | None:
        """Start of a chain on a potential without ``init_params``; None where there is none."""
        return None

    @property
    def plan(self) -> str:
        """How a copy's model divides, as a text; equal for data sets that one compiled program may serve."""
        return "" if self._split is None else self._split.plan

    def _study_split(self, split: ModelSplit, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Learn what else a kernel needs to know of a model that has just been divided."""

    def _set_up(self, potential: SplitPotential, init_params: Position | None) -> None:
        """Learn what a kernel needs to know of the data before chains start; ``init_params`` are the first one's."""

    def _without_knowledge(self) -> SplitKernel:
        """This copy, for data whose values are not those that :meth:`_set_up` has seen."""
        return self

    def _watch(self, state: Any) -> None:
        """Warn of what a state says of the run."""

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SplitPotential:
        potential = self._potential if self._potential is not None else self._known_split.bind(args, kwargs)
        return potential.in_forward_mode() if self._forward_mode else potential

    def _find_start(
        self, rng_key: jax.Array, potential: SplitPotential, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Position:
        """Starting points with a finite density on all rows; the host looks at the rows of one subset only."""
        split = self._known_split
        z = split.initial_position(rng_key, args, kwargs)
        for attempt in range(INIT_TRIES):
            energies = potential.energies(z) if is_prng_key(rng_key) else jax.vmap(potential.energies)(z)
            finite = jnp.isfinite(jnp.sum(energies.value, axis=-1))
            if isinstance(finite, Tracer) or np.all(finite):
                break
            fold_in = jax.vmap(random.fold_in, (0, None)) if finite.ndim else random.fold_in
            fresh = split.initial_position(fold_in(rng_key, attempt), args, kwargs)
            z = jax.tree.map(partial(_where_chain, finite), z, fresh)
        return z

    def _check_sites(self, z: Position, single: bool) -> None:
        sizes = {name: int(np.prod(u.shape if single else u.shape[1:])) for name, u in z.items()}
        if self._split is not None:
            check_sites("init_params", sizes, self._split.site_sizes)
        self._check_mass(sizes)

    def _check_state(self, state: Any) -> None:
        """Raise unless a state is of the form that this kernel's chains have on this model and data."""
        if self._state_like is None:
            return
        expected, given = (
            {jax.tree_util.keystr(path): (x.shape, x.dtype) for path, x in jax.tree_util.tree_leaves_with_path(tree)}
            for tree in (self._state_like, _shapes(state, not jnp.ndim(state.i)))
        )
        check_state_form(type(self).__name__, expected, given)

    def _check_mass(self, sizes: dict[str, int]) -> None:
        """Raise unless the given mass matrix fits sites of these sizes."""
        check_mass_blocks("dense_mass", self._settings.dense_mass, sizes)
        check_inverse_mass_matrix(self._settings.inverse_mass_matrix, sizes, self._settings.dense_mass)

    def _shared_by_chains(self, state: Any) -> Any:
        """A tree prefix of the state: which parts are alike in all chains that are vectorised."""
        return type(state)(*(field == "i" for field in state._fields))

    def _refreshed(self, potential: SplitPotential, state: Any) -> Any:
        """A state that was left by other data, brought up to date, with a warning."""
        jax.debug.callback(warn_of_other_data)
        return _each_chain(lambda s: self._shorten_step(potential, self._recompute(potential, s)), state)

    def _shorten_step(self, potential: SplitPotential, state: Any) -> Any:
        """``state`` with a step size that is not too long for a potential that it was not adapted to."""
        return state


@jax.tree_util.register_static
@dataclass(frozen=True)
class Warmup:
    """How long a state's warm-up is: in the state, but no number of it, so that compiled programs know it.

    Attributes:
        num_warmup: number of warm-up iterations.
    """

    num_warmup: int


def _shapes(state: Any, single: bool) -> Any:
    """Shapes and types of one chain's state."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x)[0 if single else 1 :], x.dtype), state)


class NoStart:
    """Stands for the state of a chain that has no starting point: an error for whoever looks at it."""

    def __getattr__(self, name: str) -> Any:
        raise ValueError("init_params must be given for a kernel made from a SplitPotential, got None")


def check_start(potential_energy: jax.Array, z: Position) -> None:
    """Raise unless every chain starts at a finite potential energy; of chains in parallel, when they start."""
    if isinstance(potential_energy, Tracer):
        jax.debug.callback(check_finite_start, potential_energy, z)
    else:
        check_finite_start(np.asarray(potential_energy), jax.tree.map(np.asarray, z))


def _each_chain(function: Callable[[Any], Any], state: Any) -> Any:
    """Apply a function of one chain's state to one chain or to each of a batch."""
    return jax.vmap(function)(state) if jnp.ndim(state.i) else function(state)


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


def _like_chains(digest: DataDigest, state: Any) -> DataDigest:
    """A digest for each chain of a state."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (*jnp.shape(state.i), *x.shape)), digest)


def _where_chain(keep: jax.Array, old: jax.Array, new: jax.Array) -> jax.Array:
    """``old`` where a chain keeps it, else ``new``."""
    return jnp.where(keep.reshape(keep.shape + (1,) * (old.ndim - keep.ndim)), old, new)
