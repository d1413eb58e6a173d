"""A metric from draws and gradients: exact on normals, found in warm-up by both packages, no part of the target."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from numpyro.infer.hmc_util import HMCAdaptState

from pyro_split.host import matrices_of
from split_common import gradient_metric
from split_common.gradient_metric import metric_of_window, uses_gradients
from tests.statistics import assert_agree, compare_moments

DIM = 8
LENGTHS = {
    "numpyro": {"num_warmup": 200, "num_samples": 1500, "num_chains": 4, "chain_method": "vectorized"},
    "pyro": {"num_warmup": 200, "num_samples": 2000},
}
ARRAYS = {"numpy": (np, np.asarray), "jax": (jnp, jnp.asarray), "torch": (torch, torch.as_tensor)}


def covariance(dim=DIM, condition=1000.0, seed=0):
    """Of condition 1000, rotated."""
    turn, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(dim, dim)))
    return turn * np.logspace(0, np.log10(condition), dim) @ turn.T


def window(sigma, num, seed=1):
    """Covariances of correlated draws of N(0, sigma), and of the gradients there."""
    draws = np.random.default_rng(seed).multivariate_normal(np.zeros(len(sigma)), sigma, size=num)
    for i in range(1, num):  # as a chain makes them
        draws[i] = 0.7 * draws[i - 1] + 0.5 * draws[i]
    return np.cov(draws.T), np.cov((draws @ np.linalg.inv(sigma)).T)


def condition(metric, sigma):
    """Of the target in the units of the metric."""
    values = np.linalg.eigvals(np.linalg.solve(metric, sigma)).real
    return values.max() / values.min()


@pytest.mark.parametrize("arrays", ARRAYS)
def test_any_window_of_more_draws_than_parameters_gives_a_normal_targets_covariance(monkeypatch, arrays):
    monkeypatch.setattr(gradient_metric, "SHRINKAGE", 1e-9)
    monkeypatch.setattr(gradient_metric, "LEAST_SHRINKAGE", 1e-9)
    xp, array = ARRAYS[arrays]
    sigma = covariance()
    draws, grads = window(sigma, num=DIM + 4)
    found = np.asarray(metric_of_window(array(draws), array(grads), DIM + 4, xp))
    np.testing.assert_allclose(found, sigma, rtol=1e-4, atol=1e-4 * sigma.max())
    assert condition(draws, sigma) > 20  # control: the draws alone


def test_the_mean_solves_its_equation_in_any_units():
    """X G X = C, and in other units, of which shrinkage takes no notice, it is the same metric."""
    draws, grads = window(covariance(), num=40)
    scale = np.logspace(-6, 6, DIM)
    found = metric_of_window(draws, grads, 40, np)
    other = metric_of_window(draws * scale * scale[:, None], grads / scale / scale[:, None], 40, np)
    np.testing.assert_allclose(other / scale / scale[:, None], found, rtol=1e-6)
    unit = np.sqrt(np.sqrt(np.diag(draws) / np.diag(grads)))
    shrinkage = gradient_metric.shrinkage(40, DIM) * np.identity(DIM)
    left, middle = found / unit / unit[:, None], grads * unit * unit[:, None] + shrinkage
    np.testing.assert_allclose(left @ middle @ left, draws / unit / unit[:, None] + shrinkage, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("num", [2, 5, 30])
def test_it_is_positive_definite_from_few_draws(num):
    found = metric_of_window(*window(covariance(), num), num, np)
    assert np.linalg.eigvalsh(found).min() > 0
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize("num", [10, 20, 40])
@pytest.mark.parametrize("arrays", ARRAYS)
def test_in_single_precision_a_window_on_the_way_to_the_posterior_has_a_metric(arrays, num):
    """Of variance 10⁶ along the way, which leaves rounding of the others too large for Cholesky roots."""
    xp, array = ARRAYS[arrays]
    rng = np.random.default_rng(num)
    draws = rng.normal(size=(num, 50)) + 1000 * np.linspace(2, 0, num)[:, None] * rng.normal(size=50)
    units = np.logspace(-1, 1, 50)
    covariances = [array(np.cov(x.T).astype(np.float32)) for x in (draws * units, draws / units)]
    found = np.asarray(metric_of_window(*covariances, num, xp))
    assert found.dtype == np.float32
    assert condition(found.astype(float), np.diag(units**2)) < 3


def test_a_chain_that_stood_still_has_the_identity():
    nothing = np.zeros((3, 3))
    np.testing.assert_allclose(metric_of_window(nothing, nothing, 9, np), np.identity(3))


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


def run(lib, kernel, dim=DIM, **lengths):
    lengths = {**LENGTHS[lib.name], **lengths}
    num_chains = lengths.get("num_chains", 1)
    start = lib.array(np.ones((num_chains, dim) if num_chains > 1 else dim))
    return lib.run(kernel, init_params={"x": start}, **lengths)


def metric_of(lib, mcmc):
    """The inverse mass matrix of the first chain's last state."""
    (matrix,) = mcmc.last_state.adapt_state.inverse_mass_matrix.values()
    matrix = lib.to_numpy(matrix)
    return matrix[0] if matrix.ndim == 3 else matrix


