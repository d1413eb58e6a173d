"""Which precision scales which weights, as S3HMC finds it from a model, with what mass; and what it refuses."""

from __future__ import annotations

import importlib
import pickle

import numpy as np
import pytest

from split_common.hierarchy import Rows, Scales, _counts, find_concentrations, find_groups, precision_masses
from tests import models
from tests.backends import NumPyroBackend, PyroBackend

NUM_ROWS, DIM = models.NUM_ROWS, models.DIM
# what the packages share, NumPyro compiles for
pyro_by_default = pytest.mark.parametrize(
    "lib",
    [pytest.param(NumPyroBackend, marks=pytest.mark.slow), PyroBackend],
    ids=["numpyro", "pyro"],
    indirect=True,
)


@pytest.fixture(autouse=True)
def _unchecked(lib, monkeypatch):
    """That subsets add up is tested elsewhere, and takes most of the time to compile."""
    splitting = importlib.import_module(f"{lib.split.__name__}.splitting.model_split")
    monkeypatch.setattr(splitting, "check_exact", lambda *args: None)


def prepared(lib, model, args=None, num_subsets=1, **options):
    """The hierarchy that a kernel has found in its model."""
    kernel = lib.split.S3HMC(model, num_subsets=num_subsets, **options)
    method, _ = lib.prepared(kernel, models.data(lib) if args is None else args)
    return method.system.sites.found


def found(hierarchy):
    """The groups by weight site, and the masses as arrays."""
    return {group.weights: group for group in hierarchy.groups}, hierarchy.masses


def regression(lib, hyper, weights=None, observe=None):
    """A model of X and y from its parts: ``hyper`` samples, ``weights`` takes what that returns, ``observe`` both."""

    def default_weights(scale):
        return lib.ppl.sample("w", lib.dist.Normal(lib.np.zeros(DIM), scale).to_event(1))

    def default_observe(X, y, w, h):
        lib.ppl.sample("y", lib.dist.Normal(X @ w, 1.0), obs=y)

    def model(X, y):
        h = hyper()
        w = (weights or default_weights)(h)
        with lib.ppl.plate("data", X.shape[0]):
            (observe or default_observe)(X, y, w, h)

    return model


def gamma(lib, name="tau", alpha=2.0, shape=()):
    dist = lib.dist.Gamma(alpha * lib.np.ones(shape), 1.0)
    return lib.ppl.sample(name, dist.to_event(len(shape)))


def normal(lib, name, shape, scale):
    return lib.ppl.sample(name, lib.dist.Normal(lib.np.zeros(shape), scale).to_event(len(shape)))


# what the hyperparameter is, the scale it makes, the exponent, and the mass for Q = 3
FORMS = {
    "precision": (lambda d, one: d.Gamma(2.0 * one, 1.0), lambda np, x: x**-0.5, -0.5, 1.5 + 1.0),
    "precision-sqrt": (lambda d, one: d.Gamma(0.5 * one, 1.0), lambda np, x: 1 / np.sqrt(x), -0.5, 1.5 - 0.5),
    "precision-halfcauchy": (lambda d, one: d.HalfCauchy(one), lambda np, x: x**-0.5, -0.5, 1.5),
    "scale-halfcauchy": (lambda d, one: d.HalfCauchy(one), lambda np, x: x, 1.0, 6.0),
    "scale-halfnormal": (lambda d, one: d.HalfNormal(one), lambda np, x: x, 1.0, 6.0),
    "scale-gamma": (lambda d, one: d.Gamma(3.0 * one, 1.0), lambda np, x: x, 1.0, 6.0),
    "variance": (lambda d, one: d.InverseGamma(2.0 * one, 1.0), lambda np, x: np.sqrt(x), 0.5, 1.5 + 1.0),
    "precision-inversegamma": (lambda d, one: d.InverseGamma(2.0 * one, 1.0), lambda np, x: x**-0.5, -0.5, 1.5),
    "variance-gamma": (lambda d, one: d.Gamma(2.0 * one, 1.0), lambda np, x: x**0.5, 0.5, 1.5),
    "log-scale": (lambda d, one: d.Normal(0.0 * one, 1.0), lambda np, x: np.exp(x), 1.0, 6.0),
    "log-precision": (lambda d, one: d.Normal(0.0 * one, 1.0), lambda np, x: np.exp(-0.5 * x), -0.5, 1.5),
    "width-scaled": (lambda d, one: d.Gamma(2.0 * one, 1.0), lambda np, x: (3.0 * x) ** -0.5, -0.5, 2.5),
    "other-power": (lambda d, one: d.HalfNormal(one), lambda np, x: 0.1 * x**0.3, 0.3, 0.54),
}


