"""Moments of targets that are not conjugate models, for every kernel whose trajectories double or end in windows.

Four targets of known moments, each divided into rows of unequal shares that also pull in directions of their own (the
pulls add up to nothing), so that every subset has another mode than the whole:

* two strongly correlated normal coordinates, and a banana, x₂ = u₂ + c (u₁² - 1) of normal u (eight comparisons
  together);
* a funnel, v ~ N(0, 4) and x_i ~ N(0, exp(v)), sampled as v and u_i = x_i exp(-(1 - c) v / 2), not centred but for
  c = ¼, so that the density sampled is a (milder) funnel too; moments are of v, log |x_1| and log |x_5|;
* a normal of 100 dimensions whose standard deviations, from 0.3 to 3, lie along axes that no diagonal metric follows;
  moments are of five principal axes and of the squared radius, which has 100 degrees of freedom.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.backends import NumPyroBackend, PyroBackend
from tests.statistics import Comparison, assert_agree, compare_moments

pytestmark = pytest.mark.slow  # statistics of long runs; the default tests have a bundle of asks for each kernel

NUM_ROWS, PRIOR_SHARE = 13, 0.1
CORRELATION = 0.9
BANANA_SCALE, BANANA_BEND = 0.6, 0.3  # more bend has tails that make z values of a few thousand draws unreliable
FUNNEL_WIDTH, FUNNEL_SITES, FUNNEL_CENTRING = 2.0, 5, 0.25
MANY, SCALES = 100, (0.3, 3.0)
EULER_GAMMA = 0.5772156649015329

Quantities = dict[str, tuple[np.ndarray, Any, Any]]


class Target(NamedTuple):
    """A density with known moments.

    Attributes:
        dim: D, its number of coordinates.
        log_density: ``log_density(lib, x)`` of a position, shape (D,), up to a constant.
        quantities: from draws, shape (chains, draws, D), to what is compared: name, its draws, exact mean and variance.
        pull: size of the rows' own pulls, of the order of the gradient.
    """

    dim: int
    log_density: Callable[[Any, Any], Any]
    quantities: Callable[[np.ndarray], Quantities]
    pull: float


def correlated() -> Target:
    """Two standard normal coordinates of correlation 0.9."""
    precision = np.linalg.inv([[1.0, CORRELATION], [CORRELATION, 1.0]])

    def log_density(lib, x):
        return -0.5 * (x * (lib.array(precision) @ x)).sum()

    return Target(2, log_density, lambda x: {"x": (x, np.zeros(2), np.ones(2))}, 1.0)


def banana() -> Target:
    """x₁ = u₁, x₂ = u₂ + c (u₁² - 1), a map of unit Jacobian; u₁ standard normal and u₂ of standard deviation s."""

    def log_density(lib, x):
        return -0.5 * (x[0] ** 2 + ((x[1] - BANANA_BEND * (x[0] ** 2 - 1.0)) / BANANA_SCALE) ** 2)

    variance = np.array([1.0, BANANA_SCALE**2 + 2.0 * BANANA_BEND**2])
    return Target(2, log_density, lambda x: {"x": (x, np.zeros(2), variance)}, 0.5)


def funnel() -> Target:
    """v ~ N(0, s²), u_i ~ N(0, exp(c v)); in funnel coordinates x_i = u_i exp((1 - c) v / 2) ~ N(0, exp(v))."""

    def log_density(lib, x):
        v, u = x[0], x[1:]
        scaled = u**2 * lib.np.exp(-FUNNEL_CENTRING * v)
        return -0.5 * ((v / FUNNEL_WIDTH) ** 2 + scaled.sum() + FUNNEL_SITES * FUNNEL_CENTRING * v)

    def quantities(x):
        v, u = x[..., 0], x[..., 1:]
        log_x = np.log(np.abs(u)) + (1.0 - FUNNEL_CENTRING) * v[..., None] / 2
        mean, variance = -(EULER_GAMMA + math.log(2.0)) / 2, math.pi**2 / 8 + FUNNEL_WIDTH**2 / 4
        sites = {f"log |x_{i + 1}|": (log_x[..., i], mean, variance) for i in (0, FUNNEL_SITES - 1)}
        return {"v": (v, 0.0, FUNNEL_WIDTH**2), **sites}

    return Target(1 + FUNNEL_SITES, log_density, quantities, 0.3)


@cache
def _axes() -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal axes as columns and the standard deviation along each."""
    axes = np.linalg.qr(np.random.default_rng(3).normal(size=(MANY, MANY)))[0]
    return axes, np.geomspace(*SCALES, MANY)


