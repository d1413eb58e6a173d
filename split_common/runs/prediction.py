r"""Predictions at new rows: which sites are predicted, and summaries where draws would be too many.

Each draw :math:`w_s` of the posterior has a predictive distribution at each row. Summaries of these are the means that
:mod:`split_common.metrics` defines, added up batch after batch in float64. For classes the sums of probabilities and of
entropies are kept. For other sites, with means :math:`f_s` and variances :math:`\sigma^2_s`, these are the sum of the
variances, the mean, and the sum of squares about it. Two batches of :math:`m` and :math:`n` draws
with means :math:`a, b` and sums of squares :math:`A, B` have together

.. math:: \bar f = a + \frac{n}{m+n}(b - a), \qquad
    \sum_s (f_s - \bar f)^2 = A + B + \frac{mn}{m+n}(b - a)^2,

without the cancellation of a sum of squares about zero.

Reference:
    Chan, Golub and LeVeque (1983), Algorithms for Computing the Sample Variance, The American Statistician 37.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from split_common.checks import check_positive_int
from split_common.data_axes import axis_of_rows
from split_common.errors import WHOLE_RUNS, ModelNotSplittableError, first_line
from split_common.metrics import expected_entropy, predictive_entropy, predictive_probabilities
from split_common.runs.pointwise import Batch, Grid, Piece, Posterior, Rows, check_free, collected
from split_common.values import shown

SUMMARIES = "summaries"
GROUP = "posterior_predictive"
GIVEN = "_given_to_the_sites"  # an extra keyword argument of a model: values of its sites


class Probabilities(NamedTuple):
    """Distribution over classes, by draw; an array of any framework.

    Attributes:
        classes: probabilities, shape (draws, ..., classes).
    """

    classes: Any


class Moments(NamedTuple):
    """First two moments of a distribution, by draw; arrays of any framework.

    Attributes:
        mean: means, shape (draws, ...).
        variance: variances, likewise.
    """

    mean: Any
    variance: Any


class PredictedSite(NamedTuple):
    """A sample site of a model that is run on the data of a prediction.

    Attributes:
        name: name of the site.
        observed: whether the model was given its value.
        plates: name of each plate around it, and its dim (negative); None for a sequential one.
        batch_shape: batch shape of its distribution.
        event_shape: event shape of its distribution.
    """

    name: str
    observed: bool
    plates: dict[str, int | None]
    batch_shape: tuple[int, ...]
    event_shape: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of its value."""
        return (*self.batch_shape, *self.event_shape)


class Target(NamedTuple):
    """The sites that a model predicts, and the rows.

    Attributes:
        plate: name of the plate over the rows; None where the model has none.
        num_rows: N.
        sites: names of the sites that are predicted.
        latents: names of the sites that are given by draws.
        row_axes: for each predicted site, the axis (negative) of its values along which the rows lie.
    """

    plate: str | None
    num_rows: int
    sites: list[str]
    latents: list[str]
    row_axes: dict[str, int]

    @classmethod
    def of(
        cls,
        sites: Sequence[PredictedSite],
        plate_sizes: Mapping[str, int],
        posterior: Posterior,
        lengths: Collection[int],
    ) -> Target:
        """The sites that a model predicts, checked.

        Args:
            sites: the sample sites of the model on the data of the prediction.
            plate_sizes: size of each plate.
            posterior: the draws.
            lengths: lengths of the arguments' arrays along the axes where their rows may lie.

        Raises:
            ValueError: where nothing is left to predict; for a latent site of which there are no draws, or one with an
                entry for each row; for draws of another shape; and where it is not clear which plate holds the rows.
        """
        free = [site for site in sites if not site.observed and site.name not in posterior.names]
        if not free:
            raise ValueError(
                "model must leave a site to predict, got a value or draws of every one; call it without the "
                "observations, as in y=None"
            )
        plate = _data_plate(free, plate_sizes, lengths)
        _check_all_rows(free, plate)
        given = [site for site in sites if not site.observed and site.name in posterior.names]
        if local := [site.name for site in given if plate is not None and plate in site.plates]:
            raise ValueError(
                f"a latent site must not have an entry for each row of plate {plate!r}, got {local}: draws for the "
                "training rows say nothing of new ones; leave it out of draws to draw it from its prior at each row"
            )
        posterior.check({site.name: site.shape for site in given})
        dims: dict[str, int] = {}
        for site in free:
            dim = -1 if plate is None else site.plates[plate]
            if dim is None:
                raise ValueError(f"the plate of the rows must be vectorised, got the sequential plate {plate!r}")
            dims[site.name] = dim
        num_rows = free[0].batch_shape[-1] if plate is None else plate_sizes[plate]
        axes = {site.name: dims[site.name] - len(site.event_shape) for site in free}
        return cls(plate, num_rows, list(dims), [site.name for site in given], axes)


