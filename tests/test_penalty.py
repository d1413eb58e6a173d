"""The parts of PenaltyMH: penalty, estimates and their variance, expansions, proposals; and decisions by known noise.

Statistical tests compare a mean with its known value at |z| < 4.2 (see ``statistics.py``): one comparison fails a right
sampler once in 37,000. About 100 are made here, so a false alarm comes once in some 370 seeds. Negative controls: draws
whose penalty is not told of the noise, and a variance without the correction for distinct rows.
"""

import importlib

import numpy as np
import pytest

from split_common.penalty import Batches, PenaltySettings, RowSampling, penalty
from split_common.schedule import naive
from tests.backends import NumPyroBackend, PyroBackend
from tests.statistics import Disagreement, assert_agree, compare_moments

SEED = 0
slow = pytest.mark.slow
NUM_ROWS, DIM = 60, 4


def settings(**options):
    defaults = {
        "batch_size": 5,
        "num_batches": 4,
        "proposal": "hamiltonian",
        "target": "posterior",
        "control_variate": "taylor2",
        "hessian_rank": None,
        "gradient": None,
        "gradient_batch_size": None,
        "variance_correction": True,
        "num_steps": None,
        "target_accept_prob": None,
        "target_noise": None,
    }
    return PenaltySettings.checked(**{**defaults, **options})


def logistic_potential(lib, num_rows=NUM_ROWS):
    """A logistic regression in two sites of 1 and 3 coefficients."""
    rng = np.random.default_rng(1)
    X, signs = rng.normal(size=(num_rows, DIM)), np.sign(rng.normal(size=num_rows))
    backend = lib.np

    def log_likelihood(z, batch):
        X, signs = batch
        logits = X[:, 0] * z["a"][0] + X[:, 1:] @ z["b"]
        return -backend.log1p(backend.exp(-signs * logits))

    return lib.split.SplitPotential.from_functions(
        lambda z: -0.5 * (z["a"] ** 2).sum() - 0.5 * (z["b"] ** 2).sum(),
        log_likelihood,
        (lib.array(X), lib.array(signs)),
        3,
    )


def position(lib, seed, scale=0.5):
    x = scale * np.random.default_rng(seed).normal(size=DIM)
    return {"a": lib.array(x[:1]), "b": lib.array(x[1:])}


def log_likelihoods(lib, potential, z):
    return lib.to_numpy(potential.pointwise_log_likelihood(z, lib.np.arange(potential.plate_size)))


# --- the penalty -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_batches", "worst"), [(5, 0.06), (10, 0.012), (20, 0.002)])
def test_series_makes_the_mean_acceptance_ratio_right_where_half_the_variance_does_not(num_batches, worst):
    # E exp(-δ - u) over noise of variance χ² = 2 and its estimate, which must be exp(-Δ); over s² by quadrature
    chi2, grid = 2.0, np.linspace(1e-6, 30.0, 400_001)
    degrees = num_batches - 1
    log_density = (degrees / 2 - 1) * np.log(grid) - grid * degrees / (2 * chi2)
    density = np.exp(log_density - log_density.max())
    density /= density.sum()

    def ratio(corrected):
        return float(np.exp(chi2 / 2) * (density * np.exp(-penalty(grid, num_batches, corrected))).sum())

    assert abs(ratio(True) - 1) < worst
    assert abs(ratio(False) - 1) > 10 * abs(ratio(True) - 1) or num_batches == 5
    assert abs(ratio(False) - 1) > 0.049


def noise_cases():
    """Every proposal by every variance, of which one is a default test."""
    for backend in (NumPyroBackend, PyroBackend):
        for proposal in ("random_walk", "langevin", "hamiltonian"):
            for variance in (0.5, 2.0, 5.0):
                rests = (proposal, variance) != ("langevin", 2.0)
                name = f"{backend.name}-{proposal}-{variance}"
                yield pytest.param(backend, proposal, variance, marks=slow if rests else [], id=name)


