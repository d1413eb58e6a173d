"""NumPyro's protocol of a kernel, implemented once for every method.

A kernel object holds its arguments. What evolves is in the state. What is learned from the data before chains start is
in a prepared method, which is looked up by digests (:mod:`numpyro_split.kernels.prepared`). Each call binds the
potential to the arguments that it is given. A state carries a digest of the data that it was made with; if it is used
with other data, everything in it that depends on the data is recomputed.
"""

from __future__ import annotations

import copy
import math
import os
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.core import Tracer
from jax.errors import UnexpectedTracerError
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import identity, is_prng_key

from numpyro_split.host import GIBBS_SITES
from numpyro_split.inference_data import to_inference_data
from numpyro_split.kernels.agreement import check_alike, digest_of_rest, shares_rows
from numpyro_split.kernels.method import Method, Setup
from numpyro_split.kernels.prepared import Prepared, PreparedRuns
from numpyro_split.kernels.state import ChainState, check_warmup_ended, with_key_like
from numpyro_split.potential.arguments import Arguments
from numpyro_split.potential.content import (
    KEEPS_TRACER,
    Content,
    DataDigest,
    TracerKeptError,
    numbers_of,
    program_of_model,
    program_of_potential,
)
from numpyro_split.potential.forms import FORMS
from numpyro_split.potential.position import Position
from numpyro_split.potential.precision import full_precision
from numpyro_split.potential.sharded_rows import is_elsewhere
from numpyro_split.potential.shards import Shards
from numpyro_split.potential.sources import CHAINS
from numpyro_split.potential.split_potential import SplitPotential
from numpyro_split.potential.tracing import (
    always_call_back,
    call_back,
    constants_once,
    eagerly,
    one_thread_at_a_time,
)
from numpyro_split.splitting.captured import check_captured
from numpyro_split.splitting.divided_model import DividedModel
from numpyro_split.splitting.latent_sites import check_supports_of_block
from numpyro_split.splitting.settings import Splitting
from split_common.containers import Form
from split_common.health import warn_of_other_data
from split_common.memory import AUTO
from split_common.open_model import OpenModel
from split_common.report import Report, check_reported
from split_common.runs.identity import code_of
from split_common.runs.reading import report_of
from split_common.start import (
    check_finite_start,
    check_is_position,
    check_is_state,
    check_shapes,
    check_sites,
    check_state_form,
)
from split_common.values import describe_kernel

INIT_TRIES = 100


