"""A metric of low rank from draws and gradients: closed forms, momenta, windows, runs, and starts from a stored one."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from numpyro.infer.hmc_util import HMCAdaptState
from scipy.linalg import hadamard
from scipy.stats import chi2

from split_common import gradient_metric, low_rank_metric
from split_common.low_rank_metric import (
    CUTOFF,
    SHRINKAGE,
    LowRank,
    check_low_rank_values,
    full_rank,
    low_rank_of_window,
    uses_low_rank,
)
from split_common.settling import METRIC_LIMIT
from tests.backends import NumPyroBackend, PyroBackend
from tests.statistics import assert_agree, compare_moments
from tests.test_gibbs import linear

ARRAYS = {"numpy": (np, np.asarray), "jax": (jnp, jnp.asarray), "torch": (torch, torch.as_tensor)}
LARGE = 600  # more parameters than a dense metric is made for


def covariance(dim=LARGE, seed=0):
    """Three common factors of independent coordinates: condition 10⁵ in units of its standard deviations."""
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(dim, 3))
    return 3 * factors @ factors.T + np.diag(rng.uniform(0.05, 0.5, dim))


def window(sigma, num, seed=1):
    """Draws of N(0, sigma), and gradients there."""
    draws = np.random.default_rng(seed).multivariate_normal(np.zeros(len(sigma)), sigma, size=num, method="cholesky")
    return draws, np.linalg.solve(sigma, draws.T).T


def made(draws, grads, arrays="numpy"):
    xp, array = ARRAYS[arrays]
    return low_rank_of_window(array(draws), array(grads), array(np.ones(len(draws))), xp)


def dense(metric):
    """M⁻¹ as a matrix."""
    return np.asarray(metric.velocity(np.identity(metric.shape[0])))


def condition(metric, sigma):
    """Of the target in the units of the metric."""
    root = np.linalg.cholesky(metric)
    values = np.linalg.eigvalsh(np.linalg.solve(root, np.linalg.solve(root, sigma).T))
    return values.max() / values.min()


def some_metric(dim=7, rank=3, seed=0):
    rng = np.random.default_rng(seed)
    directions, _ = np.linalg.qr(rng.normal(size=(dim, rank)))
    return LowRank(rng.uniform(0.2, 5.0, dim), directions, np.array([40.0, 3.0, 0.05])[:rank])


def exact_window(long=900.0, short=1 / 900, dim=64, num=30, seed=0):
    """A window whose moments are those of I + a long and a short direction, n < D, and these two directions.

    Draws of the two and of all others are uncorrelated, and every coordinate has the same share of each direction.
    """
    columns = hadamard(dim) / dim**0.5
    raw = np.column_stack([np.ones(num), np.random.default_rng(seed).normal(size=(num, num - 1))])
    scores = np.linalg.qr(raw)[0][:, 1:] * (num - 1) ** 0.5  # of mean 0, variance 1, uncorrelated
    variances = np.array([long, short, *np.ones(num - 3)])
    draws = (scores * variances**0.5) @ columns[:, 1:num].T
    return draws, (scores / variances**0.5) @ columns[:, 1:num].T, columns[:, 1:3]


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_long_and_short_directions_are_exact_up_to_the_shrinkage(scale):
    """And every direction beside them has the units, though n < D."""
    draws, grads, directions = exact_window()
    units = scale ** np.linspace(-1, 1, 64)
    found = dense(made(draws * units, grads / units)) / units / units[:, None]

    def mean(variance):
        return np.sqrt((variance + SHRINKAGE) / (1 / variance + SHRINKAGE))

    factors = []
    for variance in (900.0, 1 / 900):
        first = mean(variance)
        left = mean(variance / first)
        factors.append(first * (left if max(left, 1 / left) > CUTOFF else 1.0))
    expected = np.identity(64) + (directions * (np.array(factors) - 1)) @ directions.T
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


def test_the_directions_are_exact_where_nothing_is_shrunk(monkeypatch):
    monkeypatch.setattr(low_rank_metric, "SHRINKAGE", 1e-9)
    draws, grads, directions = exact_window()
    velocity = made(draws, grads).velocity(directions.T)
    np.testing.assert_allclose(velocity, (directions * [900.0, 1 / 900]).T, rtol=1e-5, atol=1e-8)


def test_from_more_draws_than_parameters_only_what_is_cut_off_is_left(monkeypatch):
    """Condition 4 at most, of any normal target: frequencies between the roots of 1/2 and 2."""
    monkeypatch.setattr(low_rank_metric, "SHRINKAGE", 1e-9)
    turn, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(20, 20)))
    sigma = turn * np.logspace(0, 4, 20) @ turn.T
    draws, grads = window(sigma, 30)
    assert condition(dense(made(draws, grads)), sigma) < 4 * (1 + 1e-6)
    assert condition(np.cov(draws.T), sigma) > 10  # control


def test_factors_are_found_from_a_hundred_draws_of_many_parameters():
    sigma = covariance()
    draws, grads = window(sigma, 100)
    units = np.diag(np.sqrt(draws.var(0) / grads.var(0)))
    assert condition(dense(made(draws, grads)), sigma) < 40
    assert condition(units, sigma) > 1000  # control: the diagonal alone
    assert condition(np.diag(draws.var(0)), sigma) > 1e4  # and the host's


@pytest.mark.parametrize("num", [2, 5, 30, 250])
def test_it_is_a_metric_from_any_number_of_draws(num):
    found = made(*window(covariance(40), num))
    assert found.shape == (40,)
    assert len(found.factors) <= full_rank(40)
    np.testing.assert_allclose(found.directions.T @ found.directions, np.identity(len(found.factors)), atol=1e-12)
    assert found.factors.min() > 0


def test_a_chain_that_stood_still_has_the_identity():
    nothing = np.zeros((30, 8))
    np.testing.assert_allclose(dense(made(nothing + 3.0, nothing)), np.identity(8), atol=1e-12)


@pytest.mark.both_packages
def test_what_is_not_finite_is_no_metric():
    draws, grads = window(covariance(40), 30)
    grads[3, 4] = np.inf
    assert not low_rank_metric.is_usable(made(draws, grads, "jax"), jnp)
    module = importlib.import_module("pyro_split.adaptation.low_rank_metric")
    window_of_torch = module.LowRankWindow()
    for z, grad in zip(draws, grads, strict=True):
        window_of_torch.update(torch.tensor(z))
        window_of_torch.update_gradient(torch.tensor(grad))
    assert window_of_torch.metric() is None  # and the old one is kept


@pytest.mark.both_packages
def test_the_packages_make_one_metric_of_one_window():
    """To 1e-10; NumPyro's window is a buffer, which has more rows than draws, or fewer, and then keeps the last."""
    draws, grads = window(covariance(50), 60)
    expected = dense(made(draws, grads))
    eye = torch.eye(50, dtype=torch.float64)
    np.testing.assert_allclose(made(draws, grads, "torch").velocity(eye), expected, rtol=1e-10, atol=1e-10)
    ours, theirs = (
        importlib.import_module(f"{name}.adaptation.low_rank_metric") for name in ("numpyro_split", "pyro_split")
    )
    for longest, num in ((100, 60), (40, 40)):
        window_of_jax, window_of_torch = ours.LowRankWindow.start(50, longest), theirs.LowRankWindow()
        for z, grad in zip(draws, grads, strict=True):
            window_of_jax = window_of_jax.fed({"x": jnp.array(z)}, {"x": jnp.array(grad)})
        for z, grad in zip(draws[-num:], grads[-num:], strict=True):
            window_of_torch.update(torch.tensor(z))
            window_of_torch.update_gradient(torch.tensor(grad))
        first = low_rank_of_window(window_of_jax.draws, window_of_jax.grads, window_of_jax.seen, jnp)
        second = window_of_torch.metric()
        np.testing.assert_allclose(first.velocity(jnp.eye(50)), second.velocity(eye), rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(window_of_jax.draw_variances, window_of_torch.variances, rtol=1e-10)
        np.testing.assert_allclose(window_of_jax.fit(first), window_of_torch.fit(second), rtol=1e-10)


SINGLE_DIM = 200
STANDARD_DEVIATIONS = {
    "near-isotropic": np.linspace(0.9, 1.1, SINGLE_DIM),
    "few directions": np.r_[30.0, 10.0, 1 / 30, np.ones(SINGLE_DIM - 3)],
    "wide spread": np.logspace(0, -2, SINGLE_DIM),
}


def rotated_window(scales, num, seed, far=0.0):
    """Draws of a normal of these standard deviations along rotated axes, from ``far`` of them on, and gradients."""
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.normal(size=(len(scales), len(scales))))
    z = rng.normal(size=(num, len(scales))) + far * np.linspace(2, 0, num)[:, None] * rng.normal(size=len(scales))
    return z * scales @ turn.T, z / scales @ turn.T