@pytest.mark.parametrize(("backend", "proposal", "variance"), noise_cases())
def test_known_noise(backend, proposal, variance):
    # steps so long that proposals change the energy: where none did, noise would only thin the chain
    step_size = {"random_walk": 1.5, "langevin": 1.2, "hamiltonian": 1.95}[proposal]
    chosen = settings(proposal=proposal)
    # of a little noise it takes more draws to see that it was left out
    num_draws = 60_000 if backend is NumPyroBackend else 40_000 if variance < 1 else 10_000

    def compare(known_variance):
        draws = backend().noisy_chains(chosen, variance, known_variance, num_draws, step_size, SEED)
        return compare_moments("x", draws, np.zeros(2), np.ones(2))

    assert_agree(compare(variance))
    with pytest.raises(Disagreement):  # the negative control: noise that the penalty is not told of
        assert_agree(compare(0.0))


# --- rows and batches ------------------------------------------------------------------------------------------------


def test_rows_are_distinct_and_every_choice_as_likely(lib):
    draw_rows = importlib.import_module(f"{lib.split.__name__}.subsampling.rows").draw_rows
    if lib.name == "numpyro":
        import jax

        keys = jax.random.split(jax.random.key(SEED), 40_000)
        rows = np.asarray(jax.jit(jax.vmap(lambda key: draw_rows(key, 12, 3)))(keys))
    else:
        lib.ppl.set_rng_seed(SEED)
        rows = np.array([draw_rows(12, 3).numpy() for _ in range(10_000)])
    assert np.all(np.diff(np.sort(rows, 1), axis=1) > 0)
    counts = np.unique(rows @ [144, 12, 1], return_counts=True)[1]
    cells = 12 * 11 * 10
    expected = len(rows) / cells
    chi_squared = ((counts - expected) ** 2).sum() / expected + (cells - len(counts)) * expected
    assert abs(chi_squared - (cells - 1)) < 4.2 * np.sqrt(2 * (cells - 1))


@pytest.mark.parametrize(
    ("batch_size", "num_batches", "max_groups", "num_rows", "draws"),
    [
        (2, 3, 1, 600, RowSampling.INDEPENDENT_ROWS),
        (10, 4, 1, 60, RowSampling.DISTINCT_ROWS),
        (5, 3, 3, 60, RowSampling.DISTINCT_ROWS),
        (30, 4, 1, 60, RowSampling.INDEPENDENT_BATCHES),
    ],
)
@pytest.mark.parametrize("target", ["posterior", "expected"])
def test_estimates_are_unbiased_and_so_is_their_variance(
    lib, batch_size, num_batches, max_groups, num_rows, draws, target
):
    batches = Batches(num_rows, batch_size, num_batches, max_groups)
    assert batches.sampling is draws
    potential, old, new = logistic_potential(lib, num_rows), position(lib, 0), position(lib, 1)
    num = 20_000 if lib.name == "numpyro" else 1500
    change, chi2 = lib.estimates(potential, batches, target, None, new, old, num, SEED)
    terms = lib.to_numpy(potential.energies(new) if lib.name == "pyro" else potential.energies(new).value)
    terms = terms - lib.to_numpy(potential.energies(old) if lib.name == "pyro" else potential.energies(old).value)
    exact = terms[0] + batches.likelihood_power(target) * terms[1:].sum()
    noise = change - exact
    assert abs(noise.mean()) < 4.2 * noise.std() / np.sqrt(num)
    off = noise**2 - chi2
    assert abs(off.mean()) < 4.2 * off.std() / np.sqrt(num)
    if draws is RowSampling.DISTINCT_ROWS and lib.name == "numpyro":  # the negative control
        off = noise**2 - chi2 / (1 - batch_size * num_batches * max_groups / num_rows)
        assert abs(off.mean()) > 4.2 * off.std() / np.sqrt(num)


def test_all_rows_in_every_batch_leave_no_noise(lib):
    potential = logistic_potential(lib)
    batches = Batches(NUM_ROWS, NUM_ROWS, 2)
    change, chi2 = lib.estimates(potential, batches, "posterior", None, position(lib, 1), position(lib, 0), 3)
    exact = float(potential.potential(position(lib, 1)) - potential.potential(position(lib, 0)))
    np.testing.assert_allclose(change, exact, rtol=1e-10)
    np.testing.assert_allclose(chi2, 0.0, atol=1e-20)


