"""Pyro's protocol of a kernel, implemented once for every method.

A kernel object holds its arguments, the prepared method of the last ``setup``, and, between ``setup`` and ``cleanup``,
one chain, which is a value. The same object runs all sequential chains and all runs, so each ``setup`` examines model
and data again, and sees every change (other data, an array changed in place, the contents of a closure).
"""

from __future__ import annotations

import os
import warnings
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from pyro.infer.mcmc.mcmc_kernel import MCMCKernel

from pyro_split.host import number_of_chain, validates_distributions
from pyro_split.inference_data import to_inference_data
from pyro_split.kernels.agreement import Bound, Settings, bind_over_ranks, bind_over_shards
from pyro_split.kernels.method import Method, Setup
from pyro_split.kernels.state import ChainState
from pyro_split.potential.forms import FORMS
from pyro_split.potential.position import Position, in_one_type
from pyro_split.potential.ranks import Ranks, together
from pyro_split.potential.running import check_gradients_are_enabled, check_only_run
from pyro_split.potential.split_potential import SplitPotential
from pyro_split.splitting.divided_model import DividedModel
from pyro_split.splitting.settings import Splitting
from split_common.containers import Form
from split_common.data_axes import argument_names
from split_common.errors import RanksError
from split_common.memory import AUTO
from split_common.open_model import OpenModel
from split_common.report import Report, check_reported
from split_common.runs.reading import report_of
from split_common.start import check_finite_start, check_shapes
from split_common.values import describe_kernel

INIT_TRIES = 100


class Prepared(NamedTuple):
    """A method that knows one model and one data set.

    Attributes:
        split: how the model divides; None for a kernel made from a potential.
        potential: potential, bound to the data.
        method: the prepared method.
    """

    split: DividedModel | None
    potential: SplitPotential
    method: Method


class GivenStarts(NamedTuple):
    """Starting points that the host has given since the last ``setup``.

    A kernel that draws its chains in processes is given the starting points of all chains in turn, before the host
    starts the processes; in each of them the kernel must find that of its own chain.

    Attributes:
        by_chain: starting points of the chains of one run, in order.
    """

    by_chain: tuple[Position, ...] = ()

    def followed_by(self, params: Position) -> GivenStarts:
        """With one more; those of one run are entries of the same tensors."""
        same_run = self.by_chain and _storages(self.by_chain[-1]) == _storages(params)
        return GivenStarts((*self.by_chain, params) if same_run else (params,))

    def of_chain(self, number: int | None) -> Position | None:
        """The starting point of the chain with this number, otherwise the one that was given last; None without any."""
        if number is not None and number < len(self.by_chain):
            return self.by_chain[number]
        return self.by_chain[-1] if self.by_chain else None


class Chain(NamedTuple):
    """One chain of a run, from the host's ``setup`` to its ``cleanup``; replaced by each iteration.

    Attributes:
        initial_params: starting point; None before it is given or found.
        prepared: method, model and data of the chain; None before ``setup``.
        warmup_steps: number of warm-up iterations.
        state: current state; None before ``setup``.
        statistics: statistics of the draws so far, by name.
    """

    initial_params: Position | None = None
    prepared: Prepared | None = None
    warmup_steps: int = 0
    state: ChainState | None = None
    statistics: dict[str, list[Any]] = {}  # noqa: RUF012