def in_single_precision(lib):
    """A function that makes the metric of a window as a package does in single precision, in arrays of NumPy."""
    xp, array = (jnp, jnp.asarray) if lib.name == "numpyro" else (torch, torch.as_tensor)
    find = jax.jit(lambda *window: low_rank_of_window(*window, xp)) if lib.name == "numpyro" else None

    def found(draws, grads):
        rows = [array(x.astype(np.float32)) for x in (draws, grads, np.ones(len(draws)))]
        metric = find(*rows) if find else low_rank_of_window(*rows, xp)
        assert low_rank_metric.is_usable(metric, xp)
        return metric.converted(lambda x: np.asarray(x, np.float64))

    return found


@pytest.mark.parametrize("num", [20, 50, 100])
def test_in_single_precision_it_is_the_metric_of_double_precision(lib, num, monkeypatch):
    """To 3% along any direction, and 1% in any factor; all factors count, since one may be at the limit of those."""
    monkeypatch.setattr(low_rank_metric, "CUTOFF", 1.0)
    monkeypatch.setattr(low_rank_metric, "MAX_RANK", SINGLE_DIM)
    found = in_single_precision(lib)
    for scales in STANDARD_DEVIATIONS.values():
        for seed in range(2):
            draws, grads = rotated_window(scales, num, seed)
            metric, expected = found(draws, grads), made(draws, grads)
            np.testing.assert_allclose(np.sort(metric.factors), np.sort(expected.factors), rtol=0.01)
            units = expected.scale(np.identity(SINGLE_DIM))
            np.testing.assert_allclose(np.linalg.eigvalsh(metric.velocity(units) @ units.T), 1.0, rtol=0.03)


