"""The steps of S3HMC: reversible, volume-preserving, of second order, counted, and the same in both packages.

The model is a small tanh network of every kind of group: one precision shared by two sites, one for each hidden unit,
a half-Cauchy scale, and a latent that belongs to none; where the precision of the output is sampled too, the second
block needs data. The metric couples weights of different groups.
"""

from __future__ import annotations

import importlib
import itertools
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.backends import NumPyroBackend, PyroBackend

NUM_ROWS, INPUTS, UNITS = 7, 2, 2
SHAPES = {
    "b": (UNITS,),
    "c": (),
    "lam": (),
    "shift": (),
    "spread": (),
    "tau": (),
    "unit": (UNITS,),
    "v": (UNITS,),
    "w": (UNITS, INPUTS),
}
# unconstrained, where the mass matrix was adapted: some weights owe most of their mass to the data, some none
REFERENCE = {"lam": np.array(0.0), "spread": np.array(1.5), "tau": np.array(0.3), "unit": np.array([-1.0, 0.5])}
PRECISIONS = ("lam", "spread", "tau", "unit")
slow = pytest.mark.slow


class Case(NamedTuple):
    """How the steps are made.

    Attributes:
        output: whether the precision of the output is sampled, in the second block.
        num_subsets: M.
        schedule: of the weights.
        weight_steps: in each half of a step.
        precision_steps: in a step.
        grads: subset gradients of a step, counted by hand.
    """

    output: bool
    num_subsets: int
    schedule: str
    weight_steps: int
    precision_steps: int
    grads: int


# without data in the second block: 2 half steps, each of weight_steps times 2M - 2 (symmetric, or 1) or M (naive);
# with it M more for each precision step, and where the symmetric schedule's last kick is of one subset only, M for the
# first precision kick and 1 to open the next half step
CASES = [
    Case(False, 1, "symmetric", 1, 1, 2),
    Case(False, 3, "symmetric", 2, 1, 16),
    Case(False, 3, "naive", 1, 2, 6),
    Case(True, 1, "symmetric", 2, 2, 6),
    Case(True, 3, "symmetric", 1, 2, 18),
    Case(True, 3, "naive", 2, 1, 15),
]
OTHERS = [
    Case(False, 1, "symmetric", 1, 2, 2),
    Case(False, 1, "naive", 2, 1, 4),
    Case(False, 3, "symmetric", 1, 1, 8),
    Case(False, 3, "symmetric", 1, 2, 8),
    Case(False, 3, "naive", 2, 2, 12),
    Case(True, 1, "symmetric", 1, 1, 3),
    Case(True, 1, "naive", 1, 2, 4),
    Case(True, 3, "symmetric", 1, 1, 15),
    Case(True, 3, "symmetric", 2, 2, 26),
    Case(True, 3, "naive", 1, 1, 9),
    Case(True, 3, "naive", 1, 2, 12),
]


def name_of(case):
    output = "output" if case.output else "fixed"
    return f"{output}-{case.num_subsets}-{case.schedule}-{case.weight_steps}-{case.precision_steps}"


# the default suite compiles two of them; Pyro, which does not compile, runs four
WITHOUT_DATA, WITH_DATA = CASES[1], CASES[5]
IN_DEFAULT_SUITE = {("numpyro", WITHOUT_DATA), ("numpyro", WITH_DATA)}
IN_DEFAULT_SUITE |= {("pyro", case) for case in (WITHOUT_DATA, CASES[2], CASES[4], WITH_DATA)}
every_case = pytest.mark.parametrize(
    ("lib", "case"),
    [
        pytest.param(
            backend,
            case,
            id=f"{backend.name}-{name_of(case)}",
            marks=[slow] * ((backend.name, case) not in IN_DEFAULT_SUITE),
        )
        for backend, case in itertools.product([NumPyroBackend, PyroBackend], CASES + OTHERS)
    ],
    indirect=["lib"],
)

pyro_by_default = pytest.mark.parametrize(
    "lib", [pytest.param(NumPyroBackend, marks=slow), PyroBackend], ids=["numpyro", "pyro"], indirect=True
)


