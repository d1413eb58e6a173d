"""Priors on weights: what they draw against closed forms, their sites, and what they refuse.

Distributions are compared by Kolmogorov–Smirnov tests at fixed seeds. Each raises a false alarm with probability
``P_LIMIT`` = 1e-5; there are under 100 of them, so 0.1 % in all for a change of seeds.
"""

import numpy as np
import pytest
from scipy import stats

from split_common.priors import fan_in

P_LIMIT = 1e-5
SHAPE = (3, 2)
NUM_DRAWS = 800
CENTERED = pytest.mark.parametrize("centered", [True, False], ids=["centred", "non-centred"])
HALF_CAUCHY, NORMAL = stats.halfcauchy(), stats.norm()


def priors(lib):
    if lib.name == "numpyro":
        from numpyro_split import priors
    else:
        from pyro_split import priors
    return priors


DRAWN = {}


def draw(lib, name, *args, num_draws=NUM_DRAWS, shape=SHAPE, **options):
    """Draws of every site of a prior, the weights under "w": arrays of shape (draws, ...)."""
    key = repr((lib.name, name, args, num_draws, shape, options))
    if key not in DRAWN:
        DRAWN[key] = simulate(lib, name, args, num_draws, shape, options)
    return DRAWN[key]


def simulate(lib, name, args, num_draws, shape, options):
    prior = getattr(priors(lib), name)
    if lib.name == "numpyro":
        import jax
        from numpyro.handlers import seed, trace

        def values(key):
            found = trace(seed(lambda: prior("w", shape, *args, **options), key)).get_trace()
            return {site: found[site]["value"] for site in found}

        draws = jax.vmap(values)(jax.random.split(jax.random.key(1), num_draws))
        return {site: np.asarray(x) for site, x in draws.items()}
    lib.ppl.set_rng_seed(1)
    traces = [lib.ppl.poutine.trace(prior).get_trace("w", shape, *args, **options) for _ in range(num_draws)]
    sites = [site for site, node in traces[0].nodes.items() if node["type"] == "sample"]
    return {site: np.stack([trace.nodes[site]["value"].numpy() for trace in traces]) for site in sites}


def p_value(draws, distribution):
    return stats.kstest(np.ravel(draws), distribution.cdf).pvalue


def assert_drawn_from(draws, distribution):
    assert p_value(draws, distribution) > P_LIMIT


def assert_unrelated(x, y):
    """Kendall's rank correlation of independent draws; the same false alarm rate."""
    assert stats.kendalltau(x, y).pvalue > P_LIMIT


@CENTERED
def test_normal(lib, centered):
    draws = draw(lib, "normal", 0.5, centered=centered)["w"]
    assert draws.shape == (NUM_DRAWS, *SHAPE)
    assert_drawn_from(draws, stats.norm(scale=0.5))


def test_normal_with_a_scale_for_each_unit(lib):
    draws = draw(lib, "normal", lib.array([0.1, 10.0]))["w"]
    assert_drawn_from(draws[..., 0], stats.norm(scale=0.1))
    assert_drawn_from(draws[..., 1], stats.norm(scale=10.0))


@pytest.mark.parametrize(("shape", "unit_axis", "inputs"), [((8, 2), -1, 8), ((2, 2, 2, 2), 0, 8)])
def test_width_scaled_normal(lib, shape, unit_axis, inputs):
    draws = draw(lib, "width_scaled_normal", 3.0, shape=shape, unit_axis=unit_axis, num_draws=300)["w"]
    assert_drawn_from(draws, stats.norm(scale=3.0 / np.sqrt(inputs)))
    assert p_value(draws, stats.norm(scale=3.0 / np.sqrt(2))) < P_LIMIT  # fan_in of the other axis of the first


def test_fan_in():
    shapes = [((8, 2), -1), ((8, 2), 0), ((50, 20, 5, 5), 0), ((5, 5, 20, 50), -1), ((4,), -1), ((4,), 0)]
    assert [fan_in(*args) for args in shapes] == [8, 2, 500, 500, 1, 1]


