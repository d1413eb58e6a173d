"""Digests of all that a run depends on: the arrays it is given, and the program of its model.

A model's program is its expression (a jaxpr) with every constant in it. So whatever reaches the log-density counts,
however it gets there: numbers and flags among the arguments, arrays in closures and globals, attributes of objects.
What does not reach it has no part in the posterior.

Arrays are digested on the host (:mod:`split_common.digest`); sources in one pass over their rows, after which a source
counts as unchanged as long as size and time of its files are. Where arrays are traced, :func:`traced_digest` computes
the digest in the graph: two sums over all words of 32 bits, each mixed with its place by the finaliser of MurmurHash3,
so that different data have the same one with probability 2⁻⁶⁴. It is computed in the first iteration of a run alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.core import Tracer
from numpyro.handlers import seed, substitute, trace
from numpyro.infer.initialization import init_to_uniform

from numpyro_split.potential.arguments import Arguments, Data
from numpyro_split.potential.model_rows import log_prob_of
from numpyro_split.potential.position import Position
from numpyro_split.potential.precision import full_precision
from numpyro_split.potential.readings import UNREADABLE, find_readings
from numpyro_split.potential.sharded_rows import named_sharding
from numpyro_split.potential.sources import is_source, sources_in
from numpyro_split.potential.split_potential import SplitPotential
from numpyro_split.potential.tracing import ADDRESS
from split_common.digest import WORDS, Digest, digest_of_arrays
from split_common.errors import ModelNotSplittableError
from split_common.open_model import OpenModel

KNOWN, NEW, RESUMED = range(3)  # status of the data digest in a state
# calls of Python functions in the text of a jaxpr, custom derivative rules included
OPAQUE = ("_callback[", "custom_vjp_call[", "custom_jvp_call[")
LANES = ((0x9E3779B9, 0x85EBCA6B), (0xC2B2AE35, 0x27D4EB2F))  # odd constants: multiplier and salt of each sum
KEEPS_TRACER = (
    "the model must keep nothing of its first run, got one that keeps a tracer of JAX's (in a cache, an attribute): "
    "compute it outside the model, or define the model anew and run it once before, as in "
    "`numpyro.handlers.seed(model, 0)(*args)`"
)


class TracerKeptError(ModelNotSplittableError):
    """Error for a model that keeps a tracer from run to run."""


class Content(NamedTuple):
    """Digests of a run's program and data.

    Attributes:
        program: digest of the model with its constants, in hexadecimal.
        rest: further content that the digest covers, as texts.
        data: the arrays.
        words: digest of all of these, shape (4,), uint32; None where the arrays are traced.
    """

    program: str
    rest: tuple[str, ...]
    data: Data
    words: np.ndarray | None

    @classmethod
    def of(cls, program: str, data: Data, *rest: str) -> Content:
        """The content of a program, of the arrays that it is given, and of the rest."""
        if any(isinstance(x, Tracer) for x in data):
            return cls(program, rest, data, None)
        if any(named_sharding(x) is not None for x in data):  # they are digested on the devices where they lie
            return cls(program, rest, data, np.asarray(_digest_in_place(data, (program, *rest))))
        return cls(program, rest, data, digest_of_data(data).add(program, *rest).words)

    @property
    def key(self) -> str | None:
        """The digest in hexadecimal; None where the arrays are traced."""
        return None if self.words is None else self.words.tobytes().hex()

    def first_digest(self) -> DataDigest:
        """Digest for a state that was made from this content."""
        if self.words is None:
            return DataDigest(traced_digest(self.data, self.program, *self.rest), jnp.array(KNOWN, jnp.uint8))
        return DataDigest(jnp.asarray(self.words), jnp.array(NEW, jnp.uint8))

    def compare(self, digest: DataDigest) -> tuple[jax.Array, DataDigest]:
        """Whether a state was left by content other than this, and the digest that it has from now on.

        Args:
            digest: the state's, of one chain or with a leading axis of chains.
        """
        status = jnp.max(digest.status)  # all chains have the same status
        words, known = digest.words, jnp.full_like(digest.status, KNOWN)
        if self.words is not None:
            now = jnp.broadcast_to(self.words, words.shape)
            return jnp.any(words != now), DataDigest(now, known)

        def look() -> jax.Array:
            return jnp.broadcast_to(traced_digest(self.data, self.program, *self.rest), words.shape)

        now = lax.cond(status == KNOWN, lambda: words, look)
        return (status == RESUMED) & jnp.any(words != now), DataDigest(now, known)


def digest_of_data(data: Data) -> Digest:
    """The digest of data arrays, and of sources by the survey that read all their rows."""
    digest = digest_of_arrays(numbers_of(x) for x in data if not is_source(x))
    return digest.add(*(x.survey.digest for x in sources_in(data)))


class DataDigest(NamedTuple):
    """Digest of the data; a state with another digest is refreshed before it moves.

    Attributes:
        words: their digest, shape (4,), uint32.
        status: KNOWN in the course of a run; NEW where a run begins, whose data are those that the state was made with;
            RESUMED where a run goes on from a given state, whose data may be others.
    """

    words: jax.Array
    status: jax.Array

    @classmethod
    def unknown(cls) -> DataDigest:
        """Digest of a state that is being made."""
        return cls(jnp.zeros((WORDS,), jnp.uint32), jnp.array(NEW, jnp.uint8))


def resumable(cls: Any) -> Any:
    """Class decorator: a state becomes RESUMED when only its key is replaced, as the host does when a run goes on.

    The host then draws from it, so a state within warm-up is marked, for :meth:`SplitKernel.sample` to refuse it.
    """
    replace = cls._replace

    def _replace(self: Any, **fields: Any) -> Any:
        goes_on = set(fields) == {"rng_key"} and isinstance(fields["rng_key"], jax.Array)
        if goes_on and not isinstance(fields["rng_key"], Tracer):
            if (done := int(np.min(self.i))) < self.warmup.num_warmup:
                fields["warmup"] = dataclasses.replace(self.warmup, cut_at=done)
            resumed = jnp.full_like(self.data_digest.status, RESUMED)
            fields["data_digest"] = self.data_digest._replace(status=resumed)
        return replace(self, **fields)

    cls._replace = _replace
    return cls


@full_precision
def program_of_model(model: Callable[..., Any], arguments: Arguments, owner: str | None = None) -> str:
    """Digest of what a model computes from arrays like these; values are read only where the model reads them itself.

    Arguments that the model is given unconverted are digested whole: a callback hides what it uses of them.

    Args:
        model: the model.
        arguments: the arguments of a run.
        owner: text that stands for Python code which the jaxpr does not show; None for the model's identity, which is
            valid in this process only.
    """
    digest = Digest().add(*arguments.texts_of_own())
    owner = owner or str(id(model.__wrapped__ if isinstance(model, OpenModel) else model))

    def run(data: Data) -> list[Any]:
        args, kwargs = arguments.build(data)
        started = substitute(seed(model, random.key(0)), substitute_fn=init_to_uniform())
        sites = trace(started).get_trace(*args, **kwargs)
        for name, site in sites.items():
            frames = site.get("cond_indep_stack", ())
            digest.add(str(name), site["type"], str(site.get("is_observed")), str([tuple(frame) for frame in frames]))
        samples = [log_prob_of(site) for site in sites.values() if site["type"] == "sample"]
        others = [site["value"] for site in sites.values() if site["type"] not in ("sample", "plate")]
        return [samples, [x for x in jax.tree.leaves(others) if isinstance(x, jax.Array)]]

    is_sharded = any(named_sharding(x) is not None for x in arguments.data)
    try:
        return _add_expression(
            digest, jax.make_jaxpr(run)(arguments.shapes() if is_sharded else arguments.data), owner
        ).key
    except UNREADABLE:
        if is_sharded:
            raise ModelNotSplittableError(
                "a model whose rows lie on several devices must read no values of them with Python, which has none of "
                "them all"
            ) from None
        readings = find_readings(model, arguments)
        for reading in readings.found.values():
            digest.add_array(reading.value)
        with readings.answering():
            return _add_expression(digest, jax.make_jaxpr(run)(arguments.data), owner).key


@full_precision
def program_of_potential(potential: SplitPotential, z: Position, owner: str | None = None) -> str:
    """Digest of what a split potential computes from arrays like its own, at a position like ``z``.

    Args:
        potential: the potential.
        z: a position.
        owner: as for :func:`program_of_model`.
    """
    expression = jax.make_jaxpr(lambda potential, z: potential.potential(z))(potential, z)
    return _add_expression(Digest(), expression, owner or str(id(potential._density))).key


def traced_digest(data: Data, *texts: str) -> jax.Array:
    """Digest of arrays, computed in the graph, shape (4,), uint32: 64 bits of their content, and 64 of texts."""
    sums = [jnp.zeros((), jnp.uint32) for _ in LANES]
    for place, x in enumerate(data):
        for words in _words(x):
            sums = [_mix(total + _sum(words, place, *lane)) for total, lane in zip(sums, LANES, strict=True)]
    return jnp.stack([*sums, *(jnp.uint32(word) for word in Digest().add(*texts).words[: WORDS - len(LANES)])])


def key_of_data(data: Data) -> str:
    """Digest of arrays in hexadecimal, the same wherever the devices are that hold them."""
    if any(named_sharding(x) is not None for x in data):
        return np.asarray(_digest_in_place(data, ())).tobytes().hex()
    return digest_of_data(data).key


@partial(jax.jit, static_argnums=1)
def _digest_in_place(data: Data, texts: tuple[str, ...]) -> jax.Array:
    """The digest of arrays on several devices, computed where they lie."""
    return traced_digest(data, *texts)


def _sum(words: jax.Array, place: int, multiplier: int, salt: int) -> jax.Array:
    """Sum over the words of one array, each mixed with its place."""
    position = jnp.full(words.shape, (place * salt) % 2**32, jnp.uint32)
    stride = 1
    for axis in reversed(range(words.ndim)):
        position += lax.broadcasted_iota(jnp.uint32, words.shape, axis) * jnp.uint32(stride % 2**32)
        stride *= words.shape[axis]
    mixed = _mix(words * jnp.uint32(multiplier) + _mix(position * jnp.uint32(multiplier) + jnp.uint32(salt)))
    return jnp.sum(mixed, dtype=jnp.uint32)


def _mix(h: jax.Array) -> jax.Array:
    """MurmurHash3's finaliser: every bit of the result depends on every bit of ``h``."""
    h = (h ^ (h >> 16)) * jnp.uint32(0x85EBCA6B)
    h = (h ^ (h >> 13)) * jnp.uint32(0xC2B2AE35)
    return h ^ (h >> 16)


