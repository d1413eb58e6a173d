"""Posterior moments of conjugate models, for every kernel, both packages and several numbers of subsets.

Two models of 60 rows have closed-form posteriors: a linear regression with known noise (three coefficients, six
comparisons) and a normal with unknown mean and variance under a normal-inverse-gamma prior (four comparisons).
The rows drift, so that the subsets of any division differ and each pulls the posterior its own way.

The negative controls break a kernel in a way that leaves it running, and must fail the same test.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.backends import NumPyroBackend, PyroBackend
from tests.statistics import Comparison, Disagreement, assert_agree, compare_moments

pytestmark = pytest.mark.slow  # statistics of long runs; the default tests have a bundle of asks for each kernel

NUM_ROWS = 60
ROW = np.linspace(-1.0, 1.0, NUM_ROWS)
NOISE_VARIANCE, COEFFICIENT_VARIANCE = 0.64, 4.0
PRIOR_ROWS, PRIOR_SHAPE, PRIOR_RATE = 0.5, 3.0, 2.0  # of the normal-inverse-gamma prior, whose mean is 0

KERNELS = ["SymmetricSplitHMC", "NaiveSplitHMC", "RandomisedSplitHMC"]
NUMS_SUBSETS = [1, 2, 7, 20]
# no search for a first step size, which takes as long to compile as sampling
OPTIONS = {"step_size": 0.1, "find_heuristic_step_size": False}
LENGTHS = {
    "numpyro": {"num_warmup": 300, "num_samples": 500, "num_chains": 8},
    "pyro": {"num_warmup": 300, "num_samples": 3500},
}


class Conjugate(NamedTuple):
    """A model with a known posterior.

    Attributes:
        model: for a backend, a model of the data.
        data: its arguments.
        moments: for each site, exact mean and variance.
    """

    model: Callable[[Any], Callable[..., None]]
    data: tuple[np.ndarray, ...]
    moments: dict[str, tuple[Any, Any]]


def linear_regression() -> Conjugate:
    """y ~ N(Xw, s²) with s² known and w ~ N(0, v): the posterior of w is normal."""
    rng = np.random.default_rng(1)
    X = np.stack([np.ones(NUM_ROWS), ROW + 0.3 * rng.normal(size=NUM_ROWS), rng.normal(size=NUM_ROWS) * (1.5 + ROW)], 1)
    y = X @ [0.5, -1.0, 0.7] + np.sin(4.0 * ROW) + 0.8 * rng.normal(size=NUM_ROWS)

    def build(lib):
        def model(X, y):
            prior = lib.dist.Normal(lib.array(np.zeros(3)), COEFFICIENT_VARIANCE**0.5).to_event(1)
            w = lib.ppl.sample("w", prior)
            with lib.ppl.plate("data", X.shape[0]):
                lib.ppl.sample("y", lib.dist.Normal(X @ w, NOISE_VARIANCE**0.5), obs=y)

        return model

    covariance = np.linalg.inv(X.T @ X / NOISE_VARIANCE + np.eye(3) / COEFFICIENT_VARIANCE)
    mean = covariance @ X.T @ y / NOISE_VARIANCE
    return Conjugate(build, (X, y), {"w": (mean, np.diag(covariance).copy())})


def normal_inverse_gamma() -> Conjugate:
    """y ~ N(mu, s2), mu ~ N(0, s2 / k), s2 ~ InverseGamma(a, b): mu is Student-t, s2 inverse gamma."""
    rng = np.random.default_rng(2)
    y = 1.0 + 1.5 * ROW + rng.normal(size=NUM_ROWS)

    def build(lib):
        def model(y):
            s2 = lib.ppl.sample("s2", lib.dist.InverseGamma(lib.array(PRIOR_SHAPE), lib.array(PRIOR_RATE)))
            mu = lib.ppl.sample("mu", lib.dist.Normal(0.0, (s2 / PRIOR_ROWS) ** 0.5))
            with lib.ppl.plate("data", y.shape[0]):
                lib.ppl.sample("y", lib.dist.Normal(mu, s2**0.5), obs=y)

        return model

    rows, shape = PRIOR_ROWS + NUM_ROWS, PRIOR_SHAPE + NUM_ROWS / 2
    rate = PRIOR_RATE + 0.5 * (np.sum(y**2) - np.sum(y) ** 2 / rows)
    mean_s2 = rate / (shape - 1)
    moments = {"mu": (np.sum(y) / rows, mean_s2 / rows), "s2": (mean_s2, mean_s2**2 / (shape - 2))}
    return Conjugate(build, (y,), moments)


TARGETS = {"regression": linear_regression, "normal": normal_inverse_gamma}


def compare(lib: Any, kernel: Any, target: Conjugate, **run_options: Any) -> list[Comparison]:
    """Run a kernel and compare every posterior mean and variance with its exact value."""
    mcmc = lib.run(kernel, *[lib.array(x) for x in target.data], **run_options)
    draws = {name: lib.to_numpy(x) for name, x in mcmc.get_samples(group_by_chain=True).items()}
    return [c for site, moments in target.moments.items() for c in compare_moments(site, draws[site], *moments)]


GRID = [*itertools.product(KERNELS, NUMS_SUBSETS, TARGETS)]


@pytest.mark.parametrize(("kernel", "num_subsets", "target"), GRID)
def test_moments_are_exact(lib, kernel, num_subsets, target):
    """Means and variances agree with the closed form.

    A false alarm has probability 2.7e-5 a comparison (see :mod:`tests.statistics`): the whole grid makes
    2 packages x 3 kernels x 4 M x (6 + 4) = 240 comparisons, 0.65 % together. The
    seed is fixed, the first of five tried in NumPyro (in Pyro of three, at fewer draws, where two of 72 runs were
    inconclusive), so what passes keeps passing on the same versions.
    """
    target = TARGETS[target]()
    kernel = getattr(lib.split, kernel)(target.model(lib), num_subsets=num_subsets, **OPTIONS)
    assert_agree(compare(lib, kernel, target, seed=0, **LENGTHS[lib.name]))


# Large steps in the exact metric, from the exact mean: nothing adapts, the accept step has much to correct, and a
# fault cannot hide behind poor mixing. A kernel made from a potential would find no start of its own.
CONTROL_STEPS = {"num_steps": 2, "step_size": 0.7, "adapt_step_size": False, "adapt_mass_matrix": False}
CONTROL_LENGTHS = {
    "numpyro": {"num_warmup": 20, "num_samples": 1500, "num_chains": 8},
    "pyro": {"num_warmup": 20, "num_samples": 4000},
}
DROPPED = 4


def control_options(lib, target):
    """Step size, steps and metric of the controls."""
    return {**CONTROL_STEPS, "inverse_mass_matrix": lib.array(target.moments["w"][1])}


def compare_control(lib, kernel, target, seed=0):
    """Run a kernel in the setting of the controls and compare."""
    mean, lengths = target.moments["w"][0], CONTROL_LENGTHS[lib.name]
    start = np.tile(mean, (lengths["num_chains"], 1)) if "num_chains" in lengths else mean
    return compare(lib, kernel, target, seed=seed, init_params={"w": lib.array(start)}, **lengths)


def drop_subset(lib, target, num_subsets, in_gradient):
    """One subset's likelihood is left out of the accept step, and perhaps of the gradient as well."""
    data = tuple(lib.array(x) for x in target.data)
    potential = lib.split.split_model(target.model(lib), data, num_subsets=num_subsets)
    kept = lib.array(np.arange(num_subsets + 1) != 1 + DROPPED, dtype=lib.np.float64)  # the prior's term is first

    class Dropping(type(potential)):
        def energies(self, z):
            terms = super().energies(z)
            return terms * kept if lib.name == "pyro" else type(terms)(terms.high * kept, terms.low * kept)

        def subset_energies_and_grad(self, z, m):
            energies, grad = super().subset_energies_and_grad(z, m)
            here = 1.0 * (m != DROPPED)
            if lib.name == "pyro":
                energies = (energies[0], here * energies[1])
            else:
                energies = jax.tree.map(lambda terms: terms.at[1].multiply(here), energies)
            return energies, {name: (here if in_gradient else 1.0) * g for name, g in grad.items()}

    if lib.name == "numpyro":
        import jax

        jax.tree_util.register_pytree_node_class(Dropping)
    dropping = Dropping(potential._density, potential._data)
    return lib.split.NaiveSplitHMC(dropping, **control_options(lib, target))


