"""Values that warm-up settled on, and how much they still changed at its end, noted in the state.

See :mod:`split_common.settling`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pyro_split.adaptation.step_size_and_metric import Adapter
from split_common.settling import Settled, log_change


def settle(settled: Settled, t: int, adapter: Adapter, learned: dict[str, float] | None = None) -> Settled:
    """The values after iteration ``t``; after warm-up they do not change.

    Args:
        settled: values so far.
        t: the iteration, counted from 1.
        adapter: adapter of step size and metric.
        learned: current values of what else adapts, by field.
    """
    window, found = adapter.last_window, {}
    if t not in (window.middle, window.end):
        return settled
    for name, value in {**adapter.averages, **(learned or {})}.items():
        found[name] = value
        if t == window.end:
            found[name + "_change"] = log_change(value, getattr(settled, name))
    if t == window.end and window.num_of_metric:
        found["metric_change"] = distance(*adapter.variances)
    return settled._replace(**found)


def distance(first: Tensor, second: Tensor) -> float:
    """Root mean square of the logs of the ratios of two tensors of variances."""
    logs = (x.clamp_min(torch.finfo(x.dtype).tiny).log() for x in (first, second))
    return float(torch.subtract(*logs).square().mean().sqrt())
