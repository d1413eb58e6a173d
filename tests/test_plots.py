"""The figures: what they show, and errors that name the argument, the rule and the value."""

import numpy as np
import pytest
import xarray
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

from split_common import plots
from split_common.metrics import (
    Calibration,
    ClassMatrix,
    Coverage,
    expected_calibration_error,
    normal_interval_coverage,
    variance_decomposition,
)

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


def test_entropy_figure_takes_one_and_zero_and_refuses_classes():
    assert [label.split(",")[0] for label in legend(plots.plot_entropy([0.1, 0.2], [1, 0]))] == ["right: 1", "wrong: 1"]
    for bad, value in (([2, 0, 5], "2"), ([1.0, 0.5, 0.0], "0.5"), (["a", "b", "b"], "a"), ([1.0, 0.0, np.nan], "nan")):
        with pytest.raises(ValueError, match=f"is_right must be True or False, or 1 or 0, .* got {value}"):
            plots.plot_entropy([0.1, 0.2, 0.3], bad)


@pytest.mark.parametrize("bins", [0, -1, 2.5, "auto", True])
def test_there_are_bins(bins):
    with pytest.raises(ValueError, match="bins must be a whole number of at least 1, got "):
        plots.plot_entropies({"a": [0.1, 0.2]}, bins=bins)
    with pytest.raises(ValueError, match="bins must be a whole number of at least 1, got "):
        plots.plot_entropy([0.1, 0.2], [1, 0], bins=bins)


def test_bins_are_numbered_or_given_by_their_edges():
    assert len(plots.plot_entropies({"a": [0.1, 0.2]}, bins=np.int64(3)).patches) == 3
    assert len(plots.plot_entropies({"a": [0.1, 0.2]}, bins=[0.0, 0.15, 0.3]).patches) == 2
    for bad in ([0.3, 0.0], [0.1]):
        with pytest.raises(ValueError, match="bins must be a number of bins, or at least two edges that ascend, got "):
            plots.plot_entropies({"a": [0.1, 0.2]}, bins=bad)


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


def calibration():
    rng = np.random.default_rng(0)
    return expected_calibration_error(rng.dirichlet(np.ones(3), size=60), rng.integers(3, size=60))


def test_reliability_shows_the_bins_that_hold_predictions():
    found = calibration()
    own = Figure().add_subplot()
    ax = plots.plot_reliability({"a": found, "b": found}, ax=own)
    assert ax is own
    kept = found.count > 0
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), np.stack([found.confidence, found.accuracy], 1)[kept])
    sizes = ax.collections[0].get_sizes()
    assert np.argmax(sizes) == np.argmax(found.count[kept])
    assert legend(ax) == [f"a: {found.error:.3f}", f"b: {found.error:.3f}"]
    np.testing.assert_array_equal(ax.lines[-1].get_xydata(), [[0, 0], [1, 1]])


def test_coverage_is_drawn_in_the_order_of_the_levels():
    found = normal_interval_coverage(np.zeros(9), np.ones(9), np.linspace(-2, 2, 9), (0.9, 0.5, 0.7))
    ax = plots.plot_coverage({"a": found})
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [0.5, 0.7, 0.9])
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), found.share[[1, 2, 0]])


@pytest.mark.parametrize("plot", [plots.plot_reliability, plots.plot_coverage])
def test_diagrams_refuse(plot):
    with pytest.raises(ValueError, match="at least one model, got none"):
        plot({})
    with pytest.raises(TypeError, match="must be a mapping from names to"):
        plot(calibration())
    other = Coverage(np.ones(1), np.ones(1)) if plot is plots.plot_reliability else calibration()
    with pytest.raises(TypeError, match=r"\['a'\] must be a (Calibration|Coverage), got (Coverage|Calibration)"):
        plot({"a": other})
    assert isinstance(calibration(), Calibration)


def test_entropies_of_errors_are_their_empirical_distribution():
    ax = plots.plot_error_entropies({"a": np.array([2.0, 1.0, 1.0]), "none": np.zeros(0)})
    x, share = ax.lines[0].get_data()
    np.testing.assert_allclose(x, [0, 1, 1, 2, 2.1])
    np.testing.assert_allclose(share, [0, 1 / 3, 2 / 3, 1, 1])
    assert legend(ax) == ["a: 3 errors", "none: no errors"]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({}, r"at least one value, got none in the models \[\]"),
        ({"a": np.zeros(0)}, r"got none in the models \['a'\]"),
        ({"a": np.array([np.nan])}, r"entropies\['a'\] must be finite and at least 0, got nan"),
    ],
)
def test_entropies_of_errors_refuse(groups, message):
    with pytest.raises(ValueError, match=message):
        plots.plot_error_entropies(groups)


