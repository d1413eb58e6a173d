"""The efficiency benchmark counts passes and effective draws as it says, and its page is that of its results."""

import numpy as np
import pytest

pytest.importorskip("numpyro")

from benchmarks.common.performance import PAGE, tables, with_tables
from benchmarks.efficiency.__main__ import OURS, arms_of
from benchmarks.efficiency.arms import ARMS
from benchmarks.efficiency.hamiltorch_chains import is_installed, measure_hamiltorch
from benchmarks.efficiency.laplace import laplace
from benchmarks.efficiency.measures import Sizes, effective_size, forward_share, measure, passes
from benchmarks.efficiency.records import interval, merged, ratios, values
from benchmarks.efficiency.targets import ROWS, TARGETS, covtype_like, target_of
from benchmarks.gradient_metric.__main__ import line, summary, with_ratios

pytestmark = pytest.mark.both_packages

SIZES = {"auto": 0.25, "default": 0.375, "host": 0.125}
FIGURES = {"ess", "ess_per_pass", "ess_per_gradient", "ess_per_second", "warmup_passes", "reference_passes"}


def test_effective_size_of_independent_and_of_standing_draws():
    draws = np.random.default_rng(0).normal(size=(4, 1000, 3))
    assert 2500 < effective_size(draws) < 4500
    assert effective_size(np.repeat(draws[:, ::20], 20, axis=1)) < 400
    draws[..., 1] = 2.0
    assert effective_size(draws) == 0.0


@pytest.mark.parametrize(
    ("arm", "gradients", "forwards"),
    [
        ("SymmetricSplitHMC", 12.0, 6.0),  # 600 gradients of one in fifty subsets; a forward pass a draw
        ("SplitNUTS, metric auto", 12.0, 30.0),  # and one a step
        ("NaiveSplitHMC", 12.0, 0.0),
        ("host NUTS", 30.0, 0.0),  # as many gradients of all rows as steps
        ("HMCECS 50/5", 3.0, 1.2),  # of a tenth of the rows; twice the subsample forwards
    ],
)
def test_passes_are_counted(arm, gradients, forwards):
    target = target_of("tall_20k", 500)
    fields = {"num_steps": np.full((6,), 5), "num_grads": np.full((6,), 100)}
    found = passes(target, ARMS[arm], fields, share=1.0)
    np.testing.assert_allclose(found, (gradients, forwards))


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_has_ours_the_host_and_finite_quantities(name, monkeypatch):
    monkeypatch.delenv("SPLIT_MCMC_DATA", raising=False)
    target = target_of(name, 300 if name in ROWS else None)
    arms = arms_of(target, None)
    assert {OURS, "host NUTS"} <= set(arms)
    judged = np.asarray(target.judged(target.position()))
    assert judged.ndim == 1
    assert len(judged) <= 55
    assert np.isfinite(judged).all()
    assert sum(np.size(u) for u in target.position().values()) == target.num_parameters


def test_sizes_of_the_networks():
    found = [target_of(name).num_parameters for name in ("bnn_1_16_1", "network_1d", "digits")]
    assert found == [49, 10_401, 1_510]


def test_the_table_like_covertype_has_full_rank_correlations_and_rare_indicators():
    X = covtype_like(20_000, np.random.default_rng(0))
    assert X.shape == (20_000, 55)
    assert np.linalg.matrix_rank(X) >= 50  # soils that no row has
    correlations = np.abs(np.corrcoef(X[:, 1:11].T)) - np.identity(10)
    assert 0.7 < correlations.max() < 0.99
    shares = X[:, 11:].mean(0)
    assert shares.min() < 0.002 < 0.05 < shares.max()


def test_the_normal_distribution_about_the_mode_is_the_posterior_of_many_rows():
    target = target_of("tall_20k", 2_000)
    known = laplace(target)
    X, y = (np.asarray(part, float) for part in target.args)
    p = 1 / (1 + np.exp(-X @ known.mode))
    np.testing.assert_allclose(X.T @ (y - p), known.mode, atol=0.05)
    precision = (X.T * (p * (1 - p))) @ X + np.identity(20)
    np.testing.assert_allclose(np.linalg.inv(known.covariance), precision, rtol=1e-3, atol=0.5)
    assert known.passes > 20
    draws = np.asarray(known.draws(4000, seed=1)["w"])
    assert np.abs((draws - known.mode) / np.sqrt(np.diag(known.covariance))).mean() == pytest.approx(0.798, abs=0.02)