def network(lib, output):
    """The model and its data."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(NUM_ROWS, INPUTS))
    y = np.sin(X[:, 0]) - 0.5 * X[:, 1] + 0.3 * rng.normal(size=NUM_ROWS)
    one, dist, sample = lib.array(1.0), lib.dist, lib.ppl.sample

    def model(X, y):
        tau = sample("tau", dist.Gamma(3.0 * one, 2.0))
        unit = sample("unit", dist.Gamma(2.0 * lib.np.ones(UNITS), 2.0).to_event(1))
        spread = sample("spread", dist.HalfCauchy(one))
        w = sample("w", dist.Normal(lib.np.zeros((UNITS, INPUTS)), unit[:, None] ** -0.5).to_event(2))
        b = sample("b", dist.Normal(lib.np.zeros(UNITS), tau**-0.5).to_event(1))
        v = sample("v", dist.Normal(lib.np.zeros(UNITS), spread).to_event(1))
        c = sample("c", dist.Normal(0.2 * one, tau**-0.5))
        shift = sample("shift", dist.StudentT(4.0 * one, 0.0, 1.0))
        noise = sample("lam", dist.Gamma(4.0 * one, 1.0)) ** -0.5 if output else 0.7
        with lib.ppl.plate("data", X.shape[0]):
            sample("y", dist.Normal(lib.np.tanh(X @ w.T + b) @ v + c + shift, noise), obs=y)

    return model, (lib.array(X), lib.array(y))


def coupled():
    """Dense over two sites of different groups, diagonal over the rest, of everything but the precisions."""
    rng = np.random.default_rng(1)
    root = rng.normal(size=(2 * UNITS, 2 * UNITS))
    dense = root @ root.T / 4 + 0.5 * np.eye(2 * UNITS)
    return {("b", "v"): dense, ("c", "shift", "w"): rng.uniform(0.5, 2.0, 2 + UNITS * INPUTS)}


class Counted:
    """A potential that counts the subset gradients that are taken, when they are taken."""

    def __init__(self, lib, potential):
        self._lib, self._potential, self.num_grads = lib, potential, 0

    def __getattr__(self, name):
        return getattr(self._potential, name)

    def subset_energies_and_grad(self, z, m):
        self._count(1)
        return self._potential.subset_energies_and_grad(z, m)

    def subset_grad(self, z, m):  # of Pyro's alone
        self._count(1)
        return self._potential.subset_grad(z, m)

    def energies_and_grad(self, z):
        self._count(self._potential.num_subsets)
        return self._potential.energies_and_grad(z)

    def _count(self, num):
        def add():
            self.num_grads += num

        if self._lib.name == "numpyro":
            self._lib._jax.debug.callback(add)
        else:
            add()


class Flow:
    """The integrator of one case, as a function of flat points of phase space (z, p), shape (2D,)."""

    def __init__(self, lib: Any, case: Case, inverse_mass_matrix: dict[tuple[str, ...], np.ndarray] | None = None):
        model, args = network(lib, case.output)
        kernel = lib.split.S3HMC(
            model,
            num_subsets=case.num_subsets,
            schedule=case.schedule,
            weight_steps=case.weight_steps,
            precision_steps=case.precision_steps,
        )
        self.lib, self.case, self.shapes = lib, case, {k: s for k, s in SHAPES.items() if case.output or k != "lam"}
        self.method, potential = lib.prepared(kernel, args)
        self.potential = Counted(lib, potential)
        kinetic = importlib.import_module(
            f"{lib.split.__name__}.integrators.hierarchical_kinetic"
        ).HierarchicalKinetic.adapted_at
        adapted = lib.kinetic(coupled() if inverse_mass_matrix is None else inverse_mass_matrix)
        precisions = {name: lib.array(x) for name, x in REFERENCE.items()}
        self.kinetic = kinetic(self.method.system.sites.found, adapted, precisions)
        self.integrator = self.method.system.integrator(self.method.schedule.rows, self.potential, self.kinetic)
        self.dim = sum(int(np.prod(shape)) for shape in self.shapes.values())
        self._run, self._energy = lib.compiled(self._trajectory), lib.compiled(self._hamiltonian)

    def start(self, seed=0):
        """A point of phase space, momenta of the size that they are drawn in."""
        rng = np.random.default_rng(seed)
        z = 0.7 * rng.normal(size=self.dim)
        p = self.lib.draw_momenta(self.kinetic, self.unpack(z), 1, seed)
        return np.concatenate([z, *(self.lib.to_numpy(p[name][0]).ravel() for name in self.shapes)])

    def end(self, x, step_size, num_steps):
        """Where a trajectory ends, shape (2D,), and the opening gradient kept there and computed there, shape (D,)."""
        end, kept, fresh = self._run(self.lib.array(x), step_size, num_steps)
        return tuple(self.lib.to_numpy(y) for y in (end, kept, fresh))

    def grads_of(self, x, num_steps):
        """Subset gradients that :meth:`end` takes."""
        before = self.potential.num_grads
        self.end(x, 0.1, num_steps)
        if self.lib.name == "numpyro":
            self.lib._jax.effects_barrier()
        return self.potential.num_grads - before

    def energy(self, x):
        """The full H."""
        return float(self._energy(self.lib.array(x)))

    def unpack(self, x):
        """A flat vector as a dict of sites."""
        sizes = [int(np.prod(shape)) for shape in self.shapes.values()]
        bounds = np.cumsum([0, *sizes])
        x = self.lib.array(x) if isinstance(x, np.ndarray) else x
        return {
            name: x[i:j].reshape(shape)
            for (name, shape), i, j in zip(self.shapes.items(), bounds[:-1], bounds[1:], strict=True)
        }

    def pack(self, *positions):
        """Dicts of sites as one flat vector."""
        return self.lib.np.concatenate([x[name].reshape(-1) for x in positions for name in self.shapes])

    def state(self, x):
        """The integrator's state at a point of phase space."""
        return self.integrator.start(self.unpack(x[: self.dim]), self.unpack(x[self.dim :]), self.order)

    @property
    def order(self):
        """The subsets as they stand."""
        order = np.arange(self.case.num_subsets)
        return self.lib.array(order) if self.lib.name == "numpyro" else order.tolist()

    def _trajectory(self, x, step_size, num_steps):
        make_steps = importlib.import_module(f"{self.lib.split.__name__}.integrators.integrator").make_steps
        end = make_steps(self.integrator, self.state(x), step_size, num_steps, self.order)
        fresh = self.integrator.opening_grad_at(end.z, self.order)
        return self.pack(end.z, end.p), self.pack(end.opening_grad), self.pack(fresh)

    def _hamiltonian(self, x):
        z, p = self.unpack(x[: self.dim]), self.unpack(x[self.dim :])
        return self.potential.potential(z) + self.kinetic.energy(z, p)


