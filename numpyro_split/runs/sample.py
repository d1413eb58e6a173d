"""Runs the host's ``MCMC`` with a store: draws are written as they are made, and a run that died can be resumed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpyro.handlers import seed, trace
from numpyro.infer import MCMC
from numpyro.util import is_prng_key

from numpyro_split.host import fill_run, traces_arguments
from numpyro_split.kernels.agreement import check_alike, shares_rows
from numpyro_split.kernels.host_kernel import SplitKernel, check_at_hand
from numpyro_split.potential.content import key_of_data, numbers_of, program_of_model, program_of_potential
from numpyro_split.potential.model_rows import SelectRows
from numpyro_split.runs.chains import CompiledChains, Program
from numpyro_split.runs.leader import broadcast
from split_common.report import check_reported
from split_common.runs.bar import progress_bar
from split_common.runs.identity import code_of, texts_of, versions_of
from split_common.runs.interruption import interruptible
from split_common.runs.leader import END, START, Broadcast, Leader, LedChains, follow, leading
from split_common.runs.plan import Plan
from split_common.runs.reading import open_store
from split_common.runs.session import Options, Start, opened, run, warn_of_end
from split_common.runs.statistics import state_fields
from split_common.runs.stopping import StopWhen
from split_common.runs.store import SAMPLING, Form
from split_common.values import shown


def sample(
    mcmc: MCMC,
    rng_key: jax.Array,
    *args: Any,
    store: str | os.PathLike[str],
    every: int = 100,
    keep: str = "draws",
    warmup: bool = False,
    stop_when: StopWhen | None = None,
    stop_on: Sequence[str] = ("SIGINT", "SIGTERM"),
    load: bool = True,
    extra_fields: Sequence[str] = (),
    init_params: Any = None,
    **kwargs: Any,
) -> Any:
    """Run an ``MCMC`` and write its draws to a store, from which the same call resumes the run.

    Draws, statistics and the whole state of every chain are written every ``every`` draws, in warm-up too. If the
    process dies, the same call resumes from what was written last, and makes the same draws, bit for bit, as if it had
    never been stopped; with a larger ``num_samples`` it extends a run that has ended. A store of a run on other data,
    of another model, kernel or key, or by other versions is refused.

    A store can be opened by :func:`open_store` while the run goes on, and watched:
    ``python -m split_common.watch PATH``.

    Args:
        mcmc: the run, with a kernel of this package and any ``chain_method``; ``thinning`` must divide its number of
            draws.
        rng_key: as for ``mcmc.run``.
        *args: the model's positional arguments.
        store: path of the store, a folder that this function makes; or an address that fsspec knows. Two processes
            cannot write to one local store; for other stores this is not checked.
        every: number of draws, or of warm-up iterations, that are written at a time.
        keep: "draws"; or "summaries", where there are too many: mean, standard deviation, effective draws and R-hat
            (:func:`summary_of`), and the statistics.
        warmup: whether to write the draws of warm-up too.
        stop_when: criterion that ends the run early, such as enough effective draws.
        stop_on: names of signals that end the run early, after the present iteration.
        load: whether draws and statistics are loaded into ``mcmc`` at the end, so that ``mcmc.get_samples()`` has them;
            False where memory cannot hold them.
        extra_fields: as for ``mcmc.run``.
        init_params: as for ``mcmc.run``.
        **kwargs: the model's keyword arguments.

    Returns:
        The content of the store, as :func:`open_store` returns it: numbers are read when they are used. Where rows lie
        in several processes, all of which call this function, only the first process writes, and the others return
        None.

    Raises:
        TypeError: for an ``mcmc`` of another package's kernel.
        ValueError: for an argument out of range; as :class:`~split_common.errors.StoreError` for a store from which
            this run cannot be resumed.
        OSError: where nothing can be written, such as on a full disk; what was written before is intact.
        RanksError: a ValueError, where processes that share the rows were given different arguments; and in the other
            processes where the first has failed.

    Warns:
        UserWarning: where the run was stopped early, and where a store is damaged.

    Example:
        >>> import tempfile, jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist
        >>> from numpyro.infer import MCMC
        >>> from numpyro_split import SplitHMC, sample
        >>> def model(y):
        ...     mu = numpyro.sample("mu", dist.Normal(0, 1))
        ...     with numpyro.plate("data", y.shape[0]):
        ...         numpyro.sample("y", dist.Normal(mu, 1), obs=y)
        >>> mcmc = MCMC(SplitHMC(model, num_subsets=2), num_warmup=300, num_samples=500, progress_bar=False)
        >>> y = jnp.array([1.2, -0.3, 0.8, 0.1])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = sample(mcmc, jax.random.key(0), y, store=f"{folder}/run.zarr")
        ...     found.posterior["mu"].shape
        (1, 500)
    """
    check_reported(getattr(mcmc, "sampler", mcmc), SplitKernel)
    if mcmc.post_warmup_state is not None:
        raise ValueError(
            "mcmc.post_warmup_state must be None for sample(..., store=...), which makes the warm-up itself, and goes "
            "on from its store, got a state: use a new MCMC, or mcmc.run without a store"
        )
    if mcmc.num_samples % mcmc.thinning:
        raise ValueError(
            f"mcmc must have a thinning that divides num_samples, got {mcmc.thinning} and {mcmc.num_samples}"
        )
    plan = Plan.checked(mcmc.num_chains, mcmc.num_warmup, mcmc.num_samples // mcmc.thinning, every, keep, warmup)
    options, fields = Options.checked(store, plan, stop_when, stop_on, load), tuple(extra_fields)
    speak = _between_processes(mcmc, plan, fields, args, kwargs)

    def begin(leader: Leader | None = None) -> NumPyroStart:
        return NumPyroStart(mcmc, rng_key, init_params, args, kwargs, plan, fields, leader)

    if speak is not None and jax.process_index():
        return _follow(mcmc, args, kwargs, begin, speak, options)

    def start(_: Mapping[str, Any] | None) -> Start:
        if leader is not None:
            leader.say(START)
        return begin(leader)

    with (
        leading(speak) as leader,
        opened(options, start) as (written, begun),
        progress_bar(plan, mcmc.progress_bar) as bar,
    ):
        reason = run(options, written, begun, bar)
        draws = [begun.position_of(chain) - plan.num_warmup for chain in range(plan.num_chains)]
        loaded = _loaded(written, begun, min(draws)) if options.load and min(draws) > 0 else None
        fill_run(mcmc, args, kwargs, begun.state, _on_device(loaded))
        if leader is not None:
            leader.say(END, loaded)
    warn_of_end(reason, options.path, [max(n, 0) for n in draws], plan)
    return open_store(options.path, warmup=warmup)


def _between_processes(
    mcmc: MCMC, plan: Plan, fields: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Broadcast | None:
    """The broadcast between processes that share a run's rows, after comparing their settings; None without them."""
    if jax.process_count() == 1 or not shares_rows(arguments := mcmc.sampler._given(args, kwargs)):
        return None
    if not traces_arguments(mcmc):
        check_at_hand(arguments)
    if mcmc.num_chains > 1 and mcmc.chain_method not in ("sequential", "vectorized"):
        raise ValueError(
            "chain_method must be 'sequential' or 'vectorized' where rows lie in several processes, got "
            f"{shown(mcmc.chain_method)}"
        )
    check_alike({"length of the run": (plan, mcmc.thinning), "extra_fields": fields, "chain_method": mcmc.chain_method})
    return broadcast


