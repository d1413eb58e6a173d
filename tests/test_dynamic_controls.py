"""Negative controls of the kernels whose trajectories double or end in windows: broken, they must disagree.

The setting leaves nothing to adaptation: leapfrog steps (one subset), of a size comparable with the narrow direction of
a normal with standard deviations 1 and 3, in the unit metric. Energy errors are then of order one, so that a fault in
how trajectories stop or states are weighed moves the moments, and an honest kernel has something to correct.

* ``unchecked``: the rule is asked of the whole trajectory alone, never of the parts of a new run. Then the states of a
  trajectory would not all have built it.
* ``sign``: states are weighed by exp(H) instead of exp(-H).
* ``first_place``: the start of a windowed trajectory always stands first in its window, not at a place drawn.
"""

from __future__ import annotations

import importlib
import itertools
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.backends import NumPyroBackend, PyroBackend
from tests.statistics import Disagreement, assert_agree, compare_moments

pytestmark = pytest.mark.slow  # statistics of long runs; the default tests have a bundle of asks for each kernel

SCALES = np.array([1.0, 3.0])
FIXED = {"adapt_step_size": False, "adapt_mass_matrix": False, "find_heuristic_step_size": False}
LENGTHS = {
    "numpyro": {"num_warmup": 20, "num_samples": 4000, "num_chains": 16},
    "pyro": {"num_warmup": 20, "num_samples": 5000},
}


class Control(NamedTuple):
    """A fault of a kernel and the step size that shows it.

    Attributes:
        kernel: name of the kernel.
        options: its options.
        fault: key of ``FAULTS``.
        step_size: in units of the narrow direction's standard deviation; leapfrog is stable below 2.
    """

    kernel: str
    options: dict[str, Any]
    fault: str
    step_size: float


def leave_parts_unchecked(lib, patch):
    """No part of a new run stops it."""
    trees = _module(lib, "trajectories.doubling")
    honest = trees._merge
    no = lib.array(False) if lib.name == "numpyro" else False

    def merge(waiting, span, num_before, rule):
        return honest(waiting, span, num_before, rule._replace(holds=lambda first, second, whole: no))

    patch.setattr(trees, "_merge", merge)


def turn_sign(lib, patch):
    """Weights exp(energy change), but 0 still for what has no energy."""

    def turned(honest, state, energies, energy_change):
        choice = honest(state, energies, energy_change)
        if lib.name == "numpyro":
            log_weight = lib.np.where(energy_change < np.inf, energy_change, -np.inf)
        else:
            log_weight = energy_change if energy_change < np.inf else -np.inf
        return choice._replace(log_weight=log_weight)

    for module in (_module(lib, "trajectories.doubling"), _module(lib, "trajectories.windows")):
        patch.setattr(module, "only", partial(turned, module.only))


def start_first(lib, patch):
    """The start of a trajectory is the first state of its window."""
    host = _module(lib, "trajectories.windows").random if lib.name == "numpyro" else lib.np
    patch.setattr(host, "randint", lambda *args: lib.array(0))


def _module(lib, name):
    return importlib.import_module(f"{lib.split.__name__}.{name}")


FAULTS = {"unchecked": leave_parts_unchecked, "sign": turn_sign, "first_place": start_first}
CONTROLS = {
    "nuts-unchecked": Control("SplitNUTS", {}, "unchecked", 1.6),
    "nuts-sign": Control("SplitNUTS", {}, "sign", 0.9),
    "xhmc-unchecked": Control("XHMC", {"threshold": 0.5}, "unchecked", 1.6),
    "xhmc-sign": Control("XHMC", {"threshold": 0.5}, "sign", 0.9),
    "windowed-sign": Control("WindowedHMC", {"num_steps": 4, "window_size": 3}, "sign", 0.9),
    "windowed-first_place": Control("WindowedHMC", {"num_steps": 2, "window_size": 2}, "first_place", 1.8),
}
# in Pyro its fault, worth 13 standard errors of 64,000 draws, would take minutes to show
LEFT_OUT = {("pyro", "xhmc-unchecked")}
CASES = [
    pytest.param(backend, name, id=f"{backend.name}-{name}")
    for backend, name in itertools.product([NumPyroBackend, PyroBackend], CONTROLS)
    if (backend.name, name) not in LEFT_OUT
]


def normal(lib):
    """The target: a normal of standard deviations ``SCALES``, in one subset."""
    scales = lib.array(SCALES)
    return lib.split.SplitPotential.from_functions(
        lambda z: 0.0 * z["x"].sum(), lambda z, w: -0.5 * w.sum() * ((z["x"] / scales) ** 2).sum(), lib.np.ones(1), 1
    )


def compare(lib, control, seed=0):
    """Run a control's kernel, broken or not, from a draw of the target, and compare the moments of both coordinates."""
    lengths = LENGTHS[lib.name]
    shape = (lengths["num_chains"], 2) if "num_chains" in lengths else (2,)
    start = {"x": lib.array(SCALES * np.random.default_rng(seed).normal(size=shape))}
    kernel = getattr(lib.split, control.kernel)(normal(lib), step_size=control.step_size, **FIXED, **control.options)
    mcmc = lib.run(kernel, seed=seed, init_params=start, **lengths)
    draws = lib.to_numpy(mcmc.get_samples(group_by_chain=True)["x"])
    return compare_moments("x", draws, np.zeros(2), SCALES**2)


@pytest.mark.parametrize(("lib", "name"), CASES, indirect=["lib"])
def test_broken_kernel_disagrees(lib, name, monkeypatch):
    """Each fault shows, at an effective sample size that is enough (see :func:`assert_agree`)."""
    control = CONTROLS[name]
    FAULTS[control.fault](lib, monkeypatch)
    with pytest.raises(Disagreement):
        assert_agree(compare(lib, control))


@pytest.mark.parametrize(("lib", "name"), CASES, indirect=["lib"])
def test_unbroken_kernel_agrees_in_the_setting_of_the_controls(lib, name):
    """What the controls show is their fault and not their setting (44 comparisons, 0.12 %)."""
    assert_agree(compare(lib, CONTROLS[name]))
