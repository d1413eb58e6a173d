"""Scores, calibration and what is accumulated over draws: against scikit-learn and closed forms."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.calibration import calibration_curve
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss

from split_common import metrics

CLASSES, POINTS, DRAWS = 4, 300, 25
EXACT = {"rtol": 1e-10, "atol": 1e-10}


@pytest.fixture
def probabilities():
    return np.random.default_rng(0).dirichlet(np.full(CLASSES, 0.5), size=(DRAWS, POINTS))


@pytest.fixture
def labels():
    return np.random.default_rng(1).integers(CLASSES, size=POINTS)


def test_brier_score_is_the_mean_squared_distance(probabilities, labels):
    p = probabilities[0]
    by_hand = [sum((p[i, c] - (c == labels[i])) ** 2 for c in range(CLASSES)) for i in range(POINTS)]
    np.testing.assert_allclose(metrics.brier_score(p, labels), np.mean(by_hand), **EXACT)


def test_brier_score_of_two_classes_is_twice_scikit_learns(probabilities, labels):
    from sklearn.metrics import brier_score_loss

    p = probabilities[0, :, :2] / probabilities[0, :, :2].sum(axis=1, keepdims=True)
    expected = 2 * brier_score_loss(labels % 2, p[:, 1])
    np.testing.assert_allclose(metrics.brier_score(p, labels % 2), expected, **EXACT)


@pytest.mark.parametrize("num_bins", [1, 7, 15])
def test_bins_are_scikit_learns(probabilities, labels, num_bins):
    """Its curve is of a binary event, here that the predicted class is right; it leaves out empty bins."""
    p = metrics.predictive_probabilities(probabilities[:3])
    confidence, is_right = p.max(axis=1), p.argmax(axis=1) == labels
    found = metrics.expected_calibration_error(p, labels, num_bins)
    accuracy, mean = calibration_curve(is_right, confidence, n_bins=num_bins)
    kept = found.count > 0
    np.testing.assert_allclose(found.accuracy[kept], accuracy, **EXACT)
    np.testing.assert_allclose(found.confidence[kept], mean, **EXACT)
    assert np.isnan(found.accuracy[~kept]).all()
    assert found.count.sum() == POINTS
    expected = np.sum(found.count[kept] * np.abs(accuracy - mean)) / POINTS
    np.testing.assert_allclose(found.error, expected, **EXACT)


def test_a_bin_has_its_upper_edge():
    p = np.array([[0.5, 0.5], [0.75, 0.25], [1.0, 0.0]])
    found = metrics.expected_calibration_error(p, np.zeros(3, int), num_bins=4)
    np.testing.assert_array_equal(found.count, [0, 1, 1, 1])
    np.testing.assert_allclose(found.error, (0.5 + 0.25) / 3, **EXACT)


def test_certain_and_right_is_calibrated_and_certain_and_wrong_is_not():
    certain = np.tile([1.0, 0.0], (5, 1))
    for label, error, brier in ((0, 0.0, 0.0), (1, 1.0, 2.0)):
        labels = np.full(5, label)
        assert metrics.expected_calibration_error(certain, labels).error == error
        assert metrics.brier_score(certain, labels) == brier


def test_coverage_of_exchangeable_draws_is_the_level_exactly():
    """Each of twenty values in turn is the observation, the others are the draws."""
    values = np.random.default_rng(2).normal(size=20)
    draws = np.stack([np.delete(values, i) for i in range(20)], axis=1)
    levels = np.arange(1, 10) / 10
    found = metrics.central_interval_coverage(draws, values, levels)
    np.testing.assert_allclose(found.share, levels, **EXACT)
    assert found.error < 1e-10


def test_coverage_of_a_normal_distribution_is_the_level():
    y = norm.ppf((np.arange(2000) + 0.5) / 2000, 3.0, 2.0)
    found = metrics.normal_interval_coverage(np.full(2000, 3.0), np.full(2000, 4.0), y)
    np.testing.assert_allclose(found.share, found.level, atol=1e-10)
    one_and_two = metrics.normal_interval_coverage(np.full(2000, 3.0), np.full(2000, 4.0), y, (0.6827, 0.9545))
    np.testing.assert_allclose(
        one_and_two.share, [np.mean(np.abs(y - 3) <= k * 2) for k in (1, 2)], atol=1e-3
    )  # the levels are rounded


def test_what_is_too_sure_covers_too_little():
    y = norm.ppf((np.arange(500) + 0.5) / 500)
    found = metrics.normal_interval_coverage(np.zeros(500), np.full(500, 0.25), y)
    np.testing.assert_allclose(found.share, 2 * norm.cdf(0.5 * norm.ppf((1 + found.level) / 2)) - 1, atol=2 / 500)


def test_what_is_accumulated_equals_scikit_learn_on_the_first_draws(probabilities, labels):
    log_likelihood = metrics.class_log_likelihood(probabilities, labels)
    accuracy, score = metrics.cumulative_accuracy(probabilities, labels), metrics.cumulative_log_score(log_likelihood)
    for s in (1, 2, DRAWS):
        mean = probabilities[:s].mean(axis=0)
        np.testing.assert_allclose(accuracy[s - 1], accuracy_score(labels, mean.argmax(axis=1)), **EXACT)
        np.testing.assert_allclose(score[s - 1], -log_loss(labels, mean, labels=range(CLASSES)), **EXACT)
    np.testing.assert_allclose(score[-1], metrics.log_predictive_density(log_likelihood).mean(), **EXACT)


def test_log_score_of_impossible_labels():
    p = np.array([[[1.0, 0.0]], [[0.5, 0.5]]])
    score = metrics.cumulative_log_score(metrics.class_log_likelihood(p, np.array([1])))
    np.testing.assert_allclose(score, [-np.inf, np.log(0.25)], **EXACT)


def test_mutual_information_by_class_is_the_mean_over_each_cell(probabilities, labels):
    found = metrics.mutual_information_by_class(probabilities, labels)
    predicted, information = probabilities.mean(axis=0).argmax(axis=1), metrics.mutual_information(probabilities)
    np.testing.assert_array_equal(found.count, confusion_matrix(labels, predicted, labels=range(CLASSES)))
    for true in range(CLASSES):
        for other in range(CLASSES):
            cell = information[(labels == true) & (predicted == other)]
            np.testing.assert_allclose(found.mean[true, other], cell.mean(), **EXACT)


OF_ONE_PREDICTION = [metrics.brier_score, metrics.expected_calibration_error]
OF_DRAWS = [metrics.class_log_likelihood, metrics.cumulative_accuracy, metrics.mutual_information_by_class]


@pytest.mark.parametrize("score", OF_ONE_PREDICTION + OF_DRAWS)
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([0, 2]), r"whole numbers from 0 to 1, as there are 2 classes, got 2"),
        (np.array([-1, 0]), "got -1"),
        (np.array([0.5, 1.0]), r"got 0\.5"),
        (np.array([np.nan, 1.0]), "got nan"),
        (np.array(["a", "b"]), "whole numbers, got the type <U1"),
        (np.zeros(3, int), r"one entry for each point, shape \(2,\), got shape \(3,\)"),
        (np.eye(2), r"got shape \(2, 2\)"),
    ],
    ids=["too large", "negative", "fraction", "not a number", "text", "number", "one-hot"],
)
def test_bad_labels(score, labels, message):
    p = np.full((2, 2), 0.5)
    with pytest.raises(ValueError, match=f"^labels must .*{message}"):
        score(p if score in OF_ONE_PREDICTION else p[None], labels)


@pytest.mark.parametrize("score", OF_ONE_PREDICTION)
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.full((3, 2, 2), 0.5), r"one prediction.*got shape \(3, 2, 2\); predictive_probabilities"),
        (np.ones(2), r"shape \(points, classes\).*got shape \(2,\)"),
        (np.ones((0, 2)), r"got shape \(0, 2\)"),
        (np.array([[0.5, 0.5], [0.5, 0.6]]), r"sum to 1 .* got a sum of 1\.1"),
        (np.array([[1.5, -0.5]]), "at least 0, got -0.5"),
        (np.array([[np.nan, 1.0]]), "at least 0, got nan"),
    ],
    ids=["draws", "one axis", "no points", "sum", "negative", "not a number"],
)
def test_bad_predictions(score, bad, message):
    with pytest.raises(ValueError, match=f"^probabilities must .*{message}"):
        score(bad, np.zeros(2, int))


@pytest.mark.parametrize("score", OF_DRAWS)
def test_bad_draws_of_classes(score):
    with pytest.raises(ValueError, match=r"\(draws, points, classes\).*got shape \(2, 2\)"):
        score(np.full((2, 2), 0.5), np.zeros(2, int))
    with pytest.raises(ValueError, match="at least 0, got nan"):
        score(np.array([[[np.nan, 1.0]]]), np.zeros(1, int))


@pytest.mark.parametrize("bins", [0, 2.5, True])
def test_bad_bins(bins):
    with pytest.raises(ValueError, match="num_bins must be a whole number of at least 1"):
        metrics.expected_calibration_error(np.full((2, 2), 0.5), np.zeros(2, int), bins)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"draws": np.zeros(9)}, r"draws must have shape \(draws, points\).*got shape \(9,\)"),
        ({"draws": np.full((99, 3), np.nan)}, "draws must be finite, got nan"),
        ({"y": np.zeros(2)}, r"y must have one entry for each point, shape \(3,\), got shape \(2,\)"),
        ({"y": np.array([0.0, np.inf, 0.0])}, "y must be finite, got inf"),
        ({"levels": (0.5, 1.0)}, "levels must lie between 0 and 1, got 1.0"),
        ({"levels": ()}, r"levels must have one axis of at least one level, got shape \(0,\)"),
        ({"levels": (0.5, 0.99)}, r"at most 1 - 2/\(S \+ 1\) = 0\.98 for S = 99 draws, got 0\.99"),
    ],
    ids=["one axis", "not a number", "observations", "infinite", "level", "no levels", "few draws"],
)
def test_bad_intervals(change, message):
    arguments = {"draws": np.zeros((99, 3)), "y": np.zeros(3)} | change
    with pytest.raises(ValueError, match=message):
        metrics.central_interval_coverage(**arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean": np.zeros(2)}, r"mean must have one entry for each point, shape \(3,\), got shape \(2,\)"),
        ({"variance": np.ones((3, 3))}, r"variance must .*got shape \(3, 3\)"),
        ({"variance": np.array([1.0, -1.0, 1.0])}, "variance must be at least 0, got -1.0"),
        ({"mean": np.full(3, np.nan)}, "mean must be finite, got nan"),
        ({"y": np.zeros(0)}, r"y must have one axis of at least one point, got shape \(0,\)"),
        ({"levels": 0.9}, r"levels must have one axis of at least one level, got shape \(\)"),
    ],
    ids=["mean", "variance", "negative", "not a number", "no points", "one level"],
)
def test_bad_normal_intervals(change, message):
    arguments = {"mean": np.zeros(3), "variance": np.ones(3), "y": np.zeros(3)} | change
    with pytest.raises(ValueError, match=message):
        metrics.normal_interval_coverage(**arguments)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bad_log_scores(bad):
    with pytest.raises(ValueError, match=f"log_likelihood must be numbers below infinity, got {bad}"):
        metrics.cumulative_log_score(np.array([[0.0, bad]]))
