"""Twelve posteriors of posteriordb, each written once for both packages from its Stan definition.

Data and reference moments are in ``data/posteriordb``; those of ``diamonds``, which are large, are looked for in
``posteriordb`` under the directory that SPLIT_MCMC_DATA names. ``garch11`` and ``lotka_volterra`` cannot be divided:
each row rests on those before it. Three things differ from the Stan programs, none of them in
the posterior:

* rows are prepared outside the model (logarithms, lags, products), so that they can be divided;
* in the regressions but ``ar_k`` and ``diamonds``, of coefficients b, w = R b is sampled, with X = QR the design matrix
  and the columns of Q of squared length N. A flat prior stays flat under a linear map and a normal one normal, so the
  draws of b = R⁻¹ w follow the same posterior, and w is nearly uncorrelated;
* in them w is sampled about its least-squares estimate and in units of the residuals' standard deviation.
  XHMC looks at zᵀp, which swings the wider the further z is from 0 for its scale: a hundred standard deviations
  off, its trees grow far longer than needed.

``mask(False)`` sets a log density to 0: the flat prior over a distribution's support, in both packages.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from split_common.datasets import data_directory

DATA = Path(__file__).parent / "data" / "posteriordb"
Draws = dict[str, np.ndarray]


class Posterior(NamedTuple):
    """A model with reference moments.

    Attributes:
        model: for a backend, a model of the data, whose likelihood is in ``plate("data", N)``.
        data: its arguments, arrays of N rows.
        parameters: from draws of the model's sites, shape (chains, draws, ...), to draws of Stan's parameters.
        reference: for each of Stan's parameters, ``mean``, ``sd`` and ``mcse_mean`` of the reference draws.
    """

    model: Callable[[Any], Callable[..., None]]
    data: tuple[np.ndarray, ...]
    parameters: Callable[[Draws], Draws]
    reference: dict[str, dict[str, float]]


def kidscore_interaction() -> Posterior:
    """kidiq: test score of 434 children by mother's schooling and IQ; flat coefficients, sigma ~ Cauchy⁺(0, 2.5)."""
    data, reference = _load("kidiq-kidscore_interaction")
    hs, iq = data["mom_hs"], data["mom_iq"]
    X = np.stack([np.ones_like(iq), hs, iq, hs * iq], axis=1)
    return _regression(X, data["kid_score"], _cauchy_scale, reference)


def logmesquite_logvash() -> Posterior:
    """mesquite: log weight of the leaves of 46 bushes by five measurements; everything flat, sigma on (0, ∞)."""
    data, reference = _load("mesquite-logmesquite_logvash")
    d1, d2, height = data["diam1"], data["diam2"], data["total_height"]
    volume, area, shape = np.log(d1 * d2 * data["canopy_height"]), np.log(d1 * d2), np.log(d1 / d2)
    X = np.stack([np.ones_like(d1), volume, area, shape, np.log(height), data["group"]], axis=1)
    return _regression(X, np.log(data["weight"]), _flat_scale, reference)


def kidscore_momiq() -> Posterior:
    """kidiq: test score of 434 children by mother's IQ; flat coefficients, sigma ~ Cauchy⁺(0, 2.5)."""
    data, reference = _load("kidiq-kidscore_momiq")
    X = np.stack([np.ones_like(data["mom_iq"]), data["mom_iq"]], axis=1)
    return _regression(X, data["kid_score"], _cauchy_scale, reference)


def logearn_interaction_z() -> Posterior:
    """earnings: log earnings of 1,192 adults by standardised height and sex; everything flat, sigma on (0, ∞)."""
    data, reference = _load("earnings-logearn_interaction_z")
    height, male = data["height"], data["male"]
    z = (height - height.mean()) / height.std(ddof=1)
    X = np.stack([np.ones_like(z), z, male, z * male], axis=1)
    return _regression(X, np.log(data["earn"]), _flat_scale, reference)


def nes() -> Posterior:
    """nes1980: party of 701 voters, 1 to 7, by six traits, age in four groups; everything flat, sigma on (0, ∞)."""
    data, reference = _load("nes1980-nes")
    ages = [data["age_discrete"] == group for group in (2, 3, 4)]
    others = [data[key] for key in ("educ1", "gender", "income")]
    X = np.stack([np.ones(len(ages[0])), data["real_ideo"], data["race_adj"], *ages, *others], axis=1)
    return _regression(X, data["partyid7"], _flat_scale, reference)