def lengths_of_rows(
    shapes: Iterable[tuple[str, tuple[int, ...]]], data_axes: Mapping[str, int | None] | None
) -> set[int]:
    """Lengths of arrays along the axes where their rows may lie.

    Args:
        shapes: name and shape of each array.
        data_axes: the axis of the rows by name; None for the first axis of every array.

    Example:
        >>> lengths_of_rows([("X", (5, 2)), ("w", (2,))], None), lengths_of_rows([("X", (5, 2))], {"X": 1})
        ({2, 5}, {2})
    """
    found = set()
    for name, shape in shapes:
        axis = 0 if data_axes is None else axis_of_rows(data_axes, name, name.split("[")[0].split(".")[0])
        if axis is not None and axis < len(shape):
            found.add(shape[axis])
    return found


def _data_plate(free: Sequence[PredictedSite], plate_sizes: Mapping[str, int], lengths: Collection[int]) -> str | None:
    """The plate that holds the rows: one around a predicted site, and where there are several, as long as the data."""
    around = list(dict.fromkeys(plate for site in free for plate in site.plates))
    fitting = around if len(around) < 2 else [plate for plate in around if plate_sizes[plate] in lengths]
    if around and len(fitting) != 1:
        listed = ", ".join(f"{name!r} (size {plate_sizes[name]})" for name in around)
        apart = all(len(set(site.plates) & set(fitting)) == 1 for site in free)
        if apart and len({plate_sizes[plate] for plate in fitting}) == 1:
            raise ValueError(
                f"model must leave sites of one plate to predict, got sites in {listed}; predict those of one plate "
                "at a time, and give the model values of the others, which are not looked at"
            )
        raise ValueError(
            f"data_axes must say where the rows lie, as several plates may hold them: {listed}; got arrays of "
            f"lengths {sorted(lengths)}"
        )
    return fitting[0] if fitting else None


def _check_all_rows(free: Sequence[PredictedSite], plate: str | None) -> None:
    """Raise where a site is neither given nor predicted at every row."""
    if plate is None and len(free) == 1 and free[0].batch_shape:
        return
    outside = [site.name for site in free if plate is None or plate not in site.plates]
    if outside:
        place = f"plate {plate!r}, which holds the rows" if plate else "a plate over the rows"
        raise ValueError(
            f"draws must hold every latent site outside {place}, got none of {outside}; give an observation that is "
            "one of them to the model"
        )


class Options(NamedTuple):
    """Arguments of a prediction, checked.

    Attributes:
        posterior: the draws.
        into: None, a path, or "summaries".
        draws_per_batch: draws that are evaluated together.
        rows_per_batch: rows that are evaluated together.
    """

    posterior: Posterior
    into: Any
    draws_per_batch: int
    rows_per_batch: int

    @classmethod
    def checked(cls, draws: Any, into: Any, draws_per_batch: Any, rows_per_batch: Any) -> Options:
        """The options that arguments ask for.

        Raises:
            TypeError: for draws that are no posterior, or a path that is none.
            ValueError: for a number out of range, or a store that has predictions already.
        """
        if not _is_summaries(into):
            check_free(into, GROUP)
        batch = check_positive_int("draws_per_batch", draws_per_batch)
        return cls(Posterior.of(draws), into, batch, check_positive_int("rows_per_batch", rows_per_batch))

    @property
    def is_summary(self) -> bool:
        """Whether summaries are asked for."""
        return _is_summaries(self.into)

    def collect(self, pieces: Iterable[Piece], target: Target, grid: Grid, verdict: str) -> Any:
        """Draws or summaries from the pieces of a prediction, with the verdict on the rows as an attribute."""
        if self.is_summary:
            found = summarised(pieces, target, grid)
            return {name: summary.assign_attrs(split=verdict) for name, summary in found.items()}
        found = collected(pieces, self.posterior, grid, target.row_axes, GROUP, self.into)
        return found.assign_attrs(split=verdict)


def _is_summaries(into: Any) -> bool:
    return isinstance(into, str) and into == SUMMARIES


def cannot_divide(error: ModelNotSplittableError, num_rows: int, rows_per_batch: int) -> ModelNotSplittableError:
    """The error for a model whose rows cannot be predicted some at a time."""
    why = first_line(error).split(f"; {WHOLE_RUNS}")[0]
    return type(error)(
        f"{num_rows} rows cannot be predicted {rows_per_batch} at a time: {why}; rows_per_batch={num_rows} predicts "
        "them all at once"
    )


def no_moments(site: str, distribution: str) -> ValueError:
    """The error for a site whose distribution has no mean or no variance."""
    return ValueError(
        f"into='summaries' needs a distribution with a mean and a variance at site {site!r}, got {distribution}; "
        "take draws (into=None or a path)"
    )


def summarised(pieces: Iterable[Piece], target: Target, grid: Grid) -> dict[str, Any]:
    """Summaries of each row's predictive distribution, from pieces in the order of the draws.

    Args:
        pieces: pieces of all draws and rows, with :class:`Probabilities` or :class:`Moments` of each site.
        target: what is predicted.
        grid: how draws and rows are divided.

    Returns:
        For each site an ``xarray.Dataset``.

    Raises:
        ValueError: for numbers that are not finite.
    """
    sums: dict[str, ClassSums | MomentSums] = {}
    for piece in pieces:
        assert piece.rows is not None  # whatever is predicted has rows
        for name, values in piece.values.items():
            if name not in sums:
                kind = ClassSums if isinstance(values, Probabilities) else MomentSums
                sums[name] = kind(name, grid.num_rows, target.row_axes[name])
            sums[name].add(values, piece.batch, piece.rows)
    return {name: found.dataset() for name, found in sums.items()}


