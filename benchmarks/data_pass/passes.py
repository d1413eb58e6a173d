"""What both frameworks' sides of ``benchmarks.data_pass`` hand over, and how the timings become ratios."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common.timing import Spread, interleaved
from split_common.schedule import naive, symmetric

SCHEDULES = {"symmetric": symmetric, "naive": naive}
STEP_SIZE = 1e-5  # small enough that no trajectory leaves its start's neighbourhood

Action = Callable[[], object]


class Settings(NamedTuple):
    """The size of a measurement.

    Attributes:
        num_subsets: M.
        num_steps: L, steps of a trajectory.
        repeats: rounds of measurement.
        threads: of PyTorch; None leaves its own choice, one for each core. On a machine with other work to do,
            threads that wait for each other measure that work: take 1 there.
    """

    num_subsets: int = 10
    num_steps: int = 10
    repeats: int = 15
    threads: int | None = None


@dataclass
class PassTimer:
    """One model in one framework, everything compiled.

    Attributes:
        bare: ways of taking the gradient on all rows without the package, by name; the fastest one counts.
        bare_subset: the bare gradient on N/M rows.
        end_point: the energies of all subsets, without a gradient: what a trajectory's end point costs.
        transitions: for each kernel, one iteration.
        num_passes: for each kernel, the data passes in an iteration: its subset gradients over M.
    """

    bare: dict[str, Action]
    bare_subset: Action
    end_point: Action
    transitions: dict[str, Action] = field(default_factory=dict)
    num_passes: dict[str, float] = field(default_factory=dict)

    def measure(self, settings: Settings) -> list[dict[str, Any]]:
        """One result for each kernel; ratios are taken round by round."""
        actions = {f"bare {name}": _repeat(action, settings.num_steps) for name, action in self.bare.items()}
        actions |= self.transitions
        actions |= {"subset": _repeat(self.bare_subset, settings.num_subsets), "end point": self.end_point}
        seconds = interleaved(actions, settings.repeats)
        fastest = min(self.bare, key=lambda name: np.median(seconds[f"bare {name}"]))
        bare = seconds[f"bare {fastest}"] / settings.num_steps
        return [
            self._result(kernel, settings.num_subsets, seconds, bare)
            | {"bare": fastest, "num_steps": settings.num_steps}
            for kernel in self.transitions
        ]

    def _result(
        self, kernel: str, num_subsets: int, seconds: dict[str, np.ndarray], bare: np.ndarray
    ) -> dict[str, Any]:
        passes = self.num_passes[kernel]
        at_end = seconds["end point"] if SCHEDULES[kernel](num_subsets).closing_kick is None else 0.0
        inside = seconds[kernel] / passes
        without_end = (seconds[kernel] - at_end) / passes
        return {
            "kernel": kernel,
            "num_passes": passes,
            "pass_ms": 1e3 * float(np.median(inside)),
            "bare_ms": 1e3 * float(np.median(bare)),
            "end_point_ms": 1e3 * float(np.median(seconds["end point"])),
            "ratio": Spread.of(inside / bare)._asdict(),
            "ratio_without_end_point": Spread.of(without_end / bare)._asdict(),
            "ratio_to_bare_subsets": Spread.of(inside / seconds["subset"])._asdict(),
        }


def _repeat(action: Action, times: int) -> Action:
    def repeated() -> None:
        for _ in range(times):
            action()

    return repeated