@CENTERED
def test_normal_gamma(lib, centered):
    draws = draw(lib, "normal_gamma", 2.0, 3.0, centered=centered, per_unit=False)
    precision, w = draws["w_precision"], draws["w"]
    assert precision.shape == (NUM_DRAWS,)
    assert_drawn_from(precision, stats.gamma(2.0, scale=1 / 3.0))
    assert_drawn_from(w[:, 0, 0], stats.t(df=4.0, scale=np.sqrt(3.0 / 2.0)))
    assert_drawn_from(w * np.sqrt(precision)[:, None, None], NORMAL)


@pytest.mark.parametrize(("centered", "unit_axis"), [(True, -1), (False, 0)])
def test_normal_gamma_per_unit(lib, centered, unit_axis):
    draws = draw(lib, "normal_gamma", 1.0, 3.0, centered=centered, per_unit=True, unit_axis=unit_axis, shape=(2, 2))
    precision, w = draws["w_precision"], draws["w"]
    w = np.moveaxis(w, 1 + unit_axis % 2, -1)  # (draws, inputs, units)
    assert precision.shape == (NUM_DRAWS, 2)
    assert_drawn_from(precision, stats.gamma(1.0, scale=1 / 3.0))
    assert_drawn_from(w[:, 0], stats.t(df=2.0, scale=np.sqrt(3.0)))
    assert_drawn_from(w * np.sqrt(precision)[:, None], NORMAL)
    assert p_value(w * np.sqrt(precision)[:, None, ::-1], NORMAL) < P_LIMIT  # each unit has its own
    assert_unrelated(np.abs(w[:, 0, 0]), np.abs(w[:, 1, 1]))


@pytest.mark.parametrize(("centered", "per_unit"), [(True, False), (False, False), (False, True)])
def test_horseshoe(lib, centered, per_unit):
    draws = draw(lib, "horseshoe", 0.3, centered=centered, per_unit=per_unit)
    local, tau, w = draws["w_local_scale"], draws["w_global_scale"], draws["w"]
    assert local.shape == (NUM_DRAWS, *((2,) if per_unit else SHAPE))
    assert_drawn_from(local, HALF_CAUCHY)
    assert_drawn_from(tau / 0.3, HALF_CAUCHY)
    scale = tau[:, None, None] * (local[:, None] if per_unit else local)
    assert_drawn_from(w / scale, NORMAL)
    assert_unrelated(tau, local.reshape(NUM_DRAWS, -1)[:, 0])


def test_half_cauchy_is_a_product(lib):
    """Its quantiles are tan(π q / 2). The thesis's r₁ r₂ in place of r₁ sqrt(r₂) is seen at the same size."""
    draws = draw(lib, "horseshoe", 0.3, centered=False, per_unit=False)
    r1, r2 = draws["w_local_scale_r1"], draws["w_local_scale_r2"]
    np.testing.assert_allclose(draws["w_local_scale"], r1 * np.sqrt(r2))
    assert_drawn_from(r1, stats.halfnorm())
    assert_drawn_from(r2, stats.invgamma(0.5, scale=0.5))
    q = np.array([0.1, 0.25, 0.5, 0.75, 0.9])

    def z_values(x):  # of the share of draws below each quantile; |z| > 4.42 has probability 1e-5
        share = (np.ravel(x)[:, None] < np.tan(np.pi * q / 2)).mean(0)
        return (share - q) / np.sqrt(q * (1 - q) / x.size)

    assert np.all(np.abs(z_values(r1 * np.sqrt(r2))) < 4.42)
    assert np.any(np.abs(z_values(r1 * r2)) > 4.42)
    assert p_value(r1 * r2, HALF_CAUCHY) < P_LIMIT


@pytest.mark.parametrize(("centered", "per_unit"), [(True, False), (False, True)])
def test_regularised_horseshoe(lib, centered, per_unit):
    draws = draw(lib, "regularised_horseshoe", 0.3, centered=centered, per_unit=per_unit)
    local, tau, c2, w = (draws[f"w{site}"] for site in ("_local_scale", "_global_scale", "_slab_variance", ""))
    assert_drawn_from(local, HALF_CAUCHY)
    assert_drawn_from(tau / 0.3, HALF_CAUCHY)
    assert_drawn_from(c2, stats.invgamma(2.0, scale=8.0))
    tau, c2 = tau[:, None, None], c2[:, None, None]
    local = local[:, None] if per_unit else local
    softened = c2 * local**2 / (c2 + tau**2 * local**2)
    assert_drawn_from(w / (tau * np.sqrt(softened)), NORMAL)
    assert p_value(w / (tau * local), NORMAL) < P_LIMIT  # the slab is there


