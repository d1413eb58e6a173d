"""Which precisions block Gibbs draws, decided from the model's expression; and what S3HMC takes for free of precisions.

``REFUSED`` are models whose precision has no gamma distribution given the rest, each made so that numbers near the
start do not tell; ``DRAWN`` are their honest twins. None of the first may be drawn, all of the second must be, and what
is drawn has its distribution: the log-density as a function of the precisions is compared with it far and near.
"""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from split_common.conjugacy import Free, Log, Other, Power, result
from tests import models
from tests.backends import NumPyroBackend, PyroBackend

pytestmark = pytest.mark.contract

DIM = models.DIM
FAR = 1e6  # where no precision is looked at


@pytest.fixture(autouse=True)
def _unchecked(monkeypatch):
    """That subsets add up is tested elsewhere, and takes most of the time to compile."""
    for package in ("numpyro_split", "pyro_split"):
        monkeypatch.setattr(
            importlib.import_module(f"{package}.splitting.model_split"), "check_exact", lambda *args: None
        )


def beyond(lib, tau):
    """τ as far as it is beyond ``FAR``: zero at every start."""
    return lib.np.where(tau > FAR, tau - FAR, 0.0 * tau)


def sample(lib, name, fn, **options):
    return lib.ppl.sample(name, fn, **options)


def gamma(lib, name="tau", rate=1.0, shape=()):
    return sample(lib, name, lib.dist.Gamma(2.0 * lib.np.ones(shape), rate).to_event(len(shape)))


def weights(lib, scale, name="w", mean=0.0, shape=(DIM,)):
    return sample(lib, name, lib.dist.Normal(mean + lib.np.zeros(shape), scale).to_event(len(shape)))


def regression(lib, prior):
    """A model of X and y; ``prior`` samples, and returns the weights."""

    def model(X, y):
        w = prior()
        with lib.ppl.plate("data", X.shape[0]):
            sample(lib, "y", lib.dist.Normal((X * w).sum(-1), 1.0), obs=y)

    return model


def beside(lib, other):
    """τ and its weights, as they should be, and something else that τ reaches."""

    def prior():
        tau = gamma(lib)
        w = weights(lib, tau**-0.5)
        other(tau, w)
        return w

    return regression(lib, prior)


def scaled_by(lib, scale, mean=lambda tau: 0.0):
    """Weights whose scale, and mean, are functions of τ."""

    def prior():
        tau = gamma(lib)
        return weights(lib, scale(tau), mean=mean(tau))

    return regression(lib, prior)


def in_rows(lib, change):
    """τ reaches the rows."""

    def model(X, y):
        tau = gamma(lib)
        w = weights(lib, tau**-0.5)
        with lib.ppl.plate("data", X.shape[0]):
            sample(lib, "y", lib.dist.Normal(X @ w + change(tau), 1.0), obs=y)

    return model


def two_precisions(lib, rate):
    """The rate of one precision's prior is a function of another precision."""

    def prior():
        tau = gamma(lib)
        kappa = gamma(lib, "kappa", rate=rate(tau))
        return weights(lib, tau**-0.5) + weights(lib, kappa**-0.5, "v")

    return regression(lib, prior)


def with_handler(lib, handler):
    """Weights sampled under a handler."""

    def prior():
        tau = gamma(lib)
        with handler:
            return weights(lib, tau**-0.5)

    return regression(lib, prior)


def precision_under(lib, handler):
    def prior():
        with handler:
            tau = gamma(lib)
        return weights(lib, tau**-0.5)

    return regression(lib, prior)


def rsqrt(lib):
    return lib._jax.lax.rsqrt if lib.name == "numpyro" else lib.np.rsqrt


def handlers(lib):
    return importlib.import_module({"numpyro": "numpyro.handlers", "pyro": "pyro.poutine"}[lib.name])


def capped(lib, base):
    """A distribution of the user's own: another density, where nobody looks."""

    class Capped(base):
        def log_prob(self, value):
            return super().log_prob(value) - 10.0 * lib.np.where(value > FAR, value - FAR, 0.0 * value).sum()

    return Capped