def _words(x: jax.Array) -> list[jax.Array]:
    """The bits of an array as words of 32 bits, in one array or, of complex numbers, in two."""
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return [random.key_data(x)]
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return [*_words(x.real), *_words(x.imag)]
    if x.dtype == bool or x.dtype.name in ("int4", "uint4", "int2", "uint2"):
        x = x.astype(jnp.uint8)
    like = {1: jnp.uint8, 2: jnp.uint16}.get(x.dtype.itemsize, jnp.uint32)
    return [lax.bitcast_convert_type(x, like).astype(jnp.uint32)]


def numbers_of(x: Any) -> np.ndarray:
    """An array as a NumPy array; random keys as their key data."""
    is_key = isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return np.asarray(random.key_data(x) if is_key else x)


def _add_expression(digest: Digest, closed: Any, owner: str) -> Digest:
    """Add a jaxpr to a digest, and ``owner`` where the jaxpr calls Python code, which its text does not show."""
    text = ADDRESS.sub("", closed.pretty_print(use_color=False))  # in a terminal the text would hold colour codes
    digest.add(text)
    if any(name in text for name in OPAQUE):
        digest.add(owner)
    for constant in _constants(closed):
        if isinstance(constant, Tracer):
            raise TracerKeptError(KEEPS_TRACER)
        digest.add_array(numbers_of(jnp.asarray(constant)) if isinstance(constant, jax.Array) else np.asarray(constant))
    return digest


def _constants(expression: Any) -> Iterator[Any]:
    """Every constant in a jaxpr and in those inside it, in order, except scalar literals, which its text shows."""
    yield from getattr(expression, "consts", ())
    for equation in getattr(expression, "jaxpr", expression).eqns:
        for operand in equation.invars:
            value: Any = getattr(operand, "val", 0.0)
            if np.ndim(value):
                yield value
        for parameter in equation.params.values():
            for inner in parameter if isinstance(parameter, tuple | list) else (parameter,):
                if hasattr(inner, "eqns"):
                    yield from _constants(inner)
