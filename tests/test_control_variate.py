"""The total of a control variate is that of its rows, in float32 too: found, compared, and refused where it is not.

An intercept and the slope of x = 1000 ± 1: entries of the Hessian are 10⁶ times what counts over the posterior. The
log-likelihood is its own expansion, so that everything is known in closed form. Draws are compared at |z| < 4.2, see
``statistics.py``: four comparisons, a false alarm for one seed in 9,000. Seeds 0 to 2 were tried.
"""

import importlib

import numpy as np
import pytest

from split_common.penalty import Batches
from split_common.reference import basis_for, check_total, find_mode
from tests.statistics import assert_agree, compare_moments
from tests.test_penalty import logistic_potential, position, settings

SEED, OFFSET, NUM_ROWS = 0, 1000.0, 4000


def far_from_zero(lib, num_rows=NUM_ROWS):
    """A regression in float32, its data, precision and mode, in the order of sites a, b."""
    lib.set_precision(32)
    rng = np.random.default_rng(SEED)
    x = (OFFSET + rng.normal(size=num_rows)).astype(np.float32)
    y = (x - OFFSET + rng.normal(size=num_rows)).astype(np.float32)

    def model(x, y):
        a, b = (lib.ppl.sample(name, lib.dist.Normal(lib.array(0.0), lib.array(1e4))) for name in "ab")
        with lib.ppl.plate("data", x.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(a + b * x, lib.array(1.0)), obs=y)

    design = np.stack([np.ones(num_rows), x.astype(float)], 1)
    precision = design.T @ design + 1e-8 * np.eye(2)
    return model, (lib.array(x), lib.array(y)), precision, np.linalg.solve(precision, design.T @ y.astype(float))


def expansion_of(lib):
    return importlib.import_module(f"{lib.split.__name__}.potential.expansion")


def certainty_of(lib):
    return importlib.import_module(f"{lib.split.__name__}.subsampling.certainty")


def vector(lib, z):
    return np.array([float(z[name]) for name in "ab"])


@pytest.mark.parametrize("given", [False, True])
def test_mode_and_total_are_right_where_float32_cancels(lib, given):
    model, args, precision, mode = far_from_zero(lib)
    options = {"reference": {"a": 0.0, "b": 0.0}} if given else {}  # 60 standard deviations away
    mcmc = lib.run(lib.split.PenaltyMH(model, 50, 10, **options), *args, num_warmup=1, num_samples=1)
    taylor = lib.taylor(mcmc.last_state)
    deviations = np.linalg.cholesky(precision).T
    if not given:
        assert np.linalg.norm(deviations @ (vector(lib, taylor.reference) - mode)) < 0.5
    rng = np.random.default_rng(1)
    for _ in range(5):
        old, new = (mode + np.linalg.solve(deviations, rng.normal(size=2)) for _ in range(2))
        old, new = ({"a": lib.array(u[0]), "b": lib.array(u[1])} for u in (old, new))
        before, after = (deviations @ (vector(lib, z) - mode) for z in (old, new))
        prior = 0.5e-8 * (vector(lib, new) @ vector(lib, new) - vector(lib, old) @ vector(lib, old))
        exact = -0.5 * (after @ after - before @ before) + prior
        np.testing.assert_allclose(float(taylor.change(new, old)), exact, atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"control_variate": "taylor1"}], ids=["taylor2", "taylor1"])
def test_draws_are_right_where_float32_cancels(lib, options):
    model, args, precision, mode = far_from_zero(lib)
    kernel = lib.split.PenaltyMH(model, 200, 20, **options)
    mcmc = lib.run(kernel, *args, num_warmup=200, num_samples=2000, seed=SEED)
    draws = lib.to_numpy(mcmc.get_samples(group_by_chain=True)["b"]).astype(float)
    assert_agree(compare_moments("b", draws[..., None], mode[1:], np.diag(np.linalg.inv(precision))[1:]))


