"""Chains that move by compiled programs, some draws at a time.

One program moves chains by any number of draws up to the number between two commits. So a run that is stopped and
resumed uses the same program as one that is not; another program could round differently.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpyro.infer import MCMC
from numpyro.util import nested_attrgetter

from numpyro_split.adaptation.settling import told_by
from numpyro_split.host import traces_arguments
from numpyro_split.potential.content import DataDigest
from numpyro_split.potential.sources import source_error
from numpyro_split.runs.states import on_one_device, pack_state, unpack_state
from split_common.runs.chain_writer import Drawn
from split_common.runs.packed import Packed
from split_common.runs.plan import Plan
from split_common.runs.starting import Found
from split_common.runs.statistics import arviz_statistics
from split_common.runs.store import SAMPLING, WARMUP, Form

Move = Callable[[Any, int, int], tuple[Any, Any]]


class Program(NamedTuple):
    """Programs of a run.

    Attributes:
        move: from a state, a number of draws and the number of iterations for each, to the state after them, and the
            draws and statistics collected, in arrays with room for all draws between two commits.
        collect: from a state to its draw, a dict by site, and its statistics, a dict by field.
        describe: from the state of one chain to a text.
        draw_axis: axis of the draws in the collected arrays.
    """

    move: Move
    collect: Callable[[Any], tuple[dict[str, Any], dict[str, Any]]]
    describe: Callable[[Any], str]
    draw_axis: int

    @classmethod
    def of(
        cls,
        mcmc: MCMC,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        plan: Plan,
        extra_fields: Sequence[str],
        digest: DataDigest,
    ) -> Program:
        """Programs that move the chains of a run, as its ``chain_method`` says.

        Args:
            mcmc: the run.
            args: the model's positional arguments.
            kwargs: its keyword arguments.
            plan: how long the run is.
            extra_fields: additional fields of the state that are kept.
            digest: digest of the data, as in the state of one chain.
        """
        kernel, is_batch = mcmc.sampler, mcmc.num_chains > 1 and mcmc.chain_method == "vectorized"
        is_mapped = mcmc.num_chains > 1 and mcmc.chain_method not in ("sequential", "vectorized")
        fields, removed = _fields(mcmc, extra_fields)
        postprocess = mcmc.postprocess_fn or kernel.postprocess_fn(args, kwargs)
        postprocess = jax.vmap(postprocess) if is_batch else postprocess

        def collect(state: Any) -> tuple[dict[str, Any], dict[str, Any]]:
            z, *others = nested_attrgetter(kernel.sample_field, *fields)(state) if fields else [state.z]
            draw = {name: u for name, u in postprocess(z).items() if name not in removed}
            return draw, dict(zip(fields, others, strict=True))

        def move(state: Any, data: Any, num: Any, per_draw: Any) -> tuple[Any, Any]:
            given = data or (args, kwargs)
            if is_mapped:  # one digest for all chains: with one for each, both branches that it selects would run
                state = state._replace(data_digest=digest)

            def iterate(_: Any, state: Any) -> Any:
                return kernel.sample(state, *given)

            def draw(k: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
                state, kept = carry
                state = iterate(0, state) if mcmc.thinning == 1 else lax.fori_loop(0, per_draw, iterate, state)
                return state, jax.tree.map(lambda all_, x: all_.at[k].set(x), kept, collect(state))

            kept = jax.tree.map(lambda x: jnp.zeros((plan.every, *x.shape), x.dtype), jax.eval_shape(collect, state))
            return lax.fori_loop(0, num, draw, (state, kept))

        data = (args, kwargs) if traces_arguments(mcmc) else None
        collect_all = jax.vmap(collect) if is_mapped else collect
        return cls(_over_chains(mcmc, move, data), collect_all, kernel.get_diagnostics_str, int(is_mapped))


class CompiledChains:
    """Chains that move together.

    Args:
        numbers: numbers of the chains.
        program: the program that moves them.
        state: state of one chain, or of a batch of chains with a leading axis.
        plan: how long the run is.
        thinning: number of iterations for each draw.
    """

    def __init__(self, numbers: Sequence[int], program: Program, state: Any, plan: Plan, thinning: int):
        self.numbers, self.state = tuple(numbers), on_one_device(state)
        self._program, self._plan, self._thinning = program, plan, thinning
        self._is_batch = bool(jnp.ndim(state.i))
        self.position, self._seconds = 0, 0.0

    def go_on(self, packed: Sequence[Packed]) -> None:
        """Continue from stored states of the chains, which are at the same position."""
        states = [unpack_state(x, self._one(0)) for x in packed]
        self.state = jax.tree.map(lambda *x: jnp.stack(x), *states) if self._is_batch else states[0]
        self.position = sum(packed[0].values["counts"])
        self._seconds = packed[0].values["seconds"]

    def forms(self) -> tuple[dict[str, Form], dict[str, Form]]:
        """Shape and type of a draw of one chain, and of its statistics in ArviZ's names.

        Raises:
            ValueError: for a field of the state that is not an array, and a site that is none that can be stored.
        """
        draw, statistics = jax.eval_shape(self._program.collect, self.state)
        for name, x in statistics.items():
            if not hasattr(x, "shape") or jnp.issubdtype(x.dtype, jax.dtypes.extended):
                kind = getattr(x, "dtype", type(x).__name__)
                raise ValueError(f"extra_fields must name arrays of the state, got {name!r}, a {kind}")
        for name, x in draw.items():
            if not hasattr(x, "shape") or not _is_of_numpy(x.dtype):
                raise ValueError(
                    "a site of a stored run must be one array of numbers in a type of NumPy's own, got "
                    f"{getattr(x, 'dtype', type(x).__name__)} at site {name!r}: make a site of each part, or convert it"
                )
        cut = 1 if self._is_batch else 0
        draws = {name: Form(x.shape[cut:], np.dtype(x.dtype)) for name, x in draw.items()}
        named = arviz_statistics({name: np.zeros(x.shape[cut:], x.dtype) for name, x in statistics.items()})
        return draws, {name: Form(x.shape, x.dtype) for name, x in named.items()}

    def advance(self, num: int) -> list[Drawn]:
        """Move by a number of draws, or of warm-up iterations, and return what each chain drew."""
        start, phase = time.monotonic(), WARMUP if self.position < self._plan.num_warmup else SAMPLING
        try:
            state, kept = self._program.move(self.state, num, self._thinning if phase is SAMPLING else 1)
            kept = jax.device_get(kept)
        except jax.errors.JaxRuntimeError as error:
            raise source_error(error) from error
        self.state = on_one_device(state)
        axis = self._program.draw_axis
        draws, statistics = jax.tree.map(lambda x: np.take(x, range(num), axis), kept)
        self.position += num
        self._seconds += time.monotonic() - start
        return [
            Drawn(phase, num, self._of(place, draws), arviz_statistics(self._of(place, statistics)))
            for place in range(len(self.numbers))
        ]

    def states(self) -> list[Packed]:
        """The state of each chain."""
        return [pack_state(self._one(i))._replace(values={"seconds": self._seconds}) for i in range(len(self.numbers))]

    def found(self) -> list[Found]:
        """Step size, metric and center that warm-up of each chain found."""
        return [_found(jax.device_get(self._one(i)._replace(rng_key=None))) for i in range(len(self.numbers))]

    def progress(self) -> list[dict[str, Any]]:
        """Seconds of computation, the values that warm-up settled on, and what statistics of a thinned run lack."""
        settled, health = (getattr(self.state, name, None) for name in ("settled", "health"))
        told = [] if settled is None else told_by(settled)
        watched = [health.num_diverging, health.bfmi] if health is not None and self._thinning > 1 else []
        return [
            {"seconds": self._seconds, "settled": _of_chain(told, i), "watched": _of_chain(watched, i)}
            for i in range(len(self.numbers))
        ]

    @property
    def text(self) -> str:
        """The host's text for the progress bar, for one chain, or for the first of a batch."""
        return self._program.describe(self._one(0))

    def _one(self, place: int) -> Any:
        return jax.tree.map(lambda x: x[place], self.state) if self._is_batch else self.state

    def _of(self, place: int, tree: dict[str, Any]) -> dict[str, np.ndarray]:
        """One chain's part of the collected arrays."""
        if not self._is_batch:
            return tree
        axis = 1 - self._program.draw_axis
        return {name: np.ascontiguousarray(np.take(x, place, axis)) for name, x in tree.items()}


