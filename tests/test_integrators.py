"""Every schedule's integrator: reversible, volume-preserving, of its order, and the same in both packages.

The target is nonlinear and its subsets differ: U_m(x) = ½ a_m |x - c_m|² + ¼ b_m Σ x⁴ + sin terms, on three
coordinates.
"""

import importlib
import re
import warnings
from fractions import Fraction

import numpy as np
import pytest

from split_common.fixed_length import MAX_STEPS
from split_common.schedule import Reversal, Schedule, naive, randomised, single_visit, symmetric
from tests.backends import NumPyroBackend, PyroBackend

DIM = 3
NUM_SUBSETS = 4
OUTER = Fraction(1 / (2 - 2 ** (1 / 3)))  # of Yoshida's step


def yoshida(num_subsets):
    """A naive step forwards, a longer one backwards, and one forwards again: fourth order, with negative weights."""
    shares = (OUTER, 1 - 2 * OUTER, OUTER)
    rows = [(row.subset, w * row.kick, w * row.drift) for w in shares for row in naive(num_subsets).rows]
    return Schedule("Yoshida", rows, Reversal.PALINDROMIC)


BUILDERS = [symmetric, naive, randomised, single_visit, yoshida]
INVERSE_MASS = np.array([1.0, 0.5, 2.0])


def coefficients(num_subsets):
    rng = np.random.default_rng(3)
    return {
        "a": rng.uniform(0.2, 1.0, num_subsets),
        "c": rng.normal(size=(num_subsets, DIM)),
        "b": rng.uniform(0.0, 0.3, num_subsets),
    }


def subset_potential(x, m, k):
    return 0.5 * k["a"][m] * np.sum((x - k["c"][m]) ** 2) + 0.25 * k["b"][m] * np.sum(x**4) + np.sin(x[0] * x[1] + m)


def potential(x, num_subsets=NUM_SUBSETS):
    k = coefficients(num_subsets)
    return sum(subset_potential(x, m, k) for m in range(num_subsets))


def subset_grad(lib, num_subsets=NUM_SUBSETS):
    """∇U_m by hand, for a traced or a plain m."""
    k = {name: lib.array(value) for name, value in coefficients(num_subsets).items()}

    def grad(z, m):
        x = z["x"]
        swapped = lib.np.stack([x[1], x[0], 0.0 * x[2]])
        coupling = lib.np.cos(x[0] * x[1] + m) * swapped
        return {"x": k["a"][m] * (x - k["c"][m]) + k["b"][m] * x**3 + coupling}

    return grad


def hamiltonian(z, p, num_subsets=NUM_SUBSETS):
    return potential(z, num_subsets) + 0.5 * np.sum(INVERSE_MASS * p**2)


def flow(lib, build, num_subsets=NUM_SUBSETS):
    integrator = lib.integrator(build(num_subsets), subset_grad(lib, num_subsets), lib.array(INVERSE_MASS))

    def run(z, p, step_size, num_steps, order=None):
        order = np.arange(num_subsets) if order is None else np.asarray(order)
        return lib.integrate(integrator, z, p, step_size, num_steps, order)

    return run


def start(seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=DIM), rng.normal(size=DIM)


@pytest.mark.parametrize("num_subsets", [1, 2, 4, 7])
@pytest.mark.parametrize("build", BUILDERS)
def test_trajectory_returns_after_a_flip(lib, build, num_subsets):
    run, (z, p) = flow(lib, build, num_subsets), start()
    draws_order = build(num_subsets).draws_order
    order = np.random.default_rng(1).permutation(num_subsets) if draws_order else np.arange(num_subsets)
    z_end, p_end = run(z, p, 0.1, 8, order)
    back = order[::-1] if draws_order else order
    z_back, p_back = run(z_end, -p_end, 0.1, 8, back)
    np.testing.assert_allclose(z_back, z, atol=1e-10, rtol=0)
    np.testing.assert_allclose(-p_back, p, atol=1e-10, rtol=0)