def of_class(lib, precision_class, weight_class):
    def prior():
        tau = sample(lib, "tau", precision_class(lib.array(2.0), lib.array(1.0)))
        fn = weight_class(lib.np.zeros(DIM), tau**-0.5 * lib.np.ones(DIM))
        return sample(lib, "w", fn.to_event(1))

    return regression(lib, prior)


def element_by_latent(lib):
    """Which of two precisions scales the weights rests on another latent."""

    def prior():
        tau, v = gamma(lib, shape=(2,)), weights(lib, 1.0, "v", shape=())
        which = lib.np.where(v > FAR, 1, 0).reshape(1)
        more = weights(lib, tau[1] ** -0.5, "more", shape=())
        return weights(lib, tau[which] ** -0.5) + v + more

    return regression(lib, prior)


def concentration_by_latent(lib):
    def prior():
        v = weights(lib, 1.0, "v", shape=())
        tau = sample(lib, "tau", lib.dist.Gamma(2.0 + beyond(lib, v), lib.array(1.0)))
        return weights(lib, tau**-0.5) + v

    return regression(lib, prior)


def factor_of_deterministic(lib):
    def prior():
        sd = lib.ppl.deterministic("sd", gamma(lib) ** -0.5)
        lib.ppl.factor("cap", -beyond(lib, sd))
        return weights(lib, sd)

    return regression(lib, prior)


def flat_normal(lib, name, tau):
    return sample(lib, name, lib.dist.Normal(beyond(lib, tau), 1.0))


def whole(lib, other=lambda tau: None):
    """Observations that are correlated, without a plate; and something else that τ reaches."""

    def model(X, y):
        tau = gamma(lib)
        w = weights(lib, tau**-0.5)
        other(tau)
        fn = lib.dist.MultivariateNormal(X @ w, covariance_matrix=lib.np.eye(len(y)) + 0.5)
        sample(lib, "y", fn, obs=y)

    return model