def ill_conditioned() -> Target:
    """A normal of 100 dimensions, ten times as wide one way as another, in a rotated frame."""
    axes, scales = _axes()
    whitener = (axes / scales).T

    def log_density(lib, x):
        return -0.5 * ((lib.array(whitener) @ x) ** 2).sum()

    def quantities(x):
        white = x @ whitener.T
        some = [0, MANY // 4, MANY // 2, 3 * MANY // 4, MANY - 1]
        radius = ((white**2).sum(-1), MANY, 2 * MANY)
        return {"axis": (white[..., some], np.zeros(len(some)), np.ones(len(some))), "radius²": radius}

    return Target(MANY, log_density, quantities, 0.2)


TARGETS = {"correlated": correlated, "banana": banana, "funnel": funnel, "ill_conditioned": ill_conditioned}


def split_potential(lib: Any, target: Target, num_subsets: int) -> Any:
    """The target as a sum of a share of a prior and 13 rows of unequal shares, each with a pull of its own."""
    rng = np.random.default_rng(4)
    shares = (1.0 - PRIOR_SHARE) * rng.dirichlet(np.full(NUM_ROWS, 2.0))
    pulls = target.pull * rng.normal(size=(NUM_ROWS, target.dim)) / NUM_ROWS**0.5
    pulls -= pulls.mean(axis=0)

    def log_likelihood(z, rows):
        shares, pulls = rows
        return shares.sum() * target.log_density(lib, z["x"]) + (pulls @ z["x"]).sum()

    return lib.split.SplitPotential.from_functions(
        lambda z: PRIOR_SHARE * target.log_density(lib, z["x"]),
        log_likelihood,
        (lib.array(shares), lib.array(pulls)),
        num_subsets,
    )


# what a trajectory must come to, in few dimensions and in 100, whose widest axis asks for longer ones
THRESHOLDS = {"per_length": (0.1, 0.05), "mean": (0.5, 0.5), "boundary": (0.5, 0.5)}
WINDOWED = {"num_steps": 5, "window_size": 2}, {"num_steps": 16, "window_size": 4}
KERNELS = ["SplitNUTS", "XHMC-per_length", "XHMC-mean", "XHMC-boundary", "WindowedHMC"]
# no search for a first step size, which takes as long to compile as sampling
OPTIONS = {"step_size": 0.1, "find_heuristic_step_size": False, "target_accept_prob": 0.9}
LENGTHS = {
    "numpyro": {"num_warmup": 300, "num_samples": 1000, "num_chains": 8},
    "pyro": {"num_warmup": 250, "num_samples": 5000},
}
LENGTHS_OF_MANY = {
    "numpyro": {"num_warmup": 300, "num_samples": 800, "num_chains": 4},
    "pyro": {"num_warmup": 200, "num_samples": 6000},
}


def make_kernel(lib: Any, name: str, potential: Any, is_large: bool, **options: Any) -> Any:
    """One of ``KERNELS``, with options that suit a small or a large dimension."""
    kernel, _, criterion = name.partition("-")
    own = {
        "SplitNUTS": {},
        "XHMC": {"criterion": criterion, "threshold": THRESHOLDS[criterion][is_large]} if criterion else {},
        "WindowedHMC": WINDOWED[is_large],
    }[kernel]
    return getattr(lib.split, kernel)(potential, **{**OPTIONS, **own, **options})


def compare(lib: Any, kernel: str, num_subsets: int, target: Target, seed: int = 0) -> list[Comparison]:
    """Run a kernel and compare every quantity's mean and variance with its exact value."""
    is_large = target.dim == MANY
    lengths = (LENGTHS_OF_MANY if is_large else LENGTHS)[lib.name]
    shape = (lengths["num_chains"], target.dim) if "num_chains" in lengths else (target.dim,)
    start = {"x": lib.array(0.5 * np.random.default_rng(5).normal(size=shape))}
    built = make_kernel(lib, kernel, split_potential(lib, target, num_subsets), is_large)
    mcmc = lib.run(built, seed=seed, init_params=start, **lengths)
    return compare_draws(lib.to_numpy(mcmc.get_samples(group_by_chain=True)["x"]), target)


def compare_draws(draws: np.ndarray, target: Target) -> list[Comparison]:
    """Compare the mean and the variance of every quantity, shape of ``draws`` (chains, draws, D)."""
    return [c for name, known in target.quantities(draws).items() for c in compare_moments(name, *known)]


GRID = [
    pytest.param(backend, *case, id="-".join(map(str, (backend.name, *case))))
    for backend, *case in itertools.product([NumPyroBackend, PyroBackend], KERNELS, [1, 5], TARGETS)
]


@pytest.mark.parametrize(("lib", "kernel", "num_subsets", "target"), GRID, indirect=["lib"])
def test_moments_are_exact(lib, kernel, num_subsets, target):
    """Means and variances agree with what is known.

    A false alarm has probability 2.7e-5 a comparison (see :mod:`tests.statistics`): the whole grid makes
    2 packages x 5 kernels x 2 M x (4 + 4 + 6 + 12) = 520 comparisons, 1.4 % together.
    """
    assert_agree(compare(lib, kernel, num_subsets, TARGETS[target]()))
