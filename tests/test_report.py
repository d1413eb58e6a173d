"""Reports of finished runs: what is in trouble is said, with what to do, and nothing else is."""

import importlib
import re

import numpy as np
import pytest

from split_common.report import Report, note_free_sites
from split_common.runs.elpd import waic
from tests.backends import NumPyroBackend
from tests.kernels import TABLE, small

DRAWS = 400


@pytest.fixture(scope="module")
def rng():
    return np.random.default_rng(0)


def run_of(draws, **statistics):
    """A run in ArviZ's format, of four chains that are fine unless told otherwise."""
    import arviz as az

    shape = next(iter(draws.values())).shape[:2]
    rng = np.random.default_rng(1)
    fine = {
        "diverging": np.zeros(shape, bool),
        "energy": rng.normal(size=shape),
        "n_steps": np.full(shape, 7),
        "acceptance_rate": np.full(shape, 0.8),
        "step_size": np.full(shape, 0.5),
        "lp": -rng.gamma(0.5, size=shape),
    }
    return az.from_dict(posterior=draws, sample_stats=fine | statistics)


def normal(*shape):
    return np.random.default_rng(2).normal(size=(4, DRAWS, *shape))


def stuck():
    draws = normal()
    draws[0] = 7.0
    return draws


def arriving(num_chains, by):
    """Log densities of chains of which the first comes from this many nats below in its first draws."""
    lp = -np.random.default_rng(3).gamma(1.0, size=(num_chains, DRAWS))
    lp[0] -= by * 0.5 ** np.arange(DRAWS)
    return lp


def drawn_slowly():
    return np.cumsum(normal(), axis=1)


SHAPE = (4, DRAWS)
TROUBLE = {
    "divergences": [{"diverging": np.arange(4 * DRAWS).reshape(SHAPE) == 5}, {"diverging": np.ones(SHAPE, bool)}],
    "E-BFMI": [{"energy": drawn_slowly()}, {"energy": np.linspace(0, 1, 4 * DRAWS).reshape(SHAPE)}],
    "arrival": [{"lp": arriving(4, 100.0)}, {"lp": arriving(1, 1e6) * np.ones((4, 1))}],
    "cut trajectories": [{"n_steps": np.full(SHAPE, 8192)}, {"n_steps": np.where(normal() > 0, 8192, 1)}],
    "depth limit": [
        {"reached_max_treedepth": np.ones(SHAPE, bool), "tree_depth": np.full(SHAPE, 10)},
        {"reached_max_treedepth": normal() > 0, "tree_depth": np.full(SHAPE, 3)},
    ],
    "noise": [
        {"chi2": np.full(SHAPE, 9.0), "num_batches": np.full(SHAPE, 20), "rows_touched": np.full(SHAPE, 20)},
        {"chi2": np.exp(2 * normal()), "num_batches": np.full(SHAPE, 8), "rows_touched": np.full(SHAPE, 20)},
    ],
    "acceptance": [
        {"acceptance_rate": np.full(SHAPE, 0.02)},
        {"acceptance_rate": np.full(SHAPE, 0.8) * np.array([1, 1, 1, 0.0])[:, None]},
    ],
    "step sizes": [
        {"step_size": np.full(SHAPE, 0.5) * np.array([1, 1, 1, 0.01])[:, None]},
        {"step_size": np.zeros(SHAPE)},
    ],
}
OF_DRAWS = {
    "R-hat": [
        {"a": stuck()},
        {"a": normal(), "b": normal(3) + np.array([0, 0, 1, 1])[:, None, None]},
        {"a": normal(100), "scale of a and b": stuck(), "b": normal(100)},  # 201 components
        {"a": normal(3000), "scale of a and b": stuck(), "b": normal(3000), "c": normal(2)},
        {f"a{i}": normal() for i in range(150)} | {"b": stuck()} | {f"c{i}": normal() for i in range(150)},
    ],
    "effective draws": [
        {"a": normal()[:, :8]},
        {"a": drawn_slowly(), "b": normal(2)},
        {"a": normal()[:, :3]},
        {"a": normal()[:, :1]},
        {"a": normal()[:1, :1]},
    ],
    "finite draws": [
        {"a": np.where(normal() > 3, np.nan, 1.0)},
        {"b": normal(), "a": normal(2) * np.inf},
        {"a": np.where(np.arange(300) == 1, np.nan, normal(300))},
        {"a": normal(), "always": np.full(SHAPE, np.inf)},
    ],
}


