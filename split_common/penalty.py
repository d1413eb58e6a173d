r"""Metropolis-Hastings when the change of energy is known with noise: the penalty, and how the estimate is made.

Let :math:`\delta` estimate :math:`\Delta = U(z') - U(z)` with normal noise of variance :math:`\chi^2`. Accepting with
probability :math:`\min(1, e^{-\delta - u})`, :math:`u = \chi^2/2`, satisfies detailed balance with respect to
:math:`e^{-U}` on average over the noise: with :math:`x = \delta + u \sim N(\Delta + \chi^2/2, \chi^2)`

.. math:: E[\min(1, e^{-x})] = \Phi\Big(-\frac{\Delta + \chi^2/2}{\chi}\Big)
    + e^{-\Delta}\,\Phi\Big(\frac{\Delta - \chi^2/2}{\chi}\Big),

which is :math:`e^{-\Delta}` times itself at :math:`-\Delta`. Where :math:`\chi^2` is itself estimated, from K batches,
the average of :math:`e^{-u}` is off, because u is a nonlinear function of the estimate; the series

.. math:: u = \frac{\chi^2}{2} + \frac{\chi^4}{4(K+1)} + \frac{\chi^6}{3(K+1)(K+3)}

corrects that to third order, for :math:`\chi^2` below about K/4.

The target is :math:`\pi(z) \propto p(z) \prod_i p(y_i | z)^a`, a = 1 for the posterior; a = n/N for the expected
posterior of n rows, which over a finite data set is the likelihood tempered by n/N. A transition draws
:math:`p \sim N(0, M)` and a force; runs leapfrog steps by it to (z', p'); estimates :math:`\delta` and :math:`\chi^2`
from rows drawn independently of all that, and from rows of great influence, which every iteration reads; and accepts
with probability

.. math:: \min(1, \exp(-\delta - u(\chi^2) - [E(p') - E(p)])),

with E the kinetic energy.

Given the force, the proposal is a volume-preserving map that is its own inverse up to a flip of the momentum, so with
the above :math:`\pi` is left invariant, for as long as the noise is normal and its variance is known well enough.

The estimate is a mean over K batches of n of the N rows. Where Kn is at most a twentieth of N, rows are drawn
independently of one another, and :math:`\chi^2 = s^2/K`, with s² the sample variance of the batches, is without bias.
Where it is more, rows are distinct: two batches are then correlated by :math:`-S^2/N`, S² the variance of a row's
term, so s² has mean :math:`N^2 S^2/n`, their mean has variance :math:`N^2 S^2/(Kn) \cdot (1 - Kn/N)`, and
:math:`\chi^2 = (s^2/K)(1 - Kn/N)` is without bias. Batches that do not fit side by side are drawn independently of
one another, each of distinct rows: s²/K again.

Rows that are always read (:mod:`split_common.certainty`) are not among these N.

Where the rows lie in P shards on several devices, a batch draws its share of each shard, ⌈n/P⌉ rows, with replacement,
and a row of shard r counts N_r/⌈n/P⌉ times. A batch is then an unbiased estimate all the same, independent of the other
batches and distributed like them; so s²/K is without bias, from K - 1 degrees of freedom, as the penalty asks of it.
Differences between shards add nothing to the variance, since each batch has rows of every shard.

Reference:
    Ceperley and Dewing (1999), The penalty method for random walks with uncertain energies, J. Chem. Phys. 110. Cochran
    (1977), Sampling Techniques, chapter 2.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from split_common.checks import (
    MAX_COUNT,
    check_choice,
    check_flag,
    check_optional_choice,
    check_positive_float,
    check_positive_int,
    check_probability,
)
from split_common.minibatches import draws_with_replacement, share_of_shard
from split_common.values import as_numpy, copied, is_name, real_array, shown, whole_number

PROPOSALS = ("random_walk", "langevin", "hamiltonian")
TARGETS = ("posterior", "expected")
CONTROL_VARIATES = ("taylor1", "taylor2")
GRADIENTS = ("surrogate", "minibatch")
PENALTY_STATISTICS = ("chi2", "num_batches", "tail_error", "rows_touched")

# Without noise the best rates of the proposals are 0.234, 0.574 and 0.651. Noise, and a surrogate that is not quite the
# target, cause rejections whatever the step size, so a much higher target would only shorten steps.
TARGET_ACCEPT_PROBS = {"random_walk": 0.4, "langevin": 0.6, "hamiltonian": 0.65}
DEFAULT_NUM_STEPS = 5  # steps of a Hamiltonian trajectory
# In the metric of the normal approximation all directions turn alike: a quarter turn, give or take a fifth, forgets the
# start, z² too, and no direction comes back to where it was.
SHORTEST_STEP, LONGEST_TRAJECTORY = 2 / 3, 0.6 * math.pi  # a fraction of the step size; a length
MAX_GROWTH = 16  # largest factor by which the number of batches grows, where it adapts
TRUSTED_NOISE = 1 / 4  # largest χ² for which the series is good, as a share of K
MAX_HESSIAN_SIZE = 2000  # entries of a position up to which the whole Hessian is computed


def penalty(chi2: Any, num_batches: Any, corrected: bool) -> Any:
    """The penalty u of an estimate, a number or an array.

    Args:
        chi2: variance of the estimate.
        num_batches: K, the number of batches that the variance was estimated from.
        corrected: whether to correct for the variance being an estimate; False for a known variance.

    Example:
        >>> penalty(2.0, 20, corrected=False)
        1.0
        >>> round(penalty(2.0, 20, corrected=True), 4)
        1.0531
    """
    if not corrected:
        return chi2 / 2
    return chi2 / 2 + chi2**2 / (4 * (num_batches + 1)) + chi2**3 / (3 * (num_batches + 1) * (num_batches + 3))


def growth_times(num_warmup: int) -> list[int]:
    """Warm-up iterations after which the number of batches is set, by the noise seen since the last time."""
    return sorted({quarter * num_warmup // 4 for quarter in (1, 2, 3)} - {0})


class RowSampling(Enum):
    """How the rows of several batches are drawn."""

    INDEPENDENT_ROWS = "with replacement"
    DISTINCT_ROWS = "without replacement"
    INDEPENDENT_BATCHES = "without replacement inside a batch"


class Batches(NamedTuple):
    """How an estimate draws its rows.

    Attributes:
        num_rows: N.
        batch_size: n, rows of a batch.
        num_batches: K, the number of batches; if it adapts, its smallest value, of which it is always a multiple.
        max_groups: the largest multiple of ``num_batches`` that there may be.
        num_certain: C, the number of rows that are always read, and so are not drawn.
        num_shards: P, the number of shards of the rows; a batch draws equally many rows of each, with replacement.
    """

    num_rows: int
    batch_size: int
    num_batches: int
    max_groups: int = 1
    num_certain: int = 0
    num_shards: int = 1

    @classmethod
    def of(cls, num_rows: int, batch_size: int, num_batches: int, adapts: bool) -> Batches:
        """The batches of N rows, none of which is always read.

        Raises:
            ValueError: when a batch is larger than the data.
        """
        if batch_size > num_rows:
            raise ValueError(
                f"batch_size must be at most the number of rows in the data plate, {num_rows}, got {batch_size}"
            )
        group = batch_size * num_batches
        most = max(1, num_rows // group) if group <= num_rows else MAX_GROWTH
        return cls(num_rows, batch_size, num_batches, min(MAX_GROWTH, most) if adapts else 1)

    def beside(self, num_certain: int) -> Batches:
        """These batches, drawn from the rows that are not always read.

        Raises:
            ValueError: when fewer rows than a batch are left.
        """
        if self.batch_size > self.num_rows - num_certain:
            raise ValueError(
                f"batch_size must be at most the number of rows that are drawn, {self.num_rows - num_certain} "
                f"({num_certain} of {self.num_rows} are read in every iteration), got {self.batch_size}"
            )
        return self._replace(num_certain=num_certain)

    @property
    def num_drawn(self) -> int:
        """N - C, rows that are drawn from."""
        return self.num_rows - self.num_certain

    @property
    def share(self) -> int:
        """Rows of a batch that are drawn from each shard."""
        return share_of_shard(self.batch_size, self.num_shards)

    def rows_of(self, size: int) -> int:
        """Rows read for a batch of ``size``: rounded up so that each shard gives equally many."""
        return self.num_shards * share_of_shard(size, self.num_shards)

    @property
    def rows_needed(self) -> int:
        """Rows of all batches, Kn."""
        return self.batch_size * self.num_batches * self.max_groups

    @property
    def sampling(self) -> RowSampling:
        """How rows are sampled: with replacement, without, or without inside each batch."""
        if self.num_shards > 1:
            return RowSampling.INDEPENDENT_ROWS
        if draws_with_replacement(self.num_drawn, self.rows_needed):
            return RowSampling.INDEPENDENT_ROWS
        return RowSampling.DISTINCT_ROWS if self.rows_needed <= self.num_drawn else RowSampling.INDEPENDENT_BATCHES

    def chi2(self, between: Any, num_batches: Any) -> Any:
        """Variance of the mean of K batches, from the sample variance between them."""
        return between / num_batches * self.unread(num_batches)

    def unread(self, num_batches: Any) -> Any:
        """Finite-population factor of the variance: 1 - Kn/(N - C) where rows are distinct, else 1."""
        distinct = self.sampling is RowSampling.DISTINCT_ROWS
        return 1 - num_batches * self.batch_size / self.num_drawn if distinct else 1.0

    def row_weight(self, target: str) -> float:
        """Weight of a batch's row, s(N - C)/n, with s the power of the likelihood in the target."""
        return self.likelihood_power(target) * self.num_drawn / self.batch_size

    def likelihood_power(self, target: str) -> float:
        """The power of the likelihood in the target."""
        return 1.0 if target == "posterior" else self.batch_size / self.num_rows


