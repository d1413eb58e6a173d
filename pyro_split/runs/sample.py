"""Runs the host's ``MCMC`` with a store: draws are written as they are made, and a run that died can be resumed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import accumulate
from typing import Any

import numpy as np
import pyro
import torch
import torch.distributed as dist
from pyro import get_param_store
from pyro.infer import MCMC

from pyro_split.host import (
    MAX_SEED,
    as_in_a_run,
    fill_run,
    given_transforms,
    moves_in_processes,
    pytree,
    shows_progress,
    start_of_chain,
)
from pyro_split.inference_data import Observations
from pyro_split.kernels.host_kernel import SplitKernel
from pyro_split.potential.ranks import group_of
from pyro_split.potential.sources import is_source
from pyro_split.runs.chains import KernelChain, Task
from pyro_split.runs.leader import Ended, broadcast_in
from pyro_split.runs.processes import drive_in_processes
from pyro_split.runs.states import pack_random_state, set_random_state
from split_common.containers import Given, Opened
from split_common.errors import StoreError
from split_common.report import check_reported
from split_common.runs.bar import progress_bar
from split_common.runs.identity import code_of, texts_of, versions_of
from split_common.runs.interruption import interruptible
from split_common.runs.leader import END, START, Broadcast, Leader, LedChains, follow, leading
from split_common.runs.packed import Packed
from split_common.runs.plan import Plan
from split_common.runs.reading import open_store
from split_common.runs.session import Criterion, Options, Start, opened, run, warn_of_end
from split_common.runs.statistics import state_fields
from split_common.runs.stopping import StopWhen
from split_common.runs.store import SAMPLING, Form, RunStore
from split_common.tables import Table


def sample(
    mcmc: MCMC,
    *args: Any,
    store: str | os.PathLike[str],
    every: int = 100,
    keep: str = "draws",
    warmup: bool = False,
    stop_when: StopWhen | None = None,
    stop_on: Sequence[str] = ("SIGINT", "SIGTERM"),
    load: bool = True,
    **kwargs: Any,
) -> Any:
    """Run an ``MCMC`` and write its draws to a store, from which the same call resumes the run.

    Draws, statistics and the whole state of every chain, with that of the random number generators, are written every
    ``every`` draws, in warm-up too. If the process dies, the same call resumes from what was written last, and makes
    the same draws, bit for bit, as if it had never been stopped; with a larger ``num_samples`` it extends a run that
    has ended. A store of a run on other data, of another model or kernel, or by other versions is refused. A single
    chain begins with the present state of the random number generators; several chains, in one process or in many,
    begin with the seeds that the host gives to parallel chains.

    A store can be opened by :func:`open_store` while the run goes on, and watched:
    ``python -m split_common.watch PATH``.

    Args:
        mcmc: the run, with a kernel of this package; its ``hook_fn`` is called in every iteration that is made.
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
        **kwargs: the model's keyword arguments.

    Returns:
        The content of the store, as :func:`open_store` returns it: numbers are read when they are used. Where the
        kernel has a ``process_group``, only its first rank writes (observed data are those of its rows), and the other
        ranks return None.

    Raises:
        TypeError: for an ``mcmc`` of another package's kernel.
        ValueError: for an argument out of range; as :class:`~split_common.errors.StoreError` for a store from which
            this run cannot be resumed.
        OSError: where nothing can be written, such as on a full disk; what was written before is intact.
        RuntimeError: where a chain in a process of its own has failed.
        RanksError: a ValueError, on the other ranks, where the first has failed.

    Warns:
        UserWarning: where the run was stopped early, and where a store is damaged.

    Example:
        >>> import tempfile, torch, pyro, pyro.distributions as dist
        >>> from pyro.infer import MCMC
        >>> from pyro_split import SplitHMC, sample
        >>> def model(y):
        ...     mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        ...     with pyro.plate("data", y.shape[0]):
        ...         pyro.sample("y", dist.Normal(mu, 1.0), obs=y)
        >>> mcmc = MCMC(SplitHMC(model, num_subsets=2), warmup_steps=200, num_samples=300, disable_progbar=True)
        >>> y = torch.tensor([1.2, -0.3, 0.8, 0.1])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = sample(mcmc, y, store=f"{folder}/run.zarr")
        ...     found.posterior["mu"].shape
        (1, 300)
    """
    check_reported(getattr(mcmc, "kernel", mcmc), SplitKernel)
    plan = Plan.checked(mcmc.num_chains, mcmc.warmup_steps, mcmc.num_samples, every, keep, warmup)
    options = Options.checked(store, plan, stop_when, stop_on, load)
    given = tuple(x.detach() if torch.is_tensor(x) else x for x in args)
    transforms, group = given_transforms(mcmc), _group_of(mcmc)
    task = Task(mcmc.kernel, given, kwargs, plan, mcmc.sampler.hook, transforms)
    broadcast = broadcast_in(group)
    if broadcast is not None and dist.get_rank(group):
        return _follow(mcmc, task, broadcast, options)

    def start(about: Mapping[str, Any] | None) -> Start:
        begin = beginning() if about is None else about["start"] | _division(about, group, options.path)
        if leader is not None:
            leader.say(START, begin)
        return PyroStart(mcmc, task, begin, leader)

    with (
        ended_clean(mcmc.kernel),
        as_in_a_run(mcmc),
        leading(broadcast) as leader,
        opened(options, start) as (written, begun),
        progress_bar(plan, shows_progress(mcmc)) as bar,
    ):
        reason, diagnostics, positions = begun.move(options, written, bar)
        begun.leave_random_numbers()
        draws = [max(position - plan.num_warmup, 0) for position in positions]
        if options.load and min(draws) > 0:
            by_chain = [written.read(SAMPLING, chain, 0, min(draws)) for chain in range(plan.num_chains)]
            own = [_diagnostics(*pair) for pair in zip(diagnostics, by_chain, strict=True)]
            ended = Ended(_samples(by_chain), own)
        else:
            ended = Ended(None, diagnostics)
        fill_run(mcmc, given, kwargs, *ended)
        if leader is not None:
            leader.say(END, *ended)
    warn_of_end(reason, options.path, draws, plan)
    return open_store(options.path, warmup=warmup)


def _group_of(mcmc: MCMC) -> Any:
    """The process group over which a run's rows lie; None for one process."""
    group = group_of(mcmc.kernel._splitting.process_group)
    if group is not None and moves_in_processes(mcmc) is not None:
        raise ValueError(
            "process_group needs chains in the process that made the kernel, got num_chains="
            f"{mcmc.num_chains} in processes of their own; run one chain (num_chains=1)"
        )
    return group