def test_forms(lib):
    """All in one model, each with three weights of its own."""

    def hyper():
        one = lib.array(1.0)
        return {
            form: scale(lib.np, lib.ppl.sample(f"h-{form}", make(lib.dist, one)))
            for form, (make, scale, *_) in FORMS.items()
        }

    def weights(scales):
        return sum(normal(lib, form, (DIM,), scale) for form, scale in scales.items())

    groups, masses = found(prepared(lib, regression(lib, hyper, weights)))
    assert set(groups) == set(FORMS)
    for form, (_, _, exponent, mass) in FORMS.items():
        group = groups[form]
        assert group.precision == f"h-{form}"
        assert not group.observed
        assert group.exponent == pytest.approx(exponent, abs=1e-6)
        np.testing.assert_array_equal(group.element, np.zeros(DIM, int))
        constant = {"width-scaled": 3.0**-0.5, "other-power": 0.1}.get(form, 1.0)
        np.testing.assert_allclose(np.exp(group.offset), constant, rtol=1e-6)
        assert masses[f"h-{form}"] == pytest.approx(mass, rel=1e-6)


@pyro_by_default
def test_per_unit_precisions_along_either_axis(lib):
    """Weights of (2 units, 3 inputs): one precision for each unit, for each input, and for each weight."""

    def weights(h):
        rows, columns, each = h
        a = normal(lib, "a", (2, DIM), rows[:, None] ** -0.5)
        b = normal(lib, "b", (2, DIM), columns**-0.5)
        c = normal(lib, "c", (2, DIM), each)
        return (a + b + c)[0]

    def hyper():
        each = lib.ppl.sample("each", lib.dist.HalfCauchy(lib.np.ones((2, DIM))).to_event(2))
        return gamma(lib, "rows", 2.0, (2,)), gamma(lib, "columns", 3.0, (DIM,)), each

    groups, masses = found(prepared(lib, regression(lib, hyper, weights)))
    np.testing.assert_array_equal(groups["a"].element, [[0, 0, 0], [1, 1, 1]])
    np.testing.assert_array_equal(groups["b"].element, [[0, 1, 2], [0, 1, 2]])
    np.testing.assert_array_equal(groups["c"].element, [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_allclose(masses["rows"], np.full(2, 3 / 2 + 1))
    np.testing.assert_allclose(masses["columns"], np.full(DIM, 2 / 2 + 2))
    np.testing.assert_allclose(masses["each"], np.full((2, DIM), 2.0))


@pyro_by_default
def test_precision_shared_by_two_sites(lib):
    """Also with constant factors of their own, and with different powers, to which no α - 1 is added."""

    def weights(tau):
        a, b = normal(lib, "a", (DIM,), tau[0] ** -0.5), normal(lib, "b", (2,), (4.0 * tau[0]) ** -0.5)
        c, d = normal(lib, "c", (DIM,), tau[1] ** -0.5), normal(lib, "d", (), tau[1])
        return a + b[0] + c + d

    model = regression(lib, lambda: (gamma(lib, "one"), gamma(lib, "two")), weights)
    groups, masses = found(prepared(lib, model))
    assert {k: g.precision for k, g in groups.items()} == {"a": "one", "b": "one", "c": "two", "d": "two"}
    assert masses["one"] == pytest.approx(5 / 2 + 1)
    assert masses["two"] == pytest.approx(3 / 2 + 2)
    np.testing.assert_allclose(np.exp(groups["b"].offset), 0.5, rtol=1e-6)


def test_wrapped_distributions(lib):
    """Plates, expand, to_event and mask around what is found."""

    def hyper():
        with lib.ppl.plate("layers", 2):
            return lib.ppl.sample("tau", lib.dist.Gamma(lib.array(2.0), 1.0))

    def weights(tau):
        with lib.ppl.plate("weights", DIM, dim=-2), lib.ppl.plate("of_layers", 2, dim=-1):
            w = lib.ppl.sample("w", lib.dist.Normal(0.0, tau**-0.5))
        mask = lib.array(np.array([True, False, True]))
        b = lib.ppl.sample("b", lib.dist.Normal(0.0, tau[1] ** -0.5).expand([DIM]).mask(mask).to_event(1))
        c = lib.ppl.sample("c", lib.dist.Normal(0.0, tau[0] ** -0.5).expand([2, DIM]).to_event(2))
        return w[:, 0] + w[:, 1] + b + c[0]

    groups, masses = found(prepared(lib, regression(lib, hyper, weights)))
    np.testing.assert_array_equal(groups["w"].element, [[0, 1]] * DIM)
    np.testing.assert_array_equal(groups["b"].element, [1] * DIM)
    np.testing.assert_array_equal(groups["c"].element, np.zeros((2, DIM), int))
    np.testing.assert_allclose(masses["tau"], [(3 + 6) / 2 + 1, (3 + 3) / 2 + 1])


@pytest.mark.parametrize("num_subsets", [1, 4])
def test_local_latents_in_the_data_plate(lib, num_subsets):
    """An effect for each row: all of them count, whatever M is, and the second block needs data."""

    def observe(X, y, w, h):
        u = lib.ppl.sample("u", lib.dist.Normal(lib.array(0.0), h[1]))
        lib.ppl.sample("y", lib.dist.Normal(X @ w + u, 1.0), obs=y)

    def hyper():
        return gamma(lib), lib.ppl.sample("s", lib.dist.HalfNormal(lib.array(1.0)))

    def weights(h):
        return normal(lib, "w", (DIM,), h[0] ** -0.5)

    hierarchy = prepared(lib, regression(lib, hyper, weights, observe), num_subsets=num_subsets)
    groups, masses = found(hierarchy)
    assert groups["u"].precision == "s"
    assert masses["s"] == pytest.approx(2 * NUM_ROWS)
    assert masses["tau"] == pytest.approx(2.5)
    assert hierarchy.needs_data


@pytest.mark.parametrize("num_subsets", [1, 4])
def test_output_precision(lib, num_subsets):
    """N/2 + α - 1 of all rows, also where only those of one subset are traced; or left where it was."""

    def observe(X, y, w, h):
        lam = lib.ppl.sample("lam", lib.dist.Gamma(lib.array(3.0), 1.0)) if h is None else h[1]
        lib.ppl.sample("y", lib.dist.Normal(X @ w, lam**-0.5), obs=y)

    def hyper():
        return gamma(lib), gamma(lib, "lam", 3.0)

    def weights(h):
        return normal(lib, "w", (DIM,), h[0] ** -0.5)

    model = regression(lib, hyper, weights, observe)
    hierarchy = prepared(lib, model, num_subsets=num_subsets)
    groups, masses = found(hierarchy)
    assert groups["y"].observed
    assert not groups["w"].observed
    assert masses["lam"] == pytest.approx(NUM_ROWS / 2 + 2)
    assert hierarchy.needs_data
    for options in ({"output_precision": False}, {"precision_sites": ["tau"]}):
        hierarchy = prepared(lib, model, num_subsets=num_subsets, **options)
        groups, masses = found(hierarchy)
        assert list(masses) == ["tau"]
        assert list(groups) == ["w"]
        assert not hierarchy.needs_data


@pyro_by_default
def test_output_precision_of_each_group_of_sorted_rows(lib):
    """A subset of the rows may hold no row of some group: the masses are those of all rows."""
    group = lib.array(np.arange(NUM_ROWS) * 2 // NUM_ROWS)

    def model(X, y, group):
        w = normal(lib, "w", (DIM,), gamma(lib) ** -0.5)
        lam = gamma(lib, "lam", 3.0, (2,))
        with lib.ppl.plate("data", X.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(X @ w, lam[group] ** -0.5), obs=y)

    args = (*models.data(lib), group)
    for num_subsets in (1, 3):
        masses = found(prepared(lib, model, args, num_subsets=num_subsets))[1]
        np.testing.assert_allclose(masses["lam"], [8 / 2 + 2, 7 / 2 + 2])


@pyro_by_default
def test_precision_of_weights_and_output(lib):
    """The conjugate regression's w ~ N(0, 1/τ), y ~ N(Xw, 1/τ): both count, with ``output_precision`` or without."""

    def observe(X, y, w, h):
        lib.ppl.sample("y", lib.dist.Normal(X @ w, h**-0.5), obs=y)

    def weights(h):
        return normal(lib, "w", (DIM,), h**-0.5)

    for output_precision in (True, False):
        model = regression(lib, lambda: gamma(lib), weights, observe)
        hierarchy = prepared(lib, model, num_subsets=2, output_precision=output_precision)
        groups, masses = found(hierarchy)
        assert set(groups) == {"w", "y"}
        assert masses["tau"] == pytest.approx((DIM + NUM_ROWS) / 2 + 1)
        assert hierarchy.needs_data


def two_layers(lib):
    """A model with a shared precision, a precision per unit, and a scale."""

    def hyper():
        return (
            gamma(lib, "tau"),
            gamma(lib, "unit", 2.0, (2,)),
            lib.ppl.sample("s", lib.dist.HalfCauchy(lib.array(1.0))),
        )

    def weights(h):
        tau, unit, s = h
        b, c = normal(lib, "b", (), tau**-0.5), normal(lib, "c", (2,), tau**-0.5)
        w, v = normal(lib, "w", (2, DIM), unit[:, None] ** -0.5), normal(lib, "v", (), s)
        return w[0] + w[1] + b + c[0] + c[1] + v

    return regression(lib, hyper, weights)


@pyro_by_default
def test_precision_sites_choose(lib):
    model = two_layers(lib)
    assert list(found(prepared(lib, model))[1]) == ["tau", "unit", "s"]
    groups, masses = found(prepared(lib, model, precision_sites=["s", "unit"]))
    assert list(masses) == ["unit", "s"]
    assert {k: g.precision for k, g in groups.items()} == {"w": "unit", "v": "s"}


def test_repr(lib):
    kernel = lib.split.S3HMC(two_layers(lib), num_subsets=3)
    arguments = "S3HMC(model=model, num_subsets=3, plate=None, schedule='symmetric', "
    assert repr(kernel) == arguments + "precisions are found when it runs)"
    lib.prepared(kernel, models.data(lib))
    assert repr(kernel) == arguments + (
        "precision tau -> b, c (Q = 3, mass 2.5); "
        "precision unit -> w (2 elements, each of Q = 3, mass 2.5); "
        "scale s -> v (Q = 1, mass 2))"
    )


def picklable_numpyro(X, y):
    import numpyro
    import numpyro.distributions as dist

    tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
    w = numpyro.sample("w", dist.Normal(np.zeros(DIM), tau**-0.5).to_event(1))
    with numpyro.plate("data", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ w, 1.0), obs=y)


def picklable_pyro(X, y):
    import pyro
    import pyro.distributions as dist
    import torch

    tau = pyro.sample("tau", dist.Gamma(2.0, 1.0))
    w = pyro.sample("w", dist.Normal(torch.zeros(DIM), tau**-0.5).to_event(1))
    with pyro.plate("data", X.shape[0]):
        pyro.sample("y", dist.Normal(X @ w, 1.0), obs=y)


def test_pickled_kernel_finds_its_precisions_again(lib):
    kernel = lib.split.S3HMC(picklable_numpyro if lib.name == "numpyro" else picklable_pyro, num_subsets=2)
    lib.prepared(kernel, models.data(lib))
    shown = repr(kernel)
    assert "precision tau -> w" in shown
    copied = pickle.loads(pickle.dumps(kernel))
    assert "found when it runs" in repr(copied)
    lib.prepared(copied, models.data(lib))
    assert repr(copied) == shown


def refused(lib, model, message, **options):
    with pytest.raises(ValueError, match=message):
        prepared(lib, model, **options)


def test_mass_must_be_positive(lib):
    """α = 0.4 of a precision of one weight: 1/2 + 0.4 - 1 < 0; three weights of it are fine."""

    def weights(tau):
        return normal(lib, "w", (), tau**-0.5) * lib.np.ones(DIM)

    model = regression(lib, lambda: gamma(lib, "tau", 0.4), weights)
    refused(lib, model, r"Q/2 \+ alpha - 1 must be above 0 for precision site 'tau', got -0.1 \(Q = 1 .*alpha = 0.4\)")
    fine = regression(lib, lambda: gamma(lib, "tau", 0.4), lambda tau: normal(lib, "w", (DIM,), tau**-0.5))
    assert found(prepared(lib, fine))[1]["tau"] == pytest.approx(0.9)


@pyro_by_default
def test_mass_of_a_variance_must_be_positive(lib):
    """The same of the same model, written with a variance."""

    def hyper():
        return lib.ppl.sample("v", lib.dist.InverseGamma(lib.array(0.4), 1.0))

    model = regression(lib, hyper, lambda v: normal(lib, "w", (), v**0.5) * lib.np.ones(DIM))
    refused(lib, model, r"Q/2 \+ alpha - 1 must be above 0 for precision site 'v', got -0.1")


@pyro_by_default
def test_concentration_that_is_sampled_does_not_count(lib):
    """A mass must be a constant."""

    def hyper():
        alpha = lib.ppl.sample("alpha", lib.dist.HalfNormal(lib.array(1.0)))
        return lib.ppl.sample("tau", lib.dist.Gamma(alpha, 1.0)) ** -0.5

    assert found(prepared(lib, regression(lib, hyper)))[1]["tau"] == pytest.approx(1.5)


def test_precision_that_scales_nothing(lib):
    model = regression(lib, lambda: (gamma(lib), gamma(lib, "idle"))[0] ** -0.5)
    assert list(found(prepared(lib, model))[1]) == ["tau"]  # a latent like any other, unless it is named
    refused(
        lib,
        model,
        r"precision_sites must each scale some weights, got \['idle'\], which scale nothing",
        precision_sites=["tau", "idle"],
    )


def test_element_that_scales_nothing(lib):
    model = regression(
        lib, lambda: gamma(lib, "tau", 2.0, (3,)), lambda tau: normal(lib, "w", (DIM,), tau[:2].sum(-1) ** 0 / tau[1])
    )
    refused(lib, model, r"every element of a precision must scale a weight, got none for element 0 of 'tau'")


def test_weights_with_two_precisions(lib):
    model = regression(lib, lambda: (gamma(lib, "local") * gamma(lib, "overall")) ** -0.5)
    message = r"a weight site must have one precision, got 'w' whose scale depends on \['local', 'overall'\]"
    refused(lib, model, message)
    refused(lib, model, message, precision_sites=["local"])


def test_absent_precision_sites(lib):
    model = regression(lib, lambda: gamma(lib) ** -0.5)
    message = r"precision_sites must name latent sites \['tau', 'w'\], got \['nu', 'y'\]"
    refused(lib, model, message, precision_sites=["tau", "nu", "y"])


def test_unsupported_form(lib):
    """A softplus, and a precision with a floor: log scales that are not linear in a log."""
    softplus = regression(
        lib, lambda: lib.np.log(1 + lib.np.exp(lib.ppl.sample("h", lib.dist.Normal(lib.array(0.0), 1.0))))
    )
    floor = regression(lib, lambda: 0.1 + lib.ppl.sample("h", lib.dist.HalfNormal(lib.array(1.0))))
    for model in (softplus, floor):
        refused(
            lib, model, r"scale of weight site 'w' must depend on 'h' in a supported form, which is weights ~ Normal"
        )


@pyro_by_default
def test_unsupported_form_left_out(lib):
    def weights(h):
        return normal(lib, "w", (DIM,), 0.1 + h[0]) + normal(lib, "b", (), h[1] ** -0.5)

    model = regression(lib, lambda: (lib.ppl.sample("h", lib.dist.HalfNormal(lib.array(1.0))), gamma(lib)), weights)
    refused(lib, model, "weight site 'w' must depend on 'h' in a supported form")
    assert list(found(prepared(lib, model, precision_sites=["tau"]))[1]) == ["tau"]


def test_model_without_weights(lib):
    model, args = models.plate_from_shape(lib)  # s scales observations alone, b has a fixed scale
    refused(lib, model, "the model must have weights with a precision, got none; supported is", args=args)


def test_refused_model_stays_refused(lib):
    """On the same object and data: nothing of the first attempt is taken for a split that was studied."""
    model, args = models.plate_from_shape(lib)
    kernel = lib.split.S3HMC(model, 2)
    for _ in range(2):
        with pytest.raises(ValueError, match="the model must have weights with a precision, got none"):
            lib.prepared(kernel, args)


def test_potential_instead_of_a_model(lib):
    potential = lib.split.SplitPotential.from_functions(lambda z: 0.0, lambda z, y: y * z["a"], lib.np.ones(4), 2)
    with pytest.raises(ValueError, match="model must be a model, .* got a SplitPotential"):
        lib.split.S3HMC(potential)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_subsets": 0}, "num_subsets must be a whole number of at least 1, got 0"),
        ({"num_steps": 0}, "num_steps must be a whole number of at least 1, got 0"),
        ({"weight_steps": 0}, "weight_steps must be a whole number of at least 1, got 0"),
        ({"weight_steps": 1.5}, "weight_steps must be a whole number of at least 1, got 1.5"),
        ({"precision_steps": 0}, "precision_steps must be a whole number of at least 1, got 0"),
        ({"step_size": 0.0}, "step_size must be a finite number above 0, got 0.0"),
        ({"num_steps": 5, "trajectory_length": 1.0}, "must not both be given .*num_steps=5 and trajectory_length=1.0"),
        ({"precision_sites": "tau"}, "precision_sites must be None or a list of site names, each once, got 'tau'"),
        ({"precision_sites": []}, r"precision_sites must be None or a list of site names, each once, got \[\]"),
        ({"precision_sites": ["tau", "tau"]}, "precision_sites must be None or a list of site names, each once"),
        ({"schedule": "other"}, "schedule must be 'symmetric', .* 'single_visit' or a function"),
    ],
)
def test_arguments(lib, options, message):
    with pytest.raises(ValueError, match=message):
        lib.split.S3HMC(lambda: None, **options)