# each with what the refusal says; what is run whole has observations and factors for its likelihood
REFUSED = {
    "hard bound": (
        lambda lib: beside(lib, lambda t, w: lib.ppl.factor("cap", lib.np.where(t > FAR, -np.inf, 0.0 * t))),
        "factor 'cap' rests on it",
    ),
    "smooth cap": (
        lambda lib: beside(lib, lambda t, w: lib.ppl.factor("cap", -(beyond(lib, t) ** 2))),
        "factor 'cap' rests on it",
    ),
    "cap on a deterministic site": (factor_of_deterministic, "factor 'cap' rests on it"),
    "cap on weights and precision": (
        lambda lib: beside(lib, lambda t, w: lib.ppl.factor("cap", -beyond(lib, t * (w**2).sum()))),
        "factor 'cap' rests on it",
    ),
    "mean of another latent": (
        lambda lib: beside(lib, lambda t, w: flat_normal(lib, "v", t)),
        "site 'v' rests on it",
    ),
    "observed outside the plate": (
        lambda lib: beside(
            lib, lambda t, w: sample(lib, "seen", lib.dist.Normal(beyond(lib, t), 1.0), obs=lib.array(0.3))
        ),
        "observed site 'seen' rests on it",
    ),
    "support of another latent": (
        lambda lib: beside(lib, lambda t, w: sample(lib, "v", lib.dist.Uniform(0.0, FAR + beyond(lib, t)))),
        "site 'v' rests on it",
    ),
    "weights with a floor": (
        lambda lib: beside(lib, lambda t, w: weights(lib, lib.np.clip(t, FAR, 2 * FAR) ** -0.5, "v")),
        "site 'v' rests on it",
    ),
    "rate of another precision": (
        lambda lib: two_precisions(lib, lambda t: 1.0 + beyond(lib, t)),
        "the prior of 'kappa' rests on it",
    ),
    "a chain of precisions": (
        lambda lib: two_precisions(lib, lambda t: t),
        "the prior of 'kappa' rests on it",
    ),
    "mean of the weights": (
        lambda lib: scaled_by(lib, lambda t: t**-0.5, lambda t: beyond(lib, t)),
        "the mean of site 'w' rests on it",
    ),
    "an observation that is a function of it": (
        lambda lib: beside(
            lib, lambda t, w: sample(lib, "seen", lib.dist.Normal(0.0, t**-0.5), obs=0.3 + beyond(lib, t))
        ),
        "the value of observed site 'seen' rests on it",
    ),
    "scale plus something": (
        lambda lib: scaled_by(lib, lambda t: t**-0.5 + beyond(lib, t)),
        r"the scale of site 'w' is no constant times its power -0.5 for all values \(",
    ),
    "scale plus a little": (
        lambda lib: scaled_by(lib, lambda t: t**-0.5 + 1e-9),
        r"the scale of site 'w' is no constant times its power -0.5 for all values \(add",
    ),
    "scale with a floor": (
        lambda lib: scaled_by(lib, lambda t: lib.np.clip(t, 1e-9, 1e9) ** -0.5),
        "the scale of site",
    ),
    "scale in two pieces": (
        lambda lib: scaled_by(lib, lambda t: lib.np.where(t > FAR, 1.0 + 0.0 * t, t**-0.5)),
        "the scale of site 'w'",
    ),
    "nearly a power": (lambda lib: scaled_by(lib, lambda t: t**-0.5001), r"power -0.5001, not -0.5"),
    "scale times another function": (
        lambda lib: scaled_by(lib, lambda t: t**-0.5 * (1.0 + beyond(lib, t))),
        "the scale of site 'w'",
    ),
    "element chosen by a latent": (element_by_latent, "the scale of site 'w'"),
    "concentration of a latent": (concentration_by_latent, "the concentration of its prior is no constant"),
    "a prior of another kind": (
        lambda lib: of_class(lib, lambda a, b: lib.dist.HalfNormal(b), lib.dist.Normal),
        "must be conjugate",
    ),
    "a prior of the user's": (
        lambda lib: of_class(lib, capped(lib, lib.dist.Gamma), lib.dist.Normal),
        "its prior is a distribution Capped",
    ),
    "weights of the user's": (
        lambda lib: of_class(lib, lib.dist.Gamma, capped(lib, lib.dist.Normal)),
        "site 'w' has a distribution Capped",
    ),
    "weights under a scale": (
        lambda lib: with_handler(lib, handlers(lib).scale(scale=1.001)),
        "site 'w' is under a scale",
    ),
    "weights under a mask": (
        lambda lib: with_handler(lib, handlers(lib).mask(mask=lib.array(np.array(True)))),
        "site 'w' is under a mask",
    ),
    "precision under a scale": (
        lambda lib: precision_under(lib, handlers(lib).scale(scale=1.001)),
        "its prior is under a scale",
    ),
    "precision under a mask": (
        lambda lib: precision_under(lib, handlers(lib).mask(mask=lib.array(np.array(True)))),
        "its prior is under a mask",
    ),
    "no plate: a cap": (
        lambda lib: whole(lib, lambda tau: lib.ppl.factor("cap", -beyond(lib, tau))),
        "must enter the prior alone",
    ),
    "no plate: another latent": (
        lambda lib: whole(lib, lambda tau: flat_normal(lib, "v", tau)),
        "site 'v' rests on it",
    ),
    "rows: relu": (lambda lib: in_rows(lib, lambda t: beyond(lib, t)), "must enter the prior alone"),
    "rows: clamp": (
        lambda lib: in_rows(lib, lambda t: lib.np.clip(t, FAR, 2 * FAR) - FAR),
        "must enter the prior alone",
    ),
    "rows: step": (
        lambda lib: in_rows(lib, lambda t: lib.np.where(t > FAR, 1.0, 0.0)),
        "must enter the prior alone",
    ),
}


def of_form(form):
    """Weights whose scale is a form of τ."""
    return lambda lib: scaled_by(lib, lambda tau: form(lib, tau))


def units(lib, scale, shape=(2,)):
    def prior():
        return weights(lib, scale(gamma(lib, shape=shape)), shape=(2, DIM)).sum(0)

    return regression(lib, prior)


def variance(lib, scale):
    def prior():
        v = sample(lib, "tau", lib.dist.InverseGamma(lib.array(2.0), 1.0))
        return weights(lib, scale(v))

    return regression(lib, prior)