def test_one_random_order_does_not_undo_itself(lib):
    """Negative control: the randomised schedule needs the reversed order."""
    run, (z, p) = flow(lib, randomised), start()
    z_end, p_end = run(z, p, 0.1, 8)
    assert np.abs(run(z_end, -p_end, 0.1, 8)[0] - z).max() > 1e-3


@pytest.mark.parametrize("build", BUILDERS)
def test_volume_is_preserved(lib, build):
    run, (z, p) = flow(lib, build), start()
    x, h = np.concatenate([z, p]), 1e-6

    def end(x):
        return np.concatenate(run(x[:DIM], x[DIM:], 0.2, 5))

    jacobian = np.stack([(end(x + h * e) - end(x - h * e)) / (2 * h) for e in np.eye(2 * DIM)], axis=1)
    assert abs(np.linalg.det(jacobian) - 1) < 1e-7


@pytest.mark.parametrize(
    ("build", "order"), [(symmetric, 2), (naive, 2), (randomised, 1), (single_visit, 1), (yoshida, 4)]
)
def test_order_of_the_energy_error(lib, build, order):
    """Slope of log |ΔH| against log ε over a fixed time, its median over starting points."""
    run, step_sizes, slopes = flow(lib, build), 0.4 / 2.0 ** np.arange(4, 8), []
    for seed in range(7):
        z, p = start(seed)
        errors = [
            abs(hamiltonian(*run(z, p, step_size, round(1.6 / step_size))) - hamiltonian(z, p))
            for step_size in step_sizes
        ]
        slopes.append(np.polyfit(np.log(step_sizes), np.log(errors), 1)[0])
    assert abs(np.median(slopes) - order) < 0.2


@pytest.mark.parametrize("method", ["energy", "change_of"])
def test_a_dense_metric_decides_by_the_momenta_that_it_draws(lib, method):
    """In float32, of an intercept and the slope of x = 1000 ± 1; by the matrix itself ½ would be .41 to .69."""
    lib.set_precision(32)
    module = importlib.import_module(f"{lib.split.__name__}.integrators.euclidean")
    offset = 1000.0
    inverse = lib.array(np.array([[offset**2 + 1, -offset], [-offset, 1.0]]))
    kinetic = module.kinetic_of_inverse({("a", "b"): inverse})
    root = lib.to_numpy(kinetic.mass_matrix_sqrt["a", "b"])

    def energy(r):
        p = {name: lib.array(u) for name, u in zip("ab", root @ np.float32(r), strict=True)}
        zero = {name: 0 * u for name, u in p.items()}
        return float(kinetic.energy(zero, p) if method == "energy" else kinetic.change_of(p, zero))

    corners = [(np.cos(angle), np.sin(angle)) for angle in np.linspace(0, np.pi, 8)]
    np.testing.assert_allclose([energy(r) for r in corners], 0.5, rtol=2e-3)


def test_a_step_with_negative_weights(lib):
    """Row by row in plain NumPy, for U(x) = |x|²/2 from x = 1 and p = 0."""
    schedule, z, p = yoshida(1), 1.0, 0.0
    for row in schedule.rows:
        p -= 0.5 * float(row.kick) * z
        z += 0.5 * float(row.drift) * p
    np.testing.assert_allclose([z, p], [0.878616, -0.478890], atol=1e-6)
    integrator = lib.integrator(schedule, lambda z, m: z, lib.array(np.ones(DIM)))
    end = lib.integrate(integrator, np.ones(DIM), np.zeros(DIM), 0.5, 1, [0])
    np.testing.assert_allclose(end, [np.full(DIM, z), np.full(DIM, p)], atol=1e-14, rtol=0)