def blr() -> Posterior:
    """sblrc: linear regression of 100 simulated rows on five columns; beta ~ N(0, 10), sigma ~ N⁺(0, 10)."""
    data, reference = _load("sblrc-blr")

    def scale(lib, unit):
        return lib.dist.HalfNormal(lib.array(10.0 / unit))

    return _regression(data["X"], data["y"], scale, reference, beta_sd=10.0)


def ar_k() -> Posterior:
    """arK: autoregression of order 5 on 195 time points; alpha, beta ~ N(0, 10), sigma ~ Cauchy⁺(0, 2.5)."""
    data, reference = _load("arK-arK")
    y, order = data["y"], int(data["K"])
    lags = np.stack([y[order - k : -k] for k in range(1, order + 1)], axis=1)

    def build(lib):
        def model(lags, y):
            alpha = lib.ppl.sample("alpha", lib.dist.Normal(lib.array(0.0), 10.0))
            beta = lib.ppl.sample("beta", lib.dist.Normal(lib.array(np.zeros(order)), 10.0).to_event(1))
            sigma = lib.ppl.sample("sigma", lib.dist.HalfCauchy(lib.array(2.5)))
            with lib.ppl.plate("data", y.shape[0]):
                lib.ppl.sample("y", lib.dist.Normal(alpha + lags @ beta, sigma), obs=y)

        return model

    def parameters(draws):
        return {"alpha": draws["alpha"], "sigma": draws["sigma"], **_numbered("beta", draws["beta"])}

    return Posterior(build, (lags, y[order:]), parameters, reference)


def eight_schools_noncentered() -> Posterior:
    """eight_schools: theta = mu + tau N(0, 1), mu ~ N(0, 5), tau ~ Cauchy⁺(0, 5); a latent with an entry per row."""
    data, reference = _load("eight_schools-eight_schools_noncentered")

    def build(lib):
        def model(y, sigma):
            mu = lib.ppl.sample("mu", lib.dist.Normal(lib.array(0.0), 5.0))
            tau = lib.ppl.sample("tau", lib.dist.HalfCauchy(lib.array(5.0)))
            with lib.ppl.plate("data", 8):
                theta_trans = lib.ppl.sample("theta_trans", lib.dist.Normal(lib.array(0.0), 1.0))
                lib.ppl.sample("y", lib.dist.Normal(theta_trans * tau + mu, sigma), obs=y)

        return model

    def parameters(draws):
        mu, tau = draws["mu"], draws["tau"]
        return {"mu": mu, "tau": tau, **_numbered("theta", draws["theta_trans"] * tau[..., None] + mu[..., None])}

    return Posterior(build, (data["y"], data["sigma"]), parameters, reference)


def diamonds() -> Posterior:
    """diamonds: log price of 5,000 diamonds on 24 columns, centred; b ~ N(0, 1), Intercept ~ t(3, 8, 10), sigma t⁺."""
    data, reference = _load("diamonds-diamonds")
    X = data["X"][:, 1:] - data["X"][:, 1:].mean(0)

    def build(lib):
        def model(X, y):
            b = lib.ppl.sample("b", lib.dist.Normal(lib.array(np.zeros(24)), 1.0).to_event(1))
            three, ten = lib.array(3.0), lib.array(10.0)
            intercept = lib.ppl.sample("Intercept", lib.dist.StudentT(three, lib.array(8.0), ten))
            sigma = lib.ppl.sample("sigma", lib.dist.HalfNormal(ten).mask(False))
            lib.ppl.factor("sigma_prior", lib.dist.StudentT(three, 0.0, ten).log_prob(sigma))
            with lib.ppl.plate("data", y.shape[0]):
                lib.ppl.sample("y", lib.dist.Normal(intercept + X @ b, sigma), obs=y)

        return model

    def parameters(draws):
        return {"Intercept": draws["Intercept"], "sigma": draws["sigma"], **_numbered("b", draws["b"])}

    return Posterior(build, (X, data["Y"]), parameters, reference)