class ClassSums:
    """Sums of class probabilities and of entropies over draws.

    Args:
        site: name of the site.
        num_rows: N.
        axis: axis of the rows (negative), counted without the axis of the classes.
    """

    def __init__(self, site: str, num_rows: int, axis: int):
        self._site, self._num_rows, self._axis = site, num_rows, axis
        self._count, self._probabilities, self._entropy = 0, np.empty(0), np.empty(0)

    def add(self, values: Any, batch: Batch, rows: Rows) -> None:
        """Add a batch of draws at some rows."""
        classes = _kept(np.asarray(values.classes), self._axis - 1, rows)
        if not batch.before and not rows.first:
            shape = _of_all_rows(classes.shape[1:], self._axis - 1, self._num_rows)
            self._probabilities, self._entropy = np.zeros(shape), np.zeros(shape[:-1])
        flat = classes.reshape(len(classes), -1, classes.shape[-1])
        _check_finite(self._site, "probabilities", flat)
        place = _place(classes.ndim - 1, self._axis - 1, rows)
        self._probabilities[place] += len(flat) * predictive_probabilities(flat).reshape(classes.shape[1:])
        self._entropy[place[:-1]] += len(flat) * expected_entropy(flat).reshape(classes.shape[1:-1])
        self._count = batch.before + len(flat)

    def dataset(self) -> Any:
        """Mean probabilities, entropies and mutual information."""
        import xarray

        mean = self._probabilities / self._count
        flat = mean.reshape(1, -1, mean.shape[-1])
        entropy, expected = predictive_entropy(flat).reshape(mean.shape[:-1]), self._entropy / self._count
        dims = _dims(self._site, mean.ndim - 1)
        return xarray.Dataset(
            {
                "probabilities": ((*dims, "class"), mean),
                "predictive_entropy": (dims, entropy),
                "expected_entropy": (dims, expected),
                "mutual_information": (dims, np.maximum(entropy - expected, 0.0)),
            }
        )


class MomentSums:
    """Mean over draws of means and variances, and squares of the means about their mean.

    Args:
        site: name of the site.
        num_rows: N.
        axis: axis of the rows (negative).
    """

    def __init__(self, site: str, num_rows: int, axis: int):
        self._site, self._num_rows, self._axis = site, num_rows, axis
        self._count = 0
        self._mean, self._squares, self._noise = np.empty(0), np.empty(0), np.empty(0)

    def add(self, values: Any, batch: Batch, rows: Rows) -> None:
        """Add a batch of draws at some rows."""
        means = _kept(np.asarray(values.mean, np.float64), self._axis, rows)
        noise = _kept(np.asarray(values.variance, np.float64), self._axis, rows)
        _check_finite(self._site, "means", means)
        _check_finite(self._site, "variances", noise)
        if not batch.before and not rows.first:
            shape = _of_all_rows(means.shape[1:], self._axis, self._num_rows)
            self._mean, self._squares, self._noise = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        before, num, place = batch.before, len(means), _place(means.ndim - 1, self._axis, rows)
        mean = means.mean(0)
        step = mean - self._mean[place]
        self._squares[place] += ((means - mean) ** 2).sum(0) + step**2 * (before * num / (before + num))
        self._mean[place] += step * (num / (before + num))
        self._noise[place] += noise.sum(0)
        self._count = before + num

    def dataset(self) -> Any:
        """Mean, aleatoric and epistemic variance."""
        import xarray

        dims = _dims(self._site, self._mean.ndim)
        return xarray.Dataset(
            {
                "mean": (dims, self._mean),
                "aleatoric": (dims, self._noise / self._count),
                "epistemic": (dims, self._squares / self._count),
            }
        )


def _kept(values: np.ndarray, axis: int, rows: Rows) -> np.ndarray:
    """Values of the rows that count."""
    return np.moveaxis(np.moveaxis(values, axis, 0)[rows.first - rows.start :], 0, axis)


def _of_all_rows(shape: tuple[int, ...], axis: int, num_rows: int) -> tuple[int, ...]:
    whole = list(shape)
    whole[axis] = num_rows
    return tuple(whole)


def _place(ndim: int, axis: int, rows: Rows) -> tuple[slice, ...]:
    place = [slice(None)] * ndim
    place[axis] = slice(rows.first, rows.stop)
    return tuple(place)


def _dims(site: str, ndim: int) -> tuple[str, ...]:
    return tuple(f"{site}_dim_{k}" for k in range(ndim))


def _check_finite(site: str, what: str, values: np.ndarray) -> None:
    if not np.all(np.isfinite(values)):
        raise ValueError(
            f"{what} of site {site!r} must be finite, got {shown(float(values[~np.isfinite(values)][0]))}; take draws "
            "(into=None or a path)"
        )
