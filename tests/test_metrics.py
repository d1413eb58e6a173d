"""Predictive uncertainty and likelihoods: known values, and errors that say what is wrong."""

import numpy as np
import pytest
from scipy.stats import entropy as scipy_entropy
from scipy.stats import multivariate_normal, norm

from split_common import metrics

NUM_CLASSES = 10
UNCERTAINTIES = [metrics.predictive_entropy, metrics.expected_entropy, metrics.mutual_information]


@pytest.fixture
def probabilities():
    """Twenty draws of probabilities at seven points."""
    return np.random.default_rng(0).dirichlet(np.ones(NUM_CLASSES), size=(20, 7))


def test_entropies_equal_scipys(probabilities):
    np.testing.assert_allclose(
        metrics.predictive_entropy(probabilities), scipy_entropy(probabilities.mean(axis=0), axis=-1), rtol=1e-12
    )
    np.testing.assert_allclose(
        metrics.expected_entropy(probabilities), scipy_entropy(probabilities, axis=-1).mean(axis=0), rtol=1e-12
    )


def test_mutual_information_is_the_mean_divergence_from_the_predictive(probabilities):
    """The other way of writing it: the mean Kullback-Leibler divergence of a draw from the mean over draws."""
    mean = probabilities.mean(axis=0)
    divergences = [scipy_entropy(draw, mean, axis=-1) for draw in probabilities]
    np.testing.assert_allclose(metrics.mutual_information(probabilities), np.mean(divergences, axis=0), rtol=1e-10)


@pytest.mark.parametrize(
    ("draws", "predictive", "expected"),
    [
        ([[1.0, 0.0], [1.0, 0.0]], 0.0, 0.0),
        ([[0.5, 0.5], [0.5, 0.5]], np.log(2), np.log(2)),
        ([[1.0, 0.0], [0.0, 1.0]], np.log(2), 0.0),
    ],
    ids=["certain", "undecided", "in disagreement"],
)
def test_known_cases(draws, predictive, expected):
    probabilities = np.array(draws)[:, None, :]
    values = [uncertainty(probabilities).item() for uncertainty in UNCERTAINTIES]
    np.testing.assert_allclose(values, [predictive, expected, predictive - expected], atol=1e-12)


def test_float32_is_good_enough(probabilities):
    for uncertainty in UNCERTAINTIES:
        np.testing.assert_allclose(uncertainty(probabilities.astype(np.float32)), uncertainty(probabilities), atol=1e-5)


@pytest.mark.parametrize("uncertainty", [*UNCERTAINTIES, metrics.predictive_probabilities])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.ones((4, 1)), r"shape \(draws, points, classes\).*got shape \(4, 1\)"),
        (np.ones((0, 3, 1)), r"got shape \(0, 3, 1\)"),
        (np.array([[[1.5, -0.5]]]), "at least 0, got -0.5"),
        (np.array([[[np.nan, 1.0]]]), "at least 0, got nan"),
        (np.array([[[2.0, 3.0]]]), "sum to 1 .* got a sum of 5"),
    ],
    ids=["two axes", "no draws", "negative", "not a number", "logits"],
)
def test_bad_probabilities(uncertainty, bad, message):
    with pytest.raises(ValueError, match=message):
        uncertainty(bad)


@pytest.fixture
def draws():
    """Thirty draws of a regression's mean and noise variance at six points."""
    rng = np.random.default_rng(1)
    return rng.normal(size=(30, 6)), rng.gamma(2.0, size=(30, 6))