def test_whole_gradient_where_a_step_closes_without_a_kick(lib):
    """Of drift, kick, drift nothing is kept to divide by the weight of the last kick, which is 0."""
    half = Fraction(1, 2)
    drifts_first = Schedule("drifts first", [(0, 0, half), (0, 1, half), (0, 0, 0)], Reversal.PALINDROMIC)
    potential = lib.split.SplitPotential.from_functions(
        lambda z: -0.5 * (z["x"] ** 2).sum(), lambda z, y: 0.0 * y * z["x"].sum(), lib.array(np.ones(2)), 1
    )
    z = {"x": lib.array(np.ones(DIM))}
    integrator = lib.potential_integrator(drifts_first, potential, z)
    order = lib.np.arange(1) if lib.name == "numpyro" else [0]
    state = integrator.step(integrator.start(z, z, order), 0.1, order)
    np.testing.assert_allclose(integrator.energies_and_grad(state)[1]["x"], state.z["x"])


@pytest.mark.parametrize("num_subsets", [1, 3])
def test_only_the_last_step_of_a_trajectory_keeps_energies(lib, num_subsets):
    z = {"x": lib.array(np.ones(DIM))}
    potential = lib.split.SplitPotential.from_functions(
        lambda z: -0.5 * (z["x"] ** 2).sum(),
        lambda z, y: -((y - z["x"].sum()) ** 4),
        lib.array(np.arange(6.0)),
        num_subsets,
    )
    integrator = lib.potential_integrator(naive(num_subsets), potential, z)
    order = lib.np.arange(num_subsets) if lib.name == "numpyro" else list(range(num_subsets))
    start = state = integrator.start(z, z, order)
    make_steps = importlib.import_module(f"{lib.split.__name__}.integrators.integrator").make_steps
    end = make_steps(integrator, start, 0.01, 4, order)
    for _ in range(4):
        state = integrator.step(state, 0.01, order)
    for found, expected in zip(end[:3], state[:3], strict=True):
        np.testing.assert_allclose(lib.to_numpy(found["x"]), lib.to_numpy(expected["x"]), rtol=1e-12)
    assert end.energies is not None
    energies = [getattr(x, "value", x) for x in (end.energies, potential.energies(end.z))]
    np.testing.assert_allclose(*(lib.to_numpy(x) for x in energies), rtol=1e-12)
    inside = integrator.without_energies()
    assert inside.step(start._replace(energies=None), 0.01, order).energies is None
    assert inside.without_energies() is inside


@pytest.mark.parametrize("num_subsets", [1, 2, 5])
@pytest.mark.parametrize("build", BUILDERS)
def test_the_packages_agree_on_a_trajectory(build, num_subsets):
    z, p = start()
    order = np.random.default_rng(5).permutation(num_subsets)
    ends = [flow(lib, build, num_subsets)(z, p, 0.1, 10, order) for lib in (NumPyroBackend(), PyroBackend())]
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-10, rtol=0)


@pytest.mark.parametrize(
    ("length", "step_size", "expected"),
    [
        (1.0, 0.3, (4, 0.25)),
        (1.0, 1e-3, (1000, 1e-3)),
        (1.0, 2.0**-13, (MAX_STEPS, 2.0**-13)),
        (1.0, 1e-9, (MAX_STEPS, 1e-9)),
        (1.0, 0.0, (MAX_STEPS, 0.0)),
    ],
)
def test_steps_of_a_length(lib, length, step_size, expected):
    steps_of_length = importlib.import_module(f"{lib.split.__name__}.trajectories.fixed_length").steps_of_length
    arguments = (length, step_size)
    if lib.name == "numpyro":
        arguments = map(lib.np.asarray, arguments)
    num_steps, exact = steps_of_length(*arguments)
    assert int(num_steps) == expected[0]
    assert float(exact) == pytest.approx(expected[1], rel=1e-12)


def normal(lib):
    """A standard normal, as a potential."""
    return lib.split.SplitPotential.from_functions(
        lambda z: -0.5 * z["x"] ** 2, lambda z, y: 0.0 * y * z["x"], lib.np.ones(1), 1
    )


def weights_and_precision(lib):
    """A regression for the kernels that need a precision, and its data."""
    X = np.random.default_rng(0).normal(size=(8, 2))

    def model(X, y):
        tau = lib.ppl.sample("tau", lib.dist.Gamma(lib.array(4.0), 2.0))
        w = lib.ppl.sample("w", lib.dist.Normal(lib.np.zeros(2), tau**-0.5).to_event(1))
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(X @ w, 1.0), obs=y)

    return model, (lib.array(X), lib.array(X @ [1.0, -1.0]))


slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("backend", "name", "options"),
    [
        (NumPyroBackend, "SymmetricSplitHMC", {}),
        pytest.param(NumPyroBackend, "S3HMC", {}, marks=slow),
        pytest.param(NumPyroBackend, "BlockGibbsHMC", {"trajectory": "hmc"}, marks=slow),
        (PyroBackend, "SymmetricSplitHMC", {}),
        (PyroBackend, "S3HMC", {}),
        (PyroBackend, "BlockGibbsHMC", {"trajectory": "hmc"}),
    ],
)
def test_trajectories_that_are_too_long_are_cut_and_warned_of(backend, name, options, monkeypatch):
    """Once a run, and not where the number of steps is what the user gave."""
    lib = backend()
    for module in ("split_common.fixed_length", f"{lib.split.__name__}.trajectories.fixed_length"):
        monkeypatch.setattr(importlib.import_module(module), "MAX_STEPS", 4)
    options = {**options, "step_size": 0.01, "adapt_step_size": False, "find_heuristic_step_size": False}
    if lib.name == "pyro":
        options["jit_compile"] = False
    chains = {"num_chains": 2} if lib.name == "numpyro" else {}
    model, args = weights_and_precision(lib)
    if name == "SymmetricSplitHMC":
        model, args = normal(lib), ()
        chains["init_params"] = {"x": lib.np.zeros((2,) if chains else ())}

    def run(**length):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            mcmc = lib.run(getattr(lib.split, name)(model, **options, **length), *args, num_warmup=2, **chains)
            found = lib.statistics(mcmc)
        return found["num_steps"], [str(w.message) for w in said if "cut off" in str(w.message)]

    num_steps, said = run(trajectory_length=0.5)
    assert np.all(num_steps == 4)
    assert len(said) == 1
    assert re.match("trajectories of length 0.5 at step size 0.01 are cut off at 4 steps, .* give a larger", said[0])
    if lib.name == "pyro":
        num_steps, said = run(num_steps=6)
        assert np.all(num_steps == 6)
        assert not said


@pytest.mark.parametrize("build", [symmetric, naive])
def test_one_subset_is_the_hosts_leapfrog(build):
    from numpyro.infer.hmc_util import velocity_verlet

    lib, (z, p) = NumPyroBackend(), start()
    x0, a = np.zeros(DIM), lib.array([1.0, 2.0, 3.0])
    _, update = velocity_verlet(
        lambda x: 0.5 * (a * (x - x0) ** 2).sum() + 0.25 * (x**4).sum(), lambda m, p: 0.5 * (m * p * p).sum()
    )
    state = velocity_verlet(lambda x: 0.5 * (a * (x - x0) ** 2).sum() + 0.25 * (x**4).sum(), None)[0](
        lib.array(z), lib.array(p)
    )
    for _ in range(5):
        state = update(0.1, lib.array(INVERSE_MASS), state)
    integrator = lib.integrator(build(1), lambda z, m: {"x": a * (z["x"] - x0) + z["x"] ** 3}, lib.array(INVERSE_MASS))
    end = lib.integrate(integrator, z, p, 0.1, 5, [0])
    np.testing.assert_allclose(end[0], state.z, atol=1e-12, rtol=0)
    np.testing.assert_allclose(end[1], state.r, atol=1e-12, rtol=0)


def test_naive_splitting_is_leapfrog_on_the_sum(lib):
    """The same points, up to rounding, as one subset that holds all the data."""
    z, p = start()
    whole = subset_grad(lib)

    def summed(z, m):
        return {"x": sum(whole(z, k)["x"] for k in range(NUM_SUBSETS))}

    one = lib.integrator(symmetric(1), summed, lib.array(INVERSE_MASS))
    expected = lib.integrate(one, z, p, 0.1, 10, [0])
    np.testing.assert_allclose(flow(lib, naive)(z, p, 0.1, 10), expected, atol=1e-12, rtol=0)