@cache
def flow_of(backend, case):
    return Flow(backend(), case)


def flow(lib, case):
    """The flow of a case, made and compiled once."""
    return flow_of(type(lib), case)


def flipped(x):
    """The point with all momenta turned round."""
    half = len(x) // 2
    return np.concatenate([x[:half], -x[half:]])


@every_case
def test_trajectory_returns_after_a_flip_of_all_momenta(lib, case):
    f = flow(lib, case)
    start = f.start()
    end = f.end(start, 0.1, 6)[0]
    assert np.abs(end - start).max() > 0.05
    np.testing.assert_allclose(flipped(f.end(flipped(end), 0.1, 6)[0]), start, atol=1e-10, rtol=0)


def test_trajectory_does_not_return_after_a_flip_of_the_weights_alone(lib):
    """Negative control."""
    f = flow(lib, WITHOUT_DATA)
    start = f.start()
    end = flipped(f.end(start, 0.1, 6)[0])
    is_precision = np.concatenate([np.full(int(np.prod(s)), k in PRECISIONS) for k, s in f.shapes.items()])
    end[f.dim :][is_precision] *= -1
    assert np.abs(flipped(f.end(end, 0.1, 6)[0]) - start).max() > 1e-3


@pyro_by_default
def test_weights_before_precisions_do_not_return(lib, monkeypatch):
    """Negative control: a step that does not read the same backwards."""
    alternating = importlib.import_module(f"{lib.split.__name__}.integrators.alternating").AlternatingIntegrator

    def step(self, state, step_size, order):
        return self._move_precisions(self._move_weights(state, step_size, order), step_size, order)

    monkeypatch.setattr(alternating, "step", step)
    f = Flow(lib, WITHOUT_DATA)
    start = f.start()
    end = f.end(start, 0.1, 6)[0]
    assert np.abs(flipped(f.end(flipped(end), 0.1, 6)[0]) - start).max() > 1e-3


@every_case
def test_volume_is_preserved(lib, case):
    f = flow(lib, case)
    x, h = f.start(), 1e-5

    def end(x):
        return f.end(x, 0.15, 3)[0]

    jacobian = np.stack([(end(x + h * e) - end(x - h * e)) / (2 * h) for e in np.eye(2 * f.dim)], axis=1)
    assert abs(np.linalg.det(jacobian) - 1) < 1e-6