class PenaltySettings(NamedTuple):
    """Checked arguments of :class:`PenaltyMH`.

    Attributes:
        batch_size: n.
        num_batches: K.
        proposal: "random_walk", "langevin" or "hamiltonian".
        target: "posterior" or "expected".
        control_variate: None, "taylor1" or "taylor2".
        hessian_rank: directions in which second derivatives are used, None for all.
        gradient: the force that moves a proposal, "surrogate" or "minibatch"; None for a random walk.
        gradient_batch_size: rows of its minibatch.
        variance_correction: whether the penalty allows for the variance being an estimate.
        num_steps: leapfrog steps of a proposal.
        target_accept_prob: acceptance that the step size adapts to.
        target_noise: χ² that the number of batches adapts to, or None.
    """

    batch_size: int
    num_batches: int
    proposal: str
    target: str
    control_variate: str | None
    hessian_rank: int | None
    gradient: str | None
    gradient_batch_size: int
    variance_correction: bool
    num_steps: int
    target_accept_prob: float
    target_noise: float | None

    @property
    def described_target(self) -> str:
        """The target in words, where it is not the posterior; else ""."""
        tempered = f"the posterior with its likelihood to the power of n/N, n = {self.batch_size}"
        return "" if self.target == "posterior" else tempered

    def batches(self, num_rows: int) -> Batches:
        """The batches of N rows.

        Raises:
            ValueError: when a batch is larger than the data.
        """
        return Batches.of(num_rows, self.batch_size, self.num_batches, self.target_noise is not None)

    @classmethod
    def checked(
        cls,
        *,
        batch_size: Any,
        num_batches: Any,
        proposal: Any,
        target: Any,
        control_variate: Any,
        hessian_rank: Any,
        gradient: Any,
        gradient_batch_size: Any,
        variance_correction: Any,
        num_steps: Any,
        target_accept_prob: Any,
        target_noise: Any,
    ) -> PenaltySettings:
        """Check the arguments of ``PenaltyMH`` and fill in the defaults.

        Raises:
            ValueError: for the first one that is out of range, or that does not go with the others.
        """
        rows = check_positive_int("batch_size", batch_size)
        batches = check_positive_int("num_batches", num_batches, MAX_COUNT)
        if batches < 2:
            raise ValueError(f"num_batches must be at least 2, to estimate a variance from, got {shown(num_batches)}")
        check_choice("proposal", proposal, PROPOSALS)
        check_optional_choice("control_variate", control_variate, CONTROL_VARIATES)
        if gradient_batch_size is not None:
            gradient_batch_size = check_positive_int("gradient_batch_size", gradient_batch_size)
        if target_accept_prob is None:
            target_accept_prob = TARGET_ACCEPT_PROBS[proposal]
        return cls(
            rows,
            batches,
            proposal,
            check_choice("target", target, TARGETS),
            control_variate,
            _resolve_hessian_rank(hessian_rank, control_variate),
            _resolve_gradient(gradient, proposal, control_variate),
            rows * batches if gradient_batch_size is None else gradient_batch_size,
            check_flag("variance_correction", variance_correction),
            _resolve_num_steps(num_steps, proposal),
            check_probability("target_accept_prob", target_accept_prob),
            None if target_noise is None else check_positive_float("target_noise", target_noise),
        )

    @property
    def order(self) -> int:
        """Order of the control variate; 0 for none."""
        return 0 if self.control_variate is None else 1 + CONTROL_VARIATES.index(self.control_variate)

    @property
    def longest_step(self) -> float:
        """Upper limit of the adapted step size."""
        return LONGEST_TRAJECTORY / self.num_steps if self.proposal == "hamiltonian" else math.inf

    @property
    def shortest_step(self) -> float:
        """Smallest fraction of the step size that a proposal may use; it is drawn independently of the state."""
        return SHORTEST_STEP if self.proposal == "hamiltonian" else 1.0


