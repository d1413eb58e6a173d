"""What is said of draws that are not kept is what ArviZ says of all of them, however they come.

False alarms of the statistical test: the ratio of effective sample sizes to ArviZ's has a standard deviation of at
most 8 % (the header of ``split_common/runs/summaries.py``), so 20 errors have a root mean square of 0.08 ± 0.013, above
0.15 once in 6 million runs; of 15 comparisons once in 400,000. The seeds are those that were tried first.
"""

import arviz as az
import numpy as np
import pytest
from scipy.signal import lfilter

from split_common.runs import summaries
from split_common.runs.summaries import NUM_BATCHES, RunningSummary

LIMIT = 0.15


def autoregressive(rho, shape, seed=0):
    """Stationary chains of shape (chains, draws, ...), of mean 0 and variance 1."""
    noise = np.random.default_rng(seed).standard_normal(shape) * np.sqrt(1 - rho**2)
    noise[:, 0] /= np.sqrt(1 - rho**2)
    return lfilter([1.0], [1.0, -rho], noise, axis=1)


def summary_of(draws, piece=1000):
    summary = RunningSummary.start(len(draws), draws.shape[2:])
    for chain, x in enumerate(draws):
        for start in range(0, len(x), piece):
            summary.add(chain, x[start : start + piece])
    return summary


def assert_same(summary, other):
    for name, x in summary.arrays().items():
        np.testing.assert_array_equal(x, other.arrays()[name], err_msg=name)


def by_arviz(function, draws, method):
    if method == "split" and len(draws) == 1:  # which ArviZ refuses
        half = draws.shape[1] // 2
        draws, method = np.concatenate([draws[:, :half], draws[:, -half:]]), "identity"
    return np.array([function(draws[:, :, k], method=method) for k in range(draws.shape[2])])


@pytest.mark.parametrize("num_draws", [1, 511, 512, 513, 1024, 1025, 4099])
@pytest.mark.parametrize("piece", [1, 7, 100, 512])
def test_pieces_leave_no_trace(num_draws, piece):
    draws = autoregressive(0.5, (2, num_draws, 3)) * [1.0, 1e-8, 1e8] + 1e3
    assert_same(summary_of(draws, piece), summary_of(draws, num_draws))


@pytest.mark.parametrize("block", [2, 6, 2**20])
def test_nor_does_what_is_worked_on_at_once(block, monkeypatch):
    draws = autoregressive(0.5, (1, 3001, 2))
    whole = summary_of(draws)
    monkeypatch.setattr(summaries, "BLOCK", block)
    assert_same(summary_of(draws), whole)


def test_chains_may_take_turns_or_not():
    draws = autoregressive(0.5, (3, 700))
    turns = RunningSummary.start(3, ())
    for start in range(0, 700, 70):
        for chain in (2, 0, 1):
            turns.add(chain, draws[chain, start : start + 70])
    assert_same(turns, summary_of(draws))


@pytest.mark.parametrize("at", [3, 511, 700, 2050])
def test_a_run_goes_on_from_its_arrays(at):
    draws = autoregressive(0.5, (2, 2500, 2, 2))
    stored = {name: x.copy() for name, x in summary_of(draws[:, :at]).arrays().items()}
    resumed = RunningSummary.of_arrays(stored)
    for chain in range(2):
        resumed.add(chain, draws[chain, at:])
    assert_same(resumed, summary_of(draws))
    assert_same(RunningSummary.of_arrays(stored), summary_of(draws[:, :at]))  # which did not change with it


def test_memory_does_not_grow():
    few, many = (summary_of(np.zeros((1, n, 2)) + 1.0) for n in (1, 10**5))
    assert [x.shape for x in few.arrays().values()] == [x.shape for x in many.arrays().values()]


def test_places_that_are_not_used_hold_0():
    arrays = summary_of(np.ones((1, 3000, 1)) + 1).arrays()  # 375 batches of 8
    assert [np.count_nonzero(x) for x in arrays.values()] == [1, 375, 0, 0, 0]
    arrays = summary_of(np.arange(3001.0).reshape(1, -1, 1) + 1).arrays()
    assert [np.count_nonzero(x) for x in arrays.values()] == [1, 375, 375, 1, 0]


@pytest.mark.parametrize("num_draws", [2, 100, 513, 5001])
@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_means_and_deviations(num_draws, offset):
    draws = autoregressive(0.9, (3, num_draws, 4)) + offset
    table = summary_of(draws).table()
    rounding = 1e-12 + 1e-15 * offset  # of draws near the offset
    np.testing.assert_allclose(table["mean"] - offset, (draws - offset).mean((0, 1)), atol=rounding)
    np.testing.assert_allclose(table["sd"], (draws - offset).std((0, 1), ddof=1), rtol=rounding)


