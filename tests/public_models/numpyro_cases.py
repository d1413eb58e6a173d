"""NumPyro's examples and tutorials in alphabetical order, each on few rows.

The models are the host's (see ``origin.py``), and so are the data where the file makes them itself; where it takes
them from the network, they are drawn here in the same shapes.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
from jax import random
from numpyro.handlers import condition, do, lift, reparam, seed
from numpyro.infer.reparam import LocScaleReparam

from tests.public_models.case import REFUSED, RIGHT, Case, call

TAKES_WHOLE = r"num_subsets=1"  # what a refusal of a model that does not divide must point to


def rng():
    return np.random.default_rng(0)


def example(name, model, arguments, num_subsets=4, **options):
    """A model of a Python file that divides."""
    return Case("numpyro", f"examples/{name}.py", model, arguments, num_subsets, **options)


def tutorial(name, model, arguments, num_subsets=4, **options):
    """A model of a notebook that divides."""
    return Case("numpyro", f"notebooks/source/{name}.ipynb", model, arguments, num_subsets, **options)


def whole(case, *args, words=TAKES_WHOLE, **options):
    """A model that does not divide: it runs with M = 1, and M = 2 is refused with the way out."""
    return [
        case(*args, num_subsets=1, expected=RIGHT, **options),
        case(*args, num_subsets=2, expected=REFUSED, words=words, **options),
    ]


def regression(num_rows=40, num_columns=3, kind="normal"):
    """Predictors and a response."""
    draw = rng()
    X = draw.normal(size=(num_rows, num_columns))
    eta = X @ np.linspace(-1.0, 1.0, num_columns)
    if kind == "binary":
        return X, draw.binomial(1, 1 / (1 + np.exp(-eta)))
    if kind == "count":
        return X, draw.poisson(np.exp(0.5 * eta))
    return X, eta + 0.5 * draw.normal(size=num_rows)


# --- examples -----------------------------------------------------------------------------------------------------


def at_bats(_):
    """Eighteen players of different strength."""
    draw = rng()
    strength = 1 / (1 + np.exp(1 - 0.7 * draw.normal(size=18)))
    return call(jnp.full(18, 45), jnp.asarray(draw.binomial(45, strength)))


def captures(_):
    draw = rng()
    return call(jnp.asarray(draw.binomial(1, 0.6, (10, 5))), jnp.asarray(draw.binomial(1, 0.5, 10)))


def chorales(_):
    draw = rng()
    arguments = SimpleNamespace(hidden_dim=4)
    return call(jnp.asarray(draw.binomial(1, 0.3, (4, 6, 5))), jnp.array([6, 4, 5, 6]), arguments)


def mortality(origin):
    """Every group, place and year in turn, places in two districts."""
    age, space, time = (x.ravel() for x in np.meshgrid(np.arange(3), np.arange(4), np.arange(4), indexing="ij"))
    district = np.repeat([0, 1], 2)[space]
    population = rng().integers(500, 1000, age.size)
    deaths = rng().binomial(population, 0.02)
    return call(age, space, time, origin.create_lookup(district, space), population, deaths)


def admissions(_):
    draw = rng()
    applications = draw.integers(20, 800, 12)
    admit = draw.binomial(applications, 0.4)
    return call(np.repeat(np.arange(6), 2), np.tile([1, 0], 6), applications, admit)


def birthdays(_):
    draw, num_days = rng(), 60
    x = np.linspace(-1.7, 1.7, num_days)
    day = np.arange(num_days)
    indicators = {
        f"{name}_days_indicator": (day % k == 0).astype(int)
        for name, k in (("memorial", 20), ("labour", 30), ("thanksgiving", 25))
    }
    return call(
        x=x,
        day_of_week=day % 7,
        day_of_year=day % 366,
        **indicators,
        w0=2 * np.pi,
        L=2.5,
        M1=4,
        M2=4,
        M3=3,
        y=draw.normal(size=num_days),
    )


def purchases(_):
    X, y = regression(60, 2, "binary")
    return call(jnp.asarray(np.column_stack([np.ones(60), X > 0])), jnp.asarray(y))


def network(origin):
    """Three nodes in a chain, of which the middle one is not seen."""
    with seed(rng_seed=0):
        prior, _, data = origin.generate_data(20)
    return call(prior, {"A": data["A"], "C": data["C"]}, 20)


HYPERS = {"alpha1": 3.0, "beta1": 1.0, "alpha2": 3.0, "beta2": 1.0, "alpha3": 1.0, "c": 1.0}
ANNOTATION = ["dawid_skene", "mace", "hierarchical_dawid_skene", "logistic_random_effects"]

HALF_CAUCHY = ("lambdas", "tau")  # of the horseshoes

EXAMPLES = [
    *whole(example, "annotation", "multinomial", lambda m: call(m.get_data()[1])),
    *(c for name in ANNOTATION for c in whole(example, "annotation", name, lambda m: call(*m.get_data()))),
    *whole(example, "annotation", "item_difficulty", lambda m: call(m.get_data()[1])),
    *whole(example, "ar2", "ar2_scan", lambda m: call(y=jnp.asarray(np.cumsum(rng().normal(size=12))))),
    *whole(example, "ar2", "ar2_for_loop", lambda m: call(y=jnp.asarray(np.cumsum(rng().normal(size=12))))),
    *(
        example("baseball", name, at_bats, bits=64 if name == "partially_pooled" else 32)
        for name in ("fully_pooled", "not_pooled", "partially_pooled", "partially_pooled_with_logit")
    ),
    example("bnn", "model", lambda m: call(*m.get_data(N=24)[:2], 4)),
    *(c for k in (1, 3, 4, 5) for c in whole(example, "capture_recapture", f"model_{k}", captures)),
    example("covtype", "model", lambda m: call(*map(jnp.asarray, regression(60, 5, "binary")))),
    *whole(example, "dais_demo", "model", lambda m: call(*m.get_data(N=8))),
    *whole(example, "funnel", "model", lambda m: call()),
    *whole(
        example,
        "funnel",
        lambda m: reparam(m.model, config={"x": LocScaleReparam(0)}),
        lambda m: call(),
        label="reparam_model",
    ),
    *whole(
        example,
        "gaussian_shells",
        "model",
        lambda m: call(radius=2.0, width=0.1, center1=jnp.array([-3.5, 0.0]), center2=jnp.array([3.5, 0.0]), enum=True),
    ),
    *whole(example, "gp", "model", lambda m: call(*m.get_data(N=8)[:2])),
    example("hmcecs", "model", lambda m: call(*map(jnp.asarray, regression(60, 5, "binary")), None)),
    *whole(
        example,
        "hmm",
        "semi_supervised_hmm",
        lambda m: call(
            *(d := m.simulate_data(random.key(0), 3, 4, num_supervised_data=12, num_unsupervised_data=10))[:2], *d[4:]
        ),
    ),
    *(c for k in (1, 2, 3, 4, 6) for c in whole(example, "hmm_enum", f"model_{k}", chorales)),
    *whole(example, "holt_winters", "holt_winters", lambda m: call(y=jnp.asarray(rng().normal(size=12)), n_seasons=4)),
    example(
        "horseshoe_regression",
        "model_normal_likelihood",
        lambda m: call(*m.get_data(N=40, D_X=4)),
        by_logarithm=HALF_CAUCHY,
        target_accept_prob=0.95,
    ),
    example(
        "horseshoe_regression",
        "model_bernoulli_likelihood",
        lambda m: call(*m.get_data(N=40, D_X=4, response="binary")),
        by_logarithm=HALF_CAUCHY,
    ),
    example("hsgp", "birthdays_model", birthdays),
    example("minipyro", "model", lambda m: call(jnp.asarray(3.0 + rng().normal(size=100)))),
    example("mortality", "model", mortality, keep=("reparam_config",)),
    *whole(example, "neutra", "dual_moon_model", lambda m: call()),
    *whole(
        example,
        "ode",
        "model",
        lambda m: call(4, y=jnp.array([[30.0, 4.0], [47.2, 6.1], [70.2, 9.8], [77.4, 35.2]])),
    ),
    example("proportion_test", "model", purchases),
    *whole(
        example,
        "sparse_regression",
        "model",
        lambda m: call(
            *m.get_data(N=10, P=4)[:2],
            {
                "expected_sparsity": 1.0,
                "alpha1": 3.0,
                "beta1": 1.0,
                "alpha2": 3.0,
                "beta2": 1.0,
                "alpha3": 1.0,
                "c": 1.0,
            },
        ),
    ),
    *whole(
        example,
        "ssbvm_mixture",
        "ss_model",
        lambda m: call(jnp.asarray(rng().uniform(-3, 3, (10, 2))), 10, 2),
    ),
    example("stein_bnn", "model", lambda m: call(*map(jnp.asarray, regression(40, 3)), hidden_dim=4, sub_size=None)),
    *whole(example, "stochastic_volatility", "model", lambda m: call(jnp.asarray(0.1 * rng().normal(size=12)))),
    *whole(
        example,
        "thompson_sampling",
        "model",
        lambda m: call(jnp.linspace(-2, 2, 6), jnp.asarray(rng().normal(size=6))),
    ),
    *whole(example, "toy_mixture_model_discrete_enumeration", "model", network),
    example("ucbadmit", "glmm", admissions, 3),
    *whole(example, "var2", "var2_scan", lambda m: call(y=jnp.asarray(rng().normal(size=(8, 2))))),
    example("zero_inflated_poisson", "model", lambda m: call(*map(jnp.asarray, regression(60, 3, "count")))),
]

# --- tutorials ----------------------------------------------------------------------------------------------------

HORSESHOE = partial(regression, 40, 4)
COV = {"cov": jnp.array([[10.0, 0.9], [0.9, 0.1]]), "dim": 2}


def campaign(*names):
    """A treatment at random, and revenue before and after."""
    draw = rng()
    treatment = draw.binomial(1, 0.5, 40)
    before = 5 + draw.normal(size=40)
    after = before + 3 + 2 * treatment + draw.normal(size=40)
    values = {"y_post": jnp.asarray(after), "treatment": jnp.asarray(treatment), "y_pre": jnp.asarray(before)}
    return lambda m: call(**{name: values[name] for name in names})


def patients(*names):
    """Nine visits of each of four patients."""
    draw = rng()
    code, weeks = np.repeat(np.arange(4), 9), np.tile(np.arange(9), 4) * 5
    values = {
        "patient_code": code,
        "Weeks": weeks,
        "map_patient_to_smoking_status": np.array([0, 1, 0, 1]),
        "FVC_obs": 2000 + 300 * draw.normal(size=4)[code] - 5 * weeks + 100 * draw.normal(size=36),
    }
    return lambda m: call(**{name: values[name] for name in names})


def passengers(**kwargs):
    """Passengers, a quarter of them of unknown age."""
    draw, n = rng(), 40
    columns = {"pclass": 3, "title": 5, "sex": 2, "sibsp": 2, "parch": 3, "embarked": 3}
    values = {name: draw.integers(0, k, n) for name, k in columns.items()}
    age = draw.normal(size=n)
    age[::4] = np.nan
    return lambda m: call(age=age, **values, survived=draw.binomial(1, 0.4, n), **kwargs)


def stacked(_):
    draw = rng()
    return call(
        X=draw.normal(size=(20, 4)),
        d_discrete=2,
        X_test=draw.normal(size=(5, 4)),
        lpd_point=-np.abs(draw.normal(size=(20, 3))),
        tau_mu=1.0,
        tau_sigma=0.5,
        test=False,
    )


def divorces(*names):
    draw = rng()
    values = {name: jnp.asarray(draw.normal(size=50)) for name in ("marriage", "age", "divorce")}
    values["divorce_sd"] = jnp.asarray(0.1 + 0.1 * draw.uniform(size=50))
    return lambda m: call(**{name: values[name] for name in names})


def imputed(_):
    """Binary values, a fifth of them missing (-1)."""
    draw, n = rng(), 30
    B = draw.normal(size=n)
    A = draw.binomial(1, 0.5, n)
    A[::5] = -1
    return call(A, B, A + B + 0.5 * draw.normal(size=n))


def line(num_rows=50):
    x = jnp.linspace(-2, 2, num_rows)
    return x, 1.0 + 2.0 * x + 0.5 * jnp.asarray(rng().normal(size=num_rows))


def emails(_):
    draw, n = rng(), 50
    credit, risk, email = draw.normal(size=n), draw.normal(size=n), draw.binomial(1, 0.5, n).astype(float)
    payments = 500 + 5 * email + 10 * credit + 20 * risk + 8 * draw.normal(size=n)
    return call(jnp.asarray(credit), jnp.asarray(risk), email=jnp.asarray(email), payments=jnp.asarray(payments))


SCHOOLS = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
SCHOOL_ERRORS = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def schools(_):
    return call(8, SCHOOL_ERRORS, y=SCHOOLS)


def classes(*more, **kwargs):
    """A predictor and a class of three."""
    draw = rng()
    X = draw.normal(size=50)
    Y = np.digitize(X + draw.logistic(size=50), [-0.5, 0.5])
    return lambda m: call(jnp.asarray(X), jnp.asarray(Y), *more, **kwargs)


def populations(_):
    """Two data sets of predators and prey, with a measurement missing."""
    y = np.array([[[3.0, 5.0], [4.0, 4.0], [6.0, 3.5], [8.0, 4.0]], [[6.0, 3.0], [9.0, 3.5], [11.0, 6.0], [9.0, 9.0]]])
    y[1, 3, 0] = np.nan
    return call(ts=jnp.asarray(np.tile(np.arange(4.0), (2, 1))), y_init=jnp.asarray(y[:, 0]), y=jnp.asarray(y))


GRID = np.linspace(0, 1, 32)
WAVE = np.sin(6 * GRID) + 0.2 * rng().normal(size=32)
PLANE = rng().uniform(size=(20, 2))
PLANE_VALUES = np.sin(5 * PLANE).sum(1) + 0.2 * rng().normal(size=20)
CREDIT = {
    "all_x": jnp.asarray(regression(30, 4, "binary")[0]),
    "y": jnp.asarray(regression(30, 4, "binary")[1])[None],
    "num_features": 4,
}

TUTORIALS = [
    *(
        tutorial("bad_posterior_geometry", name, lambda m: call(*HORSESHOE()), by_logarithm=HALF_CAUCHY)
        for name in ("_unrep_hs_model", "_rep_hs_model1", "_rep_hs_model3")
    ),
    tutorial(
        "bad_posterior_geometry",
        lambda m: reparam(m._unrep_hs_model, config={"betas": LocScaleReparam(centered=0)}),
        lambda m: call(*HORSESHOE()),
        label="_rep_hs_model2",
        by_logarithm=HALF_CAUCHY,
    ),
    tutorial(
        "bad_posterior_geometry",
        lambda m: partial(m._rep_hs_model1, *HORSESHOE()),
        lambda m: call(),
        label="partial(_rep_hs_model1, X, Y)",
        by_logarithm=HALF_CAUCHY,
    ),
    *whole(tutorial, "bad_posterior_geometry", "mvn_model", lambda m: call(), given=COV),
    *whole(tutorial, "bad_posterior_geometry", "partially_correlated_model", lambda m: call(), given=COV),
    tutorial("bayesian_cuped", "difference_in_means_model", campaign("y_post", "treatment")),
    *whole(
        tutorial,
        "bayesian_cuped",
        "cuped_model",
        campaign("y_post", "treatment", "y_pre"),
        given={"ad_campaign": np.zeros(40)},
    ),
    tutorial("bayesian_hierarchical_linear_regression", "model", patients("patient_code", "Weeks", "FVC_obs")),
    tutorial(
        "bayesian_hierarchical_linear_regression",
        "model_smoking_hierarchy",
        patients("patient_code", "Weeks", "map_patient_to_smoking_status", "FVC_obs"),
    ),
    tutorial("bayesian_hierarchical_stacking", "logistic", lambda m: call(*regression(40, 4, "binary"))),
    *whole(tutorial, "bayesian_hierarchical_stacking", "stacking", stacked),
    tutorial(
        "bayesian_imputation",
        "model",
        passengers(bayesian_impute=False),
        given={"age_mean_by_title": np.linspace(-1, 1, 5)},
        label="bayesian_impute=False",
    ),
    tutorial("bayesian_regression", "model", divorces("marriage", "divorce")),
    tutorial("bayesian_regression", "model", divorces("marriage", "age", "divorce"), label="two predictors"),
    *whole(tutorial, "bayesian_regression", "model_se", divorces("marriage", "age", "divorce_sd", "divorce")),
    *(
        c
        for method in ("circulant", "cholesky")
        for c in whole(
            tutorial,
            "circulant_gp",
            "model",
            lambda m, method=method: call(jnp.arange(12), jnp.asarray(rng().binomial(1, 0.5, 12)), method=method),
            label=method,
        )
    ),
    tutorial("consensus_mc", "model", lambda m: call(*(abs(u) for u in line()), 1.0), label="prior_scale=1.0"),
    tutorial("consensus_mc", "model", lambda m: call(*(abs(u) for u in line()), 0.25), label="prior_scale=0.25"),
    tutorial("discrete_imputation", "ccmodel", lambda m: call(*regression(30, 2)[0].T, regression(30)[1])),
    *whole(tutorial, "discrete_imputation", "impmodel", imputed),
    *whole(tutorial, "discrete_imputation", "impmissmodel", imputed),
    tutorial(
        "effect_handlers",
        lambda m: condition(m.linear_model, data={"obs": line()[1]}),
        lambda m: call(line()[0]),
        label="conditioned_linear_model",
    ),
    *whole(tutorial, "effect_handlers", "model_with_param", lambda m: call(0.5), label="one value"),
    tutorial("effect_handlers", "model_with_param", lambda m: call(jnp.asarray(rng().normal(size=20)))),
    tutorial(
        "effect_handlers",
        lambda m: _lifted(m.model_with_param),
        lambda m: call(jnp.asarray(rng().normal(size=20))),
        label="lifted_model",
    ),
    *whole(tutorial, "effect_handlers", "composed_model", lambda m: call()),
    *whole(tutorial, "effect_handlers", "simple_obs_model", lambda m: call()),
    *whole(tutorial, "effect_handlers", "model_for_mask", lambda m: call()),
    *whole(tutorial, "effect_handlers", "causal_chain", lambda m: call(1.0)),
    *whole(
        tutorial,
        "effect_handlers",
        lambda m: do(m.causal_chain, data={"z": 5.0}),
        lambda m: call(1.0),
        label="intervened_model",
    ),
    tutorial("effect_handlers", "email_causal_model", emails),
    tutorial("effect_handlers", "eight_schools", schools),
    tutorial(
        "effect_handlers",
        lambda m: reparam(m.eight_schools, config={"theta": LocScaleReparam(centered=0)}),
        schools,
        label="reparam_eight_schools",
    ),
    *whole(tutorial, "gmm", "model", lambda m: call(jnp.array([0.0, 1.0, 10.0, 11.0, 12.0])), given={"K": 2}),
    tutorial("hsgp_example", "model", lambda m: call(GRID, 1.3, 6, True, y=WAVE), label="non-centred"),
    tutorial("hsgp_example", "model", lambda m: call(GRID, 1.3, 6, False, y=WAVE), label="centred"),
    *whole(
        tutorial,
        "hsgp_nd_example",
        lambda m: m.GPModel(jnp.asarray(PLANE), jnp.asarray(PLANE_VALUES)).model,
        lambda m: call(),
        label="GPModel",
    ),
    tutorial(
        "hsgp_nd_example",
        lambda m: m.HSGPModel(3, 1.5).model,
        lambda m: call(jnp.asarray(PLANE), jnp.asarray(PLANE_VALUES)),
        label="HSGPModel",
    ),
    tutorial(
        "logistic_regression", "model", lambda m: call(*map(jnp.asarray, regression(60, 4, "binary"))), given={"dim": 4}
    ),
    *whole(tutorial, "lotka_volterra_multiple", "model", populations),
    tutorial("model_rendering", "model", lambda m: call(jnp.ones(10)), which=0),
    tutorial("model_rendering", "model", lambda m: call(jnp.ones(10)), which=1, label="with parameters"),
    tutorial("model_rendering", "model", lambda m: call(jnp.ones(10)), which=2, label="with a deterministic site"),
    *whole(tutorial, "model_rendering", "model", lambda m: call(), which=4, label="overlapping plates"),
    tutorial("ordinal_regression", "model1", classes(3)),
    tutorial("ordinal_regression", "model2", classes(3)),
    tutorial("ordinal_regression", "model3", classes(3)),
    tutorial("ordinal_regression", "model4", classes(3, jnp.ones(3) * 10.0)),
    tutorial("other_samplers", "model", lambda m: call(*line())),
    *whole(
        tutorial,
        "time_series_forecasting",
        "sgt",
        lambda m: call(jnp.asarray(100 + 10 * rng().uniform(size=12)), seasonality=4),
    ),
    tutorial("truncated_distributions", "truncated_normal_model", lambda m: call(32, 0.7, -np.abs(WAVE)), which=0),
    tutorial("truncated_distributions", "truncated_soft_laplace_model", lambda m: call(32, 2.3, WAVE)),
    tutorial("truncated_distributions", "folded_student_model", lambda m: call(32, np.abs(WAVE))),
    tutorial(
        "truncated_distributions",
        "truncated_normal_model",
        lambda m: call(32, WAVE),
        which=1,
        keep=("right_extended_real",),
        label="unknown end",
        num_samples=16_000,  # the end cannot pass the largest row: the host has 570 effective draws of 32,000
    ),
    tutorial(
        "truncated_distributions",
        "truncated_normal_model_2",
        lambda m: call(32, WAVE),
        keep=("right_extended_real",),
    ),
    *whole(
        tutorial,
        "truncated_distributions",
        "truncated_poisson_model",
        lambda m: call(20, jnp.asarray(2 + rng().poisson(2, 20)), k=3),
    ),
    tutorial(
        "truncated_distributions",
        lambda m: condition(m.truncated_poisson_model, {"low": 2}),
        lambda m: call(20, jnp.asarray(2 + rng().poisson(2, 20))),
        label="model_with_known_low",
    ),
    *whole(tutorial, "variationally_inferred_parameterization", "german_credit", lambda m: call(), given=CREDIT),
    *whole(
        tutorial,
        "variationally_inferred_parameterization",
        lambda m: m.german_credit_reparam(0.5),
        lambda m: call(),
        given=CREDIT,
        label="reparam_model",
    ),
]


def _lifted(model):
    import numpyro.distributions as dist

    return lift(model, prior={"s": dist.Exponential(1.0)})


CASES = EXAMPLES + TUTORIALS