@pytest.mark.parametrize("num", [20, 50, 100])
def test_on_the_way_to_the_posterior_no_direction_is_made_of_rounding(lib, num):
    """The way is 10⁶ times the variance of all else."""
    found = in_single_precision(lib)
    for seed in range(3):
        metric = found(*rotated_window(np.ones(SINGLE_DIM), num, seed, far=1000.0))
        np.testing.assert_allclose(metric.factors, 1.0, rtol=1e-3)


def ended(lib, draws, grads):
    """The metric after a window in single precision, which began with the identity."""
    module = importlib.import_module(f"{lib.split.__name__}.adaptation.low_rank_metric")
    start = LowRank.of_variances(np.ones(draws.shape[1]))
    if lib.name == "pyro":
        host = module.LowRankMassMatrix({("x",): start.converted(lambda x: torch.tensor(x).float())}, True)
        for x, grad in zip(draws, grads, strict=True):
            host.update({"x": torch.tensor(x).float()}, {"x": torch.tensor(grad).float()})
        host.end_adaptation()
        return host.inverse_mass_matrix["x",].converted(lambda x: np.asarray(x, np.float64))
    with jax.enable_x64(False):
        before = module.LowRankWindow.start(draws.shape[1], len(draws))
        window = before._replace(
            draws=before.draws.at[:-1].set(draws[:-1]), grads=before.grads.at[:-1].set(grads[:-1]), num=len(draws) - 1
        )
        state = HMCAdaptState(*[None] * len(HMCAdaptState._fields))._replace(
            inverse_mass_matrix={("x",): start.converted(jnp.asarray).padded(full_rank(draws.shape[1]), jnp)},
            mm_state=window,
        )
        last = {"x": jnp.asarray(draws[-1])}, {"x": jnp.asarray(grads[-1])}
        state = module.with_low_rank_window(state, *last, True, jnp.array(True))
        return state.inverse_mass_matrix["x",].converted(lambda x: np.asarray(x, np.float64))


