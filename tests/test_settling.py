"""What warm-up settled on: noted in the state, carried to ArviZ's format, and in trouble where it still moved."""

import math
import warnings
from types import SimpleNamespace

import arviz as az
import numpy as np
import pytest

from split_common.exploration import FIRST_LENGTH
from split_common.fixed_length import LengthSettings
from split_common.report import Report
from split_common.settling import (
    METRIC_LIMIT,
    PREFIX,
    THRESHOLD_LIMIT,
    VALUE_LIMIT,
    LastWindow,
    Settled,
    put_settled,
    shrunk,
)
from tests.backends import NumPyroBackend
from tests.kernels import TABLE
from tests.test_report import DRAWS, normal, run_of

CHANGES = {
    "settled metric": ("metric_change", METRIC_LIMIT),
    "settled step size": ("step_size_change", VALUE_LIMIT),
    "settled trajectory length": ("trajectory_length_change", VALUE_LIMIT),
    "settled threshold": ("threshold_change", THRESHOLD_LIMIT),
}


def told(**settled):
    """A run that is fine otherwise, of which warm-up tells this."""
    run = run_of({"a": normal()})
    put_settled(run["sample_stats"], Settled(**settled))
    return run


@pytest.mark.parametrize("name", CHANGES)
def test_both_sides_of_the_limit(name):
    """The worst chain counts, and one that says nothing does not."""
    field, limit = CHANGES[name]
    for factor, is_fine in ((0.99, True), (1.01, False)):
        report = Report.of(told(**{field: [0.1, math.nan, math.log(limit * factor), 0.0]}), "XHMC")
        assert [check.name for check in report.trouble] == [name] * (not is_fine), str(report)
        assert name in report.table.index


@pytest.mark.parametrize(("length", "is_fine"), [(100.0, True), (103.0, False)])
def test_trees_that_were_cut_off(length, is_fine):
    """Each chain's length is in steps of its own size."""
    report = Report.of(told(step_size=[0.2, 0.8], trajectory_length=[length, 400.0]), "SymmetricSplitHMC")
    assert [check.name for check in report.trouble] == ["cut warm-up"] * (not is_fine), str(report)


@pytest.mark.parametrize(
    ("lengths", "step_size", "is_cut"),
    [
        ((0.0, 5.0), 0.0099, False),
        ((0.0, 5.0), 0.0097, True),
        ((0.0, FIRST_LENGTH), 1e-4, False),  # nothing was learned
        ((5.0, 5.0), 6.2e-4, False),
        ((5.0, 5.0), 6.0e-4, True),
    ],
)
def test_what_is_cut_short(lengths, step_size, is_cut):
    assert LengthSettings(None, lengths).is_cut_short(step_size) == is_cut


@pytest.mark.parametrize(("longest", "is_cut"), [(400.0, False), (500.0, True)])
def test_each_chain_of_a_batch_has_a_length_of_its_own(longest, is_cut):
    """Short steps of one chain say nothing of another's long trajectories."""
    import jax
    import jax.numpy as jnp

    from numpyro_split.trajectories.fixed_length import warn_if_cut_short

    proposal = LengthSettings(None, (0.0, jnp.array([5.0, longest])))
    adapted = SimpleNamespace(step_size=jnp.array([0.0125, 0.8]))
    state = SimpleNamespace(i=jnp.array([101, 101]), adapt_state=adapted)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_if_cut_short(state, 100, proposal)
        jax.effects_barrier()
    assert ["500" in str(warning.message) for warning in caught] == [True] * is_cut


def test_values_are_told_even_where_they_are_fine():
    values = {"step_size": [0.2, 0.25, 0.21, 0.2], "threshold": [0.03] * 4, "metric_change": [0.1] * 4}
    text = str(Report.of(told(**values), "XHMC"))
    assert "  warm-up settled on: step size 0.2 to 0.25, threshold 0.03\n" in text
    assert "trajectory length" not in text
    assert "fine: variances of the last window" in text


def test_what_a_run_does_not_tell_is_not_looked_at():
    report = Report.of(told(), "SplitNUTS")
    assert not report.settled
    assert "warm-up" not in str(report)
    assert not [name for name in report.table.index if name.startswith("settled")]