def check_hessian_size(size: int, settings: PenaltySettings) -> None:
    """Raise when second derivatives of so many parameters were asked for without an approximation."""
    rank = settings.hessian_rank
    if settings.control_variate == "taylor2" and rank is None and size > MAX_HESSIAN_SIZE:
        raise ValueError(
            f"control_variate='taylor2' must be used with hessian_rank for more than {MAX_HESSIAN_SIZE} parameters "
            f"(the matrix of second derivatives would have {size}² entries), got {size} and hessian_rank=None; give "
            "hessian_rank, or take control_variate='taylor1' or None"
        )
    if rank is not None and rank >= size:
        raise ValueError(f"hessian_rank must be below the number of parameters, {size}, got {rank}")


def check_given_reference(value: Any, host_array: type) -> dict[str, Any] | None:
    """Return ``reference`` as a dict, or raise unless it is None or maps names of sites to arrays of finite numbers.

    Args:
        value: what was given.
        host_array: the host's class of arrays, which are copied; all others become NumPy's.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value:
        raise ValueError(f"reference must be None or a dict from names of sites to arrays, got {shown(value)}")
    found = {}
    for name, given in value.items():
        x = real_array(given)
        if not is_name(name) or x is None or x.size == 0 or not np.all(np.isfinite(x)):
            raise ValueError(
                f"reference[{shown(name)}] must be an array of finite real numbers under the name of a site, "
                f"got {shown(given)} in {shown(value)}"
            )
        found[name] = copied(given) if isinstance(given, host_array) else x
    return found


def check_reference(given: Iterable[str], sites: Iterable[str]) -> None:
    """Raise unless a reference holds every latent site."""
    missing = [name for name in sites if name not in set(given)]
    if missing:
        raise ValueError(f"reference must hold a value of every latent site, {list(sites)}, got none of {missing}")


def check_reference_inside(given: Mapping[str, Any], reference: Mapping[str, Any]) -> None:
    """Raise unless a reference lies inside the support of every site.

    Args:
        given: the reference by site, constrained.
        reference: the same, unconstrained; not finite at a support's boundary and beyond it.
    """
    for name, u in reference.items():
        if not np.all(np.isfinite(as_numpy(u))):
            raise ValueError(
                f"reference must lie inside the support of every site, got {shown(as_numpy(given[name]))} at {name!r}"
            )


def warn_of_tail(tail_error: Any) -> None:
    """Warn that single rows carry the noise."""
    warnings.warn(
        f"the noise of PenaltyMH comes from single rows: rows that are not drawn may put the log-density off by "
        f"{float(tail_error):.2g}, so the draws may be biased; raise batch_size (that many of the most influential "
        "rows are read in every iteration) or num_batches, or use an exact kernel; audit(mcmc) measures the bias",
        stacklevel=2,
    )


def warn_of_noise(share: Any, mean_chi2: Any, num_batches: Any) -> None:
    """Warn that the penalty cannot be trusted."""
    warnings.warn(
        f"the noise of PenaltyMH is too large to trust: χ² was above K/4 (K = {int(num_batches)} batches) in "
        f"{float(share):.0%} of the first draws, {float(mean_chi2):.3g} on average, so the draws may be biased; raise "
        "num_batches or batch_size, set target_noise, use a control variate, or lower step_size; "
        "audit(mcmc) measures the bias",
        stacklevel=2,
    )


def _resolve_hessian_rank(hessian_rank: Any, control_variate: str | None) -> int | None:
    if hessian_rank is None:
        return None
    rank = check_positive_int("hessian_rank", hessian_rank)
    if control_variate != "taylor2":
        raise ValueError(
            f"hessian_rank must be None unless control_variate='taylor2', got {shown(hessian_rank)} with "
            f"control_variate={control_variate!r}"
        )
    return rank


def _resolve_gradient(gradient: Any, proposal: str, control_variate: str | None) -> str | None:
    if proposal == "random_walk":
        if gradient is not None:
            raise ValueError(
                f"gradient must be None for proposal='random_walk', which uses none, got {shown(gradient)}"
            )
        return None
    check_optional_choice("gradient", gradient, GRADIENTS)
    if gradient is None:
        return "surrogate" if control_variate == "taylor2" else "minibatch"
    if gradient == "surrogate" and control_variate != "taylor2":
        raise ValueError(
            f"gradient='surrogate' must go with control_variate='taylor2', whose surrogate it follows, got "
            f"control_variate={control_variate!r}"
        )
    return gradient


def _resolve_num_steps(num_steps: Any, proposal: str) -> int:
    if proposal == "hamiltonian":
        return check_positive_int("num_steps", DEFAULT_NUM_STEPS if num_steps is None else num_steps, MAX_COUNT)
    if num_steps is not None and whole_number(num_steps) != 1:
        raise ValueError(
            f"num_steps must be None or 1 for proposal={proposal!r}, which has one, got {shown(num_steps)}"
        )
    return 1
