"""The targets: posteriors of posteriordb, and models that are hierarchical or badly scaled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tests import posteriordb_models

POSTERIORDB = (
    *("kidscore_interaction", "ar_k", "logmesquite_logvash", "eight_schools_noncentered", "kidscore_momiq"),
    *("logearn_interaction_z", "nes", "blr", "low_dim_gauss_mix", "garch11", "lotka_volterra", "diamonds"),
)
UNDIVIDED = ("garch11", "lotka_volterra")
NUMPYRO_ONLY = ("lotka_volterra",)


class Target(NamedTuple):
    """A model, of a backend, and its arguments."""

    model: Callable[[Any], Callable[..., None]]
    data: tuple[np.ndarray, ...]


def hierarchical_regression() -> Target:
    """Intercepts of about 2,500 and slopes by group, as in NumPyro's tutorial; 29 parameters."""
    rng = np.random.default_rng(0)
    group, week = rng.integers(0, 12, 600), rng.uniform(-5, 130, 600)
    y = rng.normal(2500, 300, 12)[group] + rng.normal(-6, 2, 12)[group] * week + rng.normal(0, 150, 600)

    def model(lib: Any) -> Callable[..., None]:
        def run(group: Any, week: Any, y: Any) -> None:
            mean_a = lib.ppl.sample("mean_a", lib.dist.Normal(lib.array(0.0), lib.array(500.0)))
            mean_b = lib.ppl.sample("mean_b", lib.dist.Normal(lib.array(0.0), lib.array(3.0)))
            scale_a = lib.ppl.sample("scale_a", lib.dist.HalfNormal(lib.array(100.0)))
            scale_b = lib.ppl.sample("scale_b", lib.dist.HalfNormal(lib.array(3.0)))
            one = lib.np.ones(12)
            a = lib.ppl.sample("a", lib.dist.Normal(mean_a * one, scale_a * one).to_event(1))
            b = lib.ppl.sample("b", lib.dist.Normal(mean_b * one, scale_b * one).to_event(1))
            scale = lib.ppl.sample("scale", lib.dist.HalfNormal(lib.array(100.0)))
            with lib.ppl.plate("data", y.shape[0]):
                lib.ppl.sample("y", lib.dist.Normal(a[group] + b[group] * week, scale), obs=y)

        return run

    return Target(model, (group, week, y))


def regression(X: np.ndarray, w: np.ndarray, noise: float, prior: float) -> Target:
    """Normal linear regression with a wide prior."""
    y = X @ w + noise * np.random.default_rng(1).normal(size=len(X))

    def model(lib: Any) -> Callable[..., None]:
        def run(X: Any, y: Any) -> None:
            zero = lib.np.zeros(X.shape[1])
            w = lib.ppl.sample("w", lib.dist.Normal(zero, zero + prior).to_event(1))
            scale = lib.ppl.sample("scale", lib.dist.HalfNormal(lib.array(10.0 * noise)))
            with lib.ppl.plate("data", X.shape[0]):
                lib.ppl.sample("y", lib.dist.Normal(X @ w, scale), obs=y)

        return run

    return Target(model, (X, y))


def wide_scales() -> Target:
    """Coefficients of sizes 10⁻², 1, 10² and 10⁴."""
    X = np.random.default_rng(2).normal(size=(400, 4)) / 10.0 ** np.array([-2, 0, 2, 4])
    return regression(X, 10.0 ** np.array([-2, 0, 2, 4]), 1.0, 1e5)


def narrow() -> Target:
    """An intercept of 1,000 known to 10⁻³."""
    X = np.stack([np.ones(400), np.random.default_rng(3).normal(size=400)], 1)
    return regression(X, np.array([1000.0, 1.0]), 0.02, 1e4)


def off_centre() -> Target:
    """A predictor of mean 50 and standard deviation 1: intercept and slope correlate by 0.9998."""
    x = np.random.default_rng(4).normal(50.0, 1.0, 400)
    return regression(np.stack([np.ones(400), x], 1), np.array([10.0, 2.0]), 1.0, 1e3)


def collinear() -> Target:
    """Eight predictors that correlate by 0.99."""
    rng = np.random.default_rng(5)
    X = np.sqrt(0.99) * rng.normal(size=(400, 1)) + 0.1 * rng.normal(size=(400, 8))
    return regression(X, np.ones(8), 1.0, 10.0)