def test_what_is_fine_is_said_to_be_fine(recwarn):
    report = Report.of(run_of({"a": normal(), "w": normal(3, 2), "constant": np.ones((4, DRAWS))}), "SplitNUTS")
    assert not report.trouble, str(report)
    report.warn()
    assert not recwarn.list
    assert str(report).startswith("SplitNUTS: 4 chains of 400 draws\n")
    assert {"divergences", "E-BFMI", "R-hat", "effective draws"} <= set(report.table.index)
    assert report.table["is_fine"].all()


@pytest.mark.parametrize(
    ("is_harmonic", "text"),
    [
        (True, "drifts along a normal approximation"),
        (False, "drifts straight (the posterior was not found nearly normal, for which the metric's last window needs"),
    ],
)
def test_straight_drifts_are_not_said_to_be_the_fault_of_the_posterior_alone(is_harmonic, text):
    """A window of warm-up with too few draws cannot find a posterior to be nearly normal."""
    report = Report.of(run_of({"a": normal()}, harmonic_drift=np.full(SHAPE, is_harmonic)), "SplitHMC")
    assert text in str(report)
    assert ("needs 2 draws a parameter, 25 at least" in str(report)) is not is_harmonic


def test_a_number_of_steps_that_was_given_is_no_cut():
    report = Report.of(run_of({"a": normal()}, n_steps=np.full(SHAPE, 10_000)), "SplitHMC")
    assert not report.trouble, str(report)


@pytest.mark.parametrize("name", TROUBLE)
@pytest.mark.parametrize("which", [0, 1])
def test_trouble_of_statistics_is_said(name, which):
    report = Report.of(run_of({"a": normal()}, **TROUBLE[name][which]), "XHMC")
    assert name in [check.name for check in report.trouble], str(report)
    with pytest.warns(UserWarning, match=r"kernel\.report"):
        report.warn()


@pytest.mark.parametrize("by", [0.0, 5.0])
def test_a_start_in_the_posterior_is_no_trouble(by):
    """The lowest of 200 draws of a gamma distribution is at about 5 nats, and further down by chance."""
    lp = arriving(1, by) * np.ones((4, 1))
    for n in (DRAWS, 190):  # of fewer than 200 draws nothing is said
        report = Report.of(run_of({"a": normal()[:, :n]}, lp=lp[:, :n]), "SplitHMC")
        assert not report.trouble, str(report)
        assert ("arrival" in report.table.index) == (n == DRAWS)