def test_slab_is_a_student_t(lib):
    """With no shrinkage left, a weight of the regularised horseshoe is a draw from its slab."""
    draws = draw(lib, "regularised_horseshoe", 1e9, 1.5, 5.0)["w"]
    assert_drawn_from(draws[:, 0, 0], stats.t(df=5.0, scale=1.5))


AS_ABOVE = {"normal_gamma": (2.0, 3.0), "horseshoe": (0.3,)}


@pytest.mark.parametrize("name", AS_ABOVE)
def test_centred_and_non_centred_agree(lib, name):
    """One weight of each draw, and the sum of squares of its layer; two samples, so unlike the closed forms above."""
    first, second = (
        draw(lib, name, *AS_ABOVE[name], centered=centered, per_unit=False)["w"] for centered in (True, False)
    )
    second = second[::-1]  # one seed: break what the two share
    assert stats.ks_2samp(first[:, 0, 0], second[:, 0, 0]).pvalue > P_LIMIT
    assert stats.ks_2samp((first**2).sum((1, 2)), (second**2).sum((1, 2))).pvalue > P_LIMIT


@pytest.mark.parametrize(
    ("name", "options", "latent"),
    [
        ("normal", {}, {""}),
        ("normal", {"centered": False}, {"_raw"}),
        ("normal_gamma", {}, {"", "_precision"}),
        ("normal_gamma", {"centered": False}, {"_raw", "_precision"}),
        ("horseshoe", {"centered": True}, {"", "_local_scale", "_global_scale"}),
        (
            "horseshoe",
            {},
            {"_raw", "_local_scale_r1", "_local_scale_r2", "_global_scale_r1", "_global_scale_r2"},
        ),
        ("regularised_horseshoe", {"centered": True}, {"", "_local_scale", "_global_scale", "_slab_variance"}),
    ],
)
def test_latent_sites(lib, name, options, latent):
    shapes, found = shapes_of(lib, lambda: getattr(priors(lib), name)("w", SHAPE, **options))
    assert found == {f"w{suffix}" for suffix in latent}
    assert shapes["w"] == SHAPE  # whether drawn or made


@pytest.mark.parametrize("per_unit", [False, True])
def test_a_precision_and_its_weights_can_be_recognised(lib, per_unit):
    """Centred: a Gamma site, and one Normal site of scale precision^(-1/2)."""

    def scale_and_precision():
        sites = trace_of(lib, lambda: priors(lib).normal_gamma("w", SHAPE, 2.0, 3.0, per_unit=per_unit))
        weights, precision = unwrapped(sites["w"]["fn"]), unwrapped(sites["w_precision"]["fn"])
        assert type(weights).__name__ == "Normal"
        assert type(precision).__name__ == "Gamma"
        assert tuple(sites["w"]["fn"].event_shape) == SHAPE
        return weights.scale, sites["w_precision"]["value"]

    if lib.name == "numpyro":
        import jax

        scale_and_precision = jax.jit(scale_and_precision)
    scale, precision = map(lib.to_numpy, scale_and_precision())
    np.testing.assert_allclose(*np.broadcast_arrays(scale, precision**-0.5))


def unwrapped(fn):
    while hasattr(fn, "base_dist"):
        fn = fn.base_dist
    return fn


def trace_of(lib, function):
    """Sites of a function by name, in either host."""
    if lib.name == "numpyro":
        return lib.ppl.handlers.trace(lib.ppl.handlers.seed(function, 0)).get_trace()
    return lib.ppl.poutine.trace(function).get_trace().nodes


def shapes_of(lib, function):
    """Shapes of a function's sample sites by name, and which are latent; JAX computes nothing."""
    found = {}

    def run():
        sites = trace_of(lib, function).items()
        found.update({name: site for name, site in sites if name.startswith(("w", "net."))})

    if lib.name == "numpyro":
        import jax

        jax.eval_shape(run)
    else:
        run()
    latent = {name for name, site in found.items() if site["type"] == "sample" and not site["is_observed"]}
    return {name: tuple(site["value"].shape) for name, site in found.items()}, latent