@every_case
def test_order_of_the_energy_error(lib, case):
    """Slope of log |ΔH| against log ε over a fixed time, its median over starting points."""
    f, step_sizes, slopes = flow(lib, case), 0.1 / 2.0 ** np.arange(3), []
    for seed in range(5):
        start = f.start(seed)
        errors = [abs(f.energy(f.end(start, e, round(0.4 / e))[0]) - f.energy(start)) for e in step_sizes]
        slopes.append(np.polyfit(np.log(step_sizes), np.log(errors), 1)[0])
    assert abs(np.median(slopes) - 2) < 0.2


@every_case
def test_opening_gradient_kept_is_that_of_the_end(lib, case):
    """Also where only its part of the prior is brought up to date."""
    _, kept, fresh = flow(lib, case).end(flow(lib, case).start(), 0.1, 3)
    np.testing.assert_allclose(kept, fresh, atol=1e-10, rtol=0)


@every_case
def test_gradients_are_counted(lib, case):
    f = flow(lib, case)
    assert f.integrator.grads_per_step == case.grads
    start = f.start()
    taken = [f.grads_of(start, num_steps) for num_steps in (3, 5)]
    assert taken[1] - taken[0] == 2 * case.grads  # what is taken to begin and to check the opening gradient is in both


# of a precision that the likelihood depends on: operations whose derivative is zero at the reference, or everywhere
FLAT = {
    "relu": lambda lib, tau: lib.np.where(tau > 5.0, tau - 5.0, 0.0 * tau),
    "clamp": lambda lib, tau: lib.np.clip(tau, 5.0, 9.0) - 5.0,
    "step": lambda lib, tau: lib.np.where(tau > 5.0, 1.0, 0.0),
    "untraced": lambda lib, tau: (
        lib.np.where(tau > 5.0, tau - 5.0, 0.0 * tau) if float(tau.detach()) > 0 else 0.0 * tau
    ),
    "absent": lambda lib, tau: 0.0,
}


def flat_at_the_reference(lib, kind):
    """A regression whose coefficients grow with their own precision, but only where it is large; and its data."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(NUM_ROWS, INPUTS))

    def model(X, y):
        tau = lib.ppl.sample("tau", lib.dist.Gamma(lib.array(4.0), 0.5))
        w = lib.ppl.sample("w", lib.dist.Normal(lib.np.zeros(INPUTS), tau**-0.5).to_event(1))
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(X @ w * (1.0 + FLAT[kind](lib, tau)), 1.0), obs=y)

    return model, (lib.array(X), lib.array(X @ [1.0, -1.0]))


@pytest.mark.filterwarnings("ignore:the model could not be traced")
@pytest.mark.parametrize(
    ("backend", "kind"),
    [
        *((PyroBackend, kind) for kind in FLAT),
        *(pytest.param(NumPyroBackend, kind, marks=slow) for kind in ("relu", "clamp", "step", "absent")),
    ],
)
def test_a_dependence_that_is_flat_at_the_reference_is_found(backend, kind):
    """The step is its own reverse where the chain comes to where it is not flat; what is absent costs no data."""
    lib = backend()
    model, args = flat_at_the_reference(lib, kind)
    kernel = lib.split.S3HMC(model, num_subsets=2)
    method, potential = lib.prepared(kernel, args)
    assert method.system.sites.found.needs_data == (kind != "absent")
    hierarchy = importlib.import_module(f"{lib.split.__name__}.integrators.hierarchical_kinetic")
    start = {"tau": lib.array(np.log(5.5)), "w": lib.array([0.4, -0.3])}
    kinetic = hierarchy.HierarchicalKinetic.adapted_at(
        method.system.sites.found, lib.kinetic({("w",): np.ones(INPUTS)}), {"tau": start["tau"]}
    )
    integrator = method.system.integrator(method.schedule.rows, potential, kinetic)
    order = lib.np.arange(2) if lib.name == "numpyro" else [0, 1]
    p = {"tau": lib.array(-0.5), "w": lib.array([0.5, 0.2])}
    end = integrator.step(integrator.start(start, p, order), 0.1, order)
    end = integrator.step(end, 0.1, order)
    back = integrator.start(end.z, {name: -u for name, u in end.p.items()}, order)
    for _ in range(2):
        back = integrator.step(back, 0.1, order)
    for name, u in start.items():
        np.testing.assert_allclose(lib.to_numpy(back.z[name]), lib.to_numpy(u), atol=1e-9, rtol=0)


@pytest.mark.parametrize("case", [WITHOUT_DATA, WITH_DATA], ids=name_of)
def test_change_is_the_difference_of_energies(lib, case):
    f = flow(lib, case)
    new, old = (f.state(lib.array(f.start(seed))) for seed in (1, 2))
    expected = float(f.kinetic.energy(new.z, new.p)) - float(f.kinetic.energy(old.z, old.p))
    assert abs(expected) > 0.1
    assert float(f.kinetic.change(new, old)) == pytest.approx(expected, abs=1e-9)


@pyro_by_default
def test_sum_of_the_blocks_energies_is_not_conserved(lib):
    """The paper's H_τ + H_ω counts what the blocks share twice: its error does not go away with the step size."""
    f, errors, literal_errors = flow(lib, WITHOUT_DATA), [], []

    def shared(x):
        """-log p(ω given τ), and the weights' kinetic energy with its ½ log|G|."""
        z, p = f.unpack(x[: f.dim]), f.unpack(x[f.dim :])
        centred, log_scales = {**z, "c": z["c"] - 0.2}, f.kinetic.hierarchy.log_scales(z)
        log_ratios = {name: log_scales[name] - x for name, x in f.kinetic.log_mass_scales(z).items()}
        terms = {name: 0.5 * (centred[name] / lib.np.exp(log_scales[name])) ** 2 + log_ratios[name] for name in "bcvw"}
        return sum(float(term.sum()) for term in terms.values()) + float(f.kinetic.weight_energy(z, p))

    for seed in range(5):
        start = f.start(seed)
        end = f.end(start, 0.02, 20)[0]
        errors.append(f.energy(end) - f.energy(start))
        literal_errors.append(errors[-1] + shared(end) - shared(start))
    assert np.median(np.abs(errors)) < 1e-2
    assert np.median(np.abs(literal_errors)) > 0.1