@pytest.mark.parametrize("num_chains", [1, 4])
@pytest.mark.parametrize("rho", [-0.9, 0.0, 0.5, 0.99])
@pytest.mark.parametrize("num_draws", [4, 5, 6, 7, 8, 9, 11, 14, 33, 100, NUM_BATCHES])
def test_single_draws_are_what_arviz_sees(num_draws, rho, num_chains):
    num_coordinates = 30 if num_draws < 20 else 3  # there are many ways in which a short series ends
    draws = autoregressive(rho, (num_chains, num_draws, num_coordinates), seed=num_draws)
    table = summary_of(draws).table()
    np.testing.assert_allclose(table["ess"], by_arviz(az.ess, draws, "mean"), rtol=1e-9)
    np.testing.assert_allclose(table["mcse"], by_arviz(az.mcse, draws, "mean"), rtol=1e-9)
    if num_chains > 1 or num_draws >= 8:  # ArviZ refuses halves of fewer than 4
        np.testing.assert_allclose(table["rhat"], by_arviz(az.rhat, draws, "split"), rtol=1e-9)


@pytest.mark.parametrize("num_chains", [1, 3])
@pytest.mark.parametrize("num_draws", [1024, 4096, 4 * 510])
def test_rhat_of_batches_is_that_of_their_draws(num_draws, num_chains):
    draws = autoregressive(0.9, (num_chains, num_draws, 3)) + np.arange(num_chains)[:, None, None]
    np.testing.assert_allclose(summary_of(draws).rhat, by_arviz(az.rhat, draws, "split"), rtol=1e-9)


def error_of_ess(rho, seed, num_chains=4):
    """Root mean square, over 20 coordinates, of the relative difference from ArviZ's."""
    draws = autoregressive(rho, (num_chains, 100_000, 20), seed)
    return np.sqrt(np.mean((summary_of(draws, 20_000).ess / by_arviz(az.ess, draws, "mean") - 1) ** 2))


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_effective_draws_of_long_chains(rho, seed):
    assert error_of_ess(rho, seed) < LIMIT


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_batches_taken_for_independent_are_found(seed, monkeypatch):
    """Negative control: 256 draws are no memory of chains whose draws forget each other in hundreds."""
    monkeypatch.setattr(summaries, "effective_sample_size", lambda x: np.full(x.shape[2], float(x[:, :, 0].size)))
    assert error_of_ess(0.99, seed) > 2 * LIMIT


def test_draws_taken_for_independent_are_found(monkeypatch):
    """Negative control: without the variances of batches, the size is that of the series of batches."""
    monkeypatch.setattr(summaries, "_size", lambda sd, mcse: np.full(sd.shape, 4 * 100_000.0))
    assert error_of_ess(0.5, 0) > 2 * LIMIT


def test_one_chain():
    draws = autoregressive(0.9, (1, 20_000, 50))
    ratio = summary_of(draws).ess / by_arviz(az.ess, draws, "mean")
    assert abs(ratio.mean() - 1) < 0.1  # of 50 with a standard deviation of 15 %: 4.7 of its standard errors
    assert np.all(summary_of(draws).rhat < 1.1)


def test_what_never_changes():
    draws = np.stack([np.full((4, 2000), 0.1), autoregressive(0.5, (4, 2000))], axis=2)
    table = summary_of(draws).table()
    assert table["mean"][0] == 0.1
    assert table["sd"][0] == 0
    assert np.isnan([table[name][0] for name in ("mcse", "ess", "rhat")]).all()
    assert np.isfinite([table[name][1] for name in table]).all()


@pytest.mark.parametrize("num_draws", [300, 3000])
def test_chains_that_stand_still_in_different_places(num_draws):
    summary = summary_of(np.broadcast_to(np.arange(4.0)[:, None], (4, num_draws)))
    assert np.isinf(summary.rhat)
    assert summary.ess < 20


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 700, 2499])
def test_draws_that_are_not_finite(bad, at):
    """Also among those that fill no batch; the other coordinates do not notice."""
    draws = autoregressive(0.5, (2, 2500, 2))
    right = summary_of(draws).table()
    draws[1, at, 0] = bad
    table = summary_of(draws).table()
    for name in ("mean", "sd", "mcse", "ess"):
        assert np.isnan(table[name][0])
        assert table[name][1] == right[name][1]
    assert np.isnan(table["rhat"][0])


def test_numbers_whose_squares_overflow():
    table = summary_of(autoregressive(0.5, (2, 600, 1)) * 1e200).table()
    assert np.isfinite(table["mean"]).all()
    assert not np.isfinite(table["ess"]).any()