class SplitKernel(MCMCKernel):
    """Base of all kernels: the host's protocol, for a method on a model that is divided.

    Args:
        model: Pyro model, or a :class:`~pyro_split.SplitPotential`.
        splitting: how the model is divided.
        method: how a chain starts and moves.
    """

    def __init__(self, model: Callable[..., Any] | SplitPotential, splitting: Splitting, method: Method):
        self.model = None if isinstance(model, SplitPotential) else model
        self._potential = model if isinstance(model, SplitPotential) else None
        self._splitting, self._method, self._pid = splitting, method, os.getpid()
        self.transforms: dict[str, Any] | None = {} if self._potential is not None else None
        self._kept_by_host: dict[str, Any] = {}
        self._form: Form | None = None
        self._prepared: Prepared | None = None
        self._chain, self._starts = Chain(), GivenStarts()
        super().__init__()

    def __repr__(self) -> str:
        """Class, model, number of subsets, plate, and the texts of the method."""
        model = self._potential if self.model is None else self.model
        method = self._method if self._prepared is None else self._prepared.method
        details = [*self._splitting.details, *method.details]
        return describe_kernel(self, model, self.num_subsets, self._splitting.plate, details)

    @property
    def num_subsets(self) -> int | str:
        """M; if it is chosen from the data, that of the last run, or "auto" before the first run."""
        if isinstance(self._splitting.num_subsets, int):
            return self._splitting.num_subsets
        return AUTO if self._prepared is None else self._prepared.potential.num_subsets

    @property
    def initial_params(self) -> Position | None:
        """Unconstrained values from which the chain starts."""
        return self._chain.initial_params

    @initial_params.setter
    def initial_params(self, params: Position) -> None:
        self._chain, self._starts = Chain(params), self._starts.followed_by(params)
        if self._potential is None:
            self.transforms = None  # those of an earlier run, which may have been on other data

    def setup(self, warmup_steps: int, *args: Any, **kwargs: Any) -> None:
        """Divide and check the model, then find a starting point unless one was given.

        Raises:
            ValueError: for faults of the model or the data (see :func:`pyro_split.split_model`), a mass matrix
                of the wrong shape, or a starting point where the density is not finite; those of distributions that
                do not take their arguments or observations, where the host validates
                (``MCMC(..., disable_validation=False)``); as :class:`~split_common.errors.RanksError` where processes
                of one ``process_group`` differ.
            RuntimeError: while another thread is in a run, and where gradients are disabled.
        """
        self._method.check_warmup(warmup_steps)
        check_only_run()
        if self._potential is None:  # a potential takes its own gradients, whatever is around it
            check_gradients_are_enabled()
        number, earlier = number_of_chain(), None if self.transforms is None else dict(self.transforms)
        self._chain, self._starts = Chain(self._starts.of_chain(number)), GivenStarts()
        args, kwargs, prepared = self._begin(warmup_steps, args, kwargs)
        split, potential, method = prepared
        params = self._chain.initial_params
        if params is None:
            params = self._find_start(prepared, args, kwargs)
        z = in_one_type({name: u.detach().clone() for name, u in params.items()})
        sizes = {name: u.numel() for name, u in z.items()}
        if split is not None:
            check_shapes("initial_params", {name: tuple(u.shape) for name, u in z.items()}, split.site_shapes)
            if number is not None and earlier is not None:
                check_same_transforms(earlier, split.transforms, z)
        method.check_sizes(sizes)
        if not potential.ranks.is_one:
            potential.check_ranks(z)
        check_finite_start(float(potential.energies(z).sum()), {name: u.numpy(force=True) for name, u in z.items()})
        if split is not None and validates_distributions():
            self._check_observed(split, potential.ranks, z, args, kwargs)
        statistics: dict[str, list[Any]] = {name: [] for name in self._method.statistics}
        self._chain = Chain(z, prepared, warmup_steps, method.start(potential, z), statistics)

    def sample(self, params: Position) -> Position:
        """One iteration from ``params``, a dict of unconstrained values; returns a new dict.

        Raises:
            RanksError: where processes of one ``process_group`` are at different positions.
        """
        chain, state = self._chain, self._chain.state
        if state is None or chain.prepared is None:
            raise RuntimeError("setup must be called before sample, got a kernel without a chain")
        _, potential, method = chain.prepared
        try:
            if any(params[name] is not u for name, u in state.z.items()):
                state = method.refresh(potential, state, dict(params))
            state = method.step(potential, state)
        except RanksError as error:
            raise RanksError(f"in iteration {state.i + 1}: {error}") from None
        self._chain = chain._replace(state=state)
        if state.i > chain.warmup_steps:
            for name, values in chain.statistics.items():
                values.append(getattr(state, name))
            method.watch(state)
        return dict(state.z)

    def logging(self) -> OrderedDict[str, str]:
        """Text of the progress bar."""
        state = self._chain.state
        assert state is not None  # the host calls this only while a chain runs
        return OrderedDict(
            [
                ("step size", f"{state.step_size:.2e}"),
                ("steps", f"{state.num_steps}"),
                ("acc. prob", f"{state.mean_accept_prob:.3f}"),
            ]
        )

    def diagnostics(self) -> dict[str, Any]:
        """Divergent draws, mean acceptance probability, entries of the method, and statistics as lists over draws."""
        state, statistics = self._chain.state, self._chain.statistics
        own = {} if state is None else self._method.diagnostics(state)
        return {
            "divergences": [draw for draw, diverged in enumerate(statistics.get("diverging", [])) if diverged],
            "acceptance rate": 0.0 if state is None else state.mean_accept_prob,
            **own,
            **{name: list(values) for name, values in statistics.items()},
        }

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
        check_reported(getattr(mcmc, "kernel", mcmc), SplitKernel)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # because the report says the same
            return Report.of(to_inference_data(mcmc), type(mcmc.kernel).__name__)

    def cleanup(self) -> None:
        """Drop the chain, so that the next one starts anew."""
        self._chain, self._starts = Chain(), GivenStarts()

    def __getstate__(self) -> dict[str, Any]:
        """Everything except what ``setup`` finds again; traced functions cannot be pickled."""
        chain = self._chain._replace(prepared=None, state=None, initial_params=self._starts.of_chain(None))
        return {**self.__dict__, "_prepared": None, "_chain": chain, "_pid": None}

    def _prepare(
        self,
        warmup_steps: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        initial_params: Position | None = None,
    ) -> Prepared:
        """Divide and check the model, and prepare the method for model and data."""
        bound = self._over_ranks(warmup_steps, args, kwargs, lambda num: self._bind(args, kwargs, num))
        return self._learn(warmup_steps, bound, initial_params)

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any], num_subsets: int | None = None) -> Bound:
        """The divided and checked model, bound to this process's rows; ``num_subsets`` may replace the kernel's."""
        if self._potential is not None:
            return Bound(args, kwargs, None, self._potential)
        split = self._divide(args, kwargs, num_subsets)
        return Bound(args, kwargs, split, split.bind(args, kwargs))

    def _over_ranks(
        self, warmup_steps: int, args: tuple[Any, ...], kwargs: dict[str, Any], bind: Callable[[int | None], Bound]
    ) -> Bound:
        """The model that ``bind`` binds to the rows of this process, bound to the rows of all ranks."""
        if self._splitting.process_group is None:
            shards = self._splitting.shards
            return bind_over_shards(bind(None), shards) if shards else bind(None)
        if self._pid not in (None, os.getpid()):
            raise ValueError(
                "process_group needs chains in the process that made the kernel, got one in a process of its own; run "
                "one chain (num_chains=1), or chains one after the other"
            )
        name, initial_params = type(self).__qualname__, self._chain.initial_params
        settings = Settings(name, self.model, self._splitting, self._method, warmup_steps, initial_params)
        names = argument_names(self.model, len(args), kwargs)
        return bind_over_ranks(settings, dict(zip(names, (*args, *kwargs.values()), strict=True)), bind)

    def _learn(self, warmup_steps: int, bound: Bound, initial_params: Position | None) -> Prepared:
        """The method prepared for a model that is bound to the arguments of a run."""
        args, kwargs, split, potential = bound
        method = self._method.for_subsets(potential.num_subsets)
        method = method.prepare(Setup(warmup_steps, potential, split, args, kwargs, initial_params))
        return Prepared(split, potential, method)

    def _begin(
        self, warmup_steps: int, model_args: tuple[Any, ...], model_kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], Prepared]:
        """The arguments of a run as tensors, in a form in which the model divides, and the prepared method."""
        generator = torch.get_rng_state()

        def divide(num_subsets: int | None) -> Bound:
            def bind(args: tuple[Any, ...], kwargs: dict[str, Any], form: Form) -> Bound:
                torch.set_rng_state(generator)  # so that a failed attempt consumes no random numbers
                self._form = form
                return self._bind(args, kwargs, num_subsets)

            return FORMS.divide(self.model, model_args, model_kwargs, bind, self._form, self.num_subsets == 1)

        bound = self._over_ranks(warmup_steps, model_args, model_kwargs, divide)
        self._prepared = prepared = self._learn(warmup_steps, bound, self._chain.initial_params)
        if prepared.split is not None:
            self._map_draws_by(prepared.split.transforms)
        return bound.args, bound.kwargs, prepared

    def _map_draws_by(self, transforms: dict[str, Any]) -> None:
        """Have the host map draws by these transforms, in a later run too.

        The host keeps the dict that it finds here after its first run, and maps the draws of later runs by it, whose
        data may change the supports of latent sites.
        """
        self._kept_by_host.clear()
        self._kept_by_host.update(transforms)
        self.transforms = self._kept_by_host

    def _open(
        self, model_args: tuple[Any, ...], model_kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a run that has begun, as tensors."""
        return FORMS.open(self.model, tuple(model_args), dict(model_kwargs), self._form)[:2]

    def _divide(self, args: tuple[Any, ...], kwargs: dict[str, Any], num_subsets: int | None = None) -> DividedModel:
        """How the model divides over these arguments, after checks."""
        assert self.model is not None
        splitting = self._splitting if num_subsets is None else self._splitting.for_subsets(num_subsets)
        batch_sizes = self._method.batch_sizes if self._splitting.process_group is None else _some_rows
        return splitting.find(OpenModel(self.model), args, kwargs, batch_sizes)

    def _find_start(self, prepared: Prepared, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Position:
        """A starting point with a finite density on all rows; the host checks it only on the rows of one subset."""
        if (own := prepared.method.find_start()) is not None:
            return own
        if prepared.split is None:
            raise ValueError("initial_params must be given for a kernel made from a SplitPotential, got None")
        split, ranks = prepared.split, prepared.potential.ranks
        for _ in range(INIT_TRIES):
            z = ranks.of_first(lambda: split.initial_position(args, kwargs))
            if torch.isfinite(prepared.potential.energies(z).sum()):
                break
        return z

    def _check_observed(
        self, split: DividedModel, ranks: Ranks, z: Position, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Raise on every rank where distributions do not take their arguments or observations on one."""
        check = partial(split.check_observed, z, args, kwargs)
        check() if ranks.group is None else together(ranks.group, check)


def check_same_transforms(earlier: dict[str, Any], transforms: dict[str, Any], z: Position) -> None:
    """Raise if the host would map this chain's draws to constrained values by another run's transforms.

    The host takes them from the kernel in the user's process, which knows nothing of a later run whose chains are drawn
    in processes of their own.
    """
    same = earlier.keys() == transforms.keys() and all(
        torch.equal(earlier[name].inv(u), transforms[name].inv(u)) for name, u in z.items()
    )
    if not same:
        raise ValueError(
            "a kernel whose chains are drawn in processes of their own must not run again on data that change the "
            "supports of latent sites, got other supports than in its earlier run; make a new kernel"
        )


def _storages(z: Position) -> list[int]:
    """Where the memory of each site's tensor begins, of which the tensor may be one entry."""
    return [u.untyped_storage().data_ptr() for u in z.values()]


def _some_rows(num_rows: int) -> list[int]:
    """Numbers of rows for which a model is checked if a process holds some of the rows, even with one subset."""
    return [max(1, num_rows // 2)]