@pytest.mark.parametrize("name", ["SymmetricSplitHMC", "SplitNUTS"])
@pytest.mark.parametrize(("start", "is_told"), [(30.0, True), (1.0, False)])
def test_draws_from_the_way_to_the_posterior_are_told(lib, name, start, is_told):
    """Of one chain of a standard normal, which is there after some ten draws: all else is fine.

    From 30 its standard deviation comes out well above 1.
    """

    def model(y):
        x = lib.ppl.sample("x", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        with lib.ppl.plate("data", y.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(0.0 * x + 0.0 * y, 1.0), obs=y)

    length = {"num_steps": 1} if name == "SymmetricSplitHMC" else {}
    kernel = getattr(lib.split, name)(model, num_subsets=2, step_size=0.6, adapt_step_size=False, **length)
    init = {"x": lib.array(start)}
    mcmc = lib.run(kernel, lib.array(np.zeros(4)), num_warmup=0, num_samples=DRAWS, init_params=init)
    report = kernel.report(mcmc)
    assert ("arrival" in [check.name for check in report.trouble]) == is_told, str(report)
    sd = float(lib.to_numpy(mcmc.get_samples()["x"]).std())
    assert (sd > 1.3) == is_told


@pytest.mark.parametrize(("name", "which"), [(name, i) for name, runs in OF_DRAWS.items() for i in range(len(runs))])
@pytest.mark.filterwarnings("ignore:(divide|invalid):RuntimeWarning")
def test_trouble_of_draws_is_said(name, which):
    draws = OF_DRAWS[name][which]
    with np.errstate(all="ignore"):
        report = Report.of(run_of(draws), "XHMC")
    assert name in [check.name for check in report.trouble], str(report)


def test_what_is_finite_is_judged_beside_what_is_not():
    report = Report.of(run_of({"a": stuck(), "b": np.full(SHAPE, np.nan)}), "XHMC")
    assert {"finite draws", "R-hat"} <= {check.name for check in report.trouble}


def test_one_chain_has_no_other_to_meet():
    """A drift is seen in its effective draws."""
    report = Report.of(run_of({"a": np.linspace(0, 9, DRAWS) + normal()[:1]}), "SplitHMC")
    assert not {"R-hat", "step sizes"} & set(report.table.index)
    assert "effective draws" in [check.name for check in report.trouble]


@pytest.mark.parametrize(
    ("num_chains", "name", "is_told"), [(4, "PenaltyMH", True), (1, "PenaltyMH", False), (4, "XHMC", False)]
)
def test_chains_from_one_reference_tell_of_no_other_mode(num_chains, name, is_told):
    estimates = {"chi2": np.zeros(SHAPE), "num_batches": np.full(SHAPE, 20), "rows_touched": np.full(SHAPE, 20)}
    estimates = {key: x[:num_chains] for key, x in estimates.items()} if name == "PenaltyMH" else {}
    report = Report.of(run_of({"a": normal()[:num_chains]}, **estimates), name)
    assert ("all start beside one reference" in str(report)) == is_told


def test_many_parameters_take_little_time():
    """Of more than some hundreds, some are looked at."""
    report = Report.of(run_of({"w": normal(5000)[:, :50]}), "SplitNUTS")
    assert "R-hat" in report.table.index


@pytest.mark.parametrize(
    "name",
    [
        "SymmetricSplitHMC",
        "PenaltyMH",
        *(pytest.param(name, marks=pytest.mark.contract) for name in ("SplitNUTS", "S3HMC", "SGLD")),
    ],
)
def test_a_run_is_reported(lib, name):
    problem = small(lib)
    kernel = TABLE[name].make(lib, problem.model)
    mcmc = lib.run(kernel, *problem.args, num_warmup=20, num_samples=20)
    report = kernel.report(mcmc)
    assert f"{name}: 1 chain of 20 draws" in str(report)
    assert "how the model divides: proved" in str(report)
    assert {"divergences", "effective draws"} <= set(report.table.index)
    assert ("acceptance" in report.table.index) == (name != "SGLD")  # which has no accept step
    assert ("cut trajectories" in report.table.index) == (name in ("SymmetricSplitHMC", "S3HMC"))
    assert ("noise" in report.table.index) == (name == "PenaltyMH")
    assert ("approximate draws: there is no accept step" in str(report)) == (name == "SGLD")
    assert "not of the posterior" not in str(report)
    with pytest.warns(UserWarning, match="effective draws"):
        lib.split.to_inference_data(mcmc)


def funnel(lib):
    """Neal's funnel: a scale that a chain at a step size of its middle diverges or creeps in."""

    def model(y):
        v = lib.ppl.sample("v", lib.dist.Normal(lib.array(0.0), lib.array(3.0)))
        x = lib.ppl.sample("x", lib.dist.Normal(lib.np.zeros(9), lib.np.exp(v / 2) * lib.np.ones(9)).to_event(1))
        with lib.ppl.plate("data", y.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(0.0 * x.sum() + 0.0 * y, 1.0), obs=y)

    return model, (lib.array(np.zeros(4)),)


@pytest.mark.parametrize("name", ["SymmetricSplitHMC", "SplitNUTS"])
def test_trouble_is_said_while_a_run_goes_on(lib, name):
    """Once, after 100 draws."""
    model, args = funnel(lib)
    kernel = getattr(lib.split, name)(model, num_subsets=2, step_size=20.0, adapt_step_size=False)
    with pytest.warns(UserWarning, match="of the first 100 draws") as caught:
        lib.run(kernel, *args, num_warmup=0, num_samples=105)
    assert sum("first 100 draws" in str(warning.message) for warning in caught) == 1


@pytest.mark.parametrize("lib", [NumPyroBackend], ids=["numpyro"], indirect=True)  # Pyro's MCMC has no thinning
@pytest.mark.parametrize("stored", [False, True])
def test_a_thinned_run_is_judged_by_all_its_iterations(lib, stored, tmp_path):
    """Of a thinned run the host keeps the statistics of every tenth iteration: trouble in the others would be lost."""
    model, args = funnel(lib)
    options = {"num_subsets": 2, "step_size": 2.0, "adapt_step_size": False}

    def report_of(thinning, path):
        kernel = lib.split.SplitNUTS(model, **options)
        mcmc = lib.mcmc(kernel, 0, 200, thinning=thinning)
        if stored:
            lib.sample(mcmc, *args, store=path)
            return Report.of(lib.split.open_store(path), "SplitNUTS").table
        lib.host_draws(mcmc, *args)
        return kernel.report(mcmc).table

    whole, thinned = report_of(1, tmp_path / "whole.zarr"), report_of(10, tmp_path / "thinned.zarr")
    assert whole["value"]["divergences"] == thinned["value"]["divergences"] > 0
    assert thinned["seen"]["divergences"].endswith("of all iterations since warm-up diverged")
    assert thinned["value"]["E-BFMI"] == pytest.approx(whole["value"]["E-BFMI"], rel=0.02)
    assert not thinned["is_fine"]["divergences"]


TEMPERED = {
    "PenaltyMH": ({"target": "expected"}, "the posterior with its likelihood to the power of n/N, n = 6"),
    "SGLD": ({"temperature": 0.5}, "the posterior to the power of 1/T, T = 0.5"),
}


@pytest.mark.parametrize("name", TEMPERED)
@pytest.mark.parametrize("stored", [False, True])
def test_another_target_than_the_posterior_is_named(lib, name, stored, tmp_path):
    """Means over such draws are not of the posterior, nor is an expected log predictive density."""
    options, target = TEMPERED[name]
    problem, path = small(lib), str(tmp_path / "run.zarr")
    kernel = TABLE[name].make(lib, problem.model, **options)
    mcmc = lib.mcmc(kernel, 20, 20)
    if stored:
        lib.sample(mcmc, *problem.args, store=path)
        log_likelihood = importlib.import_module(f"{lib.split.__name__}.runs.prediction").log_likelihood
        with pytest.warns(UserWarning, match="az.loo and az.waic take them for draws of the posterior"):
            found = log_likelihood(mcmc, lib.split.open_store(path), into=path)
        assert found.attrs["target"] == target
        for data in (path, found):
            with pytest.warns(UserWarning, match="this is no expected log predictive density of the posterior"):
                waic(data)
    else:
        lib.host_draws(mcmc, *problem.args)
        with pytest.warns(UserWarning, match=f"are of draws of {re.escape(target)}: az.loo and az.waic take"):
            lib.split.to_inference_data(mcmc, log_likelihood=True)
    run = lib.split.open_store(path) if stored else lib.split.to_inference_data(mcmc)
    assert run.posterior.attrs["target"] == target
    assert f"\n  draws of {target}, not of the posterior\n" in str(kernel.report(path if stored else mcmc))


def test_one_draw_has_no_change_of_energy():
    report = Report.of(run_of({"a": normal()[:1, :1]}), "SplitHMC")
    assert str(report).startswith("SplitHMC: 1 chain of 1 draw\n")
    assert "nan" not in str(report)


def test_a_run_before_it_was_made_is_an_error(lib):
    kernel = lib.split.SplitNUTS(lambda y: None)
    warmup = "num_warmup" if isinstance(lib, NumPyroBackend) else "warmup_steps"
    mcmc = importlib.import_module(f"{lib.ppl.__name__}.infer").MCMC(kernel, num_samples=1, **{warmup: 1})
    for ask in (kernel.report, lib.split.to_inference_data):
        with pytest.raises(ValueError, match="mcmc must have been run, got no draws"):
            ask(mcmc)


def test_a_run_of_another_kernel_is_an_error(lib):
    kernel = lib.split.SplitNUTS(lambda y: None)
    with pytest.raises(TypeError, match="mcmc must have been run with a kernel of this package, got one of object"):
        kernel.report(object())


def test_energies_that_are_no_numbers_are_trouble():
    report = Report.of(run_of({"a": normal()}, energy=np.where(normal() > 3, np.nan, normal())), "XHMC")
    assert [check.name for check in report.trouble] == ["E-BFMI"]


@pytest.mark.parametrize(("dtype", "level", "is_known"), [("f8", 2e7, True), ("f4", 1e5, True), ("f4", 2e7, False)])
def test_rounded_energies_have_no_bfmi(dtype, level, is_known):
    """Rounding raises E-BFMI (of independent errors it is 2), so that a low one looks fine."""
    slow = normal()
    for i in range(1, DRAWS):
        slow[:, i] = 0.9 * slow[:, i - 1] + np.sqrt(0.19) * slow[:, i]
    energy = (level + 2 * slow).astype(dtype)
    report = Report.of(run_of({"a": normal()}, energy=energy), "SplitNUTS")
    assert [check.name for check in report.trouble] == ["E-BFMI"] * is_known, str(report)
    assert "E-BFMI" in report.table.index or not is_known
    assert ("E-BFMI is not known unless it is low: single precision keeps these energies to 2 nats" in str(report)) is (
        not is_known
    )


@pytest.mark.parametrize("level", [0.0, 1e3, 2e7])
def test_sums_of_energies_are_those_of_the_energies_as_kept(level):
    import jax

    from numpyro_split.adaptation.health import Health

    energy = (level + 5 * normal()[0]).astype("f4")
    with jax.enable_x64(False):
        health = Health.none()
        for number in range(-2, DRAWS):
            health = jax.jit(Health.with_draw)(health, number + 1, energy[number], False)
    expected = np.sum(np.diff(energy.astype(float)) ** 2) / (DRAWS * np.var(energy.astype(float)))
    assert float(health.bfmi) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("stored", [False, True])
def test_a_latent_that_stands_still_is_told(lib, stored, tmp_path):
    """A number of 1e17 keeps no change below 8; zeros of a Cholesky factor are right, and so are constants."""

    def model(y):
        lib.ppl.sample("far", lib.dist.Normal(lib.array(1e17), lib.array(1e-4)))
        mu = lib.ppl.sample("mu", lib.dist.Normal(lib.array(0.0), lib.array(1.0)))
        lib.ppl.sample("L", lib.dist.LKJCholesky(3, concentration=lib.array(1.0)))
        lib.ppl.deterministic("one", lib.array(1.0))
        with lib.ppl.plate("data", y.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(mu, lib.array(1.0)), obs=y)

    kernel = lib.split.SymmetricSplitHMC(
        model, 2, step_size=0.3, num_steps=4, adapt_step_size=False, adapt_mass_matrix=False
    )
    start = {"far": lib.array(1e17), "mu": lib.array(0.0), "L": lib.array(np.zeros(3))}
    args, path = (lib.array(np.zeros(6)),), str(tmp_path / "run.zarr")
    if not stored:
        mcmc = lib.run(kernel, *args, num_warmup=5, num_samples=100, init_params=start)
    elif lib.name == "numpyro":
        mcmc = lib.mcmc(kernel, 5, 100)
        lib.sample(mcmc, *args, store=path, init_params=start)
    else:
        mcmc = lib.mcmc(kernel, 5, 100, initial_params=start)
        lib.sample(mcmc, *args, store=path)
    table = kernel.report(path if stored else mcmc).table
    assert table["seen"]["moving parameters"] == "far has one value in all draws"
    if not stored:
        lib.split.to_inference_data(mcmc).to_netcdf(str(tmp_path / "run.nc"))


def test_draws_without_known_latents_are_not_said_to_stand_still():
    """Of another package's run, or of a store made before latent sites were noted."""
    still = Report.of(run_of({"simplex": np.full((*SHAPE, 2), 0.5)}), "SplitNUTS").table  # nothing at all moves
    assert still["seen"]["moving parameters"] == "simplex[0] and 1 more have one value in all draws"
    draws = run_of({"x": np.ones(SHAPE), "y": normal()})
    assert "moving parameters" not in Report.of(draws, "SplitNUTS").table.index
    note_free_sites(draws["posterior"], {"x": 1, "y": 1, "z": 1})
    assert Report.of(draws, "SplitNUTS").table["seen"]["moving parameters"] == "x has one value in all draws"
    note_free_sites(draws["posterior"], {"x": 2, "y": 1})
    assert "moving parameters" not in Report.of(draws, "SplitNUTS").table.index
    several = run_of({"w": np.ones((*SHAPE, 2, 3))})
    note_free_sites(several["posterior"], None)
    seen = Report.of(several, "SplitNUTS").table["seen"]["moving parameters"]
    assert seen == "w[0, 0] and 5 more have one value in all draws"