def seen_in_part(lib):
    """Two more weights that are known, outside the data plate."""

    def prior():
        tau = gamma(lib)
        seen = lib.dist.Normal(lib.np.zeros(2), tau**-0.5).to_event(1)
        sample(lib, "seen", seen, obs=lib.array(np.array([0.3, -0.8])))
        return weights(lib, tau**-0.5)

    return regression(lib, prior)


def seen_often(lib):
    """One number that is seen three times: a distribution of more entries than the value."""

    def prior():
        tau = gamma(lib)
        sample(lib, "seen", lib.dist.Normal(lib.np.zeros(3), tau**-0.5), obs=lib.array(0.4))
        return weights(lib, tau**-0.5)

    return regression(lib, prior)


def rate_of_weights(lib):
    """A rate that is a function of other weights, and a learnt mean."""

    def prior():
        v = weights(lib, 1.0, "v")
        tau = gamma(lib, rate=lib.np.exp(v.sum()))
        return weights(lib, tau**-0.5, mean=v[0])

    return regression(lib, prior)


def deterministic_scale(lib):
    def prior():
        tau = gamma(lib)
        sd = lib.ppl.deterministic("sd", tau**-0.5)
        lib.ppl.deterministic("ten of it", 10.0 * tau)
        return weights(lib, sd)

    return regression(lib, prior)


def in_plates(lib):
    def prior():
        with lib.ppl.plate("units", 2):
            tau = sample(lib, "tau", lib.dist.Gamma(lib.array(2.0), 1.0))
            with lib.ppl.plate("inputs", DIM, dim=-2):
                w = sample(lib, "w", lib.dist.Normal(lib.array(0.0), tau**-0.5))
        return w.sum(-1)

    return regression(lib, prior)


def shared(lib):
    """One precision of two sites, another for each unit, by number."""

    def prior():
        tau, unit = gamma(lib), gamma(lib, "unit", shape=(2,))
        group = lib.array(np.array([1, 0, 1]))
        w = weights(lib, 2.0 * tau**-0.5) + weights(lib, tau**-0.5, "v", shape=())
        return w + weights(lib, unit[group] ** -0.5, "a")

    return regression(lib, prior)


def conditioned(lib):
    """Another weight of the precision, whose value a handler gives."""

    def prior():
        tau = gamma(lib)
        with handlers(lib).condition(data={"v": lib.array(0.4)}):
            weights(lib, tau**-0.5, "v", shape=())
        return weights(lib, tau**-0.5)

    return regression(lib, prior)


def library(lib, name):
    return importlib.import_module(f"{lib.split.__name__}.{name}")


DRAWN = {
    "power": of_form(lambda lib, t: t**-0.5),
    "one by the root": of_form(lambda lib, t: 1 / lib.np.sqrt(t)),
    "root of one by": of_form(lambda lib, t: lib.np.sqrt(1 / t)),
    "rsqrt": of_form(lambda lib, t: rsqrt(lib)(t)),
    "inverse to a half": of_form(lambda lib, t: (t**-1) ** 0.5),
    "constant inside": of_form(lambda lib, t: (4.0 * t) ** -0.5),
    "constant below": of_form(lambda lib, t: 3.0 / lib.np.sqrt(2.0 * t) / 7.0),
    "by logarithms": of_form(lambda lib, t: lib.np.exp(-0.5 * lib.np.log(t))),
    "by logarithms, halved": of_form(lambda lib, t: lib.np.exp(0.3 - lib.np.log(t) / 2)),
    "root of a power": of_form(lambda lib, t: lib.np.sqrt(t**-2.0) ** 0.5),
    "an array for a power": of_form(lambda lib, t: t ** lib.array(-0.5)),
    "broadcast": of_form(lambda lib, t: t.reshape(1) ** -0.5 * lib.np.ones(DIM)),
    "variance: root": lambda lib: variance(lib, lambda v: lib.np.sqrt(v)),
    "variance: power": lambda lib: variance(lib, lambda v: 0.1 * v**0.5),
    "units along rows": lambda lib: units(lib, lambda t: t[:, None] ** -0.5),
    "units, transposed": lambda lib: units(lib, lambda t: (t.reshape(1, 2) ** -0.5).T),
    "units along columns": lambda lib: units(lib, lambda t: t**-0.5, (DIM,)),
    "units by number": lambda lib: units(lib, lambda t: t[lib.array(np.array([1, 0]))][:, None] ** -0.5),
    "seen in part": seen_in_part,
    "seen often": seen_often,
    "rate of other weights": rate_of_weights,
    "deterministic sites": deterministic_scale,
    "in plates": in_plates,
    "shared": shared,
    "no plate": whole,
    "conditioned": conditioned,
    "priors.normal_gamma": lambda lib: regression(
        lib, lambda: library(lib, "models.priors").normal_gamma("w", (2, DIM), per_unit=True).sum(0)
    ),
}


