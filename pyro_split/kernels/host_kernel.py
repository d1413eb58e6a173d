"""Pyro's protocol of a kernel, implemented once for every split kernel.

The object holds the arguments and, between ``setup`` and ``cleanup``, one chain: how the model divides, what the data
teach, and the chain's state. The same object runs every sequential chain and every run, so ``setup`` looks at model and
data anew each time: whatever changed since (other data, an array changed in place, what a closure holds) is seen.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from pyro.infer.autoguide.initialization import init_to_uniform
from pyro.infer.mcmc.mcmc_kernel import MCMCKernel

from pyro_split.adaptation.step_size_and_metric import AdaptationSettings
from pyro_split.inference_data import to_inference_data
from pyro_split.potential.forms import FORMS
from pyro_split.potential.position import Position
from pyro_split.potential.running import check_only_run
from pyro_split.potential.split_potential import SplitPotential
from pyro_split.splitting.model_split import ModelSplit
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
from split_common.containers import Form
from split_common.health import STATISTICS
from split_common.mass import check_inverse_mass_matrix, check_mass_blocks, check_mass_matrix_values
from split_common.open_model import OpenModel
from split_common.report import Report, check_reported
from split_common.subsets import SUBSET_ORDERS
from split_common.values import describe_kernel

INIT_TRIES = 100


class SplitKernel(MCMCKernel):
    """Base of the split kernels: splitting, starting points, statistics, pickling.

    A concrete kernel says how one chain starts (:meth:`_start`) and moves (:meth:`_transition`).
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
        full_mass: bool | list[tuple[str, ...]] = False,
        target_accept_prob: float = 0.8,
        init_strategy: Callable[..., Any] = init_to_uniform,
        find_heuristic_step_size: bool = True,
        jit_compile: bool = True,
    ):
        self.model = check_callable("model", model) if not isinstance(model, SplitPotential) else None
        self._potential = model if isinstance(model, SplitPotential) else None
        self._num_subsets = check_positive_int("num_subsets", num_subsets)
        if self._potential is not None:
            self._num_subsets = self._potential.num_subsets
        self._plate, self._data_axes = check_plate(plate), check_data_axes(data_axes)
        self._subset_order = check_choice("subset_order", subset_order, SUBSET_ORDERS)
        self._init_strategy = check_callable("init_strategy", init_strategy)
        self._jit_compile = check_flag("jit_compile", jit_compile)
        self._settings = AdaptationSettings(
            step_size=check_positive_float("step_size", step_size),
            inverse_mass_matrix=check_mass_matrix_values(inverse_mass_matrix, torch.Tensor),
            adapt_step_size=check_flag("adapt_step_size", adapt_step_size),
            adapt_mass_matrix=check_flag("adapt_mass_matrix", adapt_mass_matrix),
            full_mass=check_mass_blocks("full_mass", full_mass),
            target_accept_prob=check_probability("target_accept_prob", target_accept_prob),
            find_heuristic_step_size=check_flag("find_heuristic_step_size", find_heuristic_step_size),
        )
        self.transforms: dict[str, Any] | None = {} if self._potential is not None else None
        self._form: Form | None = None
        self._split: ModelSplit | None = None
        self._bound: SplitPotential | None = self._potential
        self._forget_chain()
        super().__init__()

    def __repr__(self) -> str:
        """Class, model, number of subsets and plate, and what a kind of kernels adds."""
        model = self._potential if self.model is None else self.model
        return describe_kernel(self, model, self._num_subsets, self._plate, self._details)

    @property
    def _details(self) -> list[str]:
        """Further parts of the repr."""
        return []

    @abstractmethod
    def _start(self, potential: SplitPotential, z: Position) -> Any:
        """The state of one chain at its starting point."""

    @abstractmethod
    def _transition(self, potential: SplitPotential, state: Any) -> Any:
        """One iteration of the chain."""

    @abstractmethod
    def _recompute(self, potential: SplitPotential, state: Any, z: Position) -> Any:
        """``state`` moved to ``z``."""

    @property
    def num_subsets(self) -> int:
        """M."""
        return self._num_subsets

    @property
    def initial_params(self) -> Position | None:
        """Unconstrained values the chain starts from."""
        return self._initial_params

    @initial_params.setter
    def initial_params(self, params: Position) -> None:
        self._initial_params = params

    def setup(self, warmup_steps: int, *args: Any, **kwargs: Any) -> None:
        """Split and check the model, then find a starting point unless one was given.

        Raises:
            ValueError: for faults of the model or the data (see :func:`pyro_split.split_model`), a mass matrix
                of the wrong shape, or a starting point where the density is not finite.
        """
        check_only_run()
        self._warmup_steps = warmup_steps
        args, kwargs, potential = self._begin(args, kwargs)
        if self._initial_params is None:
            self._initial_params = self._find_start(potential, args, kwargs)
        z = {name: u.detach().clone() for name, u in self._initial_params.items()}
        sizes = {name: u.numel() for name, u in z.items()}
        if self._split is not None:
            check_sites("initial_params", sizes, self._split.site_sizes)
        self._check_mass(sizes)
        check_finite_start(float(potential.energies(z).sum()), {name: u.numpy(force=True) for name, u in z.items()})
        self._initial_params = z
        self._state = self._start(potential, z)

    def _check_mass(self, sizes: dict[str, int]) -> None:
        """Raise unless the given mass matrix fits sites of these sizes."""
        check_mass_blocks("full_mass", self._settings.full_mass, sizes)
        check_inverse_mass_matrix(self._settings.inverse_mass_matrix, sizes, self._settings.full_mass)

    def sample(self, params: Position) -> Position:
        """One iteration from ``params``, a dict of unconstrained values; returns a new dict."""
        if self._state is None or self._bound is None:
            raise RuntimeError("setup must be called before sample")
        if any(params[name] is not u for name, u in self._state.z.items()):
            self._state = self._recompute(self._bound, self._state, dict(params))
        self._t += 1
        self._state = state = self._transition(self._bound, self._state)
        sampling = self._t > self._warmup_steps
        self._mean_accept_prob += (state.accept_prob - self._mean_accept_prob) / (
            self._t - self._warmup_steps if sampling else self._t
        )
        if sampling:
            for name, values in self._statistics.items():
                values.append(getattr(state, name))
            self._watch()
        return dict(state.z)

    def _watch(self) -> None:
        """Warn of what the statistics say of the run so far."""

    def logging(self) -> OrderedDict[str, str]:
        """Text of the progress bar."""
        return OrderedDict(
            [
                ("step size", f"{self._state.step_size:.2e}"),
                ("steps", f"{self._state.num_steps}"),
                ("acc. prob", f"{self._mean_accept_prob:.3f}"),
            ]
        )

    def diagnostics(self) -> dict[str, Any]:
        """Divergent draws, mean acceptance, what warm-up settled on, and each statistic as a list over the draws."""
        diverging, settled = self._statistics["diverging"], getattr(self._state, "settled", None)
        return {
            "divergences": [draw for draw, diverged in enumerate(diverging) if diverged],
            "acceptance rate": self._mean_accept_prob,
            **({} if settled is None else {"settled": settled}),
            **{name: list(values) for name, values in self._statistics.items()},
        }

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
        check_reported(getattr(mcmc, "kernel", mcmc), SplitKernel)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what the report says
            return Report.of(to_inference_data(mcmc), type(mcmc.kernel).__name__)

    def cleanup(self) -> None:
        """Forget the chain, so that the next one starts afresh."""
        self._forget_chain()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what ``setup`` finds again; traced functions do not pickle."""
        state = self.__dict__.copy()
        state.update(_split=None, _state=None, _adapter=None, _bound=self._potential)
        return state

    def _forget_chain(self) -> None:
        self._t, self._warmup_steps = 0, 0
        self._mean_accept_prob = 0.0
        self._statistics: dict[str, list[Any]] = {name: [] for name in self._statistic_names}
        self._initial_params: Position | None = None
        self._state: Any = None
        self._adapter: Any = None

    def _prepare(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], init_params: Position | None = None
    ) -> tuple[SplitKernel, SplitPotential]:
        """Divide and check the model, and learn from it and the data what the kernel needs to know of them."""
        potential = self._potential
        if potential is None:
            self._split = split = self._divide(args, kwargs)
            self._study_split(split, args, kwargs)
            self.transforms, potential = split.transforms, split.bind(args, kwargs)
        self._bound = potential
        self._set_up(potential, init_params, args, kwargs)
        return self, potential

    def _begin(
        self, model_args: tuple[Any, ...], model_kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], SplitPotential]:
        """A run's arguments as tensors, in a form in which the model divides, and its potential."""
        generator = torch.get_rng_state()

        def prepare(args: tuple[Any, ...], kwargs: dict[str, Any], form: Form) -> Any:
            torch.set_rng_state(generator)  # an attempt that failed leaves no trace
            self._form = form
            return args, kwargs, self._prepare(args, kwargs, self._initial_params)[1]

        return FORMS.divide(self.model, model_args, model_kwargs, prepare, self._form)

    def _open(
        self, model_args: tuple[Any, ...], model_kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a run that has begun, as tensors."""
        return FORMS.open(self.model, tuple(model_args), dict(model_kwargs), self._form)[:2]

    def _divide(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ModelSplit:
        """How the model divides over these arguments, checked."""
        assert self.model is not None
        return ModelSplit.find(
            OpenModel(self.model),
            args,
            kwargs,
            num_subsets=self._num_subsets,
            plate=self._plate,
            data_axes=self._data_axes,
            subset_order=self._subset_order,
            init_strategy=self._init_strategy,
            jit_compile=self._jit_compile,
        )

    def _study_split(self, split: ModelSplit, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Learn what else a kernel needs to know of a model that has just been divided."""

    def _set_up(
        self, potential: SplitPotential, init_params: Position | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Learn what a kernel needs to know of the data before a chain starts."""

    def _find_start(self, potential: SplitPotential, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Position:
        """A starting point with a finite density on all rows; the host looks at the rows of one subset only."""
        if self._split is None:
            raise ValueError("initial_params must be given for a kernel made from a SplitPotential, got None")
        for _ in range(INIT_TRIES):
            z = self._split.initial_position(args, kwargs)
            if torch.isfinite(potential.energies(z).sum()):
                break
        return z
