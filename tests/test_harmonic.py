"""Drifts along a normal approximation: reversible, volume-preserving, exact on normals, and no part of the target."""

import importlib

import jax
import numpy as np
import pytest

from split_common.schedule import naive, single_visit, symmetric
from tests.backends import NumPyroBackend, PyroBackend
from tests.statistics import assert_agree, compare_moments
from tests.test_integrators import BUILDERS, DIM, NUM_SUBSETS, potential, start, subset_grad

REFERENCE = np.array([0.3, -1.0, 2.0])
LENGTHS = {
    "numpyro": {"num_warmup": 200, "num_samples": 1500, "num_chains": 4, "chain_method": "vectorized"},
    "pyro": {"num_warmup": 200, "num_samples": 2500},
}


def inverse_mass(dense):
    """An inverse mass matrix that knows nothing of the potential."""
    root = np.random.default_rng(8).normal(size=(DIM, DIM)) / 3
    return np.identity(DIM) + root @ root.T if dense else np.array([1.0, 0.5, 2.0])


def flow(lib, build, num_subsets=NUM_SUBSETS, reference=REFERENCE, dense=True, grad=None):
    """Steps of a schedule with harmonic drifts, from plain arrays to plain arrays."""
    grad = subset_grad(lib, num_subsets) if grad is None else grad
    integrator = lib.integrator(build(num_subsets), grad, lib.array(inverse_mass(dense)), reference)

    def run(z, p, step_size, num_steps, order=None):
        return lib.integrate(integrator, z, p, step_size, num_steps, np.arange(num_subsets) if order is None else order)

    return run


@pytest.mark.parametrize("num_subsets", [1, 4])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("build", BUILDERS)
def test_trajectory_returns_after_a_flip(lib, build, dense, num_subsets):
    run, (z, p) = flow(lib, build, num_subsets, dense=dense), start()
    draws_order = build(num_subsets).draws_order
    order = np.random.default_rng(1).permutation(num_subsets) if draws_order else np.arange(num_subsets)
    z_end, p_end = run(z, p, 0.3, 6, order)
    z_back, p_back = run(z_end, -p_end, 0.3, 6, order[::-1] if draws_order else order)
    np.testing.assert_allclose(z_back, z, atol=1e-10, rtol=0)
    np.testing.assert_allclose(-p_back, p, atol=1e-10, rtol=0)


def test_a_reference_that_moves_with_the_state_does_not_lead_back(lib):
    """Control: about the start of each trajectory, which differs there and back."""
    z, p = start()
    end, momentum = flow(lib, symmetric, reference=z)(z, p, 0.3, 6)
    back, _ = flow(lib, symmetric, reference=end)(end, -momentum, 0.3, 6)
    assert np.abs(back - z).max() > 1e-4


def determinant(run):
    """Of the Jacobian of five steps, by differences."""
    x, h = np.concatenate(start()), 1e-6

    def end(x):
        return np.concatenate(run(x[:DIM], x[DIM:], 0.4, 5))

    jacobian = np.stack([(end(x + h * e) - end(x - h * e)) / (2 * h) for e in np.eye(2 * DIM)], axis=1)
    return np.linalg.det(jacobian)


@pytest.mark.parametrize("build", BUILDERS)
def test_volume_is_preserved(lib, build):
    assert abs(determinant(flow(lib, build)) - 1) < 1e-7


def test_a_turn_whose_momentum_is_left_as_it_is_changes_the_volume(lib, monkeypatch):
    """Control: the position turns, the momentum does not."""
    module = importlib.import_module(f"{lib.split.__name__}.integrators.harmonic")
    turn = module.HarmonicDrift.turn
    monkeypatch.setattr(module.HarmonicDrift, "turn", lambda self, z, p, *times: (turn(self, z, p, *times)[0], p))
    assert abs(determinant(flow(lib, naive)) - 1) > 1e-2