def test_matrix_writes_the_cells_that_hold_predictions():
    matrix = ClassMatrix(np.array([[0.1, 0.7], [np.nan, 0.05]]), np.array([[8, 1], [0, 9]]))
    ax = plots.plot_mutual_information(matrix)
    assert sorted(text.get_text() for text in ax.texts) == ["0.05", "0.10", "0.70"]
    np.testing.assert_array_equal(ax.images[0].get_array().mask, [[False, False], [True, False]])
    assert not plots.plot_mutual_information(ClassMatrix(np.zeros((20, 20)), np.ones((20, 20)))).texts


@pytest.mark.parametrize(
    ("matrix", "names", "message"),
    [
        (ClassMatrix(np.zeros((2, 3)), np.ones((2, 3))), None, r"two square arrays of one shape, got shapes \(2, 3\)"),
        (ClassMatrix(np.zeros((2, 2)), np.ones((3, 3))), None, r"got shapes \(2, 2\), \(3, 3\)"),
        (ClassMatrix(np.full((2, 2), np.nan), np.ones((2, 2))), None, "finite and at least 0 where there are"),
        (ClassMatrix(np.full((2, 2), -1.0), np.ones((2, 2))), None, "finite and at least 0 where there are"),
        (ClassMatrix(np.zeros((2, 2)), np.ones((2, 2))), ["a"], "a name for each of 2 classes, got 1"),
    ],
)
def test_matrix_refuses(matrix, names, message):
    with pytest.raises(ValueError, match=message):
        plots.plot_mutual_information(matrix, class_names=names)


def run_of(seed=0, chains=2):
    """A run in ArviZ's format, on which every statistic and figure can be drawn."""
    from split_common.runs.reading import as_inference_data

    rng = np.random.default_rng(seed)
    dims = ("chain", "draw")
    statistics = {"lp": (dims, rng.normal(size=(chains, 50))), "acceptance_rate": (dims, rng.random((chains, 50)))}
    draws = {"w": ((*dims, "i"), rng.normal(size=(chains, 50, 4))), "b": (dims, rng.normal(size=(chains, 50)))}
    return as_inference_data({"posterior": xarray.Dataset(draws), "sample_stats": xarray.Dataset(statistics)})


def test_runs_are_drawn_of_arviz_format_and_of_arrays():
    run = run_of()
    values = run["sample_stats"]["lp"].values
    for given in (run, values):
        ax = plots.plot_log_posterior({"wide": given, "narrow": given})
        assert legend(ax) == ["wide", "narrow"]
        np.testing.assert_array_equal([line.get_ydata() for line in ax.lines[:2]], values)
    ax = plots.plot_acceptance({"wide": run})
    expected = run["sample_stats"]["acceptance_rate"].values.mean(axis=1)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), expected)


@pytest.mark.parametrize("plot", [plots.plot_log_posterior, plots.plot_acceptance])
@pytest.mark.parametrize(
    ("run", "message"),
    [
        (np.zeros(3), r"runs\['a'\] must have shape \(chains, draws\), neither of them 0, got shape \(3,\)"),
        (np.full((1, 3), np.nan), r"runs\['a'\] must be finite, got nan"),
    ],
)
def test_runs_refuse(plot, run, message):
    with pytest.raises(ValueError, match=message):
        plot({"a": run})
    with pytest.raises(ValueError, match="runs must hold at least one entry, got none"):
        plot({})
    with pytest.raises(TypeError, match="runs must be a mapping from names, got ndarray"):
        plot(run)


def test_rates_lie_between_zero_and_one():
    with pytest.raises(ValueError, match=r"runs\['a'\] must have rates from 0 to 1, got 1.5"):
        plots.plot_acceptance({"a": np.array([[0.5, 1.5]])})


def test_curves_along_the_draws():
    ax = plots.plot_cumulative({"a": np.array([0.5, 0.75]), "one": np.array([0.6])}, ylabel="log score")
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [[1, 0.5], [2, 0.75]])
    assert ax.get_ylabel() == "log score"
    for bad, message in ((np.zeros((2, 2)), r"got shape \(2, 2\)"), (np.array([np.nan]), "got nan")):
        with pytest.raises(ValueError, match=rf"curves\['a'\] must .*{message}"):
            plots.plot_cumulative({"a": bad})