def test_variances_add_up_to_the_mixtures(draws):
    """Mean and variance of an equal mixture of normals, from its first two moments."""
    means, noise = draws
    prediction = metrics.variance_decomposition(means, noise)
    first, second = means.mean(axis=0), (noise + means**2).mean(axis=0)
    np.testing.assert_allclose(prediction.mean, first, rtol=1e-12)
    np.testing.assert_allclose(prediction.aleatoric, noise.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(prediction.epistemic, means.var(axis=0), rtol=1e-12)
    np.testing.assert_allclose(prediction.total, second - first**2, rtol=1e-12)


@pytest.mark.parametrize("noise", [0.25, np.full(30, 0.25), np.full((30, 6), 0.25)], ids=["number", "draws", "all"])
def test_noise_of_each_shape(draws, noise):
    np.testing.assert_allclose(metrics.variance_decomposition(draws[0], noise).aleatoric, np.full(6, 0.25), rtol=1e-12)


def test_noise_of_each_draw_goes_along_the_draws():
    """As many draws as points: the shape alone does not tell the axis."""
    prediction = metrics.variance_decomposition(np.zeros((2, 2)), np.array([1.0, 3.0]))
    np.testing.assert_array_equal(prediction.aleatoric, [2.0, 2.0])


@pytest.mark.parametrize(
    ("means", "noise", "message"),
    [
        (np.ones(4), 1.0, r"means must have shape \(draws, points\).*got shape \(4,\)"),
        (np.ones((0, 3)), 1.0, r"got shape \(0, 3\)"),
        (np.array([[1.0, np.nan]]), 1.0, "means must be finite, got nan"),
        (np.ones((4, 3)), np.ones(3), r"noise_variance must .*here \(4,\) or \(4, 3\), got shape \(3,\)"),
        (np.ones((4, 3)), np.ones((4, 1)), r"got shape \(4, 1\)"),
        (np.ones((2, 3)), np.array([1.0, -1.0]), "noise_variance must be finite and at least 0, got -1.0"),
        (np.ones((2, 3)), np.inf, "noise_variance must be finite and at least 0, got inf"),
    ],
    ids=["one axis", "no draws", "not a number", "noise of points", "noise of two axes", "negative", "infinite"],
)
def test_bad_regressions(means, noise, message):
    with pytest.raises(ValueError, match=message):
        metrics.variance_decomposition(means, noise)


def test_log_likelihoods_equal_direct_sums(draws):
    log_likelihood = norm.logpdf(0.3, draws[0], np.sqrt(draws[1]))
    likelihood = np.exp(log_likelihood)
    np.testing.assert_allclose(
        metrics.log_predictive_density(log_likelihood), np.log(likelihood.mean(axis=0)), rtol=1e-12
    )
    averages = metrics.data_log_likelihood(log_likelihood)
    np.testing.assert_allclose(averages.expected, np.log(likelihood.prod(axis=1)).mean(), rtol=1e-12)
    np.testing.assert_allclose(averages.log_mean, np.log(likelihood.prod(axis=1).mean()), rtol=1e-12)


def test_log_likelihoods_beyond_the_range_of_floats():
    log_likelihood = np.array([[-2000.0, 5000.0], [-2001.0, -np.inf]])
    expected = [-2000 + np.log((1 + np.exp(-1)) / 2), 5000 - np.log(2)]
    np.testing.assert_allclose(metrics.log_predictive_density(log_likelihood), expected, rtol=1e-14)
    averages = metrics.data_log_likelihood(log_likelihood)
    assert averages.expected == -np.inf
    np.testing.assert_allclose(averages.log_mean, 3000 - np.log(2), rtol=1e-14)


def test_expected_log_likelihood_exceeds_the_evidence_by_the_divergence():
    """y ~ N(w, 1), w ~ N(0, 1): evidence and divergence are known; equal-probability points stand for draws."""
    y = np.array([0.4, 1.3, -0.2, 2.0, 0.9])
    variance = 1 / (1 + y.size)
    mean = variance * y.sum()
    w = norm.ppf((np.arange(20_000) + 0.5) / 20_000, mean, np.sqrt(variance))
    averages = metrics.data_log_likelihood(norm.logpdf(y, w[:, None], 1.0))
    evidence = multivariate_normal.logpdf(y, np.zeros(y.size), np.eye(y.size) + 1.0)
    divergence = 0.5 * (variance + mean**2 - 1 - np.log(variance))
    np.testing.assert_allclose(averages.expected - divergence, evidence, atol=1e-4)
    assert evidence < averages.expected < averages.log_mean


@pytest.mark.parametrize("average", [metrics.log_predictive_density, metrics.data_log_likelihood])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros(4), r"log_likelihood must have shape \(draws, points\).*got shape \(4,\)"),
        (np.zeros((3, 0)), r"got shape \(3, 0\)"),
        (np.array([[0.0, np.nan]]), "log_likelihood must be numbers below infinity, got nan"),
        (np.array([[0.0, np.inf]]), "below infinity, got inf"),
    ],
    ids=["one axis", "no points", "not a number", "infinite"],
)
def test_bad_log_likelihoods(average, bad, message):
    with pytest.raises(ValueError, match=message):
        average(bad)