def test_a_window_on_the_way_to_the_posterior_ends_with_its_metric(lib):
    """Without an error, though the covariances of such a window have no Cholesky roots in single precision."""
    metric = dense(ended(lib, *rotated_window(np.full(SINGLE_DIM, 2.0), 50, 0, far=1000.0)))
    np.testing.assert_allclose(metric, 4 * np.identity(SINGLE_DIM), atol=0.01)  # the old one is the identity


@pytest.mark.parametrize("size", [1e25, np.nan])
def test_a_window_without_a_usable_metric_leaves_the_old_one(lib, size):
    """Draws whose squares are not finite in single precision, though they are, and such as are not finite."""
    draws, grads = rotated_window(np.ones(SINGLE_DIM), 50, 0)
    np.testing.assert_array_equal(dense(ended(lib, size * draws, grads)), np.identity(SINGLE_DIM))


def test_no_axes_are_added_unasked():
    """As with jax_numpy_rank_promotion="raise", a setting that JAX recommends for finding errors of shape."""
    rng = np.random.default_rng(3)
    low_rank_window = importlib.import_module("numpyro_split.adaptation.low_rank_metric").LowRankWindow
    window = low_rank_window.start(30, 20)
    with jax.numpy_rank_promotion("raise"):
        for _ in range(20):
            x, grad = jnp.asarray(rng.normal(size=(2, 30)))
            window = window.fed({"x": x}, {"x": grad})
        metric = low_rank_of_window(window.draws, window.grads, window.seen, jnp)
        again = metric.momentum(metric.velocity(window.draws))
        np.testing.assert_allclose(again, window.draws, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(metric.scale(metric.unscale(window.draws[0])), window.draws[0], rtol=1e-3, atol=1e-4)
        assert all(map(jnp.isfinite, window.fit(metric)))


def test_the_fit_is_that_of_the_matrices():
    draws, grads = window(covariance(30), 200)
    metric = some_metric(30)
    module = importlib.import_module("numpyro_split.adaptation.low_rank_metric")
    found = module.LowRankWindow(jnp.array(draws), jnp.array(grads), jnp.array(200), jnp.zeros(30)).fit(metric)
    matrix = dense(metric)
    cross = np.trace((draws - draws.mean(0)).T @ (grads - grads.mean(0))) / 199
    expected = np.array([np.trace(matrix @ np.cov(grads.T)), np.trace(np.linalg.solve(matrix, np.cov(draws.T)))])
    np.testing.assert_allclose(found, expected / cross, rtol=1e-10)


@pytest.mark.parametrize("arrays", ARRAYS)
def test_its_inverse_and_its_roots_are_those_of_the_matrix(arrays):
    metric = some_metric().converted(ARRAYS[arrays][1])
    eye = ARRAYS[arrays][1](np.identity(7))
    inverse, mass, unscale, scale = (
        np.asarray(f(eye)).T for f in (metric.velocity, metric.momentum, metric.unscale, metric.scale)
    )
    np.testing.assert_allclose(inverse, inverse.T, atol=1e-12)
    np.testing.assert_allclose(mass @ inverse, np.identity(7), atol=1e-10)
    np.testing.assert_allclose(scale @ scale.T, mass, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(unscale @ scale, np.identity(7), atol=1e-10)
    np.testing.assert_allclose(np.asarray(metric.variances), np.diag(inverse), rtol=1e-12)


def kinetic(lib, metric):
    """Of two sites, one of which has an axis more."""
    module = importlib.import_module(f"{lib.split.__name__}.integrators.low_rank")
    return module.LowRankKinetic({("a", "b"): metric.converted(lib.array)})


def position(lib, flat):
    return {"a": lib.array(flat[:4].reshape(2, 2)), "b": lib.array(flat[4:])}


def flat_of(lib, x):
    return np.concatenate([lib.to_numpy(x[name]).ravel() for name in ("a", "b")])


def test_velocity_and_momentum_undo_each_other(lib):
    metric, p = some_metric(), np.arange(1.0, 8.0)
    form = kinetic(lib, metric)
    velocity = form.velocity(position(lib, p))
    np.testing.assert_allclose(flat_of(lib, velocity), metric.velocity(p), rtol=1e-10)
    np.testing.assert_allclose(flat_of(lib, form.momentum(velocity)), p, rtol=1e-10)
    assert velocity["a"].shape == (2, 2)
    energy = float(form.energy(position(lib, 0 * p), position(lib, p)))
    np.testing.assert_allclose(energy, 0.5 * p @ metric.velocity(p), rtol=1e-10)
    shapes = {"a": (2, 2), "b": (3,)}
    np.testing.assert_allclose(flat_of(lib, form.variances(shapes)), np.diag(dense(metric)), rtol=1e-10)


def test_sites_that_stand_still_have_no_momentum(lib):
    form = kinetic(lib, some_metric())._replace(held=("c",))
    x = {**position(lib, np.arange(1.0, 8.0)), "c": lib.array(np.ones(2))}
    np.testing.assert_array_equal(lib.to_numpy(form.velocity(x)["c"]), 0.0)
    np.testing.assert_array_equal(lib.to_numpy(form.momentum(x)["c"]), 0.0)


def test_more_blocks_are_diagonal(lib):
    form = kinetic(lib, some_metric()).joined({"c": lib.array(np.array([4.0]))})
    x = {**position(lib, np.arange(1.0, 8.0)), "c": lib.array(np.ones(1))}
    np.testing.assert_allclose(lib.to_numpy(form.velocity(x)["c"]), 4.0)
    np.testing.assert_allclose(flat_of(lib, form.velocity(x)), some_metric().velocity(np.arange(1.0, 8.0)), rtol=1e-10)


def draw_momenta(lib, form, num):
    z = position(lib, np.zeros(7))
    if lib.name == "numpyro":
        drawn = jax.vmap(lambda key: form.draw(z, key))(jax.random.split(jax.random.key(0), num))
        return np.concatenate([np.asarray(drawn[name]).reshape(num, -1) for name in ("a", "b")], 1)
    torch.manual_seed(0)
    return np.array([flat_of(lib, form.draw(z)) for _ in range(num)])


def scatter_statistic(momenta, inverse):
    """2 n Stein's loss + mean² of momenta against N(0, M): the likelihood ratio, χ² of D (D + 3) / 2 degrees."""
    num, dim = momenta.shape
    matrix = momenta.T @ momenta / num @ inverse
    mean = momenta.mean(0)
    centred = matrix - np.outer(mean, mean) @ inverse
    return num * (np.trace(matrix) - np.linalg.slogdet(centred)[1] - dim)


def test_momenta_have_the_covariance_of_the_mass_matrix(lib):
    """False alarms: 1e-4 a package; a square root that does not match the inverse is found."""
    metric = some_metric()
    momenta, limit = draw_momenta(lib, kinetic(lib, metric), 4000), chi2.isf(1e-4, 7 * 10 / 2)
    assert scatter_statistic(momenta, dense(metric)) < limit
    other = metric._replace(factors=metric.factors * np.array([1.0, 1.25, 1.0]))
    assert scatter_statistic(momenta, dense(other)) > limit


def test_a_root_that_does_not_match_the_inverse_draws_another_distribution(lib):
    """Control: momenta that are drawn by 1.5 times the factors of the velocity's metric."""
    metric = some_metric()
    drawn = kinetic(lib, metric._replace(factors=1.5 * metric.factors))
    assert scatter_statistic(draw_momenta(lib, drawn, 4000), dense(metric)) > chi2.isf(1e-4, 7 * 10 / 2)


def normal(lib, sigma, num_subsets):
    """N(1, sigma) as a potential whose subsets share it unevenly."""
    precision = lib.array(np.linalg.inv(sigma))
    shares = lib.array(np.random.default_rng(0).dirichlet(np.full(12, 2.0)))

    def log_likelihood(z, shares):
        x = z["x"] - 1.0
        return -0.5 * shares.sum() * (x @ (precision @ x))

    return lib.split.SplitPotential.from_functions(
        lambda z: 0.0 * z["x"].sum(), log_likelihood, shares, num_subsets=num_subsets
    )


def test_steps_are_undone(lib):
    """To 1e-10: seven steps, the momentum turned round, and seven more."""
    from split_common.schedule import symmetric

    module = importlib.import_module(f"{lib.split.__name__}.integrators")
    low_rank = importlib.import_module(f"{module.__name__}.low_rank")
    integrator_module = importlib.import_module(f"{module.__name__}.integrator")
    sigma = covariance(7)
    form = low_rank.LowRankKinetic({("x",): some_metric().converted(lib.array)})
    integrator = integrator_module.Integrator(symmetric(3), normal(lib, sigma, 3), form)
    order = lib.np.arange(3) if lib.name == "numpyro" else range(3)
    z, p = (lib.array(x) for x in np.random.default_rng(3).normal(size=(2, 7)))
    start = integrator.start({"x": z}, {"x": p}, order)
    state = integrator_module.make_steps(integrator, start, 0.1, 7, order)
    assert np.abs(lib.to_numpy(state.z["x"] - z)).max() > 0.1
    state = integrator.start(state.z, {"x": -state.p["x"]}, order)
    state = integrator_module.make_steps(integrator, state, 0.1, 7, order)
    np.testing.assert_allclose(lib.to_numpy(state.z["x"]), lib.to_numpy(z), rtol=0, atol=1e-10)
    np.testing.assert_allclose(lib.to_numpy(state.p["x"]), -lib.to_numpy(p), rtol=0, atol=1e-10)


@pytest.fixture
def small(monkeypatch):
    """Low rank beyond 5 parameters."""
    monkeypatch.setattr(low_rank_metric, "MAX_DENSE_SIZE", 5)
    monkeypatch.setattr(gradient_metric, "MAX_DENSE_SIZE", 5)


def short_steps(lib, potential, **options):
    """A kernel that compiles in little time."""
    return lib.split.SymmetricSplitHMC(potential, num_steps=2, step_size=0.1, find_heuristic_step_size=False, **options)


def run(lib, kernel, dim=12, **lengths):
    lengths = {"num_warmup": 150, "num_samples": 500, **lengths}
    num_chains = lengths.get("num_chains", 1)
    start = lib.array(np.ones((num_chains, dim) if num_chains > 1 else dim))
    return lib.run(kernel, init_params={"x": start}, **lengths)


KERNELS = [
    ("SplitNUTS", {}, 1),
    ("SymmetricSplitHMC", {}, 2),
    ("SplitHMC", {"schedule": "single_visit", "center": "auto"}, 3),
]
IN_DEFAULT_SUITE = {("numpyro", "SplitNUTS"), ("pyro", "SymmetricSplitHMC")}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("lib", "name", "options", "num_subsets"),
    [
        pytest.param(
            backend,
            *case,
            id=f"{backend.name}-{case[0]}",
            marks=[] if (backend.name, case[0]) in IN_DEFAULT_SUITE else pytest.mark.slow,
        )
        for backend in (NumPyroBackend, PyroBackend)
        for case in KERNELS
    ],
    indirect=["lib"],
)
def test_it_is_found_in_warmup_and_draws_are_exact(lib, name, options, num_subsets):
    sigma = covariance(12)
    kernel = getattr(lib.split, name)(normal(lib, sigma, num_subsets), metric="auto", **options)
    chains = {"num_chains": 4, "chain_method": "vectorized"} if lib.name == "numpyro" else {"num_samples": 4000}
    mcmc = run(lib, kernel, **{"num_samples": 1500, **chains})
    metric = lib.split.metric_of(mcmc)["x",]
    assert isinstance(metric, LowRank)
    assert condition(dense(metric.converted(lib.to_numpy)), sigma) < 10
    draws = lib.to_numpy(mcmc.get_samples(group_by_chain=True)["x"])
    along = np.linalg.eigh(sigma)[1]
    assert_agree(compare_moments("along axes", draws @ along, along.sum(0), np.linalg.eigvalsh(sigma)))


@pytest.mark.usefixtures("small")
def test_the_report_knows_how_far_the_metric_moved(lib):
    kernel = short_steps(lib, normal(lib, covariance(12), 1), metric="auto")
    mcmc = run(lib, kernel, num_warmup=200, num_samples=20)
    assert float(mcmc.last_state.settled.metric_change) < np.log(METRIC_LIMIT)


@pytest.mark.parametrize("name", [pytest.param("S3HMC", marks=pytest.mark.slow), "BlockGibbsHMC"])
def test_precisions_move_in_their_own_way_beside_it(lib, name, monkeypatch):
    """In S3HMC by diagonal blocks of their own, before there is a metric."""
    for module in (low_rank_metric, gradient_metric):
        monkeypatch.setattr(module, "MAX_DENSE_SIZE", 1)
    model, args = linear(lib, "precision")
    options = {"num_steps": 2, "step_size": 0.1, "find_heuristic_step_size": False}
    if name == "BlockGibbsHMC":
        options["trajectory"] = "hmc"
    kernel = getattr(lib.split, name)(model, 2, metric="auto", **options)
    mcmc = lib.run(kernel, *args, num_warmup=60, num_samples=10)
    assert isinstance(lib.split.metric_of(mcmc)["w",], LowRank)
    assert len(np.unique(lib.to_numpy(mcmc.get_samples()["tau"]))) > 5


@pytest.mark.usefixtures("small")
def test_a_run_goes_on_from_a_state():
    lib = NumPyroBackend()
    kernel = short_steps(lib, normal(lib, covariance(12), 2), metric="auto")
    whole, part = (run(lib, kernel, num_warmup=60, num_samples=num) for num in (20, 10))
    first = part.get_samples()["x"]
    state = part.post_warmup_state = part.last_state
    assert state is not None
    part.run(state.rng_key)
    np.testing.assert_array_equal(np.concatenate([first, part.get_samples()["x"]]), whole.get_samples()["x"])


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("form", ["none", "vector", "low rank"])
def test_the_first_metric_may_be_diagonal_or_of_low_rank(lib, form):
    """A short warm-up has no window to make another from."""
    given = {"none": None, "vector": np.arange(1.0, 13), "low rank": some_metric(12)}[form]
    kernel = short_steps(lib, normal(lib, covariance(12), 2), metric="auto", inverse_mass_matrix=given)
    metric = lib.split.metric_of(run(lib, kernel, num_warmup=4, num_samples=2))["x",]
    expected = {"none": np.identity(12), "vector": np.diag(np.arange(1.0, 13)), "low rank": dense(some_metric(12))}[
        form
    ]
    np.testing.assert_allclose(dense(metric.converted(lib.to_numpy)), expected, rtol=1e-10, atol=1e-12)


def test_up_to_500_parameters_one_of_low_rank_becomes_dense(lib):
    kernel = short_steps(lib, normal(lib, covariance(12), 2), metric="auto", inverse_mass_matrix=some_metric(12))
    metric = lib.split.metric_of(run(lib, kernel, num_warmup=4, num_samples=2))["x",]
    np.testing.assert_allclose(lib.to_numpy(metric), dense(some_metric(12)), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("size", ["dense", "low rank"])
def test_a_later_run_starts_from_a_stored_metric(lib, size, request):
    """As it is, with a warm-up of the step size alone: draws of the target at once."""
    if size == "low rank":
        request.getfixturevalue("small")
    sigma = covariance(12)
    first = run(lib, short_steps(lib, normal(lib, sigma, 2), metric="auto"), num_warmup=200, num_samples=2)
    stored = lib.split.metric_of(first)
    name = "dense_mass" if lib.name == "numpyro" else "full_mass"
    options = {name: True} if size == "dense" else {}
    kernel = short_steps(lib, normal(lib, sigma, 2), inverse_mass_matrix=stored, adapt_mass_matrix=False, **options)
    second = run(lib, kernel, num_warmup=30, num_samples=5)
    kept = lib.split.metric_of(second)
    for sites, block in stored.items():
        for old, new in zip(block, kept[sites], strict=True):
            np.testing.assert_allclose(lib.to_numpy(new), lib.to_numpy(old))
    again = short_steps(lib, normal(lib, sigma, 2), metric="auto", inverse_mass_matrix=stored)
    third = lib.split.metric_of(run(lib, again, num_warmup=4, num_samples=2))
    np.testing.assert_allclose(*(lib.to_numpy(x["x",][0]) for x in (third, stored)))


def test_a_later_run_starts_from_a_stored_reference(lib):
    potential = normal(lib, covariance(4), 3)
    options = {"schedule": "single_visit", "metric": "auto", "num_steps": 2}
    first = run(lib, lib.split.SplitHMC(potential, center="auto", **options), 4, num_samples=2)
    center = lib.split.center_of(first)
    second = run(lib, lib.split.SplitHMC(potential, center=center, **options), 4, num_warmup=4, num_samples=2)
    np.testing.assert_array_equal(*(lib.to_numpy(x["x"]) for x in (lib.split.center_of(second), center)))


def test_what_is_not_there_cannot_be_stored(lib):
    mcmc = run(lib, short_steps(lib, normal(lib, covariance(4), 2)), 4, num_warmup=4, num_samples=2)
    with pytest.raises(ValueError, match="mcmc must have been run, with a kernel that centres"):
        lib.split.center_of(mcmc)
    with pytest.raises(ValueError, match="mcmc must have been run, with a kernel that has a mass matrix, got object"):
        lib.split.metric_of(object())
    with pytest.raises(ValueError, match="chain must be a whole number from 0 to 0, got 1"):
        lib.split.metric_of(mcmc, chain=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scales": np.zeros(7)}, "inverse_mass_matrix of low rank must have scales and factors above 0"),
        ({"factors": np.array([1.0, np.nan, 1.0])}, "must have fields of finite real numbers"),
        ({"factors": np.ones(2)}, r"of shapes \(D,\), \(D, K\) and \(K,\), of one chain, got \[\(7,\)"),
        ({"directions": np.ones((7, 3))}, "must have directions with orthonormal columns"),
    ],
)
def test_a_given_one_of_low_rank_is_checked(lib, change, message):
    with pytest.raises(ValueError, match=message):
        lib.split.SplitNUTS(lambda: None, metric="auto", inverse_mass_matrix=some_metric()._replace(**change))


def test_the_host_cannot_adapt_one_of_low_rank(lib):
    kernel = short_steps(lib, normal(lib, covariance(12), 2), inverse_mass_matrix=some_metric(12))
    with pytest.raises(ValueError, match="inverse_mass_matrix of low rank needs metric='auto'"):
        run(lib, kernel, num_warmup=4, num_samples=2)
    kernel = short_steps(lib, normal(lib, covariance(12), 2), metric="auto", inverse_mass_matrix=some_metric(11))
    with pytest.raises(ValueError, match=r"must have shape \(12,\)"):
        run(lib, kernel, num_warmup=4, num_samples=2)


def test_beyond_500_parameters_it_is_of_low_rank():
    assert not uses_low_rank("auto", 500)
    assert uses_low_rank("auto", 501)
    assert not uses_low_rank(None, 501)


@pytest.mark.slow
def test_six_hundred_parameters(lib):
    """Moments of a normal of three factors, along its own axes, after 300 iterations."""
    sigma = covariance()
    kernel = lib.split.SplitNUTS(normal(lib, sigma, 1), metric="auto")
    chains = {"num_chains": 2, "chain_method": "vectorized"} if lib.name == "numpyro" else {}
    mcmc = run(lib, kernel, LARGE, num_warmup=300, num_samples=4000, **chains)
    draws = lib.to_numpy(mcmc.get_samples(group_by_chain=True)["x"])
    along = np.linalg.eigh(sigma)[1]
    assert_agree(compare_moments("along axes", draws @ along, along.sum(0), np.linalg.eigvalsh(sigma)))


def test_given_directions_are_made_orthonormal():
    """Rounded to four digits they are not; the matrix is the same one."""
    rng = np.random.default_rng(0)
    directions = np.linalg.qr(rng.normal(size=(6, 3)))[0].round(4)
    factors = np.array([1e-4, 0.3, 1e4])
    given = LowRank(np.ones(6), directions, factors)
    kept = check_low_rank_values("inverse_mass_matrix", given, np.ndarray)
    np.testing.assert_allclose(kept.directions.T @ kept.directions, np.identity(3), atol=1e-14)
    expected, found = (
        np.identity(6) + (m.directions * (np.asarray(m.factors) - 1)) @ m.directions.T for m in (given, kept)
    )
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert check_low_rank_values("inverse_mass_matrix", kept, np.ndarray).directions is not None