@pytest.mark.parametrize("num_chains", [1, 4])
def test_a_saved_run_tells_the_same(num_chains, tmp_path):
    """NetCDF makes a number of a list of one."""
    run = run_of({"a": normal()[:num_chains]})
    put_settled(run["sample_stats"], Settled(step_size=[0.2] * num_chains, metric_change=[2.0] * num_chains))
    run.to_netcdf(str(tmp_path / "run.nc"))
    assert str(Report.of(az.from_netcdf(str(tmp_path / "run.nc")), "XHMC")) == str(Report.of(run, "XHMC"))


def test_windows_too_short_to_tell():
    """Those of the hosts for warm-ups of 1, 19, 149 and 150 iterations."""
    for ends, num_warmup in (([1], 1), ([19], 19), ([22, 135, 149], 149)):
        window = LastWindow.of(ends, num_warmup, adapts_metric=True)
        assert (window.middle, window.end, window.num_of_metric) == (0, num_warmup, 0)
    assert LastWindow.of([75, 100, 150], 150, adapts_metric=True) == (100, 125, 150, 25)
    assert LastWindow.of([75, 100, 150], 150, adapts_metric=False) == (100, 125, 150, 0)


def normal_model(lib, *scales):
    """Independent normals of these standard deviations, under a likelihood that says nothing."""

    def model(y):
        zero, scale = lib.np.zeros(len(scales)), lib.array(np.array(scales))
        x = lib.ppl.sample("x", lib.dist.Normal(zero, scale).to_event(1))
        with lib.ppl.plate("data", y.shape[0]):
            lib.ppl.sample("y", lib.dist.Normal(0.0 * x.sum() + 0.0 * y, 1.0), obs=y)

    return model, lib.array(np.zeros(4))


def settled_of(lib, mcmc):
    """The attributes of a run of one chain."""
    attrs = lib.split.to_inference_data(mcmc).sample_stats.attrs
    return {name.removeprefix(PREFIX): value for name, value in attrs.items() if name.startswith(PREFIX)}


def test_what_a_state_does_not_know_is_nan_outside_of_it():
    """Inside it is no NaN, at which jax_debug_nans would stop; states that are stored with NaN say the same."""
    import jax
    import jax.numpy as jnp

    from numpyro_split.adaptation.settling import log_change, not_settled, told_by

    with jax.debug_nans(True):
        state = jax.jit(not_settled)()._replace(step_size=jnp.array(0.5), threshold=jnp.array(0.0))
        assert float(jax.jit(log_change)(jnp.array(1.0), state.step_size_change)) < 0
    told = told_by(state)
    assert (float(told.step_size), float(told.threshold)) == (0.5, 0.0)
    assert all(np.isnan(x) for name, x in told._asdict().items() if name not in ("step_size", "threshold"))
    assert float(log_change(jnp.array(1.0), jnp.array(jnp.nan))) < 0
    assert np.isnan(told_by(Settled(step_size=[jnp.nan])).step_size)


HEALTHY = {
    "SymmetricSplitHMC": {"step_size", "trajectory_length"},
    "XHMC adapted": {"step_size", "threshold"},
}


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.filterwarnings("ignore:.*effective draws")
def test_a_healthy_warmup_has_settled(lib, name):
    model, y = normal_model(lib, 1.0, 5.0, 0.2)
    kernel = TABLE[name].make(lib, model)
    mcmc = lib.run(kernel, y, num_warmup=300, num_samples=DRAWS)
    report = kernel.report(mcmc)
    assert not [check for check in report.trouble if check.name.startswith("settled")], str(report)
    expected = HEALTHY[name]
    assert set(settled_of(lib, mcmc)) == expected | {f"{field}_change" for field in expected} | {"metric_change"}
    step_size = settled_of(lib, mcmc)["step_size"]
    assert f"  warm-up settled on: step size {step_size[0]:.3g}, {max(expected).replace('_', ' ')} " in str(report)
    # steps of a trajectory of some length are shorter, so that their number is whole
    assert 0.5 * step_size[0] < lib.statistics(mcmc)["step_size"].max() <= 1.0001 * step_size[0]


