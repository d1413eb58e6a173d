"""A chain that moves some draws at a time, with its own state of the random number generators."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyro
from torch import Tensor

from pyro_split.kernels.host_kernel import SplitKernel
from pyro_split.runs.states import pack_random_state, pack_state, set_random_state, unpack_state
from split_common.low_rank_metric import LowRank
from split_common.runs.chain_writer import Drawn
from split_common.runs.packed import Packed
from split_common.runs.plan import Plan
from split_common.runs.starting import Found
from split_common.runs.statistics import arviz_statistics
from split_common.runs.store import SAMPLING, WARMUP, Form

Hook = Callable[[Any, dict[str, Tensor], str, int], None]


class Task(NamedTuple):
    """What the chains of a run have in common.

    Attributes:
        kernel: kernel of the run.
        args: the model's positional arguments.
        kwargs: its keyword arguments.
        plan: how long the run is.
        hook: the user's function that is called in each iteration, or None.
        transforms: the user's transforms by site, from constrained values to positions; None for those of the model.
    """

    kernel: SplitKernel
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    plan: Plan
    hook: Hook | None
    transforms: Mapping[str, Any] | None = None


class KernelChain:
    """One chain, at its start.

    Args:
        number: number of the chain.
        task: what it has in common with the other chains.
        start: state of the random number generators at its start, or a seed.
        initial_params: position at its start; None for the one that the kernel finds.
    """

    def __init__(self, number: int, task: Task, start: Mapping[str, np.ndarray] | int, initial_params: Any):
        self.numbers, self.position = (number,), 0
        self._task, self._seconds = task, 0.0
        if isinstance(start, int):
            pyro.set_rng_seed(start)
        else:
            set_random_state(start)
        kernel = task.kernel
        kernel.cleanup()
        if initial_params is not None:
            kernel.initial_params = initial_params
        kernel.setup(task.plan.num_warmup, *task.args, **task.kwargs)
        self._chain, self._random = kernel._chain, pack_random_state()
        self._sites = getattr(kernel, "save_params", sorted(self.state.z))

    @property
    def state(self) -> Any:
        """State of the chain."""
        state = self._chain.state
        assert state is not None
        return state

    @property
    def random(self) -> dict[str, np.ndarray]:
        """State of the random number generators where the chain is."""
        return self._random

    @property
    def text(self) -> str:
        """The host's text for the progress bar."""
        self._task.kernel._chain = self._chain
        return ", ".join(f"{name}={value}" for name, value in self._task.kernel.logging().items())

    def forms(self) -> tuple[dict[str, Form], dict[str, Form]]:
        """Shape and type of a draw, and of its statistics in ArviZ's names."""
        draw, statistics = self.draw(), self._statistics([self.state])
        return tuple({name: Form(x.shape[1:], x.dtype) for name, x in part.items()} for part in (draw, statistics))  # type: ignore[return-value]

    def draw(self) -> dict[str, np.ndarray]:
        """Constrained values at the chain's present position, by site, with a leading axis of one draw."""
        return self._drawn([dict(self.state.z)])

    def start_energies(self) -> list[float]:
        """The terms of the potential where the chain starts."""
        assert self._chain.prepared is not None
        return [float(x) for x in self._chain.prepared.potential.energies(self.state.z)]

    def go_on(self, packed: Sequence[Packed]) -> None:
        """Continue from a stored state."""
        (one,) = packed
        self._chain = self._chain._replace(state=unpack_state(one, self.state))
        self._random = {name: x for name, x in one.arrays.items() if name.startswith("random/")}
        self.position, self._seconds = sum(one.values["counts"]), one.values["seconds"]

    def advance(self, num: int) -> list[Drawn]:
        """Move by a number of draws, or of warm-up iterations, and return what was drawn."""
        start, kernel, is_warmup = time.monotonic(), self._task.kernel, self.position < self._task.plan.num_warmup
        kernel._chain = self._chain._replace(statistics={})
        set_random_state(self._random)
        positions, states = [], []
        for _ in range(num):
            positions.append(kernel.sample(dict(kernel._chain.state.z)))  # type: ignore[union-attr]
            states.append(kernel._chain.state)
            self._call_hook(positions[-1], is_warmup)
            self.position += 1
        self._chain, self._random = kernel._chain, pack_random_state()
        self._seconds += time.monotonic() - start
        return [Drawn(WARMUP if is_warmup else SAMPLING, num, self._drawn(positions), self._statistics(states))]

    def states(self) -> list[Packed]:
        """The state of the chain, with that of the random number generators."""
        packed = pack_state(self.state)
        return [Packed({**packed.values, "seconds": self._seconds}, {**packed.arrays, **self._random})]

    def found(self) -> list[Found]:
        """Step size, metric and center that warm-up found."""
        own, state = self.diagnostics(), self.state
        step_size = state.step_size if state.adapt_state is None else state.adapt_state.step_size
        metric, center = own.get("inverse_mass_matrix"), own.get("center")
        return [
            Found(
                step_size,
                None if metric is None else {sites: _on_host(block) for sites, block in metric.items()},
                None if center is None else {name: _on_host(x) for name, x in center.items()},
            )
        ]

    def progress(self) -> list[dict[str, Any]]:
        """Seconds of computation, and the values that warm-up settled on, with their last changes."""
        settled = self.state.settled or ()
        return [{"seconds": self._seconds, "settled": [float(x) if np.isfinite(x) else None for x in settled]}]

    def diagnostics(self) -> dict[str, Any]:
        """Diagnostics that the host keeps at the end of a chain, besides the statistics."""
        assert self._chain.prepared is not None
        own = self._chain.prepared.method.diagnostics(self.state)
        return {"acceptance rate": self.state.mean_accept_prob, **own}

    def _call_hook(self, position: dict[str, Tensor], is_warmup: bool) -> None:
        if self._task.hook is not None:
            done = self.position if is_warmup else self.position - self._task.plan.num_warmup
            stage = f"{'Warmup' if is_warmup else 'Sample'} [{self.numbers[0]}]"
            self._task.hook(self._task.kernel, position, stage, done)

    def _drawn(self, positions: Sequence[dict[str, Tensor]]) -> dict[str, np.ndarray]:
        """Constrained values of each site, computed draw by draw, so that they do not depend on the number of draws."""
        transforms = (self._task.kernel.transforms if self._task.transforms is None else self._task.transforms) or {}
        found = {}
        for name in self._sites:
            values = [transforms[name].inv(z[name]) if name in transforms else z[name] for z in positions]
            found[name] = np.stack([x.detach().cpu().numpy() for x in values])
        return found

    def _statistics(self, states: Sequence[Any]) -> dict[str, np.ndarray]:
        names = self._task.kernel._method.statistics
        return arviz_statistics({name: _column([getattr(state, name) for state in states]) for name in names})


def _on_host(x: Any) -> Any:
    """A tensor, or a low-rank block, as NumPy arrays."""
    return x.converted(_on_host) if isinstance(x, LowRank) else x.detach().cpu().numpy()


def _column(values: list[Any]) -> np.ndarray:
    """One statistic of several draws, as an array."""
    return np.array([float(x) if isinstance(x, Tensor) else x for x in values])