def low_dim_gauss_mix() -> Posterior:
    """low_dim_gauss_mix: 1,000 draws of two normals; ordered mu ~ N(0, 2), sigma ~ N⁺(0, 2), theta ~ Beta(5, 5)."""
    data, reference = _load("low_dim_gauss_mix-low_dim_gauss_mix")

    def build(lib):
        def model(y):
            two = lib.array(2.0)
            first = lib.ppl.sample("first", lib.dist.Normal(lib.array(0.0), two))
            gap = lib.ppl.sample("gap", lib.dist.HalfNormal(lib.array(1.0)).mask(False))
            lib.ppl.factor("second_prior", lib.dist.Normal(lib.array(0.0), two).log_prob(first + gap))
            sigma = lib.ppl.sample("sigma", lib.dist.HalfNormal(lib.array([2.0, 2.0])).to_event(1))
            theta = lib.ppl.sample("theta", lib.dist.Beta(lib.array(5.0), lib.array(5.0)))
            weights = lib.dist.Categorical(probs=lib.np.stack([theta, 1 - theta]))
            parts = lib.dist.Normal(lib.np.stack([first, first + gap]), sigma)
            with lib.ppl.plate("data", y.shape[0]):
                lib.ppl.sample("y", lib.dist.MixtureSameFamily(weights, parts), obs=y)

        return model

    def parameters(draws):
        mu = np.stack([draws["first"], draws["first"] + draws["gap"]], -1)
        return {"theta": draws["theta"], **_numbered("mu", mu), **_numbered("sigma", draws["sigma"])}

    return Posterior(build, (data["y"],), parameters, reference)


def garch11() -> Posterior:
    """garch: 200 returns whose variance rests on the last one; everything flat, alpha1 + beta1 < 1."""
    data, reference = _load("garch-garch11")
    lag = np.subtract.outer(np.arange(199.0), np.arange(199.0))

    def build(lib):
        def model(y):
            mu = lib.ppl.sample("mu", lib.dist.Normal(lib.array(0.0), 1.0).mask(False))
            alpha0 = lib.ppl.sample("alpha0", lib.dist.HalfNormal(lib.array(1.0)).mask(False))
            alpha1 = lib.ppl.sample("alpha1", lib.dist.Uniform(lib.array(0.0), 1.0))
            share = lib.ppl.sample("share", lib.dist.Uniform(lib.array(0.0), 1.0))
            lib.ppl.factor("flat_beta1", lib.np.log(1 - alpha1))
            # variance t is beta1^t sigma1² + the sum over s < t of beta1^(t-1-s) (alpha0 + alpha1 (y_s - mu)²)
            log_beta1 = lib.np.log(share) + lib.np.log(1 - alpha1)
            decay = lib.np.exp(log_beta1 * lib.array(np.maximum(lag, 0.0))) * lib.array((lag >= 0) * 1.0)
            first = data["sigma1"] ** 2 * lib.np.exp(log_beta1 * lib.array(np.arange(1.0, 200.0)))
            later = first + decay @ (alpha0 + alpha1 * (y[:-1] - mu) ** 2)
            variance = lib.np.concatenate([lib.array([float(data["sigma1"] ** 2)]), later])
            with lib.ppl.plate("data", 200):
                lib.ppl.sample("y", lib.dist.Normal(mu, lib.np.sqrt(variance)), obs=y)

        return model

    def parameters(draws):
        beta1 = draws["share"] * (1 - draws["alpha1"])
        return {"beta1": beta1, **{name: draws[name] for name in ("mu", "alpha0", "alpha1")}}

    return Posterior(build, (data["y"],), parameters, reference)


