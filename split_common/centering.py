r"""Centred splitting: the same potential, divided into subsets whose gradients are nearly alike.

With a reference :math:`z^*`, and gradients and Hessians there, the potentials of the M subsets
are changed to

.. math:: U'_m(z) = U_m(z) - c_m^\top (z - z^*) - \tfrac12 (z - z^*)^\top C_m (z - z^*), \qquad
    c_m = \nabla U_m(z^*) - \tfrac1M \nabla U(z^*), \quad C_m = \nabla^2 U_m(z^*) - \tfrac1M \nabla^2 U(z^*),

where centring of first order leaves out the last term. The sums of :math:`c_m` and :math:`C_m` over m vanish, so
:math:`\sum_m U'_m = U` for *every* reference: the target and the accept-reject decision do not change, and only the
kicks do. These are still gradients, so that steps preserve volume and are reversible as before
(:mod:`split_common.schedule`). The reference must not depend on the state: it is found in warm-up and then fixed.

The step size of a split integrator is limited by the commutator of the drift with the *differences* between the
subsets' gradients. At the reference these differences are noise of order √N, large compared with the gradient of the
log-posterior. Centring of first order removes this constant part, and centring of second order the linear part too.
Then a step of any schedule is nearly a sequence of leapfrog steps, one for each of its kicks.

Centring does not always help: where the gradients at the reference say nothing about those where the chain is, as in a
neural network, centring of second order makes the step size several times smaller. So with ``center="auto"`` warm-up
compares the squared differences between the gradients at a draw, in the metric of the momenta. It keeps centring of the
order that leaves the smallest differences, or turns centring off if even that leaves more than the share
:data:`MOST_LEFT`.

Two kinds of sites are not centred: latent sites in the data plate, whose entries belong to one row and so move with one
subset alone, and precisions that a kernel moves or draws in its own way. For them the two correction terms are 0,
and the sums vanish as before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from split_common.checks import check_positive_int
from split_common.values import is_name, real_array, shown

MOST_LEFT = 0.25  # share of the squared differences of the forces that may be left: half of their size
MAX_SECOND_ORDER_SIZE = 100  # parameters up to which second order is tried: M matrices of so many rows are kept
# Longest step of a centred schedule, a quarter of a turn in the metric of the momenta. Its energy error hardly grows
# with the step size, so that acceptance sets no limit, and a tree would turn back within one step. A learned length may
# be up to a quarter longer (:mod:`split_common.exploration`), and one step is to make it.
LONGEST_CENTRED_STEP, LONGEST_CENTRED_LENGTH = math.pi / 2, 1.25 * math.pi / 2


class CenterSettings(NamedTuple):
    """Whether and how splitting is centred.

    Attributes:
        center: None for no centring, "auto" for a reference found in warm-up, or a dict of unconstrained values by
            site.
        order: 1 or 2; None for the order that is measured to be best, and with a given reference for 1.
    """

    center: Any = None
    order: int | None = None

    @classmethod
    def checked(cls, center: Any, center_order: Any) -> CenterSettings:
        """The settings that a kernel's arguments ask for.

        Raises:
            ValueError: for an argument out of range, and for an order without a center.

        Example:
            >>> CenterSettings.checked("auto", 2)
            CenterSettings(center='auto', order=2)
        """
        order = None if center_order is None else check_positive_int("center_order", center_order, at_most=2)
        if order is not None and center is None:
            raise ValueError(f"center_order must be None where center is None, got {shown(center_order)}")
        if isinstance(center, Mapping) and center:
            return cls({name: _checked_values(name, value, center) for name, value in center.items()}, order)
        if center is not None and not (isinstance(center, str) and center == "auto"):
            raise ValueError(
                f"center must be None, 'auto' or a dict of unconstrained values by site, got {shown(center)}"
            )
        return cls(center, order)

    @property
    def is_on(self) -> bool:
        """Whether splitting is centred."""
        return self.center is not None

    @property
    def is_found(self) -> bool:
        """Whether the reference is found in warm-up."""
        return isinstance(self.center, str)

    def keeps_second_order(self, size: int) -> bool:
        """Whether the matrices of second order are kept for ``size`` centred parameters."""
        if self.order is None:
            return self.is_found and size <= MAX_SECOND_ORDER_SIZE
        return self.order == 2

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Raise unless a given reference has a value for every entry of every site, and the order is feasible.

        Args:
            sizes: number of unconstrained values of each latent site.

        Raises:
            ValueError: for other sites or sizes, and for second order with too many parameters.
        """
        size = sum(sizes.values())
        if self.order == 2 and size > MAX_SECOND_ORDER_SIZE:
            raise ValueError(
                f"center_order must be None or 1 for more than {MAX_SECOND_ORDER_SIZE} parameters, "
                f"got center_order=2 for {size}"
            )
        if not isinstance(self.center, Mapping):
            return
        given = {name: int(np.size(value)) for name, value in self.center.items()}
        if given != dict(sizes):
            raise ValueError(
                f"center must have the unconstrained values of the latent sites, as many as {dict(sizes)}, got {given}"
            )

    @property
    def layout(self) -> tuple[str, ...]:
        """Text of the settings on which the gradients kept in a state depend."""
        given = self.center
        if isinstance(given, Mapping):
            given = {name: value.tolist() for name, value in sorted(given.items())}
        return (f"centred about {given}, order {self.order}",) if self.is_on else ()


def choose_order(left: Any, allowed: int | None) -> int:
    """Order of centring that leaves the smallest differences between the gradients; 0 for no centring.

    Args:
        left: squared differences between the gradients without centring, and with centring of first and of second
            order.
        allowed: the only order that may be chosen besides 0; None for any.

    Example:
        >>> choose_order([1.0, 0.1, 0.01], None), choose_order([1.0, 0.1, 0.01], 1), choose_order([1.0, 0.4, 9.0], None)
        (2, 1, 0)
    """
    shares = {order: left[order] for order in (1, 2) if allowed in (None, order) and np.isfinite(left[order])}
    best = min(shares, key=lambda order: shares[order], default=0)
    return best if best and shares[best] <= MOST_LEFT * left[0] else 0


def _checked_values(name: Any, value: Any, given: Any) -> np.ndarray:
    values = real_array(value)
    if not is_name(name) or values is None or not np.all(np.isfinite(values)):
        raise ValueError(f"center must map names of sites to finite real values, got {shown(given)}")
    return values