def glm(distribution: str, X: np.ndarray, y: np.ndarray, prior: float = 2.0) -> Target:
    """A generalised linear model of a distribution of linear predictors."""

    def model(lib: Any) -> Callable[..., None]:
        def run(X: Any, y: Any) -> None:
            zero = lib.np.zeros(X.shape[1])
            w = lib.ppl.sample("w", lib.dist.Normal(zero, zero + prior).to_event(1))
            eta = X @ w
            made = lib.dist.Bernoulli(logits=eta) if distribution == "logistic" else lib.dist.Poisson(lib.np.exp(eta))
            with lib.ppl.plate("data", X.shape[0]):
                lib.ppl.sample("y", made, obs=y)

        return run

    return Target(model, (X, y))


def rare_events() -> Target:
    """Logistic regression, one row in fifty a 1."""
    rng = np.random.default_rng(6)
    X = np.concatenate([np.ones((2000, 1)), rng.normal(size=(2000, 4))], 1)
    y = (rng.random(2000) < 1 / (1 + np.exp(-(X @ np.array([-4.5, 0.5, -0.5, 0.5, 0.0]))))).astype(float)
    return glm("logistic", X, y)


def counts() -> Target:
    """Poisson regression with counts of some thousands."""
    rng = np.random.default_rng(7)
    X = np.concatenate([np.ones((300, 1)), 0.3 * rng.normal(size=(300, 3))], 1)
    return glm("poisson", X, rng.poisson(np.exp(X @ np.array([8.0, 1.0, -1.0, 0.5]))).astype(float), 10.0)


def varying_intercepts(is_centred: bool) -> Target:
    """Logistic regression with an intercept for each of twenty groups."""
    rng = np.random.default_rng(8)
    group, x = rng.integers(0, 20, 800), rng.normal(size=800)
    y = (rng.random(800) < 1 / (1 + np.exp(-(rng.normal(0, 1.5, 20)[group] + 0.7 * x)))).astype(float)

    def model(lib: Any) -> Callable[..., None]:
        def run(group: Any, x: Any, y: Any) -> None:
            mean = lib.ppl.sample("mean", lib.dist.Normal(lib.array(0.0), lib.array(2.0)))
            scale = lib.ppl.sample("scale", lib.dist.HalfNormal(lib.array(2.0)))
            slope = lib.ppl.sample("slope", lib.dist.Normal(lib.array(0.0), lib.array(2.0)))
            zero, one = lib.np.zeros(20), lib.np.ones(20)
            if is_centred:
                a = lib.ppl.sample("a", lib.dist.Normal(mean * one, scale * one).to_event(1))
            else:
                a = mean + scale * lib.ppl.sample("u", lib.dist.Normal(zero, one).to_event(1))
            with lib.ppl.plate("data", y.shape[0]):
                lib.ppl.sample("y", lib.dist.Bernoulli(logits=a[group] + slope * x), obs=y)

        return run

    return Target(model, (group, x, y))


def outliers() -> Target:
    """Regression with Student's t of unknown degrees of freedom."""
    rng = np.random.default_rng(9)
    X = np.concatenate([np.ones((300, 1)), rng.normal(size=(300, 3))], 1)
    y = X @ np.array([5.0, 1.0, -1.0, 0.0]) + rng.standard_t(3, 300)

    def model(lib: Any) -> Callable[..., None]:
        def run(X: Any, y: Any) -> None:
            zero = lib.np.zeros(X.shape[1])
            w = lib.ppl.sample("w", lib.dist.Normal(zero, zero + 10.0).to_event(1))
            scale = lib.ppl.sample("scale", lib.dist.HalfNormal(lib.array(5.0)))
            df = lib.ppl.sample("df", lib.dist.Gamma(lib.array(2.0), lib.array(0.1)))
            with lib.ppl.plate("data", X.shape[0]):
                lib.ppl.sample("y", lib.dist.StudentT(df, X @ w, scale), obs=y)

        return run

    return Target(model, (X, y))


OURS: dict[str, Callable[[], Target]] = {
    "hierarchical_regression": hierarchical_regression,
    "wide_scales": wide_scales,
    "narrow": narrow,
    "off_centre": off_centre,
    "collinear": collinear,
    "rare_events": rare_events,
    "counts": counts,
    "varying_intercepts_centred": lambda: varying_intercepts(True),
    "varying_intercepts_noncentred": lambda: varying_intercepts(False),
    "outliers": outliers,
}


def target_of(name: str) -> Target:
    """The target of a name."""
    if name in OURS:
        return OURS[name]()
    posterior = getattr(posteriordb_models, name)()
    return Target(posterior.model, posterior.data)