@pytest.mark.parametrize(("build", "order"), [(symmetric, 2), (naive, 2), (single_visit, 1)])
def test_order_of_the_energy_error(lib, build, order):
    """Slope of log |ΔH| against log ε over a fixed time, its median over starting points."""

    def hamiltonian(z, p):
        return potential(z) + 0.5 * p @ inverse_mass(True) @ p

    run, step_sizes, slopes = flow(lib, build), 0.4 / 2.0 ** np.arange(4, 8), []
    for seed in range(7):
        z, p = start(seed)
        ends = [run(z, p, step_size, round(1.6 / step_size)) for step_size in step_sizes]
        errors = [abs(hamiltonian(*end) - hamiltonian(z, p)) for end in ends]
        slopes.append(np.polyfit(np.log(step_sizes), np.log(errors), 1)[0])
    assert abs(np.median(slopes) - order) < 0.2


@pytest.mark.parametrize("build", BUILDERS)
def test_the_packages_agree_on_a_trajectory(build):
    z, p = start()
    order = np.random.default_rng(5).permutation(NUM_SUBSETS)
    ends = [flow(lib, build)(z, p, 0.3, 6, order) for lib in (NumPyroBackend(), PyroBackend())]
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-10, rtol=0)


@pytest.mark.parametrize("build", BUILDERS)
def test_a_normal_potential_in_its_own_metric_turns(lib, build):
    """Whatever the step: a quarter of a turn in one step leads to the momentum, exactly."""
    precision = np.linalg.inv(inverse_mass(True))
    shared, reference = lib.array(precision / NUM_SUBSETS), lib.array(REFERENCE)
    run = flow(lib, build, grad=lambda z, m: {"x": shared @ (z["x"] - reference)})
    z, p = start()
    for time in (0.1, np.pi / 2, 20.0):
        offset, velocity = z - REFERENCE, inverse_mass(True) @ p
        end, momentum = run(z, p, time, 1)
        np.testing.assert_allclose(end - REFERENCE, np.cos(time) * offset + np.sin(time) * velocity, atol=1e-10)
        np.testing.assert_allclose(momentum, precision @ (np.cos(time) * velocity - np.sin(time) * offset), atol=1e-10)


def test_drifts_that_are_off_are_straight_to_the_last_bit():
    """NumPyro compiles both forms as one; Pyro makes straight drifts by the same code as without."""
    from numpyro_split.integrators.harmonic import HarmonicDrift

    lib, (z, p) = NumPyroBackend(), start()
    kinetic = lib.kinetic({("x",): inverse_mass(True)})
    drift = HarmonicDrift(kinetic, {"x": lib.array(REFERENCE)}, lib.np.array(False))
    point = {"x": lib.array(z)}, {"x": lib.array(p)}
    end, momentum = drift.turn(*point, 0.2, 0.7)
    np.testing.assert_array_equal(end["x"], point[0]["x"] + 0.7 * kinetic.velocity(point[1])["x"])
    np.testing.assert_array_equal(momentum["x"], point[1]["x"])


