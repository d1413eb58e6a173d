"""The figures: what they show, and errors that name the argument, the rule and the value."""

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

from split_common import plots
from split_common.metrics import variance_decomposition

POINTS = 9


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


@pytest.fixture
def prediction():
    rng = np.random.default_rng(0)
    return variance_decomposition(rng.normal(size=(20, POINTS)), rng.gamma(2.0, size=20))


def precisions(**shapes):
    rng = np.random.default_rng(1)
    return {name: rng.gamma(3.0, size=shape) for name, shape in shapes.items()}


def test_entropy_figure_counts_right_and_wrong():
    entropy, is_right = np.array([0.0, 0.1, 0.1, 2.0]), np.array([True, True, True, False])
    ax = plots.plot_entropy(entropy, is_right)
    assert [label.split(",")[0] for label in legend(ax)] == ["right: 3", "wrong: 1"]
    heights = np.array([patch.get_height() for patch in ax.patches])
    np.testing.assert_allclose(heights.sum(), 2.0)  # each of the two histograms adds up to 1


def test_entropy_figure_without_wrong_predictions():
    ax = plots.plot_entropy(np.zeros(3), np.ones(3, dtype=bool))
    assert legend(ax)[1] == "wrong: 0"


@pytest.mark.parametrize(("entropy", "is_right"), [(np.zeros(3), np.ones(2, dtype=bool)), (np.zeros(0), np.zeros(0))])
def test_entropy_figure_refuses_unequal_or_empty(entropy, is_right):
    with pytest.raises(ValueError, match="got shapes"):
        plots.plot_entropy(entropy, is_right)


def test_entropy_figure_names_its_own_argument():
    with pytest.raises(ValueError, match="^entropy must be finite and at least 0, got nan"):
        plots.plot_entropy(np.array([0.1, np.nan]), np.array([True, False]))


def test_entropies_of_any_groups_share_their_bins():
    groups = {"digits": np.array([0.0, 0.1, 0.2]), "clothes": np.array([1.0, 1.6]), "noise": np.array([2.0])}
    ax = plots.plot_entropies(groups, bins=4)
    assert legend(ax) == ["digits: 3, median 0.10", "clothes: 2, median 1.30", "noise: 1, median 2.00"]
    heights = np.array([[patch.get_height() for patch in bars] for bars in ax.containers])
    np.testing.assert_allclose(heights, [[1, 0, 0, 0], [0, 0, 0.5, 0.5], [0, 0, 0, 1]])
    assert len({bars[0].get_facecolor() for bars in ax.containers}) == 3


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({}, r"entropies must hold at least one value, got none in the groups \[\]"),
        ({"a": np.zeros(0)}, r"got none in the groups \['a'\]"),
        ({"a": np.zeros((2, 2))}, r"entropies\['a'\] must have one axis, got shape \(2, 2\)"),
        ({"a": np.zeros(2), "b": np.array([-0.5])}, r"entropies\['b'\] must be finite and at least 0, got -0.5"),
    ],
    ids=["no groups", "no values", "two axes", "negative"],
)
def test_entropies_refuse(groups, message):
    with pytest.raises(ValueError, match=message):
        plots.plot_entropies(groups)


def test_bands_are_those_of_a_normal_distribution(prediction):
    x = np.linspace(0.0, 1.0, POINTS)
    ax = plots.plot_bands(x, *prediction)
    bands = [band for band in ax.collections if isinstance(band, PolyCollection)]
    for band, variance in zip(bands, (prediction.total, prediction.epistemic), strict=True):
        upper = band.get_paths()[0].vertices[:, 1].max()
        np.testing.assert_allclose(upper, (prediction.mean + 1.959964 * np.sqrt(variance)).max(), rtol=1e-12)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), prediction.mean)
    assert legend(ax) == ["95 %, epistemic and aleatoric", "95 %, epistemic", "predictive mean"]


def test_bands_of_inputs_in_any_order(prediction):
    x, order = np.linspace(0.0, 1.0, POINTS), np.random.default_rng(2).permutation(POINTS)
    sorted_ax = plots.plot_bands(x, *prediction)
    shuffled_ax = plots.plot_bands(x[order], *(values[order] for values in prediction))
    np.testing.assert_array_equal(shuffled_ax.lines[0].get_xydata(), sorted_ax.lines[0].get_xydata())
    for shuffled, expected in zip(shuffled_ax.collections, sorted_ax.collections, strict=True):
        np.testing.assert_array_equal(shuffled.get_paths()[0].vertices, expected.get_paths()[0].vertices)