# --- expansions ------------------------------------------------------------------------------------------------------


def numerical_expansion(lib, potential, z, order, directions):
    """T_i(z) about 0 of every row, by the formula, for the logistic potential."""
    X, signs = (lib.to_numpy(x) for x in potential._data)
    d = np.concatenate([lib.to_numpy(z["a"]), lib.to_numpy(z["b"])])
    inside = d if directions is None else directions @ (directions.T @ d)
    curvature = -0.25 * (X @ inside) ** 2 if order == 2 else 0.0
    return -np.log(2.0) + 0.5 * signs * (X @ d) + 0.5 * curvature


@pytest.mark.parametrize(
    "options", [{"control_variate": "taylor1"}, {"control_variate": "taylor2"}, {"hessian_rank": 2}]
)
def test_totals_of_an_expansion_are_those_of_its_rows(lib, options):
    potential, zero = logistic_potential(lib), position(lib, 0, scale=0.0)
    chosen = settings(**options)
    taylor = lib.reference(potential, zero, chosen).taylor
    directions = None if taylor.directions is None else lib.to_numpy(taylor.directions)
    old, new = position(lib, 1), position(lib, 2)
    rows = lib.np.arange(NUM_ROWS)
    for z in (old, new):
        expected = numerical_expansion(lib, potential, z, chosen.order, directions)
        terms = taylor.rows(lambda z: potential.pointwise_log_likelihood(z, rows), z)
        np.testing.assert_allclose(lib.to_numpy(terms), expected, rtol=1e-10)
        np.testing.assert_allclose(float(taylor.total(z)), expected.sum(), rtol=1e-10)
    change = [numerical_expansion(lib, potential, z, chosen.order, directions).sum() for z in (old, new)]
    np.testing.assert_allclose(float(taylor.change(new, old)), change[1] - change[0], rtol=1e-10)


def test_directions_are_those_of_the_largest_second_derivatives(lib):
    potential = logistic_potential(lib)
    taylor = lib.reference(potential, position(lib, 0, scale=0.0), settings(hessian_rank=2)).taylor
    X = lib.to_numpy(potential._data[0])
    values, vectors = np.linalg.eigh(-0.25 * X.T @ X)
    found = lib.to_numpy(taylor.directions)
    np.testing.assert_allclose(found.T @ found, np.eye(2), atol=1e-10)
    np.testing.assert_allclose(np.abs(vectors[:, :2].T @ found).max(1), 1.0, rtol=1e-3)
    np.testing.assert_allclose(np.sort(np.diag(lib.to_numpy(taylor.hessian))), values[:2], rtol=1e-3)


def test_covariance_at_the_reference(lib):
    potential = logistic_potential(lib)
    covariance = lib.reference(potential, position(lib, 0, scale=0.0), settings(control_variate=None)).covariance
    X = lib.to_numpy(potential._data[0])
    np.testing.assert_allclose(np.linalg.inv(covariance), np.eye(DIM) + 0.25 * X.T @ X, rtol=1e-8)


def test_control_variate_leaves_less_noise(lib):
    potential, zero = logistic_potential(lib), position(lib, 0, scale=0.0)
    old, new, noise = position(lib, 1, 0.1), position(lib, 2, 0.1), []
    for name in (None, "taylor1", "taylor2"):
        taylor = lib.reference(potential, zero, settings(control_variate=name)).taylor
        change, chi2 = lib.estimates(potential, Batches(NUM_ROWS, 5, 4), "posterior", taylor, new, old, 50)
        exact = float(potential.potential(new) - potential.potential(old))
        assert abs((change - exact).mean()) < 4.2 * change.std() / np.sqrt(50)
        noise.append(chi2.mean())
    assert noise[0] > 10 * noise[1] > 100 * noise[2]