def _follow(mcmc: MCMC, task: Task, broadcast: Broadcast, options: Options) -> None:
    """Run a rank that does not write: it repeats the moves of the first rank until that ends the run."""

    def begin(start: Mapping[str, Any]) -> list[Any]:
        return PyroStart(mcmc, task, start).groups

    with ended_clean(mcmc.kernel), as_in_a_run(mcmc), interruptible(options.signals):
        fill_run(mcmc, task.args, task.kwargs, *follow(broadcast, begin))


def _division(about: Mapping[str, Any], group: Any, path: str) -> dict[str, Any]:
    """How the rows of a resumed run are divided, where it has fewer processes than there are shards.

    Raises:
        StoreError: where the number of processes does not divide the number of shards, or the rows cannot be divided.
    """
    shards, num_ranks = about.get("shards", ()), 1 if group is None else dist.get_world_size(group)
    if len(shards) in (0, num_ranks) or num_ranks > len(shards):
        return {}
    if len(shards) % num_ranks:
        raise StoreError(
            f"processes that go on with a run must be as many as divide its {len(shards)} shards of rows, got "
            f"{num_ranks} for {path!r}"
        )
    if about["split"] is None:
        raise StoreError(
            f"processes that go on with a run of a SplitPotential, which holds its rows, must be as many as began it, "
            f"{len(shards)}, got {num_ranks} for {path!r}"
        )
    return {"shards": list(shards), "num_subsets": about["num_subsets"]}


@contextmanager
def ended_clean(kernel: SplitKernel) -> Iterator[None]:
    """Context that leaves a kernel without a chain, as the host does, so that its next run starts anew."""
    splitting = kernel._splitting
    try:
        yield
    finally:
        kernel._splitting = splitting
        kernel.cleanup()


def beginning() -> dict[str, Any]:
    """Seed and state of the random number generators at the start of a new run."""
    return {"seed": torch.initial_seed(), "random": Packed({}, pack_random_state()).to_bytes().hex()}