@pytest.mark.filterwarnings("ignore")
def test_a_warmup_that_ended_on_the_way_has_not(lib):
    """Scales of 10⁻² and 1, a start 300 away, and trees of three steps at most."""
    model, y = normal_model(lib, 1e-2, 1.0, 1.0)
    kernel = lib.split.SplitNUTS(model, num_subsets=2, max_tree_depth=2, find_heuristic_step_size=False)
    start = {"x": lib.array(np.array([0.0, 300.0, -300.0]))}
    report = kernel.report(lib.run(kernel, y, num_warmup=150, num_samples=100, init_params=start))
    assert "settled metric" in [check.name for check in report.trouble], str(report)
    assert "make warm-up longer" in str(report)


def warmed_up(lib, kernel, y, num_warmup):
    """Draws of warm-up, the variances of the metric, and how far the state says that they changed."""
    if lib.name == "numpyro":
        from jax import random
        from numpyro.infer import MCMC

        mcmc = MCMC(kernel, num_warmup=num_warmup, num_samples=1, progress_bar=False)
        mcmc.warmup(random.key(0), y, collect_warmup=True)
        state = mcmc.last_state
        blocks, change = state.adapt_state.inverse_mass_matrix, state.settled.metric_change
        draws = mcmc.get_samples()["x"]
    else:
        seen = []

        def keep(kernel, z, stage, i):
            state = kernel._chain.state
            seen.append((z["x"].numpy(), state.adapt_state.inverse_mass_matrix, state.settled.metric_change))

        lib.run(kernel, y, num_warmup=num_warmup, num_samples=1, hook_fn=keep)
        draws = np.stack([x for x, _, _ in seen[:num_warmup]])
        _, blocks, change = seen[-1]
    metric = lib.to_numpy(next(iter(blocks.values())) if isinstance(blocks, dict) else blocks)
    return np.asarray(draws), np.diag(metric) if metric.ndim == 2 else metric, float(change)


@pytest.mark.parametrize("dense", [False, True])
def test_the_metric_is_compared_with_the_draws_of_the_last_window(lib, dense):
    """Pyro's windows end an iteration before NumPyro's."""
    model, y = normal_model(lib, 1.0, 5.0)
    word = "dense_mass" if lib.name == "numpyro" else "full_mass"
    kernel = lib.split.NaiveSplitHMC(model, num_steps=3, find_heuristic_step_size=False, **{word: dense})
    draws, metric, change = warmed_up(lib, kernel, y, 150)
    last = draws[100 if lib.name == "numpyro" else 99 :]
    expected = np.log(shrunk(last.var(axis=0, ddof=1), 25) / metric)
    assert change == pytest.approx(np.sqrt(np.mean(expected**2)), rel=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_what_does_not_adapt_is_not_told(lib):
    model, y = normal_model(lib, 1.0)

    def told_by(num_warmup, **options):
        kernel = lib.split.NaiveSplitHMC(model, num_steps=2, find_heuristic_step_size=False, **options)
        return set(settled_of(lib, lib.run(kernel, y, num_warmup=num_warmup, num_samples=10)))

    assert told_by(160, adapt_step_size=False, adapt_mass_matrix=False) == set()
    assert told_by(0) == set()
    assert told_by(30, adapt_mass_matrix=False) == {"step_size"}


@pytest.mark.parametrize("lib", [NumPyroBackend], ids=["numpyro"], indirect=True)
@pytest.mark.filterwarnings("ignore")
def test_chains_in_a_batch_and_a_run_that_goes_on(lib):
    """Each chain has its own, which later draws leave as they are."""
    model, y = normal_model(lib, 1.0)
    kernel = TABLE["SymmetricSplitHMC"].make(lib, model)
    session = lib.session(kernel, num_warmup=150, num_samples=5, num_chains=2, chain_method="vectorized")
    first = session.fresh(y).settled
    assert all(field.shape == (2,) for field in first)
    assert first.step_size[0] != first.step_size[1]
    assert np.isfinite(np.stack(first[:5])).all()
    assert (np.stack(first[5:]) == -1).all()  # not known
    for before, after in zip(first, session.again(y).settled, strict=True):
        np.testing.assert_array_equal(before, after)