def _follow(
    mcmc: MCMC,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    begin: Callable[[], NumPyroStart],
    speak: Broadcast,
    options: Options,
) -> None:
    """Run a process that does not write: it repeats the moves of the first process until that ends the run."""
    begun: list[NumPyroStart] = []

    def groups() -> list[Any]:
        begun.append(begin())
        return begun[0].groups

    with interruptible(options.signals):
        (loaded,) = follow(speak, groups)
    fill_run(mcmc, args, kwargs, begun[0].state, _on_device(loaded))


class NumPyroStart:
    """A run of NumPyro at its start.

    Args:
        mcmc: the run.
        rng_key: random key of the run, or one for each chain.
        init_params: positions at the start of the chains; None for those that the kernel finds.
        args: the model's positional arguments.
        kwargs: its keyword arguments.
        plan: how long the run is.
        extra_fields: additional fields of the state that are kept.
        leader: tells the other processes how chains move; None without other processes, and in those that follow.
    """

    def __init__(
        self,
        mcmc: MCMC,
        rng_key: jax.Array,
        init_params: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        plan: Plan,
        extra_fields: tuple[str, ...],
        leader: Leader | None = None,
    ):
        self._mcmc, self._args, self._kwargs = mcmc, args, kwargs
        self._rng_key, self._init_params = rng_key, init_params
        self._kernel: Any = mcmc.sampler
        self._extra_fields = extra_fields
        with nullcontext() if leader is None else leader.moving():
            states = self._first_states()
            self.start_energies = [float(x) for state in states for x in np.ravel(state.potential_energy)]
            self._opened = self._kernel._open(args, kwargs)
            self._known = self._kernel._prepare(mcmc.num_warmup, *self._opened, self._one_start())
            self._data = key_of_data(self._known[2].data)
        digest = states[0].data_digest
        one = jax.tree.map(lambda x: x[0], digest) if jnp.ndim(digest.status) else digest
        program = Program.of(mcmc, args, kwargs, plan, extra_fields, one)
        numbers = [(i,) for i in range(len(states))] if len(states) == mcmc.num_chains else [range(mcmc.num_chains)]
        groups: list[Any] = [
            CompiledChains(chains, program, state, plan, mcmc.thinning)
            for chains, state in zip(numbers, states, strict=True)
        ]
        self.groups: list[Any] = groups if leader is None else [LedChains(x, leader, i) for i, x in enumerate(groups)]

    @property
    def identity(self) -> dict[str, str]:
        """Kernel, model, data, key and versions of the run as texts; a store of another identity is refused."""
        mcmc, kernel = self._mcmc, self._kernel
        prepared, potential, _ = self._known
        num_subsets = prepared.num_subsets  # the identity has the number of subsets, not how it was chosen
        arguments, owner = kernel._arguments(*self._opened), code_of(kernel.model or kernel._potential)
        if kernel.model is None:
            model = program_of_potential(potential, self._position(), owner)
        else:
            model = program_of_model(kernel._running_model, arguments, owner)
        return {
            "setting jax_enable_x64": str(jax.config.read("jax_enable_x64")),
            "model": model,
            "data": self._data,
            **({} if potential.shards is None else {"shards": potential.shards.text}),
            "kernel": type(kernel).__qualname__,
            **texts_of(kernel._splitting.for_subsets(num_subsets), "kernel argument splitting"),
            **texts_of(kernel._method.for_subsets(num_subsets), "kernel argument"),
            "rng_key": str(numbers_of(self._rng_key).tolist()),
            **texts_of(self._init_params, "init_params"),
            **texts_of(self._extra_fields, "extra_fields"),
            **({} if mcmc.num_chains == 1 else texts_of(mcmc.chain_method, "chain_method")),
            **texts_of(mcmc.postprocess_fn, "postprocess_fn"),
            "thinning": str(mcmc.thinning),
            **versions_of("numpyro", "jax", "jaxlib"),
        }

    @property
    def about(self) -> dict[str, Any]:
        """Package, kernel, the verdict on how the model divides, and the target."""
        split, kernel = self._known[0].split, self._kernel
        return {
            "package": "numpyro_split",
            "kernel": type(kernel).__name__,
            "split": None if split is None else str(split.verdict),
            "site_sizes": None if split is None else split.site_sizes,
            "target": kernel._method.target,
        }

    @property
    def state(self) -> Any:
        """State of all chains, in the host's form."""
        states = [chains.state for chains in self.groups]
        return states[0] if len(states) == 1 else jax.tree.map(lambda *x: jnp.stack(x), *states)

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of the state that are kept beside the draws."""
        return tuple(name for name in (*self._kernel.default_fields, *self._extra_fields) if name != "z")

    def position_of(self, chain: int) -> int:
        """Number of warm-up iterations and draws that a chain has made."""
        return next(chains.position for chains in self.groups if chain in chains.numbers)

    def forms(self) -> tuple[dict[str, Form], dict[str, Form]]:
        """Shape and type of a draw of one chain, and of its statistics."""
        return self.groups[0].forms()

    def observed(self) -> dict[str, np.ndarray]:
        """Observed values by site, as ArviZ finds them; empty without a model or with rows in shards or in a source."""
        model, split, potential = self._kernel.model, self._known[0].split, self._known[1]
        if split is None or potential.reads_sources or split.shards is not None:
            return {}
        with SelectRows(split.plate, None):  # all rows where the model asks for a subsample of them
            sites = trace(seed(model, random.key(0))).get_trace(*self._args, **self._kwargs)
        observed = {name: site for name, site in sites.items() if site["type"] == "sample" and site["is_observed"]}
        return {name: np.asarray(site["value"]) for name, site in observed.items()}

    def _first_states(self) -> list[Any]:
        """Initial states, as the host makes them: one for each chain moved alone, or one for all moved together."""
        mcmc, key, given = self._mcmc, self._rng_key, self._init_params
        if mcmc.num_chains == 1:
            return [self._init(key, given)]
        keys = random.split(key, mcmc.num_chains) if is_prng_key(key) else key
        if mcmc.chain_method == "vectorized":
            return [self._init(keys, given)]
        states = [self._init(keys[i], jax.tree.map(lambda x, i=i: x[i], given)) for i in range(mcmc.num_chains)]
        return states if mcmc.chain_method == "sequential" else [jax.tree.map(lambda *x: jnp.stack(x), *states)]

    def _init(self, key: jax.Array, init_params: Any) -> Any:
        return self._kernel.init(
            key, self._mcmc.num_warmup, init_params, model_args=self._args, model_kwargs=self._kwargs
        )

    def _one_start(self) -> Any:
        """Initial parameters of the first chain, if they are given."""
        return self._init_params if self._mcmc.num_chains == 1 else jax.tree.map(lambda x: x[0], self._init_params)

    def _position(self) -> Any:
        """A position of one chain."""
        z, is_batch = self.groups[0].state.z, jnp.ndim(self.groups[0].state.i)
        return jax.tree.map(lambda u: u[0], z) if is_batch else z


def _loaded(store: Any, begun: NumPyroStart, num: int) -> dict[str, Any]:
    """Draws and statistics of all chains by the names of the state's fields."""
    chains = [store.read(SAMPLING, chain, 0, num) for chain in range(store.plan.num_chains)]
    draws, statistics = (
        {name: np.stack([chain[group][name] for chain in chains]) for name in chains[0][group]}
        for group in (SAMPLING.draws, SAMPLING.statistics)
    )
    found = state_fields(statistics)
    return {"z": draws, **{name: found[name] for name in begun.fields if name in found}}


def _on_device(loaded: dict[str, Any] | None) -> dict[str, Any] | None:
    """Loaded draws and statistics as JAX arrays, as the host has them."""
    return jax.tree.map(jnp.asarray, loaded)
