"""Check that the terms of a split potential add up to the model's own potential.

At one point values are compared relative to the sum of the terms' magnitudes, with which rounding grows, and gradients
relative to their norm. Between points changes of energy are compared in nats, as a decision to accept depends on them.

A proof (:mod:`split_common.row_independence`) holds for all parameter values, and only one point is compared besides.
Where nothing is proved, several points are compared: near the start, and along a descent of the split potential, where
a sampler would go. Then differences of energy between points are compared too.

Up to a budget of rows all of them are used, in value and gradient. Above it the comparison must not need the memory
that splitting saves: it is made on a sample of rows, those with each column's extreme values among them, and what is
not proved is compared in value on all rows too, where the machine's memory allows. A model that fixes N itself cannot
be run on a sample: then values alone are compared, on all rows. A point at which the model's own potential is not
finite says nothing, and is drawn again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from split_common.errors import ModelNotSplittableError

LIKELY_REASON = (
    "likely the model uses a statistic of all rows (a column mean), rows depend on one another, or an argument "
    "is not what it seems (name the ones that hold rows with data_axes)"
)
SINGLE_PRECISION = (
    "likely part of the model computes in single precision (a network's weights, a `.float()`), where the sum over "
    "subsets is rounded otherwise than the sum over all rows; give all of it float64, or all of it float32"
)
NO_GRADIENT = (
    "the model's own gradient is not finite at this point, where its value is; write the model so that its derivatives "
    "exist (a square root at 0 has none, nor a `where` of which the branch that is not taken overflows)"
)
TOLERANCE, TOLERANCE_SINGLE = 1e-8, 1e-4  # relative differences in double and in single precision
LARGEST_DIFFERENCE = 1e-3  # nats by which two changes of energy may differ
ROUNDINGS = 32  # roundings of the sum of a potential's terms that may add up


def check_factors(energies: np.ndarray) -> None:
    """Raise where a plate that holds factors alone has no likelihood, which then lies elsewhere.

    Args:
        energies: the prior's energy and those of the subsets, shape (M + 1,).
    """
    if not np.any(energies[1:]):
        raise ModelNotSplittableError(
            f"the data plate must hold the likelihood, got a log-likelihood of 0 for all {len(energies) - 1} subsets "
            f"(the whole potential is {energies.sum():.10g}): nothing in the plate depends on the data"
        )


def compare_split(
    whole: float,
    energies: np.ndarray,
    whole_grad: np.ndarray | None = None,
    split_grad: np.ndarray | None = None,
) -> None:
    """Raise unless the terms of a split potential add up to the whole, in value and gradient.

    Args:
        whole: the model's own potential.
        energies: the prior's energy and those of the subsets, shape (M + 1,).
        whole_grad: gradient of the model's own potential, flat; None to compare values only.
        split_grad: the gradient summed over subsets, flat.

    Raises:
        ModelNotSplittableError: with both numbers and the likely reason.
    """
    is_double = energies.dtype == np.float64
    tolerance = TOLERANCE if is_double else TOLERANCE_SINGLE
    energies = energies.astype(np.float64)
    split = float(energies.sum())
    size = max(np.abs(energies).sum(), 1.0)
    if not abs(whole - split) <= tolerance * size:
        raise ModelNotSplittableError(
            f"the sum over subsets must equal the model's own potential, got {split:.10g} against {whole:.10g}; "
            + _likely_reason(float(abs(whole - split) / size), is_double)
        )
    if whole_grad is None or split_grad is None:
        return
    norm, off = np.linalg.norm(whole_grad), np.linalg.norm(whole_grad - split_grad)
    if not off <= tolerance * max(norm, 1.0):
        reason = _likely_reason(float(off / max(norm, 1.0)), is_double) if np.isfinite(norm) else NO_GRADIENT
        raise ModelNotSplittableError(
            f"the gradient summed over subsets must equal the model's own, got norm {np.linalg.norm(split_grad):.10g} "
            f"against {norm:.10g}, a difference of {off:.3g}; {reason}"
        )


def _likely_reason(difference: float, is_double: bool) -> str:
    """The likely reason of a relative difference, in words."""
    return SINGLE_PRECISION if is_double and difference <= ROUNDINGS * np.finfo(np.float32).eps else LIKELY_REASON


def compare_differences(wholes: Sequence[float], energies: Sequence[np.ndarray]) -> None:
    """Raise unless differences of energy between points are the model's own, in nats.

    Args:
        wholes: the model's own potential at each point.
        energies: at each point, the prior's energy and those of the subsets, shape (M + 1,).

    Raises:
        ModelNotSplittableError: with both numbers.
    """
    for whole, terms in zip(wholes[1:], energies[1:], strict=True):
        change = whole - wholes[0]
        split = float(terms.astype(np.float64).sum() - energies[0].astype(np.float64).sum())
        rounding = ROUNDINGS * float(np.finfo(terms.dtype).eps * max(np.abs(x).sum() for x in (terms, energies[0])))
        if not abs(change - split) <= LARGEST_DIFFERENCE + rounding:
            raise ModelNotSplittableError(
                f"between two points the energy must change as the model's own, got a change by {split:.10g} against "
                f"{change:.10g}; {LIKELY_REASON}"
            )