@pytest.mark.parametrize(
    ("name", "options", "num_subsets"),
    [
        pytest.param("SplitNUTS", {}, 1, marks=pytest.mark.slow),
        ("SplitNUTS", {}, 3),
        ("SymmetricSplitHMC", {}, 2),
        ("SplitHMC", {"schedule": "single_visit", "center": "auto"}, 3),
    ],
)
def test_it_is_found_in_200_iterations_and_draws_are_exact(lib, name, options, num_subsets):
    sigma = covariance()
    kernel = getattr(lib.split, name)(normal(lib, sigma, num_subsets), metric="auto", **options)
    mcmc = run(lib, kernel)
    assert condition(metric_of(lib, mcmc), sigma) < 6
    draws = lib.to_numpy(mcmc.get_samples(group_by_chain=True)["x"])
    along = np.linalg.eigh(sigma)[1]  # the worst directions, not only the coordinates
    assert_agree(compare_moments("along axes", draws @ along, along.sum(0), np.linalg.eigvalsh(sigma)))


@pytest.mark.parametrize("form", ["vector", "blocks"])
def test_the_first_metric_may_have_any_form(lib, form):
    """Short warm-ups have no window to make another from."""
    given = np.arange(1.0, DIM + 1) if form == "vector" else {("x",): covariance()}
    kernel = lib.split.SplitNUTS(normal(lib, covariance(), 2), metric="auto", inverse_mass_matrix=given)
    mcmc = run(lib, kernel, num_warmup=4, num_samples=2)
    expected = np.diag(given) if form == "vector" else given["x",]
    np.testing.assert_allclose(metric_of(lib, mcmc), expected)


def test_sites_that_the_first_metric_leaves_out_have_the_identity(lib):
    module = importlib.import_module(f"{lib.split.__name__}.adaptation.gradient_metric")
    block, x = covariance(3), {name: lib.array(np.zeros(size)) for name, size in {"a": 1, "b": 2, "c": 1}.items()}
    found = module.dense_start({("c", "b"): lib.array(block)}, x)
    expected = np.identity(4)
    order = [3, 1, 2]  # places of the block's parameters among those of a, b and c
    expected[np.ix_(order, order)] = block
    np.testing.assert_allclose(lib.to_numpy(found["a", "b", "c"]), expected)


def counts_of_warmup(lib, kernel, num_warmup, dim=DIM, num=None):
    """Subset gradients, steps and next step size of each of the first ``num`` iterations, by default of all."""
    start, found = {"x": lib.array(np.ones(dim))}, []
    if lib.name == "numpyro":
        state = kernel.init(jax.random.key(0), num_warmup, start, (), {})
        sample = jax.jit(lambda state: kernel.sample(state, (), {}))
        for _ in range(num or num_warmup):
            state = sample(state)
            found.append((int(state.num_grads), int(state.num_steps), float(state.adapt_state.step_size)))
        return np.array(found)
    kernel.initial_params = start
    kernel.setup(num_warmup)
    for _ in range(num or num_warmup):
        start = kernel.sample(start)
        state = kernel._chain.state
        found.append((state.num_grads, state.num_steps, float(state.adapt_state.step_size)))
    return np.array(found)