def fix_order(lib, target, num_subsets):
    """The randomised schedule, one order of which is not reversible, always in the same order."""

    kernel = lib.split.RandomisedSplitHMC(target.model(lib), num_subsets=num_subsets, **control_options(lib, target))
    trajectory = kernel._method.trajectory

    class FixedOrder(type(trajectory)):
        def draws_order(self, schedule):
            return False

    kernel._method = replace(kernel._method, trajectory=FixedOrder(trajectory.lengths))
    return kernel


def halve_kick(lib, target, num_subsets):
    """The last kick but one of the symmetric schedule is half of what it should be."""

    kernel = lib.split.SymmetricSplitHMC(target.model(lib), num_subsets=num_subsets, **control_options(lib, target))
    schedule = kernel._method.schedule.rows
    *rows, row, last = schedule.rows
    halved = (*rows, row._replace(kick=row.kick / 2), last)
    object.__setattr__(schedule, "rows", halved)  # past the check, which would refuse it
    return kernel


CONTROLS = {
    "dropped": partial(drop_subset, num_subsets=10, in_gradient=True),
    "dropped_in_accept_step": partial(drop_subset, num_subsets=10, in_gradient=False),
    "fixed_order": partial(fix_order, num_subsets=4),
    "halved_kick": partial(halve_kick, num_subsets=4),
}
CONTROL_CASES = [
    pytest.param(backend, fault, id=f"{backend.name}-{fault}")
    for backend, fault in itertools.product([NumPyroBackend, PyroBackend], CONTROLS)
]


@pytest.mark.parametrize(("lib", "fault"), CONTROL_CASES, indirect=["lib"])
def test_broken_kernel_disagrees(lib, fault):
    """Negative controls: each fault shows, at an effective sample size that is enough (see :func:`assert_agree`)."""
    target = linear_regression()
    with pytest.raises(Disagreement):
        assert_agree(compare_control(lib, CONTROLS[fault](lib, target), target))


@pytest.mark.parametrize(
    ("kernel", "num_subsets"), [("NaiveSplitHMC", 10), ("RandomisedSplitHMC", 4), ("SymmetricSplitHMC", 4)]
)
def test_unbroken_kernel_agrees_in_the_setting_of_the_controls(lib, kernel, num_subsets):
    """What the controls show is their fault and not their setting (36 more comparisons, 0.1 %)."""
    target = linear_regression()
    kernel = getattr(lib.split, kernel)(target.model(lib), num_subsets=num_subsets, **control_options(lib, target))
    assert_agree(compare_control(lib, kernel, target))