def logistic(lib, num_rows=400):
    """A logistic regression of two weights on one vector."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(num_rows, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])
    y = (rng.random(num_rows) < 1 / (1 + np.exp(-X @ np.array([0.5, -0.5])))).astype(float)

    def log_likelihood(z, rows):
        X, y = rows
        logits = X @ z["w"]
        return y * logits - lib.np.logaddexp(logits, lib.np.zeros_like(logits))

    def log_prior(z):
        return -0.5 * (z["w"] ** 2).sum()

    rows = lib.array(X), lib.array(y)
    return lib.split.SplitPotential.from_functions(log_prior, log_likelihood, rows, NUM_SUBSETS), X, y


def exact_moments(X, y):
    """Mean and variance of the weights by quadrature."""
    mode, grid = np.zeros(2), np.linspace(-6, 6, 161)
    for _ in range(20):
        share = 1 / (1 + np.exp(-X @ mode))
        hessian = (X * (share * (1 - share))[:, None]).T @ X + np.identity(2)
        mode = mode - np.linalg.solve(hessian, X.T @ (share - y) + mode)
    root = np.linalg.cholesky(np.linalg.inv(hessian))
    points = mode + np.stack(np.meshgrid(grid, grid), -1).reshape(-1, 2) @ root.T
    logits = points @ X.T
    log_density = (y * logits - np.logaddexp(0, logits)).sum(1) - 0.5 * (points**2).sum(1)
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    mean = weight @ points
    return mean, weight @ (points - mean) ** 2


def draws_of(lib, kernel, dim=2, **lengths):
    lengths = {**LENGTHS[lib.name], **lengths}
    num_chains = lengths.get("num_chains", 1)
    mcmc = lib.run(
        kernel, init_params={"w": lib.array(np.zeros((num_chains, dim) if num_chains > 1 else dim))}, **lengths
    )
    return mcmc, lib.to_numpy(mcmc.get_samples(group_by_chain=True)["w"])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SplitHMC", {}),
        pytest.param("SplitHMC", {"schedule": "symmetric"}, marks=pytest.mark.slow),
        pytest.param("SplitNUTS", {"schedule": "auto", "metric": "auto", "drift": "auto"}, marks=pytest.mark.slow),
    ],
)
def test_draws_are_exact_and_one_costs_about_a_gradient(lib, name, options):
    made, X, y = logistic(lib)
    mcmc, w = draws_of(lib, getattr(lib.split, name)(made, **options))
    statistics = lib.statistics(mcmc)
    assert np.all(statistics["harmonic_drift"])
    assert_agree(compare_moments("w", w, *exact_moments(X, y)))
    if not options:
        assert np.mean(statistics["num_grads"]) < 1.5 * NUM_SUBSETS
    report = str(mcmc.sampler.report(mcmc) if lib.name == "numpyro" else mcmc.kernel.report(mcmc))
    assert "drifts along a normal approximation" in report


def test_draws_are_exact_about_a_bad_reference(lib, monkeypatch):
    """Three standard deviations off in each direction, in a metric that is not the target's."""
    module = importlib.import_module(f"{lib.split.__name__}.integrators.harmonic")
    turn, shift = module.HarmonicDrift.turn, lib.array(np.array([0.4, -0.3]))

    def shifted(self, z, p, *times):
        return turn(self._replace(reference={"w": self.reference["w"] + shift}), z, p, *times)

    monkeypatch.setattr(module.HarmonicDrift, "turn", shifted)
    made, X, y = logistic(lib)
    mcmc, w = draws_of(lib, lib.split.SplitHMC(made))
    assert np.all(lib.statistics(mcmc)["harmonic_drift"])
    assert_agree(compare_moments("w", w, *exact_moments(X, y)))


def funnel(lib):
    """Scales of w that follow the first coordinate: nothing normal about it."""

    def log_likelihood(z, rows):
        v, x = z["w"][0], z["w"][1:]
        return -0.5 * v**2 / 4 - 0.5 * (x**2).sum() * lib.np.exp(-v) - v * (len(x) / 2)

    return lib.split.SplitPotential.from_functions(
        lambda z: 0.0 * z["w"].sum(), log_likelihood, lib.array(np.ones(1)), num_subsets=1
    )


@pytest.mark.filterwarnings("ignore")
def test_far_from_a_normal_drifts_stay_straight_and_no_draw_changes(lib):
    """Pyro's are the same to the last bit; NumPyro compiles another program, whose roundings differ."""
    kernels = [lib.split.SplitHMC(funnel(lib), metric="auto", drift=drift) for drift in ("auto", None)]
    if lib.name == "pyro":
        runs = [draws_of(lib, kernel, dim=6, num_warmup=150, num_samples=50) for kernel in kernels]
        assert not np.any(lib.statistics(runs[0][0])["harmonic_drift"])
        return np.testing.assert_array_equal(runs[0][1], runs[1][1])
    state, moved = kernels[0].init(jax.random.key(0), 150, {"w": lib.array(np.zeros(6))}, (), {}), []
    state = jax.lax.fori_loop(0, 150, lambda _, state: kernels[0].sample(state, (), {}), state)
    assert not state.harmonic_drift
    kernels[1].init(jax.random.key(0), 150, {"w": state.z["w"]}, (), {})
    for kernel, known in zip(kernels, (state, state._replace(harmonic_drift=None)), strict=True):
        moved.append(jax.jit(lambda state, kernel=kernel: kernel.sample(state, (), {}))(known).z["w"])
    np.testing.assert_allclose(*moved, rtol=1e-9)