def test_bands_with_data_on_axes_of_ones_own(prediction):
    own = Figure().add_subplot()
    x_train, y_train = np.array([0.5, 0.1]), np.array([1.0, 2.0])
    ax = plots.plot_bands(np.linspace(0.0, 1.0, POINTS), *prediction, ax=own, data=(x_train, y_train))
    assert ax is own
    np.testing.assert_array_equal(ax.lines[1].get_xydata(), np.stack([x_train, y_train], axis=1))
    assert legend(ax)[-1] == "data"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros(2)}, r"one value per point, at least one, got shapes \(2,\), \(3,\), \(3,\), \(3,\)"),
        ({"mean": np.zeros((3, 1))}, r"mean must have one axis, got shape \(3, 1\)"),
        ({"mean": np.array([0.0, np.inf, 0.0])}, "mean must be finite, got inf"),
        ({"aleatoric": np.array([1.0, -1.0, 1.0])}, "aleatoric must be finite and at least 0, got -1.0"),
        ({"epistemic": np.array([1.0, np.nan, 1.0])}, "epistemic must be finite and at least 0, got nan"),
        ({"data": (np.zeros(2), np.zeros(3))}, r"data must be two arrays of one length, got shapes \(2,\), \(3,\)"),
        ({"data": (np.zeros(2), np.zeros((2, 1)))}, r"data\[1\] must have one axis, got shape \(2, 1\)"),
        ({"data": (np.zeros(2),)}, r"data must be two arrays, inputs and observations, got 1"),
    ],
    ids=["lengths", "two axes", "infinite", "negative", "not a number", "data lengths", "data axes", "no observations"],
)
def test_bands_refuse(change, message):
    arguments = {name: np.zeros(3) for name in ("x", "mean", "aleatoric", "epistemic")}
    with pytest.raises(ValueError, match=message):
        plots.plot_bands(**arguments | change)


def test_bands_refuse_no_points():
    with pytest.raises(ValueError, match="at least one, got shapes"):
        plots.plot_bands(*[np.zeros(0)] * 4)


def test_precisions_have_a_row_each_with_the_first_on_top():
    draws = precisions(w1=200, b1=(200, 50), w2=(200, 1))
    ax = plots.plot_precisions(draws)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["w1", "b1 (50)", "w2"]
    assert list(ax.get_yticks()) == [2, 1, 0]
    assert ax.get_xscale() == "log"
    assert ax.get_xlabel() == "precision"
    assert legend(ax) == ["posterior", "posterior median"]
    rows = [patch for patch in ax.patches if isinstance(patch, StepPatch)]
    for row, values, base in zip(rows, draws.values(), (2, 1, 0), strict=True):
        heights, edges, baseline = row.get_data()
        assert baseline == base
        np.testing.assert_allclose([heights.max(), heights.min()], [base + plots.ROW_HEIGHT, base], atol=0.2)
        np.testing.assert_allclose(edges[[0, -1]], [values.min(), values.max()])
    medians = [lines.get_segments()[0][0, 0] for lines in ax.collections]
    np.testing.assert_allclose(medians, [10 ** np.median(np.log10(values)) for values in draws.values()])


def test_prior_and_posterior_of_one_row_are_densities_on_one_scale():
    """Areas over the logarithm: the prior's is the 98 % of it that is shown, in units of the posterior's."""
    draws, prior = precisions(tau=400, other=400), precisions(tau=(1000, 2))
    ax = plots.plot_precisions(draws, prior=prior)
    assert legend(ax) == ["prior", "posterior", "posterior median"]
    areas = []
    for patch in ax.patches[:2]:
        heights, edges, baseline = patch.get_data()
        areas.append(np.sum((heights - baseline) * np.diff(np.log10(edges))))
    np.testing.assert_allclose(areas[0] / areas[1], 0.98, atol=1e-3)
    assert len(ax.patches) == 3


def test_a_prior_higher_than_the_posterior_stays_in_its_row():
    draws, prior = {"tau": np.logspace(-2, 2, 200)}, {"tau": np.logspace(-0.1, 0.1, 200)}
    posterior, reference = sorted(
        patch.get_data().values.max() for patch in plots.plot_precisions(draws, prior=prior).patches
    )
    np.testing.assert_allclose(reference, plots.ROW_HEIGHT)
    assert posterior < 0.1


def test_precisions_that_never_moved_are_drawn():
    ax = plots.plot_precisions({"fixed": np.full(10, 100.0)}, prior={"fixed": np.full(10, 1.0)})
    assert len(ax.patches) == 2


@pytest.mark.parametrize(
    ("draws", "prior", "message"),
    [
        ({}, None, "draws must hold at least one site, got none"),
        ({"tau": np.zeros(0)}, None, r"draws\['tau'\] must hold draws of a precision.*got no draws"),
        ({"tau": np.array([1.0, 0.0])}, None, r"draws\['tau'\] must .*finite and above 0, got 0.0"),
        ({"tau": np.array([1.0, np.nan])}, None, r"draws\['tau'\] must .*got nan"),
        ({"tau": np.ones(2)}, {"tau": np.array([-1.0])}, r"prior\['tau'\] must .*got -1.0"),
        ({"tau": np.ones(2)}, {"tua": np.ones(2)}, r"prior must name sites of draws, \['tau'\], got \['tua'\]"),
    ],
    ids=["no sites", "no draws", "zero", "not a number", "prior negative", "prior elsewhere"],
)
def test_precisions_refuse(draws, prior, message):
    with pytest.raises(ValueError, match=message):
        plots.plot_precisions(draws, prior=prior)
