"""Does a kernel with nothing but ``num_subsets`` given arrive where the host's NUTS does, and at what price?

``python -m benchmarks.arrival numpyro`` (or ``pyro``) runs four chains of 300 warm-up iterations and 500 draws from the
host's own starting points, of the host's NUTS and of ours at M = 4, on eleven posteriors of posteriordb (where they do
not divide, at M = 1) and ten that are badly scaled or hierarchical, and prints for each the largest R-hat, the fewest
effective draws, the largest |z| of means and standard deviations against the host's run (standard errors of both),
gradients (in data passes, warm-up included) over the host's, and what the report calls trouble; ``S3HMC`` where a
precision scales weights. ``--only NAME`` takes some targets (``diamonds`` is the twelfth of posteriordb: its data are
looked for in the directory that SPLIT_MCMC_DATA names), ``--kernels NAME`` some kernels, ``--seeds`` some seeds;
``--json FILE`` keeps the results, each a list by seed.
"""

from __future__ import annotations

import argparse
import functools
import json
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import arviz as az
import numpy as np

from tests import posteriordb_models
from tests.backends import NumPyroBackend, PyroBackend

NUM_WARMUP, NUM_DRAWS, NUM_CHAINS, NUM_SUBSETS = 300, 500, 4, 4
MOMENTS: dict[str, Callable[..., Any]] = {"mean": np.mean, "sd": np.std}
KERNELS = ("SymmetricSplitHMC", "SplitNUTS", "S3HMC")
NO_WEIGHTS = "the model must have weights with a precision"  # of which S3HMC says that it does not apply
POSTERIORDB = (
    *("kidscore_interaction", "ar_k", "logmesquite_logvash", "eight_schools_noncentered", "kidscore_momiq"),
    *("logearn_interaction_z", "nes", "blr", "low_dim_gauss_mix", "garch11", "lotka_volterra"),
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


class Run(NamedTuple):
    """Draws by site, shape (chains, draws, ...), gradients in data passes, and what is in trouble."""

    draws: dict[str, np.ndarray]
    passes: float
    trouble: list[str]


def run_numpyro(
    make: Callable[[], Any], args: tuple[Any, ...], num_subsets: int | None, seeds: Sequence[int]
) -> list[Run]:
    """Runs of NumPyro's, one for each seed."""
    import jax
    from numpyro.infer import MCMC

    jax.clear_caches()  # of compiled programs a process can hold only so many
    kernel = make()
    sizes = {"num_warmup": NUM_WARMUP, "num_samples": NUM_DRAWS, "num_chains": NUM_CHAINS}
    mcmc = MCMC(kernel, **sizes, chain_method="vectorized", progress_bar=False)
    field = "num_steps" if num_subsets is None else "num_grads"
    runs = []
    for seed in seeds:
        mcmc.warmup(jax.random.key(seed), *args, collect_warmup=True, extra_fields=(field,))
        spent = np.asarray(mcmc.get_extra_fields()[field]).sum()
        mcmc.run(jax.random.key(seed + 100), *args, extra_fields=(field,))
        spent = spent + np.asarray(mcmc.get_extra_fields()[field]).sum()
        draws = {name: np.asarray(x) for name, x in mcmc.get_samples(group_by_chain=True).items()}
        trouble = [] if num_subsets is None else [c.name for c in kernel.report(mcmc).trouble]
        runs.append(Run(draws, float(spent) / (num_subsets or 1), trouble))
        mcmc.post_warmup_state = None
    return runs


def run_pyro(
    make: Callable[[], Any], args: tuple[Any, ...], num_subsets: int | None, seeds: Sequence[int]
) -> list[Run]:
    """Runs of Pyro's, one for each seed; the host's gradients are counted by a hook."""
    import pyro
    from pyro.infer import MCMC

    spent = [0.0]

    def counted(build: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any) -> Any:
            spent[0] += 1
            return build(*args)

        return count

    def count(kernel: Any, *_: Any) -> None:
        spent[0] += kernel._chain.state.num_grads

    hook = None if num_subsets is None else count
    runs = []
    for seed in seeds:
        draws, trouble, spent[0] = [], [], 0.0
        for chain in range(NUM_CHAINS):
            pyro.set_rng_seed(seed * 100 + chain)
            kernel = make()  # the host's is for one run
            if num_subsets is None:
                kernel._build_basetree = counted(kernel._build_basetree)  # one gradient each
            mcmc = MCMC(kernel, NUM_DRAWS, NUM_WARMUP, disable_progbar=True, hook_fn=hook)
            mcmc.run(*args)
            draws.append(mcmc.get_samples())
            trouble += [] if num_subsets is None else [c.name for c in kernel.report(mcmc).trouble]
        joined = {name: np.stack([d[name].numpy() for d in draws]) for name in draws[0]}
        runs.append(Run(joined, spent[0] / (num_subsets or 1), sorted(set(trouble))))
    return runs


def compare(ours: Run, host: Run) -> dict[str, Any]:
    """R-hat and effective draws of a run, and its moments against the host's."""
    rhat, ess, z = [], [], []
    for name in host.draws:
        a, b = (x.draws[name].reshape(NUM_CHAINS, NUM_DRAWS, -1) for x in (ours, host))
        for i in range(a.shape[-1]):
            if np.ptp(b[:, :, i]) == 0:
                continue
            rhat.append(float(az.rhat(a[:, :, i])))
            ess.append(float(az.ess(a[:, :, i])))
            for method, moment in MOMENTS.items():
                errors = [float(az.mcse(x[:, :, i], method=method)) for x in (a, b)]
                z.append(abs(float(moment(a[:, :, i])) - float(moment(b[:, :, i]))) / float(np.hypot(*errors)))
    return {
        "rhat": round(max(rhat), 4),
        "ess": round(min(ess)),
        "z": 0.0 if ours is host else round(max(z), 2),
        "passes": round(ours.passes / host.passes, 3),
        "trouble": ours.trouble,
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", choices=["numpyro", "pyro"])
    parser.add_argument("--only", nargs="*", default=[*POSTERIORDB, *OURS])
    parser.add_argument("--kernels", nargs="*", choices=KERNELS, default=KERNELS)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    is_numpyro = options.package == "numpyro"
    lib = NumPyroBackend() if is_numpyro else PyroBackend()
    lib.set_precision(64)
    run = run_numpyro if is_numpyro else run_pyro
    if is_numpyro:
        from numpyro.infer import NUTS
    else:
        from pyro.infer import NUTS
    found: dict[str, dict[str, Any]] = {}
    for name in options.only:
        if not is_numpyro and name in NUMPYRO_ONLY:
            continue
        target = target_of(name)
        model, args = target.model(lib), tuple(lib.array(x) for x in target.data)
        host = run(functools.partial(NUTS, model), args, None, options.seeds)
        rows = {"host NUTS": [compare(run, run) for run in host]}
        for kernel in options.kernels:
            num_subsets = 1 if name in UNDIVIDED else min(NUM_SUBSETS, len(target.data[0]))
            make = functools.partial(getattr(lib.split, kernel), model, num_subsets=num_subsets)
            try:
                ours = run(make, args, num_subsets, options.seeds)
            except ValueError as error:
                if not str(error).startswith(NO_WEIGHTS):
                    raise
            else:
                rows[kernel] = [compare(*pair) for pair in zip(ours, host, strict=True)]
        found[name] = rows
        for kernel, by_seed in rows.items():
            for row in by_seed:
                print(f"{name:<30}{kernel:<20}{json.dumps(row)}", flush=True)
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"package": options.package, "seeds": options.seeds, "targets": found}, file, indent=1)


if __name__ == "__main__":
    main()