class PyroStart:
    """A run of Pyro at its start.

    Args:
        mcmc: the run.
        task: what its chains have in common.
        start: seed and state of the random number generators at its start; and, for a run resumed in fewer processes
            than there are shards of rows, the number of rows of each shard and the number of subsets.
        leader: tells the other ranks how chains move; None without other ranks, and on those that follow.
    """

    def __init__(self, mcmc: MCMC, task: Task, start: Mapping[str, Any], leader: Leader | None = None):
        self._mcmc, self._task, self._context = mcmc, task, moves_in_processes(mcmc)
        self._start, present = {"seed": start["seed"], "random": start["random"]}, pack_random_state()
        if "shards" in start:
            divided = task.kernel._splitting.for_shards(tuple(start["shards"]), start["num_subsets"])
            task.kernel._splitting = divided
        with nullcontext() if leader is None else leader.moving():
            groups: list[Any] = [self._chain(0)]
            self.start_energies = groups[0].start_energies()
            if self._context is None:
                groups += [self._chain(number) for number in range(1, task.plan.num_chains)]
            else:
                set_random_state(present)
            self._data = self._data_of_all()
        self._chains = groups
        self.groups: list[Any] = [x if leader is None else LedChains(x, leader, i) for i, x in enumerate(groups)]

    @property
    def identity(self) -> dict[str, str]:
        """Kernel, model, data and versions of the run as texts; a store of another identity is refused."""
        kernel = self._task.kernel
        assert kernel._prepared is not None
        num_subsets = kernel._prepared.potential.num_subsets  # the identity has this number, not how it was chosen
        splitting, split, store = kernel._splitting.for_subsets(num_subsets), kernel._prepared.split, get_param_store()
        params = {name: store[name] for name in (() if split is None else split.params) if name in store}
        return {
            "default type": str(torch.get_default_dtype()),
            **self._data,
            **texts_of(params, "pyro.param"),
            "kernel": type(kernel).__qualname__,
            **texts_of(splitting.anywhere, "kernel argument splitting"),
            **texts_of(kernel._method.for_subsets(num_subsets), "kernel argument"),
            **texts_of(self._mcmc.sampler.initial_params, "initial_params"),
            **texts_of(getattr(kernel, "save_params", None), "save_params"),
            **texts_of(self._task.transforms, "transforms"),
            **versions_of("pyro-ppl", "torch"),
        }

    @property
    def about(self) -> dict[str, Any]:
        """Package, kernel, how model and rows divide, the target, and the random number generators at the start."""
        kernel = self._task.kernel
        assert kernel._prepared is not None
        split, potential = kernel._prepared.split, kernel._prepared.potential
        return {
            "package": "pyro_split",
            "kernel": type(kernel).__name__,
            "split": None if split is None else str(split.verdict),
            "site_sizes": None if split is None else split.site_sizes,
            "target": kernel._method.target,
            "shards": list(potential.ranks.num_rows),
            "num_subsets": potential.num_subsets,
            "start": self._start,
        }

    def forms(self) -> tuple[dict[str, Form], dict[str, Form]]:
        """Shape and type of a draw of one chain, and of its statistics."""
        return self.groups[0].forms()

    def observed(self) -> dict[str, np.ndarray]:
        """Observed values of the model by site; empty without a model, and where rows are read from a source."""
        kernel = self._task.kernel
        if kernel._prepared is None or kernel._prepared.split is None:
            return {}
        args, kwargs = kernel._open(self._task.args, self._task.kwargs)
        draw = {name: torch.from_numpy(x)[None] for name, x in self.groups[0].draw().items()}
        observations = Observations(kernel._prepared.split, args, kwargs)
        return {} if observations.reads_sources else observations.values(draw)

    def move(
        self, options: Options, store: RunStore, progress: Callable[[Any, int], None]
    ) -> tuple[str | None, list[dict[str, Any]], list[int]]:
        """Move the chains to the end, and return why they were stopped, and the diagnostics and position of each."""
        if self._context is None:
            reason = run(options, store, self, progress)
            return reason, [chain.diagnostics() for chain in self.groups], [chain.position for chain in self.groups]
        self._task.kernel.cleanup()
        criterion = Criterion(options)
        starts = [(self._seed(i), start_of_chain(self._mcmc, i)) for i in range(options.plan.num_chains)]
        summarised = self.forms()[0] if options.summarises else {}
        with interruptible(options.signals) as noted:
            found = drive_in_processes(
                self._context,
                self._task,
                options.path,
                starts,
                summarised,
                options.signals,
                lambda: noted() or criterion.by_time() or criterion.by_store(options.path),
                progress,
            )
        store.ended(found[0])
        return found

    def leave_random_numbers(self) -> None:
        """Leave the generators where the run ends, also where it was complete: a later run has other numbers.

        After one chain they are in its state; after several, at the seed that follows those of the chains.
        """
        if len(self._chains) == self._task.plan.num_chains == 1:
            set_random_state(self._chains[0].random)
        else:
            pyro.set_rng_seed(self._seed(self._task.plan.num_chains))

    def _chain(self, number: int) -> KernelChain:
        is_alone = self._task.plan.num_chains == 1
        present = Packed.of_bytes(bytes.fromhex(self._start["random"]))
        assert present is not None
        start = present.arrays if is_alone else self._seed(number)
        return KernelChain(number, self._task, start, start_of_chain(self._mcmc, number))

    def _data_of_all(self) -> dict[str, str]:
        """Texts of model and data for each shard of all ranks, because a model may close over its rank's rows."""
        kernel = self._task.kernel
        assert kernel._prepared is not None
        ranks = kernel._prepared.potential.ranks
        stops = list(accumulate(ranks.rows_here))
        model = {"model": code_of(kernel.model or kernel._potential)}
        here = [model | self._data_of(slice(stop - n, stop)) for n, stop in zip(ranks.rows_here, stops, strict=True)]
        first, *others = [shard for of_rank in ranks.of_all(here) for shard in of_rank]
        named = {f"{name} of shard {i}": x for i, other in enumerate(others, 1) for name, x in other.items()}
        division = {} if len(ranks.num_rows) == 1 else {"division of the rows": f"{list(ranks.num_rows)}, by shard"}
        return {**division, **first, **named}

    def _data_of(self, shard: slice) -> dict[str, str]:
        """The data as texts; where this process holds several shards, arguments with rows are cut to one shard."""
        kernel, found = self._task.kernel, {}
        assert kernel._prepared is not None
        split, is_part = kernel._prepared.split, kernel._prepared.potential.ranks.shards_per_rank > 1
        axes = split.row_axes if split is not None and is_part else {}
        opened = kernel._open(self._task.args, self._task.kwargs)
        row_numbers = {f"{pytree.keystr(path)}['rows']" for path, x in _leaves(opened, _is_table) if _is_table(x)}
        for path, leaf in _leaves(opened):
            place = pytree.keystr(path)
            own = leaf if place not in axes else _rows_of_shard(leaf, axes[place], shard)
            if place in axes and place in row_numbers:  # row numbers count from 0 in every process
                own = own - shard.start
            # positional arguments are named by number, keyword arguments by name
            found |= texts_of(own, f"data{pytree.keystr(path[1:])}")
        return found

    def _seed(self, number: int) -> int:
        """The seed that the host gives to a chain in parallel."""
        return (self._start["seed"] + number) % MAX_SEED