def kernel_for(lib, build, **options):
    return lib.prepared(lib.split.BlockGibbsHMC(build(lib), **options), models.data(lib))


@pytest.mark.parametrize("name", REFUSED)
def test_refused(lib, name):
    """At once, with the site and the reason."""
    build, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        kernel_for(lib, build)


def conditional(method, lib, z, drawn, rates):
    """Log-density of the unconstrained precisions given the rest, but for a constant."""
    total = 0.0
    for name, sign in method.system.conjugate.signs.items():
        u = sign * lib.to_numpy(drawn[name])
        total += float((method.system.conjugate.shapes[name] * u - lib.to_numpy(rates[name]) * np.exp(u)).sum())
    return total


# what the packages share, NumPyro compiles for
IN_DEFAULT_SUITE = {
    "power",
    "by logarithms, halved",
    "variance: root",
    "units by number",
    "seen often",
    "in plates",
    "shared",
}


@pytest.mark.parametrize(
    ("lib", "name"),
    [
        pytest.param(backend, name, id=f"{backend.name}-{name}", marks=[pytest.mark.slow] * is_slow)
        for backend in (NumPyroBackend, PyroBackend)
        for name in DRAWN
        for is_slow in [backend is NumPyroBackend and name not in IN_DEFAULT_SUITE]
    ],
    indirect=["lib"],
)
def test_drawn_from_its_distribution(lib, name):
    """From τ = e^-6 to e^6 the prior's energy changes as the gamma distribution's; float64, no false alarms."""
    method, potential = kernel_for(lib, DRAWN[name])
    rng = np.random.default_rng(0)
    hierarchy = method.system.sites.found
    masses = {n: mass.shape for n, mass in hierarchy.masses.items()}
    shapes = {**hierarchy.shapes, **masses}
    for _ in range(2):
        z = {name: lib.array(rng.normal(size=shape)) for name, shape in shapes.items()}
        rates = method.system.conjugate.rates(z, potential.prior_energy_and_grad(z)[1])
        far = [{n: lib.array(rng.uniform(-6.0, 6.0, masses[n])) for n in rates} for _ in range(4)]
        values = [float(potential.log_prior({**z, **u})) - conditional(method, lib, z, u, rates) for u in far]
        np.testing.assert_allclose(values, values[0], rtol=1e-9, atol=1e-7)


def test_what_is_refused_would_be_wrong(lib, monkeypatch):
    """Negative control: without the check, a precision that may not exceed 3 is drawn beyond it."""
    limit = 3.0

    def build(lib):
        return beside(lib, lambda t, w: lib.ppl.factor("cap", lib.np.where(t > limit, -np.inf, 0.0 * t)))

    with pytest.raises(ValueError, match="factor 'cap' rests on it"):
        kernel_for(lib, build)
    monkeypatch.setattr(library(lib, "kernels.block_gibbs"), "check_conjugacy", lambda *args: None)
    method, potential = kernel_for(lib, build)
    z = {"tau": lib.array(0.5), "w": lib.np.zeros(DIM)}
    grad = potential.prior_energy_and_grad(z)[1]
    keys = [[lib._jax.random.key(i)] if lib.name == "numpyro" else [] for i in range(200)]
    drawn = [np.exp(float(method.system.conjugate.draw(z, grad, *key)["tau"])) for key in keys]
    assert max(drawn) > limit