@pytest.mark.parametrize(("schedule", "num_subsets"), [("symmetric", 1), ("single_visit", 3)])
def test_a_gradient_of_all_rows_is_counted_where_no_schedule_has_it(lib, schedule, num_subsets):
    """M subset gradients for each draw of the window, iterations 4 to 26 of 30; of one subset it is known."""
    kernel = lib.split.SplitHMC(
        normal(lib, np.identity(DIM), num_subsets), schedule=schedule, metric="auto", num_steps=2, step_size=0.1
    )
    num_grads, num_steps, _ = counts_of_warmup(lib, kernel, 30).T
    expected = np.zeros(30, int)
    if num_subsets > 1:
        begins = 4 if lib.name == "numpyro" else 3  # Pyro counts iterations from 1, its windows from 0
        expected[begins : begins + 23] = num_subsets
    np.testing.assert_array_equal(num_grads - num_subsets * num_steps, expected)


@pytest.mark.parametrize("dim", [DIM, 501])
def test_early_windows_spare_most_gradients_of_the_first_75_iterations(lib, dim):
    """The metric of low rank too. Control: a given metric, if only the identity, stays until the host's windows."""
    sigma, spent = np.diag(np.logspace(-4, 0, dim)), {}
    for given in (None, np.ones(dim)):
        potential = normal(lib, sigma, 1)
        kernel = lib.split.SplitNUTS(potential, metric="auto", max_tree_depth=7, inverse_mass_matrix=given)
        num_grads, _, step_size = counts_of_warmup(lib, kernel, 150, dim, num=75).T
        spent[given is None] = num_grads.sum()
        if given is None:
            assert step_size[9] > 5 * step_size[8]  # searched for again in the new metric
    assert spent[True] < spent[False] / 2


def test_it_is_dense_up_to_500_parameters():
    """Beyond, it is of low rank (``test_low_rank_metric.py``)."""
    assert uses_gradients("auto", 500)
    assert not uses_gradients("auto", 501)
    assert not uses_gradients(None, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "fisher"}, r"metric must be one of \['auto'\], or None, got 'fisher'"),
        ({"metric": "auto", "adapt_mass_matrix": False}, "adapt_mass_matrix must be True where metric is 'auto'"),
    ],
)
def test_bad_arguments(lib, options, message):
    with pytest.raises(ValueError, match=message):
        lib.split.SplitNUTS(lambda: None, 2, **options)


def test_dense_blocks_are_not_for_it(lib):
    name = "dense_mass" if lib.name == "numpyro" else "full_mass"
    with pytest.raises(
        ValueError, match=f"{name} must be False where metric is 'auto', which chooses its form, got True"
    ):
        lib.split.SplitNUTS(lambda: None, 2, metric="auto", **{name: True})


def lengths_of(lib, potential, dim, **options):
    """Shortest and longest length of the first chain after 200 iterations of warm-up."""
    mcmc = run(lib, lib.split.SymmetricSplitHMC(potential, metric="auto", **options), dim, num_samples=2)
    return tuple(np.ravel(getattr(mcmc.last_state, name))[0] for name in ("shortest_length", "trajectory_length"))


def test_where_the_metric_fits_lengths_are_about_a_quarter_turn(lib):
    """Whatever the target's scales; its draws are exact (the test of 200 iterations)."""
    lengths = lengths_of(lib, normal(lib, covariance(), 2), DIM)
    np.testing.assert_allclose(lengths, np.array([0.75, 1.25]) * np.pi / 2, rtol=0.2)


def test_where_no_metric_fits_lengths_are_those_of_trees(lib):
    """Control: scales of x that follow v, over a factor of e² and more."""

    def log_likelihood(z, rows):
        v, x = z["x"][0], z["x"][1:]
        return -0.5 * v**2 / 4 - 0.5 * (x**2).sum() * lib.np.exp(-v) - v * (len(x) / 2)

    funnel = lib.split.SplitPotential.from_functions(
        lambda z: 0.0 * z["x"].sum(), log_likelihood, lib.array(np.ones(1)), num_subsets=1
    )
    shortest, longest = lengths_of(lib, funnel, 4, target_accept_prob=0.9)
    assert shortest == 0
    assert longest > 0