def _leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[tuple[Any, Any]]:
    return pytree.tree_leaves_with_path(tree, is_leaf=is_leaf)


def _is_table(x: Any) -> bool:
    """Whether an opened argument is a pandas table."""
    return isinstance(x, Opened) and isinstance(x.whole, Table)


def _rows_of_shard(x: Any, axis: int, shard: slice) -> Any:
    """Rows of an argument that are those of a shard.

    Raises:
        StoreError: for a source, because the store has only the digest of all its rows.
    """
    if is_source(x):
        raise StoreError(
            f"processes that read rows from a source must be as many as began the run, to go on with it, got fewer, of "
            f"{x.where!r}"
        )
    if isinstance(x, Given):
        return Given(_rows_of_shard(x.array, axis, shard), x.original if axis else x.original[shard])
    return x.narrow(axis, shard.start, shard.stop - shard.start)


def _samples(by_chain: list[dict[str, dict[str, np.ndarray]]]) -> dict[str, torch.Tensor]:
    """Draws of all chains by site."""
    names = by_chain[0][SAMPLING.draws]
    return {name: torch.from_numpy(np.stack([chain[SAMPLING.draws][name] for chain in by_chain])) for name in names}


def _diagnostics(own: dict[str, Any], content: dict[str, dict[str, np.ndarray]]) -> dict[str, Any]:
    """The host's diagnostics of a chain, with each statistic as a list over the draws."""
    columns = {name: x.tolist() for name, x in state_fields(content[SAMPLING.statistics]).items()}
    diverging = columns.get("diverging", [])
    return {"divergences": [draw for draw, diverged in enumerate(diverging) if diverged], **own, **columns}