def lotka_volterra() -> Posterior:
    """hudson_lynx_hare: pelts of hares and lynxes over 20 years by the Lotka-Volterra equations; NumPyro only.

    Runge-Kutta steps of a tenth of a year take Pyro's eager operations a fifth of a second a gradient.
    """
    data, reference = _load("hudson_lynx_hare-lotka_volterra")

    def build(lib):
        from jax import lax

        def model(y, y_init):
            theta = lib.ppl.sample(
                "theta",
                lib.dist.TruncatedNormal(
                    lib.array([1.0, 0.05, 1.0, 0.05]), lib.array([0.5, 0.05, 0.5, 0.05]), low=0.0
                ).to_event(1),
            )
            z_init = lib.ppl.sample("z_init", lib.dist.LogNormal(np.log(10.0) * lib.np.ones(2), 1.0).to_event(1))
            sigma = lib.ppl.sample("sigma", lib.dist.LogNormal(-lib.np.ones(2), 1.0).to_event(1))

            def rate(z):
                return lib.np.stack([(theta[0] - theta[1] * z[1]) * z[0], (theta[3] * z[0] - theta[2]) * z[1]])

            def step(z, _):
                k1 = rate(z)
                k2 = rate(z + 0.05 * k1)
                k3 = rate(z + 0.05 * k2)
                return z + 0.1 / 6 * (k1 + 2 * k2 + 2 * k3 + rate(z + 0.1 * k3)), None

            def year(z, _):
                z = lax.scan(step, z, None, length=10)[0]
                return z, z

            z = lax.scan(year, z_init, None, length=20)[1]
            lib.ppl.sample("y_init", lib.dist.LogNormal(lib.np.log(z_init), sigma).to_event(1), obs=y_init)
            with lib.ppl.plate("data", 20):
                lib.ppl.sample("y", lib.dist.LogNormal(lib.np.log(z), sigma).to_event(1), obs=y)

        return model

    def parameters(draws):
        return {k: v for name in ("theta", "z_init", "sigma") for k, v in _numbered(name, draws[name]).items()}

    return Posterior(build, (data["y"], data["y_init"]), parameters, reference)


def _regression(
    X: np.ndarray,
    y: np.ndarray,
    sigma_prior: Callable[[Any, float], Any],
    reference: dict[str, dict[str, float]],
    beta_sd: float | None = None,
) -> Posterior:
    """y ~ N(X beta, sigma), with beta ~ N(0, beta_sd) or flat."""
    Q, R = np.linalg.qr(X)
    Q, R = Q * len(y) ** 0.5, R / len(y) ** 0.5
    centre = Q.T @ y / len(y)
    unit = float(np.std(y - Q @ centre))

    def w_prior(lib):
        if beta_sd is None:
            return lib.dist.Normal(lib.array(np.zeros(Q.shape[1])), 1.0).to_event(1).mask(False)
        scale_tril = np.linalg.cholesky(R @ R.T) * beta_sd / unit
        return lib.dist.MultivariateNormal(lib.array(-centre / unit), scale_tril=lib.array(scale_tril))

    def build(lib):
        def model(Q, y):
            w = lib.ppl.sample("w", w_prior(lib))
            sigma = lib.ppl.sample("sigma", sigma_prior(lib, unit))
            with lib.ppl.plate("data", y.shape[0]):
                lib.ppl.sample("y", lib.dist.Normal(Q @ w, sigma), obs=y)

        return model

    def parameters(draws):
        w = centre + draws["w"] * unit
        return {"sigma": draws["sigma"] * unit, **_numbered("beta", w @ np.linalg.inv(R).T)}

    return Posterior(build, (Q, (y - Q @ centre) / unit), parameters, reference)


def _cauchy_scale(lib, unit: float):
    """Cauchy⁺(0, 2.5), in this unit."""
    return lib.dist.HalfCauchy(lib.array(2.5 / unit))


def _flat_scale(lib, unit: float):
    """Flat on (0, ∞), in any unit."""
    return lib.dist.HalfNormal(lib.array(1.0)).mask(False)


def _numbered(name: str, draws: np.ndarray) -> Draws:
    """Components under Stan's names, counted from 1."""
    return {f"{name}[{i + 1}]": draws[..., i] for i in range(draws.shape[-1])}


def _load(name: str) -> tuple[dict[str, np.ndarray], dict[str, dict[str, float]]]:
    path = DATA / f"{name}.json"
    if not path.exists():
        path = data_directory() / "posteriordb" / f"{name}.json"
    content = json.loads(path.read_text())
    return {key: np.asarray(value, dtype=float) for key, value in content["data"].items()}, content["reference"]
