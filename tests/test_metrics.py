"""Predictive uncertainty, its figure, and the data loaders: known values, and errors that say what is wrong."""

import doctest

import numpy as np
import pytest
from scipy.stats import entropy as scipy_entropy

from split_common import datasets, metrics, plots

NUM_CLASSES = 10
UNCERTAINTIES = [metrics.predictive_entropy, metrics.expected_entropy, metrics.mutual_information]


@pytest.fixture
def probabilities():
    """Twenty draws of probabilities at seven points."""
    return np.random.default_rng(0).dirichlet(np.ones(NUM_CLASSES), size=(20, 7))


@pytest.mark.parametrize("module", [metrics, datasets, plots], ids=lambda module: module.__name__)
def test_examples(module):
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed


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


def test_entropy_figure_counts_right_and_wrong():
    entropy, is_right = np.array([0.0, 0.1, 0.1, 2.0]), np.array([True, True, True, False])
    ax = plots.plot_entropy(entropy, is_right)
    assert [text.get_text().split(",")[0] for text in ax.get_legend().get_texts()] == ["right: 3", "wrong: 1"]
    heights = np.array([patch.get_height() for patch in ax.patches])
    np.testing.assert_allclose(heights.sum(), 2.0)  # each of the two histograms adds up to 1


def test_entropy_figure_without_wrong_predictions():
    ax = plots.plot_entropy(np.zeros(3), np.ones(3, dtype=bool))
    assert ax.get_legend().get_texts()[1].get_text() == "wrong: 0"


@pytest.mark.parametrize(("entropy", "is_right"), [(np.zeros(3), np.ones(2, dtype=bool)), (np.zeros(0), np.zeros(0))])
def test_entropy_figure_refuses_unequal_or_empty(entropy, is_right):
    with pytest.raises(ValueError, match="got shapes"):
        plots.plot_entropy(entropy, is_right)


def test_digits_are_scaled_and_divided_class_by_class():
    digits = datasets.load_digits_split(test_fraction=0.2, seed=1)
    assert len(digits.x_train) + len(digits.x_test) == 1797
    assert digits.x_train.dtype == np.float32
    assert (digits.x_train.min(), digits.x_train.max()) == (0.0, 1.0)
    shares = [np.bincount(y) / len(y) for y in (digits.y_train, digits.y_test)]
    np.testing.assert_allclose(shares[0], shares[1], atol=0.01)


def test_digits_are_centred_on_the_training_images():
    plain, centred = datasets.load_digits_split(), datasets.load_digits_split(centre=True)
    np.testing.assert_allclose(centred.x_train.mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(plain.x_test - centred.x_test, np.tile(plain.x_train.mean(axis=0), (450, 1)), atol=1e-6)


def test_data_directory_prefers_the_option(tmp_path, monkeypatch):
    monkeypatch.setenv(datasets.DATA_VARIABLE, str(tmp_path / "elsewhere"))
    assert datasets.data_directory(tmp_path) == tmp_path
    monkeypatch.setenv(datasets.DATA_VARIABLE, str(tmp_path))
    assert datasets.data_directory() == tmp_path


def test_data_directory_names_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.delenv(datasets.DATA_VARIABLE, raising=False)
    with pytest.raises(ValueError, match=r"option --data.*variable SPLIT_MCMC_DATA, got neither"):
        datasets.data_directory()
    with pytest.raises(NotADirectoryError, match=r"option --data must name a directory, got .*nowhere"):
        datasets.data_directory(tmp_path / "nowhere")
    monkeypatch.setenv(datasets.DATA_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(NotADirectoryError, match=r"variable SPLIT_MCMC_DATA must name a directory, got .*nowhere"):
        datasets.data_directory()


def write_small_mnist(directory, names=datasets.ImageData._fields):
    images, classes = np.full((3, 28, 28), 255, np.uint8), np.arange(3, dtype=np.uint8)
    arrays = {name: images if name.startswith("x") else classes for name in names}
    np.savez(directory / "mnist.npz", **arrays)


@pytest.mark.parametrize(("flatten", "shape"), [(True, (3, 784)), (False, (3, 28, 28))])
def test_mnist_is_scaled_and_shaped(tmp_path, flatten, shape):
    write_small_mnist(tmp_path)
    mnist = datasets.load_mnist(tmp_path, flatten)
    assert mnist.x_train.shape == mnist.x_test.shape == shape
    assert mnist.x_train.dtype == np.float32
    assert mnist.x_train.max() == 1.0
    assert mnist.y_test.tolist() == [0, 1, 2]


def test_mnist_names_what_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"must hold mnist.npz"):
        datasets.load_mnist(tmp_path)
    write_small_mnist(tmp_path, ["x_train", "y_train"])
    with pytest.raises(ValueError, match=r"none named \['x_test', 'y_test'\]"):
        datasets.load_mnist(tmp_path)