def test_the_squared_frequencies_of_a_normal_target_are_measured(lib):
    """Their mean, and that of their inverses, from a window of exact draws and gradients."""
    module = importlib.import_module(f"{lib.split.__name__}.adaptation.gradient_metric")
    sigma, metric = covariance(4, 10.0), np.diag([1.0, 2.0, 3.0, 4.0])
    draws = np.random.default_rng(0).multivariate_normal(np.zeros(4), sigma, size=4000)
    grads = draws @ np.linalg.inv(sigma)
    if lib.name == "numpyro":
        window = module.GradientWindow.start(4)
        moments = [(jnp.array(x.mean(0)), jnp.array(np.cov(x.T) * (len(x) - 1)), len(x)) for x in (draws, grads)]
        products = jnp.array(((draws - draws.mean(0)) * (grads - grads.mean(0))).sum())
        found = window._replace(draws=moments[0], grads=moments[1], products=products).fit(jnp.array(metric))
    else:
        window = module.GradientWindow()
        for z, grad in zip(draws, grads, strict=True):
            window.update(torch.tensor(z))
            window.update_gradient(torch.tensor(z), torch.tensor(grad))
        found = window.fit(torch.tensor(metric))
    squared = np.linalg.eigvals(metric @ np.linalg.inv(sigma)).real
    np.testing.assert_allclose(np.array(found, float), [squared.mean(), (1 / squared).mean()], rtol=0.1)


def ended(lib, condition=1.0, last=1.0):
    """Metric and drift from a window in single precision, whose last gradient is multiplied by ``last``."""
    module = importlib.import_module(f"{lib.split.__name__}.adaptation.gradient_metric")
    sigma = covariance(5, condition)
    draws = np.random.default_rng(0).multivariate_normal(np.zeros(5), sigma, size=150)
    grads = draws @ np.linalg.inv(sigma)
    grads[-1] *= last
    rows = [(x.astype(np.float32), grad.astype(np.float32)) for x, grad in zip(draws, grads, strict=True)]
    identity = np.identity(5, np.float32)
    if lib.name == "pyro":
        host = module.GradientMassMatrix()
        host.configure({("x",): (5, 5)}, options={"dtype": torch.float32, "device": torch.device("cpu")})
        for x, grad in rows:
            host.update({"x": torch.tensor(x)}, {"x": torch.tensor(grad)})
        host.end_adaptation()
        inverse, root, _ = matrices_of(host)
        return inverse[("x",)].numpy(), root[("x",)].numpy(), host.reference is None
    with jax.enable_x64(False):
        kinetic = module.EuclideanKinetic.of_inverse({("x",): jnp.array(identity)})
        state = HMCAdaptState(*[None] * len(HMCAdaptState._fields))._replace(
            inverse_mass_matrix=kinetic.inverse_mass_matrix,
            mass_matrix_sqrt=kinetic.mass_matrix_sqrt,
            mass_matrix_sqrt_inv=kinetic.mass_matrix_sqrt_inv,
            mm_state=module.GradientWindow.start(5),
        )
        feed = jax.jit(module.with_window)  # compiled once
        for i, (x, grad) in enumerate(rows):
            state = feed(state, {"x": jnp.array(x)}, {"x": jnp.array(grad)}, True, i == len(rows) - 1)
        zero, one = {"x": jnp.zeros(5)}, {"x": jnp.ones(5)}
        moved = state.mm_state.drift(module.EuclideanKinetic.adapted(state), one).turn(one, zero, 0.1, 0.2)
    is_straight = all(np.array_equal(new["x"], old["x"]) for new, old in zip(moved, (one, zero), strict=True))
    return *(np.asarray(x[("x",)]) for x in (state.inverse_mass_matrix, state.mass_matrix_sqrt)), is_straight


@pytest.mark.parametrize(("condition", "last"), [(1.0, np.inf), (1.0, np.nan), (1e10, 1.0)])
def test_a_window_without_a_usable_metric_leaves_the_old_one(lib, condition, last):
    """Gradients that are not finite, or a matrix that rounding has left without a root."""
    matrix, root, is_straight = ended(lib, condition, last)
    np.testing.assert_array_equal(matrix, np.identity(5))
    np.testing.assert_array_equal(root, np.identity(5))
    assert is_straight


def test_a_window_with_a_usable_metric_replaces_it(lib):
    """Control."""
    matrix, root, is_straight = ended(lib, 10.0)
    np.testing.assert_allclose(matrix, covariance(5, 10.0), rtol=0.01, atol=0.01)
    assert np.all(np.isfinite(root))
    assert not is_straight