def _of_chain(columns: Sequence[Any], place: int) -> list[float | None]:
    """One chain's entry of each array, as numbers of a JSON file; None where it is not finite."""
    numbers = [float(np.atleast_1d(x)[place]) for x in columns]
    return [x if np.isfinite(x) else None for x in numbers]


def _found(state: Any) -> Found:
    """Step size, metric and center that warm-up of one chain found."""
    adapted, centering = state.adapt_state, state.centering
    metric = None if adapted is None else adapted.inverse_mass_matrix
    center = None if centering is None else centering.center.reference
    return Found(float(state.step_size if adapted is None else adapted.step_size), metric, center)


def _fields(mcmc: MCMC, extra_fields: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Fields of the state that are kept beside the draw, and sites that are not kept, from the host's field names."""
    sample_field = mcmc.sampler.sample_field
    without = f"~{sample_field}."
    wanted = dict.fromkeys((*mcmc.sampler.default_fields, *extra_fields))
    fields = tuple(name for name in wanted if name != sample_field and not name.startswith(without))
    return fields, tuple(name.removeprefix(without) for name in wanted if name.startswith(without))


def _over_chains(mcmc: Any, move: Callable[..., Any], data: Any) -> Move:
    """A program for the chains of a run, compiled once for any number of draws."""
    if mcmc.num_chains == 1 or mcmc.chain_method in ("sequential", "vectorized"):
        compiled = jax.jit(move)
        return lambda state, num, per_draw: compiled(state, data, num, per_draw)
    if mcmc.chain_method == "parallel":
        mapped = jax.pmap(move, in_axes=(0, None, None, None))
        return lambda state, num, per_draw: mapped(state, data, num, per_draw)
    programs: dict[tuple[int, int], Any] = {}  # a user's chain_method takes functions of the state alone

    def move_by(state: Any, num: int, per_draw: int) -> Any:
        pieces = []
        for size in _powers_of_two(num):
            if (size, per_draw) not in programs:
                one = jax.jit(partial(move, data=data, num=size, per_draw=per_draw))
                programs[size, per_draw] = mcmc.chain_method(one)
            state, kept = programs[size, per_draw](state)
            pieces.append(jax.tree.map(lambda x, size=size: x[:, :size], kept))
        return state, jax.tree.map(lambda *x: jnp.concatenate(x, 1), *pieces)

    return move_by


def _powers_of_two(num: int) -> list[int]:
    """Powers of two that add up to a number, the largest first."""
    return [1 << k for k in reversed(range(num.bit_length())) if num >> k & 1]


def _is_of_numpy(dtype: Any) -> bool:
    """Whether a type of JAX's is one of NumPy's own numbers: bfloat16 and types of random keys are not."""
    return not jnp.issubdtype(dtype, jax.dtypes.extended) and np.dtype(dtype).kind in "biufc"
