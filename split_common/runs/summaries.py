r"""Means, standard deviations, effective sample sizes and R-hat of draws that are not kept.

The memory for a variable does not grow with the number of draws: each chain's draws are divided into at most
K = 512 consecutive *batches* of b draws, b a power of two that doubles when there is no more room. For each batch its
mean is kept, and the sum of squared deviations from it.

**Merging.** Two groups of :math:`n_1, n_2` draws with means :math:`m_1, m_2` and sums of squares
:math:`s_1, s_2`, and :math:`d = m_2 - m_1`, together have (Chan, Golub and LeVeque, 1983)

.. math:: m = m_1 + d\,\frac{n_2}{n_1+n_2}, \qquad s = s_1 + s_2 + d^2 \frac{n_1 n_2}{n_1+n_2}.

A batch of 2b draws is always its two halves merged, down to single draws, and draws that do not fill a batch yet are
kept as the groups of the binary digits of their number. So the arrays are the same bit for bit, whichever pieces the
draws came in. Errors of rounding grow with the logarithm of the number of draws.

**Effective draws.** Let :math:`Y` be the series of batch means, N a chain, of M chains. By the definition of the
effective sample size :math:`e(Y)`, the mean of :math:`MNb` draws, which is that of Y, has the squared standard error

.. math:: \operatorname{MCSE}^2 = \operatorname{var}(Y) / e(Y),

and with n draws in all, a few of them in no whole batch, it is :math:`MNb/n` times that. The effective sample size
of the draws is the number of independent ones that would have it:

.. math:: \operatorname{ess} = \operatorname{var}(x) / \operatorname{MCSE}^2
          = e(Y)\,\frac{\operatorname{var}(x)}{\operatorname{var}(Y)}\,\frac{n}{MNb}.

:math:`e(Y)` is that of Vehtari and others (2021) as ArviZ computes it for the mean: chains split in halves, Geyer's
initial monotone sequence. It is what corrects batches shorter than the chain's memory, whose means are correlated. Up
to 512 draws a chain b is 1, and ess is ArviZ's ``ess(method="mean")``, the standard error its ``mcse(method="mean")``.

**Why 512.** For more draws N is between 256 and 512, and the accuracy is that of the autocovariances of so many batch
means, whatever the number of draws. For autoregressive chains of correlation −0.5 to 0.99 the ratio of ess to ArviZ's
from all draws has a mean of 0.97 to 1.02 and, for four chains, a standard deviation of at most 8 %; for one chain, at
most 15 %. An estimate of 400 effective draws from all draws scatters by 10 % too. 512 batches take the memory of 1,024
numbers of 64 bits for each chain and coordinate, and 44 for the rest.

**R-hat** is split R-hat: the first and the last N/2 batches of every chain, whose means and variances are exact. It is
that of the draws themselves, neither rank-normalised nor folded: where tails are so heavy that variances are infinite,
it means nothing.

References:
    Chan, Golub and LeVeque (1983), Algorithms for computing the sample variance, The American Statistician 37.
    Flegal and Jones (2010), Batch means and spectral variance estimators in MCMC, Annals of Statistics 38.
    Geyer (1992), Practical Markov chain Monte Carlo, Statistical Science 7.
    Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), Rank-normalization, folding, and localization: an improved
    R-hat, Bayesian Analysis 16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.fft import next_fast_len

from split_common.checks import check_chain, check_positive_int
from split_common.values import real_array, shown, whole_number

NUM_BATCHES = 512
NUM_LEVELS = 22  # levels of groups that do not fill a batch: 512 batches of 2²² draws are all that a run can count
LEAST_SERIES = 4  # least number of batches for which figures are computed, as in ArviZ
BLOCK = 2**17  # numbers that are processed at once, so that they stay in a processor's cache
COORDINATES_AT_ONCE = 256
ARRAYS = ("counts", "batch_means", "batch_squares", "group_means", "group_squares")


class Moments(NamedTuple):
    """Means and sums of squares of groups of draws, all of the same size.

    Attributes:
        count: number of draws in a group.
        mean: means of the groups, any shape.
        squares: sums of squared deviations from the means, the same shape.

    Example:
        >>> Moments(1, np.array(2.0), np.array(0.0)).merged(Moments(1, np.array(4.0), np.array(0.0)))
        Moments(count=2, mean=np.float64(3.0), squares=np.float64(2.0))
    """

    count: int
    mean: Any
    squares: Any

    def merged(self, other: Moments) -> Moments:
        """Each group merged with one of ``other``."""
        count = self.count + other.count
        difference = other.mean - self.mean
        mean = self.mean + difference * (other.count / count)
        difference *= difference
        difference *= self.count * (other.count / count)
        return Moments(count, mean, self.squares + other.squares + difference)

    def pooled(self, axis: int) -> Moments:
        """All groups along an axis, merged.

        Args:
            axis: axis of the means, of a length of at least 1.
        """
        origin = np.take(self.mean, [0], axis)  # so that the mean of equal numbers is that number
        mean = origin + (self.mean - origin).mean(axis, keepdims=True)
        squares = self.squares.sum(axis) + self.count * ((self.mean - mean) ** 2).sum(axis)
        return Moments(self.count * self.mean.shape[axis], mean.squeeze(axis), squares)

    @property
    def sd(self) -> Any:
        """Standard deviations within the groups, by n − 1; NaN of fewer than 2 draws."""
        return np.sqrt(self.squares / (self.count - 1)) if self.count > 1 else np.full_like(self.mean, np.nan)


class RunningSummary:
    """Mean, standard deviation, standard error, effective sample size and R-hat of a variable, updated with new draws.

    A coordinate that ever had a draw that is not finite has NaN everywhere; one that never changes has NaN for
    effective sample size, standard error and R-hat. Chains may have different numbers of draws. Mean and standard
    deviation are of all draws; R-hat and the effective sample size depend on as many draws of each chain that
    has begun as the shortest of them has, and the latter is then scaled to all draws.

    Args:
        counts: number of draws of each chain, shape (C,).
        batches: means and sums of squares of the batches, each of shape (C, 512, *shape).
        groups: the same for draws that do not fill a batch, by the binary digits of their number, each of shape
            (C, 22, *shape).

    Example:
        >>> draws = np.random.default_rng(0).standard_normal((4, 1000, 3))
        >>> summary = RunningSummary.start(num_chains=4, shape=(3,))
        >>> for chain in range(4):
        ...     for start in range(0, 1000, 100):
        ...         summary.add(chain, draws[chain, start : start + 100])
        >>> np.allclose(summary.mean, draws.mean((0, 1))), np.allclose(summary.sd, draws.std((0, 1), ddof=1))
        (True, True)
        >>> summary.ess.shape, bool(np.all(summary.rhat < 1.01))
        ((3,), True)
    """

    def __init__(
        self, counts: np.ndarray, batches: tuple[np.ndarray, np.ndarray], groups: tuple[np.ndarray, np.ndarray]
    ):
        self._counts = counts
        self.shape = batches[0].shape[2:]
        size = math.prod(self.shape)
        self._batches = tuple(x.reshape(len(counts), NUM_BATCHES, size) for x in batches)
        self._groups = tuple(x.reshape(len(counts), NUM_LEVELS, size) for x in groups)

    @classmethod
    def start(cls, num_chains: int, shape: tuple[int, ...]) -> RunningSummary:
        """The summary of no draws.

        Args:
            num_chains: C.
            shape: shape of one draw of the variable; () for a scalar.

        Raises:
            ValueError: unless the number of chains is at least 1, and the shape a tuple of whole numbers of at least 0.

        Example:
            >>> RunningSummary.start(num_chains=2, shape=()).counts
            array([0, 0])
        """
        num_chains = check_positive_int("num_chains", num_chains)
        if not isinstance(shape, tuple) or any((n := whole_number(length)) is None or n < 0 for length in shape):
            raise ValueError(f"shape must be a tuple of whole numbers of at least 0, got {shown(shape)}")
        batches, groups = (num_chains, NUM_BATCHES, *shape), (num_chains, NUM_LEVELS, *shape)
        counts = np.zeros(num_chains, np.int64)
        return cls(counts, (np.zeros(batches), np.zeros(batches)), (np.zeros(groups), np.zeros(groups)))

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> RunningSummary:
        """Inverse of :meth:`arrays`.

        Args:
            arrays: the arrays, which are copied, so that they do not change as draws are added.

        Raises:
            ValueError: for an array that is missing, or whose shape does not go with the others.

        Example:
            >>> summary = RunningSummary.start(num_chains=1, shape=())
            >>> summary.add(0, np.arange(10.0))
            >>> RunningSummary.of_arrays(summary.arrays()).mean
            array(4.5)
        """
        _check_arrays(arrays)
        copies = {name: np.array(arrays[name], np.float64) for name in ARRAYS[1:]}
        batches = copies["batch_means"], copies["batch_squares"]
        return cls(np.array(arrays["counts"], np.int64), batches, (copies["group_means"], copies["group_squares"]))

    def arrays(self) -> dict[str, np.ndarray]:
        """The content of the summary, for a store: views, which change as draws are added. Unused places hold 0.

        Returns:
            "counts", shape (C,); "batch_means" and "batch_squares", shape (C, 512, *shape); "group_means" and
            "group_squares", shape (C, 22, *shape).
        """
        parts = (x.reshape(*x.shape[:2], *self.shape) for x in (*self._batches, *self._groups))
        return dict(zip(ARRAYS, (self._counts, *parts), strict=True))

    @property
    def counts(self) -> np.ndarray:
        """Number of draws of each chain, shape (C,)."""
        return self._counts.copy()

    def add(self, chain: int, draws: Any) -> None:
        """Add the next draws of a chain.

        Args:
            chain: number of the chain, from 0.
            draws: real numbers, shape (n, *shape), n at least 0.

        Raises:
            ValueError: for another chain or shape, and for what are not real numbers.

        Example:
            >>> summary = RunningSummary.start(num_chains=1, shape=(2,))
            >>> summary.add(0, [[1.0, 0.0], [3.0, 0.0]])
            >>> summary.mean, summary.sd.round(3)
            (array([2., 0.]), array([1.414, 0.   ]))
        """
        chain = check_chain(chain, len(self._counts))
        is_bool = getattr(draws, "dtype", None) == np.bool_
        array = real_array(np.asarray(draws, np.int8) if is_bool else draws)
        if array is None or array.ndim != 1 + len(self.shape) or array.shape[1:] != self.shape:
            found = shown(draws) if array is None else f"numbers of shape {array.shape}"
            raise ValueError(f"draws must be real numbers of shape (n, *{self.shape}), got {found}")
        array = array.reshape(len(array), self._batches[0].shape[2])
        array[~np.isfinite(array)] = np.nan
        rows = max(2, BLOCK // max(array.shape[1], 1))
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(array), rows):
                self._add_block(chain, array[start : start + rows])

    def _add_block(self, chain: int, draws: np.ndarray) -> None:
        """Merge groups of equal size two by two, from single draws to whole batches."""
        count = int(self._counts[chain])
        top = filled_from = _level(count)
        num_batches, level = count >> top, 0
        nodes = Moments(1, draws, np.broadcast_to(0.0, draws.shape))
        while len(nodes.mean):
            if level == top:
                taken = min(NUM_BATCHES - num_batches, len(nodes.mean))
                self._put_batches(chain, num_batches, _rows(nodes, 0, taken))
                nodes, num_batches = _rows(nodes, taken, None), num_batches + taken
                if len(nodes.mean):
                    self._halve(chain, nodes.count)
                    top, num_batches = top + 1, num_batches // 2
                continue
            if level < filled_from and count >> level & 1:
                nodes = self._with_group(chain, level, nodes)
            if len(nodes.mean) % 2:
                for kept, x in zip(self._groups, nodes[1:], strict=True):
                    kept[chain, level] = x[-1]
            even = len(nodes.mean) // 2 * 2
            firsts, seconds = (Moments(nodes.count, *(x[k:even:2] for x in nodes[1:])) for k in (0, 1))
            nodes, level = firsts.merged(seconds), level + 1
        self._counts[chain] += len(draws)

    def _put_batches(self, chain: int, place: int, nodes: Moments) -> None:
        for kept, x in zip(self._batches, nodes[1:], strict=True):
            kept[chain, place : place + len(x)] = x

    def _halve(self, chain: int, size: int) -> None:
        """Merge the batches of a chain, all 512 of ``size`` draws, two by two."""
        firsts, seconds = (Moments(size, *(x[chain, k::2] for x in self._batches)) for k in (0, 1))
        self._put_batches(chain, 0, firsts.merged(seconds))
        for kept in self._batches:
            kept[chain, NUM_BATCHES // 2 :] = 0.0

    def _with_group(self, chain: int, level: int, nodes: Moments) -> Moments:
        """The group kept at a level followed by the nodes; the group is no longer kept."""
        joined = Moments(
            nodes.count,
            *(np.concatenate([kept[chain, level, None], x]) for kept, x in zip(self._groups, nodes[1:], strict=True)),
        )
        for kept in self._groups:
            kept[chain, level] = 0.0
        return joined

    @property
    def mean(self) -> np.ndarray:
        """Mean of all draws; NaN where there are none."""
        return self._shaped(self._total().mean)

    @property
    def sd(self) -> np.ndarray:
        """Standard deviation of all draws, by n − 1; NaN of fewer than 2."""
        return self._shaped(self._total().sd)

    @property
    def mcse(self) -> np.ndarray:
        """Standard error of the mean."""
        return self._standard_error(self.sd)

    @property
    def ess(self) -> np.ndarray:
        """Effective sample size of the mean."""
        sd = self.sd
        return _size(sd, self._standard_error(sd))

    @property
    def rhat(self) -> np.ndarray:
        """Split R-hat, not rank-normalised; infinite where every half of a chain stands still, each elsewhere."""
        return self._rhat(self.sd)

    def table(self) -> dict[str, np.ndarray]:
        """All figures of the summary.

        Returns:
            "mean", "sd", "mcse", "ess" and "rhat", each of the shape of a draw.
        """
        total = self._total()
        mean, sd = self._shaped(total.mean), self._shaped(total.sd)
        mcse = self._standard_error(sd)
        return {"mean": mean, "sd": sd, "mcse": mcse, "ess": _size(sd, mcse), "rhat": self._rhat(sd)}

    def _rhat(self, sd: np.ndarray) -> np.ndarray:
        """Split R-hat of coordinates that change; NaN for others."""
        return np.where(sd > 0, self._shaped(self._by_coordinates(_rhat)), np.nan)

    def _standard_error(self, sd: np.ndarray) -> np.ndarray:
        """Standard error of the mean of all draws; NaN where their standard deviation is not above 0."""
        with np.errstate(all="ignore"):
            error = np.sqrt(self._shaped(self._by_coordinates(_squared_error)) / self._counts.sum())
        return np.where(sd > 0, error, np.nan)

    def _shaped(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(self.shape)

    def _total(self) -> Moments:
        """Moments of all draws of all chains."""
        size = self._batches[0].shape[2]
        total = Moments(0, np.full(size, np.nan), np.full(size, np.nan))
        with np.errstate(over="ignore", invalid="ignore"):
            for chain, count in enumerate(map(int, self._counts)):
                for part in self._parts(chain, count):
                    total = total.merged(part) if total.count else part
        return total

    def _parts(self, chain: int, count: int) -> list[Moments]:
        """Moments of the batches of a chain together, and of each of its groups."""
        top = _level(count)
        batches = Moments(1 << top, *(x[chain, : count >> top] for x in self._batches))
        parts = [batches.pooled(0)] if count >> top else []
        waiting = (level for level in reversed(range(top)) if count >> level & 1)
        return parts + [Moments(1 << level, *(x[chain, level] for x in self._groups)) for level in waiting]

    def _by_coordinates(self, figure: Callable[[Moments], np.ndarray]) -> np.ndarray:
        """A figure from the batches of all chains, for some coordinates at a time; NaN where batches are too few."""
        found = np.full(self._batches[0].shape[2], np.nan)
        chains = [(chain, int(count)) for chain, count in enumerate(self._counts) if count]
        level = max((_level(count) for _, count in chains), default=0)
        num = min((count >> level for _, count in chains), default=0)
        if num < LEAST_SERIES:
            return found
        for start in range(0, len(found), COORDINATES_AT_ONCE):
            columns = slice(start, start + COORDINATES_AT_ONCE)
            series = [self._series(chain, level - _level(count), num, columns) for chain, count in chains]
            means, squares = (np.stack(parts) for parts in zip(*series, strict=True))
            with np.errstate(all="ignore"):
                found[columns] = figure(Moments(1 << level, means, squares))
        return found

    def _series(self, chain: int, coarser: int, num: int, columns: slice) -> tuple[np.ndarray, np.ndarray]:
        """The first batches of a chain, ``2**coarser`` at a time merged into one: means and squares, shape (num, d)."""
        size = 1 << _level(int(self._counts[chain]))
        parts = (x[chain, : num << coarser, columns] for x in self._batches)
        merged = Moments(size, *(x.reshape(num, 1 << coarser, x.shape[1]) for x in parts)).pooled(1)
        return merged.mean, merged.squares


def effective_sample_size(x: np.ndarray) -> np.ndarray:
    """Effective sample size of the mean, as ArviZ computes it.

    Args:
        x: series of several coordinates, shape (chains, n, D), n at least 4.

    Returns:
        Effective sample sizes, shape (D,); meaningless for a coordinate that never changes.

    Example:
        >>> effective_sample_size(np.random.default_rng(0).standard_normal((4, 1000, 1))).round(-3)
        array([4000.])
    """
    half = x.shape[1] // 2
    halves = np.concatenate([x[:, :half], x[:, -half:]])
    means = halves.mean(1)
    length = next_fast_len(2 * half, real=True)
    spectrum = np.fft.rfft(halves - means[:, None], length, axis=1)
    power = (spectrum.real**2 + spectrum.imag**2).mean(0)
    autocovariance = np.fft.irfft(power, length, axis=0)[:half] / half
    variance = autocovariance[0] + means.var(0, ddof=1)
    correlation = 1 - (autocovariance[0] * half / (half - 1) - autocovariance) / variance
    correlation[0] = 1.0
    total = halves.shape[0] * half
    return total / np.maximum(_geyer(correlation), 1 / np.log10(total))


def _geyer(correlation: np.ndarray) -> np.ndarray:
    """Integrated autocorrelation time, shape (D,), of correlations by lag, shape (n, D), n at least 2.

    Sums of lags 2p and 2p + 1 are taken as long as they are positive, each at most the one before; of the pair after
    them only the first lag counts, once.
    """
    last = (len(correlation) - 3) // 2 if len(correlation) > 3 else 0  # the same range as in ArviZ
    evens = correlation[: 2 * last + 1 : 2]
    pairs = evens + correlation[1 : 2 * last + 2 : 2]
    goes_on = np.logical_and.accumulate(pairs[:last] > 0) if last else pairs[:0] > 0
    num_taken = goes_on.sum(0)
    taken = np.where(goes_on, np.minimum.accumulate(pairs[:last]), 0.0).sum(0)
    next_even, next_pair = (np.take_along_axis(x, num_taken[None], 0)[0] for x in (evens, pairs))
    counts_once = (next_even > 0) | (next_pair >= 0)
    time = -1 + 2 * taken + np.where(counts_once, next_even, 0.0)
    return np.where(np.isnan(correlation).any(0), np.nan, time)


def _size(sd: np.ndarray, mcse: np.ndarray) -> np.ndarray:
    """Number of independent draws whose mean has the standard error ``mcse``."""
    with np.errstate(all="ignore"):
        return (sd / mcse) ** 2


def _level(count: int) -> int:
    """Logarithm to base 2 of the size of a batch, for a chain of ``count`` draws."""
    level = max(0, count.bit_length() - NUM_BATCHES.bit_length())
    return level + (count >> level > NUM_BATCHES)


def _rows(nodes: Moments, start: int, stop: int | None) -> Moments:
    return Moments(nodes.count, nodes.mean[start:stop], nodes.squares[start:stop])


def _squared_error(batches: Moments) -> np.ndarray:
    """Squared standard error of the mean times the number of draws, from batches of all chains, shape (C, N, d)."""
    num_draws = batches.count * batches.mean.shape[0] * batches.mean.shape[1]
    variance = batches.mean.reshape(-1, batches.mean.shape[2]).var(0, ddof=1)
    return num_draws * variance / effective_sample_size(batches.mean)


def _rhat(batches: Moments) -> np.ndarray:
    """Split R-hat from the batches of all chains, shape (C, N, d)."""
    half = batches.mean.shape[1] // 2
    parts = (slice(None, half), slice(-half, None))
    firsts, lasts = (Moments(batches.count, *(x[:, part] for x in batches[1:])).pooled(1) for part in parts)
    means = np.concatenate([firsts.mean, lasts.mean])
    within = np.concatenate([firsts.squares, lasts.squares]).mean(0) / (firsts.count - 1)
    return np.sqrt(means.var(0, ddof=1) / within + (firsts.count - 1) / firsts.count)


def _check_arrays(arrays: Mapping[str, np.ndarray]) -> None:
    if missing := [name for name in ARRAYS if name not in arrays]:
        raise ValueError(f"arrays must have {list(ARRAYS)}, got none of name {missing[0]!r}")
    counts, *others = (np.shape(arrays[name]) for name in ARRAYS)
    for name, shape, num in zip(ARRAYS[1:], others, (NUM_BATCHES,) * 2 + (NUM_LEVELS,) * 2, strict=True):
        wanted = (*counts, num, *others[0][2:])
        if shape != wanted:
            raise ValueError(f"arrays[{name!r}] must have shape {wanted}, got {shape}")