def test_a_hyperparameter_may_be_latent(lib):
    """A scale that is a site itself, unknown while the density is traced."""

    def model(y):
        sigma = lib.ppl.sample("sigma", lib.dist.HalfNormal(lib.array(1.0)))
        w = priors(lib).normal("w", (2,), scale=0.1 * sigma)
        with lib.ppl.plate("data", y.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(w.sum(), sigma), obs=y)

    y = np.linspace(-1, 1, 6)
    z = {"sigma": lib.array(np.log(0.5)), "w": lib.array([0.02, -0.03])}
    if lib.name == "numpyro":
        import jax
        from numpyro.infer.util import potential_energy

        value = jax.jit(potential_energy, static_argnums=0)(model, (lib.array(y),), {}, z)
    else:
        value, _ = lib.host_potential_and_grad(model, (lib.array(y),), {}, z)
    w_density = stats.norm(scale=0.05).logpdf([0.02, -0.03]).sum() + stats.norm(-0.01, 0.5).logpdf(y).sum()
    expected = w_density + stats.halfnorm.logpdf(0.5) + np.log(0.5)  # the last is the Jacobian
    np.testing.assert_allclose(lib.to_numpy(value), -expected)


@pytest.mark.parametrize(
    ("name", "args", "options", "message"),
    [
        ("normal", ((3, 0),), {}, r"shape must be a tuple of whole numbers of at least 1, got \(3, 0\)"),
        ("normal", (3,), {}, r"shape must be a tuple of whole numbers of at least 1, got 3"),
        ("normal", (SHAPE, -1.0), {}, r"scale must be a finite number above 0, got -1.0"),
        ("normal", (SHAPE, np.array([1.0, -1.0])), {}, r"scale must be finite and above 0 everywhere, got array"),
        ("normal", (SHAPE, np.ones(3)), {}, r"scale must be a number or broadcast to shape \(3, 2\), got shape \(3,\)"),
        ("normal", (SHAPE,), {"centered": 1}, r"centered must be True or False, got 1"),
        ("width_scaled_normal", (SHAPE,), {"unit_axis": 2}, r"unit_axis must be an axis of .*\(3, 2\), got 2"),
        ("width_scaled_normal", ((),), {}, r"unit_axis must be an axis of the weights' shape \(\), got -1"),
        ("normal_gamma", (SHAPE, 0.0), {}, r"concentration must be a finite number above 0, got 0.0"),
        ("normal_gamma", (SHAPE, 1.0, float("nan")), {}, r"rate must be a finite number above 0, got nan"),
        ("normal_gamma", (SHAPE, 1.0, np.ones(2)), {}, r"rate must be a number or broadcast to shape \(\)"),
        ("normal_gamma", (SHAPE,), {"per_unit": 1}, r"per_unit must be True or False, got 1"),
        ("normal_gamma", (SHAPE,), {"per_unit": True, "unit_axis": -3}, r"unit_axis must be an axis of .*, got -3"),
        ("horseshoe", (SHAPE, "a"), {}, r"global_scale must be a finite number above 0, got 'a'"),
        ("regularised_horseshoe", (SHAPE, 1.0, 0.0), {}, r"slab_scale must be a finite number above 0, got 0.0"),
        ("regularised_horseshoe", (SHAPE, 1.0, 1.0, -4), {}, r"slab_df must be a finite number above 0, got -4"),
    ],
)
def test_bad_input(lib, name, args, options, message):
    with pytest.raises(ValueError, match=message):
        trace_of(lib, lambda: getattr(priors(lib), name)("w", *args, **options))


def test_same_priors_and_defaults():
    import inspect

    from numpyro_split import priors as ours
    from pyro_split import priors as theirs

    for name in ("normal", "width_scaled_normal", "normal_gamma", "horseshoe", "regularised_horseshoe"):
        first, second = (inspect.signature(getattr(module, name)).parameters.values() for module in (ours, theirs))
        assert [(p.name, p.kind, p.default) for p in first] == [(p.name, p.kind, p.default) for p in second], name