def test_mass_matrix_leaves_the_precisions_out(lib):
    """Of the three weights and nothing else; blocks likewise."""
    model = regression(lib, lambda: gamma(lib) ** -0.5)
    args, word = models.data(lib), "dense_mass" if lib.name == "numpyro" else "full_mass"
    message = r"inverse_mass_matrix for sites \['w'\] must have shape \(3,\).*got \(4,\)"
    with pytest.raises(ValueError, match=message):
        lib.run(lib.split.S3HMC(model, inverse_mass_matrix=lib.np.ones(4)), *args)
    with pytest.raises(ValueError, match=rf"{word} must name latent sites \['w'\], got \['tau'\]"):
        lib.run(lib.split.S3HMC(model, **{word: [("tau", "w")]}), *args)


def test_masses_by_hand():
    """Q/2 + α - 1, 2Q for a scale, Q/2 for a variance; repeats of observations counted in full."""

    def scales_at(z, part):
        log_scale = {
            "w": -0.5 * z["tau"][[0, 1, 1, 1]],
            "v": z["s"] * np.ones(5),
            "y": -0.5 * z["lam"] * np.ones(2),
        }
        gamma = {"tau": np.array([2.0, 0.25]), "lam": np.array(3.0), "s": np.array(7.0)}
        return Scales(log_scale, gamma, {"s": np.array(7.0)})

    z = {"tau": np.zeros(2), "s": np.zeros(()), "lam": np.zeros(()), "w": np.zeros(4)}
    groups = find_groups(scales_at, z, {"y": Rows(5, 10.0)})
    concentrations = find_concentrations(scales_at, z, groups)
    masses = precision_masses(groups, {k: x.shape for k, x in z.items()}, concentrations)
    np.testing.assert_array_equal(masses["tau"], [1 / 2 + 2 - 1, 3 / 2 + 0.25 - 1])
    assert masses["s"] == 10.0
    assert masses["lam"] == 20 / 2 + 3 - 1


@pytest.mark.parametrize("shift", [0.0, 3.0, -8.0])
def test_groups_do_not_depend_on_where_they_are_looked_for(shift):
    def scales_at(z, part):
        return Scales({"w": -0.5 * z["tau"][[1, 0, 1]] + 0.7}, {}, {})

    groups = find_groups(scales_at, {"tau": shift + np.arange(2.0), "w": np.zeros(3)}, {})
    np.testing.assert_array_equal(groups[0].element, [1, 0, 1])
    np.testing.assert_allclose(groups[0].offset, 0.7, atol=1e-12)


@pytest.mark.parametrize(
    ("rows", "expected"), [(Rows(1, 1.0), [3, 1]), (Rows(1, 2.5), [8, 2]), (Rows(3, 3.0), [3, 5])], ids=str
)
def test_counts_of_elements_are_of_all_rows(rows, expected):
    """Added up over the parts of the rows that are read; of a sample they are estimated."""
    parts = [np.array([0, 0, 1, 0]), np.array([1, 1]), np.array([1, 1])]
    np.testing.assert_array_equal(_counts(lambda part: parts[part], parts[0], 2, rows), expected)