@pytest.mark.parametrize(("plot", "name"), [(plots.plot_rhat, "rhat"), (plots.plot_ess, "ess")])
def test_rows_show_arvizs_numbers(plot, name):
    import arviz as az

    run = run_of()
    ax = plot(run)
    assert sorted(text.get_text() for text in ax.get_yticklabels()) == ["b", "w (4)"]
    ax = plot(run, var_names=["w"])
    numbers = getattr(az, name)(run["posterior"][["w"]] if hasattr(run, "_groups") else run)["w"].values
    np.testing.assert_allclose(ax.lines[0].get_xdata(), [np.median(numbers)], rtol=1e-10)
    np.testing.assert_allclose(ax.collections[0].get_segments()[0][:, 0], [numbers.min(), numbers.max()], rtol=1e-10)
    again = plot({"w": numbers})
    np.testing.assert_allclose(again.lines[0].get_xdata(), ax.lines[0].get_xdata())


def test_a_coordinate_that_never_moves_hides_no_other():
    draws = np.random.default_rng(0).normal(size=(2, 200, 3))
    draws[0, :, 0] += 50.0  # its chains have not mixed
    draws[:, :, 2] = 1.0
    run = xarray.Dataset({"w": (("chain", "draw", "i"), draws), "fixed": (("chain", "draw"), draws[:, :, 2])})
    ax = plots.plot_rhat(run)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["w (3, 1 not finite)", "fixed (1 not finite)"]
    assert ax.collections[0].get_segments()[0][1, 0] > 1.5
    assert np.all(np.isfinite(ax.lines[0].get_xdata()))


@pytest.mark.parametrize(("plot", "name"), [(plots.plot_rhat, "R-hat"), (plots.plot_ess, "effective sample size")])
def test_rows_of_too_few_draws_are_refused(plot, name):
    run = xarray.Dataset({"w": (("chain", "draw"), np.random.default_rng(0).normal(size=(2, 3)))})
    with pytest.raises(ValueError, match=rf"data must have a finite {name} .* 4 draws .*, got none in \['w'\]"):
        plot(run)


@pytest.mark.parametrize("plot", [plots.plot_rhat, plots.plot_ess])
def test_rows_refuse(plot):
    with pytest.raises(ValueError, match=r"var_names must be some of \['b', 'w'\], at least one, got \['v'\]"):
        plot(run_of(), var_names=["v"])
    with pytest.raises(ValueError, match=r"w must hold finite numbers, got \[nan\]"):
        plot({"w": np.array([1.0, np.nan])})


def test_one_chain_has_no_rhat():
    with pytest.raises(ValueError, match="data must hold several chains for R-hat, got one"):
        plots.plot_rhat(run_of(chains=1))


@pytest.mark.parametrize(
    ("plot", "name"),
    [
        (plots.plot_entropies, "entropies"),
        (plots.plot_error_entropies, "entropies"),
        (plots.plot_precisions, "draws"),
        (plots.plot_cumulative, "curves"),
    ],
)
def test_what_is_named_is_a_mapping(plot, name):
    with pytest.raises(TypeError, match=f"{name} must be a mapping from names, got list"):
        plot([1.0, 2.0])


def test_other_kinds_of_arguments_are_named():
    with pytest.raises(TypeError, match="prior must be a mapping from names, got list"):
        plots.plot_precisions({"tau": [1.0, 2.0]}, prior=[1.0])
    with pytest.raises(TypeError, match="matrix must be a ClassMatrix, got ndarray"):
        plots.plot_mutual_information(np.eye(3))


def test_tensors_whose_gradient_is_followed_are_drawn():
    torch = pytest.importorskip("torch")
    x = torch.linspace(0.1, 0.9, 5, requires_grad=True)
    two = torch.full((2, 5), 0.5, requires_grad=True)
    axes = [
        plots.plot_bands(x, x, x, x, data=(x, x)),
        plots.plot_entropy(x, torch.ones(5, dtype=torch.bool)),
        plots.plot_entropies({"a": x}),
        plots.plot_error_entropies({"a": x}),
        plots.plot_mutual_information(ClassMatrix(two[:, :2], two[:, :2])),
        plots.plot_precisions({"tau": x}, prior={"tau": x}),
        plots.plot_cumulative({"a": x}),
        plots.plot_log_posterior({"a": two}),
        plots.plot_acceptance({"a": two}),
        plots.plot_rhat({"w": x}),
        plots.plot_ess({"w": x}),
    ]
    assert all(ax.has_data() for ax in axes)