@pytest.mark.filterwarnings("ignore")
def test_few_draws_are_not_trusted(lib):
    """A window of fewer than twice as many draws as parameters fits by chance."""

    def log_likelihood(z, rows):
        return -0.5 * (z["w"] ** 2).sum()

    made = lib.split.SplitPotential.from_functions(
        lambda z: 0.0 * z["w"].sum(), log_likelihood, lib.array(np.ones(1)), num_subsets=1
    )
    for dim, expected in ((20, True), (30, False)):  # the last window of 200 has 50 draws
        mcmc, _ = draws_of(lib, lib.split.SplitHMC(made), dim=dim, num_samples=2, num_chains=1)
        assert np.all(lib.statistics(mcmc)["harmonic_drift"]) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ("auto", "auto")),
        ({"num_steps": 5}, ("auto", None)),
        ({"trajectory_length": 1.0}, ("auto", None)),
        ({"adapt_mass_matrix": False}, (None, None)),
        ({"mass": True}, (None, None)),
        ({"metric": None}, (None, None)),
        ({"drift": None}, ("auto", None)),
        ({"num_steps": 5, "drift": "auto"}, ("auto", "auto")),
    ],
)
def test_what_default_stands_for(lib, options, expected):
    options = dict(options)
    if "mass" in options:
        options["dense_mass" if lib.name == "numpyro" else "full_mass"] = options.pop("mass")
    adaptation = lib.split.SplitHMC(lambda: None, 2, **options)._method.adaptation
    assert (adaptation.metric, adaptation.drift) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drift": "harmonic", "metric": "auto"}, r"drift must be one of \['auto'\], or None, got 'harmonic'"),
        ({"drift": "auto"}, "metric must be 'auto' where drift is 'auto', which takes its reference from it, got None"),
    ],
)
def test_bad_arguments(lib, options, message):
    with pytest.raises(ValueError, match=message):
        lib.split.SplitNUTS(lambda: None, 2, **options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SplitHMC", {"trajectory_length": np.pi}),
        ("SymmetricSplitHMC", {"num_steps": 4, "step_size_jitter": 0.0}),
        ("WindowedHMC", {"num_steps": 4, "window_size": 2, "step_size_jitter": 0.0}),
    ],
)
def test_one_length_may_be_a_whole_period(lib, name, options):
    with pytest.raises(
        ValueError, match="step_size_jitter must be above 0 where drift is 'auto' and a length is given"
    ):
        getattr(lib.split, name)(lambda: None, 2, metric="auto", drift="auto", **options)


def test_turns_preserve_volume_whatever_the_inverse_of_the_mass_is(lib, monkeypatch):
    """As in single precision: M and its inverse by factors that do not match. Control: the turn by its two cosines."""
    module = importlib.import_module(f"{lib.split.__name__}.integrators.harmonic")
    momentum = module.EuclideanKinetic.momentum
    wrong = 1 + np.array([0.1, -0.2, 0.05])
    monkeypatch.setattr(
        module.EuclideanKinetic, "momentum", lambda self, v: momentum(self, {"x": v["x"] * lib.array(wrong)})
    )
    assert abs(determinant(flow(lib, naive)) - 1) < 1e-7
    sine, cosine = np.sin(0.4), np.cos(0.4) * np.identity(DIM)
    mass = np.linalg.inv(inverse_mass(True)) * wrong
    of_cosines = np.block([[cosine, sine * inverse_mass(True)], [-sine * mass, cosine]])
    assert abs(np.linalg.det(of_cosines) - 1) > 1e-3


@pytest.mark.parametrize("name", ["S3HMC", "BlockGibbsHMC"])
def test_kernels_of_precisions_have_no_such_argument(lib, name):
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'drift'"):
        getattr(lib.split, name)(lambda: None, 2, drift="auto")


@pytest.mark.filterwarnings("ignore")
def test_a_chain_that_stands_still_leaves_drifts_straight(lib):
    """Steps that are never accepted: neither draws nor gradients of a window vary."""
    made, _, _ = logistic(lib)
    kernel = lib.split.SplitHMC(made, adapt_step_size=False, step_size=1e4)
    mcmc, w = draws_of(lib, kernel, num_warmup=150, num_samples=2, num_chains=1)
    np.testing.assert_array_equal(w, np.zeros_like(w))
    assert not np.any(lib.statistics(mcmc)["harmonic_drift"])