def test_results_are_added_to():
    old = {"a": {"rows": 1, "arms": {"x": {"seeds": {"1": {"ess": 1.0}}}, "y": {"seeds": {}}}}, "b": {"arms": {}}}
    new = {"a": {"rows": 2, "arms": {"x": {"seeds": {"1": {"ess": 4.0}, "2": {"ess": 6.0}}}}}}
    both = merged(old, new)
    assert both["a"]["rows"] == 2
    assert (set(both), set(both["a"]["arms"])) == ({"a", "b"}, {"x", "y"})
    assert list(values(both, "a", "x", "ess")) == [4.0, 6.0]
    assert list(ratios(both, "a", "x", "x", "ess")) == [1.0, 1.0]
    assert interval(values(both, "a", "x", "ess")) == "5 (4 to 6)"
    assert interval(ratios(both, "a", "x", "z", "ess")) == "not run yet"


def test_over_targets_the_median_and_the_worst():
    found = summary(
        {"a": {"ratios": [1.0, 2.0, 3.0]}, "b": {"ratios": [0.5, 0.7, 0.9]}, "c": {"ratios": [5.0, 4.0, 6.0]}}
    )
    assert found == {"median": [2.0, 1.0, 3.0], "worst": [0.7, 0.5, 0.9]}


def test_an_arm_is_compared_with_the_host_where_both_were_run():
    runs = {
        arm: [{"ess_per_gradient": x, "warmup_gradients": 9.0} for x in (size, size)] for arm, size in SIZES.items()
    }
    found = with_ratios({name: runs[name] for name in ("default", "host")})
    assert found["default_ratios"] == [3.0, 3.0]
    assert "ratios" not in found
    assert "| – |" in line("a", found)
    assert with_ratios(runs)["ratios"] == [2.0, 2.0]
    assert summary({"a": runs, "b": {"ratios": [1.0]}}, "default_ratios") == {"median": [3.0] * 3, "worst": [3.0] * 3}
    assert summary({}) == {}


def test_the_page_is_that_of_the_results():
    page = PAGE.read_text()
    assert with_tables(page, tables()) == page
    with pytest.raises(ValueError, match="one place for the table 'absent'"):
        with_tables(page, {"absent": ""})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SymmetricSplitHMC", "host NUTS, given metric", "HMCECS 50/5"])
def test_an_arm_runs(name):
    target = target_of("tall_20k", 200)
    arm = ARMS[name]
    known = laplace(target) if arm.given else None
    found = measure(target, arm, known, forward_share(target, 3), Sizes(2, 10, 10, 10), [1, 2])["2"]
    assert set(found) >= FIGURES
    assert found["ess"] > 0
    assert found["passes_per_draw"] > 0


@pytest.mark.slow
@pytest.mark.skipif(not is_installed(), reason="hamiltorch is not on PyPI")
def test_hamiltorch_runs(monkeypatch):
    import torch

    monkeypatch.delenv("SPLIT_MCMC_DATA", raising=False)
    torch.set_default_dtype(torch.float32)  # hamiltorch's priors and the layer are in the default one
    target = target_of("mnist_pooled", 300)
    found = measure_hamiltorch(target, ARMS["hamiltorch symmetric, 10 steps"], laplace(target), Sizes(2, 10, 10, 10), 1)
    assert set(found) >= FIGURES
    assert 0 < found["accept_prob"] <= 1


@pytest.mark.slow
def test_centring_turns_itself_off_on_a_network():
    """The draws are those of no centring, bit for bit; with centring forced, the control, they are others."""
    from benchmarks.network_verdict.__main__ import compare

    found = compare(target_of("bnn_1_16_1"), num_warmup=60, num_samples=10, seed=1)
    assert (found["order"], found["harmonic"], found["difference"]) == (0, False, 0)
    assert found["difference_of_control"] > 0
    assert found["warmup_ratio"] <= 1.05