@pytest.mark.filterwarnings("ignore:the model could not be traced")
def test_rows_that_numpy_computes():
    """Pyro: log-likelihoods of rows are those of the model as it runs, not of a trace that lacks a value."""
    model, lib = rows_in_python(LEAKS["numpy"])
    args = models.data(lib)
    potential = lib.split.split_model(model, args, num_subsets=2)
    rows = lib.np.arange(models.NUM_ROWS)
    compiled = potential.row_function(lambda positions, row_terms: row_terms(positions[0]).sum(), 1, ["tau", "w"])
    for u in (0.5, np.log(FAR) + 1.0):
        z = {"tau": lib.array(u), "w": lib.array(np.ones(DIM))}
        expected = float(potential.pointwise_log_likelihood(z, rows).sum())
        assert float(compiled.value(*potential.row_inputs([z], rows))) == pytest.approx(expected, rel=1e-12)


def rows_in_python(change):
    """A Pyro model whose rows look at the value of τ."""
    lib = PyroBackend()
    return in_rows(lib, lambda tau: change(lib, tau)), lib


def own_function(lib):
    """A function with a derivative of its own, which torch does not trace in every way."""

    class Same(lib.np.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 1.0 * x

        @staticmethod
        def backward(ctx, grad):
            return 0.0 * grad

    return Same.apply


def written(lib, x):
    """What is written into a tensor in place."""
    into = lib.np.zeros(2)
    into[0] = beyond(lib, x)
    return into.sum()


LEAKS = {
    "branch": lambda lib, tau: 1.0 if tau > FAR else 0.0,
    "item": lambda lib, tau: max(tau.item() - FAR, 0.0),
    "float": lambda lib, tau: max(float(tau.detach()) - FAR, 0.0),
    "numpy": lambda lib, tau: lib.np.as_tensor(np.maximum(tau.detach().numpy() - FAR, 0.0)),
    "list": lambda lib, tau: lib.np.tensor([max(x - FAR, 0.0) for x in tau.reshape(1).tolist()]),
    "parameter": lambda lib, tau: beyond(lib, lib.np.nn.Parameter(tau)),
    "no_grad": lambda lib, tau: beyond(lib, tau.detach()),
    "own derivative": lambda lib, tau: beyond(lib, own_function(lib)(tau)),
    "own derivative, in place": lambda lib, tau: written(lib, own_function(lib)(tau)),
    "round": lambda lib, tau: lib.np.round(tau / 1000.0),
}


@pytest.mark.filterwarnings("ignore:the model could not be traced")
@pytest.mark.parametrize("name", LEAKS)
def test_values_that_python_looks_at(name):
    """Pyro: what no graph shows counts as data for S3HMC, and is refused by block Gibbs."""
    model, lib = rows_in_python(LEAKS[name])
    method, _ = lib.prepared(lib.split.S3HMC(model), models.data(lib))
    assert method.system.sites.found.needs_data
    with pytest.raises(ValueError, match="must enter the prior alone|could not be traced"):
        lib.prepared(lib.split.BlockGibbsHMC(model), models.data(lib))


@pytest.mark.filterwarnings("ignore:the model could not be traced")
def test_a_prior_that_cannot_be_traced():
    """Pyro; NumPyro itself traces every model."""
    lib = PyroBackend()

    def branch(tau, w):
        if tau > FAR:
            lib.ppl.factor("cap", -tau)

    with pytest.raises(ValueError, match="must have a gamma distribution.*could not be traced"):
        kernel_for(lib, lambda lib: beside(lib, branch))


@pytest.mark.parametrize(("name", "num_subsets"), [("power", 2), ("no plate", 1)])
def test_numpyro_handlers(name, num_subsets):
    """A prefix before all names, also of the factor of a precision's Jacobian; random keys among the constants."""
    from numpyro.handlers import scope, seed

    def build(lib):
        return seed(scope(scope(DRAWN[name](lib), prefix="b"), prefix="a"), 0)

    method, _ = kernel_for(NumPyroBackend(), build, num_subsets=num_subsets)
    assert list(method.system.conjugate.signs) == ["a/b/tau"]


def without_gradient(lib, tau):
    with lib.np.no_grad():
        return tau**-0.5


def own_derivative(lib, tau):
    root = lib._jax.custom_jvp(lambda x: x**-0.5)
    root.defjvp(lambda x, v: (x[0] ** -0.5, 0.0 * v[0]))
    return root(tau)


CUT = [
    (NumPyroBackend, lambda lib, tau: lib._jax.lax.stop_gradient(tau) ** -0.5),
    (NumPyroBackend, own_derivative),
    (PyroBackend, lambda lib, tau: tau.detach() ** -0.5),
    (PyroBackend, without_gradient),
]


@pytest.mark.parametrize(("backend", "scale"), CUT, ids=["stop_gradient", "custom_jvp", "detach", "no_grad"])
def test_a_scale_whose_derivative_is_cut(backend, scale):
    """The rate is read off the gradient, which must be that of the expression."""
    lib = backend()
    with pytest.raises(ValueError, match="the scale of site 'w'"):
        kernel_for(lib, lambda lib: scaled_by(lib, lambda tau: scale(lib, tau)))


def test_numpyro_calls_and_branches():
    """Compiled functions are followed; a branch on another value is not, and says where it stands."""
    lib = NumPyroBackend()
    compiled = lib._jax.jit(lambda tau: 1 / lib.np.sqrt(tau))
    kernel_for(lib, lambda lib: scaled_by(lib, compiled))

    def branching(tau):
        return lib._jax.lax.cond(lib.np.array(True), lambda t: t**-0.5, lambda t: 1.0 + 0 * t, tau)

    with pytest.raises(ValueError, match=r"the scale of site 'w'.*\(cond at test_conjugacy.py:\d+\)"):
        kernel_for(lib, lambda lib: scaled_by(lib, branching))


def test_normalised():
    """Powers of a precision through the operations that keep them so, by hand."""
    u, constant, other = Log("t", 1.0), Free(), Free(fixed=False)
    tau = result("exp", [u])
    assert tau == Power("t", 1.0)
    assert result("pow", [tau, Free(number=-0.5)]) == result("rsqrt", [tau]) == Power("t", -0.5)
    assert result("div", [constant, result("sqrt", [tau])]) == Power("t", -0.5)
    assert result("mul", [other, tau]) == result("mul", [tau, other]) == tau
    assert result("exp", [result("mul", [Free(number=-0.5), result("log", [tau])])]) == Power("t", -0.5)
    assert result("add", [tau, Free(number=0.0)]) == tau
    assert result("sub", [constant, u]) == Log("t", -1.0)
    assert result("pow", [other, Free(number=2.0)]) == Free(fixed=False)
    assert result("mul", [Free(number=3.0), Free(number=-0.5)]) == Free(number=-1.5)


@pytest.mark.parametrize(
    ("name", "operands"),
    [
        ("add", [Power("t", 1.0), Free(number=1e-9)]),
        ("add", [Power("t", 1.0), Free()]),
        ("add", [Power("t", 1.0), Power("t", 1.0)]),
        ("mul", [Power("t", 1.0), Power("t", -0.5)]),
        ("mul", [Log("t", 1.0), Free()]),
        ("div", [Free(), Log("t", 1.0)]),
        ("pow", [Power("t", 1.0), Free()]),
        ("pow", [Free(), Power("t", 1.0)]),
        ("pow", [Log("t", 1.0), Free(number=2.0)]),
        ("exp", [Power("t", 1.0)]),
        ("log", [Log("t", 1.0)]),
        ("sqrt", [Log("t", 1.0)]),
        ("max", [Power("t", 1.0), Free(number=0.0)]),
        ("reduce_sum", [Power("t", 1.0)]),
        ("same", [Power("t", 1.0), Free(fixed=False)]),
        ("concatenate", [Power("t", 1.0), Power("t", 1.0)]),
    ],
)
def test_not_normalised(name, operands):
    """What is no power for all values is none."""
    found = result(name, operands)
    assert isinstance(found, Other)
    assert found.of == {"t"}
    assert result("exp", [found]) == found