def mass_matrix(f, z):
    """G(z), from the kinetic energies of unit momenta and their sums, and K without momentum."""
    energy = f.lib.compiled(lambda p: f.kinetic.energy(z, f.unpack(p)))
    at_rest, eye = float(energy(f.lib.array(np.zeros(f.dim)))), np.eye(f.dim)
    single = np.array([float(energy(f.lib.array(e))) - at_rest for e in eye])
    inverse = np.diag(2 * single)
    for i, j in itertools.combinations(range(f.dim), 2):
        both = float(energy(f.lib.array(eye[i] + eye[j]))) - at_rest
        inverse[i, j] = inverse[j, i] = both - single[i] - single[j]
    return np.linalg.inv(inverse), at_rest


def test_momenta_are_normalised_at_every_position(lib):
    """exp(-K) integrates to the same number wherever the precisions are: what is sampled is the posterior."""
    f = flow(lib, WITH_DATA)
    normalisers = []
    for seed in (1, 2):
        mass, at_rest = mass_matrix(f, f.unpack(f.start(seed)[: f.dim]))
        normalisers.append(0.5 * np.linalg.slogdet(mass)[1] - at_rest)
    assert normalisers[0] == pytest.approx(normalisers[1], abs=1e-9)


def test_mass_of_a_weight_is_its_prior_precision_plus_what_the_data_add(lib):
    """At a diagonal V: 1/s(u)² + max(0, 1/V - 1/s(ū)²) for weights, 1/V for other sites, c for precisions."""
    rng, moving = np.random.default_rng(3), {name: SHAPES[name] for name in sorted(SHAPES.keys() - PRECISIONS)}
    variances = {name: np.asarray(rng.uniform(0.2, 3.0, shape)) for name, shape in moving.items()}
    f = Flow(lib, WITHOUT_DATA, {tuple(moving): np.concatenate([x.ravel() for x in variances.values()])})
    z = {name: lib.to_numpy(u) for name, u in f.unpack(f.start(4)[: f.dim]).items()}

    def prior_precisions(u):
        tau, units = np.exp(u["tau"]) * np.ones(UNITS), np.exp(u["unit"])[:, None] * np.ones((UNITS, INPUTS))
        return {"b": tau, "c": tau[0], "v": np.exp(-2 * u["spread"]) * np.ones(UNITS), "w": units}

    here, there, expected, data_adds = prior_precisions(z), prior_precisions(REFERENCE), {}, []
    for name in f.shapes:
        if name in here:
            from_data = np.maximum(0, 1 / variances[name] - there[name])
            expected[name], data_adds = here[name] + from_data, [*data_adds, *np.ravel(from_data > 0)]
        else:
            expected[name] = 1 / variances[name] if name in moving else f.kinetic.hierarchy.masses[name]
    mass, _ = mass_matrix(f, f.unpack(f.start(4)[: f.dim]))
    by_hand = np.concatenate([np.ravel(expected[name]) for name in f.shapes])
    assert set(data_adds) == {False, True}
    np.testing.assert_allclose(mass, np.diag(by_hand), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("dense", [False, True, [("b", "v")]], ids=["diagonal", "dense", "blocks"])
def test_chain_starts_at_the_prior_variance(lib, dense):
    f, word = flow(lib, WITHOUT_DATA), "dense_mass" if lib.name == "numpyro" else "full_mass"
    kernel = lib.split.S3HMC(network(lib, False)[0], **{word: dense})
    method, _ = lib.prepared(kernel, network(lib, False)[1])
    hierarchy = method.system.sites.found
    z = f.unpack(f.start()[: f.dim])
    variances = lib.kinetic(method.system.first_inverse_mass_matrix(z, method.adaptation)).variances(hierarchy.shapes)
    for name, log_scale in hierarchy.log_scales(z).items():
        np.testing.assert_allclose(lib.to_numpy(variances[name]), np.exp(2 * lib.to_numpy(log_scale)), rtol=1e-6)
    assert float(variances["shift"]) == 1.0


@pytest.mark.parametrize(("num_warmup", "window"), [(300, range(150, 250)), (10, range(1))])
def test_precisions_are_averaged_over_the_window_of_the_mass(lib, num_warmup, window):
    """The last but one: the first and the last, all that a short warm-up has, adapt the step size alone."""
    assert lib.window_mean(num_warmup) == pytest.approx(np.mean(window))


def test_unscaled_momenta_have_the_kinetic_energy_as_half_their_square(lib):
    """With Σ log ρ taken off, which a constant mass lacks; so trees compare standard normals."""
    f = flow(lib, WITH_DATA)
    x = f.start(2)
    z, p = f.unpack(x[: f.dim]), f.unpack(x[f.dim :])
    for kinetic, log_scales in ((f.kinetic, f.kinetic.log_mass_scales(z)), (f.kinetic.constant(), {})):
        unscaled = kinetic.unscale(z, p)
        parts = unscaled.values() if isinstance(unscaled, dict) else [unscaled]
        half_square = 0.5 * sum(float((part**2).sum()) for part in parts)
        determinant = sum(float(x.sum()) for x in log_scales.values())
        assert float(kinetic.energy(z, p)) == pytest.approx(half_square - determinant, rel=1e-10)


def test_momenta_have_the_covariance_of_their_energy(lib):
    """Whitened by it they are standard normal: 15 means, 120 second moments; |z| < 4.2, a false alarm 0.4 %."""
    f, num = flow(lib, WITH_DATA), {"numpyro": 40_000, "pyro": 4000}[lib.name]
    z = f.unpack(f.start(1)[: f.dim])
    mass, _ = mass_matrix(f, z)
    draws = lib.draw_momenta(f.kinetic, z, num)
    p = np.concatenate([lib.to_numpy(draws[name]).reshape(num, -1) for name in f.shapes], axis=1)
    white = np.linalg.solve(np.linalg.cholesky(mass), p.T).T
    assert np.abs(white.mean(axis=0)).max() * num**0.5 < 4.2
    errors = np.sqrt((1 + np.eye(f.dim)) / num)
    assert np.abs((white.T @ white / num - np.eye(f.dim)) / errors).max() < 4.2


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=name_of(c), marks=[slow] * (c not in (WITHOUT_DATA, WITH_DATA))) for c in CASES + OTHERS],
)
def test_the_packages_agree_on_a_trajectory(case):
    flows = [flow(backend(), case) for backend in (NumPyroBackend, PyroBackend)]
    start = flows[0].start()
    for x, y in zip(*(f.end(start, 0.1, 5) for f in flows), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-10, rtol=0)
    assert flows[0].energy(start) == pytest.approx(flows[1].energy(start), abs=1e-10)