@pytest.mark.parametrize("stops_early", [False, True])
def test_a_total_that_rounding_has_spoilt_is_refused(lib, monkeypatch, stops_early):
    """The negative control: the Hessian in the parameters themselves, as its entries are rounded; and no mode."""
    model, args, *_ = far_from_zero(lib, 20_000)
    monkeypatch.setattr(expansion_of(lib), "basis_for", lambda *_: None)
    if stops_early:
        kernels = importlib.import_module(f"{lib.split.__name__}.kernels.penalty")
        monkeypatch.setattr(kernels, "near_mode", lambda potential, found, *_: found)
    with pytest.raises(ValueError, match=r"control_variate must have a sum.*float32 rounds.*centre.*in float64"):
        lib.run(lib.split.PenaltyMH(model, 50, 10), *args)


@pytest.mark.parametrize(
    "options", [{"control_variate": "taylor1"}, {"control_variate": "taylor2"}, {"hessian_rank": 2}]
)
def test_a_wrong_total_is_refused(lib, options):
    """The negative control: a gradient that is off by the inverse of each parameter's standard deviation."""
    potential, batches = logistic_potential(lib), Batches(60, 10, 4)
    found = lib.reference(potential, position(lib, 0, 0.0), settings(**options))
    find = certainty_of(lib).find_certainty_rows
    find(potential, found, batches, 1.0)
    off = lib.array(1 / np.sqrt(np.diag(found.covariance)))
    for share, is_refused in ((0.01, False), (1.0, True)):
        wrong = found._replace(taylor=found.taylor._replace(grad=found.taylor.grad + share * off))
        if is_refused:
            with pytest.raises(ValueError, match="float64 rounds by .* nats, so that draws .* inputs, or take"):
                find(potential, wrong, batches, 1.0)
        else:
            find(potential, wrong, batches, 1.0)


def test_a_wrong_hessian_is_refused(lib):
    potential = logistic_potential(lib)
    found = lib.reference(potential, position(lib, 0, 0.0), settings())
    wrong = found._replace(taylor=found.taylor._replace(hessian=1.5 * found.taylor.hessian))
    with pytest.raises(ValueError, match="control_variate must have a sum over all rows"):
        certainty_of(lib).find_certainty_rows(potential, wrong, Batches(60, 10, 4), 1.0)


def test_totals_are_compared_where_they_are_finite():
    check_total(np.array([np.nan, 1.0]), np.array([0.0, 1.0]), 2.8, "float32")
    check_total(np.array([np.inf]), np.array([0.0]), 2.8, "float32")  # of which every estimate says so
    with pytest.raises(ValueError, match="float32"):
        check_total(np.array([np.nan, 1.5]), np.array([0.0, 1.0]), 2.8, "float32")


def test_a_search_in_standard_deviations_finds_a_mode_that_is_far():
    precision, mode = np.array([[1e3, 1e6], [1e6, 1e9 + 1e3]]), np.array([-1000.0, 1.0])

    def energy_and_grad(x):
        grad = precision @ (x - mode)
        return float((x - mode) @ grad / 2), grad

    found = find_mode(energy_and_grad, np.zeros(2), np.linalg.inv(1.1 * precision))
    np.testing.assert_allclose(found, mode, rtol=1e-5)


def test_a_basis_is_made_only_where_rounding_counts():
    close = np.array([[1.0, 1000.0], [1000.0, 1000001.0]])
    assert basis_for(close, 2e-16) is None
    assert basis_for(np.diag([1e-12, 1e12]), 1e-7) is None  # scales of parameters are no cancellation
    assert basis_for(np.array([[1.0, 2.0], [2.0, 1.0]]), 1e-7) is None  # a saddle
    rounded = close - np.diag([0.0, 1.5])  # no longer positive definite
    basis = basis_for(rounded, 1e-6)
    assert np.linalg.cond(basis.T @ close @ basis) < 100