def test_chains_of_different_lengths():
    """Of each as many batches as the shortest has; the standard error is that of all draws."""
    draws = autoregressive(0.5, (3, 3000, 30))
    lengths = (3000, 3000, 1008)
    summary = RunningSummary.start(4, (30,))
    for chain, n in enumerate(lengths):
        summary.add(chain, draws[chain, :n])
    assert summary.counts.tolist() == [3000, 3000, 1008, 0]
    everything = np.concatenate([draws[chain, :n] for chain, n in enumerate(lengths)])
    np.testing.assert_allclose(summary.mean, everything.mean(0), atol=1e-12)
    np.testing.assert_allclose(summary.sd, everything.std(0, ddof=1), rtol=1e-12)
    np.testing.assert_allclose(summary.rhat, by_arviz(az.rhat, draws[:, :1008], "split"), rtol=1e-9)
    rectangle = by_arviz(az.ess, draws[:, :1008], "mean")
    assert abs(np.mean(summary.ess / (rectangle * 7008 / 3024)) - 1) < 0.1  # 7008 draws, of which 3024 are looked at


def test_a_chain_that_has_just_begun_leaves_nothing_to_say():
    summary = summary_of(autoregressive(0.5, (2, 2000)))
    longer = RunningSummary.start(3, ())
    for chain in range(2):
        longer.add(chain, autoregressive(0.5, (2, 2000))[chain])
    assert longer.ess == summary.ess
    longer.add(2, [0.1, 0.2])
    assert np.isnan(longer.ess)
    assert np.isnan(longer.rhat)
    assert np.isfinite(longer.sd)


def test_no_draws_or_few():
    summary = RunningSummary.start(2, (2,))
    summary.add(0, np.zeros((0, 2)))
    assert all(np.isnan(x).all() for x in summary.table().values())
    summary.add(0, [[1.0, 2.0]])
    assert summary.mean.tolist() == [1.0, 2.0]
    assert np.isnan(summary.sd).all()


def test_no_coordinates():
    summary = RunningSummary.start(2, (3, 0))
    summary.add(0, np.zeros((1000, 3, 0)))
    assert all(x.shape == (3, 0) for x in summary.table().values())


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.uint64, bool])
def test_draws_of_other_types(dtype):
    draws = (np.arange(100) % 3).astype(dtype)
    summary = RunningSummary.start(1, ())
    summary.add(0, draws)
    assert summary.mean == pytest.approx(draws.astype(float).mean(), abs=1e-15)


def test_a_users_draws_stay_as_they_are():
    draws = np.array([1.0, np.inf])
    RunningSummary.start(1, ()).add(0, draws)
    assert draws.tolist() == [1.0, np.inf]


@pytest.mark.parametrize(
    ("act", "rule"),
    [
        (lambda: RunningSummary.start(0, ()), "num_chains must be a whole number of at least 1, got 0"),
        (lambda: RunningSummary.start(True, ()), "num_chains must be"),
        (lambda: RunningSummary.start(1, 3), "shape must be a tuple of whole numbers of at least 0, got 3"),
        (lambda: RunningSummary.start(1, (-1,)), r"shape must be .* got \(-1,\)"),
        (lambda: RunningSummary.start(2, ()).add(2, [0.0]), "chain must be a whole number from 0 to 1, got 2"),
        (
            lambda: RunningSummary.start(1, (2,)).add(0, np.zeros((5, 3))),
            r"draws must be .* got numbers of shape \(5, 3\)",
        ),
        (lambda: RunningSummary.start(1, (2,)).add(0, np.zeros(2)), r"draws must be real numbers of shape \(n, "),
        (lambda: RunningSummary.start(1, ()).add(0, ["a"]), "draws must be real numbers"),
        (lambda: RunningSummary.start(1, ()).add(0, np.array([1j])), "draws must be real numbers"),
        (lambda: RunningSummary.of_arrays({}), "arrays must have .* got none of name 'counts'"),
        (
            lambda: RunningSummary.of_arrays(changed("group_means")),
            r"arrays\['group_means'\] must have shape \(2, 22, 3\)",
        ),
        (lambda: RunningSummary.of_arrays(changed("batch_means")), r"arrays\['batch_means'\] must have shape"),
        (lambda: RunningSummary.of_arrays(changed("counts")), r"arrays\['batch_means'\] must have shape \(1, 512, 3\)"),
    ],
)
def test_bad_input(act, rule):
    with pytest.raises(ValueError, match=rule):
        act()


def changed(name):
    arrays = RunningSummary.start(2, (3,)).arrays()
    return arrays | {name: arrays[name][1:]}


def test_what_was_refused_leaves_no_trace():
    summary = summary_of(autoregressive(0.5, (1, 10, 2)))
    with pytest.raises(ValueError):
        summary.add(0, np.zeros((5, 3)))
    assert_same(summary, summary_of(autoregressive(0.5, (1, 10, 2))))