class SplitKernel(MCMCKernel):
    """Base of all kernels: the host's protocol, for a method on a model that is divided.

    Args:
        model: NumPyro model, or a :class:`~numpyro_split.SplitPotential`.
        splitting: how the model is divided.
        method: how a chain starts and moves.
    """

    def __init__(self, model: Callable[..., Any] | SplitPotential, splitting: Splitting, method: Method):
        self._model = None if isinstance(model, SplitPotential) else model
        self._potential = model if isinstance(model, SplitPotential) else None
        self._splitting, self._method = splitting, method
        self._runs = PreparedRuns()

    def __repr__(self) -> str:
        """Class, model, number of subsets, plate, and the texts of the method."""
        model = self._potential if self._model is None else self._model
        latest = self._runs.latest()
        method = self._method if latest is None else latest.method
        details = [*self._splitting.details, *method.details]
        return describe_kernel(self, model, self.num_subsets, self._splitting.plate, details)

    @property
    def model(self) -> Callable[..., Any] | None:
        """The user's model; ArviZ reads it."""
        return self._model

    @property
    def num_subsets(self) -> int | str:
        """M; if it is chosen from the data, that of the last run, or "auto" before the first run."""
        given = self._splitting.num_subsets
        return given if isinstance(given, int) else self._runs.num_subsets or AUTO

    @property
    def sample_field(self) -> str:
        """Field of the state that holds the draw."""
        return "z"

    @property
    def default_fields(self) -> tuple[str, ...]:
        """The draw and all statistics, so that the usual ArviZ conversion is complete."""
        return ("z", *self._method.statistics)

    @one_thread_at_a_time
    @full_precision
    def init(
        self,
        rng_key: jax.Array,
        num_warmup: int,
        init_params: Position | None = None,
        model_args: tuple[Any, ...] = (),
        model_kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Divide and check the model, then start one chain, or a batch of chains for a batch of keys.

        Raises:
            ValueError: for faults of the model or the data (see :func:`numpyro_split.split_model`), a mass
                matrix of the wrong shape, or a starting point where the density is not finite; as
                :class:`~split_common.errors.RanksError` where processes that share the rows differ.
        """
        self._method.check_warmup(num_warmup)
        check_is_position("init_params", init_params)
        init_params = init_params and {name: _floating(u) for name, u in init_params.items()}
        given, single = (tuple(model_args), dict(model_kwargs or {})), is_prng_key(rng_key)
        is_constrained = self._model is not None and GIBBS_SITES in given[1]
        self._runs.num_chains, self._runs.is_block = 1 if single else rng_key.shape[0], is_constrained
        first = init_params if single else jax.tree.map(lambda u: u[0], init_params)
        self._check_processes(rng_key, num_warmup, init_params, first, *given)
        if self._potential is not None and first is None and self._method.given_start is None:
            if (latest := self._runs.latest()) is not None:
                self._begin(num_warmup, latest.state_like.z, *given)
            return NoStart()  # a run that continues from a given state needs none
        first = None if is_constrained else first
        args, kwargs, (prepared, potential, content) = self._begin(num_warmup, first, *given)
        if is_constrained:
            check_supports_of_block(prepared.known_split, args, kwargs)
        if is_constrained and init_params is not None:
            init_params = prepared.known_split.unconstrain_fn(args, kwargs)(init_params)
        self._runs.num_subsets = prepared.num_subsets
        keys = random.split(rng_key) if single else jnp.swapaxes(jax.vmap(random.split)(rng_key), 0, 1)
        if init_params is None:
            z = self._find_start(prepared, keys[0], potential, args, kwargs)
        else:
            z = init_params
        _check_position(prepared, z, single)
        start = prepared.compiled_start if single else jax.vmap(prepared.compiled_start, (None, 0, 0))
        state = start(potential, z, keys[1])
        check_start(state.potential_energy, z)
        state = state._replace(data_digest=_like_chains(content.first_digest(), state))
        prepared.state_like = _shapes(state, single)
        return state

    @one_thread_at_a_time
    @full_precision
    def sample(self, state: Any, model_args: tuple[Any, ...], model_kwargs: dict[str, Any] | None) -> Any:
        """The state after one iteration on the data given here; a state made with other data is refreshed first.

        If the data are traced, this is checked only when a run continues from a state (the host gives it a new
        ``rng_key``), not in every iteration; a loop of your own that changes traced data must call :meth:`refresh`.
        """
        check_is_state(type(self).__name__, state)
        own_key = None if state.adapt_state is None else state.adapt_state.rng_key
        state = with_key_like(state, state.rng_key)
        prepared, potential, content = self._look_up(state, model_args, model_kwargs)
        potential = constants_once(potential)
        check_warmup_ended(state.warmup)
        method = prepared.method
        if method.depends_on_data:
            stale, digest = content.compare(state.data_digest)
            state = lax.cond(stale, partial(_refreshed, method, potential), lambda s: s, state)
            state = state._replace(data_digest=digest)
        axis = CHAINS if potential.reads_sources else None
        state = _over_chains(partial(method.step, potential), state, _shared_by_chains(method, state), axis)
        method.watch(state)
        return with_key_like(state, own_key)  # the key in the form it came in: a loop's input and output are alike

    @one_thread_at_a_time
    @full_precision
    def refresh(self, state: Any, model_args: tuple[Any, ...], model_kwargs: dict[str, Any] | None) -> Any:
        """Recompute what ``state`` caches of the potential at the same position (for the host's ``Gibbs``)."""
        prepared, potential, content = self._look_up(with_key_like(state, state.rng_key), model_args, model_kwargs)
        _, digest = content.compare(state.data_digest)
        return _each_chain(partial(prepared.method.refresh, potential), state)._replace(data_digest=digest)

    def report(self, mcmc: Any) -> Report:
        """Report on a finished run: its problems, and what to do about them; ``print`` it, or read its ``table``.

        Args:
            mcmc: the host's ``MCMC`` after a run with this kernel; or the path of a store.

        Returns:
            Divergences, E-BFMI, limits that were reached, noise, acceptance, whether warm-up had settled, R-hat and
            effective draws, each with a limit; how the model divides, and what warm-up settled on.

        Raises:
            TypeError: for a run of another package's kernel.
            StoreError: for a path that is not a store.
        """
        if isinstance(mcmc, str | os.PathLike):
            return report_of(mcmc)
        check_reported(getattr(mcmc, "sampler", mcmc), SplitKernel)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # because the report says the same
            return Report.of(to_inference_data(mcmc), type(mcmc.sampler).__name__)

    def wrap_model(self, wrapper: Callable[..., Any]) -> SplitKernel:
        """A copy of this kernel whose model is ``wrapper(model)``."""
        if self._model is None:
            raise ValueError("wrap_model needs a kernel made from a model, got one made from a SplitPotential")
        kernel = copy.copy(self)
        kernel._model = wrapper(self._model)
        kernel._runs = PreparedRuns()
        return kernel

    @one_thread_at_a_time
    def postprocess_fn(self, model_args: tuple[Any, ...], model_kwargs: dict[str, Any]) -> Callable[[Position], Any]:
        """Function from a position to constrained values and deterministic sites."""
        if self._model is None:
            return identity
        args, kwargs = self._open(model_args, model_kwargs)
        split = self._latest_like(args, kwargs).known_split
        constrain = split.postprocess_fn(args, kwargs)

        def postprocess(z: Position) -> Any:
            # when a run continues from a state, the host calls this before the other methods
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
        """Function from a position to constrained values, which does not run the model.

        ``Gibbs`` asks a block for it without the sites of other blocks, without which the model is another one. No
        support of the block's sites depends on them.
        """
        if self._model is None:
            return identity
        args, kwargs = self._open(model_args, model_kwargs)
        prepared = (self._runs.latest() if self._runs.is_block else None) or self._latest_like(args, kwargs)
        return one_thread_at_a_time(prepared.known_split.constrain_fn(args, kwargs))

    def get_diagnostics_str(self, state: Any) -> str:
        """Text of the progress bar."""
        acceptance = float(state.mean_accept_prob)
        return f"{int(state.num_steps)} steps of size {float(state.step_size):.2e}. acc. prob={acceptance:.2f}"

    def __getstate__(self) -> dict[str, Any]:
        """The arguments without prepared methods, which the next run finds again."""
        return {**self.__dict__, "_runs": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._runs = PreparedRuns()

    @full_precision
    def _prepare(
        self,
        num_warmup: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        init_params: Position | None = None,
        given: Any = (),
    ) -> tuple[Prepared, SplitPotential, Content]:
        """The prepared method of these arguments, made if it is not stored, and the potential bound to them.

        Args:
            num_warmup: number of warm-up iterations.
            args: the model's positional arguments, with JAX arrays.
            kwargs: the model's keyword arguments, with JAX arrays.
            init_params: starting point of the first chain.
            given: the arguments before they are made JAX arrays; () except where a run begins.
        """
        with eagerly():
            arguments = self._arguments(args, kwargs)
            if self._model is not None:
                check_captured(self._model, arguments.others)
                program = self._program(arguments, args, kwargs)
            else:
                assert self._potential is not None
                program = program_of_potential(self._potential, init_params or self._method.given_start or {})
            content = self._content(program, arguments)
            self._runs.note_run(arguments.signature, jax.tree.leaves(given), content)
            prepared = self._runs.find(content, num_warmup) if content.words is not None else None
            if prepared is None or not prepared.method.serves(init_params):
                prepared = self._prepare_anew(num_warmup, args, kwargs, content, init_params)
                self._runs.keep(content, num_warmup, prepared if content.words is not None else prepared.without_data())
        return prepared, self._bind(prepared, args, kwargs), content

    def _look_up(
        self, state: Any, model_args: tuple[Any, ...], model_kwargs: dict[str, Any] | None
    ) -> tuple[Prepared, SplitPotential, Content]:
        """As :meth:`_prepare`, for a state; the model is not traced again, because every run begins with ``init``."""
        self._runs.num_chains = jnp.shape(state.i)[0] if jnp.ndim(state.i) else 1
        with eagerly():
            args, kwargs = self._open(model_args, model_kwargs)
            is_traced = any(isinstance(x, Tracer) for x in jax.tree.leaves((model_args, model_kwargs)))
            if is_traced and self._runs.form is not None and self._runs.form.own:
                raise must_be_known()
            arguments, num_warmup = self._arguments(args, kwargs), state.warmup.num_warmup
            program = self._runs.program_of(arguments.signature)
            known = not any(isinstance(x, Tracer) for x in arguments.data)
            if isinstance(state.i, Tracer):
                check_at_hand(arguments)
            content = None if program is None or not known else self._content(program, arguments)
            prepared = None if content is None else self._runs.find(content, num_warmup)
            moves = self._runs.is_block and program is not None  # other blocks' sites, which change always, are data
            if prepared is None and known and not moves:
                one = state.z if not jnp.ndim(state.i) else jax.tree.map(lambda u: u[0], state.z)
                prepared, _, content = self._prepare(num_warmup, args, kwargs, one)
        if prepared is None:
            prepared = None if program is None else self._runs.find_for_traced(program, num_warmup)
            if prepared is None or program is None:
                raise RuntimeError(
                    "init must be called before sample, on data of the same shapes and types (and jit_model_args must "
                    "be False for rows that are read from sources, and for arguments that are plain numbers: pass "
                    "jnp.asarray(2.0) in place of 2.0)"
                )
            if prepared.split is not None and prepared.split.reads:
                raise must_be_known()
            prepared = prepared.without_data()
            content = self._content(program, arguments, None if prepared.split is None else prepared.split.shards)
        assert content is not None
        assert prepared is not None
        _check_state(type(self).__name__, prepared, state)
        return prepared, self._bind(prepared, args, kwargs), content

    def _latest_like(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Prepared:
        """The prepared method that the last run with arguments of this form used."""
        program = self._runs.program_of(self._arguments(args, kwargs).signature)
        prepared = None if program is None else self._runs.latest(program)
        return self._prepare(0, args, kwargs)[0] if prepared is None else prepared

    def _prepare_anew(
        self,
        num_warmup: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        content: Content,
        init_params: Position | None,
    ) -> Prepared:
        """Divide the model, and prepare the method for model and data."""
        split = potential = None
        if self._potential is not None:
            potential = self._potential.for_program(content.program)
        else:
            split = self._divide(args, kwargs, content.program)
        known = Prepared(split, potential, self._method, None)
        bound = self._bind(known, args, kwargs)
        method = self._method.for_subsets(bound.num_subsets)
        method = method.prepare(Setup(num_warmup, bound, split, args, kwargs, init_params))
        return Prepared(split, potential, method, jax.jit(method.start))

    def _begin(
        self, num_warmup: int, init_params: Position | None, model_args: tuple[Any, ...], model_kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], tuple[Any, SplitPotential, Content]]:
        """The arguments of a run as JAX arrays, in a form in which the model divides, and what ``_prepare`` gives."""

        def prepare(args: tuple[Any, ...], kwargs: dict[str, Any], form: Form) -> Any:
            self._runs.form = form
            return args, kwargs, self._prepare(num_warmup, args, kwargs, init_params, (model_args, model_kwargs))

        with eagerly():  # parallel chains are traced here
            return FORMS.divide(self._model, model_args, model_kwargs, prepare, self._runs.form, self.num_subsets == 1)

    def _check_processes(
        self, rng_key: jax.Array, num_warmup: int, init_params: Position | None, first: Position | None, *given: Any
    ) -> None:
        """Raise in all processes that share the rows of a run unless they are about to run the same thing."""
        arguments = self._given(*given)
        if not shares_rows(arguments) or isinstance(rng_key, Tracer):
            return
        check_alike(
            {
                "random key": numbers_of(rng_key),
                "kernel": (type(self).__name__, self._splitting, self._method),
                "model": (
                    code_of(self._model or self._potential, with_numbers=False),
                    self._computed(arguments, first),
                ),
                "number of warm-up iterations": num_warmup,
                "init_params": init_params,
                "argument besides the rows": digest_of_rest(arguments),
            }
        )

    def _computed(self, arguments: Arguments, z: Position | None) -> str:
        """Digest of what model or potential computes, with its numbers; "" where that fails, as the run then will."""
        try:
            with eagerly():
                if self._model is not None:
                    return program_of_model(self._running_model, arguments, owner="model")
                assert self._potential is not None
                return program_of_potential(self._potential, z or self._method.given_start or {}, owner="potential")
        except Exception:
            return ""

    def _given(self, model_args: tuple[Any, ...], model_kwargs: dict[str, Any]) -> Arguments:
        """The arguments of a run that has not begun."""
        return self._arguments(*FORMS.open(None, model_args, model_kwargs)[:2])

    def _open(
        self, model_args: tuple[Any, ...], model_kwargs: dict[str, Any] | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a run that has begun, as JAX arrays."""
        return FORMS.open(self._model, tuple(model_args), dict(model_kwargs or {}), self._runs.form)[:2]

    @property
    def _running_model(self) -> OpenModel:
        """The user's model, which can be given the arrays that it holds as an argument."""
        assert self._model is not None
        return OpenModel(self._model)

    def _program(self, arguments: Arguments, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        try:
            return program_of_model(self._running_model, arguments)
        except (TracerKeptError, UnexpectedTracerError) as error:
            raise TracerKeptError(KEEPS_TRACER) from error
        except Exception:
            self._divide(args, kwargs, program="")  # its error names the fault of model or data
            raise

    def _divide(self, args: tuple[Any, ...], kwargs: dict[str, Any], program: str) -> DividedModel:
        """How the model divides over these arguments, after checks."""
        batch_sizes, num_chains = self._method.batch_sizes, self._runs.num_chains
        return self._splitting.find(self._running_model, args, kwargs, program, batch_sizes, num_chains)

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """The arguments of a run; for a kernel made from a potential, the data of the potential."""
        if self._potential is not None:
            return Arguments(self._potential.data, {})
        return Arguments(args, kwargs, model=self._model)

    def _content(self, program: str, arguments: Arguments, shards: Shards | None = None) -> Content:
        """Digests of all that a state depends on: the program, the data, and how the kernel divides them.

        Args:
            program: digest of the model.
            arguments: arguments of a run.
            shards: shards in which the rows lie, if the arguments are traced and do not show them.
        """
        layout = (*self._splitting.layout, type(self).__name__, *self._method.layout)
        if self._splitting.is_chosen:
            layout += (str(self._runs.num_chains),)
        if shards is None:
            known = self._potential
            shards = arguments.shards(self._splitting.data_axes) if known is None else known.shards
        return Content.of(program, arguments.data, *layout, *([] if shards is None else [shards.text]))

    def _bind(self, prepared: Prepared, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SplitPotential:
        """The potential of these arguments."""
        potential = prepared.potential
        if potential is None:
            potential = prepared.known_split.bind(args, kwargs)
        return potential.in_forward_mode() if self._splitting.forward_mode else potential

    def _find_start(
        self,
        prepared: Prepared,
        rng_key: jax.Array,
        potential: SplitPotential,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Position:
        """Starting points with a finite density on all rows; the host checks it only on the rows of one subset."""
        if (own := prepared.method.find_start(rng_key)) is not None:
            return own
        split = prepared.known_split
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


def _floating(u: Any) -> jax.Array:
    """Values of a site as an array of floating-point numbers of at least 32 bits, the type that chains keep."""
    u = jnp.asarray(u)
    return jnp.asarray(u, jnp.promote_types(jnp.result_type(u, float), jnp.float32))


def _check_position(prepared: Prepared, z: Position, single: bool) -> None:
    """Raise unless a position has the model's sites, and the method's arguments fit them."""
    shapes = {name: u.shape if single else u.shape[1:] for name, u in z.items()}
    if prepared.split is not None:
        check_shapes("init_params", shapes, prepared.split.site_shapes)
    prepared.method.check_sizes({name: math.prod(shape) for name, shape in shapes.items()})


def _check_state(name: str, prepared: Prepared, state: ChainState) -> None:
    """Raise unless a state has the form of the kernel's chains on this model and data."""
    if prepared.state_like is None:
        return
    without = dict.fromkeys(prepared.method.free_fields)
    expected, given = (
        {jax.tree_util.keystr(path): (x.shape, x.dtype) for path, x in jax.tree_util.tree_leaves_with_path(tree)}
        for tree in (
            prepared.state_like._replace(**without),
            _shapes(state, not jnp.ndim(state.i))._replace(**without),
        )
    )
    check_state_form(name, expected, given)


def _shared_by_chains(method: Method, state: ChainState) -> ChainState:
    """A tree prefix of the state: True for the parts that vectorised chains share."""
    return type(state)(*(field == "i" for field in state._fields))._replace(**method.shared_fields)


def _refreshed(method: Method, potential: SplitPotential, state: ChainState) -> ChainState:
    """A state that was made with other data, refreshed for these, with a warning."""
    call_back(warn_of_other_data)
    return _each_chain(lambda s: method.shorten_step(potential, method.refresh(potential, s)), state)


def _shapes(state: Any, single: bool) -> Any:
    """Shapes and dtypes of the state of one chain."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x)[0 if single else 1 :], x.dtype), state)


def must_be_known() -> ValueError:
    """The error for traced arguments of a model that can be prepared only for known data."""
    return ValueError(
        "jit_model_args must be False for a model that reads values of its data with Python, or takes them as they are"
    )


def check_at_hand(arguments: Arguments) -> None:
    """Raise if a compiled program would hold rows of other processes as constants."""
    for name, x in arguments.named_arrays():
        if is_elsewhere(x):
            raise ValueError(
                "jit_model_args must be True in MCMC(...) where rows lie in several processes, got False, and "
                f"{name!r} is in part with other processes: a compiled program cannot hold that"
            )


class NoStart:
    """Placeholder for the state of a chain without a starting point; any use of it raises an error."""

    def __getattr__(self, name: str) -> Any:
        raise ValueError("init_params must be given for a kernel made from a SplitPotential, got None")


def check_start(potential_energy: jax.Array, z: Position) -> None:
    """Raise unless all chains start at a finite potential energy; parallel chains are checked when they start."""
    if isinstance(potential_energy, Tracer):
        always_call_back(check_finite_start, potential_energy, z)
    else:
        check_finite_start(np.asarray(potential_energy), jax.tree.map(np.asarray, z))


def _each_chain(function: Callable[[Any], Any], state: Any) -> Any:
    """Apply a function of the state of one chain to one chain or to each chain of a batch."""
    return jax.vmap(function)(state) if jnp.ndim(state.i) else function(state)


def _over_chains(transition: Callable[[Any], Any], state: Any, shared: Any, axis: str | None) -> Any:
    """Apply a transition of one chain to one chain or to a batch of chains.

    Args:
        transition: function from the state of one chain to the next.
        state: state of one chain, or of a batch of chains, with a leading axis.
        shared: tree prefix of ``state``: True for parts that all chains share, False for others. Of the shared parts,
            the transition may change only the count ``i``. Branches that depend on shared parts are decided once, where
            a batch would evaluate every branch, and shared matrices are not multiplied chain by chain.
        axis: name of the axis of chains, or None.
    """
    if not jnp.ndim(state.i):
        return transition(state)
    by_leaf = jax.tree.broadcast(shared, state)
    one = jax.tree.map(lambda same, x: x[0] if same else x, by_leaf, state)
    axes = jax.tree.map(lambda same: None if same else 0, shared)
    moved = jax.vmap(transition, (axes,), axis_name=axis)(one)
    return jax.tree.map(lambda same, old, new: old if same else new, by_leaf, state, moved)._replace(i=moved.i)


def _like_chains(digest: DataDigest, state: Any) -> DataDigest:
    """The digest, repeated for each chain of a state."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (*jnp.shape(state.i), *x.shape)), digest)


def _where_chain(keep: jax.Array, old: jax.Array, new: jax.Array) -> jax.Array:
    """``old`` where a chain keeps it, else ``new``."""
    return jnp.where(keep.reshape(keep.shape + (1,) * (old.ndim - keep.ndim)), old, new)