# --- proposals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"gradient": "surrogate"},
        {"gradient": "minibatch", "gradient_batch_size": 7},
        {"control_variate": "taylor1", "gradient_batch_size": 7},
        {"control_variate": None, "gradient_batch_size": 7},
    ],
    ids=["surrogate", "minibatch, order 2", "minibatch, order 1", "minibatch"],
)
def test_a_proposal_is_undone_by_itself_and_preserves_volume(lib, options):
    chosen, potential = settings(**options), logistic_potential(lib)
    batches = Batches.of(NUM_ROWS, 5, 4, False)
    taylor = lib.reference(potential, position(lib, 0, scale=0.0), chosen).taylor
    force = lib.force(chosen, batches, potential, taylor, SEED)
    integrator = lib.potential_integrator(naive(1), force, position(lib, 0))
    order = lib.array(np.arange(1)) if lib.name == "numpyro" else [0]
    make_steps = importlib.import_module(f"{lib.split.__name__}.integrators.integrator").make_steps

    @lib.compiled
    def trajectory(z, p):
        return make_steps(integrator, integrator.start(z, p, order), 0.2, 3, order)

    def leapfrog(x):
        end = trajectory(*({"a": lib.array(v[:1]), "b": lib.array(v[1:])} for v in (x[:DIM], x[DIM:])))
        return np.concatenate([lib.to_numpy(point[name]) for point in (end.z, end.p) for name in "ab"])

    start = np.random.default_rng(3).normal(size=2 * DIM)
    flip = np.repeat([1.0, -1.0], DIM)
    np.testing.assert_allclose(flip * leapfrog(flip * leapfrog(start)), start, atol=1e-10)
    steps = 1e-5 * np.eye(2 * DIM)
    jacobian = np.array([(leapfrog(start + h) - leapfrog(start - h)) / 2e-5 for h in steps])
    assert abs(abs(np.linalg.det(jacobian)) - 1) < 1e-6


def test_gradients_of_proposals(lib):
    """The minibatch's is unbiased, and, with all rows in it, that of the potential; the surrogate's is that at 0."""
    potential, z = logistic_potential(lib), position(lib, 1)
    whole = potential.potential_and_grad(z)[1]
    for name in (None, "taylor1", "taylor2"):
        chosen = settings(control_variate=name, gradient="minibatch", gradient_batch_size=NUM_ROWS)
        taylor = lib.reference(potential, position(lib, 0, scale=0.0), chosen).taylor
        force = lib.force(chosen, Batches.of(NUM_ROWS, 5, 4, False), potential, taylor)
        for site, grad in lib.compiled(lambda z, force=force: lib.force_grad(force, z))(z).items():
            np.testing.assert_allclose(lib.to_numpy(grad), lib.to_numpy(whole[site]), rtol=1e-9)
    zero = position(lib, 0, scale=0.0)
    chosen = settings()
    taylor = lib.reference(potential, zero, chosen).taylor
    force = lib.force(chosen, Batches.of(NUM_ROWS, 5, 4, False), potential, taylor)
    at_zero = potential.potential_and_grad(zero)[1]
    for site, grad in lib.force_grad(force, zero).items():
        np.testing.assert_allclose(lib.to_numpy(grad), lib.to_numpy(at_zero[site]), rtol=1e-9)


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"num_batches": 1}, "num_batches must be at least 2.*got 1"),
        ({"proposal": "gibbs"}, "proposal must be one of.*got 'gibbs'"),
        ({"target": "prior"}, "target must be one of.*got 'prior'"),
        ({"control_variate": "taylor3"}, "control_variate must be one of.*got 'taylor3'"),
        ({"control_variate": "taylor1", "hessian_rank": 3}, "hessian_rank must be None unless"),
        ({"control_variate": "taylor1", "gradient": "surrogate"}, "gradient='surrogate' must go with"),
        ({"proposal": "random_walk", "gradient": "minibatch"}, "gradient must be None for proposal='random_walk'"),
        ({"proposal": "langevin", "num_steps": 5}, "num_steps must be None or 1 for proposal='langevin'.*got 5"),
        ({"target_noise": 0.0}, "target_noise must be a finite number above 0, got 0"),
        ({"target_accept_prob": 1.0}, "target_accept_prob must lie strictly between 0 and 1, got 1"),
    ],
)
def test_arguments(lib, options, message):
    with pytest.raises(ValueError, match=message):
        lib.split.PenaltyMH(lambda y: None, **options)
